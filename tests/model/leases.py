#!/usr/bin/env python3
"""The rules of p2p/LEASES.md, played: random deaths, late peers, restarts,
joiners between commits, quorums, rounds of different length.

use: leases.py [HISTORIES [SEED]]

W1  a position is spent at most once
W2  every position below `next` is spent, held by somebody, or returned
W3  nothing new is given out while something returned could be
W4  when the faults end, what was returned is spent within a few rounds
"""
import random
import sys

RANGES = 4      # of one lease
MEMBERS = 12


def take(ledger, n):
    """Rule G: n positions, what was returned first, lowest first."""
    out = []
    while n > 0 and ledger["returned"] and len(out) < RANGES - 1:
        first, size = ledger["returned"].pop(0)
        use = min(size, n)
        out.append((first, use))
        if use < size:
            ledger["returned"].insert(0, (first + use, size - use))
        n -= use
    if n > 0:
        out.append((ledger["next"], n))
        ledger["next"] += n
    return out


def give_back(ledger, ranges):
    merged = []
    for first, n in sorted(ledger["returned"] + ranges):
        if merged and merged[-1][0] + merged[-1][1] == first:
            merged[-1] = (merged[-1][0], merged[-1][1] + n)
        else:
            merged.append((first, n))
    ledger["returned"] = merged


def settle(ledger, view, plan):
    """Rule S: a commit in `view` {id: joined} of the members in `plan`."""
    spent = []
    for holder in sorted(ledger["held"]):
        if holder in view.items() and holder[0] not in plan:
            continue
        ranges = ledger["held"].pop(holder)
        if holder in view.items():
            spent += ranges
        else:
            give_back(ledger, ranges)
    return spent


def grant(ledger, view, n):
    for holder in sorted(view.items()):
        if holder not in ledger["held"]:
            new = take(ledger, n)
            left_out = bool(ledger["returned"]) and new[-1][0] + new[-1][1] \
                == ledger["next"] and len(new) < RANGES
            assert not left_out, "W3"
            ledger["held"][holder] = new


def positions(ranges):
    return {p for first, n in ranges for p in range(first, first + n)}


def check(ledger, spent):
    seen = [positions(r) for r in ledger["held"].values()]
    seen.append(positions(ledger["returned"]))
    seen.append(spent)
    assert sum(map(len, seen)) == ledger["next"], "W1, W2"
    assert set().union(*seen) == set(range(ledger["next"])), "W2"


def history(rng):
    ledger = {"next": 0, "returned": [], "held": {}}
    epoch, spent, most = 1, set(), 0
    view = {i: 1 for i in range(rng.randint(1, MEMBERS))}
    rounds = rng.randint(5, 40)
    grant(ledger, view, rng.randint(1, 9))
    for r in range(rounds + 12):
        calm = r >= rounds
        for _ in range(0 if calm else rng.randint(0, 3)):
            epoch += 1
            what = rng.random()
            who = rng.choice(sorted(view))
            if what < 0.4 and len(view) > 1:
                del view[who]                   # died, or left
            elif what < 0.6:
                view[who] = epoch               # restarted
            elif len(view) < MEMBERS:           # joined: the view grants
                view[min(set(range(MEMBERS)) - set(view))] = epoch
            if what >= 0.4:
                grant(ledger, view, rng.randint(1, 9))
        there = sorted(view)
        in_time = len(there) // 2 + 1 if not calm else len(there)
        plan = set(rng.sample(there, rng.randint(in_time, len(there))))
        new = positions(settle(ledger, view, plan))
        assert not new & spent, "W1"
        spent |= new
        grant(ledger, view, rng.randint(1, 9) if not calm else 9)
        most = max(most, len(ledger["returned"]))
        check(ledger, spent)
    assert not ledger["returned"], "W4"
    return rounds + 12, most


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    done = [history(rng) for _ in range(n)]
    print(f"{n} histories, {sum(d[0] for d in done)} commits, at most "
          f"{max(d[1] for d in done)} returned ranges at a time")


if __name__ == "__main__":
    main()
