#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the figures of the documents that `palimpsa plot` does not draw, from tables of the tree alone:

    scripts/figures.py    # writes docs/figures/*.svg

Each is 700 units wide, labels its lines directly, uses the palette of src/plot/theme.c, and follows the reader's light or dark theme.
"""
import csv, math, pathlib, statistics

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "figures"
STYLE = """
  .ink { fill: #1d2129 } .soft { fill: #5b6370 } .grid { stroke: #e4e7ec } .axis { stroke: #5b6370 }
  .a { fill: #0072b2; stroke: #0072b2 } .b { fill: #d55e00; stroke: #d55e00 } .c { fill: #009e73; stroke: #009e73 }
  .d { fill: #c4609a; stroke: #c4609a } .n { fill: #6b7280; stroke: #6b7280 } .line { fill: none; stroke-width: 2.5 }
  .cell { stroke: #e4e7ec } text { font: 13px system-ui, "DejaVu Sans", sans-serif; stroke: none !important } .title { font-weight: 600; font-size: 15px }
  @media (prefers-color-scheme: dark) {
    .ink { fill: #eceff4 } .soft { fill: #a3acba } .grid { stroke: #2c323b } .axis { stroke: #a3acba } .cell { stroke: #2c323b }
    .a { fill: #4da6e0; stroke: #4da6e0 } .b { fill: #ff8a3c; stroke: #ff8a3c } .c { fill: #2cc498; stroke: #2cc498 }
    .d { fill: #e590c0; stroke: #e590c0 } .n { fill: #a8b0bd; stroke: #a8b0bd }
  }"""


class Figure:
    def __init__(self, height, title, about):
        self.height, self.about, self.parts = height, about, []
        self.text(0, 18, title, "ink title")

    def text(self, x, y, words, kind="ink", anchor="start"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{words}</text>')

    def line(self, x1, y1, x2, y2, kind="grid"):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def bar(self, x, y, width, height, kind, opacity=1.0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}" fill-opacity="{opacity:.2f}"/>')

    def dot(self, x, y, kind, r=3.5, opacity=0.75):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" class="{kind}" stroke="none" fill-opacity="{opacity}"/>')

    def curve(self, points, kind):
        self.parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{kind} line" style="fill:none"/>')

    def write(self, name):
        body = "\n".join(self.parts)
        svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {self.height}" width="700" height="{self.height}" role="img" aria-label="{self.about}">\n'
               f"<title>{self.about}</title>\n<style>{STYLE}\n</style>\n{body}\n</svg>\n")
        OUT.mkdir(exist_ok=True)
        (OUT / name).write_text(svg)


def rows(path):
    return list(csv.DictReader((ROOT / path).open()))


def speed():
    """Bars of palimpsa and llama.cpp, for each type, of the 130M model."""
    table = [r for r in rows("docs/results/speed/llama-cpp.csv") if r["model"] == "130M"]
    f = Figure(300, "Mamba2 130M, tokens per second, two AVX2 cores", "Bars: tokens per second of Palimpsa and llama.cpp for prompts and for decoding, five weight types")
    for panel, (what, key, left) in enumerate((("prompt of 512 tokens", "prompt", 0), ("decoding, one sequence", "decode", 370))):
        top = max(float(r[f"palimpsa {key}"]) for r in table)
        f.text(left + 48, 48, what, "soft")
        for i, r in enumerate(table):
            y = 62 + 44 * i
            f.text(left + 42, y + 19, r["type"], "ink", "end")
            for j, (who, kind) in enumerate((("palimpsa", "a"), ("llama.cpp", "n"))):
                value = float(r[f"{who} {key}"])
                width = 215 * value / top
                f.bar(left + 48, y + 17 * j, width, 15, kind)
                f.text(left + 52 + width, y + 12 + 17 * j, f"{value:.0f}" + (f"  {who}" if i == 0 else ""), "ink")
    f.write("speed.svg")


def fixed_memory():
    """Bytes of a sequence by its length: the memory of mamba2-130m, and the cache of a Transformer of its size."""
    layers, width, state = 12, 768, 18.49 # a Transformer of this size has half as many layers, each with an MLP
    cache = lambda tokens: 2 * layers * width * 2 * tokens / 2**20
    f = Figure(300, "RAM of one sequence by its length (130M, MiB)", "Mamba2's memory is constant at 18.5 MiB; a key-value cache of the same width grows with every token")
    x = lambda tokens: 60 + 470 * math.log2(tokens / 64) / math.log2(131072 / 64)
    y = lambda mib: 255 - 205 * math.log10(mib / 4) / math.log10(16384 / 4)
    for mib in (10, 100, 1000, 10000):
        f.line(60, y(mib), 530, y(mib))
        f.text(54, y(mib) + 4, f"{mib:,}", "soft", "end")
    for tokens, name in ((128, "128"), (1024, "1k"), (8192, "8k"), (32768, "32k"), (131072, "128k")):
        f.text(x(tokens), 274, name, "soft", "middle")
    f.text(295, 294, "tokens read", "soft", "middle")
    lengths = [64 * 2 ** (i / 4) for i in range(45)]
    f.curve([(x(n), y(cache(n))) for n in lengths], "n")
    f.curve([(x(n), y(state)) for n in lengths], "a")
    f.text(538, y(cache(131072)) + 4, "key-value cache", "ink")
    f.text(538, y(cache(131072)) + 20, "(attention, F16)", "soft")
    f.text(538, y(state) + 4, "Palimpsa, Mamba2", "ink")
    f.text(538, y(state) + 20, "18.5 MiB at any length", "soft")
    f.write("fixed-memory.svg")


def importance():
    """A memory of 4 x 4 elements after three tokens, computed by the formula: brightness is importance."""
    keys = [(1.0, 0.1, 0.0, 0.1), (0.1, 0.0, 1.0, 0.0), (0.9, 0.2, 0.1, 0.9)]
    decay, prior, gate = 0.97, 1.0, 3.0
    f = Figure(215, "Importance after one, two and three tokens", "Three frames of a 4 by 4 memory: rows of the keys that were read become important, and later tokens change them less")
    level = [prior] * 4
    captions = ("key 1 is read:\nits row becomes important", "key 3 is read:\na second row", "keys 1 and 4 together:\nrow 1 changes least")
    for frame, key in enumerate(keys):
        level = [decay * i + (1 - decay) * prior + gate * k * k for i, k in zip(level, key)]
        left = 60 + 225 * frame
        for row in range(4):
            if frame == 0:
                f.text(left - 8, 62 + 28 * row, f"key {row + 1}", "soft", "end")
            for column in range(4):
                f.bar(left + 30 * column, 42 + 28 * row, 28, 26, "a cell", 0.08 + 0.92 * (level[row] - prior) / 6)
            f.text(left + 124, 60 + 28 * row, f"{level[row]:.1f}", "soft")
        for i, part in enumerate(captions[frame].split("\n")):
            f.text(left, 174 + 17 * i, part, "ink")
    f.write("importance.svg")


def recall():
    """Every run of the preregistered sweep at 64 pairs, one row a model, the median as a line."""
    names = {"palimpsa-d": "Palimpsa-D", "palimpsa-d-wo-meta": "D, no importance", "palimpsa-d-wo-meta:head-dim=32:expand-v=1": "D, none, equal bytes",
             "palimpsa-m": "Palimpsa-M", "palimpsa-m-wo-meta": "Mamba2", "gated-deltanet": "Gated DeltaNet"}
    kinds = {"palimpsa-d": "a", "palimpsa-m": "b"}
    f = Figure(310, "Recall of 64 pairs in 256 tokens: 12 runs of each model", "Strip plot of test accuracy, a dot for each run and a line at the median")
    x = lambda accuracy: 165 + 505 * accuracy
    for tick in (0, 0.25, 0.5, 0.75, 1):
        f.line(x(tick), 36, x(tick), 268)
        f.text(x(tick), 286, f"{100 * tick:.0f}%", "soft", "middle")
    f.text(x(0.5), 304, "questions answered", "soft", "middle")
    table = [r for r in rows("docs/results/evidence/main/results.csv") if r["stage"] == "3"]
    for i, (model, name) in enumerate(names.items()):
        y = 58 + 38 * i
        found = sorted(float(r["accuracy"]) for r in table if r["model"] == model)
        assert len(found) == 12, (model, len(found))
        f.text(155, y + 4, name, "ink", "end")
        for j, accuracy in enumerate(found):
            f.dot(x(accuracy), y + (-6, 0, 6)[j % 3], kinds.get(model, "n"))
        f.line(x(statistics.median(found)), y - 13, x(statistics.median(found)), y + 13, "axis")
    f.write("recall.svg")


def notes():
    """Notes in text: share of right answers by the number of pairs, each seed a thin line and the mean a thick one."""
    table = rows("docs/results/evidence/text/results.csv")
    f = Figure(310, "Facts recalled in text, by the number of pairs in a note", "Share of right answers for 2 to 32 pairs: with importance 75 to 39 percent, without 71 to 13 percent")
    pairs = (2, 4, 8, 16, 32)
    x = lambda p: 60 + 450 * math.log2(p / 2) / 4
    y = lambda share: 262 - 220 * share
    for tick in (0, 0.25, 0.5, 0.75, 1):
        f.line(60, y(tick), 510, y(tick))
        f.text(54, y(tick) + 4, f"{100 * tick:.0f}%", "soft", "end")
    for p in pairs:
        f.text(x(p), 281, str(p), "soft", "middle")
    f.text(285, 302, "pairs in a note", "soft", "middle")
    f.line(60, y(1 / 90), 510, y(1 / 90), "axis")
    f.text(516, y(1 / 90) + 4, "guessing", "soft")
    for model, name, kind in (("palimpsa-m", "with importance", "b"), ("palimpsa-m-wo-meta", "without (Mamba2)", "n")):
        mine = [r for r in table if r["model"] == model]
        for seed in sorted({r["seed"] for r in mine}):
            for r in mine:
                if r["seed"] == seed:
                    f.dot(x(int(r["pairs"])), y(float(r["accuracy"])), kind, 3, 0.6)
        mean = {p: statistics.mean(float(r["accuracy"]) for r in mine if int(r["pairs"]) == p) for p in pairs}
        f.curve([(x(p), y(mean[p])) for p in pairs], kind)
        f.text(518, y(mean[32]) + 4, name, "ink")
    f.write("notes.svg")


def sixteen():
    """A small chart for each memory rule: pairs recalled of n that were written, and of the last n of a stream; all others in grey."""
    table = [r for r in rows("docs/results/memories/capacity.csv") if r["keys"] == "dense"]
    names = list(dict.fromkeys(r["rule"] for r in table))
    f = Figure(660, "Sixteen memories of 8 kB: pairs recalled of 4 to 128", "Sixteen small line charts, one a memory rule: share of pairs recalled by their number")
    f.text(0, 40, "all that were written", "a")
    f.text(150, 40, "the last ones of a stream of 512", "b")
    f.text(380, 40, "the other rules", "soft")
    curve = lambda name, what: [(math.log2(int(r["n"])), float(r["recalled"])) for r in table if r["rule"] == name and r["stream"] == what]
    for i, name in enumerate(names):
        left, top, width, height = 46 + 168 * (i % 4), 66 + 148 * (i // 4), 138, 92
        place = lambda points: [(left + width * (x - 2) / 5, top + height * (1 - y)) for x, y in points]
        for tick in (0, 0.5, 1):
            f.line(left, top + height * (1 - tick), left + width, top + height * (1 - tick))
            if i % 4 == 0:
                f.text(left - 6, top + height * (1 - tick) + 4, f"{100 * tick:.0f}%", "soft", "end")
        for other in names:
            f.parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in place(curve(other, "once")))}" class="n" style="fill:none;stroke-width:1;opacity:.28"/>')
        f.curve(place(curve(name, "once")), "a")
        f.curve(place(curve(name, "stream")), "b")
        f.text(left, top - 6, name, "ink")
        for x in (4, 16, 64, 128):
            if i // 4 == 3:
                f.text(left + width * (math.log2(x) - 2) / 5, top + height + 16, str(x), "soft", "middle")
    f.text(350, 654, "pairs asked for; keys are random directions", "soft", "middle")
    f.write("memories.svg")


def approximation():
    """Error of the approximations of Palimpsa inside a chunk, by the position in it."""
    table = rows("docs/results/memories/fast-palimpsa.csv")
    f = Figure(286, "Error of chunked approximations inside their chunk of 32 tokens", "Line charts of the relative error of answers by position, two trained models")
    f.text(0, 40, "V1: mean importance of all values", "b")
    f.text(260, 40, "V2: a product of a mean over values and one over keys", "a")
    top = max(statistics.mean(float(r["error"]) for r in table if r["model"] == m and r["version"] == "1" and r["position"] == p)
              for m in ("recall", "shakespeare") for p in map(str, range(32)))
    for i, model in enumerate(("recall", "shakespeare")):
        left, width, base, height = 52 + 335 * i, 290, 240, 160
        f.text(left, 66, f"models/{model}", "ink")
        for tick in (0, 0.05, 0.1):
            f.line(left, base - height * tick / max(0.1, top), left + width, base - height * tick / max(0.1, top))
            f.text(left - 6, base + 4 - height * tick / max(0.1, top), f"{100 * tick:.0f}%", "soft", "end")
        for version, kind in (("1", "b"), ("2", "a")):
            mean = [statistics.mean(float(r["error"]) for r in table if (r["model"], r["version"], r["position"]) == (model, version, str(p))) for p in range(32)]
            f.curve([(left + width * p / 31, base - height * x / max(0.1, top)) for p, x in enumerate(mean)], kind)
        for p in (0, 8, 16, 24, 31):
            f.text(left + width * p / 31, base + 18, str(p), "soft", "middle")
        f.text(left + width / 2, base + 38, "token of the chunk", "soft", "middle")
    f.write("fast-palimpsa.svg")


if __name__ == "__main__":
    for draw in (speed, fixed_memory, importance, recall, notes, sixteen, approximation):
        draw()
