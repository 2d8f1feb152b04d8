#!/usr/bin/env python3
"""`palimpsa eval` from the outside: counts are Python's, the same documents give the same numbers from any source, windows are
those of the training, and one sentence for each thing that is wrong."""
import json, math, os, pathlib, re, shutil, subprocess, tempfile

from outside import golden, program, run, tiny_models


def near(found, expected, accept=1e-9):
    assert abs(found - expected) <= accept * abs(expected), (found, expected)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = tiny_models(folder)
    (folder / "text").write_text("".join(chr(32 + i % 95) for i in range(95 * 3)) + "\n\u00e9\u4e2d")
    run("tokenize", "--learn-chars", "--out", hybrid, folder / "text")

    # Perplexity: words and bytes as Python counts them, of pages as they stand in the file.
    pages = [" = One = \n \n Some text , with @-@ signs . \n = = Part = = \n more\x1c\x1d\u2003words\u00a0here \u200b\n",
             " = Two and a half = \n\n\nx = = y\n" + "long line " * 300 + "\n", " = Three = \n end"]
    (folder / "wiki").write_text(" \n" + "".join(pages), newline="")
    E = ["eval", hybrid, "--task", "perplexity", "--tokenizer", "bytes"]
    found = json.loads(run(*E, "--data", folder / "wiki", "--split", "wikitext", "--json"))
    assert found["documents"] == 3
    assert found["words"] == sum(len(re.split(r"\s+", page)) for page in pages)
    assert found["bytes"] == sum(len(page.encode()) for page in pages) == found["tokens"] + 3  # bytes has no token to begin with
    near(found["token_perplexity"], math.exp(found["nll"]))
    near(found["nll_sum"], found["nll"] * found["tokens"])
    near(found["byte_perplexity"], math.exp(found["nll_sum"] / found["bytes"]))
    near(found["word_perplexity"], math.exp(found["nll_sum"] / found["words"]))
    bins = found["by_position"]
    assert [b["from"] for b in bins] == [2**i for i in range(len(bins))] and all(b["to"] == 2 * b["from"] for b in bins)
    near(sum(b["nll"] * b["tokens"] for b in bins), found["nll_sum"])

    # The same documents as JSONL, as shards, and in other pieces.
    (folder / "wiki.jsonl").write_text("".join(json.dumps({"text": page}) + "\n" for page in pages))
    run("tokenize", "--tokenizer", "bytes", folder / "wiki.jsonl", "--out", folder / "shards")
    for other in (["--data", folder / "wiki.jsonl"], ["--data", folder / "shards"], ["--data", folder / "wiki", "--split", "wikitext", "--piece", 33, "--batch", 2]):
        same = json.loads(run(*E, *other, "--json"))
        assert all(same[key] == found[key] for key in ("documents", "tokens", "bytes", "words")), other
        near(same["nll"], found["nll"], 1e-5)
    same = json.loads(run(*E, "--data", "-", "--split", "wikitext", "--json", data=(folder / "wiki").read_bytes()))
    assert all(same[key] == found[key] for key in found if key != "tokens_per_s")
    assert "another tokenizer" in run("eval", hybrid, "--data", folder / "shards", code=2)

    # A text that is too long for one document, and the shards that the sentence speaks of: here two, and the end of the text.
    with open(folder / "long", "wb") as long:
        long.truncate((64 << 20) + 1)
    assert "long: longer than 67108864 bytes" in (why := run(*E, "--data", folder / "long", code=2)) and "'palimpsa tokenize'" in why, why
    (folder / "book").write_bytes(b"one two  three\n" * 18000)  # more than a block
    run("tokenize", "--tokenizer", "bytes", folder / "book", "--out", folder / "pieces", "--shard-tokens", 1000, "--valid", 0.01)
    end = json.loads(run(*E, "--data", folder / "pieces", "--part", "valid", "--json"))
    assert (end["documents"], end["tokens"], end["bytes"], end["words"]) == (1, 2700 - 1, 2700, 541), end

    # Several models, a baseline, a figure.
    several = json.loads(run("eval", hybrid, attention, "--baseline", hybrid, "--tokenizer", "bytes", "--data", folder / "wiki", "--figure", folder / "f.svg", "--json"))
    assert len(several) == 2 and all(d["nll"] == 0 for d in several[0]["difference_by_position"])
    near(several[1]["difference_by_position"][3]["nll"], several[1]["by_position"][3]["nll"] - several[0]["by_position"][3]["nll"], 1e-6)
    assert several[1]["context"] == 4096
    line = re.search(r'fill:none[^>]* d="(M [\d.]+ [\d.]+ L [^"]{100,})"', (folder / "f.svg").read_text())[1]
    x = [float(point.split()[0]) for point in re.split("[ML] ", line)[1:]]
    drawn = [bin for bin in several[0]["by_position"] if bin["from"] >= 32]  # each at its middle, none of the first positions
    middle = [math.log(bin["from"] * (bin["to"] - 1)) for bin in drawn]
    assert len(x) == len(drawn) >= 3, (x, drawn)
    near((x[1] - x[0]) / (x[2] - x[1]), (middle[1] - middle[0]) / (middle[2] - middle[1]), 1e-3)
    table = run("eval", hybrid, attention, "--tokenizer", "bytes", "--data", folder / "wiki").decode()
    assert "word ppl" in table and "hybrid" in table and "windows of 4096" in table
    assert "is not known" in table and "different tokenizers" not in table
    cut = json.loads(run(*E, "--data", folder / "wiki", "--context", 64, "--json"))
    assert cut["tokens"] == several[0]["tokens"] and cut["by_position"][-1]["from"] == 64 and cut["nll"] != several[0]["nll"]

    # Attention is measured with the context of its training, which the run knows, wherever in it the model stands.
    (folder / "run/checkpoints").mkdir(parents=True)
    (folder / "run/config.json").write_text(json.dumps({"task": "text", "context": 48}))
    for name in ("step-7", "best"):
        shutil.copytree(attention, folder / "run/checkpoints" / name)
    trained = ["--tokenizer", "bytes", "--data", folder / "text"]
    expected = json.loads(run("eval", attention, *trained, "--context", 48, "--json"))
    for model in (folder / "run", folder / "run/checkpoints/best"):
        same = json.loads(run("eval", model, *trained, "--json"))
        assert same["context"] == 48 and same["nll_sum"] == expected["nll_sum"]
        assert json.loads(run("eval", model, *trained, "--context", 7, "--json"))["context"] == 7
    assert "\nrun: windows of 48 tokens, as it was trained\n" in run("eval", folder / "run", *trained).decode()
    (folder / "run/config.json").write_text(json.dumps({"task": "mqar", "context": 48}))
    same = json.loads(run("eval", folder / "run", *trained, "--json"))
    assert same["context"] == 4096 and same["nll_sum"] != expected["nll_sum"]

    # By position with intervals over documents: a bin of a document holds the same tokens for all models, as far as they read.
    texts = [f"{i} " + "abc def " * (10 + 3 * i) for i in range(14)]
    (folder / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    B = ["--tokenizer", "bytes", "--data", folder / "docs.jsonl", "--by-position"]
    one = json.loads(run("eval", hybrid, *B, "--json"))
    all_bins = {b["from"]: b for b in json.loads(run("eval", hybrid, *B[:-1], "--json"))["by_position"]}
    assert [b["from"] for b in one["by_position"]] == [1, 2, 4, 8, 16, 32, 64, 128] and one["documents"] == 14  # 256 is reached by six
    for b in one["by_position"]:
        near(b["nll"], all_bins[b["from"]]["nll"], 1e-6)
        assert b["low"] <= b["nll"] <= b["high"] and b["documents"] == sum(len(t) > b["from"] for t in texts) and b["tokens"] == all_bins[b["from"]]["tokens"]
    same, other = json.loads(run("eval", hybrid, attention, *B, "--baseline", hybrid, "--context", 64, "--json", "--figure", folder / "p.svg"))
    assert all(d["nll"] == d["low"] == d["high"] == 0 for d in same["difference_by_position"])
    assert [d["from"] for d in other["difference_by_position"]] == [1, 2, 4, 8, 16, 32, 64]
    assert other["by_position"][-1]["tokens"] == 14 and other["by_position"][0]["tokens"] == 14  # the first window alone
    for d, mine, base in zip(other["difference_by_position"], other["by_position"], same["by_position"]):
        near(d["nll"], mine["nll"] - base["nll"], 1e-5)
        assert d["low"] < d["nll"] < d["high"] or d["from"] == 1
    long = run("eval", hybrid, *B, "--at-least", 200).decode()
    assert long.startswith(f"{sum(len(t) >= 200 for t in texts)} documents ({sum(len(t) < 200 for t in texts)} shorter ones passed over)"), long
    assert re.search(r"256 to \d+ left out: 6 documents to compare, at least 8 are needed", long), long
    assert "no document has 9999 tokens: 14 are shorter" in run("eval", hybrid, *B, "--at-least", 9999, code=2)
    assert "nothing to compare" in run("eval", hybrid, *B, "--at-least", 300, code=2)
    assert "--by-position" in run("eval", hybrid, *B[:-1], "--at-least", 9, code=2)

    # Answers alone: what a text with an answer at its end costs beyond the same text without, by the distance to where it was reported.
    (folder / "hay").write_text("The sea is wide and the sky is high. A bird sings.\n" * 20)
    run("needle", folder / "hay", "--tokenizer", "bytes", "--tokens", 900, "--needles", 4, "--questions", 3, "--count", 9, "--out", folder / "needles.jsonl")
    A = ["--tokenizer", "bytes", "--data", folder / "needles.jsonl", "--answers"]
    found, rows = json.loads(run("eval", hybrid, *A, "--json")), [json.loads(line) for line in open(folder / "needles.jsonl")]
    expected = {}
    for q, text in ((q, row["text"].encode()) for row in rows[:2] for q in row["questions"]):
        costs = []
        for end in (q["answer"], q["answer"] + 7):
            (folder / "cut").write_bytes(text[:end])
            costs.append(json.loads(run("eval", hybrid, "--tokenizer", "bytes", "--data", folder / "cut", "--json"))["nll_sum"])
        bin = expected.setdefault(1 << (q["answer"] - q["told"]).bit_length() - 1, [0, 0])
        bin[0] += 7
        bin[1] += costs[1] - costs[0]
    (folder / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    two = json.loads(run("eval", hybrid, *A[:3], folder / "two.jsonl", "--answers", "--piece", 64, "--json"))
    assert {b["from"]: b["tokens"] for b in two["by_position"]} == {at: bin[0] for at, bin in expected.items()}
    for b in two["by_position"]:
        near(b["nll"], expected[b["from"]][1] / b["tokens"], 1e-4)
    assert found["answers"] == found["words"] == 27 and found["bytes"] == found["tokens"] == 27 * 7, found
    said = run("eval", hybrid, *A).decode()
    assert "27 answers, which alone count" in said and not re.search(r"^ +1 ", said, re.M), said  # no answer is one token away
    assert found["right"] == 0 and re.search(r" 0\.0%$", said, re.M), said
    bands = json.loads(run("eval", hybrid, attention, *A, "--by-position", "--context", 900, "--baseline", hybrid, "--json", "--figure", folder / "a.svg"))
    assert bands[0]["documents"] == 9 and bands[0]["answers"] == 27 and [d["nll"] for d in bands[0]["difference_by_position"]] == [0] and bands[1]["difference_by_position"][0]["tokens"] >= 8 * 7
    q = rows[0]["questions"][1]
    for row, message in (({"text": "x"}, "no 'questions'"), (rows[0] | {"questions": [q | {"answer": q["answer"] + 1}]}, "does not say"),
                         (rows[0] | {"questions": [q | {"answer": 1 << 62}]}, "does not say"), (rows[0] | {"questions": [q | {"told": -1}]}, "question 1: expected whole numbers"),
                         (rows[0] | {"questions": [q, q | {"told": 0}]}, "question 2: its answer")):
        (folder / "bad.jsonl").write_text(json.dumps(row) + "\n")
        said = run("eval", hybrid, *A[:3], folder / "bad.jsonl", "--answers", code=2)
        assert "bad.jsonl: line 1: " in said and message in said, said
    # An answer is right when all of its tokens are: a model that says 53 (and 3 after a 4) is wrong where one digit differs.
    (folder / "always").write_text("".join(f"bafe {'45555'[i * i % 97 % 5]}3\n" for i in range(2000)))
    run("train", "--task", "text", "--data", folder / "always", "--tokenizer", "bytes", "--model", "palimpsa-m", "--hidden", 32, "--layers", 1, "--row", 256, "--context", 64, "--batch", 1,
        "--steps", 60, "--lr", "1e-2", "--out", folder / "parrot")
    for numbers, right in (((53, 53, 53), 3), ((53, 54, 43), 1), ((35, 53), 1)):
        lines = [f"bafe {n}\nbafe {n}" for n in numbers]
        asked = [dict(key="bafe", number=n, told=0, answer=13) for n in numbers]
        (folder / "notes.jsonl").write_text("".join(json.dumps(dict(text=t, questions=[q])) + "\n" for t, q in zip(lines, asked)))
        for piece in (1, 14, 1024): # passes end within answers, too
            said = json.loads(run("eval", folder / "parrot", "--data", folder / "notes.jsonl", "--answers", "--piece", piece, "--batch", 1, "--json"))
            assert (said["answers"], said["right"]) == (len(numbers), right), (numbers, piece, said)
    assert "answers are found in JSONL" in run("eval", hybrid, "--tokenizer", "bytes", "--data", folder / "text", "--answers", code=2)

    # A name that is not UTF-8, and losses that are not numbers: all that JSON can say of them.
    odd = os.fsencode(folder) + b"/caf\xe9"
    shutil.copytree(os.fsencode(hybrid), odd)
    named = json.loads(run("eval", odd, *B, "--baseline", odd, "--json"))
    assert named["model"].endswith("/caf\ufffd") and named["baseline"] == named["model"] and named["by_position"] == one["by_position"], named
    weights = bytearray((hybrid / "model.safetensors").read_bytes())
    begin = 8 + int.from_bytes(weights[:8], "little")
    weights[begin:] = b"\xff" * (len(weights) - begin)
    pathlib.Path(os.fsdecode(odd) + "/model.safetensors").write_bytes(weights)
    spoiled = json.loads(run("eval", odd, *B, "--json"))["by_position"]
    assert [b["from"] for b in spoiled] == [b["from"] for b in one["by_position"]] and all(b["nll"] is b["low"] is b["high"] is None for b in spoiled), spoiled
    cost = json.loads(run("convert", odd, folder / "spoiled", "--dtype", "f16", "--tokenizer", "bytes", "--data", folder / "text", "--tokens", 20, "--json"))["cost"]
    assert cost["tokens"] == 20 and cost["loss_before"] is cost["loss_after"] is None, cost

    # Losses per token compare for the same tokens alone.
    shutil.copytree(hybrid, folder / "other")
    (folder / "other/tokenizer.json").unlink()
    run("tokenize", "--learn-chars", "--out", folder / "other", folder / "text", folder / "wiki")
    (folder / "plain").write_text("one two three")
    assert "only perplexity per byte and per word" in run("eval", hybrid, folder / "other", "--data", folder / "plain", "--figure", folder / "g.svg").decode()
    both = json.loads(run("eval", hybrid, folder / "other", "--data", folder / "plain", "--json"))
    why = run("eval", hybrid, hybrid, "--baseline", folder / "other", "--data", folder / "plain", code=2)
    assert "--baseline" in why and all(m["tokenizer"] in why and m["model"] in why for m in both), why
    run("eval", hybrid, "--baseline", folder / "other", "--tokenizer", "bytes", "--data", folder / "plain")

    # Words for one, and a name that is not UTF-8.
    (folder / "two").write_text("ab")
    assert run("eval", hybrid, "--data", folder / "two", "--context", 1).decode().startswith("1 document, 2 bytes, 1 word\n")
    assert "windows of 1 token\n" in run("eval", hybrid, "--data", folder / "two", "--context", 1).decode()
    odd = shutil.copytree(hybrid, os.fsdecode(os.fsencode(folder) + b"/m\xff"))
    for same in (["eval", odd], ["eval", odd, "--baseline", odd]):
        assert json.loads(run(*same, "--data", folder / "two", "--json"))["model"] == f"{folder}/m\ufffd"

    # One document takes one state, however many might be read at a time.
    def room(batch):
        child = subprocess.Popen([program, "eval", attention, "--tokenizer", "bytes", "--data", folder / "text", "--context", str(1 << 16), "--batch", str(batch)], stdout=subprocess.DEVNULL)
        _, status, use = os.wait4(child.pid, 0)
        assert status == 0
        return use.ru_maxrss
    assert room(8) < 2 * room(1)

    # An error names the place, and what does not fit the data is refused.
    bad = '{"text": "ab"}\n\n{"text": ""}\n{"text": "a\\u0416"}\n'
    (folder / "bad.jsonl").write_text(bad)
    assert "bad.jsonl: line 4: the character U+0416 at byte 1 " in run("eval", hybrid, "--data", folder / "bad.jsonl", code=2)
    assert "palimpsa: standard input: line 4: the character U+0416" in run("eval", hybrid, "--data", "-", "--field", "text", data=bad.encode(), code=2)
    (folder / "pages").write_text(" \n = One = \n one\n = Two = \n \u0416\n")
    assert "pages: page 2, from byte 17 on: the character U+0416 at byte 11 " in run("eval", hybrid, "--data", folder / "pages", "--split", "wikitext", code=2)
    for wrong, says in ((["wiki", "--part", "valid"], "has parts"), (["wiki.jsonl", "--part", "train"], "has parts"), (["wiki.jsonl", "--split", "wikitext"], "not split"),
                        (["wiki", "--field", "text", "--split", "wikitext"], "not split"), (["shards", "--split", "wikitext"], "not split"), (["shards", "--field", "text"], "no field 'text'")):
        assert f"{wrong[0]}: " in (why := run(*E, "--data", folder / wrong[0], *wrong[1:], code=2)) and says in why, (wrong, why)

    (folder / "empty").write_bytes(b"")
    assert "empty" in run(*E, "--data", folder / "empty", "--split", "wikitext", code=2) and "empty" in run(*E, "--data", "-", "--split", "wikitext", code=2)
    for wrong, says in ((["eval"], "name a model"), (["eval", hybrid, "--task", "perplexty", "--data", "x"], "did you mean 'perplexity'"),
                        (["eval", hybrid, "--task", "zebra", "--data", "x"], "expected perplexity"), (["eval", hybrid], "--data"),
                        (["eval", hybrid, "--data", folder / "empty"], "empty"), (["eval", hybrid, "--data", folder / "no"], "cannot open"),
                        (["eval", attention, "--data", folder / "wiki"], "tokenizer"), (["eval", hybrid, "--data", folder / "wiki", "--split", "wikitex"], "did you mean"),
                        (["eval", golden / "models/mqar_gdn", "--tokenizer", "bytes", "--data", folder / "wiki"], "256 ids"),
                        (["eval", hybrid, "--data", folder / "wiki", "--figure", "x.pdf"], ".svg"), (["eval", hybrid, "--data", hybrid], "shards"),
                        (["eval", hybrid, "--data", folder / "wiki", "--context", "-1"], "--context")):
        assert says in run(*wrong, code=2), wrong
    assert "nowhere" in run("eval", hybrid, "--data", folder / "no", "--figure", folder / "nowhere/x.svg", code=1)  # before the work
    print("eval: as promised")
