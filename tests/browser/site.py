#!/usr/bin/env python3
"""The static site in a real browser: every chapter with the live model, no palimpsa process and no request to another host; then the same page from
`palimpsa serve`, whose numbers must be those of the WebAssembly. Prints sizes and loading time.
   site.py PROGRAM SITE [--axe axe.min.js] [--shots DIR]
SITE is what scripts/site.sh wrote; --axe: axe-core's file, to look for what keeps people from using the page."""
import functools, http.server, json, os, pathlib, sys, threading, time

import harness
from driver import Browser, missing
from harness import check, observe, option, ready, serving

site = pathlib.Path(sys.argv[2]).resolve()
shots = pathlib.Path(option("--shots")) if option("--shots") else None
models = pathlib.Path(__file__).resolve().parents[2] / "models"
CHAPTERS = ["fixed", "write", "read", "interference", "importance", "forget", "limit", "yours"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}
    missing = None

    def do_GET(self):
        if self.missing and self.path.endswith(self.missing):
            self.send_error(404)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def static_server(missing=None):
    handler = type("Handler", (Quiet,), {"missing": missing})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def calm(b, base, what):
    """No message on the console, and nothing from elsewhere."""
    said = b.console()
    check(not said, f"{what}: the console says {said}")
    elsewhere = [r for r in b.requests() if not r.startswith((base + "/", "data:", "blob:"))]
    check(not elsewhere, f"{what}: requests to {elsewhere}")


def accessible(b, what):
    if not option("--axe"):
        return
    b.js(pathlib.Path(option("--axe")).read_text() + "; window.axe = axe;")
    found = b.js("return axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations.map(v => `${v.id}: ${v.nodes.map(n => n.target.join(' ') + ' ' + n.failureSummary).slice(0, 3).join(' | ')}`))")
    check(not found, f"{what}: axe-core finds {json.dumps(found, indent=1)}")


def chapters(b, base):
    """Each chapter becomes ready, and shows what it says."""
    for c in CHAPTERS:
        b.js("location.hash = arguments[0]", f"view=story&chapter={c}")
        b.wait(f"chapter {c}", "return document.querySelector('.stage')?.dataset.ready === arguments[0]", c)
        if shots:
            time.sleep(0.5)
            b.shot(shots / f"{c}.png")
        check(not b.js("return document.querySelector('.stage .bad[role=alert]')?.textContent ?? ''"), f"chapter {c} has no error")
    calm(b, base, "chapters")


def story(b, base):
    b.js("location.hash = 'view=story&chapter=read'")
    b.wait("reading back", "return document.querySelectorAll('.shares li').length === 4 && document.querySelectorAll('.arcs path').length > 0")
    total = b.js("""return Promise.all([import('/api.js'), import('/app.js')]).then(async ([api, { app }]) => {
        const model = app.models.find(m => m.recall && !m.plain_of).id, e = await api.recall({ model, pairs: 8, length: 32, seed: 7 }), found = await api.attribution({ model, prompt: e.ids.slice(0, e.queries[0].position + 1) });
        return found.layers.map(l => [l.error, ...l.shares.map(s => s.reduce((a, x) => a + x, 0))]); })""")
    check(len(total) == 2 and all(error < 1e-6 and all(abs(s - 1) < 1e-4 for s in sums) for error, *sums in total), f"shares add up: {total}")
    b.js("location.hash = 'view=story&chapter=importance'")
    b.wait("both models", "return document.querySelectorAll('.answers .say b').length === 2")
    b.wait("their answers", "return [...document.querySelectorAll('.answers .say b')].every(x => / of 64/.test(x.textContent))")
    with_it, without = (int(t.split()[0]) for t in b.texts(".answers .say b"))
    check(with_it > without + 10, f"importance helps: {with_it} against {without} of 64")
    # By keyboard: the list of chapters, then the next one.
    b.js("document.querySelector('#story-list button').focus()")
    b.key("\ue007")
    b.wait("the first chapter by Enter", "return document.querySelector('.chapter h2').textContent === 'A memory that never grows' && document.activeElement.tagName === 'H2'")
    b.js("location.hash = 'view=story&chapter=yours'")
    b.wait("one's own text", "return document.querySelectorAll('.passage.choose span').length > 50 && document.querySelector('.stage').dataset.ready === 'yours'")
    read = "const t = document.querySelector('.stage textarea'); t.value = arguments[0]; [...document.querySelectorAll('.stage button')].find(x => x.textContent === 'Read it').click()"
    b.js(read, "<img src=x onerror=alert(1)>")
    b.wait("a sentence about the letter that the model does not know", "return /U\\+003C/.test(document.querySelector('.stage .say').textContent)")
    b.js(read, "O Romeo")
    b.wait("the words that were typed", "return document.querySelector('.passage.choose').textContent === 'O Romeo'")
    calm(b, base, "the story")


NUMBERS = """return Promise.all([import('/api.js'), import('/app.js')]).then(async ([api, { app }]) => {
    const out = {};
    for (const model of ['recall', 'recall@plain', 'recall-without', 'shakespeare']) {
        const m = app.models.find(x => x.id === model), events = [];
        const prompt = m.recall ? (await api.recall({ model: model.split('@')[0], pairs: 16, length: 64, seed: 5 })).ids : 'ROMEO:\\nBut, soft! what light';
        await api.observe({ model, prompt, max_tokens: 12, temperature: 0, logprobs: 2, observe: { tiles: true, every: 1, map: { layer: m.layers - 1, heads: 'all', size: 64 } } }, e => events.push(e));
        const ids = events.filter(e => e.type === 'token').map(e => e.id);
        out[model] = { ids, logprobs: events.filter(e => e.type === 'token').map(e => e.logprob), tiles: events.filter(e => e.type === 'tiles').map(e => e.tiles), map: events.findLast(e => e.type === 'map'),
            shares: (await api.attribution({ model, prompt: ids.slice(0, 20) })).layers.flatMap(l => l.shares.flat()) };
    }
    return out; })"""


def same(what, a, b, accept):
    check(len(a) == len(b), f"{what}: {len(a)} and {len(b)} numbers")
    size = max((abs(x) for x in b if x is not None and abs(x) < 1e30), default=1)
    worst = max((abs(x - y) for x, y in zip(a, b) if x is not None and y is not None and abs(y) < 1e30), default=0)
    check(worst <= accept * max(1, size), f"{what}: off by {worst} of {size}")
    return worst


def compare(here, there):
    worst = 0
    for model in there:
        a, b = here[model], there[model]
        check(a["ids"] == b["ids"], f"{model} writes the same: {a['ids'][-12:]} and {b['ids'][-12:]}")
        worst = max(worst, same(f"{model}, logprobs", a["logprobs"], b["logprobs"], 1e-3), same(f"{model}, shares", a["shares"], b["shares"], 1e-3))
        check(len(a["tiles"]) == len(b["tiles"]), f"{model}: as many frames")
        for x, y in zip(a["tiles"], b["tiles"]):
            numbers = [(p, q) for p, q in zip(harness.floats(x), harness.floats(y)) if p == p and q == q]
            same(f"{model}, tiles", [p for p, _ in numbers], [q for _, q in numbers], 3e-3)
        same(f"{model}, map", harness.halves(a["map"]["mean"]["data"]), harness.halves(b["map"]["mean"]["data"]), 3e-3)
    print(f"numbers of the WebAssembly and the server: tokens equal, logprobs and shares within {worst:.1e}")


def views(b, base, what):
    for width, height in ((1280, 800), (390, 844)):
        for scheme in ("light", "dark"):
            b.size(width, height)
            b.prefer(scheme)
            for view in ("story&chapter=read", "story&chapter=importance", "compare", "talk&model=recall"):
                b.js("location.hash = arguments[0]", "view=" + view)
                time.sleep(0.8)
                accessible(b, f"{what}, {view}, {width} px, {scheme}")
                wide = b.js("return document.documentElement.scrollWidth - innerWidth")
                check(wide <= 0, f"{what}, {view}: {wide} px too wide at {width}")
    b.size(1280, 800)
    b.prefer("light")


def without_models(b):
    """A site whose models are not there says so, and stays readable."""
    server, base = static_server(missing="models.json")
    try:
        b.open(base + "/")
        b.wait("a sentence", "return /cannot run here: .*models.json cannot be loaded: 404/.test(document.querySelector('#loading [role=alert]')?.textContent ?? '')")
        b.console(), b.requests()
    finally:
        server.shutdown()


def main():
    lacks = missing()
    if lacks or not (site / "engine/models.json").exists():
        print(f"skipped: {lacks or 'a site of scripts/site.sh'} is missing")
        return
    listed = json.loads((site / "engine/models.json").read_text())
    total = sum(f.stat().st_size for f in site.rglob("*") if f.is_file())
    print(f"site: {total / 1e6:.2f} MB, of which WebAssembly {listed['wasm_bytes'] / 1e6:.2f} MB, models {sum(f['bytes'] for m in listed['models'] for f in m['files']) / 1e6:.2f} MB")
    check(total < 3 << 20, "the site is below 3 MB")
    server, base = static_server()
    b = Browser(1280, 800)
    try:
        start = time.time()
        b.open(base + "/")
        ready(b)
        print(f"loaded and ready after {time.time() - start:.2f} s")
        check(b.js("return document.querySelector('#tab-story').getAttribute('aria-selected')") == "true", "it begins with the story")
        policy = b.js("return document.querySelector('meta[http-equiv]').content")
        check("default-src 'none'" in policy and "unsafe-inline" not in policy, f"it says what it may load: {policy}")
        check(b.js("return new Promise(done => { const i = new Image(); i.onload = () => done('loaded'); i.onerror = () => done('refused'); i.src = 'http://127.0.0.1:9/x.png'; })") == "refused" and b.console(), "nothing comes from another host")
        b.requests()
        chapters(b, base)
        story(b, base)
        views(b, base, "site")
        calm(b, base, "views")
        here = b.js(NUMBERS)
        without_models(b)
        with serving("serve", f"recall={models / 'recall'}", f"recall-without={models / 'recall-without'}", f"shakespeare={models / 'shakespeare.gguf'}", "--port", "0") as live:
            b.open(live + "/")
            ready(b)
            check(b.js("return document.querySelector('#tab-talk').getAttribute('aria-selected')") == "true", "a server begins with talking")
            b.js("location.hash = 'view=story'")
            chapters(b, live)
            compare(here, b.js(NUMBERS))
            views(b, live, "serve")
            calm(b, live, "serve")
    finally:
        b.close()
        server.shutdown()
    print(f"{harness.checks} checks passed")


if __name__ == "__main__":
    main()
