"""stage_soak.py - six daemons that hold three stages, on real text, while one
after the other dies and comes back; beside them six that nobody kills.

What must hold: it goes on (no round takes longer than STILL_S); of a round and
stage there is one hash; no round has more tokens than its micro-batches have
and those that the rounds before it lack (stage_counts.py), which one that
counted twice would bring (the simulator and unit/daemon/stage count each);
where nobody dies none are lost; and the loss comes down as it does there.

The short form, in the suite, kills by rounds. The long one runs by itself:

    python3 tests/e2e/stage_soak.py [--seconds S] [--every S] [--text FILE]

and prints both curves. Without --text the text is that of the documents of this
repository; deploy/text.sh writes a longer one.
"""
import argparse
import glob
import json
import math
import os
import random
import re
import sys
import time

from e2e_registry import test
from stage_counts import check_peer, check_rounds
from swarm import LOCO, ROOT, SCALE, Failed, Swarm, check, run, wait_for

STAGES, HOSTS = 3, 6
PERIOD, BATCH, SEQ = 10, 4, 64
STILL_S = 90
# Of one round: each of the two hosts of stage 0 enters BATCH sequences a step.
ENTERED = PERIOD * BATCH * SEQ
TOKENS = ENTERED * HOSTS // STAGES
UNEVEN = re.compile("is gone; the step runs again|lost peer|"
                    "without this peer|moving from stage")
COMMITTED = re.compile(r"round (\d+) committed: (\d+) of \d+ peers, (\d+) tok")


def documents():
    """Prose that is here anyway, in an order that is always the same."""
    names = sorted(glob.glob(os.path.join(ROOT, "*.md")) +
                   glob.glob(os.path.join(ROOT, "*", "*.md")))
    parts = []
    for name in names:
        with open(name, encoding="utf-8") as f:
            parts.append(f.read())
    return "\n".join(parts).encode("ascii", "replace").decode("ascii")


class Run:
    """Six daemons, and what was seen of their rounds."""

    def __init__(self, text, rounds):
        self.swarm = Swarm(
            peers=HOSTS, rounds=rounds, period=PERIOD, min_peers=HOSTS,
            text=text, settings={
                "stages": STAGES, "model.tied": "false", "model.layers": 3,
                "inner.batch": BATCH, "inner.micro_batch": 2,
                "inner.lr": 0.003, "inner.lr_min": 0.003,
                "round.grace_ms": 5000}.items())
        self.hash_of = {}  # (stage, round)
        self.losses = {}  # round: [loss]
        self.newest, self.since = 0, time.monotonic()
        self.kills = 0

    def __enter__(self):
        self.swarm.__enter__()
        self.swarm.start()
        return self

    def __exit__(self, *why):
        self.swarm.__exit__(*why)

    def note(self, peer, status):
        stage = status and status["stage"] and status["stage"]["number"]
        if not stage or status["round"] == 0 or not status["params_hash"]:
            return
        key = stage, status["round"]
        own = status["params_hash"]
        known = self.hash_of.setdefault(key, own)
        check(known == own, f"stage and round {key} have two hashes")
        if status["loss"]:
            self.losses.setdefault(status["round"], []).append(status["loss"])
        if status["round"] > self.newest:
            self.newest, self.since = status["round"], time.monotonic()

    def look(self):
        for peer in self.swarm.peers:
            check(peer.process.poll() is None,
                  f"{peer.name} ended with {peer.process.poll()}")
            self.note(peer, peer.status())
        check(time.monotonic() - self.since < STILL_S * SCALE,
              f"no round for {STILL_S * SCALE} s after {self.newest}: "
              f"{[p.brief() for p in self.swarm.peers]}")

    def reach(self, number):
        while self.newest < number:
            self.look()
            time.sleep(0.2)

    def strike(self, rng):
        victim = rng.choice(self.swarm.peers)
        others = [p for p in self.swarm.peers if p is not victim]
        victim.kill()
        time.sleep(rng.random() * 2)  # how long it is away is part of the fault
        victim.start("--join", self.swarm.uri(rng.choice(others))).wait_up()
        self.kills += 1
        return victim

    def together(self):
        """All hosts are in a view of their stage, and hold the same round."""
        seen = [p.status() for p in self.swarm.peers]
        for peer, status in zip(self.swarm.peers, seen):
            self.note(peer, status)
        at = [s and s["stage"] and s["stage"]["number"] for s in seen]
        return set(at) == set(range(1, STAGES + 1)) and all(
            s["peers_in_round"] == at.count(n) for s, n in zip(seen, at))

    def tokens(self):
        """{(peer, round): (tokens, peers)}, as every log says it committed."""
        found = {}
        for peer in self.swarm.peers:
            for number, n, tokens in COMMITTED.findall(peer.log(whole=True)):
                found[peer.name, int(number)] = int(tokens), int(n)
        check(found, "no log names a committed round")
        return found

    def loss(self, first, last):
        """Mean over those rounds of what the last stage said."""
        values = [x for r in range(first, last + 1)
                  for x in self.losses.get(r, [])]
        check(values, f"no loss was seen in rounds {first} to {last}")
        return sum(values) / len(values)


def given(peer):
    """What the process gave to committed rounds, and to how many."""
    rows = json.loads(run(LOCO, "peers", "--state", peer.state,
                          "--json").stdout)["peers"]
    own = next(row for row in rows if row["self"])
    return own["tokens"], own["rounds"]


def check_counts(seen, faultless):
    logs = [p.log(whole=True) for p in seen.swarm.peers]
    carried, lack = check_rounds(logs, ENTERED)
    tokens = seen.tokens()
    whole = sum(n >= TOKENS for n, _ in tokens.values()) / len(tokens)
    print(f"{len(tokens)} commits in {HOSTS} logs, {100 * whole:.0f} % of them "
          f"with all {TOKENS} tokens; {carried} tokens came a round later")
    for peer in seen.swarm.peers:
        check_peer(peer.name, *given(peer), peer.status())
    if faultless and not any(UNEVEN.search(log) for log in logs):
        newest = max(at for _, at in tokens)
        less = {at: n for at, n in lack.items() if at[1] < newest}
        check(not less, f"nobody died, and (stage, round) lack tokens: {less}")
        exact = sum(n == TOKENS for n, _ in tokens.values()) / len(tokens)
        check(exact > 0.5, f"in {100 * exact:.0f} % of the rounds did every "
              f"host make steps: {tokens}")


def curve(runs, last, parts):
    """Rows of both losses over the rounds; their last one is compared."""
    step = max(1, last // parts)
    rows = []
    for end in range(step, last + 1, step):
        rows.append((end, *(r.loss(end - step + 1, end) for r in runs)))
        print("rounds to %5d: without faults %.3f, with %.3f" % rows[-1],
              flush=True)
    return rows


def check_learnt(rows, slack):
    first, last = rows[0], rows[-1]
    check(last[1] < first[1] and last[2] < first[2], "nothing was learnt")
    check(last[2] - last[1] <= slack, f"the loss is {last[2]:.3f} where hosts "
          f"die and {last[1]:.3f} where none does")


@test("three stages of two hosts train on real text while hosts die and come "
      "back: what they learn is the same, nothing is counted twice", 420)
def stages_soak():
    rounds, rng, text = 20, random.Random(3), documents()
    with Run(text, rounds) as calm:
        calm.reach(rounds)
        check_counts(calm, True)
    with Run(text, 10_000_000) as run:  # nobody comes back after its end
        for at in (3, 7, 11, 15):
            run.reach(at)
            print(f"round {run.newest}: {run.strike(rng).name} dies")
        run.reach(rounds + 4)
        wait_for(run.together, "all are in views of their stages", 60)
        check_counts(run, False)
        check_learnt(curve((calm, run), rounds, 4), 0.3)


def long_form(arguments):
    ask = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ask.add_argument("--seconds", type=float, default=600)
    ask.add_argument("--every", type=float, default=60)
    ask.add_argument("--text")
    ask = ask.parse_args(arguments)
    rng, text = random.Random(3), documents()
    if ask.text:
        with open(ask.text, encoding="ascii", errors="replace") as f:
            text = f.read().replace("\ufffd", "?")
    with Run(text, 10_000_000) as run, Run(text, 10_000_000) as calm:
        began = time.monotonic()
        for i in range(math.ceil(ask.seconds / ask.every)):
            until = min(began + (i + 1) * ask.every, began + ask.seconds)
            while time.monotonic() < until:
                run.look()
                calm.look()
                time.sleep(0.2)
            print(f"{time.monotonic() - began:.0f} s, round {run.newest} "
                  f"(without faults {calm.newest}): "
                  f"{run.strike(rng).name} dies", flush=True)
        at = run.newest
        run.reach(at + 3)
        wait_for(run.together, "all are in views of their stages", 120)
        last = run.newest
        while calm.newest < last:
            calm.look()
            run.look()
            time.sleep(0.2)
        print(f"{run.kills} kills in {time.monotonic() - began:.0f} s, "
              f"{last} rounds, {len(run.hash_of)} stages and rounds seen")
        check_counts(run, False)
        check_counts(calm, True)
        check_learnt(curve((calm, run), last, 10), 0.15)


if __name__ == "__main__":
    try:
        long_form(sys.argv[1:])
    except Failed as why:
        sys.exit(f"failed: {why}")
