# SPDX-License-Identifier: MIT
"""What `convert --to hf-mamba2` writes is loaded by transformers, with our logits, and what transformers saves of it is read
here, with the same.

    pip install torch transformers numpy
    python3 checkpoints_transformers.py --program build/palimpsa --library build/libpalimpsa.so

Models are small random Mamba2s: with limits of the time step (none, a lower one, both), tied and untied heads, in f32 and
f16. Ends with exit code 1 when a logit differs by more than 1e-4 of the largest.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from palimpsa_model import Model
from random_mamba2 import make

IDS = [1, 5, 9, 200, 17, 42, 3, 3, 249, 88, 7]
LIMITS = {"no limit": None, "a lower limit": [0.05, "Infinity"], "both limits": [0.01, 0.06]}


def ours(folder):
    model = Model(a.library, folder)
    logits = numpy.array([model.feed([i]) for i in IDS])
    model.close()
    return logits


def theirs(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model, model(torch.tensor([IDS])).logits[0].numpy()


def compare(what, x, y, bound=1e-4):
    global failures
    error = float(numpy.abs(x - y).max() / numpy.abs(y).max())
    good = error <= bound  # not so for NaN
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: {what}: logits differ by {error:.1e} of the largest", flush=True)


def convert(*words):
    return subprocess.run([a.program, "convert", *map(str, words)], capture_output=True, text=True)


arguments = argparse.ArgumentParser()
for name in ("program", "library"):
    arguments.add_argument(f"--{name}", required=True)
a = arguments.parse_args()
failures = 0
print(f"transformers {transformers.__version__}, torch {torch.__version__}")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    for what, limit in LIMITS.items():
        for tied in (True, False):
            for dtype in ("f32", "f16"):
                name = f"{what}, {'tied' if tied else 'own'} head, {dtype}"
                folder = root / name
                make(folder, rows=256, vocab=250, D=64, layers=2, N=16, P=16)
                config = json.loads((folder / "config.json").read_text())
                if limit:
                    config["ssm_cfg"]["dt_limit"] = [limit[0], float("inf") if limit[1] == "Infinity" else limit[1]]
                (folder / "config.json").write_text(json.dumps(config))
                hf = root / f"{name} hf"
                done = convert(folder, hf, "--to", "hf-mamba2", "--dtype", dtype)
                if done.returncode:
                    sys.exit(f"{name}: {done.stderr}")
                if not tied:  # a head of its own, as transformers makes one
                    model, _ = theirs(hf)
                    model.config.tie_word_embeddings = False
                    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)
                    model.save_pretrained(root / f"{name} untied")
                    done = convert(root / f"{name} untied", root / f"{name} again", "--to", "hf-mamba2", "--dtype", dtype)
                    if done.returncode:
                        sys.exit(f"{name}: {done.stderr}")
                    hf = root / f"{name} again"
                expected = ours(hf)
                model, found = theirs(hf)
                compare(name, found, expected)
                model.save_pretrained(root / f"{name} saved")
                compare(f"{name}, saved by transformers", ours(root / f"{name} saved"), expected)
sys.exit(1 if failures else 0)
