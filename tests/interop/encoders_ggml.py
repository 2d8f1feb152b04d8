# SPDX-License-Identifier: MIT
"""How close the blocks that we write come to the values, next to those of ggml's own encoders.

    pip install numpy gguf llama-cpp-python
    python3 encoders_ggml.py --program build/palimpsa [MODEL ...]

MODEL is anything that `palimpsa convert` opens; without one, a small random Mamba2 is
made. Ends with exit code 1 when a type's squared error, over all matrices, is larger than ggml's.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy
from random_mamba2 import make

TYPES = {name.lower(): gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q6_K", "Q5_K", "Q5_0", "Q4_K", "Q4_0")}


def ggml():
    folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
    library = ctypes.CDLL(str(next(folder.glob("libggml-base.so*"))))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return library


def encoded_by(library, kind, values):
    values = numpy.ascontiguousarray(values, dtype=numpy.float32)
    per, size = gguf.GGML_QUANT_SIZES[kind]
    out = numpy.zeros((values.shape[0], values.shape[1] // per * size), dtype=numpy.uint8)
    written = library.ggml_quantize_chunk(kind, values.ctypes.data, out.ctypes.data, 0, values.shape[0], values.shape[1], None)
    assert written == out.size
    return gguf.dequantize(out, kind)


def tensors(path):
    return {t.name: (t.tensor_type, gguf.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])) for t in gguf.GGUFReader(path).tensors}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", required=True)
    arguments.add_argument("models", nargs="*")
    a = arguments.parse_args()
    library, failures = ggml(), 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        models = a.models
        if not models:
            make(root / "random", layers=2, rows=2048, vocab=2048, keep=False)
            models = [root / "random"]
        for number, model in enumerate(models):
            files = {dtype: root / f"{number}-{dtype}.gguf" for dtype in ("f32", *TYPES)}
            for dtype, file in files.items():
                subprocess.run([a.program, "convert", model, file, "--to", "gguf", "--dtype", dtype, "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)
            exact = {name: x for name, (_, x) in tensors(files["f32"]).items()}
            for dtype, kind in TYPES.items():
                ours = theirs = energy = 0.0
                worst, count = (0.0, ""), 0
                for name, (stored, x) in tensors(files[dtype]).items():
                    if stored != kind:
                        continue
                    e = [float(numpy.square(y.astype(numpy.float64) - exact[name]).sum()) for y in (x, encoded_by(library, kind, exact[name]))]
                    ours, theirs, energy, count = ours + e[0], theirs + e[1], energy + float(numpy.square(exact[name], dtype=numpy.float64).sum()), count + 1
                    worst = max(worst, (e[0] / e[1], name))
                if not count:
                    print(f"{model}: {dtype}: no matrix has rows for it")
                    continue
                good = ours <= theirs * 1.0001
                failures += not good
                print(f"{'ok' if good else 'FAILED'}: {pathlib.Path(model).name}: {dtype}: {count} matrices, relative error ours {(ours / energy) ** 0.5:.5f}, ggml {(theirs / energy) ** 0.5:.5f}; "
                      f"squared error {ours / theirs:.4f} of ggml's, at most {worst[0]:.4f} ({worst[1]})", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
