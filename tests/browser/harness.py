"""What the browser's tests stand on: the program and its servers, another client's view of them, and the page's parts."""
import base64, contextlib, http.client, json, math, os, pathlib, shutil, signal, struct, subprocess, sys, time

program = os.path.abspath(sys.argv[1])


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


shots = pathlib.Path(option("--shots")) if option("--shots") else None
web = ["--web", os.path.abspath(option("--web"))] if option("--web") else []
HOSTILE = "<img src=x onerror=alert(1)>"
checks = 0
children = []  # servers that were started


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
    children.append(process)
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


def number(text):
    """What a tile shows, as a number: "–", "∞", "12.3k", "1.5M" or "6.42×10⁻⁴"."""
    text = text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")).replace("×10", "e")
    if text in ("–", "∞"):
        return math.nan if text == "–" else math.inf
    scale = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1], 1)
    return scale * float(text[:-1] if scale > 1 else text)


def shows(text, value):
    """Whether a text of three digits is that of the value."""
    shown = number(text)
    return math.isnan(shown) == math.isnan(value) and (math.isnan(value) or shown == value or abs(shown - value) <= 0.0051 * abs(value))


def ready(b):
    b.wait("the page", "return document.documentElement.dataset.ready === 'yes'")


def idle(b):
    b.wait("the end of the text", "return !document.querySelector('#send').disabled", seconds=2 * b.patience)
    time.sleep(0.15)


def read_recall(b):
    """A recall example, read to its end. A text that is there already gets a new conversation next to it."""
    before = b.js("return import('/app.js').then(({ app }) => app.current.recording.ids.length ? app.current.key : 0)")
    b.click("#recall")
    b.wait("a recall example", """return import('/app.js').then(({ app }) => { const r = app.current.recording;
        return app.current.key !== arguments[0] && !app.busy && r.ids.length > 8 && r.position >= r.start + r.ids.length; })""", before)
    time.sleep(0.15)


def state(b):
    return b.js("""return import('/app.js').then(({ app }) => ({ ids: app.current.recording.ids, position: app.position, end: app.current.recording.position, layer: app.layer,
        element: app.element, name: app.current.name, count: app.conversations.length, memories: app.memories.length, model: app.current.model, texts: app.current.recording.texts.slice(0, 300) }))""")


def choose_token(b, i):
    b.js("document.querySelector(`#text .t[data-i='${arguments[0]}']`).click()", i)
    time.sleep(0.2)


def press(b, label):
    """A button of the chosen token."""
    b.wait(label, "return [...document.querySelectorAll('.token-card button')].some(x => x.textContent === arguments[0] && !x.disabled)", label)
    b.js("[...document.querySelectorAll('.token-card button')].find(x => x.textContent === arguments[0]).click()", label)


def shot(b, name):
    if shots:
        time.sleep(0.4)
        b.shot(shots / f"{name}.png")


def kept(base):
    return json.loads(ask(base, "/v1/memories")[1])["data"]


def action(b, list_id, index, label):
    """Presses an action of one row of a list."""
    b.wait(f"row {index}", "return document.querySelectorAll(`#${arguments[0]} .node`).length > arguments[1]", list_id, index)
    b.js("""const row = document.querySelectorAll(`#${arguments[0]} .node`)[arguments[1]], menu = row.nextElementSibling;
        if (menu.hidden) row.querySelector('.more').click();
        [...menu.querySelectorAll('button')].find(x => x.textContent === arguments[2]).click()""", list_id, index, label)


def answer(b, text, button=".primary"):
    """Fills in the small window that is open, and closes it."""
    b.wait("the window", "return !!document.querySelector('dialog')")
    b.js("document.querySelector('dialog input').value = ''")
    b.type("dialog input", text)
    b.click(f"dialog {button}")
    b.wait("its end", "return !document.querySelector('dialog')")


def eventually(what, value, seconds=20):
    end = time.time() + seconds
    while not value() and time.time() < end:
        time.sleep(0.1)
    check(value(), what)


def pick_model(b, name):
    b.js("const s = document.querySelector('#model'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", name)
    b.wait("the model", "return import('/app.js').then(({ app }) => app.current.model === arguments[0])", name)


def train_models(folder):
    kept = option("--models")
    if kept and pathlib.Path(kept).is_dir():
        for part in ("runs", "others"):
            shutil.copytree(pathlib.Path(kept) / part, folder / part)
        return
    prose = "".join(p.read_text() for p in sorted((pathlib.Path(__file__).parents[2] / "docs").rglob("*.md")))[:120000]
    (folder / "book.txt").write_text(prose + 50 * (HOSTILE + " \u05e9\u05dc\u05d5\u05dd\n"))
    tiny = "--hidden 32 --heads 2 --layers 2 --batch 16 --threads 2 --seed 5".split()
    run("train", "--task", "mqar", "--model", "palimpsa-d", "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, *tiny, "--steps", 60, "--lr", "3e-3", "--test-examples", 64, "--out", folder / "runs" / "recall")
    run("train", "--task", "mqar", "--model", "palimpsa-d-wo-meta", "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, *tiny, "--steps", 20, "--lr", "3e-3", "--test-examples", 64, "--out", folder / "runs" / f"wo {HOSTILE}")
    run("train", "--recipe", "shakespeare", "--data", folder / "book.txt", "--model", "palimpsa-m", "--hidden", 32, "--layers", 2, "--heads", 2, "--steps", 10, "--warmup", 2, "--batch", 2, "--threads", 2, "--out", folder / "runs" / f"text {HOSTILE}")
    for name, model, layers in (("transformer", "transformer", 2), ("gdn", "gated-deltanet", 2), ("deep", "palimpsa-d", 4)):
        run("train", "--task", "mqar", "--model", model, "--seq-len", 32, "--kv-pairs", 4, "--vocab", 64, "--hidden", 32, "--heads", 2, "--layers", layers, "--batch", 2, "--threads", 2, "--steps", 2, "--test-examples", 8, "--out", folder / "others" / name)
    if kept:
        for part in ("runs", "others"):
            shutil.copytree(folder / part, pathlib.Path(kept) / part)


def same_as_server(b, base, flat=True):
    """Tiles, probabilities and a map at the slider's place equal what the server sends another client. flat: the map may be of one colour."""
    s = state(b)
    p, ids = s["position"], s["ids"]
    events = observe(base, model=s["model"], prompt=(ids + [0])[: p + 1], max_tokens=0, observe={"every": 1, "map": {"layer": s["layer"], "size": 64}})
    start = events[0]
    frames = [e for e in events if e["type"] == "tiles" and e["position"] == p]
    check(len(frames) == 1, f"one frame at {p}")
    fields, numbers = start["tile_fields"], floats(frames[0]["tiles"])
    for layer, tile in enumerate(b.js("return [...document.querySelectorAll('.tile')].map(t => [t.querySelector('.window').textContent, t.querySelector('.ratio').textContent, t.querySelector('.wrote').textContent])")):
        for shown, field in zip(tile, ("window", "ratio", "write")):
            wanted = numbers[layer * len(fields) + fields.index(field)]
            check(shows(shown, wanted), f"layer {layer}, {field}: the page shows {shown}, the server says {wanted}")
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
    if not m["importance"]:  # a mean: its sign is the colour
        large = [k for k, v in enumerate(values) if abs(v) > 0.5 * max(map(abs, values))]
        check(all((pixels[4 * k] > pixels[4 * k + 2]) == (values[k] > 0) for k in large), "amber is positive, violet negative")
        return values
    bright = [sum(pixels[4 * k : 4 * k + 3]) for k in range(rows * columns)]
    top, low = max(range(len(values)), key=values.__getitem__), min(range(len(values)), key=values.__getitem__)
    check(bright[top] == max(bright) and bright[low] == min(bright), "the brightest pixel is the largest importance")
    check(flat or max(bright) - min(bright) > 100, f"some elements are bright, others dark: {min(bright)} to {max(bright)}")
    order = sorted(range(len(values)), key=values.__getitem__)
    check(all(bright[a] <= bright[c] + 12 for a, c in zip(order, order[1:])), "brightness rises with importance")
    return values
