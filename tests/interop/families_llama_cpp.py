#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published families against llama.cpp. Random small models of each family, in many shapes: the GGUF file that we write is read by
llama.cpp, and (with --llama-cpp) the one that its own converter writes is read here; the logits are those of transformers. Models
in the shapes of published ones, cut to some layers, are quantised by llama.cpp; both programs read the result.

    pip install torch transformers numpy gguf llama-cpp-python
    python3 families_llama_cpp.py --program build/palimpsa --library build/libpalimpsa.so [--llama-cpp CHECKOUT] [--families granite,qwen]

Ends with exit code 1 when a bound is missed. Bounds, of the largest logit: F32 3e-6; Qwen3.5 2e-4, as llama.cpp divides by a norm that is not below
1e-6 where transformers and we add 1e-6 under the root. What its files cannot say gets an architecture of ours, and a warning that says why.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import llama_cpp
import numpy
import torch
from family_models import FAMILIES, random_model
from palimpsa_model import Model
from random_families import SHAPES, make

IDS = [1, 5, 9, 100, 17, 42, 3, 3, 119, 88, 7, 64, 31, 2, 2, 90]
VOCAB = 304
# Shapes that a GGUF file of the family cannot say, by what the warning names.
REFUSED = r"conv_bias is|position_embedding_type is|mamba_norm_before_gate is|linear_value_head_dim is|layer_types is|bamba|head_dim is|time_step_limit is"
WITHOUT_ATTENTION = {("granite", 4), ("nemotron", 4)}  # on which llama.cpp fails an assertion
LAYERS = {"nemotron-3-nano-4b": 14, "qwen3.5-4b": 4, "granite-4.0-h-350m": 11, "granite-4.0-h-1b": 6}
# Where weights have 6 or 8 bits, most of the difference is llama.cpp's rounding of activations, to 8 bits in blocks of 256 or 32.
TYPES = dict(Q8_0=(7, 0.997), Q4_K_M=(15, 0.99), Q5_K_M=(17, 0.995), Q6_K=(18, 0.993), Q3_K_M=(12, 0.97), Q2_K=(10, 0.9), IQ4_XS=(30, 0.98), Q4_0=(2, 0.98), Q5_0=(8, 0.99),
             Q5_1=(9, 0.99), Q4_1=(3, 0.98))
PATCHED_CONVERTER = """
import json, runpy, sys
root, folder, out, *more = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
from conversion import ModelBase, TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"  # the tokenizer is made up
# Through transformers it would get defaults of experts, which dense models do not have.
ModelBase.load_hparams = staticmethod(lambda folder, *_, **__: json.load(open(folder / "config.json")))
sys.argv = ["convert", folder, "--outtype", "f32", "--outfile", out, *more]
runpy.run_path(root + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def in_llama_cpp(path, ids):
    """Attention in f32: its default cache of f16 would hide what is looked for."""
    llm = llama_cpp.Llama(model_path=str(path), n_ctx=256, logits_all=True, n_gpu_layers=0, n_threads=2, verbose=False, type_k=0, type_v=0, flash_attn=False)
    llm.eval(ids)
    return numpy.array(llm.scores[: len(ids)], dtype=numpy.float64)


def here(path, ids):
    model = Model(a.library, path)
    logits = numpy.array([model.feed([i]) for i in ids], dtype=numpy.float64)
    model.close()
    return logits


def check(what, good, detail):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: {what}: {detail}", flush=True)


def compare(what, x, y, bound):
    x, y = x[:, : y.shape[1]], y[:, : x.shape[1]]
    error = float(numpy.abs(x - y).max() / numpy.abs(y).max())
    check(what, error <= bound, f"logits differ by {error:.1e} of the largest")


def cosine(x, y):
    return float((x * y).sum() / numpy.linalg.norm(x) / numpy.linalg.norm(y))


def give_tokenizer(folder):
    """A token a byte, one merge and an end of text: what a converter asks for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, "ab"])}, merges=[("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", bos_token="<|end|>").save_pretrained(folder)


def for_the_converter(folder):
    """Configurations as they are published: its converter does not know all words of today's transformers."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    old = dict(linear_attention="mamba", full_attention="attention")
    if config["model_type"] == "granitemoehybrid":
        config["layer_types"] = [old.get(w, w) for w in config["layer_types"]]
    if config["model_type"] == "falcon_h1" and not config.get("head_dim"):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if config["model_type"] == "nemotron_h":
        letters = dict(linear_attention="M", full_attention="*", mlp="-", mamba="M", attention="*")
        config["hybrid_override_pattern"] = "".join(letters[w] for w in config.pop("layers_block_type"))
        config["num_hidden_layers"] = len(config["hybrid_override_pattern"])
        for key in ("num_experts_per_tok", "n_routed_experts"):
            config.pop(key, None)
    path.write_text(json.dumps(config))


def small(name, number, config, root):
    what, bound = f"{name} {number}", 2e-4 if name == "qwen" else 3e-6
    config.vocab_size = VOCAB
    if name == "qwen":
        config.layer_types = ["linear_attention"] * 3 + ["full_attention"]  # as all that are published have it
    if name == "nemotron":
        config.mamba_head_dim = 16  # its converter wants the heads to share a multiple of 64 channels
    model = random_model(config, number)
    with torch.no_grad():
        expected = model(torch.tensor([IDS]), use_cache=False).logits[0].double().numpy()
    folder, file, theirs = root / what, root / f"{what}.gguf", root / f"{what}-theirs.gguf"
    model.save_pretrained(folder)
    run = subprocess.run([a.program, "convert", folder, file, "--to", "gguf", "--tokenizer", "none"], capture_output=True, text=True)
    if run.returncode or "llama.cpp does not read it" in run.stderr:
        check(f"{what}: for palimpsa alone", not run.returncode and re.search(REFUSED, run.stderr), run.stderr.strip())
        compare(f"{what}: our GGUF here", here(file, IDS), expected, bound)
        return
    compare(f"{what}: our GGUF in llama.cpp", in_llama_cpp(file, IDS), expected, bound)
    if not a.llama_cpp:
        return
    give_tokenizer(folder)
    for_the_converter(folder)
    more = ["--no-nextn"] if name == "qwen" else []
    run = subprocess.run([sys.executable, "-c", PATCHED_CONVERTER, a.llama_cpp, folder, theirs, *more], capture_output=True, text=True)
    if run.returncode:
        print(f"-- {what}: its converter does not take it: {run.stderr.strip().splitlines()[-1]}", flush=True)
        return
    compare(f"{what}: its GGUF here", here(theirs, IDS), in_llama_cpp(theirs, IDS), bound)
    if name == "falcon" and config.tie_word_embeddings:
        return  # its converter leaves the head's factor out there
    compare(f"{what}: its GGUF here, against transformers", here(theirs, IDS), expected, bound)


def published(name, root):
    """What llama.cpp's quantiser makes of a published shape. It rounds activations to 8 bits, we to 16 or not at all."""
    folder, plain = root / name, root / f"{name}.gguf"
    make(folder, name, layers=LAYERS.get(name, 4), vocab=512)
    subprocess.run([a.program, "convert", folder, plain, "--to", "gguf", "--dtype", "f16", "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)
    exact = here(plain, IDS)
    check(f"{name}: F16", cosine(exact, in_llama_cpp(plain, IDS)) >= 0.99999, f"cosine {cosine(exact, in_llama_cpp(plain, IDS)):.7f}")
    for ftype, (number, bound) in TYPES.items():
        if a.types and ftype not in a.types.split(","):
            continue
        file = root / f"{name}-{ftype}.gguf"
        parameters = llama_cpp.llama_model_quantize_default_params()
        parameters.ftype, parameters.nthread = number, 2
        status = llama_cpp.llama_model_quantize(str(plain).encode(), str(file).encode(), parameters)
        if status:
            print(f"-- {name}: llama.cpp does not make {ftype}", flush=True)
            continue
        x, y = here(file, IDS), in_llama_cpp(file, IDS)
        check(f"{name}: {ftype}", cosine(x, y) >= bound and cosine(x, exact) >= cosine(y, exact) - 0.01,
              f"cosine {cosine(x, y):.6f} (at least {bound}); with F16, ours {cosine(x, exact):.6f}, theirs {cosine(y, exact):.6f}")
        file.unlink()
    plain.unlink()


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--program", required=True)
arguments.add_argument("--library", required=True)
arguments.add_argument("--llama-cpp", help="a checkout of llama.cpp, for its converter")
arguments.add_argument("--families", default=",".join(FAMILIES))
arguments.add_argument("--shapes", default="qwen3.5-0.8b,nemotron-3-nano-4b,granite-4.0-h-350m,falcon-h1-0.5b,lfm2.5-1.2b", help="published ones that are quantised")
arguments.add_argument("--types", help="of those of llama.cpp, such as Q8_0,Q4_K_M; default: all")
a = arguments.parse_args()
failures = 0
with tempfile.TemporaryDirectory() as temporary:
    for family in filter(None, a.families.split(",")):
        for index, shape in enumerate(FAMILIES[family]()):
            if (family, index) not in WITHOUT_ATTENTION:
                small(family, index, shape, pathlib.Path(temporary))
    for shape in filter(None, a.shapes.split(",")):
        published(shape, pathlib.Path(temporary))
print(f"{failures} failures")
raise SystemExit(failures > 0)
