#!/usr/bin/env python3
"""What a request may take of `palimpsa serve`: bodies that are too long, too many or without an end, and answers that are too large, alone or together."""
from serving import ENDLESS, serving, speaking_model

import concurrent.futures, contextlib, json, pathlib, re, shutil, socket, sys, tempfile, time

POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"


def connect(s, data):
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    connection.sendall(data)
    return connection


def pour(connection, piece, most):
    """Sends a piece again and again; what was answered until the connection ended, and how much was sent."""
    answer, sent = b"", 0
    while sent < most:
        try:
            connection.settimeout(60)
            connection.sendall(piece)
            sent += len(piece)
            connection.settimeout(0.02)  # a connection that breaks loses what was not read
            answer += connection.recv(1 << 16)
        except TimeoutError:
            pass
        except OSError:
            break
    return answer, sent


def memory(s, name):
    return int(re.search(name + r":\s+(\d+) kB", pathlib.Path(f"/proc/{s.process.pid}/status").read_text())[1]) * 1024


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)

    with serving(hybrid, "--max-body", "64K") as s:
        # A body without a length and without an end: one answer, and the connection ends.
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        for path, more in ((b"/v1/completions", b""), (b"/v1/memories", b"Content-Type: application/octet-stream\r\n")):
            connection = connect(s, POST % (path, more + b"Transfer-Encoding: chunked\r\n"))
            answer, sent = pour(connection, chunk, 4 << 20)
            assert answer.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in answer and answer.count(b"HTTP/1.1") == 1, answer
            assert sent < 4 << 20, sent
            connection.close()
        # One that ends soon is answered, too.
        connection = connect(s, POST % (b"/v1/completions", b"Transfer-Encoding: chunked\r\n") + chunk * 5 + b"0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 413 ") and b"65536 bytes" in answer, answer
        connection.close()
        assert s.text(prompt="a" * 60000, max_tokens=1)

    # Many bodies at a time: the sum is bounded, and there is room again when they are gone.
    with serving(hybrid, "--max-body", "4M") as s:
        bodies, answers = [], []
        for _ in range(20):
            connection = connect(s, POST % (b"/v1/completions", b"Content-Length: %d\r\n" % (4 << 20)))
            bodies.append(connection)
            with contextlib.suppress(OSError):  # refused
                connection.sendall(b" " * (3 << 20))
        deadline = time.time() + 60
        while not answers and time.time() < deadline:
            for connection in bodies:
                connection.settimeout(0.01)
                with contextlib.suppress(OSError):
                    answers.append(connection.recv(1000))
        assert answers and all(a.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in a and b"try again" in a for a in answers), answers
        status, answer, reply = s.ask("POST", "/v1/completions", raw=b" " * (4 << 20))
        assert status == 503 and "try again" in answer["error"]["message"], (status, answer)
        for connection in bodies:
            connection.close()
        deadline = time.time() + 60
        while s.ask("POST", "/v1/completions", raw=b" " * (4 << 20))[0] == 503 and time.time() < deadline:
            time.sleep(0.05)
        assert s.ask("POST", "/v1/completions", raw=b" " * (4 << 20))[0] == 400  # nothing of them is counted any more

        # Long answers that no one reads count as well, and so do those next to texts.
        body, deaf, answers = json.dumps({"prompt": "a" * (2 << 20)}).encode(), [], []
        while len(deaf) < 20 and not (answers and answers[-1].startswith(b"HTTP/1.1 503 ")):
            deaf.append(connect(s, b""))
            deaf[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf[-1].sendall(POST % (b"/tokenize", b"Content-Length: %d\r\n" % len(body)) + body)
            answers.append(deaf[-1].recv(1000))
        assert answers[0].startswith(b"HTTP/1.1 200 ") and answers[-1].startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answers[-1], [a[:50] for a in answers]
        assert s.get("/health") == {"status": "ok"}
        for connection in deaf:
            connection.close()
        assert any(s.ask("POST", "/tokenize", raw=body)[0] == 200 or time.sleep(0.1) for _ in range(600))

    # Empty objects, which take many times their bytes when they are read; brackets in texts are none.
    with serving(hybrid, "--max-body", "16M") as s:
        before = memory(s, "VmRSS")
        for many in ("{},", "[],"):
            status, answer, _ = s.ask("POST", "/tokenize", raw=b'{"prompt": "a", "more": [' + many.encode() * 4000000 + b"0]}")
            assert status == 400 and "65536 objects and lists" in answer["error"]["message"], (status, answer)
        assert memory(s, "VmHWM") - before < 64 << 20 or "--sanitized" in sys.argv, memory(s, "VmHWM") - before
        assert len(s.post("/tokenize", prompt='[{\\"' * 30000)["tokens"]) == 120000
        status, answer, _ = s.ask("POST", "/tokenize", raw=b'{"prompt": "a", "more": [' + b"0," * 4190000 + b"0]}")
        assert status == 200 and memory(s, "VmHWM") - before < 26 * (8 << 20) or "--sanitized" in sys.argv, (status, memory(s, "VmHWM") - before)
        status, answer, _ = s.ask("POST", "/tokenize", raw=b'{"prompt": "a", "more": [' + b"0," * 8000000 + b"0]}")
        assert status == 400 and "more than 4194304 names, texts and numbers" in answer["error"]["message"], (status, answer)

    # Short ids of long tokens.
    model = shutil.copytree(hybrid, folder / "long")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    last = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"].append({"id": last, "content": "x" * 1000, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    with serving(model, "--max-answer", "16M") as s:
        before = memory(s, "VmRSS")
        assert s.post("/detokenize", tokens=[last] * 1000)["prompt"] == "x" * 1000000
        status, answer, _ = s.ask("POST", "/detokenize", {"tokens": [last] * 100000})
        assert status == 400 and answer["error"]["param"] == "tokens" and "--max-answer" in answer["error"]["message"], status
        assert memory(s, "VmHWM") - before < (16 << 20) + (32 << 20) or "--sanitized" in sys.argv, memory(s, "VmHWM") - before

        # A token takes what it is long, in texts, probabilities and streams: what was thought to be small ends when it is not.
        long = {"temperature": 0, "ignore_eos": True, "logit_bias": {str(last): 100}}
        talk = [{"role": "user", "content": "a"}]
        for _ in range(2):  # and its room is free again
            for path, body in (("/v1/completions", {"prompt": "a", "max_tokens": 30000}), ("/v1/completions", {"prompt": "a", "max_tokens": 3000, "logprobs": 0}),
                               ("/v1/chat/completions", {"messages": talk, "max_tokens": 5000, "logprobs": True})):
                status, answer, _ = s.ask("POST", path, {**body, **long})
                assert status == 400 and "--max-answer" in answer["error"]["message"], (status, str(answer)[:200])
        assert memory(s, "VmHWM") - before < (16 << 20) + (32 << 20) or "--sanitized" in sys.argv, memory(s, "VmHWM") - before
        assert "--max-answer" in s.stream("/v1/completions", prompt="a", max_tokens=30000, **long)[-1]["error"]["message"]
        assert s.text(prompt="a", max_tokens=100, **long) == "x" * 100000
        status, answer, _ = s.ask("POST", "/v1/observe", {"prompt": [last] * 3000, "max_tokens": 0, "echo": False})  # whose start has their texts
        assert status == 400 and "--max-answer" in answer["error"]["message"], status
        # Where another's answer has the room, it is reported to try again.
        other = json.dumps({"prompt": "a", "max_tokens": 131072, "ignore_eos": True}).encode()
        away = connect(s, POST % (b"/v1/completions", b"Content-Length: %d\r\n" % len(other)) + other)
        while s.metric("texts_running") == 0:
            time.sleep(0.01)
        status, answer, _ = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2000, **long})
        assert status == 503 and "try again" in answer["error"]["message"], (status, str(answer)[:200])
        away.close()

    # Stop strings and biases are held for each text that runs.
    with serving(hybrid, "--max-body", "4M", "--max-sessions", 100, *ENDLESS) as s:
        body = {"prompt": "a", "n": 128, "stop": [chr(97 + i) * 4096 for i in range(16)], "max_tokens": 10**6, "ignore_eos": True}
        text = json.dumps(body).encode()
        away = connect(s, POST % (b"/v1/completions", b"Content-Length: %d\r\n" % len(text)) + text)
        while s.metric("texts_running") == 0:
            time.sleep(0.01)
        status, answer, _ = s.ask("POST", "/v1/completions", {**body, "max_tokens": 0})
        assert status == 503 and "try again" in answer["error"]["message"], (status, str(answer)[:200])
        away.close()

    # A small request for a large answer is refused before anything is done; one that is not takes no more than was said.
    ids = [i % 90 for i in range(1000)]
    talk = [{"role": "user", "content": "a"}]
    with serving(hybrid) as s:
        large = {"prompt": ids, "n": 128, "echo": True, "logprobs": 20, "max_tokens": 0}
        for more in ({}, {"stream": True}):
            s.refused({**large, **more}, None)
        assert "--max-answer" in s.ask("POST", "/v1/completions", large)[1]["error"]["message"] and s.metric("prompt_tokens_total") == 0
        assert len(s.complete(**{**large, "n": 8})["choices"]) == 8
        s.refused({"prompt": "a" * 1000000, "n": 128, "echo": True}, None)  # no probabilities, but texts
        s.refused({"messages": talk, "n": 128, "logprobs": True, "top_logprobs": 20, "max_tokens": 1000}, None, "/v1/chat/completions")
        s.refused({"prompt": "a", "max_tokens": 131073}, "max_tokens")
        s.refused({"messages": talk, "max_completion_tokens": 131073}, "max_completion_tokens", "/v1/chat/completions")
        assert s.get("/openapi.json")["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["max_tokens"]["maximum"] == 131072
        long = s.complete(prompt=[ids * (2 if "--sanitized" in sys.argv else 40)], echo=True, logprobs=1, max_tokens=1)["choices"][0]  # as lm-evaluation-harness asks
        assert len(long["logprobs"]["tokens"]) in (2001, 40001)
    most, less = 8 << 20, 20 if "--sanitized" in sys.argv else 1
    for path, body in (("/v1/completions", dict(prompt=ids * (8 // less + 1), echo=True, logprobs=0, max_tokens=0)), ("/v1/completions", dict(prompt=ids, echo=True, logprobs=20, max_tokens=100)),
                       ("/v1/completions", dict(prompt="a", max_tokens=10000 // less)), ("/v1/chat/completions", dict(messages=talk, logprobs=True, top_logprobs=20, max_tokens=270 // less))):
        with serving(hybrid, "--max-answer", most, "--cache-distance", 0) as s:
            s.complete(prompt=ids, max_tokens=300, ignore_eos=True)
            before = memory(s, "VmRSS")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:  # they wait for each other
                answers = list(pool.map(lambda i: s.post(path, **body, ignore_eos=True, temperature=0)["choices"], range(4)))
            assert answers == answers[:1] * 4, path
            grown = memory(s, "VmHWM") - before
            assert grown < most + (4 << 20) or less > 1, (path, body, grown)
    # An observed text starts with its whole prompt, with `echo` or without.
    with serving(hybrid, "--max-answer", most, "--cache-distance", 0) as s:
        quiet = {"max_tokens": 0, "echo": False, "observe": {"tiles": False}}
        for body in ({"prompt": ids * 27}, {"prompt": "a" * 27000}, {"messages": [{"role": "user", "content": "a" * 27000}]}):
            status, answer, _ = s.ask("POST", "/v1/observe", {**body, **quiet})
            assert status == 400 and answer["error"]["param"] is None, status
            assert re.match(r"the answer takes \d+ bytes, expected at most 8388608 \(--max-answer\): ask for fewer", answer["error"]["message"]), answer
        assert s.metric("prompt_tokens_total") == 0
        prompt = ids * max(24 // less, 2)
        s.complete(prompt=prompt, max_tokens=1)
        before = memory(s, "VmRSS")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda i: s.stream("/v1/observe", prompt=prompt, **quiet), range(4)))
        assert all([i for i, _ in a[0]["prompt"]] == prompt and a[-1]["type"] == "end" for a in answers)
        grown = memory(s, "VmHWM") - before
        assert grown < most + (4 << 20) or less > 1, grown
    with serving(hybrid, "--max-tokens", 5) as s:
        assert s.post("/v1/chat/completions", messages=talk, ignore_eos=True)["usage"]["completion_tokens"] == 5

    # An answer that no one reads takes its room until --timeout, not forever: who finds none waits.
    with serving(hybrid, "--max-answer", "64M", "--timeout", 2) as s:
        body = json.dumps({"prompt": ids, "n": 60, "echo": True, "logprobs": 0, "max_tokens": 0}).encode()
        deaf = connect(s, b"")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(POST % (b"/v1/completions", b"Content-Length: %d\r\n" % len(body)) + body)
        deadline = time.time() + 60
        while s.metric("prompt_tokens_total") == 0 and time.time() < deadline:
            time.sleep(0.01)
        assert s.text(prompt="a", max_tokens=1)  # there is room for it
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(lambda: s.complete(prompt=ids, n=20, echo=True, logprobs=0, max_tokens=0))
            while s.metric("queue") == 0 and not waits.done():
                time.sleep(0.01)
            assert s.metric("queue") == 1 and len(waits.result()["choices"]) == 20
        deaf.close()
    print("serve_limits: as promised")
