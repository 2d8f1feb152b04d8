#!/usr/bin/env python3
"""`palimpsa train`, `sweep` and `eval` on several ranks, from the outside: the same losses for any number of ranks, the same
bits for the same number, and for one rank those of a process alone; runs that are resumed on other numbers of ranks; ranks that
fail, die or fall silent. A program that was built without MPI says so.

    ranks.py PROGRAM FAULTY [PART...]    FAULTY is palimpsa_faults (tests/faults/faults.c); parts: losses resuming usage evaluation failures kills farm; all without one
"""
import json, os, pathlib, random, re, shutil, signal, subprocess, sys, tempfile, time

program, faulty, long_run = sys.argv[1], sys.argv[2], bool(os.environ.get("PALIMPSA_TEST_LONG"))
rng = random.Random(11)
# Ranks share few processors here, and may be started by root.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                  OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_plm_rsh_agent="")
RECALL = "--task mqar --model palimpsa-d --vocab 64 --hidden 32 --heads 2 --accumulate 2 --examples 70 --test-examples 50 --lr 3e-3 --seed 5 --threads 1 --log-every 1 --stop-score 2".split()
CURRICULUM = [*RECALL, "--stages", "16:2:2:7,32:4:3:5", "--checkpoint-every", "8"]
TEXT = "--task text --model palimpsa-d --hidden 32 --layers 2 --heads 2 --head-dim 8 --row 96 --context 40 --batch 5 --steps 20 --lr 3e-3 --threads 1 --log-every 1 --eval-every 10 --checkpoint-every 8".split()


def check(condition, sentence):
    if not condition:
        sys.exit("FAILED: " + sentence)


if "mpi: none" in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
    for ranks, launcher in ((2, {"OMPI_COMM_WORLD_SIZE": "2"}), (2, {"PMIX_NAMESPACE": "a", "SLURM_STEP_NUM_TASKS": "2"}), (1, {"OMPI_COMM_WORLD_SIZE": "1"})):
        said = subprocess.run([program, "train"], env={**os.environ, **launcher}, capture_output=True, text=True).stderr
        check(("this build has no MPI" in said) == (ranks > 1) and len(said.splitlines()) == 1, f"built without MPI, {launcher}: {said}")
    print("skipped: this program was built without MPI, and refuses several ranks")
    sys.exit(0)
if not shutil.which("mpirun"):
    print("skipped: mpirun is not there")
    sys.exit(0)


os.environ["HWLOC_COMPONENTS"] = "-opencl"  # its drivers in mpirun would take SIGUSR1 away


def start(ranks, *words, by=program):
    return subprocess.Popen([*(["mpirun", "-n", str(ranks)] if ranks else []), by, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def palimpsa(ranks, *words, code=0, seconds=120, by=program):
    """ranks 0: without mpirun. Returns what the program printed, without mpirun's own words."""
    child = start(ranks, *words, by=by)
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        sys.exit(f"FAILED: {ranks} ranks, {' '.join(map(str, words))}: not done after {seconds} s")
    check(child.returncode == code, f"{ranks} ranks, {' '.join(map(str, words))}: exit code {child.returncode}, expected {code}\n{out}{err}")
    check("\033" not in out + err, f"{ranks} ranks: a terminal's codes in a file: {out}")
    said = [line for line in err.splitlines() if line.startswith("palimpsa: ") and "warning" not in line]
    said = [line for line in said if "stopping after this update" not in line]  # mpirun ends the others when one has failed
    check(len(said) == (1 if code else 0), f"{ranks} ranks, {' '.join(map(str, words))}: expected one sentence, found {said}\n{err}")
    return out + "\n".join(said)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def same_bits(a, b):
    newest = max((a / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:])).name
    for name in ("model.safetensors", "optimizer.safetensors", *[p.name for p in (a / "checkpoints" / newest).glob("memory-*")]):
        check((a / "checkpoints" / newest / name).read_bytes() == (b / "checkpoints" / newest / name).read_bytes(), f"{b}: {newest}/{name} differs from {a}'s")


def same_losses(a, b, tolerance=1e-5):
    x, y = lines(a), lines(b)
    check([l["step"] for l in x] == [l["step"] for l in y], f"{b}: other steps than {a}: {[l['step'] for l in y]}")
    for one, other in zip(x, y):
        check(one["tokens"] == other["tokens"], f"{b}: step {one['step']}: other tokens than {a}")
        for key in ("loss", "grad_norm", "valid_loss", "accuracy"):
            if key in one:
                check(abs(one[key] - other[key]) <= tolerance * abs(one[key]), f"{b}: step {one['step']}: {key} is {other[key]}, expected {one[key]}")


def newest(run):
    found = [int(p.name[5:]) for p in (run / "checkpoints").glob("step-*")] if (run / "checkpoints").exists() else []
    return max(found, default=-1)


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    book = root / "book.jsonl"
    words = "memory is a belief that forgets slowly towards its prior while evidence writes into it".split()
    with open(book, "w") as f:
        for _ in range(120):
            ask, answer = (" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(2))
            f.write(json.dumps({"text": ask + " " + answer, "prompt": ask, "response": answer}) + "\n")

    def sharded(name, *options):
        palimpsa(0, "tokenize", book, "--tokenizer", "bytes", "--valid", "0.2", "--out", root / name, *options)
        return root / name
    shards, pairs = sharded("shards", "--field", "text"), sharded("pairs", "--field", "prompt+response")
    cases = {"curriculum": CURRICULUM,
             "packed": [*TEXT, "--data", shards, "--accumulate", 2],
             "masked": [*TEXT, "--data", pairs, "--field", "prompt+response"],
             "carried": [*TEXT, "--data", shards, "--carry-state"],
             "rules": [*TEXT, "--data", shards, "--model", "comba,kda,gdn2,rwkv7,pkda,kla,kdn,kdn_iso,mamba3", "--layers", 9]}

    def rank_pids(mpirun):
        """The processes of mpirun by rank, once all are there."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(re.search(r"\) . (\d+)", (entry / "stat").read_text()).group(1)) == mpirun.pid:
                    variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                    found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(entry.name)
            except (OSError, KeyError, AttributeError):
                pass  # it has ended, or is not a rank
        return found

    def until(condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            check(time.monotonic() < end, f"{what}: not within {seconds} s")
            time.sleep(0.02)

    def ends(child, what, seconds=30):
        """What mpirun printed. Open MPI 4.1.4 sometimes waits forever for its own lock (in PMIx_server_finalize) after a
        rank was killed while it started: with every rank gone, as we promise, it is ended by SIGKILL, as a user would do."""
        try:
            return child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            alive = rank_pids(child)
            child.kill()
            check(not alive, f"{what}: not all ranks ended within {seconds} s, but {sorted(alive)} continue")
            print(f"{what}: all ranks ended, mpirun did not", flush=True)
            return child.communicate()

    def trained(name, ranks):
        """The run of a case on so many ranks, which is made once; 0: without mpirun."""
        run = root / f"{name}-{ranks or 'alone'}"
        if not run.exists():
            palimpsa(ranks, "train", *cases[name], "--out", run)
        return run

    def losses():
        for name in cases:
            alone = trained(name, 0)
            check(len(lines(alone)) >= 20, f"{name}: only {len(lines(alone))} lines of metrics")
            for ranks in (1, 2, 3, 4) if long_run or name == "curriculum" else (1, 3, 4) if name == "packed" else (3,):
                run = trained(name, ranks)
                same_losses(alone, run)
                if ranks == 1:
                    same_bits(alone, run)
                    check(json.loads((run / "config.json").read_text()) == json.loads((alone / "config.json").read_text()), "one rank has another config.json than a process alone")
            print(f"{name}: every number of ranks has the losses of one process; one rank has its bits")

    def resuming():
        # The same number of ranks, stopped and resumed: the same bits. Other numbers: the same losses.
        for name in ("packed", "carried") if long_run else ("carried",):
            whole, run = trained(name, 3), root / f"{name}-3-again"
            palimpsa(3, "train", *cases[name], "--out", run, "--stop-after", 11)
            palimpsa(3, "train", "--resume", "--out", run)
            same_bits(whole, run)
            run = root / f"{name}-moving"
            palimpsa(4, "train", *cases[name], "--out", run, "--stop-after", 7)
            for ranks, stop in ((2, 13), (1, 17), (3, 0)):
                said = palimpsa(ranks, "train", "--resume", "--out", run, *(["--stop-after", stop] if stop else []))
                check("ranks: 4 before, now" in said, f"resuming on {ranks} ranks did not say so: {said}")
            same_losses(whole, run)
        print("stopped and resumed: the same bits on 3 ranks; 4, 2, 1, 3 ranks one after the other: the same losses")
        # Rank 0 may read a checkpoint for longer than a rank may be silent.
        run = root / "slow"
        palimpsa(2, "train", *cases["carried"], "--out", run, "--stop-after", 3)
        os.environ["PALIMPSA_FAULTS"] = "slow:5"
        begun = time.monotonic()
        palimpsa(2, "train", "--resume", "--comm-timeout", 3, "--out", run, by=faulty)
        del os.environ["PALIMPSA_FAULTS"]
        check(time.monotonic() - begun > 5, "the checkpoint was not read slowly")

    def wrong_usage():
        # What is wrong is said once, by one rank.
        said = palimpsa(3, "train", *CURRICULUM, "--stages", "16:2:2:2", "--out", root / "small", code=2)
        check("a batch of 2 examples for 3 ranks" in said, said)
        check(not (root / "small").exists(), "a refused run left its directory")
        said = palimpsa(2, "train", *CURRICULUM, "--out", trained("curriculum", 0), code=2)
        check("already holds a run" in said and "rank 0: " in said, said)
        palimpsa(2, "train", "--resume", "--out", root / "nothing", code=2)
        palimpsa(2, "train", *CURRICULUM, "--no-such-option", "--out", root / "wrong", code=2)
        both = " : ".join(f"-n 1 {program} train {' '.join(map(str, TEXT))} --out {root / 'apart'} --data {data}" for data in (shards, pairs))
        child = subprocess.run(["mpirun", *both.split()], capture_output=True, text=True)
        said = [line for line in child.stderr.splitlines() if line.startswith("palimpsa: ")]
        check(child.returncode == 2 and len(said) == 1 and "rank 1: the data's checksum is" in said[0], f"ranks with different data: exit code {child.returncode}, {said}\n{child.stderr}")
        check(not (root / "apart").exists(), "ranks with different data left a directory")
        print("wrong usage: one sentence, exit code 2")

    def evaluation():
        # Documents are shared out to ranks.
        def evaluated(ranks):
            palimpsa(ranks, "eval", trained("packed", 0), "--data", shards, "--json", root / "eval.json", "--threads", 1)
            return json.loads((root / "eval.json").read_text())
        one, three = evaluated(0), evaluated(3)
        for key in ("tokens", "nll", "token_perplexity", "byte_perplexity", "word_perplexity"):
            check(abs(one[key] - three[key]) <= 1e-6 * abs(one[key]), f"eval on 3 ranks: {key} is {three[key]}, expected {one[key]}")
        check([(b["from"], b["tokens"]) for b in one["by_position"]] == [(b["from"], b["tokens"]) for b in three["by_position"]], "eval on 3 ranks: other positions")
        palimpsa(2, "eval", trained("packed", 0), "--data", root, "--tasks", "piqa", code=2)
        print("eval: 3 ranks measure what one process does")

    def failures():
        endless = [*cases["packed"], "--steps", 100000, "--schedule", "constant", "--warmup", 0, "--checkpoint-every", 5, "--eval-every", 100000, "--log-every", 100, "--keep", 3]
        run = root / "full"
        run.mkdir()
        (run / "checkpoints").write_text("in the way")
        said = palimpsa(3, "train", *endless, "--out", run, code=1)
        check("rank 0: " in said and "checkpoints" in said, f"a checkpoint that cannot be written: {said}")

        run = root / "stopped"
        child = start(3, "train", *endless, "--comm-timeout", 1.5, "--out", run)
        until(lambda: newest(run) >= 5, "a first checkpoint")
        os.kill(rank_pids(child)[1], signal.SIGSTOP)
        out, err = ends(child, "a silent rank")
        said = [line for line in err.splitlines() if line.startswith("palimpsa: ")]
        check(child.returncode == 1 and len(said) == 1 and "rank 1 has been silent for 2 s" in said[0], f"a silent rank: exit code {child.returncode}, {said}\n{err}")

        for _ in range(25 if long_run else 1):
            child = start(2, "train", "--resume", "--out", run)
            before = newest(run)
            until(lambda: newest(run) > before, "a checkpoint after resuming")
            time.sleep(rng.uniform(0, 0.1))
            child.send_signal(signal.SIGUSR1)
            out, err = ends(child, "SIGUSR1")
            step = re.search(r"stopped at step (\d+), checkpoint written", out)
            check(child.returncode == 3 and step and newest(run) == int(step.group(1)), f"SIGUSR1: exit code {child.returncode}: {out}{err}")
        # All ranks give an evaluation up together, the last of them with fewer batches than the others, and make it when the run is resumed.
        long_book = root / "long-book.jsonl"
        long_book.write_text(20 * book.read_text())
        recall = [*RECALL, "--seq-len", 16, "--kv-pairs", 2, "--batch", 7, "--epochs", 2, "--eval-every", 3, "--test-examples", 5005]
        for options in (recall, [*cases["packed"], "--valid-data", long_book, "--field", "text", "--steps", 8, "--eval-every", 3]):
            whole, run, given_up, stops = root / "judged", root / "judged-in-parts", 0, 0
            palimpsa(3, "train", *options, "--out", whole)
            metrics = run / "metrics.jsonl"
            mark = lambda: (metrics.stat().st_ino, metrics.stat().st_mtime_ns) if metrics.exists() else None
            while stops < 4:
                before, child = mark(), start(3, "train", *options, "--out", run, *(["--resume"] if stops else []))
                until(lambda: mark() != before, "the run's metrics")
                time.sleep(rng.uniform(0.1, 0.4))
                child.send_signal(signal.SIGUSR1)
                out, err = ends(child, "SIGUSR1 within an evaluation")
                check(child.returncode == (0 if "finished" in out else 3), f"SIGUSR1 within an evaluation: exit code {child.returncode}: {out}{err}")
                if "finished at" in out:
                    break
                stops += 1
                given_up += "evaluation_due" in json.loads((run / f"checkpoints/step-{newest(run)}/trainer.json").read_text())
            palimpsa(3, "train", "--resume", "--out", run)
            same_bits(whole, run)
            without = [[{k: v for k, v in line.items() if k not in ("tokens_per_s", "data_share")} for line in lines(r)] for r in (whole, run)]
            check(without[0] == without[1], "lines of metrics differ where an evaluation was given up")
            print(f"3 ranks were stopped {stops} times, {given_up} of them within an evaluation: the same bits")
            shutil.rmtree(whole)
            shutil.rmtree(run)
        print("a disk that is full, a silent rank, SIGUSR1: all ranks end, the last checkpoint continues")

    def kills():
        # Killed at random times, each rank; the same bits as a run that was not.
        options = [*cases["packed"], "--steps", 60, "--checkpoint-every", 3, "--keep", 2]
        whole = root / "whole"
        palimpsa(2, "train", *options, "--out", whole)
        killed, trial = 0, 0
        while killed < (50 if long_run else 2):
            run = root / f"killed{trial}"
            trial += 1
            while True:
                before = newest(run)
                child = start(2, "train", *options, "--out", run, *(["--resume"] if (run / "config.json").exists() else []))
                until(lambda: len(rank_pids(child)) == 2 or child.poll() is not None, "two ranks")
                after = rng.choice((-1, 3, 12, 30)) if long_run else 12  # a checkpoint
                until(lambda: newest(run) >= after or child.poll() is not None, f"checkpoint {after}")
                time.sleep(rng.uniform(0, 1 if after < 0 else 0.1))
                pids, training = rank_pids(child), newest(run) > before
                if len(pids) == 2:
                    try:
                        os.kill(pids[killed % 2], signal.SIGKILL)
                        killed += 1
                    except ProcessLookupError:
                        pass
                out, err = ends(child, f"kill {killed}")
                if child.returncode == 0:
                    break
                check("exited on signal 9" in err or not training, f"a killed rank is not named: {err}")  # while ranks start, mpirun may say less
                if killed % 10 == 0 or not long_run and killed == 2:  # on to the end
                    palimpsa(2, "train", *options, "--out", run, *(["--resume"] if (run / "config.json").exists() else []))
                    break
            same_bits(whole, run)
        print(f"ranks were killed {killed} times: the same bits in the end")

    def farm():
        # A sweep is farmed out to ranks, and ends with the bytes of a serial one; a killed child is started again.
        sweep = ["sweep", "mqar", "--models", "palimpsa-d,palimpsa-m", "--lrs", "1e-3,3e-3", "--seeds", "1", "--threads", 1]
        of_train = ["--", "--vocab", 64, "--hidden", 32, "--heads", 2, "--seq-len", 32, "--kv-pairs", 4, "--batch", 8, "--steps", 30, "--test-examples", 16, "--checkpoint-every", 10]
        palimpsa(0, *sweep, "--out", root / "serial", *of_train)
        child = start(3, *sweep, "--out", root / "farmed", *of_train)

        def runs_of(rank):
            parent = rank_pids(child).get(rank)
            found = []
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if int(re.search(r"\) . (\d+)", (entry / "stat").read_text()).group(1)) == parent and "train" in (entry / "cmdline").read_text() and "dry" not in (entry / "cmdline").read_text():
                        found.append(int(entry.name))
                except (OSError, AttributeError):
                    pass
            return found
        until(lambda: runs_of(1) or child.poll() is not None, "a run on rank 1")
        for pid in runs_of(1):
            os.kill(pid, signal.SIGKILL)
        try:
            out, err = child.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            child.kill()
            sys.exit("FAILED: a farmed sweep does not end")
        check(child.returncode == 0, f"a farmed sweep: exit code {child.returncode}\n{out}{err}")
        for name in ("results.csv", "results.md"):
            check((root / "serial" / name).read_bytes() == (root / "farmed" / name).read_bytes(), f"a farmed sweep has another {name}")
        # A killed rank ends the job; the same command continues.
        child = start(2, *sweep, "--out", root / "again", *of_train)
        until(lambda: runs_of(1) or child.poll() is not None, "a run on rank 1")
        os.kill(rank_pids(child)[1], signal.SIGKILL)
        ends(child, "a killed worker")
        palimpsa(2, *sweep, "--out", root / "again", *of_train)
        check((root / "serial" / "results.csv").read_bytes() == (root / "again" / "results.csv").read_bytes(), "a sweep that lost a rank has other results")
        palimpsa(2, *sweep, "--jobs", 2, "--out", root / "jobs", *of_train, code=2)
        palimpsa(2, *sweep, "--out", root / "bad", *of_train, "--hidden", -3, code=2)
        print("a sweep over ranks has the results of a serial one; a killed run is started again, a killed rank ends the job and it continues")

    parts = {"losses": losses, "resuming": resuming, "usage": wrong_usage, "evaluation": evaluation, "failures": failures, "kills": kills, "farm": farm}
    for part in sys.argv[3:] or parts:
        parts[part]()
