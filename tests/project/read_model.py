#!/usr/bin/env python3
"""Reads a model directory as another program would: its own few lines of parser, nothing of the library. Prints the number
of tensors and parameters; any departure from the format ends it."""
import json, math, pathlib, struct, sys

folder = pathlib.Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
raw = (folder / "model.safetensors").read_bytes()
(length,) = struct.unpack("<Q", raw[:8])
assert length % 8 == 0 and 8 + length <= len(raw), "header length"
header = json.loads(raw[8 : 8 + length])
assert header.pop("__metadata__") == {"format": "pt"}, "metadata that transformers wants"
sizes = {"F32": 4, "F16": 2, "BF16": 2}
at, parameters = 0, 0
for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, end = t["data_offsets"]
    count = math.prod(t["shape"])
    assert begin == at and end - begin == count * sizes[t["dtype"]], name
    if t["dtype"] == "F32":
        numbers = struct.unpack(f"<{count}f", raw[8 + length + begin : 8 + length + end])
        assert all(math.isfinite(x) for x in numbers), name
    at, parameters = end, parameters + count
assert 8 + length + at == len(raw), "bytes after the last tensor"
vocabulary = config["vocab_size"]
embedding = next(t for n, t in header.items() if "embedding" in n and n.endswith("weight"))
assert embedding["shape"][0] >= vocabulary and embedding["shape"][1] in (config.get("hidden_size"), config.get("d_model"))
layers = {int(n.split("layers.")[1].split(".")[0]) for n in header if "layers." in n}
stated = next(config[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if k in config)
assert layers == set(range(stated)), "layers"
print(len(header), parameters)
