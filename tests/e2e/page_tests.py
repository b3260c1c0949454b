"""page_tests.py - `loco page`: several daemons on one page, over HTTP and in a
real browser; and daemons that answer nonsense.

The tests with a browser are skipped where no Chromium is installed.
"""
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time

from access_tests import ask
import browser
from command_tests import Terminal
from dashboard_tests import (contrast_is_enough, everything_has_a_name,
                             need_browser, nothing_is_cut_off, wait_page)
from e2e_registry import test
from swarm import LOCO, Swarm, check, run, wait_for


class Served:
    """with Served(words) as page: a `loco page`, until the end."""

    def __init__(self, *words, **env):
        self.process = subprocess.Popen(
            [LOCO, "page", *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
        self.url = self.process.stdout.readline().strip()
        check(self.url.startswith("http://"), f"it prints {self.url!r}, and "
              + (self.process.stderr.readline() if not self.url else ""))
        self.at = self.url[len("http://"):-1]
        said = self.process.stderr.readline()
        self.password = (self.process.stdout.readline().split()[1]
                         if "password" in said else None)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self.process.stdout.close()
        self.process.stderr.close()
        check(kind is not None or code == 0, f"exit code {code}")

    def get(self, path, **how):
        return ask(self.at, path, self.password, **how)

    def machines(self):
        code, text = self.get("/api/v1/machines")
        return json.loads(text)["machines"] if code == 200 else []

    def wait(self, condition, what, seconds=60):
        """condition: of the list of machines."""
        def holds():
            got = self.machines()
            return got and condition(got) and got
        return wait_for(holds, what, seconds)


def address_of(peer):
    with open(os.path.join(peer.state, "control"), encoding="ascii") as f:
        return f.read().strip()


def machines_file(s, *lines):
    path = s.path("machines")
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    os.chmod(path, 0o600)
    return path


@test("loco page shows machines of which one has a token, one is killed and one "
      "hangs, and the others go on", 240)
def machines():
    with Swarm(peers=4, rounds=100000, min_peers=1) as s:
        s.peer().start("--run", s.yaml, "--control-token", "always").wait_up()
        for _ in range(3):
            s.peer().start("--join", s.uri()).wait_up()
        s.wait_training()
        at = [address_of(p) for p in s.peers]
        token = run(LOCO, "access", "--state",
                    s.peers[0].state).stdout.split()[1]
        names = machines_file(s, f"{at[0]} {token} attic",
                              f"{at[1]} - cellar", at[2])
        with Served("--machines", names, s.peers[3].state) as page:
            check(page.password, "no password, although one has a token")
            # A word of the command line comes first.
            check([m["name"] for m in page.wait(
                lambda m: all(one["answers"] for one in m), "all answer")]
                == [s.peers[3].state, "attic", "cellar", at[2]], "others")
            got = json.loads(page.get("/api/v1/machines")[1])
            totals = got["totals"]
            check(totals["answering"] == 4 and totals["one_run"] is True and
                  totals["peers_alive"] == 4, f"{totals}")
            for key in ("bytes_sent", "bytes_received", "tokens_per_s"):
                check(abs(totals[key] - sum(m["status"][key] for m in
                                            got["machines"])) < 1,
                      f"{key} is not the sum: {totals}")
            for path in ("/", "/page.js", "/page.css", "/machines.js",
                         "/machines.css", "/api/v1/machines"):
                code, text = page.get(path)
                check(code == 200 and token not in text and
                      page.password not in text, f"{path}: {code}")
                check(ask(page.at, path)[0] == 401, f"{path} without password")
            s.peers[2].kill()
            s.peers[1].signal(signal.SIGSTOP)
            got = page.wait(lambda m: not m[2]["answers"] and not
                            m[3]["answers"], "two do not answer")
            check("no daemon answers" in got[3]["trouble"], f"{got[3]}")
            check(got[3]["status"]["run_name"] == "e2e", "nothing is left of "
                  "the one that was killed")
            check("Timeout" in got[2]["trouble"], f"{got[2]}")
            step = got[1]["status"]["inner_step"]
            page.wait(lambda m: m[1]["status"]["inner_step"] > step + 10 and
                      m[1]["answers"] and not m[2]["answers"],
                      "the others are asked all the same")
            s.peers[1].signal(signal.SIGCONT)
            got = page.wait(lambda m: m[2]["answers"], "it is back")
            check("Timeout" in got[2]["trouble"], "what it had is forgotten")


@test("loco page passes nothing on, hears no foreign page, and asks for a "
      "password where not every account may ask the daemons", 180)
def strangers():
    with Swarm(peers=1, rounds=100000) as s:
        s.start()
        s.wait_training()
        one = s.peers[0]
        at = address_of(one)
        with Served(at) as page:
            check(page.password is None, "a password for what all may ask")
            port = page.at.rsplit(":", 1)[1]
            check(page.at.startswith("127.0.0.1:"), page.at)
            for host in ("evil.example", f"evil.example:{port}", "127.0.0.1",
                         "127.0.0.1:80", f"127.0.0.2:{port}"):
                code, text = page.get("/api/v1/machines", host=host)
                check(code == 403 and "loco only" in text, f"{host}: {code}")
            check(page.get("/", host=f"localhost:{port}")[0] == 200, "localhost")
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                for path in ("/", "/api/v1/machines"):
                    check(page.get(path, method=method)[0] == 405,
                          f"{method} {path}")
                for path in ("/api/v1/pause", "/api/v1/drain", "/api/v1/status",
                             "/api/v1/set?name=quota&value=1", "/healthz",
                             "/../machines", "/api/v1/machines/0"):
                    check(page.get(path, method=method)[0] == 404,
                          f"{method} {path}")
            check(one.status()["state"] in ("training", "averaging"),
                  "something was passed on")
            head = subprocess.run(
                ["curl", "-si", page.url, "-H", "Origin: http://evil.example"],
                capture_output=True, text=True, timeout=30).stdout
            check(" 403 " in head.splitlines()[0], head)
            head = subprocess.run(["curl", "-si", page.url],
                                  capture_output=True, text=True,
                                  timeout=30).stdout
            for want in ("default-src 'none'", "frame-ancestors 'none'",
                         "no-referrer", "nosniff",
                         "Cross-Origin-Resource-Policy: same-origin"):
                check(want in head, f"no {want}: {head[:600]}")
            check("Access-Control" not in head, "others may read it")
            # A daemon that gets a token is not shown to all any more.
            with Served(one.state) as other:
                check(other.password is None, "as by its address")
                other.wait(lambda m: m[0]["answers"], "it answers")
                one.drain()
                one.start("--run", s.yaml, "--control-token",
                          "always").wait_up()
                got = other.wait(lambda m: not m[0]["answers"] and "password"
                                 in m[0]["trouble"], "it is hidden")
                check(got[0]["status"] is None, "its last figures stay")
        with Served(one.state) as page:
            check(page.password and len(page.password) >= 64, "no password")
            page.wait(lambda m: m[0]["answers"], "its own token is used")
            check(ask(page.at, "/", "x" * 64)[0] == 401, "any password")
            check(ask(page.at, "/", page.password, user=True)[0] == 200,
                  "a browser's way")
        with Served("--password", at) as page:
            check(page.password, "no password although it was asked for")
        with Served("--listen", "0.0.0.0:0", at) as page:
            check(page.password, "others reach it without a password")
        with Served(at, LOCO_TOKEN="y" * 40) as page:
            check(page.password, "a token of the environment is one")
        with Served(f"unix:{s.path('x')}") as page:
            check(page.password, "a socket is for one account")
        for words in (["--listen", "unix:/x"], ["--listen", "here"],
                      ["nonsense:words"] * 65):
            done = run(LOCO, "page", *words, code=2)
            check("[usage]" in done.stderr, done.stderr)


# ---- daemons that answer nonsense --------------------------------------------

EVIL = ("<img src=x onerror=document.title='owned'><script>alert(1)</script>"
        "</td></table><b>\x1b[31m\x07\u202e\u200b'\"&amp;")
FIGURES = ("round", "inner_step", "tokens", "tokens_per_s", "loss", "progress",
           "bits_per_byte", "peers_alive", "bytes_sent", "bytes_received",
           "eta_s", "last_round_ms", "rounds_committed")
WORDS = ("version", "state", "reason", "run_name", "peer_id", "run_id",
         "reachability", "reachability_reason")
OBJECTS = ("probation", "links", "caps", "fetch", "shards", "stage", "share")
INSIDE = {k: EVIL for k in ("offered", "of", "left_s", "number", "uri",
                            "bytes", "here", "reason", "scope", "dialled",
                            "upload_bytes_per_s")}
NONSENSE = {
    # Answers that are statuses, with a lot in them.
    "html": json.dumps({
        **{k: EVIL for k in WORDS}, **{k: 1 for k in FIGURES},
        **{k: INSIDE for k in OBJECTS},
        "peers_lost": [{"peer_id": EVIL, "round": EVIL, "reason": EVIL}]}),
    "long": json.dumps({**{k: "W" * 20000 for k in WORDS},
                        **{k: 2 ** 62 for k in FIGURES}}),
    "types": json.dumps({**{k: [1] for k in WORDS + FIGURES},
                         **{k: "no object" for k in OBJECTS},
                         "state": "training", "peers_lost": {"a": 1}}),
    "small": json.dumps({**{k: -1e308 for k in FIGURES}, "state": ""}),
    # Those are none.
    "huge": "[" + "1," * (1 << 20) + "1]",
    "deep": "[" * 60000,
    "twice": '{"state": "training", "state": "paused"}',
    "real": '{"state": "training", "loss": 1e999}',
    "nul": json.dumps({"state": "a\0b"}),
    "half": '{"state": "training", "loss": ',
    "bytes": '{"state": "\udcff\udcfe"}',
    "array": "[]",
    "empty": "",
    "other": '{"hello": "world"}',
}
GOOD = ("html", "long", "types", "small")  # are shown, without harm


class Nonsense(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        kind = self.server.kind
        self.close_connection = True
        try:
            if kind == "code":
                body = (EVIL * 100).encode()
                self.wfile.write(b"HTTP/1.1 500 \x1b[31m\r\nContent-Length: " +
                                 str(len(body)).encode() + b"\r\n\r\n" + body)
            elif kind == "elsewhere":
                self.send_response(302)
                self.send_header("Location", self.server.elsewhere)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif kind == "endless":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n"
                                 b"Transfer-Encoding: chunked\r\n\r\n")
                while True:
                    self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            elif kind == "headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while True:
                    self.wfile.write(b"X: " + b"x" * 1000 + b"\r\n")
            elif kind == "noise":
                self.wfile.write(bytes(range(256)) * 40)
            else:
                body = NONSENSE[kind].encode(errors="surrogateescape")
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Set-Cookie", "a=b")
                self.end_headers()
                self.wfile.write(body)
        except OSError:
            pass  # it had enough


class Hostile:
    """with Hostile() as h: h.at is a server for each kind of nonsense."""

    KINDS = (*NONSENSE, "code", "elsewhere", "endless", "headers", "noise")

    def __enter__(self):
        self.servers = []
        for kind in self.KINDS:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nonsense)
            server.daemon_threads = True
            server.kind = kind
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.at = [f"127.0.0.1:{s.server_port}" for s in self.servers]
        for server in self.servers:
            server.elsewhere = f"http://{self.at[0]}/"
        return self

    def __exit__(self, *what):
        for server in self.servers:
            server.shutdown()
            server.server_close()


# Nothing of it may reach a terminal or a page, but as JSON writes it.
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e"
                       "\u2060-\u206f\ufeff]")


def texts_of(value):
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, str):
        yield value
    elif not isinstance(value, (int, float, type(None))):
        for one in value:
            yield from texts_of(one)


@test("daemons that answer nonsense do no harm to loco page and to loco top", 180)
def nonsense():
    with Hostile() as h, Served(*h.at) as page:
        got = page.wait(lambda m: all(one["asked"] for one in m),
                        "each was asked")
        for kind, one in zip(h.KINDS, got):
            check(one["answers"] == (kind in GOOD), f"{kind}: {one}")
            check(one["answers"] or len(one["trouble"]) > 10, f"{one}")
            check(one["status"] is not None or not one["answers"], kind)
            for text in texts_of(one):
                check(not FORBIDDEN.search(text), f"{kind}: {text!r}")
                check(len(text) <= 256, f"{kind}: {len(text)} characters")
        code, text = page.get("/api/v1/machines")
        check(code == 200 and len(text) < 100_000, f"{len(text)} bytes")
        page.wait(lambda m: m[h.KINDS.index("html")]["answers"],
                  "it still serves")
        memory = int(re.search(r"VmHWM:\s+(\d+)", open(
            f"/proc/{page.process.pid}/status", encoding="ascii").read())[1])
        print(f"{memory} KiB at most")
        t = Terminal(LOCO, "top", *h.at, rows=60)
        t.until(f"{h.at[h.KINDS.index('noise')]}: no answer yet")
        t.until("<img src=x oner")
        os.kill(t.pid, signal.SIGINT)
        t.end()
        left = re.sub(r"\x1b\[\d*[AJ]", "", t.seen).replace("\r", "")
        check(not FORBIDDEN.search(left), f"on the terminal: {left[:2000]!r}")


# ---- in a browser --------------------------------------------------------------

def order(page):
    """The machines as they stand, by their number."""
    return page.ask("[...document.querySelectorAll('#machines tbody')]"
                    ".map(b => rows.find(r => r.body === b).i)")


# What is shown, as it is shown: figures change between two questions.
SORTED = """[[...document.querySelectorAll("#machines tbody")]
  .map((b) => rows.find((r) => r.body === b))
  .map((r) => [r.i, r.machine.status?.bytes_sent ?? -1]),
  document.getElementById("head-sent").getAttribute("aria-sort")]"""


def press(page, *keys):
    for key in keys:
        page.press(key)


def tab_to(page, text):
    """Tab until an element with that text has the focus, as a person does."""
    for _ in range(80):
        if page.ask("document.activeElement.matches('a, button') && document."
                    f"activeElement.textContent.includes({json.dumps(text)})"):
            return
        page.press("Tab")
    check(False, f"Tab does not lead to {text}")


@test("the page for several machines is sorted and opened by keyboard, fits on a "
      "phone, and shows who does not answer", 300)
def in_a_browser():
    need_browser()
    with Swarm(peers=3, rounds=100000, period=20,
               settings={"eval.every_rounds": 2}) as s:
        s.start("--upload-bytes-per-s", "80000")
        s.wait_training()
        at = [address_of(p) for p in s.peers]
        with Served(*at, "127.0.0.1:1") as served, browser.Page() as page:
            page.open(served.url)
            wait_page(page, "rows.length === 4 && rows[3].machine.asked && "
                      "rows.slice(0, 3).every(r => r.machine.answers && "
                      "r.machine.status.bits_per_byte)", "all are there")
            check(page.text("#state") == "3 of 4 answer", page.text("#state"))
            check(page.text("#run") == "run e2e", page.text("#run"))
            check("no answer since" in page.ask(
                "rows[3].cells.note.textContent"), "no note")
            tab_to(page, "Skip to the machines")
            tab_to(page, "Sent")
            press(page, "Enter")
            for way in ("descending", "ascending"):
                got, sorted_by = page.ask(SORTED)
                sent = [s for _, s in got]
                check(sorted_by == way and got[3][0] == 3 and sent[:3] ==
                      sorted(sent[:3], reverse=way == "descending"),
                      f"{sorted_by}: {got}, not {way}")
                press(page, "Enter")
            check(order(page) == [0, 1, 2, 3], f"{order(page)}")
            tab_to(page, at[0])
            press(page, "ArrowDown", "Enter")
            check(page.ask("rows[1].open === document.activeElement && "
                           "!rows[1].detail.hidden && rows[0].detail.hidden"),
                  "Down and Enter do not open the second")
            wait_page(page, "rows[1].detail.textContent.includes('committed')",
                      "its details are there")
            check(page.ask("rows[1].link.href") == f"http://{at[1]}/", "link")
            # What is open and has the focus stays so while figures change.
            step = page.ask("rows[1].machine.status.inner_step")
            page.ask("window.first = rows[1].details.firstElementChild")
            wait_page(page, f"rows[1].machine.status.inner_step > {step + 20}",
                      "figures change")
            check(page.ask("rows[1].open === document.activeElement && "
                           "first === rows[1].details.firstElementChild && "
                           "first.isConnected"), "it is made anew")
            press(page, "Tab")
            check(page.ask("document.activeElement === rows[1].link"), "Tab")
            everything_has_a_name(page, {"button", "table", "status", "main"})
            nothing_is_cut_off(page, 390)
            for scheme in ("dark", "light"):
                page.colours(scheme)
                contrast_is_enough(page)
            by_select(page)
            s.peers[2].signal(signal.SIGSTOP)
            wait_page(page, "!rows[2].machine.answers && rows[2].cells.note"
                      ".textContent.includes('no answer since')",
                      "the one that hangs is marked")
            s.peers[2].signal(signal.SIGCONT)
            check(page.ask("performance.getEntriesByType('resource').every("
                           "e => e.name.startsWith(location.origin))"),
                  "the page asked somebody else")


def by_select(page):
    """On a phone there are no headings; a list does what they do."""
    page.resize(390, 844, True)
    page.ask("document.getElementById('sort-by').focus()")
    page.ask("(e => { e.value = 'name'; e.dispatchEvent(new Event('change')); })"
             "(document.getElementById('sort-by'))")
    up = order(page)
    press(page, "Tab", "Enter")
    check(order(page) == up[::-1], f"{up}, then {order(page)}")
    press(page, "Enter")
    page.ask("sortBy('', false)")
    page.resize(1200, 900)


@test("what hostile daemons say is text on the page and nothing else", 180)
def hostile_page():
    need_browser()
    with Hostile() as h, Served(*h.at) as served, browser.Page() as page:
        page.open(served.url)
        wait_page(page, f"rows.length === {len(h.at)} && "
                  "rows.every(r => r.machine.asked)", "all are there")
        page.ask("rows.forEach(r => r.open.click())")
        wait_page(page, "rows[0].detail.textContent.includes('onerror')",
                  "its words are shown")
        check(page.ask("document.title").endswith("answer - loco"), "owned")
        check(page.ask("document.querySelectorAll('img, b, iframe, object, "
                       "body script, main table table').length") == 0,
              "an element came in")
        check(page.ask("[...document.querySelectorAll('a')].every(a => "
                       "/^http:\\/\\/127\\.0\\.0\\.1:\\d+\\//.test(a.href))"),
              "a link goes elsewhere")
        nothing_is_cut_off(page, 390)
        for column in ("round", "run", "note", "state"):
            page.ask(f"sortBy('{column}', true); sortBy('{column}', false)")
        began = time.monotonic()
        wait_page(page, "rows[0].machine.answers", "it goes on")
        check(not page.errors and time.monotonic() - began < 60, "errors")


@test("the page for several machines asks for its password and finds machines "
      "again when loco page was away", 180)
def away():
    need_browser()
    with Swarm(peers=1, rounds=100000) as s:
        s.start("--control-token", "always")
        s.wait_training()
        with browser.Page() as page:
            with Served(s.peers[0].state) as served:
                page.open(f"http://me:{served.password}@{served.at}/",
                          shown=served.url)
                wait_page(page, "rows.length === 1 && rows[0].machine.answers",
                          "it is shown")
            page.errors.clear()
            wait_for(lambda: page.text("#state") == "no connection" and
                     "does not answer" in page.text("#notice"), "it says so")
            with Served("--listen", served.at, s.peers[0].state):
                wait_for(lambda: "another password" in page.text("#notice"),
                         "it says that the password is another one")
