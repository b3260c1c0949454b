"""upgrade_tests.py - this version beside the one before.

LOCO_OLD_BUILD names a build directory of the version before (loco, locod).
Without it there is nothing to meet, and the tests are skipped by name. If both
speak one version of the protocol, a swarm is upgraded peer by peer; else each
refuses the other with a sentence, and all daemons are replaced at one time.
"""
import os
import re

import swarm
from doctor_tests import Report
from e2e_registry import Skipped, test
from swarm import Swarm, check

# What this version says of the other one.
REFUSED = (r"speaks versions? [\d to]+ of the protocol, this one "
           r"versions? [\d to]+: update the older of the two")


class Version:
    """Whose programs are started from here on."""

    def __init__(self, build):
        self.build = build

    def __enter__(self):
        self.was = swarm.LOCO, swarm.LOCOD
        swarm.LOCO, swarm.LOCOD = (os.path.join(self.build, name)
                                   for name in ("loco", "locod"))

    def __exit__(self, kind, value, trace):
        swarm.LOCO, swarm.LOCOD = self.was


def old_version():
    old = os.environ.get("LOCO_OLD_BUILD")
    if not old:
        raise Skipped("no build of the version before (LOCO_OLD_BUILD=DIR)")
    return Version(old)


def refuses(s, daemon):
    """Whether that daemon speaks no version of the protocol that we do."""
    report = Report("--state", s.path("none"), "--join", s.uri(daemon))
    line = report.lines["bootstrap"]
    if line["level"] == "ok":
        return False
    report.says("bootstrap", "problem",
                r"speaks versions? [\d to]+ of the protocol, this program "
                r"versions? [\d to]+$", "Update the older of the two")
    return True


@test("daemons of the version before and of this one train together, and each "
      "is replaced by the other", 300)
def rolling():
    old = old_version()
    with old:  # the run is of the old version
        s = Swarm(peers=3, rounds=100000, min_peers=3)
    with s:
        with old:
            first = s.peer().start("--run", s.yaml).wait_up()
            second = s.peer().start("--join", s.uri()).wait_up()
        if refuses(s, first):
            raise Skipped("the two versions refuse each other: the next test")
        third = s.peer().start("--join", s.uri()).wait_up()
        for peer in s.peers:
            peer.wait_round(2)
        # One after the other goes to the new version, with its state.
        for peer, words in ((first, ["--run", s.yaml]),
                            (second, ["--join", s.uri(third)])):
            at = third.status()["round"]
            peer.drain()
            peer.start(*words).wait_up()
            peer.wait_round(at + 2)
            peer.wait_status(lambda t: t["peers_in_round"] == 3, "all three")
        # And back: what the new version wrote is read by the old one.
        second.drain()
        with old:
            second.start("--join", s.uri(third)).wait_up()
        at = third.status()["round"]
        second.wait_round(at + 2)
        done = [peer.status() for peer in s.peers]
        check(all(t["fork"] is False for t in done), "a fork")


@test("a version that speaks another protocol is refused with both versions and "
      "what to do, and a run goes on when all its daemons are replaced", 300)
def refused():
    old = old_version()
    with old:
        s = Swarm(peers=2, rounds=100000)
    with s:
        with old:
            first = s.peer().start("--run", s.yaml).wait_up()
            second = s.peer().start("--join", s.uri()).wait_up()
        if not refuses(s, first):
            raise Skipped("the two versions speak with each other: the test "
                          "before")
        for peer in (first, second):
            peer.wait_round(2)
        # A joiner of this version learns why, and disturbs nobody.
        new = s.peer().start("--join", s.uri())
        new.wait_exit(7)
        check(re.search(REFUSED, new.log()), new.log()[-500:])
        at = first.status()["round"]
        first.wait_round(at + 2)
        check(first.status()["peers_in_round"] == 2, "not the two any more")
        # All at one time, with their states.
        for peer in (first, second):
            peer.drain()
        at = max(saved_round(peer) for peer in (first, second))
        first.start("--run", s.yaml).wait_up()
        second.start("--join", s.uri()).wait_up()
        for peer in (first, second):
            peer.wait_round(at + 2)
            peer.wait_status(lambda t: t["peers_in_round"] == 2, "both")
            begun = re.search(r"view \d+: \d+ peers, round (\d+)", peer.log())
            check(begun and int(begun.group(1)) >= at, "it began anew")
            check(peer.status()["fork"] is False, "a fork")
        # A joiner of the version before is refused here, and ends, too.
        with old:
            late = s.peer().start("--join", s.uri())
            late.wait_exit(7)
        check(re.search(REFUSED, first.log()), first.log()[-500:])
        at = first.status()["round"]
        first.wait_round(at + 2)


def saved_round(peer):
    """The newest checkpoint of a daemon that was drained."""
    names = os.listdir(os.path.join(peer.state, "checkpoints"))
    rounds = [int(n) for name in names for n in re.findall(r"\d+", name)]
    check(rounds, f"no checkpoint: {names}")
    return max(rounds)
