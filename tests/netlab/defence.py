#!/usr/bin/env python3
"""defence.py - what a defended butterfly costs peers behind home routers.

use: tests/netlab/defence.py [--peers 8] [--homes 4] [--rate 50mbit] [--rtt-ms 30]
         [--rounds 12] [--period 4] [--wire fp16] [--cases NAME,NAME] [--json]

Some hosts have public addresses, the others stand behind NATs that nobody can
dial (`restricted`), each with a line of `rate` both ways. Real daemons train a
small model:
  ring       sync.robust=off: the run without defences
  butterfly  the same in a butterfly, which needs a way between every two peers
  robust     a robust mean
  audited    and audits of sums
  gated      and the gate (sync.rollback)
  worked     and audits of work, which wires with error feedback cannot have
Printed are seconds a round (from the first to the last, by the slowest peer),
bytes that a peer sent a round, bytes a round that peers passed on for others,
and processor seconds a round of a peer; and bytes and processor seconds beside
the plain butterfly.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
from lab import Failed, Lab, LabSwarm, missing, not_built  # noqa: E402
import swarm  # noqa: E402

FIRST = 3  # rounds that do not count: links and ways are found
CASES = {
    "ring": {"sync.robust": "off", "sync.audit": "off"},
    "butterfly": {"sync.robust": "off", "sync.audit": "off",
                  "sync.topology": "butterfly"},
    "robust": {"sync.robust": None, "sync.audit": "off"},
    "audited": {"sync.robust": None, "sync.audit": None},
    "gated": {"sync.robust": None, "sync.audit": None, "sync.rollback": None},
    "worked": {"sync.robust": None, "sync.audit": "work",
               "sync.rollback": None},
}
# About 0.4 million parameters: 0.8 MB in fp16.
MODEL = swarm.MODEL.replace("dim: 32", "dim: 128").replace(
    "layers: 2", "layers: 2").replace("ffn: 64", "ffn: 256")


def hosts_of(space, a):
    line = {"rate": a.rate, "delay": f"{a.rtt_ms / 4}ms"}
    space.hub("net")
    hosts = [space.host(f"p{k}", "net", **line)
             for k in range(a.peers - a.homes)]
    for k in range(a.homes):
        box = space.site(f"box{k}", "net", nat="restricted", **line)
        hosts.append(box.host(f"h{k}"))
    return hosts


def sent(statuses):
    return sum(s["bytes_sent"] for s in statuses)


def measure(name, a):
    settings = {"sync.wire": a.wire, "sync.rollback": 0,
                "eval.every_rounds": 0, **CASES[name]}
    with Lab() as space:
        with LabSwarm(hosts_of(space, a), rounds=a.rounds + FIRST,
                      period=a.period, settings=settings) as s:
            s.start()
            for peer in s.peers:
                peer.wait_round(FIRST, 200)
            before = [p.status() for p in s.peers]
            cpu = sum(p.cpu_s() for p in s.peers)
            done = s.wait_finished(seconds=400)
            times = [r["took_ms"] for r in s.peers[0].rounds()
                     if r["outcome"] == "committed"][:a.rounds]
            n = a.peers * (done[0]["round"] - min(b["round"] for b in before))
            return {
                "seconds": sorted(times)[len(times) // 2] / 1000,
                "sent": (sent(done) - sent(before)) / n,
                "relayed": sum(d["bytes_relayed"] for d in done) / n,
                "cpu": (sum(p.cpu_s() for p in s.peers) - cpu) / n,
                "aborted": max(d["rounds_aborted"] for d in done),
                "audits": done[0]["audits"],
            }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--peers", type=int, default=8)
    p.add_argument("--homes", type=int, default=4)
    p.add_argument("--rate", default="50mbit")
    p.add_argument("--rtt-ms", type=float, default=30)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--period", type=int, default=4)
    p.add_argument("--wire", default="fp16")
    p.add_argument("--cases", default=",".join(CASES))
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    why = missing() or not_built()
    if why:
        sys.exit(f"defence: {why}")
    swarm.MODEL = MODEL
    found = {name: measure(name, a) for name in a.cases.split(",")}
    if a.json:
        print(json.dumps(found))
        return
    than = found.get("butterfly")
    print("case        s/round   MB sent  relayed    CPU s   bytes      CPU  "
          "aborted")
    for name, f in found.items():
        more = [f"{100 * (f[k] / than[k] - 1):+7.1f}%" if than else ""
                for k in ("sent", "cpu")]
        print(f"{name:10} {f['seconds']:8.2f} {f['sent'] / 1e6:9.3f} "
              f"{f['relayed'] / 1e6:8.3f} {f['cpu']:8.3f}{more[0]:>8} "
              f"{more[1]:>8} {f['aborted']:8}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"defence: {e}")
