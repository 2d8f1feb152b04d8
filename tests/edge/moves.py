#!/usr/bin/env python3
"""moves.py PROGRAM OTHER GOLDEN EMULATOR...: memories and training runs move between two builds of palimpsa, the second
of which runs by the emulator, and back."""
import json, os, pathlib, shutil, subprocess, sys, tempfile

here, there = [os.path.abspath(sys.argv[1])], [*sys.argv[4:], os.path.abspath(sys.argv[2])]
golden = pathlib.Path(sys.argv[3])
TINY = "--task mqar --model palimpsa-d --seq-len 32 --kv-pairs 4 --vocab 64 --hidden 32 --heads 2 --batch 8 --steps 8 --lr 3e-3 --seed 5 --checkpoint-every 4 --test-examples 16 --threads 2".split()


def call(program, *words, code=0):
    done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, timeout=900)
    assert done.returncode == code, (program, words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


def losses(run):
    return [(row["step"], row["loss"]) for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in row]


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    model = folder / "model"
    shutil.copytree(golden / "models/hybrid_m", model)
    (folder / "text").write_text("".join(chr(32 + i % 95) for i in range(95 * 3)) + "\n")
    call(here, "tokenize", "--learn-chars", "--out", model, folder / "text")
    for name, first, second in (("x86-64 to ARM64", here, there), ("ARM64 to x86-64", there, here)):
        a, b = folder / "a.memory", folder / "b.memory"
        whole = call(first, "generate", model, "--prompt", "The quick brown fox", "--max-tokens", 20, "--temperature", 0)
        call(first, "generate", model, "--prompt", "The quick brown", "--max-tokens", 0, "--save-memory", a)
        call(second, "generate", model, "--load-memory", a, "--max-tokens", 0, "--save-memory", b)
        assert a.read_bytes() == b.read_bytes(), f"{name}: a memory that was read and written again is not the same bytes"
        found = call(second, "generate", model, "--load-memory", b, "--prompt", " fox", "--max-tokens", 20, "--temperature", 0)
        assert found == whole, (name, found, whole)
        print(f"memory, {name}: the same bytes, the same continuation")

        run, alone = folder / "run", folder / "alone"
        call(first, "train", *TINY, "--cpu", "ref", "--out", alone)
        call(first, "train", *TINY, "--cpu", "ref", "--out", run, "--stop-after", 4)
        call(second, "train", "--resume", "--cpu", "ref", "--out", run)
        worst = max(abs(x[1] - y[1]) / abs(x[1]) for x, y in zip(losses(alone), losses(run), strict=True))
        assert worst < 1e-4, (name, worst)
        print(f"training, {name}, plain C: losses differ by at most {worst:.1e} of themselves")
        shutil.rmtree(run), shutil.rmtree(alone)

        call(first, "train", *TINY, "--out", run, "--stop-after", 4)
        assert "which this machine does not have" in call(second, "train", "--resume", "--out", run, code=2)
        level = call(second, "version").split("cpu: ")[1].split(",")[0]
        call(second, "train", "--resume", "--cpu", level, "--out", run)
        assert (run / "checkpoints/step-8/model.safetensors").exists()
        print(f"training, {name}, at {level}: refused, and resumed when asked for by --cpu")
        shutil.rmtree(run)
