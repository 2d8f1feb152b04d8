#!/usr/bin/env python3
"""The page in a real browser, on two small models trained here and small ones of five published families: type, stream, fork, roll back, open a layer, move the
slider, compare with plasticity off, dark mode, a narrow screen, hostile texts, runs, a key, links and files. What the page shows is compared with what the server
says to another client.
   inspector.py PROGRAM [--shots DIR] [--web DIR] [--only PART,...] [--models DIR] [--patience SECONDS]
--web: files of DIR instead of those inside the program; --models: the small models stay in DIR for the next time."""
import http.client, json, math, pathlib, statistics, subprocess, sys, tempfile, time

import harness
from driver import Browser, missing
from harness import HOSTILE, action, answer, ask, check, children, choose_token, eventually, idle, kept, observe, option, pick_model
from harness import press, program, read_recall, ready, same_as_server, serving, shot, shots, state, train_models, floats


def talk(b, base, folder):
    downloads = folder / "downloads"
    pick_model(b, "text " + HOSTILE)
    time.sleep(0.2)
    prompt = f"Hello {HOSTILE} \u05e9\u05dc\u05d5\u05dd world"
    b.type("#prompt", prompt)
    b.click("#send")
    b.wait("the first written token", "return document.querySelectorAll('#text .t.w').length > 3")
    check(b.js("return document.querySelectorAll('#text img, #text b, #conversations img, #model img').length") == 0, "HTML in texts and names stays text")
    idle(b)
    s = state(b)
    check("".join(s["texts"]).startswith("Hello " + HOSTILE), "the prompt is shown as it was typed")
    check(b.text("#text").startswith("Hello " + HOSTILE), "... on the page too")
    check(HOSTILE in b.text("#conversations"), "the model's name is text")
    written = b.js("return document.querySelectorAll('#text .t.w').length")
    check(written > 20, f"it writes: {written}")
    shot(b, "talk")
    length = len(s["ids"])

    # Open a layer, move the slider: the numbers are the server's.
    b.click(".tile[data-layer='1']")
    b.wait("the layer's maps", "return document.querySelectorAll('.heat').length >= 4 && document.querySelector('#layer h3').textContent === 'Layer 1'")
    b.js("const s = document.querySelector('#slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", 17)
    b.wait("the place", "return document.querySelector('#place').textContent.startsWith('17 / ')")
    same_as_server(b, base)
    check(b.js("return document.querySelectorAll('#text .t.ahead').length") > 20, "what is not yet read is pale")
    # Windows of the page, token by token, against the library's own observer (no server between): medians of each layer.
    (folder / "read.txt").write_text("".join(s["texts"]))
    told = subprocess.run([program, "inspect", folder / "runs" / s["model"], "--windows", "--data", folder / "read.txt", "--tokens", str(s["end"]), "--top", "1", "--json"], capture_output=True, text=True)
    shown = b.js("return import('/app.js').then(({ app }) => { const w = app.current.recording.windows; return app.current.recording.layers.map((_, l) => Array.from({ length: w.length }, (_, i) => w.at(i, l))); })")
    for one, windows in zip(json.loads(told.stdout)["layers"], shown):
        check(len(windows) == s["end"] and abs(statistics.median(windows) - one["median_n_t"]) < 1e-3 * one["median_n_t"], f"layer {one['layer']}: window {statistics.median(windows)}, the library says {one['median_n_t']}")
    # An element's history equals the server's, at every token.
    b.click(".heat[data-head='1']")
    b.wait("a history", "return import('/app.js').then(({ app }) => app.element && Number.isFinite(app.current.recording.followed?.at(3, 0)))")
    e = state(b)["element"]
    events = observe(base, model=s["model"], prompt=s["ids"], max_tokens=0, observe={"elements": [[e["layer"], e["head"], e["key"], e["value"]]]})
    truth = [x for f in events if f["type"] == "tiles" for x in floats(f["elements"])]
    shown = b.js("return import('/app.js').then(({ app }) => { const f = app.current.recording.followed; return Array.from({ length: f.length }, (_, i) => [f.at(i, 0), f.at(i, 1)]).flat(); })")
    check(len(shown) >= 2 * (length - 2) and all(abs(x - y) <= 1e-4 * abs(y) + 1e-9 for x, y in zip(shown, truth)), "an element's history is the server's")
    check(len(b.texts("#writers li")) == 10, "ten tokens that wrote most")

    # Keys alone: arrow keys move the chosen token.
    choose_token(b, 5)
    b.js("document.querySelector('#text').focus()")
    b.key("\ue014")
    b.wait("the arrow key's token", "return document.querySelector('#text .t.on')?.dataset.i === '6'", seconds=5)
    check(b.js("return document.querySelectorAll('.token-card .bars')[0].children.length") >= 15, "five alternatives")
    # What every layer reads there: the whole stack, and what the server says of it.
    rows = b.wait("what every layer reads", "return import('/app.js').then(({ app }) => { const n = document.querySelectorAll('.stack-row').length; return n && n === app.current.recording.layers.length && n; })")
    server = json.loads(ask(base, "/v1/attribution", {"model": s["model"], "prompt": s["ids"][:7]})[1])
    check(rows == len(server["layers"]) and all(abs(sum(head) - 1) < 1e-3 for layer in server["layers"] for head in layer["shares"]), "the shares of every layer add up")
    shown = b.js("return Promise.all([import('/app.js'), import('/reading.js')]).then(([{ app }, { readingOf }]) => readingOf(app.current.recording))")
    check(shown["token"] == 6 and shown["layers"] == server["layers"], "the page has the server's shares")

    # Fork, then roll back: conversations and memories on the server.
    choose_token(b, 11)
    press(b, "Fork here")
    b.wait("the fork", "return document.querySelectorAll('#conversations .tree li').length === 1")
    f = state(b)
    check(f["ids"] == s["ids"][:12], "the fork has the first twelve tokens")
    kept = json.loads(ask(base, "/v1/memories")[1])["data"]
    check(len(kept) == 2 and kept[0]["tokens"] == 12 and kept[0]["parent"] == kept[1]["id"], f"the server keeps the fork: {kept}")
    b.wait("the memories' tree", "return document.querySelectorAll('#memories .tree li').length === 1")
    b.type("#prompt", "and on")
    b.click("#send")
    time.sleep(0.1)
    idle(b)
    g = state(b)
    check(g["ids"][:12] == s["ids"][:12] and len(g["ids"]) > 20, "the fork continues")
    choose_token(b, 14)
    press(b, "Roll back here")
    b.wait("the end of what was rolled back", "return document.querySelectorAll('#text .t').length === 15")
    r = state(b)
    check(r["ids"] == g["ids"][:15] and r["end"] <= 15, "it is rolled back")
    b.js("document.querySelectorAll('#conversations .open')[0].click()")
    time.sleep(0.3)
    check(state(b)["ids"] == s["ids"], "the first conversation is as it was")
    # Regenerate and stop.
    b.click("#regenerate")
    time.sleep(0.1)
    idle(b)
    again = state(b)["ids"]
    check(again[: length - written] == s["ids"][: length - written], "the prompt stays")
    b.js("document.querySelector('#option-max_tokens').value = 5000")
    b.click("#send")
    b.wait("writing", "return document.querySelectorAll('#text .t.w').length > 5 && document.querySelector('#send').disabled")
    b.click("#stop")
    idle(b)
    check(len(state(b)["ids"]) < 4000, "it was stopped")
    b.js("document.querySelector('#option-max_tokens').value = 60")
    # A kept memory: download, upload, continue from it, delete.
    b.js("document.querySelectorAll('#memories .more')[0].click()")
    b.js("[...document.querySelectorAll('#memories .node-menu')][0].querySelectorAll('button').forEach(x => { if (x.textContent === 'Download') x.click(); })")
    end = time.time() + 20
    while not list(downloads.glob("*.memory")) and time.time() < end:
        time.sleep(0.1)
    file = list(downloads.glob("*.memory"))
    check(len(file) == 1 and file[0].stat().st_size > 1000, "the memory's file is saved")
    before = len(json.loads(ask(base, "/v1/memories")[1])["data"])
    b.do("POST", f"/element/{b.find('#upload')}/value", {"text": str(file[0])})
    end = time.time() + 20
    while len(json.loads(ask(base, "/v1/memories")[1])["data"]) != before + 1 and time.time() < end:
        time.sleep(0.1)
    check(len(json.loads(ask(base, "/v1/memories")[1])["data"]) == before + 1, "a file becomes a memory")
    b.wait("a conversation that continues from it", "return import('/app.js').then(({ app }) => app.current.base !== null)")
    b.type("#prompt", "more")
    b.click("#send")
    time.sleep(0.1)
    idle(b)
    base_tokens = b.js("return import('/app.js').then(({ app }) => app.current.base.tokens)")
    check(state(b)["end"] > base_tokens, "it reads on after the memory")
    b.js("document.querySelectorAll('#memories .more')[0].click()")
    b.js("[...document.querySelectorAll('#memories .node-menu')][0].querySelectorAll('button').forEach(x => { if (x.textContent === 'Delete') x.click(); })")
    b.wait("the question", "return !!document.querySelector('dialog')")
    b.click("dialog .danger")
    end = time.time() + 20
    while len(json.loads(ask(base, "/v1/memories")[1])["data"]) != before and time.time() < end:
        time.sleep(0.1)
    check(len(json.loads(ask(base, "/v1/memories")[1])["data"]) == before, "a memory is deleted")


def lists(b, base, folder):
    """Names and marks of conversations and kept memories."""
    for m in kept(base):
        connection = http.client.HTTPConnection(base.split("//")[1], timeout=100)
        connection.request("DELETE", f"/v1/memories/{m['id']}")
        check(connection.getresponse().status == 200, "an empty server")
    read_recall(b)
    names = lambda: b.texts("#conversations .open bdi")
    was = names()
    action(b, "conversations", 0, "Rename")
    answer(b, f"first {HOSTILE}")
    b.wait("the new name", "return document.querySelector('#conversations .open bdi').textContent === arguments[0]", f"first {HOSTILE}")
    check(b.js("return document.querySelectorAll('#conversations img').length") == 0 and state(b)["name"] == f"first {HOSTILE}", f"{was} is renamed")
    action(b, "conversations", 0, "Rename")
    answer(b, "never", ".button:not(.primary)")
    check(names() == [f"first {HOSTILE}"], "a window that is cancelled changes nothing")
    # A memory of it, with its first mark; a name and a mark of one's own.
    action(b, "conversations", 0, "Keep memory")
    eventually("the memory is kept", lambda: len(kept(base)) == 1)
    first = kept(base)[0]
    check(first["tokens"] == len(state(b)["ids"]) and first["name"] == f"first {HOSTILE}", f"it has read the text: {first}")
    action(b, "memories", 0, "Rename")
    answer(b, "\u05e9\u05dc\u05d5\u05dd & co")
    eventually("the server has the memory's new name", lambda: kept(base)[0]["name"] == "\u05e9\u05dc\u05d5\u05dd & co")
    b.wait("... and the page", "return document.querySelector('#memories .open bdi').textContent === arguments[0]", "\u05e9\u05dc\u05d5\u05dd & co")
    action(b, "memories", 0, "Mark")
    answer(b, "not a name!")
    b.wait("the server's sentence", "return document.querySelector('#notice').className === 'notice bad shown'")
    marks = lambda: [m["name"] for m in kept(base)[0]["marks"]]
    check("not a name!" not in marks(), "a mark's name is checked")
    action(b, "memories", 0, "Mark")
    answer(b, "here")
    eventually("the server has the mark", lambda: "here" in marks())
    b.wait("... and the page counts it", "return document.querySelector('#memories .open small').textContent.includes(arguments[0])", f"{len(marks())} marks")
    status, text, _ = ask(base, "/v1/completions", {"model": first["model"], "memory": first["id"], "prompt": [3, 40, 5], "max_tokens": 0, "update_memory": True})
    check(status == 200 and kept(base)[0]["tokens"] == first["tokens"] + 3, f"it read on: {text}")
    action(b, "memories", 0, "Back to here")
    eventually("back to the mark", lambda: kept(base)[0]["tokens"] == first["tokens"])
    action(b, "memories", 0, "Fork")
    eventually("a fork", lambda: [m["parent"] for m in kept(base)].count(first["id"]) == 1)
    b.wait("... under its parent", "return document.querySelectorAll('#memories .tree .node').length === 1")
    # Closing a conversation leaves an empty one, and the server's memories alone.
    action(b, "conversations", 0, "Close")
    b.wait("an empty conversation", "return document.querySelectorAll('#conversations .node').length === 1 && !document.querySelector('#text .t')")
    check(len(kept(base)) == 2, "memories stay")
    noise = [m for m in b.console() if "400" not in m]  # the mark that was refused
    check(noise == [], noise)


def recall(b, base, folder):
    downloads = folder / "downloads"
    b.click("#recall")
    b.wait("keys and values", "return document.querySelectorAll('#text .t.k').length > 3 && document.querySelectorAll('#text .t.v').length > 3")
    b.wait("playing", "return document.querySelector('#play').getAttribute('aria-label') === 'Pause'")
    places = []
    end = time.time() + 60
    while time.time() < end:
        place = b.text("#place")
        if not places or places[-1] != place:
            places.append(place)
        if place.split(" / ")[0] == place.split(" / ")[1] and len(places) > 3:
            break
        time.sleep(0.03)
    check(len(places) > 10, f"one sees the memory fill, token by token: {places}")
    idle(b)
    s = state(b)
    answers = b.texts("#text .t small")
    check(len(answers) == 4, f"every question has an answer: {answers}")
    same_as_server(b, base, flat=False)
    shot(b, "recall")
    # A link shows the same again.
    b.js("const s = document.querySelector('#slider'); s.value = 9; s.dispatchEvent(new Event('input'))")
    b.click("#take")
    b.js("[...document.querySelectorAll('#take-menu button')].find(x => x.textContent.startsWith('Link')).click()")
    b.wait("the link", "return location.hash.includes('ids=')")
    link = b.js("return location.href")
    tiles = b.texts(".tile dd")
    b.open("about:blank")
    b.open(link)
    ready(b)
    t = state(b)
    check(t["ids"] == s["ids"] and t["position"] == 9 and t["model"] == s["model"], "the link restores text and place")
    b.wait("the same tiles", "return JSON.stringify([...document.querySelectorAll('.tile dd')].map(e => e.textContent)) === arguments[0]", json.dumps(tiles, ensure_ascii=False, separators=(",", ":")))
    for name, label in (("png", "Picture"), ("csv", "Numbers (CSV)"), ("json", "Numbers (JSON)")):
        b.click("#take")
        b.js("[...document.querySelectorAll('#take-menu button')].find(x => x.textContent.startsWith(arguments[0])).click()", label)
        file, end = downloads / f"palimpsa-talk.{name}", time.time() + 20
        while not (file.exists() and file.stat().st_size) and time.time() < end:
            time.sleep(0.1)
        check(file.exists(), f"{name} is saved")
    check((downloads / "palimpsa-talk.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", "a PNG")
    if shots:
        (shots / "picture.png").write_bytes((downloads / "palimpsa-talk.png").read_bytes())
    lines = (downloads / "palimpsa-talk.csv").read_bytes().split(b"\r\n")
    check(len(lines) == len(s["ids"]) + 2, "a row for each token")
    saved = json.loads((downloads / "palimpsa-talk.json").read_text())
    check([x["id"] for x in saved["tokens"]] == s["ids"] and saved["position"] == 9 and saved["map"]["position"] == 9, "JSON has tokens, place and map")


def comparison(b, base, folder):
    b.click("#tab-compare")
    b.wait("two models", "return document.querySelector('#compare-model-1').value.endsWith('@plain')")
    b.click("#compare-recall")
    b.wait("both have read", "return document.querySelectorAll('#differences tbody tr').length > 3 && !document.querySelector('#compare-go').disabled")
    names = [b.js(f"return document.querySelector('#compare-model-{n}').value") for n in (0, 1)]
    check(names[1] == names[0] + "@plain", f"with plasticity off next to it: {names}")
    ids = list(map(int, b.js("return document.querySelector('#compare-prompt-0').value").split()))
    truth = []
    for name in names:
        tokens = [e for e in observe(base, model=name, prompt=ids, max_tokens=1, temperature=0, observe={"tiles": False}) if e["type"] == "token" and e["prompt"]]
        truth.append([t["logprob"] for t in tokens])
    shown = b.js("return import('/compare.js').then(({ compare }) => compare.sides.map(s => s.recording.logprobs))")
    for n in (0, 1):
        check(all(x == y or abs(x - y) < 1e-6 for x, y in zip(shown[n], truth[n])), f"probabilities of {names[n]} are the server's")
    check(shown[0] != shown[1], "the two differ")
    b.js("document.querySelector('#differences tbody button').click()")
    b.wait("what each expects", "return document.querySelectorAll('#view-compare .bars').length === 2")
    shot(b, "compare")
    # A text of one's own: perplexity so far.
    text = " ".join(map(str, ids[:20]))
    b.js("document.querySelector('#compare-prompt-0').value = arguments[0]", text)
    b.click("#compare-go")
    b.wait("perplexity", "return document.querySelector('#compare-summary-0').textContent.includes('perplexity')")
    time.sleep(0.5)
    found = float(b.text("#compare-summary-0").split()[-1])
    known = truth[0][1:20]
    check(abs(found - math.exp(-sum(known) / len(known))) < 2e-3 * found, f"perplexity {found} is the server's")


def runs(b, base, folder):
    b.click("#tab-training")
    b.wait("runs", "return document.querySelectorAll('.runs li').length === 3")
    check(any(HOSTILE in t for t in b.texts(".runs bdi")) and b.js("return document.querySelectorAll('.runs img').length") == 0, "names of runs are text")
    b.js("document.querySelectorAll('.runs input').forEach(x => { if (!x.checked) x.click(); })")
    b.wait("curves", "return [...document.querySelectorAll('#view-training .plots .card')].filter(c => !c.hidden).length >= 4")
    rows = [json.loads(line) for line in (folder / "runs" / "recall" / "metrics.jsonl").read_text().splitlines()]
    got = b.js("return import('/training.js').then(({ training }) => training.rows.get('recall').rows.map(r => [r.step, r.loss ?? null]))")
    check(got == [[r["step"], r.get("loss")] for r in rows], "the curve's numbers are those of the file")
    # Live: a line that is written now appears.
    with open(folder / "runs" / "recall" / "metrics.jsonl", "a") as f:
        f.write(json.dumps({"step": rows[-1]["step"] + 1, "loss": 0.125, "lr": 1e-3}) + "\n")
    b.wait("the new line", "return import('/training.js').then(({ training }) => training.rows.get('recall').rows.at(-1).loss === 0.125)", seconds=15)
    b.js("const r = document.querySelector('#training-smooth'); r.value = 5; r.dispatchEvent(new Event('input')); document.querySelector('#training-log-y').click()")
    shot(b, "training")
    # Values under the pointer, by keys.
    b.js("document.querySelector('#view-training canvas[role=img]').focus()")
    b.key("\ue014")
    b.wait("a spoken value", "return [...document.querySelectorAll('#view-training [role=status]')].some(e => /\\d/.test(e.textContent))")


def looks(b, base, folder):
    read_recall(b)
    for scheme, paper in (("dark", "rgb(20, 23, 28)"), ("light", "rgb(255, 255, 255)")):
        b.prefer(scheme)
        b.wait(scheme, "return getComputedStyle(document.querySelector('.top')).backgroundColor === arguments[0]", paper)
        shot(b, f"{scheme}-talk")
    b.click("#theme")
    b.click("#theme")
    check(b.js("return document.documentElement.dataset.theme") == "dark", "the switch says dark")
    b.size(390, 844, True)
    time.sleep(0.3)
    heights = set()
    for view in ("talk", "compare", "training"):
        b.click(f"#tab-{view}")
        time.sleep(0.4)
        wide = b.js("return document.documentElement.scrollWidth")
        check(wide <= 390, f"{view} fits a phone: {wide}")
        heights.add(b.js("return document.querySelector('.top').offsetHeight"))
        shot(b, f"phone-{view}")
    check(len(heights) == 1, f"the top bar does not jump: {heights}")
    b.click("#tab-talk")
    b.click("#pane-memory")
    check(b.js("return document.querySelector('#slider').offsetParent !== null && document.querySelector('#prompt').offsetParent === null"), "one part at a time")
    shot(b, "phone-memory")
    b.click("#pane-text")
    b.size(1440, 900)
    b.click("#theme")
    unnamed = b.js("""return [...document.querySelectorAll('button, input, select, textarea, canvas[tabindex]')].filter(e => e.offsetParent && !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.title)).map(e => e.outerHTML.slice(0, 90))""")
    check(unnamed == [], f"every control has a name: {unnamed}")


def long_text(b, base, folder):
    """100,000 tokens: few elements, and the page answers at once."""
    pick_model(b, "text " + HOSTILE)
    took = b.js("""const n = arguments[0]; return Promise.all([import('/app.js'), import('/recording.js')]).then(async ([a, rec]) => {
        const c = a.newConversation(a.app.current.model, { name: 'long' }), r = c.recording;
        r.apply({ type: 'start', id: null, position: 0, tile_fields: ['write'], layers: [], prompt: Array.from({ length: n }, (_, i) => [i % 90, i % 70 ? 'ab ' : i % 140 ? '\\u05d0\\u202e<b>' : '\\n']) });
        const from = performance.now(); a.openConversation(c);
        await new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)));
        const opened = performance.now() - from, text = document.querySelector('#text'); let worst = 0;
        for (let k = 1; k <= 20; k++) { const t = performance.now(); text.scrollTop = text.scrollHeight * k / 20; await new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f))); worst = Math.max(worst, performance.now() - t); }
        return [opened, worst, document.querySelectorAll('#text .t').length, text.textContent.length, document.querySelectorAll('#text b').length]; })""", 100000)
    opened, worst, elements, letters, bold = took
    check(elements < 20000 and letters > 250000 and bold == 0, f"{elements} elements for {letters} letters, {bold}")
    print(f"   100,000 tokens: opened in {opened:.0f} ms, slowest scroll {worst:.0f} ms, {elements} elements")


def with_key(b, folder, model):
    (folder / "key").write_text("s3cret\n")
    with serving("serve", model, "--port", 0, "--api-key-file", folder / "key") as base:
        b.open(base + "/")
        b.wait("the question for the key", "return !!document.querySelector('dialog input[type=password]')")
        b.type("dialog input", "s3cret")
        b.click("dialog .primary")
        ready(b)
        b.type("#prompt", "Hi")
        b.click("#send")
        b.wait("an answer", "return document.querySelectorAll('#text .t.w').length > 3")
        idle(b)
        noise = [m for m in b.console() if "401" not in m]  # the first answer, without a key, is meant to be refused
        check(noise == [], noise)


def others(b, folder):
    """Models without importance, of attention, of fewer layers; another tab; a link that asks for too much; a server that ends."""
    with serving("serve", folder / "others" / "transformer", folder / "others" / "gdn", folder / "others" / "deep", folder / "runs" / "recall", "--port", 0, "--threads", 2) as base:
        process = children[-1]
        b.open(base + "/")
        ready(b)
        read_recall(b)  # attention is the first model
        check(len(state(b)["ids"]) > 8 and "no fixed-size memory" in b.text("#layer"), "attention reads, and has no memory to show")
        check([t for t in b.texts(".tile .window") if t != "–"] == [], "its tiles are empty")
        pick_model(b, "gdn")
        read_recall(b)
        b.wait("a map of the mean alone", "return document.querySelectorAll('.heat').length === 2 && !document.querySelector('.heat[data-part=importance]')")
        check(b.texts(".tile .ratio") == ["–", "–"], "a rule without importance has no ratio")
        b.js("const s = document.querySelector('#slider'); s.value = 9; s.dispatchEvent(new Event('input'))")  # ends playing
        b.wait("the place", "return document.querySelector('#place').textContent.startsWith('9 / ')")
        same_as_server(b, base)
        # An element and a layer that the next model does not have.
        pick_model(b, "deep")
        read_recall(b)
        b.click(".tile[data-layer='3']")
        b.wait("the layer's maps", "return document.querySelector('#layer h3')?.textContent === 'Layer 3' && document.querySelectorAll('.heat').length >= 2")
        b.click(".heat[data-head='1']")
        b.wait("an element", "return import('/app.js').then(({ app }) => app.element?.layer === 3)")
        pick_model(b, "recall")
        read_recall(b)
        b.wait("two tiles", "return document.querySelectorAll('.tile').length === 2")
        check(state(b)["layer"] < 2 and state(b)["element"] is None and len(state(b)["ids"]) > 8, "a smaller model shows what it has")
        check("shown" not in b.js("return document.querySelector('#notice').className"), "nothing went wrong")
        # Another tab changes the kept memory: what this one keeps afterwards is still its own text.
        choose_token(b, 5)
        press(b, "Keep memory here")
        eventually("a memory of six tokens", lambda: [m["tokens"] for m in kept(base)] == [6])
        m = kept(base)[0]
        ask(base, "/v1/completions", {"model": "recall", "memory": m["id"], "prompt": [7, 7, 7], "max_tokens": 0, "update_memory": True})
        choose_token(b, 9)
        press(b, "Keep memory here")
        eventually("a second memory, of ten tokens", lambda: sorted(m["tokens"] for m in kept(base)) == [9, 10])
        # Links that ask for what is not there are reported so, and the page works.
        for wrong, words in (("view=talk&model=nobody", "no model"), ("view=talk&model=recall&memory=gone", "no longer kept"), ("view=talk&model=recall&ids=AAAA", ""), ("view=talk&model=recall&layer=99&position=-5&element=9.9.9", "")):
            b.open("about:blank")
            b.open(f"{base}/#{wrong}")
            ready(b)
            check(words in b.text("#notice"), f"{wrong}: {b.text('#notice')}")
            read_recall(b)
        b.console()
        # The server ends in the middle of a text.
        b.js("document.querySelector('#option-max_tokens').value = 100000")
        b.type("#prompt", "3 40")
        b.click("#send")
        b.wait("writing", "return document.querySelectorAll('#text .t.w').length > 5")
        process.kill()
        idle(b)
        check("is it still running?" in b.text("#notice"), f"the page says what happened: {b.text('#notice')}")
        b.type("#prompt", "1 2 3")
        b.click("#send")
        b.wait("what was typed", "return document.querySelector('#prompt').value === '1 2 3' && document.querySelector('#notice').textContent.includes('does not answer')")
        check(len(state(b)["ids"]) > 5, "what was read stays")
        noise = [m for m in b.console() if "ERR_" not in m]
        check(noise == [], noise)


FAMILIES = pathlib.Path(__file__).resolve().parents[1] / "golden" / "families"


def write(b, text):
    b.type("#prompt", text)
    b.click("#send")
    time.sleep(0.1)
    idle(b)
    return state(b)["ids"]


def hybrids(b, folder):
    """Published families that attend: what is shown of every layer; branches and files continue as texts that were read whole."""
    downloads = folder / "downloads"
    families = [FAMILIES / name for name in ("granite_4_h", "falcon_h1", "nemotron_h", "lfm2", "qwen3_5_published")]
    with serving("serve", *families, "--tokenizer", "bytes", "--max-context", 512, "--kv-type", "f16", "--port", 0, "--threads", 2) as base:
        b.open(base + "/")
        ready(b)
        b.js("document.querySelector('#option-max_tokens').value = 12; document.querySelector('#option-temperature').value = 0")

        def continues(ids, count, what):
            """The last `count` tokens are what another client gets after those before them, without anything kept."""
            told = observe(base, model=state(b)["model"], prompt=ids[:-count], max_tokens=count, temperature=0, observe={"tiles": False})
            check([e["id"] for e in told if e["type"] == "token" and not e["prompt"]] == ids[-count:], what)

        for family in families:
            pick_model(b, family.name)
            rules = b.js("return import('/app.js').then(({ app, modelNamed }) => modelNamed(app.current.model).rules)")
            ids = write(b, f"{family.name} {HOSTILE} reads")
            check(len(ids) == len(f"{family.name} {HOSTILE} reads") + 12, f"{family.name} writes 12 tokens: {len(ids)}")
            continues(ids, 12, f"{family.name}: the text is the server's")
            windows = b.texts(".tile .window")
            check([w == "–" for w in windows] == [r in ("attention", "none") for r in rules], f"{family.name}: {rules} have the windows {windows}")
            for layer in (rules.index(r) for r in dict.fromkeys(rules)):
                b.click(f".tile[data-layer='{layer}']")
                b.wait(f"layer {layer}", "return document.querySelector('#layer h3')?.textContent === `Layer ${arguments[0]}`", layer)
                says = {"attention": "Attention keeps every token", "none": "This layer keeps no memory"}.get(rules[layer], "keys, columns:")
                b.wait(f"layer {layer}, which {rules[layer]}", "return document.querySelector('#layer').textContent.includes(arguments[0])", says, seconds=10)
            remembers = next((i for i, r in enumerate(rules) if r not in ("attention", "none")), None)
            if remembers is not None:
                b.click(f".tile[data-layer='{remembers}']")
                b.js("const s = document.querySelector('#slider'); s.value = 9; s.dispatchEvent(new Event('input'))")
                b.wait("the place", "return document.querySelector('#place').textContent.startsWith('9 / ')")
                same_as_server(b, base)
            # Which tokens every layer reads: as many rows as layers that have something to read from.
            choose_token(b, 8)
            b.wait("what is read", "return document.querySelectorAll('.stack-row').length === arguments[0]", sum(r != "none" for r in rules))
            check(len(b.js("return [...document.querySelectorAll('.stack-row.attends')]")) == rules.count("attention"), f"{family.name}: layers that attend")

            # Fork in the midst, write, go back, write: each text is one that was read whole.
            press(b, "Fork here")
            b.wait("the fork", "return import('/app.js').then(({ app }) => app.current.parent?.model === arguments[0])", family.name)
            check(state(b)["ids"] == ids[:9], "the fork has the first nine tokens")
            branch = write(b, " another way")
            continues(branch, 12, f"{family.name}: a fork continues")
            choose_token(b, 14)
            press(b, "Roll back here")
            b.wait("the end of what was rolled back", "return document.querySelectorAll('#text .t').length === 15")
            continues(write(b, "once more"), 12, f"{family.name}: what was rolled back continues")

            # Keep it on the server, save the file in the browser, and continue from that file.
            whole = state(b)["ids"]
            for file in downloads.glob("*.memory"):
                file.unlink()
            b.js("document.querySelector(`#text .t[data-i='${arguments[0]}']`).click()", len(whole) - 1)
            press(b, "Keep memory here")
            eventually("the server has the whole text", lambda: any(m["model"] == family.name and m["tokens"] == len(whole) for m in kept(base)))
            b.wait("its row", "return !!document.querySelector('#memories .node[aria-current=true]')")
            b.js("""[...document.querySelector('#memories .node[aria-current=true]').nextElementSibling.querySelectorAll('button')]
                .find(x => x.textContent === 'Download').click()""")
            eventually("the memory's file is saved", lambda: [f.stat().st_size > 1000 for f in downloads.glob("*.memory")] == [True])
            b.do("POST", f"/element/{b.find('#upload')}/value", {"text": str(next(downloads.glob("*.memory")))})
            b.wait("a text that continues from the file", "return import('/app.js').then(({ app }) => app.current.base?.tokens === arguments[0])", len(whole))
            more = write(b, "; and")
            continues(whole + more, 12, f"{family.name}: a file continues as its text")
        # A text that fills the context ends with a sentence, and the page works.
        b.js("document.querySelector('#option-max_tokens').value = 600")
        written = write(b, "to the end")
        check(len(whole) + len(written) in (512, 513), f"the context of 512 tokens is full: {len(whole)} and {len(written)}")
        b.type("#prompt", "too much")
        b.click("#send")
        b.wait("the server's sentence", "return document.querySelector('#notice').textContent.includes('512')")
        b.click("#new")
        b.js("document.querySelector('#option-max_tokens').value = 60")
        check(len(write(b, " again")) == len("too much again") + 60, "what was typed is not lost, and a new text has room for it")
        noise = [m for m in b.console() if "400" not in m]  # the text that was too long
        check(noise == [], noise)


PARTS = (talk, lists, recall, comparison, runs, looks, long_text)


def wanted(part):
    return not option("--only") or part.__name__ in option("--only").split(",")


def main():
    lacks = missing()
    if lacks:
        sys.exit(f"inspector.py: {lacks} is not installed; `make test-browser` installs it")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        downloads = folder / "downloads"
        downloads.mkdir()
        train_models(folder)
        shared = lambda *more: serving("serve", folder / "runs" / "recall", folder / "runs" / f"text {HOSTILE}", "--runs", folder / "runs", "--port", 0, "--threads", 2, *more)
        b = Browser(downloads=downloads, patience=int(option("--patience") or 60))
        try:
            with shared() as base:
                b.prefer("light")
                for part in PARTS:
                    if wanted(part):
                        b.open(base + "/")
                        ready(b)
                        part(b, base, folder)
                noise = b.console()
                check(noise == [], f"the console is silent: {noise}")
                asked = b.requests()
                foreign = [a for a in asked if not a.startswith((base + "/", "blob:" + base, "data:", "about:"))]
                some = any(map(wanted, PARTS))
                check((len(asked) > 20 or not some) and foreign == [], f"nothing is asked of another host: {foreign}")
            if wanted(with_key):
                with_key(b, folder, folder / "runs" / f"text {HOSTILE}")
            if wanted(others):
                others(b, folder)
            if wanted(hybrids):
                hybrids(b, folder)
        finally:
            b.close()
    print(f"{harness.checks} checks in a browser passed")


main()
