# SPDX-License-Identifier: MIT
"""The tasks of the real lm-evaluation-harness on local files: its own YAML and functions, only the data source is replaced."""
import json

import transformers.utils.logging
from lm_eval.tasks import TaskManager

# task: file below the data directory, split
FILES = {
    "wikitext": ("wikitext-2/wiki.test.raw", "test"),
    "lambada_openai": ("lambada/lambada_test.jsonl", "test"),
    "piqa": ("piqa/validation.jsonl", "validation"),
    "hellaswag": ("hellaswag/validation.jsonl", "validation"),
    "winogrande": ("winogrande/validation.jsonl", "validation"),
    "arc_easy": ("arc_easy/test.jsonl", "test"),
    "arc_challenge": ("arc_challenge/test.jsonl", "test"),
    "social_iqa": ("social_i_qa/validation.jsonl", "validation"),
    "openbookqa": ("openbookqa/test.jsonl", "test"),
    "boolq": ("boolq/validation.jsonl", "validation"),
}
transformers.utils.logging.set_verbosity_error()


def pages(text):
    """A line that is a title of the first level begins a page; what is blank is none."""
    found, lines = [], []
    for line in text.split("\n"):
        bare = line.replace("= = =", "===").replace("= =", "==").strip()
        if bare.startswith("= ") and bare.endswith(" ="):
            found.append("\n".join(lines))
            lines = []
        lines.append(line)
    found.append("\n".join(lines))
    return [{"page": page} for page in found if page.strip()]


def documents(data, task):
    path = data / FILES[task][0]
    if task == "wikitext":
        return pages(path.read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    for row in rows:
        if task == "boolq":
            row["label"] = int(row.pop("answer"))
        if task == "hellaswag":
            row["label"] = str(row["label"])
    return rows


def make(data, names, first, last, folder):
    """Tasks on documents first .. last-1, as simple_evaluate takes them, and their manager."""
    manager, made = TaskManager(), []
    for task in names:
        file = folder / f"{task}.jsonl"
        rows = documents(data, task)[first:last]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        split = FILES[task][1]
        own = {"dataset_path": "json", "dataset_name": None, "training_split": None, "validation_split": None, "test_split": None,
               "fewshot_split": None, f"{split}_split": split, "dataset_kwargs": {"data_files": {split: str(file)}}}
        made.append(manager._factory.build(manager._entry(task), overrides=own, registry=manager._index))
    return made, manager
