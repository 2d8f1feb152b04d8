"""Progress on a terminal: one line that is redrawn and never wider than the terminal; where TERM is dumb, plain lines without escapes."""
import fcntl, os, pathlib, pty, re, signal, struct, subprocess, tempfile, termios, time

from outside import check, program


def on_terminal(words, columns, kind, cwd):
    """Everything that the command wrote on a terminal of so many columns, and its name as ps shows it."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen([program, *words], stdin=follower, stdout=follower, stderr=follower, cwd=cwd, env={**os.environ, "TERM": kind, "ASAN_OPTIONS": "detect_leaks=0"})
    os.close(follower)
    text, name = b"", ""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
        if not name and b"step" in text:
            name = pathlib.Path(f"/proc/{child.pid}/comm").read_text().strip()
    os.close(leader)
    check(child.wait() == 0, f"{words}: {child.returncode}: {text[-500:]}")
    return text.decode(), name


TRAIN = "train --model palimpsa-d --seq-len 16 --kv-pairs 4 --vocab 32 --hidden 16 --heads 1 --layers 1 --batch 4 --examples 0 --test-examples 16 --eval-every 200 --threads 1".split()
with tempfile.TemporaryDirectory() as folder:
    started = time.monotonic()
    text, _ = on_terminal([*TRAIN, "--steps", "600", "--out", "dumb"], 80, "dumb", folder)
    steps = max(600, int(600 / (time.monotonic() - started)))  # a second or more: a line is drawn ten times a second
    check("\x1b" not in text and not re.search(r"\r(?!\n)", text), f"TERM=dumb gets escapes: {text[-500:]!r}")
    check(re.search(r"\nstep 200/600 ", text), f"TERM=dumb gets no progress: {text[-500:]!r}")
    for columns in (40, 80, 200):
        text, name = on_terminal([*TRAIN, "--steps", str(steps), "--out", f"run{columns}"], columns, "xterm", folder)
        drawn = re.findall(r"\r\x1b\[K([^\r\n]*)(?=\r\x1b)", text)  # what stays ends with a line break, and may be longer
        lines = [line for line in drawn if line]
        check(lines and all(line.startswith("step ") for line in lines), f"{columns} columns: no progress in {text[-500:]!r}")
        widest = max(map(len, lines))
        check(widest < columns, f"{columns} columns: a line of {widest}: {max(lines, key=len)!r}")
        check(columns > 80 or widest >= columns - 2, f"{columns} columns: lines are cut at {widest}")
        check(re.match(rf"step \d+/{steps}  \d+%  \S+ (s|min) left", lines[0]), f"not the most useful first: {lines[0]!r}")
        check(name == "palimpsa", f"the process is called {name!r}")

    # A prompt that takes long shows how much of it has been read, and nothing of that stays.
    model = pathlib.Path(__file__).resolve().parents[2] / "models/shakespeare.gguf"
    prompt = pathlib.Path(folder, "prompt")
    prompt.write_text("To be, or not to be: that is the question.\n" * 700)
    text, _ = on_terminal(["generate", model, "--prompt-file", prompt, "--max-tokens", "2", "--piece", "16", "--threads", "1"], 80, "xterm", folder)
    drawn = re.findall(r"\r\x1b\[Kread (\d+) of 30100 tokens(?=\r\x1b\[K)", text)
    check(drawn and [int(n) for n in drawn] == sorted(int(n) for n in drawn), f"no progress while a prompt is read: {text[:500]!r}")
print("progress fits the terminal")
