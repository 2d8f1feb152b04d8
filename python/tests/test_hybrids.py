# SPDX-License-Identifier: MIT
"""Models of several kinds of layers: published families and one trained here, in sessions, files, evaluation and training."""
import json
import sys

import numpy as np
import pytest

import golden
import palimpsa

sys.path.append(str(golden.OPS.parents[1] / "interop"))
import random_families  # noqa: E402

FAMILIES = golden.OPS.parent / "families"
DATA = golden.OPS.parent / "eval" / "data"
TEXT = "It was the best of times, it was the worst of times. " * 8
OURS = "palimpsa-m,attention+mlp,relu2,palimpsa-m+attention"
TRAINED = dict(task="text", tokenizer="bytes", row=64, context=64, batch=2, steps=4, eval_every=2, checkpoint_every=2, lr=1e-3, threads=1)


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    path = tmp_path_factory.mktemp("play") / "play.txt"
    path.write_text(TEXT * 4)
    return path


@pytest.fixture(scope="module")
def ours(tmp_path_factory, play):
    run = tmp_path_factory.mktemp("ours") / "run"
    assert palimpsa.train(run, model=OURS, hidden=32, heads=2, layers=4, data=play, **TRAINED).finished
    return run


@pytest.fixture(scope="module", params=["granite_4_h", "nemotron_h", "ours"])
def model(request):
    path = request.getfixturevalue("ours") if request.param == "ours" else FAMILIES / request.param
    with palimpsa.Model.open(path, "bytes", max_context=512) as made:
        yield made


def continued(session, **options):
    return [t.id for t in session.generate(" And", max_tokens=12, temperature=0, ignore_eos=True, **options)]


@pytest.mark.parametrize("name", ["granite_4_h", "falcon_h1_norm", "nemotron_h", "lfm2", "qwen3_5_published"])
def test_recorded_logits_and_tokens(name):
    expected = golden.read(FAMILIES / name / "expected.safetensors")
    with palimpsa.Model.open(FAMILIES / name, False) as m:
        for ids, logits in zip(expected["input_ids"], expected["logits"]):
            assert golden.nmax(m.logits(ids), logits) <= 1e-4
            assert golden.nmax(m.logits(ids, last=True), logits[-1]) <= 1e-4
        ids = expected["greedy.prompt"].tolist()
        for token in expected["greedy.tokens"]:
            ids.append(int(m.logits(ids, last=True).argmax()))
            assert ids[-1] == token


def test_sessions_fork_roll_back_and_files(model, tmp_path):
    with model.session() as session:
        session.read("It was a dark and stormy night.")
        before = session.fork()
        tokens = continued(session)
        assert continued(before.fork()) == tokens == continued(model.session().read("It was a dark and stormy night."))
        session.roll_back(before)
        assert session.position == before.position == 30 and continued(session) == tokens
        before.save(tmp_path / "night")
        assert continued(model.session(tmp_path / "night")) == tokens
        longer = model.session().read("It was a dark and stormy night. " * 4)
        longer.save(tmp_path / "longer")
        grown = (tmp_path / "longer").stat().st_size - (tmp_path / "night").stat().st_size
        kept = [m for x in model.layers for m in x["mixers"] if m["kind"] == "attention"]
        assert grown == (longer.position - 30) * sum(m["key_heads"] * (m["dk"] + m["dv"]) for m in kept) * 4
        session.reset()
        assert session.position == 0


def test_memories_of_layers_that_attend_have_the_tokens(model):
    session = model.session().read("abcdefgh")
    for i, (rule, layer) in enumerate(zip(model.rules, model.layers)):
        if rule == "none":
            with pytest.raises(ValueError, match=f"layer {i} has no memory"):
                session.parts(i)
            continue
        mixer, parts = layer["mixers"][0], session.parts(i)
        for name, x in parts.items():
            assert x.shape == ((mixer["key_heads"], 7, mixer["dk"]) if rule == "attention" else (mixer["heads"], mixer["dv"], mixer["dk"])) and x.any()
        if rule == "attention":
            before = session.fork()
            longer = before.read("ij").parts(i)
            assert longer["K"].shape[1] == 9
            np.testing.assert_array_equal(longer["K"][:, :7], parts["K"])
            np.testing.assert_array_equal(longer["V"][:, :7], parts["V"])


def test_a_context_that_is_full_ends_the_text(model):
    written = model.generate("a" * 500, max_tokens=100, temperature=0, ignore_eos=True)
    assert len(list(written)) == 13 and written.finish == "context"
    with pytest.raises(ValueError, match="the prompt has 600 tokens after 0, but attention layers hold 512"):
        model.generate("a" * 600)
    assert model.logits("a" * 600, last=True).shape == (model.config["vocab_rows"],)  # takes the room that it needs


def test_scores_evaluation_and_tasks(model, play, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text(TEXT[:200])
    found, score = palimpsa.evaluate(model, short, context=4096), model.score(TEXT[:200])
    assert found.tokens == len(score.ids) == 199 and found.nll == pytest.approx(-score.logprob, rel=1e-5)
    logits = model.logits(TEXT[:200]).astype(np.float64)[:-1]
    logp = logits[np.arange(199), score.ids] - np.log(np.exp(logits).sum(1))
    np.testing.assert_allclose(score.logprobs, logp, atol=1e-4)
    both = model.score_many([(TEXT[:100], " ab"), (TEXT[:100], " cd")])  # what they have in common is read once
    assert [s.logprob for s in both] == pytest.approx([model.score(TEXT[:100], c).logprob for c in (" ab", " cd")], abs=1e-4)
    result = palimpsa.evaluate_task(model, "piqa", DATA, limit=4, context=1024)
    assert result.documents == 4 and 0 <= result.metrics["acc"].value <= 1


def test_observing_gives_a_layer_for_every_layer(model):
    seen = model.observe(TEXT[:50])
    assert [x.rule for x in seen.layers] == model.rules
    for x in seen.layers:
        assert (x.mean is None) == (x.rule in ("attention", "none")) and (x.importance is None) == (x.rule != "palimpsa")
    windows = model.windows(TEXT[:50])
    assert [np.isnan(w) for w in windows.median] == [x.rule in ("attention", "none") for x in seen.layers]
    read = model.attribution(TEXT[:50])
    assert [x.rule for x in read] == [r for r in model.rules if r != "none"] and all(x.error < 1e-5 for x in read)
    assert all(shown._repr_html_().count("<td") for shown in (model, seen, windows))


def test_layers_without_any_memory():
    with palimpsa.Model.open(FAMILIES / "lfm2", "bytes") as m:
        assert m.rules == ["none", "none", "attention", "none", "attention"]
        assert [x.mean for x in m.observe("abc").layers] == [None] * 5
        with pytest.raises(ValueError, match="no layer of this model has a memory that forgets"):
            m.windows("abc")


def test_keys_and_values_in_fewer_bytes(ours, tmp_path):
    logits, sizes = {}, {}
    for kind in ("f32", "f16"):
        with palimpsa.Model.open(FAMILIES / "falcon_h1", "bytes", kv_type=kind) as m:
            assert m.kv_type == kind
            logits[kind] = m.logits(TEXT[:100])
            session = m.session().read(TEXT[:101])
            session.save(tmp_path / kind)
            sizes[kind] = (tmp_path / kind).stat().st_size
            assert continued(m.session(tmp_path / kind)) == continued(session)
    assert abs(sizes["f32"] - sizes["f16"] - 100 * 3 * 2 * (24 + 24) * 2) < 64  # tokens, layers, heads, keys and values
    assert 0 < golden.nmax(logits["f16"], logits["f32"]) < 1e-3
    with palimpsa.Model.open(FAMILIES / "qwen3_5_published", "bytes", kv_type="q8_0") as m:
        assert m.kv_type == "q8_0" and m.session().read("abc").parts(3)["K"].shape == (1, 2, 32)
    for path, kind, sentence in ((FAMILIES / "falcon_h1", "q8_0", "its blocks hold 32 numbers, and a head of layer 0 has 24"),
                                 (ours, "f8", "kv_type is 'f8'; expected one of f32, f16, q8_0")):
        with pytest.raises(ValueError, match=sentence):
            palimpsa.Model.open(path, "bytes", kv_type=kind)
    with palimpsa.Model.open(FAMILIES / "falcon_h1", "bytes") as m, pytest.raises(ValueError, match="F16"):
        m.session(tmp_path / "f16")


def test_training_a_hybrid_resumes_and_leaves_what_is_not_trained(play, ours, tmp_path):
    settings = dict(TRAINED, model=OURS, hidden=32, heads=2, layers=4, data=play)
    assert not palimpsa.train(tmp_path / "parts", **settings, stop_after=3).finished
    assert palimpsa.train(tmp_path / "parts", resume=True, threads=1).finished
    last = "checkpoints/step-4/model.safetensors"
    assert (tmp_path / "parts" / last).read_bytes() == (ours / last).read_bytes()

    done = palimpsa.make_metaplastic(FAMILIES / "granite_4_h", tmp_path / "meta", "top:2", text=TEXT, tokenizer="bytes")
    assert done.proof.off == 0 and len(done.layers) == 2
    tuning = dict(TRAINED, model=tmp_path / "meta", data=play, train_only="importance", tokenizer=None)
    ends = []
    for recompute in (False, True):
        run = palimpsa.train(tmp_path / f"tuned-{recompute}", **tuning, recompute=recompute)
        ends.append((run.directory / last).read_bytes())
        assert json.loads((run.directory / "config.json").read_text())["recompute"] == recompute
    assert ends[0] == ends[1]
    before, after = golden.read(tmp_path / "meta" / "model.safetensors"), golden.read(run.directory / last)
    changed = [name for name in before if (before[name] != after[name]).any()]
    assert changed and all(f".{i}." in name for name in changed for i in done.layers if f".{i}." in name)
    assert not any("embed" in name or "proj.weight" in name and "b_" not in name for name in changed), changed


def small_shapes():
    """Published shapes cut to rows of 256, which all types of blocks fill."""
    shapes = random_families.SHAPES
    heads = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}
    qwen = random_families.cut(shapes["qwen3.5-0.8b"], 4, 512)
    qwen["text_config"] |= {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2,
                            "linear_num_value_heads": 4}
    return {
        "lfm2": shapes["lfm2.5-1.2b"] | heads | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "intermediate_size": 768, "block_ff_dim": 768},
        "nemotron": shapes["nemotron-3-nano-4b"] | heads | {"num_hidden_layers": 6, "hybrid_override_pattern": "M-M*-M", "head_dim": 64, "intermediate_size": 512,
                                                            "mamba_num_heads": 8, "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2},
        "qwen": qwen,
    }


@pytest.mark.parametrize("name", ["lfm2", "nemotron", "qwen"])
def test_quantised_files_compute_what_their_numbers_say(name, tmp_path, monkeypatch):
    monkeypatch.setattr(random_families, "SHAPES", small_shapes())
    random_families.make(tmp_path / name, name, dtype="f32")
    ids, logits = np.random.default_rng(3).integers(0, 512, 48), {}

    def read(path):
        with palimpsa.Model.open(path, False) as m:
            return m.logits(ids).astype(np.float64)

    exact = read(tmp_path / name)
    for dtype, near in (("q8_0", 0.998), ("q4_k", 0.8)):
        file, back = tmp_path / f"{dtype}.gguf", tmp_path / dtype
        assert palimpsa.convert(tmp_path / name, file, to="gguf", dtype=dtype, tokenizer="none").finer == 0
        palimpsa.convert(file, back, to="hf", dtype="f32", tokenizer="none")
        logits[dtype] = found = read(file)
        assert 0 < golden.nmax(found, read(back)) < 1e-3  # products of blocks round activations to 16 bits
        assert (found * exact).sum() / np.linalg.norm(found) / np.linalg.norm(exact) > near
    assert golden.nmax(logits["q8_0"], exact) < golden.nmax(logits["q4_k"], exact)
