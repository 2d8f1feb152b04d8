# SPDX-License-Identifier: MIT
"""Memory rules on NumPy arrays.

Arrays are float32: rows of tokens [B, T, ...], or packed [T, ...] with `cu_seqlens`, where sequence n owns tokens
cu_seqlens[n] .. cu_seqlens[n+1]-1. After that: q, k [key_heads, dk], v, b, write [H, dv], gk, p, erase, noisek [H, dk], turn [H, (dk + 1) // 2],
others [H];
parameters A, Ip [H], lam [H, dk], keep and drift [H, dk, dv]. `inputs` names what a rule reads. Attention's q has H heads and its v
key_heads. Views whose channels lie together are read where they are.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ._library import check, context, ffi, lib
from .state import State, aligned, find, part_names, rules

__all__ = ["State", "Tape", "backward", "forward", "has_variance", "inputs", "part_names", "rules", "step", "summary"]

ROWS = ("q", "k", "v", "b", "beta", "dt", "g", "gk", "p", "erase", "write", "gp", "betap", "noise", "noisek", "r", "lag", "turn")
PARAMETERS = ("A", "Ip", "lam", "keep", "drift")
_BITS = {name: getattr(lib, f"PAL_INPUT_{name.upper()}") for name in (*ROWS, *PARAMETERS)}


def input_shapes(rule: str, heads: Any, key_heads: Any, dk: Any, dv: Any) -> dict[str, tuple[Any, ...]]:
    """Of every input: of a parameter whole, of others after the tokens."""
    attends = rule == "attention"
    own, value, element = (heads, dk), (heads, dv), (heads, dk, dv)
    shapes = {"q": own if attends else (key_heads, dk), "k": (key_heads, dk), "v": (key_heads, dv) if attends else value, "b": value,
              "write": value, "gk": own, "p": own, "erase": own, "noisek": own, "turn": (heads, (dk + 1) // 2), "lam": own, "keep": element, "drift": element}
    return {name: shapes.get(name, (heads,)) for name in _BITS}


def check_names(rule: str, wanted: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """What was given of what the rule reads, in that order; None counts as not given."""
    for name in wanted:
        if given.get(name) is None:
            raise TypeError(f"{rule}: {name} is missing")
    for name, x in given.items():
        if x is not None and name not in wanted:
            raise TypeError(f"{rule}: does not read {name}; it reads {', '.join(wanted)}")
    return {name: given[name] for name in wanted}


def inputs(rule: str) -> tuple[str, ...]:
    """Names of the inputs that a rule reads."""
    wanted = lib.pal_memory_inputs_of(find(rule))
    return tuple(name for name, bit in _BITS.items() if wanted & bit)


def has_variance(rule: str) -> bool:
    """Whether the rule knows the variance of what it answers."""
    return bool(lib.pal_memory_has_variance(find(rule)))


def summary(rule: str) -> str:
    return str(ffi.string(lib.pal_memory_summary(find(rule))).decode())


def _float32(rule: str, name: str, x: Any) -> np.ndarray:
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        found = f"{x.dtype} array" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"{rule}: {name} is a {found}; expected a float32 array")
    return x


def _row_stride(x: np.ndarray, lead: int) -> int:
    """Floats from one token to the next where rows lie evenly with their channels together; 0 where they do not."""
    if not x.flags.aligned:
        return 0
    expected = 4
    for size, stride in zip(x.shape[:lead - 1:-1], x.strides[:lead - 1:-1]):
        if size != 1 and stride != expected:
            return 0
        expected *= size
    rows = [(n, s) for n, s in zip(x.shape[:lead], x.strides[:lead]) if n != 1]
    if not rows:
        return expected // 4
    if len(rows) == 2 and rows[0][1] != rows[1][0] * rows[1][1]:
        return 0
    stride = rows[-1][1]
    return stride // 4 if stride >= expected and stride % 4 == 0 else 0


class _Inputs:
    """Checked inputs of one call: shapes, views, and what keeps them alive."""

    def __init__(self, rule: str, given: dict[str, Any], lead: int) -> None:
        self.rule, self.found = rule, find(rule)
        arrays = {name: _float32(rule, name, x) for name, x in check_names(rule, inputs(rule), given).items()}
        attends = bool(lib.pal_memory_keeps_tokens(self.found))
        wide = arrays["q" if attends else "v"]
        if wide.ndim != lead + 2 or arrays["k"].ndim != lead + 2:
            raise ValueError(f"{rule}: q, k and v have {arrays['q'].ndim}, {arrays['k'].ndim} and {arrays['v'].ndim} dimensions; "
                             f"expected {lead + 2} each")
        self.lead = wide.shape[:lead]
        self.heads, self.key_heads = wide.shape[lead], arrays["k"].shape[lead]
        self.dk, self.dv = arrays["k"].shape[-1], arrays["v"].shape[-1]
        self.tails = input_shapes(rule, self.heads, self.key_heads, self.dk, self.dv)
        self.arrays, self.strides = {}, {}
        for name, x in arrays.items():
            expected = self.tails[name] if name in PARAMETERS else (*self.lead, *self.tails[name])
            if x.shape != expected:
                raise ValueError(f"{rule}: {name} is {list(x.shape)}; expected {list(expected)}")
            if name in PARAMETERS:
                self.arrays[name] = np.require(x, None, "CA")
                continue
            stride = _row_stride(x, lead)
            self.arrays[name] = x if stride else np.require(x, None, "CA")
            self.strides[name] = stride or int(np.prod(self.tails[name]))

    def put(self, target: Any) -> list[Any]:
        hold = []
        for name, x in self.arrays.items():
            pointer = ffi.cast("float *", x.ctypes.data)
            hold.append(x)
            if name in self.strides:
                view = getattr(target, name)
                view.data, view.stride = pointer, self.strides[name]
            else:
                setattr(target, name, pointer)
        return hold


def _sequences(rule: str, lead: tuple[int, ...], cu_seqlens: Any) -> np.ndarray:
    if cu_seqlens is None:
        batch, length = lead
        return np.arange(batch + 1, dtype=np.int32) * np.int32(length)
    cu = np.asarray(cu_seqlens)
    if cu.ndim != 1 or cu.size < 2 or cu.dtype.kind not in "iu" or ((cu < 0) | (cu > 2**31 - 1)).any():
        raise ValueError(f"{rule}: cu_seqlens must be whole numbers from 0 to the number of tokens, at least two")
    return np.ascontiguousarray(cu, np.int32)


def _view(target: Any, x: np.ndarray | None, lead: int) -> None:
    if x is not None:
        target.data, target.stride = ffi.cast("float *", x.ctypes.data), int(np.prod(x.shape[lead:]))


class Tape:
    """What backward needs of one forward; made by forward(..., return_tape=True) and used any number of times."""

    def __init__(self) -> None:
        self.given: _Inputs
        self.cu: np.ndarray
        self.y: np.ndarray
        self.saved: np.ndarray
        self.past: np.ndarray  # attention: tokens in the given state
        self.state: State | None = None  # of a run that began from a given one; its own copy
        self.scale, self.tolerance, self.variance = 1.0, 0.0, False


def _run(tape: Tape) -> tuple[Any, list[Any]]:
    given, run = tape.given, ffi.new("pal_memory_run *")
    shape, values = run.shape, getattr(run, "in")
    hold = given.put(values)
    shape.sequences, shape.tokens = len(tape.cu) - 1, int(np.prod(given.lead))
    shape.heads, shape.key_heads, shape.dk, shape.dv = given.heads, given.key_heads, given.dk, given.dv
    shape.cu_seqlens = ffi.cast("int *", tape.cu.ctypes.data)
    values.scale, values.mesa_tolerance = tape.scale, tape.tolerance
    _view(run.y, tape.y, len(given.lead))
    if tape.state is not None:
        run.state, shape.context = tape.state._pointers, tape.state.context
        run.past = ffi.cast("int *", tape.past.ctypes.data)
    return run, hold


def _scratch(given: _Inputs, cx: Any, run: Any, kind: int) -> np.ndarray:
    size = lib.pal_memory_scratch_bytes(given.found, cx, ffi.addressof(run, "shape"), kind)
    scratch = aligned((size // 4 + 16,))
    run.scratch = ffi.cast("void *", scratch.ctypes.data)
    return scratch


def _scale(rule: str, scale: float | None, dk: int) -> float:
    if scale is None:
        return float(dk) ** -0.5 if dk else 1.0  # keys without channels are refused later
    if isinstance(scale, (str, bytes)):
        raise TypeError(f"{rule}: scale is {scale!r}; expected a number")
    return float(scale)


def _own_state(given: _Inputs, sequences: int, longest: int, initial: State | None) -> State:
    """The state that a forward works in: a copy of the given one, with room for more tokens where its memory grows."""
    rule = given.rule
    if initial is not None and not isinstance(initial, State):
        raise TypeError(f"{rule}: initial_state is a {type(initial).__name__}; expected a palimpsa.memory.State")
    if initial is None:
        return State(rule, sequences, given.heads, given.dk, given.dv, key_heads=given.key_heads, context=longest,
                     Ip=given.arrays.get("Ip"))
    found = (initial.rule, initial.sequences, initial.heads, initial.key_heads, initial.dk, initial.dv)
    expected = (rule, sequences, given.heads, given.key_heads, given.dk, given.dv)
    if found != expected:
        raise ValueError(f"{rule}: the state is of rule, sequences, heads, key heads, dk, dv {found}; expected {expected}")
    return initial.copy()


def forward(rule: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, *, scale: float | None = None, initial_state: State | None = None,
            cu_seqlens: Any = None, output_final_state: bool = False, return_variance: bool = False, return_tape: bool = False,
            mesa_tolerance: float = 0.0, threads: int | None = None, **gates: Any) -> Any:
    """Outputs y of a batch of sequences, [.., H, dv]; or a tuple (y, variance, final state, tape) of those that were asked for.

    gates: what else inputs(rule) names. scale multiplies the query (None: dk ** -0.5). initial_state is read and stays as it is; without
    one every sequence starts with the default memory. return_variance: of each output, where the rule has
    one. return_tape: a Tape for backward.
    """
    tape = Tape()
    given = tape.given = _Inputs(rule, dict(q=q, k=k, v=v, **gates), 2 if cu_seqlens is None else 1)
    tape.cu = _sequences(rule, given.lead, cu_seqlens)
    tape.scale, tape.tolerance, tape.variance = _scale(rule, scale, given.dk), float(mesa_tolerance), bool(return_variance)
    tape.y = np.empty((*given.lead, given.heads, given.dv), np.float32)
    lengths = np.diff(tape.cu)
    state = None
    if initial_state is not None or output_final_state:
        if not lengths.size:
            raise ValueError(f"{rule}: there is no sequence; expected at least one")
        if (lengths < 1).any():
            raise ValueError(f"{rule}: cu_seqlens must increase")
        state = _own_state(given, len(lengths), int(lengths.max()), initial_state)
    run, hold = _run(tape)
    if state is not None:
        run.state, run.shape.context, run.fresh = state._pointers, state.context, initial_state is None
        run.past = state._past_pointer
    variance = np.empty_like(tape.y) if return_variance else None
    _view(run.y_var, variance, len(given.lead))
    if return_tape:
        tape.saved = aligned((lib.pal_memory_saved_floats(given.found, ffi.addressof(run, "shape")) + 16,))
        run.saved = ffi.cast("float *", tape.saved.ctypes.data)
    cx, err = context(threads), ffi.new("pal_error *")
    hold.append(_scratch(given, cx, run, lib.PAL_FORWARD))
    check(lib.pal_memory_forward(given.found, cx, run, err), err)
    if state is not None and state.keeps_tokens:
        state._past += lengths.astype(np.int32)
    if return_tape and initial_state is not None:
        tape.past = initial_state.past
        tape.state = state.copy() if output_final_state and state is not None else state
    made = [tape.y.copy() if return_tape else tape.y]
    made += [variance] if return_variance else []
    made += [state] if output_final_state else []
    made += [tape] if return_tape else []
    return made[0] if len(made) == 1 else tuple(made)


def backward(tape: Tape, dy: np.ndarray, *, dvariance: np.ndarray | None = None, dfinal: dict[str, np.ndarray] | None = None,
             threads: int | None = None) -> dict[str, np.ndarray]:
    """Gradients of every input that the rule reads, by name, and of the parts of a given initial state as "initial.NAME".

    dfinal: gradients of parts of the final state, by name, [N, ...] as State.parts has them.
    """
    if not isinstance(tape, Tape) or not hasattr(tape, "saved"):
        raise TypeError("backward expects the tape of forward(..., return_tape=True)")
    given = tape.given
    rule, lead = given.rule, len(given.lead)
    run, hold = _run(tape)
    upstream = {"dy": dy, "dvariance": dvariance} if dvariance is not None else {"dy": dy}
    for name, x in upstream.items():
        if _float32(rule, name, x).shape != tape.y.shape:
            raise ValueError(f"{rule}: {name} is {list(x.shape)}; expected {list(tape.y.shape)}")
        x = np.require(x, None, "CA")
        hold.append(x)
        _view(run.dy if name == "dy" else run.dy_var, x, lead)
    sequences = len(tape.cu) - 1
    like = tape.state or State(rule, sequences, given.heads, given.dk, given.dv, key_heads=given.key_heads, context=1, Ip=given.arrays.get("Ip"))
    for name, x in (dfinal or {}).items():
        if name not in like.part_names:
            raise ValueError(f"{rule}: has no part {name}; expected {', '.join(like.part_names)}")
        part = like.part_names.index(name)
        expected = (sequences, *like._part_shape(part))
        if _float32(rule, f"dfinal {name}", x).shape != expected:
            raise ValueError(f"{rule}: dfinal {name} is {list(x.shape)}; expected {list(expected)}")
        x = np.require(x, None, "CA")
        hold.append(x)
        run.dfinal[part] = ffi.cast("float *", x.ctypes.data)
    grads: dict[str, np.ndarray] = {}
    for name, x in given.arrays.items():
        made = grads[name] = np.zeros(x.shape, np.float32)
        if name in PARAMETERS:
            setattr(run.grad, name, ffi.cast("float *", made.ctypes.data))
        else:
            _view(getattr(run.grad, name), made, lead)
    if tape.state is not None and not like.keeps_tokens:
        for part, name in enumerate(like.part_names):
            made = grads[f"initial.{name}"] = np.zeros((sequences, *like._part_shape(part)), np.float32)
            run.grad.initial[part] = ffi.cast("float *", made.ctypes.data)
    run.saved = ffi.cast("float *", tape.saved.ctypes.data)
    cx, err = context(threads), ffi.new("pal_error *")
    hold.append(_scratch(given, cx, run, lib.PAL_BACKWARD))
    check(lib.pal_memory_backward(given.found, cx, run, err), err)
    return grads


class _Stepping:
    """What a state keeps between steps: the run, filled once, and its scratch memory."""

    def __init__(self, state: State, cx: Any) -> None:
        self.cx, self.err, self.run = cx, ffi.new("pal_error *"), ffi.new("pal_memory_run *")
        self.run.shape = state._shape[0]
        self.run.state, self.run.past = state._pointers, state._past_pointer
        self.values = getattr(self.run, "in")
        N, H, dv = state.sequences, state.heads, state.dv
        shapes = input_shapes(state.rule, H, state.key_heads, state.dk, dv)
        self.names = inputs(state.rule)
        self.fields: list[tuple[str, Any, Any]] = []  # of every input: its name, its shape, its view (None: a parameter)
        for name in self.names:
            view = None if name in PARAMETERS else getattr(self.values, name)
            if view is not None:
                view.stride = int(np.prod(shapes[name]))
            self.fields.append((name, shapes[name] if view is None else (N, *shapes[name]), view))
        self.y_shape, self.y_size = (N, H, dv), N * H * dv
        self.y, self.y_var = self.run.y, self.run.y_var
        self.y.stride = self.y_var.stride = H * dv
        size = lib.pal_memory_scratch_bytes(state._rule, cx, ffi.addressof(self.run, "shape"), lib.PAL_STEP)
        self.scratch = aligned((size // 4 + 16,))
        self.run.scratch = ffi.cast("void *", self.scratch.ctypes.data)


_FLOAT32, _FLOATS = np.dtype(np.float32), ffi.typeof("float[]")
_LIES_WELL = 0x101  # flags of arrays that are contiguous and aligned


def _output(state: State, kept: _Stepping, name: str, x: np.ndarray, hold: list[Any]) -> Any:
    if _float32(state.rule, name, x).shape != kept.y_shape or not x.flags.carray:
        raise ValueError(f"{state.rule}: {name} must be a writable, aligned, contiguous array {list(kept.y_shape)}")
    pointer = ffi.from_buffer(_FLOATS, x)
    end = pointer + kept.y_size
    for other in hold:  # they are read while this one is written
        if other < end and pointer < other + len(other):
            raise ValueError(f"{state.rule}: {name} overlaps with another array; expected memory of its own")
    hold.append(pointer)
    return pointer


def step(state: State, q: np.ndarray, k: np.ndarray, v: np.ndarray, *, scale: float | None = None, out: np.ndarray | None = None,
         variance: np.ndarray | None = None, mesa_tolerance: float = 0.0, threads: int | None = None, **gates: Any) -> np.ndarray:
    """One more token for each sequence of a state, which is changed: rows [N, ...] of the inputs give y [N, H, dv], in `out` if given.

    gates: what else the rule reads, by name. variance: an array [N, H, dv] to be filled. A state is stepped by one thread at a time.
    """
    if not isinstance(state, State):
        raise TypeError(f"step expects a palimpsa.memory.State; found a {type(state).__name__}")
    cx = context(threads)
    kept = state._stepping
    if kept is None or kept.cx != cx:
        kept = state._stepping = _Stepping(state, cx)
    hold: list[Any] = []
    gates["q"], gates["k"], gates["v"] = q, k, v
    if len(gates) != len(kept.fields):
        gates = check_names(state.rule, kept.names, gates)
    for name, shape, view in kept.fields:
        x = gates.get(name)
        if x is None:
            raise TypeError(f"{state.rule}: {name} is missing")
        if type(x) is not np.ndarray or x.dtype is not _FLOAT32:
            _float32(state.rule, name, x)
        if x.shape != shape:
            raise ValueError(f"{state.rule}: {name} is {list(x.shape)}; expected {list(shape)}")
        if x.flags.num & _LIES_WELL != _LIES_WELL:
            x = np.require(x, None, "CA")
        pointer = ffi.from_buffer(_FLOATS, x)
        hold.append(pointer)
        if view is None:
            setattr(kept.values, name, pointer)
        else:
            view.data = pointer
    y = np.empty(kept.y_shape, np.float32) if out is None else out
    kept.y.data = _output(state, kept, "out", y, hold)
    kept.y_var.data = ffi.NULL if variance is None else _output(state, kept, "variance", variance, hold)
    kept.values.scale, kept.values.mesa_tolerance = _scale(state.rule, scale, state.dk), mesa_tolerance
    check(lib.pal_memory_step(state._rule, cx, kept.run, kept.err), kept.err)
    if state.keeps_tokens:
        state._past += 1
    return y
