"""For tests of the program from the outside: PROGRAM GOLDEN are the arguments, run() calls the one, the models are of the other."""
import os, pathlib, shutil, subprocess, sys

program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
os.environ["PALIMPSA_THREADS"] = "1"  # the models are tiny


def run(*args, data=b"", code=0):
    """Standard output; with a code, the one sentence on standard error."""
    r = subprocess.run([program, *map(str, args)], input=data, capture_output=True, timeout=300)
    assert r.returncode == code, (args, r.returncode, r.stdout, r.stderr)
    if code:
        lines = [line for line in r.stderr.split(b"\n") if line and not line.startswith(b"palimpsa: warning")]
        assert len(lines) == 1 and lines[0].startswith(b"palimpsa: ") and not r.stdout, (args, r.stderr)
    return r.stderr.decode() if code else r.stdout


def tiny_models(folder):
    """A model with memories and one with attention, without tokenizers."""
    targets = folder / "hybrid", folder / "attention"
    for target, name in zip(targets, ("hybrid_m", "transformer")):
        target.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(golden / "models" / name / file, target / file)
    return targets
