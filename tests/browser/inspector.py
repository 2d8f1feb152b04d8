#!/usr/bin/env python3
"""The page in a real browser, on two small models trained here: type, stream, fork, roll back, open a layer, move the slider, compare with plasticity off, dark
mode, a narrow screen, hostile texts, runs, a key, links and files. What the page shows is compared with what the server says to another client.
   inspector.py PROGRAM [--shots DIR] [--web DIR]    --web: files of DIR instead of those inside the program"""
import base64, contextlib, http.client, json, math, os, pathlib, signal, struct, subprocess, sys, tempfile, time

from driver import Browser, missing

program = os.path.abspath(sys.argv[1])
shots = pathlib.Path(sys.argv[sys.argv.index("--shots") + 1]) if "--shots" in sys.argv else None
web = ["--web", os.path.abspath(sys.argv[sys.argv.index("--web") + 1])] if "--web" in sys.argv else []
HOSTILE = "<img src=x onerror=alert(1)>"
checks = 0


def check(true, what):
    global checks
    checks += 1
    assert true, what


def run(*words, cwd=None):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == 0, (words, done.stderr)


@contextlib.contextmanager
def serving(*words):
    process = subprocess.Popen([program, *map(str, words), *web], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        yield line.split()[-1].rstrip("/")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def ask(base, path, body=None, headers={}):
    connection = http.client.HTTPConnection(base.split("//")[1], timeout=100)
    connection.request("POST" if body is not None else "GET", path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer


def observe(base, **body):
    """The events of one observed text, as another client sees them."""
    status, text, _ = ask(base, "/v1/observe", body)
    assert status == 200, text
    return [json.loads(part[6:]) for part in text.split("\n\n") if part.startswith("data: {")]


def floats(text):
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // 4}f", data)


def halves(text):
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // 2}e", data)


def short(value):
    """Three digits, as tiles show them; written independently of the page."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    digits = 4 if 1000 <= abs(value) < 10000 else 3
    value = float(f"{value:.{digits - 1}e}")
    size = abs(value)
    if size < 1e-3:
        return None  # in powers of ten: not compared
    if size >= 1e6:
        return None
    if size >= 1e4:
        return f"{value / 1e3:.{1 if size < 1e5 else 0}f}k"
    return f"{value:.{min(5, max(0, 2 - math.floor(math.log10(size))))}f}"


def ready(b):
    b.wait("the page", "return document.documentElement.dataset.ready === 'yes'")


def idle(b):
    b.wait("the end of the text", "return !document.querySelector('#send').disabled", seconds=120)
    time.sleep(0.15)


def state(b):
    return b.js("""return import('/app.js').then(({ app }) => ({ ids: app.current.recording.ids, position: app.position, end: app.current.recording.position, layer: app.layer,
        element: app.element, name: app.current.name, count: app.conversations.length, memories: app.memories.length, model: app.current.model, texts: app.current.recording.texts.slice(0, 300) }))""")


def choose_token(b, i):
    b.js("document.querySelector(`#text .t[data-i='${arguments[0]}']`).click()", i)
    time.sleep(0.2)


def shot(b, name):
    if shots:
        time.sleep(0.4)
        b.shot(shots / f"{name}.png")


def same_as_server(b, base):
    """Tiles, probabilities and a map at the slider's place equal what the server tells another client."""
    s = state(b)
    p, ids = s["position"], s["ids"]
    events = observe(base, model=s["model"], prompt=(ids + [0])[: p + 1], max_tokens=0, observe={"every": 1, "map": {"layer": s["layer"], "size": 64}})
    start = events[0]
    frames = [e for e in events if e["type"] == "tiles" and e["position"] == p]
    check(len(frames) == 1, f"one frame at {p}")
    fields, numbers = start["tile_fields"], floats(frames[0]["tiles"])
    for layer, tile in enumerate(b.js("return [...document.querySelectorAll('.tile')].map(t => [t.querySelector('.window').textContent, t.querySelector('.ratio').textContent, t.querySelector('.wrote').textContent])")):
        for shown, field in zip(tile, ("window", "ratio", "write")):
            wanted = short(numbers[layer * len(fields) + fields.index(field)])
            check(wanted is None or shown == wanted, f"layer {layer}, {field}: the page shows {shown}, the server says {wanted}")
    tokens = {e["index"]: e for e in events if e["type"] == "token"}
    i = p - 1
    if i > 0 and tokens[i]["logprob"] is not None:
        choose_token(b, i)
        shown = b.text("#token-probability")
        percent = 100 * math.exp(tokens[i]["logprob"])
        check(shown.startswith(f"{percent:.1f} %") or percent < 0.1 or percent > 99.95, f"token {i}: the page shows {shown}, the server says {percent}")
    # The map: brightness follows the server's numbers.
    m = [e for e in events if e["type"] == "map"][-1]
    check(m["position"] == p, "the map is that of the place")
    rows, columns = m["shown"]
    b.wait("the map of this place", "return document.querySelector('#map-position')?.textContent === `after ${arguments[0]} tokens`", p)
    part = m["importance"] or m["mean"]
    values = [v * part["scale"][0] for v in halves(part["data"])[: rows * columns]]
    pixels = b.js("const c = document.querySelector('.heat'); return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)")
    check(len(pixels) == 4 * rows * columns, "one pixel an element")
    bright = [sum(pixels[4 * k : 4 * k + 3]) for k in range(rows * columns)]
    top, low = max(range(len(values)), key=values.__getitem__), min(range(len(values)), key=values.__getitem__)
    check(bright[top] == max(bright) and bright[low] == min(bright), "the brightest pixel is the largest importance")
    order = sorted(range(len(values)), key=values.__getitem__)
    check(all(bright[a] <= bright[c] + 12 for a, c in zip(order, order[1:])), "brightness rises with importance")
    return values


def talk(b, base, downloads):
    b.open(base + "/")
    ready(b)
    b.js("const s = document.querySelector('#model'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", "text " + HOSTILE)
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

    # Fork, then roll back: conversations and memories on the server.
    choose_token(b, 11)
    b.js("[...document.querySelectorAll('.token-card button')].find(x => x.textContent === 'Fork here').click()")
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
    check(g["ids"][:12] == s["ids"][:12] and len(g["ids"]) > 20, "the fork goes on")
    choose_token(b, 14)
    b.js("[...document.querySelectorAll('.token-card button')].find(x => x.textContent === 'Roll back here').click()")
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
    # A kept memory: download, upload, go on from it, delete.
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
    b.wait("a conversation that goes on from it", "return import('/app.js').then(({ app }) => app.current.base !== null)")
    b.type("#prompt", "more")
    b.click("#send")
    time.sleep(0.1)
    idle(b)
    base_tokens = b.js("return import('/app.js').then(({ app }) => app.current.base.tokens)")
    check(state(b)["end"] > base_tokens, "it reads on behind the memory")
    b.js("document.querySelectorAll('#memories .more')[0].click()")
    b.js("[...document.querySelectorAll('#memories .node-menu')][0].querySelectorAll('button').forEach(x => { if (x.textContent === 'Delete') x.click(); })")
    b.wait("the question", "return !!document.querySelector('dialog')")
    b.click("dialog .danger")
    end = time.time() + 20
    while len(json.loads(ask(base, "/v1/memories")[1])["data"]) != before and time.time() < end:
        time.sleep(0.1)
    check(len(json.loads(ask(base, "/v1/memories")[1])["data"]) == before, "a memory is deleted")


def recall(b, base, downloads):
    b.open(base + "/")
    ready(b)
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
    same_as_server(b, base)
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


def comparison(b, base):
    b.click("#tab-compare")
    b.wait("two models", "return document.querySelector('#compare-model-1').value.endsWith('@plain')")
    b.click("#compare-recall")
    b.wait("both have read", "return document.querySelectorAll('#differences tbody tr').length > 3 && !document.querySelector('#compare-go').disabled")
    names = [b.js(f"return document.querySelector('#compare-model-{n}').value") for n in (0, 1)]
    check(names[1] == names[0] + "@plain", f"with plasticity off beside it: {names}")
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


def looks(b, base):
    b.click("#tab-talk")
    for scheme, paper in (("dark", "rgb(20, 23, 28)"), ("light", "rgb(255, 255, 255)")):
        b.prefer(scheme)
        b.wait(scheme, "return getComputedStyle(document.querySelector('.top')).backgroundColor === arguments[0]", paper)
        shot(b, f"{scheme}-talk")
    b.click("#theme")
    b.click("#theme")
    check(b.js("return document.documentElement.dataset.theme") == "dark", "the switch says dark")
    b.size(390, 844, True)
    time.sleep(0.3)
    for view in ("talk", "compare", "training"):
        b.click(f"#tab-{view}")
        time.sleep(0.4)
        wide = b.js("return document.documentElement.scrollWidth")
        check(wide <= 390, f"{view} fits a phone: {wide}")
        shot(b, f"phone-{view}")
    b.click("#tab-talk")
    b.click("#pane-memory")
    check(b.js("return document.querySelector('#slider').offsetParent !== null && document.querySelector('#prompt').offsetParent === null"), "one part at a time")
    shot(b, "phone-memory")
    b.click("#pane-text")
    b.size(1440, 900)
    b.click("#theme")
    unnamed = b.js("""return [...document.querySelectorAll('button, input, select, textarea, canvas[tabindex]')].filter(e => e.offsetParent && !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.title)).map(e => e.outerHTML.slice(0, 90))""")
    check(unnamed == [], f"every control has a name: {unnamed}")


def long_text(b, base):
    """100,000 tokens: few elements, and the page answers at once."""
    b.js("const s = document.querySelector('#model'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", "text " + HOSTILE)
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


def main():
    lacks = missing()
    if lacks:
        sys.exit(f"inspector.py: {lacks} is not installed; `make test-browser` installs it")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        downloads = folder / "downloads"
        downloads.mkdir()
        prose = "".join(p.read_text() for p in sorted((pathlib.Path(__file__).parents[2] / "docs").glob("*.md")))[:120000]
        (folder / "book.txt").write_text(prose + 50 * (HOSTILE + " \u05e9\u05dc\u05d5\u05dd\n"))
        tiny = "--hidden 32 --heads 2 --layers 2 --batch 16 --threads 2 --seed 5".split()
        run("train", "--task", "mqar", "--model", "palimpsa-d", "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, *tiny, "--steps", 60, "--lr", "3e-3", "--test-examples", 64, "--out", folder / "runs" / "recall")
        run("train", "--task", "mqar", "--model", "palimpsa-d-wo-meta", "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, *tiny, "--steps", 20, "--lr", "3e-3", "--test-examples", 64, "--out", folder / "runs" / f"wo {HOSTILE}")
        run("train", "--recipe", "shakespeare", "--data", folder / "book.txt", "--model", "palimpsa-m", "--hidden", 32, "--layers", 2, "--heads", 2, "--steps", 10, "--warmup", 2, "--batch", 2, "--threads", 2, "--out", folder / "runs" / f"text {HOSTILE}")
        b = Browser(downloads=downloads)
        try:
            with serving("serve", folder / "runs" / "recall", folder / "runs" / f"text {HOSTILE}", "--runs", folder / "runs", "--port", 0, "--threads", 2) as base:
                b.prefer("light")
                for part in (lambda: talk(b, base, downloads), lambda: recall(b, base, downloads), lambda: comparison(b, base), lambda: runs(b, base, folder), lambda: looks(b, base), lambda: long_text(b, base)):
                    part()
                noise = b.console()
                check(noise == [], f"the console is silent: {noise}")
                asked = b.requests()
                foreign = [a for a in asked if not a.startswith((base + "/", "blob:" + base, "data:", "about:"))]
                check(len(asked) > 50 and foreign == [], f"nothing is asked of another host: {foreign}")
            with_key(b, folder, folder / "runs" / f"text {HOSTILE}")
        finally:
            b.close()
    print(f"{checks} checks in a browser passed")


main()
