"""join_tests.py - newcomers, what they fetch, and peers that come back."""
import os
import re
import shutil
import signal

from e2e_registry import test
from swarm import PACED, Swarm, check, wait_for

MIB = 1 << 20


def alter(path):
    """One bit of every piece, in place: the daemon has the file in memory."""
    with open(path, "r+b") as f:
        size = f.seek(0, os.SEEK_END)
        for at in range(MIB // 2, size, MIB):
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1]))


@test("a newcomer names the one of four sources that serves altered pieces",
      240)
def bad_source():
    with Swarm(rounds=200, text_bytes=12_000_000,
               settings={"eval.every_rounds": 0}) as s:
        s.start()
        s.wait_training()
        liar = s.peers[2]
        shards = os.path.join(liar.state, "shards")
        for name in os.listdir(shards):
            alter(os.path.join(shards, name))
        # Slow enough that it finds all four while it fetches.
        late = s.peer().start("--join", s.uri(s.peers[0]),
                              "--download-bytes-per-s", "2000000").wait_up()
        late.wait_round(1, seconds=120)
        log = late.log()
        named = re.findall(r"peer (\S+) served bytes that do not have the hash",
                           log)
        check(named == [liar.peer_id()["short"]],
              f"named are {named}: {log[-800:]}")
        late.wait_status(lambda t: t["rounds_committed"] > 0,
                         "it took part in a round", 120)


@test("a daemon that starts a run prints the line that others join with")
def entrance():
    line = r"join with: loco join (loco://\S+)"

    def said(peer):
        return wait_for(lambda: re.search(line, peer.log()), "it says how")

    with Swarm(peers=2, rounds=100000) as s:
        first = s.peer().start("--run", s.yaml).wait_up()
        check(said(first)[1] == s.uri(first), first.log())
        check("others on this machine" in first.log(), first.log())
        second = s.peer().start("--join", said(first)[1]).wait_up()
        second.wait_round(1)
        check(not re.search(line, second.log()), "it did not start the run")
        everywhere = s.peer().start("--run", s.yaml, "--mapping", "off",
                                    listen="0.0.0.0:0").wait_up()
        uri = said(everywhere)[1]
        check(f":{everywhere.port}" in uri and uri.endswith("/" + s.run_id),
              uri)


@test("a newcomer to an open run says that it is on probation, and counts after "
      "three rounds", 300)
def probation():
    with Swarm(peers=2, rounds=100000) as s:
        s.start(*PACED)
        s.wait_training()
        late = s.peer().start("--join", s.uri(s.peers[0]), *PACED).wait_up()
        seen = late.wait_status(lambda t: t["peers_on_probation"] == 1,
                                "it is on probation", 60)
        check(seen["peers_in_round"] == 3, f"{seen}")
        late.wait_status(lambda t: "on probation: offered work for"
                         in t["reason"], "it says so", 30)
        said = []
        late.wait_status(lambda t: said.append(t["probation"]) or
                         not t["probation"], "it says what is left", 90)
        left = [(p["offered"], p["of"]) for p in said if p]
        check(left == sorted(left) and left[-1][0] > 0 and
              {of for _, of in left} == {3}, f"{said}")
        for peer in (late, *s.peers[:2]):
            peer.wait_status(lambda t: t["peers_in_round"] == 3
                             and t["peers_on_probation"] == 0, "it counts", 90)
        check("probation is over" in late.log(), late.log()[-500:])
        # Two of three go on; of two founders one would not, or only in doubt.
        # A step that waits for a processor rests 19 times as long, too.
        s.peers[0].kill()
        went = s.peers[1].status()["round"]
        for peer in (late, s.peers[1]):
            peer.wait_round(went + 3, seconds=180)
            check(not peer.status()["fork"], "it goes on in doubt")


@test("a lone peer killed twice ends with the bits of one that was not", 240)
def same_bits():
    rounds = 40
    with Swarm(peers=1, rounds=rounds, period=20) as s:
        s.start()
        [whole] = s.wait_finished()
        first = s.peers[0]
        first.drain()
        again = s.peer()
        os.makedirs(again.state, mode=0o700)
        shutil.copy2(os.path.join(first.state, "identity.key"), again.state)
        again.start("--run", s.yaml).wait_up()
        for at in (rounds // 4, rounds // 2):
            again.wait_round(at)
            again.kill()
            again.start("--run", s.yaml).wait_up()
        [broken] = s.wait_finished([again])
        check(broken["params_hash"] == whole["params_hash"],
              "killed and started again it trained something else")


def rounds_of(peers):
    return [(p.status() or {"round": 0})["round"] for p in peers]


@test("after all were killed the newest round that one wrote goes on", 240)
def all_killed():
    with Swarm(rounds=30, period=20) as s:
        s.start(*PACED)
        s.wait_training()
        s.peers[3].wait_round(5)
        s.peers[3].kill()  # its checkpoint is older than the others'
        s.peers[0].wait_round(12)
        for peer in s.peers[:3]:
            peer.signal(signal.SIGSTOP)
        newest = 0
        for peer in s.peers[:3]:
            names = os.listdir(os.path.join(peer.state, "checkpoints"))
            held = [int(m[1]) for m in
                    (re.fullmatch(r"round-(\d+)\.safetensors", n)
                     for n in names) if m]
            newest = max([newest, *held])
            peer.kill()
        s.peers[3].start("--run", s.yaml, *PACED).wait_up()
        for peer in s.peers[:3]:
            peer.start("--run", s.yaml, *PACED).wait_up()
        for peer in s.peers:
            peer.wait_round(newest)
        s.wait_finished()


@test("a run that all left goes on from any one state directory", 240)
def any_one():
    with Swarm(peers=3, rounds=60, min_peers=2) as s:
        s.start()
        s.wait_training()
        for peer in s.peers:
            peer.wait_round(4)
        for peer in s.peers:
            peer.kill()
        keeper = s.peers[1]
        keeper.start("--run", s.yaml).wait_up()
        status = keeper.wait_status(
            lambda t: t["state"] in ("training", "averaging", "finished"),
            "it trains alone")
        check(status["round"] >= 3, f"it begins at round {status['round']}")
        late = s.peer().start("--join", s.uri(keeper)).wait_up()
        s.wait_finished([keeper, late])
        wait_for(lambda: late.status()["rounds_committed"] > 0,
                 "the newcomer took part")
