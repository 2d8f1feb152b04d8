# SPDX-License-Identifier: MIT
"""GGUF files to and from llama.cpp: one that we wrote is read by the package `gguf` and by llama.cpp, with the same logits
and the same greedy tokens; ones that llama.cpp quantised are read here, with nearly its logits.

    pip install numpy gguf llama-cpp-python
    python3 checkpoints_llama_cpp.py --program build/palimpsa --library build/libpalimpsa.so --tokenizer gpt-neox/tokenizer.json [--groups 1,2]

The model is a small random Mamba2 with the tokenizer's real vocabulary. Ends with exit code 1 when a bound is missed.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy
from palimpsa_model import Model
from palimpsa_tokenizer import Tokenizer
from random_mamba2 import make

TEXT = "The memory of a model is what it keeps of a text: names, numbers (17, 42), and  how   things\nstand. Once upon a time"


class Theirs:
    def __init__(self, path):
        self.llm = llama_cpp.Llama(model_path=str(path), n_ctx=512, n_batch=256, logits_all=True, n_gpu_layers=0, n_threads=2, verbose=False)

    def feed(self, ids):
        self.llm.eval(list(ids))
        return numpy.array(self.llm.scores[self.llm.n_tokens - 1], dtype=numpy.float64)


def greedy(model, ids, n, vocab):
    logits, out = model.feed(ids), []
    first = numpy.array(logits, dtype=numpy.float64)
    for _ in range(n):
        out.append(int(numpy.argmax(numpy.array(logits)[:vocab])))
        logits = model.feed([out[-1]])
    return first, out


def cosine(a, b):
    return float(a @ b / numpy.linalg.norm(a) / numpy.linalg.norm(b))


arguments = argparse.ArgumentParser()
for name in ("program", "library", "tokenizer"):
    arguments.add_argument(f"--{name}", required=True)
arguments.add_argument("--groups", default="1,2")
a = arguments.parse_args()
failures = 0


def check(what, good, detail):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: {what}: {detail}", flush=True)


def check_rounded(file, ids, tokens):
    """Both read the same tokens; where the best two logits lie further apart than the programs usually do, the best is the same."""
    ours, theirs, steps = Model(a.library, file), Theirs(file), []
    for fed in (ids, *([t] for t in tokens)):
        steps.append((numpy.array(ours.feed(fed)), theirs.feed(fed)))
    usual = float(numpy.sqrt(numpy.mean([(x - y) ** 2 for x, y in steps])))
    clear = [(x, y) for x, y in steps if numpy.diff(numpy.sort(y)[-2:])[0] > 6 * usual]
    same = sum(int(x.argmax() == y.argmax()) for x, y in clear)
    check("greedy tokens that are clear", same == len(clear) >= len(steps) // 3, f"{same} of {len(clear)} the same; {len(steps)} steps, logits differ by {usual:.3g} (root mean square)")
    ours.close()


def convert(*options):
    subprocess.run([a.program, "convert", *map(str, options)], check=True, stdout=subprocess.DEVNULL)


with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    for groups in map(int, a.groups.split(",")):
        made = make(root / f"official{groups}", groups)
        for dtype in ("f32", "f16", "q8_0"):
            file = root / f"{groups}-{dtype}.gguf"
            convert(root / f"official{groups}", file, "--to", "gguf", "--dtype", dtype, "--tokenizer", a.tokenizer)
            read = {t.name: t for t in gguf.GGUFReader(file).tensors}
            values = gguf.dequantize(read["blk.1.ssm_in.weight"].data, read["blk.1.ssm_in.weight"].tensor_type).reshape(-1)
            wanted = made["backbone.layers.1.mixer.in_proj.weight"].reshape(-1)
            error = float(numpy.abs(values - wanted).max() / numpy.abs(wanted).max())
            check(f"package gguf, {groups} groups, {dtype}", error <= {"f32": 0, "f16": 5e-4, "q8_0": 5e-3}[dtype], f"{len(read)} tensors, in_proj differs by {error:.1e}")
            theirs, tokenizer = Theirs(file), Tokenizer(a.library, a.tokenizer)
            ids = list(tokenizer.encode(TEXT))
            check("tokens", ids == theirs.llm.tokenize(TEXT.encode(), add_bos=False), f"{len(ids)}")
            ours = Model(a.library, file)
            x, mine = greedy(ours, ids, 32, ours.vocab)
            y, other = greedy(theirs, ids, 32, ours.vocab)
            error = float(numpy.abs(x - y).max() / numpy.abs(y).max())
            good = error <= 1e-3 if dtype != "q8_0" else cosine(x, y) >= 0.999  # llama.cpp quantises activations there
            check(f"llama.cpp, {groups} groups, {dtype}", good, f"logits differ by {error:.1e} of their largest, cosine {cosine(x, y):.7f}")
            if dtype == "q8_0":
                check_rounded(file, ids, mine)
            else:
                check("32 greedy tokens", mine == other, f"{mine[:6]}... and {other[:6]}...")
            ours.close()
            del theirs
        for name, ftype, bound in (("Q8_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, 0.999), ("Q4_K", llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, 0.995), ("Q6_K", llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K, 0.998),
                                   ("Q4_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, 0.99)):
            file = root / f"{groups}-{name}.gguf"
            parameters = llama_cpp.llama_model_quantize_default_params()
            parameters.ftype, parameters.nthread = ftype, 2
            status = llama_cpp.llama_model_quantize(str(root / f"{groups}-f32.gguf").encode(), str(file).encode(), parameters)
            types = sorted({t.tensor_type.name for t in gguf.GGUFReader(file).tensors})
            ours, theirs = Model(a.library, file), Theirs(file)
            x, y = numpy.array(ours.feed(ids)), theirs.feed(ids)
            check(f"quantised by llama.cpp, {groups} groups, {name}", status == 0 and cosine(x, y) >= bound, f"cosine {cosine(x, y):.6f}, bound {bound}; types {' '.join(types)}")
            read = {t.name: t for t in gguf.GGUFReader(file).tensors}
            convert(file, root / f"{groups}-{name}-back", "--to", "official", "--dtype", "f32", "--tokenizer", "none")
            raw = (root / f"{groups}-{name}-back" / "model.safetensors").read_bytes()
            (length,) = struct.unpack("<Q", raw[:8])
            entries = json.loads(raw[8 : 8 + length])
            for mapped, at in (("blk.0.ssm_in.weight", "backbone.layers.0.mixer.in_proj.weight"), ("token_embd.weight", "backbone.embedding.weight")):
                begin, end = entries[at]["data_offsets"]
                mine = numpy.frombuffer(raw[8 + length + begin : 8 + length + end], dtype=numpy.float32)
                other = gguf.dequantize(read[mapped].data, read[mapped].tensor_type).reshape(-1)
                check(f"values of {mapped} ({read[mapped].tensor_type.name})", numpy.array_equal(mine, other), f"{len(mine)} values")
            ours.close()
            del theirs
sys.exit(1 if failures else 0)
