# SPDX-License-Identifier: MIT
"""The functions of palimpsa.torch: what users give is checked here, and handed to the operations."""
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from . import memory as _memory
from ._torch_ops import INPUTS, NAMES, PARAMETERS, PARTS, is_transforming, run_forward
from .memory import State, check_names, input_shapes
from .state import part_shape

Memory = Union[Tensor, tuple[Tensor, Tensor]]
_HALF = (torch.bfloat16, torch.float16)


def _check_tensor(rule: str, name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{rule}: {name} is a {type(x).__name__}; expected a tensor")
    if x.device.type != "cpu":
        raise ValueError(f"{rule}: {name} is on device {x.device}; expected cpu")
    if x.layout != torch.strided:
        raise TypeError(f"{rule}: {name} is {x.layout}; expected a dense tensor")
    if x.dtype not in (torch.float32, torch.float64, *_HALF):
        raise TypeError(f"{rule}: {name} is {x.dtype}; expected float32, float64, bfloat16 or float16")


def _check_shape(rule: str, name: str, x: Tensor, expected: tuple[int, ...]) -> None:
    if x.shape != expected:
        raise ValueError(f"{rule}: {name} is {list(x.shape)}; expected {list(expected)}")


def _check_inputs(rule: str, given: dict[str, Any]) -> dict[str, Tensor]:
    if rule not in INPUTS:
        raise ValueError(f"there is no memory rule {rule!r}; expected one of {', '.join(INPUTS)}")
    tensors = check_names(rule, INPUTS[rule], given)
    for name, x in tensors.items():
        _check_tensor(rule, name, x)
        if name in ("q", "k", "v") and x.ndim != 4:
            raise ValueError(f"{rule}: {name} has {x.ndim} dimensions; expected [B, T, H, D]")
    k, v = tensors["k"], tensors["v"]
    B, T, H = v.shape[0], v.shape[1], tensors["q" if rule == "attention" else "v"].shape[2]
    shapes = input_shapes(rule, H, k.shape[2], k.shape[3], v.shape[3])
    for name, x in tensors.items():
        _check_shape(rule, name, x, shapes[name] if name in PARAMETERS else (B, T, *shapes[name]))
    return tensors


def check_bounds(rule: str, v: Tensor, cu_seqlens: Any) -> int:
    if cu_seqlens is None:
        return v.shape[0]
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.ndim != 1 or cu_seqlens.shape[0] < 2:
        raise ValueError(f"{rule}: cu_seqlens must be a tensor of int32 or int64, from 0 to the number of tokens, with at least two numbers")
    if cu_seqlens.device.type != "cpu":
        raise ValueError(f"{rule}: cu_seqlens is on device {cu_seqlens.device}; expected cpu")
    if v.shape[0] != 1:
        raise ValueError(f"{rule}: with cu_seqlens, B is {v.shape[0]}; expected 1")
    return cu_seqlens.shape[0] - 1


def _number(rule: str, name: str, x: Any) -> float:
    if isinstance(x, Tensor) and x.requires_grad:
        raise TypeError(f"{rule}: {name} requires a gradient, and there is none for it")
    if not isinstance(x, (int, float, np.number)):
        raise TypeError(f"{rule}: {name} is a {type(x).__name__}; expected a number")
    return float(x)


def swap(rule: str, part: str, x: Tensor) -> Tensor:
    """Between [N, H, K, V] and the library's layout; mesa's H is square and stays, as vectors and numbers do."""
    return x.transpose(-1, -2) if part_shape(rule, PARTS[rule].index(part), 0, 1, 2) == (0, 2, 1) else x


def _check_state(rule: str, state: Any, N: int, tensors: dict[str, Tensor]) -> list[Tensor]:
    names, v = PARTS[rule], tensors["v"]
    if rule == "attention":
        raise ValueError("attention: its memory are the keys and values themselves; there is no initial_state to give")
    parts = [state] if isinstance(state, Tensor) else list(state) if isinstance(state, (tuple, list)) else []
    if len(parts) != len(names):
        raise TypeError(f"{rule}: initial_state must be {'a tensor' if len(names) == 1 else 'a pair of tensors'}: {', '.join(names)}")
    H, V, K = v.shape[2], v.shape[3], tensors["k"].shape[3]
    for part, (name, x) in enumerate(zip(names, parts)):
        shape = part_shape(rule, part, H, K, V)
        _check_tensor(rule, f"initial_state {name}", x)
        _check_shape(rule, f"initial_state {name}", x, (N, H, K, V) if shape == (H, V, K) else (N, *shape))
    return [swap(rule, name, x) for name, x in zip(names, parts)]


def memory(rule: str, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, initial_state: Memory | None = None,
           output_final_state: bool = False, cu_seqlens: Tensor | None = None, return_variance: bool = False, mesa_tolerance: float = 0.0,
           **gates: Tensor | None) -> Any:
    """One of the rules, by name; gates are what else palimpsa.memory.inputs(rule) names. `scale` multiplies the query; K ** -0.5 by default."""
    tensors = _check_inputs(rule, dict(q=q, k=k, v=v, **gates))
    N = check_bounds(rule, v, cu_seqlens)
    parts = _check_state(rule, initial_state, N, tensors) if initial_state is not None else []
    if output_final_state and rule == "attention":
        raise ValueError("attention: its memory are the keys and values themselves; there is no final state to return")
    scale = k.shape[3] ** -0.5 if scale is None else _number(rule, "scale", scale)
    mesa_tolerance = _number(rule, "mesa_tolerance", mesa_tolerance)
    every = [*tensors.values(), *parts]
    if not torch.compiler.is_compiling() and any(unpack_dual(x).tangent is not None for x in every):
        raise NotImplementedError(f"{rule}: forward-mode derivatives are not offered; use backward")  # they would come out as zeros
    double = [x.dtype == torch.float64 for x in every]
    if any(double) and not all(double):
        raise TypeError(f"{rule}: some tensors are float64 and some are not; expected all or none")
    if not all(double):
        tensors = {name: x.float() for name, x in tensors.items()}
        parts = [x.float() for x in parts]
    save = torch.is_grad_enabled() and (any(x.requires_grad for x in every) or (not torch.compiler.is_compiling() and is_transforming()))
    given = [tensors.get(name) for name in NAMES]
    given += [parts[part] if part < len(parts) else None for part in (0, 1)]
    y, variance, final0, final1, _ = run_forward(rule, *given, cu_seqlens, scale, mesa_tolerance, bool(return_variance), bool(output_final_state), save)
    made = [y.to(v.dtype)]
    if return_variance:
        made.append(variance.to(v.dtype))
    if output_final_state:
        final = tuple(swap(rule, name, x) for name, x in zip(PARTS[rule], (final0, final1)))
        made.append(final if len(final) == 2 else final[0])
    return made[0] if len(made) == 1 else tuple(made)


def palimpsa(q: Tensor, k: Tensor, v: Tensor, b: Tensor, dt: Tensor, A: Tensor, Ip: Tensor, scale: float | None = None,
             initial_state: tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None,
             return_variance: bool = False) -> Any:
    """Memory with importance: v is the gated value, b >= 0 the importance it earns, dt >= 0 the time step, A >= 0 the forgetting rate and
    Ip > 0 the prior importance of a head. A state is (mu, I)."""
    return memory("palimpsa", q, k, v, b=b, dt=dt, A=A, Ip=Ip, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens, return_variance=return_variance)


def gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
        output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Simple gated linear attention, as in Mamba2; g <= 0 is the logarithm of the decay."""
    return memory("gla", q, k, v, g=g, scale=scale, initial_state=initial_state, output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def longhorn(q: Tensor, k: Tensor, v: Tensor, b: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
             output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Longhorn; b [B, T, H, V] is its step."""
    return memory("longhorn", q, k, v, b=b, scale=scale, initial_state=initial_state, output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
          output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """DeltaNet."""
    return memory("delta", q, k, v, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def gdn(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
        output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Gated DeltaNet."""
    return memory("gdn", q, k, v, g=g, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def gdn_app(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
            output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Gated DeltaNet whose error is measured before forgetting."""
    return memory("gdn_app", q, k, v, g=g, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def mesa(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, lam: Tensor, scale: float | None = None,
         initial_state: tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None,
         mesa_tolerance: float = 0.0) -> Any:
    """Mesa; lam > 0 is the prior precision. mesa_tolerance > 0 solves by conjugate gradient to this residual. A state is (H, G)."""
    return memory("mesa", q, k, v, g=g, beta=beta, lam=lam, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens, mesa_tolerance=mesa_tolerance)


def comba(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, p: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
          output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Comba: what is compared lies under p [B, T, H, K], before the memory decays."""
    return memory("comba", q, k, v, g=g, beta=beta, p=p, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def kda(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
        output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Kimi Delta Attention; gk <= 0 [B, T, H, K] is the logarithm of the decay of each key channel."""
    return memory("kda", q, k, v, gk=gk, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def gdn2(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, erase: Tensor, write: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
         output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Gated DeltaNet 2: erase [B, T, H, K] gates the key that is compared, write [B, T, H, V] the value."""
    return memory("gdn2", q, k, v, gk=gk, erase=erase, write=write, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def rwkv7(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, p: Tensor, erase: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
          output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """RWKV-7: what lies under p is taken away under erase, both [B, T, H, K]."""
    return memory("rwkv7", q, k, v, gk=gk, p=p, erase=erase, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens)


def pkda(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, beta: Tensor, gp: Tensor, betap: Tensor, scale: float | None = None, initial_state:
         tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Preconditioned KDA; gp <= 0 and betap >= 0 are the preconditioner's decay and step. A state is (S, A)."""
    return memory("pkda", q, k, v, gk=gk, beta=beta, gp=gp, betap=betap, scale=scale, initial_state=initial_state,
                  output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def kdn(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, noisek: Tensor, r: Tensor, Ip: Tensor, scale: float | None = None, initial_state: tuple[Tensor,
        Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None, return_variance: bool = False) -> Any:
    """Kalman Delta Network, a variance per key channel: noisek >= 0 [B, T, H, K] is added to it, r > 0 is the value's. A state is (S, var)."""
    return memory("kdn", q, k, v, gk=gk, noisek=noisek, r=r, Ip=Ip, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                  cu_seqlens=cu_seqlens, return_variance=return_variance)


def kdn_iso(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, noise: Tensor, r: Tensor, Ip: Tensor, scale: float | None = None, initial_state:
            tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None, return_variance: bool = False) -> Any:
    """Kalman Delta Network with one variance, to which noise >= 0 is added. A state is (S, var)."""
    return memory("kdn_iso", q, k, v, gk=gk, noise=noise, r=r, Ip=Ip, scale=scale, initial_state=initial_state,
                  output_final_state=output_final_state, cu_seqlens=cu_seqlens, return_variance=return_variance)


def kla(q: Tensor, k: Tensor, v: Tensor, b: Tensor, Ip: Tensor, keep: Tensor, drift: Tensor, scale: float | None = None, initial_state:
        tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None, return_variance: bool = False) -> Any:
    """Kalman Linear Attention: b >= 0 is the precision of a value; keep > 0 and drift >= 0 [H, K, V]. A state is (mu, I)."""
    return memory("kla", q, k, v, b=b, Ip=Ip, keep=keep, drift=drift, scale=scale, initial_state=initial_state,
                  output_final_state=output_final_state, cu_seqlens=cu_seqlens, return_variance=return_variance)


def mamba3(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, lag: Tensor, turn: Tensor, scale: float | None = None, initial_state:
           tuple[Tensor, Tensor] | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    """Mamba-3: beta is the factor of what a token writes, lag that of the token before, which is written once more, and turn [B, T, H,
    (K + 1) // 2] the angle of each pair of key channels. A state is (S, last): the last key and value lie side by side."""
    return memory("mamba3", q, k, v, g=g, beta=beta, lag=lag, turn=turn, scale=scale, initial_state=initial_state,
                  output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
    """Causal softmax attention; keys and values may have fewer heads than queries."""
    return memory("attention", q, k, v, scale=scale, cu_seqlens=cu_seqlens)


def step(state: State, q: Tensor, k: Tensor, v: Tensor, **inputs: Any) -> Tensor:
    """palimpsa.memory.step on float32 tensors: one more token for each sequence of a state, in place and without gradients."""
    names = dict(q=q, k=k, v=v, **inputs)
    for name, x in names.items():
        if isinstance(x, Tensor):
            _check_tensor(state.rule, name, x)
            if x.requires_grad and torch.is_grad_enabled():
                raise TypeError(f"{state.rule}: {name} requires a gradient, and a step has none; use torch.no_grad()")
    given = {name: x.detach().numpy() if isinstance(x, Tensor) and x.dtype not in _HALF else x for name, x in names.items()}
    return torch.from_numpy(_memory.step(state, threads=torch.get_num_threads(), **given))
