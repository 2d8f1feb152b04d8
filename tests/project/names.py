#!/usr/bin/env python3
"""Models as commands accept them: inspect and bench take files and the names of train; convert attaches a tokenizer only to a vocabulary that holds it."""
import json, os, pathlib, tempfile
from outside import golden, run

models = golden.resolve() / "models"
with tempfile.TemporaryDirectory() as name:
    os.chdir(name)

    # A name has sizes and no weights: 2.7B of them are not made.
    seen = json.loads(run("inspect", "mamba2-2.7b", "--json"))
    assert (seen["layers"], seen["hidden"], seen["parameters"]) == (64, 2560, 2702599680), seen
    assert b"Palimpsa-D" in run("inspect", "palimpsa-d")
    assert "has none" in run("inspect", "palimpsa-m-15m", "--windows", "--data", models / "hybrid_m" / "config.json", code=2)
    assert "did you mean 'mamba2-130m'?" in run("inspect", "mamba2-130n", code=2)
    assert "nor is there a directory 'nonsense'" in run("inspect", "nonsense", code=2)

    # Files and names, in every measurement of a model; files keep their sizes.
    few = ["--repeats", 1]
    for model in ("palimpsa-m-15m", models / "hybrid_m"):
        sizes = [] if model == models / "hybrid_m" else ["--layers", 1, "--vocab", 300]
        shown = pathlib.Path(model).name.encode()
        assert shown in run("bench", "model", "--model", model, *sizes, "--tokens", 32, *few)
        assert shown in run("bench", "decode", model, *sizes, "--prompt", 8, "--tokens", 2, *few)
        assert shown in run("bench", "decode", "--model", model, *sizes, "--dtype", "q8_0", "--prompt", 8, "--tokens", 2, *few)
    for model in ("palimpsa-d", models / "mqar_palimpsa_d"):
        sizes = [] if model == models / "mqar_palimpsa_d" else ["--layers", 1, "--vocab", 64, "--hidden", 32, "--heads", 2]
        assert pathlib.Path(model).name.encode() in run("bench", "train", "--model", model, *sizes, "--seq-len", 16, "--batch", 2, *few)
    for bench in ("model", "decode", "train"):
        assert "cannot be chosen" in run("bench", bench, "--model", models / "hybrid_m", "--layers", 2, code=2)
        assert "nor is there a directory 'nonsense'" in run("bench", bench, "--model", "nonsense", code=2)
    assert "--checkpoints nonsense: " in run("bench", "train", "--checkpoints", "nonsense", "--hidden", 16, "--seq-len", 16, "--batch", 2, *few, code=2)  # before it measures

    # 250 tokens in 256 rows: 256 ids do not fit, and nothing is written.
    refused = run("convert", models / "mamba2_official", "out", "--to", "palimpsa", "--tokenizer", "bytes", code=2)
    assert "the tokenizer has 256 ids" in refused and "a vocabulary of 250" in refused, refused
    assert not os.listdir("."), os.listdir(".")
print("names and files are accepted alike")
