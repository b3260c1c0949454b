"""lease_tests.py - peers share one order of the text; see p2p/round/LEASES.md."""
import os
import re
import time

from e2e_registry import test
from swarm import LOCO, SCALE, Swarm, check, run, wait_for

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


def shards_here(peer):
    shards = (peer.status() or {}).get("shards") or {"here": 0, "of": 1}
    return shards["here"], shards["of"]


SHARD_BYTES = 2_000_000  # of 24 of 48 MB of text


def line_for(s):
    """Bytes a second with which a shard takes half of a round, however fast this
    machine trains: all of the data twelve rounds."""
    peer = s.peers[0]
    first = peer.status()["round"] + 1
    peer.wait_round(first)
    began = time.monotonic()
    peer.wait_round(first + 3)
    round_s = (time.monotonic() - began) / 3
    return max(int(2 * SHARD_BYTES / round_s), 100_000 // SCALE)


def on_disk(peer):
    """Files of the data that are whole in its state directory."""
    return {name for _, _, names in os.walk(peer.state) for name in names
            if name.endswith(".ltk")}


@test("a newcomer trains while most of its data shards still come, also after "
      "SIGKILL", 700)
def late_shards():
    with Swarm(peers=2, rounds=100000, period=20 * PERIOD, shards=24,
               text_bytes=48_000_000) as s:
        s.start("--log", "debug")
        s.wait_training()
        line = ("--download-bytes-per-s", str(line_for(s)), "--log", "debug")
        late = s.peer().start("--join", s.uri(), *line).wait_up()
        wait_for(lambda: reads(late), "the newcomer reads text", 200)
        here, of = shards_here(late)
        check(of == 25 and here < of, f"{here} of {of} files are here")
        text = run(LOCO, "status", "--state", late.state).stdout
        check(re.search(r"shards +\d+ of 25 are here", text), text)

        late.kill()
        before, n = on_disk(late), len(reads(late))
        check(2 <= len(before) < of, f"on its disk: {before}")
        late.start("--join", s.uri(), *line).wait_up()
        wait_for(lambda: len(reads(late)) > n, "it reads text again", 200)
        here, of = shards_here(late)
        check(len(before) <= here < of, f"{before}, then {here} of {of}")

        late.kill()
        late.start("--join", s.uri(), "--log", "debug").wait_up()
        wait_for(lambda: shards_here(late)[0] == of, "all shards are here", 100)
        n = len(reads(late))
        wait_for(lambda: len(reads(late)) > n, "and it trains", 200)
        # What a killed process had read, and no commit has, it reads again.
        check_once([p for p in s.peers if p is not late])
        check("not found" not in late.log(whole=True), "a shard was missed")
