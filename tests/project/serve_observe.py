#!/usr/bin/env python3
"""POST /v1/observe over loopback: the tokens are those of /v1/completions, frames follow each other without a gap, a replay from a snapshot shows
what was seen live, views change while a text runs, and every new field that is wrong is refused by its name."""
from outside import run
from serving import ENDLESS, serving, speaking_model

import base64, http.client, json, math, pathlib, struct, tempfile, time

FIELDS = ["i_min", "i_q05", "i_q25", "i_q50", "i_q75", "i_q95", "i_max", "window", "ratio", "write", "norm", "variance"]


def floats(text):
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // 4}f", data)


def halves(part, rows, columns):
    data = base64.b64decode(part["data"])
    numbers = struct.unpack(f"<{len(data) // 2}e", data)
    each = rows * columns
    assert len(numbers) == each * len(part["scale"]) and max(map(abs, numbers)) <= 1
    return [[x * scale for x in numbers[h * each : (h + 1) * each]] for h, scale in enumerate(part["scale"])]


def of(events, kind):
    return [e for e in events if e["type"] == kind]


def close(a, b, accept=1e-3):
    return len(a) == len(b) and all((math.isnan(x) and math.isnan(y)) or abs(x - y) <= accept * max(1e-3, abs(y)) for x, y in zip(a, b))


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    words = 'The <b>quick</b> & "brown" fox, \u4e2d\u00e9. '
    prompt = words * 6  # several pieces
    with serving(hybrid, *ENDLESS) as s:
        ids = s.post("/tokenize", prompt=prompt)["tokens"]
        G = dict(temperature=0, max_tokens=40, ignore_eos=True)
        answer = s.complete(prompt=prompt, logprobs=3, echo=True, **G)["choices"][0]
        element = [1, 2, 3, 4]
        view = {"map": {"layer": 1, "heads": [0, 2], "size": 1024}, "elements": [element]}
        events = s.stream("/v1/observe", prompt=prompt, logprobs=3, observe={"every": 50, **view}, **G)
        start, end, tokens, tiles, maps = events[0], events[-1], of(events, "token"), of(events, "tiles"), of(events, "map")
        layers, heads = len(start["layers"]), start["layers"][0]["heads"]
        assert [i for i, _ in start["prompt"]] == ids and "".join(t for _, t in start["prompt"]) == prompt and start["tile_fields"] == FIELDS
        assert {l["rule"] for l in start["layers"]} == {"gla", "palimpsa"} and [l["importance"] for l in start["layers"]] == [l["prior"] is not None for l in start["layers"]]
        assert [t["index"] for t in tokens] == list(range(len(ids) + 40)) and [t["id"] for t in tokens[: len(ids)]] == ids
        assert close([t["logprob"] for t in tokens[1:]], answer["logprobs"]["token_logprobs"][1:]) and tokens[0]["logprob"] is None
        assert all(t["top"][0][2] >= t["logprob"] - 1e-6 and len(t["top"]) == 3 and t["variance"] > 0 for t in tokens[1:])
        assert end["text"] == answer["text"][len(prompt) :] and end["finish_reason"] == "length" and end["usage"]["completion_tokens"] == 40

        # Frames without gaps: pieces of 50 in the prompt, then one a token. The last token is not read.
        assert [t["from"] for t in tiles] == [0] + [t["position"] for t in tiles[:-1]] and tiles[-1]["position"] == len(ids) + 39 == end["position"]
        assert [t["position"] for t in tiles[:4]] == [50, 100, 150, 200]
        for t in tiles:
            n = t["position"] - t["from"]
            assert len(floats(t["tiles"])) == layers * len(FIELDS) and len(floats(t["write"])) == layers * heads
            assert len(floats(t["window"])) == len(floats(t["variance"])) == n * layers and len(floats(t["elements"])) == n * 2
            for l, layer in enumerate(start["layers"]):
                tile = dict(zip(FIELDS, floats(t["tiles"])[l * len(FIELDS) : (l + 1) * len(FIELDS)]))
                spread = [tile[f] for f in FIELDS[:7]]
                assert math.isnan(spread[0]) != layer["importance"] and (not layer["importance"] or spread == sorted(spread)), tile
                assert tile["write"] > 0 and tile["window"] >= 1 and tile["norm"] > 0, tile

        # The same element by maps and by its history; a piece of another length shows the same.
        history = [x for t in tiles for x in floats(t["elements"])]
        shape = start["layers"][1]
        at = element[2] * shape["values"] + element[3]
        assert maps[-1]["position"] == end["position"] and maps[-1]["reduce"] == "none" and maps[-1]["shown"] == [shape["keys"], shape["values"]]
        for m in maps:
            seen = [halves(m[part], *m["shown"])[1][at] for part in ("mean", "importance")]
            assert close(seen, history[2 * m["position"] - 2 : 2 * m["position"]], 3e-3), (m["position"], seen)
        written = ids + [t["id"] for t in tokens[len(ids) :]]

        # Replay, from a snapshot and from the beginning.
        for p, start_at in ((200, 180), (len(ids) + 20, len(ids)), (77, 0)):
            before = s.metric("cached_tokens_total")
            again = s.stream("/v1/observe", prompt=written[: p + 1], max_tokens=0, echo=False, observe={"from": start_at, **view})
            assert not of(again, "token") and again[-1]["position"] == p and of(again, "map")[-1]["position"] == p
            assert (s.metric("cached_tokens_total") > before) == (start_at >= 128), p
            for t in of(again, "tiles"):
                assert t["position"] > start_at and close(floats(t["elements"]), history[2 * t["from"] : 2 * t["position"]], 3e-3)
        live = maps[-1]
        again = of(s.stream("/v1/observe", prompt=written, max_tokens=0, echo=False, observe={"from": end["position"] - 1, "tiles": False, "map": view["map"]}), "map")[-1]
        for part in ("mean", "importance"):
            for a, b in zip(halves(again[part], *again["shown"]), halves(live[part], *live["shown"])):
                assert max(abs(x - y) for x, y in zip(a, b)) <= 2e-3 * max(map(abs, b))

        # Downsampling as it says.
        whole = halves(live["mean"], *live["shown"])[0]
        for how in ("max", "mean"):
            small = of(s.stream("/v1/observe", prompt=written, max_tokens=0, echo=False, observe={"from": 10**6, "map": {"layer": 1, "heads": [0], "size": 5, "reduce": how}}), "map")[-1]
            (rows, columns), (bk, bv), dv = small["shown"], small["block"], shape["values"]
            assert rows <= 5 and columns <= 5 and small["reduce"] == how
            shown = halves(small["mean"], rows, columns)[0]
            for r in range(rows):
                for c in range(columns):
                    block = [whole[j * dv + i] for j in range(r * bk, min(shape["keys"], (r + 1) * bk)) for i in range(c * bv, min(dv, (c + 1) * bv))]
                    expected = max(block, key=abs) if how == "max" else sum(block) / len(block)
                    assert abs(shown[r * columns + c] - expected) <= 3e-3 * max(map(abs, whole)), (how, r, c)

        # Layers without importance; messages; after a memory; no tiles at all.
        plain = of(s.stream("/v1/observe", prompt="abc", max_tokens=1, observe={"map": {"layer": 0}}), "map")[-1]
        assert plain["importance"] is None and plain["heads"] == list(range(heads))
        said = s.stream("/v1/observe", messages=[{"role": "user", "content": "Hi"}], max_tokens=3, temperature=0)
        assert "".join(t for _, t in said[0]["prompt"]) == "User: Hi\n\nAssistant:" and said[-1]["type"] == "end"
        memory = s.post("/v1/memories", tokens=ids)["id"]
        behind = s.stream("/v1/observe", memory=memory, prompt="xyz", max_tokens=2, temperature=0, update_memory=True)
        assert [t["index"] for t in of(behind, "token")] == list(range(len(ids), len(ids) + 5)) and of(behind, "tiles")[0]["from"] == len(ids) - 1
        assert s.get(f"/v1/memories/{memory}")["tokens"] > len(ids)
        assert not of(s.stream("/v1/observe", prompt="abc", max_tokens=2, observe={"tiles": False}), "tiles")
        assert s.stream("/v1/observe", prompt="a")[-1]["type"] == "end"  # one token: nothing but a step

        # A view that changes while the text runs, and a client that goes away.
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=100)
        connection.request("POST", "/v1/observe", json.dumps({"prompt": "abc", "max_tokens": 10**8, "ignore_eos": True}))
        stream = connection.getresponse()
        name = json.loads(stream.readline()[6:])["id"]
        assert s.post(f"/v1/observe/{name}", map={"layer": 1, "heads": [1], "size": 4}, elements=[element, [0, 0, 0, 0]]) == {"id": name}
        deadline, seen = time.time() + 60, set()
        while not {"map", "elements"} <= seen and time.time() < deadline:
            line = stream.readline()
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if event["type"] == "map":
                    assert event["heads"] == [1] and event["shown"][0] <= 4
                seen |= {event["type"]} | ({"elements"} & set(event))
        assert {"map", "elements"} <= seen
        s.refused({"map": {"layer": 99}}, "map.layer", f"/v1/observe/{name}")
        s.refused({"elements": [[0, 0, 0]]}, "elements", f"/v1/observe/{name}")
        stream.close(), connection.close()
        while s.metric("texts_running") and time.time() < deadline:
            time.sleep(0.01)
        assert s.metric("texts_running") == 0
        s.refused({"map": None}, "id", f"/v1/observe/{name}", code=404)

        # Wrong in every way.
        for param, wrong in {"observe": (5, [], "x"), "observe.tiles": (1, "no"), "observe.every": (-1, 257, 1.5, "2", []), "observe.from": (-1, "x", 2**63 - 1, {}),
                             "observe.map": (5, [], "all"), "observe.map.layer": (-1, layers, "0", 1.5), "observe.map.size": (0, 1025, "x"), "observe.map.reduce": ("least", 5, []),
                             "observe.map.heads": (5, [], "some", [heads], [-1], ["0"], list(range(heads)) + [0]),
                             "observe.elements": (5, {}, [5], [[]], [[0, 0, 0]], [[0, 0, 0, "0"]], [[layers, 0, 0, 0]], [[0, heads, 0, 0]], [[0, 0, 10**6, 0]], [[0, 0, 0, -1]], [element] * 17)}.items():
            for value in wrong:
                body = {"prompt": "a"}
                *path, last = param.split(".")
                inner = body
                for part in path:
                    inner = inner.setdefault(part, {})
                inner[last] = value
                s.refused(body, param, "/v1/observe")
        for body, param in (({"prompt": "a", "n": 2}, "n"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": "a", "logprobs": 21}, "logprobs"), ({"prompt": "a", "echo": 5}, "echo"), ({}, "prompt")):
            s.refused(body, param, "/v1/observe")
        assert s.ask("GET", "/v1/observe")[0] == 405
    with serving(attention, "--tokenizer", "bytes", "--max-context", 40) as s:
        events = s.stream("/v1/observe", prompt="abc", max_tokens=3)
        assert all(math.isnan(x) for t in of(events, "tiles") for x in floats(t["tiles"]) + floats(t["window"])) and events[0]["layers"][0]["parts"] == []
        s.refused({"prompt": "a", "observe": {"map": {"layer": 0}}}, "observe.map.layer", "/v1/observe")
        s.refused({"prompt": "a", "observe": {"elements": [[0, 0, 0, 0]]}}, "observe.elements", "/v1/observe")
    rules = "comba,kda,gdn2,rwkv7,pkda,kla,kdn,kdn_iso,mamba3"
    run("train", "--task", "text", "--model", rules, "--data", folder / "text", "--tokenizer", "bytes", "--hidden", 16, "--heads", 2, "--head-dim", 4, "--row", 32, "--context", 32, "--batch", 2,
        "--steps", 1, "--out", folder / "rules")
    with serving(folder / "rules") as s:
        events = s.stream("/v1/observe", prompt="abc" * 9, max_tokens=3, temperature=0)
        assert events[-1]["text"] == s.complete(prompt="abc" * 9, max_tokens=3, temperature=0)["choices"][0]["text"]
        assert [l["rule"] for l in events[0]["layers"]] == rules.split(",")
        for t in of(events, "tiles"):
            numbers = floats(t["tiles"])
            for layer in range(len(numbers) // len(FIELDS)):
                tile = dict(zip(FIELDS, numbers[layer * len(FIELDS) : (layer + 1) * len(FIELDS)]))
                assert tile["write"] > 0 and tile["norm"] > 0 and math.isfinite(tile["norm"]), (layer, tile)
                assert tile["window"] >= 1 or rules.split(",")[layer] == "kla", (layer, tile)
    print("serve_observe: as promised")
