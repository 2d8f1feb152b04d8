#!/usr/bin/env python3
"""seeds.py FUZZ_SEEDS DIR: a first corpus for every target, in DIR/TARGET. FUZZ_SEEDS is the program built from seeds.c."""
import json, os, pathlib, random, re, struct, subprocess, sys, tempfile, zipfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "tests"))
import checkpoint_writers as writers

MARK = b"\n%%\n"
TEXT = "the cat  sat\n\n on 1234 mats; it's étude 日本。 e\u0301 <|endoftext|> </s>\r\n".encode()

SIGN = "\u2581"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# Tokenizers have one feature and few tokens each: a mutation of a long file hardly meets its one interesting place, and
# every token costs time. Some with all 256 bytes are in tests/fuzz-regressions and seeds.c.
def byte_level(names):
    return [n.replace(" ", "\u0120") for n in names]


def tokenizer_jsons():
    words = ["t", "h", "e", "a", " ", "he", "the", " the"]
    merges = ["h e", "t he"]

    def made(words=words, merges=merges, model={}, added=(), **parts):
        vocab = {w: i for i, w in enumerate(words)}
        first = len(vocab)
        tokens = [{"id": vocab.get(a["content"], first + i), **a} for i, a in enumerate(added)]
        return {"added_tokens": tokens, **parts, "model": {"type": "BPE", **model, "vocab": vocab, "merges": merges}}

    def split(behaviour, invert=False, **pattern):
        return {"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": invert}

    def sequence(kind, *parts):
        return {"type": "Sequence", kind: list(parts)}

    end = {"content": "<|endoftext|>", "special": True}
    yield "bytes", made(byte_level(words), ["h e", "t he", "\u0120 the"], added=[end],
                        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False}, decoder={"type": "ByteLevel"})
    yield "pairs", made(merges=[["h", "e"], ["t", "he"]], model={"ignore_merges": True})
    yield "characters", made(["t", "h", "e", " "], [])
    yield "metaspace", made(["<unk>", SIGN, "t", "h", "e", "he"], ["h e"], {"unk_token": "<unk>", "fuse_unk": True},
                            pre_tokenizer={"type": "Metaspace", "replacement": SIGN, "prepend_scheme": "first", "split": True},
                            decoder={"type": "Metaspace", "replacement": SIGN})
    yield "llama", made(["<unk>", SIGN, "t", "h", "e", "he", "<0xC3>", "<0xA9>"], ["h e"], {"unk_token": "<unk>", "byte_fallback": True},
                        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": SIGN}, {"type": "Replace", "pattern": {"String": " "}, "content": SIGN}),
                        decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": SIGN}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield form, made([*words, "é", "e\u0301"], normalizer={"type": form})
    yield "llama3", made(byte_level(words), pre_tokenizer=sequence("pretokenizers", split("Isolated", Regex=LLAMA3),
                                                                   {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}))
    for behaviour in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield behaviour, made(pre_tokenizer=split(behaviour, String=" "))
        yield behaviour + "Regex", made(pre_tokenizer=split(behaviour, True, Regex=r"\w+|\s"))
    yield "digits", made(["1", "2", "12"], ["1 2"], pre_tokenizer={"type": "Digits", "individual_digits": True})
    yield "added", made(normalizer={"type": "NFC"}, added=[{"content": "cat", "single_word": True},
                                                           {"content": "sat", "lstrip": True, "rstrip": True, "normalized": True}, end])
    around = {"SpecialToken": {"id": "e"}}
    yield "template", made(added=[end], post_processor={"type": "TemplateProcessing", "single": [around, {"Sequence": {"id": "A"}}, around],
                                                        "special_tokens": {"e": {"ids": [8]}}})
    yield "roberta", made(post_processor=sequence("processors", {"type": "ByteLevel"}, {"type": "RobertaProcessing", "sep": ["t", 0], "cls": ["h", 1]}))
    yield "padding", made(padding={"strategy": "BatchLongest"}, truncation=None)


def varint(x):
    return bytes([x]) if x < 128 else bytes([x & 127 | 128]) + varint(x >> 7)


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3 | 5) + struct.pack("<f", value) if isinstance(value, float) else varint(number << 3) + varint(value)


# One rule of a SentencePiece character map: t becomes h. Units: where the first byte leads, that byte with a leaf, the leaf.
CHARSMAP = struct.pack("<4I", 12, ord("u") << 10, ord("t") | 0x100 | 3 << 10, 0) + b"h\0"


def tokenizer_models():
    unknown, control, user, unused = 2, 3, 4, 5
    pieces = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control), (SIGN, -1.0, 1),
              ("t", -2.0, 1), ("he", -3.0, 1), (SIGN + "the", -4.0, 1), ("h", -5.0, 1), ("e", -6.0, 1)]

    def made(kind, more=(), trainer=b"", normaliser=field(3, 1) + field(4, 0)):
        listed = b"".join(field(1, field(1, name.encode()) + field(2, score) + (field(3, k) if k != 1 else b"")) for name, score, k in [*pieces, *more])
        return listed + field(2, field(3, kind) + trainer) + field(3, normaliser)

    for kind, name in ((1, "unigram"), (2, "bpe")):
        yield name, made(kind)
        yield name + "user", made(kind, [("cat", 0.0, user), ("sat", -7.0, unused)])
        yield name + "blanks", made(kind, normaliser=field(3, 0) + field(4, 1) + field(5, 0))
        yield name + "map", made(kind, normaliser=field(1, b"n") + field(2, CHARSMAP))
        yield name + "names", made(kind, trainer=field(44, b" ? ") + field(46, b"</s>") + field(47, b"<s>"))


def vocabularies():
    names = byte_level(["<|endoftext|>", "t", "h", "e", "c", "a", " ", "he", "the", " the"])
    lists = {"gpt2": "#version: 0.2\nh e\nt he\n\u0120 the\n", "plain": "h e\r\nt he", "none": ""}
    for name, merges in lists.items():
        yield name, json.dumps({n: i for i, n in enumerate(names)}, ensure_ascii=False).encode() + MARK + merges.encode()


def largest_counts(checkpoint):
    """The same with the largest counts that are read: a larger number in the place of one is one mutation away."""
    record, optimiser = checkpoint.split(MARK, 1)
    most = 1 << 62
    counts = {**json.loads(record), **dict.fromkeys(("step", "tokens", "skipped", "loss_count", "correct", "best_step"), most)}
    size, = struct.unpack_from("<Q", optimiser)
    header = json.loads(optimiser[8:8 + size])
    header["__metadata__"]["updates"] = str(most)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return json.dumps(counts).encode() + MARK + struct.pack("<Q", len(text)) + text + optimiser[8 + size:]


def description(file, types={}):
    """What target_gguf_model.c makes this GGUF file of; types: other ones for some tensors."""
    at = 8

    def number(form):
        nonlocal at
        at += struct.calcsize("<" + form)
        return struct.unpack_from("<" + form, file, at - struct.calcsize("<" + form))[0]

    def text():
        nonlocal at
        size = number("Q")
        at += size
        return file[at - size:at]

    def value(kind):
        return text() if kind == 8 else str(number("BbHhIifBxxQqd"[kind])).encode()

    tensors, pairs = number("Q"), number("Q")
    lines = []
    for _ in range(pairs):
        key, kind = text(), number("I")
        if kind == 9:
            element, count = number("I"), number("Q")
            lines.append([key, b"9", b"%d" % element, *(value(element) for _ in range(count))])
        else:
            lines.append([key, b"%d" % kind, value(kind)])
    for _ in range(tensors):
        name, rank = text(), number("I")
        extents = [b"%d" % number("Q") for _ in range(rank)]
        kind = number("I")
        number("Q")  # where its data begin
        lines.append([b"+" + name, b"%d" % types.get(name.decode(), kind), *extents])
    return b"".join(b"\t".join(line) + b"\n" for line in lines)


def gguf_vocabularies():
    """Pairs of small tokenizers, of each kind that GGUF files hold."""
    gpt2 = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": byte_level(["<|endoftext|>", "t", "h", "e", " ", "he", "the", "cat"]),
            "tokenizer.ggml.token_type": [3] + [1] * 6 + [4], "tokenizer.ggml.merges": ["h e", "t he"], "tokenizer.ggml.eos_token_id": 0,
            "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    for pre in ("gpt-2", "mpt", "llama-bpe", "qwen2"):
        yield pre, {"general.architecture": "gpt2", **gpt2, "tokenizer.ggml.pre": pre}
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), (SIGN, -1.0, 1), ("t", -2.0, 1), ("h", -2.5, 1), ("e", -2.5, 1), ("he", -3.0, 1),
              (SIGN + "t", -4.0, 1), ("cat", 0.0, 4)]
    names, scores, kinds = zip(*pieces)
    for kind in ("llama", "t5"):
        charsmap = struct.pack("<IIQ", 9, 0, len(CHARSMAP)) + CHARSMAP
        yield kind, {"general.architecture": "llama", "tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": list(names),
                     "tokenizer.ggml.scores": writers.Raw(struct.pack(f"<IIQ{len(scores)}f", 9, 6, len(scores), *scores)),
                     "tokenizer.ggml.token_type": list(kinds), "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1,
                     "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_space_prefix": True, "tokenizer.ggml.remove_extra_whitespaces": True,
                     **({"tokenizer.ggml.precompiled_charsmap": writers.Raw(charsmap)} if kind == "t5" else {})}
    whole = json.dumps(next(made for name, made in tokenizer_jsons() if name == "bytes"), separators=(",", ":"))
    yield "json", {"general.architecture": "palimpsa", "tokenizer.huggingface.json": whole}


def main(program, out):
    subprocess.run([program, out], check=True)
    out = pathlib.Path(out)

    def seed(target, name, data):
        (out / target).mkdir(exist_ok=True)
        (out / target / name).write_bytes(data)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for kind in writers.KINDS:
            writers.write(kind, folder / kind, tiny=True)
            made = {f.name: f.read_bytes() for f in (folder / kind).iterdir()}
            if "config.json" in made:
                seed("config", kind, made["config.json"])
            if "pytorch_model.bin" in made:
                seed("zip", kind, made["pytorch_model.bin"])
                with zipfile.ZipFile(folder / kind / "pytorch_model.bin") as archive:
                    pickled = archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
                seed("pickle", kind, pickled)
                seed("torch", kind, pickled)
            if "model.gguf" in made and kind[5:].upper() not in writers.BLOCKS_OF_256:
                seed("gguf", kind, made["model.gguf"])
            for name, data in made.items():
                if name.endswith(".safetensors"):
                    seed("safetensors", kind + name, data)
            if "model.safetensors" in made:
                seed("directory", kind, made["config.json"] + MARK + made["model.safetensors"])
            if "model.safetensors.index.json" in made:
                shards = [made[n] for n in sorted(made) if n.startswith("model-")]
                index = made["model.safetensors.index.json"].replace(b"model-00001-of-00003", b"a").replace(b"model-00002-of-00003", b"b")
                seed("directory", kind, MARK.join([made["config.json"], index, *shards[:2]]))
    for name, made in tokenizer_jsons():
        seed("tokenizer_json", name, json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode())
    for name, made in tokenizer_models():
        seed("tokenizer_model", name, made)
    for name, made in vocabularies():
        seed("vocab", name, made)
    seed("checkpoint", "most", largest_counts((out / "checkpoint/whole").read_bytes()))
    for file in (out / "gguf").iterdir():
        if file.name != "tokenizer":  # it has all bytes
            seed("gguf_model", file.name, description(file.read_bytes()))
    for name, pairs in gguf_vocabularies():
        seed("gguf_model", name, description(writers.gguf_bytes(pairs, [])))
    # Blocks of 256 values fill the rows of one matrix.
    sizes = {**writers.sizes(tiny=True), "inner": 256, "P": 64}
    wide = writers.gguf_bytes(writers.g_pairs(sizes), writers.g_tensors(sizes, writers.tensors(sizes, random.Random(1)), "F32", None))
    for kind in writers.BLOCKS_OF_256:
        seed("gguf_model", "gguf_" + kind.lower(), description(wide, {"blk.0.ssm_out.weight": writers.IDS[kind]}))
    # The pickle of one small tensor in storage 0, as target_torch.c lays it out.
    tensor = writers.p_tensor("0", "F32", [2, 3], 64)
    one = b"\x80\x02" + writers.p_state([("backbone.embedding.weight", tensor)]) + b"."
    seed("torch", "one", one)
    seed("torch", "shard", one + MARK + b'{"weight_map": {"backbone.embedding.weight": "a.bin"}}')
    for config in (here.parent / "tests/golden/models").glob("*/config.json"):
        seed("config", config.parent.name, config.read_bytes())
    for config in (here.parent / "tests/golden/families").glob("*/config.json"):
        seed("config", "family_" + config.parent.name, config.read_bytes())
    for file in (here.parent / "tests/golden/families_gguf").glob("*.gguf"):
        seed("gguf_model", "family_" + file.stem, description(file.read_bytes()))
    for i in range(9):
        seed("encode", f"text{i}", bytes([i]) + TEXT)
    seed("documents", "plain", b"\0" + TEXT)
    seed("documents", "lines", b"\1" + json.dumps({"text": TEXT.decode()}).encode() + b'\n{"text": ""}\n\n{"text": "a\\u0000b"}\n')
    seed("documents", "pairs", b"\2" + b'{"prompt": "a", "response": "b"}\n')
    seed("records", "csv", b'\0a,b,c\n1,"two ""2"" words","[\'x\', \'y\']"\n"multi\nline",,"{""k"": 1}"\n')
    seed("records", "lines", b'\1{"a": 1, "b": ["x", "y"]}\n{"a": null}\n')
    rng = random.Random(1)
    metrics = "".join(json.dumps({"step": s, "loss": 5 * rng.random(), "lr": 1e-3, "tokens": 64 * s, "tokens_per_s": 1e4, "accuracy": rng.random(),
                                  "valid_loss": 4.0, "n_t": [10.0, 20.0], "ratio": [0.1, 0.2], "b_scale": [1.0, 1.0]}) + "\n" for s in range(1, 4))
    seed("runs", "mqar", json.dumps({"task": "mqar", "model": "palimpsa-d", "seed": 1, "lr": 1e-3}).encode() + MARK + metrics.encode())
    seed("runs", "text", b'{"task": "text", "model": "transformer"}' + MARK + b'{"step": 1, "loss": 3.5}\n{"step": 3, "loss": 2.5, "valid_loss": 2.75}\n')
    # The first byte: path + 10 * model, in the order of target_requests.c.
    common = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 7, "n": 2, "max_tokens": 3, "stop": ["a", "b"], "logit_bias": {"3": -1.5},
              "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "stream": True, "stream_options": {"include_usage": True}, "variance": True}
    look = {"tiles": True, "every": 4, "from": 1, "map": {"layer": 1, "size": 4, "heads": [0, 1], "reduce": "mean"}, "elements": [[0, 1, 2, 3]]}
    chat = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]}
    bodies = [{**common, "prompt": ["a b", "c"], "echo": True, "logprobs": 3}, {**common, **chat, "logprobs": True, "top_logprobs": 2},
              {"prompt": "a b", "observe": look}, {"map": look["map"], "elements": look["elements"]}, {"prompt": "a b", "add_special_tokens": True},
              {"tokens": [1, 2, 3]}, {"text": "a b", "name": "n"}, {"name": "n"}, {"name": "m.1"}, {"mark": "m.1"}]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string", "enum": ["a", "b"]}}, "required": ["x"]}}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    seed("requests", "tools", bytes([11]) + json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "reasoning_content": "b", "tool_calls": [call]}, {
        "role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "c"}]}], "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "d"}], "reasoning_effort": "low"}).encode())
    seed("requests", "format", bytes([11]) + json.dumps({**chat, "tools": [tool], "response_format": {"type": "json_schema", "json_schema": {"schema": tool["function"]["parameters"]}}}).encode())
    for model in range(3):
        for path, body in enumerate(bodies):
            seed("requests", f"path{path}model{model}", bytes([path + 10 * model]) + json.dumps(body).encode())
        seed("requests", f"ids{model}", bytes([10 * model]) + b'{"prompt": [[1, 2], [3]]}')
        seed("requests", f"kept{model}", bytes([6 + 10 * model]) + b'{"tokens": [1, 2, 3]}')
    seed("requests", "named", bytes([30]) + json.dumps({"model": "gated-deltanet", "prompt": [[1, 2], [3]], "memory": "0"}).encode())
    conversation = json.dumps({"messages": [*chat["messages"], {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {
        "name": "f", "arguments": {"x": [1, "<|im_end|>"]}}}]}, {"role": "tool", "tool_call_id": "1", "content": "42"}], "tools": [{"type": "function", "function": {
            "name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}], "kwargs": {"enable_thinking": False}}).encode()
    for template in sorted((here.parent / "tests/templates").glob("*.jinja")):
        seed("template", template.stem, template.read_bytes() + MARK + conversation)
    for template in sorted(pathlib.Path(os.environ.get("PALIMPSA_DATA", "/nowhere"), "chat_templates").glob("*.jinja")):
        if template.stat().st_size < 8192:
            seed("template", template.stem, template.read_bytes() + MARK + conversation)
    written = json.loads((here.parent / "tests/golden/chat/calls.json").read_text())
    syntaxes = re.findall(r'\.name = "([^"]+)"', (here.parent / "src/chat/calls.c").read_text())
    for i, row in enumerate(written):
        for kind in (0b1100, 0b100011):
            seed("calls", f"row{i}kind{kind}", bytes([syntaxes.index(row["syntax"]), kind]) + ("so</think>" if kind & 1 else "").encode() + row["text"].encode())
    for i, text in enumerate(("{{ messages|tojson(indent=2) }}", "{% for k, v in messages[0]|dictsort %}{{ k ~ v }}{% endfor %}", "{{ messages[0].content[::-1].split('a', 1) }}",
                              "{% macro f(x) %}{{ caller(x)|upper }}{% endmacro %}{% call(y) f(1) %}{{ y }}{% endcall %}", "{{ '%s' % 1 ~ '{}'.format(2) }}",
                              "{{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|join(',') }}", "{{ [1, 2.5, 'x']|sort|first|default(3) }}")):
        seed("template", f"small{i}", text.encode() + MARK + conversation)
    for name, schema, text in (("object", {"type": "object", "properties": {"a": {"type": "integer", "minimum": -5, "maximum": 120}, "b": {"type": ["string", "null"]}}, "required": ["b"],
                                           "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}, '{"a": 7, "b": null, "c": 0.5}'),
                               ("array", {"prefixItems": [{"const": "x"}], "items": {"$ref": "#/$defs/t"}, "minItems": 2, "maxItems": 5, "$defs": {"t": {"anyOf": [
                                   {"type": "string", "pattern": "^[a-z]+(?:-\\d{2,4})?$"}, {"type": "array", "items": {"$ref": "#/$defs/t"}}]}}}, '["x", "ab-12", [[]]]'),
                               ("one", {"oneOf": [{"type": "string", "format": "date-time"}, {"enum": [1, {"k": [True]}]}, {"type": "boolean"}]}, '"2024-02-28T00:00:00Z"'),
                               ("text", {"type": "string", "minLength": 2, "maxLength": 3}, '"a\\n"'), ("any", True, '[{"a": -1.5e3}]')):
        seed("grammar", name, b"\0" + json.dumps(schema).encode() + MARK + text.encode())
    seed("grammar", "rules", b'\1root ::= "(" (root ("," root)*)? ")" | [^a-c\\n]{2,} | . <"<s>"> # all\n' + MARK + b"((),xy)")
    seed("options", "all", b'{"flag": true, "whole_number": 3, "large": 5000000000, "real": 1.5, "text": "a", "list": ["b", {"bytes": "ff"}]}')


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
