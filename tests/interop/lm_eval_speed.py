# SPDX-License-Identifier: MIT
"""How long `palimpsa eval --tasks` and lm-evaluation-harness with transformers' Mamba2 take for the same documents.

    pip install lm-eval torch transformers accelerate
    python3 lm_eval_speed.py --make DIR --tokenizer TOKENIZER_DIR                           a random Mamba2 of 130M parameters
    python3 lm_eval_speed.py --program build/palimpsa --model DIR --data DATA --tasks piqa,hellaswag --limit 40 --batch 1,8

Timed are the requests alone: tokenizing, model and log-softmax; neither start-up nor reading of the weights. The harness is given the batch sizes
in turn, and its best counts.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--make", type=pathlib.Path)
parser.add_argument("--tokenizer", type=pathlib.Path)
parser.add_argument("--program")
parser.add_argument("--model")
parser.add_argument("--data", type=pathlib.Path)
parser.add_argument("--tasks", default="piqa")
parser.add_argument("--limit", type=int, default=40)
parser.add_argument("--batch", default="1")
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

import torch

torch.set_num_threads(args.threads)


def make():
    from transformers import Mamba2Config, Mamba2ForCausalLM

    torch.manual_seed(1)
    config = Mamba2Config(hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64, state_size=128, n_groups=1, expand=2, conv_kernel=4,
                          vocab_size=50288, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    Mamba2ForCausalLM(config).save_pretrained(args.make)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (args.tokenizer / name).exists():
            shutil.copy(args.tokenizer / name, args.make)


def seconds_of_harness(model, task):
    """Of the calls that answer the requests of a task."""
    task.build_all_requests(limit=args.limit, rank=0, world_size=1)
    requests = [r for r in task.instances]
    call = model.loglikelihood_rolling if requests[0].request_type == "loglikelihood_rolling" else model.loglikelihood
    start = time.perf_counter()
    call(requests, disable_tqdm=True)
    return time.perf_counter() - start, len(requests)


def compare():
    import lm_eval_tasks
    from lm_eval.models.huggingface import HFLM

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        names = args.tasks.split(",")
        made, _ = lm_eval_tasks.make(args.data, names, 0, args.limit, folder)
        for name, task in zip(names, made):
            best = None
            for batch in map(int, args.batch.split(",")):
                model = HFLM(pretrained=args.model, device="cpu", dtype="float32", batch_size=batch)
                seconds, requests = seconds_of_harness(model, task)
                best = min(best or (seconds, batch), (seconds, batch))
                del model
            run = subprocess.run([args.program, "eval", args.model, "--data", args.data, "--tasks", name, "--limit", str(args.limit), "--threads", str(args.threads), "--json"],
                                 check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            ours = json.loads(run.stdout)
            mine, tokens = ours["total_evaluation_time_seconds"], ours["tokens"]
            print(f"{name}: {args.limit} documents, {requests} requests; harness {best[0]:.2f} s (batch {best[1]}), palimpsa {mine:.2f} s: {best[0] / mine:.1f} times; "
                  f"{tokens['sent']} tokens sent, {tokens['read']} read ({tokens['sent'] / tokens['read']:.2f} times fewer), {tokens['read'] / mine:.0f} tokens/s", flush=True)


make() if args.make else compare()
