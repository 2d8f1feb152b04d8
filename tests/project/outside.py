"""For tests of the program from the outside: PROGRAM [GOLDEN] are the arguments; call() runs the one, the models are of the other."""
import os, pathlib, resource, shutil, signal, struct, subprocess, sys, time

program = str(pathlib.Path(sys.argv[1]).resolve())
golden = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
os.environ.setdefault("PALIMPSA_THREADS", "1")  # the models are tiny


def check(condition, sentence):
    if not condition:
        sys.exit(f"FAILED: {sentence}")


def call(*words, data=b"", code=0, file_limit=None, memory_limit=None, findings=False, timeout=300, **how):
    """The finished process, in bytes. It ended with `code` (or one of them); if that is not 0, with one sentence on stderr next to warnings.
    findings: the command checks something and ends with 1 when it found it wrong, which is not its own error.
    file_limit: bytes after which writing a file fails, as on a full disk. memory_limit: bytes that it may allocate."""
    def before():
        if file_limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        if memory_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))

    words = [program, *(word if isinstance(word, bytes) else str(word) for word in words)]
    done = subprocess.run(words, input=data, capture_output=True, timeout=timeout, preexec_fn=None if file_limit is memory_limit is None else before, **how)
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, (words[1:], done.returncode, done.stdout[-1000:], done.stderr)
    if done.returncode and not (findings and done.returncode == 1):
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


def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def sentencepiece(words):
    """A model file of SentencePiece BPE: the unknown piece, <s> and </s>, then these, the first the best."""
    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), *((word, -float(i), 1) for i, word in enumerate(words))]
    data = b"".join(field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + varint(3 << 3) + varint(kind)) for text, score, kind in pieces)
    return data + field(2, varint(3 << 3) + varint(2)) + field(3, varint(3 << 3) + b"\1" + varint(4 << 3) + b"\0" + varint(5 << 3) + b"\1")


def malformed(cases, path_of):
    """Every case, written by path_of(name, files), is refused by `inspect` with one sentence and, with --limit-memory, in 64 MiB."""
    failures, slowest = 0, 0
    for name, files in cases.items():
        try:
            path, began = path_of(name, files), time.monotonic()
            sentence = inspected(path, code=2)
            slowest = max(slowest, time.monotonic() - began)
            print(f"{name}: {sentence.strip()[:160]}")
        except (AssertionError, subprocess.TimeoutExpired) as problem:  # the others are looked at as well
            failures += 1
            print(f"FAILED: {name}: {problem}")
    check(not failures, f"{failures} of {len(cases)} malformed ones")
    print(f"{len(cases)} malformed ones; the slowest was answered in {1000 * slowest:.0f} ms")


def inspected(path, code=0):
    """What `inspect` prints of a model, within the memory that --limit-memory leaves."""
    return run("inspect", path, "--threads", 1, code=code, memory_limit=64 << 20 if "--limit-memory" in sys.argv else None)
