# SPDX-License-Identifier: MIT
"""Tokenizers in GGUF files: the ids of the package `tokenizers`, for each name of a pre-tokenizer that is supported.

    pip install tokenizers gguf numpy
    python3 tokenizers_gguf.py --program build/palimpsa --library build/libpalimpsa.so --data DATA [--bytes N]
    python3 tokenizers_gguf.py --record tests/golden/tokenizers

GPT-NeoX's vocabulary gets the normaliser, the pattern and `ignore_merges` of the tokenizer that each name stands for.
The package `gguf` writes it into a file as llama.cpp's converter does, and `palimpsa convert --to gguf` into another;
both are read back. --record makes the small vocabulary and the ids that the unit tests compare with.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = ENDS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + LINES
QWEN2 = ENDS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + LINES
QWEN35 = ENDS + r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + LINES
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + LINES)
# name: (pattern or None for ByteLevel's own, NFC, ignore_merges)
NAMES = {"gpt-2": (None, False, False), "mpt": (None, True, False), "dbrx": (LLAMA3, False, False), "llama-bpe": (LLAMA3, False, True),
         "qwen2": (QWEN2, True, False), "qwen35": (QWEN35, True, False), "tekken": (TEKKEN, False, True), "falcon-h1": (LLAMA3, False, True),
         "lfm2": (LLAMA3, False, True), "pixtral": (LLAMA3, False, True)}
ALIASES = {"falcon-h1": "llama-bpe", "lfm2": "llama-bpe", "pixtral": "llama-bpe"}
TEXTS = ["The quick brown fox's 12345 steps, they'LL RUN; I'M x²½ 3.14", "naïve Cafe\u0301 re\u0301sume\u0301 e\u0301\u0301 \u0301a q\u0323\u0307 \u212b",
         "  two  blanks\t\ttabs \r\n\r\nlines\n \n  end  ", "!!!\n/path//x\n\n//y ...\n#", "HTTPServer iPhone ÉCOLE Élan ǅ ʰa日本語 текст ЁЖ",
         "नमस्ते दुनिया ไทยนี้ 한국어 العَرَبِيَّة ١٢٣٤٥ ⅷ①", "a'S b'd 'tis ''s 'Re’s", "don\u2019t 100000 0001 1 22 333", "<tool>x</tool> <|endoftext|>e\u0301", ""]


def change(root, pattern, nfc, whole, inverted=False):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern is None}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed" if inverted else "Isolated", "invert": inverted}
    root["pre_tokenizer"] = level if pattern is None else {"type": "Sequence", "pretokenizers": [split, level]}
    root["normalizer"] = {"type": "NFC"} if nfc else None
    root["model"]["ignore_merges"] = whole


def record(folder):
    """One vocabulary whose merges know no words, so that ids show where the text was split."""
    tok = tokenizers.Tokenizer(tokenizers.models.BPE())
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=900, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), max_token_length=12)
    tok.train_from_iterator([text for text in TEXTS for _ in (0, 1)], trainer)
    root = json.loads(tok.to_str())
    root["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]
    ids = {}
    for name, rules in NAMES.items():
        change(root, *rules)
        theirs = tokenizers.Tokenizer.from_str(json.dumps(root))
        ids[name] = [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS]
    change(root, None, False, False)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(root, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    with open(folder / "ids.json", "w", encoding="utf-8") as f:
        json.dump({"texts": TEXTS, "names": ids}, f, separators=(",", ":"))
        f.write("\n")


def gguf_of(path, root, name):
    """As llama.cpp's converter writes a byte-level BPE."""
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    tokens = {i: t for t, i in root["model"]["vocab"].items()}
    kinds = {i: gguf.TokenType.NORMAL for i in tokens}
    for t in root["added_tokens"]:
        tokens[t["id"]] = t["content"]
        kinds[t["id"]] = gguf.TokenType.CONTROL if t["special"] else gguf.TokenType.USER_DEFINED
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types([kinds[i] for i in range(len(tokens))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/palimpsa")
    p.add_argument("--library", default="build/libpalimpsa.so")
    p.add_argument("--data", default=os.environ.get("PALIMPSA_DATA"))
    p.add_argument("--bytes", type=int, default=1000000, help="of hard text")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--record", type=pathlib.Path)
    a = p.parse_args()
    if a.record:
        return record(a.record)
    if not a.data:
        sys.exit("skipped: set PALIMPSA_DATA or --data")
    sys.path.insert(0, str(HERE))
    import random_mamba2
    from palimpsa_tokenizer import Tokenizer
    from tokenizers_hard_text import Hard
    texts = TEXTS + list(Hard(a.seed).lines(a.bytes)) + [open(os.path.join(a.data, "wikitext-2", "test.txt"), encoding="utf-8", newline="").read()]
    with open(os.path.join(a.data, "tokenizers", "gpt-neox", "tokenizer.json"), encoding="utf-8") as f:
        root = json.load(f)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        random_mamba2.make(folder / "model", keep=False, layers=1, D=64, N=16)
        for name, rules in NAMES.items():
            for t in root["added_tokens"]:  # as the tokenizers of that name have them
                t["normalized"] = not t["special"] and name in ("gpt-2", "mpt")
            change(root, *rules, inverted=name == "dbrx")
            source = folder / "tokenizer.json"
            source.write_text(json.dumps(root), encoding="utf-8")
            theirs = tokenizers.Tokenizer.from_file(str(source))
            gguf_of(folder / "theirs.gguf", root, name)
            subprocess.run([a.program, "convert", folder / "model", folder / f"{name}.gguf", "--to", "gguf", "--tokenizer", source], check=True, stdout=subprocess.DEVNULL)
            readers = {"tokenizer.json": Tokenizer(a.library, str(source)), "theirs": Tokenizer(a.library, str(folder / "theirs.gguf")),
                       "ours": Tokenizer(a.library, str(folder / f"{name}.gguf"))}
            wrong = dict.fromkeys(readers, 0)
            for text in texts:
                ids = theirs.encode(text, add_special_tokens=False).ids
                for reader, tok in readers.items():
                    wrong[reader] += tok.encode(text) != ids
            failed += sum(wrong.values())
            print(f"{name}: {len(texts)} texts, differ: " + ", ".join(f"{r} {n}" for r, n in wrong.items()))
    print(f"{len(NAMES)} names, {failed} differences")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
