# SPDX-License-Identifier: MIT
"""The memory rules through NumPy: recorded numbers, one call against many, and what is refused."""
import copy
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

import golden
import palimpsa
from palimpsa import memory

FIXED = [r for r in memory.rules() if r != "attention"]


def make(rule, N=2, T=7, H=3, G=3, dk=5, dv=6, seed=0, packed=False):
    """Random inputs with gates in their ranges."""
    r = np.random.default_rng(seed)
    lead = (N * T,) if packed else (N, T)
    f = lambda *shape: r.standard_normal(shape, np.float32)
    attends = rule == "attention"
    all_of = {"q": f(*lead, H if attends else G, dk), "k": f(*lead, G, dk) * np.float32(dk**-0.5), "v": f(*lead, G if attends else H, dv),
              "b": np.abs(f(*lead, H, dv)), "beta": 1 / (1 + np.exp(-f(*lead, H))), "dt": np.abs(f(*lead, H)), "g": -np.abs(f(*lead, H)),
              "A": np.abs(f(H)), "Ip": 0.5 + np.abs(f(H)), "lam": 0.5 + np.abs(f(H, dk))}
    own, gate = (*lead, H, dk), lambda *shape: 1 / (1 + np.exp(-f(*shape)))
    all_of |= {"gk": -np.abs(f(*own)), "p": f(*own) * np.float32(dk**-0.5), "erase": gate(*own), "write": gate(*lead, H, dv),
               "gp": -np.abs(f(*lead, H)), "betap": gate(*lead, H), "noise": 0.1 * np.abs(f(*lead, H)), "noisek": 0.1 * np.abs(f(*own)),
               "r": 0.3 + np.abs(f(*lead, H)), "keep": 0.5 + gate(H, dk, dv) / 2, "drift": 0.1 * np.abs(f(H, dk, dv)), "lag": gate(*lead, H),
               "turn": f(*lead, H, (dk + 1) // 2)}
    return {name: np.ascontiguousarray(all_of[name], np.float32) for name in memory.inputs(rule)}


def rows(given, choose):
    return {name: x if name in memory.PARAMETERS else np.ascontiguousarray(choose(x)) for name, x in given.items()}


def near(x, y, bound=1e-5):
    assert golden.nmax(x, np.asarray(y, np.float64)) <= bound


def tolerance(rule, name, length):
    if name.startswith("out."):
        bound = 2e-5 if rule == "palimpsa" else 5e-6
    elif rule == "palimpsa" and name == "grad.A":
        bound = 3e-4
    elif rule == "palimpsa" and name in ("grad.dt", "grad.Ip"):
        bound = 5e-5
    else:
        bound = 1e-5
    return bound + length * 2.0**-24


@pytest.mark.parametrize("path", golden.cases(), ids=lambda p: p.stem)
def test_recorded_numbers(path):
    rule, case = golden.rule_of(path), golden.read(path)
    given = golden.inputs(rule, case)
    cu = case.get("in.cu_seqlens")
    scale = float(case["in.scale"].reshape(-1)[0])
    N = len(cu) - 1 if cu is not None else given["v"].shape[0]
    longest = int(np.diff(cu).max()) if cu is not None else given["v"].shape[1]
    state = None
    blank = memory.State(rule, N, given["v"].shape[-2], given["k"].shape[-1], given["v"].shape[-1], Ip=given.get("Ip"))
    names = blank.part_names
    if f"in.{names[0]}0" in case:
        state = blank
        shapes = {n: x.shape for n, x in blank.parts.items()}
        state.set_parts(**{n: golden.single(case[f"in.{n}0"]).reshape(shapes[n]) for n in names})
    made = memory.forward(rule, **given, scale=scale, cu_seqlens=cu, initial_state=state, output_final_state=True, return_variance=memory.has_variance(rule),
                          return_tape=True)
    y, final, tape = made[0], made[-2], made[-1]
    found = {"out.y": y, **{f"out.{n}_T": x for n, x in final.parts.items()}}
    if memory.has_variance(rule):
        found["out.y_var"] = made[1]
    dy = golden.single(case["in.dy"]).reshape(y.shape) if "in.dy" in case else np.zeros_like(y)
    dvariance = golden.single(case["in.dy_var"]).reshape(y.shape) if "in.dy_var" in case else None
    dfinal = {n: golden.single(case[f"in.d{n}_T"]).reshape(x.shape) for n, x in final.parts.items() if f"in.d{n}_T" in case}
    for name, x in memory.backward(tape, dy, dvariance=dvariance, dfinal=dfinal).items():
        recorded = "beta" if rule == "longhorn" and name == "b" else name
        found["grad." + (recorded[8:] + "0" if recorded.startswith("initial.") else recorded)] = x
    compared = 0
    for name, x in found.items():
        if name in case:
            compared += 1
            assert golden.nmax(x, case[name]) <= tolerance(rule, name, longest), name
    assert compared >= 4  # outputs and gradients


@pytest.mark.parametrize("rule", memory.rules())
def test_split_equals_whole_and_steps(rule):
    given = make(rule, T=9)
    context = {"context": 9} if rule == "attention" else {}
    whole, final = memory.forward(rule, **given, output_final_state=True)
    state = memory.State(rule, 2, 3, 5, 6, Ip=given.get("Ip"), **context)
    y = np.empty_like(whole)
    for t in range(4):
        out = np.empty((2, 3, 6), np.float32)
        assert memory.step(state, **rows(given, lambda x: x[:, t]), out=out) is out
        y[:, t] = out
    before = state.parts
    rest, end = memory.forward(rule, **rows(given, lambda x: x[:, 4:]), initial_state=state, output_final_state=True)
    y[:, 4:] = rest
    near(y, whole)
    for name, x in final.parts.items():
        near(end.parts[name], x)
        assert (state.parts[name] == before[name]).all()  # an initial state stays as it is


@pytest.mark.parametrize("rule", memory.rules())
def test_packed_equals_separate(rule):
    given = make(rule, N=1, T=11, packed=True)
    cu = [0, 4, 5, 11]
    packed = memory.forward(rule, **given, cu_seqlens=np.array(cu, np.int64))
    for begin, end in zip(cu, cu[1:]):
        alone = memory.forward(rule, **rows(given, lambda x: x[None, begin:end]))
        assert (alone[0] == packed[begin:end]).all()


@pytest.mark.parametrize("rule", memory.rules())
def test_views_are_read_where_they_are(rule):
    given = make(rule)
    plain = memory.forward(rule, **given)
    wide = {}
    for name, x in given.items():
        if name in memory.PARAMETERS:
            wide[name] = x
            continue
        channels = int(np.prod(x.shape[2:]))
        fused = np.full((*x.shape[:2], channels + 3), np.nan, np.float32)  # columns of a wider matrix
        fused[..., 1 : channels + 1] = x.reshape(*x.shape[:2], channels)
        wide[name] = fused[..., 1 : channels + 1].reshape(x.shape) if x.ndim == 3 else np.lib.stride_tricks.as_strided(
            fused[..., 1:], x.shape, (*fused.strides[:2], 4 * x.shape[3], 4))
        assert memory._row_stride(wide[name], 2) == channels + 3
    assert (memory.forward(rule, **wide) == plain).all()
    turned = {n: x if n in memory.PARAMETERS else np.ascontiguousarray(np.swapaxes(x, 0, 1)).swapaxes(0, 1) for n, x in given.items()}
    assert memory._row_stride(turned["k"], 2) == 0  # has to be copied
    assert (memory.forward(rule, **turned) == plain).all()


@pytest.mark.parametrize("rule", FIXED)
def test_gradients_by_differences(rule):
    given = make(rule, N=1, T=4, H=2, G=2, dk=3, dv=2, seed=3)
    state = memory.State(rule, 1, 2, 3, 2, Ip=given.get("Ip"))
    r = np.random.default_rng(5)
    parts = {}
    for name, x in state.parts.items():
        start = r.standard_normal(x.shape, np.float32) * np.float32(0.1)
        if rule == "mesa" and name == "H":
            start = start @ start.swapaxes(-1, -2)  # symmetric
        parts[name] = x + (0.1 + np.abs(start) if name in ("I", "A", "var") else start)
    state.set_parts(**parts)
    y, final, tape = memory.forward(rule, **given, initial_state=state, output_final_state=True, return_tape=True)
    dy = r.standard_normal(y.shape, np.float32)
    dfinal = {n: r.standard_normal(x.shape, np.float32) for n, x in final.parts.items()}
    if rule == "mesa":
        dfinal["H"] = dfinal["H"] + dfinal["H"].swapaxes(-1, -2)
    grads = memory.backward(tape, dy, dfinal=dfinal)
    again = memory.backward(tape, dy, dfinal=dfinal)
    assert all((grads[n] == again[n]).all() for n in grads)

    def loss(inputs, start):
        at = memory.State(rule, 1, 2, 3, 2, Ip=inputs.get("Ip"))
        at.set_parts(**start)
        out, end = memory.forward(rule, **inputs, initial_state=at, output_final_state=True)
        return float((out * dy).sum(dtype=np.float64)) + sum(float((end.parts[n] * d).sum(dtype=np.float64)) for n, d in dfinal.items())

    for name, gradient in grads.items():
        of_state = name.startswith("initial.")
        source = parts[name[8:]] if of_state else given[name]
        direction = np.random.default_rng(7).standard_normal(source.shape, np.float32)
        if rule == "mesa" and name == "initial.H":
            direction = direction + direction.swapaxes(-1, -2)
        values = []
        for sign in (1, -1):
            moved = source + np.float32(sign * 2e-3) * direction
            values.append(loss(given, {**parts, name[8:]: moved}) if of_state else loss({**given, name: moved}, parts))
        expected = (values[0] - values[1]) / 4e-3
        found = float((gradient * direction).sum(dtype=np.float64))
        assert abs(found - expected) <= 2e-2 * max(1.0, abs(expected)), (name, found, expected)


def test_threads_give_the_same_bits():
    given = make("palimpsa", N=3, T=40, dk=16, dv=16)
    assert (memory.forward("palimpsa", **given, threads=1) == memory.forward("palimpsa", **given, threads=3)).all()
    before = palimpsa.get_threads()
    palimpsa.set_threads(2)
    assert palimpsa.get_threads() == 2
    palimpsa.set_threads(before)
    with pytest.raises(ValueError):
        palimpsa.set_threads(-1)


def test_two_python_threads_at_once():
    given = [make("gdn", T=60, dk=16, dv=16, seed=s) for s in (1, 2)]
    expected = [memory.forward("gdn", **x) for x in given]
    wrong = []

    def work(i):
        for _ in range(20):
            if not (memory.forward("gdn", **given[i]) == expected[i]).all():
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not wrong


def test_states_are_saved_copied_and_reset(tmp_path):
    for rule in memory.rules():
        given = make(rule, T=5)
        _, state = memory.forward(rule, **given, output_final_state=True)
        state.save(tmp_path / "state.npz")
        loaded, copy = memory.State.load(tmp_path / "state.npz"), state.copy()
        assert os.listdir(tmp_path) == ["state.npz"]
        state.reset()
        for name in copy.part_names:
            near(loaded.parts[name], copy.parts[name], 1e-6)
        assert (loaded.past == copy.past).all() and not state.past.any()
        if rule != "attention":
            token = rows(given, lambda x: x[:, 0])
            near(memory.step(loaded, **token), memory.step(copy, **token), 1e-6)
    (tmp_path / "broken.npz").write_bytes((tmp_path / "state.npz").read_bytes()[:100])
    with pytest.raises(Exception, match="broken.npz|not a zip"):
        memory.State.load(tmp_path / "broken.npz")
    np.savez(tmp_path / "huge.npz", rule=np.array("gla"), sizes=np.array([1 << 20] * 5 + [0]), past=np.zeros(1, np.int32), part_S=np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="huge.npz: not a saved state"):
        memory.State.load(tmp_path / "huge.npz")
    with zipfile.ZipFile(tmp_path / "state.npz") as whole, zipfile.ZipFile(tmp_path / "vast.npz", "w") as vast:
        for name in whole.namelist():  # a part whose header asks for more memory than there is
            data = whole.read(name)
            vast.writestr(name, data if not name.startswith("part_") else np.lib.format.magic(1, 0) + struct.pack("<H", 118) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (9007199254740992,)}".ljust(117) + b"\n")
    with pytest.raises(ValueError, match="vast.npz: not a saved state"):
        memory.State.load(tmp_path / "vast.npz")


def test_what_is_refused_says_so_in_one_sentence():
    given = make("palimpsa")
    gla = make("gla")
    state = memory.State("palimpsa", 2, 3, 5, 6, Ip=given["Ip"])

    def refused(kind, words, call):
        with pytest.raises(kind, match=re.escape(words)) as why:
            call()
        assert "\n" not in str(why.value)

    run = lambda rule="palimpsa", base=given, **changes: memory.forward(rule, **{**base, **changes})
    refused(ValueError, "there is no memory rule 'elephant'", lambda: run("elephant"))
    refused(TypeError, "q is a float64 array; expected a float32 array", lambda: run(q=given["q"].astype(np.float64)))
    refused(TypeError, "q is a list", lambda: run(q=given["q"].tolist()))
    refused(TypeError, "dt is missing", lambda: run(dt=None))
    refused(TypeError, "gla: does not read b", lambda: run("gla", gla, b=given["b"]))
    refused(ValueError, "b is [2, 7, 3, 5]; expected [2, 7, 3, 6]", lambda: run(b=given["b"][..., :5]))
    refused(ValueError, "dimensions", lambda: run(v=given["v"][0]))
    refused(ValueError, "expected a finite number >= 0", lambda: run(dt=-given["dt"]))
    refused(ValueError, "expected a finite number >= 0", lambda: run(dt=given["dt"] * np.float32(np.nan)))
    for b in -given["b"], given["b"] * np.float32(np.nan):
        refused(ValueError, "palimpsa: b of token 0, head 0 is", lambda: run(b=b))
    refused(ValueError, "longhorn: b of token 0, head 0 is", lambda: run("longhorn", make("longhorn"), b=-make("longhorn")["b"]))
    for wrong in 0, -1, np.nan, np.inf:
        refused(ValueError, "I, the importance, has numbers that are not finite and above 0", lambda: state.set_parts(mu=state.parts["mu"], I=state.parts["I"] * np.float32(wrong)))
    for rule in memory.rules():
        for cut in (np.s_[:0], np.s_[:, :0]):
            refused(ValueError, "every size must be at least 1", lambda: run(rule, rows(make(rule), lambda x: x[cut]), return_tape=True))
    packed = make("gla", packed=True)
    for cu in ([0, 5, 5, 14], [1, 14], [0, 13], [0, 20, 14], [14], [0.0, 14.0], [[0, 14]]):
        refused(ValueError, "cu_seqlens", lambda: memory.forward("gla", **packed, cu_seqlens=cu))
        refused(ValueError, "cu_seqlens", lambda: memory.forward("gla", **packed, cu_seqlens=cu, output_final_state=True))
    refused(NotImplementedError, "no output variance", lambda: run("gla", gla, return_variance=True))
    refused(ValueError, "the state is of rule", lambda: run("gla", gla, initial_state=state))
    refused(ValueError, "a state needs Ip", lambda: memory.State("palimpsa", 1, 1, 1, 1))
    refused(ValueError, "positive", lambda: memory.State("palimpsa", 1, 1, 1, 1, Ip=[0.0]))
    refused(ValueError, "sequences is 0", lambda: memory.State("gla", 0, 1, 1, 1))
    refused(ValueError, "context", lambda: memory.State("attention", 1, 1, 1, 1))
    refused(ValueError, "expected mu, I", lambda: state.set_parts(mu=state.parts["mu"]))
    refused(ValueError, "mu is float64", lambda: state.set_parts(mu=state.parts["mu"].astype(float), I=state.parts["I"]))
    token = rows(given, lambda x: x[:, 0])
    refused(ValueError, "v is [2, 3, 5]; expected [2, 3, 6]", lambda: memory.step(state, **{**token, "v": token["v"][..., :5]}))
    refused(ValueError, "out must be", lambda: memory.step(state, **token, out=np.empty((2, 3, 12), np.float32)[..., ::2]))
    refused(TypeError, "dt is missing", lambda: memory.step(state, **{**token, "dt": None}))
    cache = memory.State("attention", 1, 1, 2, 2, context=1)
    one = {n: np.ones((1, 1, 2), np.float32) for n in "qkv"}
    memory.step(cache, **one)
    refused(ValueError, "its state holds 1", lambda: memory.step(cache, **one))
    y, tape = memory.forward("gla", **gla, return_tape=True)
    refused(ValueError, "dy is", lambda: memory.backward(tape, y[:, :1]))
    refused(ValueError, "has no part X", lambda: memory.backward(tape, y, dfinal={"X": y}))


def test_nan_stays_in_its_sequence():
    given = make("palimpsa")
    clean = memory.forward("palimpsa", **given)
    given["v"][0, 2] = np.nan
    y = memory.forward("palimpsa", **given)
    assert np.isnan(y[0, 2:]).all() and (y[1] == clean[1]).all() and (y[0, :2] == clean[0, :2]).all()


def test_a_forked_child_works_with_one_thread():
    given = make("gla", N=4, T=64, dk=32, dv=32)
    expected = memory.forward("gla", **given, threads=2)  # OpenMP's threads exist now
    child = os.fork()
    if child == 0:
        same = (memory.forward("gla", **given, threads=2) == expected).all()
        os._exit(0 if same and palimpsa.get_threads() == 1 else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        threading.Event().wait(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def run_python(code, **environment):
    kept = {n: x for n, x in os.environ.items() if n not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**kept, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_waiting_threads_do_not_spin_for_long():
    show = "import palimpsa, os; print('GOMP_SPINCOUNT' in os.environ)"
    out = run_python(show, OMP_DISPLAY_ENV="VERBOSE")
    assert "GOMP_SPINCOUNT = '3000'" in out and "False" in out  # and the environment is as it was
    assert "GOMP_SPINCOUNT = '77'" in run_python(show, OMP_DISPLAY_ENV="VERBOSE", GOMP_SPINCOUNT="77")


def test_the_package_is_light():
    out = run_python("import palimpsa, sys; print(*sys.modules)")
    assert "torch" not in out.split()
    maps = run_python("import palimpsa; print(open('/proc/self/maps').read())")
    assert "libgomp" in maps and not any(name in maps for name in ("libcairo", "libX11", "microhttpd"))


def test_versions_agree():
    pyproject = (pathlib.Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    assert f'version = "{palimpsa.__version__}"' in pyproject and palimpsa.version().startswith(palimpsa.__version__)
    assert memory.summary("gla") and len(memory.rules()) == 17


def test_the_lines_of_the_documentation_run(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "memory.forward" in block), names)
    assert names["state"].parts["I"].shape == (2, 4, 32, 16) and names["y1"].shape == (2, 4, 32)
    assert set(names["grads"]) == set(memory.inputs("palimpsa")) and (tmp_path / "memory.npz").exists()


def test_states_select_their_sequences():
    _, state = memory.forward("palimpsa", **make("palimpsa", N=3), output_final_state=True)
    picked, twin = state.select([2, 0, 2]), copy.deepcopy(state)
    assert all((picked.parts[n] == x[[2, 0, 2]]).all() for n, x in state.parts.items())
    state.reset()
    assert not (twin.parts["mu"] == state.parts["mu"]).all()
    for wrong in ([], [3], [-1], [0.5], [[0]]):
        with pytest.raises(ValueError, match="sequences must be numbers from 0 to 2"):
            state.select(wrong)


def test_the_reference_in_double_has_the_same_rules():
    from palimpsa import _native64 as double
    names = [double.ffi.string(double.lib.pal_memory_name(double.lib.pal_memory_at(i))).decode() for i in range(len(memory.rules()))]
    assert names == memory.rules()
    assert double.ffi.typeof("pal_memory_inputs").fields[-1][1].type is double.ffi.typeof("double")


@pytest.mark.parametrize("rule", memory.rules())
def test_states_are_pickled(rule):
    _, state = memory.forward(rule, **make(rule), output_final_state=True)
    twin = pickle.loads(pickle.dumps(state))
    assert repr(twin) == repr(state) and (twin.past == state.past).all()
    assert all((twin.parts[n] == x).all() for n, x in state.parts.items())
    if rule != "attention":
        token = rows(make(rule, seed=3), lambda x: x[:, 0])
        assert (memory.step(twin, **token) == memory.step(state, **token)).all()


def test_what_lies_askew_in_memory_is_copied():
    given = make("gla")
    expected = memory.forward("gla", **given)
    askew = {}
    for name, x in given.items():
        raw = np.zeros(x.nbytes + 1, np.uint8)
        askew[name] = raw[1:].view(np.float32).reshape(x.shape)
        askew[name][:] = x
        assert not askew[name].flags.aligned and askew[name].flags.c_contiguous
    taken = memory._Inputs("gla", {**dict.fromkeys(memory._BITS), **askew}, 2)
    assert all(x.flags.aligned for x in taken.arrays.values())
    assert (memory.forward("gla", **askew) == expected).all()
    backwards = {n: x[::-1] for n, x in given.items()}
    assert (memory.forward("gla", **backwards) == expected[::-1]).all()
    for x in given.values():
        x.flags.writeable = False
    assert (memory.forward("gla", **given) == expected).all()


def test_bounds_of_any_kind():
    packed = {n: x.reshape(-1, *x.shape[2:]) for n, x in make("gla").items()}
    expected = memory.forward("gla", **packed, cu_seqlens=np.array([0, 5, 14], np.int32))
    for kind in (list, tuple, np.uint8, np.int16, np.uint64, ">i4"):
        cu = kind([0, 5, 14]) if kind in (list, tuple) else np.array([0, 5, 14], kind)
        assert (memory.forward("gla", **packed, cu_seqlens=cu) == expected).all()
    assert (memory.forward("gla", **packed, cu_seqlens=np.array([0, 9, 5, 9, 14, 9])[::2]) == expected).all()
    for cu in ([-(2**63), 14], [0, 2**63 - 1], np.array([0, 2**64 - 1], np.uint64), [0.0, 14.0], [True, False], "ab", None, [0, 5, 5, 14]):
        with pytest.raises((ValueError, TypeError)):
            memory.forward("gla", **packed, cu_seqlens=cu)


def test_files_that_hold_no_state(tmp_path, monkeypatch):
    state = memory.State("gla", 1, 1, 2, 2)
    state.save(tmp_path / "good.npz")
    assert oct((tmp_path / "good.npz").stat().st_mode)[-3:] == oct(0o666 & ~umask())[-3:] and os.listdir(tmp_path) == ["good.npz"]
    whole = (tmp_path / "good.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.zeros(3))
    sizes = np.array([1, 1, 1, 1, 1, 1 << 26])
    np.savez(tmp_path / "huge.npz", rule=np.array("attention"), sizes=sizes, past=np.zeros(1), part_K=np.zeros(1), part_V=np.zeros(1))
    for name, content in (("cut", whole[:200]), ("text", b"no state"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(palimpsa.state, "aligned", lambda shape: pytest.fail(f"memory for {shape} was taken"))
    for name in ("cut", "text", "empty", "array.npy", "huge.npz"):
        with pytest.raises(ValueError, match=f"{name}: not a saved state"):
            memory.State.load(tmp_path / name)


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("rule", [rule for rule in memory.rules() if rule != "attention"])
def test_a_step_does_not_write_where_it_reads(rule):
    """Several rules would read what they had just written."""
    given = make(rule, dk=6, dv=6)
    token = rows(given, lambda x: np.ascontiguousarray(x[:, 0]))
    state = memory.State(rule, 2, 3, 6, 6, Ip=given.get("Ip"))
    before = state.parts
    wide = np.zeros((3, 3, 6), np.float32)
    for name in ("q", "k", "v"):
        with pytest.raises(ValueError, match=f"{rule}: out overlaps with another array"):
            memory.step(state, **token, out=token[name])
        wide[:2] = token[name]
        with pytest.raises(ValueError, match="overlaps"):
            memory.step(state, **{**token, name: wide[:2]}, out=wide[1:])
    if memory.has_variance(rule):
        with pytest.raises(ValueError, match="variance overlaps"):
            memory.step(state, **token, out=wide[:2], variance=wide[:2])
    raw = np.zeros(wide[:2].nbytes + 1, np.uint8)
    with pytest.raises(ValueError, match="out must be a writable, aligned, contiguous array"):
        memory.step(state, **token, out=raw[1:].view(np.float32).reshape(2, 3, 6))
    assert all((x == before[n]).all() for n, x in state.parts.items())
    token["v"] = wide[:2]
    expected = memory.step(state.copy(), **token)
    assert (memory.step(state, **token, out=np.empty((2, 3, 6), np.float32)) == expected).all()


def test_things_that_are_none():
    given = make("palimpsa")

    def refused(kind, words, call):
        with pytest.raises(kind, match=re.escape(words)) as why:
            call()
        assert "\n" not in str(why.value)

    forward = lambda **changes: memory.forward("palimpsa", **{**given, **changes})
    refused(TypeError, "palimpsa: initial_state is a dict; expected a palimpsa.memory.State", lambda: forward(initial_state={}))
    refused(TypeError, "step expects a palimpsa.memory.State; found a NoneType", lambda: memory.step(None, **given))
    for tape in (None, memory.Tape()):
        refused(TypeError, "backward expects the tape of forward(..., return_tape=True)", lambda: memory.backward(tape, given["v"]))
    for threads in (-1, 1025, 2**40, 1.5, "two"):
        refused(ValueError, f"threads is {threads!r}; expected a whole number", lambda: forward(threads=threads))
        refused(ValueError, f"threads is {threads!r}; expected a whole number", lambda: palimpsa.set_threads(threads))
    refused(TypeError, "palimpsa: scale is 'x'; expected a number", lambda: forward(scale="x"))
    nothing = {n: x if n in ("A", "Ip") else x[:0] for n, x in given.items()}
    refused(ValueError, "there is no sequence; expected at least one", lambda: memory.forward("palimpsa", **nothing, output_final_state=True))
    flat = np.zeros((1, 2, 1, 0), np.float32)
    refused(ValueError, "every size must be at least 1", lambda: memory.forward("delta", flat, flat, flat, beta=np.ones((1, 2, 1), np.float32)))
    for size in (0, -1, 1.5, 2**31):
        refused(ValueError, f"gla: heads is {size!r}; expected a whole number from 1", lambda: memory.State("gla", 1, size, 1, 1))
    state = memory.State("palimpsa", 1, 1, 1, 1, Ip=np.ones(1))
    one = np.ones((1, 1, 1, 1), np.float32)
    for wrong in (-1, np.nan, np.inf):
        refused(ValueError, "I, the importance, has numbers that are not finite and above 0", lambda: state.set_parts(mu=one, I=one * np.float32(wrong)))
    state = memory.State("kdn", 1, 1, 1, 1, Ip=np.ones(1))
    refused(ValueError, "kdn: var, the variance, has numbers that are not finite and at least 0", lambda: state.set_parts(S=one, var=-one[0]))
