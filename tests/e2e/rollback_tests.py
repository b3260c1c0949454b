"""rollback_tests.py - a round that ruins the model, and the way back."""
import re
import signal

import checkpoints
from e2e_registry import test
from swarm import Swarm, check, wait_for


def stop_all(s):
    """Drain them; the one with the newest state begins with its own later, who
    is behind fetches it, and no moments with it."""
    for peer in s.peers:
        peer.signal(signal.SIGTERM)
    for peer in s.peers:
        peer.wait_exit(0)
    return max(s.peers, key=lambda p: checkpoints.newest(p.state)[-20:])


def start_all(s):
    for peer in s.peers:
        peer.start("--run", s.yaml)
    for peer in s.peers:
        peer.wait_up()


def log_of(peer):
    with open(peer.log_path, encoding="utf-8") as f:
        return f.read()


@test("a peer whose optimizer went mad ruins a round, and the others take it back",
      240)
def ruined():
    with Swarm(peers=4, rounds=100000, period=20,
               settings={"sync.rollback": 0.5}) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(5)
        before = s.peers[0].status()["bits_per_byte"]
        mad = stop_all(s)
        # Each of its first steps moves every parameter by about 2.7.
        checkpoints.fill(checkpoints.newest(mad.state),
                         {"adam_u": 1000.0, "adam_v": 1.0})
        start_all(s)
        for peer in s.peers:
            peer.wait_status(lambda t: t["rollbacks"] > 0, "it takes back", 90)
        went = max(p.status()["round"] for p in s.peers)
        for peer in s.peers:
            seen = peer.wait_round(went + 20, 100)
            check(seen["reason"] == "", f"{peer.name}: {seen['reason']}")
        wait_for(lambda: s.peers[0].status()["bits_per_byte"] < before + 0.3,
                 lambda: f"{before} bits per byte before, "
                         f"{s.peers[0].status()['bits_per_byte']} after")
        log = log_of(s.peers[0])
        worse = re.search(r"the model is worse after round (\d+): .* is "
                          r"([\d.]+|no number), ([\d.]+) bits", log)
        check(worse, f"no word of it: {log[-1500:]}")
        check(f"takes back what came after round {int(worse[1]) - 1}" in log,
              log[-1500:])
        check("cannot" not in log and "failed" not in log, log[-1500:])


@test("a peer whose moments are no numbers begins its task again without them")
def no_numbers():
    with Swarm(peers=2, rounds=100000, period=20) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(3)
        mad = stop_all(s)
        checkpoints.fill(checkpoints.newest(mad.state),
                         {"adam_u": float("nan")})
        start_all(s)
        went = mad.wait_round(1)["round"]
        mad.wait_round(went + 5)
        check("it begins again (1 of 3)" in log_of(mad), mad.log()[-1500:])
        check("failed" not in log_of(mad), mad.log()[-1500:])
        check(mad.status()["reason"] == "", mad.status()["reason"])
