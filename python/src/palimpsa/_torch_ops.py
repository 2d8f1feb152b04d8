# SPDX-License-Identifier: MIT
"""Memory rules as custom operations of torch, palimpsa::memory_forward and palimpsa::memory_backward.

They hand the addresses of tensors to the library, so nothing here is linked with torch. Tensors are [B, T, ...] of one type, float32 or
float64 (the plain reference, compiled for double); palimpsa.torch checks and converts what users give. Parts of memories have the library's
layout, [N, H, dv, dk]; an empty tensor stands for an output that was not asked for.
"""
from typing import Any

import torch
from torch import Tensor

from . import _blocks, _library, memory, state
from .memory import PARAMETERS, ROWS

NAMES = (*ROWS, *PARAMETERS)
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
    return [(sequences, *state.part_shape(rule, part, heads, dk, dv)) for part in range(len(PARTS[rule]))]


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
        for name, x in zip(PARTS[self.rule], parts):
            state.check_part(self.rule, "initial_state ", name, x)
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


# What both operations are given: inputs in the order of NAMES, parts of the initial memory and sequences; then numbers.
_TENSORS = len(NAMES) + 3
_GIVEN = ", ".join(f"Tensor{'' if name in ('q', 'k', 'v') else '?'} {name}" for name in NAMES) + (
    ", Tensor? initial0, Tensor? initial1, Tensor? cu_seqlens, float scale, float mesa_tolerance")


class _Given:
    """What an operation was given, apart."""

    def __init__(self, rule: str, tensors: Any, scale: float, tolerance: float) -> None:
        self.rule, self.scale, self.tolerance = rule, scale, tolerance
        self.named = {name: x for name, x in zip(NAMES, tensors) if name in INPUTS[rule]}
        self.initial0, self.initial1, self.cu = tensors[len(NAMES):_TENSORS]

    def run(self) -> _Run:
        return _Run(self.rule, self.named, self.cu, self.scale, self.tolerance)

    def initial(self) -> list[Tensor]:
        return [x for x in (self.initial0, self.initial1) if x is not None]


@torch.library.custom_op("palimpsa::memory_forward", mutates_args=(), device_types="cpu",
                         schema=f"(str rule, {_GIVEN}, bool variance, bool final, bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
def memory_forward(rule, *arguments):
    """y, its variance, two parts of the final memories, and what backward needs."""
    variance, final, save = arguments[-3:]
    given = _Given(rule, arguments, *arguments[-5:-3])
    run = given.run()
    y = run.new(run.batch, run.length, run.sizes[1], run.sizes[4])
    run.view(run.run.y, y)
    y_var = run.like(y) if variance else run.new(0)
    if variance:
        run.view(run.run.y_var, y_var)
    initial = [x.contiguous() for x in given.initial()]
    if initial or final:
        run.states(initial)
        run.run.fresh = not initial
    saved = run.new(run.saved_size() if save else 0)
    if save:
        run.run.saved = run.native.address(saved)
    run.call(run.native.lib.pal_memory_forward, run.native.lib.PAL_FORWARD)
    parts = run.export() if final else []
    parts += [run.new(0) for _ in range(2 - len(parts))]
    return y, y_var, parts[0], parts[1], saved


@memory_forward.register_fake
def _(rule, *arguments):
    variance, final, save = arguments[-3:]
    given = _Given(rule, arguments, *arguments[-5:-3])
    q, k, v = (given.named[name] for name in ("q", "k", "v"))
    sizes = _sizes(rule, q, k, v, given.cu)
    y = v.new_empty(v.shape[0], v.shape[1], sizes[1], sizes[4])
    y_var = torch.empty_like(y) if variance else v.new_empty(0)
    parts = [v.new_empty(shape) for shape in _part_shapes(rule, sizes)] if final else []
    parts += [v.new_empty(0) for _ in range(2 - len(parts))]
    return y, y_var, parts[0], parts[1], v.new_empty(_saved_size(rule, v, sizes) if save else 0)


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
def memory_backward(rule, dy, dvariance, dfinal0, dfinal1, y, saved, *arguments):
    """Gradients of the inputs that the rule reads, in the order of INPUTS, then of the given parts of initial memories."""
    given = _Given(rule, arguments, *arguments[-2:])
    run = given.run()
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
    for part, x in enumerate((given.initial0, given.initial1)):
        if x is not None:
            made.append(run.like(x))
            grad.initial[part] = native.address(made[-1])
    if given.initial0 is not None:
        run.states([])  # backward only looks whether there were any
    run.run.saved = native.address(saved)
    run.call(native.lib.pal_memory_backward, native.lib.PAL_BACKWARD)
    return made


@memory_backward.register_fake
def _(rule, dy, dvariance, dfinal0, dfinal1, y, saved, *arguments):
    given = _Given(rule, arguments, *arguments[-2:])
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (*given.named.values(), *given.initial())]


def _remember_inputs(ctx, inputs, output):
    rule, *arguments = inputs
    y, _, _, _, saved = output
    ctx.set_materialize_grads(False)  # no zeros for outputs that no one used
    ctx.mark_non_differentiable(saved)
    ctx.rule, ctx.numbers = rule, arguments[-5:-3]
    ctx.save_for_backward(y, saved, *arguments[:_TENSORS])


def _no_second_derivative(ctx, *grads):
    raise NotImplementedError(f"{ctx.rule}: second derivatives are not offered; call backward without create_graph")


def _backward(ctx, dy, dvariance, dfinal0, dfinal1, _):
    y, saved, *tensors = ctx.saved_tensors
    found = [None] * (_TENSORS + 5)  # the numbers and choices have none
    if all(x is None for x in (dy, dvariance, dfinal0, dfinal1)):
        return (None, *found)
    run = _TransformedBackward.apply if is_transforming() else memory_backward
    made = run(ctx.rule, dy, dvariance, dfinal0, dfinal1, y, saved, *tensors, *ctx.numbers)
    at = [NAMES.index(name) for name in INPUTS[ctx.rule]]
    at += [len(NAMES) + part for part in (0, 1) if tensors[len(NAMES) + part] is not None]
    for position, x in zip(at, made):
        found[position] = x
    return (None, *found)


memory_forward.register_autograd(_backward, setup_context=_remember_inputs)


def is_transforming() -> bool:
    """Whether a transform of torch.func is at work."""
    return bool(torch._C._are_functorch_transforms_active())


def _one_by_one(function):
    """A vmap rule that calls the function for each element of the batch."""
    def vmap(info, in_dims, *arguments):
        calls = [[x if dim is None else x.select(dim, i) for x, dim in zip(arguments, in_dims)] for i in range(info.batch_size)]
        made = tuple(torch.stack(parts) for parts in zip(*(function().apply(*call) for call in calls)))
        return made, (0,) * len(made)
    return staticmethod(vmap)


class _Transformed(torch.autograd.Function):
    """The same for torch.func, which does not take the gradients of a custom operation."""
    forward = staticmethod(memory_forward)
    setup_context = staticmethod(_remember_inputs)
    backward = staticmethod(_backward)
    vmap = _one_by_one(lambda: _Transformed)


class _TransformedBackward(torch.autograd.Function):
    vmap = _one_by_one(lambda: _TransformedBackward)

    @staticmethod
    def forward(*arguments):
        return tuple(memory_backward(*arguments))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rule = inputs[0]

    backward = staticmethod(_no_second_derivative)


def run_forward(*arguments: Any) -> Any:
    return (_Transformed.apply if is_transforming() else memory_forward)(*arguments)


memory_backward.register_autograd(_no_second_derivative, setup_context=lambda ctx, inputs, output: setattr(ctx, "rule", inputs[0]))
