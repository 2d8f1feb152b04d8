# SPDX-License-Identifier: MIT
"""The same ids as the packages `tokenizers` and `sentencepiece`, on real text and on hard text.

    pip install tokenizers sentencepiece
    python3 tokenizers_compare.py --library build/libpalimpsa.so --data DATA [--bytes N] [--only NAME] [--keep DIR]

DATA holds tokenizers/{gpt-neox,gpt2,llama2} and wikitext-2. Next to those real vocabularies, small ones with unusual
settings are made on the spot. Ends with exit code 1 when any string differs.
"""
import argparse
import glob
import json
import os
import sys
import tempfile

import sentencepiece
import tokenizers
from palimpsa_tokenizer import Tokenizer
from tokenizers_hard_text import Hard

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(kind, *items):
    return {"type": "Sequence", kind: list(items)}


def added(id, content, **flags):
    return dict({"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}, **flags)


class Compare:
    def __init__(self, args):
        self.args, self.failed, self.compared = args, 0, 0
        self.wiki = [open(p, encoding="utf-8", newline="").read() for p in sorted(glob.glob(os.path.join(args.data, "wikitext-2", "*")))]
        self.hard = list(Hard(args.seed).lines(args.bytes))
        self.dir = args.keep or tempfile.mkdtemp()
        os.makedirs(self.dir, exist_ok=True)

    def same(self, name, text, ours, theirs):
        self.compared += 1
        if ours == theirs:
            return True
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.failed += 1
        if self.failed < 20:
            print(f"{name}: differs at token {at} of {len(theirs)}: ours {ours[at:at + 6]}, theirs {theirs[at:at + 6]}, text {text[:200]!r}")
        return False

    def strings(self, wiki=True):
        if wiki:
            for text in self.wiki:
                yield text
                yield from text.split("\n")[:4000]
        yield from self.hard
        yield "".join(self.hard)

    def json_tokenizer(self, name, path, wiki=True, special_as_text=False):
        if self.args.only and self.args.only not in name:
            return
        before = self.failed
        ours = Tokenizer(self.args.library, path)
        theirs = tokenizers.Tokenizer.from_file(path) if path.endswith(".json") else path
        theirs.no_truncation()
        theirs.encode_special_tokens = special_as_text
        count = 0
        for text in self.strings(wiki):
            ids = theirs.encode(text, add_special_tokens=False).ids
            if self.same(name, text, ours.encode(text, special_as_text=special_as_text), ids):
                count += 1
        for text in ("", "a b", " x"):
            self.same(name + " with template", text, ours.encode(text, add_special=True), theirs.encode(text, add_special_tokens=True).ids)
        print(f"{name}: {count} strings equal, {self.failed - before} differ")

    def variant(self, name, change, wiki=False):
        """GPT-NeoX's vocabulary with other settings."""
        with open(os.path.join(self.args.data, "tokenizers", "gpt-neox", "tokenizer.json"), encoding="utf-8") as f:
            root = json.load(f)
        change(root)
        path = os.path.join(self.dir, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(root, f, ensure_ascii=False)
        self.json_tokenizer(name, path, wiki)

    def sentencepiece_model(self, name, path, wiki=True):
        if self.args.only and self.args.only not in name:
            return
        before = self.failed
        ours, theirs = Tokenizer(self.args.library, path), sentencepiece.SentencePieceProcessor(model_file=path)
        count = 0
        for text in self.strings(wiki):
            ids = theirs.encode(text)
            count += self.same(name, text, ours.encode(text), ids)
        for text in self.hard[:2000]:
            raw = text.encode()[1:-1] + b"\xff\xc3"
            self.same(name + " not UTF-8", raw, ours.encode(raw), theirs.encode(raw))
        for text in self.hard[:2000]:
            ids = theirs.encode(text)
            back, ref = ours.decode(ids).decode(errors="replace"), theirs.decode(ids)
            if "\ufffd" not in ref and back != ref:
                self.failed += 1
                print(f"{name}: decodes {ids[:20]} to {back[:80]!r}, expected {ref[:80]!r}")
        print(f"{name}: {count} strings equal, {self.failed - before} differ")

    def train_sentencepiece(self, name, **settings):
        if self.args.only and self.args.only not in name:
            return
        text = os.path.join(self.dir, "train.txt")
        with open(text, "w", encoding="utf-8", newline="") as f:
            f.write(self.wiki[-1][:800000])
            for line in self.hard[:60]:
                f.write(line.replace("\0", "") + "\n")
        prefix = os.path.join(self.dir, name)
        settings.setdefault("character_coverage", 0.98)  # the rest is unknown, which is to be compared, too
        sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=prefix, minloglevel=2, hard_vocab_limit=False, num_threads=1, **settings)
        self.sentencepiece_model(name, prefix + ".model")

    def trained_by_us(self):
        """The BPE trainer's file loads in the package, gives the same ids, and is what the package's own trainer makes."""
        if self.args.only and self.args.only not in "trained":
            return
        train = os.path.join(self.args.data, "wikitext-2", "train.txt")
        out = os.path.join(self.dir, "trained")
        if os.system(f"{self.args.program} tokenize --train-bpe 4096 --out {out} {train}"):
            sys.exit("training failed")
        self.json_tokenizer("trained", os.path.join(out, "tokenizer.json"))
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=4096, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                                 initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        theirs.train_from_iterator([open(train, encoding="utf-8", newline="").read()], trainer)
        with open(os.path.join(out, "tokenizer.json"), encoding="utf-8") as f:
            ours = json.load(f)["model"]
        other = json.loads(theirs.to_str())["model"]
        same = ours["vocab"] == other["vocab"] and [list(m) for m in ours["merges"]] == [list(m) if isinstance(m, list) else m.split(" ") for m in other["merges"]]
        print("trained: vocabulary and merges", "equal" if same else "differ from", "the package's own trainer")
        self.failed += not same

    def chars(self):
        if self.args.only and self.args.only not in "chars":
            return
        test = os.path.join(self.args.data, "wikitext-2", "test.txt")
        out = os.path.join(self.dir, "chars")
        if os.system(f"{self.args.program} tokenize --learn-chars --out {out} {test}"):
            sys.exit("learning characters failed")
        ours, theirs = Tokenizer(self.args.library, out), tokenizers.Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
        text = open(test, encoding="utf-8", newline="").read()[:200000]
        ids = ours.encode(text)
        self.same("chars", text, ids, theirs.encode(text).ids)
        if theirs.decode(ids) != text or ours.decode(ids).decode() != text:
            self.failed += 1
            print("chars: does not decode to what was encoded")


def normal_added(root):
    root["normalizer"] = {"type": "NFKC"}
    root["added_tokens"] += [added(50277, "ﬁn", normalized=True), added(783, "the", single_word=True), added(50278, "[L]", lstrip=True),
                             added(50279, "[R]", rstrip=True, normalized=True), added(50280, "[LR]", lstrip=True, rstrip=True, special=True),
                             added(50281, "éé", single_word=True, normalized=True), added(50282, "①", normalized=True), added(50283, "他")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default="build/libpalimpsa.so")
    p.add_argument("--program", default="build/palimpsa")
    p.add_argument("--data", default=os.environ.get("PALIMPSA_DATA"))
    p.add_argument("--bytes", type=int, default=3000000, help="of hard text")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", help="only what has this in its name")
    p.add_argument("--keep", help="directory for the vocabularies made on the way")
    args = p.parse_args()
    if not args.data:
        sys.exit("skipped: set PALIMPSA_DATA or --data")
    c = Compare(args)
    # What added tokens do shows only where they occur.
    sprinkled = ["[L]", " [L]", "  [L] ", "[R]  ", "[R] \t x", " [LR] ", "the", "othe the", "the_", "ﬁn", "fin", "éé", " e\u0301e\u0301 ", "éée", "①", "1", "他", " 他 the[L] [R]  [LR]\n"]
    c.hard = [h + "".join(c_rng) for h, c_rng in zip(c.hard, ((sprinkled[i % len(sprinkled)], sprinkled[i * 7 % len(sprinkled)]) for i in range(len(c.hard))))]
    tok = os.path.join(args.data, "tokenizers")

    c.json_tokenizer("gpt-neox", os.path.join(tok, "gpt-neox", "tokenizer.json"))
    c.json_tokenizer("gpt-neox, special as text", os.path.join(tok, "gpt-neox", "tokenizer.json"), wiki=False, special_as_text=True)
    gpt2 = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(os.path.join(tok, "gpt2", "vocab.json"), os.path.join(tok, "gpt2", "merges.txt")))
    gpt2.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.add_special_tokens(["<|endoftext|>"])
    gpt2.save(os.path.join(c.dir, "gpt2.json"))
    c.json_tokenizer("gpt2", os.path.join(c.dir, "gpt2.json"))

    def set_pre(*steps):
        return lambda root: root.update(pre_tokenizer=sequence("pretokenizers", *steps))

    c.variant("llama-3 pattern", lambda r: (set_pre(split(LLAMA3), byte_level(regex=False))(r), r["model"].update(ignore_merges=True)), wiki=True)
    c.variant("gpt-4o pattern", set_pre(split(GPT4O, "Removed", True), byte_level(regex=False)))
    for form in ("NFD", "NFKC", "NFKD"):
        c.variant(form, lambda r: r.update(normalizer={"type": form}))
    c.variant("no normaliser", lambda r: r.update(normalizer=None))
    c.variant("added tokens", normal_added)
    c.variant("prefix blank", lambda r: r.update(pre_tokenizer=byte_level(prefix=True)))
    c.variant("digits", set_pre({"type": "Digits", "individual_digits": True}, byte_level()))
    c.variant("digit runs", set_pre({"type": "Digits", "individual_digits": False}, byte_level(prefix=True)))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            c.variant(f"split {behavior} {invert}", set_pre(split(r"\s|\p{Lu}", behavior, invert), byte_level(regex=False)))
    c.variant("split literal", set_pre(split({"String": "e"}, "MergedWithNext"), byte_level(regex=False)))
    c.variant("word classes", set_pre(split(r"\w+|[^\w\s]+|\d\b", "Removed", True), byte_level(regex=False)))
    c.variant("template", lambda r: r.update(post_processor={"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|padding|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]},
                           "<|padding|>": {"id": "<|padding|>", "ids": [1], "tokens": ["<|padding|>"]}}}))

    c.sentencepiece_model("llama2", os.path.join(tok, "llama2", "tokenizer.model"))
    c.train_sentencepiece("unigram", model_type="unigram", vocab_size=2000, user_defined_symbols=["[L]", "the_", "他"])
    c.train_sentencepiece("unigram byte fallback", model_type="unigram", vocab_size=1500, byte_fallback=True, normalization_rule_name="nfkc_cf")
    c.train_sentencepiece("unigram identity", model_type="unigram", vocab_size=1500, normalization_rule_name="identity", remove_extra_whitespaces=False)
    c.train_sentencepiece("spm bpe", model_type="bpe", vocab_size=2000, user_defined_symbols=["[R]", "é"])
    c.train_sentencepiece("spm bpe no prefix", model_type="bpe", vocab_size=1500, add_dummy_prefix=False, byte_fallback=True, split_by_whitespace=False)
    llama_json(c)
    c.trained_by_us()
    c.chars()
    print(f"{c.compared} comparisons, {c.failed} failed")
    sys.exit(1 if c.failed else 0)


def llama_json(c):
    """Llama-2's vocabulary as its tokenizer.json has it: merges instead of scores, blanks by a normaliser."""
    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(c.args.data, "tokenizers", "llama2", "tokenizer.model"))
    pieces = [sp.id_to_piece(i) for i in range(sp.vocab_size())]
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = []
    for i, p in enumerate(pieces):
        if i < 259:
            continue
        local = [(vocab[p[:k]], vocab[p[k:]], p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
        merges += [[a, b] for _, _, a, b in sorted(local)]
    root = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True)],
            "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
            "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges}}
    for name, changes in (("llama2 json", {}), ("llama2 json metaspace", {"normalizer": None, "pre_tokenizer": {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}}), ("llama2 json metaspace split", {"normalizer": None, "pre_tokenizer": {
                "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}})):
        path = os.path.join(c.dir, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(dict(root, **changes), f, ensure_ascii=False)
        c.json_tokenizer(name, path)
    root["model"].update(byte_fallback=False, vocab={p: i for p, i in vocab.items()})
    for fuse in (False, True):
        root["model"]["fuse_unk"] = fuse
        path = os.path.join(c.dir, f"llama2 unk {fuse}.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(root, f, ensure_ascii=False)
        c.json_tokenizer(f"llama2 json unk {fuse}", path, wiki=False)


if __name__ == "__main__":
    main()
