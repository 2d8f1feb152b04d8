#!/usr/bin/env python3
"""inner_loops.py OBJDUMP OBJECT...: the innermost loops of compiled kernels: instructions, multiply-adds and vector
registers from or to the stack in one turn: those that did not fit."""
import re, subprocess, sys

for path in sys.argv[2:]:
    text = subprocess.run([sys.argv[1], "--disassemble", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    for name, body in re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)+)", text, re.M):
        code = [(int(at, 16), words.strip()) for at, words in re.findall(r"^\s*([0-9a-f]+):\s+(.+)$", body, re.M)]
        where = {at: i for i, (at, _) in enumerate(code)}
        loops = []
        for i, (at, words) in enumerate(code):
            jump = re.match(r"(?:j\w+|b\.\w+|b|cb\w+\s+\w+,|tb\w+\s+\w+, #\d+,)\s+([0-9a-f]+)\b", words)
            target = int(jump.group(1), 16) if jump else None
            if target in where and where[target] <= i:
                loops.append((where[target], i))
        for first, last in loops:
            if any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
                continue
            turn = [words for _, words in code[first : last + 1]]
            adds = sum(bool(re.match(r"vfn?m(add|sub)|fml[as]|[su]dot|vpdpbusd|vpmaddubsw|[su]mull?2?\b|[su]mlal", w)) for w in turn)
            stack = [w for w in turn if re.search(r"\b[qds]\d+.*\[(sp|x29)|\(%r[sb]p.*%[xyz]mm|%[xyz]mm.*\(%r[sb]p", w)]
            if adds >= 4:
                print(f"{path.split('/')[-1]:28} {name:34} {len(turn):4} instructions {adds:3} multiply-adds {len(stack):3} on the stack")
