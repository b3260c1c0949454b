"""program.py - a training loop in Python, with a locod of its own."""
import os
import re
import signal
import subprocess
import sys

from e2e_registry import Skipped
from swarm import BUILD, LOCO, LOCOD, ROOT, check, wait_for

EXAMPLES = os.path.join(ROOT, "deploy", "python", "examples")


def interpreter():
    """Debian's python3-numpy is of Debian's python3."""
    for path in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(path) and subprocess.run(
                [path, "-c", "import numpy"], stderr=subprocess.DEVNULL,
                check=False).returncode == 0:
            return path
    raise Skipped("no python3 here has numpy (python3-numpy)")


class Program:
    """A program, by default bigram.py, with a state directory of its own or
    that of another program; python: the interpreter, if another one."""

    def __init__(self, swarm, name, *words, program=None, state=None,
                 python=None):
        self.state = state or swarm.path(name)
        self.path = swarm.path(f"{name}.out")
        env = dict(os.environ, LOCO_STATE=self.state, LOCO_LOCOD=LOCOD,
                   LOCO_COMMAND=LOCO, PYTHONUNBUFFERED="1",
                   LOCO_LIBRARY=os.path.join(BUILD, "libloco.so.0"),
                   PYTHONPATH=os.path.dirname(EXAMPLES) + ":" + EXAMPLES)
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [python or interpreter(),
                 program or os.path.join(EXAMPLES, "bigram.py"), *words],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env=env, cwd=swarm.dir)

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

    def wait(self, seconds=120):
        wait_for(lambda: self.process.poll() is not None,
                 "the program ends", seconds)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        subprocess.run([LOCO, "drain", "--state", self.state], check=False,
                       capture_output=True, timeout=60)


def check_ends_equal(*programs):
    ends = [re.findall(r"^end .*$", p.text(), re.M)[-1] for p in programs]
    check(len(set(ends)) == 1, f"they end apart: {ends}")
