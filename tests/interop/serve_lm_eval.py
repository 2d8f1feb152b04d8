#!/usr/bin/env python3
"""lm-evaluation-harness with its model `local-completions` on `palimpsa serve`: the same log-likelihoods and accuracies as its own run of a model.

    pip install lm-eval torch transformers tenacity aiohttp tiktoken        (0.4.13 is the version that the recordings are from)
    python3 serve_lm_eval.py --program build/palimpsa --golden GOLDEN/eval --data DATA [--docs 40] [--tasks piqa,...] [--requests ids|text] [--families granite,...]

GOLDEN/eval has a model and its recorded scores, DATA the data sets as local files. Requests go as ids (the default of the harness) or as text, with the tokenizer
of the server. Then random hybrids of the families, with the same tokenizer, are scored by URL, by `palimpsa eval` and by transformers. Log-likelihoods within 1e-3,
greedy flags, acc and acc_norm equal. Ends with exit code 1 when something differs.
"""
import argparse
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import lm_eval_tasks
from family_models import FAMILIES, random_model
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--golden", required=True, type=pathlib.Path)
parser.add_argument("--data", required=True, type=pathlib.Path)
parser.add_argument("--docs", type=int, default=40, help="documents of a task, the first ones (40 are recorded)")
parser.add_argument("--tasks", default=",".join(t for t in lm_eval_tasks.FILES if t != "wikitext"))
parser.add_argument("--requests", default="ids", choices=("ids", "text"))
parser.add_argument("--families", default="granite,falcon,qwen,lfm2")
args = parser.parse_args()
names = args.tasks.split(",")
bad = 0


def wrong(*what):
    global bad
    bad += 1
    print("differs:", *what)


def harness(model, **options):
    with tempfile.TemporaryDirectory() as folder:
        made, manager = lm_eval_tasks.make(args.data, names, 0, args.docs, pathlib.Path(folder))
        return simple_evaluate(model=model, tasks=made, task_manager=manager, log_samples=True, bootstrap_iters=0, **options)


def by_url(directory):
    process = subprocess.Popen([args.program, "serve", str(directory), "--port", "0", "--log", "no", "--max-queue", "256"], stdout=subprocess.PIPE, text=True)
    try:
        base = process.stdout.readline().split()[-1]
        model_args = dict(model=directory.name, base_url=base + "/v1/completions", num_concurrent=4, max_retries=1, tokenizer_backend="remote", tokenized_requests=args.requests == "ids")
        return harness("local-completions", model_args=",".join(f"{k}={v}" for k, v in model_args.items()))
    finally:
        process.terminate()
        process.wait(timeout=60)


def answers(found, task):
    """Of every document, log-likelihood and greedy flag of each choice."""
    return [[(float(r[0][0]), str(r[0][1])) for r in s["resps"]] for s in sorted(found["samples"][task], key=lambda s: s["doc_id"])]


def compare(what, task, mine, expected):
    """Lists of lists of (log-likelihood, greedy flag)."""
    if [len(m) for m in mine] != [len(e) for e in expected]:
        wrong(what, task, "has", [len(m) for m in mine], "choices, expected", [len(e) for e in expected])
        return 0
    pairs = [pair for m, e in zip(mine, expected) for pair in zip(m, e)]
    worst, greedy = max(abs(m[0] - e[0]) for m, e in pairs), sum(m[1] != e[1] for m, e in pairs)
    if not worst <= 1e-3 or greedy:
        wrong(what, task, "log-likelihoods by", worst, "and", greedy, "greedy flags")
    return worst


def accuracies(what, task, found, expected):
    for metric in ("acc", "acc_norm"):
        if metric in expected and found["results"][task][f"{metric},none"] != expected[metric]:
            wrong(what, task, metric, found["results"][task][f"{metric},none"], "expected", expected[metric])


def recorded():
    found, summary = by_url(args.golden / "model"), json.loads((args.golden / "summary.json").read_text())["tasks"]
    for task in names:
        rows = [json.loads(line) for line in (args.golden / "scores" / f"{task}.jsonl").read_text().split("\n") if line][: args.docs]
        expected = [[(value, str(flag)) for value, flag in zip(r["loglikelihood"], r["is_greedy"])] for r in rows]
        worst = compare("recorded", task, answers(found, task), expected)
        if args.docs == summary[task]["n"]:
            accuracies("recorded", task, found, summary[task])
        print(f"{task}: {len(rows)} documents, log-likelihoods within {worst:.2g}")


def family(name, root):
    """A random hybrid with the tokenizer of the recorded model."""
    config = next(iter(FAMILIES[name]()))
    config.vocab_size, config.max_position_embeddings = json.loads((args.golden / "model/config.json").read_text())["vocab_size"], 4096
    config.bos_token_id = config.eos_token_id = 0
    directory = root / name
    random_model(config, 7).save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(args.golden / "model" / file, directory / file)
    url, theirs = by_url(directory), harness(HFLM(pretrained=str(directory), device="cpu", dtype="float32", batch_size=1, max_length=2048))
    worst = {"palimpsa eval": 0, "transformers": 0}
    for task in names:
        samples = root / f"{name}-{task}.jsonl"
        subprocess.run([args.program, "eval", str(directory), "--data", str(args.data), "--tasks", task, "--docs", f"0:{args.docs}", "--context", "2048", "--samples", str(samples)],
                       check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in samples.read_text().split("\n") if line]
        expected = {"palimpsa eval": [[(float(v), str(g)) for v, g in r["filtered_resps"]] for r in rows], "transformers": answers(theirs, task)}
        for who in worst:
            worst[who] = max(worst[who], compare(f"{name}, {who}:", task, answers(url, task), expected[who]))
        accuracies(name, task, url, {m: theirs["results"][task][f"{m},none"] for m in ("acc", "acc_norm") if f"{m},none" in theirs["results"][task]})
    print(f"{name}: {len(names)} tasks by URL, log-likelihoods within {worst['palimpsa eval']:.2g} of palimpsa eval and {worst['transformers']:.2g} of transformers", flush=True)


recorded()
with tempfile.TemporaryDirectory() as folder:
    for name in filter(None, args.families.split(",")):
        family(name, pathlib.Path(folder))
print("lm-eval", importlib.metadata.version("lm-eval"), "with requests as", args.requests, "is fine" if not bad else f"differs in {bad} places")
sys.exit(1 if bad else 0)
