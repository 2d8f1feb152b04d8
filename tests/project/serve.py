#!/usr/bin/env python3
"""`palimpsa serve` over loopback with a small client: answers equal what `generate` writes, alone and in company; log-probabilities as evaluation
programs expect them; streams; one sentence for each thing that is wrong; and who goes away, waits too long or comes too often."""
from serving import ENDLESS, Server, golden, program, run, serving, speaking_model

import concurrent.futures, http.client, json, os, pathlib, shutil, socket, subprocess, sys, tempfile, time

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    words = "The quick brown fox, 1905."
    ids = list(map(int, run("tokenize", "--tokenizer", hybrid, "--encode", words).split()))
    greedy = run("generate", hybrid, "--prompt", words, "--max-tokens", 30, "--temperature", 0).decode()
    G = dict(max_tokens=30, temperature=0)

    # A name that is not UTF-8 is served as JSON can say it.
    odd = os.fsencode(folder) + b"/caf\xe9"
    os.symlink(os.fsencode(hybrid), odd)
    with serving(os.fsdecode(odd)) as s:
        name = s.get("/v1/models")["data"][0]["id"]
        assert name == "caf\ufffd" and s.text(prompt=words, model=name, **G) == greedy
        told = s.stream("/v1/completions", prompt=words, model=name, **G)
        assert "".join(part["choices"][0]["text"] for part in told) == greedy and told[-1]["model"] == name, told

    with serving(hybrid, *ENDLESS) as s:
        # Prompts of every form; what generate writes.
        for prompt in (words, [words], ids, [ids]):
            answer = s.complete(prompt=prompt, **G)
            assert [c["text"] for c in answer["choices"]] == [greedy] and answer["choices"][0]["finish_reason"] == "length", answer
            assert answer["usage"]["prompt_tokens"] == len(ids) and answer["usage"]["completion_tokens"] == 30
        many = s.complete(prompt=["a", words, "b c", ids and "xyz" * 200], **G)["choices"]
        assert [c["index"] for c in many] == [0, 1, 2, 3] and many[1]["text"] == greedy
        sampled = dict(prompt=words, max_tokens=20, temperature=1, seed=5)
        assert run("generate", hybrid, "--prompt", words, "--max-tokens", 20, "--temperature", 1, "--seed", 5).decode() == s.complete(**sampled)["choices"][0]["text"]
        three = [c["text"] for c in s.complete(**sampled, n=3)["choices"]]
        assert len(set(three)) == 3 and three[1] == s.complete(**{**sampled, "seed": 6})["choices"][0]["text"]
        penalised = s.complete(**sampled, repetition_penalty=2, presence_penalty=1, frequency_penalty=0.5, top_k=20, top_p=0.9, min_p=0.01)["choices"][0]["text"]
        assert penalised != three[0]
        biased = s.complete(prompt=words, max_tokens=5, temperature=0, logit_bias={str(ids[0]): 100})["choices"][0]["text"]
        assert biased == "TTTTT", biased

        # Log-probabilities with the prompt's: one number for one token, the token itself always among the alternatives.
        answer = s.complete(prompt=[ids], max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1234)["choices"][0]
        told = answer["logprobs"]
        assert answer["text"] == words + greedy[0] and "".join(told["tokens"]) == words + greedy[0] and told["text_offset"] == list(range(len(ids) + 1))
        assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None and len(told["token_logprobs"]) == len(ids) + 1
        for token, logprob, top in list(zip(told["tokens"], told["token_logprobs"], told["top_logprobs"]))[1:]:
            assert top[token] == logprob <= max(top.values()) and len(top) <= 2, (token, logprob, top)
        assert told["token_logprobs"][-1] == max(told["top_logprobs"][-1].values())  # greedy, exactly
        (folder / "words").write_text(words)
        nll = json.loads(run("eval", hybrid, "--task", "perplexity", "--data", folder / "words", "--no-prefix", "--json"))["nll"] * (len(ids) - 1)  # a mean
        assert abs(sum(told["token_logprobs"][1:-1]) + nll) < 1e-4 * nll, (told, nll)
        alone = s.complete(prompt=words, max_tokens=0, logprobs=0, echo=True)["choices"][0]
        assert alone["text"] == words and alone["logprobs"]["token_logprobs"] == told["token_logprobs"][:-1]
        long = (words * 40)[:700]  # several pieces
        assert len(s.complete(prompt=long, max_tokens=0, logprobs=2, echo=True)["choices"][0]["logprobs"]["tokens"]) == 700
        varied = s.complete(prompt=words, max_tokens=3, temperature=0, variance=True)["choices"][0]["logprobs"]
        assert all(v > 0 for v in varied["variance"]), varied

        # Streams say the same; stops are not part of the text.
        events = s.stream("/v1/completions", prompt=words, stream_options={"include_usage": True}, logprobs=1, **G)
        assert "".join(e["choices"][0]["text"] for e in events[:-1]) == greedy and events[-1]["usage"]["completion_tokens"] == 30 and not events[-1]["choices"]
        assert sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in events[:-1]) == 30 and events[-2]["choices"][0]["finish_reason"] == "length"
        stop = greedy[11:13]
        stopped = s.complete(prompt=words, stop=["\u4e2d\u4e2d", stop], **G)["choices"][0]
        assert stopped["text"] == greedy[: greedy.index(stop)] and stopped["finish_reason"] == "stop"
        assert "".join(e["choices"][0]["text"] for e in s.stream("/v1/completions", prompt=words, stop=stop, **G)) == stopped["text"]

        # Chats, by the plain template.
        talk = dict(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], max_completion_tokens=12, temperature=0)
        plain = run("generate", hybrid, "--prompt", "Be brief.\n\nUser: Hi\n\nAssistant:", "--max-tokens", 12, "--temperature", 0).decode()
        answer = s.post("/v1/chat/completions", **talk, logprobs=True, top_logprobs=2)
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": plain} and len(answer["choices"][0]["logprobs"]["content"]) == 12
        events = s.stream("/v1/chat/completions", **talk)
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == plain and events[0]["choices"][0]["delta"]["role"] == "assistant"

        # Answers that follow a grammar, in company of one that does not.
        schema = {"type": "object", "properties": {"a": {"enum": [1, "x"]}, "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}, "required": ["a", "b"]}
        form = {"type": "json_schema", "json_schema": {"name": "form", "strict": True, "schema": schema}}
        for seed in range(4):
            choices = s.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], response_format=form, n=3, seed=seed, max_tokens=200)["choices"]
            for value in (json.loads(c["message"]["content"]) for c in choices):
                assert value["a"] in (1, "x") and len(value["b"]) <= 3 and set(map(type, value["b"])) <= {bool}, value
            assert {c["finish_reason"] for c in choices} == {"stop"}
        events = s.stream("/v1/completions", prompt=words, response_format=form, max_tokens=200)
        assert set(json.loads("".join(e["choices"][0]["text"] for e in events))) == {"a", "b"} and events[-1]["choices"][0]["finish_reason"] == "stop"
        cut = s.complete(prompt=words, response_format={"type": "json_object"}, max_tokens=1)["choices"][0]
        assert cut["text"] == "{" and cut["finish_reason"] == "length", cut
        assert s.text(prompt=words, grammar='root ::= "yes" | "no"') in ("yes", "no")
        assert s.text(prompt=words, response_format={"type": "text"}, **G) == greedy

        # The tokenizer, as lm-evaluation-harness asks for it.
        assert s.post("/tokenize", prompt=words, add_special_tokens=False)["tokens"] == ids
        assert s.post("/detokenize", tokens=ids)["prompt"] == words
        assert "eos_token" in s.ask("GET", "/tokenizer_info")[1]
        assert s.ask("GET", "/v1/models")[1]["data"][0]["id"] == "hybrid" and s.ask("GET", "/health")[1] == {"status": "ok"}
        paths = s.ask("GET", "/openapi.json")[1]["paths"]
        assert {"/v1/completions", "/v1/chat/completions", "/tokenize"} <= set(paths)

        # In company, each as if alone.
        prompts = [words[: 3 + i] * (1 + i % 5) for i in range(24)]
        alone = [s.complete(prompt=p, max_tokens=10 + i % 7, temperature=0.9, seed=i)["choices"][0]["text"] for i, p in enumerate(prompts)]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda i: s.complete(prompt=prompts[i], max_tokens=10 + i % 7, temperature=0.9, seed=i)["choices"][0]["text"], range(24)))
        assert alone == together

        # Every field, wrong in every way, is refused by its name; unknown ones are ignored.
        numbers = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "n", "seed", "logprobs", "best_of")
        for name in numbers:
            for value in ("", "x" * 1000, [], {}, [None], 1.5 if name == "seed" else 2**31):
                s.refused({"prompt": "a", name: value}, name)
            if name not in ("top_k", "seed", "presence_penalty", "frequency_penalty"):
                s.refused({"prompt": "a", name: -1}, name)
        for name in ("echo", "stream", "ignore_eos", "variance"):
            for value in (0, "true", [], {}):
                s.refused({"prompt": "a", name: value}, name)
        for name, wrong in {"prompt": (5, None, {}, [], [1.5], [-1], [10**6], [["a"]], "\u0416"), "stop": (5, "", [""], ["a"] * 17, {}, "a\0b"),
                            "logit_bias": ([], {"x": 1}, {"-1": 1}, {"99999": 1}, {"9" * 30: 1}, {"": 1}, {" 1": 1}, {"+1": 1}, {"01": 1}, {"1 ": 1}, {"1": "a"}, {"1": 101}, {str(i): -100 for i in range(98)}), "stream_options": (5, {}), "model": (5, []),
                            "tools": ([{}],), "response_format": (5, {}, {"type": "json"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}), "grammar": (5, "", "root ::= x"), "suffix": ("a",)}.items():
            for value in wrong:
                s.refused({"prompt": "a", name: value}, name)
        for messages in (None, [], "hi", [{}], [{"role": "user"}], [{"role": "robot", "content": "a"}], [{"role": "user", "content": 5}]):
            s.refused({"messages": messages}, "messages", "/v1/chat/completions")
        s.refused({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs", "/v1/chat/completions")
        s.refused({"tokens": [10**9]}, "tokens", "/detokenize")
        s.refused({"prompt": 5}, "prompt", "/tokenize")
        assert s.complete(prompt="a", unknown={"field": 1}, max_tokens=1)
        for raw in (b"", b"{", b"[" * 60000, b'{"prompt": NaN}', b'{"prompt": "\xff"}', b"5", b'{"prompt": "a", "n": 123456789012345678901234567890}'):
            status, answer, _ = s.ask("POST", "/v1/completions", raw=raw)
            assert status == 400 and "error" in answer, (raw[:20], status, answer)
        assert s.ask("GET", "/v1/completions")[0] == 405 and s.ask("GET", "/nowhere")[0] == 404
        assert s.ask("GET", "/v1/models", headers={"Host": "evil.example"})[0] == 403
        assert s.ask("GET", "/v1/models", headers={"Host": "127.evil.example"})[0] == 403 and s.ask("GET", "/v1/models", headers={"Host": "127.1.2.3:80"})[0] == 200
        assert s.ask("GET", "/v1/models", headers={"Origin": "http://evil.example"})[0] == 403
        assert s.ask("GET", "/v1/models", headers={"Origin": f"http://127.0.0.1:{s.port}"})[0] == 200

        # Bodies that are cut off, and clients that go away: what they asked for ends.
        cut = socket.create_connection(("127.0.0.1", s.port))
        cut.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{"prompt"')
        cut.close()
        for stream, more in ((False, b""), (True, b""), (False, b"X")):
            body = json.dumps({"prompt": "a", "max_tokens": 10**9, "ignore_eos": True, "stream": stream}).encode()
            away = socket.create_connection(("127.0.0.1", s.port))
            away.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            deadline = time.time() + 30
            while s.metric("texts_running") == 0 and time.time() < deadline:
                time.sleep(0.01)
            away.sendall(more)
            away.close()
            while s.metric("texts_running") and time.time() < deadline:
                time.sleep(0.01)
            assert s.metric("texts_running") == 0, (stream, more)
        assert s.complete(prompt=words, **G)["choices"][0]["text"] == greedy

    # Several models by name, a key, a small body; attention's limit is an answer.
    (folder / "key").write_text("secret\n")
    with serving(f"one={hybrid}", f"two={hybrid}", "--api-key-file", folder / "key", "--max-body", "2K", "--log", "json") as s:
        key = {"Authorization": "Bearer secret"}
        assert s.ask("GET", "/v1/models")[0] == 401 and s.ask("GET", "/v1/models", headers={"Authorization": "Bearer secreT"})[0] == 401
        assert [s.ask("GET", "/v1/models", headers={"Authorization": f"{scheme}secret"})[0] for scheme in ("bearer ", "BEARER  ", "Bearer", "Basic ", "")] == [200, 200, 401, 401, 401]
        assert s.ask("GET", "/health")[0] == 200 and [m["id"] for m in s.ask("GET", "/v1/models", headers=key)[1]["data"]] == ["one", "two", "one@plain", "two@plain"]
        for name, code in (("one", 200), ("two", 200), ("three", 404), (None, 400)):
            assert s.ask("POST", "/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1}, key)[0] == code, name
        assert s.ask("POST", "/v1/completions", {"model": "one", "prompt": "a" * 3000}, key)[0] == 413
    with serving(attention, "--tokenizer", "bytes", "--max-context", 20) as s:
        assert s.complete(prompt="x", max_tokens=100)["choices"][0]["finish_reason"] == "length"
        status, answer, _ = s.ask("POST", "/v1/completions", {"prompt": "x" * 50})
        assert status == 400 and answer["error"]["param"] == "prompt" and "20" in answer["error"]["message"], answer

    with serving(golden / "models/mqar_palimpsa_m", "--tokenizer", "ids") as s:
        assert s.post("/tokenize", prompt="1 63")["tokens"] == [1, 63]
        for path in ("/tokenize", "/v1/completions"):
            s.refused({"prompt": "1 99"}, "prompt", path)

    # A text that runs alone guesses: the same answers, and both kinds of guesses are counted.
    asked = [dict(prompt="abc abd abc abd abc " * 3, max_tokens=80, temperature=t, seed=4, repetition_penalty=0.2, ignore_eos=True, **more)
             for t, more in ((0, {}), (0.5, dict(logprobs=3)), (0.3, dict(n=3)), (0.3, dict(stop=["b"])), (0.5, dict(frequency_penalty=0.1)))]
    answers = []
    for options in ([], ["--speculate", 7]):
        with serving(hybrid, *options) as s:
            answers.append([s.complete(**body) for body in asked])
            counted = [s.metric(f"{how}_tokens_total") for how in ("accepted", "rejected")]
            if not options:
                assert counted == [0, 0] and "completion_tokens_details" not in answers[0][0]["usage"], (counted, answers[0][0])
                continue
            details = [a["usage"].pop("completion_tokens_details") for a in answers[1]]
            assert counted == [sum(d[f"{how}_prediction_tokens"] for d in details) for how in ("accepted", "rejected")] and details[0]["accepted_prediction_tokens"] > 5, (counted, details)
    assert [[a["choices"], a["usage"]] for a in answers[0]] == [[a["choices"], a["usage"]] for a in answers[1]]

    # What a model is called: NAME=PATH, or the last part of a path, which may hold a "=" or be ".".
    shutil.copytree(hybrid, folder / "a=b/m=1")
    before = os.getcwd()
    for place, given, name in ((folder, "a=b/m=1", "m=1"), (folder / "a=b", "m=1", "m=1"), (folder, "c=a=b/m=1", "c"), (folder / "a=b/m=1", ".", "m=1"), (folder / "a=b", "m=1/..//m=1/", "m=1")):
        os.chdir(place)
        with serving(given) as s:
            assert s.get("/v1/models")["data"][0]["id"] == name, given
    os.chdir(before)

    # HEAD says what GET would.
    with serving(hybrid) as s:
        for path in ("/v1/models", "/health", "/metrics", "/", "/v1/memories/none"):
            known, _, whole = s.ask("GET", path)
            connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=100)
            connection.request("HEAD", path)
            found = connection.getresponse()
            assert found.status == known and found.read() == b"" and found.getheader("Content-Type") == whole.getheader("Content-Type"), path
        connection.request("HEAD", "/v1/completions")
        assert connection.getresponse().status == 405

    # A full queue is said; SIGTERM lets what runs end.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        s = Server(hybrid, "--max-sessions", 1, "--max-queue", 1)
        length = 400 if "--sanitized" in sys.argv else 6000  # long enough for the others to come meanwhile
        slow = dict(prompt="a", max_tokens=length, ignore_eos=True, temperature=0)
        waiting = [pool.submit(s.ask, "POST", "/v1/completions", slow) for _ in range(8)]
        deadline = time.time() + 60
        while (s.metric("texts_running") == 0 or sum(w.done() for w in waiting) < 6) and time.time() < deadline:
            time.sleep(0.005)
        s.stop()
        answers = [w.result() for w in waiting]
        codes = sorted(a[0] for a in answers)
        assert codes[0] == 200 and set(codes) <= {200, 429} and 429 in codes, codes
        for status, answer, response in answers:
            assert status != 429 or response.getheader("Retry-After")
            assert status != 200 or answer["usage"]["completion_tokens"] == length

    for wrong, says in ((["serve"], "name a model"), (["serve", folder / "no"], "cannot open"), (["serve", hybrid, "--port", 70000], "--port"), (["serve", hybrid, hybrid], "NAME=MODEL"),
                        (["serve", hybrid, "--max-sessions", 0], "--max-sessions"), (["serve", hybrid, "--speculate", -1], "--speculate expects 0 to 31, found -1"), (["serve", hybrid, "--log", "loud"], "--log"), (["serve", hybrid, "--memory-budget", "2Q"], "2G"), (["serve", hybrid, "--max-body", "9999999T"], "2G"), (["serve", hybrid, "--memory-budget", "1K"], "--memory-budget 1024"), (["serve", hybrid, "--chat-template", "x"], "chatml, llama2, plain")):
        process = subprocess.run([program, *map(str, wrong)], capture_output=True, text=True, timeout=60)
        assert process.returncode == 2 and says in process.stderr and not process.stdout, (wrong, process)
    print("serve: as promised")
