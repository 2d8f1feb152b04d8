#!/usr/bin/env python3
"""`palimpsa tokenize` from the outside: ids on one line, bytes back exactly, learned vocabularies, one sentence for each
thing that is wrong."""
import functools, json, pathlib, subprocess, tempfile

import outside
from outside import sentencepiece

run = functools.partial(outside.run, "tokenize")



def added(content, special, **more):
    return {"content": content, "special": special, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **more}


def added_tokens(folder):
    """Tokens that other files add: ids are those of transformers 5.23 on the same files."""
    def ids_are(name, cases, *how):
        for text, ids in cases:
            assert run("--tokenizer", folder / name, *how, "--encode", text).decode().split() == [str(i) for i in ids], (name, how, text)

    pieces, llama = sentencepiece(["\u2581", *"abchi", "\u2581a", "\u2581b", "hi", "\u2581hi", *"[]/<s>unk|"]), folder / "llama"
    llama.mkdir()
    (llama / "tokenizer.model").write_bytes(pieces)
    ids_are("llama", [("a</s><s>b", [9, 2, 1, 5]), ("a </s> <s> b", [9, 3, 2, 3, 1, 10]), ("</s>b", [2, 5]), ("<unk>a", [0, 4])])
    ids_are("llama", [("a</s>", [9, 16, 15, 17, 18])], "--special-as-text")
    (llama / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "added_tokens_decoder": {
        **{str(i): added(text, True) for i, text in enumerate(("<unk>", "<s>", "</s>"))}, "23": added("<|im_start|>", True), "24": added("<|im_end|>", True), "25": added("<tool>", False)}}))
    ids_are("llama", [("hi<|im_end|>a <tool> b", [12, 24, 4, 3, 25, 10]), ("<|im_start|>a", [23, 4]), ("a<|im_end|>", [9, 24]), ("a</s><s>b", [9, 2, 1, 5])])
    (llama / "tokenizer_config.json").unlink()
    (llama / "added_tokens.json").write_text(json.dumps({"<tool>": 23}))  # not special, so transformers calls it normalized
    ids_are("llama", [("hi<tool>a <tool> b", [12, 23, 4, 3, 23, 10])])
    (llama / "added_tokens.json").unlink()
    (llama / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "add_eos_token": True}))
    ids_are("llama", [("a", [9, 2])], "--add-special")

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    letters, fast, gpt2 = {c: i for i, c in enumerate("abc<|im>dtol")}, folder / "fast", folder / "gpt2"
    n = len(letters)
    fast.mkdir()
    (fast / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": n, **added("<|im|>", False)}], "pre_tokenizer": byte_level, "decoder": byte_level, "model": {"type": "BPE", "vocab": letters, "merges": []}}))
    (fast / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|d|>", "added_tokens_decoder": {str(n): added("<|im|>", True), str(n + 1): added("<|d|>", True), str(n + 2): added("<to>", False)}}))
    ids_are("fast", [("a<|im|>b", [0, n, 1]), ("a<|d|>b<to>c", [0, n + 1, 1, n + 2, 2])])
    ids_are("fast", [("<|d|>", [3, 4, 8, 4, 7])], "--special-as-text")
    assert run("--tokenizer", fast, "--decode", f"0 {n} {n + 2}") == b"a<|im|><to>"

    gpt2.mkdir()
    (gpt2 / "vocab.json").write_text(json.dumps({**letters, "<|endoftext|>": n}))
    (gpt2 / "merges.txt").write_text("#version: 0.2\n")
    (gpt2 / "added_tokens.json").write_text(json.dumps({"<to>": n + 2, "<|im|>": n + 1}))
    (gpt2 / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": ["<|im|>"]}))
    ids_are("gpt2", [("a<|im|>b", [0, n + 1, 1]), ("a<to>b<|endoftext|>c", [0, n + 2, 1, n, 2])])

    # Saved next to shards and opened there, they are the same; so is the file that a GGUF file would hold.
    (folder / "words").write_text("a b c " * 200)
    for name, text in (("fast", "a<|d|>b<to>c"), ("gpt2", "a<to>b<|im|>c"), ("llama", "a</s><s>b")):
        if name == "llama":
            (folder / "words").write_text("a b " * 200)
        else:
            (folder / "words").write_text("abc" * 200)
        run(folder / "words", "--tokenizer", folder / name, "--out", folder / f"{name}-shards")
        assert run("--tokenizer", folder / f"{name}-shards", "--encode", text) == run("--tokenizer", folder / name, "--encode", text), name
        for file in (folder / name).iterdir():
            assert file.name == "tokenizer.json" or (folder / f"{name}-shards" / file.name).read_bytes() == file.read_bytes(), file
    (llama / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"5": added("x", True)}}))
    assert "'x' has id 5, which is the piece 'b'" in run("--tokenizer", llama, "--encode", "a", code=2)


with tempfile.TemporaryDirectory() as folder:
    added_tokens(pathlib.Path(folder))

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
