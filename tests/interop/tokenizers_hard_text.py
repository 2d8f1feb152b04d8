# SPDX-License-Identifier: MIT
"""Text that tokenizers get wrong: scripts mixed, emoji sequences, stacks of combining marks, jamo, control characters,
long blanks, contractions, digits of all kinds, pieces of special tokens.

Only code points that Unicode 13 assigns occur: programs with different tables agree on those and may not on newer ones.
Run as a program it writes a few megabytes to a file; the same seed gives the same bytes.

    python3 tokenizers_hard_text.py OUT [SEED [BYTES]]
"""
import random
import sys
import unicodedata

# Added after Unicode 13, up to the version of Python 3.11's tables (14).
NEWER = """061D 0870-088E 0890-0891 0898-089F 08B5 08C8-08D2 0C3C 0C5D 0CDD 170D 1715 171F 180F 1AC1-1ACE 1B4C 1B7D-1B7E
1DFA 20C0 2C2F 2C5F 2E53-2E5D 9FFD-9FFF A7C0-A7C1 A7D0-A7D1 A7D3 A7D5-A7D9 A7F2-A7F4 FBC2 FD40-FD4F FDCF FDFE-FDFF
10570-105BC 10780-107BA 10F70-10F89 11070-11075 110C2 116B9 11740-11746 11AB0-11ABF 12F90-12FF2 16A70-16AC9 1AFF0-1AFFE
1B11F-1B122 1CF00-1CFC3 1D1E9-1D1EA 1DF00-1DF1E 1E290-1E2AE 1E7E0-1E7FE 1F6DD-1F6DF 1F7F0 1F979 1F9CC 1FA7B-1FA7C
1FAA9-1FAAC 1FAB7-1FABA 1FAC3-1FAC5 1FAD7-1FAD9 1FAE0-1FAE7 1FAF0-1FAF6 2A6DE-2A6DF 2B735-2B738"""


def newer_than_13():
    out = set()
    for part in NEWER.split():
        first, _, last = part.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return out


def assigned():
    if unicodedata.unidata_version > "14.0.0":
        sys.exit("this script knows what is newer than Unicode 13 up to 14.0 only; run it with Python 3.11 or older")
    newer = newer_than_13()
    return [c for c in range(0x110000) if c not in newer and unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


class Hard:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.all = [chr(c) for c in assigned()]
        by = {}
        for c in self.all:
            by.setdefault(unicodedata.category(c), []).append(c)
        self.marks = by["Mn"] + by["Mc"] + by["Me"]
        self.numbers = by["Nd"] + by["Nl"] + by["No"]
        self.controls = [chr(c) for c in range(1, 0x20)] + ["\x7f", "\x80", "\x85", "\x9f"] + by["Cf"]
        self.blanks = [" ", "\t", "\n", "\r", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e", "\u2000", "\u2003", "\u200a", "\u200b",
                       "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
        self.pools = [[c for c in self.all if lo <= ord(c) <= hi] for lo, hi in (
            (0x41, 0x7A), (0xC0, 0x24F), (0x250, 0x2AF), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587), (0x5D0, 0x5EA), (0x620, 0x6D3),
            (0x904, 0x97F), (0x985, 0x9FF), (0xB85, 0xBFF), (0xC05, 0xC7F), (0xD05, 0xD7F), (0xD85, 0xDFF), (0xE01, 0xE5B), (0xF00, 0xFBC),
            (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13F5), (0x1780, 0x17F9), (0x1800, 0x18AA),
            (0x1B00, 0x1B7C), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x3041, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xF900, 0xFAD9),
            (0xFB00, 0xFDFD), (0xFF01, 0xFFEE), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DD), (0x2F800, 0x2FA1D))]
        self.pools = [p for p in self.pools if p]
        self.emoji = [chr(c) for c in range(0x1F300, 0x1F64F)] + [chr(c) for c in range(0x1F900, 0x1F97A - 1)] + list("☺✅❤⚕✈⚖")
        self.symbols = by["Po"] + by["Sm"] + by["So"][:400] + by["Sk"] + by["Sc"] + by["Ps"] + list("''''\"\"..,,!?-_&&()[]{}<>|/\\^~`@#$%*+=")

    def word(self):
        pool = self.rng.choice(self.pools)
        return "".join(self.rng.choice(pool) for _ in range(self.rng.randint(1, 9)))

    def marked(self):
        out = []
        for _ in range(self.rng.randint(1, 5)):
            out.append(self.rng.choice(self.rng.choice(self.pools)))
            depth = self.rng.choice((0, 1, 1, 2, 3, 8, 40))
            out.extend(self.rng.choice(self.marks) for _ in range(depth))
        return "".join(out)

    def jamo(self):
        parts = (range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3), range(0xAC00, 0xAC00 + 60), range(0xA960, 0xA97D), range(0xD7B0, 0xD7C7))
        return "".join(chr(self.rng.choice(self.rng.choice(parts))) for _ in range(self.rng.randint(1, 8)))

    def sequence(self):
        kind = self.rng.randrange(5)
        if kind == 0:
            return "\u200d".join(self.rng.choice(self.emoji) + self.rng.choice(("", "\ufe0f", "\U0001F3FD")) for _ in range(self.rng.randint(1, 5)))
        if kind == 1:
            return "".join(chr(0x1F1E6 + self.rng.randrange(26)) for _ in range(self.rng.randint(1, 4)))
        if kind == 2:
            return self.rng.choice("0123456789#*") + "\ufe0f\u20e3"
        if kind == 3:
            return "\U0001F3F4" + "".join(chr(0xE0000 + ord(c)) for c in "gbsct") + "\U000E007F"
        return self.rng.choice(self.emoji) * self.rng.randint(1, 4)

    def contraction(self):
        return self.rng.choice(("", "we", "I", "é", "他", " ")) + self.rng.choice("''''’ʼ＇") + self.rng.choice(
            ("s", "S", "ſ", "t", "T", "re", "RE", "rE", "ve", "Ve", "m", "M", "ll", "LL", "lL", "d", "D", "K", "sſ", "")) + self.rng.choice(("", " ", "x", "'"))

    def special(self):
        return self.rng.choice(("<|endoftext|>", "<|endoftext", "|endoftext|>", "<|padding|>", "<s>", "</s>", "<unk>", "<0x0A>", "<0x41>", "▁", "▁▁the",
                                "<|endoftext|><|endoftext|>", "Ġ", "Ċ", "ĠĠ", "<|"))

    def piece(self):
        r = self.rng
        kind = r.randrange(14)
        if kind < 4: return self.word()
        if kind == 4: return "".join(r.choice(self.all) for _ in range(r.randint(1, 12)))
        if kind == 5: return self.marked()
        if kind == 6: return self.jamo()
        if kind == 7: return self.sequence()
        if kind == 8: return "".join(r.choice(self.numbers) for _ in range(r.randint(1, 7)))
        if kind == 9: return "".join(r.choice(self.symbols) for _ in range(r.randint(1, 6)))
        if kind == 10: return r.choice(self.blanks) * r.choice((1, 2, 3, 5, 8, 13, 24, 25, 60, 300)) if r.random() < 0.3 else "".join(
            r.choice(self.blanks) for _ in range(r.randint(1, 9)))
        if kind == 11: return "".join(r.choice(self.controls) for _ in range(r.randint(1, 4)))
        if kind == 12: return self.contraction()
        return self.special() if r.random() < 0.4 else str(r.randrange(10 ** r.randint(1, 12)))

    def text(self, pieces):
        return "".join(self.piece() + self.rng.choice(("", "", " ", " ", "  ", "\n", "\t")) for _ in range(pieces))

    def lines(self, size):
        """Strings of very different lengths, together about `size` bytes."""
        done = 0
        while done < size:
            s = self.text(self.rng.choice((1, 2, 3, 5, 10, 30, 100)))
            done += len(s.encode())
            yield s


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 3000000
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as f:
        for line in Hard(seed).lines(size):
            f.write(line)
