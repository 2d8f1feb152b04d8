# SPDX-License-Identifier: MIT
"""Records float64 numbers of memory rules from their authors' own plain implementations, for `palimpsa selftest`.

    pip download --no-deps fla-core==0.6.0 && unzip fla_core-*.whl -d fla-core       # flash-linear-attention
    python3 record_rules.py --fla fla-core --kla KLA --kdn KDN --mamba MAMBA ../golden/ops

KLA, KDN and MAMBA are checkouts of vaisakh-shaj/kalman-linear-attention, ngocbh/kalman-delta-networks and state-spaces/mamba; rules of a
source that is not given are left out. Mamba-3 is written here from the equations of its paper (arXiv 2603.15569), and compared with the
reference in MAMBA's tests. The authors' functions compute in float32: their files are read with float64 in its place. Where an
author's recurrent and chunked form differ, the form that the fused kernel has is recorded. Both differences and what is
recorded are printed. It needs torch and einops.
"""
import argparse
import json
import math
import pathlib
import struct
import types
import typing
import zlib

import torch

torch.set_default_dtype(torch.float64)
PER_HEAD, PER_KEY, PER_PAIR, PER_VALUE = "head", "key", "pair", "value"
# name: width, lowest and highest number; None: normal
ROWS = {"q": (PER_KEY, None), "k": (PER_KEY, None), "v": (PER_VALUE, None), "b": (PER_VALUE, (0.05, 2)), "beta": (PER_HEAD, (0, 1)),
        "g": (PER_HEAD, (-0.7, 0)), "gk": (PER_KEY, (-0.7, 0)), "p": (PER_KEY, None), "erase": (PER_KEY, (0, 1)), "write": (PER_VALUE, (0, 1)),
        "gp": (PER_HEAD, (-0.7, 0)), "betap": (PER_HEAD, (0, 1)), "noise": (PER_HEAD, (0.01, 0.5)), "noisek": (PER_KEY, (0.01, 0.5)),
        "r": (PER_HEAD, (0.3, 1)), "lag": (PER_HEAD, (0.3, 1)), "turn": (PER_PAIR, (-0.8, 0.8))}
PARAMETERS = {"Ip": (0.5, 2), "keep": (0.5, 1), "drift": (0.01, 0.3)}


def load(path):
    """A module from its file alone, with float64 where it says float32."""
    text = path.read_text().replace("torch.float32", "torch.float64").replace(".float()", ".double()")
    for end in ",)":
        text = text.replace("torch.float" + end, "torch.float64" + end)
    module = types.ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def turned(S):
    """Between [1, H, K, V] and our [1, H, V, K]."""
    return None if S is None else S.transpose(-1, -2)


def fla_rules(folder):
    """name: (inputs, parts, function, other forms of it). A function gets inputs of one sequence and initial parts or None."""
    files = {name: load(folder / "fla" / "ops" / path / "naive.py") for name, path in {
        "kda": "kda", "comba": "comba", "gdn2": "gdn2", "pkda": "precond_kda", "gdn": "gated_delta_rule",
        "dplr": "generalized_delta_rule/dplr"}.items()}

    def simple(function, *names):
        def run(x, s, scale):
            y, S = function(*(x[name] for name in names), scale=scale, initial_state=turned(s[0]), output_final_state=True)
            return y, [turned(S)]
        return run

    def pkda(x, s, scale):
        y, S, A = files["pkda"].naive_recurrent_precond_kda(x["q"], x["k"], x["v"], x["gk"], x["gp"], x["betap"], x["beta"], scale, turned(s[0]),
                                                            s[1], True)
        return y, [turned(S), A]

    def rwkv7(function):
        def run(x, s, scale):  # heads before tokens; queries are divided by the root of K there
            q, k, v, p, erase, gk = (x[name].transpose(1, 2) for name in ("q", "k", "v", "p", "erase", "gk"))
            y, S = function(q * (scale * k.shape[-1] ** 0.5), k, v, -p, erase, gk, initial_state=turned(s[0]))
            return y.transpose(1, 2), [turned(S)]
        return run

    kda, comba, gdn2, gdn, dplr = (files[name] for name in ("kda", "comba", "gdn2", "gdn", "dplr"))
    return {
        "kda": ("q k v gk beta", "S", simple(kda.naive_recurrent_kda, "q", "k", "v", "gk", "beta"), {}),
        "gdn2": ("q k v gk erase write", "S", simple(gdn2.naive_recurrent_gdn2, "q", "k", "v", "gk", "erase", "write"),
                 {"chunked": simple(gdn2.naive_chunk_gdn2, "q", "k", "v", "gk", "erase", "write")}),
        "comba": ("q k v g beta p", "S", simple(lambda *a, **k: comba.naive_chunk_comba(*a, chunk_size=16, **k), "q", "k", "v", "p", "g", "beta"),
                  {"recurrent": simple(comba.naive_recurrent_comba, "q", "k", "v", "p", "beta", "g")}),
        "rwkv7": ("q k v gk p erase", "S", rwkv7(dplr.dplr_recurrence), {}),
        "pkda": ("q k v gk beta gp betap", "S A", pkda, {}),
        "gdn": ("q k v g beta", "S", simple(gdn.naive_recurrent_gated_delta_rule, "q", "k", "v", "beta", "g"),
                {"chunked": simple(gdn.naive_chunk_gated_delta_rule, "q", "k", "v", "g", "beta")}),
    }


def kdn_rules(folder):
    def rule(path, function, noise):
        function = getattr(load(folder / "lit_gpt" / "kdn_ops" / path), function)

        def run(x, s, scale):
            precision = 1 / s[1] if s[1] is not None else x["Ip"][None]  # theirs; ours is the variance
            if s[1] is None and noise == "noisek":
                precision = precision[..., None].expand(1, *x["k"].shape[2:])
            S = turned(s[0]) if s[0] is not None else torch.zeros(1, *x["k"].shape[2:], x["v"].shape[3])
            y, (S, precision) = function(x["q"], x["k"], x["v"], x["gk"].exp(), x[noise], x["r"], scale=scale, initial_memory=S,
                                         initial_precision=precision, output_final_state=True)
            return y, [turned(S), 1 / precision]
        return run
    return {"kdn": ("q k v gk noisek r Ip", "S var", rule("diag_kdn_naive.py", "naive_recurrent_diag_kdn", "noisek"), {}),
            "kdn_iso": ("q k v gk noise r Ip", "S var", rule("iso_kdn_naive.py", "naive_recurrent_iso_kdn", "noise"), {})}


def kla_rules(folder):
    # their scan of other backends is imported by this file, and not needed
    text = (folder / "src" / "kla" / "ops" / "kla_ops.py").read_text().replace("from kla.ops.scan import", "#")
    ops = types.ModuleType("kla_ops")
    exec(compile(text, "kla_ops.py", "exec"), ops.__dict__)

    def run(x, s, scale):  # heads stand side by side: one call for each
        y, y_var, mu, I = [], [], [], []
        for h in range(x["k"].shape[2]):
            prior = x["Ip"][h] * torch.ones(1, x["v"].shape[3], x["k"].shape[3])
            state = ops.KLAState(s[1][:, h], s[0][:, h] * s[1][:, h]) if s[0] is not None else ops.KLAState(prior, 0 * prior)
            one, variance, state = ops.kla_scan_reference(x["v"][:, :, h], x["b"][:, :, h], x["k"][:, :, h], scale * x["q"][:, :, h], x["keep"][h].T,
                                                          x["drift"][h].T, state)
            for to, value in ((y, one), (y_var, variance), (mu, state.eta / state.lam), (I, state.lam)):
                to.append(value)
        return torch.stack(y, 2), [torch.stack(mu, 1), torch.stack(I, 1)], torch.stack(y_var, 2)
    return {"kla": ("q k v b Ip keep drift", "mu I", run, {})}


def turned_by(x, angle):
    """Channels 2p and 2p+1 of [..., K] turned by angle[..., p]; an odd last channel stays."""
    pairs = x.shape[-1] // 2
    first, second, c, s = x[..., 0:2 * pairs:2], x[..., 1:2 * pairs:2], angle[..., :pairs].cos(), angle[..., :pairs].sin()
    both = torch.stack((c * first - s * second, s * first + c * second), -1).flatten(-2)
    return torch.cat((both, x[..., 2 * pairs:]), -1)


def mamba3_rules(folder):
    """The recurrence of the paper: angles add up, keys and queries turn by their sum, and the state never turns. With dt, lambda and A of
    the paper, g = A dt, beta = lambda dt and lag = (1 - lambda) dt. A state counts its angle from its last token: it is turned back."""
    def run(x, s, scale):
        H, K, V = x["k"].shape[2], x["k"].shape[3], x["v"].shape[3]
        S = s[0] if s[0] is not None else torch.zeros(1, H, V, K)
        last = s[1] if s[1] is not None else torch.zeros(1, H, K + V)
        last_k, last_v, angle, y = last[..., :K], last[..., K:], torch.zeros(1, H, (K + 1) // 2), []
        for t in range(x["q"].shape[1]):
            angle = angle + x["turn"][:, t]
            q, k, v = turned_by(x["q"][:, t], angle), turned_by(x["k"][:, t], angle), x["v"][:, t]
            alpha, beta, lag = x["g"][:, t, :, None, None].exp(), x["beta"][:, t, :, None, None], x["lag"][:, t, :, None, None]
            S = alpha * S + lag * alpha * last_v[..., None] * last_k[..., None, :] + beta * v[..., None] * k[..., None, :]
            y.append(scale * (S * q[..., None, :]).sum(-1))
            last_k, last_v = k, v
        return torch.stack(y, 1), [turned_by(S, -angle[:, :, None]), torch.cat((turned_by(last_k, -angle), last_v), -1)]

    def theirs(x, s, scale):
        text = (folder / "tests" / "ops" / "triton" / "test_mamba3_siso.py").read_text()
        text = text[text.index("def mamba3_siso_step_ref"):text.index("def mamba3_siso_fwd_ref")].replace("torch.float32", "torch.float64")
        space = {"torch": torch, "F": torch.nn.functional, "math": math, "Optional": typing.Optional, "Tuple": typing.Tuple}
        exec(text, space)
        H, K = x["k"].shape[2:]
        dt, pairs, even = x["beta"] + x["lag"], K // 2, lambda z: torch.nn.functional.pad(z, (0, K % 2))  # an odd last channel gets a neighbour
        states = None if s[0] is None else (torch.zeros(1, H, pairs), even(s[0]), even(s[1][..., :K]), s[1][..., K:])
        y, (angle, S, k, v) = space["mamba3_siso_step_ref"](
            scale * even(x["q"]), even(x["k"]), x["v"], x["g"].mT, dt.mT, (x["beta"] / x["lag"]).log().mT, torch.zeros(H, K + K % 2),
            torch.zeros(H, K + K % 2), (x["turn"][..., :pairs] / (math.pi * dt[..., None])).atanh(), Input_States=states)
        return y, [turned_by(S[..., :K], -angle[:, :, None]), torch.cat((turned_by(k[..., :K], -angle), v), -1)]
    return {"mamba3": ("q k v g beta lag turn", "S last", run, {"step": theirs} if folder else {})}


def make(inputs, parts, T, B, H, dk, dv, cu, initial, seed):
    """Inputs as float32 numbers: keys of about unit length, positive second parts."""
    rng = torch.Generator().manual_seed(seed)
    uniform = lambda shape, low, high: low + (high - low) * torch.rand(shape, generator=rng)
    x = {}
    for name in inputs.split():
        if name in PARAMETERS:
            x[name] = uniform((H,) if name == "Ip" else (H, dk, dv), *PARAMETERS[name])
            continue
        width, limits = ROWS[name]
        shape = (B, T, H) + {PER_HEAD: (), PER_KEY: (dk,), PER_PAIR: ((dk + 1) // 2,), PER_VALUE: (dv,)}[width]
        x[name] = torch.randn(shape, generator=rng) if limits is None else uniform(shape, *limits)
        if name in "kp":
            x[name] *= uniform((B, T, H, 1), 0.6, 1.2) / x[name].norm(dim=-1, keepdim=True)
    sequences = len(cu) - 1 if cu else B
    shapes = {"S": (H, dv, dk), "mu": (H, dv, dk), "I": (H, dv, dk), "A": (H, dk), "var": (H, dk), "last": (H, dk + dv)}
    if "noise" in x:
        shapes["var"] = (H,)
    normal = lambda shape: torch.randn(shape, generator=rng)
    given = {f"{part}0": normal((sequences, *shapes[part])) if part in ("S", "mu", "last") else uniform((sequences, *shapes[part]), 0.2, 2.2)
             for part in parts.split()} if initial else {}
    above = {f"d{part}_T": normal((sequences, *shapes[part])) for part in parts.split()} if initial else {}
    above["dy"] = normal((B, T, H, dv))
    if "keep" in x:
        above["dy_var"] = normal((B, T, H, dv))
    return [{name: value.float().double() for name, value in group.items()} for group in (x, given, above)]


def run(function, x, given, parts, cu, scale):
    """y, final parts and y_var of all sequences."""
    batch, made = x["q"].shape[0], []
    bounds = [(0, a, b) for a, b in zip(cu, cu[1:])] if cu else [(n, 0, x["q"].shape[1]) for n in range(batch)]
    for n, (row, a, b) in enumerate(bounds):
        one = {name: value if name in PARAMETERS else value[row:row + 1, a:b] for name, value in x.items()}
        made.append(function(one, [given[f"{part}0"][n:n + 1] if given else None for part in parts.split()] + [None], scale))
    join = lambda values: torch.cat(values, 1) if cu else torch.cat(values)
    finals = [torch.cat([m[1][p] for m in made]) for p in range(len(parts.split()))]
    return join([m[0] for m in made]), finals, join([m[2] for m in made]) if len(made[0]) > 2 else None


def record(name, rule, case, source, folder):
    inputs, parts, function, others = rule
    cu = case.get("cu")
    x, given, above = make(inputs, parts, case["T"], case["B"], case["H"], case["dk"], case["dv"], cu, case["initial"], case["seed"])
    scale = float(torch.tensor(case["dk"] ** -0.5).float())
    for value in (*x.values(), *given.values()):
        value.requires_grad_(True)
    y, finals, y_var = run(function, x, given, parts, cu, scale)
    for form, other in others.items():
        with torch.no_grad():
            difference = (run(other, x, given, parts, cu, scale)[0] - y).abs().max() / y.abs().max()
        print(f"{name}: {case['name']}: its {form} form differs by {difference:.2g} of the largest output")
    loss = (y * above["dy"]).sum()
    loss = loss + (y_var * above["dy_var"]).sum() if y_var is not None else loss
    loss = loss + sum((S * above[f"d{part}_T"]).sum() for part, S in zip(parts.split(), finals) if case["initial"])
    loss.backward()
    tensors = {f"in.{key}": value.detach().float() for group in (x, given, above) for key, value in group.items()}
    tensors["in.scale"] = torch.tensor([scale]).float()
    if cu:
        tensors["in.cu_seqlens"] = torch.tensor(cu)
    tensors |= {"out.y": y} | {f"out.{part}_T": S for part, S in zip(parts.split(), finals)} | ({"out.y_var": y_var} if y_var is not None else {})
    tensors |= {f"grad.{key}": value.grad if value.grad is not None else torch.zeros_like(value) for group in (x, given) for key, value in group.items()}
    header, data = {"__metadata__": {"op": name, "case": f"{name}_{case['name']}", "source": source, "torch": torch.__version__}}, b""
    for key, value in tensors.items():
        raw = value.detach().contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}[value.dtype]
        header[key] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / f"{name}_{case['name']}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(f"{name}_{case['name']}: {len(text) + len(data)} bytes from {source}")


def main():
    parser = argparse.ArgumentParser()
    for source in ("fla", "kla", "kdn", "mamba"):
        parser.add_argument(f"--{source}", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    found = {}
    if arguments.fla:
        version = next((line.split(": ")[1] for path in arguments.fla.glob("*.dist-info/METADATA") for line in path.read_text().split("\n")
                        if line.startswith("Version: ")), "from a checkout")
        found |= {name: (rule, f"fla-core {version}") for name, rule in fla_rules(arguments.fla).items()}
    if arguments.kla:
        found |= {name: (rule, "kalman-linear-attention cb2a550") for name, rule in kla_rules(arguments.kla).items()}
    if arguments.kdn:
        found |= {name: (rule, "kalman-delta-networks 60aca3a") for name, rule in kdn_rules(arguments.kdn).items()}
    found |= {name: (rule, "arXiv 2603.15569, equations") for name, rule in mamba3_rules(arguments.mamba).items()}
    cases = [dict(name="init", B=2, T=13, H=2, dk=8, dv=6, initial=True),
             dict(name="packed", B=1, T=45, H=2, dk=5, dv=7, initial=False, cu=[0, 1, 4, 9, 45])]
    for name, (rule, source) in found.items():
        for case in cases:
            changes = {"seed": zlib.crc32(name.encode()), "name": case["name"] if name != "gdn" else f"fla_{case['name']}"}
            record(name, rule, case | changes, source, arguments.folder)


if __name__ == "__main__":
    main()
