#!/usr/bin/env python3
"""seeds.py FUZZ_SEEDS DIR: a first corpus for every target, in DIR/TARGET. FUZZ_SEEDS is the program built from seeds.c."""
import json, pathlib, random, subprocess, sys, tempfile, zipfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "tests"))
import checkpoint_writers as writers

MARK = b"\n%%\n"
TEXT = "the cat  sat\n\n on 1234 mats; it's étude 日本。 e\u0301 <|endoftext|> </s>\r\n".encode()


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
            if "model.gguf" in made:
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
    # The pickle of one small tensor in storage 0, as target_torch.c lays it out.
    tensor = writers.p_tensor("0", "F32", [2, 3], 64)
    seed("torch", "one", b"\x80\x02" + writers.p_state([("backbone.embedding.weight", tensor)]) + b".")
    for config in (here.parent / "tests/golden/models").glob("*/config.json"):
        seed("config", config.parent.name, config.read_bytes())
    for i in range(9):
        seed("encode", f"text{i}", bytes([i]) + TEXT)
    seed("documents", "plain", b"\0" + TEXT)
    seed("documents", "lines", b"\1" + json.dumps({"text": TEXT.decode()}).encode() + b'\n{"text": ""}\n\n{"text": "a\\u0000b"}\n')
    seed("documents", "pairs", b"\2" + b'{"prompt": "a", "response": "b"}\n')
    seed("records", "csv", b'\0a,b,c\n1,"two ""2"" words","[\'x\', \'y\']"\n"multi\nline",,"{""k"": 1}"\n')
    seed("records", "lines", b'\1{"a": 1, "b": ["x", "y"]}\n{"a": null}\n')
    rng = random.Random(1)
    metrics = "".join(json.dumps({"step": s, "loss": 5 * rng.random(), "lr": 1e-3, "tokens": 64 * s, "tokens_per_s": 1e4, "accuracy": rng.random(),
                                  "valid_loss": 4.0, "n_t": [10.0, 20.0], "ratio": [0.1, 0.2], "b_scale": [1.0, 1.0]}) + "\n" for s in range(1, 9))
    seed("runs", "mqar", json.dumps({"task": "mqar", "model": "palimpsa-d", "seed": 1, "lr": 1e-3}).encode() + MARK + metrics.encode())
    # The first byte: path + 10 * model, in the order of target_requests.c.
    common = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 7, "n": 2, "max_tokens": 3, "stop": ["a", "b"], "logit_bias": {"3": -1.5},
              "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "stream": True, "stream_options": {"include_usage": True}, "variance": True}
    look = {"tiles": True, "every": 4, "from": 1, "map": {"layer": 1, "size": 4, "heads": [0, 1], "reduce": "mean"}, "elements": [[0, 1, 2, 3]]}
    chat = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]}
    bodies = [{**common, "prompt": ["a b", "c"], "echo": True, "logprobs": 3}, {**common, **chat, "logprobs": True, "top_logprobs": 2},
              {"prompt": "a b", "observe": look}, {"map": look["map"], "elements": look["elements"]}, {"prompt": "a b", "add_special_tokens": True},
              {"tokens": [1, 2, 3]}, {"text": "a b", "name": "n"}, {"name": "n"}, {"name": "m.1"}, {"mark": "m.1"}]
    for model in range(3):
        for path, body in enumerate(bodies):
            seed("requests", f"path{path}model{model}", bytes([path + 10 * model]) + json.dumps(body).encode())
        seed("requests", f"ids{model}", bytes([10 * model]) + b'{"prompt": [[1, 2], [3]]}')
        seed("requests", f"kept{model}", bytes([6 + 10 * model]) + b'{"tokens": [1, 2, 3]}')
    seed("requests", "named", bytes([30]) + json.dumps({"model": "gated-deltanet", "prompt": [[1, 2], [3]], "memory": "0"}).encode())
    seed("options", "all", b'{"flag": true, "whole_number": 3, "large": 5000000000, "real": 1.5, "text": "a", "list": ["b", {"bytes": "ff"}]}')


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
