# SPDX-License-Identifier: MIT
"""Converting, surgery and evaluation: what they say, how they are stopped, what is refused."""
import math
import shutil

import numpy as np
import pytest

import golden
import palimpsa

MODELS = golden.OPS.parent / "models"
DATA = golden.OPS.parent / "eval" / "data"
TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 8


def stop(done, total):
    return False


def test_converting_keeps_the_model(tmp_path):
    told = []
    done = palimpsa.convert(MODELS / "hybrid_m", tmp_path / "copy", dtype="f32", tokenizer="bytes", progress=lambda *at: told.append(at))
    assert done.tensors > 10 and done.tokenizer and told and told[-1][0] <= told[-1][1]
    with palimpsa.Model.open(MODELS / "hybrid_m", "bytes") as before, palimpsa.Model.open(tmp_path / "copy") as after:
        np.testing.assert_array_equal(before.logits("the same"), after.logits("the same"))
    palimpsa.convert(MODELS / "palimpsa_m", tmp_path / "small.gguf", to="gguf", dtype="q8_0", tokenizer="none")
    with palimpsa.Model.open(MODELS / "palimpsa_m", "bytes") as exact, palimpsa.Model.open(tmp_path / "small.gguf", "bytes") as coarse:
        found, expected = coarse.logits("quantised too"), exact.logits("quantised too")
        assert 0 < np.abs(found - expected).max() < 0.2 * np.abs(expected).max()
    with pytest.raises(palimpsa.Stopped):
        palimpsa.convert(MODELS / "hybrid_m", tmp_path / "stopped", dtype="f32", tokenizer="none", progress=stop)
    assert not (tmp_path / "stopped").exists()
    with pytest.raises(ValueError, match="layout 'onnx'"):
        palimpsa.convert(MODELS / "hybrid_m", tmp_path / "x", to="onnx")
    with pytest.raises(ValueError, match="copy"):
        palimpsa.convert(MODELS / "hybrid_m", tmp_path / "copy", dtype="f32")


def test_surgery_proves_that_nothing_else_changed(tmp_path):
    source = MODELS / "palimpsa_m_wo_meta"
    done = palimpsa.make_metaplastic(source, tmp_path / "hybrid", "top:2", text=TEXT, tokenizer="bytes")
    with palimpsa.Model.open(source, "bytes") as before, palimpsa.Model.open(tmp_path / "hybrid") as after:
        assert sorted(before.windows(TEXT).top(2)) == done.layers
        np.testing.assert_array_equal(before.windows(TEXT).n_t, done.windows.n_t)
        assert [r for r in after.rules].count("palimpsa") == 2 and after.rules[done.layers[0]] == "palimpsa"
    assert done.proof.off <= 1e-5 and done.proof.tokens == 256 and done.proof.loss_before > 0
    by_number = palimpsa.make_metaplastic(source, tmp_path / "other", [1], proof=False, tokenizer="none")
    assert by_number.layers == [1] and by_number.windows is None and by_number.proof is None
    for wrong, sentence in (({"layers": "top:2"}, "needs a text"), ({"layers": "99", "text": TEXT}, "99"),
                            ({"layers": "top:2", "text": "short"}, "5 tokens"), ({"layers": [0], "text": TEXT, "b_scale": (1, 0)}, "b_scale"),
                            ({"layers": [0], "text": TEXT, "dtype": "q8_0"}, "f32, bf16 or f16"),
                            ({"layers": [0], "text": TEXT, "exact": True, "b_scale": (0, 1)}, "exact"),
                            ({"layers": "top:2", "text": TEXT, "progress": stop}, "stopped")):
        with pytest.raises((ValueError, palimpsa.Stopped), match=sentence):
            palimpsa.make_metaplastic(source, tmp_path / "none", tokenizer="bytes", **wrong)
        assert not (tmp_path / "none").exists()


def test_perplexity_is_that_of_the_scores(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    told = []
    with palimpsa.Model.open(MODELS / "hybrid_m", "bytes") as m:
        found = palimpsa.evaluate(m, path, piece=100, progress=lambda *at: told.append(at))
        score = m.score(TEXT)
        assert found.tokens == len(score.ids) and found.nll == pytest.approx(-score.logprob, rel=1e-5)
        assert found.bytes == len(TEXT) and found.documents == 1 and len(told) > 3
        assert found.token_perplexity == pytest.approx(score.perplexity, rel=1e-5)
        assert found.byte_perplexity == pytest.approx(math.exp(found.nll / len(TEXT)))
        assert found.by_position[0][:2] == (1, 2) and found.word_perplexity > found.token_perplexity > 1
        for how, kind, sentence in (({"progress": stop}, palimpsa.Stopped, "stopped"), ({"subset": "half"}, ValueError, "subset 'half'"),
                                    ({"context": -1}, ValueError, "context -1")):
            with pytest.raises(kind, match=sentence):
                palimpsa.evaluate(m, path, **how)
        with pytest.raises(OSError, match="absent"):
            palimpsa.evaluate(m, tmp_path / "absent")
    with pytest.raises(ValueError, match="closed"):
        palimpsa.evaluate(m, path)


def test_tasks():
    names = palimpsa.tasks()
    assert {"piqa", "hellaswag", "lambada_openai", "wikitext"} <= set(names)
    with palimpsa.Model.open(MODELS / "hybrid_m", "bytes") as m:
        told = []
        whole = palimpsa.evaluate_task(m, "piqa", DATA, limit=4, progress=lambda *at: told.append(at))
        assert whole.documents == 4 and 0 <= whole.metrics["acc"].value <= 1 and whole.metrics["acc"].higher_is_better and told
        assert whole._repr_html_().count("<tr>") == 1 + len(whole.metrics)
        halves = [palimpsa.evaluate_task(m, "piqa", DATA, docs=d).metrics["acc"].value for d in ((0, 2), (2, 4))]
        assert sum(halves) / 2 == pytest.approx(whole.metrics["acc"].value)
        with pytest.raises(ValueError, match="did you mean 'piqa'"):
            palimpsa.evaluate_task(m, "piqaa", DATA)
        with pytest.raises(palimpsa.Stopped):
            palimpsa.evaluate_task(m, "piqa", DATA, limit=4, progress=stop)
        with pytest.raises(ValueError, match="documents 3 to 2"):
            palimpsa.evaluate_task(m, "piqa", DATA, docs=(3, 2))
