#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes manual pages and completions for bash, zsh and fish from what `palimpsa COMMAND --help` prints:

    scripts/manual.py build/palimpsa DIR       # DIR/man1/*.1, DIR/palimpsa.bash, DIR/_palimpsa, DIR/palimpsa.fish
"""
import pathlib, re, subprocess, sys
import cli_help

FILES = r"FILE|DIR|PATH|MODEL|OUT|RUN|CSV|JSON|SVG|TEMPLATE"  # arguments that name files: the shell completes them


def takes_file(option):
    return re.search(rf"\b({FILES})\b", option.argument) is not None


# Manual pages.


def roff(words):
    words = words.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + words if words[:1] in (".", "'") else words


def kept(lines):
    return [".nf", *(roff(line) or ".sp" for line in lines), ".fi"]


def manual(h, version, others):
    name = f"palimpsa-{h.command.replace(' ', '-')}"
    out = [f'.TH {name.upper()} 1 "" "palimpsa {version}" "User Commands"', ".SH NAME", f"{name} \\- {roff(h.summary.rstrip('.'))}"]
    out += [".SH SYNOPSIS", f".B {roff(h.usage)}", ".SH DESCRIPTION"]
    for i, lines in enumerate(h.about or [[h.summary]]):
        indented = any(line.startswith(" ") for line in lines)
        out += ([".PP"] if i else []) + (kept(lines) if indented else [roff(line) for line in lines])
    for title, options in h.groups:
        if title:
            out += [f'.SH "{roff(title.upper())}"']
        for option in options:
            argument = f" \\fI{roff(option.argument)}\\fR" if option.argument else ""
            out += [".TP", f"\\fB{roff(option.name)}\\fR{argument}", roff(option.text)]
    out += [".SH EXAMPLES", *kept(h.examples), ".SH EXIT STATUS"]
    for code, meaning in ((0, "done"), (1, "failed at run time"), (2, "wrong usage, or input that cannot be read"), (3, "interrupted by a signal")):
        out += [".TP", f".B {code}", meaning]
    return "\n".join(out + see_also(name, others)) + "\n"


def see_also(name, others):
    return [".SH SEE ALSO", ",\n".join(f".BR {roff(other)} (1)" for other in others if other != name)]


def overview(program, version, summaries, others):
    text = cli_help.printed(program)
    summary = text.split("\n")[0].partition(": ")[2]
    out = [f'.TH PALIMPSA 1 "" "palimpsa {version}" "User Commands"', ".SH NAME", f"palimpsa \\- {roff(summary)}"]
    out += [".SH SYNOPSIS", ".B palimpsa", ".I COMMAND", "[options]", ".SH COMMANDS"]
    for command, words in summaries.items():
        out += [".TP", f"\\fBpalimpsa\\-{roff(command)}\\fR(1)", roff(words)]
    out += [".SH EXAMPLES", *kept(text.split("examples:\n")[1].split("\n\n")[0].split("\n"))]
    return "\n".join(out + see_also("palimpsa", others)) + "\n"


# Completions.


def bash(helps):
    cases = []
    for h in helps:
        names = " ".join(option.name for option in h.options)
        files = "|".join(option.name for option in h.options if takes_file(option))
        plain = "|".join(option.name for option in h.options if option.argument and not takes_file(option))
        cases += [f'        "{h.command}") names="{names}"; files="{files}"; plain="{plain}" ;;']
    first = sorted({h.command.split()[0] for h in helps})
    return "\n".join([
        "# bash completion for palimpsa",
        "_palimpsa() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} names files plain",
        "    COMPREPLY=()",
        f'    if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{" ".join(first)} --help --version" -- "$word")); return; fi',
        '    case "$command ${COMP_WORDS[2]}" in',
        *(f'        "{h.command}") command="{h.command}" ;;' for h in helps if " " in h.command),
        "    esac",
        '    case "$command" in',
        *cases,
        "        *) return ;;",
        "    esac",
        '    if [[ "|$plain|" == *"|$before|"* ]]; then return; fi',
        '    if [[ "$word" == -* && "|$files|" != *"|$before|"* ]]; then COMPREPLY=($(compgen -W "$names" -- "$word"))',
        '    else compopt -o filenames; COMPREPLY=($(compgen -f -- "$word")); fi',
        "}",
        "complete -F _palimpsa palimpsa",
    ]) + "\n"


def quoted(words):
    return "'" + words.replace("'", "'\\''") + "'"


def zsh(helps, summaries):
    def spec(option):
        words = re.sub(r"([\[\]:\\])", r"\\\1", option.text)
        value = f":{option.argument.strip('[]').lower()}:{'_files' if takes_file(option) else ' '}" if option.argument else ""
        return quoted(f"{option.name}[{words}]{value}")

    out = ["#compdef palimpsa", "_palimpsa() {", "    local -a commands", "    commands=("]
    out += ["        " + quoted(f"{name}:{words}") for name, words in summaries.items()]
    out += ["    )", "    if (( CURRENT == 2 )); then _describe command commands; return; fi", '    case "$words[2]" in']
    for h in helps:
        if " " not in h.command:
            out += [f"        {h.command}) _arguments " + " ".join(spec(o) for o in h.options) + " '*:file:_files' ;;"]
    return "\n".join(out + ["    esac", "}", '_palimpsa "$@"']) + "\n"


def fish(helps, summaries):
    out = ["# fish completion for palimpsa"]
    for name, words in summaries.items():
        out += [f"complete -c palimpsa -n __fish_use_subcommand -f -a {name} -d {quoted(words)}"]
    for h in helps:
        if " " in h.command:
            continue
        for option in h.options:
            value = ("-r -F" if takes_file(option) else "-x") if option.argument else ""
            long = option.name.removeprefix("--")
            out += [f"complete -c palimpsa -n '__fish_seen_subcommand_from {h.command}' -l {long} {value} -d {quoted(option.text)}".replace("  ", " ")]
    return "\n".join(out) + "\n"


def main():
    program, target = sys.argv[1], pathlib.Path(sys.argv[2])
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1].rstrip(",")
    summaries = cli_help.summaries(program)
    helps = [cli_help.read(program, command) for command in cli_help.commands(program)]
    names = ["palimpsa", *(f"palimpsa-{h.command.replace(' ', '-')}" for h in helps)]
    (target / "man1").mkdir(parents=True, exist_ok=True)
    (target / "man1" / "palimpsa.1").write_text(overview(program, version, summaries, names))
    for name, h in zip(names[1:], helps):
        (target / "man1" / f"{name}.1").write_text(manual(h, version, names))
    (target / "palimpsa.bash").write_text(bash(helps))
    (target / "_palimpsa").write_text(zsh(helps, summaries))
    (target / "palimpsa.fish").write_text(fish(helps, summaries))
    print(f"{len(names)} manual pages and completions for three shells in {target}")


main()
