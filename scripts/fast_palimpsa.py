#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the chunked approximations of Palimpsa's author are from the exact rule on what trained models read.

    python3 scripts/fast_palimpsa.py build/palimpsa docs/results/memories/fast-palimpsa.csv    # our package, torch, transformers

Inside a chunk of 32 tokens both replace the importance of every element: V1 by its mean over values, V2 by a product of a mean over
values and one over keys; between chunks it is exact. Models: models/recall on its own task, models/shakespeare.gguf on a text of its kind.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

import palimpsa.torch as pt
import palimpsa.torch_layers as layers

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHUNK = 32
TEXT = """ROMEO:
But soft! What light through yonder window breaks? It is the east, and Juliet is the sun.

JULIET:
O Romeo, Romeo! wherefore art thou Romeo? Deny thy father and refuse thy name.

FIRST CITIZEN:
We are accounted poor citizens, the patricians good. What authority surfeits on would relieve us.
"""


def approximate(version, q, k, v, b, dt, A, Ip, scale):
    """Outputs and their variances. Keys repeated for each head; all in float64. I = Ip + J."""
    B, T, H, K = q.shape
    q, decay = q * scale, torch.exp(-A * dt)
    M, J, prior = torch.zeros(B, H, v.shape[3], K), torch.zeros(B, H, v.shape[3], K), Ip[:, None]
    y, variance = torch.empty_like(v), torch.empty_like(v)
    for begin in range(0, T, CHUNK):
        answer = M / (J + prior[..., None])  # what the chunks before left, frozen
        by_key, by_value = J.mean(2), J.mean(3)
        first = (by_key + prior, by_value + prior, (by_key + prior).mean(-1, keepdim=True))
        local, kept = torch.zeros_like(M), torch.ones(B, H, 1)
        for t in range(begin, min(begin + CHUNK, T)):
            f, square = decay[:, t, :, None], k[:, t].square()
            by_key = f * by_key + b[:, t].mean(-1, keepdim=True) * square
            by_value = f * by_value + b[:, t] * square.mean(-1, keepdim=True)
            I_key, I_value = by_key + prior, by_value + prior
            I_all = I_key.mean(-1, keepdim=True)
            kept = kept * f
            outer = v[:, t, :, :, None] * k[:, t, :, None]
            local = f[..., None] * local + outer
            M, J = f[..., None] * M + outer, f[..., None] * J + b[:, t, :, :, None] * square[:, :, None]
            near = torch.einsum("bhvk,bhk->bhv", local, q[:, t] / I_key)
            far = kept * torch.einsum("bhvk,bhk->bhv", answer, q[:, t] * first[0] / I_key)
            spread = (q[:, t].square() / I_key).sum(-1, keepdim=True).expand_as(near)
            if version == 2:
                ratio = I_all / I_value
                near, far, spread = near * ratio, far * first[1] / first[2] * ratio, spread * ratio
            y[:, t], variance[:, t] = near + far, spread
    return y, variance


def compare(model, calls):
    """Rows: model, version, layer, position in the chunk, relative errors of answers and of variances."""
    for layer, (q, k, v, given, scale) in enumerate(calls):
        inputs = [x.double() for x in (q, k, v, *(given[n] for n in ("b", "dt", "A", "Ip")))]
        each = inputs[2].shape[2] // inputs[1].shape[2]
        repeated = [x.repeat_interleave(each, 2) for x in inputs[:2]] + inputs[2:]
        exact, spread = pt.palimpsa(*inputs, scale=scale, return_variance=True)
        for version in (1, 2):
            y, variance = approximate(version, *repeated, scale)
            for at in range(min(CHUNK, y.shape[1])):
                cut = slice(at, None, CHUNK)
                error = ((y - exact)[:, cut].square().sum() / exact[:, cut].square().sum()).sqrt().item()
                of_variance = ((variance - spread)[:, cut].abs().sum() / spread[:, cut].abs().sum()).item()
                yield model, version, layer, at, f"{error:.5f}", f"{of_variance:.5f}"


def recorded(run):
    """What the layers of a model hand to their memories."""
    calls, memory = [], layers.memory

    def listen(rule, q, k, v, scale=None, **given):
        if rule == "palimpsa":
            calls.append((q, k, v, given, scale))
        return memory(rule, q, k, v, scale=scale, **given)

    layers.memory = listen
    try:
        with torch.no_grad():
            run()
    finally:
        layers.memory = memory
    return calls


def recall_model():
    folder = ROOT / "models" / "recall"
    sys.path.insert(0, str(ROOT / "python" / "tests"))
    import golden
    from test_torch_layers import Mqar
    model = Mqar(json.loads((folder / "config.json").read_text()))
    model.load_state_dict({n.removeprefix("backbone."): torch.from_numpy(x.copy()) for n, x in golden.read(folder / "model.safetensors").items()})
    keys = torch.stack([1 + torch.randperm(127)[:32] for _ in range(8)])  # 32 pairs, then the keys again, as the task has them
    values = torch.randint(128, 256, keys.shape)
    asked = torch.stack((torch.stack([k[torch.randperm(32)] for k in keys]), torch.zeros_like(keys)), 2).flatten(1)
    ids = torch.cat((torch.stack((keys, values), 2).flatten(1), asked), 1)
    return lambda: model(ids)


def text_model(program, folder):
    import palimpsa
    import palimpsa.transformers
    from transformers import AutoModelForCausalLM
    source = ROOT / "models" / "shakespeare.gguf"
    subprocess.run([program, "convert", source, folder, "--to", "palimpsa"], check=True, stdout=subprocess.DEVNULL)
    command = [program, "tokenize", "--tokenizer", source, "--encode-file", "-"]
    ids = [int(i) for i in subprocess.run(command, input=TEXT, text=True, check=True, capture_output=True).stdout.split()]
    model = AutoModelForCausalLM.from_pretrained(folder)
    return lambda: model(torch.tensor([ids]))


def main():
    program, target = sys.argv[1:3]
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        models = {"recall": recorded(recall_model()), "shakespeare": recorded(text_model(program, folder + "/model"))}
    torch.set_default_dtype(torch.float64)
    with open(target, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("model", "version", "layer", "position", "error", "error_of_variance"))
        for model, calls in models.items():
            assert calls, model
            out.writerows(compare(model, calls))
    print(f"{target}: {', '.join(f'{model} {len(calls)} layers' for model, calls in models.items())}")


if __name__ == "__main__":
    main()
