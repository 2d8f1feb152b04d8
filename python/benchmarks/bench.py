# SPDX-License-Identifier: MIT
"""Speed of the package: memory rules through torch next to a loop in eager torch and the library alone, the overhead of one step, and
generation next to the program's.

    python benchmarks/bench.py --program ../build/palimpsa --model DIR --json numbers.json

What is compared is measured in turns, in one process; medians count. `library` is the same work on buffers that stay, without torch;
`program` is what `palimpsa bench memory` prints. Keep the machine otherwise idle.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
from check_kernel import own

import palimpsa
import palimpsa.torch as pt
from palimpsa import _torch_ops, memory

ORDER = ("q", "k", "v", "b", "dt", "A", "Ip")


def inputs(B, T, H, K, V):
    """As `palimpsa bench memory` has them: keys of length about one, decays of trained models."""
    g = torch.Generator().manual_seed(11)
    u = lambda low, high, *shape: low + (high - low) * torch.rand(*shape, generator=g)
    unit = (3 / K) ** 0.5
    return {"q": u(-unit, unit, B, T, H, K), "k": u(-unit, unit, B, T, H, K), "v": u(-1, 1, B, T, H, V), "b": u(0, 1, B, T, H, V),
            "dt": u(0.001, 0.1, B, T, H), "A": u(0.5, 1, H), "Ip": u(0.9, 1.1, H)}


def library(given, dy):
    """Forward and backward by the library on buffers that stay."""
    run = _torch_ops._Run("palimpsa", {**dict.fromkeys(_torch_ops.ROWS + _torch_ops.PARAMETERS), **given}, None, given["k"].shape[3] ** -0.5, 0.0)
    native, c = run.native, run.run
    y, saved = torch.empty_like(given["v"]), torch.empty(run.saved_size())
    run.view(c.y, y)
    run.view(c.dy, dy)
    c.saved = native.address(run.keep(saved))
    for name, x in given.items():
        made = run.keep(torch.zeros_like(x))
        if name in _torch_ops.PARAMETERS:
            setattr(c.grad, name, native.address(made))
        else:
            run.view(getattr(c.grad, name), made)
    cx, err, shape = native.context(), native.ffi.new("pal_error *"), native.ffi.addressof(c, "shape")
    size = max(native.lib.pal_memory_scratch_bytes(run.found, cx, shape, kind) for kind in (native.lib.PAL_FORWARD, native.lib.PAL_BACKWARD))
    scratch = run.keep(torch.empty(size + 64, dtype=torch.uint8))
    c.scratch = native.ffi.cast("void *", (scratch.data_ptr() + 63) // 64 * 64)

    def forward():
        native.check(native.lib.pal_memory_forward(run.found, cx, c, err), err)

    def both():
        forward()
        native.check(native.lib.pal_memory_backward(run.found, cx, c, err), err)

    return forward, both


def measure(turns, seconds):
    """Median seconds of each function, called in turns."""
    times = {name: [] for name in turns}
    for name, f in turns.items():
        f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 3:
        for name, f in turns.items():
            begin = time.perf_counter()
            f()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(t) for name, t in times.items()}


def through_torch(B, T, H, K, V, seconds):
    given = inputs(B, T, H, K, V)
    dy = torch.rand(B, T, H, V) * 2 - 1
    leaves = {n: x.clone().requires_grad_() for n, x in given.items()}
    start = (torch.zeros(B, H, K, V), given["Ip"][:, None, None].expand(B, H, K, V))
    mine = lambda x: pt.palimpsa(**x)
    loop = lambda x: own(*(x[n] for n in ORDER), scale=K**-0.5, initial_state=start)[0]
    assert torch.allclose(mine(given), loop(given), atol=1e-4)
    train = lambda f: lambda: torch.autograd.grad(f(leaves), list(leaves.values()), dy)
    raw_forward, raw_both = library(given, dy)
    shape, tokens = f"B{B} T{T} H{H} Dk{K} Dv{V}", B * T
    rows = []
    for what, turns in (("forward", {"torch": lambda: mine(given), "library": raw_forward}), ("forward+backward", {"torch": train(mine), "library": raw_both})):
        found = measure(turns, seconds)
        slow = measure({"loop": (lambda: loop(given)) if what == "forward" else train(loop)}, seconds / 3)
        for name, s in {**found, **slow}.items():
            rows.append({"name": f"palimpsa.{what}", "shape": shape, "variant": name, "threads": torch.get_num_threads(), "ns": s * 1e9,
                         "tokens_per_s": tokens / s})
    return rows


def step_overhead():
    """One step of the smallest memory: what a call costs."""
    given = {n: x[:, 0] if x.ndim > 1 else x for n, x in inputs(1, 1, 1, 1, 1).items()}
    arrays = {n: x.numpy() for n, x in given.items()}
    state, out = memory.State("palimpsa", 1, 1, 1, 1, Ip=arrays["Ip"]), np.empty((1, 1, 1), np.float32)
    several = lambda f: lambda: [f() for _ in range(1000)]
    found = measure({"NumPy": several(lambda: memory.step(state, **arrays, out=out, threads=1)), "torch": several(lambda: pt.step(state, **given))}, 2)
    return [{"name": "palimpsa.step", "shape": "B1 H1 Dk1 Dv1", "variant": name, "threads": 1, "ns": s * 1e6} for name, s in found.items()]


def program_rows(program, threads):
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "bench.json"
        subprocess.run([program, "bench", "memory", "--rule", "palimpsa", "--threads", str(threads), "--json", str(file)], check=True,
                       stdout=subprocess.DEVNULL)
        rows = json.loads(file.read_text())
    wanted = [r for r in rows if r["shape"] == "B32 T128 H8 Dk16 Dv32" and r["threads"] == threads and r["name"] in ("palimpsa.forward", "palimpsa.forward+backward")]
    return [{"name": r["name"], "shape": r["shape"], "variant": "program", "threads": threads, "ns": r["ns"], "tokens_per_s": 32 * 128 / r["ns"] * 1e9}
            for r in wanted]


def generation(program, model, tokenizer, threads, tokens, turns):
    """Tokens a second after the first, in turns. Both say each token's probability and variance; or, plain, Python the probability alone
    and the program neither."""
    options = ["--prompt", "Once", "--max-tokens", str(tokens), "--ignore-eos", "--threads", str(threads), "--json"]
    options += ["--tokenizer", tokenizer] if tokenizer else []

    def by_program(*more):
        done = subprocess.run([program, "generate", model, *options, *more], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["tokens_per_s"]

    def by_python(opened):
        written = opened.generate("Once", max_tokens=tokens, ignore_eos=True)
        next(written)
        begin = time.perf_counter()
        return sum(1 for _ in written) / (time.perf_counter() - begin)

    whole, plain = (palimpsa.Model.open(model, tokenizer, threads=threads, variance=v) for v in (True, False))
    kinds = {("generate", "python"): lambda: by_python(whole), ("generate", "program"): lambda: by_program("--uncertainty"),
             ("generate plain", "python"): lambda: by_python(plain), ("generate plain", "program"): lambda: by_program()}
    found = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, run in kinds.items():
            found[kind].append(run())
    speeds = {kind: statistics.median(x) for kind, x in found.items()}
    return [{"name": name, "shape": f"{whole.parameters} parameters", "variant": variant, "threads": threads, "ns": 1e9 / speed,
             "tokens_per_s": speed} for (name, variant), speed in speeds.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", help="the palimpsa program, to measure next to")
    parser.add_argument("--model", help="with --program: measure generation too, with this model")
    parser.add_argument("--tokenizer", help="of the model, where none lies with it")
    parser.add_argument("--tokens", type=int, default=100, help="that are generated")
    parser.add_argument("--turns", type=int, default=5, help="of generation")
    parser.add_argument("--only", choices=("torch", "step", "generate"), help="measure nothing else")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6, help="for each comparison")
    parser.add_argument("--json", help="also write every result to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"palimpsa {palimpsa.version()}, torch {torch.__version__}, {args.threads} threads")
    wanted = lambda what: args.only in (None, what)
    rows = []
    if wanted("torch"):
        program = lambda: program_rows(args.program, args.threads) if args.program else []
        before, ours, after = program(), through_torch(32, 128, 8, 16, 32, args.seconds), program()
        for r, later in zip(before, after):  # another process cannot take turns call by call
            r["ns"] = (r["ns"] + later["ns"]) / 2
            r["tokens_per_s"] = 32 * 128 / r["ns"] * 1e9
        rows = before + ours + through_torch(4, 2048, 8, 16, 32, args.seconds)
    rows += step_overhead() if wanted("step") else []
    if args.program and args.model and wanted("generate"):
        rows += generation(args.program, args.model, args.tokenizer, args.threads, args.tokens, args.turns)
    speed = {(r["name"], r["shape"], r["variant"]): r.get("tokens_per_s") for r in rows}
    for r in rows:
        line = f"{r['name']:26}{r['shape']:24}{r['variant']:10}{r['ns'] / 1000:12.1f} us"
        if "tokens_per_s" in r:
            line += f"{r['tokens_per_s']:12.0f} tokens/s"
        if r["variant"] in ("torch", "python") and "tokens_per_s" in r:
            for other in ("loop", "library", "program"):
                base = speed.get((r["name"], r["shape"], other))
                line += f"  {r['tokens_per_s'] / base:.2f}x {other}" if base else ""
        print(line)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
