"""For tests of `palimpsa serve`: a server on a free port, and a small client."""
import sys

from outside import golden, program, run, sentencepiece, tiny_models

sys.path.pop(0)  # tokenize.py next to this file is not the one that the standard library imports
import contextlib, http.client, json, shutil, signal, subprocess


ENDLESS = ("--max-tokens", 10**9, "--max-answer", "100G")  # for texts that do not end while a test looks at them


class Server:
    def __init__(self, *args):
        self.process = subprocess.Popen([program, "serve", *map(str, args), "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), (line, self.process.stderr.read() if self.process.poll() is not None else "")
        self.port = int(line.rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers={}, raw=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        connection.request(method, path, body=json.dumps(body) if body is not None else raw, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        kind = answer.getheader("Content-Type", "")
        return answer.status, json.loads(text) if kind.startswith("application/json") else text.decode() if kind.startswith("text/") else text, answer

    def post(self, path, **body):
        status, answer, _ = self.ask("POST", path, body)
        assert status in (200, 201), (path, body, status, answer)
        return answer

    def complete(self, **body):
        return self.post("/v1/completions", **body)

    def text(self, **body):
        return self.complete(**body)["choices"][0]["text"]

    def get(self, path):
        status, answer, _ = self.ask("GET", path)
        assert status == 200, (path, status, answer)
        return answer

    def stream(self, path, **body):
        status, text, _ = self.ask("POST", path, {**body, "stream": True})
        assert status == 200 and text.endswith("data: [DONE]\n\n"), (status, text)
        return [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]

    def refused(self, body, param, path="/v1/completions", code=400, method="POST"):
        status, answer, _ = self.ask(method, path, body)
        assert status == code and answer["error"]["param"] == param and answer["error"]["message"], (body, status, answer)

    def metric(self, name):
        return float(self.ask("GET", "/metrics")[1].split(f"\npalimpsa_{name} ")[1].split("\n")[0])

    def stop(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        errors = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == code and "ERROR" not in errors, (self.process.returncode, errors)
        return errors


@contextlib.contextmanager
def serving(*args):
    server = Server(*args)
    try:
        yield server
    except BaseException:
        server.process.kill()
        print(server.process.communicate()[1][-3000:], file=sys.stderr)
        raise
    server.stop()


def chat_model(folder, hybrid, template=None, special=True):
    """The same model with a tokenizer that knows the marks of chats, special or not, and a chat template."""
    target = folder / f"chat{len(list(folder.iterdir()))}"
    target.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(hybrid / file, target / file)
    letters = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"]  # space and newline as byte-level tokenizers spell them
    marks = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]
    added = [{"id": len(letters) + i, "content": s, "special": special or s[1] != "|", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, s in enumerate(marks)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (target / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                                                       "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}))
    (target / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", **({"chat_template": template} if template else {})}))
    return target


def speaking_model(folder):
    """A model with memories that knows characters, one with attention."""
    hybrid, attention = tiny_models(folder)
    text = "".join(chr(32 + i % 95) for i in range(95 * 3)) + "\n\u00e9\u4e2d"
    (folder / "text").write_text(text)
    run("tokenize", "--learn-chars", "--out", hybrid, folder / "text")
    return hybrid, attention


def byte_alphabet():
    """How byte-level tokenizers spell each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def tool_model(folder, template, marks):
    """A tiny model that knows all bytes, and these special tokens after <s> and </s>; with a chat template."""
    target, data, shards = folder / "model", folder / "text", folder / "shards"
    (folder / "tokenizer").mkdir()
    letters, byte_level = byte_alphabet(), {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": 256 + i, "content": s, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, s in enumerate(["<s>", "</s>", *marks])]
    (folder / "tokenizer/tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                                                                 "decoder": byte_level, "model": {"type": "BPE", "vocab": {letters[b]: b for b in range(256)}, "merges": []}}))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer/tokenizer_config.json").write_text(json.dumps(config))
    data.write_text("some text to learn " * 100)
    run("tokenize", data, "--tokenizer", folder / "tokenizer/tokenizer.json", "--out", shards, "--valid", 0.1)
    run("train", "--task", "text", "--model", "palimpsa-m", "--hidden", 16, "--layers", 1, "--heads", 4, "--head-dim", 8, "--state-size", 8, "--data", shards, "--row", 64, "--context", 64, "--batch", 1,
        "--steps", 1, "--out", folder / "run")
    run("convert", folder / "run", target, "--to", "palimpsa")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "tokenizer" / file, target / file)
    return target


def writes(text, marks=()):
    """Rules under which a model writes this text, with these special tokens in it, and nothing else."""
    parts, said = [], ""
    while text:
        mark = next((m for m in marks if text.startswith(m)), None)
        if not mark:
            said, text = said + text[0], text[1:]
        if (mark or not text) and said:
            parts.append(json.dumps(said, ensure_ascii=False))
            said = ""
        if mark:
            parts.append(f"<{json.dumps(mark)}>")
            text = text[len(mark):]
    return "root ::= " + " ".join(parts)
