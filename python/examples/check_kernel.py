# SPDX-License-Identifier: MIT
"""Check a kernel of your own against ours: outputs, final memory and all gradients.

    python check_kernel.py

`own` stands for your kernel; here it is a loop over time in plain torch, written as the formulas read. Put yours in its place: a Triton kernel
moves its arguments to the GPU and its results back. Errors are largest differences over the largest number of the reference, which is ours in
float64.
"""
import sys

import torch
from torch import Tensor

from palimpsa.torch import palimpsa


def own(q: Tensor, k: Tensor, v: Tensor, b: Tensor, dt: Tensor, A: Tensor, Ip: Tensor, scale: float, initial_state):
    """y [B, T, H, V] and the final memory (mu, I) [B, H, K, V]."""
    mu, I = initial_state
    M = mu * I
    outputs = []
    for t in range(q.shape[1]):
        decay = torch.exp(-A * dt[:, t])[..., None, None]
        key, query = k[:, t, :, :, None], scale * q[:, t, :, :, None]
        M = decay * M + key * v[:, t, :, None, :]
        I = decay * I + (1 - decay) * Ip[:, None, None] + key**2 * b[:, t, :, None, :]
        outputs.append((query * M / I).sum(-2))
    return torch.stack(outputs, 1), (M / I, I)


def ours(*inputs, scale: float, initial_state):
    return palimpsa(*inputs, scale=scale, initial_state=initial_state, output_final_state=True)


NAMES = ("q", "k", "v", "b", "dt", "A", "Ip", "mu0", "I0")


def inputs(B: int, T: int, H: int, K: int, V: int, forgetting: float):
    r = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    return [r(B, T, H, K), r(B, T, H, K) * K**-0.5, r(B, T, H, V), torch.rand(B, T, H, V).double(), forgetting * torch.rand(B, T, H).double(),
            0.5 + torch.rand(H).double(), 0.5 + torch.rand(H).double(), 0.1 * r(B, H, K, V), 1 + torch.rand(B, H, K, V).double()]


def run(kernel, values, dtype, scale):
    values = [x.to(dtype).requires_grad_() for x in values]
    y, final = kernel(*values[:7], scale=scale, initial_state=(values[7], values[8]))
    made = {"y": y, "mu": final[0], "I": final[1]}
    weights = [torch.linspace(-1, 1, x.numel(), dtype=dtype).reshape(x.shape) for x in made.values()]
    grads = torch.autograd.grad(list(made.values()), values, weights)
    return {**made, **{f"d{name}": x for name, x in zip(NAMES, grads)}}


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).abs().max() / expected.abs().max())


def main() -> int:
    torch.manual_seed(0)
    print(f"{'case':24}{'own, float64':>20}{'own, float32':>20}{'ours, float32':>20}")
    worst = 0.0
    for case, sizes in {"plain": (2, 33, 3, 8, 12, 0.1), "one token": (2, 1, 2, 4, 4, 0.1), "odd sizes": (1, 70, 2, 13, 5, 0.1),
                        "strong forgetting": (1, 40, 2, 8, 8, 20.0), "hardly any": (1, 40, 2, 8, 8, 1e-6)}.items():
        values, scale = inputs(*sizes), sizes[3]**-0.5
        exact = run(ours, values, torch.float64, scale)
        columns = [run(own, values, torch.float64, scale), run(own, values, torch.float32, scale), run(ours, values, torch.float32, scale)]
        errors = [max((error(found[name].detach(), exact[name].detach()), name) for name in exact) for found in columns]
        print(f"{case:24}" + "".join(f"{e:12.1e} in {name:4}" for e, name in errors))
        worst = max(worst, errors[0][0])
    print("own agrees with ours" if worst < 1e-9 else "own DIFFERS from ours")
    return int(worst >= 1e-9)


if __name__ == "__main__":
    sys.exit(main())
