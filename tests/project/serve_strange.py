#!/usr/bin/env python3
"""Strange names, methods and files for `palimpsa serve`: they get one sentence, or nothing; memories that a killed server left; and a model that becomes shorter."""
from serving import Server, program, run, serving, speaking_model

import contextlib, json, os, pathlib, shutil, socket, struct, subprocess, sys, tempfile


def connect(s, data):
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    connection.sendall(data)
    return connection


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    talk = [{"role": "user", "content": "a"}]

    # The name of a file that is uploaded is UTF-8; and no answer says where the server keeps its files.
    run("generate", hybrid, "--prompt", "a fox", "--max-tokens", 0, "--save-memory", folder / "saved")
    saved = (folder / "saved").read_bytes()
    file = {"Content-Type": "application/octet-stream"}
    kept = folder / "kept"
    with serving(hybrid, "--memory-dir", kept) as s:
        for name in ("%FFx", "%C3", "%ED%A0%80", "a%F5"):
            status, answer, _ = s.ask("POST", f"/v1/memories?name={name}", raw=saved, headers=file)
            assert status == 400 and answer["error"]["param"] == "name" and "UTF-8" in answer["error"]["message"], (name, status, answer)
        status, fox, _ = s.ask("POST", "/v1/memories?name=%C3%A9%F0%9F%A6%8A", raw=saved, headers=file)
        assert status == 201 and fox["name"] == "\u00e9\U0001f98a", fox
        assert s.ask("POST", "/v1/memories?model=%FF@plain", raw=saved, headers=file)[0] == 404
        again = s.ask("POST", "/v1/memories?name=again", raw=saved, headers=file)[1]  # read from its file at the first use
        (kept / f"{again['id']}.state").write_bytes(saved[:-1] + bytes([saved[-1] ^ 1]))
        status, answer, _ = s.ask("POST", "/v1/completions", {"prompt": "a", "memory": again["id"]})
        assert status == 500 and answer["error"]["message"].startswith(again["id"] + ".state: ") and "/" not in answer["error"]["message"], answer
        (kept / f"{again['id']}.state").unlink()
        for path, body in ((f"/v1/memories/{again['id']}/marks", {"name": "m"}), ("/v1/memories", {"from": again["id"]}), ("/v1/completions", {"prompt": "a", "memory": again["id"]})):
            status, answer, _ = s.ask("POST", path, body)
            assert status == 500 and str(folder) not in json.dumps(answer) and "kept" not in json.dumps(answer), answer

    # Files that claim anything: too many tokens, or a size that takes everybody's room. They are not offered, and there is room.
    def state(id_, data, size=0, **told):
        (kept / f"{id_}.json").write_text(json.dumps({"name": None, "origin": "text", "parent": "", "created": 1, "changed": 1, "marks": [], **told}, ensure_ascii=False), "utf-8")
        (kept / f"{id_}.state").write_bytes(data)
        if size:
            os.truncate(kept / f"{id_}.state", size)

    def forged(pending, position, floats):
        return saved[:12] + struct.pack("<I", pending) + saved[16:24] + struct.pack("<q", position) + saved[32:40] + struct.pack("<Q", floats) + saved[48:]

    (floats,), size = struct.unpack("<Q", saved[40:48]), 20 << 30
    state("a" * 16, forged(1, 2**63 - 1, floats))
    state("b" * 16, forged(1, -1, floats))
    state("c" * 16, saved, size)
    state("d" * 16, forged(1, 5, (size - (len(saved) - 4 * floats)) // 4), size)  # consistent, but no memory of this model
    state("e" * 16, saved, origin="\u00e9" * 4)  # which would be cut in the midst of a character
    state("f" * 16, saved, parent="../" * 6)
    s = Server(hybrid, "--memory-dir", kept)
    listed = s.get("/v1/memories")
    assert [m["id"] for m in listed["data"]] == [fox["id"]] and listed["disk_used"] == fox["bytes"], listed
    assert s.post("/v1/memories", text="a fox")["tokens"] == 5
    errors = s.stop()
    assert errors.count("the memory is not offered") == 5 and errors.count("not the description of a memory") == 2, errors  # and the one whose file is gone

    # The log has one line a request, whatever it says.
    strange = (b"G\x1b[31mT /health", b"G\xffT /health", b"G\xc2\x9bT /health", b"GET /%1b[31m%0aFAKE", b"GET /" + b"%1b" * 2000, b"X" * 100 + b" /" + b"%f0%9f%a6%8a" * 100)
    for kind in ("text", "json"):
        s = Server(hybrid, "--log", kind)
        for line in strange:
            connection = connect(s, line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: connection.recv(1 << 16), b"")).startswith(b"HTTP/1.1 4"), line
            connection.close()
        lines = [line for line in s.stop().split("\n") if " 40" in line or line.startswith("{")]
        assert len(lines) == len(strange) and all(" " <= c <= "~" for line in lines for c in line), lines
        for line in lines if kind == "json" else ():
            assert json.loads(line)["status"] in (404, 405), line

    # Memories of a server that was killed go with the next start; those of one that lives stay, and what is not a server's.
    places = folder / "places"
    places.mkdir()
    (places / "palimpsa-memories-mine").mkdir()
    (places / "palimpsa-memories-0badcafe").symlink_to(folder)
    os.environ["TMPDIR"] = str(places)
    dead, alive = Server(hybrid), Server(hybrid)
    memory_of = alive.post("/v1/memories", text="a fox")["id"]
    dead.post("/v1/memories", text="a fox")
    assert len(list(places.iterdir())) == 4
    dead.process.kill()
    dead.process.communicate()
    with serving(hybrid) as s:
        assert len(list(places.iterdir())) == 4 and len(list(places.glob("*/*.state"))) == 1 + len(list(folder.glob("*.state")))
        assert alive.text(prompt="b", memory=memory_of, max_tokens=2)
    alive.stop()
    assert sorted(p.name for p in places.iterdir()) == ["palimpsa-memories-0badcafe", "palimpsa-memories-mine"]

    # What a template would come from, but cannot be read.
    for number, write in enumerate((lambda p: p.write_text("{"), os.mkfifo, lambda p: (p.write_bytes(b""), os.truncate(p, 1 << 30)))):
        model = shutil.copytree(hybrid, folder / f"broken{number}")
        (model / "tokenizer_config.json").unlink(missing_ok=True)
        write(model / "tokenizer_config.json")
        done = subprocess.run([program, "serve", model, "--tokenizer", hybrid, "--port", "0"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "tokenizer_config.json: " in done.stderr.splitlines()[-1], done

    # A model that someone cuts off while it is served: one sentence, and the end.
    model = shutil.copytree(hybrid, folder / "cut")
    s = Server(model)
    os.truncate(model / "model.safetensors", 100)
    with contextlib.suppress(OSError):
        connect(s, b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{"prompt": "a"}').recv(100)
    errors = s.process.communicate(timeout=60)[1]
    assert s.process.returncode == 2 and errors.count("palimpsa: a file that is in use became shorter or cannot be read any more (SIGBUS)\n") == 1, (s.process.returncode, errors)
    print("serve_strange: as promised")
