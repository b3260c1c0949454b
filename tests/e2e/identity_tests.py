"""identity_tests.py - one identity, one process, across machines. See e2e.py.

Two daemons of one machine are told apart by a name that the system knows
(daemon/state.c). Here it is held by the test, so that they meet as two machines
do: over the network alone.
"""
import shutil
import socket

from e2e_registry import test
from swarm import Swarm, check, lost_entry, wait_for


def as_elsewhere(s, identity):
    """Its state directory, copied; without what comes and goes in a run."""
    other = s.peer()
    shutil.copytree(identity.state, other.state,
                    ignore=shutil.ignore_patterns("checkpoints", "rounds",
                                                  "*.tmp", "*.sock"))
    return other


@test("a second daemon with one identity is refused and says why; the first one "
      "goes on, and its restart is let in", 240)
def twins():
    with Swarm(peers=3, rounds=1000000, period=10) as s, \
            socket.socket(socket.AF_UNIX) as held:
        s.start()
        s.wait_training()
        first, known, one = s.peers
        who = one.peer_id()
        one.kill()
        held.bind(f"\0loco-identity-{who['peer_id']}")
        # A restart at once, where nobody may know yet that it was gone.
        one.start("--join", s.uri()).wait_up()
        one.wait_status(lambda t: t["peers_in_round"] == 3, "it is in again")
        for peer in (first, known):
            peer.wait_status(lambda t: t["peers_in_round"] == 3, "all are in")
        lost = [lost_entry(p.status(), who["peer_id"])
                for p in (first, known)]

        two = as_elsewhere(s, one)
        two.start("--join", s.uri())
        two.wait_exit(5)
        said = two.log()
        check("another daemon with this identity has run for" in said and
              "[identity-twice]" in said, said)
        # Whom it met first: its copy of the state knows them all.
        met = first.log() + known.log()
        check("a second process with the identity" in met and
              "is refused" in met, met)
        check("a second process with this identity" in one.log(), one.log())

        # Its only address is the other one with its own identity.
        three = as_elsewhere(s, one)
        three.start("--join", s.uri(one))
        three.wait_exit(5)
        said = three.log()
        check("[identity-twice]" in said, said)

        # Nobody has missed the first one.
        for peer, before in zip((first, known), lost):
            status = peer.status()
            check(lost_entry(status, who["peer_id"]) == before, status)
            check(status["peers_in_round"] == 3, status)
        one.wait_round(one.status()["round"] + 2)
        check(one.process.poll() is None, one.log())

        # And when it is gone, the copy is the one that takes part.
        one.kill()
        two.start("--join", s.uri()).wait_up()
        two.wait_status(lambda t: t["peers_in_round"] == 3, "the copy is in")
        wait_for(lambda: first.status()["peers_in_round"] == 3, "of three")
        check("is refused" not in two.log(), two.log())
