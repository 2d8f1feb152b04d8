# SPDX-License-Identifier: MIT
"""Records what torch's AdamW does to bf16 parameters, step by step, for tests/unit/test_kernels_training.c.

    pip install torch
    python3 record_adamw_bf16.py ../golden/optimiser/adamw_bf16.safetensors

Parameters, gradients and moments are bf16, as after model.to(torch.bfloat16); foreach=True is the implementation that torch
chooses on a GPU.
"""
import json
import struct
import sys

import torch

WEIGHTS, STEPS = 48, 40
CASES = {
    "recall": dict(lr=4.64e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1),
    "large": dict(lr=0.25, betas=(0.4, 0.9), eps=1e-3, weight_decay=0.5),
    "no_decay": dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-15, weight_decay=0.0),
}


def record(options, generator):
    spread = 10 ** (torch.rand(WEIGHTS, generator=generator) * 6 - 5)
    p = torch.nn.Parameter((torch.randn(WEIGHTS, generator=generator) * 10 ** (torch.rand(WEIGHTS, generator=generator) * 3 - 2)).to(torch.bfloat16))
    adamw = torch.optim.AdamW([p], foreach=True, **options)
    rows = {name: [] for name in "gpmv"}
    rows["p"].append(p.detach().clone())
    for _ in range(STEPS):
        p.grad = (torch.randn(WEIGHTS, generator=generator) * spread).to(torch.bfloat16)
        p.grad[torch.rand(WEIGHTS, generator=generator) < 0.1] = 0
        rows["g"].append(p.grad.clone())
        adamw.step()
        for name, value in (("p", p.detach()), ("m", adamw.state[p]["exp_avg"]), ("v", adamw.state[p]["exp_avg_sq"])):
            assert value.dtype == torch.bfloat16
            rows[name].append(value.clone())
    return {name: torch.stack(values) for name, values in rows.items()}


def main():
    header, data = {"__metadata__": {"format": "pt", "torch": torch.__version__}}, b""
    for i, (case, options) in enumerate(CASES.items()):
        for name, value in record(options, torch.Generator().manual_seed(i)).items():
            raw = value.view(torch.int16).numpy().tobytes()
            header[f"{case}.{name}"] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main()
