"""soak.py - eight daemons, one of them killed and started again every 10 s.

What must hold, looked at all the time: a round that somebody committed has one
hash on all peers and is never taken back; at the end all are in one view, with
equal hashes. Nothing leaks: files of a state directory, threads and
descriptors are bounded, in the survivors as in those that came back.

LOCO_SOAK_S: how long (60 s; 1800 in the long form of tests/run.sh).
"""
import os
import random
import time

from e2e_registry import test
from swarm import SCALE, Swarm, check, wait_for

PEERS = 8
SECONDS = int(os.environ.get("LOCO_SOAK_S", "60"))
EVERY_S = 10
FILES = {"identity.key", "lock", "control", "run.manifest", "peers",
         "view.chain", "view.record", "incoming.state", "shards", "rounds",
         "checkpoints", "traffic"}


class Ledger:
    """Which hash each round has, and how far the run has come."""

    def __init__(self):
        self.hash_of = {}
        self.newest = 0

    def note(self, peer, status):
        if not status or not status["params_hash"] or status["round"] == 0:
            return
        number, own = status["round"], status["params_hash"]
        known = self.hash_of.setdefault(number, own)
        check(known == own, f"round {number} is {own[:16]} on {peer.name} and "
              f"{known[:16]} elsewhere")
        self.newest = max(self.newest, number)


def process(peer):
    """(threads, descriptors) of a daemon."""
    base = f"/proc/{peer.process.pid}"
    return len(os.listdir(base + "/task")), len(os.listdir(base + "/fd"))


def check_files(peer):
    names = set(os.listdir(peer.state))
    stray = {n for n in names - FILES if not n.endswith(".tmp")}
    check(not stray, f"{peer.name} has left {stray}")
    kept = os.listdir(os.path.join(peer.state, "checkpoints"))
    check(len([n for n in kept if not n.endswith(".tmp")]) <= 3 and
          len(kept) <= 4, f"{peer.name} keeps {kept}")
    kept = os.listdir(os.path.join(peer.state, "rounds"))
    check(len(kept) <= 17, f"{peer.name} keeps {len(kept)} rounds")


def together(peers, ledger):
    """All in one view that is no fork, and their hashes were equal."""
    seen = [p.status() for p in peers]
    for peer, status in zip(peers, seen):
        ledger.note(peer, status)
    return all(t and not t["fork"] and t["peers_in_round"] == len(peers)
               for t in seen)


def strike(s, rng, ledger):
    victim = rng.choice(s.peers)
    others = [p for p in s.peers if p is not victim]
    before = ledger.newest
    victim.kill()
    time.sleep(rng.random() * 2)  # how long it is away is part of the fault
    victim.start("--join", s.uri(rng.choice(others))).wait_up()
    return before


@test(f"eight daemons for {SECONDS} s, one killed every {EVERY_S} s: no round "
      "is lost, nothing leaks", SECONDS + 300)
def soak():
    rng = random.Random(7)
    ledger = Ledger()
    kills = 0
    with Swarm(peers=PEERS, rounds=1_000_000, period=30, min_peers=5) as s:
        s.start()
        wait_for(lambda: together(s.peers, ledger), "all are in one view", 120)
        first = [process(p) for p in s.peers]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            strike(s, rng, ledger)
            kills += 1
            until = min(end, time.monotonic() + EVERY_S * SCALE)
            while time.monotonic() < until:
                for peer in s.peers:
                    ledger.note(peer, peer.status())
        reached = ledger.newest
        wait_for(lambda: together(s.peers, ledger) and
                 ledger.newest > reached, "all are in one view again", 120)
        print(f"{kills} kills, {ledger.newest} rounds, "
              f"{len(ledger.hash_of)} of them seen, "
              f"threads and descriptors {[process(p) for p in s.peers]}",
              flush=True)
        for peer, (threads, files) in zip(s.peers, first):
            now = process(peer)
            check(now[0] <= threads + 2, f"{peer.name}: {now[0]} threads, "
                  f"{threads} at first")
            check(now[1] <= files + 40, f"{peer.name}: {now[1]} descriptors, "
                  f"{files} at first")
            check_files(peer)
