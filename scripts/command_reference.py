#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/reference/cli/*.md from what `palimpsa COMMAND --help` prints:

    scripts/command_reference.py build/palimpsa            # writes the pages
    scripts/command_reference.py build/palimpsa --check    # compares, and checks that help fits a terminal of 80 columns
"""
import pathlib, sys
import cli_help

PAGES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli"


def pipes(words):
    return words.replace("|", "\\|")


def escaped(words):
    return pipes(words).replace("<", "&lt;").replace("*", "\\*")


def page(h):
    """The help as Markdown: its first line, usage, examples, what it says, and a table for each group of options."""
    out = [f"# palimpsa {h.command}", "", h.summary, "", "    " + h.usage, "", "## Examples", ""]
    out += ["  " + line for line in h.examples]
    for lines in h.about:
        kept = any(line.startswith(" ") for line in lines)
        out += [""] + ([lines[0], ""] + ["  " + line for line in lines[1:]] if kept else lines)
    for title, options in h.groups:
        if title:
            out += ["", f"## {title[0].upper() + title[1:]}"]
        if options:
            out += ["", "| option | |", "|---|---|"] if title else []
            out += [f"| `{pipes(f'{o.name} {o.argument}'.strip())}` | {escaped(o.text)} |" for o in options]
    return "\n".join(out) + "\n"


def main():
    program, check = sys.argv[1], "--check" in sys.argv
    pages = {f"{command.replace(' ', '-')}.md": page(cli_help.read(program, command)) for command in cli_help.commands(program)}
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
