# SPDX-License-Identifier: MIT
"""The operations of flash-linear-attention on CPU, by its names: `import palimpsa.torch.fla as ops` in place of `import fla.ops as ops`.

Names, order of arguments, layouts and what comes back are those of fla-core 0.6: q, k [B, T, H, K], v [B, T, HV, V], states [N, HV, K, V] (with
state_v_first [N, HV, V, K]), and (o, state), where the state is None unless it was asked for. `chunk_*`, `fused_chunk_*`, `fused_recurrent_*`
and `parallel_*` of a rule compute the same here. What only says how their kernels compute (chunk_size, cu_seqlens_cpu, safe_gate, ...) is
accepted and changes nothing; what would change the result and is not offered raises NotImplementedError. `names()` lists what there is.
"""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..torch_functions import memory

# Options of their kernels that do not change what is computed.
_HOW = {"cu_seqlens_cpu", "chunk_size", "chunk_indices", "safe_gate", "disable_recompute", "solve_tril_precision", "autotune_interval",
        "max_CG_iteration"}
# Options that are refused unless they have this value.
_ONLY = {"gv": None, "cp_context": None, "return_intermediate_states": False, "output_attentions": False, "window_size": None, "sink_bias": None,
         "x": 1.5, "eps": 1e-6, "log_atk_scale": None}


def _refuse(name: str, options: dict[str, Any]) -> None:
    for option, value in options.items():
        if option in _HOW or (option in _ONLY and value is _ONLY[option]) or (option in ("x", "eps") and value == _ONLY[option]):
            continue
        if option in _ONLY:
            found = "a tensor" if isinstance(value, Tensor) else repr(value)
            raise NotImplementedError(f"{name}: {option} is {found}; here it can only be {_ONLY[option]!r}")
        raise TypeError(f"{name}: there is no argument {option}")


def _norm(x: Tensor) -> Tensor:
    """Their l2norm: the small number is under the root."""
    return (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype) if x.dtype != torch.float64 else (
        x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _gate(g: Tensor, A_log: Tensor | None, dt_bias: Tensor | None, lower_bound: float | None, name: str) -> Tensor:
    """The logarithm of the decay from what enters the gate, with a number or a row of numbers for each head."""
    if A_log is None:
        raise TypeError(f"{name}: use_gate_in_kernel needs A_log")
    g, rate = _wide(g), _wide(A_log).exp().reshape(-1, *(1,) * (g.ndim - 3))
    if dt_bias is not None:
        g = g + _wide(dt_bias).reshape(g.shape[2:])
    return -rate * F.softplus(g) if lower_bound is None else lower_bound * torch.sigmoid(rate * g)


def _beta(beta: Tensor, sigmoid: bool, negative: bool) -> Tensor:
    return _wide(beta).sigmoid() * (2 if negative else 1) if sigmoid else beta


def _turn(state: Any, v_first: bool) -> Any:
    return state.transpose(-1, -2) if v_first and state is not None else state


def _run(rule: str, q: Tensor, k: Tensor, v: Tensor, scale: float | None, initial_state: Any, output_final_state: bool, cu_seqlens: Tensor | None,
         v_first: bool = False, reverse: bool = False, **gates: Any) -> tuple[Tensor, Any]:
    """o, and the state or None. Reversed: from the last token to the first."""
    if reverse:
        if cu_seqlens is not None:
            raise NotImplementedError(f"{rule}: reverse is not offered together with cu_seqlens")
        q, k, v = (x.flip(1) for x in (q, k, v))
        gates = {name: x.flip(1) for name, x in gates.items()}
    start = initial_state if isinstance(initial_state, tuple) else _turn(initial_state, v_first)
    made = memory(rule, q, k, v, scale=scale, initial_state=start, output_final_state=output_final_state, cu_seqlens=cu_seqlens, **gates)
    o, state = made if output_final_state else (made, None)
    return o.flip(1) if reverse else o, state if isinstance(state, tuple) else _turn(state, v_first)


def _no_decay(v: Tensor, *shape: int) -> Tensor:
    return torch.zeros(*v.shape[:2], *shape, dtype=_wide(v).dtype)


# Simple gated linear attention and what is made of it.

def chunk_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, g_gamma: Tensor | None = None, scale: float | None = None,
                     initial_state: Tensor | None = None, output_final_state: bool = False, state_v_first: bool = False,
                     cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, reverse: bool = False, **kwargs: Any) -> Any:
    _refuse("chunk_simple_gla", kwargs)
    if g is not None and g_gamma is not None:
        raise TypeError("chunk_simple_gla: expected one of g and g_gamma, found both")
    if g is None:
        g = _no_decay(v, v.shape[2]) if g_gamma is None else _wide(g_gamma).expand(*v.shape[:2], -1)
    return _run("gla", q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first, reverse, g=g)


def fused_chunk_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, g_gamma: Tensor | None = None, scale: float | None = None,
                           initial_state: Tensor | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None) -> Any:
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, False, cu_seqlens)


def fused_recurrent_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, g_gamma: Tensor | None = None, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False, reverse: bool = False,
                               state_v_first: bool = False, cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens, reverse=reverse, **kwargs)


def parallel_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, scale: float | None = None, output_attentions: bool = False,
                        cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_simple_gla(q, k, v, g, None, scale, cu_seqlens=cu_seqlens, output_attentions=output_attentions, **kwargs)


def chunk_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                    output_final_state: bool = False, cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    rates = torch.log1p(-(2.0 ** (-5.0 - torch.arange(q.shape[2], dtype=_wide(q).dtype))))
    return chunk_simple_gla(q, k, v, None, rates, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens, **kwargs)


def fused_recurrent_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                              output_final_state: bool = False, reverse: bool = False, state_v_first: bool = False,
                              cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_retention(q, k, v, scale, initial_state, output_final_state, cu_seqlens, reverse=reverse, state_v_first=state_v_first, **kwargs)


fused_chunk_retention = chunk_retention


def parallel_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, output_attentions: bool = False,
                       cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_retention(q, k, v, scale, cu_seqlens=cu_seqlens, output_attentions=output_attentions, **kwargs)


def chunk_lightning_attn(q: Tensor, k: Tensor, v: Tensor, layer_idx: int, num_layers: int, scale: float | None = None,
                         initial_state: Tensor | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None,
                         **kwargs: Any) -> Any:
    H = q.shape[2]
    rates = -(8 / H * (1 - layer_idx / num_layers)) * torch.arange(H, dtype=_wide(q).dtype)
    return chunk_simple_gla(q, k, v, None, rates, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens, **kwargs)


def fused_recurrent_lightning_attn(q: Tensor, k: Tensor, v: Tensor, layer_idx: int, num_layers: int, scale: float | None = None,
                                   initial_state: Tensor | None = None, output_final_state: bool = False, reverse: bool = False,
                                   cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_lightning_attn(q, k, v, layer_idx, num_layers, scale, initial_state, output_final_state, cu_seqlens, reverse=reverse, **kwargs)


def _sum_of_keys(k: Tensor, start: Tensor | None, cu_seqlens: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """The running sum of keys [B, T, H, K], and where it ends [N, 1, H, K]."""
    if cu_seqlens is None:
        z = k.flip(1).cumsum(1).flip(1) if reverse else k.cumsum(1)
        z = z if start is None else z + start
        return z, z[:, :1] if reverse else z[:, -1:]
    bounds, parts = cu_seqlens.tolist(), []
    for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        own = None if start is None else start[n:n + 1]
        parts.append(_sum_of_keys(k[:, begin:end], own, None, reverse))
    return torch.cat([z for z, _ in parts], 1), torch.cat([end for _, end in parts], 0)


def chunk_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Any = None, output_final_state: bool = False,
                      normalize: bool = True, cu_seqlens: Tensor | None = None, *, reverse: bool = False) -> Any:
    """With `normalize`, states are pairs (sum of k v', sum of k [N, 1, H, K])."""
    start, keys = initial_state if normalize and isinstance(initial_state, tuple) else (initial_state, None)
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    o, state = chunk_simple_gla(q, k, v, None, None, scale, start, output_final_state, cu_seqlens=cu_seqlens, reverse=reverse)
    if not normalize:
        return o, state
    z, end = _sum_of_keys(_wide(k), keys, cu_seqlens, reverse)
    o = (_wide(o) / ((_wide(q) * scale * z).sum(-1, keepdim=True) + 1e-10)).to(o.dtype)
    return o, (state, end)


fused_chunk_linear_attn = chunk_linear_attn


def fused_recurrent_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Any = None,
                                output_final_state: bool = False, reverse: bool = False, normalize: bool = False,
                                cu_seqlens: Tensor | None = None) -> Any:
    return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens, reverse=reverse)


# Gated linear attention with a decay for each key channel: RWKV-7 that takes nothing away.

def chunk_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
              output_final_state: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
              cu_seqlens_cpu: Tensor | None = None, *, reverse: bool = False) -> Any:
    nothing = torch.zeros_like(g)
    return _run("rwkv7", q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first, reverse, gk=g, p=nothing, erase=nothing)


def fused_chunk_gla(*args: Any, **kwargs: Any) -> Any:
    return chunk_gla(*args, **kwargs)


def fused_recurrent_gla(q: Tensor, k: Tensor, v: Tensor, gk: Tensor | None = None, gv: Tensor | None = None, scale: float | None = None,
                        initial_state: Tensor | None = None, output_final_state: bool = False, reverse: bool = False,
                        state_v_first: bool = False, cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    _refuse("fused_recurrent_gla", {**kwargs, "gv": gv})
    g = _no_decay(v, *k.shape[2:]) if gk is None else gk
    return chunk_gla(q, k, v, g, scale, initial_state, output_final_state, state_v_first, cu_seqlens, reverse=reverse)


# Delta rules.

def chunk_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                     output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                     cu_seqlens_cpu: Tensor | None = None, **kwargs: Any) -> Any:
    _refuse("chunk_delta_rule", kwargs)
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    return _run("delta", q, k, v, scale, initial_state, output_final_state, cu_seqlens, beta=beta)


def fused_chunk_delta_rule(*args: Any, **kwargs: Any) -> Any:
    return chunk_delta_rule(*args, **kwargs)


def _ones(v: Tensor) -> Tensor:
    return torch.ones(v.shape[:3], dtype=_wide(v).dtype)


def fused_recurrent_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None = None, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                               cu_seqlens: Tensor | None = None) -> Any:
    return chunk_delta_rule(q, k, v, _ones(v) if beta is None else beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
                            cu_seqlens)


def chunk_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
                           initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                           use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False, state_v_first: bool = False,
                           cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
                           cp_context: Any = None, *, use_gate_in_kernel: bool = False, A_log: Tensor | None = None,
                           dt_bias: Tensor | None = None, **kwargs: Any) -> Any:
    _refuse("chunk_gated_delta_rule", {**kwargs, "cp_context": cp_context})
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    g = _gate(g, A_log, dt_bias, None, "chunk_gated_delta_rule") if use_gate_in_kernel else g
    beta = _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _run("gdn", q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first, g=g, beta=beta)


def fused_recurrent_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, gk: Tensor | None = None, gv: Tensor | None = None,
                                     beta: Tensor | None = None, scale: float | None = None, initial_state: Tensor | None = None,
                                     output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                                     A_log: Tensor | None = None, dt_bias: Tensor | None = None, use_beta_sigmoid_in_kernel: bool = False,
                                     allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                                     **kwargs: Any) -> Any:
    name = "fused_recurrent_gated_delta_rule"
    _refuse(name, {**kwargs, "gv": gv})
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    if g is not None and use_gate_in_kernel:
        g = _gate(g, A_log, dt_bias, None, name)
    beta = _ones(v) if beta is None else _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options = (scale, initial_state, output_final_state, cu_seqlens, state_v_first)
    if gk is not None:
        return _run("kda", q, k, v, *options, gk=gk if g is None else gk + g[..., None], beta=beta)
    return _run("gdn", q, k, v, *options, g=_no_decay(v, v.shape[2]) if g is None else g, beta=beta)


chunk_gdn, fused_recurrent_gdn = chunk_gated_delta_rule, fused_recurrent_gated_delta_rule


def chunk_comba(q: Tensor, k: Tensor, v: Tensor, p: Tensor, g: Tensor, beta: Tensor | None = None, scale: float | None = None,
                initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None) -> Any:
    p = k if p is None else p
    if use_qk_l2norm_in_kernel:
        q, k, p = _norm(q), _norm(k), _norm(p)
    p = p.repeat_interleave(v.shape[2] // p.shape[2], 2)
    return _run("comba", q, k, v, scale, initial_state, output_final_state, cu_seqlens, g=g, beta=_ones(v) if beta is None else beta, p=p)


def fused_recurrent_comba(q: Tensor, k: Tensor, p: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None, scale: float | None = None,
                          initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                          cu_seqlens: Tensor | None = None) -> Any:
    return chunk_comba(q, k, v, p, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
              output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
              use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False, safe_gate: bool = False, lower_bound: float | None = None,
              disable_recompute: bool = False, return_intermediate_states: bool = False, state_v_first: bool = False,
              cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, cp_context: Any = None, *, A_log: Tensor | None = None,
              dt_bias: Tensor | None = None, **kwargs: Any) -> Any:
    _refuse("chunk_kda", {**kwargs, "return_intermediate_states": return_intermediate_states, "cp_context": cp_context})
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    g = _gate(g, A_log, dt_bias, lower_bound, "chunk_kda") if use_gate_in_kernel else g
    beta = _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _run("kda", q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first, gk=g, beta=beta)


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                        scale: float | None = None, initial_state: Tensor | None = None, output_final_state: bool = False,
                        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
                        allow_neg_eigval: bool = False, lower_bound: float | None = None, state_v_first: bool = False,
                        cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_kda(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                     use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound=lower_bound, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
                     A_log=A_log, dt_bias=dt_bias, **kwargs)


def chunk_gdn2(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, w: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
               output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
               cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, safe_gate: bool = False, lower_bound: float | None = None,
               disable_recompute: bool = False, return_intermediate_states: bool = False, state_v_first: bool = False, *,
               A_log: Tensor | None = None, dt_bias: Tensor | None = None, **kwargs: Any) -> Any:
    _refuse("chunk_gdn2", {**kwargs, "return_intermediate_states": return_intermediate_states})
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    g = _gate(g, A_log, dt_bias, lower_bound, "chunk_gdn2") if use_gate_in_kernel else g
    return _run("gdn2", q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first, gk=g, erase=b, write=w)


def fused_recurrent_gdn2(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, w: Tensor, A_log: Tensor | None = None,
                         dt_bias: Tensor | None = None, scale: float | None = None, initial_state: Tensor | None = None,
                         output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                         lower_bound: float | None = None, state_v_first: bool = False, cu_seqlens: Tensor | None = None, **kwargs: Any) -> Any:
    return chunk_gdn2(q, k, v, g, b, w, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, use_gate_in_kernel, cu_seqlens,
                      lower_bound=lower_bound, state_v_first=state_v_first, A_log=A_log, dt_bias=dt_bias, **kwargs)


def chunk_dplr_delta_rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, scale: float | None = None,
                          initial_state: Tensor | None = None, output_final_state: bool = False, cu_seqlens: Tensor | None = None,
                          cu_seqlens_cpu: Tensor | None = None, safe_gate: bool = False, chunk_size: int | None = None,
                          disable_recompute: bool = False, cp_context: Any = None, lower_bound: float | None = None, *, reverse: bool = False,
                          **kwargs: Any) -> Any:
    _refuse("chunk_dplr_delta_rule", {**kwargs, "cp_context": cp_context})
    return _run("rwkv7", q, k, v, scale, initial_state, output_final_state, cu_seqlens, False, reverse, gk=gk, p=-a, erase=b)


def fused_recurrent_dplr_delta_rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, scale: float | None = None,
                                    initial_state: Tensor | None = None, output_final_state: bool = False, reverse: bool = False,
                                    cu_seqlens: Tensor | None = None) -> Any:
    return chunk_dplr_delta_rule(q, k, v, a, b, gk, scale, initial_state, output_final_state, cu_seqlens, reverse=reverse)


def chunk_iplr_delta_rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                          output_final_state: bool = False, cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None,
                          **kwargs: Any) -> Any:
    _refuse("chunk_iplr_delta_rule", kwargs)
    return chunk_dplr_delta_rule(q, k, v, a, b, _no_decay(v, *a.shape[2:]), scale, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_iplr_delta_rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float | None = None,
                                    initial_state: Tensor | None = None, output_final_state: bool = False,
                                    cu_seqlens: Tensor | None = None) -> Any:
    return chunk_iplr_delta_rule(q, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens)


def chunk_rwkv7(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float | None = 1.0, initial_state: Tensor | None = None,
                output_final_state: bool = False, cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, safe_gate: bool = False,
                chunk_size: int | None = None, disable_recompute: bool = False, cp_context: Any = None, lower_bound: float | None = None,
                **kwargs: Any) -> Any:
    return chunk_dplr_delta_rule(r, k, v, a, b, w, scale, initial_state, output_final_state, cu_seqlens, cp_context=cp_context, **kwargs)


def fused_recurrent_rwkv7(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float | None = None,
                          initial_state: Tensor | None = None, output_final_state: bool = True, cu_seqlens: Tensor | None = None,
                          **kwargs: Any) -> Any:
    return chunk_rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens, **kwargs)


def _preconditioned(q: Tensor, k: Tensor, v: Tensor, gk: Tensor, gp: Tensor, betap: Tensor, beta: Tensor, scale: float | None, S: Tensor | None,
                    A: Tensor | None, output_final_state: bool, normalise: bool, cu_seqlens: Tensor | None, v_first: bool) -> Any:
    """o, S and A. Heads that share a key share its preconditioner, too."""
    if normalise:
        q, k = _norm(q), _norm(k)
    N, HV, H, K = v.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1, v.shape[2], k.shape[2], k.shape[3]
    each, start = HV // H, None
    if S is not None or A is not None:
        S = torch.zeros(N, HV, K, v.shape[3], dtype=_wide(v).dtype) if S is None else _turn(S, v_first)
        A = torch.zeros(N, H, K, dtype=_wide(v).dtype) if A is None else A
        start = (S, A.repeat_interleave(each, 1))
    o, state = _run("pkda", q, k, v, scale, start, output_final_state, cu_seqlens, gk=gk, beta=beta, gp=gp.repeat_interleave(each, 2),
                    betap=betap.repeat_interleave(each, 2))
    return (o, None, None) if state is None else (o, _turn(state[0], v_first), state[1][:, ::each])


def chunk_precond_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, g_atk: Tensor, beta_atk: Tensor, beta: Tensor, scale: float | None = None,
                      initial_state: Tensor | None = None, initial_A_state: Tensor | None = None, output_final_state: bool = False,
                      use_gate_in_kernel: bool = False, safe_gate: bool = False, lower_bound: float | None = None,
                      cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
                      cp_context: Any = None, transpose_state_layout: bool = False, x: float = 1.5, eps: float = 1e-6, log_atk_scale: Any = None,
                      solve_tril_precision: str | None = None, disable_recompute: bool = False, return_intermediate_states: bool = False, *,
                      A_log: Tensor | None = None, dt_bias: Tensor | None = None, use_qk_l2norm_in_kernel: bool = True, **kwargs: Any) -> Any:
    """Returns o, S and A."""
    _refuse("chunk_precond_kda", {**kwargs, "x": x, "eps": eps, "log_atk_scale": log_atk_scale, "cp_context": cp_context,
                                  "return_intermediate_states": return_intermediate_states})
    g = _gate(g, A_log, dt_bias, lower_bound, "chunk_precond_kda") if use_gate_in_kernel else g
    return _preconditioned(q, k, v, g, g_atk, beta_atk, beta, scale, initial_state, initial_A_state, output_final_state, use_qk_l2norm_in_kernel,
                           cu_seqlens, transpose_state_layout)


def fused_recurrent_precond_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, g_atk: Tensor, beta_atk: Tensor, beta: Tensor,
                                A_log: Tensor | None = None, dt_bias: Tensor | None = None, scale: float | None = None,
                                initial_state: Tensor | None = None, initial_A_state: Tensor | None = None, output_final_state: bool = False,
                                use_qk_l2norm_in_kernel: bool = True, use_gate_in_kernel: bool = False, lower_bound: float | None = None,
                                cu_seqlens: Tensor | None = None, transpose_state_layout: bool = False, x: float = 1.5, eps: float = 1e-6,
                                log_atk_scale: Any = None, **kwargs: Any) -> Any:
    return chunk_precond_kda(q, k, v, g, g_atk, beta_atk, beta, scale, initial_state, initial_A_state, output_final_state, use_gate_in_kernel,
                             lower_bound=lower_bound, cu_seqlens=cu_seqlens, transpose_state_layout=transpose_state_layout, x=x, eps=eps,
                             log_atk_scale=log_atk_scale, A_log=A_log, dt_bias=dt_bias, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, **kwargs)


def chunk_precond_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g_atk: Tensor, g: Tensor, beta_atk: Tensor, beta: Tensor,
                                   scale: float | None = None, initial_state: Tensor | None = None, initial_A_state: Tensor | None = None,
                                   output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = True, cu_seqlens: Tensor | None = None,
                                   cu_seqlens_cpu: Tensor | None = None, cp_context: Any = None, transpose_state_layout: bool = False,
                                   x: float = 1.5, eps: float = 1e-6, log_atk_scale: Any = None, **kwargs: Any) -> Any:
    """Returns o, S and A."""
    _refuse("chunk_precond_gated_delta_rule", {**kwargs, "x": x, "eps": eps, "log_atk_scale": log_atk_scale, "cp_context": cp_context})
    gk = g[..., None].expand(*g.shape, k.shape[3])
    return _preconditioned(q, k, v, gk, g_atk, beta_atk, beta, scale, initial_state, initial_A_state, output_final_state, use_qk_l2norm_in_kernel,
                           cu_seqlens, transpose_state_layout)


# Others.

def chunk_mesa_net(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, lamb: Tensor, h_kk_init: Tensor | None = None,
                   h_kv_init: Tensor | None = None, output_final_state: bool = False, max_CG_iteration: int = 30,
                   use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None) -> Any:
    """Returns o and both states. Systems are solved exactly, whatever max_CG_iteration is."""
    if use_qk_l2norm_in_kernel:
        q, k = _norm(q), _norm(k)
    if (h_kk_init is None) != (h_kv_init is None):
        raise ValueError("chunk_mesa_net: expected h_kk_init and h_kv_init, or neither")
    start = None if h_kk_init is None else (h_kk_init, h_kv_init)
    o, state = _run("mesa", q, k, v, 1.0, start, output_final_state, cu_seqlens, g=g, beta=beta, lam=lamb)
    return (o, *state) if state is not None else (o, None, None)


def parallel_attn(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, scale: float | None = None, window_size: int | None = None,
                  cu_seqlens: Tensor | None = None, chunk_indices: Tensor | None = None, *, sink_bias: Tensor | None = None,
                  **kwargs: Any) -> Tensor:
    _refuse("parallel_attn", {**kwargs, "window_size": window_size, "sink_bias": sink_bias})
    if g is not None:
        raise NotImplementedError("parallel_attn: attention with decay, g, is not offered")
    made: Tensor = memory("attention", q, k, v, scale=scale, cu_seqlens=cu_seqlens)
    return made


_FIRST = ("chunk_", "fused_", "parallel_")


def names() -> list[str]:
    """What of flash-linear-attention there is here."""
    return sorted(name for name in globals() if name.startswith(_FIRST))


def __getattr__(name: str) -> Any:
    if name.startswith(_FIRST):
        raise AttributeError(f"palimpsa.torch.fla has no {name}; it has {', '.join(names())}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
