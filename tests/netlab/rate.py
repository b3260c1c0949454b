#!/usr/bin/env python3
"""rate.py - how much of a slow link is used: raw TCP and loco's all-reduce.

use: tests/netlab/rate.py [--hosts N] [--rate 100mbit] [--rtt-ms 50]
         [--elements E] [--wire fp16] [--rounds R] [--warmup W]
         [--encryption on|off] [--slow 25mbit] [--exchange ring|butterfly|auto]
         [--sites N] [--router] [--json]

N hosts at one hub, each with `rate` up and down and RTT to each other:
  raw     goodput of one TCP stream, alone (a line's best);
  ring    goodput of N streams at once, each host to the next one;
  loco    `loco bench allreduce`, one rank a host, against the bound of a ring,
          2(N-1)/N * bytes / raw. A rank's time runs from its own input to its
          own result: one that began early waited for the others, so the truth
          lies between the fastest and the slowest rank.
--slow gives the last host another rate. The bound of a ring is then that of
the slowest line; the bound of a butterfly is the best that any slices allow:
each host gives its vector once and takes the result once, the owners more. --router leaves loco out and says what the router itself takes
and adds: CPU, packets a second, and its jitter on an idle line, while nothing
else happens and while two other hosts fill theirs (four hosts at least).
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import (LOCO, PORT, Failed, Lab, missing,  # noqa: E402
                 not_built)
from measure import Stream, ping  # noqa: E402

WIRE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
SETTLE_S = 4  # a stream has left its slow start by then
WINDOW_S = 4


def raw(a, b):
    """Mbit/s of one stream from a to b."""
    with Stream(a, b) as stream:
        stream.mbits(SETTLE_S)
        return stream.mbits(WINDOW_S)


def ring(lab, hosts):
    """Mbit/s of each host to the next, all at once, and the router's part:
    CPU seconds and wire packets, a second."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Stream(a, b, 5100 + i)) for i, (a, b)
                   in enumerate(zip(hosts, hosts[1:] + hosts[:1]))]
        streams[0].mbits(SETTLE_S)
        before = [s.received() for s in streams]
        cpu_s, packets = lab.cpu_s(), n_packets(lab)
        streams[0].mbits(WINDOW_S)
        cpu_s, packets = lab.cpu_s() - cpu_s, n_packets(lab) - packets
        after = [s.received() for s in streams]
    seconds = after[0][1] - before[0][1]
    mbits = [(y[0] - x[0]) * 8 / (y[1] - x[1]) / 1e6
             for x, y in zip(before, after)]
    return mbits, cpu_s / seconds, packets / seconds


def n_packets(lab):
    return sum(w["packets"] for w in lab.stats()["wires"])


def allreduce(lab, hosts, a):
    """What the ranks report, the fastest first; each in its namespace."""
    addresses = ",".join(f"{h.address}:{PORT}" for h in hosts)
    ranks = [lab.start(host, LOCO, "bench", "allreduce", "--peers",
                       len(hosts), "--elements", a.elements, "--wire", a.wire,
                       "--rounds", a.rounds, "--warmup", a.warmup,
                       "--encryption", a.encryption,
                       "--exchange", a.exchange, "--sites", a.sites,
                       "--rank", rank,
                       "--addresses", addresses, "--json",
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True)
             for rank, host in enumerate(hosts)]
    said = [r.communicate(timeout=a.limit_s) for r in ranks]
    for rank, (child, (_, err)) in enumerate(zip(ranks, said)):
        if child.returncode != 0:
            raise Failed(f"rank {rank}: exit code {child.returncode}: {err}")
    return sorted((json.loads(out) for out, _ in said),
                  key=lambda bench: bench["seconds_median"])


def vectors(rates):
    """Of a butterfly with the best slices: the time of one vector over a line
    of rate 1, in such times. A host with share s moves 1 + (n - 2) s each
    way; only the fastest k have a share above 0."""
    n = len(rates)
    best = None
    for least in set(rates):
        owners = [r for r in rates if r >= least]
        t = (n - 2 + len(owners)) / sum(owners)
        if t * least >= 1:
            t = max(t, 1 / min(rates))
            best = t if best is None else min(best, t)
    return best


def bound_s(a, fast_mbits, slow_mbits):
    """The best time of a round on these lines."""
    n_bits = a.elements * WIRE_BYTES[a.wire] * 8
    if a.exchange == "ring" or a.hosts < 3:
        return 2 * (a.hosts - 1) / a.hosts * n_bits / (slow_mbits * 1e6)
    rates = [fast_mbits] * (a.hosts - 1) + [slow_mbits]
    return vectors([r / fast_mbits for r in rates]) * n_bits / (
        fast_mbits * 1e6)


def measure(a):
    with Lab() as lab:
        lab.hub("net")
        hosts = [lab.host(f"h{i}", "net", rate=a.rate,
                          delay=f"{a.rtt_ms / 4}ms") for i in range(a.hosts)]
        if a.slow:
            lab.link(hosts[-1].name, "net", rate=a.slow)
        found = {"hosts": a.hosts, "rate": a.rate, "slow": a.slow,
                 "rtt_ms": a.rtt_ms}
        if a.router:
            found["idle_ms"] = spread(ping(hosts[0], hosts[1], 200))
            with Stream(hosts[-1], hosts[-2]) as s, \
                    Stream(hosts[-2], hosts[-1], 5002):
                s.mbits(SETTLE_S)
                found["busy_ms"] = spread(ping(hosts[0], hosts[1], 200))
        slowest = hosts[-1]
        found["raw_mbits"] = raw(hosts[0], hosts[1])
        bound_mbits = raw(slowest, hosts[0]) if a.slow else found["raw_mbits"]
        found["ring_mbits"], found["router_cores"], \
            found["router_packets_per_s"] = ring(lab, hosts)
        if not a.router:
            bench = allreduce(lab, hosts, a)
            best = bound_s(a, found["raw_mbits"], bound_mbits)
            found["exchange"] = a.exchange
            found["bench"] = bench
            found["bound_s"] = best
            found["of_bound"] = [best / b["seconds_median"] for b in bench]
        return found


def cpu_per_gb(bench):
    """Mean of the ranks, without the hash; each receives what it sends."""
    return statistics.mean(
        (b["cpu_seconds"] - b["hash_cpu_seconds"]) / (2 * b["bytes_sent"])
        for b in bench) * 1e9


def hash_per_gb(bench):
    return statistics.mean(b["hash_cpu_seconds"] / (2 * b["bytes_sent"])
                           for b in bench) * 1e9


def spread(trips):
    """Round trips in ms: least, and how far above it half and 95 % stay."""
    trips = sorted(trips)
    return {"least": trips[0],
            "median_above": statistics.median(trips) - trips[0],
            "p95_above": trips[len(trips) * 95 // 100] - trips[0]}


def show(found):
    print(f"{found['hosts']} hosts, {found['rate']}, {found['rtt_ms']} ms "
          f"round trip: one raw stream {found['raw_mbits']:.2f} Mbit/s")
    print("each to the next: " +
          ", ".join(f"{m:.2f}" for m in found["ring_mbits"]) +
          f" Mbit/s; router {100 * found['router_cores']:.1f} % of a core, "
          f"{found['router_packets_per_s']:.0f} packets/s over a wire")
    for name in ("idle_ms", "busy_ms"):
        if name in found:
            t = found[name]
            print(f"idle line, {name[:4]} router: {t['least']:.3f} ms, "
                  f"median + {t['median_above']:.3f}, 95 % within + "
                  f"{t['p95_above']:.3f}")
    if "bench" in found:
        first, last = found["bench"][0], found["bench"][-1]
        print(f"loco: {first['seconds_median']:.3f} to "
              f"{last['seconds_median']:.3f} s a round, by rank; bound "
              f"{found['bound_s']:.3f} s: {100 * found['of_bound'][0]:.1f} to "
              f"{100 * found['of_bound'][-1]:.1f} % of it; "
              f"{first['bytes_sent'] / 1e6:.1f} MB sent, "
              f"{cpu_per_gb(found['bench']):.2f} CPU s a GB moved (sent or "
              f"received), the vote's hash {hash_per_gb(found['bench']):.2f} "
              f"beside it, "
              f"{last['rounds_aborted']} rounds aborted")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--hosts", type=int, default=4)
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--slow")
    p.add_argument("--rtt-ms", type=float, default=50)
    p.add_argument("--elements", type=int, default=16 << 20)
    p.add_argument("--wire", choices=WIRE_BYTES, default="fp16")
    p.add_argument("--exchange", choices=("ring", "butterfly", "auto"),
                   default="ring")
    p.add_argument("--sites", type=int, default=0)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--encryption", choices=("on", "off"), default="on")
    p.add_argument("--limit-s", type=float, default=600)
    p.add_argument("--router", action="store_true")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    why = missing() or not_built() and f"{not_built()} is not built"
    if why or a.hosts < 2:
        print(f"rate: {why or 'two hosts at least'}", file=sys.stderr)
        return 1
    found = measure(a)
    if a.json:
        print(json.dumps(found))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
