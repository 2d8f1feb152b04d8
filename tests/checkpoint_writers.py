#!/usr/bin/env python3
"""Small Mamba2 checkpoints in the layouts of others, written here from the formats' descriptions with nothing but struct
and zlib, so that our readers are not tested with our own writers.

    checkpoint_writers.py KIND DIRECTORY [tiny]   KIND: official, torch, torch_f16, torch_bf16, torch_zip64, torch_sharded, hf, hf_sharded,
                                              gguf, gguf_f16, gguf_bf16, or gguf_ and a type of blocks: gguf_q4_k, gguf_iq4_nl, ...

Next to the checkpoint (a directory or a file model.gguf in DIRECTORY) expected.json holds every value of every tensor
under its official name. Values are multiples of 1/64 that f16 and bf16 hold exactly.
"""
import json, math, pathlib, random, struct, sys, zlib

VOCAB, ROWS = 27, 32


def sizes(wide=False, groups=1, tiny=False, blocks=False):
    """tiny: blocks of 32 values still fill rows where there shall be any; those of 256 do not."""
    if tiny:
        return dict(D=32 if blocks else 8, inner=32 if blocks else 16, P=8 if blocks else 4, H=4, N=2, G=groups, layers=1, W=4)
    hidden = 256 if wide else 32
    inner = 256 if wide else 64
    return dict(D=hidden, inner=inner, P=inner // 4, H=4, N=8, G=groups, layers=1 if wide else 2, W=4)


def tensors(s, rng):
    """Official name -> (shape, values)."""
    made = {}

    def add(name, *shape, low=-60, high=60):
        made[name] = (list(shape), [rng.randint(low, high) / 64 for _ in range(math.prod(shape))])

    conv = s["inner"] + 2 * s["G"] * s["N"]
    add("backbone.embedding.weight", ROWS, s["D"])
    for i in range(s["layers"]):
        at = f"backbone.layers.{i}."
        add(at + "norm.weight", s["D"], low=20, high=100)
        add(at + "mixer.in_proj.weight", 2 * s["inner"] + 2 * s["G"] * s["N"] + s["H"], s["D"])
        add(at + "mixer.conv1d.weight", conv, 1, s["W"])
        add(at + "mixer.conv1d.bias", conv)
        add(at + "mixer.dt_bias", s["H"])
        add(at + "mixer.A_log", s["H"], low=1)
        add(at + "mixer.D", s["H"], low=1)
        add(at + "mixer.norm.weight", s["inner"], low=20, high=100)
        add(at + "mixer.out_proj.weight", s["D"], s["inner"])
    add("backbone.norm_f.weight", s["D"], low=20, high=100)
    return made


def bf16(x):
    return struct.unpack("<H", struct.pack("<f", x)[2:])[0]


def packed(values, dtype):
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return struct.pack(f"<{len(values)}H", *map(bf16, values))


# ---- configurations

def official_config(s):
    return {"d_model": s["D"], "d_intermediate": 0, "n_layer": s["layers"], "vocab_size": VOCAB,
            "ssm_cfg": {"layer": "Mamba2", "d_state": s["N"], "headdim": s["P"], "ngroups": s["G"], "expand": s["inner"] // s["D"]},
            "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True,
            "pad_vocab_size_multiple": 16, "tie_embeddings": True}


def hf_config(s):
    return {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": s["D"], "num_hidden_layers": s["layers"],
            "vocab_size": ROWS, "state_size": s["N"], "num_heads": s["H"], "head_dim": s["P"], "expand": s["inner"] // s["D"],
            "n_groups": s["G"], "conv_kernel": s["W"], "use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5,
            "rms_norm": True, "hidden_act": "silu", "tie_word_embeddings": True, "time_step_limit": [0.0, math.inf], "chunk_size": 256}


# ---- torch: a zip of stored members around a pickle

def p_text(t):
    b = t.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def p_int(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    b = n.to_bytes(8, "little", signed=True)
    return b"\x8a\x08" + b


def p_tuple(items):
    items = list(items)
    return b")" if not items else b"(" + b"".join(items) + b"t"


def p_global(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


DICT = p_global("collections", "OrderedDict") + b")R"
STORAGE = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage"}


def strides(shape):
    out, n = [], 1
    for extent in reversed(shape):
        out.append(n)
        n *= extent
    return out[::-1]


def p_storage(key, dtype, numel, word="storage"):
    return p_tuple([p_text(word), p_global("torch", STORAGE[dtype]), p_text(key), p_text("cpu"), p_int(numel)]) + b"Q"


def p_tensor(key, dtype, shape, numel=None, offset=0, stride=None):
    args = [p_storage(key, dtype, math.prod(shape) if numel is None else numel), p_int(offset), p_tuple(map(p_int, shape)),
            p_tuple(map(p_int, strides(shape) if stride is None else stride)), b"\x89", DICT]
    return p_global("torch._utils", "_rebuild_tensor_v2") + p_tuple(args) + b"R"


def p_parameter(tensor):
    return p_global("torch._utils", "_rebuild_parameter") + p_tuple([tensor, b"\x88", DICT]) + b"R"


def p_state(entries):
    body = b"".join(p_text(name) + value for name, value in entries)
    metadata = b"}" + p_text("_metadata") + b"}s"
    return b"\x80\x02" + DICT + b"q\x00" + b"(" + body + b"u" + metadata + b"b."


def zip_bytes(members, zip64=False, align=64):
    """members: (name, bytes) or (name, bytes, changes); changes replace fields of the headers."""
    out, central = b"", b""
    for member in members:
        name, data = member[0].encode(), member[1]
        c = {"crc": zlib.crc32(data), "method": 0, "flags": 0, "size": len(data), "packed": len(data), "offset": len(out), "local_name": name}
        c.update(member[2] if len(member) > 2 else {})
        big = zip64 and len(data) > 0
        extra = struct.pack("<HHQQ", 1, 16, c["size"], c["packed"]) if big else b""
        at = len(out) + 30 + len(name) + len(extra)
        gap = -(at + 4) % align
        extra += b"FB" + struct.pack("<H", gap) + b"Z" * gap
        full = 0xFFFFFFFF
        local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, c["flags"], c["method"], 0, 0, c["crc"], full if big else c["packed"], full if big else c["size"],
                            len(c["local_name"]), len(extra))
        central_extra = c.get("extra", struct.pack("<HHQQQ", 1, 24, c["size"], c["packed"], c["offset"]) if big else b"")
        central += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0, 20, c["flags"], c["method"], 0, 0, c["crc"], full if big else c["packed"],
                               full if big else c["size"], len(name), len(central_extra), 0, 0, 0, 0, full if big else c["offset"]) + name + central_extra
        out += local + c["local_name"] + extra + data
    begin = len(out)
    out += central
    count = len(members)
    if zip64:
        where = len(out)
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(central), begin)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, where, 1)
        return out + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return out + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(central), begin, 0)


def torch_members(made, dtype, tied=True, root="archive"):
    entries, data = [], []
    for i, (name, (shape, values)) in enumerate(made.items()):
        value = p_tensor(str(i), dtype, shape)
        entries.append((name, p_parameter(value) if i % 2 else value))
        data.append((f"{root}/data/{i}", packed(values, dtype)))
    if tied:  # the head shares the embedding's storage
        entries.append(("lm_head.weight", p_tensor("0", dtype, made["backbone.embedding.weight"][0])))
    return [(f"{root}/data.pkl", p_state(entries)), (f"{root}/byteorder", b"little")] + data + [(f"{root}/version", b"3\n")]


# ---- safetensors

def safetensors_bytes(made, dtype="F32"):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in made.items():
        data = packed(values, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def hf_names(made):
    return {n.replace("backbone.embedding.", "backbone.embeddings."): t for n, t in made.items()}


# ---- GGUF

def g_string(t):
    b = t if isinstance(t, bytes) else t.encode()
    return struct.pack("<Q", len(b)) + b


def g_value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, (str, bytes)):
        return struct.pack("<I", 8) + g_string(v)
    if isinstance(v, list) and v and isinstance(v[0], int):
        return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)
    return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(g_string, v))


def g_pairs(s):
    return {"general.architecture": "mamba2", "general.name": "test", "mamba2.context_length": 1 << 20, "mamba2.embedding_length": s["D"],
            "mamba2.feed_forward_length": 0, "mamba2.attention.head_count": 0, "mamba2.block_count": s["layers"],
            "mamba2.ssm.conv_kernel": s["W"], "mamba2.ssm.inner_size": s["inner"], "mamba2.ssm.state_size": s["N"],
            "mamba2.ssm.time_step_rank": s["H"], "mamba2.ssm.group_count": s["G"], "mamba2.attention.layer_norm_rms_epsilon": 1e-5,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "mpt",
            "tokenizer.ggml.tokens": [chr(97 + i) if i < 26 else "<|endoftext|>" for i in range(VOCAB)] + [f"[PAD{i}]" for i in range(VOCAB, ROWS)],
            "tokenizer.ggml.token_type": [1] * 26 + [3] + [5] * (ROWS - VOCAB), "tokenizer.ggml.merges": []}


IDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
       "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30}
BLOCKS_OF_32, BLOCKS_OF_256 = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"), ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")
LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of IQ4_NL and IQ4_XS
MATRICES = ("embedding.weight", "in_proj.weight", "out_proj.weight")


def f16(rng):
    """A scale, and the number that its 16 bits stand for."""
    bits = rng.randint(0, 1) << 15 | rng.randint(9, 14) << 10 | rng.randint(0, 1023)
    return struct.pack("<H", bits), struct.unpack("<e", struct.pack("<H", bits))[0]


def bits_of(values, bit, width=1, shift=0):
    """One number that has bits `bit` and on of value i at shift + width i."""
    return sum((v >> bit & (1 << width) - 1) << shift + width * i for i, v in enumerate(values))


def small_block(kind, rng):
    """32 values: scales, fifth bits, nibbles of values i and i + 16 in byte i."""
    scale, d = f16(rng)
    if kind == "Q8_0":
        q = [rng.randint(-128, 127) for _ in range(32)]
        return scale + struct.pack("<32b", *q), [d * x for x in q]
    five = kind.startswith("Q5")
    q = [rng.randint(0, 31 if five else 15) for _ in range(32)]
    minimum, m = f16(rng) if kind.endswith("_1") else (b"", 0)
    data = scale + minimum + (bits_of(q, 4).to_bytes(4, "little") if five else b"") + bytes(q[i] % 16 + 16 * (q[i + 16] % 16) for i in range(16))
    if kind == "IQ4_NL":
        return data, [d * LEVELS[x] for x in q]
    return data, [d * (x - {"Q4_0": 8, "Q5_0": 16}.get(kind, 0)) + m for x in q]


def factors(rng):
    """Eight scales and eight minima of six bits in twelve bytes."""
    sc, mn = [rng.randint(0, 63) for _ in range(8)], [rng.randint(0, 63) for _ in range(8)]
    head = [sc[j] + 64 * (sc[j + 4] // 16) for j in range(4)] + [mn[j] + 64 * (mn[j + 4] // 16) for j in range(4)]
    return bytes(head + [sc[j + 4] % 16 + 16 * (mn[j + 4] % 16) for j in range(4)]), sc, mn


def two_bits(q):
    """Byte i of a half's 32 has the two low bits of its values i, i + 32, i + 64 and i + 96."""
    return bytes(bits_of(q[128 * half + l : 128 * half + 128 : 32], 0, 2) for half in range(2) for l in range(32))


def large_block(kind, rng):
    """256 values."""
    scale, d = f16(rng)
    minimum, m = f16(rng)
    bits = {"Q2_K": 2, "Q3_K": 3, "Q4_K": 4, "Q5_K": 5, "Q6_K": 6, "IQ4_XS": 4}[kind]
    q = [rng.randint(0, 2**bits - 1) for _ in range(256)]
    if kind in ("Q4_K", "Q5_K"):
        head, sc, mn = factors(rng)
        high = bytes(bits_of(q[i::32], 4) for i in range(32)) if bits == 5 else b""
        body = bytes(q[64 * (i // 32) + i % 32] % 16 + 16 * (q[64 * (i // 32) + 32 + i % 32] % 16) for i in range(128))
        return scale + minimum + head + high + body, [d * sc[i // 32] * q[i] - m * mn[i // 32] for i in range(256)]
    if kind == "Q2_K":
        sc, mn = [rng.randint(0, 15) for _ in range(16)], [rng.randint(0, 15) for _ in range(16)]
        return bytes(a + 16 * b for a, b in zip(sc, mn)) + two_bits(q) + scale + minimum, [d * sc[i // 16] * q[i] - m * mn[i // 16] for i in range(256)]
    if kind == "Q3_K":
        sc = [rng.randint(0, 63) for _ in range(16)]
        packed = bytes(sc[g] % 16 + 16 * (sc[g + 8] % 16) for g in range(8)) + bytes(bits_of(sc[g::4], 4, 2) for g in range(4))
        return bytes(bits_of(q[i::32], 2) for i in range(32)) + two_bits(q) + packed + scale, [d * (sc[i // 16] - 32) * (q[i] - 4) for i in range(256)]
    if kind == "IQ4_XS":
        sc = [rng.randint(0, 63) for _ in range(8)]
        head = bits_of(sc, 4, 2).to_bytes(2, "little") + bytes(sc[g] % 16 + 16 * (sc[g + 1] % 16) for g in range(0, 8, 2))
        body = bytes(q[32 * (i // 16) + i % 16] + 16 * q[32 * (i // 16) + 16 + i % 16] for i in range(128))
        return scale + head + body, [d * (sc[i // 32] - 32) * LEVELS[q[i]] for i in range(256)]
    sc = [rng.randint(-128, 127) for _ in range(16)]
    low, high = [0] * 128, [0] * 64
    for i in range(256):
        half, run, l = i // 128, i % 128 // 32, i % 32
        low[64 * half + 32 * (run % 2) + l] += (q[i] % 16) << (4 * (run // 2))
        high[32 * half + l] += (q[i] // 16) << (2 * run)
    return bytes(low) + bytes(high) + struct.pack("<16b", *sc) + scale, [d * sc[i // 16] * (q[i] - 32) for i in range(256)]


def random_blocks(kind, count, rng):
    """Bytes of `count` values in random blocks, and the values they mean."""
    large = kind in BLOCKS_OF_256
    made = [(large_block if large else small_block)(kind, rng) for _ in range(count // (256 if large else 32))]
    return b"".join(data for data, _ in made), [x for _, values in made for x in values]


G_NAMES = {"norm.weight": "attn_norm.weight", "mixer.in_proj.weight": "ssm_in.weight", "mixer.conv1d.weight": "ssm_conv1d.weight",
           "mixer.conv1d.bias": "ssm_conv1d.bias", "mixer.dt_bias": "ssm_dt.bias", "mixer.A_log": "ssm_a", "mixer.D": "ssm_d",
           "mixer.norm.weight": "ssm_norm.weight", "mixer.out_proj.weight": "ssm_out.weight"}


def g_tensors(s, made, kind, rng):
    """(name, dims, type, bytes) of every tensor; values of quantised ones in `made` are replaced by what the bytes mean."""
    out = []
    for name, (shape, values) in made.items():
        dims, stored = shape[::-1], "F32"
        if name.startswith("backbone.layers."):
            layer, rest = name[len("backbone.layers."):].split(".", 1)
            g = f"blk.{layer}.{G_NAMES[rest]}"
        else:
            g = {"backbone.embedding.weight": "token_embd.weight", "backbone.norm_f.weight": "output_norm.weight"}[name]
        if name.endswith(MATRICES):
            stored = kind
        if len(shape) == 3:
            dims = [shape[2], shape[0]]
        if g.endswith((".ssm_a", ".ssm_d")):
            dims = [1, shape[0]]
        if g.endswith("ssm_norm.weight"):
            dims = [shape[0] // s["G"], s["G"]]
        if stored in BLOCKS_OF_32 + BLOCKS_OF_256:
            data, values[:] = random_blocks(stored, len(values), rng)
        elif g.endswith(".ssm_a"):
            data = struct.pack(f"<{len(values)}f", *[-math.exp(v) for v in values])
        else:
            data = packed(values, stored)
        out.append((g, dims, IDS[stored], data))
    return out


def gguf_bytes(pairs, listed, align=32, version=3, tensor_count=None, pair_count=None, offsets=None):
    """pairs: a dictionary of values, or of bytes that already hold type and value."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(listed) if tensor_count is None else tensor_count, len(pairs) if pair_count is None else pair_count)
    for key, value in pairs.items():
        head += g_string(key) + (value.raw if isinstance(value, Raw) else g_value(value))
    body = b""
    for i, (name, dims, kind, data) in enumerate(listed):
        at = len(body) if offsets is None or i not in offsets else offsets[i]
        head += g_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, at)
        body += data + b"\0" * (-len(data) % align)
    return head + b"\0" * (-len(head) % align) + body


class Raw:
    def __init__(self, raw):
        self.raw = raw


# ---- all of them

def write(kind, folder, tiny=False):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(kind)
    groups = 2 if kind in ("hf", "gguf_f16") else 1
    s = sizes(wide=kind[5:].upper() in BLOCKS_OF_256, groups=groups, tiny=tiny, blocks=kind[5:].upper() in BLOCKS_OF_32)
    made = tensors(s, rng)
    if kind.startswith("torch"):
        dtype = {"torch_f16": "F16", "torch_bf16": "BF16"}.get(kind, "F32")
        (folder / "config.json").write_text(json.dumps(official_config(s)))
        if kind == "torch_sharded":
            parts = {f"pytorch_model-0000{i + 1}-of-00002.bin": dict(list(made.items())[i::2]) for i in range(2)}
            for file, part in parts.items():
                (folder / file).write_bytes(zip_bytes(torch_members(part, dtype, tied=False)))
            index = {"metadata": {}, "weight_map": {n: f for f, part in parts.items() for n in part}}
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        else:
            (folder / "pytorch_model.bin").write_bytes(zip_bytes(torch_members(made, dtype), zip64=kind == "torch_zip64"))
    elif kind == "official":
        (folder / "config.json").write_text(json.dumps(official_config(s)))
        (folder / "model.safetensors").write_bytes(safetensors_bytes({**made, "lm_head.weight": made["backbone.embedding.weight"]}))
    elif kind.startswith("hf"):
        (folder / "config.json").write_text(json.dumps(hf_config(s)))
        named = hf_names(made)
        if kind == "hf_sharded":
            parts = {f"model-0000{i + 1}-of-00003.safetensors": dict(list(named.items())[i::3]) for i in range(3)}
            for file, part in parts.items():
                (folder / file).write_bytes(safetensors_bytes(part))
            index = {"metadata": {"total_size": 0}, "weight_map": {n: f for f, part in parts.items() for n in part}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        else:
            (folder / "model.safetensors").write_bytes(safetensors_bytes(named))
    else:
        stored = kind[5:].upper() or "F32"
        (folder / "model.gguf").write_bytes(gguf_bytes(g_pairs(s), g_tensors(s, made, stored, rng)))
    (folder / "expected.json").write_text(json.dumps(made))
    return s, made


KINDS = ["official", "torch", "torch_f16", "torch_bf16", "torch_zip64", "torch_sharded", "hf", "hf_sharded", "gguf", "gguf_f16", "gguf_bf16",
         *("gguf_" + kind.lower() for kind in BLOCKS_OF_32 + BLOCKS_OF_256)]

if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], tiny="tiny" in sys.argv[3:])
