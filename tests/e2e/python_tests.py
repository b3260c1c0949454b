"""python_tests.py - the Python package and its example beside real daemons."""
import math
import os
import re
import signal
import subprocess
import sys

from e2e_registry import Skipped, test
from swarm import BUILD, LOCO, LOCOD, Swarm, check, run, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "deploy", "python", "examples", "bigram.py")


def interpreter():
    """Debian's python3-numpy is of Debian's python3."""
    for path in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(path) and subprocess.run(
                [path, "-c", "import numpy"], stderr=subprocess.DEVNULL,
                check=False).returncode == 0:
            return path
    raise Skipped("no python3 here has numpy (python3-numpy)")


FORK = """
import os, sys
import numpy as np
import loco

model = {"table": np.zeros((256, 256), dtype=np.float32)}
with loco.join(None, model, run=sys.argv[1], args=sys.argv[2:]) as run:
    if os.fork() == 0:
        try:
            run.step(1.0, tokens=1)
        except loco.Error as e:
            print("child:", e, flush=True)
        os._exit(0)
    os.wait()
    for batch in run.batches():
        model["table"] += 0.5
        run.step(1.0, tokens=batch.tokens.size)
print("parent:", model["table"].min(), model["table"].max(), flush=True)
"""


class Program:
    """A program, by default the example, with a state directory of its own or
    that of another program."""

    def __init__(self, swarm, name, *words, program=EXAMPLE, state=None):
        self.state = state or swarm.path(name)
        self.path = swarm.path(f"{name}.out")
        env = dict(os.environ, LOCO_STATE=self.state, LOCO_LOCOD=LOCOD,
                   LOCO_COMMAND=LOCO, PYTHONUNBUFFERED="1",
                   LOCO_LIBRARY=os.path.join(BUILD, "libloco.so.0"),
                   PYTHONPATH=os.path.join(ROOT, "deploy", "python"))
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [interpreter(), program, *words], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, env=env, cwd=swarm.dir)

    def text(self):
        with open(self.path, encoding="utf-8") as f:
            return f.read()

    def log(self):
        """Of its locod."""
        path = os.path.join(self.state, "locod.log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def port(self):
        def found():
            check(self.process.poll() is None, self.text())
            return re.search(r", port (\d+),", self.log())
        return wait_for(found, "its locod listens").group(1)

    def kill_locod(self):
        """kill -9 of the locod that has its state directory."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[0] == LOCOD and self.state in words:
                os.kill(int(pid), signal.SIGKILL)
                return
        check(False, f"no locod runs in {self.state}")

    def wait(self):
        wait_for(lambda: self.process.poll() is not None,
                 "the program ends", 120)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        subprocess.run([LOCO, "drain", "--state", self.state], check=False,
                       capture_output=True, timeout=60)


def made(s, *settings):
    """A run of the example's; (its file, its id)"""
    out = os.path.join(s.data, "bigram.yaml")
    with Program(s, "author", "--create", s.data, out, *settings) as p:
        check(p.wait() == 0, p.text())
        return out, p.text().split()[-1]


def check_ends_equal(*programs):
    ends = [re.findall(r"^end .*$", p.text(), re.M)[-1] for p in programs]
    check(len(set(ends)) == 1, f"they end apart: {ends}")


@test("two Python programs with numpy make a run of their model, train it and "
      "end with equal parameters")
def two_programs():
    with Swarm(peers=1) as s:
        out, run_id = made(s)
        check("65536 parameters in tensors" in run(LOCO, "run", "show",
                                                   out).stdout, "run show")
        with Program(s, "first", "--run", out, "--listen",
                     "127.0.0.1:0") as first:
            uri = f"loco://127.0.0.1:{first.port()}/{run_id}"
            with Program(s, "second", "--join", uri, "--listen",
                         "127.0.0.1:0") as second:
                check(second.wait() == 0, second.text()[-900:])
                check(first.wait() == 0, first.text()[-900:])
                check_ends_equal(first, second)
                losses = [float(x) for x in
                          re.findall(r"loss ([\d.]+)", first.text())]
                check(abs(losses[0] - 5.545) < 0.01, f"not from zero: {losses}")
                check(losses[-1] < 0.7 * losses[0],
                      f"nothing was learned: {losses}")
                bits = {int(n): float(x) for n, x in re.findall(
                    r"round (\d+): ([\d.]+) bits per byte of held-out",
                    first.log() + second.log())}
                check(abs(bits[0] - 8) < 0.001, f"zeros are 8 bits: {bits}")
                check(abs(bits[4] * math.log(2) - losses[-1]) < 0.5,
                      f"the end was not measured: {bits} {losses}")


@test("Ctrl-C ends a Python program, and the locod that it started")
def interrupted():
    with Swarm(peers=1) as s:
        out, _ = made(s)
        with Program(s, "alone", "--run", out, "--listen",
                     "127.0.0.1:0") as alone:
            alone.port()
            alone.process.send_signal(signal.SIGINT)
            check(alone.wait() != 0, "the interrupt was swallowed")
            check("KeyboardInterrupt" in alone.text(), alone.text()[-900:])
            wait_for(lambda: subprocess.run(
                [LOCO, "status", "--state", alone.state], check=False,
                capture_output=True, timeout=60).returncode != 0,
                "its locod has ended")


@test("kill -9 of the locod that a Python program started: it is started "
      "again, and the program goes on from the last commit")
def daemon_killed():
    with Swarm(peers=1) as s:
        out, run_id = made(s, "stop.rounds=40")
        with Program(s, "first", "--run", out, "--listen",
                     "127.0.0.1:0") as first:
            uri = f"loco://127.0.0.1:{first.port()}/{run_id}"
            with Program(s, "second", "--join", uri, "--listen",
                         "127.0.0.1:0") as second:
                wait_for(lambda: "round 2 " in second.text(),
                         second.text, 120)
                # else it could end the run before the other one is back
                run(LOCO, "pause", "--state", first.state)
                second.kill_locod()
                wait_for(lambda: "is back" in second.text(), second.text)
                run(LOCO, "resume", "--state", first.state)
                check(second.wait() == 0, second.text()[-900:])
                check(first.wait() == 0, first.text()[-900:])
                rounds = [int(x) for x in
                          re.findall(r"^round (\d+)", second.text(), re.M)]
                check(rounds == sorted(rounds) and rounds[-1] == 39,
                      f"it went back: {rounds}")
                check_ends_equal(first, second)


@test("a second Python program in the same state directory is told who trains "
      "there")
def second_program():
    with Swarm(peers=1) as s:
        out, _ = made(s)
        words = ("--run", out, "--listen", "127.0.0.1:0")
        with Program(s, "first", *words) as first:
            first.port()
            wait_for(lambda: "a training loop is here" in first.log(),
                     first.log)
            with Program(s, "other", *words, state=first.state) as other:
                check(other.wait() == 1, other.text())
                check(f"another training loop (process {first.process.pid}) "
                      "trains for this daemon" in other.text(), other.text())
            check(first.process.poll() is None, first.text())


@test("a child of fork() may not train, and its parent is not disturbed")
def forked():
    with Swarm(peers=1) as s:
        out, _ = made(s, "round.min_peers=1", "stop.rounds=2")
        program = s.path("fork.py")
        with open(program, "w", encoding="ascii") as f:
            f.write(FORK)
        with Program(s, "fork", out, "--listen", "127.0.0.1:0",
                     program=program) as p:
            check(p.wait() == 0, p.text()[-900:])
            check("child: this run was left, or this is a child of fork()"
                  in p.text(), p.text())
            check("parent: " in p.text(), p.text())
