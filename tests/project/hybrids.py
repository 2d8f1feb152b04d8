#!/usr/bin/env python3
"""Models of several kinds of layers, from the outside: trained from a pattern for both tasks, stopped, killed and resumed to the same bits, the same on several
ranks; measured, converted, operated on, evaluated; and served with memories that are as large as their texts."""
import json, os, pathlib, random, shutil, subprocess, tempfile

from outside import call, check, program, run, said
from serving import serving

rng = random.Random(3)
PATTERN = "palimpsa-m,attention+mlp,palimpsa-m+attention,mesa,relu2"
PLAIN = "mamba2:2,attention,mlp"
SMALL = "--hidden 32 --heads 2 --batch 4 --lr 3e-3 --steps 24 --checkpoint-every 8 --threads 1".split()
RECALL = ["--task", "mqar", "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, "--test-examples", 32, *SMALL]
MPI = {"HWLOC_COMPONENTS": "-opencl", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_mpi_yield_when_idle": "1", "ASAN_OPTIONS": "detect_leaks=0", "OMPI_MCA_plm_rsh_agent": ""}


def ends(run):
    return [(run / "checkpoints/step-24" / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def losses(run):
    return [line[key] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) for key in ("loss", "valid_loss") if key in line]


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    text = root / "text.txt"
    words = "the memory of a text keeps what was said and one layer attends to all tokens".split()
    text.write_text("\n".join(" ".join(rng.choice(words) for _ in range(12)) + "." for _ in range(1000)))
    TEXT = ["--task", "text", "--data", text, "--tokenizer", "bytes", "--row", 96, "--context", 64, "--eval-every", 8, *SMALL]

    for task, options in ("mqar", RECALL), ("text", TEXT):
        options = [*options, "--model", PATTERN, "--layers", 5]
        whole = root / task
        run("train", *options, "--out", whole)
        stopped = root / f"{task}-stopped"
        run("train", *options, "--out", stopped, "--stop-after", 5)
        run("train", "--resume", "--out", stopped, "--stop-after", 13)
        run("train", "--resume", "--out", stopped)
        check(ends(whole) == ends(stopped), f"{task}: a resumed run ends differently")
        killed, kills = root / f"{task}-killed", 0
        while True:
            child = subprocess.Popen([program, "train", *map(str, options), "--out", killed, *(["--resume"] if (killed / "config.json").exists() else [])],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                child.wait(timeout=rng.uniform(0.05, 0.4) if kills < 4 else None)
                check(child.returncode == 0, f"{task}: a resumed run failed after {kills} kills")
                break
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                kills += 1
        check(ends(whole) == ends(killed), f"{task}: a run that was killed {kills} times ends differently")
        run("train", *options, "--recompute", "--out", root / f"{task}-recomputed")
        check(ends(whole) == ends(root / f"{task}-recomputed"), f"{task}: recomputed layers end differently")
        config = json.loads((whole / "checkpoints/step-24/config.json").read_text())
        check(config["model_type"] == "palimpsa_blocks" and config["layers"] == [0, 1, 2, 3, 4] and config["metaplastic_layers"] == [0, 2] and bool(config.get("mqar")) == (task == "mqar"), config)
    check(losses(root / "text")[-1] < losses(root / "text")[0] - 1, "a hybrid learns nothing")
    print("trained, stopped, killed and resumed: the same bits")

    # Two ranks compute what one process computes, up to the order of sums; the same ranks the same bits.
    if "mpi: none" not in run("--version").decode() and shutil.which("mpirun"):
        options = [*map(str, TEXT), "--model", PATTERN, "--layers", "5"]
        for out, more in ("ranks", ["--stop-after", "9"]), ("ranks", ["--resume"]), ("ranks-again", []):
            done = subprocess.run(["mpirun", "-n", "2", program, "train", *(more if more == ["--resume"] else [*options, *more]), "--out", root / out],
                                  capture_output=True, text=True, env={**os.environ, **MPI}, timeout=300)
            check(done.returncode == 0, f"two ranks: {done.stderr}")
        check(ends(root / "ranks") == ends(root / "ranks-again"), "a run on two ranks that was resumed ends differently")
        pairs = list(zip(losses(root / "ranks"), losses(root / "text")))
        check(len(pairs) > 5 and all(abs(a - b) < 1e-4 for a, b in pairs), f"two ranks and one process: {pairs}")
        print("two ranks: the same losses")

    # What it is, and what a text costs.
    model = root / "text"
    shown = json.loads(run("inspect", model, "--json"))
    check([[m["kind"] for m in b["mixers"]] for b in shown["blocks"]] == [["mamba2"], ["attention"], ["mamba2", "attention"], ["palimpsa_d"], []], shown["blocks"])
    check(shown["rules"] == ["palimpsa", "attention", "palimpsa", "mesa", "none"] and shown["layer_blocks"] == [0, 1, 2, 3, 4], shown["rules"])
    fixed, token = shown["state_fixed_bytes"], shown["state_bytes_per_token"]
    check(shown["state_grows"] and token == 2 * 2 * 2 * 16 * 4 and shown["state_bytes"] == fixed + 4096 * token, (fixed, token))
    lines = run("inspect", model).decode()
    for line in ("block 2 (layer 2): mamba2, 2 heads", "; and attention, 2 heads of 16", "block 4 (layer 4): MLP 256, squared ReLU",
                 "rules: palimpsa in layers 0, 2; attention in layer 1; mesa in layer 3; none in layer 4", f"{fixed} bytes whatever the length, and {token} a token"):
        check(line in lines, f"inspect does not say '{line}':\n{lines}")
    read = json.loads(run("inspect", model, "--attribution", "one layer attends", "--json"))
    check([(x["layer"], x["rule"]) for x in read["layers"]] == [(i, rule) for i, rule in enumerate(shown["rules"]) if rule != "none"], f"attribution of layers {read['layers']}")
    check(read["tokens"] == len(read["text"]) == 17 and "".join(t for _, t in read["text"]) == "one layer attends", "attribution names its text")
    for x in read["layers"]:
        check(x["error"] < 1e-6 and all(abs(sum(head) - 1) < 1e-3 and len(head) == 17 for head in x["shares"]), f"layer {x['layer']}: {x['error']}, {[sum(h) for h in x['shares']]}")
    check("layer 1 (attention), adds up within" in run("inspect", model, "--attribution", "one layer attends").decode(), "attribution for people")
    windows = json.loads(run("inspect", model, "--windows", "--data", text, "--tokens", 300, "--json"))
    check([layer["median_n_t"] is None for layer in windows["layers"]] == [False, True, False, False, True], windows)
    for name, says in (("palimpsa-x:3,attention", "no layer is named 'palimpsa-x'"), ("mamba2:0", "ends in no number of layers"), ("attention+mamba2", "the second attends")):
        check(says in run("train", *TEXT, "--model", name, "--out", root / "never", code=2) and not (root / "never").exists(), f"train --model {name}")
    check(run("inspect", PATTERN).decode().startswith(f"{PATTERN}: hybrid of Palimpsa-M, attention, D (mesa), MLP"), "inspect of a pattern")

    # A saved memory has the bytes of its position, and the text continues from it as if it were read again.
    story = text.read_text()[:200]
    said_whole = run("generate", model, "--prompt", story + " what", "--max-tokens", 20, "--temperature", 0)
    for n in (50, 200):
        run("generate", model, "--prompt", story[:n], "--max-tokens", 0, "--save-memory", root / f"memory{n}")
    sizes = [(root / f"memory{n}").stat().st_size for n in (50, 200)]
    check(sizes[1] - sizes[0] == 150 * token, f"memories of 50 and 200 tokens: {sizes}, {token} bytes a token")
    for context in (300, 1000):
        continued = run("generate", model, "--load-memory", root / "memory200", "--prompt", " what", "--max-tokens", 20, "--temperature", 0, "--max-context", context)
        check(continued == said_whole, f"from a memory: {continued}, expected {said_whole}")
    print("measured, saved and continued")

    # Other files: the same text.
    run("convert", model, root / "own.gguf", "--to", "gguf")
    check(run("generate", root / "own.gguf", "--prompt", story + " what", "--max-tokens", 20, "--temperature", 0) == said_whole, "another text from GGUF")
    for dtype in "q8_0", "q4_k", "f16":
        small = root / f"{dtype}.gguf"
        run("convert", model, small, "--to", "gguf", "--dtype", dtype)
        check(json.loads(run("inspect", small, "--json"))["blocks"] == shown["blocks"], f"{dtype}: other blocks")
        run("generate", small, "--prompt", story, "--max-tokens", 5)
    run("eval", model, root / "q8_0.gguf", "--data", text, "--context", 64, "--json", root / "eval.json")
    results = json.loads((root / "eval.json").read_text())
    check(len(results) == 2 and abs(results[0]["nll"] - results[1]["nll"]) < 0.02, f"losses: {[r['nll'] for r in results]}")
    run("convert", model, root / "half", "--to", "palimpsa", "--dtype", "bf16")
    check(json.loads((root / "half/config.json").read_text())["blocks"] == json.loads((model / "checkpoints/step-24/config.json").read_text())["blocks"], "blocks changed")
    check("hf holds plain Mamba2 and published families alone" in run("convert", model, root / "x", "--to", "hf", code=2), "a hybrid as Mamba2")

    # Surgery makes the Mamba2 layers of a hybrid metaplastic, and that trains.
    run("train", *TEXT, "--model", PLAIN, "--layers", 4, "--out", root / "plain")
    check("hybrid of Mamba2, attention, MLP" in run("inspect", root / "plain").decode(), "inspect of a plain hybrid")
    reported = said("convert", root / "plain", root / "operated", "--metaplastic", "top:1", "--data", text)
    chosen = json.loads((root / "operated/config.json").read_text())["metaplastic_layers"]
    check(len(chosen) == 1 and chosen[0] in (0, 1) and "proof over" in reported, reported)
    for layer, says in ((2, "its rule is attention"), (3, "its rule is none")):
        check(says in run("convert", root / "plain", root / "x", "--metaplastic", layer, "--no-proof", code=2), f"surgery of layer {layer}")
    run("train", "--task", "text", "--data", text, "--model", root / "operated", "--row", 96, "--context", 64, "--batch", 2, "--steps", 3, "--threads", 1, "--out", root / "tuned")
    print("converted, operated on, evaluated")

    # Served: memories across a restart, and what the page is shown.
    with serving(model, "--memory-dir", root / "kept") as s:
        G = dict(max_tokens=20, temperature=0)
        m = s.post("/v1/memories", text=story)
        check(m["tokens"] == 200, m)
        check(s.text(prompt=" what", memory=m["id"], **G).encode() == s.text(prompt=story + " what", **G).encode(), "from a memory of the server")
        events = s.stream("/v1/observe", prompt="the memory", max_tokens=3, observe={"map": {"layer": 3}})
        layers = events[0]["layers"]
        check([layer["rule"] for layer in layers] == ["palimpsa", "attention", "palimpsa", "mesa", "none"], layers)
        check([layer["mixers"] for layer in layers] == [["mamba2"], ["attention"], ["mamba2", "attention"], ["palimpsa_d"], []], layers)
        check([bool(layer["parts"]) for layer in layers] == [True, False, True, True, False] and layers[4]["heads"] == 0, layers)
        for layer in 1, 4:
            s.refused({"prompt": "a", "observe": {"map": {"layer": layer}}}, "observe.map.layer", "/v1/observe")
    with serving(model, "--memory-dir", root / "kept") as s:
        check(s.text(prompt=" what", memory=m["id"], **G) == s.text(prompt=story + " what", **G), "a memory after a restart")
    print("served with memories")
