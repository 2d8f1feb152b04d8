"""A real browser for tests: Debian's Chromium, driven through its chromedriver over WebDriver (JSON over HTTP), with nothing but the standard library."""
import base64, json, os, shutil, socket, subprocess, sys, time, urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing():
    """What this machine lacks, or None."""
    for name in ("chromium", "chromedriver"):
        if not shutil.which(name):
            return name
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    def __init__(self, width=1440, height=900, downloads=None, patience=60):
        self.patience = patience  # seconds that wait() waits
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                if self.call("GET", "/status")["ready"]:
                    break
            except OSError:
                time.sleep(0.05)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}", "--force-device-scale-factor=1", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        options = {"args": arguments, "binary": shutil.which("chromium"), "prefs": {"download.default_directory": str(downloads or "/nonexistent"), "download.prompt_for_download": False},
                   "perfLoggingPrefs": {"enableNetwork": True}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.session = f"/session/{session['sessionId']}"
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if downloads:
            self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(json.load(e)["value"]["message"]) from None

    def do(self, method, path, body=None):
        return self.call(method, self.session + path, body)

    def cdp(self, command, **parameters):
        return self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, address):
        self.do("POST", "/url", {"url": address})

    def js(self, script, *arguments):
        """The script's value; it may return a promise."""
        return self.do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, css):
        return self.do("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.patiently(lambda: self.do("POST", f"/element/{self.find(css)}/click", {}))

    def type(self, css, text):
        self.patiently(lambda: self.do("POST", f"/element/{self.find(css)}/value", {"text": text}))

    @staticmethod
    def patiently(action, seconds=10):
        """Again while the element is not there, hidden or covered."""
        end = time.time() + seconds
        while True:
            try:
                return action()
            except RuntimeError:
                if time.time() > end:
                    raise
                time.sleep(0.1)

    def text(self, css):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? null", css)

    def texts(self, css):
        return self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", css)

    def wait(self, what, script, *arguments, seconds=None):
        """Until the script's value is true."""
        seconds = seconds or self.patience
        end = time.time() + seconds
        while time.time() < end:
            value = self.js(script, *arguments)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"waited {seconds} s for {what}; the page says: {self.text('#notice')!r}; console: {self.console()}")

    def size(self, width, height, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1, mobile=mobile)

    def prefer(self, scheme):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, name):
        self.do("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": [{"type": "keyDown", "value": name}, {"type": "keyUp", "value": name}]}]})

    def console(self):
        """Messages since the last call, as text; plain logs are left out."""
        return [f"{m['level']}: {m['message']}" for m in self.do("POST", "/se/log", {"type": "browser"}) if m["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """Addresses asked for since the last call."""
        out = []
        for entry in self.do("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                out.append(message["params"]["request"]["url"])
        return out

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.do("GET", "/screenshot")))

    def close(self):
        try:
            self.do("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait()
