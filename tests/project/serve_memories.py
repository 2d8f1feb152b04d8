#!/usr/bin/env python3
"""Memories of `palimpsa serve`: made from text, from each other and from files of `generate`; a text continues from one as if it had read everything; updates,
marks and roll back; across restarts; limits of disk and RAM; and what is wrong."""
from serving import ENDLESS, program, run, serving, speaking_model

import concurrent.futures, json, pathlib, socket, subprocess, tempfile, time

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    story, question = "Once upon a time, in 1905, there was a fox. " * 8, "And then"
    G = dict(max_tokens=20, temperature=0)

    def whole(text, **more):
        """What the program writes after a text that it reads itself."""
        options = {"max-tokens": 20, "temperature": 0, **more}
        return run("generate", hybrid, "--prompt", text, *(w for k, v in options.items() for w in (f"--{k}", v))).decode()

    def upload(s, data, query="", headers={}):
        return s.ask("POST", "/v1/memories" + query, raw=data, headers={"Content-Type": "application/octet-stream", **headers})

    def refuses(says, *options):
        process = subprocess.run([program, "serve", hybrid, "--port", "0", *map(str, options)], capture_output=True, text=True, timeout=60)
        assert process.returncode in (1, 2) and says in process.stderr and not process.stdout, process

    kept = folder / "kept"
    with serving(hybrid, "--memory-dir", kept, *ENDLESS) as s:
        # A memory that read a text continues as one that reads it now, and stays as it is.
        m = s.post("/v1/memories", text=story, name="the fox")
        assert m["object"] == "memory" and m["tokens"] == len(story) and m["name"] == "the fox" and m["origin"] == "text" and m["model"] == "hybrid" and m["marks"] == [], m
        for _ in range(2):
            assert s.text(prompt=question, memory=m["id"], **G) == whole(story + question)
        assert s.text(prompt="", memory=m["id"], **G) == whole(story)  # on without a word
        assert s.get(f"/v1/memories/{m['id']}") == m and s.get("/v1/memories")["data"] == [m]
        streamed = s.stream("/v1/completions", prompt=question, memory=m["id"], **G)
        assert "".join(e["choices"][0]["text"] for e in streamed) == whole(story + question)
        three = s.complete(prompt=question, memory=m["id"], n=3, max_tokens=20, temperature=1, seed=4)["choices"]
        assert three[1]["text"] == s.text(prompt=question, memory=m["id"], max_tokens=20, temperature=1, seed=5) and len({c["text"] for c in three}) == 3
        echoed = s.complete(prompt=question, memory=m["id"], max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
        alone = s.complete(prompt=story + question, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
        assert all(abs(a - b) < 1e-4 for a, b in zip(echoed, alone[-len(question) :])) and len(echoed) == len(question)
        penalised = s.text(prompt=question, memory=m["id"], repetition_penalty=2, **G)  # counts what the memory has seen
        assert penalised == whole(story + question, **{"repetition-penalty": 2}) != whole(story + question)

        # Updated: the next text continues after the last one.
        fork = s.post("/v1/memories", **{"from": m["id"]})
        assert fork["origin"] == "fork" and fork["parent"] == m["id"] and fork["tokens"] == m["tokens"]
        first = s.text(prompt=question, memory=fork["id"], update_memory=True, **G)
        second = s.text(prompt=" and", memory=fork["id"], update_memory=True, **G)
        assert first == whole(story + question) and second == whole(story + question + first + " and")
        assert s.get(f"/v1/memories/{fork['id']}")["tokens"] == len(story + question + first + " and" + second)
        assert s.get(f"/v1/memories/{m['id']}") == m  # the other knows nothing of it
        talk = s.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], memory=fork["id"], temperature=0, max_tokens=5)
        assert talk["choices"][0]["message"]["content"] == s.text(prompt="User: Hi\n\nAssistant:", memory=fork["id"], temperature=0, max_tokens=5)

        # Marks, and back; forks of marks, forks that read on.
        marked = s.post(f"/v1/memories/{fork['id']}/marks", name="two.texts")
        assert [k["name"] for k in marked["marks"]] == ["two.texts"]
        third = s.text(prompt="", memory=fork["id"], update_memory=True, **G)
        branch = s.post("/v1/memories", **{"from": fork["id"], "mark": "two.texts"})
        longer = s.post("/v1/memories", **{"from": fork["id"], "mark": "two.texts", "text": "!?"})
        back = s.post(f"/v1/memories/{fork['id']}/rollback", mark="two.texts")
        assert back["tokens"] == marked["tokens"] == branch["tokens"] == longer["tokens"] - 2
        for one in (fork, branch):
            assert s.text(prompt="", memory=one["id"], **G) == third
        assert s.text(prompt="", memory=longer["id"], **G) == whole(story + question + first + " and" + second + "!?")
        assert s.post(f"/v1/memories/{branch['id']}", name="<b>branch</b>")["name"] == "<b>branch</b>"
        assert s.ask("DELETE", f"/v1/memories/{longer['id']}")[1]["deleted"] and s.ask("GET", f"/v1/memories/{longer['id']}")[0] == 404

        # Files: what generate saved can be uploaded, what is downloaded generate loads.
        run("generate", hybrid, "--prompt", story, "--max-tokens", 0, "--save-memory", folder / "saved")
        saved = (folder / "saved").read_bytes()
        status, loaded, _ = upload(s, saved, "?name=from%20generate")
        assert status == 201 and loaded["origin"] == "upload" and loaded["name"] == "from generate" and loaded["tokens"] == m["tokens"], loaded
        assert s.text(prompt=question, memory=loaded["id"], **G) == whole(story + question)
        status, data, answer = s.ask("GET", f"/v1/memories/{fork['id']}/file")
        assert status == 200 and answer.getheader("Content-Type") == "application/octet-stream" and len(data) == fork["bytes"]
        (folder / "downloaded").write_bytes(data)
        assert run("generate", hybrid, "--load-memory", folder / "downloaded", "--max-tokens", 20, "--temperature", 0).decode() == third
        before = s.get("/v1/memories")
        damaged = bytearray(saved)
        damaged[200] ^= 1
        foreign = bytearray(saved)
        foreign[16] ^= 1  # the fingerprint
        for wrong, says in ((bytes(damaged), "checksum"), (bytes(foreign), "another model"), (saved[:-5], "bytes"), (b"", "bytes"), (b"x" * 100, "not a state file")):
            status, answer, _ = upload(s, wrong)
            assert status == 400 and says in answer["error"]["message"] and str(folder) not in answer["error"]["message"], (status, answer)
        assert upload(s, saved + b"x" * 300)[0] == 413
        connection = socket.create_connection(("127.0.0.1", s.port))  # a body without a length, too long
        connection.sendall(b"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        big = saved + b"x" * 300
        connection.sendall(b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
        connection.close()
        cut = socket.create_connection(("127.0.0.1", s.port))  # one that is cut off
        cut.sendall(b"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(saved) + saved[:1000])
        cut.close()
        deadline = time.time() + 5
        while s.get("/v1/memories") != before and time.time() < deadline:
            time.sleep(0.01)
        assert s.get("/v1/memories") == before, (s.get("/v1/memories"), before)
        assert len(list(kept.glob("*.state"))) == len(before["data"]) + 1  # and one mark

        # Two updates at once, deleting what is updated, and what is not there.
        body = json.dumps({"prompt": "a", "memory": fork["id"], "update_memory": True, "max_tokens": 10**9, "ignore_eos": True}).encode()
        away = socket.create_connection(("127.0.0.1", s.port))
        away.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while s.metric("texts_running") == 0:
            time.sleep(0.01)
        s.refused({"prompt": "a", "memory": fork["id"], "update_memory": True}, "memory", code=409)
        s.refused({"mark": "two.texts"}, "memory", f"/v1/memories/{fork['id']}/rollback", 409)
        s.refused(None, "memory", f"/v1/memories/{fork['id']}", 409, "DELETE")
        assert s.text(prompt="", memory=fork["id"], **G) == third  # reading is fine
        away.close()
        while s.metric("texts_running"):
            time.sleep(0.01)
        assert s.text(prompt="", memory=fork["id"], **G) == third  # who goes away leaves it as it was
        s.refused({"prompt": "a", "memory": fork["id"], "update_memory": True, "n": 2}, "memory")
        s.refused({"prompt": "a", "update_memory": True}, "memory")
        for value in (5, "", [], {}, True):
            s.refused({"prompt": "a", "memory": value}, "memory")
        for value in ("0" * 16, "x" * 1000000, "../../etc/passwd", "%2e%2e"):
            s.refused({"prompt": "a", "memory": value}, "memory", code=404)
            s.refused({"from": value}, "from", "/v1/memories", 404)
        for body, param in (({}, "text"), ({"text": 5}, "text"), ({"text": ["a"]}, "text"), ({"text": "\u0416"}, "text"), ({"tokens": ["a"]}, "tokens"), ({"tokens": [-1]}, "tokens"),
                            ({"tokens": [2**31]}, "tokens"), ({"tokens": []}, "tokens"), ({"text": "a", "tokens": [1]}, "tokens"), ({"text": "a", "name": 5}, "name"), ({"text": "a", "name": "x" * 300}, "name"),
                            ({"from": 5}, "from"), ({"from": fork["id"], "mark": "a/b"}, "mark")):
            s.refused(body, param, "/v1/memories")
        s.refused({"from": fork["id"], "mark": "none"}, "mark", "/v1/memories", 404)
        s.refused({"name": "two.texts"}, "name", f"/v1/memories/{fork['id']}/marks", 409)
        for name in ("", "a/b", "..%2f", 5, None, "x" * 65, "a b", ".", ".."):  # clients fold dots away in the path that forgets a mark
            s.refused({"name": name}, "name", f"/v1/memories/{fork['id']}/marks")
        s.refused({"mark": "none"}, "mark", f"/v1/memories/{fork['id']}/rollback", 404)
        for path in ("/v1/memories/", "/v1/memories//file", "/v1/memories/none", f"/v1/memories/{fork['id']}/none", f"/v1/memories/{fork['id']}/marks/a/b", "/v1/memories/..%2f..%2fkey"):
            assert s.ask("GET", path)[0] in (404, 405), path
        assert s.get("/v1/memories") == before

    # Another run of the server finds them all; a memory that was not finished is gone, one that is damaged is not offered.
    (kept / ("0" * 16 + ".state")).write_bytes(b"half")
    (kept / ("1" * 16 + ".json")).write_bytes(b"{")
    unfinished = [kept / f"{id_}.{kind}.0badcafe" for id_ in ("2" * 16, fork["id"]) for kind in ("state", "json")]  # of a server that was killed
    for file in unfinished:
        file.write_bytes(b"half")
    (kept / "mine.txt").write_text("untouched")
    with serving(f"renamed={hybrid}", "--memory-dir", kept) as s:
        again = s.get("/v1/memories")
        assert [(k["id"], k["name"], k["tokens"], k["marks"], k["origin"], k["parent"], k["model"]) for k in sorted(again["data"], key=lambda k: k["id"])] == [
            (k["id"], k["name"], k["tokens"], k["marks"], k["origin"], k["parent"], "renamed") for k in sorted(before["data"], key=lambda k: k["id"])]
        assert again["disk_used"] == before["disk_used"]
        assert s.text(prompt="", memory=fork["id"], **G) == third
        assert s.post(f"/v1/memories/{fork['id']}/rollback", mark="two.texts")["tokens"] == marked["tokens"]
        assert not s.ask("DELETE", f"/v1/memories/{fork['id']}/marks/two.texts")[1]["marks"] and s.ask("DELETE", f"/v1/memories/{fork['id']}/marks/two.texts")[0] == 404
        for one in again["data"]:
            assert s.ask("DELETE", f"/v1/memories/{one['id']}")[0] == 200
        assert s.get("/v1/memories")["disk_used"] == 0
        assert sorted(f.name for f in kept.iterdir()) == ["1" * 16 + ".json", "mine.txt"]
        refuses(f"process {s.process.pid} (", "--memory-dir", kept)

    # Room: a memory too many is refused and changes nothing; texts wait for RAM.
    with serving(hybrid, "--memory-disk", 2 * m["bytes"] + 300, "--memory-budget", int(2.5 * m["bytes"])) as s:
        one, two = (s.post("/v1/memories", text=t) for t in ("a", "b"))
        s.refused({"text": "c"}, None, "/v1/memories", 507)
        s.refused({"from": one["id"]}, None, "/v1/memories", 507)
        s.refused({"name": "m"}, None, f"/v1/memories/{one['id']}/marks", 507)
        assert upload(s, saved)[0] == 507
        assert s.text(prompt="", memory=one["id"], update_memory=True, **G)  # in place of itself
        s.ask("DELETE", f"/v1/memories/{two['id']}")
        assert upload(s, saved)[0] == 201
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert list(pool.map(lambda i: s.text(prompt=question, **G), range(6))) == [whole(question)] * 6
    refuses("one text of hybrid needs", "--memory-budget", 1000)
    refuses("--memory-disk", "--memory-disk", -1)
    refuses("cannot", "--memory-dir", "/proc/none")

    # A request that names a memory and a model means one and the same.
    with serving(f"a={hybrid}", f"b={attention}") as s:
        m = s.post("/v1/memories", model="b", tokens=[1, 2])
        s.refused({"model": "a", "from": m["id"]}, "model", "/v1/memories")
        s.refused({"model": "c", "from": m["id"]}, "model", "/v1/memories", 404)
        assert s.post("/v1/memories", **{"model": "b", "from": m["id"]})["model"] == "b" == s.post("/v1/memories", **{"from": m["id"]})["model"]
        assert len(s.get("/v1/memories")["data"]) == 3

    # Attention keeps every token, and says so. Another run with more room, or just enough, takes the memory.
    for context, code in ((40, 200), (35, 200), (400, 200), (20, 400)):
        with serving(attention, "--tokenizer", "bytes", "--max-context", context, "--memory-dir", kept) as s:
            if context == 40:
                m = s.post("/v1/memories", text="x" * 30)
            found = s.ask("POST", "/v1/completions", {"prompt": "y", "memory": m["id"], "max_tokens": 1})
            assert found[0] == code and (code == 200 or "has 30 tokens, this server's attention layers hold 20 (--max-context)" in found[1]["error"]["message"]), (context, found[:2])
    with serving(attention, "--tokenizer", "bytes", "--max-context", 40) as s:
        m = s.post("/v1/memories", text="x" * 30)
        assert "40" in m["note"] and m["tokens"] == 30
        assert s.complete(prompt="y", memory=m["id"], max_tokens=100)["usage"]["completion_tokens"] == 10
        s.refused({"prompt": "y" * 20, "memory": m["id"]}, None)
    print("serve_memories: as promised")
