#!/usr/bin/env python3
"""utilisation.py - what of a peer's training a run over home lines leaves.

use: tests/netlab/utilisation.py [CASE...] [--turns N] [--seconds S] [--up 20mbit]
         [--down 100mbit] [--rtt-ms 50] [--json]

Two hosts, each with a home line, train one model (10.6 million parameters) with
real daemons of one thread each, for S seconds from the first round on:
  alone       the same daemons and no round: what 100 % is
  streaming   the preset: 4 fragments in 4 bits, one every 25 steps, taken one
              step later
  overlap     the same, but taken 4 steps later
  opendiloco  one vector in fp16 every 100 steps, which the trainer waits for
in turns. Printed for each case, medians over the turns: tokens per second of
both peers; the same as a share of `alone` of that turn; the share of the time
in which the thread that trains had a processor; what the other threads of a
daemon took, in per cent of a processor; rounds. Both trainers and the router
of the laboratory share the machine's processors, so it needs three for exact
figures; with two the other threads take from the trainers what they take.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
from lab import Failed, Lab, LabSwarm, missing, not_built  # noqa: E402
import swarm  # noqa: E402

CASES = {
    "alone": ("streaming", 400_000, {}),
    "streaming": ("streaming", 100, {}),
    "overlap": ("streaming", 100, {"sync.overlap": 4}),
    "opendiloco": ("opendiloco", 100, {}),
}
MODEL = swarm.MODEL.replace("dim: 32", "dim: 384").replace(
    "layers: 2", "layers: 6").replace("ffn: 64", "ffn: 1024").replace(
    "heads: 2", "heads: 6").replace("seq: 64", "seq: 256")
TICK = os.sysconf("SC_CLK_TCK")


def thread_seconds(pid):
    """Processor time of each thread: id -> seconds."""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        found[tid] = (int(fields[11]) + int(fields[12])) / TICK
    return found


def look(peers):
    return [(p.status(), thread_seconds(p.process.pid)) for p in peers]


def spent(before, after):
    """Of one daemon: the busiest thread's seconds, and all others'."""
    took = sorted(s - before.get(tid, 0) for tid, s in after.items())
    return took[-1], sum(took[:-1])


def measure(name, a):
    preset, period, more = CASES[name]
    settings = {"sync.rollback": 0, "eval.every_rounds": 0,
                "sync.outer_lr": None, "sync.outer_momentum": None,
                "round.fork_after_ms": None, "round.grace_ms": None, **more}
    with Lab() as space:
        space.hub("net")
        hosts = [space.host(n, "net", rate=a.down, delay=f"{a.rtt_ms / 4}ms")
                 for n in "ab"]
        for n in "ab":
            space.wire(n, "net", rate=a.up)
        with LabSwarm(hosts, rounds=1000, period=period, sync=preset,
                      settings=settings, text_bytes=2_000_000) as s:
            s.start()
            s.wait_training()
            for p in s.peers:
                p.wait_status(lambda x: x["inner_step"] >= 20 and
                              (name == "alone" or x["round"] >= 1),
                              "training is warm", 300)
            before, began = look(s.peers), time.monotonic()
            time.sleep(a.seconds)  # what is measured, not a wait
            after, took = look(s.peers), time.monotonic() - began
            cpu = [spent(x[1], y[1]) for x, y in zip(before, after)]
            return {
                "tokens_per_s": sum(y[0]["tokens"] - x[0]["tokens"]
                                    for x, y in zip(before, after)) / took,
                "trainer": sum(c[0] for c in cpu) / len(cpu) / took,
                "others": sum(c[1] for c in cpu) / len(cpu) / took,
                "rounds": after[0][0]["round"] - before[0][0]["round"],
                "aborted": after[0][0]["rounds_aborted"],
            }


def turns(a):
    found = {name: [] for name in a.cases}
    for _ in range(a.turns):
        for name in a.cases:
            figures = measure(name, a)
            of = found["alone"][-1]["tokens_per_s"] if found["alone"] else \
                figures["tokens_per_s"]
            figures["share"] = figures["tokens_per_s"] / of
            found[name].append(figures)
            print(f"utilisation: {name} {figures}", file=sys.stderr)
    return {name: {key: statistics.median(f[key] for f in all_of)
                   for key in all_of[0]} for name, all_of in found.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("cases", nargs="*", metavar="CASE")
    p.add_argument("--turns", type=int, default=2)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--up", default="20mbit")
    p.add_argument("--down", default="100mbit")
    p.add_argument("--rtt-ms", type=float, default=50)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    a.cases = ["alone"] + [c for c in a.cases or CASES if c != "alone"]
    if unknown := [c for c in a.cases if c not in CASES]:
        p.error(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    if why := missing() or not_built():
        sys.exit(f"utilisation: {why}")
    swarm.MODEL = MODEL
    found = turns(a)
    if a.json:
        print(json.dumps(found))
        return
    print("case        tokens/s   share  trainer  others  rounds  aborted")
    for name, f in found.items():
        print(f"{name:10} {f['tokens_per_s']:9.0f} {f['share']:7.1%} "
              f"{f['trainer']:8.1%} {f['others']:7.1%} {f['rounds']:7.0f} "
              f"{f['aborted']:8.0f}")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"utilisation: {e}")
