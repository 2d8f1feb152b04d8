#!/usr/bin/env python3
"""Whole commands on files that are nearly right: a JSON value replaced, a key gone or doubled, a number of a binary header out of all proportion, a byte
flipped, an end cut off. Each is done, or refused with one sentence and without output; nothing crashes, hangs or changes what it read.

  mutated.py PROGRAM GOLDEN [--tries N] [--seed S] [--first K] [NAME...]     some subjects; a try is reported by its seed and number alone"""
import copy, json, pathlib, random, struct, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checkpoint_writers as writers
from faulty import TEXT, TRAIN, check, contents, copied, folder_in_memory, golden, good, palimpsa, shared_out, strays, wait_for

ODD = [0, 1, 2, 3, 7, -1, -2, 255, 256, 65535, 1 << 16, 1 << 30, (1 << 30) + 1, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32, (1 << 32) + 4, 1 << 53, (1 << 63) - 1, -(1 << 63),
       0.5, -0.0, 1e-320, 1e30, 1e308, -1e308, "", "a", "x" * 5000, "../x", "\0", "\u00e9", "null", None, True, False, [], {}, [[]], [0] * 9, {"a": {}}, [[[[[[[[]]]]]]]]]
MUCH = 4096  # a header's share of a binary file


def places(value, path=()):
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def mutated_value(value, rng):
    """JSON with one to three changes at places that are there."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        *path, last = rng.choice([p for p in places(value) if p] or [(None,)])
        if last is None:
            return rng.choice(ODD)
        owner = value
        for key in path:
            owner = owner[key]
        how, old = rng.randrange(8), owner[last]
        if how == 0:
            del owner[last]
        elif how == 1 and isinstance(owner, list):
            owner.insert(rng.randrange(len(owner) + 1), copy.deepcopy(rng.choice(owner)))
        elif how == 1:
            owner[rng.choice((last + "x", last.upper(), "", last * 40))] = owner.pop(last)
        elif how <= 3 and isinstance(old, (int, float)) and not isinstance(old, bool):
            owner[last] = rng.choice((old + 1, old - 1, -old, old * 2, old * 3, old << rng.randrange(62) if isinstance(old, int) else old * 1e300))
        elif how == 4:
            owner[last] = copy.deepcopy(rng.choice([inner for inner in (owner.values() if isinstance(owner, dict) else owner)]))
        else:
            owner[last] = copy.deepcopy(rng.choice(ODD))
    return value


def mutated_bytes(data, rng, reach=None):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        at, how = rng.randrange(min(len(data), reach or len(data))), rng.randrange(7)
        if how == 0:
            del data[at:]
        elif how == 1:
            del data[at:at + rng.randrange(1, 17)]
        elif how == 2:
            data[at:at] = data[at:at + rng.randrange(1, 65)]
        elif how == 3:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 4:
            data[at] = rng.randrange(256)
        else:
            width, number = rng.choice((2, 4, 8)), rng.choice([n for n in ODD if isinstance(n, int)])
            data[at:at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "little")
    return bytes(data)


def mutated(name, data, rng):
    """What a file of this name may look like: mostly of the right form, so that what follows the form is reached."""
    as_form = rng.random() < 0.85
    if name.endswith(".json") and as_form:
        return json.dumps(mutated_value(json.loads(data), rng)).encode()
    if name.endswith(".jsonl") and as_form:
        lines = data.splitlines()
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(mutated_value(json.loads(lines[at]), rng)).encode()
        return b"\n".join(lines) + b"\n"
    if name.endswith(".csv") and as_form:
        rows = [line.split(b",") for line in data.splitlines()]
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = str(rng.choice(ODD)).encode()
        return b"\n".join(b",".join(row) for row in rows) + b"\n"
    if name.endswith(".safetensors") and as_form:
        (size,) = struct.unpack("<Q", data[:8])
        header = json.dumps(mutated_value(json.loads(data[8:8 + size]), rng)).encode()
        return struct.pack("<Q", len(header)) + header + data[8 + size:]
    return mutated_bytes(data, rng, MUCH if as_form else None)


def make(root):
    """Subjects by name: a folder, the files in it to change, and commands."""
    made = {}

    def subject(name, files, *commands):
        made[name] = root / name, files.split(), [c.split() for c in commands]
        (root / name).mkdir(exist_ok=True)
        return root / name

    def letters(folder, text=TEXT):
        (folder / "text").write_text(text)
        good(*"tokenize --learn-chars --out letters text".split(), folder=folder)

    def bare_model(folder, kind):
        (folder / "model").mkdir()
        letters(folder)
        for file in ("config.json", "model.safetensors"):
            (folder / "model" / file).write_bytes((golden / "models" / kind / file).read_bytes())

    models = ("inspect model", "convert model out --dtype bf16", "convert model out.gguf --to gguf --tokenizer none", "convert model out.gguf --to gguf --tokenizer none --dtype q8_0",
              "generate model --tokenizer letters --prompt river --max-tokens 3", "eval model --tokenizer letters --data text --context 32")
    for kind in ("hybrid_m", "palimpsa_d", "gated_deltanet", "transformer", "mamba2_official", "palimpsa_m"):
        bare_model(subject(kind, "model/config.json model/model.safetensors model/config.json", *models), kind)
    for kind in ("torch", "torch_sharded", "hf", "hf_sharded", "gguf", "gguf_q4_0"):
        folder = subject(kind, "", *models) if not kind.startswith("gguf") else subject(kind, "", *(c.replace(" model", " model/model.gguf", 1) for c in models))
        writers.write(kind, folder / "model", tiny=True)
        (folder / "model/expected.json").unlink()
        letters(folder, "the river came over gold\n" * 20)
        made[kind] = folder, [str(p.relative_to(folder)) for p in sorted((folder / "model").iterdir())], made[kind][2]
    folder = subject("tokenizer", "words/tokenizer.json", "tokenize text --tokenizer words --out out", "tokenize --tokenizer words --encode-file text", "tokenize --tokenizer words --decode-file ids")
    letters(folder)
    (folder / "ids").write_bytes(good(*"tokenize text --train-bpe 280 --out words".split(), folder=folder) and good(*"tokenize --tokenizer words --encode-file text".split(), folder=folder).stdout)
    folder = subject("shards", "shards/shards.json shards/00000.shard shards/tokenize.json", f"{' '.join(TRAIN).replace('--data text --tokenizer bytes', '--data shards')} --out out --stop-after 1",
                     "eval model --tokenizer bytes --data shards --context 32", "tokenize text --tokenizer bytes --valid 0.1 --shard-tokens 4000 --out shards --threads 1")
    bare_model(folder, "hybrid_m")
    good(*"tokenize text --tokenizer bytes --valid 0.1 --shard-tokens 4000 --out shards --threads 1".split(), folder=folder)
    folder = subject("run", "", "inspect run", "plot run --out out.svg", "plot run --out out.html", "generate run --prompt river --max-tokens 3", "train --resume --out run --stop-after 1", "convert run out --to palimpsa")
    (folder / "text").write_text(TEXT)
    good(*TRAIN, "--out", "run", "--stop-after", "2", folder=folder)
    made["run"] = folder, [str(p.relative_to(folder)) for p in (folder / "run").rglob("*") if p.is_file() and p.suffix in (".json", ".jsonl", ".safetensors", ".csv")], made["run"][2]
    folder = subject("memory", "mind", "generate model --tokenizer letters --load-memory mind --prompt a --max-tokens 3", "generate model --tokenizer letters --load-memory mind --prompt a --max-tokens 3 --save-memory out")
    bare_model(folder, "hybrid_m")
    good(*"generate model --tokenizer letters --prompt river --max-tokens 2 --save-memory mind".split(), folder=folder)
    folder = subject("grid", "grid/results.csv", "compare grid --lr 1e-3", "compare grid --lr 1e-2")
    good(*"sweep mqar --models palimpsa-d,palimpsa-m --lrs 1e-3,1e-2 --seeds 1,2 --out grid -- --seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 4 --steps 2 --examples 32 --test-examples 8 --threads 1".split(),
         folder=folder)
    folder = subject("tasks", "data/piqa/validation.jsonl samples.jsonl data/trec.jsonl data/config/dataset2prompt.json data/config/dataset2maxlen.json",
                     "eval model --tokenizer bytes --data data --tasks piqa --limit 3 --samples samples.jsonl --json out.json", "eval model --tokenizer bytes --data data --tasks longbench --predictions out --json out.json")
    bare_model(folder, "hybrid_m")
    for name, text in {"piqa/validation.jsonl": "".join((golden / "eval/data/piqa/validation.jsonl").read_text().splitlines(True)[:4]), "config/dataset2prompt.json": '{"trec": "{context} {input}"}',
                       "config/dataset2maxlen.json": '{"trec": 3}', "trec.jsonl": '{"input": "What?", "context": "Some.", "answers": ["City"], "length": 9, "all_classes": ["City", "Date"]}\n' * 2}.items():
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_text(text)
    good(*"eval model --tokenizer bytes --data data --tasks piqa --limit 3 --samples samples.jsonl".split(), folder=folder)
    folder = subject("options", "options.json", f"{' '.join(TRAIN)} --config options.json --out out --stop-after 1")
    (folder / "text").write_text(TEXT)
    (folder / "options.json").write_text(json.dumps({"lr": 1e-3, "clip": 1.0, "schedule": "cosine", "warmup": 2, "weight-decay": 0.1, "valid": 0.1, "seed": 3}))
    return made


def attempt(number, seed, subjects, root):
    """What was wrong, or None; how long it took; whether it was refused."""
    rng = random.Random(f"{seed}/{number}")
    name = rng.choice(sorted(subjects))
    source, files, commands = subjects[name]
    file, command = rng.choice(files), rng.choice(commands)
    here = copied(source, root / "here")
    (here / file).write_bytes(mutated(file, (here / file).read_bytes(), rng))
    before, began = contents(here), time.monotonic()
    what = f"try {number}, {name}, {file}: {' '.join(command)}"
    try:
        done = palimpsa(*command, folder=here, timeout=60)
        after = contents(here)
        changed = [f for f in before if after.get(f) != before[f] and not f.startswith(("run/", "shards/", "samples.jsonl"))]
        check(not changed and not strays(here), f"{changed} changed, {strays(here)} left over")
        check(not done.returncode or name == "options" or not any(f == "out" or f.startswith("out.") for f in after), f"refused, and still wrote: {done.sentence}")
        return None, time.monotonic() - began, done.returncode
    except (SystemExit, Exception) as problem:
        return f"{what}: {problem}", time.monotonic() - began, 0


def option(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


tries, seed, first = option("--tries", 150), option("--seed", 1), option("--first", 0)
only = [word for word in sys.argv[3:] if not word.startswith("--") and not word.isdigit()]
mine, processes, others = shared_out()
with folder_in_memory() as folder:
    root = pathlib.Path(folder)
    subjects = {name: made for name, made in make(root).items() if not only or any(word in name for word in only)}
    for name, (source, _, commands) in subjects.items():  # sound, every command does its work
        for command in commands:
            good(*command, folder=copied(source, root / "here"))
    failures, refused, slowest = [], 0, (0, "")
    for number in range(first + mine, first + tries, processes):
        problem, seconds, code = attempt(number, seed, subjects, root)
        refused += code != 0
        slowest = max(slowest, (seconds, f"try {number}"))
        if problem:
            failures.append(problem)
            print(f"FAILED: {problem}", flush=True)
    print(f"{len(range(first + mine, first + tries, processes))} tries with seed {seed}, {refused} refused, {len(failures)} failed; the longest took {slowest[0]:.1f} s ({slowest[1]})")
    check(not failures, f"{len(failures)} of these tries")
wait_for(others)
