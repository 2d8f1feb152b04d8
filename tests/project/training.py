#!/usr/bin/env python3
"""`palimpsa train` and `sweep` from the outside: a tiny recall task is solved, stopped and killed runs end where an
uninterrupted one does, bit for bit, damaged checkpoints are passed over, and wrong usage gets one sentence."""
import html, json, os, pathlib, random, re, resource, shlex, shutil, signal, subprocess, sys, tempfile, time

os.environ.setdefault("PALIMPSA_THREADS", "2")
from outside import check, program, said as palimpsa

long_run = bool(os.environ.get("PALIMPSA_TEST_LONG"))
rng = random.Random(7)
TINY = "--task mqar --model palimpsa-d --seq-len 32 --kv-pairs 4 --vocab 64 --hidden 32 --heads 2 --batch 16 --steps 40 --lr 3e-3 --seed 5 --checkpoint-every 10 --test-examples 64 --threads 2".split()


RULES = "comba,kda,gdn2,rwkv7,pkda,kla,kdn,kdn_iso,mamba3"  # as layers of one model


def same_end(a, b, step=40):
    for name in ("model.safetensors", "optimizer.safetensors"):
        x, y = ((r / "checkpoints" / f"step-{step}" / name).read_bytes() for r in (a, b))
        check(x == y, f"{b}: {name} differs from the uninterrupted run's")
    steps = [json.loads(line)["step"] for line in (b / "metrics.jsonl").read_text().splitlines()]
    check(steps == sorted(set(steps)), f"{b}: steps do not increase: {steps}")
    losses = [[{k: v for k, v in json.loads(line).items() if k not in ("tokens_per_s", "data_share")} for line in (r / "metrics.jsonl").read_text().splitlines()] for r in (a, b)]
    check(losses[0] == losses[1], f"{b}: metrics differ from the uninterrupted run's")


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    whole = root / "whole"
    palimpsa("train", *TINY, "--out", str(whole))
    report = (whole / "report.html").read_text()
    check(report.startswith("<!") and "Task: recall (mqar)" in report and "Written by palimpsa" in report, "no report")
    check(re.search("<p>In 40 steps: accuracy is [0-9.]+; .*training loss went from [0-9.]+ to [0-9.]+, still falling in the end", report), "the report concludes nothing")
    command = shlex.split(html.unescape(re.search("<pre>palimpsa (.*?)</pre>", report)[1]))
    check(command[-2:] == ["--out", str(whole)], f"the report's command: {command}")
    palimpsa(*command[:-1], str(root / "again"))
    same_end(whole, root / "again")  # the command makes the same run
    same_end(whole, whole)

    # Stopped cleanly at random updates, several times, and resumed with and without repeating the options.
    for trial in range(20 if long_run else 3):
        run = root / f"stopped{trial}"
        stops = sorted(rng.sample(range(1, 40), 2))
        palimpsa("train", *TINY, "--out", str(run), "--stop-after", str(stops[0]))
        palimpsa("train", "--resume", "--out", str(run), "--stop-after", str(stops[1]))
        palimpsa("train", *TINY, "--resume", "--out", str(run))
        same_end(whole, run)
        shutil.rmtree(run)
    words = [*TINY, "--model", RULES, "--steps", "6"]
    palimpsa("train", *words, "--out", str(root / "rules"))
    palimpsa("train", *words, "--out", str(root / "rules-stopped"), "--stop-after", "4")
    palimpsa("train", "--resume", "--out", str(root / "rules-stopped"))
    same_end(root / "rules", root / "rules-stopped", step=6)
    shown = palimpsa("inspect", str(root / "rules"))
    check(all(f"{rule} in layer {i}" in shown for i, rule in enumerate(RULES.split(","))), f"inspect: {shown}")
    print("stopped and resumed: the same bits")

    # Killed at random moments until it is done, then again from the start, until there were enough kills.
    total, trial = 0, 0
    while total < (100 if long_run else 4):
        run, kills = root / f"killed{trial}", 0
        trial += 1
        while True:
            words = ["train", *TINY, "--out", str(run)] + (["--resume"] if (run / "config.json").exists() else [])
            child = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                child.wait(timeout=rng.uniform(0.02, 0.4) if kills < 10 else None)
                check(child.returncode == 0, f"a resumed run failed after {kills} kills")
                break
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                kills += 1
        same_end(whole, run)
        shutil.rmtree(run)
        total += kills
    print(f"killed {total} times in {trial} runs: the same bits")

    # SIGTERM finishes the update, writes a checkpoint and says how to continue.
    run = root / "asked"
    child = subprocess.Popen([program, "train", *TINY, "--steps", "4000", "--out", str(run)], stdout=subprocess.PIPE, text=True)
    while not (run / "checkpoints" / "step-10").exists():
        time.sleep(0.01)
    # It must not interrupt a thread that computes (src/base/signal_stack.h): one thread waits for it, all others block it.
    stops = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))
    masks = [dict(line.split(":\t") for line in (task / "status").read_text().splitlines() if line.startswith("Sig")) for task in pathlib.Path(f"/proc/{child.pid}/task").iterdir()]
    check(not int(masks[0]["SigCgt"], 16) & stops, "a handler is installed for a signal that asks for an end")
    check(sum(int(m["SigBlk"], 16) & stops != stops for m in masks) <= 1, f"threads do not block the signals that ask for an end: {masks}")
    child.send_signal(signal.SIGTERM)
    text = child.communicate()[0]
    step = re.search(r"stopped at step (\d+)", text)
    check(child.returncode == 3 and step and "--resume" in text, f"SIGTERM: exit code {child.returncode}: {text}")
    check((run / "checkpoints" / f"step-{step[1]}" / "trainer.json").exists(), "no checkpoint after SIGTERM")

    def stopped(run, *words, wait):
        """What it says when it is reported to stop, some time after it began to listen."""
        path = run / "metrics.jsonl"
        mark = lambda: (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None
        before, child = mark(), subprocess.Popen([program, "train", *words, "--out", str(run)], stdout=subprocess.PIPE, text=True)
        while mark() == before and child.poll() is None:
            time.sleep(0.01)
        time.sleep(wait)
        child.send_signal(signal.SIGTERM)
        text = child.communicate(timeout=600)[0]
        check(child.returncode == (0 if "finished" in text else 3), f"exit code {child.returncode}: {text}")
        return text

    # An evaluation without an end is given up, and so is the one that the resumed run begins with.
    run = root / "evaluating"
    for words in ([*TINY, "--eval-every", "1", "--test-examples", "1000000000"], ["--resume"]):
        text = stopped(run, *words, wait=0.5)
        check("stopped at step 1, checkpoint written" in text, f"SIGTERM within an evaluation: {text}")
    check(not (run / "metrics.jsonl").read_text(), "an evaluation that was given up has a line")

    # Evaluations take most of the time, and are given up again and again; the end is the same.
    words = [*TINY, "--eval-every", "4", "--test-examples", "3000", "--keep", "1"]
    palimpsa("train", *words, "--out", str(root / "judged"))
    run, given_up, stops = root / "judged-in-parts", 0, 0
    while stops < 8 and "finished" not in stopped(run, *words, *(["--resume"] if stops else []), wait=rng.uniform(0, 0.5)):
        stops += 1
        newest = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
        given_up += "evaluation_due" in json.loads((newest / "trainer.json").read_text())
    palimpsa("train", "--resume", "--out", str(run))
    same_end(root / "judged", run)
    states = [json.loads((r / "checkpoints/step-40/trainer.json").read_text()) for r in (root / "judged", run)]
    check(states[0] == states[1], f"another end: {states}")
    print(f"stopped {stops} times, {given_up} of them within an evaluation: the same bits")

    # A damaged newest checkpoint is passed over, saying so; the end is the same.
    run = root / "damaged"
    palimpsa("train", *TINY, "--out", str(run), "--stop-after", "25")
    for damage in ("flip", "cut", "gone", "digit"):
        copy = root / damage
        shutil.copytree(run, copy)
        victim = copy / "checkpoints" / "step-25" / {"flip": "optimizer.safetensors", "digit": "trainer.json"}.get(damage, "model.safetensors")
        data = bytearray(victim.read_bytes())
        data[-5] ^= 4
        {"flip": lambda: victim.write_bytes(data), "cut": lambda: victim.write_bytes(data[:1000]), "gone": victim.unlink,
         "digit": lambda: victim.write_text(re.sub(r'("stage_step": )25', r"\g<1>24", victim.read_text()))}[damage]()
        text = palimpsa("train", "--resume", "--out", str(copy))
        check("step-25 is not usable" in text and "step 20" in text, f"{damage}: {text}")
        same_end(whole, copy)
    print("damaged checkpoints: passed over")

    # A full disk: the checkpoint that does not fit is refused with a sentence, the one before stays whole and usable.
    run = root / "full"
    palimpsa("train", *TINY, "--out", str(run), "--stop-after", "20")
    room = 2 * (run / "metrics.jsonl").stat().st_size
    check(room < (run / "checkpoints/step-20/model.safetensors").stat().st_size, "the limit would not bite")
    done = subprocess.run([program, "train", "--resume", "--out", str(run)], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
    check(done.returncode == 1 and "File too large" in done.stderr and done.stderr.count("\n") == 1, f"full disk: {done.returncode} {done.stderr}")
    check({p.name for p in (run / "checkpoints").iterdir()} == {"step-10", "step-20"}, "a full disk left something")
    palimpsa("train", "--resume", "--out", str(run))
    same_end(whole, run)
    print("full disk: the previous checkpoint stays")

    # Refusals: one sentence each, nothing written.
    palimpsa("train", *TINY, "--out", str(whole), code=2)
    check("lr was 0.003" in palimpsa("train", *TINY, "--lr", "1e-3", "--resume", "--out", str(whole), code=2), "the difference is not named")
    check("constant rate" in palimpsa("train", *TINY, "--steps", "50", "--resume", "--out", str(whole), code=2), "no reason")
    check("holds no run" in palimpsa("train", "--resume", "--out", str(root / "absent"), code=2), "no run to resume")
    check("leave out --config" in palimpsa("train", "--resume", "--config", str(whole / "config.json"), "--out", str(whole), code=2), "--resume --config")
    check("cannot open" in palimpsa("train", "--config", str(root / "absent.json"), "--out", str(root / "refused"), code=2), "an absent --config")
    level = json.loads((root / f"asked/checkpoints/step-{step[1]}/trainer.json").read_text())["cpu"]
    if level != "ref":
        check(f"level {level}, now ref" in palimpsa("train", "--resume", "--cpu", "ref", "--out", str(root / "asked"), code=2), "another --cpu")
    for words in (["--model", "palimsa-d"], ["--rule", "longhron"], ["--kv-pairs", "9"], ["--vocab", "8"], ["--lr", "nan"], ["--lr", "0"], ["--batch", "0"],
                  ["--schedule", "linear"], ["--stages", "32:4"], ["--freeze", "*.nothing"], ["--seq-len", "31"], ["--learning", "1"], ["--clip", "-1"],
                  ["--stages", ""], ["--stages", "32:4:2:16"], ["--steps", "2000000000"], ["--test-examples", "0"], ["--test-examples", "9223372036854775807"], ["--steps", "0", "--epochs", "9000000000000000000"], ["--lr-floor", "2"],
                  ["--heads", "-2"], ["--expand-v", "-1"], ["--model", "mamba2-130m"], ["--model", f"{whole}/checkpoints/best"]):
        target = root / "refused"
        palimpsa("train", *TINY, *words, "--out", str(target), code=2)
        check(not (target / "checkpoints").exists(), f"{words}: left a checkpoint")
        shutil.rmtree(target, ignore_errors=True)
    palimpsa("train", *TINY, "--out", "/proc/nowhere", code=1)
    check("empty name" in palimpsa("train", *TINY, "--out", "", code=2), "an empty --out")
    check("a directory" in palimpsa("train", "--config", str(root), "--out", str(root / "refused"), code=2), "a directory as --config")
    check("'--lr'" in palimpsa("train", "--lrr=3", "--out", str(root / "refused"), code=2), "an option's nearest name")
    check("nor is there a directory" in palimpsa("train", *TINY, "--model", "hybrid", "--out", str(root / "refused"), code=2), "neither a model nor a directory")
    check("'train'" in palimpsa("trian", code=2) and "--seq-len" in palimpsa("help", "train"), "a command's nearest name and its help")
    check(f"--out '{root}/with blank'" in palimpsa("train", *TINY, "--stop-after", "1", "--out", str(root / "with blank")), "how to resume, for a shell")
    print("wrong usage: refused with a sentence")

    # A constant-rate run that is finished can be given more steps, and then equals one that had them from the start.
    constant = [*TINY, "--schedule", "constant"]
    palimpsa("train", *constant, "--steps", "20", "--out", str(root / "grown"))
    palimpsa("train", *constant, "--steps", "40", "--resume", "--out", str(root / "grown"))
    palimpsa("train", *constant, "--out", str(root / "straight"))
    for name in ("model.safetensors", "optimizer.safetensors"):
        check((root / "grown/checkpoints/step-40" / name).read_bytes() == (root / "straight/checkpoints/step-40" / name).read_bytes(), f"grown run: {name}")

    # A run without a line of metrics does not keep the others from being drawn; alone it is refused.
    palimpsa("train", *TINY, "--stop-after", "1", "--out", str(root / "begun"))
    first = json.loads((root / "begun/metrics.jsonl").read_text())
    check(first["step"] == 1 and 0 <= first["train_accuracy"] <= 1, "the first update is logged")
    (root / "begun/metrics.jsonl").write_text("")
    said = palimpsa("plot", str(root / "begun"), str(whole), "--out", str(root / "both.svg"))
    check("begun: no metrics yet" in said and "(1 run)" in said, f"a run that has only begun: {said}")
    palimpsa("plot", str(root / "begun"), "--out", str(root / "one.svg"), code=2)

    # With new examples all along, stages count updates; the rate falls within each, and a stage's first update is logged.
    fresh = "--model palimpsa-d --vocab 64 --hidden 32 --heads 2 --examples 0 --test-examples 16 --eval-every 5 --stages 32:8:12:4,64:16:8:2 --lr 1e-3 --threads 1".split()
    palimpsa("train", *fresh, "--out", str(root / "fresh"))
    lines = [json.loads(line) for line in (root / "fresh/metrics.jsonl").read_text().splitlines()]
    check([line["step"] for line in lines] == [1, 5, 10, 12, 13, 17, 20], f"stages in updates: {[line['step'] for line in lines]}")
    check(lines[0]["lr"] == 1e-3 and lines[3]["lr"] < 1e-4 and lines[4]["lr"] == 1e-3, "the rate falls within a stage")
    check([line["length"] for line in lines if "accuracy" in line] == [32, 32, 32, 64, 64], "a vocabulary as long as the examples")
    check("L:PAIRS:UPDATES:BATCH" in palimpsa("train", *fresh, "--stages", "32:8", "--out", str(root / "refused"), code=2), "what a stage is")

    # --keep
    palimpsa("train", *TINY, "--keep", "2", "--out", str(root / "kept"))
    check({p.name for p in (root / "kept/checkpoints").iterdir()} == {"step-30", "step-40", "best"}, "--keep 2")

    # A dry run checks and writes nothing; a sweep tries its options so before it begins.
    check("parameters" in palimpsa("train", *TINY, "--dry-run", "--out", str(root / "dry")), "a dry run says nothing")
    for wrong, says in ((["--models", "palimsa-d"], "palimpsa-d"), (["--lrs", "1e-3,nan"], "--lr"), (["--search", "1:2"], "--stages"), (["--", "--kv-pairs", "60"], "60 pairs")):
        check(says in palimpsa("sweep", "mqar", "--out", str(root / "dry"), *wrong, code=2), f"sweep {wrong}")
    check(not (root / "dry").exists(), "a dry run left something")

    # A sweep that was killed ends with the same table; finished rows are not trained again even without their runs.
    grid = "sweep mqar --models palimpsa-d,gated-deltanet --lrs 3e-3 --seeds 1,2 --out".split()
    options = "-- --stages 16:2:1:16,32:4:1:16 --vocab 64 --hidden 32 --heads 2 --examples 160 --test-examples 64".split()
    palimpsa(*grid, str(root / "s1"), *options)
    for end in root.glob("s1/runs/*/checkpoints/step-20/trainer.json"):
        check(json.loads(end.read_text())["best_step"] == 20, f"{end}: the best score of an earlier stage")
    for _ in range(3):
        child = subprocess.Popen([program, *grid, str(root / "s2"), *options], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.1, 0.8))
        child.kill()
        child.wait()
        time.sleep(0.2)
    palimpsa(*grid, str(root / "s2"), *options)
    check((root / "s1/results.csv").read_bytes() == (root / "s2/results.csv").read_bytes(), "a killed sweep gives another table")
    shutil.rmtree(root / "s2/runs")
    (root / "s2/runs").mkdir()
    palimpsa(*grid, str(root / "s2"), *options)
    check(not list((root / "s2/runs").iterdir()), "finished rows were trained again")
    print("killed sweep: the same table, nothing repeated")

    # A line whose counts no run writes is passed over: rows are made anew from the metrics of finished runs.
    (root / "s1/results.csv").unlink()
    for metrics in root.glob("s1/runs/*/metrics.jsonl"):
        last = json.loads(metrics.read_text().splitlines()[-1])
        odd = [{**last, "step": last["step"] + 1, "accuracy": 2, key: count} for key in ("stage", "length", "pairs") for count in (1 << 32, -1)]
        metrics.write_text(metrics.read_text() + "".join(json.dumps(line) + "\n" for line in odd))
    palimpsa(*grid, str(root / "s1"), *options)
    check((root / "s1/results.csv").read_bytes() == (root / "s2/results.csv").read_bytes(), "a line of metrics with odd counts is in the table")

    # A search picks each model's rate with the first seed; then only that rate is trained, and a restart repeats nothing.
    search = "sweep mqar --models palimpsa-d,gated-deltanet --lrs 1e-5,1e-2 --seeds 1,2 --search 16:2:4:16 --out".split()
    palimpsa(*search, str(root / "s5"), *options)
    searched = [line.split(",") for line in (root / "s5/search/results.csv").read_text().splitlines()[1:]]
    rows = [line.split(",") for line in (root / "s5/results.csv").read_text().splitlines()[1:]]
    check([r[:4] for r in searched] == [[m, lr, "1", "1"] for m in ("palimpsa-d", "gated-deltanet") for lr in ("1e-5", "1e-2")], f"search: {searched}")
    best = {m: max((r for r in searched if r[0] == m), key=lambda r: float(r[6]))[1] for m in ("palimpsa-d", "gated-deltanet")}
    check([r[:4] for r in rows] == [[m, best[m], seed, stage] for m in best for seed in "12" for stage in "12"], f"after the search: {rows}")
    shutil.rmtree(root / "s5/runs"), shutil.rmtree(root / "s5/search/runs")
    before = (root / "s5/results.csv").read_bytes()
    palimpsa(*search, str(root / "s5"), *options)
    check((root / "s5/results.csv").read_bytes() == before and not list(root.glob("s5/**/metrics.jsonl")), "a searched sweep was repeated")
    check("search was" in palimpsa(*search[:-3], "--search", "16:2:5:16", "--out", str(root / "s5"), *options, code=2), "another search")
    print("searched sweep: one rate per model")

    # An endpoint decides by its stages alone: 1e-5 is ahead in the mean of both, 1e-2 at the last.
    lengths = [(r[4], r[5]) for r in rows[:2]]
    for words, rate in (((), "1e-5"), (("--endpoint", lengths[1][0]), "1e-2")):
        out = root / f"endpoint{len(words)}"
        out.mkdir()
        done = [f"palimpsa-d,{lr},1,{k + 1},{','.join(lengths[k])},{accuracy},{4 * (k + 1)}\n" for lr, of in (("1e-5", (0.9, 0.1)), ("1e-2", (0.2, 0.5))) for k, accuracy in enumerate(of)]
        (out / "results.csv").write_text(before.decode().splitlines()[0] + "\n" + "".join(done))
        palimpsa(*"sweep mqar --models palimpsa-d --lrs 1e-5,1e-2 --seeds 1 --out".split(), str(out), *words, *options)
        check(f"| palimpsa-d | {rate} |" in (out / "results.md").read_text(), f"{words}: {(out / 'results.md').read_text()}")
    check("endpoint was" in palimpsa(*"sweep mqar --models palimpsa-d --lrs 1e-5,1e-2 --seeds 1 --endpoint 7 --out".split(), str(out), *options, code=2), "another endpoint")
    out = root / "endpoint7"
    shutil.copytree(root / "endpoint0", out)
    (out / "sweep.json").unlink()
    check("no stage has a length of '7'" in palimpsa(*"sweep mqar --models palimpsa-d --lrs 1e-5,1e-2 --seeds 1 --endpoint 7 --out".split(), str(out), *options, code=2), "an endpoint of no stage")

    # Rules and options with a model's name, seeds of the search's own, and rates beyond the edge; curves of every run.
    beyond = ("sweep mqar --models palimpsa-d:delta,gated-deltanet:head-dim=8 --lrs 1e-4,1e-3 --seeds 1 --search 16:2:4:16 --search-seeds 8,9 --extend 1 "
              "--out").split()
    palimpsa(*beyond, str(root / "s6"), *options)
    searched = [line.split(",") for line in (root / "s6/search/results.csv").read_text().splitlines()[1:]]
    rows = [line.split(",") for line in (root / "s6/results.csv").read_text().splitlines()[1:]]
    all_rates = ["1e-05", "1e-4", "1e-3", "0.01"]
    for model, rule, width in (("palimpsa-d:delta", "delta", 0), ("gated-deltanet:head-dim=8", None, 8)):
        tried = {lr: [float(r[6]) for r in searched if r[:2] == [model, lr]] for lr in all_rates}
        check({r[2] for r in searched if r[0] == model} == {"8", "9"} and all(len(of) in (0, 2) for of in tried.values()), f"search seeds: {searched}")
        order = [lr for lr in tried if tried[lr]]
        best = max(order, key=lambda lr: sum(tried[lr]))
        check({"1e-4", "1e-3"} < set(order), f"nothing beyond the edge: {tried}")
        check(all(lr in order for lr in all_rates[max(all_rates.index(best) - 1, 0):all_rates.index(best) + 2]), f"the best rate has no neighbours: {tried}")
        check([r[:3] for r in rows if r[0] == model] == [[model, best, "1"]] * 2, f"at the best rate: {rows}")
        name = f"{model.replace(':', '-')}-lr{best}-seed1"
        config = json.loads((root / f"s6/runs/{name}/config.json").read_text())
        check(config["rule"] == rule and config["head_dim"] == width, f"{model} became {config}")
        curve = [line.split(",") for line in (root / f"s6/curves/{name}.csv").read_text().splitlines()]
        logged = [json.loads(line) for line in (root / f"s6/runs/{name}/metrics.jsonl").read_text().splitlines()]
        check(curve[0] == ["step", "stage", "loss", "train_accuracy", "accuracy", "n_t", "ratio"] and len(curve) == len(logged) + 1, "a curve's lines")
        check(all(abs(float(row[2]) - line["loss"]) < 1e-3 and int(row[0]) == line["step"] for row, line in zip(curve[1:], logged)), "a curve's numbers")
    shutil.rmtree(root / "s6/runs"), shutil.rmtree(root / "s6/search/runs")
    palimpsa(*beyond, str(root / "s6"), *options)
    check(not list(root.glob("s6/**/metrics.jsonl")), "a widened search was repeated")
    for wrong, says in ((["--models", "palimpsa-d::x"], "MODEL:RULE"), (["--models", "palimpsa-d:heads=0.5"], "--heads"), (["--extend", "1"], "goes with --search"),
                        (["--search-seeds", "1"], "goes with --search"), (["--search", "16:2:8:16", "--extend", "1", "--lrs", "1e-3,1e-4"], "that rise"),
                        (["--search", "16:2:8:16", "--extend", "2147483647", "--lrs", "1e-4,1e-3,1e-2"], "rates in all")):
        check(says in palimpsa("sweep", "mqar", *wrong, "--out", str(root / "dry"), code=2), f"sweep {wrong}")
    print("search beyond the grid's edge, with seeds of its own")

    # A run that is stopped from outside has no row; SIGTERM to the sweep alone reaches its runs at once; lists have no doubles.
    check("twice" in palimpsa(*grid[:-1], "--seeds", "1,1", "--out", str(root / "s3"), *options, code=2), "a seed listed twice")
    palimpsa(*grid, str(root / "s3"), *options, "--stop-after", "12", code=1)
    check(not (root / "s3/results.csv").exists(), "a stopped run has rows")
    slow = [program, *grid, str(root / "s4"), "--", "--seq-len", "64", "--kv-pairs", "16", "--vocab", "256", "--examples", "0", "--steps", "100000"]
    child = subprocess.Popen(slow, stdout=subprocess.PIPE, text=True)
    while not list(root.glob("s4/runs/*/metrics.jsonl")):
        time.sleep(0.01)
    busy = next(root.glob("s4/runs/*/config.json")).parent
    check(re.search(r": process [0-9]+ \(palimpsa train .* works in this directory", palimpsa("train", "--resume", "--out", str(busy), code=2)), "two processes in one run")
    child.send_signal(signal.SIGTERM)
    text = child.communicate(timeout=20)[0]
    check(child.returncode == 3 and "run the same command to resume" in text and not (root / "s4/results.csv").exists(), f"SIGTERM to a sweep: {text}")
    print("stopped sweep: no rows for what is not done")

    # Learning: a tiny recall task is solved at a fixed seed.
    task = "--seq-len 16 --kv-pairs 4 --vocab 32 --hidden 64 --heads 4 --batch 64 --lr 1e-2 --examples 0 --test-examples 256 --eval-every 100 --stop-score 0.95 --seed 3".split()
    models = [["palimpsa-d"]]
    if long_run:
        models += [["palimpsa-d-wo-meta"], ["palimpsa-m"], ["palimpsa-m-wo-meta"], ["gated-deltanet"], ["palimpsa-d", "--rule", "longhorn"],
                   ["palimpsa-d", "--rule", "delta"], ["palimpsa-d", "--rule", "mesa"]]
    for model in models:
        run = root / "-".join(model)
        text = palimpsa("train", "--model", *model, *task, "--steps", "3000" if long_run else "1200", "--out", str(run))
        accuracy = max(json.loads(line).get("accuracy", 0) for line in (run / "metrics.jsonl").read_text().splitlines())
        check(accuracy > 0.95, f"{' '.join(model)}: accuracy {accuracy} on a tiny recall task\n{text}")
        print(f"{' '.join(model)} solves a tiny recall task: {accuracy:.3f}")
