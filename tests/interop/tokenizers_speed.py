# SPDX-License-Identifier: MIT
"""Speed next to the package `tokenizers`: GPT-NeoX's vocabulary, English text, in one run.

    python3 tokenizers_speed.py --library build/libpalimpsa.so --program build/palimpsa --data DATA [--rounds 3]

First one thread, ours and theirs, on the same lines; then `palimpsa tokenize` as a user runs it, from a file to shards, with one
and more threads on a text of 100 MB; then our BPE trainer on 10 MB. Everything is measured in turns, medians count.
"""
import argparse
import ctypes
import os
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers
from palimpsa_tokenizer import Tokenizer


def medians(runs, rounds):
    """{name: (seconds, what the call returned)} of calls that take turns."""
    seen = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            result = run()
            seen[name].append((time.perf_counter() - start, result))
    return {name: sorted(times)[len(times) // 2] for name, times in seen.items()}


def one_thread(library, path, text, rounds):
    lines = text.split(b"\n")
    strings = [line.decode() for line in lines]
    ours, theirs = Tokenizer(library, path), tokenizers.Tokenizer.from_file(path)
    ids, err = ctypes.byref(ours.ids), ctypes.byref(ours.err)
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

    runs = {"ours, whole text": our_whole, "ours, line by line": our_lines, "tokenizers, line by line": their_lines}
    best = medians(runs, rounds)
    for name, (took, count) in best.items():
        print(f"{name:32} {len(text) / took / 1e6:8.1f} MB/s  {count} ids")
    print(f"ours / tokenizers, line by line: {best['tokenizers, line by line'][0] / best['ours, line by line'][0]:.1f}x")


def by_threads(program, path, text, rounds):
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "text")
        copies = 100_000_000 // len(text) + 1
        with open(name, "wb") as f:
            for _ in range(copies):
                f.write(text)

        def shards(threads, source=name):
            subprocess.run(["rm", "-rf", os.path.join(folder, "out")], check=True)
            subprocess.run([program, "tokenize", source, "--tokenizer", path, "--threads", str(threads), "--out", os.path.join(folder, "out")],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        # what starting the program and reading the vocabulary costs is taken off: it does not grow with the text
        few = os.path.join(folder, "few")
        with open(few, "wb") as f:
            f.write(text[:1000])
        counts = sorted({1, max(1, cores // 2), cores})
        best = medians({0: lambda: shards(1, few), **{n: (lambda n=n: shards(n)) for n in counts}}, rounds)
        start = best[0][0]
        print(f"starting and opening the vocabulary: {start:.2f} s")
        for n in counts:
            print(f"file to shards, {n} thread{'s' if n > 1 else ' '}         {copies * len(text) / (best[n][0] - start) / 1e6:8.1f} MB/s  "
                  f"{(best[1][0] - start) / (best[n][0] - start):.2f}x one thread")

        with open(name, "wb") as f:
            f.write(text[:10_000_000])
        took = medians({"bpe": lambda: subprocess.run([program, "tokenize", "--train-bpe", "4096", "--out", os.path.join(folder, "bpe"), name], check=True,
                                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)}, 1)["bpe"][0]
        print(f"BPE of 4,096 ids learned from 10 MB: {took:.1f} s")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default="build/libpalimpsa.so")
    p.add_argument("--program", default="build/palimpsa")
    p.add_argument("--data", default=os.environ.get("PALIMPSA_DATA"))
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    path = os.path.join(args.data, "tokenizers", "gpt-neox", "tokenizer.json")
    with open(os.path.join(args.data, "wikitext-2", "train.txt"), "rb") as f:
        text = f.read()
    one_thread(args.library, path, text, args.rounds)
    by_threads(args.program, path, text, args.rounds)


if __name__ == "__main__":
    main()
