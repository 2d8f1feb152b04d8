"""For tests of the program from the outside: PROGRAM [GOLDEN] are the arguments; call() runs the one, the models are of the other."""
import os, pathlib, resource, shutil, signal, subprocess, sys

program = str(pathlib.Path(sys.argv[1]).resolve())
golden = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
os.environ.setdefault("PALIMPSA_THREADS", "1")  # the models are tiny


def check(condition, sentence):
    if not condition:
        sys.exit(f"FAILED: {sentence}")


def call(*words, data=b"", code=0, file_limit=None, timeout=300, **how):
    """The finished process, in bytes. It ended with `code`; if that is not 0, with one sentence on stderr beside warnings.
    file_limit: bytes after which writing a file fails, as on a full disk."""
    def before():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    words = [program, *(word if isinstance(word, bytes) else str(word) for word in words)]
    done = subprocess.run(words, input=data, capture_output=True, timeout=timeout, preexec_fn=None if file_limit is None else before, **how)
    assert done.returncode == code, (words[1:], done.returncode, done.stdout[-1000:], done.stderr)
    if code:
        lines = [line for line in done.stderr.split(b"\n") if line and not line.startswith(b"palimpsa: warning")]
        assert len(lines) == 1 and lines[0].startswith(b"palimpsa: "), (words[1:], done.stderr)
    return done


def run(*words, code=0, **how):
    """Standard output in bytes, or with a code the text of standard error, where standard output stays empty."""
    done = call(*words, code=code, **how)
    assert not code or not done.stdout, (words, done.stdout)
    return done.stderr.decode(errors="replace") if code else done.stdout


def said(*words, **how):
    """Everything that was printed, as text."""
    done = call(*words, **how)
    return (done.stdout + done.stderr).decode(errors="replace")


def tiny_models(folder):
    """A model with memories and one with attention, without tokenizers."""
    targets = folder / "hybrid", folder / "attention"
    for target, name in zip(targets, ("hybrid_m", "transformer")):
        target.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(golden / "models" / name / file, target / file)
    return targets
