#!/usr/bin/env python3
"""stages.py - a model in two stages beside the same machines data-parallel.

use: tests/bench/stages.py [--build build] [--turns 3] [--rounds 12]
         [--share 0.5] [--slow 4] [--rate 100mbit] [--model dim=128,layers=8,...]
         [--batch 8] [--micro-batch 1] [--json FILE]

Four daemons of one thread each, in turns: each with the whole model (`data`),
then two stages of two hosts (`stages`); as many tokens and as many steps of the
optimizer a round in both. Tokens a second are those of the rounds between the
third commit and the last, by the log of one peer; target: 0.8 of `data`.
With --rate the turns of `stages` are followed by one in which each daemon has a
network namespace and a line of that rate (tests/netlab; needs root); target:
0.9 of the tokens a second of `stages`.

--share S gives every daemon S cores and no more (a control group; needs root).
Without it daemons share what the machine has, and one that waits leaves its
core to the others: with fewer cores than daemons a pipeline looks better than
it is on hosts of their own. With --slow K there are turns in which one host of
each stage has S / K: all work at its pace would be 1 / K of `stages`, each at
its own (1 + 1 / K) / 2.

--json keeps every turn that is done; called again with the same file and
settings it goes on where it was.
"""
import argparse
import calendar
import contextlib
import json
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS, STAGES, FIRST = 4, 2, 3
COMMITTED = re.compile(r"^(\S+)\.(\d{3})Z .*round (\d+) committed: \d+ of \d+ "
                       r"peers, (\d+) tok", re.M)
TARGET = {"stages": 0.8, "line": 0.9}


class Cores:
    """A control group for each daemon, with a share of a core."""

    def __init__(self, share):
        self.share = share
        self.v1 = os.path.exists("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        self.root = "/sys/fs/cgroup/cpu" if self.v1 else "/sys/fs/cgroup"
        self.groups = []

    def write(self, group, name, value):
        with open(os.path.join(group, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def add(self, pid, slower=1):
        if not self.share:
            return
        group = os.path.join(self.root, f"loco-stages-{pid}")
        os.mkdir(group)
        self.groups.append(group)
        share = self.share / slower
        period = max(10000, int(1000 / share))  # a quota is 1 ms at least
        quota = int(period * share)
        if self.v1:
            self.write(group, "cpu.cfs_period_us", period)
            self.write(group, "cpu.cfs_quota_us", quota)
        else:
            self.write(group, "cpu.max", f"{quota} {period}")
        self.write(group, "cgroup.procs", pid)

    def close(self):
        for group in self.groups:
            with contextlib.suppress(OSError):
                os.rmdir(group)
        self.groups = []


def commits(peer):
    """[(round, seconds, tokens)] of its log."""
    found = []
    for day, ms, number, tokens in COMMITTED.findall(peer.log(whole=True)):
        at = calendar.timegm(time.strptime(day, "%Y-%m-%dT%H:%M:%S"))
        found.append((int(number), at + int(ms) / 1000, int(tokens)))
    return found


def settings(a, stages):
    values = {"stages": stages, "model.tied": "false",
              "inner.batch": a.batch * stages // STAGES,
              "inner.micro_batch": a.micro_batch, "round.grace_ms": 10000}
    values.update(("model." + k, v) for k, v in
                  (pair.split("=") for pair in a.model.split(",")))
    values["inner.seq"] = values["model.seq"]
    return values


def watch(s, rounds):
    """CPU seconds of all from the commit of round FIRST to that of the last,
    and what they say of themselves then."""
    first = s.peers[0]
    wait_for(lambda: commits(first)[FIRST - 1:], "the first rounds", 300)
    before = sum(p.cpu_s() for p in s.peers)
    wait_for(lambda: commits(first)[rounds - 2:], "the rounds", 1800)
    cpu = sum(p.cpu_s() for p in s.peers) - before
    said = [p.status() for p in s.peers]
    wait_for(lambda: commits(first)[rounds - 1:], "the last round", 300)
    return cpu, said


def one_of_each_stage(s):
    """The first peer of each stage, by their logs."""
    stage_of = {}
    for peer in s.peers:
        found = wait_for(lambda: re.findall(
            r"stage (\d) of", peer.log(whole=True)), "a stage is chosen", 60)
        stage_of.setdefault(found[-1], peer)
    return set(stage_of.values())


def turn(a, kind, swarm, cores):
    """One swarm from its first to its last round."""
    with swarm as s:
        s.start("--threads", "1", "--nice", "0")
        slow = one_of_each_stage(s) if kind == "slow" else ()
        for peer in s.peers:
            cores.add(peer.process.pid, a.slow if peer in slow else 1)
        cpu, said = watch(s, a.rounds)
        log = commits(s.peers[0])
        memory = [p.memory_anon_bytes() for p in s.peers]
    cores.close()
    tokens = [t for n, _, t in log if n > FIRST]
    seconds = log[-1][1] - log[FIRST - 1][1]
    counted = sum(t for n, _, t in log[FIRST:-1])
    return {"tokens_per_s": sum(tokens) / seconds, "round_tokens": max(tokens),
            "short_rounds": sum(t < max(tokens) for t in tokens),
            "seconds": seconds, "cpu_us_per_token": 1e6 * cpu / counted,
            "memory_anon_bytes": memory,
            "stage": [x["stage"] for x in said if x]}


def swarm_of(a, kind, stack):
    options = {"rounds": a.rounds, "period": a.period, "min_peers": HOSTS,
               "text_bytes": 400_000,
               "settings": settings(a, 1 if kind == "data" else STAGES).items()}
    if kind != "line":
        return Swarm(peers=HOSTS, **options)
    lab = stack.enter_context(Lab())
    lab.hub("net")
    spaces = [lab.host(f"h{i}", "net", rate=a.rate, delay=f"{a.rtt_ms / 4}ms")
              for i in range(HOSTS)]
    return LabSwarm(spaces, **options)


def measure(a, done, save):
    cores = Cores(a.share)
    kinds = ("data", "stages") + (("line",) if a.rate else ()) + (
        ("slow",) if a.slow else ())
    for i in range(a.turns):
        for kind in kinds:
            if len(done.setdefault(kind, [])) > i:
                continue
            try:
                with contextlib.ExitStack() as stack:
                    seen = turn(a, kind, swarm_of(a, kind, stack), cores)
            finally:
                cores.close()
            done[kind].append(seen)
            save()
            print(f"turn {i + 1}, {kind}: {seen['tokens_per_s']:.0f} tokens/s, "
                  f"{seen['cpu_us_per_token']:.1f} us of CPU a token, load "
                  f"{os.getloadavg()[0]:.1f}, {seen['short_rounds']} rounds "
                  "without some host", flush=True)


def show(a, done):
    def of(kind, name):
        return statistics.median(x[name] for x in done[kind])
    print("\n| | tokens/s | of | ratio (turn by turn) | target | us of CPU a "
          "token | MB a host |\n" + "|---" * 7 + "|")
    for kind in done:
        base = {"stages": "data", "line": "stages",
                "slow": "stages"}.get(kind)
        ratios = [x["tokens_per_s"] / y["tokens_per_s"] for x, y in
                  zip(done[kind], done[base])] if base else []
        memory = [m / 1e6 for m in done[kind][-1]["memory_anon_bytes"]]
        print(f"| {kind} | {of(kind, 'tokens_per_s'):.0f} | {base or ''} | " +
              (f"{statistics.median(ratios):.2f} (" +
               ", ".join(f"{r:.2f}" for r in ratios) + ")" if ratios else "") +
              f" | {TARGET.get(kind, '')} | {of(kind, 'cpu_us_per_token'):.1f}"
              f" | {min(memory):.0f} to {max(memory):.0f} |")
    print(f"\n{done['data'][-1]['round_tokens']} tokens a round of {a.period} "
          f"steps; load average at the end {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores, " +
          (f"{a.share} of one for each daemon" if a.share else
           "shared by the daemons"))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--build", default="build")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--period", type=int, default=5, help="steps of a round")
    p.add_argument("--share", type=float, default=0, help="cores of a daemon")
    p.add_argument("--slow", type=float, help="times, one host of each stage")
    p.add_argument("--rate", help="of each line, such as 100mbit")
    p.add_argument("--rtt-ms", type=float, default=20)
    p.add_argument("--model", default="dim=128,layers=8,heads=4,kv_heads=4,"
                   "ffn=344,vocab=256,seq=128")
    p.add_argument("--batch", type=int, default=32,
                   help="sequences of a step, for each host of the first stage")
    p.add_argument("--micro-batch", type=int, default=4)
    p.add_argument("--json", metavar="FILE")
    return p.parse_args()


def run(a):
    kept = {"settings": {k: v for k, v in vars(a).items()
                         if k not in ("json", "turns", "build")}, "turns": {}}
    if a.json and os.path.exists(a.json):
        with open(a.json, encoding="ascii") as f:
            found = json.load(f)
        if found["settings"] != kept["settings"]:
            raise Failed(f"{a.json} is of other settings: name another file")
        kept = found

    def save():
        if a.json:
            with open(a.json + ".new", "w", encoding="ascii") as f:
                json.dump(kept, f, indent=1)
            os.replace(a.json + ".new", a.json)
    if a.slow and not a.share:
        raise Failed("--slow needs --share: of what is it the slower part?")
    lacks = not_built() if a.rate else swarm_not_built()
    why = a.rate and missing() or lacks and f"{lacks} is not built"
    if why:
        raise Failed(why)
    measure(a, kept["turns"], save)
    show(a, kept["turns"])


if __name__ == "__main__":
    args = main()
    os.environ["LOCO_BUILD"] = os.path.abspath(args.build)
    sys.path.insert(0, os.path.join(HERE, "..", "netlab"))
    from lab import (Failed, Lab, LabSwarm, Swarm, missing,  # noqa: E402
                     not_built, wait_for)
    from swarm import not_built as swarm_not_built  # noqa: E402
    try:
        run(args)
    except Failed as why_not:
        sys.exit(f"stages: {why_not}")
