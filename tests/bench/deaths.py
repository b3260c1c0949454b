#!/usr/bin/env python3
"""deaths.py - what a death in the middle of a round costs the others.

use: tests/bench/deaths.py [--loco build/loco] [--ranks 4] [--mi 64]
         [--turns 3] [--rounds 4] [--at 10,50,90] [--encryption on|off]

The last of the ranks is killed (SIGKILL), or stopped (SIGSTOP), when that part
of a round's elements is final there. Measured is the time from that moment
until every other rank has the result; beside it the part of a round that was
unfinished, at the speed of the rounds before. Their difference is the cost: at
most 1 s after kill -9, 4 s after SIGSTOP. Medians over the turns.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

LIMIT_S = {"kill": 1, "stop": 4}


def run(a, fault, percent):
    done = subprocess.run(
        [a.loco, "bench", "allreduce", "--peers", str(a.ranks), "--elements",
         str(a.mi << 20), "--rounds", str(a.rounds), "--warmup", "2",
         "--encryption", a.encryption, "--fault", fault, "--fault-at",
         str(percent), "--json"],
        stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    r = json.loads(done.stdout)
    assert r["max_error"] < 0.01, r["max_error"]
    return r


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--loco", default="build/loco")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--mi", type=int, default=64, help="elements, in 2^20")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--at", default="10,50,90")
    p.add_argument("--encryption", choices=("on", "off"), default="on")
    a = p.parse_args()
    print("| fault | at | whole round s | unfinished s | until the result s | "
          "cost s | limit s |\n" + "|---" * 7 + "|")
    for fault in ("kill", "stop"):
        for percent in (int(x) for x in a.at.split(",")):
            seen = [run(a, fault, percent) for _ in range(a.turns)]
            whole = statistics.median(r["seconds_median"] for r in seen)
            took = statistics.median(r["fault_seconds"] for r in seen)
            left = whole * (100 - percent) / 100
            print(f"| {fault} | {percent} % | {whole:.2f} | {left:.2f} | "
                  f"{took:.2f} | {took - left:.2f} | {LIMIT_S[fault]} |",
                  flush=True)
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
