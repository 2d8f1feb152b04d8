# SPDX-License-Identifier: MIT
"""Writes the C code of palimpsa._native, or of _native64, the same in double precision: make_bindings.py INCLUDE_DIRECTORY MODULE OUTPUT.c

cffi gets the text of the public headers, less what only a compiler needs; the compiler then sees the headers themselves and
refuses to build when the two disagree.
"""
import pathlib
import re
import sys

import cffi

RULES = ["status", "context", "view", "memory"]
MODELS = ["device", "matrix", "batch", "timing", "config", "safetensors", "model", "windows", "tokenizer", "state", "watch", "attribution", "sampler", "grammar", "session", "bundle", "score", "convert", "surgery", "evaluate", "train"]
# What the library calls back; _library.py says what it does.
CALLS = """
extern "Python" bool palimpsa_go_on(void *, size_t, size_t);
extern "Python" void palimpsa_on_token(void *, const pal_token *);
extern "Python" bool palimpsa_on_layer(void *, const pal_observation *);
extern "Python" bool palimpsa_on_reading(void *, const pal_attribution *);
"""


def declarations(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'#ifdef __cplusplus\n.*?#endif', "", text, flags=re.S)
    text = re.sub(r"^#(?!define PAL_\w+ \d+$).*?(?<!\\)$", "", text, flags=re.M)
    return re.sub(r"\bPAL_API\b|PAL_PRINTF\([^)]*\)", "", text)


include, module, output = sys.argv[1:]
double = module == "_native64"
headers = RULES if double else RULES + MODELS
text = "".join(declarations((pathlib.Path(include) / f"{name}.h").read_text()) for name in headers) + CALLS * (not double)
ffi = cffi.FFI()
ffi.cdef(re.sub(r"\bfloat\b", "double", text) if double else text)
ffi.set_source(f"palimpsa.{module}", '#include "double.h"\n' * double + "".join(f"#include <palimpsa/{name}.h>\n" for name in headers))
ffi.emit_c_code(output)
