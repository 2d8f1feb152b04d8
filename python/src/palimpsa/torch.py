# SPDX-License-Identifier: MIT
"""Memory rules as differentiable operations of PyTorch, on CPU.

A function for every rule, with shapes and names as in flash-linear-attention: q, k [B, T, key_heads, K], v and b [B, T, H, V], beta, dt, g
[B, T, H], parameters A, Ip [H] and lam [H, K]; attention's q has H heads and its v key_heads. With `cu_seqlens`, int32 or int64, B is 1 and
sequence n owns tokens cu_seqlens[n] .. cu_seqlens[n+1]-1. A memory is [N, H, K, V]: one tensor S, palimpsa's a pair (mu, I), mesa's a pair
(H [N, H, K, K], G). y [B, T, H, V] comes back, or a tuple of y and what else was asked for, in the order variance, final state.

There are gradients for every input and for the initial state. float64 runs the plain reference in double precision, for gradcheck; bfloat16
and float16 are computed in float32, and y has v's type. Operations use torch.get_num_threads() threads and work in torch.compile.
"""
from .memory import State
from .torch_functions import attention, delta, gdn, gdn_app, gla, longhorn, memory, mesa, palimpsa, step
from .torch_layers import LayerCache, PalimpsaD, PalimpsaM

__all__ = ["LayerCache", "PalimpsaD", "PalimpsaM", "State", "attention", "delta", "gdn", "gdn_app", "gla", "longhorn", "memory", "mesa", "palimpsa",
           "step"]
