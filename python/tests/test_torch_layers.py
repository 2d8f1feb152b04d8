# SPDX-License-Identifier: MIT
"""Layers in torch against recorded models, and the examples that use them."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F
from torch import nn

import golden
import palimpsa
import palimpsa.torch as pt

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
MODELS = golden.OPS.parent / "models"
near = lambda x, y, bound=1e-5: golden.nmax(x.detach().double().numpy(), y.detach().double().numpy()) <= bound


class Mqar(nn.Module):
    def __init__(self, config):
        super().__init__()
        m, E = config["sequence_mixer"], config["d_model"]
        common = dict(metaplasticity=m.get("metaplasticity", True), beta_step_rank=m["beta_step_rank"], norm_eps=config["block_norm_eps"])
        if config["block_type"] == "PalimpsaBlock":
            make = lambda: pt.PalimpsaD(E, m["num_heads"], m["head_dim"], expand_v=m["expand_v"], **common)
        else:
            make = lambda: pt.PalimpsaM(E, m["head_dim"], state_size=m["state_size"], n_groups=m["n_groups"], expand=m["expand"], use_bias=True,
                                        use_conv_bias=False, **common)
        self.layers = nn.ModuleList(nn.ModuleDict({"norm": nn.RMSNorm(E, eps=1e-5), "mixer": make()}) for _ in range(config["n_layers"]))
        self.embeddings = nn.ModuleDict({"word_embeddings": nn.Embedding(config["vocab_size"], E)})
        self.ln_f = nn.LayerNorm(E, eps=1e-5)

    def forward(self, ids):
        words = self.embeddings["word_embeddings"]
        hidden = [words(ids)]
        for layer in self.layers:
            hidden.append(hidden[-1] + layer["mixer"](layer["norm"](hidden[-1])))
        return F.linear(self.ln_f(hidden[-1]), words.weight), hidden


def load(name):
    model = Mqar(json.loads((MODELS / name / "config.json").read_text()))
    weights = golden.read(MODELS / name / "model.safetensors")
    model.load_state_dict({n.removeprefix("backbone."): torch.from_numpy(x.copy()) for n, x in weights.items()})
    return model, golden.read(MODELS / name / "expected.safetensors")


@pytest.mark.parametrize("name", ["mqar_palimpsa_d", "mqar_palimpsa_d_wo_meta", "mqar_palimpsa_m", "mqar_palimpsa_m_wo_meta"])
def test_recorded_models(name):
    model, expected = load(name)
    logits, hidden = model(torch.from_numpy(expected["input_ids"].copy()))
    for i, h in enumerate(hidden):
        assert golden.nmax(h.detach().numpy(), expected[f"hidden.{i}"]) <= 2e-5
    assert golden.nmax(logits.detach().numpy(), expected["logits"]) <= 2e-5
    loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(expected["labels"].copy()).flatten())
    assert abs(loss.item() / expected["loss"][0] - 1) <= 5e-6
    loss.backward()
    compared = 0
    for n, p in model.named_parameters():
        recorded = expected.get(f"grad.backbone.{n}")
        if p.requires_grad and recorded is not None:
            compared += 1
            assert golden.nmax(p.grad.numpy(), recorded) <= 1e-4, n
        elif not p.requires_grad:
            assert n.endswith("Ip_log") or (name.endswith("wo_meta") and ".b_" in n), n
    assert compared > 20


LAYERS = {"D": lambda **o: pt.PalimpsaD(24, 3, 8, expand_v=2, **o), "M": lambda **o: pt.PalimpsaM(24, 16, state_size=8, **o),
          "M in groups": lambda **o: pt.PalimpsaM(24, 8, state_size=4, n_groups=2, norm_groups=2, time_step_limit=(0.01, 0.05), **o)}
for rule in [rule for rule in palimpsa.memory.rules() if rule not in ("palimpsa", "attention")]:
    LAYERS[f"D {rule}"] = lambda rule=rule, **o: pt.PalimpsaD(24, 3, 8, rule=rule, **o)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["single", "double", "bfloat16"])
@pytest.mark.parametrize("kind", LAYERS)
def test_pieces_with_a_cache_equal_one_call(kind, dtype):
    torch.manual_seed(3)
    layer = LAYERS[kind](initializer_range=0.2).to(dtype)
    x = torch.randn(2, 12, 24).to(dtype)
    bound = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}[dtype]
    whole = layer(x)
    cache = pt.LayerCache()
    parts = []
    for begin, end in ((0, 1), (1, 6), (6, 7), (7, 8), (8, 12)):
        with torch.set_grad_enabled(begin == 7):  # a step with gradients takes another way
            parts.append(layer(x[:, begin:end], cache=cache))
    assert near(torch.cat(parts, 1), whole, bound)
    cache.select(torch.tensor([1, 1, 0]))
    more = torch.randn(3, 2, 24).to(dtype)
    again = layer(torch.cat((x[[1, 1, 0]], more), 1))[:, 12:]
    with torch.no_grad():
        assert near(torch.cat([layer(more[:, t:t + 1], cache=cache) for t in range(2)], 1), again, bound)


@pytest.mark.parametrize("kind", LAYERS)
def test_packed_equals_separate(kind):
    torch.manual_seed(4)
    layer = LAYERS[kind](initializer_range=0.2)
    x, cu = torch.randn(1, 12, 24, requires_grad=True), [0, 1, 6, 8, 12]
    first, second = pt.LayerCache(), pt.LayerCache()
    packed = layer(x, cu_seqlens=torch.tensor(cu), cache=first)
    alone = torch.cat([layer(x[:, a:b]) for a, b in zip(cu, cu[1:])], 1)
    assert near(packed, alone)
    assert near(*(torch.autograd.grad(y.cos().sum(), x)[0] for y in (packed, alone)), 5e-5)
    # continued from what the cache holds: packed again, and as a batch
    more = torch.randn(4, 3, 24)
    whole = torch.cat([layer(torch.cat((x[0, a:b], m))[None])[:, b - a:] for a, b, m in zip(cu, cu[1:], more)], 0)
    layer(x, cu_seqlens=torch.tensor(cu), cache=second)
    assert near(layer(more, cache=second), whole, 2e-5)
    assert near(layer(more.reshape(1, 12, 24), cu_seqlens=torch.arange(0, 13, 3), cache=first).reshape(4, 3, 24), whole, 2e-5)


def test_initial_values():
    torch.manual_seed(5)
    layer = pt.PalimpsaM(64, 16, rescale_layers=4, finetuning=True)
    assert 0 < layer.A_log.exp().min() and layer.A_log.exp().max() <= 16
    dt = F.softplus(layer.dt_bias)
    assert 0.0009 < dt.min() and dt.max() < 0.11
    assert (layer.D == 1).all() and (layer.Ip_log == 0).all() and not layer.Ip_log.requires_grad
    assert 0.1 <= layer.b_scale.min() and layer.b_scale.max() <= 1
    assert layer.out_proj.weight.abs().max() <= 128**-0.5 / 2 and layer.b_proj.weight.abs().max() <= 0.5
    assert abs(layer.in_proj.weight.std() - 0.02) < 0.001 and (layer.conv1d.bias == 0).all() and (layer.norm.weight == 1).all()
    plain = pt.PalimpsaD(32, 2, 16, metaplasticity=False)
    assert plain.rule == "gla" and not plain.b_proj.weight.requires_grad
    assert not hasattr(pt.PalimpsaD(32, 2, 16, rule="delta"), "A_log")
    with pytest.raises(ValueError, match="rule is 'attention'; expected one of"):
        pt.PalimpsaD(32, 2, 16, rule="attention")
    with pytest.raises(ValueError, match="head_dim 7 must divide 64"):
        pt.PalimpsaM(32, 7)


def test_what_is_refused_says_so():
    layer, x, cache = pt.PalimpsaD(16, 2, 8), torch.randn(1, 6, 16), pt.LayerCache()
    with torch.no_grad():
        layer(torch.randn(2, 3, 16), cache=cache)

    def refused(words, call):
        with pytest.raises(ValueError, match=re.escape(words)) as why:
            call()
        assert "\n" not in str(why.value)

    refused("x is [6, 16]; expected [B, T, 16]", lambda: layer(x[0]))
    refused("x is [1, 6, 15]; expected [B, T, 16]", lambda: pt.PalimpsaD(16, 2, 8)(x[..., :15]))
    refused("every size must be at least 1", lambda: layer(x[:, :0]))
    for cu in ([0, 3, 5], [0, 4, 3, 6], [0, 4, 2**40], [1, 6], [0, 3, 3, 6]):
        refused("cu_seqlens must increase from 0 to the number of tokens, 6", lambda: layer(x, cu_seqlens=torch.tensor(cu)))
    for cu in ([0, 6], torch.tensor([0.0, 6.0])):
        refused("cu_seqlens must be a tensor of int32 or int64", lambda: layer(x, cu_seqlens=cu))
    refused("with cu_seqlens, B is 2; expected 1", lambda: layer(torch.randn(2, 6, 16), cu_seqlens=torch.tensor([0, 6])))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            refused("the cache holds 2 sequences; expected 3", lambda: layer(torch.randn(3, 1, 16), cache=cache))
            refused("the cache holds 2 sequences; expected 3", lambda: layer(x, cu_seqlens=torch.tensor([0, 1, 2, 6]), cache=cache))
    refused("num_heads is 0; expected at least 1", lambda: pt.PalimpsaD(16, 0, 8))
    refused("conv_size is 0; expected at least 1", lambda: pt.PalimpsaD(16, 2, 8, conv_size=0))
    refused("keys is 0.8; expected at least 1", lambda: pt.PalimpsaD(16, 2, 8, expand_k=0.1))
    refused("head_dim is 0; expected at least 1", lambda: pt.PalimpsaM(16, 0))
    for rank in (0, "x", 1.5):
        refused(f"beta_step_rank is {rank!r}; expected 'auto' or a whole number", lambda: pt.PalimpsaD(16, 2, 8, beta_step_rank=rank))


def run_example(name, *arguments):
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # so small that threads would only wait for each other
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recall_example_learns(tmp_path):
    out = run_example("recall.py", "--steps", "160", "--pairs", "2", "--tokens", "16", "--batch", "32", "--width", "32", "--out", str(tmp_path / "model"))
    assert float(out.split("accuracy ")[-1]) > 0.9
    assert {p.name for p in (tmp_path / "model").iterdir()} == {"config.json", "pytorch_model.bin"}


def test_the_example_that_checks_a_kernel_agrees():
    assert run_example("check_kernel.py").endswith("own agrees with ours\n")
