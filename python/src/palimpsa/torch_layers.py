# SPDX-License-Identifier: MIT
"""The mixers of our models as modules of PyTorch, with the names that their tensors have in files."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._torch_ops import INPUTS, PARAMETERS
from .memory import State, input_shapes
from .torch_functions import check_bounds, memory, step, swap

Initial = Any

# Gates that some rules read besides those of Palimpsa-D: the word in the names of their tensors, and whether they are softplus(Lin x + bias)
# instead of sig(Lin x).
_EXTRAS = {"erase": ("erase", False), "write": ("write", False), "gp": ("gp", True), "betap": ("betap", False), "noise": ("noise", True),
           "noisek": ("noise", True), "r": ("r", True)}


class LayerCache:
    """What one layer keeps between calls: the last inputs of its convolutions, and its memory.

    `state` is a palimpsa.memory.State, or tensors where the layer computes in float64.
    """

    def __init__(self) -> None:
        self.windows: dict[str, Tensor] = {}
        self.state: Any = None

    def select(self, rows: Tensor) -> None:
        """Sequences by number, as beam search reorders them."""
        self.windows = {name: x.index_select(0, rows) for name, x in self.windows.items()}
        if isinstance(self.state, State):
            self.state = self.state.select(rows.numpy())
        elif self.state is not None:
            self.state = tuple(x.index_select(0, rows) for x in self.state)


class _Spans:
    """Where packed sequences lie in a stream that has room for `before` rows in front of each."""

    def __init__(self, rule: str, x: Tensor, cu_seqlens: Tensor, before: int) -> None:
        check_bounds(rule, x, cu_seqlens)
        cu, T = cu_seqlens.to(torch.int64), x.shape[1]
        if int(cu[0]) != 0 or int(cu[-1]) != T or bool((cu.diff() < 1).any()):
            raise ValueError(f"{rule}: cu_seqlens must increase from 0 to the number of tokens, {T}")
        N, self.before = cu.shape[0] - 1, before
        lengths = cu[1:] - cu[:-1]
        self.rows = torch.arange(int(cu[-1])) + torch.repeat_interleave(torch.arange(1, N + 1) * before, lengths)
        room = torch.arange(before)
        self.front = (cu[:-1] + torch.arange(N) * before)[:, None] + room
        self.last = (cu[1:] + torch.arange(1, N + 1) * before)[:, None] - before + room
        self.total = int(cu[-1]) + N * before


def _fitting(window: Tensor, sequences: int) -> Tensor:
    if window.shape[0] != sequences:
        raise ValueError(f"the cache holds {window.shape[0]} sequences; expected {sequences}")
    return window


class ShortConvolution(nn.Conv1d):
    """Causal depthwise convolution and SiLU. x is [B, T, C]; terms before a sequence are zero, or what its cache holds."""

    def __init__(self, channels: int, taps: int, bias: bool = False) -> None:
        super().__init__(channels, channels, taps, groups=channels, bias=bias)

    def forward(self, x: Tensor, spans: _Spans | None = None, cache: LayerCache | None = None, name: str = "") -> Tensor:
        before = self.kernel_size[0] - 1
        window = cache.windows.get(name) if cache is not None else None
        if spans is None:
            front = x.new_zeros(x.shape[0], before, x.shape[2]) if window is None else _fitting(window, x.shape[0]).to(x.dtype)
            stream = torch.cat((front, x), 1)
            y = self._taps(stream, x.shape[1])
            if cache is not None:
                cache.windows[name] = stream[:, x.shape[1]:].detach().clone()
        else:
            stream = x.new_zeros(spans.total, x.shape[2]).index_copy(0, spans.rows, x[0])
            if window is not None:
                stream = stream.index_copy(0, spans.front.reshape(-1), _fitting(window, spans.front.shape[0]).to(x.dtype).flatten(0, 1))
            y = self._taps(stream[None], spans.total - before)[:, spans.rows - before]
            if cache is not None:
                cache.windows[name] = stream[spans.last].detach()
        return F.silu(y)

    def _taps(self, stream: Tensor, length: int) -> Tensor:
        """Channels stay together in memory, as the rules like them."""
        weight = self.weight[:, 0]
        y = stream[:, :length] * weight[:, 0]
        for tap in range(1, weight.shape[1]):
            y = torch.addcmul(y, stream[:, tap:tap + length], weight[:, tap])
        return y if self.bias is None else y + self.bias


def _softplus_inverse(x: Tensor) -> Tensor:
    return x + torch.log(-torch.expm1(-x))


def _wide(x: Tensor) -> Tensor:
    """Gates and parameters are few; halves would round decays to one."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _check_sizes(**sizes: Any) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size!r}; expected at least 1")


class _Mixer(nn.Module):
    """What both backbones share: heads with a memory, its gates and parameters."""

    def __init__(self, hidden_size: int, heads: int, dk: int, dv: int, rule: str, rank: int | str, unused_gate: bool, norm_eps: float,
                 initializer_range: float, finetuning: bool, mesa_tolerance: float, softplus_rate: bool = False) -> None:
        super().__init__()
        if rule not in INPUTS or rule == "attention":
            raise ValueError(f"rule is {rule!r}; expected one of {', '.join(r for r in INPUTS if r != 'attention')}")
        if rank != "auto" and (not isinstance(rank, int) or rank < 1):
            raise ValueError(f"beta_step_rank is {rank!r}; expected 'auto' or a whole number from 1 on")
        self.hidden_size, self.heads, self.dk, self.dv, self.rule = hidden_size, heads, dk, dv, rule
        self.norm_eps, self.initializer_range, self.finetuning, self.mesa_tolerance = norm_eps, initializer_range, finetuning, mesa_tolerance
        self.softplus_rate = softplus_rate
        self.rank = math.ceil(hidden_size / 16) if rank == "auto" else rank
        reads = self.reads = INPUTS[rule]
        self.forgets = any(name in reads for name in ("dt", "g", "gk"))
        self.steps = heads * dk if "gk" in reads else heads  # time steps of a token
        if self.forgets:
            self.dt_bias = nn.Parameter(torch.empty(self.steps))
            if "lag" not in reads:
                self.A_log = nn.Parameter(torch.empty(heads))
        self.D = nn.Parameter(torch.empty(heads))
        if "p" in reads and "erase" not in reads:
            self.p_scale = nn.Parameter(torch.empty(heads))
        self.extras = {name: self._extra(hidden_size, name) for name in _EXTRAS if name in reads}
        if "keep" in reads:
            self.keep_raw, self.drift_raw = (nn.Parameter(torch.empty(heads, dk, dv)) for _ in range(2))
        if "b" in reads or unused_gate:
            self.b_rank_proj = nn.Linear(hidden_size, self.rank, bias=False)
            self.b_proj = nn.Linear(self.rank, heads * dv, bias=False)
            self.b_scale = nn.Parameter(torch.empty(heads))
        if "Ip" in reads or unused_gate:
            self.Ip_log = nn.Parameter(torch.empty(heads))
        if "lam" in reads:
            self.lam_raw = nn.Parameter(torch.empty(heads, dk))
        self.freeze()

    def _extra(self, hidden_size: int, name: str) -> tuple[int, ...]:
        """The layers of a gate that Palimpsa-D does not have; returns its shape."""
        word, softplus = _EXTRAS[name]
        shape = input_shapes(self.rule, self.heads, self.heads, self.dk, self.dv)[name]
        setattr(self, f"{word}_proj", nn.Linear(hidden_size, math.prod(shape), bias=False))
        if softplus:
            self.register_parameter(f"{word}_bias", nn.Parameter(torch.empty(math.prod(shape))))
        return shape

    def extra(self, x: Tensor, k: Tensor) -> dict[str, Tensor]:
        """What the rule reads besides the gates of Palimpsa-D."""
        made = {}
        for name, shape in self.extras.items():
            word, softplus = _EXTRAS[name]
            gate = getattr(self, f"{word}_proj")(x)
            gate = F.softplus(_wide(gate) + _wide(getattr(self, f"{word}_bias"))) if softplus else torch.sigmoid(gate)
            made[name] = gate.unflatten(-1, shape)
        if "p" in self.reads:
            made["p"] = k * torch.sigmoid(self.p_scale)[:, None].to(k.dtype) if hasattr(self, "p_scale") else k
            if "erase" in made:
                made["erase"] = made["erase"] * k
        if "gp" in made:
            made["gp"] = -made["gp"]
        if "r" in made:
            made["r"] = made["r"] + 1e-4
        return made

    def trapezoid(self, x: Tensor, dt: Tensor) -> dict[str, Tensor]:
        """Mamba-3's gates: rates times a time step, whose writing is divided between this token and the next."""
        rate, turn = _wide(self.rate_proj(x)), _wide(self.turn_proj(x)).unflatten(-1, (self.heads, -1))
        rate = F.softplus(rate) if self.softplus_rate else torch.where(rate < 0, 1 / (1 - rate.clamp(max=0)), 1 + rate)
        lag = dt * (1 - torch.sigmoid(_wide(self.bs_proj(x))))
        return {"g": -dt * (rate + 1e-4), "lag": lag, "beta": dt - lag, "turn": dt[..., None] * math.pi * (2 * torch.sigmoid(turn) - 1)}

    def freeze(self) -> None:
        """No gradients for the prior, which is not trained, and for a gate of importance that the rule does not read."""
        for name, x in self.named_parameters():
            if name == "Ip_log" or (name.startswith("b_") and "b" not in self.reads):
                x.requires_grad_(False)

    def initial(self) -> dict[str, Initial]:
        """How tensors start where it is not N(0, initializer_range^2): a number, bounds of a uniform distribution, or a tensor."""
        H, one, noise = self.heads, 1 + math.log(-math.expm1(-1)), 0.01 + math.log(-math.expm1(-0.01))  # softplus gives 1 and 0.01
        dt = lambda *shape: _softplus_inverse(torch.exp(torch.rand(shape) * (math.log(0.1) - math.log(0.001)) + math.log(0.001)).clamp(min=1e-4))
        return {"A_log": torch.log(16 * (1 - torch.rand(H))), "dt_bias": dt(self.steps), "D": 1.0, "Ip_log": 0.0,
                "b_scale": (0.1, 1.0) if self.finetuning else 1.0, "b_proj.weight": (-self.rank**-0.5, self.rank**-0.5),
                "lam_raw": one, "p_scale": 1.0, "gp_bias": dt(H), "noise_bias": noise, "r_bias": one, "keep_raw": dt(H, self.dk, self.dv),
                "drift_raw": noise}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        special = self.initial()
        for name, x in self.named_parameters():
            start = special.get(name, 1.0 if name.endswith("norm.weight") else 0.0 if name.endswith("bias") else None)
            if start is None:
                nn.init.normal_(x, std=self.initializer_range)
            elif isinstance(start, Tensor):
                x.copy_(start)
            elif isinstance(start, tuple):
                nn.init.uniform_(x, *start)
            else:
                nn.init.constant_(x, start)

    def importance(self, x: Tensor, gate: Tensor) -> Tensor:
        """b: how much importance a value earns; gate is one number per head."""
        b = torch.sigmoid(self.b_proj(self.b_rank_proj(x))).unflatten(-1, (self.heads, self.dv))
        return b * (F.softplus(_wide(self.b_scale)) * gate)[..., None]

    def remember(self, q: Tensor, k: Tensor, v: Tensor, scale: float, cu_seqlens: Tensor | None, cache: LayerCache | None,
                 gates: dict[str, Tensor]) -> Tensor:
        given: dict[str, Any] = {name: gates[name] for name in self.reads if name in gates}
        if "A" in self.reads:
            given["A"] = torch.exp(_wide(self.A_log))
        if "Ip" in self.reads:
            given["Ip"] = torch.exp(_wide(self.Ip_log))
        if "lam" in self.reads:
            given["lam"] = F.softplus(_wide(self.lam_raw))
        if "keep" in self.reads:
            given["keep"], given["drift"] = torch.exp(-F.softplus(_wide(self.keep_raw))), F.softplus(_wide(self.drift_raw))
        options: dict[str, Any] = {"scale": scale, "mesa_tolerance": self.mesa_tolerance}
        if cache is None:
            return memory(self.rule, q, k, v, **given, **options, cu_seqlens=cu_seqlens)
        state = cache.state
        if isinstance(state, State) and v.shape[1] == 1 and cu_seqlens is None and not torch.is_grad_enabled():
            rows = {name: x if name in PARAMETERS else _wide(x[:, 0]) for name, x in given.items()}
            return step(state, *(_wide(x[:, 0]) for x in (q, k, v)), **rows, **options)[:, None].to(v.dtype)
        initial = None
        if isinstance(state, State):
            parts = [torch.from_numpy(x) for x in state.parts.values()]
            initial = tuple(swap(self.rule, name, x) for name, x in zip(state.part_names, parts))
        elif state is not None:
            initial = state
        if initial is not None and len(initial) == 1:
            initial = initial[0]
        y, final = memory(self.rule, q, k, v, **given, **options, initial_state=initial, output_final_state=True, cu_seqlens=cu_seqlens)
        parts = [x.detach() for x in (final if isinstance(final, tuple) else (final,))]
        if v.dtype == torch.float64:
            cache.state = tuple(parts)
        else:
            Ip = given["Ip"].detach().numpy() if "Ip" in given else None
            cache.state = State(self.rule, parts[0].shape[0], self.heads, self.dk, self.dv, key_heads=k.shape[2], Ip=Ip)
            names = cache.state.part_names
            cache.state.set_parts(**{name: swap(self.rule, name, x).numpy() for name, x in zip(names, parts)})
        return y

    def spans(self, x: Tensor, cu_seqlens: Tensor | None, taps: int) -> _Spans | None:
        """What both backbones look at first."""
        if x.ndim != 3 or x.shape[2] != self.hidden_size:
            raise ValueError(f"x is {list(x.shape)}; expected [B, T, {self.hidden_size}]")
        return None if cu_seqlens is None else _Spans(self.rule, x, cu_seqlens, taps - 1)

    def _norm(self, width: int) -> nn.RMSNorm:
        return nn.RMSNorm(width, eps=self.norm_eps)


class PalimpsaD(_Mixer):
    """The mixer of Palimpsa-D: q, k, v by short convolutions, keys and queries of length one, and any rule but attention.

    x [B, T, hidden_size] gives the same shape; with `cu_seqlens`, B is 1 and holds sequences one after another. `cache` continues where the
    last call with it ended. Without metaplasticity the rule is gla, and the gate of importance is there but unused.
    """

    def __init__(self, hidden_size: int, num_heads: int, head_dim: int, *, expand_k: float = 1.0, expand_v: float = 1.0, conv_size: int = 4,
                 beta_step_rank: int | str = "auto", metaplasticity: bool = True, rule: str = "palimpsa", unused_gate: bool | None = None,
                 norm_eps: float = 1e-6, initializer_range: float = 0.02, finetuning: bool = False, mesa_tolerance: float = 0.0,
                 softplus_rate: bool = False) -> None:
        plain = rule == "palimpsa" and not metaplasticity
        _check_sizes(hidden_size=hidden_size, num_heads=num_heads, conv_size=conv_size, head_dim=head_dim, keys=head_dim * expand_k,
                     values=head_dim * expand_v)
        super().__init__(hidden_size, num_heads, int(head_dim * expand_k), int(head_dim * expand_v), "gla" if plain else rule, beta_step_rank,
                         plain if unused_gate is None else unused_gate, norm_eps, initializer_range, finetuning, mesa_tolerance, softplus_rate)
        keys, values = num_heads * self.dk, num_heads * self.dv
        self.q_proj, self.k_proj = (nn.Linear(hidden_size, keys, bias=False) for _ in range(2))
        self.v_proj, self.g_proj = (nn.Linear(hidden_size, values, bias=False) for _ in range(2))
        if self.forgets:
            self.dt_proj = nn.Linear(hidden_size, self.steps, bias=False)
        if "lag" in self.reads:
            self.rate_proj, self.turn_proj = (nn.Linear(hidden_size, num_heads * n, bias=False) for n in (1, (self.dk + 1) // 2))
        if any(name in self.reads for name in ("dt", "g", "beta", "b")):
            self.bs_proj = nn.Linear(hidden_size, num_heads, bias=False)
        self.q_conv1d, self.k_conv1d = (ShortConvolution(keys, conv_size) for _ in range(2))
        self.v_conv1d = ShortConvolution(values, conv_size)
        self.o_norm = self._norm(self.dv)
        self.o_proj = nn.Linear(values, hidden_size, bias=False)
        self.gates_value = ("dt" in self.reads or "g" in self.reads) and "beta" not in self.reads
        self.reset_parameters()

    def forward(self, x: Tensor, cu_seqlens: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        spans = self.spans(x, cu_seqlens, self.q_conv1d.kernel_size[0])
        q, k, value = (getattr(self, f"{n}_conv1d")(getattr(self, f"{n}_proj")(x), spans, cache, n).unflatten(-1, (self.heads, -1)) for n in "qkv")
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        gates = self.extra(x, k)
        if hasattr(self, "bs_proj"):
            gates["beta"] = torch.sigmoid(self.bs_proj(x))
        if self.forgets:
            dt = F.softplus(_wide(self.dt_proj(x)) + _wide(self.dt_bias))
            if "lag" in self.reads:
                gates |= self.trapezoid(x, dt)
            else:
                A = torch.exp(_wide(self.A_log))
                gates |= {"gk": -A[:, None] * dt.unflatten(-1, (self.heads, -1))} if "gk" in self.reads else {"dt": dt, "g": -A * dt}
        if "b" in self.reads:
            gates["b"] = self.importance(x, gates["beta"])
        v = value * gates["beta"][..., None] if self.gates_value else value
        y = self.remember(q, k, v, 1.0 if "lam" in self.reads else self.dk**-0.5, cu_seqlens, cache, gates)
        y = self.o_norm(y + self.D[:, None] * value).flatten(-2) * F.silu(self.g_proj(x))
        return self.o_proj(y)


class PalimpsaM(_Mixer):
    """The mixer of Palimpsa-M, which without metaplasticity is Mamba2's. Called as PalimpsaD is."""

    def __init__(self, hidden_size: int, head_dim: int = 64, *, state_size: int = 128, n_groups: int = 1, expand: float = 2, conv_kernel: int = 4,
                 beta_step_rank: int | str = "auto", metaplasticity: bool = True, unused_gate: bool | None = None, use_bias: bool = False,
                 use_conv_bias: bool = True, time_step_limit: tuple[float, float] = (0.0, math.inf), norm_groups: int = 1, norm_eps: float = 1e-5,
                 initializer_range: float = 0.02, finetuning: bool = False, rescale_layers: int | None = None) -> None:
        inner = int(hidden_size * expand)
        _check_sizes(hidden_size=hidden_size, head_dim=head_dim, state_size=state_size, n_groups=n_groups, expanded=inner, conv_kernel=conv_kernel)
        if inner % head_dim or (inner // head_dim) % n_groups:
            raise ValueError(f"head_dim {head_dim} must divide {inner} inner channels, and n_groups {n_groups} the heads")
        super().__init__(hidden_size, inner // head_dim, state_size, head_dim, "palimpsa" if metaplasticity else "gla", beta_step_rank,
                         not metaplasticity if unused_gate is None else unused_gate, norm_eps, initializer_range, finetuning, 0.0)
        self.n_groups, self.norm_groups, self.limit, self.rescale_layers = n_groups, norm_groups, time_step_limit, rescale_layers
        self.inner, self.keys = inner, n_groups * state_size
        self.in_proj = nn.Linear(hidden_size, 2 * inner + 2 * self.keys + self.heads, bias=use_bias)
        self.conv1d = ShortConvolution(inner + 2 * self.keys, conv_kernel, bias=use_conv_bias)
        self.norm = self._norm(inner)
        self.out_proj = nn.Linear(inner, hidden_size, bias=use_bias)
        self.reset_parameters()

    def initial(self) -> dict[str, Initial]:
        special = super().initial()
        if self.rescale_layers:
            bound = self.inner**-0.5 / math.sqrt(self.rescale_layers)
            special["out_proj.weight"] = (-bound, bound)
        return special

    def forward(self, x: Tensor, cu_seqlens: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        spans = self.spans(x, cu_seqlens, self.conv1d.kernel_size[0])
        z, channels, dt = self.in_proj(x).split((self.inner, self.inner + 2 * self.keys, self.heads), -1)
        value, k, q = self.conv1d(channels, spans, cache, "channels").split((self.inner, self.keys, self.keys), -1)
        value = value.unflatten(-1, (self.heads, self.dv))
        q, k = q.unflatten(-1, (self.n_groups, -1)), k.unflatten(-1, (self.n_groups, -1))
        dt = F.softplus(_wide(dt) + _wide(self.dt_bias))
        if self.limit[0] > 0 or self.limit[1] < math.inf:
            dt = dt.clamp(*self.limit)
        gates = {"dt": dt, "g": -torch.exp(_wide(self.A_log)) * dt}
        if "b" in self.reads:
            gates["b"] = self.importance(x, dt)
        y = self.remember(q, k, value * dt[..., None].to(x.dtype), 1.0, cu_seqlens, cache, gates)
        y = (y + self.D[:, None] * value).flatten(-2) * F.silu(z)
        if self.norm_groups == 1:
            return self.out_proj(self.norm(y))
        groups = F.rms_norm(y.unflatten(-1, (self.norm_groups, -1)), (self.inner // self.norm_groups,), eps=self.norm_eps)
        return self.out_proj(groups.flatten(-2) * self.norm.weight)
