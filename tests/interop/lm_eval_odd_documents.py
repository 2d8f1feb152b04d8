# SPDX-License-Identifier: MIT
"""Documents that no data set has, for lm_eval_compare.py: texts that are empty, begin or end in spaces, or are longer
than a model reads; letters of many scripts and texts of special tokens; choices that are equal, or one the beginning of
another.

    python3 lm_eval_odd_documents.py DIR [--seed N]
    python3 lm_eval_compare.py --program build/palimpsa --model MODEL --data DIR --docs 0:40 --pages 0:12 --context 256
"""
import argparse
import json
import pathlib
import random

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--count", type=int, default=40)
args = parser.parse_args()
r = random.Random(args.seed)

PIECES = ["a", "I", "The cat", "the cat sat", "it's", "Don't", "3.14", "1,000", "  ", "\n", "\t", "\n\n", " \n ", "\u00a0", "\u200b", "\u2028", "\u3000", "\u0085", "\r\n",
          "\u00e9", "e\u0301", "\u00df", "\u0130stanbul", "\u01c6ep", "\ufb01n", "\u0149", "\u4f60\u597d", "\u65e5\u672c\u8a9e\u3067", "\u05e9\u05dc\u05d5\u05dd",
          "\u0627\u0644\u0633", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "<|endoftext|>", "<|padding|>", "[title]", " [title]", "[header]", "[step]", "[", "]", "[a [b] c]",
          "_", "__", "...", "--", "@-@", " @,@ ", " @.@ ", "= A =", "''", "``", "\"", "\\", "\\n", "{goal}", "{{x}}", "%s", "\x00", "\x7f", "naive", "Question:", "Answer:", "quick brown fox",
          "jumped over", "of", "and", "because", "s' ", " 's", "( x )", "[ y ]", "1989 @-@ 1990", " ,", " .", " ; ", " N ", " 1 ", " ' "]


def text(most=12, long=True):
    kind = r.random() if long else max(r.random(), 0.2)
    if kind < 0.06:
        return ""
    if kind < 0.1:
        return " " * r.randint(1, 3)
    words = [r.choice(PIECES) for _ in range(r.randint(1, most))]
    if kind < 0.2:
        words = words * r.randint(5, 60)
    return r.choice(["", " "]).join(words) if r.random() < 0.3 else " ".join(words)


def choices(count):
    """Some are equal, some the beginning of another, some begin alike."""
    found = [text(6, long=False) for _ in range(count)]  # a model has to read a choice whole
    for i in range(1, count):
        kind = r.random()
        if kind < 0.15:
            found[i] = found[i - 1]
        elif kind < 0.4:
            found[i] = found[i - 1] + r.choice([" ", "", "s"]) + text(3, long=False)
        elif kind < 0.5:
            found[i] = found[i - 1][: len(found[i - 1]) // 2]
    return [c or "x" for c in found]  # lm-eval divides by the length of a choice


def readable(make, context=lambda found: found):
    """The first that has more in its context than blanks, at which lm-eval ends; an empty one is fine."""
    while (found := make()) and context(found) and not context(found).strip():
        pass
    return found


def lettered(count):
    labels = list("ABCDE" if r.random() < 0.5 else "12345")[:count]
    return {"text": choices(count), "label": labels}, r.choice(labels)


def write(path, rows):
    path = args.folder / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(make):
    return [make(i) for i in range(args.count)]


def arc(i):
    c, answer = lettered(r.randint(3, 5))
    return {"id": str(i), "question": text(), "choices": c, "answerKey": answer}


def openbook(i):
    c, answer = lettered(4)
    return {"id": str(i), "question_stem": readable(text), "choices": c, "answerKey": answer}


def piqa(i):
    a, b = choices(2)
    return {"goal": text(), "sol1": a, "sol2": b, "label": r.randint(0, 1)}


def hellaswag(i):
    return {"ind": i, "activity_label": text(2), "ctx_a": text(), "ctx_b": text(4), "ctx": "", "endings": choices(4), "source_id": "", "split": "val", "split_type": "", "label": str(r.randint(0, 3))}


def winogrande(i):
    a, b = choices(2)
    sentence = text(6) + "_" + text(6, long=False)
    before = sentence[:sentence.index("_")]
    if not (before + a).strip() or not (before + b).strip():  # lm-eval ends at a context of blanks
        sentence = "x" + sentence
    return {"sentence": sentence, "option1": a, "option2": b, "answer": str(r.randint(1, 2))}


def siqa(i):
    a, b, c = choices(3)
    return {"context": text(), "question": text(5), "answerA": a, "answerB": b, "answerC": c, "label": str(r.randint(1, 3))}


def boolq(i):
    return {"question": text(6), "title": "", "answer": bool(r.randint(0, 1)), "passage": text(40)}


def lambada(i):
    return {"text": readable(lambda: text(30), lambda found: " ".join(found.split(" ")[:-1])), "domain": ""}


write("piqa/validation.jsonl", rows(piqa))
write("hellaswag/validation.jsonl", rows(hellaswag))
write("winogrande/validation.jsonl", rows(winogrande))
write("arc_easy/test.jsonl", rows(arc))
write("arc_challenge/test.jsonl", rows(arc))
write("openbookqa/test.jsonl", rows(openbook))
write("social_i_qa/validation.jsonl", rows(siqa))
write("boolq/validation.jsonl", rows(boolq))
write("lambada/lambada_test.jsonl", rows(lambada))
wiki = args.folder / "wikitext-2/wiki.test.raw"
wiki.parent.mkdir(parents=True, exist_ok=True)
lines = []
for page in range(12):
    lines.append(f" = Page {page} = ")
    lines.append("")
    for _ in range(r.randint(0, 4)):
        lines.append(" " + text(60).replace("\r", " ").replace("\n", " ") + " ")
    if page % 3 == 0:
        lines.append(" = = Section = = ")
wiki.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
