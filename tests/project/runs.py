#!/usr/bin/env python3
"""What runs promise, from the outside: a diverged model never replaces the best one, two processes never share a
directory, an interrupted extension continues, options are stored, refused or used, and never passed over in silence."""
import array, json, math, os, pathlib, random, shutil, struct, subprocess, sys, tempfile, time

from outside import program, said

wanted = sys.argv[2:]  # names of checks; none: all
SMALL = "--task text --model palimpsa-d --hidden 32 --layers 1 --heads 2 --row 256 --context 64 --batch 2".split()
MQAR = "--model palimpsa-d --seq-len 16 --kv-pairs 4 --vocab 32 --hidden 16 --heads 2 --batch 8 --test-examples 16".split()
checks = []


def check(function):
    checks.append(function)
    return function


def run(*args, code=0, says=None):
    text = said(*args, code=code)
    assert says is None or says in text, (args, says, text)
    return text


def lines(run_directory):
    return [json.loads(line) for line in pathlib.Path(run_directory, "metrics.jsonl").read_text().splitlines()]


def config(run_directory):
    return json.loads(pathlib.Path(run_directory, "config.json").read_text())


def numbers(folder):
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    out = array.array("f")
    out.frombytes(data[8 + struct.unpack("<Q", data[:8])[0]:])
    return out


def steps(run_directory):
    return sorted(int(p.name[5:]) for p in pathlib.Path(run_directory, "checkpoints").glob("step-*"))


@check
def divergence_keeps_the_best():
    text = run("train", *SMALL, "--data", "shards", "--steps", 8, "--eval-every", 1, "--warmup", 0, "--schedule", "constant", "--lr", 5, "--weight-decay", 1,
               "--clip", 0, "--out", "diverged", code=1, says="diverged: training diverged: its loss is not a number; try a lower --lr")
    losses = [line["valid_loss"] for line in lines("diverged") if "n_t" in line]
    assert len(losses) == 8 and losses[0] is not None and losses[-1] is None, losses
    assert all(map(math.isfinite, numbers("diverged/checkpoints/best")))
    assert "the validation loss is not a number (best" in text and "nothing was held back" not in text, text


@check
def one_process_per_directory():
    """The first process waits for its text while the second one comes."""
    for words in (["train", *SMALL, "--data", "pipe", "--tokenizer", "bytes", "--steps", "2", "--out", "shared"],
                  ["tokenize", "pipe", "--tokenizer", "bytes", "--out", "tokens"]):
        os.mkfifo("pipe")
        first = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pipe = os.open("pipe", os.O_WRONLY)  # once the first one reads
        run(*[word if word != "pipe" else "book.txt" for word in words], code=2, says=f"process {first.pid} ({program} {words[0]} ")
        os.write(pipe, pathlib.Path("book.txt").read_bytes()[:20000])
        os.close(pipe)
        os.unlink("pipe")
        assert first.wait() == 0, words
    assert config("shared")["steps"] == 2 and os.path.exists("tokens/shards.json")


@check
def what_others_made_stays():
    os.mkdir("mine")
    run("tokenize", "book.txt", "--tokenizer", "bytes", "--out", "mine/data-0")
    before = {p.name: p.read_bytes() for p in pathlib.Path("mine/data-0").iterdir()}
    run("train", *SMALL, "--data", "book.txt", "--tokenizer", "chars", "--steps", 2, "--out", "mine", code=2, says="mine/data-0")
    assert {p.name: p.read_bytes() for p in pathlib.Path("mine/data-0").iterdir()} == before
    assert os.listdir("mine") == ["data-0"]


@check
def a_killed_extension_goes_on():
    words = ["train", *MQAR, "--steps", 10, "--schedule", "constant", "--checkpoint-every", 100000]
    run(*words, "--out", "extended")
    longer = [program, "train", "--resume", "--steps", "900000", "--out", "extended"]
    child = subprocess.Popen(longer, stdout=subprocess.DEVNULL)
    while config("extended")["steps"] == 10:
        time.sleep(0.001)
    child.kill()
    child.wait()
    assert steps("extended") == [10]
    assert "nothing to do" not in run("train", "--resume", "--stop-after", 20, "--out", "extended")
    assert steps("extended") == [10, 20]
    # Fewer updates than were made change nothing.
    run("train", *MQAR, "--epochs", 2, "--examples", 80, "--schedule", "constant", "--out", "short")
    before = pathlib.Path("short/config.json").read_bytes()
    run("train", "--resume", "--steps", 5, "--out", "short", code=2, says="has made 20")
    assert pathlib.Path("short/config.json").read_bytes() == before
    run("train", "--resume", "--out", "short", says="nothing to do")
    # A run that its score ended would have ended there with more steps as well.
    run("train", *MQAR, "--steps", 10, "--schedule", "constant", "--eval-every", 2, "--stop-score", -1, "--out", "solved")
    assert steps("solved") == [2]
    run("train", "--resume", "--out", "solved", says="nothing to do")
    run("train", "--resume", "--steps", 20, "--out", "solved", code=2, says="--stop-score ended this run at step 2")


@check
def a_run_that_cannot_start_ends_nobody_else():
    sweep = ["sweep", "mqar", "--models", "palimpsa-d", "--lrs", "1e-3", "--seeds", "1", "--out", "unstarted", "--", *MQAR[2:], "--steps", "2"]
    os.makedirs("unstarted/runs/palimpsa-d-lr1e-3-seed1.log")  # where the run's output should go
    # A signal to the process group would end the shell, too.
    shell = subprocess.run(["sh", "-c", '"$@"; echo "ended with $?"', "sh", program, *sweep], capture_output=True, text=True, start_new_session=True)
    assert shell.stdout.endswith("ended with 1\n") and "seed1.log: cannot open" in shell.stderr, shell


@check
def runs_of_earlier_versions_go_on():
    run("train", *MQAR, "--steps", 4, "--stop-after", 2, "--out", "older")
    stored = config("older")
    for name in ("mesa_tolerance", "save_dtype", "weights"):  # options that came later
        stored.pop(name)
    pathlib.Path("older/config.json").write_text(json.dumps(stored))
    run("train", "--resume", "--mesa-tolerance", 0.1, "--out", "older", code=2, says="mesa_tolerance was 0.0, now 0.1")
    run("train", "--resume", "--out", "older", says="finished at step 4")


@check
def samples_fit_any_vocabulary():
    run("train", *SMALL, "--data", "shards", "--vocab", 4000, "--steps", 2, "--sample", "the", "--sample-tokens", 60, "--out", "wide")
    assert len(lines("wide")[-1]["sample"]) > 0
    run("train", *SMALL, "--data", "shards", "--steps", 2, "--sample", "the", "--sample-tokens", 2147483647, "--out", "never", code=2, says="--sample-tokens")


@check
def null_means_not_given():
    pathlib.Path("null.json").write_text(json.dumps({"task": None, "model": "palimpsa-d", "decay": None, "schedule": None, "lr": None, "steps": 3, "batch": 8,
                                                     "seq_len": 16, "kv_pairs": 4, "vocab": 32, "hidden": 16, "heads": 2, "test_examples": 16}))
    run("train", "--config", "null.json", "--out", "null")
    assert config("null")["lr"] == 4.64e-3 and config("null")["decay"] == "everything"
    pathlib.Path("null-sweep.json").write_text(json.dumps({"models": None, "lrs": None, "seeds": "1", "train": None}))
    run("sweep", "mqar", "--config", "null-sweep.json", "--models", "palimpsa-d", "--lrs", "1e-3", "--out", "null-sweep", "--", *MQAR[2:], "--steps", 2)


@check
def the_score_that_ends_a_text_run_is_stored():
    words = ["train", *SMALL, "--data", "shards", "--steps", 12, "--eval-every", 2, "--stop-score", -1000]
    run(*words, "--out", "by-score")
    run(*words, "--stop-after", 1, "--out", "by-score-again")
    run("train", "--resume", "--out", "by-score-again")
    assert steps("by-score") == [2] and steps("by-score-again") == [1, 2]
    run("train", "--resume", "--stop-after", 1, "--out", "by-score")  # finished: nothing to do
    run("train", *MQAR, "--steps", 10, "--stop-after", 4, "--out", "stops")
    run("train", "--resume", "--stop-after", 4, "--out", "stops", says="stopped at step 4")
    assert steps("stops") == [4]


@check
def paths_of_any_bytes():
    name = b"b\xffok.txt"
    shutil.copy("book.txt", name)
    words = ["train", *SMALL, "--data", name, "--tokenizer", "chars", "--steps", 4]
    run(*words, "--stop-after", 2, "--out", "bytes")
    assert config("bytes")["data"] == {"bytes": name.hex()}
    run("train", "--resume", "--out", "bytes")
    run(*words, "--out", "bytes", code=2, says="already holds")
    run("train", "--resume", "--data", "book.txt", "--out", "bytes", code=2, says="data was")


@check
def responses_are_known_by_their_shards():
    with open("pairs.jsonl", "w") as f:
        for i in range(60):
            f.write(json.dumps({"prompt": f"Say ### Response: {i}", "response": f"{i} ### Response: said"}) + "\n")
    pairs = ["--data", "pairs.jsonl", "--tokenizer", "bytes", "--field", "prompt+response", "--steps", 2]
    run("train", *SMALL, *pairs, "--out", "pairs", says="finished")
    run("train", *SMALL, "--data", "shards", "--field", "prompt+response", "--steps", 2, "--out", "never", code=2, says="tokenize it again")
    run("train", *SMALL, *pairs, "--valid-data", "shards", "--out", "never", code=2)
    assert not os.path.exists("never")


@check
def recall_options_are_used():
    run("train", *MQAR, "--examples", 4, "--steps", 3, "--out", "never", code=2, says="4 training examples")
    run("train", *MQAR, "--examples", 16, "--accumulate", 3, "--steps", 3, "--out", "never", code=2, says="16 training examples")
    run("train", *MQAR, "--examples", 64, "--stages", "16:4:2:8,16:4:2:16", "--stop-score", 2, "--log-every", 1, "--out", "stages")
    found = lines("stages")
    assert all(line["length"] == 16 and line["pairs"] == 4 for line in found)
    assert [line["step"] for line in found if "accuracy" in line] == [8, 16, 20, 24]  # once an epoch, of 8 and of 4 updates
    for stages in ("4294967312:4:2:8", "16:4294967300:2:8", "16:4:2:4294967304", "16:4:99999999999999999999:8", "16:4:2:0", "16:4:2:8:1", "16:4:2:8,,"):
        run("train", *MQAR, "--stages", stages, "--out", "never", code=2, says="--stages")
    assert not os.path.exists("never")


@check
def zero_is_refused_where_it_is_no_value():
    for option in ("--lr", "--layers", "--hidden", "--heads", "--head-dim", "--rank", "--row", "--context", "--batch", "--vocab", "--stop-after", "--expand-v", "--accumulate"):
        run("train", *SMALL, "--data", "shards", "--steps", 2, option, 0, "--out", "never", code=2, says=option)
    pathlib.Path("zero.json").write_text('{"task": "text", "lr": 0}')
    run("train", "--config", "zero.json", *SMALL, "--data", "shards", "--steps", 2, "--out", "never", code=2, says="--lr")
    assert not os.path.exists("never")


@check
def a_model_has_to_be_named():
    for words in ([], ["--task", "text", "--data", "shards"], ["--recipe", "demo"]):
        run("train", *words, "--out", "never", code=2, says="--model")
    assert "roughly" in run("train", *SMALL, "--data", "shards", "--steps", 5, "--dry-run", "--out", "never", says="2560 tokens")
    assert "roughly" in run("train", *SMALL, "--data", "book.txt", "--tokenizer", "chars", "--epochs", 1, "--dry-run", "--out", "never")
    run("train", *MQAR, "--row", 64, "--out", "never", code=2, says="--row goes with --task text")
    run("train", *SMALL, "--data", "shards", "--seq-len", 64, "--out", "never", code=2, says="--seq-len goes with --task mqar")
    help = run("train", "--help")
    at = [help.index(line) for line in ("\ntask mqar", "\n  --seq-len", "\ntask text", "\n  --data LIST")]
    assert at == sorted(at)
    assert not os.path.exists("never")


@check
def vocabularies_are_compared_first():
    run("train", *SMALL, "--data", "shards", "--steps", 1, "--out", "small")  # fewer ids than bytes has
    shutil.copytree("small/checkpoints/best", "bare")
    for file in pathlib.Path("bare").glob("tokenizer*"):
        file.unlink()
    start = ["train", "--task", "text", "--model", "bare", "--steps", 1, "--row", 64, "--out", "never"]
    text = run(*start, "--data", "book.txt", "--tokenizer", "bytes", code=2, says="has a vocabulary of")
    assert "tokens in" not in text and not os.path.exists("never")
    pathlib.Path("letters.txt").write_text("".join(map(chr, range(200, 500))) * 3)
    run(*start, "--data", "letters.txt", "--tokenizer", "chars", code=2, says="has a vocabulary of")
    assert not os.path.exists("never")


@check
def weights_of_a_run_that_moves_on():
    run("train", *SMALL, "--data", "shards", "--steps", 6, "--checkpoint-every", 2, "--stop-after", 2, "--out", "moving")
    start = ["train", "--task", "text", "--data", "shards", "--model", "moving", "--row", 64, "--context", 64, "--batch", 1, "--steps", 2]
    run(*start, "--out", "straight")
    os.mkdir("early")  # as killed before its first checkpoint
    shutil.copy("straight/config.json", "early/config.json")
    run("train", "--resume", "--out", "moving")
    run("train", "--resume", "--out", "early")
    assert numbers("early/checkpoints/step-2") == numbers("straight/checkpoints/step-2")


@check
def sweeps_keep_their_runs():
    run("train", *MQAR, "--steps", 1, "--out", "sub/mdl")
    grid = ["sweep", "mqar", "--lrs", "1e-3", "--seeds", "1", "--models", "sub/mdl"]
    run(*grid, "--out", "by-path", "--", *MQAR[2:8], "--batch", 8, "--test-examples", 16, "--steps", 2)
    assert "sub/mdl" in pathlib.Path("by-path/results.csv").read_text()
    table = pathlib.Path("by-path/results.csv")
    rows = table.read_text()
    for column, forged in ((3, "0"), (4, "-1"), (5, "99999999999"), (6, "nan"), (6, "1.5"), (7, "-1")):
        cells = rows.splitlines()[1].split(",")
        cells[column] = forged
        table.write_text(rows.splitlines()[0] + "\n" + ",".join(cells) + "\n")
        run(*grid, "--out", "by-path", "--", *MQAR[2:8], "--batch", 8, "--test-examples", 16, "--steps", 2, code=2, says="line 2 is not a row of a sweep")
    table.write_text(rows)
    described = pathlib.Path("by-path/sweep.json")
    kept = described.read_text()
    described.write_text(json.dumps({**json.loads(kept), "extend": 1}))
    run(*grid, "--out", "by-path", "--", *MQAR[2:8], "--batch", 8, "--test-examples", 16, "--steps", 2, code=2, says="extend was set, now not")
    described.write_text(kept)
    for word in ("--out", "--out=elsewhere", "-out=elsewhere", "--resume", "--dry-run"):
        run(*grid, "--out", "by-word", "--", *MQAR[2:], "--steps", 2, word, code=2, says="the sweep decides")
    run("sweep", "mqar", "--models", "palimpsa-d:out=elsewhere", "--out", "by-word", "--", *MQAR[2:], "--steps", 2, code=2, says="the sweep decides")
    run("sweep", "mqar", "--models", "sub/mdl,sub-mdl", "--out", "by-word", "--", *MQAR[2:], "--steps", 2, code=2, says="same name")
    assert not os.path.exists("elsewhere") and not os.path.exists("by-word")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    random.seed(2)
    words = "the a of river king shall not came over hill with Gold and silver who said went low".split()
    pathlib.Path("book.txt").write_text(" ".join(random.choices(words, k=6000)))
    run("tokenize", "book.txt", "--tokenizer", "chars", "--valid", 0.1, "--out", "shards")
    failed = 0
    for function in checks:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function()
            print(function.__name__)
        except Exception as why:
            failed += 1
            print(f"FAILED: {function.__name__}: {type(why).__name__} {why}")
    os.chdir("/")
sys.exit(failed > 0)
