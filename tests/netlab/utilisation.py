#!/usr/bin/env python3
"""utilisation.py - what a run over home lines leaves of a peer's training time.

use: tests/netlab/utilisation.py [CASE...] [--peers 2] [--rounds 8] [--step-s 0.7]
         [--parameters 10600000] [--up 20mbit] [--down 100mbit] [--rtt-ms 50]
         [--json]

Each peer is a real daemon with a training loop in Python, on a host with a home
line. A step of that loop takes --step-s and no processor, as that of a GPU
does, so that the figures are of the network and of loco, and not of who has
this machine's processors. Utilisation is the time in steps, of the time from
one round to the last one:
  streaming   the preset: 4 fragments in 4 bits, one every 25 steps, taken one
              step later
  overlap     the same, but taken 4 steps later
  opendiloco  one vector in fp16 every 100 steps, which the loop waits for
  muon-avg    one vector in 4 bits every 32 steps, which the loop waits for
Beside it: what a round costs, in seconds, and where it is, by the medians of
`loco rounds`: waiting for members, moving data, hash and votes, the outer step.
Where steps overlap with a round, only what is longer than these is lost. Needs
root and python3-numpy.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import Failed, Lab, LOCO, PORT, check, missing, not_built  # noqa: E402
import swarm  # noqa: E402
from program import Skipped, interpreter  # noqa: E402

CASES = {
    "streaming": ("streaming", 100, 4, {}),
    "overlap": ("streaming", 100, 4, {"sync.overlap": 4}),
    "opendiloco": ("opendiloco", 100, 1, {}),
    "muon-avg": ("muon-avg", 32, 1, {}),
}
PARTS = ("wait", "plan", "reduce", "hash", "vote", "apply")
LOOP = """
import json, sys, time
import numpy as np
import loco

a = json.loads(sys.argv[1])
model = {f"x{k}": np.zeros(a["parameters"] // 16, np.float32)
         for k in range(16)}
if a["create"]:
    print(loco.create("utilisation", model, out=a["run"], sync=a["sync"],
                      settings=a["settings"]))
    sys.exit()
with loco.join(a["uri"], model, run=a["run"], listen=a["listen"],
               args=a["args"]) as run:
    for step in range(1 << 30):
        time.sleep(a["step_s"])  # a GPU would compute
        model["x0"][0] += 1
        run.step(1.0, tokens=1024)
        print("step", step, time.monotonic(), flush=True)
"""


class Peer:
    def __init__(self, space, folder, host):
        self.space, self.host = space, host
        self.state = os.path.join(folder, host.name)
        self.out = self.state + ".out"

    def start(self, a, **more):
        with open(self.out, "wb") as out:
            self.process = self.space.start(
                self.host, interpreter(), "-c", LOOP,
                json.dumps({**a, **more}), stdout=out, stderr=out,
                env=environment(self.state))

    def steps(self):
        """When each step and what followed it was over."""
        with open(self.out, encoding="utf-8", errors="replace") as f:
            text = f.read()
        check(self.process.poll() is None, text[-900:])
        return [float(t) for t in re.findall(r"^step \d+ (\S+)$", text, re.M)]

    def end(self):
        """The loop, and the locod that it started."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def ask(self, *words):
        done = subprocess.run(
            self.host.command(LOCO, *words, "--state", self.state, "--json"),
            capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None


def environment(state):
    python = os.path.join(swarm.ROOT, "deploy", "python")
    return dict(os.environ, LOCO_STATE=state, LOCO_COMMAND=LOCO,
                LOCO_LOCOD=swarm.LOCOD, PYTHONPATH=python,
                LOCO_LIBRARY=os.path.join(swarm.BUILD, "libloco.so.0"))


def home(space, name, a):
    host = space.host(name, "net", rate=a.down, delay=f"{a.rtt_ms / 4}ms")
    space.wire(name, "net", rate=a.up)
    return host


def loops(space, folder, name, a):
    """The peers of a run of that case, started."""
    preset, period, _, more = CASES[name]
    host = [home(space, f"p{k}", a) for k in range(a.peers)]
    peers = [Peer(space, folder, h) for h in host]
    loop = {"parameters": a.parameters, "step_s": a.step_s, "uri": None,
            "run": os.path.join(folder, "run.yaml"), "sync": preset,
            "listen": f"0.0.0.0:{PORT}", "args": [], "create": False,
            "settings": {"sync.period": period, "round.min_peers": a.peers,
                         "inner.batch": 4, "inner.seq": 256, **more}}
    run_id = subprocess.run(
        [interpreter(), "-c", LOOP, json.dumps({**loop, "create": True})],
        check=True, capture_output=True, text=True,
        env=environment(folder)).stdout.split()[-1]
    peers[0].start(loop)
    swarm.wait_for(lambda: peers[0].ask("status"), "the first one is up", 60)
    for p in peers[1:]:
        p.start(loop, run=None,
                uri=f"loco://{host[0].address}:{PORT}/{run_id}")
    return peers


def figures_of(peers, case, a):
    every = case[1] // case[2]  # steps of a round
    first = 2 * every  # links and ways are found before
    last = first + a.rounds * every
    swarm.wait_for(lambda: min(len(p.steps()) for p in peers) > last,
                   lambda: f"{last} steps: {peers[0].ask('status')}",
                   60 + 4 * last * a.step_s)
    share = statistics.mean(
        (last - first) * a.step_s / (t[last - 1] - t[first - 1])
        for t in (p.steps() for p in peers))
    rounds = [r for p in peers for r in p.ask("rounds")["rounds"]
              if r["outcome"] == "committed"]
    return {"utilisation": share,
            "lost_s": (1 / share - 1) * every * a.step_s,
            "rounds": len(rounds) // a.peers,
            **{part: statistics.median(
                (r["phase_ms"][part] or 0) / 1000 for r in rounds)
               for part in PARTS}}


def measure(name, a):
    with tempfile.TemporaryDirectory(prefix="loco-utilisation-") as folder, \
            Lab() as space:
        space.hub("net")
        peers = loops(space, folder, name, a)
        try:
            return figures_of(peers, CASES[name], a)
        finally:
            for peer in peers:
                peer.end()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("cases", nargs="*", metavar="CASE")
    p.add_argument("--peers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--step-s", type=float, default=0.7)
    p.add_argument("--parameters", type=int, default=10_600_000)
    p.add_argument("--up", default="20mbit")
    p.add_argument("--down", default="100mbit")
    p.add_argument("--rtt-ms", type=float, default=50)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    a.cases = a.cases or list(CASES)
    if unknown := [c for c in a.cases if c not in CASES]:
        p.error(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    if why := missing() or not_built():
        sys.exit(f"utilisation: {why}")
    found = {}
    for name in a.cases:
        found[name] = measure(name, a)
        print(f"utilisation: {name} {found[name]}", file=sys.stderr)
    if a.json:
        print(json.dumps(found))
        return
    print("case        in steps  lost s a round  "
          + "  ".join(f"{part:>6}" for part in PARTS))
    for name, f in found.items():
        print(f"{name:10} {f['utilisation']:9.1%} {f['lost_s']:15.2f}  "
              + "  ".join(f"{f[part]:6.2f}" for part in PARTS))


if __name__ == "__main__":
    try:
        main()
    except (Failed, Skipped) as e:
        sys.exit(f"utilisation: {e}")
