#!/usr/bin/env python3
"""chat_templates_random.py PALIMPSA COUNT TEMPLATE...: renders COUNT random message trees, each with one of the templates,
by palimpsa and by transformers: both have to give the same text, or both have to refuse. Needs transformers and jinja2."""
import datetime, json, os, pathlib, random, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

from transformers.utils import chat_template_utils

palimpsa, count, *paths = sys.argv[1:]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 18, 12, 34, 56)


chat_template_utils.datetime = Clock
templates = [(path, chat_template_utils._compile_jinja_template(pathlib.Path(path).read_text())) for path in paths]
rng = random.Random(int(os.environ.get("SEED", "1")))
WORDS = ["", " ", "a", "two words", " spaces around ", "line\nbreak\n", "Grüße, 世界 😀", "<think>", "</think>", "<think>x</think>y", "<|im_end|>", "[INST]",
         '"quoted"', "it's", "\\", "\t", "{{ x }}", "{% raw %}", "</s>", "<tool_call>", "\u2028", "1", "true", "null", "{}", '{"a": 1}', "&<>", "ǅ ß ﬁ"]
KEYS = ["a", "b", "B", "type", "text", "name", "items", "keys", "id", "x y", "é"]


def value(depth=0):
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 3:
        return rng.choice(WORDS)
    if kind < 7:
        return rng.choice([None, True, False, 0, 1, -7, 123456789012, 0.5, -2.25, 1e16, 1e-7, 3.0, 1e100])
    if kind < 8:
        return [value(depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): value(depth + 1) for _ in range(rng.randrange(4))}


def content():
    kind = rng.randrange(12)
    if kind < 7:
        return rng.choice(WORDS)
    if kind < 9:
        return [{"type": rng.choice(["text", "text", "text", "image"]), "text": rng.choice(WORDS)} for _ in range(rng.randrange(3))]
    return value() if kind < 10 else None


def call():
    arguments = {rng.choice(KEYS): value() for _ in range(rng.randrange(3))}
    function = {"name": rng.choice(["f", "get_weather", "a.b"]), "arguments": json.dumps(arguments) if rng.random() < 0.15 else arguments}
    return {"id": rng.choice(["c1", "abcdefghi", "functions.f:0"]), "type": "function", "function": function} if rng.random() < 0.9 else function


def message(i):
    role = ["user", "assistant"][i % 2] if rng.random() < 0.6 else rng.choice(["user", "assistant", "tool", "system", "developer", "odd"])
    one = {"role": role, "content": content()}
    if role == "assistant" and rng.random() < 0.35:
        one["tool_calls"] = [call() for _ in range(rng.randrange(1, 3))]
    if role == "assistant" and rng.random() < 0.2:
        one[rng.choice(["reasoning_content", "thinking", "reasoning"])] = rng.choice(WORDS)
    if role == "tool":
        one.update({"tool_call_id": "c1"} if rng.random() < 0.7 else {}, **({"name": "f"} if rng.random() < 0.7 else {}))
    if rng.random() < 0.05:
        one[rng.choice(KEYS)] = value()
    if rng.random() < 0.03:
        del one[rng.choice(list(one))]
    return one


def schema(depth=0):
    one = {"type": rng.choice(["string", "integer", "number", "boolean", "array", "object", ["string", "null"]])}
    if rng.random() < 0.6:
        one["description"] = rng.choice(WORDS)
    if one["type"] == "array" and depth < 3:
        one["items"] = schema(depth + 1)
    if one["type"] == "object" and depth < 3:
        one["properties"] = {rng.choice(KEYS): schema(depth + 1) for _ in range(rng.randrange(3))}
        one["required"] = list(one["properties"])[:1]
    if rng.random() < 0.2:
        one["enum"] = [rng.choice(WORDS) for _ in range(2)]
    if rng.random() < 0.2:
        one["default"] = value(2)
    return one


def tool():
    function = {"name": rng.choice(["f", "get_weather"]), "description": rng.choice(WORDS),
                "parameters": {"type": "object", "properties": {k: schema() for k in rng.sample(KEYS, 2)}, "required": [KEYS[0]]}}
    if rng.random() < 0.1:
        del function[rng.choice(list(function))]
    return {"type": "function", "function": function} if rng.random() < 0.95 else function


def case():
    messages = [message(i) for i in range(rng.randrange(1, 7))]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": content()})
    kwargs = {"bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.4:
        kwargs["enable_thinking"] = rng.choice([True, False, None])
    if rng.random() < 0.1:
        kwargs[rng.choice(["reasoning_effort", "date_string", "documents", "thinking", "keep_past_thinking"])] = value()
    tools = [tool() for _ in range(rng.randrange(1, 3))] if rng.random() < 0.4 else None
    return rng.choice(templates), messages, tools, kwargs, rng.random() < 0.8


def compare(job):
    number, ((path, template), messages, tools, kwargs, prompt) = job
    given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt, **kwargs}
    try:
        expected = template.render(**json.loads(json.dumps(given))).encode()
    except Exception as error:
        expected, why = None, error
    file = f"{folder}/{number}"
    pathlib.Path(file).write_text(json.dumps({"messages": messages, "tools": tools}))
    command = [palimpsa, "chat-template", path, "--messages", file, "--kwargs", json.dumps(kwargs), "--date", "2026-11-18T12:34:56"]
    done = subprocess.run(command + ([] if prompt else ["--no-generation-prompt"]), capture_output=True, env={**os.environ, "GOMP_SPINCOUNT": "3000"})
    if done.returncode not in (0, 2):
        return f"{path}: exit code {done.returncode}"
    if (expected is None) != (done.returncode == 2) or (expected is not None and expected != done.stdout):
        pathlib.Path(f"differs-{number}.json").write_text(json.dumps({"template": path, **given}))
        return f"case {number}, {path}: {f'jinja2 raised {why!r}' if expected is None else 'jinja2 rendered'}; palimpsa: {done.stderr.decode().strip() or 'rendered'}"
    os.unlink(file)
    return expected is None


with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
    results = list(pool.map(compare, enumerate(case() for _ in range(int(count)))))
for line in [r for r in results if isinstance(r, str)][:20]:
    print(line)
bad = sum(isinstance(r, str) for r in results)
print(f"{len(results)} cases with {len(templates)} templates: {results.count(False)} equal, {results.count(True)} refused by both, {bad} differ")
sys.exit(bad > 0)
