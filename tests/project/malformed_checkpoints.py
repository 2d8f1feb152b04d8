#!/usr/bin/env python3
"""Broken checkpoints in the formats of others, made from good ones, and what the program must say about each: one
sentence on stderr, exit code 2, no crash, and little memory, whatever the files claim.

    malformed_checkpoints.py PROGRAM [--limit-memory] [--keep DIR]
"""
import json, pathlib, random, shutil, struct, sys, tempfile

from outside import check, inspected, malformed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checkpoint_writers as w

keep = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
s = w.sizes()
made = w.tensors(s, random.Random(1))
official, hf = w.official_config(s), w.hf_config(s)


# ---- torch

members = w.torch_members(made, "F32")
pickle_at = 0
good_zip = w.zip_bytes(members)
E = "backbone.embedding.weight"
shape = made[E][0]
central = good_zip.rfind(b"PK\5\6")
(directory,) = struct.unpack("<I", good_zip[central + 16 : central + 20])


def with_pickle(pickle):
    return w.zip_bytes([("archive/data.pkl", pickle)] + members[1:])


def with_entry(value, name=E):
    """The first tensor described otherwise."""
    entries = [(n, w.p_tensor(str(i), "F32", t[0])) for i, (n, t) in enumerate(made.items())]
    entries[0] = (name, value)
    return with_pickle(w.p_state(entries))


def with_member(i, **changes):
    return w.zip_bytes([m if k != i else (*m[:2], changes) for k, m in enumerate(members)])


def patched(raw, at, data):
    return raw[:at] + data + raw[at + len(data) :]


# A member that lies inside a different one's bytes.
inner = b"abcd"
hidden = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 0, 0, 0, 0, 4, 4, 14, 0) + b"archive/data/y" + inner
nested = [("archive/data/x", hidden), ("archive/data/y", inner, {"offset": 64})]
assert w.zip_bytes(nested)[64:68] == b"PK\3\4"

def tensor_of(**changes):
    """A tensor's description, argument by argument."""
    args = {"storage": w.p_storage("0", "F32", shape[0] * shape[1]), "offset": w.p_int(0), "shape": w.p_tuple(map(w.p_int, shape)),
            "stride": w.p_tuple(map(w.p_int, w.strides(shape))), "grad": b"\x89", "hooks": w.DICT, **changes}
    return w.p_global("torch._utils", "_rebuild_tensor_v2") + w.p_tuple(a for a in args.values() if a) + b"R"


def storage_of(**changes):
    parts = {"word": w.p_text("storage"), "class": w.p_global("torch", "FloatStorage"), "key": w.p_text("0"), "where": w.p_text("cpu"),
             "numel": w.p_int(shape[0] * shape[1]), **changes}
    return w.p_tuple(p for p in parts.values() if p) + b"Q"


zip64 = w.zip_bytes(members, zip64=True)
end64 = zip64.rfind(b"PK\5\6")
full = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF}
reduce_ = lambda module, name, *args: w.p_global(module, name) + w.p_tuple(args) + b"R"
recalled = w.p_text("a" * 300) + b"q\x01" + w.p_tensor("0", "F32", shape) + b"q\x02" + b"h\x01h\x02" * (1 << 19)  # one key, half a million times
torch = {
    "names_recalled": with_pickle(b"\x80\x02" + w.DICT + b"(" + recalled + b"u."),
    "empty": b"", "one_byte": b"P", "only_magic": b"PK\3\4", "text": b"this is not a checkpoint at all, just text", "old_torch": b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
    "no_end": good_zip[: central], "end_cut": good_zip[:-1], "bytes_behind": good_zip + b"\0", "no_members": w.zip_bytes([]),
    "only_a_pickle": w.zip_bytes(members[:1]), "no_pickle": w.zip_bytes(members[1:]),
    "two_pickles": w.zip_bytes(members + [("other/data.pkl", members[0][1])]), "name_twice": w.zip_bytes(members + [members[2]]),
    "compressed": with_member(2, method=8), "method_99": with_member(2, method=99), "encrypted": with_member(2, flags=1),
    "packed_differs": with_member(2, packed=12), "wrong_checksum": with_member(2, crc=1), "pickle_checksum": with_member(0, crc=1),
    "size_beyond_file": with_member(2, size=1 << 30, packed=1 << 30), "size_4_gib": with_member(2, size=(1 << 32) - 2, packed=(1 << 32) - 2),
    "zip64_missing": with_member(2, size=0xFFFFFFFF, packed=0xFFFFFFFF), "offset_beyond": with_member(2, offset=1 << 30),
    "offset_of_another": with_member(2, offset=0), "overlap": with_member(3, offset=0), "nested": w.zip_bytes(nested + members), "offset_inside": with_member(2, offset=7),
    "local_name_differs": with_member(2, local_name=b"archive/data/7"), "directory_count": patched(good_zip, central + 8, b"\xff\x7f\xff\x7f"),
    "directory_offset": patched(good_zip, central + 16, struct.pack("<I", len(good_zip))), "directory_size": patched(good_zip, central + 12, struct.pack("<I", 1 << 30)),
    "directory_damaged": patched(good_zip, directory, b"XX"), "several_disks": patched(good_zip, central + 4, b"\1\0"),
    "zip64_end_lost": patched(w.zip_bytes(members, zip64=True), len(w.zip_bytes(members, zip64=True)) - 34, b"\xff" * 8),
    "big_endian": w.zip_bytes([m if m[0] != "archive/byteorder" else (m[0], b"big") for m in members]),
    "os_system": with_pickle(b"\x80\x02" + reduce_("os", "system", w.p_text("true")) + b"."),
    "eval": with_pickle(b"\x80\x02" + reduce_("builtins", "eval", w.p_text("1")) + b"."),
    "posix_system": with_entry(reduce_("posix", "system", w.p_text("true"))), "subprocess": with_entry(w.p_global("subprocess", "Popen")),
    "torch_load": with_entry(reduce_("torch.serialization", "load", w.p_text("x"))), "getattr": with_entry(reduce_("builtins", "getattr", b"N", w.p_text("x"))),
    "stack_global": with_pickle(b"\x80\x02" + w.p_text("os") + w.p_text("system") + b"\x93)R."), "inst": with_pickle(b"\x80\x02(ios\nsystem\n."),
    "protocol_5": with_pickle(b"\x80\x05}."), "pickle_empty": with_pickle(b""), "pickle_cut": with_pickle(members[0][1][:-1]), "pickle_half": with_pickle(members[0][1][:400]),
    "pickle_goes_on": with_pickle(members[0][1] + b"."), "a_list": with_pickle(b"\x80\x02]."), "a_number": with_pickle(b"\x80\x02K\1."),
    "storage_of_many": with_pickle(w.p_state([(f"{i}.{n}", w.p_tensor(str(k), "F32", t[0])) for i in range(9) for k, (n, t) in enumerate(made.items())])),
    "value_is_text": with_entry(w.p_text("x")), "value_is_a_dictionary": with_entry(w.DICT), "name_is_a_number": with_pickle(b"\x80\x02}K\1K\1s."),
    "name_is_empty": with_entry(w.p_tensor("0", "F32", shape), name=""), "key_missing": with_entry(w.p_tensor("99", "F32", shape)),
    "key_climbs": with_entry(w.p_tensor("../version", "F32", shape)), "numel_too_large": with_entry(w.p_tensor("0", "F32", shape, numel=1 << 40)),
    "numel_negative": with_entry(w.p_tensor("0", "F32", shape, numel=-1)), "numel_small": with_entry(w.p_tensor("0", "F32", shape, numel=4)),
    "offset_past_storage": with_entry(w.p_tensor("0", "F32", shape, offset=1)), "offset_negative": with_entry(w.p_tensor("0", "F32", shape, offset=-1)),
    "offset_huge": with_entry(w.p_tensor("0", "F32", shape, offset=(1 << 62))), "shape_overflows": with_entry(w.p_tensor("0", "F32", [1 << 62, 1 << 62], numel=1024)),
    "shape_negative": with_entry(w.p_tensor("0", "F32", [-1, 4], numel=1024)), "shape_of_nine": with_entry(w.p_tensor("0", "F32", [1] * 9, numel=1024)),
    "transposed": with_entry(w.p_tensor("0", "F32", shape, stride=[1, shape[0]])), "broadcast": with_entry(w.p_tensor("0", "F32", shape, stride=[0, 0])),
    "wrong_storage_type": with_entry(w.p_tensor("0", "F64", shape)), "wrong_shape": with_entry(w.p_tensor("0", "F32", [16, 64])),
    "tensor_twice": with_pickle(w.p_state([(E, w.p_tensor("0", "F32", shape))] * 2)), "tensors_missing": with_pickle(w.p_state([(E, w.p_tensor("0", "F32", shape))])),
    "unexpected_tensor": with_entry(w.p_tensor("0", "F32", shape), name="elephant.weight"), "memo_out_of_order": with_pickle(b"\x80\x02}r\xff\xff\xff\xff."),
    "memo_missing": with_pickle(b"\x80\x02h\x05."), "deep_tuples": with_pickle(b"\x80\x02" + b"(" * 100000 + b"t" * 100000 + b"."), "text_of_4_gib": with_pickle(b"\x80\x02X\xff\xff\xff\xff" + b"a."),
}
for name, storage in {
    "no_storage": w.p_int(7), "storage_is_text": w.p_text("0") + b"Q", "storage_not_named": storage_of(word=w.p_text("storagX")), "storage_word_short": storage_of(word=w.p_text("store")),
    "storage_word_a_number": storage_of(word=w.p_int(1)), "storage_of_four": storage_of(where=None), "storage_class_text": storage_of(**{"class": w.p_text("FloatStorage")}),
    "storage_class_other": storage_of(**{"class": w.p_global("torch._utils", "_rebuild_tensor_v2")}), "storage_key_a_number": storage_of(key=w.p_int(0)), "storage_numel_text": storage_of(numel=w.p_text("1")),
    "storage_key_with_zero": storage_of(key=w.p_text("0\0")), "storage_key_long": storage_of(key=w.p_text("0" * 200)), "storage_in_no_place": storage_of()[:-1],
}.items():
    torch[name] = with_entry(tensor_of(storage=storage))
for name, changes in {
    "shape_a_number": {"shape": w.p_int(4)}, "stride_a_number": {"stride": w.p_int(4)}, "stride_of_one": {"stride": w.p_tuple([w.p_int(1)])}, "dimension_text": {"shape": w.p_tuple([w.p_text("a"), w.p_int(1)])},
    "stride_text": {"stride": w.p_tuple([w.p_text("a"), w.p_int(1)])}, "stride_negative": {"stride": w.p_tuple([w.p_int(-1), w.p_int(1)])}, "offset_text": {"offset": w.p_text("a")}, "five_arguments": {"hooks": None},
}.items():
    torch[name] = with_entry(tensor_of(**changes))
long = "archive/" + "x" * 150
torch |= {
    "long_name_packed": w.zip_bytes(members + [(long, b"abcd", {"method": 8})]), "long_name_twice": w.zip_bytes(members + [(long, b"abcd")] * 2),
    "long_name_overlaps": w.zip_bytes(members + [(long, b"abcd", {"offset": 0, "local_name": b"archive/data.pkl"})]), "long_name_differs": w.zip_bytes(members + [(long, b"abcd", {"local_name": b"x"})]),
    "parameter_of_text": with_entry(w.p_parameter(w.p_text("x"))), "parameter_of_nothing": with_entry(w.p_global("torch._utils", "_rebuild_parameter") + b")R"), "another_call": with_entry(reduce_("torch", "FloatStorage")),
    "name_with_zero": with_entry(w.p_tensor("0", "F32", shape), name="a\0b"), "name_of_5000": with_entry(w.p_tensor("0", "F32", shape), name="a" * 5000), "empty_tensor": with_entry(w.p_tensor("0", "F32", [0, 4], numel=0)),
    "root_without_slash": w.zip_bytes([("archivedata.pkl", members[0][1])] + members[1:]), "root_of_3000": w.zip_bytes([("a" * 3000 + "/data.pkl", members[0][1])] + members[1:]),
    "root_with_zero": w.zip_bytes([("a\0/data.pkl", members[0][1])] + members[1:]), "byte_order_lottle": w.zip_bytes([m if m[0] != "archive/byteorder" else (m[0], b"lottle") for m in members]),
    "byte_order_checksum": with_member(1, crc=1), "an_object": with_pickle(b"\x80\x02" + w.p_global("torch", "FloatStorage") + b")\x81."),
    "zip64_count_differs": patched(zip64, end64 + 8, b"\1\0\1\0"), "zip64_size_differs": patched(zip64, end64 + 12, b"\1\0\0\0"), "zip64_offset_differs": patched(zip64, end64 + 16, b"\1\0\0\0"),
    "zip64_elsewhere": patched(zip64, end64 - 12, struct.pack("<Q", 4)), "second_disk": patched(good_zip, central + 6, b"\1\0"), "counts_differ": patched(good_zip, central + 8, b"\1\0"),
    "zip64_field_short": with_member(2, **full, extra=struct.pack("<HHI", 1, 4, 7)), "zip64_field_beyond": with_member(2, **full, extra=struct.pack("<HHI", 1, 99, 7)),
    "zip64_other_field": with_member(2, **full, extra=struct.pack("<HHI", 7, 4, 7)), "directory_with_more": patched(good_zip[:central] + bytes(10) + good_zip[central:], central + 10 + 12, struct.pack("<I", central - directory + 10)),
}

# ---- GGUF

pairs = w.g_pairs(s)
listed = w.g_tensors(s, made, "F32", random.Random(1))
good_gguf = w.gguf_bytes(pairs, listed)
U64 = lambda n: w.Raw(struct.pack("<IQ", 10, n))


def with_pairs(remove=(), **changes):
    p = {k: v for k, v in pairs.items() if k not in remove}
    p.update({k.replace("__", "."): v for k, v in changes.items()})
    return w.gguf_bytes(p, listed)


def with_tensor_(i, **changes):
    name, dims, kind, data = listed[i]
    one = (changes.get("name", name), changes.get("dims", dims), changes.get("kind", kind), changes.get("data", data))
    return w.gguf_bytes(pairs, listed[:i] + [one] + listed[i + 1 :])


last = len(listed) - 1
gguf = {
    "empty": b"", "magic_only": b"GGUF", "other_magic": b"GGML" + good_gguf[4:], "text": b"hello, I am no checkpoint of anything", "version_1": patched(good_gguf, 4, struct.pack("<I", 1)),
    "version_4": patched(good_gguf, 4, struct.pack("<I", 4)), "version_big_endian": patched(good_gguf, 4, b"\0\0\0\3"), "tensors_2_to_63": w.gguf_bytes(pairs, listed, tensor_count=1 << 63),
    "tensors_a_billion": w.gguf_bytes(pairs, listed, tensor_count=10**9), "one_tensor_more": w.gguf_bytes(pairs, listed, tensor_count=len(listed) + 1),
    "one_tensor_less": w.gguf_bytes(pairs, listed, tensor_count=len(listed) - 1), "no_tensors": w.gguf_bytes(pairs, []), "pairs_2_to_63": w.gguf_bytes(pairs, listed, pair_count=1 << 63),
    "pairs_a_billion": w.gguf_bytes(pairs, listed, pair_count=10**9), "one_pair_more": w.gguf_bytes(pairs, listed, pair_count=len(pairs) + 1), "no_pairs": w.gguf_bytes({}, listed),
    "architecture_llama": with_pairs(general__architecture="llama"), "architecture_missing": with_pairs(remove=["general.architecture"]), "architecture_a_number": with_pairs(general__architecture=7),
    "architecture_mamba1": with_pairs(general__architecture="mamba"), "alignment_3": with_pairs(general__alignment=3), "alignment_1": with_pairs(general__alignment=1),
    "alignment_huge": with_pairs(general__alignment=1 << 30), "alignment_text": with_pairs(general__alignment="32"), "alignment_64": with_pairs(general__alignment=64),
    "no_block_count": with_pairs(remove=["mamba2.block_count"]), "no_state_size": with_pairs(remove=["mamba2.ssm.state_size"]), "no_inner_size": with_pairs(remove=["mamba2.ssm.inner_size"]),
    "blocks_zero": with_pairs(mamba2__block_count=0), "blocks_more": with_pairs(mamba2__block_count=3), "blocks_less": with_pairs(mamba2__block_count=1), "blocks_2_to_40": with_pairs(mamba2__block_count=U64(1 << 40)),
    "width_contradicts": with_pairs(mamba2__embedding_length=64), "inner_contradicts": with_pairs(**{"mamba2__ssm__inner_size": 128}), "state_contradicts": with_pairs(**{"mamba2__ssm__state_size": 16}),
    "heads_contradict": with_pairs(**{"mamba2__ssm__time_step_rank": 8}), "heads_do_not_divide": with_pairs(**{"mamba2__ssm__time_step_rank": 5}), "groups_contradict": with_pairs(**{"mamba2__ssm__group_count": 2}),
    "taps_contradict": with_pairs(**{"mamba2__ssm__conv_kernel": 3}), "feed_forward": with_pairs(mamba2__feed_forward_length=64), "eps_nan": with_pairs(**{"mamba2__attention__layer_norm_rms_epsilon": float("nan")}),
    "eps_negative": with_pairs(**{"mamba2__attention__layer_norm_rms_epsilon": -1.0}), "eps_text": with_pairs(**{"mamba2__attention__layer_norm_rms_epsilon": "small"}), "size_is_text": with_pairs(mamba2__embedding_length="32"),
    "size_negative": with_pairs(mamba2__embedding_length=w.Raw(struct.pack("<Ii", 5, -32))), "tokens_too_few": with_pairs(tokenizer__ggml__tokens=["a", "b"]),
    "array_of_arrays": with_pairs(extra=w.Raw(struct.pack("<IIQ", 9, 9, 1))), "array_2_to_60": with_pairs(extra=w.Raw(struct.pack("<IIQ", 9, 8, 1 << 60))), "type_unknown": with_pairs(extra=w.Raw(struct.pack("<I", 77))),
    "string_2_to_63": with_pairs(extra=w.Raw(struct.pack("<IQ", 8, 1 << 63))), "key_of_2_to_62": patched(good_gguf, 24, struct.pack("<Q", 1 << 62)),
    "name_unknown": with_tensor_(3, name="blk.0.elephant"), "name_long": with_tensor_(3, name="b" * 1000), "name_twice": with_tensor_(3, name=listed[2][0]), "layer_huge": with_tensor_(3, name="blk.99999.ssm_in.weight"),
    "layer_negative": with_tensor_(3, name="blk.-1.ssm_in.weight"), "layer_with_zero": with_tensor_(3, name="blk.00.ssm_conv1d.weight"), "name_empty": with_tensor_(3, name=""),
    "five_dimensions": with_tensor_(3, dims=[1, 1, 1, 1, 1]), "dimensions_2_to_31": patched(good_gguf, good_gguf.index(b"token_embd.weight") + 17, struct.pack("<I", 1 << 31)),
    "dimension_negative": with_tensor_(3, dims=[(1 << 64) - 4, 80]), "dimensions_overflow": with_tensor_(3, dims=[1 << 40, 1 << 40]), "dimension_zero": with_tensor_(3, dims=[0, 80]),
    "dimension_larger": with_tensor_(3, dims=[4, 81]), "transposed": with_tensor_(2, dims=listed[2][1][::-1]), "type_q5_k": with_tensor_(2, kind=13), "type_q2_k": with_tensor_(2, kind=10), "type_iq4": with_tensor_(2, kind=20),
    "type_removed": with_tensor_(2, kind=4), "type_999": with_tensor_(2, kind=999), "type_i32": with_tensor_(2, kind=26), "q4_k_of_32": with_tensor_(2, kind=12), "q8_0_of_4": with_tensor_(3, kind=8), "f16_in_f32_bytes": with_tensor_(2, kind=1),
    "offset_shifted": w.gguf_bytes(pairs, listed, offsets={3: 32}), "offset_huge": w.gguf_bytes(pairs, listed, offsets={last: 1 << 62}), "offset_unaligned": w.gguf_bytes(pairs, listed, offsets={3: 7}), "overlap": w.gguf_bytes(pairs, listed, offsets={1: 0}),
    "data_cut": good_gguf[:-128], "data_missing": good_gguf[: len(good_gguf) // 3], "bytes_behind": good_gguf + b"\0" * 64, "tensor_missing": w.gguf_bytes(pairs, listed[:-1]), "embedding_missing": w.gguf_bytes(pairs, listed[1:]),
    "head_differs_in_width": w.gguf_bytes(pairs, listed + [("output.weight", [16, 32], 0, bytes(16 * 32 * 4))]), "padding_not_zero": None,
}
I64 = lambda n: w.Raw(struct.pack("<Iq", 11, n))
gguf |= {
    "size_negative_i64": with_pairs(mamba2__embedding_length=I64(-32)), "size_of_f32": with_pairs(mamba2__embedding_length=1.0), "vocab_contradicts": with_pairs(mamba2__vocab_size=7),
    "eps_one": with_pairs(**{"mamba2__attention__layer_norm_rms_epsilon": 1.0}), "layer_without_end": with_tensor_(3, name="blk.0"), "layer_without_name": with_tensor_(3, name="blk.0."),
    "layer_without_number": with_tensor_(3, name="blk.x.ssm_in.weight"), "layer_without_dot": with_tensor_(3, name="blk.12345"), "architecture_odd": with_pairs(general__architecture="\x01" * 200),
    "embedding_of_one_dimension": with_tensor_(0, dims=[1024]), "ours_without_config": with_pairs(general__architecture="palimpsa"), "ours_with_a_list": with_pairs(general__architecture="palimpsa", palimpsa__config="[1]"),
    "ours_with_no_json": with_pairs(general__architecture="palimpsa", palimpsa__config="{"), "ours_with_a_number": with_pairs(general__architecture="palimpsa", palimpsa__config=7),
    "ours_with_a_name_of_zero": w.gguf_bytes({"general.architecture": "palimpsa", "palimpsa.config": "{}"}, [("a\0b", [4], 0, bytes(16))]),
    "ours_without_a_name": w.gguf_bytes({"general.architecture": "palimpsa", "palimpsa.config": "{}"}, [("", [4], 0, bytes(16))]),
}
k = next(i for i, t in enumerate(listed) if t[0] == "blk.0.ssm_dt.bias")
at = good_gguf.index(listed[k][3])
gguf["padding_not_zero"] = patched(good_gguf, at + len(listed[k][3]), b"\1")

# ---- configurations with safetensors

tensors_official = w.safetensors_bytes({**made, "lm_head.weight": made[E]})
tensors_hf = w.safetensors_bytes(w.hf_names(made))


def changed(base, **changes):
    c = json.loads(json.dumps(base))
    for key, value in changes.items():
        *path, final = key.split("__")
        target = c
        for step in path:
            target = target[step]
        if value is None:
            target.pop(final, None)
        else:
            target[final] = value
    return json.dumps(c).encode()


def of(names, base, tensors, keys):
    """A case for every (key, wrong value)."""
    out = {}
    for key, value in keys:
        out[f"{key}_{str(value)[:12].replace('/', '_')}"] = {"config.json": changed(base, **{key: value}), "model.safetensors": tensors}
    return {**out, **names}


wrong = [0, -1, 1.5, "many", [1], 1 << 40]
official_cases = of({
    "empty": {"config.json": b"", "model.safetensors": tensors_official}, "no_config": {"model.safetensors": tensors_official}, "list": {"config.json": b"[]", "model.safetensors": tensors_official},
    "head_differs": {"config.json": changed(official), "model.safetensors": w.safetensors_bytes({**made, "lm_head.weight": (shape, [v + 1 for v in made[E][1]])})},
    "head_shape": {"config.json": changed(official), "model.safetensors": w.safetensors_bytes({**made, "lm_head.weight": ([1, 32], [0.0] * 32)})},
    "head_missing_untied": {"config.json": changed(official, tie_embeddings=False), "model.safetensors": w.safetensors_bytes(made)},
    "plural_name": {"config.json": changed(official), "model.safetensors": tensors_hf}, "no_tensors": {"config.json": changed(official), "model.safetensors": w.safetensors_bytes({})},
}, official, tensors_official, [("d_model", v) for v in wrong + [64]] + [("n_layer", v) for v in wrong + [1, 3]] + [("vocab_size", v) for v in wrong + [33]] +
    [("ssm_cfg__d_state", v) for v in wrong + [16]] + [("ssm_cfg__headdim", v) for v in wrong + [5, 32]] + [("ssm_cfg__ngroups", v) for v in wrong + [3]] +
    [("ssm_cfg__layer", v) for v in ["Mamba1", 1, None]] + [("ssm_cfg__expand", v) for v in ["x", 3]] + [("ssm_cfg__d_conv", v) for v in [3, "x"]] +
    [("ssm_cfg__dt_limit", v) for v in [1, [2.0, 1.0]]] + [("d_intermediate", 64), ("attn_layer_idx", [1]), ("rms_norm", False), ("pad_vocab_size_multiple", 64), ("pad_vocab_size_multiple", -16), ("ssm_cfg", 7), ("ssm_cfg__norm_before_gate", True)])
hf_cases = of({
    "model_type_mamba": {"config.json": changed(hf, model_type="mamba"), "model.safetensors": tensors_hf}, "singular_name": {"config.json": changed(hf), "model.safetensors": tensors_official},
    "untied_without_head": {"config.json": changed(hf, tie_word_embeddings=False), "model.safetensors": tensors_hf}, "infinity_outside": {"config.json": b"Infinity x", "model.safetensors": tensors_hf},
    "index_lost": {"config.json": changed(hf), "model.safetensors.index.json": json.dumps({"weight_map": {"a": "gone.safetensors"}}).encode()},
    "index_climbs": {"config.json": changed(hf), "model.safetensors.index.json": json.dumps({"weight_map": {"a": "../x"}}).encode()},
    "index_wrong": {"config.json": changed(hf), "part": tensors_hf, "model.safetensors.index.json": json.dumps({"weight_map": {"elephant": "part"}}).encode()},
    "shards_twice": {"config.json": changed(hf), "a": tensors_hf, "b": tensors_hf, "model.safetensors.index.json": json.dumps({"weight_map": {"backbone.norm_f.weight": "a", "backbone.embeddings.weight": "b"}}).encode()},
    "torch_index_lost": {"config.json": changed(official), "pytorch_model.bin.index.json": json.dumps({"weight_map": {"a": "gone.bin"}}).encode()},
    "torch_index_wrong": {"config.json": changed(official), "part": good_zip, "pytorch_model.bin.index.json": json.dumps({"weight_map": {"elephant": "part", "giraffe": "part"}}).encode()},
    "torch_index_empty": {"config.json": changed(official), "pytorch_model.bin.index.json": b"{}"},
}, hf, tensors_hf, [("hidden_size", v) for v in wrong + [64]] + [("num_hidden_layers", v) for v in wrong + [1, 3]] + [("vocab_size", v) for v in wrong + [31]] + [("state_size", v) for v in wrong + [16]] +
    [("head_dim", v) for v in wrong + [5]] + [("num_heads", v) for v in [3, "x", 1 << 40]] + [("n_groups", v) for v in wrong + [2, 3]] + [("norm_groups", v) for v in [-1, 3, "x", 1 << 20]] +
    [("unpadded_vocab_size", v) for v in [33, 0, "x"]] + [("conv_kernel", 5), ("use_bias", True), ("use_conv_bias", False), ("rms_norm", False), ("hidden_act", "relu"), ("layer_norm_epsilon", 0), ("layer_norm_epsilon", "x"), ("time_step_limit", [1.0, 0.5]), ("time_step_limit", 3)])


formats = {
    "torch": {n: {"config.json": changed(official), "pytorch_model.bin": raw} for n, raw in torch.items()},
    "gguf": {n: {"model.gguf": raw} for n, raw in gguf.items()},
    "official": official_cases, "hf": hf_cases,
}
good = {"torch": {"config.json": changed(official), "pytorch_model.bin": good_zip}, "gguf": {"model.gguf": good_gguf},
        "official": {"config.json": changed(official), "model.safetensors": tensors_official}, "hf": {"config.json": changed(hf), "model.safetensors": tensors_hf}}
with tempfile.TemporaryDirectory() as temporary:
    root = keep or pathlib.Path(temporary)

    def written(name, files):
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for part, raw in files.items():
            (folder / part).write_bytes(raw)
        return folder / "model.gguf" if name.startswith("gguf/") else folder

    for fmt, cases in formats.items():
        inspected(written(f"{fmt}/good", good[fmt]))
        check(len(cases) >= 40, f"only {len(cases)} broken files of {fmt}")
        malformed({f"{fmt}/{name}": files for name, files in cases.items()}, written)
print(f"{sum(map(len, formats.values()))} malformed checkpoints refused: " + ", ".join(f"{len(c)} {f}" for f, c in formats.items()))
