#!/usr/bin/env python3
"""Reads the wording of RULER's tasks off rows that RULER made, as a file for `palimpsa needle --ruler --templates`.

    ruler_templates.py DIR/4096 > templates.json

DIR/4096 holds TASK/validation.jsonl of at least niah_single_1, niah_multiquery, vt, cwe, fwe and qa_1. What varies
between rows (keys, values, haystacks) is replaced by names in braces; what remains is the wording. The file stays with
a program that has the rows.
"""
import json
import pathlib
import re
import sys


def first(root, task):
    with open(pathlib.Path(root) / task / "validation.jsonl", encoding="utf-8") as lines:
        return json.loads(next(lines))


def needle(row, kind):
    """Head and question are the first and the last line; the key stands between them in the prefix."""
    head, body, question = re.fullmatch(r"([^\n]*)\n(.*)\n([^\n]*)", row["input"], re.S).groups()
    told = next(re.search(r"[^\n.?!]*" + re.escape(v) + r"\.", body).group(0).strip() for v in row["outputs"])
    keys = re.findall(r"[a-z]+-[a-z]+", row["answer_prefix"])
    key = next(k for k in keys if k in told)
    query = row["answer_prefix"][row["answer_prefix"].index(keys[0]):row["answer_prefix"].rindex(keys[-1]) + len(keys[-1])]
    fill = lambda text: text.replace(query, "{query}").replace(kind, "{type}")
    return (told.replace(key, "{key}").replace(row["outputs"][[v in told for v in row["outputs"]].index(True)], "{value}").replace(kind, "{type}"),
            fill(head) + "\n{text}\n" + fill(question), fill(row["answer_prefix"]))


def main():
    root = sys.argv[1]
    one, many = first(root, "niah_single_1"), first(root, "niah_multiquery")
    out = {}
    lines = one["input"].split("\n")
    out["noise"] = max(set(lines), key=lines.count)
    out["needle"], out["one"], out["one_answer"] = needle(one, "number")
    _, out["many"], out["many_answer"] = needle(many, "number")

    vt = first(root, "vt")
    value = re.findall(r"\d{5}", vt["answer_prefix"])[0]
    names = vt["outputs"]
    rows = vt["input"].split("\n")
    out["variable_first"] = next(l for l in rows if value in l and names[0] in l).replace(names[0], "{name}").replace(value, "{value}")
    out["variable_copy"] = next(l for l in rows if names[0] in l and names[1] in l).replace(names[0], "{from}").replace(names[1], "{name}")
    head, question = rows[0], rows[-1]
    out["variables"] = head + "\n\n{text}\n" + question.replace(value, "{value}")
    out["variables_answer"] = vt["answer_prefix"].replace(value, "{value}").replace(str(len(names)), "{count}", 1)

    cwe = first(root, "cwe")
    head, _, question = cwe["input"].rsplit("\n", 3)[-3:]
    out["common"] = head + "\n{text}\n" + question
    out["common_answer"] = cwe["answer_prefix"]

    fwe = first(root, "fwe")
    body, question = fwe["input"].split("\n")
    head = body[:body.index(" ... ") + 1]
    out["frequent"] = head + "{text}\n" + question
    out["frequent_answer"] = fwe["answer_prefix"]

    qa = first(root, "qa_1")["input"]
    begin = qa.index("Document 1:")
    end = qa.rindex(qa[:qa.index("\n")])
    out["document"] = "Document {number}:\n{text}"
    out["question"] = qa[:begin] + "{text}\n\n" + qa[end:qa.rindex(": ") + 2] + "{query}"
    out["question_answer"] = first(root, "qa_1")["answer_prefix"]
    json.dump(out, sys.stdout, indent=1)


main()
