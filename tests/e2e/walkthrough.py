#!/usr/bin/env python3
"""walkthrough.py - a new user's first hour, in two network namespaces.

use: sudo LOCO_BUILD=build python3 tests/e2e/walkthrough.py [--quickstart]
         [--mbit N] [--text FILE] [--answers N] [--answer-ms N] [--idle-s N]

With --quickstart what a new user types first: the quick start, with all that it
installs and builds. Then two machines with a link of N Mbit/s (2) between them:
pack a text, start a run, join it by its address alone, look at the dashboard,
pause, resume, set a cap, export, generate. Beside it: how fast /healthz and the
status answer while a round fills the link, and what an idle daemon costs while
its stream of events is read. Prints what was typed and what came, with the
seconds since the start; exit 0 only when all of it held. Needs root
(namespaces; also in a chroot), curl and, without --text, what deploy/text.sh
takes its prose from. walkthrough_tests.py is its short form.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from swarm import LOCO, LOCOD, ROOT, SCALE, Failed, check, wait_for  # noqa: E402

HOSTS = ("alice", "bob")
SPACES = "/run/netns"


def is_mounted(path):
    """Also a directory mounted over itself, which os.path.ismount() misses."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return any(line.split()[4] == path for line in f)


class Walk:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.dir = tempfile.mkdtemp(prefix="loco-walk-")
        self.tag = f"w{os.getpid() % 10000}"
        self.daemons = []
        self.mounted = True  # SPACES, before we came
        self.settings = os.path.join(self.dir, "locod.yaml")

    def space(self, host):
        return f"{self.tag}{host}"

    def say(self, text):
        at = time.monotonic() - self.began
        for line in text.rstrip().split("\n"):
            print(f"{at:7.1f} s  {line}", flush=True)

    def wire(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        def within(host, *words):
            subprocess.run(self.inside(host, words), check=True)

        self.mounted = is_mounted(SPACES)
        for host in HOSTS:
            ip("netns", "add", self.space(host))
        a, b = (f"{self.tag}{i}" for i in range(2))
        ip("link", "add", a, "type", "veth", "peer", "name", b)
        for i, (host, end) in enumerate(zip(HOSTS, (a, b))):
            ip("link", "set", end, "netns", self.space(host))
            for words in (["addr", "add", f"10.77.0.{i + 1}/24", "dev", end],
                          ["link", "set", end, "up"],
                          ["link", "set", "lo", "up"],
                          ["route", "add", "default", "via",
                           f"10.77.0.{2 - i}"]):
                within(host, "ip", *words)
            within(host, "tc", "qdisc", "add", "dev", end, "root", "tbf",
                   "rate", f"{self.options.mbit}mbit", "burst", "32kb",
                   "latency", "200ms")
        self.say(f"alice 10.77.0.1, bob 10.77.0.2, {self.options.mbit} Mbit/s between")

    def inside(self, host, words):
        # `ip netns exec` mounts /sys anew, which a chroot does not allow.
        return ["nsenter", f"--net={SPACES}/{self.space(host)}",
                *map(str, words)]

    def type(self, host, *words, show=12, quiet=False, codes=(0,)):
        """One command as the user types it; its output."""
        shown = " ".join(os.path.basename(str(w)) if str(w) in (LOCO, LOCOD)
                         else str(w).replace(self.dir, "~") for w in words)
        if not quiet:
            self.say(f"{host}$ {shown}")
        done = subprocess.run(self.inside(host, words), capture_output=True,
                              text=True, errors="replace", timeout=300,
                              cwd=self.dir)
        check(done.returncode in codes,
              f"{shown}: exit code {done.returncode}\n{done.stderr}")
        if not quiet:
            lines = (done.stdout + done.stderr).rstrip().split("\n")
            self.say("\n".join("    " + line[:110].replace(self.dir, "~")
                               for line in lines[:show]))
        return done.stdout

    def start(self, host, *words):
        self.say(f"{host}$ " + " ".join(
            str(w).replace(self.dir, "~").replace(LOCOD, "locod").replace(
                LOCO, "loco") for w in words) + " &")
        log = open(os.path.join(self.dir, host + ".log"), "ab")
        p = subprocess.Popen(self.inside(host, words), stdout=log, stderr=log,
                             stdin=subprocess.DEVNULL, cwd=self.dir)
        log.close()
        self.daemons.append(p)
        return p

    def state(self, host):
        return os.path.join(self.dir, host)

    def status(self, host):
        done = subprocess.run(
            self.inside(host, [LOCO, "status", "--state", self.state(host),
                               "--json"]), capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until(self, host, condition, what, seconds=180):
        last = wait_for(lambda: (lambda s: s and condition(s) and s)(
            self.status(host)), f"{host}: {what}", seconds)
        self.say(f"{host}: {what}: state {last['state']}, round "
                 f"{last['round']}, loss {last['loss']}, peers in the round "
                 f"{last['peers_in_round']}")
        return last

    def curl(self, host, path, method="GET"):
        done = subprocess.run(
            self.inside(host, ["curl", "-sS", "-X", method, "-w",
                               "\n%{http_code} %{time_total}",
                               f"http://{self.address(host)}{path}"]),
            capture_output=True, text=True, timeout=60)
        check(done.returncode == 0, done.stderr)
        body, _, last = done.stdout.rpartition("\n")
        code, seconds = last.split()
        return int(code), body, 1000 * float(seconds)

    def address(self, host):
        with open(os.path.join(self.state(host), "control"),
                  encoding="ascii") as f:
            return f.read().strip()

    def read_events(self, host, seconds):
        """What the stream says in so long; curl ends it itself."""
        return subprocess.run(
            self.inside(host, ["curl", "-sN", "--max-time", seconds,
                               f"http://{self.address(host)}/api/v1/events"]),
            capture_output=True, text=True, timeout=60 * SCALE).stdout

    def pid(self, host):
        """Of the locod behind a state directory."""
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/cmdline", encoding="utf-8") as f:
                    words = f.read().split("\0")
            except (OSError, UnicodeDecodeError):
                continue  # no process, or none any more
            if os.path.basename(words[0]) == "locod" and \
                    self.state(host) in words:
                return int(entry)
        raise Failed(f"no locod of {host}")

    def end(self):
        for p in self.daemons:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in self.daemons:
            try:
                p.wait(60)
            except subprocess.TimeoutExpired:
                p.kill()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", self.space(host)])
        # ip mounts it over itself, which would keep a chroot from going away.
        if not self.mounted and is_mounted(SPACES) and \
                not os.listdir(SPACES):
            subprocess.run(["umount", SPACES])
        shutil.rmtree(self.dir, ignore_errors=True)


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def quickstart(w):
    """Its lines with the seconds at which they came."""
    w.say("$ sh deploy/quickstart.sh")
    began = time.monotonic()
    with subprocess.Popen(["sh", "deploy/quickstart.sh"], cwd=ROOT, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace") as p:
        for line in p.stdout:
            w.say("    " + line[:110])
    w.say(f"    exit code {p.returncode} after {time.monotonic() - began:.0f} s")
    check(p.returncode == 0, "the quick start")


def begin(w):
    text = w.options.text
    if text is None:
        text = os.path.join(w.dir, "book.txt")
        subprocess.run(["sh", os.path.join(ROOT, "deploy/text.sh"), text],
                       check=True)
    w.type("alice", LOCO, "data", "pack", text, "--out", "data",
           "--val-bytes", 65536, "--licence", "Public Domain")
    run_id = w.type(
        "alice", LOCO, "run", "create", "--name", "walk", "--model",
        "quickstart-1m", "--data", "data", "--sync", "opendiloco", "--set",
        "sync.period=5", "--set", "sync.outer_lr=1.0", "--set",
        "sync.outer_momentum=0.0", "--set", "inner.steps=5000", "--set",
        "inner.batch=4", "--set", "inner.micro_batch=4", "--set",
        "eval.tokens=2048", "--out", "data/run.yaml").strip()
    w.type("alice", LOCO, "config", "set", "threads", 1, "--config",
           w.settings)
    w.start("alice", LOCOD, "--config", w.settings, "--state", w.state("alice"), "--listen",
            "10.77.0.1:7700", "--run", os.path.join(w.dir, "data/run.yaml"))
    w.until("alice", lambda s: s["state"] == "waiting", "waits for a second")
    uri = f"loco://10.77.0.1:7700/{run_id}"
    began = time.monotonic()
    w.type("bob", LOCO, "doctor", "--join", uri, "--state", w.state("bob"),
           show=30, codes=(0, 1))  # 1: something is not as it could be
    w.start("bob", LOCO, "join", uri, "--yes", "--state", w.state("bob"),
            "--listen", "10.77.0.2:7700")
    w.until("bob", lambda s: s["peers_in_round"] == 2, "is a member")
    w.until("bob", lambda s: s["round"] >= 2, "two rounds are committed")
    w.say(f"from the doctor to round 2: {time.monotonic() - began:.1f} s")


def look(w):
    code, page, ms = w.curl("alice", "/")
    check(code == 200 and "<canvas" in page, f"dashboard: {code}")
    w.say(f"alice$ curl http://$(cat ~/alice/control)/\n    200, "
          f"{len(page)} bytes of HTML in {ms:.1f} ms")
    code, metrics, ms = w.curl("alice", "/metrics")
    w.say(f"    /metrics: {len(metrics.splitlines())} lines in {ms:.1f} ms")
    said = w.read_events("alice", 3)
    check("event: status" in said, f"the stream of events: {said[:200]}")
    kinds = [line[7:] for line in said.split("\n") if line.startswith("event: ")]
    w.say("alice$ curl -N http://$(cat ~/alice/control)/api/v1/events\n    "
          f"in 3 s: {', '.join(kinds)}")
    w.type("alice", LOCO, "peers", "--state", w.state("alice"))
    w.type("bob", LOCO, "rounds", "--state", w.state("bob"), "--last", 3)


def answers(w):
    """While a round fills the link: curl's own times, one request a time."""
    times = {"/healthz": [], "/api/v1/status": []}
    began = w.status("alice")["round"]

    def full():
        for path, list_ in times.items():
            before = w.curl("alice", "/api/v1/status")[1]
            code, _, ms = w.curl("alice", path)
            after = w.curl("alice", "/api/v1/status")[1]
            check(code == 200, f"{path}: {code}")
            if all(json.loads(s)["state"] == "averaging"
                   for s in (before, after)):
                list_.append(ms)
        return all(len(t) >= w.options.answers for t in times.values())

    wait_for(full, "enough answers of each while averaging", 240)
    done = w.status("alice")["round"] - began
    for path, list_ in times.items():
        late = sorted(list_)[int(0.99 * (len(list_) - 1))]
        w.say(f"{path} while a round fills the link ({done} rounds): "
              f"{len(list_)} answers, median {statistics.median(list_):.1f} "
              f"ms, 99 of 100 within {late:.1f} ms, longest {max(list_):.1f} ms")
        check(max(list_) < w.options.answer_ms, f"{path} took {max(list_):.0f} ms")


def steer(w):
    w.type("bob", LOCO, "pause", "--state", w.state("bob"))
    w.until("bob", lambda s: s["state"] == "paused"
            and "by hand" in s["reason"], "is paused, by hand")
    idle(w)
    w.type("bob", LOCO, "resume", "--state", w.state("bob"))
    w.until("bob", lambda s: s["state"] in ("training", "averaging"),
            "trains again")
    w.type("alice", LOCO, "config", "set", "upload_bytes_per_s", 2000000,
           "--config", w.settings)
    w.type("alice", LOCO, "reload", "--state", w.state("alice"))
    w.until("alice", lambda s: s["caps"]["upload_bytes_per_s"] == 2000000,
            "has its cap")
    w.type("alice", LOCO, "status", "--state", w.state("alice"), "--get",
           "caps")


def idle(w):
    """Both pause: what a daemon costs whose page is open in a browser."""
    w.type("alice", LOCO, "pause", "--state", w.state("alice"))
    w.until("alice", lambda s: s["state"] == "paused", "is paused, too")
    stream = subprocess.Popen(
        w.inside("alice", ["curl", "-sN",
                           f"http://{w.address('alice')}/api/v1/events"]),
        stdout=subprocess.PIPE)
    pid = w.pid("alice")
    stream.stdout.read(1)
    before, began = cpu_s(pid), time.monotonic()
    end = began + w.options.idle_s
    os.set_blocking(stream.stdout.fileno(), False)
    n_bytes = 0
    while time.monotonic() < end:
        n_bytes += len(stream.stdout.read() or b"")
        time.sleep(0.2)  # what is measured is a span of time
    used = (cpu_s(pid) - before) / (time.monotonic() - began)
    stream.terminate()
    stream.wait()
    w.say(f"idle, its stream of events read ({n_bytes / w.options.idle_s:.0f} bytes a "
          f"second): {100 * used:.2f} % of a core over {w.options.idle_s} s")
    check(100 * used < w.options.idle_percent * SCALE,
          f"an idle daemon takes {100 * used:.1f} %")
    w.type("alice", LOCO, "resume", "--state", w.state("alice"))


def take_away(w):
    w.until("alice", lambda s: s["state"] in ("training", "averaging"),
            "trains")
    w.type("alice", LOCO, "drain", "--state", w.state("alice"))
    wait_for(lambda: w.daemons[0].poll() is not None, "alice has left", 90)
    w.say(f"alice: exit code {w.daemons[0].returncode}")
    check(w.daemons[0].returncode == 0, "drain")
    w.type("alice", LOCO, "export", "--state", w.state("alice"), "--format",
           "hf", "--out", "model")
    w.type("alice", LOCO, "generate", "--model", "model", "--prompt",
           "The LORD", "--max-tokens", 80, "--seed", 1)
    w.daemons[1].send_signal(signal.SIGINT)  # Ctrl-C at bob
    w.daemons[1].wait(90)
    w.say(f"bob$ ^C\n    exit code {w.daemons[1].returncode}")
    check(w.daemons[1].returncode == 0, "Ctrl-C")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--quickstart", action="store_true",
                         help="first that, with what it installs and builds")
    options.add_argument("--mbit", type=int, default=2)
    options.add_argument("--text", metavar="FILE")
    options.add_argument("--answers", type=int, default=30,
                         help="so many while a round fills the link (30)")
    options.add_argument("--answer-ms", type=int, default=100,
                         help="longest answer while a round fills the link")
    options.add_argument("--idle-s", type=int, default=30)
    options.add_argument("--idle-percent", type=float, default=1,
                         help="of a core, at most, while nothing happens")
    w = Walk(options.parse_args())
    try:
        if w.options.quickstart:
            quickstart(w)
        w.wire()
        begin(w)
        look(w)
        answers(w)
        steer(w)
        take_away(w)
    except (Failed, subprocess.SubprocessError) as e:
        w.say(f"FAILED: {e}")
        for host in HOSTS:
            path = os.path.join(w.dir, host + ".log")
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as f:
                    w.say(f"---- {host}.log\n" + f.read()[-2000:])
        return 1
    finally:
        w.end()
    w.say("all of it held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
