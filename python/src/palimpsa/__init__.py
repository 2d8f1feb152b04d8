# SPDX-License-Identifier: MIT
"""Linear attention with a memory that knows how important its elements are, on ordinary CPUs: models and memory rules.

    model = palimpsa.Model.open("runs/talk")
    print(model.generate("ROMEO:", max_tokens=50).all())

    y, state = palimpsa.memory.forward("gla", q, k, v, g=g, output_final_state=True)
"""
from . import memory
from ._library import Stopped, devices, get_threads, set_threads, version
from .model import Model, Score
from .observe import Layer, Observation, Reading, Windows
from .session import Generation, Session, Token
from .tokenizer import Tokenizer
from .training import Trained, TrainProgress, train
from .work import (Converted, Metric, Perplexity, Proof, Surgery, TaskResult, convert, evaluate, evaluate_task, make_metaplastic,
                   tasks)

__all__ = ["Converted", "Generation", "Layer", "Metric", "Model", "Observation", "Perplexity", "Proof", "Reading", "Score", "Session", "Stopped",
           "Surgery", "TaskResult", "Token", "Tokenizer", "TrainProgress", "Trained", "Windows", "convert", "evaluate",
           "devices", "evaluate_task", "get_threads", "make_metaplastic", "memory", "set_threads", "tasks", "train", "version"]
__version__ = "0.1.0"
