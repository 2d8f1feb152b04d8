# SPDX-License-Identifier: MIT
"""palimpsa.torch.fla: what comes back, layouts and options; tests/interop/fla_operations.py compares numbers with the package itself."""
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F

import palimpsa.torch as pt
import palimpsa.torch.fla as ops

B, T, H, K, V = 2, 9, 2, 4, 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def heads(*shape, count=1):
    made = [torch.randn(B, T, H, *shape, dtype=torch.float64) / 2 for _ in range(count)]
    return made[0] if count == 1 else made


def near(x, y, bound=1e-12):
    assert (x - y).abs().max() <= bound * max(1, y.abs().max())


def test_a_pair_comes_back_and_the_state_only_if_asked_for():
    q, k = heads(K, count=2)
    o, state = ops.chunk_simple_gla(q, k, heads(V), -heads().abs())
    assert o.shape == (B, T, H, V) and state is None
    o, state = ops.chunk_gated_delta_rule(q, k, heads(V), -heads().abs(), heads().sigmoid(), output_final_state=True)
    assert state.shape == (B, H, K, V)
    assert len(ops.chunk_mesa_net(q, k, heads(K), -heads().abs(), heads().sigmoid(), torch.ones(H, K, dtype=torch.float64))) == 3


def test_forms_of_a_rule_agree_and_states_carry_on():
    q, k, v, gk, beta = *heads(K, count=2), heads(V), -heads(K).abs(), heads().sigmoid()
    whole, end = ops.chunk_kda(q, k, v, gk, beta, output_final_state=True)
    first, middle = ops.fused_recurrent_kda(*(x[:, :4] for x in (q, k, v, gk, beta)), output_final_state=True, state_v_first=True)
    assert middle.shape == (B, H, V, K)
    second, last = ops.chunk_kda(*(x[:, 4:] for x in (q, k, v, gk, beta)), initial_state=middle, output_final_state=True, state_v_first=True)
    near(torch.cat((first, second), 1), whole)
    near(last.mT, end)
    general, _ = ops.fused_recurrent_gated_delta_rule(q, k, v, gk=gk, beta=beta)
    near(general, whole)


def test_heads_that_share_keys():
    q, k, v = *heads(K, count=2), torch.randn(B, T, 2 * H, V, dtype=torch.float64)
    g, beta = -torch.rand(B, T, 2 * H, dtype=torch.float64), torch.rand(B, T, 2 * H, dtype=torch.float64)
    repeated = ops.chunk_gdn(q.repeat_interleave(2, 2), k.repeat_interleave(2, 2), v, g, beta)[0]
    near(ops.chunk_gdn(q, k, v, g, beta)[0], repeated)
    near(ops.chunk_comba(q, k, v, k, g, beta)[0], ops.chunk_comba(q.repeat_interleave(2, 2), k.repeat_interleave(2, 2), v, k.repeat_interleave(2, 2), g, beta)[0])


def test_options_that_their_kernels_apply():
    q, k, v, raw, beta = *heads(K, count=2), heads(V), heads(K), heads()
    A_log, dt_bias = torch.randn(H, dtype=torch.float64), torch.randn(H * K, dtype=torch.float64)
    gk = -A_log.exp()[:, None] * F.softplus(raw + dt_bias.view(H, K))
    unit = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
    expected = ops.chunk_kda(unit(q), unit(k), v, gk, 2 * beta.sigmoid())[0]
    near(ops.chunk_kda(q, k, v, raw, beta, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                       allow_neg_eigval=True, A_log=A_log, dt_bias=dt_bias, safe_gate=True, chunk_size=64)[0], expected)
    bounded = -5 * torch.sigmoid(A_log.exp()[:, None] * (raw + dt_bias.view(H, K)))
    near(ops.fused_recurrent_kda(q, k, v, raw, beta, A_log, dt_bias, use_gate_in_kernel=True, lower_bound=-5)[0], ops.chunk_kda(q, k, v, bounded, beta)[0])


def test_from_the_last_token_to_the_first():
    q, k, v, g = *heads(K, count=2), heads(V), -heads().abs()
    turned = ops.chunk_simple_gla(*(x.flip(1) for x in (q, k, v, g)))[0].flip(1)
    near(ops.fused_recurrent_simple_gla(q, k, v, g, reverse=True)[0], turned)
    with pytest.raises(NotImplementedError, match="reverse is not offered together with cu_seqlens"):
        ops.fused_recurrent_simple_gla(q[:1], k[:1], v[:1], g[:1], reverse=True, cu_seqlens=torch.tensor([0, T]))


def test_linear_attention_divides_by_the_sum_of_keys():
    q, k, v = (x.abs() for x in (*heads(K, count=2), heads(V)))
    o, (S, z) = ops.chunk_linear_attn(q, k, v, output_final_state=True)
    weights = torch.tril((q.transpose(1, 2) @ k.transpose(1, 2).mT))
    near(o, (weights @ v.transpose(1, 2) / weights.sum(-1, keepdim=True)).transpose(1, 2), 1e-8)
    first, state = ops.chunk_linear_attn(q[:, :4], k[:, :4], v[:, :4], output_final_state=True)
    near(torch.cat((first, ops.chunk_linear_attn(q[:, 4:], k[:, 4:], v[:, 4:], initial_state=state)[0]), 1), o)
    packed = [x.flatten(0, 1)[None] for x in (q, k, v)]
    near(ops.chunk_linear_attn(*packed, cu_seqlens=torch.tensor([0, T, 2 * T]))[0].view_as(o), o)


def test_what_would_change_the_result_is_refused():
    q, k, v, g = *heads(K, count=2), heads(V), -heads(K).abs()
    for call, sentence in ((lambda: ops.fused_recurrent_gla(q, k, v, g, gv=v), "gv is a tensor; here it can only be None"),
                           (lambda: ops.parallel_attn(q, k, v, window_size=4), "window_size is 4"),
                           (lambda: ops.chunk_precond_kda(q, k, v, g, g[..., 0], g[..., 0], g[..., 0], x=2.0), "x is 2.0")):
        with pytest.raises(NotImplementedError, match=sentence):
            call()
    with pytest.raises(TypeError, match="chunk_kda: there is no argument chunksize"):
        ops.chunk_kda(q, k, v, g, g[..., 0], chunksize=3)
    with pytest.raises(AttributeError, match="has no chunk_nsa; it has chunk_comba"):
        ops.chunk_nsa


@pytest.mark.parametrize("rule", ["gdn", "kdn"])
def test_transforms_of_functions(rule):
    from test_torch import tensors
    given = tensors(rule, torch.float64, N=B, T=5, H=H, G=H, dk=K, dv=V)
    loss = lambda q: pt.memory(rule, **{**given, "q": q}).sin().sum()
    q = given["q"].clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(q), q)
    assert (torch.func.grad(loss)(given["q"]) == expected).all()
    parameters = pt.memory.__globals__["PARAMETERS"]
    names = [n for n in given if n not in parameters]
    alone = lambda *rows: pt.memory(rule, **dict(zip(names, (x[None] for x in rows))), **{n: given[n] for n in given if n in parameters}).sin().sum()
    each = torch.vmap(torch.func.grad(alone))(*(given[n] for n in names))
    near(each, expected)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives are not offered"):
        torch.func.jvp(loss, (given["q"],), (given["q"],))
