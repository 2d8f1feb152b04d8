# SPDX-License-Identifier: MIT
"""Time to the first token over a conversation of 20 turns with edits: `palimpsa serve` and llama.cpp on the same GGUF file, request by request in turns.

    pip install numpy llama-cpp-python
    python3 conversation_llama_cpp.py --program build/palimpsa --model qwen3.5-0.8b [--model granite-4.0-h-1b]     # random weights, Q8_0
    python3 conversation_llama_cpp.py --program build/palimpsa file.gguf --llama-server llama.cpp/build/bin/llama-server

Each request is a whole conversation, as chat clients send it: a system prompt, messages, answers. Most add a turn; some replace the last question, one an
earlier question, and two come from another conversation in between. Random weights have no words, so prompts are lists of ids. With --llama-server the
server of llama.cpp answers, else its Python binding, class Llama, which keeps what it read and takes the longest common beginning where it can: both as a
user starts them. What is printed are seconds to the first token and how much of each prompt was read again; written for one process that measures at a time.
"""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


def conversation(system, turns, question, answer, vocab, seed):
    """(what changed, ids) of each request. Answers are the script's own, so that both programs read the same."""
    rng = random.Random(seed)
    words = lambda n: [rng.randrange(100, vocab - 100) for _ in range(n)]
    head, other, said = words(system), words(system), []
    for turn in range(turns):
        said.append(words(question))
        yield "turn", head + sum(said, [])
        if turn % 5 == 2:
            said[-1] = words(question)
            yield "edited last question", head + sum(said, [])
        if turn == turns // 2:
            edited = said[:-4] + [words(question)]
            yield "edited earlier question", head + sum(edited, [])
            yield "back to the first", head + sum(said, []) + words(5)
        if turn in (turns // 3, turns // 3 + 1):
            other += words(question)
            yield "another conversation", list(other)
        said.append(words(answer))


class Ours:
    name = "palimpsa"

    def __init__(self, a, file):
        self.process = subprocess.Popen([a.program, "serve", f"m={file}", "--tokenizer", "ids", "--port", "0", "--threads", str(a.threads), "--max-context", str(a.context), "--memory-budget", a.budget,
                                         "--log", "no", "--kv-type", a.kv_type], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"palimpsa serve does not listen: {line!r}")
        self.port = int(line.rsplit(":", 1)[1])

    def first(self, ids):
        """Seconds to the first token, and tokens of the prompt that were known."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = json.dumps(dict(prompt=ids, max_tokens=1, temperature=0, stream=True, stream_options=dict(include_usage=True), ignore_eos=True))
        start, first, known = time.perf_counter(), None, 0
        connection.request("POST", "/v1/completions", body)
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event.get("choices") and first is None:
                    first = time.perf_counter() - start
                if event.get("usage"):
                    known = event["usage"]["prompt_tokens_details"]["cached_tokens"]
        connection.close()
        return first, known

    def close(self):
        self.process.terminate()
        self.process.wait()


class TheirServer:
    name = "llama-server"

    def __init__(self, a, file):
        self.port = 18080
        self.process = subprocess.Popen([a.llama_server, "-m", file, "--port", str(self.port), "-t", str(a.threads), "-c", str(a.context), "-np", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").status == 200:
                    return
            except OSError:
                time.sleep(0.5)
        sys.exit("llama-server does not answer /health")

    def first(self, ids):
        body = json.dumps(dict(prompt=ids, n_predict=1, temperature=0, cache_prompt=True, ignore_eos=True)).encode()
        start = time.perf_counter()
        answer = json.load(urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", body, {"Content-Type": "application/json"}), timeout=3600))
        return time.perf_counter() - start, len(ids) - answer["timings"]["prompt_n"]

    def close(self):
        self.process.terminate()
        self.process.wait()


class TheirBinding:
    name = "llama-cpp-python"

    def __init__(self, a, file):
        self.process = subprocess.Popen([sys.executable, __file__, "--answer", file, "--threads", str(a.threads), "--context", str(a.context)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"llama.cpp cannot load {file}")

    def first(self, ids):
        self.process.stdin.write(json.dumps(ids) + "\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def answer_for_ever(a):
    """The process of TheirBinding: ids in a line, seconds and known tokens out."""
    import llama_cpp

    llm = llama_cpp.Llama(model_path=a.answer, n_ctx=a.context, n_batch=512, n_threads=a.threads, n_threads_batch=a.threads, n_gpu_layers=0, verbose=False)
    read = 0
    evaluate = llm.eval

    def counted(tokens):
        nonlocal read
        read += len(tokens)
        evaluate(tokens)

    llm.eval = counted
    print("ready", flush=True)
    for line in sys.stdin:
        ids, read = json.loads(line), 0
        start = time.perf_counter()
        next(llm.generate(ids, temp=0))
        print(json.dumps([time.perf_counter() - start, len(ids) - read]), flush=True)


def compare(a, file, vocab):
    ours, theirs = Ours(a, file), (TheirServer if a.llama_server else TheirBinding)(a, file)
    rows = []
    print(f"| request | tokens | {ours.name}, s | read again | {theirs.name}, s | read again |\n|---|---|---|---|---|---|")
    for what, ids in conversation(a.system, a.turns, a.question, a.answer_tokens, vocab, a.seed):
        mine, other = ours.first(ids), theirs.first(ids)
        rows.append((what, mine[0], other[0]))
        print(f"| {what} | {len(ids)} | {mine[0]:.3f} | {len(ids) - mine[1]} | {other[0]:.3f} | {len(ids) - other[1]} |", flush=True)
    for what in dict.fromkeys(r[0] for r in rows):
        part = [r for r in rows if r[0] == what]
        mine, other = (statistics.median(r[i] for r in part) for i in (1, 2))
        print(f"{what}: median {mine:.3f} s and {other:.3f} s, {other / mine:.1f} times as long")
    print(f"all {len(rows)} requests: {sum(r[1] for r in rows):.1f} s and {sum(r[2] for r in rows):.1f} s, {sum(r[2] for r in rows) / sum(r[1] for r in rows):.1f} times as long")
    ours.close()
    theirs.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="*", help="GGUF files of hybrid models")
    arguments.add_argument("--program", default="build/palimpsa")
    arguments.add_argument("--model", action="append", default=[], help="a shape of random_families.py, made with random weights in Q8_0")
    arguments.add_argument("--layers", type=int, default=0, help="with --model: only so many of its layers")
    arguments.add_argument("--dir", help="where those files are kept and found again")
    arguments.add_argument("--llama-server", help="llama.cpp's server; else its Python binding")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--context", type=int, default=16384)
    arguments.add_argument("--budget", default="8G")
    arguments.add_argument("--kv-type", default="f16", help="palimpsa's keys and values; llama.cpp keeps F16")
    arguments.add_argument("--system", type=int, default=2000, help="tokens of the system prompt")
    arguments.add_argument("--turns", type=int, default=20)
    arguments.add_argument("--question", type=int, default=120)
    arguments.add_argument("--answer-tokens", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--answer", help=argparse.SUPPRESS)
    a = arguments.parse_args()
    if a.answer:
        return answer_for_ever(a)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in a.model:
            file = folder / f"{name}{a.layers or ''}-q8_0.gguf"
            if not file.exists():
                import random_families

                made = folder / f"{name}{a.layers or ''}"
                if not made.exists():
                    random_families.make(made, name, layers=a.layers)
                subprocess.run([a.program, "convert", made, file, "--to", "gguf", "--dtype", "q8_0", "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)
            a.files.append(str(file))
        for file in a.files:
            shown = json.loads(subprocess.run([a.program, "inspect", file, "--json"], check=True, capture_output=True).stdout)
            print(f"\n{pathlib.Path(file).name}, {a.threads} threads")
            compare(a, str(file), min(shown["vocab"], 50000))


main()
