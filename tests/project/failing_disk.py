#!/usr/bin/env python3
"""A disk that is full, broken, interrupted or slow, from the K-th call on, under every command that writes: what was there before
is still there and loads, the sentence names the file, no temporary is left, and the same command continues when the disk is well again.
  failing_disk.py PROGRAM GOLDEN [--sanitized] [NAME...]     those of the cases below whose names contain one of these"""
import json, os, pathlib, random, re, sys

from faulty import TEXT, TRAIN, can_serve, check, contents, copied, counted, folder_in_memory, golden, good, palimpsa, shared_out, some, strays, wait_for
from serving import serving, speaking_model

TIMES = [r"metrics\.jsonl$", r"timing\.csv$", r"report\.(html|md)$", r"\.log$", r"config\.json$", r"shards\.json$", r"results\.json$"]
rng = random.Random(11)
only = [word for word in sys.argv[3:] if not word.startswith("--")]
seen = {"refused": 0, "finished": 0}
mine, processes, others = shared_out()


def chosen(name):
    return not only or any(word in name for word in only)


def differences(here, expected):
    found = {file: data for file, data in contents(here, TIMES).items() if not re.search(r"\.[0-9a-f]{8}(/|$)|\.tmp(/|$)", file)}
    return [file for file in {*found, *expected} if found.get(file) != expected.get(file)]


def kept(file, old, now, expected):
    """Whether a file has what it had, or what it shall have; one that lines are added to keeps those that are whole."""
    return now in (old, expected) or re.search("|".join(TIMES), file) or file.endswith(".jsonl") and now.startswith(old[:old.rindex(b"\n") + 1])


def try_all(name, before, words, again=None, most=5):
    """before: a folder. words are run in copies of it; again: the command that continues after a failure, or the same one."""
    if not chosen(name):
        return
    end = copied(before, root / "end")
    log = root / "log"
    count = counted("disk", *words(end), folder=end, log=log)
    expected = contents(end, TIMES)
    check(count > 5 and not strays(end), f"{name}: {count} calls, {strays(end)}")
    for fault in ("enospc", "eio", "eintr", "short"):
        for k in list(some(count, most, rng))[mine::processes]:
            here = copied(before, root / "here")
            old = contents(here)
            done = palimpsa(*words(here), faults=f"{fault}:{k}", folder=here)
            what = f"{name}, {fault}:{k}"
            if fault in ("eintr", "short"):
                check(done.returncode == 0, f"{what}: {done.sentence}")
            if done.returncode == 0:
                seen["finished"] += 1
                if fault != "eio":  # which may have hit a removal
                    check(not strays(here), f"{what}: {strays(here)}")
            else:
                seen["refused"] += 1
                check(done.returncode == 1 and re.search(r"No space left|Input/output error|sweep: run .* failed; see", done.sentence), f"{what}: {done.returncode}: {done.sentence}")
                check(fault != "enospc" or not strays(here), f"{what}: left {strays(here)}")
                now = contents(here)
                lost = [file for file in old if file not in now or not kept(file, old[file], now[file], expected.get(file))]
                check(not lost, f"{what}: {lost} changed")
                if differences(here, expected):  # else the sync of a directory was all that failed
                    good(*(again or words)(here), folder=here)
            check(not differences(here, expected), f"{what}: in the end {differences(here, expected)} differ")
    print(f"{name}: {count} calls")


with folder_in_memory() as folder:
    root = pathlib.Path(folder)
    start = root / "start"
    start.mkdir()
    (start / "text").write_text(TEXT)
    resumed = lambda here: ["train", "--out", "run", "--resume"] if (here / "run/config.json").exists() else [*TRAIN, "--out", "run"]

    half = copied(start, root / "half")
    good(*TRAIN, "--out", "run", "--stop-after", 1, folder=half)
    try_all("train", start, lambda here: [*TRAIN, "--out", "run"], again=resumed, most=8)
    try_all("train --resume", half, resumed, most=8)
    try_all("tokenize", start, lambda here: "tokenize text --tokenizer bytes --valid 0.1 --shard-tokens 4000 --out shards --threads 1".split())
    try_all("tokenize --train-bpe", start, lambda here: "tokenize text --train-bpe 280 --out words".split())
    good("tokenize", "--learn-chars", "--out", "hybrid", "text", folder=copied(start, root / "models"))
    for file in ("config.json", "model.safetensors"):
        (root / "models/hybrid" / file).write_bytes((golden / "models/hybrid_m" / file).read_bytes())
    try_all("convert to a directory", root / "models", lambda here: "convert hybrid other --dtype bf16 --threads 1".split())
    try_all("convert to GGUF", root / "models", lambda here: "convert hybrid other.gguf --to gguf --threads 1".split())
    good(*"train --task mqar --model palimpsa-m-wo-meta --seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 2 --steps 1 --test-examples 8 --out plain --threads 1".split(), folder=root / "models")
    try_all("surgery", root / "models", lambda here: "convert plain other --metaplastic all --no-proof --threads 1".split())
    good(*"generate hybrid --prompt river --max-tokens 2 --save-memory mind --threads 1".split(), folder=root / "models")
    try_all("save a memory", root / "models", lambda here: "generate hybrid --prompt gold --max-tokens 2 --save-memory mind --threads 1".split())
    # Lines that are added one by one, after one that was cut off.
    data = root / "models/data"
    (data / "config").mkdir(parents=True)
    (data / "piqa").mkdir()
    (data / "piqa/validation.jsonl").write_bytes((golden / "eval/data/piqa/validation.jsonl").read_bytes())
    (data / "config/dataset2prompt.json").write_text(json.dumps({"trec": "Which kind?\n{context}\n{input}"}))
    (data / "config/dataset2maxlen.json").write_text(json.dumps({"trec": 3}))
    row = {"input": "What is it?", "context": "Some examples.", "answers": ["City"], "length": 5000, "all_classes": ["City", "Date"]}
    (data / "trec.jsonl").write_text((json.dumps(row) + "\n") * 3)
    for name, words, file in (("eval --samples", "piqa --limit 3 --samples samples.jsonl", "samples.jsonl"), ("eval --predictions", "longbench --predictions answers", "answers/trec.jsonl")):
        words = f"eval hybrid --tokenizer bytes --data data --tasks {words} --batch 1 --json results.json --threads 1".split()
        try_all(name + ", new", root / "models", lambda here: words, most=3)
        torn = copied(root / "models", root / "torn")
        good(*words, folder=torn)
        lines = (torn / file).read_bytes()
        (torn / file).write_bytes(lines[:lines.index(b"\n") + 20])
        try_all(name, torn, lambda here: words, most=4)
    # A disk that fills, or breaks once, during a sweep: in its own calls or in those of its runs.
    grid = ("sweep mqar --models palimpsa-d --lrs 1e-3,1e-2 --seeds 1 --out grid -- --seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 4 --steps 3 --examples 32 "
            "--test-examples 8 --checkpoint-every 1 --threads 1").split()
    try_all("sweep", start, lambda here: grid, most=4)
    # A memory that is uploaded is on the disk before the client gets an answer, or refused and gone.
    if not can_serve():
        print("skipped: the program has no server")
    elif chosen("upload") and not mine:
        (root / "served").mkdir()
        model, _ = speaking_model(root / "served")
        good("generate", model, "--prompt", "river", "--max-tokens", 0, "--save-memory", "mind", folder=root)

        def upload(faults):
            place, log = root / faults.replace(":", ""), root / "calls"
            log.unlink(missing_ok=True)
            os.environ.update(PALIMPSA_FAULTS=faults, PALIMPSA_FAULTS_LOG=str(log))
            with serving(model, "--memory-dir", place) as s:
                status, answer, _ = s.ask("POST", "/v1/memories", raw=(root / "mind").read_bytes(), headers={"Content-Type": "application/octet-stream"})
                listed = len(s.get("/v1/memories")["data"])
            del os.environ["PALIMPSA_FAULTS"], os.environ["PALIMPSA_FAULTS_LOG"]
            return status, answer, listed, place, log.read_text().split("\n")

        status, answer, listed, place, calls = upload("record")
        calls = [" ".join(call.split(" ")[:3]) for call in calls]
        state, description = (f"{place}/{answer['id']}.{kind}" for kind in ("state", "json"))
        synced = calls.index(f"sync {state}") if f"sync {state}" in calls else None
        check(status == 201 and listed == 1 and synced, f"an upload was answered {status}, with {calls}")
        check(all(i < synced for i, call in enumerate(calls) if call.startswith(f"write {state}")) and all(i > synced for i, call in enumerate(calls) if call.endswith(description)), f"{calls}")
        for fault, code in (("eio", 500), ("enospc", 507)):
            status, answer, listed, place, _ = upload(f"{fault}:{synced + 1}")
            check(status == code and "cannot sync" in answer["error"]["message"] and not listed and not list(place.glob("*.state")), f"{fault}: {status}, {answer}, {listed}")
    check(only or seen["refused"] > 20 and seen["finished"] > 20, f"{seen}")
    print(f"{seen['refused']} commands were refused and lost nothing, {seen['finished']} finished in spite of it")
wait_for(others)
