#!/usr/bin/env python3
"""liars.py - what do three lying members of eight cost, at full size?

use: liars.py [--build DIR] [--cache DIR] [--results DIR] [--list] [--table]
              [WORD...]

`loco sim byzantine` makes this table in one go; at full size (quickstart-1m,
opendiloco, 60 rounds) a cell takes ten minutes of one core, and the table a
day. Here each cell is a case of its own, kept as JSON in tests/bench/liars as
recipe.py keeps its own: the script goes on where it was stopped. Cases come in
the order of what they decide: nobody lies, then the centre against every lie
seed by seed, then the other rules, then the honest five alone; then liars that
leave after some rounds, as audits of work bar them, and the recipe that a run
has by itself (muon-avg). WORDs choose cases; --table only prints.
"""
import argparse
import os
import statistics
import sys

import kept
import recipe

HERE = os.path.dirname(os.path.abspath(__file__))

MODELS = {"1M": ("quickstart-1m", 2)}
LIES = ["push", "overshoot", "mimic", "scale", "against", "flip", "pull",
        "noise", "huge", "zero", "drift", "copy"]
CENTRED = ["sync.norm_clip=1", "sync.robust=centred"]
RULES = {"centred": CENTRED, "clip": ["sync.norm_clip=1"],
         "mean": ["sync.norm_clip=0"], "barred": CENTRED, "muon-avg": CENTRED}
# Rounds until each of three liars is convicted, in the mean of 24 seeds of
# `loco_sim work --peers 8 --set work.kind=1 --set work.liars=3 --set
# inner.step_ms=500` (all three 106, the last 58).
BARRED = (20, 29, 57)
NOBODY = "nobody lies"
ALONE = "the honest five alone"
PERIOD, ROUNDS, BATCH, SEQ = 16, 60, 2, 256
SEEDS = (1, 2, 3)


def cases():
    found = {}

    def add(rule, lie, seed):
        peers = 5 if lie == ALONE else 8
        lied = lie not in (NOBODY, ALONE)
        sets = [f"sync.period={PERIOD}", "sync.topology=butterfly"]
        sets += RULES[rule]
        if lied:
            sets += ["lab.liars=3", f"lab.lie={lie}"]
        case = {"group": rule, "model": "1M", "method": lie,
                "preset": "muon-avg" if rule == "muon-avg" else "opendiloco",
                "set": sets, "peers": peers, "seed": seed,
                "tokens": PERIOD * ROUNDS * BATCH * SEQ}
        if rule == "barred":
            case["barred"] = BARRED
        found[f"liars: {rule}, {lie}, seed {seed}"] = case

    for seed in SEEDS:
        add("centred", NOBODY, seed)
    for seed in SEEDS:
        for lie in LIES:
            add("centred", lie, seed)
        add("mean", NOBODY, seed)
    for rule in ("mean", "clip"):
        for lie in [NOBODY, ALONE] + LIES:
            add(rule, lie, 1)
    for rule in ("centred", "mean"):
        for seed in SEEDS:
            add(rule, ALONE, seed)
    for seed in SEEDS:
        for lie in [NOBODY, ALONE] + LIES:
            add("muon-avg", lie, seed)
        for lie in LIES:
            add("barred", lie, seed)
    return found


def barred(rounds):
    """The tokens of a run, summed over its peers, that three liars leave after
    so many rounds each; and the peers that leave, as --members reads them."""
    tokens, peers, lines, before = 0, 8, [], 0
    for n, at in enumerate(sorted(rounds)):
        tokens += (at - before) * peers * PERIOD * BATCH * SEQ
        peers, before = peers - 1, at
        lines.append(f"{tokens} leave {7 - n}\n")
    return tokens + (ROUNDS - before) * peers * PERIOD * BATCH * SEQ, lines


class Liars(recipe.Bench):
    def tokens(self, c):
        return (barred(c["barred"])[0] if "barred" in c
                else super().tokens(c))

    def more(self, c):
        if "barred" not in c:
            return []
        return ["--members", self.room.write("barred.txt",
                                             "".join(barred(c["barred"])[1]))]

    def bits(self, rule, lie):
        """seed -> held-out bits per byte, of the cases that were run."""
        found = {}
        for name, c in self.cases.items():
            r = self.get(name)
            if (c["group"], c["method"]) == (rule, lie) and r:
                found[c["seed"]] = r["bits_per_byte"]
        return found

    def print_table(self):
        """Percent are means over the seeds that both have."""
        print("| rule | lie | bits per byte by seed | above nobody | above the "
              "five alone |\n|---|---|---|---|---|")
        for rule in RULES:
            than = [self.bits("centred" if rule == "barred" else rule, lie)
                    for lie in (NOBODY, ALONE)]
            for lie in [NOBODY, ALONE] + LIES:
                bits = self.bits(rule, lie)
                more = [[100 * (b / x[s] - 1) for s, b in bits.items()
                         if s in x] for x in than]
                if bits:
                    print(f"| {rule} | {lie} | "
                          + ", ".join(f"{b:.4f}" for b in bits.values())
                          + "".join(f" | {statistics.mean(m):+.1f} %"
                                    if m else " | " for m in more) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(kept.ROOT, "build"))
    parser.add_argument("--cache", default="")
    parser.add_argument("--results", default=os.path.join(HERE, "liars"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    a.short = False
    a.cache = a.cache or os.path.join(a.build, f"liars-{os.getpid()}")
    os.makedirs(a.results, exist_ok=True)
    bench = Liars(a, cases(), MODELS)
    names = [n for n in bench.cases
             if not a.words or any(w in n for w in a.words)]
    if a.list:
        print("\n".join(names))
        return 0
    ended = [] if a.table else [bench.run(n) for n in names]
    bench.print_table()
    return 1 if False in ended else 0


if __name__ == "__main__":
    sys.exit(main())
