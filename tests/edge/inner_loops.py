#!/usr/bin/env python3
"""inner_loops.py OBJDUMP OBJECT...: the innermost loops of compiled kernels that multiply and add: instructions,
multiply-adds, and vector registers from or to the stack (those that did not fit). Ends with 1 if the last are more than
one in a hundred of a loop's instructions. A loop is what a jump backwards can be reached from without leaving by its head, so that neither a function's end
nor code that merely lies between counts; all paths through it are counted together."""
import re, subprocess, sys

JUMP = re.compile(r"(?P<word>j\w+|b\.\w+|b|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+(?P<target>[0-9a-f]+)\b")
ENDS = re.compile(r"(ret|br|jmp|b|ud2|brk|hlt)\b(?!\.)")
MULTIPLY_ADD = re.compile(r"vfn?m(add|sub)|fml[as]|[su]dot|vpdpbusd|vpmaddubsw|[su]mull?2?\b|[su]mlal")
STACK = re.compile(r"\b[qds]\d+.*\[(sp|x29)|\(%r[sb]p.*%[xyz]mm|%[xyz]mm.*\(%r[sb]p")


def loops(code):
    """Sets of places in code, by head: of every loop."""
    where = {at: i for i, (at, _) in enumerate(code)}
    before, found = [[] for _ in code], {}
    backward = []
    for i, (_, words) in enumerate(code):
        if not ENDS.match(words) and i + 1 < len(code):
            before[i + 1].append(i)
        jump = JUMP.match(words)
        target = where.get(int(jump["target"], 16)) if jump else None
        if target is not None:
            before[target].append(i)
            if target <= i:
                backward.append((target, i))
    for head, last in backward:
        body, todo = {head}, [last]
        while todo:
            i = todo.pop()
            if i not in body:
                body.add(i)
                todo += before[i]
        if head == 0 or 0 not in body:  # else one comes to the jump without having been at its target: no loop
            found[head] = found.get(head, set()) | body
    return found


spills = False
for path in sys.argv[2:]:
    text = subprocess.run([sys.argv[1], "--disassemble", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    for name, lines in re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)+)", text, re.M):
        code = [(int(at, 16), words.strip()) for at, words in re.findall(r"^\s*([0-9a-f]+):\s+(.+)$", lines, re.M)]
        found = loops(code)
        for head, body in found.items():
            if any(other in body for other in found if other != head):
                continue
            turn = [code[i][1] for i in body]
            adds = sum(bool(MULTIPLY_ADD.match(w)) for w in turn)
            stack = sum(bool(STACK.search(w)) for w in turn)
            if adds >= 4:
                print(f"{path.split('/')[-1]:28} {name:34} {len(turn):4} instructions {adds:3} multiply-adds {stack:3} on the stack")
                spills |= 100 * stack > len(turn)
sys.exit(spills)
