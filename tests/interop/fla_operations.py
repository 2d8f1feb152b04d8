# SPDX-License-Identifier: MIT
"""palimpsa.torch.fla against flash-linear-attention: names and arguments of what users import, and numbers next to its naive functions.

    pip download --no-deps fla-core==0.6.0 && unzip fla_core-*.whl -d fla-core
    python3 fla_operations.py fla-core

Its kernels need a GPU; its naive functions are plain torch, computed here in float64. It needs torch, einops and our package.
"""
import ast
import inspect
import pathlib
import sys

import torch

import palimpsa.torch.fla as ops
from record_rules import load

BOUND = 1e-10


def signatures(folder):
    """Public functions of fla.ops: name: arguments in their order."""
    found = {}
    for path in sorted((folder / "fla" / "ops").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = ([a.arg for a in node.args.args], node.args.kwarg is not None)
    return found


def compare_signatures(folder):
    theirs, bad = signatures(folder), 0
    for name in ops.names():
        function = getattr(ops, name)
        if name not in theirs or (theirs[name][0] == [] and theirs[name][1]):
            continue  # an alias, or one that only hands its arguments on
        parameters = inspect.signature(function).parameters.values()
        ours = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        if ours[:len(theirs[name][0])] != theirs[name][0]:
            bad += 1
            print(f"{name}: arguments are {ours}; expected {theirs[name][0]}")
    print(f"{len(ops.names())} operations, arguments of {bad} differ")
    return bad


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    B, T, H, K, V = 2, 37, 3, 6, 5
    q, k, p = (torch.randn(B, T, H, K) / K**0.5 for _ in range(3))
    v, beta, g, gk = torch.randn(B, T, H, V), torch.rand(B, T, H), -0.3 * torch.rand(B, T, H), -0.3 * torch.rand(B, T, H, K)
    erase, write, gp, betap = torch.rand(B, T, H, K), torch.rand(B, T, H, V), -0.3 * torch.rand(B, T, H), torch.rand(B, T, H)
    S, A = torch.randn(B, H, K, V), torch.rand(B, H, K)
    unit = lambda x: torch.nn.functional.normalize(x, dim=-1)
    naive = lambda path, name: getattr(load(folder / "fla" / "ops" / path / "naive.py"), name)
    more, both = dict(initial_state=S, output_final_state=True), dict(initial_state=S, initial_A_state=A, output_final_state=True)
    plr = naive("generalized_delta_rule/dplr", "dplr_recurrence")
    by_head = lambda *xs: [x.transpose(1, 2) for x in xs]

    def dplr(q, k, v, a, b, gk):
        o, state = plr(*by_head(q, k, v, a, b, gk), initial_state=S)
        return o.transpose(1, 2), state

    root = torch.randn(B, H, K, K)
    H0, G0, lam = root @ root.mT / 3, torch.randn(B, H, K, K), 0.5 + torch.rand(H, K)
    square = torch.randn(B, T, H, K)
    cases = {
        "chunk_simple_gla": (ops.chunk_simple_gla(q, k, v, g, **more), naive("simple_gla", "naive_recurrent_simple_gla")(q, k, v, g, **more)),
        "chunk_gla": (ops.chunk_gla(q, k, v, gk, **more), naive("gla", "naive_recurrent_gla")(q, k, v, gk, **more)),
        "fused_recurrent_gla": (ops.fused_recurrent_gla(q, k, v, gk, **more), naive("gla", "naive_recurrent_gla")(q, k, v, gk, **more)),
        "chunk_retention": (ops.chunk_retention(q, k, v)[0], naive("retention", "naive_retention")(*by_head(q, k, v)).transpose(1, 2)),
        "fused_recurrent_linear_attn": (ops.fused_recurrent_linear_attn(q.abs(), k.abs(), v, normalize=True, output_final_state=True)[0],
                                        naive("linear_attn", "naive_recurrent_linear_attn")(q.abs(), k.abs(), v, normalize=True)[0]),
        "chunk_gated_delta_rule": (ops.chunk_gated_delta_rule(q, k, v, g, beta, **more),
                                   naive("gated_delta_rule", "naive_recurrent_gated_delta_rule")(q, k, v, beta, g, **more)),
        "chunk_comba": (ops.chunk_comba(q, k, v, p, g, beta, **more), naive("comba", "naive_chunk_comba")(q, k, v, p, g, beta, chunk_size=16, **more)),
        "fused_recurrent_comba": (ops.fused_recurrent_comba(q, k, p, v, g, beta, **more),
                                  naive("comba", "naive_chunk_comba")(q, k, v, p, g, beta, chunk_size=16, **more)),
        "chunk_kda": (ops.chunk_kda(q, k, v, gk, beta, **more), naive("kda", "naive_recurrent_kda")(q, k, v, gk, beta, **more)),
        "chunk_gdn2": (ops.chunk_gdn2(q, k, v, gk, erase, write, **more), naive("gdn2", "naive_recurrent_gdn2")(q, k, v, gk, erase, write, **more)),
        "chunk_dplr_delta_rule": (ops.chunk_dplr_delta_rule(q, k, v, -k, p, gk, **more), dplr(q, k, v, -k, p, gk)),
        "chunk_rwkv7": (ops.chunk_rwkv7(q, gk, k, v, -k, p, K**-0.5, **more), dplr(q, k, v, -k, p, gk)),
        "chunk_iplr_delta_rule": (ops.chunk_iplr_delta_rule(q, k, v, -k, p, **more), dplr(q, k, v, -k, p, 0 * gk)),
        "fused_recurrent_precond_kda": (ops.fused_recurrent_precond_kda(q, k, v, gk, gp, betap, beta, use_qk_l2norm_in_kernel=False, **both),
                                        naive("precond_kda", "naive_recurrent_precond_kda")(q, k, v, gk, gp, betap, beta, **both)),
        "chunk_precond_gated_delta_rule": (
            ops.chunk_precond_gated_delta_rule(unit(q), unit(k), v, gp, g, betap, beta, use_qk_l2norm_in_kernel=False, **both),
            naive("precond_gated_delta_rule", "naive_recurrent_precond_gated_delta_rule")(q, k, v, gp, g, betap, beta, **both)),
        "chunk_mesa_net": (ops.chunk_mesa_net(q, k, square, g, beta, lam, H0, G0, output_final_state=True),
                           naive("mesa_net", "naive_mesa_net_exact")(q, k, square, g, lam, beta, H0, G0)),
    }
    bad = compare_signatures(folder)
    for name, (ours, theirs) in cases.items():
        pairs = list(zip(ours, theirs)) if isinstance(ours, tuple) else [(ours, theirs)]
        worst = max(((x - y).abs().max() / y.abs().max()).item() for x, y in pairs)
        bad += not worst <= BOUND
        print(f"{name}: {len(pairs)} results, largest difference {worst:.1e}{'' if worst <= BOUND else '  TOO LARGE'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
