#!/usr/bin/env python3
"""`palimpsa generate` from the outside: standard output holds the continuation alone, seeds repeat, a kept memory goes on in
another process, many prompts equal single ones, and one sentence for each thing that is wrong."""
import json, math, os, pathlib, re, shutil, signal, subprocess, sys, tempfile

program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
os.environ["PALIMPSA_THREADS"] = "1"  # the models are tiny


def run(*args, data=b"", code=0):
    r = subprocess.run([program, *map(str, args)], input=data, capture_output=True, timeout=300)
    assert r.returncode == code, (args, r.returncode, r.stdout, r.stderr)
    if code:
        lines = [line for line in r.stderr.split(b"\n") if line and not line.startswith(b"palimpsa: warning")]
        assert len(lines) == 1 and lines[0].startswith(b"palimpsa: ") and not r.stdout, (args, r.stderr)
    return r.stderr.decode() if code else r.stdout


def near(found, expected, accept=1e-9):
    assert abs(found - expected) <= accept * abs(expected), (found, expected)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = folder / "hybrid", folder / "attention"
    for target, name in ((hybrid, "hybrid_m"), (attention, "transformer")):
        target.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(golden / "models" / name / file, target / file)

    # A model directory's own tokenizer, or one that is named.
    assert "--tokenizer" in run("generate", hybrid, "--prompt", "a", code=2)
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

    # A kept memory: read once, asked in other processes; bit for bit when nothing is put behind it.
    keep = folder / "memory"
    assert run("generate", hybrid, "--prompt", words, "--max-tokens", 0, "--save-memory", keep) == b""
    assert greedy == run("generate", hybrid, "--load-memory", keep, "--max-tokens", 40, "--temperature", 0)
    assert sampled == run("generate", hybrid, "--load-memory", keep, "--max-tokens", 40, "--temperature", 1, "--seed", 5)
    half = run("generate", hybrid, "--prompt", words, "--max-tokens", 15, "--seed", 5, "--temperature", 1, "--save-memory", keep)
    rest = run("generate", hybrid, "--load-memory", keep, "--max-tokens", 25, "--seed", 5, "--temperature", 1)
    assert half + rest == sampled
    run("generate", hybrid, "--prompt", words[:11], "--max-tokens", 0, "--save-memory", keep)
    assert greedy == run("generate", hybrid, "--load-memory", keep, "--prompt", words[11:], "--max-tokens", 40, "--temperature", 0)
    assert "another model" in run("generate", attention, "--tokenizer", "bytes", "--load-memory", keep, "--prompt", "x", code=2)

    # A conversation on plain lines; commands do not reach the model.
    talk = subprocess.run([program, "generate", str(hybrid), "--interactive", "--max-tokens", "40", "--temperature", "0"], capture_output=True,
                          input=f"/help\n{words}\n/save {folder}/talk\n/reset\n{words}\n/nonsense\n/quit\nnot read\n".encode(), timeout=100)
    assert talk.returncode == 0 and talk.stdout == (greedy + b"\n") * 2, talk
    assert b"(constant)" in talk.stderr and b"tokens/s" in talk.stderr and b"no command '/nonsense'" in talk.stderr
    again = run("generate", hybrid, "--load-memory", folder / "talk", "--max-tokens", 5, "--temperature", 0)
    assert again == run(*G[:-1], 45, "--temperature", 0)[len(greedy):]

    # Somebody who has enough, and Ctrl-C, end it cleanly.
    endless = [program, "generate", str(hybrid), "--prompt", "a", "--max-tokens", "100000000", "--ignore-eos"]
    child = subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.stdout.close()
    assert child.wait(60) == 0 and b"tokens/s" in child.stderr.read()
    child = subprocess.Popen([*endless, "--save-memory", str(folder / "stopped")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60) and child.returncode == 0 and (folder / "stopped").exists()

    # Attention has a limit, which has a name.
    assert "--max-context" in run("generate", attention, "--tokenizer", "bytes", "--prompt", "x" * 50, "--max-context", 20, code=2)
    assert json.loads(run("generate", attention, "--tokenizer", "bytes", "--prompt", "x", "--max-context", 20, "--json"))["finish"] == "context"

    for wrong, says in ((["generate"], "model directory"), (["generate", hybrid], "needs a prompt"), (["generate", folder / "no", "--prompt", "a"], "cannot open"),
                        (["generate", hybrid, "--prompt", "a", "--prompts", "x"], "one of"), (["generate", hybrid, "--prompt", "a", "--temperature", "-1"], "temperature"),
                        (["generate", hybrid, "--prompt", "a", "--top-p", "3"], "top-p"), (["generate", hybrid, "--prompt", "a", "--top-p", "0"], "--top-p"),
                        (["generate", hybrid, "--prompt", "a", "--repetition-penalty", "0"], "--repetition-penalty"), (["generate", hybrid, "--prompt", "a", "--stop", ""], "--stop"),
                        (["generate", hybrid, "--prompt", "a", "--max-tokens", "-1"], "--max-tokens"), (["generate", hybrid, "--prompt", "\u0416"], "U+0416"),
                        (["generate", hybrid, "--prompt", ""], "empty"), (["generate", hybrid, "--prompts", folder / "memory.jsonl"], "cannot open"),
                        (["generate", hybrid, "--load-memory", folder / "text", "--prompt", "a"], "state file"), (["generate", hybrid, "--prompt", "a", "--bos"], "--bos"),
                        (["generate", golden / "models/mqar_gdn", "--tokenizer", "bytes", "--prompt", "a"], "256 ids")):
        assert says in run(*wrong, code=2), wrong
    (folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    for place in (folder / "nowhere" / "memory", folder):  # told before anything is written
        assert str(place) in run("generate", hybrid, "--prompt", "a", "--max-tokens", 3, "--save-memory", place, code=1)
    assert "line 2" in run("generate", hybrid, "--prompts", folder / "bad.jsonl", code=2)
    print("generate: as promised")
