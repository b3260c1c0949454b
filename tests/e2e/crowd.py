"""crowd.py - daemons of mixed kinds, and the faults of every day.

A *Kind* is what a machine has of its own: the program, the kernels, threads,
the line. None of it may change a bit of what members of a round sum. A *Member*
is a daemon of one kind through all of its lives; *Faults* end, stop and begin
these, by a seed.
"""
import collections
import glob
import http.client
import json
import os
import random
import re
import signal
import time

from swarm import BUILD, LOCO, LOCOD, SCALE, run

PORTABLE = os.path.join(BUILD, "tests", "locod_portable")
REFERENCE = {"LOCO_REFERENCE_KERNELS": "1"}
# What a status counts from the start of its process.
COUNTS = {"sums": "audits.sums", "wrong": "audits.wrong",
          "unanswered": "audits.unanswered", "leases": "audits.leases",
          "bad": "audits.bad", "unclear": "audits.unclear",
          "unserved": "audits.unserved", "aborted": "rounds_aborted",
          "rollbacks": "rollbacks", "bytes_sent": "bytes_sent",
          "malformed": "refused.messages", "segments": "refused.segments",
          "sources_dropped": "sources_dropped"}

Kind = collections.namedtuple("Kind", "name program env options")
KINDS = [
    Kind("plain", LOCOD, {}, ("--cpu-percent", 10)),
    Kind("reference", LOCOD, REFERENCE, ("--cpu-percent", 15)),
    Kind("portable", PORTABLE, {}, ("--cpu-percent", 10)),
    Kind("threads-2", LOCOD, {}, ("--cpu-percent", 10, "--threads", 2)),
    Kind("fp32", LOCOD, {}, ("--cpu-percent", 10, "--dtype", "fp32")),
    Kind("slow-line", LOCOD, {}, ("--cpu-percent", 10, "--upload-bytes-per-s",
                                  600_000)),
    Kind("portable-threads-3", PORTABLE, {}, ("--cpu-percent", 10,
                                              "--threads", 3)),
]


def others(builds):
    """Of other compilers."""
    return [Kind(f"also-{i + 1}", os.path.join(os.path.abspath(b), "locod"),
                 {}, ("--cpu-percent", 10)) for i, b in enumerate(builds)]


def value(status, path):
    for word in path.split("."):
        status = (status or {}).get(word)
    return status or 0


def evidence_of(peer):
    return glob.glob(os.path.join(peer.state, "evidence", "*"))


class Member:
    """A daemon, what it counted in all of its lives, and what it suffers."""

    def __init__(self, peer, kind):
        self.peer, self.kind = peer, kind
        self.before, self.now = collections.Counter(), {}
        self.back_at = self.thaw_at = None  # of who is down, or frozen
        self.gone = False
        self.well = time.monotonic()  # undisturbed since then
        self.fine = self.seen = 0  # took part by its word, and by that of most
        self.waits = True  # until it takes part
        self.log_at = 0
        self.id = None

    def start(self, *how):
        self.peer.start(*how, *map(str, self.kind.options),
                        program=self.kind.program, env=self.kind.env).wait_up()
        keys = self.peer.peer_id()
        self.id, self.short = keys["peer_id"], keys["short"]
        self.disturbed()

    def disturbed(self):
        self.well = time.monotonic()
        self.waits = True

    def up(self):
        return not (self.gone or self.back_at or self.thaw_at)

    def ask(self, what):
        """An answer of the API, or None."""
        try:
            with open(os.path.join(self.peer.state, "control"),
                      encoding="ascii") as f:
                link = http.client.HTTPConnection(f.read().strip(),
                                                  timeout=10 * SCALE)
            link.request("GET", "/api/v1/" + what)
            answer = link.getresponse()
            text = answer.read()
            link.close()
            return json.loads(text) if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None

    def status(self):
        status = self.ask("status")
        if status:
            self.now = {k: value(status, at) for k, at in COUNTS.items()}
        return status

    def ends(self):
        """Before the process is taken away."""
        self.status()
        self.before.update(self.now)
        self.now = {}

    def counted(self):
        return self.before + collections.Counter(self.now)

    def memory(self):
        """Most resident bytes so far, anonymous ones now."""
        with open(f"/proc/{self.peer.process.pid}/status",
                  encoding="ascii") as f:
            text = f.read()
        return [1024 * int(re.search(rf"{k}:\s+(\d+)", text)[1])
                for k in ("VmHWM", "RssAnon")]

    def new_log(self):
        with open(self.peer.log_path, encoding="utf-8", errors="replace") as f:
            f.seek(self.log_at)
            text = f.read()
            self.log_at = f.tell()
        return text


class Faults:
    """Of every day, one after the other, by the seed."""

    def __init__(self, soak, seed, every_s, frozen_s):
        self.soak, self.rng = soak, random.Random(seed)
        self.every_s, self.frozen_s = every_s, frozen_s
        self.next = time.monotonic() + self.rng.uniform(*every_s)
        self.done = collections.Counter()

    def step(self):
        now = time.monotonic()
        self.restore(now)
        if now > self.next:
            self.next = now + self.rng.uniform(*self.every_s)
            self.strike(now)

    def end(self):
        """Who is down or frozen comes back at once."""
        self.restore(float("inf"))

    def restore(self, now):
        for m in self.soak.honest:
            if m.back_at and now > m.back_at:
                m.back_at = None
                m.start("--join", self.soak.uri(m))
                self.done["starts"] += 1
            if m.thaw_at and now > m.thaw_at:
                m.thaw_at = None
                m.peer.signal(signal.SIGCONT)
                m.disturbed()

    def strike(self, now):
        here = [m for m in self.soak.honest if not m.gone]
        up = [m for m in here if m.up() and not m.waits]
        if 2 * len(up) <= len(here) + 2:
            self.done["put off"] += 1
            return
        what = self.rng.choices(("kill", "freeze", "drain", "turn over"),
                                (4, 3, 2, 2))[0]
        victim = self.rng.choice(up)
        if what == "kill":
            victim.ends()
            victim.peer.kill()
            victim.back_at = now + self.rng.choice((0, 1, 5, 20))
        elif what == "freeze":
            victim.peer.signal(signal.SIGSTOP)
            victim.thaw_at = now + self.rng.uniform(*self.frozen_s)
        elif what == "drain":
            self.drain(victim)
            victim.back_at = now + self.rng.uniform(1, 10)
        elif len(here) > self.soak.n:
            what = "go"
            self.drain(victim)
            victim.gone = True
        else:
            what = "come"
            self.soak.add(self.rng.choice(self.soak.kinds), now)
        self.done[what] += 1

    def drain(self, m):
        m.ends()
        run(LOCO, "drain", "--state", m.peer.state)
        m.peer.wait_exit(0, 60)
