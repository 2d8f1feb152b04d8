# SPDX-License-Identifier: MIT
"""libpalimpsa's tokenizers by ctypes, for comparing them with other programs in one process."""
import ctypes


class Ids(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_uint32)), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_ubyte)), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class Options(ctypes.Structure):
    _fields_ = [("add_special", ctypes.c_bool), ("special_as_text", ctypes.c_bool)]


class Tokenizer:
    def __init__(self, library, spec):
        self.lib = ctypes.CDLL(library)
        self.lib.pal_tokenizer_size.restype = ctypes.c_size_t
        self.err = Error()
        self.tok, self.scratch, self.ids, self.bytes = ctypes.c_void_p(), ctypes.c_void_p(), Ids(), Bytes()
        self.check(self.lib.pal_tokenizer_open(ctypes.byref(self.tok), spec.encode(), ctypes.byref(self.err)))
        self.check(self.lib.pal_tokenizer_scratch_new(ctypes.byref(self.scratch), self.tok, ctypes.byref(self.err)))

    def check(self, status):
        if status:
            raise ValueError(self.err.text.decode(errors="replace"))

    def encode(self, text, add_special=False, special_as_text=False):
        raw = text if isinstance(text, bytes) else text.encode()
        self.ids.count = 0
        options = Options(add_special, special_as_text)
        self.check(self.lib.pal_tokenizer_encode(self.tok, self.scratch, raw, ctypes.c_size_t(len(raw)), ctypes.byref(options), ctypes.byref(self.ids),
                                                 ctypes.byref(self.err)))
        return self.ids.data[: self.ids.count]

    def decode(self, ids, skip_special=False):
        self.bytes.size = 0
        block = (ctypes.c_uint32 * len(ids))(*ids)
        self.check(self.lib.pal_tokenizer_decode(self.tok, block, ctypes.c_size_t(len(ids)), ctypes.c_bool(skip_special), ctypes.byref(self.bytes),
                                                 ctypes.byref(self.err)))
        return ctypes.string_at(self.bytes.data, self.bytes.size) if self.bytes.size else b""

    def __len__(self):
        return self.lib.pal_tokenizer_size(self.tok)

    def __del__(self):
        self.lib.pal_ids_free(ctypes.byref(self.ids))
        self.lib.pal_bytes_free(ctypes.byref(self.bytes))
        self.lib.pal_tokenizer_scratch_free(self.scratch)
        self.lib.pal_tokenizer_close(self.tok)
