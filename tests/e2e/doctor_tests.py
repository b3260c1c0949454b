"""doctor_tests.py - loco doctor in situations that people are really in.

Each test makes one thing wrong and asserts the level, the text and the fix of
the line about it, and that the exit code says whether there was a problem.
"""
import contextlib
import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time

from e2e_registry import Skipped, test
from swarm import LOCO, SCALE, Swarm, check, run


class Report:
    """One run of loco doctor --json."""

    def __init__(self, *arguments, limit=5):
        done = subprocess.run(
            [LOCO, "doctor", "--json", "--limit", str(limit),
             *map(str, arguments)],
            capture_output=True, text=True, timeout=60 * SCALE)
        check(done.stderr == "", f"it complains: {done.stderr}")
        self.object = json.loads(done.stdout)
        self.code = done.returncode
        self.lines = {line["check"]: line for line in self.object["checks"]}
        self.rest = {line["check"]: line
                     for line in self.object["not_checked"]}
        problems = [line for line in self.lines.values()
                    if line["level"] == "problem"]
        check(self.object["problems"] == len(problems), "problems miscounted")
        check((self.code == 0) == self.object["ok"] == (not problems),
              f"exit code {self.code} with {len(problems)} problems")
        for line in self.lines.values():
            check(line["level"] in ("ok", "warning", "problem"),
                  f"{line['check']}: level {line['level']}")
            check(line["level"] == "ok" or line["fix"],
                  f"{line['check']} names no fix: {line['what']}")

    def says(self, name, level, what, fix=None):
        check(name in self.lines, f"no line {name}: {self.object}")
        line = self.lines[name]
        check(line["level"] == level,
              f"{name} is {line['level']}, not {level}: {line['what']}")
        check(re.search(what, line["what"]),
              f"{name} says: {line['what']}; not: {what}")
        if fix is not None:
            check(line["fix"] and re.search(fix, line["fix"]),
                  f"{name} advises: {line['fix']}; not: {fix}")
        return self


@contextlib.contextmanager
def listener():
    """A TCP port that is listened on, and never answered."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(8)
        yield s, s.getsockname()[1]


def waiting(s):
    """A daemon that waits for a second member: it answers, and stays."""
    return s.peer().start("--run", s.yaml).wait_up()


def uri(port, run_id):
    return f"loco://127.0.0.1:{port}/{run_id}"


@test("loco doctor finds nothing wrong with a machine that takes part")
def healthy():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        first = s.peers[0]
        report = Report("--state", first.state, "--join", s.uri(), "--run",
                        s.yaml, "--bandwidth")
        check(report.code == 0, f"a problem: {report.object}")
        first.wait_status(lambda t: t["peers_alive"] == 2,
                          "the visitor is not taken for a peer", 10)
        short = run(LOCO, "keys", "--state", first.state).stdout.split()[1]
        report.says("settings", "ok", "are valid")
        report.says("daemon", "ok", r"^(training|averaging), \d peers alive")
        report.says("memory", "ok", r"of .*B available.*; the run needs")
        report.says("disk", "ok", r"free at .*peer-1; the run still needs")
        report.says("dns", "ok", "the URI holds addresses only")
        # Its peer may or may not have tried to dial it by now.
        report.says("nat", "ok", "127.0.0.1 is this machine|the daemon's "
                    "reachability is public: 1 of 1 peers that tried")
        report.says("port", "ok", f"{first.port}: the running daemon "
                    "answers there")
        report.says("bandwidth", "ok", r"B/s from 127.0.0.1 \(.*B in .* s\)")
        report.says("manifest", "ok", 'run "e2e", signature valid, 2 of 2 '
                    "shards here")
        report.says("bootstrap", "ok", rf"1 of 1 answer; 127.0.0.1:"
                    rf"{first.port} is peer {short} of this run")
        check(report.rest == {}, f"not checked: {report.rest}")
        # As a person sees it; and without a URI less is checked.
        text = run(LOCO, "doctor", "--state", s.peers[1].state).stdout
        check("ok       port" in text, f"text: {text}")
        check("bootstrap  not checked, no bootstrap was given" in text,
              f"text: {text}")
        # A visit changes nothing: nobody is lost, the run goes on.
        before = s.peers[1].status()["round"]
        s.peers[1].wait_round(before + 2)
        check(first.status()["peers_lost"] == [], "a visitor was lost")


@test("loco doctor tells a wrong port, a silent and a foreign host apart")
def wrong_host():
    with Swarm(peers=2) as s, listener() as (mute, port):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            closed = free.getsockname()[1]
        state = s.path("none")
        Report("--state", state, "--join", uri(closed, s.run_id)).says(
            "bootstrap", "problem",
            f"127.0.0.1:{closed} refuses connections: nothing listens there",
            "Check the port in the URI")
        began = time.monotonic()
        report = Report("--state", state, "--join", uri(port, s.run_id),
                        limit=1).says(
            "bootstrap", "problem", "accepts the connection, but sends nothing",
            "not a loco peer")
        check(time.monotonic() - began < 10 * SCALE, "it was not bounded")
        check("manifest" in report.rest, "a manifest from nowhere")

        def answer(data):
            for _ in range(2):  # the backlog holds the earlier one
                c = mute.accept()[0]
                if data:
                    with contextlib.suppress(OSError):
                        c.sendall(data)
                c.close()

        for data, what in ((b"HTTP/1.1 400 Bad Request\r\n\r\n",
                            "is not a loco peer"),
                           (b"", "closes the connection during")):
            thread = threading.Thread(target=answer, args=(data,),
                                      daemon=True)
            if data == b"":  # the backlog is empty by now: one more visit
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
            thread.start()
            Report("--state", state, "--join", uri(port, s.run_id)).says(
                "bootstrap", "problem", what)
            thread.join(30)


@test("loco doctor names a wrong run id, a wrong peer and a name without host")
def wrong_run():
    with Swarm(peers=2) as s:
        daemon = waiting(s)
        state = s.path("none")
        other = ("0" if s.run_id[0] != "0" else "1") + s.run_id[1:]
        Report("--state", state, "--join", uri(daemon.port, other)).says(
            "bootstrap", "problem", "is a loco peer, but of another run or "
            "protocol version", "Compare the run id")
        Report("--state", state, "--join",
               uri(daemon.port, s.run_id) + "?peer=" + "5" * 64).says(
            "bootstrap", "problem", "is not the peer that the URI names",
            "new invitation")
        report = Report("--state", state, "--join",
                        f"loco://nobody.invalid:7700/{s.run_id}")
        report.says("dns", "problem", "cannot resolve nobody.invalid: ")
        report.says("bootstrap", "problem", "nobody.invalid cannot be "
                    "resolved|no answer within", "dns|name server")
        # One of two is enough, but said.
        report = Report("--state", state, "--join",
                        f"loco://127.0.0.1:{daemon.port},127.0.0.1:1/"
                        f"{s.run_id}")
        report.says("bootstrap", "warning", "1 of 2 answer",
                    "127.0.0.1:1 refuses connections")
        report.says("manifest", "ok", 'from 127.0.0.1: run "e2e", signature '
                    "and run id valid")
        check(report.code == 0, "a warning is no problem")


@test("loco doctor sees who holds the port, and a daemon that was killed")
def port():
    with Swarm(peers=2) as s, listener() as (_, held):
        Report("--state", s.path("none"), "--listen",
               f"127.0.0.1:{held}").says(
            "port", "problem", f"127.0.0.1:{held} is in use by another "
            "program", rf"ss -ltnp 'sport = :{held}'")
        Report("--state", s.path("none"), "--listen", "198.51.100.1:0").says(
            "port", "problem", "198.51.100.1:0 is not an address of this machine",
            r"--listen 0\.0\.0\.0:0")
        daemon = waiting(s)
        daemon.wait_state("waiting")
        report = Report("--state", daemon.state)
        report.says("port", "ok", f"^{daemon.port}: the running daemon")
        report.says("daemon", "warning", "waiting, 1 peers alive: waiting for "
                    "peers: 1 of 2 are here", "The daemon waits")
        daemon.kill()
        Report("--state", daemon.state, "--listen", "127.0.0.1:0").says(
            "daemon", "warning", "nothing answers at 127.0.0.1:",
            "The daemon was killed: start locod again").says(
            "port", "ok", "127.0.0.1:0 is free")


@test("loco doctor does not hang with a daemon that does")
def hangs():
    with Swarm(peers=1) as s, listener() as (_, port):
        began = time.monotonic()
        report = Report("--state", s.path("none"), "--control",
                        f"127.0.0.1:{port}", limit=0.5)
        check(time.monotonic() - began < 5 * SCALE, "it was not bounded")
        report.says("daemon", "warning", r"no answer within 0\.5 s",
                    "The daemon hangs")


@contextlib.contextmanager
def tmpfs(path, *options):
    os.makedirs(path)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options),
                           "tmpfs", path], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"cannot mount a tmpfs: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@test("loco doctor finds a full, a small and a read-only disk")
def disk():
    with Swarm(peers=2) as s, tmpfs(s.path("full"), "size=64k") as full:
        with contextlib.suppress(OSError), \
                open(os.path.join(full, "fill"), "wb", 0) as f:
            while True:
                f.write(bytes(4096))
        Report("--state", os.path.join(full, "state")).says(
            "disk", "problem", "the disk of .*full/state is full",
            "Free some space")
        with tmpfs(s.path("small"), "size=256k") as small:
            Report("--state", small, "--run", s.yaml).says(
                "disk", "problem", r"262.1 kB free at .*; the run still needs",
                r"Free \d.*B there")
        with tmpfs(s.path("still"), "size=64k", "ro") as still:
            Report("--state", still).says(
                "disk", "problem", "is on a read-only file system",
                "--state DIR")


@contextlib.contextmanager
def clock_server(date):
    """An HTTP server whose Date is what `date(now)` makes of the time."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response_only(200)
            text = date(time.time())
            if text is not None:
                self.send_header("Date", self.date_time_string(text))
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@test("loco doctor compares the clock with a server's")
def clock():
    with Swarm(peers=1) as s:
        state = s.path("none")
        with clock_server(lambda now: now + 7200) as url:
            Report("--state", state, "--clock-url", url).says(
                "clock", "problem", r"this clock is (7199|7200|7201) s behind "
                "http://127", "timedatectl set-ntp true")
        with clock_server(lambda now: now - 120) as url:
            Report("--state", state, "--clock-url", url).says(
                "clock", "warning", r"this clock is (119|120|121) s ahead",
                "timedatectl set-ntp true")
        with clock_server(lambda now: now) as url:
            Report("--state", state, "--clock-url", url).says(
                "clock", "ok", r"within [01] s of http://127")
        with clock_server(lambda now: None) as url:
            Report("--state", state, "--clock-url", url).says(
                "clock", "warning", "does not tell the time: its answer has "
                "no Date", "--clock-url")


@test("loco doctor finds an altered manifest, a missing and a wrong shard")
def manifest():
    with Swarm(peers=1) as s:
        state = s.path("none")
        Report("--state", state, "--run", s.yaml).says(
            "manifest", "ok", 'run "e2e", signature valid, 2 of 2 shards here')
        shard = os.path.join(s.data, "train-0000.ltk")
        with open(shard, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
        Report("--state", state, "--run", s.yaml).says(
            "manifest", "problem", "shard train-0000.ltk differs from "
            "the manifest", "loco data pack")
        os.remove(shard)
        Report("--state", state, "--run", s.yaml).says(
            "manifest", "problem", "shard train-0000.ltk is missing",
            "the peer that starts a run must have its data")
        with open(s.yaml, encoding="utf-8") as f:
            text = f.read()
        with open(s.yaml, "w", encoding="utf-8") as f:
            f.write(text.replace("period: 40", "period: 41"))
        Report("--state", state, "--run", s.yaml).says(
            "manifest", "problem", "run.yaml", "loco run sign")


@test("loco doctor finds a mistake in the settings and goes on")
def settings():
    with Swarm(peers=1) as s:
        path = s.path("locod.yaml")
        with open(path, "w", encoding="ascii") as f:
            f.write("thraeds: 2\n")
        os.environ["LOCO_CONFIG"] = path  # of this test's own process
        Report("--state", s.path("none")).says(
            "settings", "problem", "thraeds.*threads",
            "loco config sources").says("memory", "ok", "available")
