# SPDX-License-Identifier: MIT
"""Memory rules as custom operations of torch, palimpsa::memory_forward and palimpsa::memory_backward.

They hand the addresses of tensors to the library, so nothing here is linked with torch. Tensors are [B, T, ...] of one type, float32 or
float64 (the plain reference, compiled for double); palimpsa.torch checks and converts what users give. Parts of memories have the library's
layout, [N, H, dv, dk]; an empty tensor stands for an output that was not asked for.
"""
from typing import Any

import torch
from torch import Tensor

from . import _blocks, _library, memory

ROWS = ("q", "k", "v", "b", "beta", "dt", "g")
PARAMETERS = ("A", "Ip", "lam")
INPUTS = {rule: memory.inputs(rule) for rule in memory.rules()}
PARTS = {rule: memory.part_names(rule) for rule in INPUTS}


class _Native:
    """The library for one type of numbers."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.double = dtype == torch.float64
        if self.double:
            from . import _native64 as module
        else:
            from . import _native as module
        self.ffi, self.lib = module.ffi, module.lib
        self.pointer = self.ffi.typeof("double *" if self.double else "float *")
        self.rules = {rule: self.lib.pal_memory_find(rule.encode()) for rule in INPUTS}
        self._contexts: dict[int, Any] = {}

    def context(self) -> Any:
        """For as many threads as torch uses."""
        threads = torch.get_num_threads()
        if not self.double:
            return _library.context(threads)
        threads = _library.usable_threads(threads)
        if threads not in self._contexts:
            err, out = self.ffi.new("pal_error *"), self.ffi.new("pal_context **")
            self.check(self.lib.pal_context_new(out, threads, self.ffi.NULL, err), err)
            self._contexts[threads] = out[0]
        return self._contexts[threads]

    def check(self, status: int, err: Any) -> None:
        _library.check(status, err, self.ffi)

    def address(self, x: Tensor, floats: int = 0) -> Any:
        return self.ffi.cast(self.pointer, x.data_ptr()) + floats


_natives: dict[torch.dtype, _Native] = {}


def _native(dtype: torch.dtype) -> _Native:
    if dtype not in _natives:
        _natives[dtype] = _Native(dtype)
    return _natives[dtype]


def _row_stride(x: Tensor) -> int:
    """Numbers from one token of [B, T, ...] to the next where they lie evenly with their channels together; 0 where they do not."""
    expected = 1
    for size, stride in zip(x.shape[:1:-1], x.stride()[:1:-1]):
        if size != 1 and stride != expected:
            return 0
        expected *= size
    rows = [(n, s) for n, s in zip(x.shape[:2], x.stride()[:2]) if n != 1]
    if len(rows) == 2 and rows[0][1] != rows[1][0] * rows[1][1]:
        return 0
    stride = rows[-1][1] if rows else expected
    return stride if stride >= expected else 0


def _sizes(rule: str, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None) -> tuple[Any, ...]:
    """Sequences, heads, key heads, dk, dv; symbols while torch.compile traces."""
    sequences = v.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    heads = q.shape[2] if rule == "attention" else v.shape[2]
    return sequences, heads, k.shape[2], k.shape[3], v.shape[3]


def _part_shapes(rule: str, sizes: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    sequences, heads, _, dk, dv = sizes
    return [(sequences, heads, dk if (rule, part) == ("mesa", "H") else dv, dk) for part in PARTS[rule]]


class _Run:
    """A pal_memory_run over tensors, and what keeps its memory alive."""

    def __init__(self, rule: str, given: dict[str, Tensor | None], cu_seqlens: Tensor | None, scale: float, tolerance: float) -> None:
        self.tensors = {name: x for name in INPUTS[rule] if (x := given[name]) is not None}
        q, k, v = (self.tensors[name] for name in ("q", "k", "v"))
        self.native = native = _native(v.dtype)
        ffi = native.ffi
        self.rule, self.found, self.run = rule, native.rules[rule], ffi.new("pal_memory_run *")
        self.batch, self.length = v.shape[:2]
        shape, values = self.run.shape, getattr(self.run, "in")
        self.sizes = _sizes(rule, q, k, v, cu_seqlens)
        shape.sequences, shape.heads, shape.key_heads, shape.dk, shape.dv = self.sizes
        shape.tokens = self.batch * self.length
        bounds = cu_seqlens.tolist() if cu_seqlens is not None else [n * self.length for n in range(self.batch + 1)]
        try:
            self.cu = ffi.new("int[]", bounds)
        except OverflowError:
            raise ValueError(f"{rule}: cu_seqlens must be whole numbers from 0 to the number of tokens, {shape.tokens}") from None
        shape.cu_seqlens = self.cu
        self.hold: list[Any] = []
        for name, x in self.tensors.items():
            if name in PARAMETERS:
                setattr(values, name, native.address(self.keep(x.contiguous())))
                continue
            stride = _row_stride(x)
            if not stride:
                x = x.contiguous()
            self.view(getattr(values, name), x, stride)
        values.scale, values.mesa_tolerance = scale, tolerance

    def keep(self, x: Tensor) -> Tensor:
        self.hold.append(x)
        return x

    def view(self, view: Any, x: Tensor, stride: int = 0) -> None:
        view.data = self.native.address(self.keep(x))
        view.stride = stride or (x[0, 0].numel() if x.numel() else 1)

    def new(self, *shape: int) -> Tensor:
        return _blocks.empty(shape, self.tensors["v"].dtype)

    def like(self, x: Tensor) -> Tensor:
        return self.new(*x.shape)

    def states(self, parts: list[Tensor]) -> Tensor:
        """Memories in the library's layout, from parts if there are some."""
        if self.rule == "palimpsa" and parts and not bool(((parts[1] > 0) & parts[1].isfinite()).all()):
            raise ValueError("palimpsa: initial_state I, the importance, has numbers that are not finite and above 0")
        lib, ffi, native, run = self.native.lib, self.native.ffi, self.native, self.run
        shape, values = ffi.addressof(run, "shape"), ffi.addressof(run, "in")
        row = (lib.pal_memory_state_floats(self.found, shape) + 15) // 16 * 16
        memories = self.keep(self.new(self.sizes[0], row))
        self.pointers = ffi.new("double *[]" if native.double else "float *[]", [native.address(memories, n * row) for n in range(self.sizes[0])])
        run.state = self.pointers
        for n in range(self.sizes[0]) if parts else ():
            lib.pal_memory_import(self.found, shape, values, ([native.address(x[n]) for x in parts] + [ffi.NULL])[:2], self.pointers[n])
        return memories

    def export(self) -> list[Tensor]:
        made = [self.new(*shape) for shape in _part_shapes(self.rule, self.sizes)]
        ffi = self.native.ffi
        for n in range(self.sizes[0]):
            pointers = [self.native.address(x[n]) for x in made]
            self.native.lib.pal_memory_export(self.found, ffi.addressof(self.run, "shape"), ffi.addressof(self.run, "in"),
                                              (pointers + [ffi.NULL])[:2], self.pointers[n])
        return made

    def saved_size(self) -> int:
        return int(self.native.lib.pal_memory_saved_floats(self.found, self.native.ffi.addressof(self.run, "shape")))

    def call(self, function: Any, kind: int) -> None:
        native, run = self.native, self.run
        cx, err = native.context(), native.ffi.new("pal_error *")
        size = native.lib.pal_memory_scratch_bytes(self.found, cx, native.ffi.addressof(run, "shape"), kind)
        scratch = torch.empty(size + 64, dtype=torch.uint8)
        run.scratch = native.ffi.cast("void *", (scratch.data_ptr() + 63) // 64 * 64)
        native.check(function(self.found, cx, run, err), err)


_GIVEN = ("Tensor q, Tensor k, Tensor v, Tensor? b, Tensor? beta, Tensor? dt, Tensor? g, Tensor? A, Tensor? Ip, Tensor? lam, "
          "Tensor? initial0, Tensor? initial1, Tensor? cu_seqlens, float scale, float mesa_tolerance")


@torch.library.custom_op("palimpsa::memory_forward", mutates_args=(), device_types="cpu",
                         schema=f"(str rule, {_GIVEN}, bool variance, bool final, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
def memory_forward(rule, q, k, v, b, beta, dt, g, A, Ip, lam, initial0, initial1, cu_seqlens, scale, mesa_tolerance, variance, final, keep):
    """y, its variance, two parts of the final memories, and what backward needs."""
    run = _Run(rule, dict(q=q, k=k, v=v, b=b, beta=beta, dt=dt, g=g, A=A, Ip=Ip, lam=lam), cu_seqlens, scale, mesa_tolerance)
    y = run.new(run.batch, run.length, run.sizes[1], run.sizes[4])
    run.view(run.run.y, y)
    y_var = run.like(y) if variance else run.new(0)
    if variance:
        run.view(run.run.y_var, y_var)
    initial = [x.contiguous() for x in (initial0, initial1) if x is not None]
    if initial or final:
        run.states(initial)
        run.run.fresh = not initial
    saved = run.new(run.saved_size() if keep else 0)
    if keep:
        run.run.saved = run.native.address(saved)
    run.call(run.native.lib.pal_memory_forward, run.native.lib.PAL_FORWARD)
    parts = run.export() if final else []
    parts += [run.new(0) for _ in range(2 - len(parts))]
    return y, y_var, parts[0], parts[1], saved


@memory_forward.register_fake
def _(rule, q, k, v, b, beta, dt, g, A, Ip, lam, initial0, initial1, cu_seqlens, scale, mesa_tolerance, variance, final, keep):
    sizes = _sizes(rule, q, k, v, cu_seqlens)
    y = v.new_empty(v.shape[0], v.shape[1], sizes[1], sizes[4])
    y_var = torch.empty_like(y) if variance else v.new_empty(0)
    parts = [v.new_empty(shape) for shape in _part_shapes(rule, sizes)] if final else []
    parts += [v.new_empty(0) for _ in range(2 - len(parts))]
    return y, y_var, parts[0], parts[1], v.new_empty(_saved_size(rule, v, sizes) if keep else 0)


def _saved_size(rule: str, v: Tensor, sizes: tuple[Any, ...]) -> Any:
    whole = (v.shape[0] * v.shape[1], *sizes)
    if not all(isinstance(n, int) for n in whole):
        return torch.library.get_ctx().new_dynamic_size()  # any shape of a graph compiled for many
    native = _native(v.dtype)
    shape = native.ffi.new("pal_memory_shape *")
    shape.tokens, shape.sequences, shape.heads, shape.key_heads, shape.dk, shape.dv = whole
    return native.lib.pal_memory_saved_floats(native.rules[rule], shape)


@torch.library.custom_op("palimpsa::memory_backward", mutates_args=(), device_types="cpu",
                         schema=f"(str rule, Tensor? dy, Tensor? dvariance, Tensor? dfinal0, Tensor? dfinal1, Tensor y, Tensor saved, {_GIVEN})"
                                " -> Tensor[]")
def memory_backward(rule, dy, dvariance, dfinal0, dfinal1, y, saved, q, k, v, b, beta, dt, g, A, Ip, lam, initial0, initial1, cu_seqlens, scale,
                    mesa_tolerance):
    """Gradients of the inputs that the rule reads, in the order of INPUTS, then of the given parts of initial memories."""
    run = _Run(rule, dict(q=q, k=k, v=v, b=b, beta=beta, dt=dt, g=g, A=A, Ip=Ip, lam=lam), cu_seqlens, scale, mesa_tolerance)
    native, grad = run.native, run.run.grad
    run.view(run.run.y, y)
    run.view(run.run.dy, torch.zeros_like(y) if dy is None else dy.contiguous())
    if dvariance is not None:
        run.view(run.run.dy_var, dvariance.contiguous())
    for part, x in enumerate((dfinal0, dfinal1)):
        if x is not None:
            run.run.dfinal[part] = native.address(run.keep(x.contiguous()))
    made = []
    for name, x in run.tensors.items():
        if name in PARAMETERS:  # is added to
            made.append(torch.zeros_like(x, memory_format=torch.contiguous_format))
            setattr(grad, name, native.address(made[-1]))
        else:
            made.append(run.like(x))
            run.view(getattr(grad, name), made[-1])
    for part, x in enumerate((initial0, initial1)):
        if x is not None:
            made.append(run.like(x))
            grad.initial[part] = native.address(made[-1])
    if initial0 is not None:
        run.states([])  # backward only looks whether there were any
    run.run.saved = native.address(saved)
    run.call(native.lib.pal_memory_backward, native.lib.PAL_BACKWARD)
    return made


@memory_backward.register_fake
def _(rule, dy, dvariance, dfinal0, dfinal1, y, saved, q, k, v, b, beta, dt, g, A, Ip, lam, initial0, initial1, cu_seqlens, scale, mesa_tolerance):
    given = dict(q=q, k=k, v=v, b=b, beta=beta, dt=dt, g=g, A=A, Ip=Ip, lam=lam)
    like = [given[name] for name in INPUTS[rule]] + [x for x in (initial0, initial1) if x is not None]
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in like]


def _remember_inputs(ctx, inputs, output):
    rule, *tensors, scale, tolerance, _, _, _ = inputs
    y, _, _, _, saved = output
    ctx.set_materialize_grads(False)  # no zeros for outputs that no one used
    ctx.mark_non_differentiable(saved)
    ctx.rule, ctx.scale, ctx.tolerance = rule, scale, tolerance
    ctx.save_for_backward(y, saved, *tensors)


def _backward(ctx, dy, dvariance, dfinal0, dfinal1, _):
    y, saved, *tensors = ctx.saved_tensors
    none = [None] * 18  # q .. cu_seqlens, then scale and four choices
    if all(x is None for x in (dy, dvariance, dfinal0, dfinal1)):
        return (None, *none)
    made = memory_backward(ctx.rule, dy, dvariance, dfinal0, dfinal1, y, saved, *tensors, ctx.scale, ctx.tolerance)
    names = (*ROWS, *PARAMETERS)
    at = [names.index(name) for name in INPUTS[ctx.rule]] + [10 + part for part in (0, 1) if tensors[10 + part] is not None]
    for position, x in zip(at, made):
        none[position] = x
    return (None, *none)


memory_forward.register_autograd(_backward, setup_context=_remember_inputs)


def _no_second_derivative(ctx, *grads):
    raise NotImplementedError(f"{ctx.rule}: second derivatives are not offered; call backward without create_graph")


memory_backward.register_autograd(_no_second_derivative, setup_context=lambda ctx, inputs, output: setattr(ctx, "rule", inputs[0]))
