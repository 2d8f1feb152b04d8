# SPDX-License-Identifier: MIT
"""Writes the C code of palimpsa._native: make_bindings.py INCLUDE_DIRECTORY OUTPUT.c

cffi gets the text of the public headers, less what only a compiler needs; the compiler then sees the headers themselves and
refuses to build when the two disagree.
"""
import pathlib
import re
import sys

import cffi

HEADERS = ["status", "context", "view", "memory"]


def declarations(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'#ifdef __cplusplus\n.*?#endif', "", text, flags=re.S)
    text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.M)
    return re.sub(r"\bPAL_API\b|PAL_PRINTF\([^)]*\)", "", text)


include, output = map(pathlib.Path, sys.argv[1:])
ffi = cffi.FFI()
ffi.cdef("".join(declarations((include / f"{name}.h").read_text()) for name in HEADERS))
ffi.set_source("palimpsa._native", "".join(f"#include <palimpsa/{name}.h>\n" for name in HEADERS))
ffi.emit_c_code(str(output))
