#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What transformers computes of a model directory, in float64, as the recorded case that `palimpsa selftest` compares with.

    record_families.py MODEL-DIRECTORY TARGET-DIRECTORY [--without-gradients]

MODEL-DIRECTORY holds a small model of a published family (save_pretrained) and expected.safetensors with input_ids, labels and
greedy.prompt. TARGET-DIRECTORY gets config.json, model.safetensors and expected.safetensors: logits of one whole forward without a
cache, loss, gradients of every tensor, and 12 greedy tokens, rounded to float32. The row of a padding token has a gradient like any
other, which torch's embedding leaves out. Transformers casts to float32 in places; those casts are made to float64 here."""
import os
import shutil
import sys

import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM


def text_model(source):
    """The model, and what stands before a name in the file where the model has `model.`."""
    config = AutoConfig.from_pretrained(source)
    if config.model_type != "qwen3_5":
        return AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32), {}
    model = AutoModelForCausalLM.from_config(config.text_config)
    tensors = {n.replace("model.language_model.", "model."): t for n, t in load_file(source + "/model.safetensors").items()}
    missing, _ = model.load_state_dict(tensors, strict=False)
    assert all(n == "lm_head.weight" for n in missing), missing
    model.tie_weights()
    return model, {"model.": "model.language_model."}


def main(source, target, gradients=True):
    model, prefixes = text_model(source)
    given = load_file(source + "/expected.safetensors")
    stored = set(load_file(source + "/model.safetensors"))
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    model = model.double().eval()
    model.get_input_embeddings().padding_idx = None
    logits = model(given["input_ids"], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten())
    loss.backward()
    out = {"input_ids": given["input_ids"], "labels": given["labels"], "greedy.prompt": given["greedy.prompt"],
           "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, p in model.named_parameters():
        for old, new in prefixes.items():
            name = new + name[len(old):] if name.startswith(old) else name
        found = [n for n in (name, name.replace("model.", "backbone.", 1)) if n in stored]
        if gradients and found:
            out["grad." + found[0]] = p.grad
    ids = given["greedy.prompt"].reshape(1, -1)
    for _ in range(12):
        with torch.no_grad():
            ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)], 1)
    out["greedy.tokens"] = ids[0, -12:]
    os.makedirs(target, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(f"{source}/{name}", f"{target}/{name}")
    save_file({n: t.detach().numpy().astype("f4") if t.is_floating_point() else t.numpy() for n, t in out.items()},
              target + "/expected.safetensors", {"computed_by": "transformers in float64, one whole forward without a cache"})
    print(target, len(out), "tensors, loss", loss.item())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--without-gradients" not in sys.argv)
