# SPDX-License-Identifier: MIT
"""Memories of sequences, as objects."""
from __future__ import annotations

import os
import threading
import zipfile
from typing import Any

import numpy as np

from ._library import ffi, lib

_ALIGNED = 64


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of float32 that begin on a cache line, as the library's kernels like them."""
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + _ALIGNED, np.uint8)
    at = -raw.ctypes.data % _ALIGNED
    return raw[at : at + size].view(np.float32).reshape(shape)


def find(rule: str) -> Any:
    found = lib.pal_memory_find(rule.encode()) if isinstance(rule, str) else ffi.NULL
    if found == ffi.NULL:
        known = ", ".join(rules())
        raise ValueError(f"there is no memory rule {rule!r}; expected one of {known}")
    return found


def rules() -> list[str]:
    """Names of all rules."""
    names: list[str] = []
    while (rule := lib.pal_memory_at(len(names))) != ffi.NULL:
        names.append(ffi.string(lib.pal_memory_name(rule)).decode())
    return names


def part_names(rule: str) -> tuple[str, ...]:
    """What a memory consists of."""
    names = (lib.pal_memory_part_name(find(rule), part) for part in range(2))
    return tuple(ffi.string(name).decode() for name in names if name != ffi.NULL)


def _part_sizes() -> dict[tuple[str, int], int]:
    """Numbers in each part of a rule's memory, of one head of 3 keys and 5 values."""
    shape = ffi.new("pal_memory_shape *")
    shape.heads = shape.key_heads = shape.sequences = shape.tokens = 1
    shape.dk, shape.dv = 3, 5
    return {(rule, part): lib.pal_memory_part_floats(find(rule), shape, part) for rule in rules() for part in (0, 1)}


_PART_SIZES = _part_sizes()


def part_shape(rule: str, part: int, heads: Any, dk: Any, dv: Any) -> tuple[Any, ...]:
    """Of one sequence: a matrix [H, dv, dk], mesa's H [H, dk, dk], numbers that all values share, [H, dk] or [H], or a key and a value, [H, dk + dv]."""
    return {15: (heads, dv, dk), 8: (heads, dk + dv), 9: (heads, dk, dk), 3: (heads, dk), 1: (heads,)}[_PART_SIZES[rule, part]]


_INFINITE = float("inf")


def check_part(rule: str, where: str, name: str, x: Any) -> None:
    """Refuses an array or a tensor of importances, variances or preconditioners that are none."""
    positive = {"I": ("the importance", "above 0"), "var": ("the variance", "at least 0"), "A": ("the preconditioner", "at least 0")}
    if name not in positive:
        return
    what, bound = positive[name]
    if not bool((((x > 0) if name == "I" else (x >= 0)) & (x < _INFINITE)).all()):
        raise ValueError(f"{rule}: {where}{name}, {what}, has numbers that are not finite and {bound}")


class State:
    """Memories of `sequences` sequences under one rule. They are what `step` continues and `forward` starts from and returns.

    `parts` are what a memory means, as new arrays with sequences first: palimpsa `mu` and `I` [N, H, dv, dk], mesa `H` [N, H, dk, dk]
    and `G` [N, H, dv, dk], attention `K` and `V` [N, key_heads, context, d], kla `mu` and `I`, others `S` [N, H, dv, dk], with pkda's `A`
    and kdn's `var` [N, H, dk], kdn_iso's `var` [N, H] and mamba3's `last` [N, H, dk + dv].
    """

    def __init__(self, rule: str, sequences: int, heads: int, dk: int, dv: int, *, key_heads: int | None = None, context: int = 0,
                 Ip: Any = None) -> None:
        self._rule = find(rule)
        self.rule = rule
        sizes = {"sequences": sequences, "heads": heads, "dk": dk, "dv": dv, "key_heads": heads if key_heads is None else key_heads}
        for name, value in sizes.items():
            if not isinstance(value, (int, np.integer)) or not 1 <= value <= 1 << 20:
                raise ValueError(f"{rule}: {name} is {value!r}; expected a whole number from 1 to {1 << 20}")
        self.keeps_tokens = bool(lib.pal_memory_keeps_tokens(self._rule))
        if self.keeps_tokens and not 1 <= context <= 1 << 26:
            raise ValueError(f"{rule}: context is {context}; expected how many tokens a sequence can hold")
        self.sequences, self.heads, self.dk, self.dv, self.key_heads = sequences, heads, dk, dv, sizes["key_heads"]
        self.context = context if self.keeps_tokens else 0
        self._Ip = None
        if lib.pal_memory_inputs_of(self._rule) & lib.PAL_INPUT_IP:
            if Ip is None:
                raise ValueError(f"{rule}: a state needs Ip, the prior importance of each head")
            self._Ip = np.array(Ip, np.float32, order="C")
            if self._Ip.shape != (heads,) or not (np.isfinite(self._Ip).all() and (self._Ip > 0).all()):
                raise ValueError(f"{rule}: Ip must be {heads} positive numbers")
        shape = self._shape = ffi.new("pal_memory_shape *")
        shape.sequences = shape.tokens = sequences
        shape.heads, shape.key_heads, shape.dk, shape.dv, shape.context = heads, self.key_heads, dk, dv, self.context
        self._inputs = ffi.new("pal_memory_inputs *")
        if self._Ip is not None:
            self._inputs.Ip = ffi.from_buffer("float[]", self._Ip)
        self._floats = lib.pal_memory_state_floats(self._rule, shape)
        self._rows = (self._floats + 15) // 16 * 16
        self._data = aligned((sequences, self._rows))
        first = ffi.from_buffer("float[]", self._data, require_writable=True)
        self._hold = first
        self._pointers = ffi.new("float *[]", [first + n * self._rows for n in range(sequences)])
        self._past = np.zeros(sequences, np.int32)
        self._past_pointer = ffi.from_buffer("int[]", self._past, require_writable=True)
        self._stepping: Any = None  # what step keeps between calls
        self.reset()

    def reset(self) -> None:
        """Back to the default memory."""
        for n in range(self.sequences):
            lib.pal_memory_reset(self._rule, self._shape, self._inputs, self._pointers[n])
        self._past[:] = 0

    def _part_shape(self, part: int) -> tuple[int, ...]:
        if self.keeps_tokens:
            return (self.key_heads, self.context, self.dk if part == 0 else self.dv)
        return part_shape(self.rule, part, self.heads, self.dk, self.dv)

    @property
    def part_names(self) -> tuple[str, ...]:
        return part_names(self.rule)

    @property
    def past(self) -> np.ndarray:
        """Attention: tokens that each sequence has in its cache."""
        return self._past.copy()

    @property
    def parts(self) -> dict[str, np.ndarray]:
        out = {name: np.empty((self.sequences, *self._part_shape(p)), np.float32) for p, name in enumerate(self.part_names)}
        for n in range(self.sequences):
            pointers = [ffi.from_buffer("float[]", x[n], require_writable=True) for x in out.values()]
            lib.pal_memory_export(self._rule, self._shape, self._inputs, (pointers + [ffi.NULL])[:2], self._pointers[n])
        return out

    def set_parts(self, *, past: Any = None, **parts: Any) -> None:
        """Memories from their parts, all of them; attention also takes `past`."""
        if set(parts) != set(self.part_names):
            raise ValueError(f"{self.rule}: parts are {', '.join(sorted(parts)) or 'none'}; expected {', '.join(self.part_names)}")
        arrays = []
        for p, name in enumerate(self.part_names):
            x = np.asarray(parts[name])
            expected = (self.sequences, *self._part_shape(p))
            if x.dtype != np.float32 or x.shape != expected:
                raise ValueError(f"{self.rule}: {name} is {x.dtype} {list(x.shape)}; expected float32 {list(expected)}")
            check_part(self.rule, "", name, x)
            arrays.append(np.require(x, None, "CA"))
        if past is not None:
            tokens = np.asarray(past, np.int32)
            if not self.keeps_tokens or tokens.shape != (self.sequences,) or (tokens < 0).any() or (tokens > self.context).any():
                raise ValueError(f"{self.rule}: past must be {self.sequences} numbers from 0 to the context, and attention's")
            self._past[:] = tokens
        for n in range(self.sequences):
            pointers = [ffi.from_buffer("float[]", x[n]) for x in arrays]
            lib.pal_memory_import(self._rule, self._shape, self._inputs, (pointers + [ffi.NULL])[:2], self._pointers[n])

    def copy(self) -> State:
        return self.select(np.arange(self.sequences))

    def __deepcopy__(self, memo: Any) -> State:
        return self.copy()

    def __reduce__(self) -> Any:
        """For pickle: the memories to the bit, as the library lays them out. Files that last are save's."""
        sizes = (self.rule, self.sequences, self.heads, self.dk, self.dv)
        return _restore, (sizes, {"key_heads": self.key_heads, "context": self.context, "Ip": self._Ip}, self._data.copy(), self.past)

    def select(self, sequences: Any) -> State:
        """A state of copies of these sequences, by number."""
        rows = np.asarray(sequences)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size or (rows < 0).any() or (rows >= self.sequences).any():
            raise ValueError(f"{self.rule}: sequences must be numbers from 0 to {self.sequences - 1}, at least one")
        made = State(self.rule, rows.size, self.heads, self.dk, self.dv, key_heads=self.key_heads, context=self.context, Ip=self._Ip)
        made._data[:] = self._data[rows]
        made._past[:] = self._past[rows]
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into one .npz file, which is there whole or not at all."""
        target = os.fsdecode(path)
        temporary = f"{target}.{os.getpid()}-{threading.get_ident()}"
        sizes = np.array([self.sequences, self.heads, self.dk, self.dv, self.key_heads, self.context])
        out = open(temporary, "xb")
        try:
            with out:
                prior = {} if self._Ip is None else {"Ip": self._Ip}
                parts = {f"part_{name}": x for name, x in self.parts.items()}
                np.savez(out, rule=np.array(self.rule), sizes=sizes, past=self._past, **prior, **parts)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> State:
        try:
            with np.load(path, allow_pickle=False) as file:
                N, H, dk, dv, key_heads, context = (int(x) for x in file["sizes"])
                needed = sum(int(np.prod(file[name].shape)) for name in file.files if name.startswith("part_"))
                rule = str(file["rule"])
                filled = N * key_heads * context * (dk + dv) if context else N * H * dk * dv
                if filled > 4 * needed + 64:  # no allocation for sizes that the file does not fill
                    raise ValueError("sizes and parts disagree")
                state = cls(rule, N, H, dk, dv, key_heads=key_heads, context=context, Ip=file["Ip"] if "Ip" in file.files else None)
                parts = {name[5:]: file[name] for name in file.files if name.startswith("part_")}
                state.set_parts(past=file["past"] if state.keeps_tokens else None, **parts)
                return state
        except (AttributeError, EOFError, KeyError, MemoryError, TypeError, ValueError, zipfile.BadZipFile) as why:
            raise ValueError(f"{os.fspath(path)}: not a saved state: {why}") from None

    def __repr__(self) -> str:
        return f"State({self.rule!r}, sequences={self.sequences}, heads={self.heads}, dk={self.dk}, dv={self.dv})"


def _restore(sizes: tuple[Any, ...], options: dict[str, Any], data: np.ndarray, past: np.ndarray) -> State:
    state = State(*sizes, **options)
    state._data[:], state._past[:] = data, past
    return state
