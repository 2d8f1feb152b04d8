#!/usr/bin/env python3
"""Surgery from the outside: an official Mamba2 directory, made here by a writer of torch's files that shares nothing with the
library, goes through `inspect --windows`, `convert --metaplastic`, a short fine-tune by recipe and `generate`; the numbers are compared with sums made here, and wrong
usage gets one sentence and leaves nothing."""
import collections, io, json, math, os, pathlib, pickle, random, resource, signal, statistics, struct, subprocess, sys, tempfile, types, zipfile, time

from outside import call, check, program

rng = random.Random(11)
LAYERS, HIDDEN, STATE, HEAD, VOCAB, ROWS, TAPS = 4, 32, 8, 16, 256, 264, 4
INNER = 2 * HIDDEN
HEADS = INNER // HEAD


def palimpsa(*words, code=0, limit=None):
    done = call(*words, code=code, file_limit=limit, cwd="/")  # recipes are found from anywhere
    return (done.stderr if code else done.stdout).decode()


def refused(words, *said, code=2, limit=None):
    sentence = palimpsa(*words, code=code, limit=limit)
    for part in said:
        check(part in sentence, f"{' '.join(map(str, words))}: '{sentence.strip()}' does not say '{part}'")


def make_tensors():
    """Names, shapes and numbers of an official model; layers forget at different speeds."""
    t = collections.OrderedDict()

    def add(name, shape, draw):
        t[name] = (shape, struct.unpack(f"<{math.prod(shape)}f", struct.pack(f"<{math.prod(shape)}f", *(draw() for _ in range(math.prod(shape))))))

    add("backbone.embedding.weight", (ROWS, HIDDEN), lambda: rng.gauss(0, 0.5))
    for i, rate in zip(range(LAYERS), (0.5, 3.0, 0.02, 0.1)):
        p = f"backbone.layers.{i}."
        add(p + "norm.weight", (HIDDEN,), lambda: rng.uniform(0.8, 1.2))
        add(p + "mixer.in_proj.weight", (2 * INNER + 2 * STATE + HEADS, HIDDEN), lambda: rng.gauss(0, 0.15))
        add(p + "mixer.conv1d.weight", (INNER + 2 * STATE, 1, TAPS), lambda: rng.uniform(-0.5, 0.5))
        add(p + "mixer.conv1d.bias", (INNER + 2 * STATE,), lambda: rng.uniform(-0.5, 0.5))
        add(p + "mixer.dt_bias", (HEADS,), lambda: rng.uniform(-4, -2))
        add(p + "mixer.A_log", (HEADS,), lambda: math.log(rate * rng.uniform(0.5, 2)))
        add(p + "mixer.D", (HEADS,), lambda: rng.uniform(0.5, 1.5))
        add(p + "mixer.norm.weight", (INNER,), lambda: rng.uniform(0.8, 1.2))
        add(p + "mixer.out_proj.weight", (HIDDEN, INNER), lambda: rng.gauss(0, 0.15))
    add("backbone.norm_f.weight", (HIDDEN,), lambda: rng.uniform(0.8, 1.2))
    return t


def write_official(folder, tensors):
    """config.json and pytorch_model.bin as torch.save writes it: a zip of a pickle and raw storages, the head sharing the
    embedding's."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "d_model": HIDDEN, "d_intermediate": 0, "n_layer": LAYERS, "vocab_size": VOCAB, "ssm_cfg": {"layer": "Mamba2", "d_state": STATE, "headdim": HEAD},
        "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 24, "tie_embeddings": True}))
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    class FloatStorage:
        pass

    def _rebuild_tensor_v2(*_):
        pass

    FloatStorage.__module__, FloatStorage.__qualname__ = "torch", "FloatStorage"
    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch.FloatStorage, utils._rebuild_tensor_v2, torch._utils = FloatStorage, _rebuild_tensor_v2, utils
    sys.modules.update({"torch": torch, "torch._utils": utils})

    class Storage:
        def __init__(self, key, count):
            self.key, self.count = key, count

    class Tensor:
        def __init__(self, storage, shape):
            self.storage, self.shape = storage, shape

        def __reduce__(self):
            strides, step = [], 1
            for n in reversed(self.shape):
                strides.insert(0, step)
                step *= n
            return _rebuild_tensor_v2, (self.storage, 0, self.shape, tuple(strides), False, collections.OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            return ("storage", FloatStorage, thing.key, "cpu", thing.count) if isinstance(thing, Storage) else None

    state, storages = collections.OrderedDict(), []
    for name, (shape, numbers) in tensors.items():
        storages.append(struct.pack(f"<{len(numbers)}f", *numbers))
        state[name] = Tensor(Storage(str(len(storages) - 1), len(numbers)), shape)
    state["lm_head.weight"] = Tensor(state["backbone.embedding.weight"].storage, (ROWS, HIDDEN))
    text = io.BytesIO()
    Pickler(text, protocol=2).dump(state)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", text.getvalue())
        for i, raw in enumerate(storages):
            archive.writestr(f"archive/data/{i}", raw)
        archive.writestr("archive/version", "3\n")


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (tuple(t["shape"]), raw[8 + length + t["data_offsets"][0] : 8 + length + t["data_offsets"][1]]) for name, t in header.items()}


def first_windows(tensors, ids):
    """Layer 0's windows from its definition: embedding, norm, the rows of in_proj that make dt."""
    embedding, norm = tensors["backbone.embedding.weight"][1], tensors["backbone.layers.0.norm.weight"][1]
    rows = tensors["backbone.layers.0.mixer.in_proj.weight"][1]
    bias, rate = tensors["backbone.layers.0.mixer.dt_bias"][1], tensors["backbone.layers.0.mixer.A_log"][1]
    first, by_id = 2 * INNER + 2 * STATE, {}
    for token in set(ids):
        x = embedding[token * HIDDEN : (token + 1) * HIDDEN]
        scale = 1 / math.sqrt(sum(v * v for v in x) / HIDDEN + 1e-5)
        x = [v * scale * w for v, w in zip(x, norm)]
        dt = [math.log1p(math.exp(sum(a * b for a, b in zip(rows[(first + h) * HIDDEN :], x)) + bias[h])) for h in range(HEADS)]
        by_id[token] = statistics.median(1 / (1 - math.exp(-math.exp(rate[h]) * dt[h])) for h in range(HEADS))
    return statistics.median(by_id[token] for token in ids)


with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    source, text, tensors = root / "official", root / "text.txt", make_tensors()
    write_official(source, tensors)
    (source / "generation_config.json").write_text('{"top_p": 0.5}')
    text.write_bytes(b"".join(b"The %d. line says %d times %d.\n" % (i, i * i % 97, i % 13) for i in range(40)))
    ids = list(text.read_bytes())
    given = ["--data", text, "--tokenizer", "bytes"]

    # Windows: a table, JSON, a figure.
    seen = json.loads(palimpsa("inspect", source, "--windows", *given, "--json", "--top", 2, "--plot", root / "w.svg"))
    layers = seen["layers"]
    check([x["layer"] for x in layers] == list(range(LAYERS)) and seen["tokens"] == len(ids), "inspect --windows: layers or tokens")
    expected = first_windows(tensors, ids)
    check(abs(layers[0]["median_n_t"] - expected) <= 1e-4 * expected, f"layer 0: median N_t is {layers[0]['median_n_t']}, expected {expected}")
    ranked = sorted(range(LAYERS), key=lambda i: -layers[i]["median_n_t"])
    check([layers[i]["rank"] for i in ranked] == [1, 2, 3, 4], "ranks do not follow the medians")
    check(seen["chosen"] == sorted(ranked[:2]), f"chosen: {seen['chosen']}, expected {sorted(ranked[:2])}")
    check((root / "w.svg").read_text().startswith("<?xml"), "no figure")
    table = palimpsa("inspect", source, "--windows", *given)
    check(table.count("chosen") == LAYERS + 1 and "median N_t" in table, "the table of windows")
    check(palimpsa("inspect", source, "--windows", *given, "--tokens", 32, "--plot", root / "w.png").count("wrote") == 1, "wrote")

    # Surgery: choice, proof, and every tensor of the source to the bit.
    done = json.loads(palimpsa("convert", source, root / "hybrid", "--metaplastic", "top:2", *given, "--seed", 1, "--json"))
    check(done["metaplastic_layers"] == seen["chosen"], "convert chooses other layers than inspect")
    check(done["proof"]["off"] <= 1e-6 and 0 < done["proof"]["on"] < 1, f"the proof: {done['proof']}")
    config, made = json.loads((root / "hybrid" / "config.json").read_text()), read_safetensors(root / "hybrid" / "model.safetensors")
    check(config["model_type"] == "meta_mamba2" and config["metaplastic_layers"] == seen["chosen"] and config["finetuning"] is True, "config.json")
    for key, (shape, numbers) in tensors.items():
        got = made.pop(key.replace("backbone.embedding.", "backbone.embeddings."), None)
        check(got == (shape, struct.pack(f"<{len(numbers)}f", *numbers)), f"{key} is not as it was")
    check(len(made) == 4 * 2, f"unexpected tensors: {sorted(made)}")
    for key, (shape, raw) in made.items():
        numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
        if key.endswith("b_scale"):
            check(shape == (HEADS,) and all(0.1 <= x <= 1 for x in numbers), key)
        elif key.endswith("Ip_log"):
            check(shape == (HEADS,) and not any(numbers), key)
        elif key.endswith("b_proj.weight"):
            check(shape == (INNER, 2) and all(abs(x) <= 2**-0.5 for x in numbers) and max(numbers) > 0.6, key)
        else:
            check(key.endswith("b_rank_proj.weight") and shape == (2, HIDDEN) and 0.01 < statistics.pstdev(numbers) < 0.03, key)
    check((root / "hybrid" / "generation_config.json").read_text() == '{"top_p": 0.5}', "generation_config.json goes along")
    check("hybrid Palimpsa-M" in palimpsa("inspect", root / "hybrid"), "inspect of the hybrid")
    palimpsa("inspect", root / "hybrid", "--windows", "--data", text)  # its tokenizer went along
    palimpsa("convert", source, root / "same", "--metaplastic", "top:2", *given, "--seed", 1)
    for file in ("config.json", "model.safetensors"):
        check((root / "same" / file).read_bytes() == (root / "hybrid" / file).read_bytes(), f"the same seed makes another {file}")

    # Fine-tuning by recipe: the loss falls, b_scale moves; the source is trained alike, as a control.
    book, configs = root / "book.txt", pathlib.Path(__file__).resolve().parents[2] / "configs"
    book.write_bytes(text.read_bytes() * 8)
    short_run = ["--data", book, "--tokenizer", "bytes", "--steps", 30, "--row", 256, "--context", 128, "--batch", 2, "--lr", 3e-3, "--warmup", 5, "--log-every", 1, "--threads", 1]
    palimpsa("train", "--recipe", "metaplastic", "--model", root / "hybrid", *short_run, "--out", root / "tuned")
    lines = [json.loads(line) for line in (root / "tuned" / "metrics.jsonl").read_text().splitlines()]
    losses = [x["loss"] for x in lines if "loss" in x]
    check(statistics.mean(losses[-5:]) < statistics.mean(losses[:5]) - 0.5, f"fine-tuning does not lower the loss: {losses[:5]} ... {losses[-5:]}")
    scales = [x["b_scale"] for x in lines if "b_scale" in x]
    check(all((a is None) == (i not in seen["chosen"]) and (a is None or abs(a - b) > 1e-3) for i, (a, b) in enumerate(zip(scales[0], scales[-1]))), f"b_scale: {scales[0]}, {scales[-1]}")
    check(all(len(x["n_t"]) == len(x["ratio"]) == LAYERS for x in lines if "b_scale" in x), "windows and ratios are logged")
    palimpsa("train", "--config", configs / "metaplastic.json", "--model", source, *short_run, "--lr-factor", "", "--out", root / "control")
    # A directory is meant where it holds a checkpoint, though its name is a preset's too.
    (root / "mamba2-130m").symlink_to(source)
    done = subprocess.run([program, *map(str, ["train", "--recipe", "metaplastic", "--lr-factor", "", "--model", "mamba2-130m", *short_run, "--steps", 2, "--out", root / "named"])],
                          capture_output=True, text=True, cwd=root)
    check(done.returncode == 0 and "weights from the directory mamba2-130m" in done.stdout, f"a directory with a preset's name: {done.stdout}{done.stderr}")
    refused(["train", "--recipe", "metaplastic", "--model", source, "--data", book, "--tokenizer", "bytes", "--warmup", 0, "--out", root / "unmatched"], "learning-rate factor of '*.b_scale'")
    palimpsa("train", "--config", configs / "metaplastic-alone.json", "--model", root / "hybrid", *short_run, "--out", root / "alone")
    alone = read_safetensors(root / "alone" / "checkpoints" / "step-30" / "model.safetensors")
    for key, value in read_safetensors(root / "hybrid" / "model.safetensors").items():
        check((alone[key] == value) == (".b_" not in key), f"plastic parameters alone: {key}")
    palimpsa("train", "--config", configs / "metaplastic-exact.json", "--model", root / "hybrid", *short_run, "--out", root / "steep")
    said = subprocess.run([program, *map(str, ["train", "--recipe", "metaplastic", "--model", root / "hybrid", *short_run, "--warmup", 200, "--steps", 2, "--out", root / "brief"])],
                          capture_output=True, text=True).stderr
    check("warning: the run of 2 updates ends within its warm-up of 200" in said, said)
    palimpsa("train", "--config", configs / "continue.json", "--model", root / "tuned", *short_run, "--steps", 3, "--out", root / "continue")
    palimpsa("needle", book, "--tokenizer", "bytes", "--tokens", 600, "--count", 20, "--seed", 3, "--out", root / "needles.jsonl")
    rows = [json.loads(line)["text"] for line in (root / "needles.jsonl").read_text().splitlines()]
    for row in rows:
        answer = row[row.rindex("The secret number") :]
        check(len(row.encode()) <= 600 and row.count(answer) == 2 and row.count("The secret number") == 5, f"a needle: {row}")
    check(len(rows) == len(set(rows)) == 20, "needles")
    palimpsa("train", "--config", configs / "long-context.json", "--model", root / "continue", *short_run, "--data", f"{book}=9,{root / 'needles.jsonl'}=1", "--context", 1024,
             "--row", 1024, "--steps", 3, "--out", root / "long")
    refused(["needle", book, "--tokenizer", "bytes", "--tokens", 100, "--out", root / "x.jsonl"], "leave no room")
    refused(["needle", book, "--tokenizer", "bytes", "--needles", 65, "--out", root / "x.jsonl"], "expected 1 to 64")
    refused(["needle", book, "--out", root / "x.jsonl"], "--tokenizer")
    pairs = root / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"prompt": f"What is {i} times {i}?", "response": f"It is {i * i}."}) + "\n" for i in range(60)))
    palimpsa("train", "--config", configs / "instruct.json", "--model", root / "long", *short_run, "--data", pairs, "--steps", 3, "--out", root / "instructed")
    palimpsa("train", "--config", configs / "instruct.json", "--model", source, *short_run, "--data", pairs, "--steps", 3, "--out", root / "instructed-control")
    refused(["train", "--config", configs / "instruct.json", "--model", source, *short_run, "--data", root / "needles.jsonl", "--out", root / "x"], "two strings 'prompt+response'")
    check(len(palimpsa("generate", root / "tuned", "--prompt", "The 1", "--max-tokens", 12, "--temperature", 0)) > 0, "generate")

    # Other choices, and the exact start.
    said = palimpsa("convert", source, root / "all", "--metaplastic", "all", *given, "--rank", 5, "--b-scale", "-3:-2")
    check("metaplastic layers: 0,1,2,3" in said and "fresh plasticity moves them" in said, said)
    check(read_safetensors(root / "all" / "model.safetensors")["backbone.layers.3.mixer.b_rank_proj.weight"][0] == (5, HIDDEN), "--rank")
    done = json.loads(palimpsa("convert", source, root / "exact", "--metaplastic", "0,2", *given, "--exact", "--json"))
    check(done["proof"]["on"] <= 2e-6 and done["proof"]["moved"] == 0, f"--exact: {done['proof']}")
    said = palimpsa("convert", source, root / "exact2", "--metaplastic", "1", *given, "--exact")
    check("updates" in said and "b_scale starts at -20" in said, said)
    done = json.loads(palimpsa("convert", source, root / "exact3", "--metaplastic", "1", "--exact", "--no-proof", "--json"))
    check(done["updates_to_open"] == 670 and "proof" not in done, f"--exact without a proof: {done}")
    check("670 updates" in palimpsa("convert", source, root / "exact4", "--metaplastic", "1", "--exact", "--no-proof"), "--exact without a proof")
    said = palimpsa("convert", source, root / "unproved", "--metaplastic", "3", "--no-proof")
    check("no tokenizer" in said, said)
    damaged = root / "damaged"
    palimpsa("convert", source, damaged, "--metaplastic", "3", "--no-proof", "--tokenizer", "bytes")
    (damaged / "special_tokens_map.json").write_text("{}")
    palimpsa("convert", damaged, root / "beside", "--metaplastic", "2", "--no-proof")
    check((root / "beside" / "special_tokens_map.json").exists(), "the tokenizer's other files go along")
    (damaged / "tokenizer.json").write_text("{")
    refused(["convert", damaged, root / "new", "--metaplastic", "2", "--no-proof"], "tokenizer.json")
    palimpsa("convert", root / "unproved", root / "more", "--metaplastic", "top:1", *given)  # one layer more, the first stays
    check(3 in json.loads((root / "more" / "config.json").read_text())["metaplastic_layers"], "a second surgery loses the first")
    palimpsa("convert", source, root / "half", "--metaplastic", "3", "--no-proof", "--dtype", "bf16")

    # Wrong usage: a sentence, and nothing left.
    before = sorted(p.name for p in root.iterdir())
    new, short = root / "new", root / "short.txt"
    short.write_text("too short")
    base = ["convert", source, new]
    refused([*base, "--metaplastic", "top:5", *given], "4 plain layers")
    refused([*base, "--metaplastic", "7", *given], "layers 0 to 3")
    refused([*base, "--metaplastic", "1,x", *given], "layer numbers")
    refused([*base, "--metaplastic", "top:0", *given], "top:K")
    refused([*base, "--metaplastic", "", *given], "layer numbers")
    refused([*base, "--metaplastic", "top:2"], "--data")
    refused([*base, "--metaplastic", "1"], "--data")
    refused([*base, "--metaplastic", "1", "--data", text], "--tokenizer")
    refused([*base, "--metaplastic", "1", "--data", text, "--tokenizer", "none"], "--tokenizer none: the text")
    refused([*base, "--metaplastic", "1", "--data", short, "--tokenizer", "bytes"], "9 tokens, expected at least 32")
    refused([*base, "--metaplastic", "1", *given, "--proof-tokens", "100000"], "tokens, expected at least 100000")
    refused([*base, "--metaplastic", "1", *given, "--b-scale", "1:0"], "lower one first")
    refused([*base, "--metaplastic", "1", *given, "--b-scale", "1"], "LO:HI")
    refused([*base, "--metaplastic", "1", *given, "--b-scale", "nan:1"], "two numbers")
    refused([*base, "--metaplastic", "1", *given, "--b-scale", "0:1", "--exact"], "--b-scale")
    refused(["train", "--recipe", "metaplastik", "--model", source, "--out", new], "did you mean 'metaplastic'")
    refused(["train", "--recipe", "configs/metaplastic", "--model", source, "--out", new], "--config")
    refused([*base, "--metaplastic", "1", *given, "--rank", "-1"], "--rank")
    refused([*base, "--metaplastic", "1", *given, "--dtype", "q8_0"], "f32, bf16 or f16")
    refused([*base, "--metaplastic", "1", *given, "--to", "gguf"], "--to palimpsa")
    refused([*base, "--exact", "--to", "palimpsa"], "go with --metaplastic")
    refused(["convert", source, root / "hybrid", "--metaplastic", "1", *given], "exists already")
    refused(["convert", root / "all", new, "--metaplastic", "all", *given], "metaplastic already")
    refused(["convert", root / "hybrid", new, "--metaplastic", str(seen["chosen"][0]), *given], "metaplastic already")
    refused(["inspect", source, "--windows"], "--data")
    refused(["inspect", source, "--top", "2"], "--windows")
    refused(["inspect", source, "--windows", *given, "--top", "9"], "4 layers")
    refused(["inspect", source, "--windows", *given, "--tokens", "100000"], "expected at least 100000")
    refused(["inspect", source, "--windows", "--data", short, "--tokenizer", "bytes"], "9 tokens")
    refused(["inspect", source, "--windows", "--data", root / "none", "--tokenizer", "bytes"], "none")
    refused(["inspect", source, "--windows", *given, "--plot", "w.pdf"], ".svg or .png")
    # A proof that fails, since the weights were rounded, and a disk that is full in the middle.
    refused([*base, "--metaplastic", "1", *given, "--dtype", "bf16"], "differs from its source", "--dtype", code=1)
    size = (root / "unproved" / "model.safetensors").stat().st_size
    for limit in (0, 1000, size // 2, size - 1000):
        refused([*base, "--metaplastic", "1", *given], code=1, limit=limit)
    # A signal in the middle: here, of the proof.
    (root / "long.txt").write_bytes(text.read_bytes() * 100)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = subprocess.Popen([program, *map(str, base), "--metaplastic", "1", "--data", root / "long.txt", "--tokenizer", "bytes", "--proof-tokens", "100000"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while child.poll() is None and not list(root.glob("new.*/config.json")):
            time.sleep(0.002)
        child.send_signal(number)
        said = child.communicate()[1]
        check(child.returncode == 3 and "interrupted; nothing was written" in said and said.count("\n") == 1, f"signal {number}: {child.returncode}, {said}")
    (root / "long.txt").unlink()
    short.unlink()
    check(sorted(p.name for p in root.iterdir()) == before, f"left over: {sorted(set(p.name for p in root.iterdir()) - set(before))}")
print("windows, surgery, proof and refusals: as they should be")
