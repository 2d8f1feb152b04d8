#!/usr/bin/env python3
"""Manners of `palimpsa serve`: chat templates, other origins, every field wrong in every way, clients that are slow, deaf or gone, and signals."""
from serving import Server, chat_model, program, run, serving, speaking_model

import http.client, json, pathlib, re, signal, socket, subprocess, sys, tempfile, time


def raw(s, data):
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    connection.sendall(data)
    return connection


def request(body, path="/v1/completions"):
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def until(what, seconds=60):
    deadline = time.time() + seconds
    while not what() and time.time() < deadline:
        time.sleep(0.02)
    return what()


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "Go"}]
    O = dict(max_tokens=10, temperature=0)

    chatml = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {}<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"

    # The model's own template is rendered; special tokens come from it, never from what people say.
    own = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
    llama2 = "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi {} [/INST] Yes </s><s>[INST] Go [/INST]"
    file = folder / "own.jinja"
    file.write_text(own)
    for template, chosen, expected, special in (
            (own, [], chatml, 9), ([{"name": "tool_use", "template": "other"}, {"name": "default", "template": own}], [], chatml, 9), (None, ["--chat-template", "llama2"], llama2, 3),
            (None, ["--chat-template", "chatml"], chatml, 9), ("other", ["--chat-template", file], chatml, 9), (None, [], "Be brief.\n\nUser: Hi {}\n\nAssistant:Yes\n\nUser: Go\n\nAssistant:", 0)):
        with serving(chat_model(folder, hybrid, template), *chosen) as s:
            ids = s.post("/tokenize", prompt=expected.replace("{}", "\u0001").replace("\u0001", "^^"))["tokens"]  # the template's own special tokens
            assert sum(i >= 96 for i in ids) == special, ids
            at = next(i for i in range(len(ids)) if ids[i] == ids[i + 1] == ord("^") - 33)
            ids[at : at + 2] = [ord(c) - 33 for c in "<|im_end|>"]  # as letters
            answer = s.post("/v1/chat/completions", messages=talk, **O)
            assert answer["usage"]["prompt_tokens"] == len(ids), (template, answer["usage"], len(ids))
            plain = s.complete(prompt=[ids], stop={9: ["<|im_end|>"], 0: ["\nUser:"]}.get(special), **O)
            assert answer["choices"][0]["message"]["content"] == plain["choices"][0]["text"], template
    for template, why in (("{{ something else }}", "line 1, column 14"), ("{% for m in messages %}", "expected 'endfor'"), ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", "no system"),
                          ("{% for i in range(99999999) %}{% endfor %}", "line 1"), ("{{ '' }}", "makes nothing")):
        with serving(chat_model(folder, hybrid, template)) as s:
            status, answer, _ = s.ask("POST", "/v1/chat/completions", {"messages": talk})
            assert status == 400 and why in answer["error"]["message"], (template, answer)
            s.complete(prompt="a", **O)  # the rest works
    # Where else a template may be: in its own file, which counts before tokenizer_config.json, and in a GGUF file.
    model = chat_model(folder, hybrid, "[INST]")
    (model / "chat_template.jinja").write_text("{{ '<|im_start|>' + '<|im_end|>' }}")
    run("convert", model, folder / "chat.gguf")
    for given in (model, folder / "chat.gguf"):
        with serving(given) as s:
            assert s.post("/v1/chat/completions", messages=talk, **O)["usage"]["prompt_tokens"] == 2, given
    with serving(hybrid, "--chat-template", "llama2") as s:  # no one's words get lost
        system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
        s.post("/v1/chat/completions", messages=[system, user], max_tokens=0)
        for messages in ([system, system, user], [user, system], [system]):
            s.refused({"messages": messages, "max_tokens": 0}, "messages", path="/v1/chat/completions")

    # Pages of one origin, if it was named.
    with serving(hybrid, "--cors", "http://pages.example") as s:
        page = {"Origin": "http://pages.example"}
        for method, path, code in (("GET", "/v1/models", 200), ("OPTIONS", "/v1/completions", 204), ("GET", "/nowhere", 404)):
            status, _, answer = s.ask(method, path, headers=page)
            assert status == code and answer.getheader("Access-Control-Allow-Origin") == "http://pages.example", (method, path, status)
        assert s.ask("GET", "/v1/models", headers={"Origin": "http://other.example"})[0] == 403
        status, text, answer = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True}, page)
        assert status == 200 and answer.getheader("Access-Control-Allow-Origin")

    with serving(hybrid) as s:
        assert s.ask("GET", "/v1/models")[2].getheader("Access-Control-Allow-Origin") is None
        status, _, answer = s.ask("DELETE", "/v1/completions")
        assert status == 405 and answer.getheader("Allow") == "POST"
        assert s.ask("GET", "/v1/models", headers={"X-Long": "x" * 100000})[0] == 431

        # Every field in every wrong way: an answer with one sentence, whatever it is, and never another kind of error.
        talking = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        known = s.get("/openapi.json")["paths"]
        values = [None, True, "", "x" * (1 << 20), -1, 1.5, 2**31, 2**63 - 1, [], {"a": {}}, [None], [2**40]]
        asked, connection = 0, http.client.HTTPConnection("127.0.0.1", s.port, timeout=100)
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/memories"):
            base = talking if "chat" in path else {"tokens": [1]} if path == "/detokenize" else {"text": "a"} if "memories" in path else {"prompt": "a", "max_tokens": 1}
            for name in known[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]:
                for value in values:
                    if name in ("prompt", "text") and path != "/tokenize" and value == "x" * (1 << 20):
                        continue  # a million tokens are fine, and take their time
                    connection.request("POST", path, body=json.dumps({**base, name: value}))
                    reply = connection.getresponse()
                    text = reply.read()
                    status, answer = reply.status, text if value is True and name == "stream" else json.loads(text)
                    assert status in (200, 201, 400, 404), (path, name, str(value)[:40], status, answer)
                    assert status < 300 or answer["error"]["message"], (path, name, answer)
                    asked += 1
        assert asked > 500, asked
        for text in ('{"prompt": "a", "temperature": NaN}', '{"prompt": "a", "n": 9223372036854775808}', '{"prompt": "a", "max_tokens": 1e999}', '{"prompt": "a", "max_tokens": Infinity}', "[" * 60000,
                     '{"prompt":' * 60000, '{"prompt": "a", "prompt": 5}', '{"prompt": "\\ud800"}', "\x00", '{"prompt": "a"} x'):
            status, answer, _ = s.ask("POST", "/v1/completions", raw=text.encode())
            assert status == 400 and answer["error"]["message"], (text[:40], status, answer)

        # A client that does not read: its text waits, others continue, and nothing is lost when it reads on.
        stream = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True, "logprobs": 20, "temperature": 0}
        deaf = raw(s, b"")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        deaf.sendall(request(stream))
        before = [-1, -2]
        while len(set(before[-4:])) > 1:
            before.append(s.metric("written_tokens_total"))
            time.sleep(0.25)
        assert before[-1] < stream["max_tokens"] and s.metric("texts_running") == 1, before
        assert s.text(prompt="b", max_tokens=5, temperature=0)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        got = [b""]
        while b"[DONE]" not in got[-1]:
            got.append(deaf.recv(1 << 20))
            assert got[-1], "the stream ended early"
        got = re.sub(rb"\r\n[0-9A-Fa-f]+\r\n", b"", b"".join(got))  # pieces end anywhere
        assert got.count(b"data: {") == stream["max_tokens"], got.count(b"data: {")
        deaf.close()

    with serving(hybrid, "--timeout", 2) as s:
        # Too slow: headers and bodies, a byte now and then.
        for start in (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
                      b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n"):
            slow, answer = raw(s, start), b""
            slow.settimeout(0.2)
            deadline = time.time() + 60
            while time.time() < deadline and b"\r\n\r\n" not in answer:
                try:
                    slow.sendall(b"a")
                    answer += slow.recv(1000)
                except TimeoutError:
                    pass
                except OSError:
                    break
            assert answer.startswith(b"HTTP/1.1 408 "), (start, answer)
            slow.close()
        assert s.get("/health") == {"status": "ok"}

        # A client that reads next to nothing, in time: its text ends.
        deaf = raw(s, b"")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        deaf.sendall(request(stream))
        assert until(lambda: s.metric("texts_running") == 1) and until(lambda: deaf.recv(100) and s.metric("texts_running") == 0)
        assert s.metric("cancelled_total") == 1 and s.metric("written_tokens_total") < stream["max_tokens"]
        deaf.close()
        # One that reads steadily gets all, however much waits for it.
        slow, whole = raw(s, b""), 64 * 50000
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(request({"prompt": "a" * 50000, "n": 64, "echo": True, "stream": True, "max_tokens": 0}))
        got = 0
        while got < whole:
            data = slow.recv(16384)
            assert data, f"the stream ended after {got} of {whole} bytes"
            got += data.count(b"a")
            time.sleep(len(data) / 500000)
        slow.close()
        # Half a request, and one that is not read, when the signal comes.
        half = raw(s, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")

    s = Server(hybrid, "--drain", 1)
    deaf = raw(s, request(stream))
    half = raw(s, b"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: 10000\r\n\r\nPAL")
    idle = raw(s, b"")
    until(lambda: s.metric("texts_running") == 1)
    s.process.send_signal(signal.SIGHUP)  # a terminal that closes ends nothing
    assert s.text(prompt="b", max_tokens=5)
    s.stop()

    # A port belongs to one server. A client that stays connected does not keep a stopped server's port.
    s = Server(hybrid, "--drain", 0)
    second = subprocess.run([program, "serve", hybrid, "--port", str(s.port)], capture_output=True, text=True, timeout=60)
    assert second.returncode == 2 and f"cannot listen on 127.0.0.1 port {s.port}: Address already in use; another program listens there" in second.stderr, second
    nowhere = subprocess.run([program, "serve", hybrid, "--host", "192.0.2.1", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert nowhere.returncode == 2 and "cannot listen on 192.0.2.1 port 0: Cannot assign requested address" in nowhere.stderr, nowhere
    connected = http.client.HTTPConnection("127.0.0.1", s.port, timeout=100)
    connected.request("GET", "/v1/models")
    assert connected.getresponse().read()
    s.stop()
    again = subprocess.Popen([program, "serve", hybrid, "--port", str(s.port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert again.stdout.readline() == f"listening on http://127.0.0.1:{s.port}\n"
    again.terminate()
    assert again.wait(60) == 0
    connected.close()

    # A log that no one reads stops nothing.
    process = subprocess.Popen([program, "serve", hybrid, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    s = Server.__new__(Server)
    s.process, s.port = process, int(process.stdout.readline().rsplit(":", 1)[1])
    before = "".join(process.stderr.readline() for _ in range(3))  # it starts; the tokenizer is smaller than the vocabulary
    assert re.fullmatch(r"loading .*\npalimpsa: warning: .*\nRAM: weights .* KiB, workspace .* MiB, .* KiB a sequence; 2 GiB for .* \(--memory-budget\)\n", before), before
    for _ in range(30 if "--sanitized" in sys.argv else 1000):  # more than a pipe holds
        assert s.ask("GET", "/" + "x" * 100)[0] == 404
    s.stop()
    print("serve_manners: as promised")
