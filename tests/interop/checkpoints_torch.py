# SPDX-License-Identifier: MIT
"""Files that torch.save wrote are read here, number for number, and what we write is read by torch's safetensors.

    pip install torch numpy safetensors
    python3 checkpoints_torch.py --program build/palimpsa

Ends with exit code 1 when a tensor differs.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file


def make(dtype, groups, D=64, layers=2, N=16, P=16, rows=256):
    g = torch.Generator().manual_seed(groups)
    r = lambda *shape: torch.randn(*shape, generator=g).to(dtype)
    inner, H = 2 * D, 2 * D // P
    conv = inner + 2 * groups * N
    embedding = torch.nn.Parameter(r(rows, D))
    t = collections.OrderedDict({"backbone.embedding.weight": embedding})
    for i in range(layers):
        at = f"backbone.layers.{i}."
        t[at + "norm.weight"] = r(D)
        at += "mixer."
        # slices of one storage, as a fused parameter leaves them
        both = r(2 * (2 * inner + 2 * groups * N + H), D)
        t[at + "in_proj.weight"] = both[both.shape[0] // 2 :]
        t[at + "conv1d.weight"], t[at + "conv1d.bias"] = r(conv, 1, 4), r(conv)
        t[at + "dt_bias"], t[at + "A_log"], t[at + "D"] = r(H), r(H), r(H)
        t[at + "norm.weight"], t[at + "out_proj.weight"] = r(inner), r(D, inner)
    t["backbone.norm_f.weight"] = r(D)
    t["lm_head.weight"] = embedding  # shares its storage
    t._metadata = collections.OrderedDict({"": {"version": 1}})
    config = {"d_model": D, "n_layer": layers, "vocab_size": 250, "ssm_cfg": {"layer": "Mamba2", "headdim": P, "d_state": N, "ngroups": groups},
              "rms_norm": True, "pad_vocab_size_multiple": 16, "tie_embeddings": True}
    return t, config


arguments = argparse.ArgumentParser()
arguments.add_argument("--program", required=True)
a = arguments.parse_args()
failures = 0
with tempfile.TemporaryDirectory() as temporary:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for groups in (1, 2):
            folder = pathlib.Path(temporary) / f"{dtype}-{groups}"
            folder.mkdir()
            tensors, config = make(dtype, groups)
            torch.save(tensors, folder / "pytorch_model.bin")
            (folder / "config.json").write_text(json.dumps(config))
            subprocess.run([a.program, "convert", folder, folder / "ours", "--to", "palimpsa"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([a.program, "convert", folder / "ours", folder / "back", "--to", "official"], check=True, stdout=subprocess.DEVNULL)
            back = load_file(folder / "back" / "model.safetensors")
            good = back.keys() == tensors.keys() and all(back[n].dtype == dtype and torch.equal(back[n], tensors[n].detach()) for n in tensors)
            failures += not good
            print(f"{'ok' if good else 'FAILED'}: {len(tensors)} tensors of {dtype}, {groups} groups")
    bad = pathlib.Path(temporary) / "bad"
    bad.mkdir()
    torch.save({"x": torch.nn.Linear(2, 2)}, bad / "pytorch_model.bin")
    (bad / "config.json").write_text(json.dumps(config))
    done = subprocess.run([a.program, "inspect", bad], capture_output=True, text=True)
    good = done.returncode == 2 and "torch.nn.modules.linear.Linear" in done.stderr
    failures += not good
    print(f"{'ok' if good else 'FAILED'}: a pickled module is refused: {done.stderr.strip()[-120:]}")
sys.exit(1 if failures else 0)
