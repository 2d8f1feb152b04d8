# SPDX-License-Identifier: MIT
"""Every type of block that GGUF files hold, read by this program and by the package `gguf`: the same f32, bit for bit.

    pip install numpy gguf
    python3 blocks_gguf.py --program build/palimpsa [--seed N]

The blocks are random bytes with finite f16 scales, subnormal ones and zeroes among them.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checkpoint_writers as writers

SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}  # else at 0


def random_bytes(kind, count, rng):
    per, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, (count // per, size), dtype=numpy.uint8)
    for at in SCALES.get(kind, (0,)):
        halves = rng.integers(0, 1 << 16, len(blocks), dtype=numpy.uint16)
        halves[(halves & 0x7C00) == 0x7C00] ^= 0x4000  # neither infinite nor NaN
        halves[::17] &= 0x83FF
        halves[::29] = 0
        blocks[:, at : at + 2] = halves[:, None].view(numpy.uint8)
    return blocks


def tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    return {n: numpy.frombuffer(raw, "<u4", (t["data_offsets"][1] - t["data_offsets"][0]) // 4, 8 + length + t["data_offsets"][0]) for n, t in header.items() if n != "__metadata__"}


def check(program, kind, seed, root):
    rng = numpy.random.default_rng(seed)
    s = writers.sizes(wide=True)
    made = writers.tensors(s, random.Random(seed))
    listed, expected = [], {}
    for name, (g, dims, stored, data) in zip(made, writers.g_tensors(s, made, "F32", None)):
        if name.endswith(writers.MATRICES):
            blocks = random_bytes(kind, int(numpy.prod(dims)), rng)
            data, stored = blocks.tobytes(), writers.IDS[kind]
            expected[name] = gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind]).astype("<f4").view("<u4").reshape(-1)
        listed.append((g, dims, stored, data))
    file, folder = root / f"{kind}.gguf", root / kind
    file.write_bytes(writers.gguf_bytes(writers.g_pairs(s), listed))
    subprocess.run([program, "convert", file, folder, "--to", "official", "--dtype", "f32", "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)
    found = tensors(folder / "model.safetensors")
    wrong = sum(int((found[name] != bits).sum()) for name, bits in expected.items())
    print(f"{'FAILED' if wrong else 'ok'}: {kind}: {sum(len(x) for x in expected.values())} values, {wrong} differ", flush=True)
    return wrong == 0 and len(expected) == 3


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--seed", type=int, default=1)
    a = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = [check(a.program, kind, a.seed, pathlib.Path(folder)) for kind in writers.BLOCKS_OF_32 + writers.BLOCKS_OF_256]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
