#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/reference/cli/*.md from what `palimpsa COMMAND --help` prints:

    scripts/command_reference.py build/palimpsa            # writes the pages
    scripts/command_reference.py build/palimpsa --check    # compares, and checks that help fits a terminal of 80 columns
"""
import pathlib, re, subprocess, sys

PAGES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli"
BENCHES = ("bench decode", "bench model", "bench train", "bench mpi")


def help_of(program, command):
    done = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, f"{command} --help: exit code {done.returncode}, {done.stderr}"
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert not wide, f"{command} --help: wider than 80 columns: {wide}"
    return done.stdout


def commands(program):
    listed = help_of(program, "").split("commands:\n")[1].split("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    return [c for name in names for c in (name, *(b for b in BENCHES if b.split()[0] == name))]


def escaped(words):
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def page(command, text):
    """The help as Markdown: its first line, usage, examples, what it says, and a table for each group of options."""
    summary, rest = text.split("\n\nusage: ", 1)
    usage, rest = rest.split("\n\nexamples:\n", 1)
    about, options = rest.split("\noptions:\n", 1)
    examples, _, about = about.partition("\n\n")
    options, _, more = options.partition("\nmore examples:\n")
    out = [f"# palimpsa {command}", "", summary, "", "    " + re.sub(r"\n\s+", " ", usage), "", "## Examples", ""]
    out += ["  " + line for line in (examples.rstrip("\n") + "\n" + more).rstrip("\n").split("\n")]
    for paragraph in about.strip("\n").split("\n\n"):
        kept = any(line.startswith(" ") for line in paragraph.split("\n"))
        lines = paragraph.split("\n")
        out += [""] + ([lines[0], ""] + ["  " + line for line in lines[1:]] if kept else lines)
    for block in ("options:\n" + options).split("\n\n"):
        title, _, body = block.partition(":\n") if not block.startswith("  --") else ("", "", block)
        rows = []
        for line in body.splitlines():
            if line.startswith("  --"):
                left, _, right = line.strip().partition("  ")
                rows.append([left, right.strip()] if len(left) < 23 or right else [left, ""])
            elif line.strip():
                rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
        for row in rows:  # an argument that reaches the column is followed by one blank
            name = re.match(r"(--[a-z0-9-]+(?: (?:\[[^\]]*\]|[A-Z][^ ]*))?)(?: (.*))?$", row[0])
            if name and name[2]:
                row[:] = [name[1], f"{name[2]} {row[1]}".strip()]
        if title:
            out += ["", f"## {title[0].upper() + title[1:]}"]
        if rows:
            out += ["", "| option | |", "|---|---|"] if title else []
            out += [f"| `{escaped(left).replace('&lt;', '<')}` | {escaped(right)} |" for left, right in rows]
    return "\n".join(out) + "\n"


def main():
    program, check = sys.argv[1], "--check" in sys.argv
    pages = {f"{command.replace(' ', '-')}.md": page(command, help_of(program, command)) for command in commands(program)}
    stale = [p.name for p in PAGES.glob("*.md") if p.name not in pages]
    for name, text in pages.items():
        if check and (not (PAGES / name).exists() or (PAGES / name).read_text() != text):
            stale.append(name)
        elif not check:
            PAGES.mkdir(exist_ok=True)
            (PAGES / name).write_text(text)
    if stale:
        sys.exit(f"docs/reference/cli: {', '.join(stale)}: not what --help prints; run scripts/command_reference.py build/palimpsa")
    print(f"{len(pages)} pages are what --help prints")


main()
