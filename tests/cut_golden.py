#!/usr/bin/env python3
"""Cuts recorded language models down to what a clone can afford: cut_golden.py FROM/models/NAME... TO/models

Weights, logits, loss, packed logits and greedy tokens stay, and of the gradients those of layer 1 (without its MLP) and
of everything small; packed logits become float32. Time steps and rates of layer 0 stay too: tests of memory windows
read them. What a case does not hold, selftest does not check.
"""
import array
import json
import pathlib
import shutil
import struct
import sys

SMALL = 2048  # bytes of a gradient that always stays
KEPT = ("input_ids", "labels", "loss", "logits", "packed.", "greedy.", "grad.", "layers.0.op.dt", "layers.0.op.A", "layers.0.op.g")


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    meta = header.pop("__metadata__", None)
    at = lambda t: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
    return meta, {name: (t["dtype"], t["shape"], at(t)) for name, t in header.items()}


def write(path, meta, tensors):
    header, body = ({"__metadata__": meta} if meta else {}), b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def kept(name, data):
    if not name.startswith(KEPT) or name == "logits_f32":
        return False
    return not name.startswith("grad.") or len(data) <= SMALL or (".layers.1." in name and ".mlp." not in name)


def main():
    *cases, target = map(pathlib.Path, sys.argv[1:])
    for case in cases:
        to = target / case.name
        to.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            if to != case:
                shutil.copyfile(case / file, to / file)
        meta, tensors = read(case / "expected.safetensors")
        cut = {}
        for name, (dtype, shape, data) in tensors.items():
            if not kept(name, data):
                continue
            if dtype == "F64" and name.startswith("packed."):
                dtype, data = "F32", array.array("f", array.array("d", data)).tobytes()
            cut[name] = (dtype, shape, data)
        write(to / "expected.safetensors", meta, cut)
        print(f"{case.name}: {len(tensors)} tensors to {len(cut)}, {sum(len(t[2]) for t in cut.values())} bytes")


if __name__ == "__main__":
    main()
