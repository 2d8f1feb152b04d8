#!/usr/bin/env python3
"""`palimpsa serve` with the programs that people use: the package openai, the curl lines of docs/reference/http.md, and schemathesis on /openapi.json.

    pip install openai schemathesis
    python3 serve_clients.py --program build/palimpsa --model DIR [--examples 20]

The model is a directory with a tokenizer. Prints versions; ends with exit code 1 when something is not as the documentation says.
"""
import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import openai

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--examples", type=int, default=20, help="requests of schemathesis for each operation")
args = parser.parse_args()
docs = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"

folder = tempfile.TemporaryDirectory()
key = pathlib.Path(folder.name, "key")
key.write_text("secret\n")


def serve(*options):
    process = subprocess.Popen([args.program, "serve", f"model={args.model}", "--port", "0", "--log", "no", *options], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split()[-1]


def generate(prompt, tokens, *more):
    return subprocess.run([args.program, "generate", args.model, "--prompt", prompt, "--max-tokens", str(tokens), "--temperature", "0", *more], check=True, stdout=subprocess.PIPE).stdout.decode(errors="replace")


def with_openai(base):
    client = openai.OpenAI(base_url=base + "/v1", api_key="secret", max_retries=0)
    assert next(iter(client.models.list())).id == "model"  # model@plain may follow
    prompt = "The meaning of life is"
    expected = generate(prompt, 12)
    answer = client.completions.create(model="model", prompt=prompt, max_tokens=12, temperature=0, logprobs=2)
    assert answer.choices[0].text == expected and answer.usage.completion_tokens == 12 and len(answer.choices[0].logprobs.token_logprobs) == 12
    several = client.completions.create(model="model", prompt=[prompt, "And"], n=2, max_tokens=4, seed=1)
    assert [c.index for c in several.choices] == [0, 1, 2, 3]
    chunks = list(client.completions.create(model="model", prompt=prompt, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == expected and chunks[-1].usage.prompt_tokens == answer.usage.prompt_tokens
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    chat = client.chat.completions.create(model="model", messages=messages, max_completion_tokens=8, temperature=0, logprobs=True, top_logprobs=3)
    assert chat.choices[0].message.role == "assistant" and len(chat.choices[0].logprobs.content[0].top_logprobs) == 3
    said = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(model="model", messages=messages, max_completion_tokens=8, temperature=0, stream=True))
    assert said == chat.choices[0].message.content
    with client.chat.completions.create(model="model", messages=messages, stream=True, max_tokens=100000) as stream:
        next(iter(stream))  # and away
    memory = client.post("/memories", body={"text": prompt}, cast_to=object)
    assert client.completions.create(model="model", prompt="", max_tokens=12, temperature=0, extra_body={"memory": memory["id"]}).choices[0].text == expected
    for kind, call in ((openai.BadRequestError, lambda: client.completions.create(model="model", prompt=prompt, temperature=-1)),
                       (openai.AuthenticationError, lambda: openai.OpenAI(base_url=base + "/v1", api_key="wrong", max_retries=0).models.list()),
                       (openai.NotFoundError, lambda: client.get("/nowhere", cast_to=object)),
                       (openai.NotFoundError, lambda: client.completions.create(model="model", prompt="", extra_body={"memory": "none"})),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="model", messages=messages, tools=[{"type": "function", "function": {"name": "f"}}]))):
        try:
            call()
        except kind as error:
            assert error.body["message"], error
        else:
            raise AssertionError(kind)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda i: client.completions.create(model="model", prompt=prompt, max_tokens=12, temperature=0).choices[0].text, range(8))) == {expected}
    print("openai", importlib.metadata.version("openai"), "is fine")


def with_curl(base):
    """Each line of the documentation as it stands, except for the address and an id."""
    lines = re.findall(r"^    (curl .*)$", docs.read_text(), re.M)
    made, done = None, 0
    for line in lines:
        command = line.replace("http://127.0.0.1:8080", base).replace("ID", made or "ID").replace("curl ", "curl -sS --fail-with-body --max-time 100 -w '\\n%{http_code}' ", 1)
        result = subprocess.run(command, shell=True, stdout=subprocess.PIPE, cwd=folder.name, text=True)
        assert result.returncode == 0 and result.stdout.endswith(("200", "201")), (line, result.stdout)
        if '"id"' in result.stdout and "v1/memories" in line and not made:
            made = json.loads(result.stdout.rsplit("\n", 1)[0])["id"]
        done += 1
    assert done >= 8 and made, lines
    print(subprocess.run(["curl", "--version"], stdout=subprocess.PIPE, text=True).stdout.split(" (")[0], "is fine:", done, "lines of the documentation")


def with_schemathesis(base):
    tool = pathlib.Path(sys.executable).parent / "schemathesis"
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
    result = subprocess.run([tool, "run", base + "/openapi.json", "--checks", checks, "-n", str(args.examples), "--phases", "examples,coverage,fuzzing", "--seed", "1", "--header", "Authorization: Bearer secret",
                             "--request-timeout", "60"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder.name, env={**os.environ, "NO_COLOR": "1"})
    print(result.stdout[-1500:] if result.returncode == 0 else result.stdout[-6000:])
    assert result.returncode == 0
    print("schemathesis", importlib.metadata.version("schemathesis"), "is fine")


try:
    for options, clients in (((), (with_curl,)), (("--api-key-file", str(key)), (with_openai,)), (("--api-key-file", str(key), "--memory-disk", "2000000000"), (with_schemathesis,))):
        process, base = serve(*options)
        try:
            for client in clients:
                if client is with_schemathesis and not shutil.which(pathlib.Path(sys.executable).parent / "schemathesis"):
                    print("schemathesis is not installed: left out")
                    continue
                client(base)
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
finally:
    folder.cleanup()
