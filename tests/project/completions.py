# SPDX-License-Identifier: MIT
"""Manual pages and completions, made from --help: completions.py PROGRAM. Pages are checked by mandoc, and each shell that is installed
completes the same words."""
import os, pathlib, pty, re, select, shutil, subprocess, sys, tempfile, time

program, root = os.path.abspath(sys.argv[1]), pathlib.Path(__file__).resolve().parents[2]

# What is typed, what the shell must offer, and what it must not.
LINES = [
    ("palimpsa se", {"serve", "selftest"}, {"train"}),
    ("palimpsa serve --po", {"--port"}, {"--prompt"}),
    ("palimpsa bench dec", {"decode"}, set()),
    ("palimpsa bench decode --ba", {"--batch"}, set()),
    ("palimpsa bench train --se", {"--seq-len"}, {"--seed"}),
    ("palimpsa train --se", {"--seq-len", "--seed"}, set()),
    ("palimpsa serve --log ", {"text", "json", "no"}, {"a file.gguf"}),
    ("palimpsa serve --api-key-file a", {"a file.gguf"}, set()),
    ("palimpsa inspect a", {"a file.gguf"}, set()),
    ("palimpsa train --out=r", {"runs/"}, {"a file.gguf"}),
]


def by_bash(folder, made, line):
    script = f"""source {made}/palimpsa.bash; COMP_LINE="$1"; COMP_POINT=${{#1}}
        IFS=$' ' read -ra COMP_WORDS <<< "${{1//=/ = }}"; [[ "$1" != *' ' ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _palimpsa; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", line], cwd=folder, capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr
    return {word + "/" if (folder / word).is_dir() and word else word for word in done.stdout.splitlines()}


def by_fish(folder, made, line):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {made}/palimpsa.fish; complete -C {line!r}"], cwd=folder, capture_output=True,
                          text=True, check=True, env={**os.environ, "HOME": str(folder)})
    assert not done.stderr, done.stderr
    return {word.split("\t")[0].split("=")[-1].replace("\\ ", " ") for word in done.stdout.splitlines()}


def by_zsh(folder, made, line):
    """zsh completes only at a terminal: the words are those of the list that it shows."""
    (folder / ".zshrc").write_text(f"""PS1='ready> '; stty cols 200; fpath=({made} $fpath); autoload -U compinit; compinit -u -D
        zstyle ':completion:*' list-separator '--'; setopt no_list_packed; bindkey '^X' list-choices\n""")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-d", "-i"], {"PATH": os.environ["PATH"], "ZDOTDIR": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"})

    def until(wanted, seconds=60):
        seen, end = "", time.monotonic() + seconds
        while not re.search(wanted, seen) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")
        assert re.search(wanted, seen), f"zsh wrote {seen!r}, expected {wanted}"
        return seen

    try:
        until("ready> ")
        os.write(terminal, f"{line}\x18\x05\x15print -r -- e'n'd\n".encode())
        listed = until(r"\nend\r?\n")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return {word.strip().replace("\\ ", " ") for text in re.split(r"[\r\n]+", listed) for word in re.split(r" {2,}| +-- ", text)}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    made = folder / "made"
    subprocess.run([sys.executable, root / "scripts" / "manual.py", program, made], check=True, stdout=subprocess.DEVNULL)
    (folder / "a file.gguf").touch()
    (folder / "runs").mkdir()
    pages = sorted((made / "man1").glob("*.1"))
    assert len(pages) >= 16, pages
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *pages], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    else:
        print("skipped: mandoc is not installed")
    for shell, complete in (("bash", by_bash), ("zsh", by_zsh), ("fish", by_fish)):
        if not shutil.which(shell):
            print(f"skipped: {shell} is not installed")
            continue
        for line, offered, others in LINES:
            found = complete(folder, made, line)
            missing = {word for word in offered if word not in found}
            assert not missing and not found & others, f"{shell}, '{line}': expected {offered} without {others}, found {sorted(found)}"
        print(f"{shell} completes {len(LINES)} lines")
print(f"{len(pages)} manual pages")
