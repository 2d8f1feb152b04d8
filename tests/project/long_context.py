#!/usr/bin/env python3
"""`palimpsa needle --ruler` and `palimpsa eval --tasks ruler|longbench|longbench2` from the outside: rows have their length and hold
their answers, recorded answers get their recorded scores, a model's answers are kept and continued from, and one sentence for each
thing that is wrong."""
import difflib, json, os, pathlib, random, re, shutil, subprocess, sys, tempfile

from outside import golden, program, run

recorded = golden / "longbench"
book = golden / "eval/data/wikitext-2/wiki.test.raw"
tasks = ["niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery",
         "vt", "cwe", "fwe", "qa_1", "qa_2"]


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().split("\n") if line]


def counts(text, words):
    return len(re.findall(rf"(?<!\w){re.escape(words)}(?!\w)", text))


def check_rows(root, length, written):
    """What each kind of row promises; a byte is a token."""
    for task in tasks:
        rows = lines(root / str(length) / task / "validation.jsonl")
        assert len({row["input"] for row in rows}) == len(rows) == 4, task
        for i, row in enumerate(rows):
            text, answers = row["input"], row["outputs"]
            size = len((text + row["answer_prefix"]).encode())
            assert row["length"] == row["length_w_model_temp"] == size + written[task] <= length, (task, row["length"], size)
            assert size > length / 3, (task, size)
            if task.startswith("niah"):
                assert all(counts(text, a) == 1 for a in answers) and len(answers) == (4 if task in ("niah_multivalue", "niah_multiquery") else 1), (task, answers)
                assert row["index"] == text.index(answers[0]) and row["token_position_answer"] == len(text[:row["index"]].encode())
                continue
            assert row["index"] == i
            if task == "vt":
                assert len(set(answers)) == 5 and all(counts(text, a) >= 1 for a in answers) and counts(text, answers[0]) == 2
                value = re.findall(r"\d{5}", row["answer_prefix"])[0]
                assert text.count(value) == 2 and len(re.findall(r"\d{5}", text)) == 5
            if task == "cwe":
                words = re.findall(r"\d+\. ([a-z]+)", text.split("The 10 words that come most often are:")[1].split("\n", 1)[1])
                most = sorted(set(words), key=words.count)[-10:]
                assert sorted(most) == sorted(answers) and all(words.count(a) == 6 for a in answers)
            if task == "fwe":
                words = text.split("\n")[1].split(" ")
                ranked = sorted(set(words) - {"..."}, key=words.count, reverse=True)
                assert answers == ranked[:3] or sorted(words.count(a) for a in answers) == sorted(words.count(a) for a in ranked[:3])
            if task.startswith("qa"):
                assert answers[0] in text and "Document 2:" in text


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    squad, hotpot = folder / "squad.json", folder / "hotpot.json"
    paragraph = "The ferry of {} leaves at {} in the morning and carries {} people over the water, when the wind allows it."
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": paragraph.format(f"Ost{a}{p}", p + 4, 10 * a + p), "qas": [
        {"question": f"Who waits at Ost{a}{p}?", "answers": [], "is_impossible": True},
        {"question": f"When does the ferry of Ost{a}{p} leave?", "answers": [{"text": f"{p + 4} in the morning"}] * 2, "is_impossible": False}]}
        for p in range(12)]} for a in range(4)]}))
    hotpot.write_text(json.dumps([{"question": f"Is ferry {i} older?", "answer": f"boat {i}", "context": [[f"Boat {i}-{k}", [f"This is boat {i}.", " It is old and heavy, and needs paint."]]
                                                                                                    for k in range(10)]} for i in range(6)]))

    # Rows: the same from the same seed, of the length asked for, with their answers.
    make = ["needle", book, "--tokenizer", "bytes", "--squad", squad, "--hotpot", hotpot, "--count", 4, "--ruler", "all", "--lengths"]
    said = run(*make, "3000,8k", "--out", folder / "rows").decode()
    assert said.count("validation.jsonl: 4 rows of at most") == 26 and "rows of at most 8192 tokens" in said
    written = dict.fromkeys(tasks, 128) | {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}
    check_rows(folder / "rows", 3000, written)
    run(*make, "3000", "--seed", 42, "--out", folder / "again")
    run(*make, "3000", "--seed", 43, "--out", folder / "other")
    for task in tasks:
        name = f"3000/{task}/validation.jsonl"
        first = (folder / "rows" / name).read_bytes()
        assert first == (folder / "again" / name).read_bytes() and first != (folder / "other" / name).read_bytes(), task

    # Other words, and what is left out.
    (folder / "words.json").write_text(json.dumps({"needle": "Key {key} opens door {value}.", "one": "{text}\nWhich door does {query} open?", "one_answer": " Door"}))
    run("needle", "--tokenizer", "bytes", "--ruler", "niah_single_1", "--lengths", "1k", "--count", 1, "--templates", folder / "words.json", "--out", folder / "words")
    row = lines(folder / "words/1024/niah_single_1/validation.jsonl")[0]
    assert re.search(rf"\nKey (\w+) opens door {row['outputs'][0]}\.\n(?:.*\n)*Which door does \1 open\?$", row["input"]) and row["answer_prefix"] == " Door"
    r = subprocess.run([program, "needle", "--tokenizer", "bytes", "--ruler", "all", "--lengths", "1k", "--count", "1", "--out", folder / "few"], capture_output=True, text=True)
    assert r.returncode == 0 and "niah_single_2 is left out: it needs a text" in r.stderr and "qa_2 is left out" in r.stderr and "left out: vt: rows of 1024 tokens have no room" in r.stderr and not (folder / "few/1024/qa_1").exists()
    # Words whose pairs are more than a list can hold, or have to be sorted among each other.
    for nouns, adjectives, says in ((8192, [f"b{k}" for k in range(8192)], "67108864 pairs of words: expected at most 16777216"),
                                    (4096, ["a"] + [f"a!{k}" for k in range(1024)], "too many adjectives begin with others, such as 'a'")):
        for name, words in (("noun", [f"n{k}" for k in range(nouns)]), ("adjective", adjectives), ("verb", ["run"])):
            (folder / f"{name}list.txt").write_text("\n".join(words))
        why = run("needle", "--tokenizer", "bytes", "--ruler", "niah_single_1", "--words", folder, "--lengths", "1k", "--count", 1, "--out", folder / "wrong", code=2)
        assert says in why, why
    (folder / "nounlist.txt").write_text("n" * 65)
    why = run("needle", "--tokenizer", "bytes", "--ruler", "niah_single_1", "--words", folder, "--lengths", "1k", "--count", 1, "--out", folder / "wrong", code=2)
    assert "nounlist.txt: a word of 65 bytes; expected at most 64" in why, why
    (folder / "nounlist.txt").unlink()
    # Lines that the tokenizer removes take no room, and are not repeated until there is none.
    bare = json.dumps({"pre_tokenizer": {"type": "Split", "behavior": "Removed", "pattern": {"Regex": "[b\n]"}}, "model": {"type": "BPE", "vocab": {chr(c): i for i, c in enumerate(range(32, 127))}, "merges": []}})
    (folder / "bare.json").write_text(bare)
    (folder / "hay").write_text("a\n" + ("b" * 31 + "\n") * 2000)
    run("needle", folder / "hay", "--tokenizer", folder / "bare.json", "--tokens", 4096, "--count", 1, "--out", folder / "few.jsonl")
    assert (folder / "few.jsonl").stat().st_size < 100000
    (folder / "cuts").write_text("0\t10\n5\t20\n")
    (folder / "bad.json").write_text('{"nedle": "x"}')
    (folder / "lacks.json").write_text('{"needle": "x {key}"}')
    for args, says in ((["--ruler", "niah_singel_1"], "did you mean 'niah_single_1'"), (["--ruler", ""], "--ruler expects all"), (["--ruler", "vt", "--lengths", "12"], "--lengths expects numbers"),
                       (["--ruler", "vt", "--lengths", "4k,x"], "found 'x'"), (["--ruler", "niah_single_2"], "needs a text"), (["--ruler", "qa_1"], "SQuAD"),
                       (["--ruler", "qa_1", "--squad", squad, "--count", 60], "there are 48"), (["--ruler", "vt", "--templates", folder / "bad.json"], "did you mean 'needle'"),
                       (["--ruler", "vt", "--templates", folder / "lacks.json"], "lacks {value}"), (["--ruler", "vt", "--templates", folder / "none"], "none"),
                       (["--ruler", "qa_2", "--hotpot", squad], "expected a list of questions"), (["--squad", squad], "go with --ruler"),
                       (["--ruler", "cwe", "--lengths", 512], "no room"), (["--ruler", "cwe", "--words", folder], "nounlist.txt")):
        why = run("needle", "--tokenizer", "bytes", "--out", folder / "wrong", *args, code=2)
        assert says in why, (args, why)
    assert "line 2: expected begin and end" in run("needle", book, "--cuts", folder / "cuts", "--tokenizer", "bytes", "--ruler", "vt", "--out", folder / "wrong", code=2)
    room = {} if "--sanitized" in sys.argv else {"memory_limit": 256 << 20}
    # Questions that are none; and many about an article of many paragraphs, which once took memory and time of one times the other.
    for entry in ("text", 7, None, []):
        squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a text", "qas": [entry]}]}]}))
        assert "expected objects in 'qas'" in run("needle", "--tokenizer", "bytes", "--out", folder / "wrong", "--ruler", "qa_1", "--squad", squad, code=2)
    assert not list((folder / "wrong").rglob("*.jsonl"))
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": f"Place {p}.", "qas": [{"question": f"Which? {p}", "answers": [{"text": str(p)}]}]} for p in range(20000)]}]}))
    many = lambda at: {"context": f"Place {at} is far from here, and no one has been there.", "qas": [{"question": "Which?", "answers": [{"text": "far"}]}]}
    doubles = folder / "doubles.json"  # more paragraphs than documents
    doubles.write_text(json.dumps({"data": [{"paragraphs": [many(at) for at in range(60)] + [many(1) | {"qas": []}] * 200000}]}))
    run("needle", "--tokenizer", "bytes", "--out", folder / "doubles", "--ruler", "qa_1", "--squad", doubles, "--lengths", 1500, "--count", 2, **room)
    run("needle", "--tokenizer", "bytes", "--out", folder / "many", "--ruler", "qa_1", "--squad", squad, "--lengths", 1024, "--count", 1, **room)

    # Recorded answers.
    E = ["eval", "--tasks"]
    for extended in ("pred", "pred_e"):
        found = json.loads(run(*E, "longbench", "--predictions", recorded / extended, "--json"))
        expected = json.loads((recorded / extended / "result.json").read_text())
        chinese = {"multifieldqa_zh", "dureader", "vcsum"} & set(expected)
        assert set(found["left_out"]) == chinese and set(found["results"]) == set(expected) - chinese
        for name, row in found["results"].items():
            assert row == ({"alias": name} | ({"score,none": expected[name]} if extended == "pred" else {f"{k},none": v for k, v in expected[name].items()})), name
    found = json.loads(run(*E, "longbench2", "--predictions", recorded / "v2/results", "--json"))["results"]
    head, *table = [line.split("\t") for line in (recorded / "v2/result.tsv").read_text().strip().split("\n")]
    for name, *row in table:
        assert [found[name][f"{c},none"] for c in head[1:]] == list(map(float, row)), name
    table = run(*E, "longbench2", "--predictions", recorded / "v2/results").decode()
    assert "36.6" in table and "44.0 overall" in table
    (folder / "names").mkdir()  # a file's name moves no cursor
    shutil.copy(next((recorded / "v2/results").glob("*.jsonl")), folder / "names" / "a\x1b[2J\n\x9b1m.jsonl")
    assert "\na?[2J???1m " in run(*E, "longbench2", "--predictions", folder / "names").decode()

    # Code is compared as Python's difflib does, popular characters among it; the time that long lines take grows with what they have in common, the memory of ROUGE-L does
    # not grow with a text, and what no benchmark asks for is refused.
    def score(name, *rows, classes=None, **how):
        shutil.rmtree(folder / "strange", ignore_errors=True)
        (folder / "strange").mkdir()
        (folder / f"strange/{name}.jsonl").write_text("".join(json.dumps({"pred": pred, "answers": answer if isinstance(answer, list) else [answer], "all_classes": classes, "length": 1}) + "\n"
                                                              for pred, answer in rows))
        found = run(*E, "longbench", "--predictions", folder / "strange", "--json", **how)
        return found if how.get("code") else json.loads(found)["results"][name]["score,none"]

    rng, rows, expected = random.Random(7), [], 0
    for i in range(100):  # percents of a hundred rows: their mean has two digits after the point
        letters = "abcdefghijklmnopqrstuvwxyz(){}=+ äöü"[:rng.choice((2, 5, 36))] + "".join(map(chr, range(0x4e00, 0x4e00 + rng.choice((0, 300)))))
        a, b = ("".join(rng.choices(letters, k=rng.choice((3, 40, 199, 200, 600)))) for _ in range(2))
        if i % 2:  # with something in common
            b = a[len(a) // 3:] + b[len(b) // 2:] + a[:len(a) // 4]
        rows.append((a, b))
        expected += int(round(100 * difflib.SequenceMatcher(None, a, b).ratio()))
    assert score("lcc", *rows) == expected / 100, (score("lcc", *rows), expected)
    apart = lambda other: "".join(chr(0x10000 + k) + chr(other + k) for k in range(10000))  # every second character is a block
    assert score("lcc", (apart(0x40000), apart(0x80000))) == 50
    alike = "".join(map(chr, range(0x4e00, 0x4e00 + 101))) * 4000
    assert "lcc.jsonl: row 1: lines of 404000 and 404001 characters are too long to be compared as code" in score("lcc", (alike, alike[50:] + "." + alike[:50]), code=2)
    words = [f"w{k}" for k in range(900)]
    long, precision = " ".join(["z"] * 280000 + words), 900 / 901
    assert score("gov_report", (long, " ".join(words)), memory_limit=None if "--sanitized" in sys.argv else 256 << 20) == round(100 * 2 * precision / (precision + 1 + 1e-8), 2)
    assert score("gov_report", ("z " * 20000, "y " * 10000)) == 0
    assert "gov_report.jsonl: row 1: texts of 20000 and 20000 words are too long for ROUGE-L" in score("gov_report", ("z " * 20000, "y." * 20000), code=2)
    assert score("narrativeqa", ("b c " * 4096, ["a"] * 999 + ["c b"])) == round(100 * 2 / (2 * 4096 + 2) * 2, 2)  # each answer reads the prediction again
    assert "row 1: 4000 answers for a prediction of 16384 bytes: too much to compare" in score("narrativeqa", ("b c " * 4096, ["a"] * 4000), code=2)
    assert "row 1: 3500 answers for a prediction of 14000 bytes: too much to compare" in score("trec", ("xb" * 7000, ["a"] * 3500), classes=["bb"] * 3500, code=2)

    assert "row 1: 3500 answers for a prediction of 1 bytes: too much to compare" in score("trec", ("a", ["aa"] * 3500), classes=["a"] * 10000, code=2)
    assert "are too long to be compared as code" in score("lcc", ("a" * 30000, ["ab" * 98 + str(k) for k in range(150)]), code=2)  # together, each alone is short enough

    # A model: answers in the files of the original programs, scored alike from there, continued from after an end in the middle of a line.
    run("tokenize", "--train-bpe", 300, "--out", folder / "vocabulary", book)
    model, attention = folder / "hybrid", folder / "attention"
    for target, name, heads in ((model, "palimpsa-m", 4), (attention, "transformer", 2)):
        run("train", "--task", "text", "--data", book, "--tokenizer", folder / "vocabulary", "--model", name, "--hidden", 32, "--layers", 1, "--heads", heads,
            "--head-dim", 16, "--steps", 1, "--batch", 1, "--row", 512, "--context", 512, "--out", target)
    run("needle", "--tokenizer", folder / "vocabulary", "--ruler", "niah_single_1,vt", "--lengths", "2k,3k", "--count", 3, "--out", folder / "ruler")
    at = folder / "answers"
    R = ["eval", model, "--tasks", "ruler", "--data", folder / "ruler", "--predictions", at, "--json", folder / "ruler.json"]
    table = run(*R, "--figure", folder / "ruler.svg").decode()
    assert "niah_single_1" in table and "2k" in table and "tokens/s read" in table and "average" in table and "<svg" in (folder / "ruler.svg").read_text()
    found = json.loads((folder / "ruler.json").read_text())
    assert set(found["results"]["vt"]) == {"alias", "2048,none", "3072,none"} and found["n-samples"]["vt,3072"]["effective"] == 3
    answers = {p: p.read_bytes() for p in at.rglob("*.jsonl")}
    assert len(answers) == 4 and all(set(row) == {"index", "pred", "input", "outputs", "others", "truncation", "length"} for p in answers for row in lines(p))
    for path, whole in answers.items():
        path.write_bytes(whole[:2 * len(whole) // 3])
    run(*R)
    assert {p: p.read_bytes() for p in at.rglob("*.jsonl")} == answers and json.loads((folder / "ruler.json").read_text())["results"] == found["results"]
    for path, whole in answers.items():  # those of another model stay as they are, a last line without its end too
        path.write_bytes(whole[:-1])
    assert "another model" in run("eval", attention, *R[2:], code=2) and all(p.read_bytes() == whole[:-1] for p, whole in answers.items())
    first = min(answers)
    for line, says in ((answers[first].split(b"\n")[0], "line 1 holds the answer of another model"), (b"notes without an end", "line 1: expected an object"), (b"{ 'pred': 'of another program'}", "line 1: expected an object")):
        first.write_bytes(line)
        assert says in run("eval", attention, *R[2:], code=2) and first.read_bytes() == line
        first.write_bytes(answers[first])
    for path in answers:  # right answers, put there
        rows = lines(path)
        for row in rows[:2]:
            row["pred"] = "they are " + " ".join(row["outputs"]).lower()
        rows[2]["pred"] = "\t"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = json.loads(run("eval", "--tasks", "ruler", "--predictions", at, "--json"))
    assert all(row[k] == 66.67 for row in again["results"].values() for k in row if k != "alias") and again["n-samples"]["vt,2048"]["empty"] == 1
    again = json.loads(run("eval", "--tasks", "ruler", "--predictions", at, "--scoring", "lm-eval", "--json"))
    assert again["results"]["vt"]["3072,none"] == 2 / 3
    r = run("eval", attention, "--tasks", "ruler", "--data", folder / "ruler", "--limit", 1).decode()
    assert "4 prompts were too long and lost the beginning" in r

    # LongBench with a model.
    data = folder / "longbench"
    (data / "config").mkdir(parents=True)
    (data / "config/dataset2prompt.json").write_text(json.dumps({"trec": "Which kind?\n{context}\n{input}", "lcc": "{context}Next:\n"}))
    (data / "config/dataset2maxlen.json").write_text(json.dumps({"trec": 7}))
    row = {"input": "What is it {context}?", "context": "Some examples. " * 40, "answers": ["City"], "length": 5000, "dataset": "trec", "language": "en", "all_classes": ["City", "Date"], "_id": "1"}
    (data / "trec.jsonl").write_text((json.dumps(row) + "\n") * 3)
    (data / "trec_e.jsonl").write_text((json.dumps(row) + "\n") * 2)
    (data / "lcc.jsonl").write_text(json.dumps(row | {"all_classes": None}) + "\n")
    L = ["eval", model, "--tasks", "longbench", "--data", data, "--predictions", folder / "long", "--json"]
    found = json.loads(run(*L))
    assert set(found["results"]) == {"trec", "trec_e", "lcc"} and found["results"]["trec_e"]["0-4k,none"] is None and found["results"]["trec_e"]["4-8k,none"] is not None
    assert set(lines(folder / "long/trec.jsonl")[0]) == {"pred", "answers", "all_classes", "length", "fingerprint"}
    assert json.loads(run(*L[:5], data, "--context", 100, "--json"))["n-samples"]["trec"]["cut"] == 3
    second = folder / "second"
    (second / "prompts").mkdir(parents=True)
    (second / "prompts/0shot.txt").write_text("$DOC$\n$Q$\n(A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$")
    question = {"_id": "q", "domain": "d", "sub_domain": "s", "difficulty": "easy", "length": "short", "question": " who? ", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d",
                "answer": "B", "context": "x" * 3000}
    (second / "data.json").write_text(json.dumps([question, question | {"difficulty": "hard"}]))
    found = json.loads(run("eval", model, "--tasks", "longbench2", "--data", second, "--predictions", folder / "long2", "--json"))
    assert found["results"]["longbench2"]["Overall,none"] == 0 and found["results"]["longbench2"]["Medium,none"] is None and found["n-samples"]["longbench2"]["effective"] == 2
    assert [len(row["context"]) for row in lines(folder / "long2/longbench2.jsonl")] == [1000, 1000]

    (second / "prompts/0shot.txt").write_text("$DOC$" * 17)
    assert "template has more than 16 places" in run("eval", model, "--tasks", "longbench2", "--data", second, code=2)

    # What is wrong.
    empty = folder / "empty"
    empty.mkdir()
    (folder / "jieba").mkdir()
    (folder / "jieba/dict.txt").write_text("a" * 1024 + " 3 n\n" + "b" * 1025 + " 3 n\n")
    (folder / "broken/1024/vt").mkdir(parents=True)
    (folder / "broken/1024/vt/validation.jsonl").write_text('{"input": "a", "outputs": ["b"]}\n{"outputs": ["b"]}\n')
    (folder / "mute/1024").mkdir(parents=True)
    (folder / "mute/1024/vt.jsonl").write_text('{"pred": "a", "outputs": []}\n')
    for args, says in (([model, "--tasks", "ruler", "--data", empty], "looked for LENGTH/TASK/validation.jsonl"), ([model, "--tasks", "ruler", "--data", folder / "none"], "expected a directory"),
                       ([model, "--tasks", "longbench", "--data", empty], "no data set of LongBench"), ([model, "--tasks", "longbench2", "--data", empty], "neither data.json"),
                       ([model, "--tasks", "ruler", "--data", folder / "broken"], "line 2: there is no text in field 'input'"), (["--tasks", "ruler"], "needs a model"),
                       (["--tasks", "ruler", "--predictions", folder / "mute"], "row 1: expected a list of answers, found an empty one"),
                       ([attention, "--tasks", "ruler", "--data", folder / "ruler", "--predictions", at], "another model"),
                       ([model, attention, "--tasks", "ruler", "--data", folder / "ruler"], "one model at a time"), ([model, "--tasks", "ruler", "--data", empty, "--scoring", "x"], "ruler or lm-eval"),
                       (["--tasks", "longbench", "--predictions", recorded / "pred", "--chinese", empty], "dict.txt"),
                       (["--tasks", "longbench", "--predictions", recorded / "pred", "--chinese", folder / "jieba"], "line 2: a word of 1025 bytes; expected at most 1024"), ([model, "--tasks", "longbench", "--data", data, "--figure", "x.svg"], "--figure")):
        why = run("eval", *args, code=2)
        assert says in why, (args, why)
    shutil.rmtree(data / "config")
    assert "dataset2prompt.json is missing" in run("eval", model, "--tasks", "longbench", "--data", data, code=2)

    # RULER's own rows, byte for byte, where its words, texts and recorded rows are.
    more, all_data = os.environ.get("PALIMPSA_GOLDEN"), os.environ.get("PALIMPSA_DATA")
    if not more or not all_data or "--sanitized" in sys.argv:
        print("skipped: RULER's recorded rows (PALIMPSA_GOLDEN, PALIMPSA_DATA)")
    else:
        words = pathlib.Path(all_data) / "ruler"
        script = pathlib.Path(__file__).parent.parent / "interop/ruler_templates.py"
        (folder / "theirs.json").write_text(subprocess.run([sys.executable, script, f"{more}/ruler/4096"], capture_output=True, text=True, check=True).stdout)
        run("needle", words / "PaulGrahamEssays.json", "--cuts", f"{more}/ruler/essay_sentences.tsv", "--words", words, "--squad", words / "squad_dev-v2.0_cs224n-half.json",
            "--hotpot", words / "hotpotqa_dev_distractor_first100.json", "--templates", folder / "theirs.json", "--tokenizer", f"{all_data}/tokenizers/gpt-neox",
            "--ruler", "all", "--lengths", "4096", "--count", 3, "--out", folder / "theirs")
        for task in tasks:
            assert (folder / f"theirs/4096/{task}/validation.jsonl").read_bytes() == pathlib.Path(f"{more}/ruler/4096/{task}/validation.jsonl").read_bytes(), task
        found = json.loads(run("eval", "--tasks", "ruler", "--predictions", f"{more}/ruler/pred", "--json"))["results"]
        names, scores = ([cell for cell in line.split(",")[1:]] for line in pathlib.Path(f"{more}/ruler/pred/summary.csv").read_text().split("\n")[1:3])
        assert {name: row["score,none"] for name, row in found.items()} == dict(zip(names, map(float, scores)))
    print("long context: as promised")
