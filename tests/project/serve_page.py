#!/usr/bin/env python3
"""The page that `palimpsa serve` offers, and what it needs beside the models: assets, built in and from a directory; a server without a model;
`inspect --open`."""
from serving import program, serving, speaking_model

import pathlib, signal, subprocess, tempfile, urllib.request

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
    print("serve_page: as promised")
