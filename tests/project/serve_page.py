#!/usr/bin/env python3
"""The page that `palimpsa serve` offers, and what it needs next to the models: assets, built in and from a directory; a server without a model;
`inspect --open`; models with plasticity off; training runs; models without a tokenizer and examples of recall."""
from serving import golden, program, run, serving, speaking_model

import json, os, pathlib, shutil, signal, subprocess, tempfile, urllib.parse, urllib.request

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, _ = speaking_model(folder)
    (folder / "key").write_text("secret\n")
    with serving("--runs", folder, "--api-key-file", folder / "key") as s:  # assets need no key
        status, page, answer = s.ask("GET", "/")
        assert status == 200 and page.lower().startswith("<!doctype html>") and answer.getheader("Content-Type") == "text/html; charset=utf-8"
        policy = answer.getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy and "http" not in policy, policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        etag = {"If-None-Match": answer.getheader("ETag")}
        assert s.ask("GET", "/index.html", headers=etag)[0] == 304 and s.ask("GET", "/", headers={"If-None-Match": '"other"'})[0] == 200
        assert s.ask("POST", "/", {})[0] == 404 and s.ask("GET", "/../CMakeLists.txt")[0] == 404 and s.ask("GET", "/no.js")[0] == 404
        assert s.ask("GET", "/", headers={"Host": "evil.example"})[0] == 403
        key = {"Authorization": "Bearer secret"}
        assert s.ask("GET", "/v1/models")[0] == 401 and s.ask("GET", "/v1/models", headers=key)[1]["data"] == []
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/tokenize", {"prompt": "a"}), ("/v1/memories", {"text": "a"})):
            assert s.ask("POST", path, body, key)[0] == 404, path
        assert s.ask("GET", "/tokenizer_info", headers=key)[0] == 404

    web = folder / "web"
    (web / "sub").mkdir(parents=True)
    (web / "index.html").write_text("one")
    (web / "sub" / "a.js").write_text("export {}")
    (web / "secret.txt").write_text("x")
    (web / ".hidden.js").write_text("x")
    (web / "link.js").symlink_to("/etc/passwd")
    with serving(hybrid, "--web", web) as s:
        assert s.ask("GET", "/")[1] == "one"
        (web / "index.html").write_text("two")
        assert s.ask("GET", "/")[1] == "two"
        assert s.ask("GET", "/sub/a.js")[2].getheader("Content-Type").startswith("text/javascript")
        for path in ("/secret.txt", "/.hidden.js", "/link.js", "/sub", "/sub/../index.html", "/%2e%2e/key", "//etc/passwd"):
            assert s.ask("GET", path)[0] == 404, path

    process = subprocess.Popen([program, "inspect", str(hybrid), "--open", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[-1]
    assert urllib.request.urlopen(address + "/", timeout=60).read().lower().startswith(b"<!doctype html>")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    for wrong, says in ((["serve"], "--runs"), (["serve", "--runs", folder / "no"], "--runs"), (["serve", hybrid, "--web", folder / "key"], "--web"),
                        (["inspect", hybrid, "--open", "--tensors"], "--open"), (["inspect", folder / "no", "--open"], "cannot open")):
        process = subprocess.run([program, *map(str, wrong)], capture_output=True, text=True, timeout=60)
        assert process.returncode == 2 and says in process.stderr and not process.stdout, (wrong, process)

    # The same weights with plasticity off: another model in every way, but not another file.
    with serving(hybrid, "--memory-dir", folder / "kept") as s:
        models = {m["id"]: m for m in s.get("/v1/models")["data"]}
        assert set(models) == {"hybrid", "hybrid@plain"} and models["hybrid"]["plain"] == "hybrid@plain" and models["hybrid@plain"]["plain_of"] == "hybrid"
        assert "palimpsa" in models["hybrid"]["rules"] and set(models["hybrid@plain"]["rules"]) == {"gla"} and models["hybrid"]["plain_of"] is None
        assert models["hybrid@plain"]["memory_bytes"] < models["hybrid"]["memory_bytes"] and models["hybrid@plain"]["parameters"] == models["hybrid"]["parameters"]
        assert models["hybrid"]["vocabulary"] >= 97 and models["hybrid"]["tokenizer"] != "ids" and not models["hybrid"]["recall"]
        G = dict(prompt="The quick brown fox", max_tokens=30, temperature=0, logprobs=0)
        on, off = (s.complete(model=m, **G)["choices"][0] for m in ("hybrid", "hybrid@plain"))
        assert on["logprobs"]["token_logprobs"] != off["logprobs"]["token_logprobs"]
        events = s.stream("/v1/observe", model="hybrid@plain", **G)
        assert all(not l["importance"] for l in events[0]["layers"]) and events[-1]["text"] == off["text"]
        assert s.text(model="whatever", **G) == on["text"]
        assert s.ask("POST", "/v1/completions", {"model": "whatever@plain", **G})[0] == 404  # not with plasticity instead
        memory = s.post("/v1/memories", model="hybrid@plain", text="abc")
        assert memory["model"] == "hybrid@plain" and s.text(memory=memory["id"], **{**G, "model": "hybrid@plain"})
        s.refused({"memory": memory["id"], "prompt": "a", "model": "hybrid"}, "memory")
        # A memory that has read nothing, to begin a talk with.
        empty = s.post("/v1/memories", model="hybrid")["id"]
        assert s.get(f"/v1/memories/{empty}")["tokens"] == 0 and s.text(memory=empty, **G) == on["text"]
        events = s.stream("/v1/observe", memory=empty, update_memory=True, **G)
        assert events[-1]["text"] == on["text"] and [e["index"] for e in events if e["type"] == "token"] == list(range(19 + 30))
        s.refused({}, "text", "/v1/memories")
    with serving(hybrid, "--memory-dir", folder / "kept") as s:  # by its fingerprint
        assert s.get(f"/v1/memories/{memory['id']}")["model"] == "hybrid@plain"

    # Runs, followed while they grow; names are data.
    runs = folder / "runs"
    hostile = "<img src=x onerror=alert(1)>\u202e\u4e2d"
    for name in ("first", "deep/er", hostile):
        (runs / name).mkdir(parents=True)
        (runs / name / "config.json").write_text(json.dumps({"model": name, "task": "mqar"}))
        (runs / name / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "n_t": [1.5, null]}\n{"step": 2, "loss": 2}\n{"step": 3, "lo')
    os.utime(runs / "first" / "metrics.jsonl", (1, 1))
    (runs / "deep" / "checkpoints" / "x").mkdir(parents=True)
    shutil.copy(runs / "first" / "metrics.jsonl", runs / "deep" / "checkpoints" / "x")
    (folder / "outside").mkdir()
    shutil.copy(runs / "first" / "metrics.jsonl", folder / "outside")
    (runs / "link").symlink_to(folder / "outside")
    (runs / "broken").mkdir()
    (runs / "broken" / "metrics.jsonl").write_text("not json\n")
    (runs / "broken" / "config.json").write_text("{")

    def metrics(s, name, start=0):
        return s.get("/v1/runs/metrics?" + urllib.parse.urlencode({"run": name, "from": start}))

    with serving("--runs", runs) as s:
        found = {r["name"]: r for r in s.get("/v1/runs")["data"]}
        assert set(found) == {"first", "deep/er", hostile, "broken"} and found["deep/er"]["settings"] == {"model": "deep/er", "task": "mqar"}, found
        assert found["first"]["step"] == 2 and found[hostile]["running"] and not found["first"]["running"] and found["broken"]["settings"] is None and found["broken"]["step"] is None
        for steps, running in ((2, False), (3, True), (0, True), (None, True)):  # a finished run is not running, however young its last line
            (runs / "deep/er/config.json").write_text(json.dumps({"model": "deep/er", "task": "mqar", "steps": steps}))
            assert next(r for r in s.get("/v1/runs")["data"] if r["name"] == "deep/er")["running"] == running, steps
        for name in ("first", "deep/er", hostile):
            rows = metrics(s, name)
            assert [r["step"] for r in rows["rows"]] == [1, 2] and rows["rows"][0]["n_t"] == [1.5, None] and not rows["more"] and not rows["reset"]
        with open(runs / "first" / "metrics.jsonl", "a") as log:
            log.write('ss": 1}\n{"step": 4}\n')
        news = metrics(s, "first", rows["next"])
        assert [r["step"] for r in news["rows"]] == [3, 4] and metrics(s, "first", news["next"])["rows"] == []
        again = metrics(s, "first", 10**6)
        assert again["reset"] and len(again["rows"]) == 4 and metrics(s, "broken")["rows"] == []
        with open(runs / "first" / "metrics.jsonl", "a") as log:
            log.writelines(json.dumps({"step": i, "pad": "x" * 1000}) + "\n" for i in range(5, 2500))
        steps, at = [], news["next"]
        while (part := metrics(s, "first", at))["rows"]:
            steps, at = steps + [r["step"] for r in part["rows"]], part["next"]
            assert part["more"] == (steps[-1] < 2499)
        assert steps == list(range(5, 2500))
        for name in ("no", "", "link", "../runs/first", "/etc", "deep/../first", "deep/checkpoints/../er", "first/", ".hidden"):
            code = s.ask("GET", "/v1/runs/metrics?" + urllib.parse.urlencode({"run": name}))[0]
            assert code == (200 if name == "first/" else 404), (name, code)
        for query, param in (("", "run"), ("?run=first&from=x", "from"), ("?run=first&from=-1", "from"), ("?run=first&from=", "from")):
            s.refused(None, param, "/v1/runs/metrics" + query, method="GET")
    with serving(hybrid) as s:
        assert s.ask("GET", "/v1/runs")[0] == 404 and s.ask("GET", "/v1/runs/metrics?run=first")[0] == 404

    # A model without a tokenizer reads numbers; an example of recall.
    mqar = folder / "run" / "checkpoints" / "best"
    mqar.mkdir(parents=True)
    (folder / "run" / "config.json").write_text('{"task": "mqar", "kv_pairs": 4, "seq_len": 70000}')  # longer than examples are
    for file in ("config.json", "model.safetensors"):
        shutil.copy(golden / "models" / "mqar_palimpsa_d" / file, mqar / file)
    with serving(mqar) as s:
        model = s.get("/v1/models")["data"][0]
        vocabulary = model["vocabulary"]
        assert model["tokenizer"] == "ids" and model["recall"]
        assert s.post("/tokenize", prompt="5 0 17")["tokens"] == [5, 0, 17] and s.post("/detokenize", tokens=[5, 0, 17])["prompt"] == "5 0 17"
        told = s.complete(prompt="3 1 4 1 5", max_tokens=2, temperature=0, logprobs=2)["choices"][0]
        assert told["text"].split() == [t.strip() for t in told["logprobs"]["tokens"]] and told == s.complete(prompt=[3, 1, 4, 1, 5], max_tokens=2, temperature=0, logprobs=2)["choices"][0]
        for wrong in ("a", str(vocabulary), "1,2", "-1", "5 0x1", "99999999999999999999"):
            s.refused({"prompt": wrong}, "prompt")
        example = s.get("/v1/recall?pairs=4&length=32&seed=7")
        half = example["first_value"]
        assert half == vocabulary // 2 and len(example["ids"]) == len(example["labels"]) == 32 and len(example["pairs"]) == 4
        known = dict(example["pairs"])
        assert all(0 < k < half <= v < vocabulary for k, v in example["pairs"]) and [x for pair in example["pairs"] for x in pair] == example["ids"][:8]
        assert len(example["queries"]) == 4 and all(known[q["key"]] == q["value"] == example["labels"][q["position"]] and example["ids"][q["position"]] == q["key"] for q in example["queries"])
        assert s.get("/v1/recall?pairs=4&length=32&seed=7") == example != s.get("/v1/recall?pairs=4&length=32&seed=8") and len(s.get("/v1/recall")["queries"]) >= 1
        assert s.get("/v1/recall")["length"] <= 65536
        read = s.post("/v1/attribution", prompt=example["ids"][:11])
        assert read["tokens"] == 11 and len(read["layers"]) == model["layers"]
        assert all(x["error"] < 1e-6 and len(x["shares"]) == model["heads"] and all(abs(sum(head) - 1) < 1e-3 for head in x["shares"]) for x in read["layers"])
        for wrong in ([], "a text", [vocabulary], [1.5], [1] * 4097):
            s.refused({"prompt": wrong}, "prompt", path="/v1/attribution")
        for stages, length, pairs in (("32:5:100:8,64:16:10:4", 32, 5), ("32", None, None), ("99999999999999999999:5:1:1", None, None), ("x", None, None)):  # of a curriculum the first stage
            (folder / "run" / "config.json").write_text(json.dumps(dict(task="mqar", kv_pairs=3, seq_len=24, stages=stages)))
            example = s.get("/v1/recall")
            assert (example["length"], len(example["pairs"])) == (length, pairs) if length else example["length"] not in (24, 32), (stages, example["length"])
        events = s.stream("/v1/observe", prompt=example["ids"], max_tokens=0)
        assert [e["id"] for e in events if e["type"] == "token"] == example["ids"] and events[0]["prompt"][0] == [example["ids"][0], str(example["ids"][0])]
        for query, param in (("pairs=0", "pairs"), ("pairs=x", "pairs"), ("pairs=100000", "pairs"), ("pairs=9&length=10", "pairs"), ("length=-1", "length"), ("length=31&pairs=1", "pairs"), ("seed=-1", "seed"), ("seed=1.5", "seed")):
            s.refused(None, param, "/v1/recall?" + query, method="GET")
    assert "has no tokenizer" in run("generate", mqar, "--prompt", "1", code=2)  # elsewhere it is asked for
    print("serve_page: as promised")
