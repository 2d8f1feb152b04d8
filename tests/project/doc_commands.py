"""Types the commands of README and of the pages that people follow, as they stand, at small sizes: PROGRAM is the argument.

    doc_commands.py PROGRAM [--list] [PAGE...]

Each page runs in an empty directory, where names that a page takes from its reader (my-model, book.txt, a download) stand for small
things made here. A block of commands is indented by four spaces and begins with a word of COMMANDS; each of its lines is then a command.
What is not run (downloads, installations, other machines) is listed with its reason; so are pages of which nothing is run."""
import sys

sys.path.pop(0)  # tokenize.py next to this file is not the one that the standard library imports
import os, pathlib, re, shutil, signal, subprocess, tempfile, time  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
program = pathlib.Path(sys.argv[1]).resolve()
only = [a for a in sys.argv[2:] if a != "--list"]

PAGES = ["README.md", "docs/tutorials/01-watch-a-memory-fill.md", "docs/tutorials/02-text-to-talking-model.md",
         "docs/tutorials/03-your-mamba2-checkpoint.md", "docs/tutorials/04-make-it-metaplastic.md", "docs/tutorials/05-memory-rules-in-torch.md",
         "docs/how-to/run-published-models.md", "docs/how-to/chat.md", "docs/how-to/generate.md", "docs/how-to/serve.md",
         "docs/how-to/inspect.md", "docs/how-to/train.md"]
ELSEWHERE = {"install": "changes the machine", "many-machines": "needs several machines", "devices": "needs a device",
             "small-machines": "needs another machine", "evaluate": "needs published data", "publish-the-page": "needs Emscripten",
             "troubleshooting": "has no blocks of commands"}

COMMANDS = "palimpsa make git pip hf curl head cat zcat mkdir export python python3 cmake mpirun sudo sudoedit journalctl scripts/setup.sh".split()
SKIPPED = [  # what is not run, and why
    (r"^(git clone|pip |hf |curl -L|python3 -m venv|sudo|journalctl)", "changes the machine, or downloads"),
    (r"^make ", "builds; the program is given"),
    (r"^export PATH", "the program is given"),
    (r"^python python/examples/", "needs torch; python/tests runs it"),
] + ([] if shutil.which("curl") else [(r"^curl ", "curl is not installed")])
SMALL = [  # long and large becomes short and small
    (r" --steps \d+", " --steps 2"), (r" --warmup \d+", " --warmup 1"), (r" --max-tokens [1-9]\d*", " --max-tokens 4"),
    (r" --epochs \d+", " --steps 2"), (r" --train-bpe \d+", " --train-bpe 300"), (r" --metaplastic top:8", " --metaplastic top:1"),
    (r" --examples \d+", " --examples 64"),
    (r"checkpoints/step-1000", "checkpoints/step-2"),
    (r"^(palimpsa train --recipe (?:metaplastic|long-context).*)$", r"\1 --steps 2 --warmup 1 --batch 1 --row 64 --context 64"),
    (r"^(palimpsa train --recipe shakespeare.*)$", r"\1 --hidden 32 --heads 2 --batch 1"),
    (r"^(palimpsa train --task text .*--model palimpsa-m.*)$", r"\1 --hidden 32 --layers 2 --heads 2 --batch 1 --row 64 --context 64"),
    (r"^(palimpsa train --task text .*--model (?!palimpsa).*)$", r"\1 --steps 1"),
    (r"^(palimpsa train --model (?!palimpsa).*)$", r"\1 --test-examples 8"),
    (r"^(palimpsa train --model palimpsa.*)$", r"\1 --hidden 32 --layers 2 --heads 2 --test-examples 8"),
    (r"^(palimpsa sweep .*?)( -- .*)$", r"\1 --models palimpsa-d,palimpsa-d-wo-meta --lrs 1e-3\2 --test-examples 8 --layers 1"),
    (r"64:16:4:32,128:32:4:32", "64:16:1:8,128:32:1:8"), (r" --hidden 64", " --hidden 32"),
    (r"docs/figures/", ""),
]


def run(command, folder, text=None):
    done = subprocess.run(["bash", "-c", command], cwd=folder, input=text, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout


def commands(page):
    """(line number, command) of a page's blocks; a line that ends with \\ continues on the next."""
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.S | re.M)
    inside = before = False
    whole, at = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("    "):
            before = inside = False
            continue
        if not before:
            inside = line.split()[0] in COMMANDS
        before = True
        if not inside:
            continue
        if not whole:
            at = number
        whole += line[4:].rstrip()
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        assert whole.split()[0] in COMMANDS, f"{page.name}:{at}: not a command that is known here: {whole}"
        yield at, re.sub(r"\s+# .*$", "", whole)
        whole = ""


def text_of_pages(size):
    """English in ASCII, with capitals and line breaks: what a reader's text stands for."""
    words = "".join(p.read_text(encoding="utf-8") for p in sorted((root / "docs").rglob("*.md")))
    return "ROMEO:\n" + re.sub(r"[^\x20-\x7e\n]", "", words)[:size]


def stand_ins(folder):
    """What pages take from their readers, by name."""
    made = folder / "made"
    made.mkdir()
    (made / "book.txt").write_text(text_of_pages(120_000))
    run("palimpsa tokenize --train-bpe 300 --out gpt-neox book.txt", made)
    small = "--data book.txt --tokenizer gpt-neox --steps 2 --batch 1 --row 64 --context 64 --hidden 64 --heads 2 --out"
    run(f"palimpsa train --task text --model palimpsa-m-wo-meta --layers 4 {small} runs/mamba2", made)
    run("palimpsa convert runs/mamba2 mamba2-130m --dtype f32", made)
    run("palimpsa convert mamba2-130m mamba2.gguf --dtype q8_0", made)
    run(f"palimpsa train --task text --model palimpsa-m-wo-meta:1,attention+mlp:1 --layers 4 {small} runs/hybrid", made)
    run("palimpsa convert runs/hybrid granite --dtype bf16", made)
    run("palimpsa tokenize book.txt --tokenizer gpt-neox --valid 0.1 --out shards", made)
    text = (made / "book.txt").read_text()
    (made / "questions.txt").write_text("One?\nTwo?\n")
    (made / "wiki.test.raw").write_text(" = One = \n" + text[:2000] + "\n = Two = \n" + text[2000:4000])
    (made / "pages.jsonl").write_text('{"body": "One page."}\n{"body": "Two pages."}\n')
    run("gzip -k pages.jsonl && palimpsa needle book.txt --tokenizer gpt-neox --count 8 --out needles.jsonl --tokens 400", made)
    (made / "chat_template.jinja").write_text("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")
    (made / "messages.json").write_text('[{"role": "user", "content": "Hello"}]')
    (made / "tools.json").write_text('[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]')
    for name in ("models", "tests", "README.md", "web"):
        (made / name).symlink_to(root / name)
    for name, of in {"input.txt": "book.txt", "text.txt": "book.txt", "corpus.txt": "book.txt", "books.txt": "book.txt", "play.txt": "book.txt",
                     "a.txt": "questions.txt", "b.txt": "questions.txt", "my_template.jinja": "chat_template.jinja", "vocabulary": "gpt-neox",
                     "my-model": "mamba2-130m", "granite-4.0-h-1b": "granite", "Qwen3.5-0.8B-Q4_K_M.gguf": "mamba2.gguf"}.items():
        (made / name).symlink_to(of)
    return made


RUNS = {  # runs that a page begins with
    "generate.md": ["shakespeare", "a", "b"],
    "04-make-it-metaplastic.md": ["continued", "mamba2"],
}
MADE_BY_PAGE = {"README.md": ["play.txt", "runs"], "02-text-to-talking-model.md": ["vocabulary", "shards", "runs"], "train.md": ["runs"]}
CHATS = {"chat.md": "granite"}  # what my-model is there


def workplace(made, page, folder):
    place = folder / page.stem
    place.mkdir()
    for file in made.iterdir():
        if file.name not in MADE_BY_PAGE.get(page.name, []) and file.name != "runs":
            (place / file.name).symlink_to(file)
    if page.name in CHATS:
        (place / "my-model").unlink()
        shutil.copytree(made / CHATS[page.name], place / "my-model")
        shutil.copy(made / "chat_template.jinja", place / "my-model")
    (place / "runs").mkdir()
    for name in RUNS.get(page.name, []):
        shutil.copytree(made / "runs/mamba2", place / "runs" / name)
    return place


class Page:
    def __init__(self, place):
        self.place, self.server, self.address = place, None, "127.0.0.1:8080"

    def stop(self):
        if self.server:
            self.server.send_signal(signal.SIGINT)
            out = self.server.communicate(timeout=60)[1]
            assert self.server.returncode == 0, out[-2000:]
        self.server = None

    def type(self, command):
        if re.match(r"palimpsa serve|palimpsa inspect .*--open", command):  # runs until it is interrupted
            self.stop()
            port = "" if "--port" in command or "--open" in command else " --port 0"
            self.server = subprocess.Popen(["bash", "-c", f"exec {command}{port}"], cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            line = self.server.stdout.readline()
            while line and "http://" not in line:
                line = self.server.stdout.readline()
            assert line, f"{command}\n{self.server.communicate(timeout=60)[1][-2000:]}"
            self.address = re.search(r"http://([^/\s]+)", line)[1]
        elif command.startswith("curl http://127.0.0.1:8080"):
            run(command.replace("127.0.0.1:8080", self.address).replace("curl ", "curl -sSf --max-time 100 ", 1), self.place)
        else:
            run(command, self.place, "Hello\n/quit\n" if "--interactive" in command else None)


def main():
    typed, failed, skipped, made = 0, 0, {}, None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        (folder / "bin/palimpsa").symlink_to(program)
        os.environ.update(PATH=f"{folder / 'bin'}:{os.environ['PATH']}", PALIMPSA_THREADS="1")
        if "--list" not in sys.argv:
            made = stand_ins(folder)
        for page in (root / p for p in PAGES if not only or any(o in p for o in only)):
            here = made and Page(workplace(made, page, folder))
            for number, command in commands(page):
                reason = next((why for pattern, why in SKIPPED if re.search(pattern, command)), None)
                if reason:
                    skipped.setdefault(reason, []).append(f"{page.name}:{number}")
                    continue
                small = command
                for pattern, instead in SMALL:
                    small = re.sub(pattern, instead, small)
                typed += 1
                if not here:
                    print(f"{page.name}:{number}: {small}")
                    continue
                start = time.monotonic()
                try:
                    here.type(small)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"FAILED {page.relative_to(root)}:{number}: {error}\n", flush=True)
                if time.monotonic() - start > 10:
                    print(f"slow: {page.name}:{number}: {time.monotonic() - start:.0f} s: {small}")
            if here:
                here.stop()
    pages = {p.stem for p in (root / "docs/how-to").glob("*.md")} | {p.stem for p in (root / "docs/tutorials").glob("*.md")}
    unknown = pages - {pathlib.Path(p).stem for p in PAGES} - set(ELSEWHERE)
    assert not unknown, f"neither in PAGES nor in ELSEWHERE: {sorted(unknown)}"
    for reason, places in skipped.items():
        print(f"not typed, {reason}: {' '.join(places)}")
    for stem, reason in ELSEWHERE.items():
        print(f"not typed, {reason}: docs/how-to/{stem}.md")
    assert typed, "no commands found"
    print(f"{typed} commands" + (f" of {len(PAGES)} pages, {failed} failed" if made else ""))
    sys.exit(1 if failed else 0)


main()
