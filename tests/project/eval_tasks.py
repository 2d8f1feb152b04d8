#!/usr/bin/env python3
"""`palimpsa eval --tasks` from the outside: requests are the recorded ones, results follow from the samples, an interrupted run goes
on as if nothing had happened, and one sentence for each thing that is wrong."""
import json, math, os, pathlib, re, shutil, signal, subprocess, tempfile, time

from outside import golden, program, run

recorded = golden / "eval"
data = recorded / "data"


def near(found, expected, accept=1e-9):
    assert abs(found - expected) <= accept * abs(expected) + 1e-300, (found, expected)


def lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def same(found, expected):
    """Equal results: a score is the same in any company, up to rounding."""
    assert all(found[key] == expected[key] for key in ("versions", "n-shot", "higher_is_better", "n-samples", "config", "max_length"))
    assert list(found["results"]) == list(expected["results"])
    for task, row in expected["results"].items():
        for key, value in row.items():
            near(found["results"][task][key], value, 1e-5) if "perplexity" in key and value != "N/A" else None
            assert "perplexity" in key or "bits" in key or found["results"][task][key] == value, (task, key)


def mean_error(x):
    m = sum(x) / len(x)
    return math.sqrt(sum((v - m) ** 2 for v in x) / (len(x) - 1)) / math.sqrt(len(x))


def results_follow(found, samples):
    """Every number of the results file once more, from the lines of the samples file."""
    for task, row in found["results"].items():
        mine = [s for s in samples if s["task"] == task]
        assert len(mine) == found["n-samples"][task]["effective"] == row["sample_len"]
        scores = [[score for score, _ in s["filtered_resps"]] for s in mine]
        if task == "wikitext":
            total = sum(s[0] for s in scores)
            near(row["word_perplexity,none"], math.exp(-total / sum(s["word_perplexity"][1] for s in mine)))
            near(row["bits_per_byte,none"], -total / sum(s["byte_perplexity"][1] for s in mine) / math.log(2))
            assert row["word_perplexity_stderr,none"] == "N/A"
            continue
        if task.startswith("lambada"):
            acc = [float(s["filtered_resps"][0][1]) for s in mine]
            near(row["perplexity,none"], math.exp(-sum(s[0] for s in scores) / len(scores)))
            assert row["perplexity_stderr,none"] > 0
        else:
            acc = [float(max(range(len(x)), key=x.__getitem__) == int(s["target"])) for x, s in zip(scores, mine)]
        near(row["acc,none"], sum(acc) / len(acc))
        near(row["acc_stderr,none"], mean_error(acc))
        assert [s["acc"] for s in mine] == acc
        if "acc_norm,none" in row:
            norm = []
            for x, s in zip(scores, mine):
                length = [len(a["arg_1"]) - 1 for a in s["arguments"].values()]
                norm.append(float(max(range(len(x)), key=lambda i: x[i] / length[i]) == int(s["target"])))
            near(row["acc_norm,none"], sum(norm) / len(norm))
            assert [s["acc_norm"] for s in mine] == norm


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    book = data / "wikitext-2/wiki.test.raw"
    run("tokenize", "--train-bpe", 300, "--out", folder / "vocabulary", book)
    hybrid, attention = folder / "hybrid", folder / "attention"
    for model, name, heads in ((hybrid, "palimpsa-m", 4), (attention, "transformer", 2)):
        run("train", "--task", "text", "--data", book, "--tokenizer", folder / "vocabulary", "--model", name, "--hidden", 32, "--layers", 1, "--heads", heads,
            "--head-dim", 16, "--steps", 1, "--batch", 1, "--row", 512, "--context", 512, "--out", model)
    listed = run("eval", "--tasks", "list").decode()
    assert all(name in listed for name in ("lambada_standard", "social_iqa", "hellaswag/validation.jsonl", "word_perplexity"))

    # What is sent is what was recorded; results follow from what is written about each document.
    E = ["eval", hybrid, "--data", data, "--tasks"]
    found_at, samples_at = folder / "results.json", folder / "samples.jsonl"
    table = run(*E, "all", "--json", found_at, "--samples", samples_at).decode()
    found, samples = json.loads(found_at.read_text()), lines(samples_at)
    assert len(found["results"]) == 10
    results_follow(found, samples)
    for task in found["results"]:
        rows, mine = lines(recorded / f"requests/{task}.jsonl"), [s for s in samples if s["task"] == task]
        assert 1 <= len(rows) <= len(mine)
        for row, s in zip(rows, mine):
            assert s["doc_id"] == row["doc"] and isinstance(s["doc"], dict) and s["filter"] == "none"
            if task == "wikitext":
                assert s["arguments"] == {"gen_args_0": {"arg_0": row["text"]}}
                continue
            sent = [(a["arg_0"], a["arg_1"]) for a in s["arguments"].values()]
            assert sent == [(c["context"], c["continuation"]) for c in row["choices"]], (task, row["doc"])
    assert "Hella." in table and "average" in table and f"{100 * found['results']['piqa']['acc,none']:.4f} +- " in table
    assert found["tokens"]["read"] < found["tokens"]["sent"] and "times fewer" in table
    paper = json.loads(run(*E, "paper", "--json"))
    assert set(paper["results"]) == set(found["results"]) - {"openbookqa", "boolq"}
    assert all(paper["results"][task] == found["results"][task] for task in paper["results"])

    # Some documents, and the same in other pieces.
    half = json.loads(run(*E, "piqa,hellaswag", "--docs", "2:5", "--samples", folder / "half.jsonl", "--json"))
    results_follow(half, lines(folder / "half.jsonl"))
    assert [s["doc_id"] for s in lines(folder / "half.jsonl")] == [2, 3, 4] * 2
    L = [*E, "lambada", "--samples", folder / "order.jsonl", "--json"]
    run(*L, "--docs", "3:5")
    again = json.loads(run(*L))["results"]["lambada_openai"]
    near(again["perplexity_stderr,none"], found["results"]["lambada_openai"]["perplexity_stderr,none"], 1e-5)  # drawn from documents in their order
    few = json.loads(run(*E, "piqa", "--limit", 3, "--piece", 7, "--batch", 2, "--json"))
    assert few["n-samples"]["piqa"] == {"original": 8, "effective": 3} and few["config"]["limit"] == 3

    # Perplexity of any text is a row of the same table, with its own options and the numbers it has alone.
    book = folder / "book.txt"
    book.write_text(" = One = \n\nA text of some words , and a second line .\n = Two = \n\nMore words here .\n" * 20)
    alone = json.loads(run("eval", hybrid, "--data", book, "--split", "wikitext", "--json"))
    both = json.loads(run(*E, "piqa,perplexity", "--text", book, "--split", "wikitext", "--limit", 3, "--json"))
    row = both["results"]["perplexity"]
    assert both["n-samples"]["perplexity"]["effective"] == alone["documents"] == 40 and both["configs"]["perplexity"]["dataset_path"] == str(book)
    for key, name in (("perplexity", "token_perplexity"), ("word_perplexity", "word_perplexity"), ("byte_perplexity", "byte_perplexity"), ("bits_per_byte", "bits_per_byte")):
        near(row[key + ",none"], alone[name], 1e-6)
    assert both["results"]["piqa"] == few["results"]["piqa"]
    table = run("eval", hybrid, attention, "--data", data, "--tasks", "perplexity,piqa", "--text", book, "--json", folder / "text.json").decode()
    run("plot", folder / "text.json", "--out", folder / "text.png")
    assert "Text" in table.split("\n")[0] and re.search(r"perplexity +word_perplexity +1 ", table), table
    assert "needs a text" in run(*E, "piqa,perplexity", code=2)
    assert "--samples and --json name the same file" in run(*E, "piqa", "--samples", folder / "one.json", "--json", folder / "one.json", code=2) and not (folder / "one.json").exists()
    assert "--text goes with perplexity" in run(*E, "piqa", "--text", book, code=2)
    assert "--text goes with --tasks" in run("eval", hybrid, "--data", book, "--text", book, code=2)

    # A run that continues: after a line that was cut off, and after a signal; what is known is not read again.
    whole = samples_at.read_bytes()
    end = whole.rindex(b"\n", 0, len(whole) // 2) + 1
    for cut in (0, end - 1, end + 5, len(whole)):
        samples_at.write_bytes(whole[:cut])
        again = json.loads(run(*E, "all", "--samples", samples_at, "--json"))
        same(again, found)
        assert [(s["task"], s["doc_id"], s["arguments"]) for s in lines(samples_at)] == [(s["task"], s["doc_id"], s["arguments"]) for s in samples]
        assert (again["tokens"]["read"] == 0) == (cut == len(whole))
    changed = shutil.copytree(data, folder / "changed")
    text = (changed / "piqa/validation.jsonl").read_text()
    (changed / "piqa/validation.jsonl").write_text(text.replace('"goal": "', '"goal": "Now: ', 1))
    run("eval", hybrid, "--data", changed, "--tasks", "piqa", "--samples", samples_at)
    assert samples_at.read_bytes().startswith(whole) and len(lines(samples_at)) == len(samples) + 1  # one document is another
    run("eval", attention, "--data", data, "--tasks", "piqa", "--samples", samples_at)
    assert len(lines(samples_at)) == len(samples) + 1 + 8  # another model
    many = folder / "many/piqa"
    many.mkdir(parents=True)
    (many / "validation.jsonl").write_text((text.rstrip("\n") + "\n") * 101)
    long = ["eval", hybrid, "--data", folder / "many", "--tasks", "piqa", "--samples", folder / "long.jsonl"]
    child = subprocess.Popen([program, *map(str, long)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while child.poll() is None and (not (folder / "long.jsonl").exists() or (folder / "long.jsonl").stat().st_size < 1000):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, why = child.communicate()
    assert child.returncode == 3 and re.search(rb"interrupted in piqa after \d+ of 808 documents; run the same command to continue", why), why
    resumed, straight = json.loads(run(*long, "--json")), json.loads(run(*long[:-2], "--json"))
    same(resumed, straight)
    assert resumed["tokens"]["read"] < straight["tokens"]["read"]
    assert sorted(s["doc_id"] for s in lines(folder / "long.jsonl")) == list(range(808))

    # Models side by side, the best marked; with attention a context that is too long loses its beginning.
    table = run("eval", hybrid, attention, "--data", data, "--tasks", "boolq,winogrande,lambada", "--context", 128, "--json", folder / "two.json").decode()
    two = json.loads((folder / "two.json").read_text())
    assert [m["model_name"] for m in two] == [str(hybrid), str(attention)] and two[0]["max_length"] == 128
    rows = dict(re.findall(r"^(hybrid|attention) (.*)$", table, re.M))
    assert set(rows) == {"hybrid", "attention"}
    perplexity = [m["results"]["lambada_openai"]["perplexity,none"] for m in two]
    row = re.search(r"lambada_openai +perplexity +8 .*", table)[0]
    assert row.count("*") == 1 and (row.rstrip()[-1] == "*") == (perplexity[1] < perplexity[0]), row
    cut = int(re.search(r"attention: (\d+) requests were longer than 128 tokens", table)[1])
    assert cut == two[1]["truncated"] > 0
    A = ["eval", attention, "--data", data, "--tasks", "boolq,winogrande,lambada", "--context", 128, "--samples", folder / "cut.jsonl", "--json"]
    assert cut == json.loads(run(*A))["truncated"] == json.loads(run(*A))["truncated"]  # the second time from the samples

    # The figure: accuracies and perplexities, of a file of the harness as well.
    other = {"results": {"piqa": {"alias": "piqa", "acc,none": 0.5, "acc_stderr,none": 0.1, "acc_norm,none": 0.25}, "new_task": {"acc,none": 0.75}},
             "model_name": "elsewhere/their-model"}
    (folder / "their.json").write_text(json.dumps(other))
    assert "3 models" in run("plot", folder / "two.json", folder / "their.json", "--out", folder / "tasks.svg").decode()
    drawn = (folder / "tasks.svg").read_text()
    assert drawn.startswith("<?xml") and len(drawn) > 4000

    def bars(*files):
        """Of the accuracies: colour, height, and the height of the error bar, in order; the legend's colours."""
        run("plot", *files, "--out", folder / "bars.svg")
        shapes = re.findall(r'<path style="(.*?)" d="M ([\d.]+) ([\d.]+) L ([\d.]+) ([\d.]+) (?:L [\d.]+ ([\d.]+) )?', (folder / "bars.svg").read_text())
        found, legend = [], []
        for style, x0, y0, x1, y1, y2 in shapes:
            colour = re.search(r"fill:(rgb.*?);fill-opacity:(1|0.88);", style)
            if colour and y2:
                (found if colour[2] == "0.88" else legend).append([colour[1], float(y2) - float(y0), 0.0])
            elif "stroke-width:1.2" in style and x0 == x1:
                found[-1][2] = float(y0) - float(y1)
        return found, [c for c, *_ in legend]
    a, b = (({"results": {"piqa": {"acc_norm,none": x, "acc_norm_stderr,none": 0.1 * x, "acc,none": 0.9}, "arc_easy": {"acc,none": x / 2}}, "model_name": f"{name}/same"})
            for name, x in (("one", 0.4), ("two", 0.8)))
    (folder / "pair.json").write_text(json.dumps([a, b]))
    found_bars, legend = bars(folder / "pair.json")
    assert [c for c, *_ in found_bars] == legend * 2 and len(set(legend)) == 2  # piqa of both, arc_easy of both
    for (_, height, error), expected in zip(found_bars, ((1, 0.1), (2, 0.2), (0.5, 0), (1, 0))):
        assert abs(height / found_bars[0][1] - expected[0]) < 0.01 and abs(error / (2 * found_bars[0][1]) - expected[1]) < 0.01, found_bars
    one = (folder / "bars.svg").read_text()
    (folder / "pair.json").write_text(json.dumps([{**a, "model_name": "same"}, {**b, "model_name": "same"}]))
    bars(folder / "pair.json")
    assert len(one) > len((folder / "bars.svg").read_text())  # names are distinguished by their directories
    (folder / "row.json").write_text(json.dumps({"results": {"perplexity": {"perplexity,none": 3.0, "word_perplexity,none": 40.0}}, "model_name": "x"}))
    assert len(bars(folder / "row.json")[0]) == 1  # the row of any text
    run("plot", folder / "their.json", "--out", folder / "tasks.png", "--theme", "dark")
    for name, text, out, says in (("no.json", '{"a": 1}', "x.svg", "no 'results'"), ("no.json", "[]", "x.svg", "empty list"), ("no.json", "{", "x.svg", "not valid JSON"),
                                  ("no.json", '{"results": {"piqa": {}}}', "x.svg", "no accuracy"), ("their.json", None, "x.html", ".svg or .png")):
        if text is not None:
            (folder / name).write_text(text)
        assert says in run("plot", folder / name, "--out", folder / out, code=2)
    assert "do not go into one figure" in run("plot", folder / "their.json", hybrid, "--out", folder / "x.svg", code=2)

    # Tasks at the evaluations of a training, which they leave as it is; what is wrong with them is said before it begins.
    T = ["train", "--task", "text", "--data", book, "--tokenizer", folder / "vocabulary", "--model", "palimpsa-m", "--hidden", 32, "--layers", 1, "--heads", 4,
         "--head-dim", 16, "--steps", 3, "--eval-every", 2, "--batch", 1, "--row", 256, "--context", 256]
    measured = ["--eval-tasks", "piqa,lambada,wikitext", "--eval-data", data]
    run(*T, "--out", folder / "plain")
    assert "tasks: piqa: acc_norm " in run(*T, *measured, "--eval-limit", 5, "--out", folder / "measured").decode()
    plain, logged = (lines(folder / name / "metrics.jsonl") for name in ("plain", "measured"))
    assert [m["loss"] for m in plain if "loss" in m] == [m["loss"] for m in logged if "loss" in m]
    logged = [m for m in logged if "piqa/acc" in m]
    assert [m["step"] for m in logged] == [2, 3] and all(m["valid_loss"] for m in logged)
    last = json.loads(run("eval", folder / "measured", "--data", data, "--tasks", "piqa,lambada,wikitext", "--limit", 5, "--json"))["results"]
    assert logged[-1]["piqa/acc_norm"] == last["piqa"]["acc_norm,none"]
    near(logged[-1]["piqa/acc_stderr"], last["piqa"]["acc_stderr,none"], 1e-6)
    near(logged[-1]["wikitext/word_perplexity"], last["wikitext"]["word_perplexity,none"], 1e-5)
    near(logged[-1]["lambada_openai/perplexity"], last["lambada_openai"]["perplexity,none"], 1e-5)
    (folder / "bad/arc_easy").mkdir(parents=True)
    (folder / "bad/arc_easy/test.jsonl").write_text((data / "arc_easy/test.jsonl").read_text().split("\n")[0] + "\n{}\n")
    for args, says in ((measured[:2], "--eval-data"), (measured[2:], "--eval-tasks"), (["--eval-limit", 5], "--eval-tasks"), (["--eval-tasks", "piqua", *measured[2:]], "'piqa'"),
                       (["--eval-tasks", "arc_easy", "--eval-data", folder / "bad"], "line 2")):
        assert says in (why := run(*T, *args, "--out", folder / "refused", code=2)) and not (folder / "refused").exists(), why

    # Examples before each question.
    shot = folder / "shots.jsonl"
    run(*E, "piqa", "--shots", 2, "--shots-file", data, "--limit", 2, "--samples", shot)
    first = lines(shot)[0]
    assert first["num_fewshot"] == 2
    examples = [row["choices"][row["gold"]] for row in lines(recorded / "requests/piqa.jsonl")[:2]]
    asked = lines(recorded / "requests/piqa.jsonl")[0]["choices"][0]["context"]
    assert first["arguments"]["gen_args_0"]["arg_0"] == "".join(e["context"] + e["continuation"] + "\n\n" for e in examples) + asked

    # A table instead of JSON lines, with the lists as Python writes them.
    (folder / "csv/arc_easy").mkdir(parents=True)
    import csv
    with open(folder / "csv/arc_easy/test.csv", "w", newline="") as out:
        writer = csv.writer(out)
        rows = lines(data / "arc_easy/test.jsonl")
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
    table = json.loads(run("eval", hybrid, "--data", folder / "csv", "--tasks", "arc_easy", "--json"))
    assert table["results"]["arc_easy"] == found["results"]["arc_easy"]
    (folder / "csv/piqa").mkdir()
    with open(folder / "csv/piqa/validation.csv", "w", newline="") as out:
        writer = csv.writer(out)
        rows = lines(data / "piqa/validation.jsonl")
        writer.writerow(rows[0])
        writer.writerows({**row, "label": float(row["label"])}.values() for row in rows)  # as pandas writes a column with a gap
    table = json.loads(run("eval", hybrid, "--data", folder / "csv", "--tasks", "piqa", "--json"))
    assert table["results"]["piqa"] == found["results"]["piqa"]

    # What is wrong: one sentence, and what was finished is kept.
    def wrong(task, name, text, says, more=()):
        place = folder / "wrong" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        why = run("eval", hybrid, "--data", folder / "wrong", "--tasks", task, *more, code=2)
        assert all(word in why for word in (f"wrong/{name}", *says)), why
    good = lines(data / "piqa/validation.jsonl")[0]
    line = json.dumps(good) + "\n"
    wrong("piqa", "piqa/validation.jsonl", line + '{"goal": "x", "sol1": "a", "label": 0}\n', ["line 2", "'sol2'"])
    wrong("piqa", "piqa/validation.jsonl", line * 3 + json.dumps({**good, "label": 2}), ["line 4", "'label'", "0 to 1"])
    for label in (0.5, "0.5", "", "one", None, True):
        wrong("piqa", "piqa/validation.jsonl", json.dumps({**good, "label": label}), ["line 1", "'label'", "whole number"])
    wrong("piqa", "piqa/validation.jsonl", line + "\n{broken\n", ["line 3", "not JSON"])
    wrong("piqa", "piqa/validation.jsonl", "\n", ["no document"])
    wrong("hellaswag", "hellaswag/validation.jsonl", '{"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": [], "label": 0}', ["line 1", "'endings'"])
    wrong("arc_easy", "arc_easy/test.jsonl", '{"question": "q", "choices": {"text": [], "label": []}, "answerKey": "A"}', ["'choices.text'", "empty"])
    r = subprocess.run([program, "eval", hybrid, "--data", folder / "wrong", "--tasks", "piqa,arc_easy"], capture_output=True)
    assert r.returncode == 2
    (folder / "wrong/piqa/validation.jsonl").write_text(line * 2)
    r = subprocess.run([program, "eval", hybrid, "--data", folder / "wrong", "--tasks", "piqa,arc_easy", "--json", folder / "kept.json"], capture_output=True)
    assert r.returncode == 2 and b"piqa" in r.stdout and list(json.loads((folder / "kept.json").read_text())["results"]) == ["piqa"]
    (folder / "notes").write_text("not mine")
    for args, says in ((["--tasks", "piqua"], "did you mean 'piqa'"), (["--tasks", "zebra"], "--tasks list"), (["--tasks", "piqa", "--docs", "3:3"], "FROM:TO"),
                       (["--tasks", "piqa", "--docs", "9:12"], "has 8 documents"), (["--tasks", "piqa", "--docs", "0:2", "--limit", "2"], "--limit"),
                       (["--tasks", "piqa", "--limit", "0"], "--limit"), (["--tasks", "piqa", "--shots", "1"], "--shots-file"), (["--tasks", ","], "no task"),
                       (["--tasks", "piqa", "--shots", "9", "--shots-file", data], "there are 8"), (["--tasks", "piqa", "--baseline", hybrid], "--baseline"),
                       (["--tasks", "piqa", "--samples", folder / "notes"], "line 1 is not a sample"), (["--limit", "2"], "--tasks"),
                       (["--tasks", "lambada_standard"], "lambada_standard/test.jsonl"), (["--tasks", "wikitext", "--tokenizer", "bytes"], "BOS"),
                       (["--tasks", "piqa,ruler"], "stands alone"), ([folder / "absent", "--tasks", "piqa"], "absent: cannot open"),
                       (["--tasks", "piqa", "--tokenizer", golden / "models/none"], "cannot open"), (["--tasks", "piqa", "--context", "8"], "at most 8")):
        why = run("eval", hybrid, "--data", data, *args, code=2)
        assert says in why, (args, why)
    assert (folder / "notes").read_text() == "not mine"
    assert "nowhere" in run(*E, "piqa", "--json", folder / "nowhere/x.json", code=1)  # before the work

    # The recording itself, where it is: the same tables as the program it comes from.
    more, all_data = os.environ.get("PALIMPSA_GOLDEN"), os.environ.get("PALIMPSA_DATA")
    if not more or not all_data:
        print("skipped: the recorded model next to the project (PALIMPSA_GOLDEN, PALIMPSA_DATA)")
    else:
        expected = json.loads((pathlib.Path(more) / "eval/summary.json").read_text())["tasks"]
        chosen = ["lambada_openai", "piqa", "winogrande", "arc_easy"]
        ours = json.loads(run("eval", f"{more}/eval/model", "--data", all_data, "--tasks", ",".join(chosen), "--limit", 40, "--json"))
        for task in chosen:
            for key, value in expected[task].items():
                if key in ("docs", "n"):
                    continue
                near(ours["results"][task][key + ",none"], value, 1e-4 if "perplexity" in key else 1e-12)
    print("eval --tasks: as promised")
