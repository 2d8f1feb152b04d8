# SPDX-License-Identifier: MIT
"""What operators of palimpsa serve rely on: the notice of systemd, and /metrics. service.py PROGRAM GOLDEN [--sanitized]"""
import json, os, pathlib, re, signal, socket, subprocess, sys, tempfile, urllib.request

program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
DASHBOARD = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "grafana" / "palimpsa.json"


def metrics(address):
    """Values by name and labels, and the kind of each family; every line must be one that Prometheus reads."""
    kinds, values = {}, {}
    for line in urllib.request.urlopen(address + "/metrics").read().decode().splitlines():
        if line.startswith("# TYPE "):
            kinds[line.split()[2]] = line.split()[3]
        elif not line.startswith("# HELP "):
            name, value = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z]+="[^"]*",?)+\})?) (\S+)', line).groups()
            assert name not in values, f"twice: {name}"
            values[name] = float(value)
    return kinds, values


def complete(address, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 3, "temperature": 0}).encode()
    urllib.request.urlopen(urllib.request.Request(address + "/v1/completions", body, {"Content-Type": "application/json"})).read()


def check_metrics(address):
    complete(address, list(range(40)))
    complete(address, list(range(40)))
    kinds, values = metrics(address)
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    assert len(histograms) == 5, histograms
    for name in histograms:
        buckets = [v for k, v in values.items() if k.startswith(name + "_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == values[name + "_count"] == 2, (name, buckets)
    assert values["palimpsa_request_prompt_tokens_sum"] == 80
    assert values["palimpsa_request_cached_ratio_sum"] == 39 / 40, "the second prompt was in the cache, except its last token"
    assert values["palimpsa_time_to_first_token_seconds_sum"] >= values["palimpsa_request_queue_seconds_sum"] >= 0
    build = next(k for k, v in values.items() if k.startswith("palimpsa_build_info{") and v == 1)
    assert re.search(r'version="\d+\.\d+\.\d+",matmul="[a-z]+",cpu="[a-z0-9]+"', build), build
    weights = sum(file.stat().st_size for file in (golden / "models" / "hybrid_m").glob("*.safetensors"))
    assert weights / 2 < values['palimpsa_bytes{purpose="weights"}'] <= weights
    known = {re.sub(r"\{.*", "", name) for name in values}
    shown = set(re.findall(r"palimpsa_[a-z_]+", DASHBOARD.read_text()))
    assert shown <= known, f"the dashboard asks for {sorted(shown - known)}"


def messages_of_a_server(name, look):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if name.startswith("@") else name)
        manager.settimeout(60)
        server = subprocess.Popen([program, "serve", golden / "models" / "hybrid_m", "--port", "0", "--log", "no"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": name}, text=True)
        try:
            ready = manager.recv(100)
            line = server.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), "ready before it listens"
            if look:
                look(line.split()[-1])
            server.send_signal(signal.SIGTERM)
            return [ready, manager.recv(100)], server.wait(60)
        finally:
            server.kill()
            server.wait()


with tempfile.TemporaryDirectory() as folder:
    for name, look in ((f"{folder}/notify", check_metrics), (f"@palimpsa-test-{os.getpid()}", None)):
        messages, code = messages_of_a_server(name, look)
        assert messages == [b"READY=1", b"STOPPING=1"] and code == 0, (name, messages, code)
print("a service manager hears of the start and of the end, and /metrics has five histograms that add up")
