"""audit_tests.py - members that sum wrong, or whose work is made up, in real
daemons.

The liar is locod with functions that lie (liar.c). It also looks at work more
often than one round in twenty, where it is asked to.
"""
import glob
import json
import os
import signal

from crowd import REFERENCE
from e2e_registry import test
from swarm import BUILD, LOCO, Swarm, check, prose, run, wait_for

LIAR = os.path.join(BUILD, "tests", "locod_liar")
AUDITED = {"sync.robust": None, "sync.audit": None}  # as `run create` chooses


def audits(peer):
    return (peer.status() or {}).get("audits") or {}


def evidence_of(peer):
    return glob.glob(os.path.join(peer.state, "evidence", "*.evidence"))


def verdict(path, code=0):
    return run(LOCO, "verify", "--evidence", path, "--json", code=code).stdout


def check_evidence(s, peer, liar, finding="differs"):
    """What the peer wrote down convicts the liar, whoever reads it, and no
    byte of it can be another."""
    wait_for(lambda: evidence_of(peer), f"{peer.name} writes evidence")
    path = evidence_of(peer)[0]
    found = json.loads(verdict(path))
    check(found["peer_id"] == liar.peer_id()["peer_id"], f"accused: {found}")
    check(found["run_id"] == s.run_id, f"run: {found}")
    check(found["finding"] == finding, f"finding: {found}")
    with open(path, "rb") as f:
        data = bytearray(f.read())
    altered = s.path("altered.evidence")
    for at in range(0, len(data), len(data) // 40):
        data[at] ^= 4
        with open(altered, "wb") as f:
            f.write(data)
        verdict(altered, code=1)
        data[at] ^= 4


def in_view(peer, other):
    said = json.loads(run(LOCO, "peers", "--state", peer.state,
                          "--json").stdout)
    return next((p["in_view"], p["convicted"]) for p in said["peers"]
                if p["peer_id"] == other.peer_id()["peer_id"])


@test("a member that sums wrong is convicted by all others, with evidence, and "
      "stays out", 240)
def wrong_sums():
    with Swarm(peers=4, rounds=100000, period=20, settings=AUDITED) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(3)
        check(audits(s.peers[0])["wrong"] == 0, "nobody lies yet")
        liar = s.peers[3]
        liar.kill()
        s.peers[0].wait_status(lambda t: t["peers_in_round"] == 3, "it is gone")
        liar.start("--join", s.uri(), program=LIAR,
                   env={"LOCO_LIES": "1"}).wait_up()
        honest = s.peers[:3]
        for peer in honest:
            peer.wait_status(lambda t: t["audits"]["convicts"] == 1,
                             "it convicts the liar", 100)
            peer.wait_status(lambda t: t["peers_in_round"] == 3,
                             "the liar is out")
            check_evidence(s, peer, liar)
        went = max(p.status()["round"] for p in honest)
        for peer in honest:
            seen = peer.wait_round(went + 5)
            check(seen["peers_in_round"] == 3, f"{peer.name}: {peer.brief()}")
            check(in_view(peer, liar) == (False, True), f"{peer.name}: peers")
            for other in honest:
                check(other is peer or in_view(peer, other) == (True, False),
                      f"{peer.name} about {other.name}")
        honest[1].kill()
        honest[1].start("--join", s.uri()).wait_up()
        check("is evidence against" in honest[1].log(), honest[1].log()[-900:])
        honest[1].wait_round(went + 8)
        check(audits(honest[1])["convicts"] == 1, "it knows after a restart")
        liar.signal(signal.SIGTERM)


def made_without_one(peer):
    """Whether a round was committed by all members of the view but one."""
    said = json.loads(run(LOCO, "rounds", "--state", peer.state,
                          "--json").stdout)
    return any(r["outcome"] == "committed" and r["members_in_view"] == 4 and
               r["members_in_plan"] == 3 for r in said["rounds"])


@test("a member that sums wrong, and serves its contribution to nobody, is left "
      "out of rounds", 240)
def mute():
    # In shorter rounds a commit comes before anybody is known to be silent.
    with Swarm(peers=4, rounds=100000, period=400, settings=AUDITED) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        liar = s.peers[3]
        liar.kill()
        s.peers[0].wait_status(lambda t: t["peers_in_round"] == 3, "it is gone")
        liar.start("--join", s.uri(), program=LIAR,
                   env={"LOCO_LIES": "1", "LOCO_MUTE": "1"}).wait_up()
        honest = s.peers[:3]
        honest[0].wait_status(lambda t: t["peers_in_round"] == 4, "it is back")
        for peer in honest:
            peer.wait_status(lambda t: t["audits"]["silent"] > 0,
                             "it finds the liar silent", 100)
        wait_for(lambda: made_without_one(honest[0]),
                 "a round is made without the liar", 60)
        for peer in honest:
            check(in_view(peer, liar) == (True, False),
                  f"{peer.name}: it is no more than left out")
            check(audits(peer)["convicts"] == 0, f"{peer.name}: convicts")
        liar.signal(signal.SIGTERM)


@test("a member whose contributions go the other way is named by the others, "
      "and left out of rounds", 240)
def astray():
    with Swarm(peers=4, rounds=100000, period=20, settings=AUDITED) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        liar, honest = s.peers[3], s.peers[:3]
        liar.kill()
        s.peers[0].wait_status(lambda t: t["peers_in_round"] == 3, "it is gone")
        liar.start("--join", s.uri(), program=LIAR,
                   env={"LOCO_WORK": "back"}).wait_up()
        honest[0].wait_status(lambda t: t["peers_in_round"] == 4, "it is back")
        for peer in honest[:2]:
            peer.wait_status(lambda t: t["strays"]["named"] > 0,
                             "it names the liar", 150)
        wait_for(lambda: made_without_one(honest[0]),
                 "a round is made without the liar", 60)
        for peer in honest:
            check(peer.status()["strays"]["named"] <= 1,
                  f"{peer.name} names honest members")
            check(in_view(peer, liar) == (True, False),
                  f"{peer.name}: it is no more than left out")
        check("goes another way" in honest[0].log(), honest[0].log()[-900:])
        liar.signal(signal.SIGTERM)


@test("members of a run with audits repeat sums of each other, and find none "
      "wrong")
def right_sums():
    with Swarm(peers=4, rounds=25, period=10,
               settings={**AUDITED, "sync.wire": "e3m0",
                         "sync.error_feedback": "true"}) as s:
        s.start()
        s.wait_finished()
        for peer in s.peers:
            a = audits(peer)
            check(a["sums"] > 0 and a["wrong"] == 0 and a["convicts"] == 0,
                  f"{peer.name}: {a}")
            check(not evidence_of(peer), f"{peer.name} has evidence")
            seen = peer.status()["strays"]["seen"]
            check(seen == 0, f"{peer.name}: {seen} members stray")


# ---- work -----------------------------------------------------------------

def worked_on(**settings):
    """Rounds of about a second: what is asked for comes within one."""
    return Swarm(peers=4, rounds=100000, period=150, text=prose(2_000_000),
                 settings={**AUDITED, "sync.audit": "work", **settings})


def start_all(s, kinds=({},) * 4):
    """Members that look at others' work in every third round or so."""
    for i, env in enumerate(kinds):
        s.peer().start(*(("--join", s.uri()) if i else ("--run", s.yaml)),
                       "--log", "debug", program=LIAR,
                       env={"LOCO_EVERY": "3", **env}).wait_up()
    s.wait_training()


def made_up(kind):
    """A member begins to make its work up, as liar.c says, and is out."""
    with worked_on() as s:
        start_all(s)
        s.peers[0].wait_round(3)
        liar, honest = s.peers[3], s.peers[:3]
        liar.kill()
        s.peers[0].wait_status(lambda t: t["peers_in_round"] == 3, "it is gone")
        liar.start("--join", s.uri(), program=LIAR,
                   env={"LOCO_EVERY": "3", "LOCO_WORK": kind}).wait_up()
        for peer in honest:
            peer.wait_status(lambda t: t["audits"]["convicts"] == 1,
                             "it convicts the liar", 150)
            wait_for(lambda p=peer: in_view(p, liar) == (False, True),
                     f"{peer.name}: the liar is out")
            for other in honest:
                check(other is peer or in_view(peer, other) == (True, False),
                      f"{peer.name} about {other.name}")
        went = max(p.status()["round"] for p in honest)
        for peer in honest:
            seen = peer.wait_round(went + 3)
            check(seen["peers_in_round"] == 3, f"{peer.name}: {peer.brief()}")
            check_evidence(s, peer, liar, "bad-work")
        forget_all(s, honest, liar)
        liar.signal(signal.SIGTERM)


def forget_all(s, honest, liar):
    """One after the other dies and comes back; the liar wants in all the
    time."""
    for i, peer in enumerate(honest):
        peer.kill()
        peer.start("--join", s.uri(honest[i - 1]), program=LIAR,
                   env={"LOCO_EVERY": "3"}).wait_up()
        check("is evidence against" in peer.log(), peer.log()[-900:])
        peer.wait_status(lambda t: t["peers_in_round"] == 3, "it is back")
    went = max(p.status()["round"] for p in honest)
    for peer in honest:
        peer.wait_round(went + 3)
        check(audits(peer)["convicts"] == 1, f"{peer.name} knows it")
        check(in_view(peer, liar) == (False, True), f"{peer.name}: it is in")


@test("a member that trains on other text than that of its lease is convicted "
      "by all others, who make its work again", 400)
def other_text():
    made_up("text")


@test("a member that makes half of its steps is convicted by all others, who "
      "make its work again", 400)
def half_the_steps():
    made_up("half")


@test("members on kernels of two kinds make work of each other again and find "
      "none of it bad", 300)
def honest_work():
    # All wait for plain loops, which take several times as long: work that is
    # late is dropped, and who is in no plan looks at nobody.
    with worked_on(**{"sync.wire": "e3m0", "sync.period": 40,
                      "round.grace_ms": 30000}) as s:
        start_all(s, ({}, REFERENCE, {}, {"LOCO_EVERY": "1"}))
        for peer in s.peers:
            peer.wait_status(lambda t: t["audits"]["leases"] >= 3,
                             "it made three leases again", 150)
        for peer in s.peers:
            a = audits(peer)
            check(a["bad"] == 0 and a["convicts"] == 0, "\n".join(
                [f"{peer.name}: {a}"] + [x for x in peer.log(True).splitlines()
                                         if " again: " in x or "work" in x]))


@test("a run whose members make each other's work again takes no training loop "
      "of another process, and says so")
def no_other_loop():
    with worked_on() as s:
        peer = s.peer().start("--run", s.yaml, "--trainer", "socket")
        check(peer.process.wait(60) != 0, "it refuses the run")
        check("only that of locod's own trainer can be: set trainer to auto"
              in peer.log(), peer.log())
