#!/usr/bin/env python3
"""Checkpoints of others through `palimpsa convert`: every value arrives, every layout comes back with the same bytes, and
what cannot be converted is refused without leaving anything.

    convert.py PROGRAM
"""
import json, math, os, pathlib, random, shutil, struct, sys, tempfile

import outside

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checkpoint_writers as writers

def check(what, good, detail=""):
    outside.check(good, f"{what} {detail}")


def run(*words, **how):
    """The finished process, in text."""
    done = outside.call(*words, **how)
    done.stdout, done.stderr = (printed.decode(errors="replace") for printed in (done.stdout, done.stderr))
    return done


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], raw[8 + length + t["data_offsets"][0] : 8 + length + t["data_offsets"][1]]) for n, t in header.items()}


def read_gguf(path):
    """(name, type, dims, bytes) of every tensor of a file with the usual alignment."""
    raw, at = pathlib.Path(path).read_bytes(), 24

    def take(form):
        nonlocal at
        at += struct.calcsize(form)
        return struct.unpack_from(form, raw, at - struct.calcsize(form))

    def string():
        nonlocal at
        length = take("<Q")[0]
        at += length

    def value(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            kind, count = take("<IQ")
            for _ in range(count):
                value(kind)
        else:
            at += {0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4)

    tensors, pairs = struct.unpack_from("<QQ", raw, 8)
    for _ in range(pairs):
        string()
        value(take("<I")[0])
    listed = []
    for _ in range(tensors):
        begin = at + 8
        string()
        name = raw[begin:at].decode()
        dims = take(f"<{take('<I')[0]}Q")
        listed.append((name, dims, *take("<IQ")))
    at += -at % 32
    sizes = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144),
             13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2)}
    return {n: (kind, dims, raw[at + offset : at + offset + math.prod(dims) // sizes[kind][0] * sizes[kind][1]]) for n, dims, kind, offset in listed}


def floats(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)


root = pathlib.Path(tempfile.mkdtemp(prefix="palimpsa-convert-"))
try:
    for kind in writers.KINDS:
        folder = root / kind
        s, made = writers.write(kind, folder)
        source = folder / "model.gguf" if kind.startswith("gguf") else folder
        spec = ["--tokenizer", "none"]
        run("convert", source, folder / "as32", "--to", "official", "--dtype", "f32", *spec)
        found = read_safetensors(folder / "as32" / "model.safetensors")
        expected = {**made, "lm_head.weight": made["backbone.embedding.weight"]}
        check(f"{kind}: names", set(found) == set(expected), set(found) ^ set(expected))
        for name in expected:
            dtype, shape, raw = found.get(name, ("", [], b""))
            wanted = struct.unpack(f"<{len(expected[name][1])}f", struct.pack(f"<{len(expected[name][1])}f", *expected[name][1]))
            got = floats(raw)
            exact = not (kind.startswith("gguf") and name.endswith("A_log"))  # which GGUF holds as -exp
            same = got == wanted if exact else len(got) == len(wanted) and all(abs(a - b) <= 2e-7 * max(1, abs(b)) for a, b in zip(got, wanted))
            check(f"{kind}: {name}", dtype == "F32" and shape == expected[name][0] and same)
        config = json.loads((folder / "as32" / "config.json").read_text())
        vocab = writers.ROWS if kind.startswith("hf") else writers.VOCAB
        check(f"{kind}: vocabulary", config["vocab_size"] == vocab and config["ssm_cfg"]["ngroups"] == s["G"], config)
        # there and back: ours, then the official layout, in the dtype of the source
        run("convert", source, folder / "ours", "--to", "palimpsa", *spec)
        run("convert", folder / "ours", folder / "back", "--to", "official", *spec)
        run("convert", source, folder / "straight", "--to", "official", *spec)
        run("convert", folder / "ours", folder / "hf", "--to", "hf", *spec)
        run("convert", folder / "hf", folder / "hf-back", "--to", "official", *spec)
        straight = read_safetensors(folder / "straight" / "model.safetensors")
        ids = json.loads((folder / "hf" / "config.json").read_text())
        check(f"{kind}: Hugging Face shall not end a text at its own default", "eos_token_id" in ids and ids["eos_token_id"] != 2, ids)
        check(f"{kind}: ours and back", read_safetensors(folder / "back" / "model.safetensors") == straight)
        check(f"{kind}: Hugging Face and back", read_safetensors(folder / "hf-back" / "model.safetensors") == straight)
        a, b = (json.loads((folder / d / "config.json").read_text()) for d in ("back", "straight"))
        check(f"{kind}: configuration", a["ssm_cfg"] == b["ssm_cfg"] and a["vocab_size"] == b["vocab_size"], (a, b))
        if kind in ("official", "torch"):
            given = read_safetensors(folder / "model.safetensors") if kind == "official" else {n: ("F32", t[0], writers.packed(t[1], "F32")) for n, t in expected.items()}
            check(f"{kind}: the very bytes", straight == given)
        # GGUF and back; A_log passes through exp and log
        run("convert", folder / "ours", folder / "g.gguf", "--to", "gguf", *spec)
        run("convert", folder / "g.gguf", folder / "g-back", "--to", "official", *spec)
        returned = read_safetensors(folder / "g-back" / "model.safetensors")
        for name, (dtype, shape, raw) in straight.items():
            if name.endswith(writers.MATRICES):
                check(f"{kind}: GGUF and back: {name}", returned[name] == (dtype, shape, raw))
            elif dtype == "F32" and not name.endswith("A_log"):
                check(f"{kind}: GGUF and back: {name}", returned[name][2] == raw)
        if kind.startswith("gguf"):
            run("convert", source, folder / "same.gguf", "--to", "gguf", *spec)
            check(f"{kind}: GGUF to GGUF copies", read_gguf(folder / "same.gguf") == read_gguf(source))
            # a type that is only read: held as Q8_0, which is said and shown
            done = run("inspect", source, "--json")
            stored, seen = kind[5:].upper(), json.loads(done.stdout)
            matrices = sum(len(values) for name, (_, values) in made.items() if name.endswith(writers.MATRICES))
            only_read = stored in ("Q4_1", "Q5_1", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS")
            check(f"{kind}: its type in memory", seen["parameters_by_type"].get("Q8_0" if only_read else stored or "F32", 0) >= matrices, seen)
            check(f"{kind}: its type in the file", seen["held_as_q8_0"] == ({stored: matrices} if only_read else {}), seen)
            count = 1 + 2 * s["layers"]
            check(f"{kind}: said", (f"models do not compute with {stored}; {count} matrices are held as Q8_0" in done.stderr) == only_read, done.stderr)
            check(f"{kind}: shown", (f"are {stored} in the file" in run("inspect", source).stdout) == only_read)
        run("convert", folder / "ours", folder / "q.gguf", "--to", "gguf", "--dtype", "q8_0", *spec)
        run("inspect", folder / "q.gguf")

    # a file whose rows fill no blocks of 256: other programs put Q5_0 there for Q4_K, Q5_1 for Q5_K and Q8_0 for Q6_K
    s, rng = writers.sizes(), random.Random(5)
    made = writers.tensors(s, rng)
    listed = writers.g_tensors(s, made, "F32", rng)
    for n, (name, dims, _, _) in enumerate(listed):
        for end, stored in (("token_embd.weight", "Q8_0"), ("ssm_in.weight", "Q5_0"), ("ssm_out.weight", "Q5_1")):
            if name.endswith(end):
                listed[n] = (name, dims, writers.IDS[stored], writers.random_blocks(stored, math.prod(dims), rng)[0])
    (root / "fallback.gguf").write_bytes(writers.gguf_bytes(writers.g_pairs(s), listed))
    seen = json.loads(run("inspect", root / "fallback.gguf", "--json", "--tensors").stdout)
    types = {t["name"].rsplit("mixer.", 1)[-1]: t["type"] for t in seen["tensors"] if t["type"] != "F32"}
    check("other types of rows", types == {"backbone.embeddings.weight": "Q8_0", "in_proj.weight": "Q5_0", "out_proj.weight": "Q8_0"}, types)
    run("generate", root / "fallback.gguf", "--prompt", "abc", "--max-tokens", 4)
    for dtype, expected in (("q4_k", "Q5_0"), ("q5_k", "Q8_0"), ("q6_k", "Q8_0"), ("q5_0", "Q5_0")):
        run("convert", root / "official", root / f"rows-of-32-{dtype}.gguf", "--dtype", dtype, "--tokenizer", "none")
        types = {name: kind for name, (kind, _, _) in read_gguf(root / f"rows-of-32-{dtype}.gguf").items()}
        kinds = {types[name] for name in ("blk.0.ssm_in.weight", "blk.1.ssm_out.weight")}
        check(f"rows of 32 and 64 as {dtype}", kinds == {writers.IDS[expected]} and types["token_embd.weight"] == writers.IDS["Q8_0"], types)

    # blocks that are in the type asked for already are copied, not made anew
    run("convert", root / "gguf_q8_0" / "model.gguf", root / "asked.gguf", "--to", "gguf", "--dtype", "q8_0", "--tokenizer", "none")
    check("q8_0 to q8_0 copies", read_gguf(root / "asked.gguf") == read_gguf(root / "gguf_q8_0" / "model.gguf"))

    # transformers before 5.23 took the norm over all channels: a warning, unless the file states norm_groups
    hf_config = json.loads((root / "hf" / "config.json").read_text())
    for version, warns in ((None, False), ("4.43.0.dev0", True), ("5.22.2", True), ("5.23.0", False), ("6.0.0", False), ("new", False)):
        for stated in (False, True):
            (root / "hf" / "config.json").write_text(json.dumps({**hf_config, "transformers_version": version, **({"norm_groups": 1} if stated else {})}))
            said = run("inspect", root / "hf").stderr
            check(f"norm groups, version {version}, stated {stated}", ("norm_groups" in said) == (warns and not stated), said)
    (root / "hf" / "config.json").write_text(json.dumps(hf_config))

    # what a configuration says of other things stays, and a file for generating goes along without any tokenizer
    writers.write("torch", root / "stated")
    config = json.loads((root / "stated" / "config.json").read_text())
    (root / "stated" / "config.json").write_text(json.dumps({**config, "eos_token_id": 7, "remark": "kept"}))
    (root / "stated" / "generation_config.json").write_text('{"top_p": 0.5}')
    for layout in ("palimpsa", "hf"):
        run("convert", root / "stated", root / f"stated-{layout}", "--to", layout)
        config = json.loads((root / f"stated-{layout}" / "config.json").read_text())
        check(f"{layout}: eos_token_id stays", config.get("eos_token_id") == 7, config)
        check(f"{layout}: how to generate goes along", (root / f"stated-{layout}" / "generation_config.json").exists())
        check(f"{layout}: nothing official stays", not {"ssm_cfg", "d_model", "n_layer"} & set(config), config)
    check("other keys stay", json.loads((root / "stated-palimpsa" / "config.json").read_text()).get("remark") == "kept")

    # a tokenizer goes along
    run("convert", root / "gguf" / "model.gguf", root / "with", "--to", "palimpsa")
    check("the vocabulary of a GGUF comes along", (root / "with" / "tokenizer.gguf").exists())
    run("convert", root / "with", root / "with.gguf", "--to", "gguf")
    run("convert", root / "with.gguf", root / "with-back", "--to", "palimpsa")
    check("and comes back", (root / "with-back" / "tokenizer.gguf").exists())

    # a learned vocabulary through GGUF: the same ids, and padding that is not a token
    text = "the cat sat on the mat, and the hat sat on the cat.  So it goes: 12 cats, 34 mats.\n"
    (root / "text").write_text(text * 20)
    run("tokenize", "--train-bpe", 300, "--out", root / "learned", root / "text")
    writers.VOCAB, writers.ROWS = 300, 304
    writers.write("torch", root / "rows")
    writers.VOCAB, writers.ROWS = 27, 32
    run("convert", root / "rows", root / "rows.gguf", "--to", "gguf", "--tokenizer", root / "learned")
    ids = [run("tokenize", "--tokenizer", spec, "--encode", text).stdout for spec in (root / "learned", root / "rows.gguf")]
    check("the same ids from GGUF", ids[0] == ids[1] and len(ids[0].split()) > 10, ids)
    run("generate", root / "rows.gguf", "--prompt", "the cat", "--max-tokens", 16)
    run("convert", root / "rows.gguf", root / "rows-back", "--to", "official")
    check("padding is not a vocabulary", json.loads((root / "rows-back" / "config.json").read_text())["vocab_size"] == 300)

    # limits of the time step: an infinite one as each layout can say it, and every way to write it is read
    hf_tensors = writers.safetensors_bytes(writers.hf_names(json.loads((root / "official" / "expected.json").read_text())))

    def hf_directory(name, tensors=hf_tensors, **changes):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps({**writers.hf_config(writers.sizes()), **changes}))
        (root / name / "model.safetensors").write_bytes(tensors)
        return root / name

    tagged = {"__float__": "Infinity"}
    for n, high in enumerate((math.inf, tagged, "Infinity", "inf", None, 3.5e38)):
        source = hf_directory(f"limit{n}", time_step_limit=[0.25, high])
        for layout, key in (("hf", "time_step_limit"), ("palimpsa", "time_step_limit"), ("official", "dt_limit")):
            run("convert", source, root / f"limit{n}-{layout}", "--to", layout)
            config = json.loads((root / f"limit{n}-{layout}" / "config.json").read_text())
            limit = config.get("ssm_cfg", config).get(key)
            check(f"{layout}: no upper limit, given as {high}", limit == ([0.25, 3.4028234663852886e38] if layout == "official" else [0.25, tagged]), limit)
        run("convert", root / f"limit{n}-official", root / f"limit{n}-back", "--to", "hf")
        check("and back", json.loads((root / f"limit{n}-back" / "config.json").read_text())["time_step_limit"] == [0.25, tagged])
    run("convert", hf_directory("unlimited", time_step_limit=[0.0, math.inf]), root / "unlimited-palimpsa", "--to", "palimpsa")
    check("no limit is not stated", "time_step_limit" not in json.loads((root / "unlimited-palimpsa" / "config.json").read_text()))
    for n, limit in enumerate(([0.25, "much"], [0.25, {"__float__": "NaN"}], [tagged, tagged], [0.25, [1]])):
        done = run("inspect", hf_directory(f"wrong-limit{n}", time_step_limit=limit), code=2)
        check(f"a limit of {limit}", "two numbers, of which the second may be infinite" in done.stderr, done.stderr)

    # numbers that no one wants: said with the tensor's name and their count
    def told(what, done, *words):
        check(what, any(all(w in line for w in words) for line in done.stderr.splitlines() if "warning" in line), done.stderr)

    values = json.loads((root / "official" / "expected.json").read_text())
    norm, matrix = values["backbone.layers.1.norm.weight"][1], values["backbone.layers.0.mixer.out_proj.weight"][1]
    norm[3] = norm[5] = math.nan
    matrix[7], matrix[8], matrix[9] = 1e5, -2e5, 65504.0
    spoiled = hf_directory("spoiled", writers.safetensors_bytes(writers.hf_names(values)))
    for n, options in enumerate((("--to", "official"), ("--to", "palimpsa", "--dtype", "bf16"), ("--to", "gguf"), ("--to", "gguf", "--dtype", "q8_0"))):
        done = run("convert", spoiled, root / f"spoiled{n}", *options, "--tokenizer", "none")
        told(f"NaN, {options}", done, "layers.1.norm.weight", "holds 2 NaN")
        check("and nothing else", done.stderr.count("warning") == 1, done.stderr)
    for n, options in enumerate((("--to", "official", "--dtype", "f16"), ("--dtype", "f16", "--to", "gguf"))):
        done = run("convert", spoiled, root / f"spoiled-f16-{n}", *options, "--tokenizer", "none")
        told(f"f16, {options}", done, "layers.0.mixer.out_proj.weight", "2 finite values", "F16")
    values = json.loads((root / "official" / "expected.json").read_text())
    values["backbone.layers.0.mixer.A_log"][1][1] = 100.0
    done = run("convert", hf_directory("fast", writers.safetensors_bytes(writers.hf_names(values))), root / "fast.gguf", "--to", "gguf", "--tokenizer", "none")
    told("a decay beyond F32", done, "layers.0.mixer.A_log", "1 finite values")
    raw = (root / "gguf" / "model.gguf").read_bytes()
    decay = read_gguf(root / "gguf" / "model.gguf")["blk.1.ssm_a"][2]
    check("the decay is found", raw.count(decay) == 1)
    (root / "growing.gguf").write_bytes(raw.replace(decay, struct.pack("<f", 0.5) + decay[4:8] + struct.pack("<f", 2) + decay[12:]))
    for target in ("growing", "growing-again.gguf"):
        done = run("convert", root / "growing.gguf", root / target, "--to", "gguf" if target.endswith("gguf") else "palimpsa", "--tokenizer", "none")
        told("a positive ssm_a", done, "layers.1.mixer.A_log", "holds 2 NaN")

    # where things are written
    (root / "place" / "empty").mkdir(parents=True)
    (root / "place" / "link").symlink_to("empty")
    run("convert", root / "torch", root / "place" / "link", "--to", "official")
    check("a link to an empty directory", (root / "place" / "empty" / "config.json").exists() and (root / "place" / "link").is_symlink())
    (root / "place" / "dot").mkdir()
    run("convert", root / "torch", f"{root}/place/dot/.", "--to", "official")
    check("a directory with a dot after it", (root / "place" / "dot" / "config.json").exists())
    (root / "place" / "slash").mkdir()
    (root / "place" / "to-slash").symlink_to("slash")
    run("convert", root / "torch", f"{root}/place/to-slash/", "--to", "official")
    check("a link with a slash after it", (root / "place" / "slash" / "config.json").exists())
    run("convert", root / "torch", root / "new" / "deep" / "x.gguf", "--to", "gguf", "--tokenizer", "none")
    check("parents of a GGUF file", (root / "new" / "deep" / "x.gguf").exists())
    (root / "here").mkdir()
    for target in (".", "../here", f"{root}/here/."):
        done = run("convert", root / "torch", target, "--to", "official", code=2, cwd=root / "here")
        check(f"'{target}' is refused", "is the current directory" in done.stderr and not list((root / "here").iterdir()), done.stderr)
    (root / "place" / "nowhere").symlink_to("gone")
    done = run("convert", root / "torch", root / "place" / "nowhere", "--to", "official", code=2)
    check("a link to nothing", "exists already" in done.stderr, done.stderr)
    for target in (os.fsencode(root) + b"/caf\xe9", os.fsencode(root) + b"/caf\xe9.gguf"):
        done = run("convert", root / "torch", target, "--to", "gguf" if target.endswith(b"gguf") else "official", "--tokenizer", "none", "--json")
        check("a path that is not UTF-8", bytes.fromhex(json.loads(done.stdout)["target"]["bytes"]) == target, done.stdout)
        done = run("inspect", target, "--json")
        check("is inspected", bytes.fromhex(json.loads(done.stdout)["path"]["bytes"]) == target, done.stdout)

    # refused, with nothing left
    (root / "endian.gguf").write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64))

    def refused(*arguments, says):
        before = sorted(p.name for p in root.iterdir())
        done = run("convert", *arguments, code=2)
        check(f"'{says}'", says in done.stderr, done.stderr)
        check("nothing is left", sorted(p.name for p in root.iterdir()) == before, sorted(p.name for p in root.iterdir()))

    refused(root / "gone", root / "x", "--to", "palimpsa", says="cannot open")
    refused(root / "gone", root / "go", "--to", "palimpsa", says="cannot open")  # its sentence begins as the target's would
    refused(root / "torch", root / "x", "--to", "elephant", says="--to expects")
    refused(root / "torch", root / "x", says="--to is missing")
    refused(root / "torch", root / "x", "--to", "official", "--dtype", "q8_0", says="GGUF only")
    refused(root / "torch", root / "x", "--to", "official", "--dtype", "i4", says="expected f32")
    refused(root / "torch", root / "hf", "--to", "official", says="not empty")
    refused(root / "torch", root / "with.gguf", "--to", "gguf", "--tokenizer", "none", says="exists already")
    refused(root / "endian.gguf", root / "never", "--to", "palimpsa", says="big-endian")
    refused(root / "torch", root / "x.gguf", "--to", "gguf", says="has no tokenizer")
    check("'bytes' is not offered", "bytes" not in run("convert", root / "torch", root / "x.gguf", "--to", "gguf", code=2).stderr)
    refused(root / "torch", root / "x.gguf", "--to", "gguf", "--tokenizer", "bytes", says="256 ids")
    refused(root / "torch", root / "with.gguf" / "x", "--to", "official", says="Not a directory")
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models"
    for kind, architecture in (("hybrid_m", b"metamamba2"), ("mqar_palimpsa_d", b"palimpsa"), ("mqar_gdn", b"palimpsa-gdn"), ("transformer", b"palimpsa-transformer")):
        for dtype in ("q8_0", "q6_k", "q5_k", "q5_0", "q4_k", "q4_0", "bf16", "f16"):
            file = root / f"{kind}-{dtype}.gguf"
            run("convert", golden / kind, file, "--dtype", dtype, "--tokenizer", "none", "--threads", 3)
            check(f"architecture of {file.name}", b"general.architecture\x08\0\0\0" + len(architecture).to_bytes(8, "little") + architecture in file.read_bytes()[:300])
            again = root / f"again-{kind}-{dtype}" / file.name
            again.parent.mkdir()
            run("convert", golden / kind, again, "--dtype", dtype, "--tokenizer", "none", "--threads", 1)
            check("the same bytes", file.read_bytes() == again.read_bytes())
            kept = root / f"kept-{kind}-{dtype}" / file.name
            kept.parent.mkdir()
            run("convert", file, kept, "--tokenizer", "none")
            check("types are kept", file.read_bytes() == kept.read_bytes())
            wide = {n: kind for n, (kind, dims, _) in read_gguf(file).items() if len(dims) == 2 and dims[0] % 256 and dims[0] % 32}
            check(f"{file.name}: rows that fill no block are F16", dtype == "bf16" or all(kind == 1 for kind in wide.values()), wide)
        run("convert", root / f"{kind}-q8_0.gguf", root / f"{kind}-f32", "--to", "palimpsa", "--dtype", "f32")
        seen = [json.loads(run("inspect", root / f"{kind}{end}", "--json").stdout) for end in ("-q8_0.gguf", "-f32")]
        check("the same kind", seen[0]["kind"] == seen[1]["kind"] and seen[0]["parameters"] == seen[1]["parameters"], seen)
        check("fewer bytes", seen[0]["weight_bytes"] < seen[1]["weight_bytes"] / 2, seen)
        for dtype, foretold in seen[1]["weight_bytes_as"].items():
            found = json.loads(run("inspect", root / f"{kind}-{dtype.lower()}.gguf", "--json").stdout)["weight_bytes"]
            check(f"as many bytes in {dtype} as foretold", found == foretold, (found, foretold))
    # what it cost, as eval measures the two models
    (root / "ids.txt").write_bytes(bytes(range(32, 48)) * 20)
    said = {}
    for dtype in ("f32", "q8_0", "q4_0"):
        file = root / f"cost-{dtype}.gguf"
        said[dtype] = json.loads(run("convert", golden / "palimpsa_d", file, "--dtype", dtype, "--tokenizer", "bytes", "--data", root / "ids.txt", "--json").stdout)["cost"]
        read = json.loads(run("eval", golden / "palimpsa_d", file, "--tokenizer", "bytes", "--data", root / "ids.txt", "--json").stdout)
        for which, model in zip(("loss_before", "loss_after"), read):
            check(f"{dtype}: {which}", abs(said[dtype][which] - model["nll"]) <= 1e-6 * model["nll"] and said[dtype]["tokens"] == 320, (said, model["nll"]))
    check("nothing is lost in f32", said["f32"]["kl_most"] < 1e-9 and said["f32"]["changed"] == 0, said)
    check("more is lost in fewer bits", said["q4_0"]["kl_mean"] > 4 * said["q8_0"]["kl_mean"] > 0 and said["q4_0"]["kl_most"] > said["q4_0"]["kl_mean"], said)
    report = run("convert", golden / "palimpsa_d", root / "told.gguf", "--dtype", "q4_0", "--tokenizer", "bytes", "--data", root / "ids.txt", "--tokens", 100).stdout
    check("said in words", "on 100 tokens: loss" in report and "KL divergence" in report and "% of positions" in report, report)
    refused(golden / "palimpsa_d", root / "x.gguf", "--dtype", "q4_0", "--tokenizer", "bytes", "--data", root / "no text", says="no text")
    refused(golden / "palimpsa_d", root / "x.gguf", "--dtype", "q4_0", "--tokenizer", "bytes", "--data", root / "ids.txt", "--tokens", 1, says="--tokens expects 2")
    done = run("train", "--task", "text", "--model", root / "hybrid_m-q8_0.gguf", "--data", root / "ids.txt", "--tokenizer", "bytes", "--out", root / "run", code=2)
    check("quantised files are not trained", "not trained; convert it to F32 first" in done.stderr, done.stderr)
    refused(golden / "hybrid_m", root / "x", "--to", "official", says="2 of 4 layers are metaplastic")
    refused(golden / "transformer", root / "x", "--to", "hf", says="plain Mamba2 and published families alone")
    for layout in ("hf", "official"):
        refused(golden / "palimpsa_m_wo_meta", root / "x", "--to", layout, says="the gated norm has 1 group and the keys 2")
    refused(golden / "palimpsa_m_wo_meta", root / "x", "--to", "hf", says="transformers since 5.23.0")
    run("convert", hf_directory("limited", time_step_limit=[0.1, 0.5]), root / "limited.gguf", "--to", "gguf", "--tokenizer", "none")
    check("what llama.cpp does not have is ours", b"metamamba2" in (root / "limited.gguf").read_bytes()[:300])
    refused(hf_directory("epsilon", layer_norm_epsilon=1e-6), root / "x", "--to", "official", says="epsilon")
    sizes = writers.sizes()
    sizes.update(inner=80, P=20)  # 2.5 times 32
    values = writers.tensors(sizes, random.Random(1))
    (root / "odd").mkdir()
    (root / "odd" / "config.json").write_text(json.dumps({**writers.official_config(sizes), "ssm_cfg": {**writers.official_config(sizes)["ssm_cfg"], "expand": 2.5}}))
    (root / "odd" / "model.safetensors").write_bytes(writers.safetensors_bytes(values))
    refused(root / "odd", root / "x", "--to", "hf", says="80 channels inside for a hidden size of 32")
    run("convert", root / "odd", root / "odd-ours", "--to", "palimpsa")
    empty = root / "empty"
    empty.mkdir()
    run("convert", root / "torch", empty, "--to", "official")
    check("an empty directory is filled", (empty / "model.safetensors").exists())
    # a disk that is full: a limit on the size of files stands in for it
    run("convert", root / "torch", root / "big", "--to", "official", code=1, file_limit=20000)
    run("convert", root / "torch", root / "big.gguf", "--to", "gguf", "--tokenizer", "none", code=1, file_limit=20000)
    check("nothing is left", not [p.name for p in root.iterdir() if p.name.startswith("big")], [p.name for p in root.iterdir()])
finally:
    shutil.rmtree(root)
print(f"{len(writers.KINDS)} kinds of checkpoints converted")
