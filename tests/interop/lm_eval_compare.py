# SPDX-License-Identifier: MIT
"""`palimpsa eval --tasks` against the real lm-evaluation-harness, document by document.

    pip install lm-eval torch transformers        (0.4.13 is the version that the recordings in tests/golden/eval are from)
    python3 lm_eval_compare.py --program build/palimpsa --model DIR --data DATA --docs 40:80

The model is a Hugging Face directory that transformers reads too, such as a Mamba2 with its tokenizer. Requests must be equal byte for
byte, log-likelihoods within 1e-5 per scored token (and 1e-4 for what float32 sums lose), greedy flags and accuracies equal, perplexities within 1e-4.
Ends with exit code 1 when something differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import lm_eval_tasks
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True, type=pathlib.Path)
parser.add_argument("--docs", default="40:80")
parser.add_argument("--pages", default="5:7", help="documents of wikitext, which are long")
parser.add_argument("--context", type=int, default=2048, help="tokens that a request reads; what is longer loses its beginning")
parser.add_argument("--tasks", default=",".join(lm_eval_tasks.FILES))
args = parser.parse_args()

model = HFLM(pretrained=args.model, device="cpu", dtype="float32", batch_size=1, max_length=args.context)
bad = 0


def wrong(*what):
    global bad
    bad += 1
    if bad <= 20:
        print("differs:", *what)


def tokens(text):
    return len(model.tok_encode(text)) if text else 0


def compare(task, docs, folder):
    first, last = map(int, docs.split(":"))
    made, manager = lm_eval_tasks.make(args.data, [task], first, last, folder)
    theirs = simple_evaluate(model=model, tasks=made, task_manager=manager, log_samples=True)
    samples = folder / f"{task}.samples"
    found = json.loads(subprocess.run([args.program, "eval", args.model, "--data", args.data, "--tasks", task, "--docs", docs, "--context", str(args.context), "--samples", samples, "--json"],
                                      check=True, stdout=subprocess.PIPE).stdout)
    ours = [json.loads(line) for line in samples.read_text().split("\n") if line]
    expected = sorted(theirs["samples"][task], key=lambda s: s["doc_id"])
    if len(ours) != len(expected):
        wrong(task, "has", len(ours), "documents, expected", len(expected))
    worst = 0
    for mine, other in zip(ours, expected):
        where = task, "document", mine["doc_id"]
        if mine["doc_id"] != other["doc_id"] + first:
            wrong(*where, "expected", other["doc_id"] + first)
        sent = [[a["arg_0"], *([a["arg_1"]] if "arg_1" in a else [])] for a in mine["arguments"].values()]
        if sent != [list(a) for a in other["arguments"]]:
            wrong(*where, "request", sent, other["arguments"])
        answers = [r[0] for r in other["resps"]] if task != "wikitext" else [(other["resps"][0][0], False)]
        for (score, greedy), answer, request in zip(mine["filtered_resps"], answers, sent):
            value, theirs_greedy = answer if isinstance(answer, (tuple, list)) else (answer, False)
            count = tokens(request[-1])
            off = abs(score - float(value))
            worst = max(worst, off / max(count, 1))
            if off > 1e-5 * count + 1e-4 * (task != "wikitext") + 1e-6 * abs(score):
                wrong(*where, "log-likelihood", score, "expected", value, "of", count, "tokens")
            if task != "wikitext" and bool(greedy) != bool(theirs_greedy):
                wrong(*where, "greedy", greedy)
        for metric in ("acc", "acc_norm"):
            if metric in other and float(mine[metric]) != float(other[metric]):
                wrong(*where, metric, mine[metric])
    for key, value in theirs["results"][task].items():
        if not key.endswith(",none") or isinstance(value, str):
            continue
        mine = found["results"][task][key]
        accept = 1e-4 * abs(value) if "perplexity" in key or "bits" in key else 1e-12
        if not abs(mine - value) <= accept:
            wrong(task, key, mine, "expected", value)
    shown = {key: value for key, value in found["results"][task].items() if key.endswith(",none") and "stderr" not in key}
    print(f"{task}: documents {docs}, {sum(len(s['filtered_resps']) for s in ours)} requests, at most {worst:.1e} nats a token apart; {shown}", flush=True)


with tempfile.TemporaryDirectory() as folder:
    for name in args.tasks.split(","):
        compare(name, args.pages if name == "wikitext" else args.docs, pathlib.Path(folder))
print(f"{bad} differences" if bad else "equal")
sys.exit(1 if bad else 0)
