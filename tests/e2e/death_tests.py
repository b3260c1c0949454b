"""death_tests.py - kill -9, SIGSTOP, and who comes back; see e2e.py."""
import os
import random
import signal
import time

from e2e_registry import test
from swarm import LOCO, PACED, Swarm, check, check_lost, run, wait_for

FREEZE_S = 20


def kill_one(index, at_round):
    with Swarm(rounds=40) as s:
        s.start()
        s.wait_training()
        if at_round:
            s.peers[index].wait_round(at_round)
        victim = s.peers[index]
        victim.kill()
        rest = [p for p in s.peers if p is not victim]
        check_lost(rest, victim)
        s.wait_finished(rest)


@test("kill -9 of the first peer in round 1: the other three finish equal")
def kill_first():
    kill_one(0, 0)


@test("kill -9 of the second peer later: the other three finish equal")
def kill_second():
    kill_one(1, 3)


@test("kill -9 of the third peer later: the other three finish equal")
def kill_third():
    kill_one(2, 7)


@test("kill -9 of the fourth peer at a random moment: the rest finish equal")
def kill_fourth():
    seed = random.randrange(1 << 30)
    at_round = random.Random(seed).randrange(1, 20)
    print(f"moment: round {at_round}")
    kill_one(3, at_round)


def butterfly_kill(wire, index, at_round, **settings):
    """As kill_one, where the wire type needs a butterfly."""
    values = {"sync.wire": wire,
              **{f"sync.{k}": v for k, v in settings.items()}}
    with Swarm(rounds=25, settings=values.items()) as s:
        shown = run(LOCO, "run", "show", s.yaml).stdout
        check("butterfly" in shown, f"run show does not name it:\n{shown}")
        s.start()
        s.wait_training()
        s.peers[index].wait_round(at_round)
        victim = s.peers[index]
        victim.kill()
        rest = [p for p in s.peers if p is not victim]
        check_lost(rest, victim)
        for status in s.wait_finished(rest):
            check(status["bits_per_byte"] < 7, "nothing was learnt")


@test("int8 takes the butterfly by itself: kill -9 of one of four, equal hashes",
      smoke=True)
def butterfly_int8():
    butterfly_kill("int8", 1, 3)


@test("E3M0 with error feedback and norm clip: kill -9 of one, equal hashes")
def butterfly_e3m0():
    butterfly_kill("e3m0", 3, 4, error_feedback="true", norm_clip=3,
                   robust="clip")


@test("int2 with error feedback: kill -9 of one of four, equal hashes")
def butterfly_int2():
    butterfly_kill("int2", 2, 3, error_feedback="true")


@test("sparse with error feedback: kill -9 of one of four, equal hashes")
def butterfly_sparse():
    butterfly_kill("sparse", 2, 3, error_feedback="true")


@test("fp16 by a butterfly around a centre: kill -9 of the first, equal hashes")
def butterfly_fp16():
    butterfly_kill("fp16", 0, 2, topology="butterfly", norm_clip=1,
                   robust="centred")


@test("a peer frozen for 20 s is named, and catches up when it wakes", 240)
def freeze():
    with Swarm(rounds=60, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        victim, rest = s.peers[3], s.peers[:3]
        victim.wait_round(2)
        began = time.monotonic()
        victim.signal(signal.SIGSTOP)
        check_lost(rest, victim)
        ahead = rest[0].status()["round"] + 1
        rest[0].wait_round(ahead)
        # The fault itself lasts this long: not a wait for a condition.
        time.sleep(max(0, FREEZE_S - (time.monotonic() - began)))
        victim.signal(signal.SIGCONT)
        s.wait_finished(seconds=180)


@test("two peers of which one dies: the other goes on by the rules")
def one_of_two():
    with Swarm(peers=2, rounds=40) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        survivor, victim = s.peers[0], s.peers[1]
        victim.kill()
        status = survivor.wait_state("finished", seconds=90)
        # Half and half: the side with the lowest id is the run, the other
        # side waits and goes on as a fork.
        lowest = survivor.peer_id()["peer_id"] < victim.peer_id()["peer_id"]
        check(status["fork"] is not lowest,
              f"fork is {status['fork']}, lowest id survived: {lowest}")
        check(status["round"] == 40, f"round {status['round']}")


@test("a lone survivor of four waits, says it is a fork, and finishes")
def lone_survivor():
    with Swarm(rounds=40) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        for victim in s.peers[1:]:
            victim.kill()
        status = s.peers[0].wait_state("finished", seconds=90)
        check(status["fork"] is True, "it does not say that it is a fork")
        check(status["round"] == 40, f"round {status['round']}")


@test("a killed peer that starts again on its state ends with the same hash",
      240, smoke=True)
def restart():
    with Swarm(rounds=30, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        victim, rest = s.peers[2], [s.peers[i] for i in (0, 1, 3)]
        victim.wait_round(3)
        victim.kill()
        check_lost(rest, victim)
        victim.start("--join", s.uri(), *PACED).wait_up()
        s.wait_finished()
        check(victim.status()["rounds_committed"] > 0,
              "it took part in no round after its return")


@test("the first peer, killed and started again, ends with the same hash",
      240)
def restart_first():
    with Swarm(rounds=30, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        victim = s.peers[0]
        victim.wait_round(3)
        victim.kill()
        check_lost(s.peers[1:], victim)
        victim.start("--join", s.uri(s.peers[1]), *PACED).wait_up()
        s.wait_finished()


@test("a peer whose bootstrap is gone for good comes back by its peers cache",
      240)
def restart_by_cache():
    with Swarm(rounds=30, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        first, victim, rest = s.peers[0], s.peers[2], [s.peers[1], s.peers[3]]
        victim.wait_round(3)
        wait_for(lambda: os.path.exists(os.path.join(victim.state, "peers")),
                 "the peers cache is written")
        uri = s.uri(first)
        first.kill()
        check_lost([*rest, victim], first)
        victim.kill()
        check_lost(rest, victim)
        victim.start("--join", uri, *PACED).wait_up()
        s.wait_finished([*rest, victim])
        check(victim.status()["rounds_committed"] > 0,
              "it took part in no round after its return")


@test("all peers come back after the end of the run, one of them from the "
      "middle of it: that one takes the end", 240)
def back_after_the_end():
    with Swarm(peers=3, rounds=12, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        late, rest = s.peers[2], s.peers[:2]
        late.wait_round(3)
        late.kill()
        ends = s.wait_finished(rest)
        for peer in rest:
            peer.kill()
        rest[0].start("--run", s.yaml).wait_up()
        rest[1].start("--join", s.uri()).wait_up()
        late.start("--run", s.yaml).wait_up()  # it knows where they were
        back = s.wait_finished()
        check(back[0]["params_hash"] == ends[0]["params_hash"],
              "it is another end than that of before")


@test("a fifth peer that joins half way ends with the same hash", 240)
def fifth():
    with Swarm(rounds=30, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        s.peers[0].wait_round(10)
        late = s.peer().start("--join", s.uri(s.peers[1]),
                              *PACED).wait_up()
        s.wait_finished()
        check(late.status()["rounds_committed"] > 0,
              "it took part in no round")
