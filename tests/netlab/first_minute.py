#!/usr/bin/env python3
"""first_minute.py - from `loco join URI` to the first round taken part in.

use: tests/netlab/first_minute.py [--peers N] [--rate 100mbit] [--rtt-ms 50]
         [--text FILE] [--period STEPS] [--log]

N members train the quick start's model (deploy/quickstart.sh has the settings,
which are read from there) in a small internet; then somebody on another host
types `loco join`, answers the question at once, and watches. Seconds since the
command, when the newcomer
  asked      the question was there
  manifest   the daemon knows the run
  data       the text is here
  state      the state is here: it trains
  view       it is a member, on probation where the run has one
  offered    a round ended for which it offered work
  counts     its work counts: the probation is over
  round      a round counted it
and how long the members' rounds took meanwhile, which the last three wait for.
--text is what is trained on; without it text of the tests, as long as the
quick start's. Needs root.
"""
import argparse
import os
import pty
import re
import select
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import (LOCO, Lab, LabSwarm, check, missing,  # noqa: E402
                 not_built)
import swarm  # noqa: E402

TEXT_BYTES = 11_800_000
QUICKSTART = os.path.join(swarm.ROOT, "deploy", "quickstart.sh")


def quickstart():
    """The settings at the top of the quick start: name -> value."""
    with open(QUICKSTART, encoding="utf-8") as f:
        return dict(re.findall(r"^([a-z_]+)=([\w.-]+)", f.read(), re.M))


def settings_of(q, period):
    return {"sync.period": period, "inner.optimizer": q["optimizer"],
            "sync.outer_lr": q["outer_lr"],
            "sync.outer_momentum": q["outer_momentum"], "sync.rollback": 0,
            "inner.batch": q["batch"], "inner.micro_batch": q["batch"],
            "inner.lr": q["lr"], "inner.lr_min": q["lr_min"],
            "inner.warmup": q["warmup"], "inner.steps": 100000,
            "stop.rounds": 100000, "eval.every_rounds": q["eval_every"],
            "eval.tokens": q["eval_tokens"], "round.fork_after_ms": None,
            "round.grace_ms": None}


class Newcomer:
    """`loco join` on a terminal in a host's namespace."""

    def __init__(self, space, uri, state):
        self.began = time.monotonic()
        self.seen = ""
        self.at = {}
        command = space.command(LOCO, "join", uri, "--state", state)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", COLUMNS="200", LINES="40")
            os.execvp(command[0], command)

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            self.seen += os.read(self.fd, 1 << 16).decode(errors="replace")

    def mark(self, name, holds):
        if holds and name not in self.at:
            self.at[name] = time.monotonic() - self.began

    def ask(self):
        while "Join this run? [y/N]" not in self.seen:
            self.read(1)
            check(time.monotonic() < self.began + 120, self.seen[-1000:])
        self.mark("asked", True)
        os.write(self.fd, b"y\n")


def watch(newcomer, late, limit_s):
    while "round" not in newcomer.at:
        newcomer.read(0.05)
        check(time.monotonic() < newcomer.began + limit_s,
              f"{newcomer.at} {late.brief()} {newcomer.seen[-500:]}")
        s = late.status()
        if s is None:
            continue
        newcomer.mark("manifest", s["run_name"])
        newcomer.mark("data", s["shards"] and
                      s["shards"]["here"] == s["shards"]["of"])
        newcomer.mark("state", s["state"] in ("training", "averaging"))
        newcomer.mark("view", s["peers_in_round"] > 1)
        newcomer.mark("offered", s["rounds_committed"] > 0 or
                      (s["probation"] and s["probation"]["offered"] > 0))
        newcomer.mark("counts", "view" in newcomer.at and not s["probation"])
        newcomer.mark("round", s["rounds_committed"] > 0)


def measure(a):
    q = quickstart()
    model = ["--model", q["model"]]
    with Lab() as lab:
        lab.hub("net")
        hosts = [lab.host(name, "net", rate=a.rate,
                          delay=f"{a.rtt_ms / 4}ms")
                 for name in "abcdefgh"[:a.peers + 1]]
        text = None
        if a.text:
            with open(a.text, encoding="ascii", errors="ignore") as f:
                text = f.read()
        with LabSwarm(hosts[:-1], sync=q["sync"], model=lambda s: model,
                      text_bytes=TEXT_BYTES, text=text,
                      settings=settings_of(q, a.period or q["period"])) as s:
            s.start("--battery", "train")
            s.wait_training()
            s.peers[0].wait_round(2, seconds=600)
            late = s.peer(hosts[-1])
            before = s.peers[0].status()["round"]
            newcomer = Newcomer(hosts[-1], s.uri(), late.state)
            newcomer.ask()
            watch(newcomer, late, 600)
            took = time.monotonic() - newcomer.began
            rounds = s.peers[0].status()["round"] - before
            os.write(newcomer.fd, b"\x03")
            for name, at in newcomer.at.items():
                print(f"{name:9} {at:6.1f} s")
            print(f"{a.peers} members made {rounds} rounds in {took:.0f} s; "
                  f"processor load {os.getloadavg()[0]:.1f} on "
                  f"{os.cpu_count()} cores; {a.rate}, {a.rtt_ms} ms")
            if a.log:
                with open(late.state + "/locod.log", encoding="utf-8") as f:
                    print(f.read())
            os.waitpid(newcomer.pid, 0)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--peers", type=int, default=2, choices=range(1, 8))
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--rtt-ms", type=float, default=50)
    p.add_argument("--text")
    p.add_argument("--period", type=int, default=0, help="inner steps")
    p.add_argument("--log", action="store_true", help="the newcomer's log")
    a = p.parse_args()
    why = missing() or not_built()
    if why:
        sys.exit(f"first_minute: {why}")
    measure(a)


if __name__ == "__main__":
    main()
