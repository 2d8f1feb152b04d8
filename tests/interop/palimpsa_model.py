# SPDX-License-Identifier: MIT
"""libpalimpsa's models by ctypes, for comparing their logits with other programs in one process."""
import ctypes

from palimpsa_tokenizer import Error


class Config(ctypes.Structure):
    """How pal_model_config begins."""
    _fields_ = [("layers", ctypes.c_int), ("hidden", ctypes.c_int), ("vocab", ctypes.c_int), ("vocab_rows", ctypes.c_int)]


class WorkOptions(ctypes.Structure):
    _fields_ = [("tokens", ctypes.c_int), ("sequences", ctypes.c_int), ("logits", ctypes.c_int), ("context", ctypes.c_int),
                ("loss", ctypes.c_bool), ("variance", ctypes.c_bool), ("training", ctypes.c_bool), ("trial", ctypes.c_int), ("recompute", ctypes.c_bool)]


class Model:
    """One sequence: feed() returns the logits after the last token as a list."""

    def __init__(self, library, path):
        self.lib = ctypes.CDLL(library)
        self.lib.pal_model_config_of.restype = ctypes.POINTER(Config)
        self.err = Error()
        self.cx, self.model, self.work, self.state = (ctypes.c_void_p() for _ in range(4))
        self.check(self.lib.pal_context_new(ctypes.byref(self.cx), 0, None, ctypes.byref(self.err)))
        self.check(self.lib.pal_model_open(ctypes.byref(self.model), str(path).encode(), 0, self.cx, ctypes.byref(self.err)))
        config = self.lib.pal_model_config_of(self.model).contents
        self.vocab, self.rows = config.vocab, config.vocab_rows
        self.check(self.lib.pal_work_new(ctypes.byref(self.work), self.model, self.cx, ctypes.byref(WorkOptions(tokens=256)), ctypes.byref(self.err)))
        self.check(self.lib.pal_state_new(ctypes.byref(self.state), self.model, 4096, ctypes.byref(self.err)))

    def check(self, status):
        if status:
            raise ValueError(self.err.text.decode(errors="replace"))

    def feed(self, ids):
        logits = (ctypes.c_float * self.rows)()
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        self.check(self.lib.pal_model_prefill(self.model, self.work, self.state, tokens, len(ids), logits, ctypes.byref(self.err)))
        return list(logits)

    def close(self):
        self.lib.pal_state_free(self.state)
        self.lib.pal_work_free(self.work)
        self.lib.pal_model_close(self.model)
        self.lib.pal_context_free(self.cx)
