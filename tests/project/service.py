# SPDX-License-Identifier: MIT
"""palimpsa serve says to a service manager when it is ready and when it stops. service.py PROGRAM GOLDEN"""
import os, pathlib, signal, socket, subprocess, sys, tempfile

program, golden = sys.argv[1], pathlib.Path(sys.argv[2])


def messages_of_a_server(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if name.startswith("@") else name)
        manager.settimeout(60)
        server = subprocess.Popen([program, "serve", golden / "models" / "hybrid_m", "--port", "0", "--log", "no"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": name}, text=True)
        try:
            ready = manager.recv(100)
            assert server.stdout.readline().startswith("listening on http://127.0.0.1:"), "ready before it listens"
            server.send_signal(signal.SIGTERM)
            return [ready, manager.recv(100)], server.wait(60)
        finally:
            server.kill()
            server.wait()


with tempfile.TemporaryDirectory() as folder:
    for name in (f"{folder}/notify", f"@palimpsa-test-{os.getpid()}"):
        messages, code = messages_of_a_server(name)
        assert messages == [b"READY=1", b"STOPPING=1"] and code == 0, (name, messages, code)
print("a service manager hears of the start and of the end, by path and by abstract name")
