#!/usr/bin/env python3
"""How smoothly the page draws: a stream of /v1/observe is recorded from the program, the program ends, and the page then gets the recording at a steady pace while it
counts its own frames (requestAnimationFrame, performance.now). Prints frames/s; asserts nothing about time.
   frames.py PROGRAM [TOKENS_PER_SECOND]"""
import http.server, json, os, pathlib, subprocess, sys, tempfile, threading, time, urllib.request

from driver import Browser

program, rate = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 50
WEB = pathlib.Path(__file__).parents[2] / "web"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
TOKENS = 400


def record(folder):
    """Twelve layers of eight heads; untrained except for one update: what is drawn is the same."""
    (folder / "book.txt").write_text("".join(p.read_text() for p in sorted((WEB.parent / "docs").rglob("*.md")))[:60000])
    words = "train --recipe shakespeare --model palimpsa-m --hidden 256 --layers 12 --heads 8 --steps 1 --warmup 1 --batch 1 --threads 2".split()
    subprocess.run([program, *words, "--data", folder / "book.txt", "--out", folder / "model"], check=True, capture_output=True)
    server = subprocess.Popen([program, "serve", folder / "model", "--port", "0", "--threads", "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    base = server.stdout.readline().split()[-1].rstrip("/")
    answers = {}
    for path in ("/v1/models", "/v1/memories"):
        answers[path] = urllib.request.urlopen(base + path).read()
    answers["/tokenize"] = urllib.request.urlopen(urllib.request.Request(base + "/tokenize", json.dumps({"prompt": "Once upon a time "}).encode())).read()
    body = {"prompt": json.loads(answers["/tokenize"])["tokens"], "max_tokens": TOKENS, "seed": 1, "observe": {"every": 1, "map": {"layer": 0, "heads": "all", "size": 64}}}
    stream = urllib.request.urlopen(urllib.request.Request(base + "/v1/observe", json.dumps(body).encode())).read().decode().split("\n\n")
    server.terminate()
    server.wait()
    return answers, [part for part in stream if part]


class Player(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def answer(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        name = "index.html" if self.path == "/" else self.path[1:]
        if self.path in self.server.answers:
            self.answer("application/json", self.server.answers[self.path])
        elif (WEB / name).is_file() and "/" not in name:
            self.answer(TYPES[pathlib.Path(name).suffix], (WEB / name).read_bytes())
        else:
            self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/tokenize":
            self.answer("application/json", self.server.answers["/tokenize"])
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        start, tokens = time.time(), 0
        for part in self.server.stream:
            tokens += '"type":"token"' in part
            time.sleep(max(0, start + tokens / rate - time.time()))
            self.wfile.write((part + "\n\n").encode())


with tempfile.TemporaryDirectory() as name:
    answers, stream = record(pathlib.Path(name))
maps = sum('"type":"map"' in part for part in stream)
player = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Player)
player.answers, player.stream = answers, stream
threading.Thread(target=player.serve_forever, daemon=True).start()
b = Browser(1440, 900)
try:
    b.open(f"http://127.0.0.1:{player.server_port}/")
    b.wait("the page", "return document.documentElement.dataset.ready === 'yes'")
    b.js("""document.querySelector('#prompt').value = 'Once upon a time '; window.frames_ = [];
        const tick = t => { window.frames_.push(t); requestAnimationFrame(tick); }; requestAnimationFrame(tick); document.querySelector('#send').click()""")
    b.wait("the end", "return document.querySelectorAll('#text .t.w').length >= arguments[0] - 1 && !document.querySelector('#send').disabled", TOKENS, seconds=120)
    times = b.js("return window.frames_")
    gaps = sorted(y - x for x, y in zip(times, times[1:]))
    seconds = (times[-1] - times[0]) / 1000
    print(f"{len(gaps) / seconds:.1f} frames/s over {seconds:.1f} s; 99 of 100 frames within {gaps[int(0.99 * len(gaps))]:.0f} ms, slowest {gaps[-1]:.0f} ms; {TOKENS} tokens at {rate:.0f}/s, {maps} maps, 12 layers of 8 heads")
finally:
    b.close()
    player.shutdown()
