"""python_tests.py - the Python package and its example beside real daemons."""
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


class Program:
    """The example with a state directory of its own."""

    def __init__(self, swarm, name, *words):
        self.state = swarm.path(name)
        self.path = swarm.path(f"{name}.out")
        env = dict(os.environ, LOCO_STATE=self.state, LOCO_LOCOD=LOCOD,
                   LOCO_COMMAND=LOCO, PYTHONUNBUFFERED="1",
                   LOCO_LIBRARY=os.path.join(BUILD, "libloco.so.0"),
                   PYTHONPATH=os.path.join(ROOT, "deploy", "python"))
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [interpreter(), EXAMPLE, *words], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, env=env, cwd=swarm.dir)

    def text(self):
        with open(self.path, encoding="utf-8") as f:
            return f.read()

    def port(self):
        def found():
            check(self.process.poll() is None, self.text())
            path = os.path.join(self.state, "locod.log")
            if not os.path.exists(path):
                return None
            with open(path, encoding="utf-8", errors="replace") as f:
                return re.search(r", port (\d+),", f.read())
        return wait_for(found, "its locod listens").group(1)

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


def made(s):
    """A run of the example's; (its file, its id)"""
    out = os.path.join(s.data, "bigram.yaml")
    with Program(s, "author", "--create", s.data, out) as p:
        check(p.wait() == 0, p.text())
        return out, p.text().split()[-1]


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
                ends = [re.findall(r"^end .*$", p.text(), re.M)[-1]
                        for p in (first, second)]
                check(ends[0] == ends[1], f"they end apart: {ends}")
                losses = [float(x) for x in
                          re.findall(r"loss ([\d.]+)", first.text())]
                check(abs(losses[0] - 5.545) < 0.01, f"not from zero: {losses}")
                check(losses[-1] < 0.7 * losses[0],
                      f"nothing was learned: {losses}")


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
