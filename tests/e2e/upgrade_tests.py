"""upgrade_tests.py - this version beside the one before: a rolling upgrade.

LOCO_OLD_BUILD names a build directory of the version before (loco, locod), of
the same PROTO_VERSION (another one is refused in the handshake). Without it
there is nothing to meet, and the test is skipped by name.
"""
import os

import swarm
from e2e_registry import Skipped, test
from swarm import Swarm, check


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


@test("daemons of the version before and of this one train together, and each "
      "is replaced by the other", 300)
def rolling():
    old = os.environ.get("LOCO_OLD_BUILD")
    if not old:
        raise Skipped("no build of the version before (LOCO_OLD_BUILD=DIR)")
    with Version(old):  # the run is of the old version
        s = Swarm(peers=3, rounds=100000, min_peers=3)
    with s:
        with Version(old):
            first = s.peer().start("--run", s.yaml).wait_up()
            second = s.peer().start("--join", s.uri()).wait_up()
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
        with Version(old):
            second.start("--join", s.uri(third)).wait_up()
        at = third.status()["round"]
        second.wait_round(at + 2)
        done = [peer.status() for peer in s.peers]
        check(all(t["fork"] is False for t in done), "a fork")
