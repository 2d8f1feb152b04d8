#!/usr/bin/env python3
"""`palimpsa serve` under load. The generator of the load runs on the same machine and is part of the noise.

    python3 serve_load.py --program build/palimpsa --model DIR [--tokenizer X] [--threads 2] PHASE ...

Phases: one (tokens/s of one stream against `generate`), many (16 streams against one), pause (a long prompt next to 8 streams), prefix (the same 8,192-token
prompt six times), tokenizing (/health while texts of 10 MB are tokenized), soak (256 idle connections, 64 streams and 64 waiting requests for --minutes), slow (2,000 sockets that send half a request), long (--tokens read
through one session; then its steps against those of a memory of 64 tokens, in turns, once the file --hold exists),
observe (tokens/s with tiles against without, and the time of a replay). Prints one line of JSON each.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import re
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--tokenizer")
parser.add_argument("--threads", default="2")
parser.add_argument("--tokens", type=int, help="of one and many: written by a stream (100); of pause: prompt (32000); of long: read (1000000)")
parser.add_argument("--hold", help="of long: a file; steps are timed when it exists, so that a long reading may share the machine and the timing need not")
parser.add_argument("--minutes", type=float, default=10)
parser.add_argument("phases", nargs="+", choices=("one", "many", "pause", "prefix", "soak", "slow", "long", "observe", "tokenizing"))
args = parser.parse_args()
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
tokenizer = ["--tokenizer", args.tokenizer] if args.tokenizer else []
process = port = None


def serve(*options):
    global process, port
    process = subprocess.Popen([args.program, "serve", args.model, *tokenizer, "--port", "0", "--log", "no", "--threads", args.threads, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(process.stdout.readline().rsplit(":", 1)[1])


def stop():
    process.terminate()
    process.wait(timeout=120)


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20000)
    connection.request(method, path, body=json.dumps(body) if body else None)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()


def stream(prompt, tokens, times=None, **more):
    """Times at which events came: one for each token when log-probabilities are asked for, which cost a little."""
    times = [] if times is None else times
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1000)
    connection.request("POST", "/v1/completions", body=json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True, **more}))
    answer = connection.getresponse()
    if answer.status != 200:
        answer.read()
        connection.close()
        return answer.status
    for line in answer:
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    connection.close()
    return times


def memory_of_server():
    return int(next(line for line in open(f"/proc/{process.pid}/status") if line.startswith("VmRSS")).split()[1]) * 1024


def ids(count, seed):
    chosen = random.Random(seed)
    return [chosen.randrange(1000, 20000) for _ in range(count)]


def rate(times, tokens):
    return (tokens - 1) / (times[-1] - times[0])  # a token that ends within a character has no event of its own


def one():
    n = args.tokens or 100
    serve()
    stream("The", 10)
    served = rate(stream("The", n), n)
    stop()
    result = subprocess.run([args.program, "generate", args.model, *tokenizer, "--prompt", "The", "--max-tokens", str(n), "--temperature", "0", "--ignore-eos", "--threads", args.threads],
                            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    generated = float(re.search(r"written: \d+, ([0-9.]+) tokens/s", result.stderr)[1])
    return {"served": served, "generate": generated, "ratio": served / generated}


def many():
    n = args.tokens or 100
    serve("--max-sessions", "32")
    stream("The", 5)
    alone = rate(stream("The", n), n)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        start = time.perf_counter()
        all_times = list(pool.map(lambda i: stream(f"The {i}", n), range(16)))
        seconds = time.perf_counter() - start
    stop()
    return {"one": alone, "sixteen": 16 * n / seconds, "times": 16 * n / seconds / alone}


def pause():
    prompt = ids(args.tokens or 32000, 3)
    serve("--max-sessions", "32")
    lists = [[] for _ in range(8)]
    threads = [threading.Thread(target=stream, args=(f"The {i}", 100000, lists[i]), kwargs={"logprobs": 0}, daemon=True) for i in range(8)]
    for t in threads:
        t.start()
    while min(map(len, lists)) < 10:
        time.sleep(0.05)
    start = time.perf_counter()
    status, answer = ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1})
    end = time.perf_counter()
    gaps = [b - a for times in lists for a, b in zip(times, times[1:]) if a >= start and b <= end]
    quiet = [b - a for times in lists for a, b in zip(times, times[1:]) if b < start]
    process.kill()
    process.wait()
    return {"prompt_tokens": len(prompt), "status": status, "seconds": end - start, "longest_pause": max(gaps), "median_pause": statistics.median(gaps), "step_before": statistics.median(quiet)}


def prefix():
    prompt = ids(args.tokens or 8192, 5)
    serve()
    firsts, steps = [], []
    for _ in range(6):
        start = time.perf_counter()
        times = stream(prompt, 20, logprobs=0)
        firsts.append(times[0] - start)
        steps.append(statistics.median(b - a for a, b in zip(times, times[1:])))
    stop()
    again = [first / step for first, step in zip(firsts[1:], steps[1:])]
    return {"prompt_tokens": len(prompt), "first_token_seconds": firsts, "step_seconds": steps, "again_in_steps": again, "median": statistics.median(again)}


def tokenizing():
    """/health while long texts are read, and their own times."""
    serve()
    text = "".join(random.Random(i).choice(("The quick brown fox ", "jumps over ", "the lazy dog; ", "\u00e9\u4e2d\u6587 ")) for i in range(1000000))[: 10 << 20]
    body, times = {"prompt": text, "add_special_tokens": False}, []
    done = []

    def post():
        start = time.perf_counter()
        assert ask("POST", "/tokenize", body)[0] == 200
        done.append(time.perf_counter() - start)

    poster = threading.Thread(target=lambda: [post() for _ in range(3)])
    poster.start()
    while poster.is_alive():
        start = time.perf_counter()
        assert ask("GET", "/health")[0] == 200
        times.append(time.perf_counter() - start)
        time.sleep(0.005)
    stop()
    times.sort()
    return {"bytes": len(text.encode()), "seconds": done, "asked": len(times), "health_median": times[len(times) // 2], "health_p99": times[len(times) * 99 // 100], "health_longest": times[-1]}


def soak():
    # 64 memories of 19 MB and room for three more, so that the cache of prompts is full within the first minute
    serve("--max-sessions", "64", "--max-queue", "64", "--timeout", "3600", "--memory-budget", "1300M")
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(256)]
    counts, memory, until = {}, [], time.time() + 60 * args.minutes
    lock = threading.Lock()

    def client(number):
        while time.time() < until:
            body = {"prompt": f"The {number} " * random.Random(number).randrange(1, 20), "max_tokens": 32, "ignore_eos": True, "stream": bool(number % 2)}
            try:
                status = ask("POST", "/v1/completions", body)[0]
            except OSError as error:
                status = str(error)
            with lock:
                counts[str(status)] = counts.get(str(status), 0) + 1
            if status == 429:
                time.sleep(1)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(136)]
    for t in threads:
        t.start()
    while time.time() < until:
        memory.append(memory_of_server())
        time.sleep(5)
    for t in threads:
        t.join()
    alive = sum(c.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") > 0 and c.recv(100).startswith(b"HTTP/1.1 200") for c in idle)
    stop()
    settled = memory[min(12, len(memory) // 2)]
    return {"minutes": args.minutes, "answers": counts, "idle_alive": alive, "memory_after_a_minute": settled, "memory_at_the_end": memory[-1], "growth": memory[-1] / settled - 1, "memory_by_minute": memory[::12]}


def slow():
    serve("--timeout", "600")
    sockets = []
    for i in range(2000):
        c = socket.create_connection(("127.0.0.1", port))
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le" if i % 2 else b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        sockets.append(c)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        assert ask("GET", "/health")[0] == 200
        times.append(time.perf_counter() - start)
    for c in sockets:
        c.close()
    stop()
    times.sort()
    return {"sockets": 2000, "health_median": times[100], "health_p99": times[197]}


def long():
    total = args.tokens or 1000000
    serve("--cache-distance", "0")  # copies of prompts are bounded, but would grow
    young, old = (ask("POST", "/v1/memories", {"tokens": ids(64, 1)})[1]["id"] for _ in range(2))

    def step(memory):
        times = []
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1000)
        connection.request("POST", "/v1/completions", body=json.dumps({"prompt": "", "memory": memory, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}))
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
        return statistics.median(b - a for a, b in zip(times, times[1:]))

    def read():
        return int(float(re.search(r"^palimpsa_prompt_tokens_total (\S+)", ask("GET", "/metrics")[1], re.M)[1]))

    step(old)
    before, start, resident = read(), time.perf_counter(), []
    body = {"prompt": ids(total, 7), "memory": old, "update_memory": True, "max_tokens": 0}
    reader = threading.Thread(target=ask, args=("POST", "/v1/completions", body))
    reader.start()
    while reader.is_alive():
        if read() - before > 2048:  # its text has become ids, and its session runs
            resident.append(memory_of_server())
            print(json.dumps({"read": read() - before, "seconds": time.perf_counter() - start, "resident": resident[-1]}), file=sys.stderr, flush=True)
        reader.join(10)
    seconds = time.perf_counter() - start
    while args.hold and not os.path.exists(args.hold):
        time.sleep(0.2)
    turns = [(step(young), step(old)) for _ in range(9)]  # in turns: what the machine does meanwhile meets both
    tokens = ask("GET", f"/v1/memories/{old}")[1]["tokens"]
    stop()
    young_step, old_step = (statistics.median(t[i] for t in turns) for i in range(2))
    return {"tokens": tokens, "seconds": seconds, "step_of_64_tokens": young_step, "step": old_step, "ratio": statistics.median(o / y for y, o in turns),
            "memory_at_the_start": resident[0], "memory_at_the_end": resident[-1], "growth": resident[-1] / resident[0] - 1}


def observe():
    serve()

    def written(path, **more):
        """Tokens/s of a stream with log-probabilities."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1000)
        connection.request("POST", path, body=json.dumps({"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True, "logprobs": 1, **more}))
        token = b'"type":"token"' if path == "/v1/observe" else b"data:{"
        times = [time.perf_counter() for line in connection.getresponse() if token in line.replace(b" ", b"")]
        return (len(times) - 1) / (times[-1] - times[0])

    def watched():
        return written("/v1/observe", echo=False, observe={"tiles": True})

    watched()
    turns = [(written("/v1/completions", stream=True), watched()) for _ in range(5)]
    text, replays = ids(1000, 1), []
    ask("POST", "/v1/observe", {"prompt": text, "max_tokens": 0, "echo": False, "observe": {"tiles": True}})
    for position in (999, 700, 500):
        start = time.perf_counter()
        ask("POST", "/v1/observe", {"prompt": text[: position + 1], "max_tokens": 0, "echo": False, "observe": {"from": position - 1, "map": {"layer": 3}}})
        replays.append(time.perf_counter() - start)
    stop()
    plain, tiles = (statistics.median(t[i] for t in turns) for i in range(2))
    return {"plain": plain, "with_tiles": tiles, "ratio": statistics.median(b / a for a, b in turns), "replay_seconds": replays}


for phase in args.phases:
    print(json.dumps({"phase": phase, **globals()[phase]()}), flush=True)
