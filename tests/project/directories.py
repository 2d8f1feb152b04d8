#!/usr/bin/env python3
"""Directories that someone else works in, those that no one may write to, files of others in them, closed streams, pipes: one sentence, and nothing
changes. Who is killed leaves no lock."""
from faulty import TEXT, TRAIN, can_serve, check, contents, copied, golden
from outside import call, program

import os, pathlib, re, shutil, subprocess, sys, tempfile

GRID = ("sweep mqar --models palimpsa-d --lrs 1e-3 --seeds 1 --out run -- --seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 4 --steps 2 --examples 32 "
        "--test-examples 8 --threads 1").split()
HOLD = "import fcntl, os, sys, time; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"

with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    root.chmod(0o755)
    start = root / "start"
    start.mkdir()
    (start / "text").write_text(TEXT)
    call("tokenize", "--learn-chars", "--out", "hybrid", "text", cwd=start)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(golden / "models/hybrid_m" / file, start / "hybrid" / file)
    shards = "tokenize text --tokenizer bytes --out run --threads 1".split()

    # Another process is in the directory: the sentence names it. Killed, it is out.
    if not can_serve():
        print("skipped: the program has no server")
    served = lambda *options: [["serve", "hybrid", *options, "--port", "0", "--threads", "1"]] if can_serve() else []
    for words in ([*TRAIN, "--out", "run"], GRID, shards, *served("--memory-dir", "run")):
        here = copied(start, root / "here")
        (here / "run").mkdir()
        other = subprocess.Popen([sys.executable, "-c", HOLD, here / "run"], stdout=subprocess.PIPE)
        other.stdout.readline()
        before = contents(here)
        refused = subprocess.run([program, *words], cwd=here, capture_output=True, text=True, timeout=100)
        other.kill()
        other.wait()
        check(refused.returncode == 2 and re.search(rf"\npalimpsa: run: process {other.pid} \(.*\) works in this directory\n$", "\n" + refused.stderr), f"{words[0]}: {refused}")
        check(contents(here) == before and (here / "run").is_dir(), f"{words[0]}: something was written next to another process")
        if words[0] != "serve":
            call(*words, cwd=here)
    # So is one that adds lines to the same file.
    here = copied(start, root / "here")
    (here / "data/piqa").mkdir(parents=True)
    (here / "data/config").mkdir()
    shutil.copy(golden / "eval/data/piqa/validation.jsonl", here / "data/piqa")
    (here / "data/config/dataset2prompt.json").write_text('{"trec": "{context} {input}"}')
    (here / "data/config/dataset2maxlen.json").write_text('{"trec": 3}')
    (here / "data/trec.jsonl").write_text('{"input": "What?", "context": "Some.", "answers": ["City"], "length": 9, "all_classes": ["City", "Date"]}\n')
    for task, file in (("piqa --limit 2 --samples samples.jsonl", "samples.jsonl"), ("longbench --predictions answers", "answers/trec.jsonl")):
        words = f"eval hybrid --tokenizer bytes --data data --tasks {task} --batch 1 --threads 1".split()
        call(*words, cwd=here)
        lines = (here / file).read_bytes()
        (here / file).write_bytes(lines[:-20])  # a line that the other one is about to end
        other = subprocess.Popen([sys.executable, "-c", HOLD, here / file], stdout=subprocess.PIPE)
        other.stdout.readline()
        refused = subprocess.run([program, *words], cwd=here, capture_output=True, text=True, timeout=100)
        other.kill()
        other.wait()
        check(refused.returncode == 2 and re.search(rf"palimpsa: {file}: process {other.pid} \(.*\) writes to this file\n$", refused.stderr), f"{task}: {refused}")
        check((here / file).read_bytes() == lines[:-20], f"{task}: another process's line was cut off")
        call(*words, cwd=here)
        check((here / file).read_bytes() == lines, f"{task}: the file is not what it was")
    print("a second process is refused and named; a killed one leaves no lock")

    # A directory that may only be read. The superuser may write anywhere: the program then runs as no one.
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    mine = root / "palimpsa"
    shutil.copy(program, mine)
    here = copied(start, root / "only-read")
    call(*TRAIN, "--out", "run", "--stop-after", 1, cwd=here)
    call(*TRAIN, "--out", "ended", cwd=here)
    for path in [here, *here.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    other = root / "other"
    other.mkdir()
    other.chmod(0o777)
    before = contents(here)

    def as_nobody(*words):
        environment = {**os.environ, "HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
        return subprocess.run([mine, *map(str, words)], cwd=here, capture_output=True, text=True, timeout=300, env=environment, **nobody)

    for words in ([*TRAIN, "--out", "new"], "train --resume --out run".split(), [w.replace("run", "grid") for w in GRID], "tokenize text --tokenizer bytes --out new".split(),
                  "tokenize text --train-bpe 280 --out new".split(), "convert hybrid new --dtype bf16".split(), "convert hybrid new.gguf --to gguf".split(),
                  "generate hybrid --prompt river --max-tokens 2 --save-memory new".split(), "plot ended --out new.svg".split(), "plot ended --out new.html".split(),
                  *served("--memory-dir", "new"), *served("--memory-dir", "hybrid")):
        done = as_nobody(*words)
        lines = [line for line in done.stderr.splitlines() if line.startswith("palimpsa: ") and not line.startswith("palimpsa: warning")]
        check(done.returncode in (1, 2) and len(lines) == 1 and "Permission denied" in lines[0], f"{' '.join(words)}: {done.returncode}: {done.stderr} {done.stdout}")
        check("Sanitizer" not in done.stderr and contents(here) == before, f"{' '.join(words)}: {done.stderr}")
    for words in (["inspect", "hybrid"], ["inspect", "run"], "generate hybrid --prompt river --max-tokens 2".split(), ["plot", "ended", "--out", other / "new.svg"],
                  ["convert", "hybrid", other / "new", "--dtype", "bf16"], "eval hybrid --data text".split()):
        done = as_nobody(*words)
        check(done.returncode == 0, f"{' '.join(map(str, words))}: {done.returncode}: {done.stderr}")
    check(contents(here) == before, "reading changed what is read")
    for path in [here, *here.rglob("*")]:  # so that it can be removed
        path.chmod(0o755 if path.is_dir() else 0o644)
    print("a directory that may only be read is read, and never written to")

    # A directory with files of others whose names are like ours.
    own = root / "own"
    for names in (["00000.shard", "00007.shard"], ["tokenizer.json.deadbeef", "vacation.shard.cafebabe", "123456.shard"]):
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        for name in names:
            (own / name).write_text(name)
        done = subprocess.run([program, "tokenize", start / "text", "--tokenizer", "bytes", "--out", own], capture_output=True, text=True)
        check(done.returncode == (2 if names[0] == "00000.shard" else 0), f"tokenize into a directory with {names}: {done}")
        check(all((own / name).read_text() == name for name in names), f"tokenize changed one of {names}")
    print("files of others stay where shards are written")

    # Files that are opened while standard error is closed do not become it.
    here = copied(start, root / "closed")
    file = here / "hybrid/model.safetensors"
    data = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:begin + 64] = b"\xff\xff\xff\x7f" * 16  # NaN, which is worth a warning
    file.write_bytes(data)
    for closed in ("2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        shutil.rmtree(here / "new", ignore_errors=True)
        subprocess.run(["sh", "-c", f'"$0" convert hybrid new --to palimpsa --dtype f16 {closed}', program], cwd=here)
        call("inspect", "new", cwd=here)
    print("what is printed to a closed stream goes nowhere")

    # A pipe, or a device without an end, in the place of a file is refused at once, and names from files do not move the terminal's cursor.
    begun, needle = [*TRAIN, "--out", "run", "--stop-after", "1"], "needle text --cuts run/metrics.jsonl --tokenizer bytes --ruler vt --out other"
    for begin, file, words in ((begun, "metrics.jsonl", "plot run --out new.svg"), (begun, "checkpoints/step-1/trainer.json", "inspect run"),
                               (begun, "config.json", "train --resume --out run"), (begun, "config.json", "train --config run/config.json --out other"),
                               (begun, "metrics.jsonl", needle), (GRID, "results.csv", "compare run"), (GRID, "results.csv", " ".join(GRID))):
        for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
            shutil.rmtree(here / "run", ignore_errors=True)
            call(*begin, cwd=here)
            (here / "run" / file).unlink()
            make(here / "run" / file)
            done = subprocess.run([program, *words.split()], cwd=here, capture_output=True, text=True, timeout=60)
            check(done.returncode == 2 and "not a regular file" in done.stderr, f"{words} with a pipe or a device for {file}: {done}")
    done = subprocess.run([program, "inspect", b"no\033[31m\302\2331m"], cwd=here, capture_output=True, timeout=60)
    check(done.returncode == 2 and b"\033" not in done.stderr and b"\xc2\x9b" not in done.stderr, f"escapes in a name: {done}")
    print("pipes are refused, escapes are not printed")
