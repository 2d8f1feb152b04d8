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
from palimpsa_model import Model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers import (BambaConfig, FalconH1Config, GraniteMoeHybridConfig, Lfm2Config, NemotronHConfig, Qwen3_5TextConfig)

IDS = [1, 5, 9, 100, 17, 42, 3, 3, 119, 88, 7, 64, 31, 2, 2, 90]
SIZES = dict(vocab_size=128, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=512)
MAMBA = dict(mamba_d_state=16, mamba_d_head=16, mamba_n_heads=8, mamba_expand=2)
KINDS = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]


def granite():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(position_embedding_type="rope")), (4, 1, dict(tie_word_embeddings=True)),
                                 (8, 2, dict(mamba_conv_bias=False, head_dim=24)), (1, 4, dict(layer_types=None)),
                                 (2, 2, dict(time_step_limit=(0.01, 0.2)))):
        yield GraniteMoeHybridConfig(**{**SIZES, **MAMBA, "num_key_value_heads": keys, "mamba_n_groups": groups, "num_local_experts": 0,
                                        "num_experts_per_tok": 0, "shared_intermediate_size": 80, "layer_types": KINDS, "embedding_multiplier": 3.0,
                                        "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1, **change})


def bamba():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(tie_word_embeddings=True)), (4, 1, dict(mamba_conv_bias=False)),
                                 (2, 2, dict(attn_layer_indices=[0, 1, 2, 3]))):
        yield BambaConfig(**{**SIZES, **MAMBA, "num_key_value_heads": keys, "mamba_n_groups": groups, "intermediate_size": 80,
                             "attn_layer_indices": [1, 3], "pad_token_id": None, **change})


def nemotron():
    words = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention", "full_attention"]
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(head_dim=24)), (4, 1, dict(use_conv_bias=False)), (8, 2, dict(time_step_limit=(0.0, 0.1))),
                                 (2, 2, dict(layers_block_type=["linear_attention"] * 3))):
        yield NemotronHConfig(**{"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": keys, "head_dim": 16,
                                 "intermediate_size": 80, "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": groups,
                                 "layers_block_type": words, "time_step_min": 1e-30, **change})


def qwen():
    for key_heads, value_heads, change in ((2, 4, {}), (1, 3, dict(tie_word_embeddings=True)), (2, 2, {}), (2, 6, dict(linear_value_head_dim=24)),
                                           (4, 4, dict(layer_types=["full_attention", "linear_attention"] * 2))):
        yield Qwen3_5TextConfig(**{**SIZES, "num_key_value_heads": 2, "intermediate_size": 80, "head_dim": 32, "linear_num_key_heads": key_heads,
                                   "linear_num_value_heads": value_heads, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                                   "layer_types": KINDS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25,
                                                                             "mrope_section": [2, 1, 1], "mrope_interleaved": True}, **change})


def falcon():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(mamba_rms_norm=True, mamba_norm_before_gate=False)), (2, 1, dict(mamba_rms_norm=True)),
                                 (1, 2, dict(tie_word_embeddings=True)), (3, 2, dict(mamba_conv_bias=False, head_dim=24))):
        yield FalconH1Config(**{**SIZES, "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": groups,
                                "num_key_value_heads": keys, "intermediate_size": 80, "pad_token_id": None, "embedding_multiplier": 3.5,
                                "lm_head_multiplier": 0.3, "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9, "key_multiplier": 0.4,
                                "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.25, "ssm_multipliers": [0.35, 0.25, 0.4, 0.5, 0.3],
                                "mlp_multipliers": [0.9, 0.6], **change})


def lfm2():
    for keys, change in ((2, {}), (1, dict(tie_word_embeddings=False)), (4, dict(conv_L_cache=4)), (2, dict(block_auto_adjust_ff_dim=True, block_multiple_of=16))):
        yield Lfm2Config(**{**SIZES, "num_key_value_heads": keys, "intermediate_size": 96, "block_auto_adjust_ff_dim": False,
                            "layer_types": ["conv", "full_attention", "conv", "full_attention"], "pad_token_id": None, **change})


FAMILIES = dict(granite=granite, bamba=bamba, nemotron=nemotron, qwen=qwen, falcon=falcon, lfm2=lfm2)


def random_model(config, seed):
    """Every tensor random: class defaults of A_log, D and norms are constants, where a mistake would not show."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for name, p in model.named_parameters():
        last = name.split(".")[-1]
        with torch.no_grad():
            if last == "A_log":
                p.uniform_(-1, 2)
            elif last == "dt_bias":
                p.uniform_(-4, -1)
            elif p.dim() == 1:
                p.normal_(0.0 if "conv" in name else 1.0, 0.2)
            else:
                p.normal_(0.0, 0.5 if "conv" in name else p.shape[-1] ** -0.5)
    return model


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
