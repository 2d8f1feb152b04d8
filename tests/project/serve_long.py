#!/usr/bin/env python3
"""Long requests to `palimpsa serve` are read next to the others: they get the same answers as short ones, requests that come meanwhile do not wait for them, and
they are bounded; and a client that goes away while waiting takes no place."""
from serving import ENDLESS, Server, serving, speaking_model

import concurrent.futures, json, pathlib, socket, sys, tempfile, time

PAD = {"pad": "x" * 100000}  # a field that no one knows
UNKNOWN = "\u0416"  # a letter that the tokenizer does not have: said when all of the text was looked at


def open_request(s, body):
    """Everything of a request but its last byte."""
    text = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=100)
    connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text[:-1])
    return connection


def answered(connection):
    """The status, or None when nothing has come yet."""
    connection.setblocking(False)
    try:
        return int(connection.recv(12, socket.MSG_PEEK).split()[1])
    except BlockingIOError:
        return None
    finally:
        connection.settimeout(100)


with tempfile.TemporaryDirectory() as folder:
    hybrid, attention = speaking_model(pathlib.Path(folder))
    G = dict(max_tokens=8, temperature=0)
    talk = dict(messages=[{"role": "user", "content": "Hi"}], **G)

    with serving(hybrid) as s:
        def same(path, body):
            """Short and long, except for ids and dates."""
            def told(answer):
                return {k: told(v) for k, v in answer.items() if k not in ("id", "created", "changed", "usage")} if isinstance(answer, dict) else answer
            (code, short, _), (code_long, long, _) = (s.ask("POST", path, {**body, **more}) for more in ({}, PAD))
            assert code == code_long and told(short) == told(long), (path, body, short, long)
            return long

        assert same("/v1/completions", dict(prompt=["The fox", "A"], logprobs=2, echo=True, **G))["choices"][1]["index"] == 1
        same("/v1/chat/completions", talk)
        same("/detokenize", {"tokens": same("/tokenize", {"prompt": "The fox"})["tokens"]})
        for wrong in (dict(prompt=UNKNOWN), dict(prompt=5), dict(prompt="a", n=0), {}):
            assert same("/v1/completions", wrong)["error"]["message"]
        memory = same("/v1/memories", {"text": "The fox"})["id"]
        for path, body in (("", {"name": "fox"}), ("/marks", {"name": "a"}), ("/rollback", {"mark": "a"}), ("/rollback", {"mark": "b"})):
            same(f"/v1/memories/{memory}{path}", body) if path != "/marks" else s.post(f"/v1/memories/{memory}/marks", **body, **PAD)
        same("/v1/memories", {"from": memory, "mark": "a"})
        same("/v1/completions", dict(prompt=" and", memory=memory, **G))
        for path, body in (("/v1/completions", dict(prompt="The fox", logprobs=1, **G)), ("/v1/chat/completions", talk)):
            short, long = ([e["choices"] for e in s.stream(path, **body, **more)] for more in ({}, PAD))
            assert short == long and len(long) > 1, path
        short, long = (s.ask("POST", "/v1/observe", {"prompt": "The", **G, **more})[1].split("\n\n")[1:] for more in ({}, PAD))
        assert short == long and len(long) > 3
        assert s.ask("GET", "/v1/models", {**PAD})[0] == 200 and s.ask("POST", "/nowhere", {**PAD})[0] == 404

        # Where tokens stand in a text: the same in a stream, and of characters.
        whole = s.complete(prompt="a\u00e9\u4e2d", logprobs=0, echo=True, **G)["choices"][0]["logprobs"]["text_offset"]
        told = s.stream("/v1/completions", prompt="a\u00e9\u4e2d", logprobs=0, echo=True, **G)
        assert whole == [at for e in told for at in e["choices"][0]["logprobs"]["text_offset"]] == list(range(11)), whole

        # Others do not wait; a client that goes away meanwhile harms no one.
        size = (2 if "--sanitized" in sys.argv else 12) << 20
        waiting = [open_request(s, {"prompt": "x" * size + UNKNOWN}) for _ in range(3)]
        for connection in waiting:
            connection.sendall(b"}")
        assert s.get("/health") == {"status": "ok"}
        assert [answered(c) for c in waiting] == [None] * 3
        waiting.pop().close()
        for connection in waiting:
            assert b" 400 " in b"".join(iter(lambda: connection.recv(1 << 16), b""))[:20]
        assert s.text(prompt="a", **G)

    with serving(attention, "--tokenizer", "bytes") as s:  # a token may be a part of a character
        answer = s.complete(prompt="a\u00e9\u4e2db", logprobs=0, echo=True, max_tokens=0)["choices"][0]
        assert answer["logprobs"]["text_offset"] == [0, 1, 2, 2, 3, 3, 3] and answer["text"][3] == "b", answer
        events = s.stream("/v1/chat/completions", **talk, logprobs=True, logit_bias={"228": 100})  # each begins a character
        assert ["role" in e["choices"][0]["delta"] for e in events] == [True] + [False] * 8, events  # the last says why it ends

    # Not more of them than may wait; and a signal ends those that do.
    s = Server(hybrid, "--max-queue", 1)
    size //= 3
    waiting = [open_request(s, {"prompt": "x" * size + UNKNOWN}) for _ in range(6)]
    for connection in waiting:
        connection.sendall(b"}")
    replies = [b"".join(iter(lambda: connection.recv(1 << 16), b"")) for connection in waiting]
    codes = [int(r.split()[1]) for r in replies]
    assert set(codes) == {400, 429} and all((b"Retry-After" in r) == (c == 429) for c, r in zip(codes, replies)), codes
    waiting = [open_request(s, {"prompt": "x" * size + UNKNOWN}) for _ in range(2)]
    for connection in waiting:
        connection.sendall(b"}")
    s.stop()

    # A place in the queue is free again when its client is gone.
    s = Server(hybrid, "--max-sessions", 1, "--max-queue", 1, "--drain", 0, *ENDLESS)
    endless = json.dumps({"prompt": "a", "max_tokens": 10**9, "ignore_eos": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(endless)

    def ask_endlessly(what):
        connection = socket.create_connection(("127.0.0.1", s.port), timeout=100)
        connection.sendall(head + endless)
        deadline = time.time() + 60
        while not what() and time.time() < deadline:
            time.sleep(0.01)
        assert what()
        return connection

    runs = ask_endlessly(lambda: s.metric("texts_running") == 1)
    waits = ask_endlessly(lambda: s.metric("queue") == 1)
    waits.close()
    deadline = time.time() + 60
    while s.metric("queue") and time.time() < deadline:
        time.sleep(0.01)
    assert s.metric("queue") == 0 and s.metric("texts_running") == 1
    ask_endlessly(lambda: s.metric("queue") == 1)
    s.stop()
    print("serve_long: as promised")
