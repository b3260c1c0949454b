"""lease_tests.py - peers share one order of the text; see p2p/LEASES.md."""
import re

from e2e_registry import test
from swarm import Swarm, check, wait_for

PERIOD = 60  # long enough to be struck in the middle of


def reads(peer):
    """Positions that its contributions read, each as often as it was read."""
    found = []
    for ranges in re.findall(r"read positions((?: \d+\+\d+)+) of the text",
                             peer.log(whole=True)):
        for first, n in re.findall(r"(\d+)\+(\d+)", ranges):
            found += range(int(first), int(first) + int(n))
    return found


def check_once(peers, but=()):
    """No position is read twice, by one or by two; `but`: by the dead."""
    seen = set(but)
    for peer in peers:
        own = reads(peer)
        twice = seen & set(own) or len(own) != len(set(own))
        check(own and not twice, f"{peer.name} read {len(own)} positions, of "
              f"them twice: {sorted(seen & set(own))[:10]}")
        seen |= set(own)
    return seen


@test("no two of three peers read the same text, and none of it is left out",
      120)
def one_order():
    rounds = 12
    with Swarm(peers=3, rounds=rounds, period=PERIOD) as s:
        s.start("--log", "debug")
        s.wait_finished()
        seen = check_once(s.peers)
        # The first view may have been of two, with one who joined.
        check(len(seen) >= rounds * PERIOD * 2, f"{len(seen)} positions")
        whole = set(range(len(seen) - 3 * PERIOD))
        check(not whole - seen, f"left out: {sorted(whole - seen)[:10]}")


@test("what a peer held that died is trained by the others", 180)
def comes_back():
    with Swarm(peers=3, rounds=100000, period=PERIOD) as s:
        s.start("--log", "debug")
        s.wait_training()
        victim = s.peers[1]

        def in_the_middle():
            status = victim.status() or {}
            step = status.get("inner_step", 0) % PERIOD
            return (status.get("state") == "training" and
                    status.get("round", 0) >= 3 and
                    PERIOD // 4 < step < PERIOD // 2)

        wait_for(in_the_middle, "the victim is in the middle of its steps", 60)
        victim.kill()
        rest = [p for p in s.peers if p is not victim]
        dead = set(reads(victim))
        at = max(p.status()["round"] for p in rest)
        for peer in rest:
            peer.wait_round(at + 5)
        seen = dead.union(*(reads(p) for p in rest))
        held = set(range(max(seen) - 3 * PERIOD)) - seen
        check(0 < len(held) <= PERIOD, f"it held {len(held)} positions")
        # Nine commits without it, and one round for who gets it then.
        for peer in rest:
            peer.wait_round(at + 14)
        left = held.difference(*(reads(p) for p in rest))
        check(not left, f"nobody trained {sorted(left)[:10]}")
        check_once(rest)
