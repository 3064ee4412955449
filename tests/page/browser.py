"""browser.py - Chromium without a window, driven through its pipe: needs nothing but Python.

    with Browser() as browser:
        page = browser.open("/path/page.html", width=1400, height=900)
        print(page.evaluate("document.title"))

Chromium speaks its DevTools protocol on the file descriptors 3 (to it) and 4 (from it): JSON texts,
each ended by a zero byte.
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def find_chromium():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="ration-chromium-")
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        self.process = subprocess.Popen(
            # A shell puts the pipes where Chromium looks for them.
            ["bash", "-c", 'exec "$0" "$@" 3<&%d 4>&%d' % (to_read, from_write), find_chromium(),
             "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--hide-scrollbars",
             "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
             "--user-data-dir=" + self.folder, "about:blank"],
            pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.pending = b""
        self.number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        while b"\0" not in self.pending:
            data = os.read(self.from_read, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self.pending += data
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        """The first event of this kind that has not been waited for."""
        while True:
            for i, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(i)
            self.events.append(self._read())

    def open(self, path, width=1400, height=900, scale=1, dark=False, before=""):
        """`before` is run before the page's own scripts."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=False)
        page.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        page.call("Page.navigate", url=path if "://" in path else pathlib.Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, code):
        """The value of an expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def frame(self):
        """Waits until what is due has been drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x0, y0, x1, y1, modifiers=0):
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, modifiers=modifiers)
        for i in range(1, 6):
            self.mouse("mouseMoved", x0 + (x1 - x0) * i / 5, y0 + (y1 - y0) * i / 5, button="left",
                       buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def click(self, x, y, count=1):
        for i in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=i)
            self.mouse("mouseReleased", x, y, button="left", clickCount=i)
        self.frame()

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 and not modifiers & 6 else ""
        code = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        extra = {"text": text} if text else {}
        if key == "Enter":
            extra["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers,
                  windowsVirtualKeyCode=code, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers,
                  windowsVirtualKeyCode=code)
        self.frame()

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """Exceptions, console errors, and every address that was asked for besides the file."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            params, method = event["params"], event["method"]
            if method == "Runtime.exceptionThrown":
                found.append("exception: " + params["exceptionDetails"]["exception"].get("description", "?"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append("console: " + str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append("log: " + params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file://", "data:", "about:")):
                    found.append("request: " + url)
        return found


if __name__ == "__main__":  # is there one, and does it run here?
    if not find_chromium():
        raise SystemExit(1)
    with Browser() as started:
        started.call("Browser.getVersion")
