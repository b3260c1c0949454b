#!/usr/bin/env python3
"""traces.py - does a change that should change nothing change anything?

use: traces.py record FILE [--build DIR] [--seeds N] [--jobs N] [WORD...]
     traces.py compare FILE FILE

`record` runs every scenario of the simulator (or those whose line holds a
WORD) over the same seeds and writes a line each: the hash of all its steps, of
all seeds. `compare` prints the lines that differ; exit 1 when there are any.
A move, a new name or another struct leaves every hash as it was; a change of
protocol does not, and its commit says so.
"""
import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Scenarios that take long for a seed run a part of the seeds.
PART = {
    "rounds-churn": 5, "goodput": 10, "slow-join": 25, "late-shards": 5,
    "thousand": 25, "dht": 10, "churn": 25, "eclipse": 25, "flood": 25,
    "membership": 25, "partition": 25, "slow-line": 5, "nat-opens": 10,
    "links": 2, "hang": 5, "pairs": 2, "nat": 2, "stages": 2, "pairs-nodes": 2,
}
PEERS = {"thousand": 20, "dht": 100, "churn": 60, "eclipse": 100, "flood": 60,
         "membership": 60, "partition": 60}
# The same with other settings, a few seeds each.
MORE = [
    "plain --wire fp16", "plain --wire int8", "plain --wire e3m0",
    "plain --exchange butterfly --wire fp32",
    "kill-each --wire int8", "kill-each --peers 8", "split-2-2 --wire e3m0",
    "kill-each --exchange sites --peers 6", "sites-gateway --wire fp16",
    "overlap --wire e3m0", "rounds-churn --set sync.quorum=1",
    "rounds-churn --set sync.trainers=3 --set sync.merge_every=3",
    "join --set sync.fragments=4 --set sync.overlap=3",
    "slow-join --wire e3m0", "stages --peers 8 --set stages=4",
    "stages --set fault=11 --peers 8", "pipeline-deaths --peers 8",
]


def scenarios(sim):
    text = subprocess.run([sim, "--help"], capture_output=True, text=True,
                          check=True).stdout
    lines = text.split("scenarios:\n", 1)[1].splitlines()
    return [line.split()[0] for line in lines if line.startswith("  ")]


def one(sim, line, seeds):
    words = line.split()
    if "--peers" not in words and words[0] in PEERS:
        words += ["--peers", str(PEERS[words[0]])]
    done = subprocess.run([sim, *words, "--seeds", str(seeds), "--json"],
                          capture_output=True, text=True, check=False)
    try:
        made = json.loads(done.stdout)
    except json.JSONDecodeError:
        return f"{line}\t{seeds}\tfailed: {done.stderr.strip()[-200:]}"
    return (f"{line}\t{seeds}\t{made['trace_hash']}\t"
            f"{made['violations']} violations")


def record(args):
    sim = os.path.join(args.build, "tests", "loco_sim")
    lines = [(name, max(1, args.seeds // PART.get(name, 1)))
             for name in scenarios(sim)]
    lines += [(line, max(1, args.seeds // 10)) for line in MORE]
    if args.words:
        lines = [x for x in lines if any(w in x[0] for w in args.words)]
    with ThreadPoolExecutor(args.jobs) as pool, \
            open(args.file, "w", encoding="utf-8") as out:
        for text in pool.map(lambda x: one(sim, *x), lines):
            print(text, file=out, flush=True)
    return 0


def read(path):
    with open(path, encoding="utf-8") as f:
        return {tuple(line.split("\t")[:2]): line.split("\t", 2)[2].strip()
                for line in f}


def compare(args):
    old, new = read(args.file), read(args.other)
    n = 0
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key, "is not there"), new.get(key, "is not there")
        if a != b:
            print(f"{key[0]} ({key[1]} seeds): {a} | {b}")
            n += 1
    print(f"{len(old.keys() & new.keys())} in both, {n} differ")
    return n > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sub = parser.add_subparsers(dest="do", required=True)
    p = sub.add_parser("record")
    p.add_argument("file")
    p.add_argument("words", nargs="*")
    p.add_argument("--build", default="build")
    p.add_argument("--seeds", type=int, default=50)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p = sub.add_parser("compare")
    p.add_argument("file")
    p.add_argument("other")
    args = parser.parse_args()
    return record(args) if args.do == "record" else compare(args)


if __name__ == "__main__":
    sys.exit(main())
