#!/usr/bin/env python3
"""A corpus of broken model directories, made from a good one, and what the program must say about each: one sentence on
stderr, exit code 2, no crash, and little memory, whatever the files claim.

    malformed_models.py PROGRAM GOOD_MODELDIR [--limit-memory] [--keep DIR]
"""
import json, pathlib, shutil, struct, sys, tempfile

from outside import inspected, malformed

good = pathlib.Path(sys.argv[2])
keep = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
raw = (good / "model.safetensors").read_bytes()
(length,) = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
config = json.loads((good / "config.json").read_text())
first, second = [n for n in header if n != "__metadata__"][:2]


def packed(head, body=data):
    text = json.dumps(head).encode() if not isinstance(head, bytes) else head
    return struct.pack("<Q", len(text)) + text + body


def with_tensor(tensor=None, **changes):
    head = json.loads(json.dumps(header))
    head[tensor or first].update(changes)
    return packed(head)


def with_config(**changes):
    made = json.loads(json.dumps(config))
    for key, value in changes.items():
        target = made
        *path, last = key.split("__")
        for step in path:
            target = target.setdefault(step, {})
        if value is None:
            target.pop(last, None)
        else:
            target[last] = value
    return json.dumps(made).encode()


def without(name):
    head = json.loads(json.dumps(header))
    begin, end = head.pop(name)["data_offsets"]
    for t in head.values():
        if t.get("data_offsets", [0])[0] >= end:
            t["data_offsets"] = [x - (end - begin) for x in t["data_offsets"]]
    return packed(head, data[:begin] + data[end:])


begin, end = header[first]["data_offsets"]
corpus = {  # name: (files to replace; None removes one)
    "empty_file": {"model.safetensors": b""},
    "seven_bytes": {"model.safetensors": raw[:7]},
    "header_of_2_to_63": {"model.safetensors": struct.pack("<Q", 1 << 63) + raw[8:]},
    "header_of_2_to_64_minus_1": {"model.safetensors": struct.pack("<Q", (1 << 64) - 1) + raw[8:]},
    "header_beyond_the_file": {"model.safetensors": struct.pack("<Q", len(raw)) + raw[8:]},
    "header_is_no_json": {"model.safetensors": packed(b"{\"a\":")},
    "header_is_a_list": {"model.safetensors": packed(b"[1, 2]")},
    "header_nests_deeply": {"model.safetensors": packed(b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}")},
    "header_repeats_a_name": {"model.safetensors": packed(json.dumps(header)[:-1].encode() + b", " + json.dumps({first: header[first]})[1:].encode())},
    "truncated_data": {"model.safetensors": raw[:-4]},
    "bytes_too_many": {"model.safetensors": raw + b"\0\0\0\0"},
    "tensors_overlap": {"model.safetensors": with_tensor(second, data_offsets=[x - 4 for x in header[second]["data_offsets"]])},
    "hole_before_the_first": {"model.safetensors": with_tensor(data_offsets=[begin + 4, end + 4])},
    "offsets_reversed": {"model.safetensors": with_tensor(data_offsets=[end, begin])},
    "offset_negative": {"model.safetensors": with_tensor(data_offsets=[-4, end])},
    "offset_of_2_to_62": {"model.safetensors": with_tensor(data_offsets=[begin, 1 << 62])},
    "shape_product_overflows": {"model.safetensors": with_tensor(shape=[1 << 62, 1 << 62])},
    "shape_negative": {"model.safetensors": with_tensor(shape=[-1, 4])},
    "shape_is_text": {"model.safetensors": with_tensor(shape="64")},
    "dtype_unknown": {"model.safetensors": with_tensor(dtype="F8_E4M3")},
    "dtype_missing": {"model.safetensors": with_tensor(dtype=None)},
    "tensor_missing": {"model.safetensors": without(first)},
    "metadata_of_numbers": {"model.safetensors": packed({**header, "__metadata__": {"format": 1}})},
    "no_tensors_at_all": {"model.safetensors": packed({}, b"")},
    "no_weights_file": {"model.safetensors": None},
    "no_config": {"config.json": None},
    "config_empty": {"config.json": b""},
    "config_is_no_json": {"config.json": b"{'a': 1}"},
    "config_is_a_number": {"config.json": b"7"},
    "config_nests_deeply": {"config.json": b"[" * 100000},
    "config_of_unknown_kind": {"config.json": b'{"model_type": "bert", "hidden_size": 8}'},
    "block_type_unknown": {"config.json": with_config(block_type="OtherBlock")},
    "head_dim_zero": {"config.json": with_config(sequence_mixer__head_dim=0)},
    "head_dim_huge": {"config.json": with_config(sequence_mixer__head_dim=1 << 40)},
    "head_dim_text": {"config.json": with_config(sequence_mixer__head_dim="eight")},
    "expand_v_nan": {"config.json": with_config(sequence_mixer__expand_v=float("nan"))},
    "expand_v_tiny": {"config.json": with_config(sequence_mixer__expand_v=1e-9)},
    "a_billion_layers": {"config.json": with_config(n_layers=10**9)},
    "minus_one_layers": {"config.json": with_config(n_layers=-1)},
    "one_layer_too_many": {"config.json": with_config(n_layers=config["n_layers"] + 1)},
    "one_layer_too_few": {"config.json": with_config(n_layers=config["n_layers"] - 1)},
    "width_contradicts": {"config.json": with_config(d_model=config["d_model"] * 2)},
    "vocabulary_huge": {"config.json": with_config(vocab_size=1 << 30)},
    "heads_contradict": {"config.json": with_config(sequence_mixer__num_heads=config["sequence_mixer"]["num_heads"] * 2)},
    "rule_unknown": {"config.json": with_config(sequence_mixer__rule="elephant")},
    "layer_list_out_of_range": {"config.json": with_config(sequence_mixer__metaplastic_layers=[99])},
    "index_without_shards": {"model.safetensors": None, "model.safetensors.index.json": json.dumps({"weight_map": {first: "gone.safetensors"}}).encode()},
    "index_is_empty": {"model.safetensors": None, "model.safetensors.index.json": b"{}"},
    "index_of_numbers": {"model.safetensors": None, "model.safetensors.index.json": b'{"weight_map": {"a": 1}}'},
    "index_climbs_out": {"model.safetensors": None, "model.safetensors.index.json": json.dumps({"weight_map": {first: "../x"}}).encode()},
    "shard_lacks_a_tensor": {"model.safetensors": None, "shard": without(second), "model.safetensors.index.json": json.dumps({"weight_map": {first: "shard", second: "shard"}}).encode()},
}


inspected(good)
with tempfile.TemporaryDirectory() as temporary:
    root = keep or pathlib.Path(temporary)

    def spoiled(name, files):
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder, ignore=lambda _, names: set(names) - {"config.json", "model.safetensors"})
        for part, content in files.items():
            if content is None:
                (folder / part).unlink()
            else:
                (folder / part).write_bytes(content)
        return folder

    malformed(corpus, spoiled)
print(f"{len(corpus)} malformed directories refused")
