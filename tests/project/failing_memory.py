#!/usr/bin/env python3
"""The K-th allocation fails, alone or with all that follow, under every command: it ends as if nothing had been, with
the same files and words, or with 1 and one sentence; what was there before is still there, nothing half is left, sound
checkpoints are not taken for damaged ones, and sanitizers find no leak.
PALIMPSA_TEST_LONG=1 takes the first K of each place that allocates (a stack of callers) and that no case before had,
every third of them where all that follow fail, with a process for each core; else there is a sample.
  failing_memory.py PROGRAM GOLDEN [--sanitized] [NAME...]     those of the cases below whose names contain one of these"""
import json, os, pathlib, random, re, sys

from faulty import TEXT, TRAIN, can_serve, check, contents, copied, counted, folder_in_memory, golden, good, long_run, noted, palimpsa, places, shared_out, some, strays, wait_for
from serving import Server

import http.client

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import checkpoint_writers

TIMES = [r"timing\.csv$", r"\.log$"]
CLOCK = rb'("(seconds|time|tokens_per_s|prompt_tokens_per_s|wall|date|[a-z_]*_s|step_seconds|elapsed|total_evaluation_time_seconds|created|data_share|s)": ?)[-+0-9.e]+'
rng = random.Random(5)
only = [word for word in sys.argv[3:] if not word.startswith("--")]
seen = {"refused": 0, "finished": 0}
mine, processes, others = shared_out()
tried = set()


def timeless(data):
    data = re.sub(rb"[0-9.]+( (s|ms|tok/s|tokens/s)\b|% of peak)", b"T", data)
    return re.sub(CLOCK, rb"\1T", data)


def state(folder):
    """Every file by its name, without times; of reports the tables, without their numbers."""
    tables = lambda data: re.sub(rb"[0-9.]+", b"0", b"\n".join(line for line in data.split(b"\n") if b"<tr>" in line))
    return {file: tables(data) if file.endswith(".html") else timeless(data) for file, data in contents(folder, TIMES).items()}


def chosen(name):
    return not only or any(word in name for word in only)


def new_ones(found):
    """Of places that were found, the numbers of those that are new: this process's share of them."""
    numbers = sorted(number for number, callers in found if callers not in tried)
    tried.update(callers for _, callers in found)
    return numbers[mine::processes]


def try_all(name, before, *words, most=4):
    if not chosen(name):
        return
    end = copied(before, root / "end")
    count = counted("memory", *words, folder=end, log=root / "log")
    if long_run:
        end = copied(before, root / "end")
        numbers = new_ones(places(*words, folder=end, log=root / "log"))
        here = copied(before, root / "here")
    else:
        numbers = list(some(count, most, rng))
    end = copied(before, root / "end")
    told = timeless(good(*words, folder=end).stdout)
    expected = state(end)
    check(count > 10 and not strays(end), f"{name}: {count} allocations, {strays(end)}")
    old, changed, tries, refused = state(before), True, 0, 0
    writes = expected != old
    for kind in ("memory-once", "memory"):
        for k in numbers[::3 if long_run and kind == "memory" else 1]:
            if changed:
                here = copied(before, root / "here")
            done = palimpsa(*words, faults=f"{kind}:{k}", folder=here)
            what, now = f"{name}, {kind}:{k}", state(here) if writes else old
            changed = now != old
            tries += 1
            check(not strays(here), f"{what}: left {strays(here)}")
            check(b"is not usable" not in done.stderr, f"{what}: a sound checkpoint was passed over: {done.stderr}")
            if done.returncode == 0:
                differ = [file for file in {*now, *expected} if now.get(file) != expected.get(file)]
                check(not differ, f"{what}: ended with 0, but {differ} differ")
                check(timeless(done.stdout) == told, f"{what}: ended with 0 and printed {done.stdout[-600:]}, expected {told[-600:]}")
            else:
                refused += 1
                check(done.returncode == 1, f"{what}: ended with {done.returncode}: {done.sentence}")
                lost = [file for file in old if now.get(file) not in (old[file], expected.get(file)) and not file.endswith("metrics.jsonl")]
                check(not lost, f"{what}: {lost} changed")
    check(writes or state(here) == old, f"{name}: something in its folder changed")
    seen["refused"] += refused
    seen["finished"] += tries - refused
    print(f"{name}: {count} allocations, {tries} tries, {refused} refused", flush=True)


HALF = {"logit_bias": {"195": 100}}  # a byte that begins a character, which is reported when the text has ended
REQUESTS = {
    "one HTTP request": ("/v1/completions", {"prompt": "river"}),
    "one HTTP stream": ("/v1/completions", {"prompt": "river", "stream": True}),
    "one text's ids": ("/tokenize", {"prompt": "river"}),
    "one chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "river"}], "logprobs": True, "max_tokens": 1, **HALF}),
    "one chat stream": ("/v1/chat/completions", {"messages": [{"role": "system", "content": "gold"}, {"role": "user", "content": "river"}], "logprobs": True, "top_logprobs": 2,
                                                 "stream": True, "stream_options": {"include_usage": True}, **HALF}),
}


def told_by(server, name):
    """The answer to one request: its text, why it ended, and how many tokens it says it has. None: no answer, or part of one."""
    path, body = REQUESTS[name]
    try:
        status, answer, _ = server.ask("POST", path, {"max_tokens": 3, "temperature": 0, **body})
    except (OSError, http.client.HTTPException):
        return None, None
    if status != 200:
        return status, answer
    if path == "/tokenize":
        return status, (answer["tokens"], "length")
    parts = [answer]
    if "stream" in body:
        *events, done, rest = answer.split("\n\n")
        check(done == "data: [DONE]" and rest == "", f"{name}: a stream without an error ends with {done!r}, {rest!r}")
        parts = [json.loads(event[6:]) for event in events]
    failed = [part for part in parts if "error" in part]
    if failed:
        return 500, failed[0]
    choices = [part["choices"][0] for part in parts if part["choices"]]
    texts = [choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or "" for choice in choices]
    tokens = [token["logprob"] for choice in choices if "chat" in name for token in choice["logprobs"]["content"]]
    return status, ("".join(texts), choices[-1]["finish_reason"], tokens, [part["usage"]["completion_tokens"] for part in parts if part.get("usage")])


def answers(faults, request, log=None, ask=2):
    """What a server that starts with these faults answers to the same request, asked again and again. It ends well."""
    os.environ.update(PALIMPSA_FAULTS=faults, PALIMPSA_FAULTS_LOG=str(log or "/dev/null"))
    server = Server(root / "start/hybrid", "--tokenizer", root / "split")
    try:
        told = [told_by(server, request) for _ in range(ask)]
        server.stop()
    except AssertionError as error:
        raise AssertionError(f"{request} with {faults}: {error}") from error
    finally:
        server.process.kill()
    return told


def try_server(name, most):
    """One allocation fails while a request is answered: it gets its answer, an error or none; the next one gets its answer."""
    if not chosen(name):
        return
    if not can_serve():
        print(f"{name}: skipped: the program has no server")
        return
    counts = []
    for ask in (0, 2):
        log = root / "log"
        log.unlink(missing_ok=True)
        told = answers("places" if long_run else "count", name, log, ask)
        counts.append(max(int(n) for n in re.findall(r"^count memory (\d+)$", log.read_text(), re.M)))
    expected, refused = told[0], 0
    check(expected[0] == 200 and expected[1][1] == "length" and told[1] == expected and counts[1] > counts[0], f"{name}: {told}, {counts}")
    last = range(max(1, counts[1] - counts[0] - 20), counts[1] - counts[0], 5) if "stream" in name else ()  # while its last event is made
    tries = sorted({counts[0] + k for k in (*some(counts[1] - counts[0], most, rng), *last)})
    if long_run:
        tries = new_ones([place for place in noted(log) if place[0] > counts[0]])
    for k in tries:
        told = answers(f"memory-once:{k}", name, ask=3)
        bad = [t for t in told if t != expected]
        refused += len(bad)
        check(len(bad) <= 1 and all(t[0] is None or t[0] >= 400 and t[1]["error"]["message"] for t in bad), f"{name}, memory-once:{k}: {told}")
    print(f"{name}: {counts[1] - counts[0]} allocations, {len(tries)} tries, {refused} refused", flush=True)


with folder_in_memory() as folder:
    root = pathlib.Path(folder)
    start = root / "start"
    start.mkdir()
    (start / "text").write_text(TEXT)
    (start / "few").write_text(TEXT[:400])
    for kind in ("torch", "torch_sharded", "hf_sharded", "gguf"):
        checkpoint_writers.write(kind, start / kind, tiny=True)
    good("tokenize", "--learn-chars", "--out", "hybrid", "text", folder=start)
    for file in ("config.json", "model.safetensors"):
        (start / "hybrid" / file).write_bytes((golden / "models/hybrid_m" / file).read_bytes())
    good(*"convert hybrid own.gguf --to gguf --threads 1".split(), folder=start)
    good(*TRAIN, "--out", "run", "--stop-after", 1, folder=start)
    good(*"generate hybrid --prompt river --max-tokens 2 --save-memory mind --threads 1".split(), folder=start)
    good(*"tokenize text --train-bpe 280 --out words".split(), folder=start)
    good(*"tokenize text --tokenizer words --shard-tokens 4000 --out shards --threads 1".split(), folder=start)
    settings = {key[2:]: int(value) if value.isdigit() else value for key, value in zip(TRAIN[1::2], TRAIN[2::2])}
    (start / "settings.json").write_text(json.dumps(settings))
    for model, what in {"hybrid": "a directory", "torch": "torch", "torch_sharded": "several torch files", "hf_sharded": "several files", "gguf/model.gguf": "GGUF",
                        "own.gguf": "GGUF of ours", "run": "a run"}.items():
        try_all(f"inspect {what}", start, "inspect", model, "--json", "--threads", 1)
    try_all("inspect for people", start, "inspect", "hybrid", "--threads", 1)
    for tokenizer in ("words", "hybrid", "bytes", "own.gguf"):
        try_all(f"encode by {tokenizer}", start, "tokenize", "--tokenizer", tokenizer, "--encode", "the river came")
    try_all("decode", start, *"tokenize --tokenizer words --decode".split(), "5 6 7 260")
    try_all("tokenize to shards", start, *"tokenize text --tokenizer words --valid 0.1 --shard-tokens 4000 --out new --threads 1".split())
    try_all("learn a vocabulary", start, *"tokenize text --train-bpe 262 --out new".split())
    try_all("train", start, *TRAIN, "--steps", 1, "--out", "new")
    try_all("train by a file", start, *"train --config settings.json --steps 1 --out new".split())
    from_tokens = " ".join(TRAIN).replace("--data text --tokenizer bytes", "--data shards").split()
    try_all("train on shards", start, *from_tokens, "--steps", 1, "--out", "new")
    try_all("train --resume", start, *"train --out run --resume".split())
    try_all("train recall", start, *"train --task mqar --model palimpsa-m-wo-meta --seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 2 --steps 1 --test-examples 8 --out new --threads 1".split())
    try_all("convert to a directory", start, *"convert hybrid other --dtype bf16 --threads 1 --json".split())
    try_all("convert from torch", start, *"convert torch other --to palimpsa --threads 1".split())
    try_all("convert to GGUF", start, *"convert hybrid other.gguf --to gguf --threads 1".split())
    try_all("generate", start, *"generate hybrid --prompt river --max-tokens 3 --threads 1".split())
    try_all("generate with details", start, *"generate hybrid --prompt river --max-tokens 3 --json --uncertainty --threads 1".split())
    try_all("continue from a memory", start, *"generate hybrid --prompt gold --max-tokens 2 --load-memory mind --save-memory mind --threads 1".split())
    try_all("eval", start, *"eval hybrid --data few --json --threads 1 --context 64".split())
    try_all("eval --tasks", start, *"eval hybrid --tasks piqa --limit 1 --tokenizer bytes --json new.json --threads 1 --data".split(), golden.resolve() / "eval/data")
    try_all("plot a figure", start, *"plot run --out new.svg".split())
    try_all("plot a report", start, *"plot run --out new.html".split())
    several = root / "several"
    several.mkdir()
    (several / "text").write_text(TEXT)
    good(*TRAIN, "--out", "run", "--stop-after", 2, folder=several)
    try_all("open the newest of two checkpoints", several, "inspect", "run", "--threads", 1, most=16)
    split = json.loads(next((start / "run/checkpoints").glob("*/tokenizer.json")).read_text())  # single bytes, with a pattern
    split["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a|b"}, "behavior": "Isolated", "invert": False}, split["pre_tokenizer"]]}
    (root / "split").mkdir()
    (root / "split/tokenizer.json").write_text(json.dumps(split))
    for name in REQUESTS:
        try_server(name, 4)
    check(only or seen["refused"] > 20, f"{seen}")
    print(f"{seen['refused']} commands were refused and lost nothing, {seen['finished']} finished in spite of it")
wait_for(others)
