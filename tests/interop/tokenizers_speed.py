# SPDX-License-Identifier: MIT
"""Speed beside the package `tokenizers`: GPT-NeoX's vocabulary, English text, one thread, in one run.

    python3 tokenizers_speed.py --library build/libpalimpsa.so --data DATA [--rounds 3]
"""
import argparse
import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import ctypes

import tokenizers
from palimpsa_tokenizer import Options, Tokenizer


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default="build/libpalimpsa.so")
    p.add_argument("--data", default=os.environ.get("PALIMPSA_DATA"))
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    path = os.path.join(args.data, "tokenizers", "gpt-neox", "tokenizer.json")
    text = open(os.path.join(args.data, "wikitext-2", "train.txt"), "rb").read()
    lines = text.split(b"\n")
    strings = [line.decode() for line in lines]
    ours, theirs = Tokenizer(args.library, path), tokenizers.Tokenizer.from_file(path)
    options, ids, err = Options(False, False), ctypes.byref(ours.ids), ctypes.byref(ours.err)
    encode, tok, scratch = ours.lib.pal_tokenizer_encode, ours.tok, ours.scratch
    encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

    def our_lines():
        ours.ids.count = 0
        for line in lines:
            encode(tok, scratch, line, len(line), None, ids, err)
        return ours.ids.count

    def our_whole():
        ours.ids.count = 0
        encode(tok, scratch, text, len(text), None, ids, err)
        return ours.ids.count

    def their_lines():
        return sum(len(theirs.encode(s, add_special_tokens=False)) for s in strings)

    best = {}
    for _ in range(args.rounds):
        for name, run in (("ours, whole text", our_whole), ("ours, line by line", our_lines), ("tokenizers, line by line", their_lines)):
            start = time.perf_counter()
            count = run()
            took = time.perf_counter() - start
            best.setdefault(name, []).append((took, count))
    for name, runs in best.items():
        runs.sort()
        took, count = runs[len(runs) // 2]
        print(f"{name:26} {len(text) / took / 1e6:8.1f} MB/s  {count} ids")
    ratio = sorted(best["tokenizers, line by line"])[len(runs) // 2][0] / sorted(best["ours, line by line"])[len(runs) // 2][0]
    print(f"ours / tokenizers, line by line: {ratio:.1f}x")


if __name__ == "__main__":
    main()
