"""loop_tests.py - training loops of their own beside real daemons; see e2e.py
and raw_loop.py."""
import json
import os
import signal
import subprocess
import sys

from cuda_tests import plugin
from e2e_registry import test
from swarm import Swarm, check, wait_for

RAW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "raw_loop.py")
ROUNDS, PERIOD = 8, 6


class Loop:
    """A raw_loop.py beside a peer."""

    def __init__(self, peer, *arguments):
        self.peer = peer
        self.path = f"{peer.state}.loop-{len(os.listdir(peer.swarm.dir))}"
        wait_for(lambda: os.path.exists(os.path.join(peer.state,
                                                     "trainer.sock")),
                 f"{peer.name} listens for a loop")
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, RAW, peer.state, *map(str, arguments)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        peer.swarm.others = getattr(peer.swarm, "others", []) + [self.process]

    def lines(self, key=None):
        with open(self.path, encoding="ascii") as f:
            text = f.read()
        found = [json.loads(line) for line in text.splitlines()
                 if line.startswith("{")]
        return [x[key] for x in found if key in x] if key else found

    def wait(self, key):
        def said():
            check(self.process.poll() is None or self.lines(key),
                  f"the loop ended: {self.text()}")
            return self.lines(key)
        return wait_for(said, f"the loop says {key}")

    def text(self):
        with open(self.path, encoding="ascii") as f:
            return f.read()[-800:]

    def wait_exit(self, code):
        wait_for(lambda: self.process.poll() is not None, "the loop ends")
        check(self.process.returncode == code,
              f"the loop ended with {self.process.returncode}, not {code}: "
              f"{self.text()}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


class Looped(Swarm):
    """A swarm whose members are trained by loops of their own."""

    def __init__(self, peers=3, rounds=ROUNDS, period=PERIOD, **options):
        super().__init__(peers=peers, rounds=rounds, period=period, **options)
        self.others = []

    def start(self, *arguments, listen=None):
        return super().start("--trainer", "socket", *arguments, listen=listen)

    def loops(self, *arguments):
        """One beside each, with goals 1, 2, 3 .."""
        return [Loop(p, "--goal", i + 1, *arguments)
                for i, p in enumerate(self.peers)]

    def __exit__(self, *trace):
        for process in self.others:
            if process.poll() is None:
                process.kill()
                process.wait(30)
        super().__exit__(*trace)


@test("loops of their own train three peers: equal hashes, the last average is "
      "in every loop", smoke=True)
def loops_train():
    with Looped() as s:
        s.start()
        loops = s.loops("--read")
        s.wait_finished()
        for loop in loops:  # the daemons go on: others may want the result
            loop.wait_exit(0)
            check(loop.lines("text") == ["the run has ended"], loop.text())
        last = [[x for x in loop.lines() if "take" in x][-1] for loop in loops]
        check(all(x == last[0] for x in last), f"they end apart: {last}")
        check(last[0]["take"] == ROUNDS, f"not the last round: {last}")
        # Goals 1, 2 and 3 by equal steps: their mean draws all parameters.
        check(abs(last[0]["last"] - 2) < 0.1, f"not the mean: {last}")


@test("loops of their own beside daemons with --device cuda: the GPUs are the "
      "loops'")
def loops_beside_gpus():
    with Looped(peers=2) as s:
        s.start("--device", "cuda", "--gpu-plugin", plugin(), "--gpus", "all")
        s.loops()
        s.wait_finished()


@test("kill -9 of a loop in a round: the others go on, the next loop takes over "
      "where the last commit stands")
def loop_killed():
    with Looped(rounds=30) as s:
        s.start()
        loops = s.loops("--step-s", 0.02)
        s.peers[0].wait_round(2)
        loops[1].kill()
        s.peers[1].wait_status(
            lambda st: st["reason"] == "waiting for a training loop at "
            f"{s.peers[1].state}/trainer.sock", "its status says what it "
            "waits for")
        at = s.peers[0].status()["round"]
        s.peers[0].wait_round(at + 2)  # without its work
        check("the training loop left" in s.peers[1].log(), "nobody says so")
        again = Loop(s.peers[1], "--goal", 2, "--step-s", 0.02)
        check(again.wait("take")[0] >= 2, "it begins anew")
        s.wait_finished()


@test("kill -9 of a daemon with a loop: it comes back, and so does a loop")
def daemon_killed():
    with Looped(rounds=30) as s:
        s.start()
        loops = s.loops("--step-s", 0.02)
        s.peers[2].wait_round(2)
        s.peers[2].kill()
        loops[2].wait_exit(4)
        s.peers[2].start("--join", s.uri(), "--trainer", "socket").wait_up()
        again = Loop(s.peers[2], "--goal", 3, "--step-s", 0.02)
        check(again.wait("take")[0] >= 2, "it begins anew")
        s.wait_finished()


@test("a loop that hangs, and one whose parameters become no numbers, stop "
      "nobody")
def loop_hangs():
    with Looped(rounds=12) as s:
        s.start()
        loops = [Loop(s.peers[0], "--goal", 1),
                 Loop(s.peers[1], "--goal", 2, "--hang-after", 3 * PERIOD),
                 Loop(s.peers[2], "--goal", 3, "--nan-after", 2 * PERIOD)]
        loops[1].wait("hangs")
        for p in (s.peers[0], s.peers[2]):
            p.wait_state("finished", seconds=120)
        check(any(loops[2].lines("reset")), "the third was not reset")
        check(s.peers[0].status()["params_hash"]
              == s.peers[2].status()["params_hash"], "they differ")
