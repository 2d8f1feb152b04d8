#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes manual pages and completions for bash, zsh and fish from what `palimpsa COMMAND --help` prints:

    scripts/manual.py build/palimpsa DIR       # DIR/man1/*.1, DIR/palimpsa.bash, DIR/_palimpsa, DIR/palimpsa.fish
"""
import datetime, os, pathlib, re, subprocess, sys, time
import cli_help

FILES = r"FILE|DIR|PATH|MODEL"  # in the names of arguments that are files: the shell completes them


def takes_file(option):
    return re.search(FILES, option.argument) is not None or option.argument and option.name in ("--tokenizer", "--data")


def choices(option):
    """The words of "instruction level: ref, avx2, avx512 or neon (default: ...)"."""
    listed = re.match(r"(?:[a-z ]+: )?((?:[a-z0-9_-]+, )*[a-z0-9_-]+ or [a-z0-9_-]+)(?: \(|;|$)", option.text)
    return re.split(r", | or ", listed[1]) if listed and option.argument and not takes_file(option) else []


# Manual pages.


def roff(words):
    """As it is: a terminal that shows Unicode would make other characters of quotes, dashes and carets."""
    for plain, name in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        words = words.replace(plain, name)
    return "\\&" + words if words.startswith(".") else words


def header(name, version):
    """The date is that of the sources where it is known, so that the same sources give the same pages."""
    date = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), datetime.timezone.utc)
    return f'.TH {name.upper()} 1 "{date:%Y-%m-%d}" "palimpsa {version}" "User Commands"'


def kept(lines):
    return [".nf", *(roff(line) or ".sp" for line in lines), ".fi"]


def manual(h, version, others):
    name = f"palimpsa-{h.command.replace(' ', '-')}"
    out = [header(name, version), ".SH NAME", f"{name} \\- {roff(h.summary.rstrip('.'))}"]
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
    out = [header("palimpsa", version), ".SH NAME", f"palimpsa \\- {roff(summary)}"]
    out += [".SH SYNOPSIS", ".B palimpsa", ".I COMMAND", "[options]", ".SH COMMANDS"]
    for command, words in summaries.items():
        out += [".TP", f"\\fBpalimpsa\\-{roff(command)}\\fR(1)", roff(words)]
    out += [".SH EXAMPLES", *kept(text.split("examples:\n")[1].split("\n\n")[0].split("\n"))]
    return "\n".join(out + see_also("palimpsa", others)) + "\n"


# Completions. A command may be two words (bench decode); values are files, words from the help, or nothing that a shell knows.


def quoted(words):
    return "'" + words.replace("'", "'\\''") + "'"


def bash(helps):
    cases = []
    for h in helps:
        names = " ".join(option.name for option in h.options)
        words = " ".join(f"[{option.name}]={quoted(' '.join(choices(option)))}" for option in h.options if choices(option))
        plain = "|".join(option.name for option in h.options if option.argument and not takes_file(option))
        cases += [f'        "{h.command}") names="{names}"; plain="{plain}"; subjects="{" ".join(h.subjects)}"; words=({words}) ;;']
    first = [h.command for h in helps if " " not in h.command]
    return "\n".join([
        "# bash completion for palimpsa",
        "_palimpsa() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} names plain subjects",
        "    local -A words",
        "    COMPREPLY=()",
        '    if [ "$word" = = ]; then word=; elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi # --out=FILE is three words',
        f'    if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{" ".join(first)} --help --version" -- "$word")); return; fi',
        '    case "$command ${COMP_WORDS[2]}" in',
        *(f'        "{h.command}") command="{h.command}" ;;' for h in helps if " " in h.command),
        "    esac",
        '    case "$command" in',
        *cases,
        "        *) return ;;",
        "    esac",
        '    if [[ -n "${words[$before]:-}" ]]; then COMPREPLY=($(compgen -W "${words[$before]}" -- "$word"))',
        '    elif [[ "|$plain|" == *"|$before|"* ]]; then return',
        '    elif [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$names" -- "$word"))',
        '    elif [[ "$COMP_CWORD" = 2 && -n "$subjects" ]]; then COMPREPLY=($(compgen -W "$subjects" -- "$word"))',
        '    else compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); fi',
        "}",
        "complete -F _palimpsa palimpsa",
    ]) + "\n"


def zsh(helps, summaries):
    def spec(option):
        text = re.sub(r"([\[\]:\\])", r"\\\1", option.text)
        values = f"({' '.join(choices(option))})" if choices(option) else "_files" if takes_file(option) else " "
        optional = ":" if option.argument.startswith("[") else ""
        value = f":{optional}{option.argument.strip('[]').lower().replace(':', ' ')}:{values}" if option.argument else ""
        again = "*" if "may be repeated" in option.text else ""
        return quoted(f"{again}{option.name}{'=' if option.argument else ''}[{text}]{value}")

    def arguments(h):
        subject = [quoted(f"1:subject:({' '.join(h.subjects)})")] if h.subjects else []
        return " \\\n            ".join([f"        '{h.command}') _arguments", *map(spec, h.options), *subject, "'*:file:_files' ;;"])

    longer = [h.command.replace(" ", "\\ ") for h in helps if " " in h.command]
    return "\n".join([
        "#compdef palimpsa", "_palimpsa() {", "    local -a commands", "    commands=(",
        *("        " + quoted(f"{name}:{words}") for name, words in summaries.items()),
        "    )",
        "    if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        f"    case \"$command $words[2]\" in {'|'.join(longer)}) command=\"$command $words[2]\"; shift words; (( CURRENT-- )) ;; esac",
        '    case "$command" in', *map(arguments, helps), "    esac", "}", '_palimpsa "$@"',
    ]) + "\n"


def fish(helps, summaries):
    two = [h.command for h in helps if " " in h.command]
    out = [
        "# fish completion for palimpsa",
        "function __palimpsa_command -d 'whether the command line is one of this command'",
        "    set -l words (commandline -opc)",
        f"    if contains \"$words[2] $words[3]\" {' '.join(map(quoted, two))}",
        "        test \"$argv\" = \"$words[2] $words[3]\"",
        "    else",
        "        test \"$argv\" = \"$words[2]\"",
        "    end",
        "end",
        "function __palimpsa_subject -d 'whether the next word says what this command is about'",
        "    set -l words (commandline -opc)",
        "    test (count $words) = 2 -a \"$words[2]\" = \"$argv\"",
        "end",
    ]
    for name, words in summaries.items():
        out += [f"complete -c palimpsa -n __fish_use_subcommand -f -a {name} -d {quoted(words)}"]
    for h in helps:
        here = f"complete -c palimpsa -n '__palimpsa_command {h.command}'"
        for subject, words in h.subjects.items():
            out += [f"complete -c palimpsa -n '__palimpsa_subject {h.command}' -f -a {subject} -d {quoted(words)}"]
        for option in h.options:
            values = f"-x -a {quoted(' '.join(choices(option)))}" if choices(option) else "-F" if option.argument.startswith("[") else "-r -F" if takes_file(option) else "-x"
            out += [" ".join([here, f"-l {option.name.removeprefix('--')}", *([values] if option.argument else []), f"-d {quoted(option.text)}"])]
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
