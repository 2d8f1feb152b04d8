#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published families against transformers: random small models of each, in many shapes, are saved by transformers and read here;
what `convert --to hf` writes of them, directly and by way of our own layout, is loaded by transformers. Every time the logits are
compared, whole in transformers and token by token here, and the tensors bit for bit.

    pip install torch transformers numpy
    python3 families_transformers.py --program build/palimpsa --library build/libpalimpsa.so [--families granite,lfm2]

Written for transformers 5.23.0. Ends with exit code 1 when a logit differs by more than 1e-5 of the largest (Gated DeltaNet:
1e-4, where float32 is not more exact), or a tensor that nothing has computed differs at all.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
import torch
from family_models import FAMILIES, random_model
from palimpsa_model import Model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

IDS = [1, 5, 9, 100, 17, 42, 3, 3, 119, 88, 7, 64, 31, 2, 2, 90]
def theirs(model):
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0].double().numpy()


def ours(path):
    model = Model(a.library, path)
    logits = numpy.array([model.feed([i]) for i in IDS], dtype=numpy.float64)
    model.close()
    return logits


def check(what, good, detail):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: {what}: {detail}", flush=True)


def compare(what, x, y, bound):
    error = float(numpy.abs(x - y).max() / numpy.abs(y).max())
    check(what, error <= bound, f"logits differ by {error:.1e} of the largest")


def convert(source, target, layout):
    subprocess.run([a.program, "convert", str(source), str(target), "--to", layout, "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)


def changed(x, y):
    first, second = load_file(x / "model.safetensors"), load_file(y / "model.safetensors")
    return sorted(n for n in set(first) | set(second) if n not in first or n not in second or not torch.equal(first[n], second[n]))


def old_words(folder):
    """Configurations as older versions wrote them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key in ("layer_types", "layers_block_type"):
        if isinstance(config.get(key), list) and config["model_type"] in ("granitemoehybrid", "nemotron_h"):
            config[key] = [w.replace("linear_attention", "mamba").replace("full_attention", "attention") for w in config[key]]
    if config["model_type"] == "nemotron_h":
        letters = {"mamba": "M", "attention": "*", "mlp": "-"}
        config["hybrid_override_pattern"] = "".join(letters[w] for w in config.pop("layers_block_type"))
    if config["model_type"] != "qwen3_5_text":
        config["rope_theta"] = config.pop("rope_parameters", {}).get("rope_theta", 10000.0)
    path.write_text(json.dumps(config).replace('{"__float__": "Infinity"}', "Infinity"))


def one(name, config, number, root):
    what, delta = f"{name} {number}", name == "qwen"
    bound = 1e-4 if delta else 1e-5
    model = random_model(config, number)
    expected = theirs(model)
    folder = root / f"{name}{number}"
    model.save_pretrained(folder)
    compare(f"{what}: what transformers saved", ours(folder), expected, bound)
    convert(folder, root / "same", "hf")
    check(f"{what}: written again", not changed(folder, root / "same"), "the same tensors")
    convert(folder, root / "ours", "palimpsa")
    convert(root / "ours", root / "back", "hf")
    rounded = [n for n in changed(folder, root / "back") if not (delta and "norm" in n)]  # norms are stored less 1
    check(f"{what}: by way of ours", not rounded, f"{len(rounded)} tensors changed")
    again = AutoModelForCausalLM.from_pretrained(root / "back", dtype=torch.float32).eval()
    compare(f"{what}: transformers of what is written", theirs(again), expected, 1e-6)
    old_words(folder)
    compare(f"{what}: in old words", ours(folder), expected, bound)
    for path in ("same", "ours", "back"):
        subprocess.run(["rm", "-r", str(root / path)], check=True)


arguments = argparse.ArgumentParser()
arguments.add_argument("--program", required=True)
arguments.add_argument("--library", required=True)
arguments.add_argument("--families", default=",".join(FAMILIES))
a = arguments.parse_args()
failures = count = 0
with tempfile.TemporaryDirectory() as temporary:
    for name in a.families.split(","):
        for number, config in enumerate(FAMILIES[name]()):
            one(name, config, number, pathlib.Path(temporary))
            count += 1
print(f"{count} models of {len(a.families.split(','))} families, {failures} failures")
raise SystemExit(failures > 0)
