# SPDX-License-Identifier: MIT
"""Train a small model to recall, in plain torch with our layer.

    python recall.py                          two minutes on two cores
    python recall.py --steps 50 --out recall  and save it as a directory that `palimpsa inspect recall` opens

Every example shows pairs of a key and a value, then asks for the values of all keys in another order. The model reads an example once and has a
memory of fixed size, so what it answers it must have written there.
"""
import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from palimpsa.torch import PalimpsaD


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.mixer = PalimpsaD(width, heads, width // heads, expand_v=2, norm_eps=1e-5, initializer_range=128**-0.5)
        with torch.no_grad():  # heads that forget at different speeds, all slowly
            self.mixer.A_log.copy_(torch.linspace(0.01, 0.16, heads).log())

    def forward(self, h):
        return h + self.mixer(self.norm(h))


class Recall(nn.Module):
    """Embedding, blocks, norm; the head is the embedding. Names are those that our files have."""

    def __init__(self, tokens: int, width: int, layers: int, heads: int):
        super().__init__()
        words = nn.Embedding(tokens, width)
        nn.init.normal_(words.weight, std=128**-0.5)
        self.backbone = nn.ModuleDict({"embeddings": nn.ModuleDict({"word_embeddings": words}),
                                       "layers": nn.ModuleList(Block(width, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(width, eps=1e-5)})

    def forward(self, ids):
        words = self.backbone["embeddings"]["word_embeddings"]
        h = words(ids)
        for block in self.backbone["layers"]:
            h = block(h)
        return F.linear(self.backbone["ln_f"](h), words.weight)


def examples(batch: int, pairs: int, tokens: int):
    """ids [batch, 4 pairs], and labels: the value where a key is asked for, -100 elsewhere."""
    half = tokens // 2
    keys = torch.rand(batch, half - 1).argsort(1)[:, :pairs] + 1
    values = torch.rand(batch, half).argsort(1)[:, :pairs] + half
    order = torch.rand(batch, pairs).argsort(1)
    asked = torch.stack((keys.gather(1, order), torch.zeros_like(keys)), 2).flatten(1)
    answers = torch.stack((values.gather(1, order), torch.full_like(keys, -100)), 2).flatten(1)
    ids = torch.cat((torch.stack((keys, values), 2).flatten(1), asked), 1)
    return ids, torch.cat((torch.full_like(answers, -100), answers), 1)


def accuracy(model, batch: int, pairs: int, tokens: int) -> float:
    ids, labels = examples(batch, pairs, tokens)
    with torch.no_grad():
        found = model(ids).argmax(-1)
    return (found == labels)[labels >= 0].float().mean().item()


def save(model: Recall, heads: int, directory: str) -> None:
    words = model.backbone["embeddings"]["word_embeddings"].weight
    mixer = {"head_dim": words.shape[1] // heads, "num_heads": heads, "expand_v": 2}
    config = {"mqar": True, "block_type": "PalimpsaBlock", "d_model": words.shape[1], "n_layers": len(model.backbone["layers"]),
              "vocab_size": words.shape[0], "sequence_mixer": mixer}
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2))
    torch.save(model.state_dict(), out / "pytorch_model.bin")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="keys and values together")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--out", help="a directory for the model")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = Recall(args.tokens, args.width, 2, args.heads)
    optimiser = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=args.lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.steps)
    for step in range(1, args.steps + 1):
        ids, labels = examples(args.batch, args.pairs, args.tokens)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, args.steps // 8) == 0:
            print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy(model, 64, args.pairs, args.tokens):.3f}", flush=True)
    print(f"accuracy {accuracy(model, 256, args.pairs, args.tokens):.3f}")
    if args.out:
        save(model, args.heads, args.out)


if __name__ == "__main__":
    main()
