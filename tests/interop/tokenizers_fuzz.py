# SPDX-License-Identifier: MIT
"""Random tokenizers made with the package `tokenizers`: the same ids and the same text, or a refusal.

    pip install tokenizers
    python3 tokenizers_fuzz.py --library build/libpalimpsa.so [--combinations N] [--seed S] [--only K]

Each combination draws a normaliser, a pre-tokenizer (Split with random regular expressions among them), a model, added
tokens and a decoder, is written by the package, and read by both. Texts are encoded and decoded, and random ids decoded.
What libpalimpsa refuses is counted by its sentence. Ends with exit code 1 when anything differs. U+FFFD, which the
package writes for half a character where the bytes come out here, is not compared.
"""
import argparse
import collections
import json
import os
import random
import re
import sys
import tempfile
import time

from palimpsa_tokenizer import Tokenizer
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Theirs
from tokenizers_hard_text import Hard

CHARS = list("aabbcefilsstABCFSz0123456789  \t\n.,'-_$<>[]") + list("éßﬁſK²½Ⅷ日本。゛かカ한αΩжאअ𝒜😀¨①▁\u0301\u0323\u00a0\u3000\u200d\r")
BYTE_ALPHABET = pre_tokenizers.ByteLevel.alphabet()
CLASSES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\h", r"\p{L}", r"\p{N}", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{P}", r"\p{Han}", r"\p{Hiragana}",
           r"\p{Katakana}", r"\p{Hangul}", r"\p{Greek}", r"\p{Cyrillic}", r"\p{Latin}", r"\p{^L}", r"\P{N}", r"[a-f]", r"[^\s\d]", r"[\p{L}\p{M}]",
           r"[^\r\n\p{L}\p{N}]", r"[[:digit:]]", r"[a-z&&[^b-e]]", r"[sfi]", ".", r"\R", r"\X", r"\pL"]
ANCHORS = [r"\b", r"\B", "^", "$", r"\A", r"\z", r"\Z", ""]


class Draw:
    hard = Hard(1)

    def __init__(self, rng):
        self.rng = self.hard.rng = rng

    def maybe(self, p):
        return self.rng.random() < p

    def short(self, most, alphabet=CHARS):
        return "".join(self.rng.choice(alphabet) for _ in range(self.rng.randint(1, most)))

    # Regular expressions.

    def atom(self, depth):
        r = self.rng
        kind = r.randrange(12)
        if kind < 3: return re.escape(self.short(3, [c for c in CHARS if c != "\n"])) if kind else r.choice(("s", "ss", "fi", "a", "st", "ﬁ", "ß", "'s"))
        if kind < 7: return r.choice(CLASSES)
        if kind == 7: return r.choice(ANCHORS)
        if depth > 2: return r.choice(CLASSES)
        inner = self.regex(depth + 1)
        return r.choice(("(?:%s)", "(%s)", "(?i:%s)", "(?m:%s)", "(?=%s)", "(?!%s)", "(?>%s)", "(?<=%s)", "(?<!%s)", "(?:%s)")) % inner

    def quantifier(self):
        return self.rng.choice(("", "", "", "+", "*", "?", "{2}", "{1,3}", "{,2}", "{2,}", "+?", "*?", "??", "++", "*+", "{2}?", "{1,2}?", "{1,2}+", "{2}+"))

    def regex(self, depth=0):
        branches = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            parts = []
            for _ in range(self.rng.randint(1, 3)):
                atom = self.atom(depth)
                # A quantifier after an assertion has no fixed meaning, and after several characters means the last.
                parts.append(atom + ("" if atom in ANCHORS or atom[:3] in ("(?=", "(?!", "(?<") else self.quantifier()))
            branches.append("".join(parts))
        prefix = self.rng.choice(("", "", "", "", "(?i)", "(?m)")) if depth == 0 else ""
        if self.maybe(0.1): branches[-1] = branches[-1] + "(?i)" + self.atom(2)
        return prefix + "|".join(branches)

    # Parts of a tokenizer.

    def normalizer(self):
        r, steps = self.rng, []
        for _ in range(r.choice((0, 0, 0, 1, 1, 2, 3, 4))):
            kind = r.randrange(6)
            if kind < 4: steps.append((normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)[kind]())
            elif kind == 4: steps.append(normalizers.Prepend(r.choice(("▁", " ", "ab"))))
            else: steps.append(normalizers.Replace(r.choice((" ", "a", "ab", "é", "\n", "..", self.short(2))), r.choice(("", "▁", "a", "aa", " ", self.short(2)))))
        return steps

    def pre_tokenizer(self):
        r, steps = self.rng, []
        kind = r.randrange(8)
        for _ in range(0 if kind == 0 else r.choice((0, 1, 1, 2, 3))):
            if self.maybe(0.75):
                pattern = Regex(self.regex()) if self.maybe(0.85) else self.short(2)
                steps.append(pre_tokenizers.Split(pattern, r.choice(("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")), self.maybe(0.25)))
            else:
                steps.append(pre_tokenizers.Digits(self.maybe(0.5)))
        if kind in (1, 2, 3): steps.append(pre_tokenizers.ByteLevel(add_prefix_space=self.maybe(0.4), use_regex=self.maybe(0.6)))
        if kind in (4, 5): steps.append(pre_tokenizers.Metaspace(prepend_scheme=r.choice(("always", "never", "first")), split=self.maybe(0.6)))
        return steps, kind in (1, 2, 3)

    def model(self, byte_level):
        r = self.rng
        base = sorted(BYTE_ALPHABET) if byte_level else sorted(set(CHARS))
        if self.maybe(0.4): base = [c for c in base if r.random() > 0.15]
        unknown = "<unk>" if self.maybe(0.6) else None
        fallback = self.maybe(0.4)
        vocab = {}
        names = (["<unk>"] if unknown else []) + base
        if fallback: names += [f"<0x{b:02X}>" for b in range(256) if self.maybe(0.97) or not byte_level]
        r.shuffle(names)
        for name in names: vocab.setdefault(name, len(vocab))
        merges, tokens = [], [c for c in base if c.isascii() or self.maybe(0.4)] or base
        for _ in range(r.choice((0, 5, 60, 200))):
            left, right = r.choice(tokens), r.choice(tokens)
            if len(left + right) > 6: continue
            merges.append((left, right))
            tokens.append(left + right)
            vocab.setdefault(left + right, len(vocab))
        if self.maybe(0.3):
            for _ in range(30): vocab.setdefault(self.short(3, base), len(vocab))
        return models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=self.maybe(0.5), byte_fallback=fallback, ignore_merges=self.maybe(0.25))

    def added(self):
        r, out = self.rng, []
        for _ in range(r.choice((0, 0, 1, 2, 4))):
            content = r.choice(("<s>", "</s>", "[A]", "ab", "a", "ﬁ", "é", "é" + "a", "  ", " b", "12", "<0x41>", "日", self.short(3)))
            flags = {name: self.maybe(0.3) for name in ("single_word", "lstrip", "rstrip")}
            out.append(AddedToken(content, normalized=self.maybe(0.5), special=self.maybe(0.4), **flags))
        return out

    def decoder(self, byte_level):
        r = self.rng
        if self.maybe(0.1): return None
        if byte_level and self.maybe(0.85): return decoders.ByteLevel()
        replace = lambda: decoders.Replace(r.choice(("▁", "▁", "a", "ab")), r.choice((" ", " ", "", "xy")))
        strip = lambda: decoders.Strip(" " if self.maybe(0.9) else "a", r.choice((0, 1, 1, 2)), 0)
        chains = (lambda: [replace(), decoders.ByteFallback(), decoders.Fuse(), strip()], lambda: [replace(), decoders.ByteFallback(), decoders.Fuse()],
                  lambda: [decoders.Metaspace(prepend_scheme=r.choice(("always", "never", "first")))], lambda: [decoders.Fuse()],
                  lambda: [decoders.Metaspace(prepend_scheme=r.choice(("always", "never", "first"))), decoders.ByteFallback(), decoders.Fuse()],
                  lambda: [replace(), strip()], lambda: [decoders.ByteFallback()], lambda: [strip(), replace(), decoders.Fuse()],
                  lambda: r.sample([replace(), decoders.ByteFallback(), decoders.Fuse(), strip(), decoders.Metaspace(), decoders.ByteLevel()], r.randint(1, 4)))
        chain = r.choice(chains)()
        return chain[0] if len(chain) == 1 and self.maybe(0.5) else decoders.Sequence(chain)

    def tokenizer(self):
        splits, byte_level = self.pre_tokenizer()
        tok = Theirs(self.model(byte_level))
        steps = self.normalizer()
        if steps: tok.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
        if splits: tok.pre_tokenizer = splits[0] if len(splits) == 1 else pre_tokenizers.Sequence(splits)
        decoder = self.decoder(byte_level)
        if decoder: tok.decoder = decoder
        if self.maybe(0.02): tok.enable_truncation(5)
        if self.maybe(0.02): tok.enable_padding(length=self.rng.choice((None, 8)))
        added = self.added()
        for token in added: (tok.add_special_tokens if token.special else tok.add_tokens)([token])
        return tok.to_str(), [token.content for token in added]

    def texts(self, added):
        alphabet = CHARS + added * 6
        yield from ("", " ", "▁▁a", "1234 aBcD\nab", "xx a yy\nhello")
        for _ in range(6): yield self.short(40, alphabet)
        yield self.hard.text(3) + "".join(self.rng.choice(added or [""]) + self.rng.choice(("", " ", "  ", "b")) for _ in range(4))


def compare(draw, tok, ours, theirs, added):
    """Texts compared, and what differs, if anything does."""
    done, size = 0, theirs.get_vocab_size()
    for text in draw.texts(added):
        special = draw.maybe(0.2)
        theirs.encode_special_tokens = special
        try:
            expected = theirs.encode(text, add_special_tokens=False).ids
        except BaseException as e:  # a panic of the package
            if isinstance(e, KeyboardInterrupt): raise
            continue
        try:
            ids = ours.encode(text, special_as_text=special)
        except ValueError as e:
            if "not in the vocabulary" in str(e): continue  # of characters, which says so
            if "gives up on this text" in str(e): continue  # a random pattern that takes millions of steps; the package ends at ten
            return done, f"encode {text!r}: {e}"
        if ids != expected: return done, f"encode {text!r}: {ids}, expected {expected}"
        changed = any(t.normalized and theirs.normalizer and theirs.normalizer.normalize_str(t.content) != t.content
                      for t in theirs.get_added_tokens_decoder().values())
        for some in (ids, [draw.rng.randrange(size) for _ in range(6)]):
            skip = draw.maybe(0.5) and not changed  # 0.23 then says special tokens by their normalised spelling
            try:
                back = theirs.decode(some, skip_special_tokens=skip)
            except BaseException as e:
                if isinstance(e, KeyboardInterrupt): raise
                continue
            if "\ufffd" not in back and ours.decode(some, skip).decode(errors="replace") != back:
                return done, f"decode {some} skip {skip}: {ours.decode(some, skip)!r}, expected {back!r}"
        done += 1
    return done, None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default="build/libpalimpsa.so")
    p.add_argument("--combinations", type=int, default=5000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int, help="one combination, by its number")
    p.add_argument("--most", type=int, default=20, help="differences that are printed")
    args = p.parse_args()
    path = os.path.join(tempfile.mkdtemp(), "tokenizer.json")
    refused, equal, differ, texts, start = collections.Counter(), 0, 0, 0, time.time()
    for number in range(args.combinations) if args.only is None else (args.only,):
        draw = Draw(random.Random(args.seed * 1000003 + number))
        while True:
            try:
                saved, added = draw.tokenizer()
                theirs = Theirs.from_str(saved)
                break
            except BaseException as e:  # a pattern that does not compile
                if isinstance(e, KeyboardInterrupt): raise
        with open(path, "w", encoding="utf-8") as f: f.write(saved)
        try:
            ours = Tokenizer(args.library, path)
        except ValueError as e:
            refused[re.sub(r"'[^']*'|\d+|0x\w+", "...", str(e).split(": ", 1)[1])] += 1
            continue
        done, difference = compare(draw, saved, ours, theirs, added)
        texts += done
        if difference is None:
            equal += 1
            continue
        differ += 1
        if differ <= args.most:
            root = json.loads(saved)
            model = {k: v for k, v in root["model"].items() if k not in ("vocab", "merges")}
            parts = {k: root[k] for k in ("normalizer", "pre_tokenizer", "decoder", "added_tokens")}
            print(f"combination {number}: {difference}\n  {json.dumps(parts, ensure_ascii=False)}\n  {model}")
    total = equal + differ + sum(refused.values())
    for reason, count in refused.most_common(): print(f"refused {count}: {reason}")
    print(f"{total} combinations: {equal} equal, {sum(refused.values())} refused ({100 * sum(refused.values()) / total:.1f} %), {differ} differ; "
          f"{texts} texts in {time.time() - start:.0f} s")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
