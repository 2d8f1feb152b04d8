# SPDX-License-Identifier: MIT
"""How fast `palimpsa eval --tasks` and lm-evaluation-harness with transformers' Mamba2 are on the same tasks, one after the other.

    pip install lm-eval torch transformers accelerate
    python3 lm_eval_speed.py --make DIR --tokenizer TOKENIZER_DIR                           a random Mamba2 of 130M parameters
    python3 lm_eval_speed.py --program build/palimpsa --model DIR --data DATA --tasks piqa,hellaswag --limit 40 --ours 200 --batch 1,8

Timed are the requests alone: tokenizing, model and log-softmax; neither start-up nor reading of the weights. The harness is given the batch sizes
in turn, and its best counts. The two may have different numbers of documents: compared are tokens of requests by second. Next to it stands what
palimpsa makes of the machine: the arithmetic of the matrices for tokens that had to be read, and of the head for tokens that were scored, as a
share of the matrix product's speed ('palimpsa bench matmul').
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
parser.add_argument("--model", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path)
parser.add_argument("--tasks", default="piqa")
parser.add_argument("--limit", type=int, default=40, help="documents of the harness; 0: it is left out")
parser.add_argument("--ours", type=int, default=200, help="documents of palimpsa")
parser.add_argument("--pages", type=int, default=4, help="of wikitext, for both")
parser.add_argument("--batch", default="1")
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()


def make():
    import torch
    from transformers import Mamba2Config, Mamba2ForCausalLM

    torch.manual_seed(1)
    config = Mamba2Config(hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64, state_size=128, n_groups=1, expand=2, conv_kernel=4,
                          vocab_size=50288, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    Mamba2ForCausalLM(config).save_pretrained(args.make)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (args.tokenizer / name).exists():
            shutil.copy(args.tokenizer / name, args.make)


def tokens_of(model, request):
    """Tokens that a request makes the model read."""
    if request.request_type == "loglikelihood_rolling":
        count, most = len(model.tok_encode(request.args[0])), model.max_length
        return count if count <= most else -(-count // most) * most
    return sum(map(len, model._encode_pair(*request.args))) - 1


def harness(name):
    """The best tokens by second over the batch sizes, with that size."""
    import lm_eval_tasks
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        (task,), _ = lm_eval_tasks.make(args.data, [name], 0, args.limit, pathlib.Path(folder))
        best = (0, 0)
        for batch in map(int, args.batch.split(",")):
            model = HFLM(pretrained=str(args.model), device="cpu", dtype="float32", batch_size=batch)
            task.build_all_requests(limit=args.limit, rank=0, world_size=1)
            requests = list(task.instances)
            tokens = sum(tokens_of(model, r) for r in requests)
            call = model.loglikelihood_rolling if requests[0].request_type == "loglikelihood_rolling" else model.loglikelihood
            start = time.perf_counter()
            call(requests, disable_tqdm=True)
            seconds = time.perf_counter() - start
            print(f"{name}: harness, batch {batch}: {args.limit} documents, {len(requests)} requests, {tokens} tokens, {seconds:.2f} s, {tokens / seconds:.1f} tokens/s", flush=True)
            best = max(best, (tokens / seconds, batch))
    return best


def palimpsa(*words):
    return subprocess.run([args.program, *map(str, words)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def product_speed():
    """Operations by second of the matrix product on the input projection's shape."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "matmul.json")
        palimpsa("bench", "matmul", "--threads", args.threads, "--rounds", 5, "--json", path)
        (speed,) = (r["gflops"] for r in json.loads(path.read_text()) if r["shape"] == "M512 N3352 K768" and r["name"] == "matmul")
    return speed * 1e9


def operations():
    """Of one token: the matrices of all layers, and the head."""
    c = json.loads((args.model / "config.json").read_text())
    hidden, inner = c["hidden_size"], c["num_heads"] * c["head_dim"]
    columns = 2 * inner + 2 * c["n_groups"] * c["state_size"] + c["num_heads"]
    return 2 * c["num_hidden_layers"] * hidden * (columns + inner), 2 * hidden * c["vocab_size"]


def compare():
    product, (layers, head) = product_speed(), operations()
    print(f"matrix product: {product / 1e9:.0f} GFLOP/s", flush=True)
    for name in args.tasks.split(","):
        if name == "wikitext":
            args.limit, args.ours = min(args.limit, args.pages), args.pages
        ours = json.loads(palimpsa("eval", args.model, "--data", args.data, "--tasks", name, "--limit", args.ours, "--threads", args.threads, "--json"))
        seconds, tokens = ours["total_evaluation_time_seconds"], ours["tokens"]
        share = (tokens["read"] * layers + tokens["scored"] * head) / seconds / product
        speed = tokens["sent"] / seconds
        print(f"{name}: palimpsa: {ours['n-samples'][name]['effective']} documents, {tokens['sent']} tokens sent, {tokens['read']} read "
              f"({tokens['sent'] / tokens['read']:.2f} times fewer), {tokens['scored']} scored, {seconds:.2f} s, {speed:.1f} tokens/s sent, "
              f"{100 * share:.1f}% of the matrix product", flush=True)
        if args.limit:
            best, batch = harness(name)
            print(f"{name}: {speed / best:.1f} times the harness's best (batch {batch})", flush=True)


make() if args.make else compare()
