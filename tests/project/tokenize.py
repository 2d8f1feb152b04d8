#!/usr/bin/env python3
"""`palimpsa tokenize` from the outside: ids on one line, bytes back exactly, learned vocabularies, one sentence for each
thing that is wrong."""
import functools, json, pathlib, subprocess, tempfile

import outside

run = functools.partial(outside.run, "tokenize")

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    raw = bytes(range(256)) * 3
    (folder / "raw").write_bytes(raw)
    assert run("--tokenizer", "bytes", "--encode", "hi\n") == b"104 105 10\n"
    assert run("--tokenizer", "bytes", "--encode", "") == b"\n"
    assert run("--tokenizer", "bytes", "--encode-file", folder / "raw") == b" ".join(b"%d" % b for b in raw) + b"\n"
    assert run("--tokenizer", "bytes", "--encode-file", "-", data=b"\xff\x00") == b"255 0\n"
    assert run("--tokenizer", "bytes", "--decode", " 255 0,10\n") == b"\xff\x00\n"
    assert run("--tokenizer", "bytes", "--decode", "") == b""

    text = ("the lower the newer, the wider the \u00e9t\u00e9. It's 1905!\n" * 40).encode()
    (folder / "text").write_bytes(text)
    run("--train-bpe", 300, "--out", folder / "bpe", folder / "text", folder / "raw")
    model = json.loads((folder / "bpe" / "tokenizer.json").read_text())["model"]
    assert len(model["vocab"]) == 300 and len(model["merges"]) == 300 - 257
    for data in (text, raw, b"a<|endoftext|>b", b"", b"   \n\n\t x"):
        ids = run("--tokenizer", folder / "bpe", "--encode-file", "-", data=data).decode()
        assert run("--tokenizer", folder / "bpe", "--decode", ids) == data
    assert len(run("--tokenizer", folder / "bpe", "--encode-file", folder / "text").split()) < len(text) / 2
    first = (folder / "bpe" / "tokenizer.json").read_bytes()
    run("--train-bpe", 300, "--out", folder / "bpe", folder / "text", folder / "raw")
    assert (folder / "bpe" / "tokenizer.json").read_bytes() == first

    run("--learn-chars", "--out", folder / "chars", folder / "text")
    ids = run("--tokenizer", folder / "chars", "--encode-file", folder / "text").decode()
    assert max(map(int, ids.split())) == len(set(text.decode())) - 1
    assert run("--tokenizer", folder / "chars", "--decode", ids) == text
    assert "U+007A" in run("--tokenizer", folder / "chars", "--encode", "z", code=2)

    # Ids from a file, more than a command line takes; learning from JSONL is learning from its documents.
    (folder / "long").write_bytes(text * 100)
    (folder / "ids").write_bytes(run("--tokenizer", "bytes", "--encode-file", folder / "long"))
    assert run("--tokenizer", "bytes", "--decode-file", folder / "ids") == text * 100
    assert run("--tokenizer", "bytes", "--decode-file", "-", data=b"104,105") == b"hi"
    lines = text.decode().splitlines(keepends=True)
    (folder / "lines.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(json.dumps({"n": 10**30, "text": line}).encode() + b"\n" for line in lines))
    for how in ("--learn-chars",), ("--train-bpe", 290):
        run(*how, "--out", folder / "plain", folder / "text")
        run(*how, "--out", folder / "documents", folder / "lines.jsonl")
        assert (folder / "plain/tokenizer.json").read_bytes() == (folder / "documents/tokenizer.json").read_bytes(), how
        for name in "plain", "documents":
            (folder / name / "tokenizer.json").unlink()

    # What is in a directory already is not replaced.
    first = (folder / "bpe/tokenizer.json").read_bytes()
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    for wrong in (("--train-bpe", 290, "--out", folder / "bpe"), ("--learn-chars", "--out", folder / "bpe"), ("--tokenizer", "bytes", "--out", folder / "bpe"),
                  ("--tokenizer", "bytes", "--out", folder / "model")):
        assert "choose another directory" in run(folder / "text", *wrong, code=2), wrong
    assert (folder / "bpe/tokenizer.json").read_bytes() == first and len(list((folder / "model").iterdir())) == 1

    # The end of a text is held back by the text of its tokens, and never less than can be predicted.
    def held_back(source, fraction, *more):
        run(source, "--tokenizer", folder / "bpe", "--valid", fraction, "--out", folder / "held", *more)
        valid = json.loads((folder / "held/shards.json").read_text())["valid"]
        subprocess.run(["rm", "-r", folder / "held"], check=True)
        return valid
    assert abs(held_back(folder / "text", 0.25)["bytes"] / len(text) - 0.25) < 0.01
    for fraction in 0.0001, 0.9999999:
        assert "too few" in run(folder / "text", "--tokenizer", folder / "bpe", "--valid", fraction, "--out", folder / "few", code=2)
    for again in range(2):  # another fraction continues with what is there, and is complete then
        run(folder / "text", "--tokenizer", folder / "bpe", "--valid", 0.1, "--out", folder / "few")

    # A file without text is passed over next to others; standard input of a finished directory may have been another.
    (folder / "empty").write_bytes(b"")
    run(folder / "text", folder / "empty", "--tokenizer", "bytes", "--out", folder / "two")
    run("-", "--tokenizer", "bytes", "--out", folder / "piped", data=b"first text")
    assert "standard input" in run("-", "--tokenizer", "bytes", "--out", folder / "piped", data=b"another text", code=2)
    assert "no text" in run(folder / "empty", "--tokenizer", "bytes", "--out", folder / "none", code=2) and not (folder / "none").exists()
    assert "nothing to learn" in run("--train-bpe", 300, "--out", folder / "x", folder / "empty", code=2)
    for wrong, says in (((), "exactly one of"), (("--encode", "a"), "needs --tokenizer"), (("--tokenizer", "bytes"), "exactly one of"),
                        (("--tokenizer", "bytes", "--encode", "a", "--decode", "1"), "exactly one of"),
                        (("--tokenizer", "bytes", "--encode", "a", "b"), "unexpected argument"),
                        (("--tokenizer", "bytes", "--decode", "1 x"), "expects ids"), (("--tokenizer", "bytes", "--decode", "-1"), "expects ids"),
                        (("--tokenizer", "bytes", "--decode", "99999999999999999999"), "expects ids"), (("--tokenizer", "bytes", "--decode", "256"), "256"),
                        (("--tokenizer", folder / "none", "--encode", "a"), "cannot open"), (("--tokenizer", folder / "raw", "--encode", "a"), "neither"),
                        (("--tokenizer", folder / "empty", "--encode", "a"), "empty"), (("--tokenizer", "chars", "--encode", "a"), "learned from a text"),
                        (("--tokenizer", "bytes", "--encode-file", folder / "none"), "cannot open"), (("--train-bpe", 300, folder / "text"), "--out"),
                        (("--train-bpe", 300, "--out", folder / "x"), "at least one FILE"), (("--train-bpe", 0, "--out", folder / "x", folder / "text"), "number of ids"), (("--train-bpe", 10, "--out", folder / "x", folder / "text"), "257"),
                        (("--train-bpe", 300, "--out", folder / "text" / "x", folder / "text"), "directory"),
                        (("--learn-chars", "--out", folder / "x", folder / "raw"), "zero")):
        message = run(*wrong, code=2)
        assert says in message, (wrong, message)
print("tokenize keeps its word")
