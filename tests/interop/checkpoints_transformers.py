# SPDX-License-Identifier: MIT
"""What `convert --to hf` writes is loaded by transformers with our logits, and what transformers saves of it is read
here with the same logits. A model whose norm has other groups than its keys is refused.

    pip install torch transformers numpy
    python3 checkpoints_transformers.py --program build/palimpsa --library build/libpalimpsa.so

Needs transformers 5.23.0 or newer, which takes the gated norm per group. Models are small random Mamba2s: with one and two
groups, with limits of the time step (none, a lower one, both), tied and untied heads, in f32 and f16. Ends with exit code 1
when a logit differs by more than 1e-4 of the largest.
"""
import argparse
import itertools
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


def edit(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def write(source, target, dtype):
    """For transformers; without our key norm_groups, which transformers would pass on to what it saves."""
    done = convert(source, target, "--to", "hf", "--dtype", dtype)
    if done.returncode:
        sys.exit(f"{source.name}: {done.stderr}")
    edit(target, lambda config: config.pop("norm_groups"))


def check(name, folder, groups, limit, tied, dtype):
    make(folder, groups=groups, rows=256, vocab=250, D=64, layers=2, N=16, P=16)
    if limit:
        edit(folder, lambda config: config["ssm_cfg"].update(dt_limit=[limit[0], float("inf") if limit[1] == "Infinity" else limit[1]]))
    hf, saved = folder / "hf", folder / "saved"
    write(folder, hf, dtype)
    if not tied:  # its own head, as transformers makes one
        model, _ = theirs(hf)
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)
        model.save_pretrained(folder / "untied")
        hf = folder / "again"
        write(folder / "untied", hf, dtype)
    expected = ours(hf)
    model, found = theirs(hf)
    compare(name, found, expected)
    model.save_pretrained(saved)
    compare(f"{name}, saved by transformers", ours(saved), expected)


def check_refusal(folder):
    """A norm over all channels of a model with two groups of keys: transformers would compute something else."""
    global failures
    make(folder, groups=2, rows=256, vocab=250, D=64, layers=2, N=16, P=16)
    hf = folder / "hf"
    write(folder, hf, "f32")
    edit(hf, lambda config: config.update(norm_groups=1))
    different = float(numpy.abs(ours(hf) - theirs(hf)[1]).max() / numpy.abs(theirs(hf)[1]).max())
    done = convert(hf, folder / "refused", "--to", "hf")
    good = different > 0.01 and done.returncode == 2 and "transformers since 5.23.0" in done.stderr
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: a norm over all channels differs by {different:.1e} and is refused: {done.stderr.strip()}")


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
    for groups, what, tied, dtype in itertools.product((1, 2), LIMITS, (True, False), ("f32", "f16")):
        name = f"{groups} group{'s' * (groups > 1)}, {what}, {'tied' if tied else 'own'} head, {dtype}"
        check(name, root / name, groups, LIMITS[what], tied, dtype)
    check_refusal(root / "refused")
sys.exit(1 if failures else 0)
