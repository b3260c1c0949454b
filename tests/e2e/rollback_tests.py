"""rollback_tests.py - a round that ruins the model, and the way back."""
import re

import checkpoints
from e2e_registry import test
from swarm import Swarm, check, wait_for


@test("a peer whose optimizer went mad ruins a round, and the others take it back",
      240)
def ruined():
    with Swarm(peers=4, rounds=100000, period=20,
               settings={"sync.rollback": 0.5}) as s:
        s.start()
        s.wait_training()
        mad = s.peers[3]
        mad.wait_round(5)
        mad.drain()
        # Each of its first steps moves every parameter by about 2.7.
        checkpoints.fill(checkpoints.newest(mad.state),
                         {"adam_u": 1000.0, "adam_v": 1.0})
        before = s.peers[0].status()["bits_per_byte"]
        mad.start("--run", s.yaml).wait_up()
        for peer in s.peers[:3]:
            peer.wait_status(lambda t: t["rollbacks"] > 0, "it takes back", 90)
        went = max(p.status()["round"] for p in s.peers[:3])
        for peer in s.peers:
            seen = peer.wait_round(went + 20, 100)
            check(seen["reason"] == "", f"{peer.name}: {seen['reason']}")
        wait_for(lambda: s.peers[0].status()["bits_per_byte"] < before + 0.3,
                 lambda: f"{before} bits per byte before, "
                         f"{s.peers[0].status()['bits_per_byte']} after")
        log = s.peers[0].log()
        worse = re.search(r"the model is worse after round (\d+): .* is "
                          r"([\d.]+|no number), ([\d.]+) bits", log)
        check(worse, f"no word of it: {log[-1500:]}")
        check(f"takes back what came after round {int(worse[1]) - 1}" in log,
              log[-1500:])
        check("cannot" not in log and "failed" not in log, log[-1500:])
