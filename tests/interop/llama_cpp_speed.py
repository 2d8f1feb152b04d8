# SPDX-License-Identifier: MIT
"""How fast palimpsa and llama.cpp run the same GGUF files, in turns, as a table of tokens per second and their ratio.

    pip install numpy llama-cpp-python
    python3 llama_cpp_speed.py --program build/palimpsa --tokenizer gpt-neox/tokenizer.json --model 130m --types f32,f16,q8_0,q4_0,q4_k
    python3 llama_cpp_speed.py --program build/palimpsa a.gguf b.gguf --llama-bench llama.cpp/build/bin/llama-bench
    python3 llama_cpp_speed.py --program build/palimpsa --families [--dir DIR]

--model makes a random Mamba2 of that size and converts it to each type (kept in --dir, which is used again). Each turn runs one program and then the
other on a file; what is printed are medians over the turns, their quotients, and what was aimed at: 80% of reading counts as well as a ratio. palimpsa's tokens are sampled, llama.cpp's are not.
--families makes the table of published hybrid families, with random weights in their shapes: prompts of 512 tokens, single tokens, both with 8,192 tokens read
before, and 8 texts at once. Their files, kept in --dir, are quantised by llama.cpp: 22 GB of disk, and an hour and a half on two processors; --layers cuts the
models short, to try it.
--processor-time: one thread each, and what counts is the processor time of the process, as on a machine that others use time on the wall says little.
Leave OMP_WAIT_POLICY unset: with `passive` llama.cpp's threads sleep at every barrier and it runs at half its speed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = {"130m": dict(D=768, layers=24, N=128), "370m": dict(D=1024, layers=48, N=128), "780m": dict(D=1536, layers=48, N=128)}


def measure_theirs(path, prompt, tokens, threads, clock):
    """In its own process: one warm-up and one turn through the C interface."""
    import llama_cpp as l

    l.llama_backend_init()
    quiet = l.llama_log_callback(lambda *_: None)  # llama.cpp keeps the pointer only
    l.llama_log_set(quiet, None)
    model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    p = l.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = prompt + tokens + 8, 512, 512, threads, threads
    context = l.llama_init_from_model(model, p)
    vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    ids = (l.llama_token * prompt)(*((t * 2654435761 & 0xFFFFFFFF) % min(vocab, 50000) for t in range(prompt)))

    def run(count, first=0):
        for begin in range(first, first + count, 512):
            n = min(512, first + count - begin)
            part = (l.llama_token * n)(*(ids[(begin + i) % prompt] for i in range(n)))
            if l.llama_decode(context, l.llama_batch_get_one(part, n)) != 0:
                sys.exit("llama_decode failed")
        l.llama_synchronize(context)

    for turn in range(2):
        l.llama_memory_clear(l.llama_get_memory(context), True)
        start = clock()
        run(prompt)
        prefill, each = clock() - start, []
        for t in range(tokens):
            start = clock()
            run(1, t)
            each.append(clock() - start)
    print(json.dumps([prompt / prefill, 1 / statistics.median(each)]))


def their_steps(path, prompt, tokens, threads, depth, batch):
    """In its own process: a prompt after `depth` tokens, then single tokens of `batch` sequences; tokens a second."""
    import llama_cpp as l

    l.llama_backend_init()
    quiet = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(quiet, None)
    model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    p = l.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = batch * (depth + prompt + 2 * tokens), 512, 512, threads, threads
    p.n_seq_max, p.kv_unified = batch, True
    context = l.llama_init_from_model(model, p)
    vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    room = l.llama_batch_init(512, 0, 1)

    def decode(count, position, sequences):
        """`count` tokens of each sequence, from this position on."""
        room.n_tokens = count * len(sequences)
        for i in range(room.n_tokens):
            t, s = i // len(sequences), sequences[i % len(sequences)]
            room.token[i], room.pos[i], room.n_seq_id[i], room.seq_id[i][0] = ((position + t) * 2654435761 & 0xFFFFFFFF) % vocab, position + t, 1, s
            room.logits[i] = t == count - 1
        if l.llama_decode(context, room) != 0:
            sys.exit("llama_decode failed")
        l.llama_synchronize(context)

    def read(first, count, sequence):
        for begin in range(first, first + count, 512):
            decode(min(512, first + count - begin), begin, [sequence])

    read(0, min(prompt, 64), 0)  # warms up
    decode(1, min(prompt, 64), [0])
    l.llama_memory_clear(l.llama_get_memory(context), True)
    read(0, depth, 0)
    start = time.perf_counter()
    read(depth, prompt, 0)
    prefill, each = time.perf_counter() - start, []
    for sequence in range(1, batch):
        read(0, depth + prompt, sequence)
    for t in range(tokens):
        start = time.perf_counter()
        decode(1, depth + prompt + t, list(range(batch)))
        each.append(time.perf_counter() - start)
    print(json.dumps([prompt / prefill, batch / statistics.median(each)]))


def by_processor(a):
    return ["--processor-time"] if a.processor_time else []


def theirs(a, path):
    if a.llama_bench:
        rows = json.loads(subprocess.run([a.llama_bench, "-m", path, "-p", str(a.prompt), "-n", str(a.tokens), "-t", str(a.threads), "-r", "1", "-o", "json"],
                                         check=True, capture_output=True, text=True).stdout)
        return next(r["avg_ts"] for r in rows if r["n_prompt"]), next(r["avg_ts"] for r in rows if not r["n_prompt"])
    return json.loads(subprocess.run([sys.executable, __file__, "--theirs", path, "--prompt", str(a.prompt), "--tokens", str(a.tokens), "--threads", str(a.threads)] + by_processor(a),
                                     check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def ours(a, path):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([a.program, "bench", "decode", path, "--prompt", str(a.prompt), "--tokens", str(a.tokens), "--threads", str(a.threads), "--repeats", "1", "--json", file.name] + by_processor(a),
                       check=True, stdout=subprocess.DEVNULL)
        rows = {r["name"]: r for r in json.load(open(file.name))}
    return rows["model.prefill"]["tokens_per_s"], rows["model.decode"]["tokens_per_s"], rows["model.decode"]["share"]


def targets(name, wide):
    """(prompt, one by one) that a file of this name shall reach against llama.cpp; 80% of reading also counts for the second. wide: with AVX-512."""
    large, plain = "780m" in name, any(t in name for t in ("f32", "f16"))
    prompt = (1.25 if "q4" in name else 1.4) if large else 1.8
    return prompt, 1.2 if plain else 1.4 if large else 1.5 if wide else 1.8


def judged(ratio, target, other=False):
    return f"{ratio:.2f} ({target:g}, {'met' if ratio >= target or other else 'missed'})"


def make_files(a, folder):
    from random_mamba2 import make

    source = folder / f"mamba2-{a.model}"
    files = []
    for dtype in a.types.split(","):
        file = folder / f"mamba2-{a.model}-{dtype}.gguf"
        files.append(str(file))
        if file.exists():
            continue
        if not source.exists():
            make(source, keep=False, **SIZES[a.model])
        subprocess.run([a.program, "convert", source, file, "--to", "gguf", "--dtype", dtype, "--tokenizer", a.tokenizer], check=True, stdout=subprocess.DEVNULL)
    return files


FAMILIES = {"falcon-h1-0.5b": "F16,Q8_0,Q4_K_M", "qwen3.5-0.8b": "F16,Q8_0,Q4_K_M", "lfm2.5-1.2b": "Q8_0,Q4_K_M", "granite-4.0-h-1b": "Q8_0,Q4_K_M",
            "nemotron-3-nano-4b": "Q8_0,Q4_K_M", "qwen3.5-4b": "Q8_0,Q4_K_M"}
LOADS = {"512": (512, 0, 1), "8k": (512, 8192, 1), "8 at once": (64, 0, 8)}  # prompt, tokens before it, sequences


def family_files(a, folder, name):
    """F16 by us, the types of blocks by llama.cpp's quantiser."""
    import llama_cpp as l
    from random_families import make

    quiet = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(quiet, None)
    plain, source = folder / f"{name}-F16.gguf", folder / name
    files = {t: folder / f"{name}-{t}.gguf" for t in FAMILIES[name].split(",")}
    if all(f.exists() for f in files.values()):
        return files
    if not plain.exists():
        if not source.exists():
            make(source, name, layers=a.layers)
        subprocess.run([a.program, "convert", source, plain, "--to", "gguf", "--dtype", "f16", "--tokenizer", "none"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(source)
    for ftype, number in (("Q8_0", l.LLAMA_FTYPE_MOSTLY_Q8_0), ("Q4_K_M", l.LLAMA_FTYPE_MOSTLY_Q4_K_M)):
        parameters = l.llama_model_quantize_default_params()
        parameters.ftype, parameters.nthread = number, a.threads
        if l.llama_model_quantize(str(plain).encode(), str(files[ftype]).encode(), parameters):
            sys.exit(f"llama.cpp cannot quantise {plain}")
    if "F16" not in files:
        plain.unlink()
    return files


def family_turn(a, path, load):
    """Ours, theirs: prompt and steps in tokens a second; and our share of reading RAM."""
    prompt, depth, batch = LOADS[load]
    size = [str(x) for x in ("--prompt", prompt, "--tokens", a.tokens, "--threads", a.threads)]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([a.program, "bench", "decode", path, *size, "--depth", str(depth), "--batch", str(batch), "--repeats", "1", "--json", file.name], check=True, stdout=subprocess.DEVNULL)
        rows = {r["name"]: r for r in json.load(open(file.name))}
    theirs = json.loads(subprocess.run([sys.executable, __file__, "--theirs", path, *size, "--depth", str(depth), "--batch", str(batch)], check=True, capture_output=True,
                                       text=True).stdout.splitlines()[-1])
    return [rows["model.prefill"]["tokens_per_s"], rows["model.decode"]["tokens_per_s"]], theirs, rows["model.decode"]["share"]


def families(a, folder):
    print(f"{a.threads} threads, medians of {a.turns} turns (8k: one), tokens/s: palimpsa, llama.cpp, ratio")
    print("| model | type | prompt of 512 | one by one | of reading RAM | prompt at 8k | one by one at 8k | 8 at once |\n|---|---|---|---|---|---|---|---|", flush=True)
    for name in a.only.split(",") if a.only else FAMILIES:
        for ftype, file in family_files(a, folder, name).items():
            found = {load: [family_turn(a, str(file), load) for _ in range(1 if load == "8k" else a.turns)] for load in LOADS}

            def cell(load, k):
                ours, theirs = (statistics.median(t[side][k] for t in found[load]) for side in (0, 1))
                return f"{ours:.1f}, {theirs:.1f}, {ours / theirs:.2f}"

            share = statistics.median(t[2] for t in found["512"])
            print(f"| {name} | {ftype} | {cell('512', 0)} | {cell('512', 1)} | {100 * share:.0f}% | {cell('8k', 0)} | {cell('8k', 1)} | {cell('8 at once', 1)} |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="*")
    arguments.add_argument("--program")
    arguments.add_argument("--model", choices=SIZES)
    arguments.add_argument("--types", default="f32,f16,q8_0,q4_0,q4_k")
    arguments.add_argument("--tokenizer", default="none")
    arguments.add_argument("--dir")
    arguments.add_argument("--llama-bench")
    arguments.add_argument("--prompt", type=int, default=512)
    arguments.add_argument("--tokens", type=int, default=32)
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--processor-time", action="store_true")
    arguments.add_argument("--families", action="store_true", help="the table of published families")
    arguments.add_argument("--only", help="with --families: some of them, " + ",".join(FAMILIES))
    arguments.add_argument("--layers", type=int, default=0, help="with --families: cut the models to so many layers")
    arguments.add_argument("--theirs", help=argparse.SUPPRESS)
    arguments.add_argument("--depth", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    a = arguments.parse_args()
    if a.processor_time:
        a.threads = 1
    if a.theirs and a.batch:
        return their_steps(a.theirs, a.prompt, a.tokens, a.threads, a.depth, a.batch)
    if a.theirs:
        return measure_theirs(a.theirs, a.prompt, a.tokens, a.threads, time.process_time if a.processor_time else time.perf_counter)
    if not a.program or not (a.files or a.model or a.families):
        arguments.error("--program, and files, --model or --families, are needed")
    wide = "avx512" in subprocess.run([a.program, "version"], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if a.families:
            return families(a, folder)
        files = a.files or make_files(a, folder)
        results = {f: [] for f in files}
        for _ in range(a.turns):
            for f in files:
                results[f].append((ours(a, f), theirs(a, f)))
        clock = ", processor time" if a.processor_time else ""
        print(f"{a.threads} threads{clock}, prompt of {a.prompt} tokens, medians of {a.turns} turns, tokens/s")
        print("| file | prompt: palimpsa | llama.cpp | ratio (target) | one by one: palimpsa | llama.cpp | ratio (target) | share of reading |\n|---|---|---|---|---|---|---|---|")
        for f, turns in results.items():
            m = [[statistics.median(t[side][k] for t in turns) for k in (0, 1)] for side in (0, 1)]
            share = statistics.median(t[0][2] for t in turns)
            ratios, wanted = [m[0][k] / m[1][k] for k in (0, 1)], targets(pathlib.Path(f).name, wide)
            print(f"| {pathlib.Path(f).name} | {m[0][0]:.0f} | {m[1][0]:.0f} | {judged(ratios[0], wanted[0])} | {m[0][1]:.1f} | {m[1][1]:.1f} | {judged(ratios[1], wanted[1], share >= 0.8)} | {100 * share:.0f}% |")


if __name__ == "__main__":
    main()
