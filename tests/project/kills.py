#!/usr/bin/env python3
"""kill -9 at random times over train, sweep, tokenize, convert and a server with memories on disk: nothing is unloadable, what continues ends with the
bits of what was never disturbed, and nothing that was left over keeps the next start from working.
  kills.py PROGRAM GOLDEN [--kills N] [--seed N] [--only NAME]       N kills in all; a tenth of a second each where nothing else runs"""
from faulty import TEXT, TRAIN, can_serve, check, contents, strays
from serving import Server, golden, program

import argparse, atexit, http.client, pathlib, random, shutil, subprocess, tempfile, threading, time

options = argparse.ArgumentParser()
options.add_argument("program"), options.add_argument("golden"), options.add_argument("--sanitized", action="store_true")
options.add_argument("--kills", type=int, default=12)
options.add_argument("--seed", type=int, default=17)
options.add_argument("--only")
options = options.parse_args()
rng = random.Random(options.seed)
TIMES = [r"metrics\.jsonl$", r"timing\.csv$", r"report\.(html|md)$", r"\.log$", r"config\.json$", r"shards\.json$", r"\.[0-9a-f]{8}(/|$)", r"\.tmp(/|$)"]
RECALL = "--seq-len 16 --kv-pairs 2 --vocab 32 --hidden 16 --heads 2 --batch 4 --steps 3 --examples 32 --test-examples 8 --checkpoint-every 1 --threads 1".split()


class Command:
    """A command in its own folder: killed and started again, until one of its starts comes to its end."""

    def __init__(self, name, words, again=None, whole=None):
        self.name, self.words, self.again, self.whole = name, words, again or (lambda here: words), whole
        self.kills = self.ends = 0
        self.here = root / name
        self.begin()
        start = time.monotonic()
        self.finish(self.start())
        self.expected, self.time = contents(self.here, TIMES), time.monotonic() - start
        check(self.expected.keys() - {"text"} and not strays(self.here), f"{name}: {sorted(self.expected)}")
        self.begin()

    def begin(self):
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(root / "start", self.here)
        self.killed = 0

    def start(self):
        return subprocess.Popen([program, *self.again(self.here)], cwd=self.here, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, child):
        said = child.communicate(timeout=300)[1]
        check(child.returncode == 0 and "not usable" not in said and "ERROR" not in said, f"{self.name}, after {self.killed} kills: ended with {child.returncode}: {said}")

    def kill(self):
        """One more kill, or one run that was too fast for it."""
        child, since = self.start(), time.monotonic()
        try:
            child.wait(timeout=rng.uniform(0, 1.1 * self.time) if self.killed < 8 else 300)
        except subprocess.TimeoutExpired:
            child.kill()
            said = child.communicate()[1]
            check("not usable" not in said and "ERROR" not in said, f"{self.name}, after {self.killed} kills: {said}")
            self.killed += 1
            self.kills += 1
            if self.whole:
                self.whole(self)
            return
        self.finish(child)
        if not self.killed:
            self.time = 0.7 * self.time + 0.3 * (time.monotonic() - since)
        found = contents(self.here, TIMES)
        differ = [file for file in {*found, *self.expected} if found.get(file) != self.expected.get(file)]
        check(not differ, f"{self.name}: after {self.killed} kills {differ} differ")
        self.ends += 1
        self.begin()


def absent_or_whole(command):
    """What has its name is complete, and is not overwritten: no one finds a half of a model."""
    files = [file for file in command.expected if file.startswith("other")]
    if (command.here / files[0].split("/")[0]).exists():
        for file in files:
            check((command.here / file).read_bytes() == command.expected[file], f"{command.name}: {file} is not whole after {command.killed} kills")
        command.ends += 1
        command.begin()


class Served:
    """A server whose memories are on disk. What it said it keeps, it has at the next start, to the bit; the rest is as before or after, never between."""

    name = "serve"
    STORY, MORE = "the river came over the hill with gold ", "and "

    def __init__(self):
        self.kills = self.ends = 0
        self.here = root / "serve"
        self.here.mkdir()
        self.files = {}  # tokens that were read -> the memory's file, of a server that no one disturbed
        server = self.start()
        memory = server.post("/v1/memories", text=self.STORY)
        since = time.monotonic()
        for _ in range(40):
            self.files[memory["tokens"]] = self.file(server, memory["id"])
            server.post("/v1/completions", prompt=self.MORE, memory=memory["id"], update_memory=True, max_tokens=1, temperature=0)
            memory = server.get(f"/v1/memories/{memory['id']}")
        self.time = (time.monotonic() - since) / 8  # of a few requests
        server.stop()
        self.begin()

    def begin(self):
        shutil.rmtree(self.here / "kept", ignore_errors=True)
        self.kept, self.deleted = {}, set()  # id -> tokens that the server said it has

    def start(self):
        server = Server(root / "start/hybrid", "--memory-dir", self.here / "kept")
        atexit.register(server.process.kill)  # a check that failed leaves none
        return server

    @staticmethod
    def file(server, id_):
        status, data, _ = server.ask("GET", f"/v1/memories/{id_}/file")
        check(status == 200, f"serve: memory {id_} cannot be read: {data}")
        return data

    def requests(self, server):
        """Until the server is gone. What may be half done is in self.open."""
        for _ in range(1000):
            known = list(self.kept)
            self.open = rng.choice(known) if known else None
            what = rng.choice(["make", "read", "read", "read", "fork", "mark", "back", "delete"]) if 0 < len(known) < 6 else "make" if not known else "delete"
            if self.open and what == "read" and self.kept[self.open] not in list(self.files)[:-1]:
                what = "delete"
            self.doing = what
            if what == "make":
                made = server.post("/v1/memories", text=self.STORY)
                self.kept[made["id"]] = made["tokens"]
            elif what == "read":
                server.post("/v1/completions", prompt=self.MORE, memory=self.open, update_memory=True, max_tokens=1, temperature=0)
                tokens = list(self.files)
                self.kept[self.open] = tokens[tokens.index(self.kept[self.open]) + 1]
            elif what == "fork":
                made = server.post("/v1/memories", **{"from": self.open})
                self.kept[made["id"]] = self.kept[self.open]
            elif what == "mark":
                server.ask("POST", f"/v1/memories/{self.open}/marks", {"name": f"m{rng.randrange(3)}"})  # which may be there already
            elif what == "back":
                status, answer, _ = server.ask("POST", f"/v1/memories/{self.open}/rollback", {"mark": f"m{rng.randrange(3)}"})  # which may not be there
                if status == 200:
                    self.kept[self.open] = answer["tokens"]
            else:
                server.ask("DELETE", f"/v1/memories/{self.open}")
                self.kept.pop(self.open)

    def kill(self):
        server = self.start()
        found = {m["id"]: m for m in server.get("/v1/memories")["data"]}
        for id_, tokens in self.kept.items():
            undone = id_ == self.open  # the last request: it happened or it did not
            check(id_ in found or undone and self.doing == "delete", f"serve: memory {id_} is gone")
            if id_ in found and not (undone and self.doing in ("read", "back")):
                check(found[id_]["tokens"] == tokens, f"serve: memory {id_} has {found[id_]['tokens']} tokens, {tokens} were said")
        for id_, m in found.items():
            check(m["tokens"] in self.files and self.file(server, id_) == self.files[m["tokens"]], f"serve: memory {id_} of {m['tokens']} tokens has other bits")
        self.kept = {id_: m["tokens"] for id_, m in found.items()}
        timer = threading.Timer(rng.uniform(0, self.time), server.process.kill)
        timer.start()
        try:
            self.requests(server)
        except (OSError, http.client.HTTPException):
            pass
        timer.join()
        said = server.process.communicate()[1]
        check("not offered" not in said and "ERROR" not in said, f"serve: {said}")
        self.kills += 1
        left = strays(self.here / "kept")
        check(len(left) < 3, f"serve: {left} stay forever")
        self.ends += 1


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder).resolve()
    start = root / "start"
    shutil.copytree(golden / "models/hybrid_m", start / "hybrid", ignore=lambda _, names: {*names} - {"config.json", "model.safetensors"})
    (start / "text").write_text(TEXT)
    subprocess.run([program, *"tokenize --learn-chars --out hybrid text".split()], cwd=start, check=True, stdout=subprocess.DEVNULL)
    sweep = ["sweep", "mqar", *"--models palimpsa-d --lrs 1e-3,1e-2 --seeds 1 --out grid --".split(), *RECALL]
    make = {
        "train": lambda: Command("train", TRAIN, lambda here: ["train", "--out", "run", "--resume"] if (here / "run/config.json").exists() else [*TRAIN, "--out", "run"]),
        "sweep": lambda: Command("sweep", sweep),
        "tokenize": lambda: Command("tokenize", "tokenize text --tokenizer bytes --valid 0.1 --shard-tokens 2000 --out shards --threads 1".split()),
        "convert": lambda: Command("convert", "convert hybrid other --dtype bf16 --threads 1".split(), whole=absent_or_whole),
        "gguf": lambda: Command("gguf", "convert hybrid other.gguf --to gguf --threads 1".split(), whole=absent_or_whole),
        "serve": Served,
    }
    if not can_serve():
        print("skipped: the program has no server")
        del make["serve"]
    subjects = [make[name]() for name in make if options.only in (None, name)]
    began, total = time.monotonic(), 0
    while total < options.kills:
        least = min(subjects, key=lambda s: s.kills)
        before = least.kills
        least.kill()
        total += least.kills - before
        if total % 100 == 0 and least.kills > before:
            print(f"{total} kills after {time.monotonic() - began:.0f} s", flush=True)
    print("; ".join(f"{s.name}: killed {s.kills} times, {s.ends} {'starts with every memory' if s.name == 'serve' else 'ends with the same bits'}" for s in subjects))
