# SPDX-License-Identifier: MIT
"""Linear attention with a memory that knows how important its elements are, on ordinary CPUs: models and memory rules.

    model = palimpsa.Model.open("runs/talk")
    print(model.generate("ROMEO:", max_tokens=50).all())

    y, state = palimpsa.memory.forward("gla", q, k, v, g=g, output_final_state=True)
"""
from . import memory
from ._library import Stopped, get_threads, set_threads, version
from .model import Model, Score
from .observe import Layer, Observation, Windows
from .session import Generation, Session, Token
from .tokenizer import Tokenizer

__all__ = ["Generation", "Layer", "Model", "Observation", "Score", "Session", "Stopped", "Token", "Tokenizer", "Windows", "get_threads",
           "memory", "set_threads", "version"]
__version__ = "0.1.0"
