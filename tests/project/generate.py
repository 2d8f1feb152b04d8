#!/usr/bin/env python3
"""`palimpsa generate` from the outside: standard output holds the continuation alone, seeds repeat, a kept memory continues in
another process, many prompts equal single ones, and one sentence for each thing that is wrong."""
import fcntl, json, os, pathlib, pty, re, resource, shutil, signal, struct, subprocess, sys, tempfile, termios, time

from outside import golden, program, run, said, tiny_models


def near(found, expected, accept=1e-9):
    assert abs(found - expected) <= accept * abs(expected), (found, expected)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = tiny_models(folder)

    # A model directory's own tokenizer, or one that is named.
    assert "has no tokenizer; name one" in run("generate", hybrid, "--prompt", "a", code=2)
    by_name = run("generate", hybrid, "--tokenizer", "bytes", "--prompt", "hello", "--max-tokens", 20, "--temperature", 0)
    text = "".join(chr(32 + i % 95) for i in range(95 * 3)) + "\n\u00e9\u4e2d"
    (folder / "text").write_text(text)
    run("tokenize", "--learn-chars", "--out", hybrid, folder / "text")
    words = "The quick brown fox, 1905."
    G = ["generate", hybrid, "--prompt", words, "--max-tokens", 40]
    greedy = run(*G, "--temperature", 0)
    assert len(greedy.decode()) == 40 and greedy == run(*G, "--temperature", 0, "--seed", 9), greedy
    assert greedy == run(*G, "--top-k", 1) == run(*G, "--top-p", 1e-9, "--threads", 2)
    sampled = run(*G, "--seed", 5, "--temperature", 1)
    assert sampled == run(*G, "--seed", 5, "--temperature", 1) != run(*G, "--seed", 6, "--temperature", 1)
    sizes, shown = json.loads(run("inspect", hybrid, "--json")), said(*G)
    assert "\nguessed: " in said(*G, "--speculate", 7) and "guessed" not in shown
    planned = re.search(r"RAM: weights ([\d.]+) KiB, workspace ([\d.]+) MiB, ([\d.]+) KiB a sequence; [\d.]+ MiB in all\n", shown)
    assert planned, shown
    inspected = [sizes["weight_bytes"] / 2**10, sizes["generating_bytes"] / 2**20, sizes["state_bytes"] / 2**10]
    assert [f"{x:.4g}" for x in inspected] == list(planned.groups()), (sizes, shown)
    (folder / "prompt").write_text(words)
    assert sampled == run("generate", hybrid, "--prompt-file", folder / "prompt", "--max-tokens", 40, "--seed", 5, "--temperature", 1)
    for source in (("--prompt-file", "-"), ("--prompt", "-")):
        assert sampled == run("generate", hybrid, *source, "--max-tokens", 40, "--seed", 5, "--temperature", 1, data=words.encode())

    # A checkpoint of a run directory is a model directory.
    (folder / "run/checkpoints").mkdir(parents=True)
    shutil.copytree(hybrid, folder / "run/checkpoints/step-7")
    assert greedy == run("generate", folder / "run", "--prompt", words, "--max-tokens", 40, "--temperature", 0)

    # Stop strings, whole or across tokens, are not shown.
    shown = sampled.decode()
    for stop in (shown[10:13], shown[20:21]):
        found = run(*G, "--seed", 5, "--temperature", 1, "--stop", "\u4e2d\u4e2d", "--stop", stop).decode()
        assert found == shown[: shown.index(stop)], (stop, found)

    # JSON says the same.
    answer = json.loads(run(*G, "--seed", 5, "--temperature", 1, "--json", "--uncertainty"))
    assert answer["text"] == shown and answer["tokens"] == 40 == len(answer["ids"]) and answer["finish"] == "length" and answer["prompt_tokens"] == len(words)
    assert "".join(t["text"] for t in answer["uncertainty"]) == shown
    assert all(0 < t["probability"] <= 1 and t["variance"] > 0 for t in answer["uncertainty"]) and answer["memory_bytes"] > 0
    table = run(*G, "--seed", 5, "--temperature", 1, "--uncertainty").decode().splitlines()
    assert table.pop(0) == "token\tprobability\tvariance"
    assert "".join(json.loads(line.split("\t")[0]) for line in table) == shown
    near(float(table[3].split("\t")[2]), answer["uncertainty"][3]["variance"], 1e-4)
    plain = json.loads(run("generate", attention, "--tokenizer", "bytes", "--prompt", "x", "--max-tokens", 3, "--json", "--uncertainty"))
    assert plain["uncertainty"][0]["variance"] is None

    # Many prompts: each as if alone, whatever the batch.
    prompts = [words, "a", "Zebra " * 30, "b c", words[:9], "!?", "0123456789", "x y z", "{}", "~" * 70]
    (folder / "many.jsonl").write_text("".join(json.dumps({"prompt": p, **({"seed": 5} if i == 0 else {})}) + "\n" for i, p in enumerate(prompts)))
    (folder / "many.txt").write_bytes("\r\n".join(["", *prompts]).encode() + b"\n")  # lines as other systems end them
    many = ["generate", hybrid, "--max-tokens", 25, "--temperature", 0.9, "--seed", 2]
    alone = [run(*many[:-1], 5 if i == 0 else 2, "--prompt", p).decode() for i, p in enumerate(prompts)]
    for batch in (1, 3, 8, 10):
        found = [json.loads(line) for line in run(*many, "--prompts", folder / "many.jsonl", "--batch", batch, "--json").splitlines()]
        assert [f["prompt"] for f in found] == prompts and [f["text"] for f in found] == alone, batch
    assert run(*many, "--prompts", folder / "many.txt").decode().startswith(run(*many, "--prompt", words).decode() + "\n" + alone[1] + "\n")

    # JSON lines are reported by the file's name or a field's; a byte order mark is not a part of a prompt.
    short = ["generate", hybrid, "--max-tokens", 5, "--temperature", 0, "--json"]
    text_of = lambda *args, **more: [json.loads(line)["prompt"] for line in run(*short, *args, **more).splitlines()]
    (folder / "few.ndjson").write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n \n{"prompt": "b", "seed": 3}')
    (folder / "few.txt").write_bytes(b"\xef\xbb\xbfa\n{}\n")
    assert text_of("--prompts", folder / "few.ndjson") == ["a", "b"] and text_of("--prompts", folder / "few.txt") == ["a", "{}"]
    assert text_of("--prompts", "-", "--field", "q", data=b'{"q": "a"}\n{"q": "c"}\n') == ["a", "c"]
    assert text_of("--prompts", "-", data=b"a\nb\n") == ["a", "b"]

    # A prompt that cannot be continued is named before anything is written.
    for name, line, says in (("p.txt", "\u0416", "line 12: the character U+0416"), ("p.jsonl", '{"prompt": ""}', "line 12: the prompt is empty"),
                             ("p.jsonl", '"a"', "line 12: "), ("p.jsonl", '{"prompt": "a", "seed": "b"}', "line 12: seed")):
        (folder / name).write_text(('{"prompt": "a"}\n' if name == "p.jsonl" else "a\n") * 11 + line + "\n")
        assert f"{folder / name}: {says}" in run(*short[:-1], "--batch", 4, "--prompts", folder / name, code=2)
    (folder / "p.txt").write_text("a\n" * 11 + "b" * 30 + "\n")
    assert f"{folder}/p.txt: line 12: the prompt has 30 tokens" in run("generate", attention, "--tokenizer", "bytes", "--prompts", folder / "p.txt", "--max-context", 20, code=2)
    assert "standard input: line 2: " in run("generate", hybrid, "--prompts", "-", data="a\n\u0416".encode(), code=2)

    # A kept memory: read once, asked in other processes; bit for bit when nothing is put after it.
    keep = folder / "memory"
    assert run("generate", hybrid, "--prompt", words, "--max-tokens", 0, "--save-memory", keep) == b""
    assert greedy == run("generate", hybrid, "--load-memory", keep, "--max-tokens", 40, "--temperature", 0)
    assert sampled == run("generate", hybrid, "--load-memory", keep, "--max-tokens", 40, "--temperature", 1, "--seed", 5)
    half = run("generate", hybrid, "--prompt", words, "--max-tokens", 15, "--seed", 5, "--temperature", 1, "--save-memory", keep)
    rest = run("generate", hybrid, "--load-memory", keep, "--max-tokens", 25, "--seed", 5, "--temperature", 1)
    assert half + rest == sampled
    run("generate", hybrid, "--prompt", words[:11], "--max-tokens", 0, "--save-memory", keep)
    assert greedy == run("generate", hybrid, "--load-memory", keep, "--prompt", words[11:], "--max-tokens", 40, "--temperature", 0)
    (folder / "two").write_text("\n".join([words[11:]] * 2))
    assert (greedy + b"\n") * 2 == run("generate", hybrid, "--load-memory", keep, "--prompts", folder / "two", "--max-tokens", 40, "--temperature", 0, "--batch", 1)
    assert "another model" in run("generate", attention, "--tokenizer", "bytes", "--load-memory", keep, "--prompt", "x", code=2)

    # What was seen belongs to a text, and to its memory.
    (folder / "four").write_text("abcabc\nThe fox\n0123\nfox\n")
    seen = ["generate", hybrid, "--load-memory", keep, "--prompts", folder / "four", "--max-tokens", 30, "--temperature", 0, "--repetition-penalty", 2]
    assert len({run(*seen, "--batch", batch) for batch in (1, 2, 4)}) == 1
    lively = ["--seed", 5, "--temperature", 1, "--repetition-penalty", 3]
    half = run("generate", hybrid, "--prompt", words, "--max-tokens", 15, *lively, "--save-memory", keep)
    assert half + run("generate", hybrid, "--load-memory", keep, "--max-tokens", 25, *lively) == run(*G, *lively)

    # Characters of several bytes: every byte is written, and one that is cut in two is whole in the half that continues.
    raw = ["generate", hybrid, "--tokenizer", "bytes", "--prompt", "a", "--temperature", 1, "--seed", 3]
    ids = json.loads(run(*raw, "--max-tokens", 90, "--json"))["ids"]
    assert max(ids) > 193, ids
    cut = 0
    for n in range(1, 90, 4):
        assert run(*raw, "--max-tokens", n) == bytes(ids[:n]), n
        half = run(*raw, "--max-tokens", n, "--save-memory", keep)
        rest = run("generate", hybrid, "--tokenizer", "bytes", "--load-memory", keep, "--max-tokens", 90 - n, "--temperature", 1, "--seed", 3)
        assert half + rest == bytes(ids), (n, half, rest)
        cut += len(half) < n
    assert cut > 0

    # A conversation on plain lines; commands do not reach the model.
    talk = subprocess.run([program, "generate", str(hybrid), "--interactive", "--max-tokens", "40", "--temperature", "0"], capture_output=True,
                          input=f"/help\n{words}\n/save {folder}/talk\n/reset\n{words}\n/nonsense\n/quit\nnot read\n".encode(), timeout=100)
    assert talk.returncode == 0 and talk.stdout == (greedy + b"\n") * 2, talk
    assert b"(constant)" in talk.stderr and b"tokens/s" in talk.stderr and b"no command '/nonsense'" in talk.stderr
    again = run("generate", hybrid, "--load-memory", folder / "talk", "--max-tokens", 5, "--temperature", 0)
    assert again == run(*G[:-1], 45, "--temperature", 0)[len(greedy):]

    talk = subprocess.run([program, "generate", str(hybrid), "--interactive", "--max-tokens", "40", "--temperature", "0"], capture_output=True,
                          input=f"{words}\r\n/reset\r\n".encode() + b"a" * 70000 + f"\n{words}\r\n".encode(), timeout=100)
    assert talk.returncode == 0 and talk.stdout == (greedy + b"\n") * 2 and talk.stderr.count(b"65535 bytes") == 1, talk

    # A conversation begins as a text does: --bos and an empty line are its first token; a line may hold a zero byte; SIGTERM ends it.
    bos = folder / "bos"
    shutil.copytree(hybrid, bos)
    (bos / "tokenizer_config.json").write_text('{"bos_token": "~", "eos_token": null}')
    short = ["--max-tokens", "12", "--temperature", "0"]
    whole, empty = (run("generate", bos, "--bos", "--prompt", "the cat", *short), run("generate", bos, "--prompt", "", *short))
    assert len({whole, empty, run("generate", bos, "--prompt", "the cat", *short)}) == 3
    for options, typed, expected in ((["--bos"], b"the cat\n", [whole]), (["--bos"], b"the cat\n/reset\nthe cat\n", [whole, whole]), ([], b"\n", [empty])):
        talk = subprocess.run([program, "generate", bos, "--interactive", *options, *short], capture_output=True, input=typed, timeout=100)
        assert talk.returncode == 0 and talk.stdout == b"".join(text + b"\n" for text in expected), (talk, expected)
    zero = run("generate", hybrid, "--tokenizer", "bytes", "--prompt-file", "-", "--max-tokens", 12, "--temperature", 0, data=b"ab\0cd")
    talk = subprocess.run([program, "generate", hybrid, "--tokenizer", "bytes", "--interactive", "--max-tokens", "12", "--temperature", "0"], capture_output=True, input=b"ab\0cd\n", timeout=100)
    assert talk.stdout == zero + b"\n", (talk, zero)
    child = subprocess.Popen([program, "generate", hybrid, "--interactive", "--max-tokens", "100000000", "--ignore-eos"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdin.write(b"a\n")
    child.stdin.flush()
    child.stdout.read(10)
    child.send_signal(signal.SIGTERM)
    deadline = time.time() + 30
    while child.poll() is None and time.time() < deadline:  # standard input stays open
        os.set_blocking(child.stdout.fileno(), False)
        child.stdout.read()
        time.sleep(0.01)
    assert child.poll() == 0, "SIGTERM was swallowed"

    # ... and at a terminal of 20 columns: keys as terminals of all kinds send them, and a line that is longer than a row.
    home, end, delete = ("\033[H", "\033[1~", "\033[7~", "\033OH", "\001"), ("\033[F", "\033[4~", "\033[8~", "\033OF", "\005"), ("\033[3~", "\033[3;5~")
    unknown = "\033[2~\033[15~\033[24;2~\033[?1;2c\033[[A\033OP\033[1;5P"
    for i in range(5):
        typed = f"{words[1:-1]}{home[i]}{words[0]}{end[i]}{words[-1]}{unknown}\033[1;5D\033OD\033[Dx\177\u4e2d\033[D{delete[i % 2]}\n/quit\n"
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        child = subprocess.Popen([program, *map(str, G[:2]), "--interactive", "--max-tokens", "40", "--temperature", "0"], stdin=slave, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        seen = b""
        while not seen.endswith(b"> "):
            seen += os.read(master, 4096)
        os.write(master, typed.encode())
        try:
            while more := os.read(master, 4096):
                seen += more
        except OSError:  # the terminal's other end is closed
            pass
        assert child.wait(60) == 0 and child.stdout.read() == greedy + b"\n", (i, seen)
        rows = [re.sub(r"\033\[\d*D", "", row) for row in seen.decode(errors="replace").split("[memory")[0].split("\r\033[K")[1:]]
        rows = [sum(2 if c == "\u4e2d" else 1 for c in row.rstrip("\r\n")) for row in rows]
        assert max(rows) == 19 and len(rows) > len(words), rows
        os.close(master)

    # Someone who has enough, and Ctrl-C, end it cleanly.
    endless = [program, "generate", str(hybrid), "--prompt", "a", "--max-tokens", "100000000", "--ignore-eos"]
    child = subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.stdout.close()
    assert child.wait(60) == 0 and b"tokens/s" in child.stderr.read()
    child = subprocess.Popen([*endless, "--save-memory", str(folder / "stopped")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60) and child.returncode == 0 and (folder / "stopped").exists()

    # Text held back for a stop string that never came is in the lines of its tokens already.
    full = ["generate", attention, "--tokenizer", "bytes", "--prompt", "x", "--max-context", 20, "--temperature", 1]
    ids, seed = [255], 0
    while ids[-1] > 126 or ids[-1] < 32:
        seed += 1
        ids = json.loads(run(*full, "--seed", seed, "--json"))["ids"]
    table = run(*full, "--seed", seed, "--uncertainty", "--stop", chr(ids[-1]) + "\1\2").decode().splitlines()
    assert len(table) == 1 + len(ids) and all(line.count("\t") == 2 for line in table), table

    # A run directory is a tokenizer, too.
    assert run("tokenize", "--tokenizer", folder / "run", "--encode", "fox") == run("tokenize", "--tokenizer", hybrid, "--encode", "fox")

    # A place to return to, for models of both kinds: what follows a mark follows it again.
    for model in (hybrid, attention):
        typed = "one two\n/mark here\nthree\nfour\n/back here\nthree\n/back there\n/mark\n/quit\n"
        talk = subprocess.run([program, "generate", str(model), "--tokenizer", "bytes", "--interactive", "--max-tokens", "9", "--temperature", "0", "--ignore-eos"], capture_output=True, input=typed.encode())
        said = talk.stderr.decode(errors="replace").split("\n")
        places = [line for line in said if line.startswith("[here: ")]
        sizes = [line.split(", ")[1] for line in said if line.startswith("[memory ")]
        assert talk.returncode == 0 and len(places) == 2 and places[0] == places[1] and sizes[1] == sizes[3] != sizes[2], said
        assert "[no mark is called 'there']" in said and "[a mark's name has 1 to 63 bytes]" in said, said

    # Attention has a limit, which has a name.
    assert "--max-context" in run("generate", attention, "--tokenizer", "bytes", "--prompt", "x" * 50, "--max-context", 20, code=2)
    assert json.loads(run("generate", attention, "--tokenizer", "bytes", "--prompt", "x", "--max-context", 20, "--json"))["finish"] == "context"
    for source, says in ((["--prompt", "x"], "\nended: the context of 20 tokens is full"), (["--prompts", folder / "short.txt"], "\n2 of 2 ended: the context of 20 tokens is full")):
        (folder / "short.txt").write_text("x\ny\n")
        full = subprocess.run([program, "generate", attention, "--tokenizer", "bytes", *source, "--max-context", "20"], capture_output=True, text=True, errors="replace")
        assert full.returncode == 0 and says in full.stderr, full
    if "--limit-memory" in sys.argv:  # a context that is not used takes no RAM
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        far = subprocess.run([program, "generate", attention, "--tokenizer", "bytes", "--prompt", "x", "--max-context", str(1 << 24)], capture_output=True, preexec_fn=limit, timeout=100)
        assert far.returncode == 0, far

    # Guesses change neither text nor memory.
    (folder / "rules").write_text('root ::= ( "ab" [c-e] "."? )+ "!"')
    (folder / "loops.txt").write_text("".join(f"{words[i:]} {words[i:]}\n" for i in range(4)))
    for model, own in ((hybrid, []), (attention, ["--tokenizer", "bytes", "--kv-type", "f16"])):
        G = ["generate", model, *own, "--max-tokens", 90, "--repetition-penalty", 0.2, "--threads", 1]
        for i, more in enumerate((["--temperature", 0], ["--seed", 3, "--temperature", 0.4], ["--stop", "e", "--temperature", 0.3], ["--grammar", folder / "rules"], ["--json", "--uncertainty", "--temperature", 0.02])):
            texts, memories, counts = [], [], []
            for speculate in (0, 7):
                out = run(*G, *more, "--prompt", words + words, "--speculate", speculate, "--save-memory", folder / "guessed")
                if "--json" in more:
                    out = json.loads(out)
                    counts.append([out.pop(f"{how}_prediction_tokens", None) for how in ("accepted", "rejected")])
                    for speed in ("prompt_tokens_per_s", "tokens_per_s"):
                        del out[speed]
                texts.append(out), memories.append((folder / "guessed").read_bytes())
            assert texts[0] == texts[1] and memories[0] == memories[1], (model, more)
        assert counts[0] == [None, None] and counts[1][0] > 5, counts
        many = ["--prompts", folder / "loops.txt", "--temperature", 0.5]
        assert run(*G, *many) == run(*G, *many, "--speculate", 31) == run(*G, *many, "--speculate", 3, "--batch", 1)

    for wrong, says in ((["generate"], "name a model"), (["generate", hybrid], "needs a prompt"), (["generate", folder / "no", "--prompt", "a"], "cannot open"),
                        (["generate", hybrid, "--prompt", "a", "--prompts", "x"], "one of"), (["generate", hybrid, "--prompt", "a", "--temperature", "1e7"], "expected 0 to 1e6"),
                        (["generate", hybrid, "--prompt", "a", "--seed", 2**64 - 1], "to 9223372036854775807, found"), (["generate", hybrid, "--top-k", "3000000000"], "to 2147483647, found"),
                        (["generate", hybrid, "--prompt", "a", "--seed", "x"], "whole number, found 'x'"),
                        (["generate", hybrid, "--prompt", "a", "--top-p", "3"], "top-p"), (["generate", hybrid, "--prompt", "a", "--top-p", "0"], "--top-p"),
                        (["generate", hybrid, "--prompt", "a", "--repetition-penalty", "0"], "--repetition-penalty"), (["generate", hybrid, "--prompt", "a", "--stop", ""], "--stop"),
                        (["generate", hybrid, "--prompt", "a", "--max-tokens", "-1"], "--max-tokens"), (["generate", hybrid, "--prompt", "a", "--speculate", 32], "--speculate expects 0 to 31, found 32"), (["generate", hybrid, "--prompt", "\u0416"], "U+0416"),
                        (["generate", hybrid, "--prompt", ""], "empty"), (["generate", hybrid, "--prompts", folder / "memory.jsonl"], "cannot open"),
                        (["generate", hybrid, "--load-memory", folder / "text", "--prompt", "a"], "state file"), (["generate", hybrid, "--prompt", "a", "--bos"], "--bos"),
                        (["generate", golden / "models/mqar_gdn", "--tokenizer", "bytes", "--prompt", "a"], "256 ids")):
        assert says in run(*wrong, code=2), wrong
    (folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    for place in (folder / "nowhere" / "memory", folder):  # said before anything is written
        assert str(place) in run("generate", hybrid, "--prompt", "a", "--max-tokens", 3, "--save-memory", place, code=1)
    assert "line 2" in run("generate", hybrid, "--prompts", folder / "bad.jsonl", code=2)
    print("generate: as promised")
