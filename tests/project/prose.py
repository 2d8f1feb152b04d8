"""Holds the English of documents, messages and comments to plain words: ROOT is the argument; --list prints every finding.

What is looked at: Markdown outside code blocks, comments and strings of C, Python, JavaScript and shell. tests/project/prose_allowed.txt
has, for files that still hold some, how many; a file may have fewer, and never more. A line that needs such a word (a quotation, an odd
number) ends with a comment `prose: ok`, or in Markdown with `<!-- prose: ok -->`."""
import sys

sys.path.pop(0)  # tokenize.py in this directory is a test
import io, pathlib, re, subprocess, tokenize  # noqa: E402

WORDS = {  # pattern: what to write instead
    r"\b(told|tells?|telling)\b": "say, show, return, pass, report",
    r"\bbehind\b": "after, at the end of",
    r"\bbeside\b": "next to, in addition to, on a busy machine",
    r"\b(go|goes|gone|going|went) on\b": "continue, resume",
    r"\b(some|no)body\b": "name who: the caller, another process, a client",
    r"\bwho(m)?ever\b": "the caller, a client, users",
    r"(?<!there )\b(is|are|was|were) no (?!longer\b|more\b|less\b|such\b|other\b|one\b|slower\b|worse\b|better\b)[a-z]": "is not a",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\boddly\b|\bodd (documents?|files?|texts?|names?|cases?|values?|requests?|inputs?)\b": "unusual, edge case",
    r"\b(a|an|one|some|words?|step|run|file|thread|process|test|program) (\w+ )?of (its|their|his|our) own\b": "its own",
    r"\bfor ever\b": "forever, without end",
    r"\bno memory (for|to|left|at)\b|\bno memory$": "out of memory",
    r"\banother one\b": "another",
    r"\b(is|are|was|were) (not )?wanted\b|\bwanted (is|are|was|were)\b|\bwanted:|\(wanted\b|, wanted\b": "expected, requested; in documents: nothing",
    r"\bbut for\b": "except",
    r"[,;(] (not )?met\)|\bmissed\)|\| met \|": "results have no targets",
    r"\bat hand\b": "here, available",
    r"\bthrown away\b": "dropped, discarded",
}
PATTERN = re.compile("|".join(f"(?:{p})" for p in WORDS), re.I)
SKIPPED = ("tests/golden/", "docs/results/evidence/", "docs/results/recall-protocol.md", "docs/results/recall/", "tests/project/prose", "fuzz/dictionaries/")
KINDS = (".md", ".c", ".h", ".inc", ".py", ".sh", ".js", ".mjs", ".html", ".css", ".txt", ".cmake")


def c_like(text):
    """Comments and strings of C and JavaScript, each with its line."""
    token = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`", re.S)
    for m in token.finditer(text):
        for i, line in enumerate(m[0].split("\n")):
            yield text.count("\n", 0, m.start()) + 1 + i, line


def python(text):
    try:
        for t in tokenize.generate_tokens(io.StringIO(text).readline):
            if t.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[t.type].startswith("FSTRING_M"):
                for i, line in enumerate(t.string.split("\n")):
                    yield t.start[0] + i, line
    except (tokenize.TokenError, SyntaxError):
        return


def prose(name, text):
    """(line number, words) of what people read in a file."""
    if name.endswith(".md"):
        text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
        yield from ((n, re.sub(r"`[^`]*`", "", line)) for n, line in enumerate(text.split("\n"), 1) if not line.startswith("    "))
    elif name.endswith((".c", ".h", ".inc", ".js", ".mjs", ".css")):
        yield from c_like(text)
    elif name.endswith(".py"):
        yield from python(text)
    elif name.endswith((".sh", ".txt", ".cmake")):
        yield from ((n, line) for n, line in enumerate(text.split("\n"), 1) if re.search(r"(^|\s)#|echo|printf", line))
    else:
        yield from enumerate(text.split("\n"), 1)


def findings(root):
    names = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True).stdout.split("\0")
    for name in names:
        if not name.endswith(KINDS) or name.startswith(SKIPPED) or not (root / name).is_file():
            continue
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")
        for number, words in prose(name, text):
            for m in PATTERN.finditer(words):
                if number > len(lines) or "prose: ok" not in lines[number - 1]:
                    yield name, number, m[0], words.strip()


def main():
    root = pathlib.Path(sys.argv[1])
    found = {}
    for name, number, word, words in findings(root):
        found.setdefault(name, []).append(f"{name}:{number}: '{word}' in: {words[:150]}")
    if "--list" in sys.argv:
        only = sys.argv[3:]
        print("\n".join(line for name in found for line in found[name] if not only or name.startswith(tuple(only))))
        return
    allowed_file = root / "tests/project/prose_allowed.txt"
    if "--allow" in sys.argv:
        allowed_file.write_text("".join(f"{len(found[name])} {name}\n" for name in sorted(found)))
    allowed = {name: int(count) for count, name in (line.split(" ", 1) for line in allowed_file.read_text().splitlines())}
    wrong = [line for name, lines in found.items() if len(lines) > allowed.get(name, 0) for line in lines]
    if wrong:
        hints = "\n".join(f"  {pattern}: {instead}" for pattern, instead in WORDS.items())
        sys.exit("\n".join(wrong) + f"\nplain words instead (CONTRIBUTING.md, 'English'):\n{hints}")
    print(f"plain English, but for {sum(map(len, found.values()))} old words in {len(found)} files")  # prose: ok


main()
