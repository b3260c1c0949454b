#!/usr/bin/env python3
"""sites.py - what two sites send each other: the flat ring and two levels.

use: tests/netlab/sites.py [--elements E] [--rate 100mbit] [--rtt-ms 30]
         [--members 3] [--rounds R] [--json]

Two sites, each a hub with hosts of 1 Gbit/s, and one line between the hubs
with `rate` and RTT. `loco bench allreduce` in fp16, one rank a host, so often:
  blind   a ring, from its first round on: nobody knows yet where lines are slow
  known   a ring after it has learnt that (p2p/exchange/rates.h)
  sites   --sites 2: inside first, then between two gateways (p2p/exchange/sites.h)
Bytes are counted by the router on the line, both directions, all overhead
included; a vector is one of the whole model. Two sites need two vectors at
least: each must learn what the other one's sum is.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import LOCO, PORT, Failed, Lab, missing, not_built  # noqa: E402

LEARN = 14  # rounds after which a ring goes over fast edges


def two_sites(lab, members, rate, rtt_ms):
    lab.hub("east")
    lab.hub("west")
    lab.link("east", "west", rate=rate, delay=f"{rtt_ms / 2}ms")
    return [lab.host(f"{hub[0]}{k}", hub, rate="1gbit", delay="100us")
            for hub in ("east", "west") for k in range(members)]


def between(lab):
    """Bytes that went over the line so far."""
    return sum(lab.stats(a, b)["bytes"]
               for a, b in (("east", "west"), ("west", "east")))


def allreduce(lab, hosts, elements, rounds, warmup, *words):
    """Bytes over the line a round, warm ones included, and seconds of the
    slowest rank."""
    addresses = ",".join(f"{h.address}:{PORT}" for h in hosts)
    before = between(lab)
    ranks = [lab.start(host, LOCO, "bench", "allreduce", "--peers",
                       len(hosts), "--elements", elements, "--rounds", rounds,
                       "--warmup", warmup, "--rank", rank, "--addresses",
                       addresses, "--json", *words, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
             for rank, host in enumerate(hosts)]
    said = [r.communicate(timeout=600) for r in ranks]
    for rank, (child, (_, err)) in enumerate(zip(ranks, said)):
        if child.returncode != 0:
            raise Failed(f"rank {rank}: exit code {child.returncode}: {err}")
    bench = [json.loads(out) for out, _ in said]
    if max(b["max_error"] for b in bench) > len(hosts) * 2 ** -11:
        raise Failed("the result is not the mean")
    return {"bytes": (between(lab) - before) / (rounds + warmup),
            "seconds": max(b["seconds_median"] for b in bench),
            "aborted": max(b["rounds_aborted"] for b in bench)}


def measure(members, elements, rate, rtt_ms, rounds):
    """Each case in a lab of its own: nothing is known before."""
    found = {"members": members, "elements": elements, "rate": rate,
             "vector": 2 * elements}
    for name, learn, words in (("blind", 0, ()), ("known", LEARN, ()),
                               ("sites", 0, ("--sites", 2))):
        with Lab() as lab:
            hosts = two_sites(lab, members, rate, rtt_ms)
            found[name] = allreduce(lab, hosts, elements, rounds, learn + 1,
                                    *words)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--members", type=int, default=3)
    p.add_argument("--elements", type=int, default=4 << 20)
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--rtt-ms", type=float, default=30)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    why = missing() or not_built() and f"{not_built()} is not built"
    if why:
        print(f"sites: {why}", file=sys.stderr)
        return 1
    found = measure(a.members, a.elements, a.rate, a.rtt_ms, a.rounds)
    if a.json:
        print(json.dumps(found))
        return 0
    for name in ("blind", "known", "sites"):
        case = found[name]
        print(f"{name:6} {case['bytes'] / 1e6:8.1f} MB a round over the line, "
              f"{case['bytes'] / found['vector']:.2f} vectors, "
              f"{case['seconds']:.2f} s, {case['aborted']} rounds aborted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
