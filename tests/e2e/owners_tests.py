"""owners_tests.py - runs whose members own slices of the parameters
(sync.topology owners, p2p/OWNERS.md), in real daemons; see e2e.py.
"""
import json

from e2e_registry import test
from swarm import LOCO, Swarm, check, check_lost, run

SETTINGS = {"sync.topology": "owners", "sync.outer_lr": 0.7,
            "sync.outer_momentum": 0.9}


def swarm(rounds, peers=3, **settings):
    return Swarm(peers=peers, rounds=rounds, period=60, sync="async-dn",
                 settings={**SETTINGS, **settings})


def wait_ended(s, peers=None):
    """All report `finished`, the same bits, and enough cycles."""
    peers = s.peers if peers is None else peers
    done = [p.wait_state("finished", seconds=120) for p in peers]
    hashes = {d["params_hash"] for d in done}
    check(len(hashes) == 1 and None not in hashes,
          f"the parameters differ: {hashes}")
    check(all(d["round"] >= s.rounds for d in done),
          f"rounds {[d['round'] for d in done]}, not {s.rounds}")
    check(all(d["replicas_equal"] for d in done), "replicas_equal is false")
    return done


@test("owners of slices: three daemons train, one killed -9 comes back, and all "
      "end with the same bits", 240)
def kill_and_return():
    with swarm(60) as s:
        s.start()
        before = s.peers[0].wait_round(3)
        check(not before["replicas_equal"], "replicas_equal is true")
        victim = s.peers[2]
        victim.kill()
        check_lost(s.peers[:2], victim)
        at = max(p.status()["round"] for p in s.peers[:2])
        s.peers[0].wait_round(at + 1)  # two go on
        victim.start("--join", s.uri()).wait_up()
        victim.wait_status(lambda x: x["rounds_committed"] > 0,
                           "its tasks count again")
        done = wait_ended(s)
        check(done[0]["bits_per_byte"] < done[0]["bits_per_byte_before"] - 1,
              f"from {done[0]['bits_per_byte_before']} to "
              f"{done[0]['bits_per_byte']} bits per byte")
        check_exports(s)


def check_exports(s):
    """All states are one model, by the commands for it."""
    with open(s.path("text.txt"), "rb") as f:
        text = f.read()
    with open(s.path("tail.txt"), "wb") as f:
        f.write(text[-4096:])
    for peer in s.peers:
        run(LOCO, "export", "--state", peer.state, "--format", "hf", "--out",
            s.path("model-" + peer.name))
    found = [json.loads(run(LOCO, "eval", *where, "--text",
                            s.path("tail.txt"), "--json").stdout)
             for where in [("--state", p.state) for p in s.peers] +
             [("--model", s.path("model-" + p.name)) for p in s.peers]]
    bits = [f["bits_per_byte"] for f in found]
    check(max(bits) - min(bits) < 1e-6 and bits[0] < 4,
          f"bits per byte by loco eval: {bits}")


@test("owners of slices: all killed -9 and started again go on from their "
      "disks", 240)
def all_stopped():
    with swarm(60, **{"sync.error_feedback": "true",
                      "sync.wire": "int8"}) as s:
        s.start()
        for peer in s.peers:
            peer.wait_round(10)
        for peer in s.peers:
            peer.kill()
        s.peers[0].start("--run", s.yaml).wait_up()
        for peer in s.peers[1:]:
            peer.start("--join", s.uri()).wait_up()
        # Its first round in this life is what the disks had.
        first = s.peers[0].wait_status(
            lambda x: x["round"] > 0 and x["state"] != "waiting",
            "it is in a view")
        check(first["round"] >= 5, f"it goes on from round {first['round']}")
        wait_ended(s)


@test("owners of slices: a member without the others waits and says why, and "
      "goes on when they are back, or by itself when it is started again", 240)
def minority_waits():
    with swarm(400) as s:
        s.start()
        s.peers[0].wait_round(4)
        for peer in s.peers[1:]:
            peer.kill()
        alone = s.peers[0].wait_status(
            lambda x: x["state"] == "waiting", "it waits")
        check("restart" in alone["reason"] and not alone["fork"],
              f"status {alone}")
        at = alone["round"]
        s.peers[1].start("--join", s.uri()).wait_up()
        s.peers[0].wait_round(at + 3)
        # Of two, the one with the lower id may go on without the other.
        first, second = sorted(s.peers[:2],
                               key=lambda p: p.peer_id()["peer_id"])
        first.kill()
        second.wait_state("waiting")
        second.kill()
        second.start("--run", s.yaml).wait_up()
        alone = second.wait_status(lambda x: x["round"] > at + 5,
                                   "it goes on alone")
        check(alone["fork"], "what it does alone is not marked as a fork")


@test("owners of slices: who leaves and who comes, one after the other", 240)
def turnover():
    with swarm(80) as s:
        s.start()
        s.peers[0].wait_round(5)
        s.peer().start("--join", s.uri()).wait_up()
        s.peers[3].wait_status(lambda x: x["rounds_committed"] > 0,
                               "the fourth trains with them")
        s.peers[0].drain()
        check("drained" in s.peers[0].log(), s.peers[0].log())
        wait_ended(s, s.peers[1:])
