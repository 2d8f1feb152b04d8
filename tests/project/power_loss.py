#!/usr/bin/env python3
"""Power fails at any moment of training, tokenizing, converting, saving a memory and keeping prompts: what the program did is recorded call by call and
replayed up to that moment, without what was not synced. Every checkpoint, model and memory that has its name is whole, and the same
command ends with the bits of a run that no one disturbed. A server that keeps prompts is killed between any two writes as well."""
import os, pathlib, random, shutil

from faulty import TEXT, TRAIN, can_serve, check, contents, copied, folder_in_memory, golden, good, long_run, strays
from serving import serving

rng = random.Random(13)


class Disk:
    """A file system in memory, as it is now. Files are nodes with bytes in the cache and bytes on the disk; directories are names of nodes."""

    def __init__(self, folder):
        self.node = {"": "directory"}  # path below the folder -> "directory" or a file's number
        self.cached, self.stored = {}, {}  # number -> bytes
        for p in sorted(pathlib.Path(folder).rglob("*")):
            name = str(p.relative_to(folder))
            self.node[name] = "directory" if p.is_dir() else self.new(p.read_bytes())
        self.durable = dict(self.node)  # names that a power failure does not take

    def new(self, data=b""):
        number = len(self.cached)
        self.cached[number] = bytearray(data)
        self.stored[number] = bytes(data)
        return number

    def below(self, name):
        return [n for n in self.node if n == name or n.startswith(name + "/")]

    def move(self, source, target):
        moved = {target + n[len(source):]: self.node.pop(n) for n in self.below(source)}
        for n in self.below(target):
            del self.node[n]
        self.node.update(moved)

    def apply(self, kind, name, rest):
        data = lambda: self.cached[self.node[name]]
        if kind == "open":
            if name not in self.node:
                self.node[name] = self.new()
        elif kind == "write":
            at, data_ = int(rest[0]), bytes.fromhex(rest[1])
            if len(data()) < at:
                data().extend(bytes(at - len(data())))
            data()[at:at + len(data_)] = data_
        elif kind == "reserve":
            data().extend(bytes(max(0, int(rest[0]) - len(data()))))
        elif kind == "cut":
            del data()[int(rest[0]):]
        elif kind == "sync" and self.node.get(name) != "directory":
            self.stored[self.node[name]] = bytes(data())
        elif kind == "sync":
            # What is directly in the directory is durable, and what is below a directory that only now came there.
            inside = lambda n: n.startswith(name + "/") or not name and n
            direct = lambda n: inside(n) and "/" not in n[len(name) + bool(name):]
            before = {n: v for n, v in self.durable.items() if direct(n)}
            for n in [n for n in self.durable if inside(n) and self.durable[n] != self.node.get(n) and direct(n)]:
                for gone in [m for m in self.durable if m == n or m.startswith(n + "/")]:
                    del self.durable[gone]
            for n in [n for n in self.node if direct(n)]:
                if n not in before or before[n] != self.node[n]:
                    self.durable[n] = self.node[n]
                    self.durable.update({m: self.node[m] for m in self.below(n) if m in self.synced_inside})
            self.synced_inside |= {n for n in self.node if direct(n)}
        elif kind == "rename":
            self.move(name, rest[0])
            self.synced_inside = {rest[0] + n[len(name):] if n == name or n.startswith(name + "/") else n for n in self.synced_inside}
        elif kind == "exchange":
            self.move(name, "\0aside"), self.move(rest[0], name), self.move("\0aside", rest[0])
            swap = lambda n: rest[0] + n[len(name):] if n.startswith(name + "/") else name + n[len(rest[0]):] if n.startswith(rest[0] + "/") else n
            self.synced_inside = {swap(n) for n in self.synced_inside}
        elif kind == "link":
            self.node[rest[0]] = self.node[name]
        elif kind == "mkdir":
            self.node.setdefault(name, "directory")
        elif kind in ("unlink", "rmdir"):
            if name in self.node and (kind == "unlink" or len(self.below(name)) == 1):
                self.node.pop(name)

    synced_inside = frozenset()

    def write_out(self, folder, names, unsynced):
        """names: what survived. unsynced: what a file that was not synced has: nothing, zeros, a part of its bytes or, of a program that was killed, all."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in sorted(names):
            if not name:
                continue
            if names[name] == "directory":
                (folder / name).mkdir(parents=True, exist_ok=True)
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            now, safe = bytes(self.cached[names[name]]), self.stored[names[name]]
            if now != safe:
                now = {"written": now, "lost": safe, "zeros": bytes(len(now)), "torn": now[:len(now) // 2] + bytes(len(now) - len(now) // 2)}[unsynced]
            (folder / name).write_bytes(now)


def calls_of(log, folder):
    """The calls in the log as words, with paths below the folder; others are left out."""
    for line in log.read_text().splitlines():
        words = line.split(" ")
        if words[0] == "count":
            continue
        if any(w.startswith("/") and not (w + "/").startswith(f"{folder}/") for w in words[1:3]):
            continue
        yield [w[len(str(folder)) + 1:] if w.startswith("/") else w for w in words]


def power_fails(name, start, words, again, same, most, whole):
    """words run once in a copy of start and are recorded. Then at many moments: what survived is written out, whole(folder, the end) looks at
    it, `again` continues, and same(folder) judges the end."""
    work, log = copied(start, root / "work"), root / "log"
    log.unlink(missing_ok=True)
    good(*words, folder=work, faults="record", log=log)
    calls = list(calls_of(log, work))
    expected = same(work)
    disk = Disk(start)
    moments = range(len(calls)) if long_run else sorted({*rng.sample(range(len(calls)), most), len(calls) - 1})
    tried = 0
    for i, (kind, path, *rest) in enumerate(calls):
        disk.apply(kind, path, rest)
        if i not in moments:
            continue
        # Names either all reached the disk, or only those whose directory was synced; bytes only if they were synced.
        ways = [(disk.node, "lost"), (disk.node, "zeros"), (disk.durable, "torn")]
        for names, unsynced in ways if long_run else [rng.choice(ways)]:
            here = root / "here"
            disk.write_out(here, names, unsynced)
            shutil.copy2(start / "text", here / "text")  # with its time
            when = f"{name}: power failed after call {i} ({kind} {path}), names {'all' if names is disk.node else 'synced'}, bytes {unsynced}"
            check(whole(here, expected), f"{when}: what has its name is not whole")
            good(*again(here), folder=here)
            check(same(here) == expected, f"{when}: another end")
            tried += 1
    check(same(disk_out(disk)) == expected, f"{name}: the recorded calls do not give what the program wrote")
    print(f"{name}: {len(calls)} calls, power failed {tried} times")


def disk_out(disk):
    """What would be there if power failed right after the program's end: everything."""
    disk.write_out(root / "here", disk.durable, "lost")
    return root / "here"


def kept_prompts(model, most):
    """serve --keep is killed, or loses its power, after each call that gives or takes a name, and between others: the next server finds every snapshot that has its
    name, with its pages and nothing else, and answers as one that reads the prompts."""
    start, work, log = copied(root / "nothing", root / "start-keep"), root / "work", root / "log"
    ask = dict(max_tokens=3, temperature=0, ignore_eos=True, logit_bias={str(i): -100 for i in (*range(32), *range(127, 256))})
    said = lambda s, prompts, **how: [s.text(prompt=p, **ask, **how) for p in prompts]
    rounds = [[TEXT[i * 400:i * 400 + 150] for i in range(3)]]
    with serving(model, "--tokenizer", "bytes") as s:
        for more in " and what is new" * 6, ", and the end":  # which share pages with what they continue
            rounds.append([p + answer + more for p, answer in zip(rounds[-1], said(s, rounds[-1], cache_prompt=False))])
        asked = [*rounds[2], *rounds[1]]  # each continues a text that may be kept
        expected = said(s, asked, cache_prompt=False)
    log.unlink(missing_ok=True)
    copied(start, work)
    os.environ.update(PALIMPSA_FAULTS="record", PALIMPSA_FAULTS_LOG=str(log))
    with serving(model, "--tokenizer", "bytes", "--keep", work / "keep", "--keep-disk", "300K") as s:
        said(s, [*rounds[0], *rounds[1]])
    del os.environ["PALIMPSA_FAULTS"], os.environ["PALIMPSA_FAULTS_LOG"]
    calls, disk, tried, kept = list(calls_of(log, work)), Disk(start), 0, set()
    check(sum(kind == "unlink" and path.endswith(".kept") for kind, path, *_ in calls) > 1, "--keep-disk removes nothing")
    names = [i for i, call in enumerate(calls) if call[0] in ("rename", "unlink")]
    moments = set(range(len(calls))) if long_run else {*rng.sample(names, min(most, len(names))), *rng.sample(range(len(calls)), most // 2), len(calls) - 1}
    for i, (kind, path, *rest) in enumerate(calls):
        disk.apply(kind, path, rest)
        if i not in moments:
            continue
        ways = [(disk.node, "written"), (disk.node, "lost"), (disk.node, "zeros"), (disk.durable, "torn")]
        for names, unsynced in ways if long_run else [ways[0] if tried % 2 else rng.choice(ways[1:])]:
            here = root / "here"
            disk.write_out(here, names, unsynced)
            when = f"kept prompts: ended after call {i} ({kind} {path}), names {'all' if names is disk.node else 'synced'}, bytes {unsynced}"
            there = [n for n in names if n.endswith(".kept")]
            with serving(model, "--tokenizer", "bytes", "--keep", here / "keep") as s:
                check(s.metric("kept_prompts") == len(there), f"{when}: {s.metric('kept_prompts')} of {there}")
                left = [n for n in os.listdir(here / "keep") if n.count(".") > 1 or n.endswith(".pages") and not there]
                check(not left and not strays(here), f"{when}: {left} was not removed")
                check(said(s, asked) == expected and s.metric("kept_failed_total") == 0, f"{when}: other answers, or {s.metric('kept_failed_total')} files that cannot be read")
                check(s.metric("kept_found_total") == len(there), f"{when}: found {s.metric('kept_found_total')} of {there}")
            kept.add(len(there))
            tried += 1
    check(len(kept) > 2, f"snapshots at a time: {kept}")
    print(f"kept prompts: {len(calls)} calls, ended {tried} times with {min(kept)} to {max(kept)} snapshots")


with folder_in_memory() as folder:
    root = pathlib.Path(folder).resolve()
    start = root / "start"
    start.mkdir()
    (start / "text").write_text(TEXT)

    def checkpoints_load(here, expected):
        return all(good("inspect", c, folder=here) for c in here.glob("run/checkpoints/step-*"))

    last = lambda here: {n: (here / "run/checkpoints/step-3" / n).read_bytes() for n in ("model.safetensors", "optimizer.safetensors")}
    power_fails("train", start, [*TRAIN, "--out", "run"],
                lambda here: ["train", "--resume", "--out", "run"] if (here / "run/config.json").exists() else [*TRAIN, "--out", "run"], last, 12, checkpoints_load)
    shards = lambda here: contents(here / "shards", [r"shards\.json$", r"\.[0-9a-f]{8}$"])
    tokenize = "tokenize text --tokenizer bytes --valid 0.1 --shard-tokens 4000 --out shards --threads 1".split()
    power_fails("tokenize", start, tokenize, lambda here: tokenize, shards, 6, lambda here, expected: True)

    # What is new is not there, or whole; a file that is replaced is the old one or the new one.
    models = copied(start, root / "models")
    good("tokenize", "--learn-chars", "--out", "hybrid", "text", folder=models)
    for file in ("config.json", "model.safetensors"):
        (models / "hybrid" / file).write_bytes((golden / "models/hybrid_m" / file).read_bytes())
    for name, target, how in (("a directory", "other", "--dtype bf16"), ("GGUF", "other.gguf", "--to gguf")):
        convert = f"convert hybrid {target} {how} --threads 1".split()
        made = lambda here: contents(here / target) if (here / target).is_dir() else (here / target).exists() and (here / target).read_bytes()
        power_fails(f"convert to {name}", models, convert, lambda here: ["inspect", target] if made(here) else convert, made, 5,
                    lambda here, expected: made(here) in (False, expected))
    save = "generate hybrid --max-tokens 2 --save-memory mind --threads 1 --prompt".split()
    good(*save, "river", folder=models)
    mind = lambda here: (here / "mind").read_bytes()
    power_fails("save a memory", models, [*save, "gold"], lambda here: [*save, "gold"], mind, 4, lambda here, expected: mind(here) in (mind(models), expected))
    if can_serve():
        (root / "nothing").mkdir()
        kept_prompts(golden / "families/granite_4_h", 8)
