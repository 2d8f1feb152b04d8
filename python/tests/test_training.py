# SPDX-License-Identifier: MIT
"""Training through the library: runs that the program would make, stopping, resuming, and what is refused."""
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import palimpsa

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PALIMPSA_PROGRAM") or shutil.which("palimpsa") or str(ROOT / "build" / "palimpsa")
SMALL = dict(model="palimpsa-d", hidden=32, layers=1, heads=2, head_dim=16, lr=1e-3)
RECALL = dict(SMALL, seq_len=16, kv_pairs=2, vocab=64, batch=8, steps=8, examples=64, test_examples=8, eval_every=4, checkpoint_every=4)


@pytest.fixture
def play(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("To be, or not to be, that is the question.\n" * 40)
    return path


def text_settings(play):
    return dict(SMALL, task="text", data=play, tokenizer="chars", row=64, context=64, batch=2, steps=8, eval_every=4, checkpoint_every=4)


def weights(run):
    return (run / "checkpoints" / "step-8" / "model.safetensors").read_bytes()


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, play):
    told, settings = [], text_settings(play)
    whole = palimpsa.train(tmp_path / "whole", **settings, threads=1, progress=told.append)
    assert whole.finished and whole.step == 8 and whole.tokens == 8 * 2 * 64 and whole.directory == tmp_path / "whole"
    assert [p.step for p in told] == list(range(1, 9)) and {p.total for p in told} == {8} and told[-1].rate > 0
    assert [p.evaluated for p in told] == [False] * 3 + [True] + [False] * 3 + [True]
    assert math.isnan(told[0].score) and told[-1].score == whole.score == whole.best_score < 0 and whole.loss < told[0].loss
    part = palimpsa.train(tmp_path / "parts", **settings, threads=1, stop_after=3)
    assert not part.finished and part.step == 3
    with pytest.raises(palimpsa.Stopped):
        palimpsa.train(tmp_path / "parts", resume=True, threads=1, progress=lambda p: p.step < 6)
    rest = palimpsa.train(tmp_path / "parts", resume=True, threads=1)
    assert rest.finished and rest.step == 8 and rest.score == whole.score
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    again = palimpsa.train(tmp_path / "parts", resume=True, threads=1)
    assert again.finished and again.step == 8 and again.score == whole.score and again.tokens == whole.tokens  # nothing was left to do
    with palimpsa.Model.open(whole.directory) as model:
        assert len(model.generate("To", max_tokens=5).all()) == 5


@pytest.mark.skipif(not os.path.exists(PROGRAM), reason="no palimpsa program: PALIMPSA_PROGRAM names it")
def test_the_program_makes_the_same_run(tmp_path):
    palimpsa.train(tmp_path / "python", **RECALL, threads=1)
    options = [word for name, value in RECALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    run = lambda *more: subprocess.run([PROGRAM, "train", *options, "--threads", "1", "--out", tmp_path / "program", *more], capture_output=True, text=True)
    assert run("--stop-after", "4").returncode == 0
    assert palimpsa.train(tmp_path / "program", resume=True, threads=1).finished  # Python continues with a run of the program
    assert weights(tmp_path / "program") == weights(tmp_path / "python")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "program")]
    assert configs[0] == configs[1] and configs[0]["kv_pairs"] == 2
    done = subprocess.run([PROGRAM, "train", "--resume", "--out", tmp_path / "python"], capture_output=True, text=True)
    assert done.returncode == 0 and "is finished at step 8; nothing to do" in done.stdout


def test_what_progress_raises_comes_through_behind_a_checkpoint(tmp_path):
    def broken(p):
        if p.step == 3:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        palimpsa.train(tmp_path / "run", **RECALL, progress=broken)
    assert (tmp_path / "run/checkpoints/step-3").exists()
    assert palimpsa.train(tmp_path / "run", resume=True).step == 8


def test_an_interrupt_leaves_a_checkpoint(tmp_path):
    settings = dict(RECALL, steps=10**6, checkpoint_every=10**6, eval_every=10**6)
    code = f"""
import palimpsa, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
try:
    palimpsa.train({str(tmp_path / "run")!r}, **{settings!r}, progress=lambda p: print("ready", flush=True) if p.step == 2 else None)
except KeyboardInterrupt:
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert out == "interrupted\n" and not err
    assert len(list((tmp_path / "run/checkpoints").glob("step-*"))) == 1


def test_what_is_refused(tmp_path, play):
    train = lambda **changes: palimpsa.train(tmp_path / "none", **{**RECALL, **changes})
    wrong = [
        (lambda: train(stepps=3), TypeError, "no setting 'stepps'; did you mean 'steps'"),
        (lambda: train(data_checksum="x"), TypeError, "no setting 'data_checksum'"),
        (lambda: train(task="dance"), ValueError, "task 'dance': expected mqar or text"),
        (lambda: train(task=None), TypeError, "task is None"),
        (lambda: train(steps=1.5), TypeError, "steps is 1.5; expected a whole number"),
        (lambda: train(lr="fast"), TypeError, "lr is 'fast'; expected a number"),
        (lambda: train(random_fill="yes"), TypeError, "random_fill is 'yes'; expected True or False"),
        (lambda: train(model=5), TypeError, "model is 5; expected a text"),
        (lambda: train(model=None), ValueError, "--model NAME.DIR is missing"),
        (lambda: train(model="palimpsa-e"), ValueError, "did you mean 'palimpsa-d'"),
        (lambda: train(epochs=2), ValueError, "either steps or epochs"),
        (lambda: train(lr=-1.0), ValueError, "--lr is -1, expected a number above 0"),
        (lambda: train(data=play), ValueError, "--data goes with --task text"),
        (lambda: train(batch=0), ValueError, "--batch is 0"),
        (lambda: train(steps=2**70), OverflowError, "."),
        (lambda: palimpsa.train(tmp_path / "none", resume=True), (ValueError, OSError), "none"),
        (lambda: palimpsa.train(tmp_path / "none", resume=True, steps=9), TypeError, "the run's own settings; found steps"),
        (lambda: palimpsa.train("", **RECALL), ValueError, "a run needs a directory"),
        (lambda: palimpsa.train(tmp_path / "none", **{**text_settings(play), "data": tmp_path / "absent"}), OSError, "absent"),
        (lambda: palimpsa.train(tmp_path / "none", **{**text_settings(play), "tokenizer": None}), ValueError, "give --tokenizer"),
    ]
    for call, kind, sentence in wrong:
        with pytest.raises(kind, match=sentence) as why:
            call()
        assert "\n" not in str(why.value) and not (tmp_path / "none").exists()
    palimpsa.train(tmp_path / "run", **RECALL, stop_after=1)
    with pytest.raises(ValueError, match="already holds a run"):
        palimpsa.train(tmp_path / "run", **RECALL)
    (tmp_path / "run/config.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        palimpsa.train(tmp_path / "run", resume=True)
