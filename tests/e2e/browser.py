"""browser.py - a real headless Chromium, driven over its DevTools protocol.

The protocol goes over two pipes (--remote-debugging-pipe): JSON messages, each
ended by a zero byte; nothing but the standard library is needed. One *Page* is
one tab. What a page complains about (console errors, exceptions, requests that
failed) is collected in `page.errors`.

`find()` names a browser that is installed, or None.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from swarm import SCALE, Failed, wait_for

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser",
         "google-chrome")
ANSWER_S = 60


def find():
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


class Page:
    """with Page(width, height) as page: page.open(url)"""

    def __init__(self, width=1200, height=900):
        self.size = (width, height)
        self.dir = tempfile.mkdtemp(prefix="loco-browser-")
        to_read, self.to = os.pipe()
        self.answers, from_write = os.pipe()
        # Out of the way of 3 and 4, where the browser wants them.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
                for fd in (to_read, from_write)]
        os.close(to_read)
        os.close(from_write)

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-extensions",
             "--hide-scrollbars", f"--user-data-dir={self.dir}",
             "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=place, close_fds=False,
            start_new_session=True)
        for fd in ends:
            os.close(fd)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.errors = []

    def __enter__(self):
        tab = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=tab["targetId"])["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.resize(*self.size)
        return self

    def __exit__(self, kind, value, trace):
        os.killpg(self.process.pid, signal.SIGKILL)  # and its children
        self.process.wait(30)
        os.close(self.to)
        os.close(self.answers)
        shutil.rmtree(self.dir, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.answers], [], [], max(0, left))
            if not ready:
                raise Failed("the browser does not answer")
            some = os.read(self.answers, 1 << 16)
            if not some:
                raise Failed("the browser ended")
            self.buffer += some
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def note(self, event):
        name, p = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.errors.append(str(p["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled" and p["type"] in (
                "error", "assert", "warning"):
            self.errors.append(str(p["args"]))
        elif name == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.errors.append(str(p["entry"]))

    def call(self, method, **params):
        self.number += 1
        order = {"id": self.number, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + ANSWER_S * SCALE
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=phone)

    def colours(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme",
                             "value": scheme}])

    def open(self, url, shown=None):
        """shown: the page's address, where it is not the url (which may have a
        password)."""
        self.call("Page.navigate", url=url)
        shown = shown or url
        wait_for(lambda: self.ask("location.href + document.readyState")
                 == shown + "complete", f"{shown} is loaded")

    def ask(self, expression):
        """The value of a script's expression, promises awaited."""
        got = self.call("Runtime.evaluate", expression=expression,
                        awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise Failed(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def text(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)})"
                        "?.textContent ?? ''")

    def press(self, key):
        """A key, as a person at a keyboard."""
        codes = {"Enter": 13, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=codes[key],
                      **({"text": "\r"} if key == "Enter" and
                         kind == "keyDown" else {}))

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
