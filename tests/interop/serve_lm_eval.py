#!/usr/bin/env python3
"""lm-evaluation-harness with its model `local-completions` on `palimpsa serve`: the same log-likelihoods and accuracies as its own run of the model recorded.

    pip install lm-eval tenacity aiohttp tiktoken        (0.4.13 is the version that the recordings are from)
    python3 serve_lm_eval.py --program build/palimpsa --golden GOLDEN/eval --data DATA [--docs 40] [--tasks piqa,...] [--requests ids|text]

GOLDEN/eval has the model and the recorded scores, DATA the data sets as local files. Requests go as ids (the default of the harness) or as text, with the
tokenizer of the server. Log-likelihoods within 1e-3, acc and acc_norm equal. Ends with exit code 1 when something differs.
"""
import argparse
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile

import lm_eval_tasks
from lm_eval import simple_evaluate

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--golden", required=True, type=pathlib.Path)
parser.add_argument("--data", required=True, type=pathlib.Path)
parser.add_argument("--docs", type=int, default=40, help="documents of a task, the first ones (40 are recorded)")
parser.add_argument("--tasks", default=",".join(t for t in lm_eval_tasks.FILES if t != "wikitext"))
parser.add_argument("--requests", default="ids", choices=("ids", "text"))
args = parser.parse_args()

process = subprocess.Popen([args.program, "serve", str(args.golden / "model"), "--port", "0", "--log", "no", "--max-queue", "256"], stdout=subprocess.PIPE, text=True)
base = process.stdout.readline().split()[-1]
bad = 0
try:
    model_args = dict(model="golden", base_url=base + "/v1/completions", num_concurrent=4, max_retries=1, tokenizer_backend="remote", tokenized_requests=args.requests == "ids")
    with tempfile.TemporaryDirectory() as folder:
        names = args.tasks.split(",")
        made, manager = lm_eval_tasks.make(args.data, names, 0, args.docs, pathlib.Path(folder))
        found = simple_evaluate(model="local-completions", model_args=",".join(f"{k}={v}" for k, v in model_args.items()), tasks=made, task_manager=manager, log_samples=True,
                                bootstrap_iters=0)
    summary = json.loads((args.golden / "summary.json").read_text())["tasks"]
    for task in names:
        recorded = [json.loads(line) for line in (args.golden / "scores" / f"{task}.jsonl").read_text().split("\n") if line][: args.docs]
        samples = {s["doc_id"]: s for s in found["samples"][task]}
        worst, greedy = 0, 0
        for i, expected in enumerate(recorded):
            got = [r[0] for r in samples[i]["resps"]]
            if len(got) != len(expected["loglikelihood"]):
                bad += 1
                print("differs:", task, "document", i, "has", len(got), "choices")
                continue
            for (value, flag), wanted, wanted_flag in zip(got, expected["loglikelihood"], expected["is_greedy"]):
                worst = max(worst, abs(float(value) - wanted))
                greedy += str(flag) != str(wanted_flag)
        accuracies = []
        for metric in ("acc", "acc_norm"):
            if metric in summary[task] and args.docs == summary[task]["n"]:
                mine = found["results"][task][f"{metric},none"]
                accuracies.append(f"{metric} {mine:g}")
                if mine != summary[task][metric]:
                    bad += 1
                    print("differs:", task, metric, mine, "expected", summary[task][metric])
        if not worst <= 1e-3 or greedy:
            bad += 1
            print("differs:", task, "log-likelihoods by", worst, "and", greedy, "greedy flags")
        print(f"{task}: {len(recorded)} documents, log-likelihoods within {worst:.2g}", *accuracies)
finally:
    process.terminate()
    process.wait(timeout=60)
print("lm-eval", importlib.metadata.version("lm-eval"), "with requests as", args.requests, "is fine" if not bad else f"differs in {bad} places")
sys.exit(1 if bad else 0)
