# SPDX-License-Identifier: MIT
"""Recorded float64 cases of the memory rules (tests/golden/ops), read with nothing but the format's description."""
import json
import pathlib
import struct

import numpy as np

OPS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "ops"
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4"}
RULES = ("palimpsa", "gla", "longhorn", "delta", "gdn_app", "gdn2", "gdn", "mesa", "comba", "kda", "rwkv7", "pkda", "kdn_iso", "kdn", "kla", "mamba3")


def read(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    at = 8 + length
    return {name: np.frombuffer(raw[at + t["data_offsets"][0] : at + t["data_offsets"][1]], TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def rule_of(path):
    return next(rule for rule in RULES if path.stem.startswith(rule + "_"))


def cases():
    return [p for p in sorted(OPS.glob("*.safetensors")) if p.stem.startswith(tuple(r + "_" for r in RULES))]


def single(x):
    return np.ascontiguousarray(x, np.float32)


def inputs(rule, case):
    """Arguments of forward as recorded; longhorn's gate, a number per value channel, is called beta in the files."""
    import palimpsa
    given = {}
    for name in palimpsa.memory.inputs(rule):
        recorded = "in.beta" if rule == "longhorn" and name == "b" else f"in.{name}"
        x = single(case[recorded])
        if "in.cu_seqlens" in case and name not in palimpsa.memory.PARAMETERS:
            x = x[0]
        given[name] = x
    return given


def nmax(x, reference):
    """Largest difference over the largest number of the reference; infinite for NaN."""
    scale = np.abs(reference).max() or 1
    worst = np.abs(np.asarray(x, np.float64).reshape(reference.shape) - reference).max() / scale
    return worst if np.isfinite(worst) else np.inf
