#!/usr/bin/env python3
"""Draws docs/figures/story.png: a chapter of the site in Chromium. page_picture.py SITE OUT.png [CHAPTER]"""
import functools, http.server, pathlib, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/browser"))
from driver import Browser, missing  # noqa: E402

site, out = sys.argv[1], sys.argv[2]
chapter = sys.argv[3] if len(sys.argv) > 3 else "read"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


lacks = missing()
if lacks:
    sys.exit(f"page_picture.py: {lacks} is missing; scripts/setup.sh --browser installs it")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
threading.Thread(target=server.serve_forever, daemon=True).start()
b = Browser(1280, 640)
try:
    b.prefer("light")
    b.open(f"http://127.0.0.1:{server.server_address[1]}/#view=story&chapter={chapter}")
    b.wait("the chapter", "return document.querySelector('.stage')?.dataset.ready === arguments[0]", chapter)
    time.sleep(1)
    b.shot(out)
finally:
    b.close()
    server.shutdown()
