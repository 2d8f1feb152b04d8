#!/usr/bin/env python3
"""check.py PROGRAM GOLDEN [EMULATOR]: a static palimpsa where nothing is installed. Without an emulator it runs in an
otherwise empty root directory, else by EMULATOR PROGRAM in an empty directory. Every command that a small machine needs
works, `serve` included; what needs cairo says so."""
import http.client, json, os, pathlib, shutil, subprocess, sys, tempfile

program, golden = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
emulator = sys.argv[3:]
environment = {"OMP_WAIT_POLICY": "passive", "PATH": os.environ["PATH"] + ":/usr/sbin", **{k: v for k, v in os.environ.items() if k in ("QEMU_CPU", "PALIMPSA_CPU")}}

header = subprocess.run(["readelf", "--file-header", "--program-headers", "--dynamic", "--wide", program], capture_output=True, text=True, check=True).stdout
assert "INTERP" not in header and "(NEEDED)" not in header, f"{program} is not static:\n{header}"
assert "DYN (" in header and "GNU_RELRO" in header, f"{program} is not loaded anywhere, or its tables of addresses can be written:\n{header}"
size = program.stat().st_size
assert size < 8_000_000, f"{program} has {size} bytes, more than 8 MB"

with tempfile.TemporaryDirectory() as root:
    root = pathlib.Path(root)
    shutil.copy(program, root / "palimpsa")
    shutil.copytree(golden / "models/hybrid_m", root / "model")
    (root / "tmp").mkdir()
    text = "".join(chr(32 + i % 95) for i in range(95 * 8)) + "\n"
    (root / "text").write_text(text)
    if emulator:
        start = [*emulator, str(root / "palimpsa")]
    else:
        start = [*([] if os.geteuid() == 0 else ["unshare", "--map-root-user"]), shutil.which("chroot", path=environment["PATH"]), str(root), "/palimpsa"]

    def call(*words, code=0):
        done = subprocess.run([*start, *map(str, words)], cwd=root, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stderr if code else done.stdout

    version = call("version")
    print(version.strip())
    assert "matmul: plain" in version and "mpi: none" in version
    one_core = subprocess.run([*start, "version"], cwd=root, env=environment, capture_output=True, text=True, check=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})).stdout
    assert ", 1 thread\n" in one_core, one_core
    emulated = emulator or [shutil.which("qemu-x86_64")]
    old_kernel = subprocess.run([*emulated, "-r", "3.16.4", root / "palimpsa", "version"], capture_output=True, text=True)
    assert old_kernel.returncode == 2 and "the kernel here is Linux 3.16.4; expected 3.17" in old_kernel.stderr, old_kernel
    subprocess.run([*emulated, "-r", "3.17", root / "palimpsa", "version"], stdout=subprocess.DEVNULL, check=True)
    last = call("selftest").splitlines()[-1]
    print(last)
    assert last.endswith(" 0 failed") and not last.startswith("0 "), last

    call("tokenize", "--learn-chars", "--out", "model", "text")
    ids = call("tokenize", "--tokenizer", "model", "--encode", "The quick")
    assert ids.strip(), ids
    assert "the same for any length" in call("inspect", "model")
    ask = ["generate", "model", "--prompt", "The quick brown", "--max-tokens", 30, "--temperature", 0]
    written = call(*ask)
    assert len(written) == 30, written
    planned = subprocess.run([*start, *map(str, ask)], cwd=root, env=environment, capture_output=True, text=True).stderr
    assert [line for line in planned.splitlines() if "warning: " not in line][0].startswith("RAM: weights "), planned
    call("generate", "model", "--prompt", "The quick", "--max-tokens", 0, "--save-memory", "a.memory")
    assert written == call("generate", "model", "--load-memory", "a.memory", "--prompt", " brown", *ask[4:])
    call("convert", "model", "half", "--dtype", "bf16")
    assert len(call("generate", "half", *ask[2:])) == 30
    measured = json.loads(call("eval", "model", "--data", "text", "--context", 128, "--json"))
    assert 1 < measured["token_perplexity"] < 1e6, measured
    for words in (["plot", "run", "--out", "a.svg"], ["eval", "model", "--data", "text", "--figure", "a.svg"]):
        assert "built without cairo" in call(*words, code=2), words

    server = subprocess.Popen([*start, "serve", "model", "--port", "0", "--threads", "2"], cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        connection = http.client.HTTPConnection("127.0.0.1", int(line.rsplit(":", 1)[1]), timeout=300)
        body = {"prompt": "The quick brown", "max_tokens": 30, "temperature": 0}
        connection.request("POST", "/v1/completions", body=json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        assert answer["choices"][0]["text"] == written, (answer, written)
        connection.request("GET", "/")
        page = connection.getresponse()
        assert page.status == 200 and b"<html" in page.read(), page.status
    finally:
        server.terminate()
        code = server.wait(60)
    assert code == 0, code
print(f"{program.name}: {size / 1e6:.2f} MB, static; " + ("under " + " ".join(emulator) if emulator else "in an empty root directory") + ": all as expected")
