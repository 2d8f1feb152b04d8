# SPDX-License-Identifier: MIT
"""The memory rules through torch: recorded numbers, gradients, torch.compile, one call against many, and what is refused."""
import re
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import golden
import palimpsa.torch as pt
from palimpsa import memory
from test_memory import make, tolerance

RULES = memory.rules()
FIXED = [rule for rule in RULES if rule != "attention"]
PARAMETERS = memory.PARAMETERS


def tensors(rule, dtype=torch.float32, **sizes):
    return {name: torch.from_numpy(x).to(dtype) for name, x in make(rule, **sizes).items()}


def starts(rule, N=2, H=3, dk=5, dv=6, dtype=torch.float64, seed=1):
    """Parts of an initial memory, as users of torch see them."""
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    S = 0.3 * r(N, H, dk, dv)
    if rule in ("palimpsa", "kla"):
        parts = (S, 1 + r(N, H, dk, dv).abs())
    elif rule in ("pkda", "kdn", "kdn_iso"):
        parts = (S, 0.2 + r(N, H, *((dk,) if rule != "kdn_iso" else ())).abs())
    elif rule == "mamba3":
        parts = (S, 0.3 * r(N, H, dk + dv))
    elif rule == "mesa":
        root = 0.3 * r(N, H, dk, dk)
        parts = (root @ root.mT, S)
    else:
        parts = (S,)
    return [x.to(dtype) for x in parts]


def one_or_pair(parts):
    return parts[0] if len(parts) == 1 else tuple(parts)


def listed(state):
    return list(state) if isinstance(state, tuple) else [state]


def near(x, y, bound=1e-5):
    assert golden.nmax(x.detach().double().numpy(), y.detach().double().numpy()) <= bound


def lay_out(rule, part, x):
    """Recorded memories are [N, H, dv, dk]."""
    return x if (rule, part) in (("mesa", "H"), ("pkda", "A"), ("kdn", "var"), ("kdn_iso", "var"), ("mamba3", "last")) else x.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("path", golden.cases(), ids=lambda p: p.stem)
def test_recorded_numbers(path, dtype):
    rule, case = golden.rule_of(path), golden.read(path)
    get = lambda name: torch.from_numpy(case[name].copy()).to(dtype)
    recorded = {name: "beta" if rule == "longhorn" and name == "b" else name for name in memory.inputs(rule)}
    given = {name: get("in." + file).requires_grad_() for name, file in recorded.items()}
    cu = torch.from_numpy(case["in.cu_seqlens"].copy()) if "in.cu_seqlens" in case else None
    names = memory.part_names(rule)
    initial = [lay_out(rule, n, get(f"in.{n}0")).detach().requires_grad_() for n in names] if f"in.{names[0]}0" in case else []
    longest = int(cu.diff().max()) if cu is not None else given["v"].shape[1]
    made = pt.memory(rule, **given, scale=float(case["in.scale"].reshape(-1)[0]), cu_seqlens=cu, initial_state=one_or_pair(initial) if initial else None,
                     output_final_state=True, return_variance=memory.has_variance(rule))
    found = {"y": made[0], **({"y_var": made[1]} if memory.has_variance(rule) else {})}
    found |= {f"{n}_T": lay_out(rule, n, x) for n, x in zip(names, listed(made[-1]))}
    upstream = [(x, get(f"in.d{n}")) for n, x in found.items() if f"in.d{n}" in case]
    torch.autograd.backward([x for x, _ in upstream], [d.reshape(x.shape) for x, d in upstream])
    found = {f"out.{n}": x for n, x in found.items()}
    found |= {f"grad.{recorded[n]}": x.grad for n, x in given.items()}
    found |= {f"grad.{n}0": lay_out(rule, n, x.grad) for n, x in zip(names, initial)}
    compared = [name for name in found if name in case]
    assert len(compared) >= 4
    for name in compared:
        bound = tolerance(rule, name, longest) if dtype == torch.float32 else 1e-10
        assert golden.nmax(found[name].detach().numpy(), case[name]) <= bound, name


def every_input(rule, key_heads=3, packed=False):
    given = tensors(rule, torch.float64, N=1 if packed else 2, T=5, H=3, G=key_heads, dk=4, dv=3)
    names, initial = list(given), starts(rule, N=2, dk=4, dv=3) if rule != "attention" else []
    cu, knows = torch.tensor([0, 2, 5]) if packed else None, memory.has_variance(rule)

    def run(*values):
        inputs, parts = dict(zip(names, values)), values[len(names):]
        if rule == "mesa":
            parts = (parts[0] + parts[0].mT, parts[1])  # it is symmetric, also a little next to
        options = dict(initial_state=one_or_pair(parts), output_final_state=True) if parts else {}
        made = pt.memory(rule, **inputs, cu_seqlens=cu, return_variance=knows, **options)
        made = made if isinstance(made, tuple) else (made,)
        return tuple(x for m in made for x in listed(m))

    return run, [x.requires_grad_() for x in (*given.values(), *initial)]


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("rule", RULES)
def test_gradcheck_of_every_input_and_initial_state(rule, packed):
    run, values = every_input(rule, packed=packed)
    assert torch.autograd.gradcheck(run, values)


@pytest.mark.parametrize("rule", RULES)
def test_gradcheck_of_shared_keys_and_of_the_default_start(rule):
    given = {name: x.requires_grad_() for name, x in tensors(rule, torch.float64, N=2, T=4, H=4, G=2, dk=3, dv=2).items()}
    assert torch.autograd.gradcheck(lambda *values: pt.memory(rule, **dict(zip(given, values))), list(given.values()))


@pytest.mark.parametrize("rule", FIXED)
def test_single_is_near_double(rule):
    run, values = every_input(rule)
    short = [x.detach().float().requires_grad_() for x in values]
    for found, expected in zip(run(*short), run(*values)):
        assert found.dtype == torch.float32
        near(found, expected)
    loss = lambda made: sum((x * torch.arange(x.numel()).reshape(x.shape).to(x.dtype).cos()).sum() for x in made)
    for found, expected in zip(torch.autograd.grad(loss(run(*short)), short), torch.autograd.grad(loss(run(*values)), values)):
        near(found, expected, 2e-5)


@pytest.mark.parametrize("rule", RULES)
def test_the_operations_are_what_torch_expects(rule):
    from palimpsa._torch_ops import NAMES, memory_forward
    run, values = every_input(rule)
    given = dict(zip(memory.inputs(rule), values))
    ordered = [given.get(name) for name in NAMES]
    parts = [lay_out(rule, n, x.detach()).contiguous().requires_grad_() for n, x in zip(memory.part_names(rule), values[len(given):])] + [None, None]
    final = rule != "attention"
    torch.library.opcheck(memory_forward, (rule, *ordered, *parts[:2], None, 0.5, 0.0, memory.has_variance(rule), final, True))


@pytest.mark.parametrize("rule", RULES)
def test_compiled_equals_eager(rule):
    run, values = every_input(rule)
    torch._dynamo.reset()  # it counts compilations of a function
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    expected, found = run(*values), compiled(*values)
    for x, y in zip(found, expected):
        assert torch.equal(x, y)
    grads = [torch.autograd.grad([x.cos().sum() for x in made], values) for made in (found, expected)]
    for x, y in zip(*grads):
        near(x, y, 1e-12)


def test_a_compiled_layer_takes_any_length():
    layer = pt.PalimpsaD(16, 2, 8, expand_v=2)
    compiled = torch.compile(layer, dynamic=True, fullgraph=True, backend="aot_eager")
    for T in (7, 12, 33):
        x, made = torch.randn(2, T, 16), []
        for f in (layer, compiled):
            layer.zero_grad()
            y = f(x)
            y.square().sum().backward()
            made.append((y, layer.q_proj.weight.grad, layer.A_log.grad))
        for a, b in zip(*made):
            near(a, b, 1e-4)


def test_compiled_by_inductor():
    def run(q, k, v, g):
        return pt.gla(q, k.tanh(), v, -g.abs()).sin()

    compiled = torch.compile(run, dynamic=True, fullgraph=True)
    for T in (7, 12):
        values = [x.requires_grad_() for x in tensors("gla", T=T).values()]
        found, expected = compiled(*values), run(*values)
        near(found, expected)
        for x, y in zip(torch.autograd.grad(found.sum(), values), torch.autograd.grad(expected.sum(), values)):
            near(x, y)


def test_second_derivatives_are_refused():
    run, values = every_input("gla")
    (grad,) = torch.autograd.grad(run(*values)[0].square().sum(), values[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="gla: second derivatives are not offered"):
        grad.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rule", RULES)
def test_halves_are_computed_in_single(rule, dtype):
    short = {name: x.to(dtype).requires_grad_() for name, x in tensors(rule).items()}
    same = {name: x.detach().float().requires_grad_() for name, x in short.items()}
    y, expected = pt.memory(rule, **short), pt.memory(rule, **same)
    assert y.dtype == dtype and torch.equal(y, expected.to(dtype))
    y.float().sum().backward()
    expected.to(dtype).float().sum().backward()
    assert all(torch.equal(short[n].grad, same[n].grad.to(dtype)) for n in short)


@pytest.mark.parametrize("rule", FIXED)
def test_state_passed_on_equals_one_call(rule):
    given = {name: x.requires_grad_() for name, x in tensors(rule, T=9).items()}
    cut = lambda part: {n: x if n in PARAMETERS else x[:, part] for n, x in given.items()}
    whole, end = pt.memory(rule, **given, output_final_state=True)
    first, state = pt.memory(rule, **cut(slice(0, 4)), output_final_state=True)
    second, last = pt.memory(rule, **cut(slice(4, 9)), initial_state=state, output_final_state=True)
    near(torch.cat((first, second), 1), whole)
    for x, y in zip(listed(last), listed(end)):
        near(x, y)
    loss = lambda y, s: y.cos().sum() + sum(x.sin().sum() for x in listed(s))
    for x, y in zip(torch.autograd.grad(loss(torch.cat((first, second), 1), last), given.values()),
                    torch.autograd.grad(loss(whole, end), given.values())):
        near(x, y, 5e-5)
    state = memory.State(rule, 2, 3, 5, 6, Ip=given["Ip"].detach().numpy() if "Ip" in given else None)
    with torch.no_grad():
        for t in range(9):
            near(pt.step(state, **{n: x if n in PARAMETERS else x[:, t] for n, x in given.items()}), whole[:, t], 2e-5)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("rule", RULES)
def test_packed_equals_separate(rule, kind):
    given = {name: x.requires_grad_() for name, x in tensors(rule, N=1, T=11).items()}
    cu = [0, 4, 5, 11]
    packed = pt.memory(rule, **given, cu_seqlens=torch.tensor(cu, dtype=kind))
    alone = [pt.memory(rule, **{n: x if n in PARAMETERS else x[:, a:b] for n, x in given.items()}) for a, b in zip(cu, cu[1:])]
    assert torch.equal(packed, torch.cat(alone, 1))
    grads = [torch.autograd.grad(y.cos().sum(), given.values()) for y in (packed, torch.cat(alone, 1))]
    for name, x, y in zip(given, *grads):
        near(x, y, 1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_views_give_the_same(rule):
    given = tensors(rule)
    expected = pt.memory(rule, **given)
    wide = {n: torch.cat((x, x), -1)[..., : x.shape[-1]] for n, x in given.items()}  # rows of a wider tensor
    turned = {n: x.transpose(0, 1).contiguous().transpose(0, 1) if n not in PARAMETERS else x for n, x in given.items()}
    for other in (wide, turned):
        other = {n: x.requires_grad_() for n, x in other.items()}
        y = pt.memory(rule, **other)
        assert torch.equal(y, expected)
        plain = {n: x.detach().contiguous().requires_grad_() for n, x in other.items()}
        for a, b in zip(torch.autograd.grad(y.cos().sum(), other.values()),
                        torch.autograd.grad(pt.memory(rule, **plain).cos().sum(), plain.values())):
            assert torch.equal(a, b)


def test_threads_are_those_of_torch():
    given = {name: x.requires_grad_() for name, x in tensors("palimpsa", N=3, T=40, dk=16, dv=16).items()}
    before, made = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y = pt.memory("palimpsa", **given)
        made.append((y, *torch.autograd.grad(y.sin().sum(), given.values())))
    torch.set_num_threads(before)
    from palimpsa._library import _contexts
    assert {1, 2, 3} <= {threads for threads, _ in _contexts}
    assert all(torch.equal(x, y) for other in made[1:] for x, y in zip(made[0], other))


def test_two_python_threads_at_once():
    given = [{n: x.requires_grad_() for n, x in tensors("palimpsa", T=50, dk=16, dv=16, seed=s).items()} for s in (1, 2)]
    run = lambda i: torch.autograd.grad(pt.memory("palimpsa", **given[i]).sin().sum(), given[i].values())
    expected, wrong = [run(0), run(1)], []

    def work(i):
        for _ in range(10):
            if not all(torch.equal(x, y) for x, y in zip(run(i), expected[i])):
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not wrong


def test_named_functions_are_the_rules():
    for rule in RULES:
        given = tensors(rule)
        assert torch.equal(getattr(pt, rule)(**given), pt.memory(rule, **given))


def test_what_is_refused_says_so_in_one_sentence():
    given, gla = tensors("palimpsa"), tensors("gla")
    packed = tensors("gla", N=1, T=14)

    def refused(kind, words, call):
        with pytest.raises(kind, match=re.escape(words)) as why:
            call()
        assert "\n" not in str(why.value)

    run = lambda rule="palimpsa", base=given, **changes: pt.memory(rule, **{**base, **changes})
    refused(ValueError, "there is no memory rule 'elephant'", lambda: run("elephant"))
    refused(TypeError, "q is torch.int64; expected float32", lambda: run(q=given["q"].long()))
    refused(TypeError, "some tensors are float64", lambda: run(q=given["q"].double()))
    refused(TypeError, "q is a ndarray; expected a tensor", lambda: run(q=given["q"].numpy()))
    refused(TypeError, "expected a dense tensor", lambda: run(q=given["q"].to_sparse()))
    refused(ValueError, "k is on device meta; expected cpu", lambda: run(k=given["k"].to("meta")))
    refused(TypeError, "dt is missing", lambda: run(dt=None))
    refused(TypeError, "gla: does not read b", lambda: run("gla", gla, b=given["b"]))
    refused(ValueError, "b is [2, 7, 3, 5]; expected [2, 7, 3, 6]", lambda: run(b=given["b"][..., :5]))
    refused(ValueError, "v has 3 dimensions", lambda: run(v=given["v"][0]))
    refused(ValueError, "2 key heads do not divide 3 heads", lambda: run("gla", {**gla, "q": gla["q"][:, :, :2], "k": gla["k"][:, :, :2]}))
    refused(ValueError, "expected a finite number >= 0", lambda: run(dt=-given["dt"]))
    refused(ValueError, "expected a finite number >= 0", lambda: run(dt=given["dt"] * float("nan")))
    refused(ValueError, "expected a finite number >= 0", lambda: run(base={n: x.double() for n, x in given.items()}, dt=-given["dt"].double()))
    refused(ValueError, "every size must be at least 1", lambda: run("gla", {n: x[:, :0] for n, x in gla.items()}))
    refused(ValueError, "every size must be at least 1", lambda: run("gla", {n: x[:0] for n, x in gla.items()}))
    for cu in ([0, 5, 5, 14], [1, 14], [0, 13], [0, 20, 14], [14], [[0, 14]], [0, 2**40, 14], [0, 2**32 + 14]):
        refused(ValueError, "cu_seqlens", lambda: pt.memory("gla", **packed, cu_seqlens=torch.tensor(cu)))
    refused(ValueError, "cu_seqlens", lambda: pt.memory("gla", **packed, cu_seqlens=torch.tensor([0.0, 14.0], requires_grad=True)))
    refused(ValueError, "cu_seqlens is on device meta", lambda: pt.memory("gla", **packed, cu_seqlens=torch.tensor([0, 14], device="meta")))
    refused(ValueError, "B is 2; expected 1", lambda: run("gla", gla, cu_seqlens=torch.tensor([0, 7])))
    refused(NotImplementedError, "no output variance", lambda: run("gla", gla, return_variance=True))
    refused(TypeError, "scale requires a gradient, and there is none for it", lambda: run(scale=torch.tensor(1.0, requires_grad=True)))
    refused(TypeError, "scale is a str; expected a number", lambda: run(scale="1"))
    refused(ValueError, "scale is not finite", lambda: run(scale=float("nan")))
    S = torch.zeros(2, 3, 5, 6)
    refused(ValueError, "initial_state I, the importance, has numbers that are not finite and above 0", lambda: run(initial_state=(S, S)))
    refused(ValueError, "not finite and above 0", lambda: run(initial_state=(S, S * float("nan"))))
    refused(ValueError, "palimpsa: b of token 0, head 0 is", lambda: run(b=-given["b"]))
    refused(TypeError, "initial_state must be a pair of tensors: mu, I", lambda: run(initial_state=S))
    refused(TypeError, "initial_state must be a tensor: S", lambda: run("gla", gla, initial_state=(S, S)))
    refused(ValueError, "initial_state S is [2, 3, 6, 5]; expected [2, 3, 5, 6]", lambda: run("gla", gla, initial_state=S.mT))
    refused(ValueError, "there is no initial_state", lambda: run("attention", tensors("attention"), initial_state=(S, S)))
    refused(ValueError, "there is no final state", lambda: run("attention", tensors("attention"), output_final_state=True))
    state = memory.State("gla", 2, 3, 5, 6)
    refused(TypeError, "a step has none", lambda: pt.step(state, **{n: x[:, 0].requires_grad_() for n, x in gla.items()}))


def test_nan_stays_in_its_sequence():
    given = tensors("palimpsa")
    clean = pt.memory("palimpsa", **given)
    given["v"][0, 2] = float("nan")
    y = pt.memory("palimpsa", **given)
    assert y[0, 2:].isnan().all() and torch.equal(y[1], clean[1]) and torch.equal(y[0, :2], clean[0, :2])


def test_nothing_is_kept_without_gradients():
    from palimpsa import _torch_ops
    kept, plain = [], _torch_ops._Run.saved_size
    _torch_ops._Run.saved_size = lambda self: kept.append(1) or plain(self)
    try:
        given = {n: x.requires_grad_() for n, x in tensors("gla").items()}
        with torch.no_grad():
            assert not pt.memory("gla", **given).requires_grad and not kept
        assert pt.memory("gla", **given).requires_grad and kept
    finally:
        _torch_ops._Run.saved_size = plain


def test_a_graph_may_be_gone_through_twice():
    given = {n: x.requires_grad_() for n, x in tensors("palimpsa").items()}
    y = pt.memory("palimpsa", **given)
    first, second = (torch.autograd.grad(y.sin().sum(), given.values(), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_what_changed_between_forward_and_backward_is_told():
    given = {n: x.requires_grad_() for n, x in tensors("gla").items()}
    v = given["v"] * 1
    y = pt.memory("gla", **{**given, "v": v})
    v.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_of_torch_recompute_the_same(reentrant):
    from torch.utils.checkpoint import checkpoint
    layer, x = pt.PalimpsaD(16, 2, 8), torch.randn(2, 9, 16, requires_grad=True)
    made = []
    for run in (layer, lambda x: checkpoint(layer, x, use_reentrant=reentrant)):
        layer.zero_grad()
        x.grad = None
        run(x).square().sum().backward()
        made.append([x.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)])
    assert len(made[0]) > 10 and all(torch.equal(a, b) for a, b in zip(*made))


@pytest.mark.parametrize("layer", [pt.PalimpsaD(32, 2, 16), pt.PalimpsaM(32, 16, state_size=8)], ids=["D", "M"])
def test_autocast_is_near(layer):
    x = torch.randn(2, 9, 32, requires_grad=True)
    expected = layer(x)
    (wanted,) = torch.autograd.grad(expected.square().sum(), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    (found,) = torch.autograd.grad(y.float().square().sum(), x)
    assert y.dtype == torch.bfloat16
    near(y, expected, 3e-2)
    near(found, wanted, 6e-2)


def test_only_what_is_asked_for_has_a_gradient():
    given = tensors("palimpsa")
    whole = {n: x.clone().requires_grad_() for n, x in given.items()}
    pt.memory("palimpsa", **whole).sin().sum().backward()
    for name in given:
        one = {n: x.clone().requires_grad_(n == name) for n, x in given.items()}
        pt.memory("palimpsa", **one).sin().sum().backward()
        assert torch.equal(one[name].grad, whole[name].grad) and all(x.grad is None for n, x in one.items() if n != name)
    start = [x.requires_grad_() for x in starts("palimpsa", dtype=torch.float32)]
    pt.memory("palimpsa", **given, initial_state=tuple(start)).sin().sum().backward()
    assert all(x.grad.abs().sum() > 0 for x in start)


def test_lazily_negated_numbers_are_read_as_they_are():
    given = tensors("gla")
    lazy = torch.complex(given["v"], -given["v"]).conj().imag
    assert lazy.is_neg() and torch.equal(pt.memory("gla", **{**given, "v": lazy}), pt.memory("gla", **given))


def test_inference_mode_and_numbers_of_numpy():
    given = tensors("gla")
    expected = pt.memory("gla", **given, scale=0.5)
    with torch.inference_mode():
        assert torch.equal(pt.memory("gla", **given, scale=np.float32(0.5)), expected)


def test_a_layer_is_pickled_with_its_cache():
    import copy
    import pickle
    layer, cache = pt.PalimpsaD(16, 2, 8), pt.LayerCache()
    x = torch.randn(2, 9, 16)
    with torch.no_grad():
        layer(x[:, :5], cache=cache)
        twins = [pickle.loads(pickle.dumps((layer, cache))), copy.deepcopy((layer, cache))]
        for t in range(5, 9):
            y = layer(x[:, t:t + 1], cache=cache)
            assert all(torch.equal(other(x[:, t:t + 1], cache=kept), y) for other, kept in twins)


def test_forward_mode_is_refused_and_not_zero():
    given = tensors("gla")
    run = lambda v: pt.memory("gla", **{**given, "v": v})
    with pytest.raises(NotImplementedError, match="gla: forward-mode derivatives are not offered"):
        torch.func.jvp(run, (given["v"],), (given["v"],))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        run(torch.autograd.forward_ad.make_dual(given["v"], given["v"]))


@pytest.mark.parametrize("rule", ["palimpsa", "gdn"])
def test_a_loop_over_time_in_double_agrees(rule):
    """Next to formulas that are written here once more, in plain torch."""
    given = {n: x.requires_grad_() for n, x in tensors(rule, torch.float64, N=2, T=7, H=4, G=2, dk=5, dv=6).items()}
    q, k = (given[n].repeat_interleave(2, 2) for n in ("q", "k"))
    v, outputs = given["v"], []
    mu = torch.zeros(2, 4, 5, 6, dtype=torch.float64)
    if rule == "palimpsa":
        prior = given["Ip"][:, None, None]
        I = prior.expand_as(mu)
    for t in range(7):
        key, value = k[:, t, :, :, None], v[:, t, :, None]
        if rule == "palimpsa":
            decay = torch.exp(-given["A"] * given["dt"][:, t])[..., None, None]
            b = given["b"][:, t, :, None]
            kept = decay * I + (1 - decay) * prior
            mu, I = decay * (I / (kept + b * key**2)) * mu + key * value / (kept + b * key**2), kept + b * key**2
        else:
            decay, beta = torch.exp(given["g"][:, t])[..., None, None], given["beta"][:, t, :, None, None]
            mu = decay * mu
            mu = mu + beta * key * (value - (key * mu).sum(-2, keepdim=True))
        outputs.append((q[:, t, :, :, None] * mu).sum(-2) * 5**-0.5)
    expected = torch.stack(outputs, 1)
    y = pt.memory(rule, **given)
    near(y, expected, 1e-12)
    for a, b in zip(*(torch.autograd.grad(x.cos().sum(), given.values()) for x in (y, expected))):
        near(a, b, 1e-10)


class Computing(torch.utils.data.Dataset):
    """Every item is a call of ours, with gradients, in a worker that was forked after the parent's threads had worked."""

    def __init__(self, given):
        self.given = given

    def __len__(self):
        return 4

    def __getitem__(self, i):
        given = {n: x.detach().requires_grad_() for n, x in self.given.items()}
        y = pt.memory("palimpsa", **given)
        return y.detach() * i, torch.autograd.grad(y.sin().sum(), given["v"])[0]


def test_workers_of_a_data_loader():
    given = tensors("palimpsa", N=8, T=64, H=8, G=8, dk=16, dv=64)  # large enough for blocks of their own
    given["k"] *= 0.2
    data = Computing(given)
    expected = [data[i] for i in range(4)]
    for start in ("fork", "spawn") if torch.get_num_threads() > 1 else ("fork",):
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=start, timeout=120)
        for (y, grad), (a, b) in zip(loader, expected):
            assert torch.equal(y, a) and torch.equal(grad, b)


def test_large_outputs_lie_in_blocks_that_are_used_again():
    from palimpsa import _blocks
    size = lambda: _blocks.waiting() + sum(len(loan.block) for loan in _blocks._lent.values())
    made = _blocks.empty((1 << 20,), torch.float32)
    made.fill_(7)
    place, view = made.data_ptr(), made[5:9]
    assert place % (2 << 20) == 0
    del made
    other = _blocks.empty((1 << 20,), torch.float32)
    assert other.data_ptr() != place and (view == 7).all()  # a view keeps its block
    del view
    again, held = _blocks.empty((1 << 20,), torch.float32), size()
    assert again.data_ptr() == place
    del again, other
    assert size() == held
    many = [_blocks.empty((4 << 20,), torch.float32) for _ in range(20)]  # 360 MB, of which nothing is touched but the ends
    assert len({x.data_ptr() for x in many}) == 20
    for x in many:
        x[0], x[-1] = 1, 2
    assert all(x[0] == 1 and x[-1] == 2 for x in many)
    many.clear()
    assert _blocks.waiting() <= _blocks.KEPT
    given = {n: x.requires_grad_() for n, x in tensors("gla", N=8, T=64, H=8, G=8, dk=16, dv=64).items()}
    results = []
    for _ in range(3):
        y = pt.memory("gla", **given)
        results.append((y.detach().clone(), torch.autograd.grad(y.sin().sum(), given["v"])[0].clone()))
        places = {y.data_ptr()} if not results[1:] else places | {y.data_ptr()}
        del y
    assert len(places) == 1 and all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))
