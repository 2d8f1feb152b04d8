# SPDX-License-Identifier: MIT
"""What `palimpsa COMMAND --help` says, in parts. Pages, manuals and completions are all made from it."""
import dataclasses, re, subprocess

BENCHES = ("bench decode", "bench memories", "bench model", "bench train", "bench mpi")


@dataclasses.dataclass
class Option:
    name: str  # "--seed"
    argument: str  # "N"; "" of a flag
    text: str


@dataclasses.dataclass
class Help:
    command: str
    summary: str
    usage: str
    examples: list  # lines as printed
    about: list  # paragraphs, each a list of lines; those that begin with a blank are to be kept as they are
    groups: list  # (title, [Option])

    @property
    def options(self):
        return [option for _, options in self.groups for option in options]

    @property
    def subjects(self):
        """What may follow the command's name, and what each is: the lines under "Subjects:"."""
        listed = next((lines[1:] for lines in self.about if lines[0] == "Subjects:"), [])
        return dict(line.split(maxsplit=1) for line in listed)


def printed(program, command=""):
    done = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, f"{command} --help: exit code {done.returncode}, {done.stderr}"
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert not wide, f"{command} --help: wider than 80 columns: {wide}"
    return done.stdout


def summaries(program):
    """Each command and what it does, in one line."""
    listed = printed(program).split("commands:\n")[1].split("\n\n")[0]
    return dict(line.split(maxsplit=1) for line in listed.splitlines())


def commands(program):
    return [c for name in summaries(program) for c in (name, *(b for b in BENCHES if b.split()[0] == name))]


def read_options(body):
    rows = []
    for line in body.splitlines():
        if line.startswith("  --"):
            left, _, right = line.strip().partition("  ")
            rows.append([left, right.strip()])
        elif line.strip():
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
    options = []
    for left, text in rows:  # an argument that reaches the column is followed by one blank
        name, argument, more = re.match(r"(--[a-z0-9-]+)(?: (\[[^\]]*\]|[A-Z][^ ]*))?(?: (.*))?$", left).groups()
        options.append(Option(name, argument or "", f"{more or ''} {text}".strip()))
    return options


def read(program, command):
    summary, rest = printed(program, command).split("\n\nusage: ", 1)
    usage, rest = rest.split("\n\nexamples:\n", 1)
    about, options = rest.split("\noptions:\n", 1)
    examples, _, about = about.partition("\n\n")
    options, _, more = options.partition("\nmore examples:\n")
    groups = []
    for block in ("options:\n" + options).split("\n\n"):
        title, _, body = block.partition(":\n") if not block.startswith("  --") else ("", "", block)
        groups.append((title, read_options(body)))
    return Help(command, summary, re.sub(r"\n\s+", " ", usage), (examples.rstrip("\n") + "\n" + more).rstrip("\n").split("\n"),
                [paragraph.split("\n") for paragraph in about.strip("\n").split("\n\n") if paragraph], groups)
