# SPDX-License-Identifier: MIT
"""Memory rules as differentiable operations of PyTorch, on CPU.

A function for every rule, with shapes and names as in flash-linear-attention: q, k [B, T, key_heads, K], v, b and write [B, T, H, V], gk, p,
erase and noisek [B, T, H, K], turn [B, T, H, (K + 1) // 2], other gates [B, T, H], parameters A, Ip [H], lam [H, K], keep and drift [H, K, V]; attention's q has H heads and
its v key_heads. With `cu_seqlens`, int32 or int64, B is 1 and sequence n owns tokens cu_seqlens[n] .. cu_seqlens[n+1]-1. A memory is
[N, H, K, V]: one tensor S, a pair (mu, I) of palimpsa and kla, mesa's (H [N, H, K, K], G), (S, A [N, H, K]) of pkda, (S, var) of kdn [N, H, K]
and kdn_iso [N, H], (S, last [N, H, K + V]) of mamba3. y [B, T, H, V] comes back, or a tuple of y and what else was asked for, in the order variance, final state.

There are gradients for every input and for the initial state. float64 runs the plain reference in double precision, for gradcheck; bfloat16
and float16 are computed in float32, and y has v's type. Operations use torch.get_num_threads() threads and work in torch.compile.
"""
from ..memory import State
from ..torch_functions import (attention, comba, delta, gdn, gdn2, gdn_app, gla, kda, kdn, kdn_iso, kla, longhorn, mamba3, memory, mesa, palimpsa, pkda, rwkv7,
                               step)
from ..torch_layers import LayerCache, PalimpsaD, PalimpsaM

__all__ = ["LayerCache", "PalimpsaD", "PalimpsaM", "State", "attention", "comba", "delta", "gdn", "gdn2", "gdn_app", "gla", "kda", "kdn", "kdn_iso",
           "kla", "longhorn", "mamba3", "memory", "mesa", "palimpsa", "pkda", "rwkv7", "step"]
