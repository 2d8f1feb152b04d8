#!/usr/bin/env python3
"""From text to a trained model through the program: shards, restarts, resumed runs that equal straight ones bit for bit,
and one sentence for each thing that does not fit."""
import json, os, pathlib, random, signal, subprocess, sys, tempfile, time

from outside import program, run as run_bytes

random.seed(20)


def run(*args, code=0, data=b""):
    shown = run_bytes(*args, code=code, data=data)
    return shown if code else shown.decode()


def prose(size):
    words = "the a of river king shall not came over hill with Gold and silver, who 1905 said: went; low.".split()
    out = random.choices([w + end for w in words for end in ("", "", "", "\n")], k=size // 3)
    return " ".join(out)[:size]


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    os.chdir(folder)
    pathlib.Path("book.txt").write_text(prose(40000))
    with open("notes.jsonl", "w") as f:
        for i in range(300):
            f.write(json.dumps({"id": i, "body": prose(random.randrange(5, 300))}) + "\n")

    # Shards: from files, from standard input, and after a kill.
    run("tokenize", "--train-bpe", 300, "--out", "learned/bpe", "book.txt")  # directories on the way are made
    run("tokenize", "book.txt", "--tokenizer", "learned/bpe", "--valid", 0.1, "--out", "book")
    run("tokenize", "notes.jsonl", "--field", "body", "--tokenizer", "learned/bpe", "--valid", 0.1, "--out", "notes")
    run("tokenize", "-", "--field", "body", "--tokenizer", "learned/bpe", "--valid", 0.1, "--out", "made/piped", data=pathlib.Path("notes.jsonl").read_bytes())
    assert pathlib.Path("notes/00000.shard").read_bytes() == pathlib.Path("made/piped/00000.shard").read_bytes()
    book = json.loads(pathlib.Path("book/shards.json").read_text())
    assert book["documents"] == 1 and abs(book["valid"]["bytes"] / book["bytes"] - 0.1) < 0.01
    notes = json.loads(pathlib.Path("notes/shards.json").read_text())
    assert notes["documents"] == 300 and notes["valid"]["document"] == 270

    with open("long.txt", "w") as f:
        piece = prose(500000)
        for i in range(60):
            f.write(piece)
    command = ["tokenize", "long.txt", "--tokenizer", "bytes", "--shard-tokens", 2000000]
    run(*command, "--out", "whole")
    for attempt in range(3):
        p = subprocess.Popen([program, *map(str, command), "--out", "killed"], stderr=subprocess.DEVNULL)
        deadline = time.time() + 20
        wanted = f"killed/{2 + 4 * attempt:05d}.shard"
        while p.poll() is None and not os.path.exists(wanted) and time.time() < deadline:
            time.sleep(0.001)
        p.send_signal(signal.SIGKILL)
        p.wait()
    run(*command, "--out", "killed")
    names = sorted(os.listdir("whole"))
    assert names == sorted(os.listdir("killed")), (names, os.listdir("killed"))
    assert all(pathlib.Path("whole", n).read_bytes() == pathlib.Path("killed", n).read_bytes() for n in names)

    # Training: stopped and resumed runs equal straight ones.
    small = ["--hidden", 16, "--layers", 2, "--heads", 2, "--row", 96, "--context", 32, "--batch", 2, "--steps", 14, "--eval-every", 5,
             "--checkpoint-every", 4, "--valid-tokens", 500]
    train = ["train", "--task", "text", *small]
    runs = {
        "sequences": ["--data", "book", "--model", "palimpsa-d", "--sample", "the king", "--sample-tokens", 150],
        "mixed": ["--data", "book=2,notes=1", "--model", "palimpsa-m", "--accumulate", 2, "--shuffle", "documents"],
        "carried": ["--data", "book", "--model", "palimpsa-m", "--carry-state"],
        "text": ["--data", "book.txt", "--tokenizer", "chars", "--model", "transformer", "--save-dtype", "bf16"],
        "carried-notes": ["--data", "notes", "--model", "gated-deltanet", "--carry-state"],
    }
    for name, options in runs.items():
        out = run(*train, *options, "--out", name)
        assert "validation loss" in out and "perplexity" in out, out
        again = name + "-again"
        at = sorted(random.sample(range(1, 14), 2))
        run(*train, *options, "--out", again, "--stop-after", at[0])
        run("train", "--resume", "--out", again, "--stop-after", at[1])
        run("train", "--resume", "--out", again)
        for file in ("model.safetensors", "optimizer.safetensors", "trainer.json", "tokenizer.json"):
            a, b = (pathlib.Path(d, "checkpoints/step-14", file).read_bytes() for d in (name, again))
            assert a == b, (name, at, file)
        lines = [[json.loads(line) for line in pathlib.Path(d, "metrics.jsonl").read_text().splitlines()] for d in (name, again)]
        for line in lines[0] + lines[1]:
            line.pop("tokens_per_s")
            assert 0 < line.pop("data_share") < 1
        assert lines[0] == lines[1], name
        last = lines[0][-1]
        assert {"valid_loss", "token_perplexity", "byte_perplexity", "word_perplexity"} <= set(last) and "accuracy" not in last, last
        assert pathlib.Path(name, "checkpoints/best/tokenizer.json").exists()
    sample = json.loads(pathlib.Path("sequences/metrics.jsonl").read_text().splitlines()[-1])["sample"]
    assert len(sample) > 50 and all(c.isprintable() or c in "\n\t\r\u00ad\ufffd" or c.isspace() for c in sample), sample  # nothing that upsets a terminal
    run(*train, "--data", "book", "--model", "palimpsa-d", "--vocab", 900, "--sample", "the king", "--sample-tokens", 60, "--stop-after", 5, "--out", "padded")  # 300 ids
    assert json.loads(pathlib.Path("padded/metrics.jsonl").read_text().splitlines()[-1])["sample"]
    report = pathlib.Path("sequences/report.html").read_text()
    assert "perplexity" in report and "ccuracy" not in report
    assert b'"BF16"' in pathlib.Path("text/checkpoints/best/model.safetensors").read_bytes()[:4000]
    assert b'"BF16"' not in pathlib.Path("text/checkpoints/step-14/model.safetensors").read_bytes()[:4000]

    # The end of a text that was held back is measured by its own bytes and words.
    for part in ("valid", "train"):
        measured = json.loads(run("eval", "sequences", "--data", "book", "--part", part, "--json"))
        held = book["valid"]["bytes"], book["valid"]["words"]
        expected = held if part == "valid" else (book["bytes"] - held[0], book["words"] - held[1])
        assert (measured["bytes"], measured["words"]) == expected, (part, measured, book)

    # A source of few documents is mixed with one of many piece by piece, not read to its end first.
    with open("lines.jsonl", "w") as f:
        for i in range(1200):
            f.write(json.dumps({"text": prose(20)}) + "\n")
    run("tokenize", "lines.jsonl", "--tokenizer", "learned/bpe", "--out", "lines")
    for data, shuffled in (("lines", "documents shuffled"), ("book=1,lines=1", "pieces of documents shuffled")):
        plan = run(*train, "--data", data, "--model", "palimpsa-d", "--dry-run", "--out", "never")
        assert f", {shuffled}" in plan, plan
    # config.json says the order; a run that began with auto under the old rule, all sources together, keeps it.
    mixed = [*train, "--data", "book=1,lines=1", "--model", "palimpsa-d"]
    run(*mixed, "--out", "pieces")
    run(*mixed, "--shuffle", "documents", "--out", "old")
    run(*mixed, "--shuffle", "documents", "--stop-after", 6, "--out", "older")
    settings = json.loads(pathlib.Path("older/config.json").read_text())
    pathlib.Path("older/config.json").write_text(json.dumps({**settings, "shuffle": "auto"}))
    run("train", "--resume", "--out", "older")
    last = {name: pathlib.Path(name, "checkpoints/step-14/model.safetensors").read_bytes() for name in ("pieces", "old", "older")}
    assert json.loads(pathlib.Path("pieces/config.json").read_text())["shuffle"] == "sequences"
    assert last["older"] == last["old"] != last["pieces"]

    # Fine-tuning starts from a model's weights, at a tenth of the rate.
    run("train", "--task", "text", "--data", "notes", "--model", "mixed", "--steps", 2, "--row", 64, "--context", 32, "--batch", 1, "--out", "tuned")
    assert abs(json.loads(pathlib.Path("tuned/config.json").read_text())["lr"] - 3e-4) < 1e-12

    # What does not fit is refused by name.
    pathlib.Path("cut").mkdir()
    for n in os.listdir("book"):
        pathlib.Path("cut", n).write_bytes(pathlib.Path("book", n).read_bytes())
    pathlib.Path("cut/00000.shard").write_bytes(pathlib.Path("book/00000.shard").read_bytes()[:-5])
    pathlib.Path("empty.txt").write_bytes(b"")
    for options, says in ((["--data", "cut"], "cut short"), (["--data", "nowhere"], "nowhere"), (["--data", "book.txt"], "--tokenizer"), ([], "--data"),
                          (["--data", "book", "--tokenizer", "bytes"], "another tokenizer"),
                          (["--data", "book=0"], "above 0"), (["--data", "book", "--carry-state", "--model", "transformer"], "fixed size"),
                          (["--data", "book", "--vocab", 20], "300 ids"), (["--data", "book", "--shuffle", "well"], "--shuffle"),
                          (["--data", "book", "--carry-state", "--shuffle", "documents"], "does not go with --shuffle documents"), (["--data", "book", "--valid-tokens", 1], "at least 2"),
                          (["--data", "book", "--row", 1 << 30, "--batch", 1 << 30, "--accumulate", 16], "too large"),
                          (["--data", "book", "--sample", ""], "sample"), (["--data", "book", "--sample", "a", "--sample-tokens", 2147483647], "--sample-tokens"), (["--data", "text/data-0", "--sample", "\u2603"], "U+2603"),
                          (["--data", "empty.txt", "--tokenizer", "bytes"], "no text"), (["--data", "book", "--valid-data", "cut"], "cut short")):
        model = [] if "--model" in options else ["--model", "palimpsa-d"]
        message = run(*train, *options, *model, "--out", "refused", code=2)
        assert says in message, (options, message)
        assert not pathlib.Path("refused/config.json").exists()
        assert "empty.txt" not in options or not pathlib.Path("refused").exists()
    # What is wrong whatever the text holds is reported before the text is tokenized: nothing is left.
    for options, says in ((["--model", "palimsa-d"], "did you mean 'palimpsa-d'"), (["--schedule", "linear"], "schedule"), (["--beta1", 2], "--beta1"), (["--decay", "all"], "--decay"),
                          (["--rule", "longhron"], "longhron"), (["--layers", 100000], "layers"), (["--shuffle", "well"], "--shuffle"), (["--save-dtype", "f8"], "--save-dtype"),
                          (["--model", "transformer", "--carry-state"], "fixed size"), (["--accumulate", 0], "--accumulate"), (["--sample", ""], "--sample"),
                          (["--tokenizer", "nowhere"], "nowhere"), (["--model", "text"], "sizes and initial weights cannot be chosen"), (["--init", "slow"], "--init 'slow': expected recall"), (["--model", "elsewhere/model"], "elsewhere"),
                          (["--tokenizer", os.getcwd()], "no tokenizer.json"), (["--data", os.getcwd()], "shards.json"), (["--steps", 3, "--epochs", 2], "either --steps or --epochs")):
        message = run(*train, "--data", "book.txt", "--tokenizer", "chars", *([] if "--model" in options else ["--model", "palimpsa-d"]), *options, "--out", "never", code=2)
        assert says in message and "tokens in" not in message, (options, message)
        assert not pathlib.Path("never").exists(), options
    for options in (["--data", "book"], ["--data", "book.txt", "--tokenizer", "bytes"]):
        assert "another tokenizer" in run("train", "--task", "text", *options, "--model", "text", "--out", "never", code=2)
    for options, says in ((["--data", "book.txt", "--model", "text"], "has its own vocabulary"), (["--data", "book.txt,notes.jsonl=2", "--model", "palimpsa-d"], "--learn-chars"),
                          (["--data", "book.txt=x", "--model", "palimpsa-d"], "after '='")):
        assert says in run("train", "--task", "text", "--tokenizer", "chars", *options, "--out", "never", code=2)
        assert not pathlib.Path("never").exists(), options
    for options in (["book.txt", "--tokenizer", os.getcwd()], [os.getcwd(), "--tokenizer", "bytes"]):
        assert "director" in run("tokenize", *options, "--out", "never", code=2)
        assert not pathlib.Path("never").exists(), options
    # A path may hold commas.
    pathlib.Path("p,q.txt").write_bytes(pathlib.Path("book.txt").read_bytes())
    run("train", "--task", "text", "--data", "p,q.txt=2,book", "--model", "palimpsa-d", "--hidden", 16, "--layers", 1, "--tokenizer", "learned/bpe", "--stop-after", 1, "--out", "commas")
    assert sorted(p.name for p in pathlib.Path("commas").glob("data-*")) == ["data-0"]
    run("train", "--task", "text", "--data", "p,q.txt", "--model", "palimpsa-d", "--hidden", 16, "--layers", 1, "--tokenizer", "chars", "--stop-after", 1, "--out", "characters")
    # A directory may be called like a vocabulary that needs no file, and has its own.
    own = json.loads(run("inspect", "characters", "--json"))["vocab"]
    for name in "bytes", "ids":
        run("convert", "characters", name, "--to", "palimpsa")
        assert len(json.loads(pathlib.Path(name, "tokenizer.json").read_text())["model"]["vocab"]) == own != 256
        text = run("generate", "characters", "--prompt", "a ", "--max-tokens", 5, "--temperature", 0)
        assert run("generate", name, "--prompt", "a ", "--max-tokens", 5, "--temperature", 0) == text, name
        run("train", "--task", "text", "--data", "book.txt", "--model", name, "--stop-after", 1, "--out", f"from-{name}")
    # A recipe's length gives way to the command line's, in whichever unit.
    pathlib.Path("recipe.json").write_text('{"task": "text", "steps": 500}')
    run("train", "--config", "recipe.json", "--data", "book", "--model", "palimpsa-d", "--hidden", 16, "--layers", 1, "--epochs", 1, "--stop-after", 1, "--out", "by-epochs")
    assert json.loads(pathlib.Path("by-epochs/config.json").read_text())["steps"] < 500
    run("tokenize", "--train-bpe", 10, "--out", "unlearned", "book.txt", code=2)
    assert not pathlib.Path("unlearned").exists()
    # Other data under the same name.
    run("tokenize", "book.txt", "--tokenizer", "learned/bpe", "--valid", 0.2, "--out", "moving")
    run(*train, "--data", "moving", "--model", "palimpsa-d", "--stop-after", 3, "--out", "moved")
    for n in os.listdir("book"):
        pathlib.Path("moving", n).write_bytes(pathlib.Path("book", n).read_bytes())
    assert "data_checksum" in run("train", "--resume", "--out", "moved", code=2)
    # A disk that is full.
    r = subprocess.run(["bash", "-c", f"ulimit -f 4; trap '' XFSZ; '{program}' tokenize book.txt --tokenizer bytes --out full"], capture_output=True)
    assert r.returncode == 1 and b"cannot write" in r.stderr and not os.path.exists("full"), r
print("text becomes shards, shards become models")
