"""python_tests.py - the Python package and its example beside real daemons."""
import math
import os
import re
import signal
import subprocess

from e2e_registry import test
from program import Program, check_ends_equal
from swarm import LOCO, Swarm, check, run, wait_for

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


def made(s, *settings):
    """A run of the example's; (its file, its id)"""
    out = os.path.join(s.data, "bigram.yaml")
    with Program(s, "author", "--create", s.data, out, *settings) as p:
        check(p.wait() == 0, p.text())
        return out, p.text().split()[-1]


EXPORTED = """
import json, struct, sys
import numpy as np

with open(sys.argv[1] + "/model.safetensors", "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    table = np.frombuffer(f.read(), "<f4").reshape(header["table"]["shape"])
print(f"end {table.sum():.9g} {abs(table).sum():.9g}")
"""


def check_export(s, program):
    """`loco export` writes what it ended with; `loco eval` refuses it."""
    out, script = s.path("export"), s.path("exported.py")
    run(LOCO, "export", "--state", program.state, "--out", out)
    check(sorted(os.listdir(out)) == ["README.md", "model.safetensors",
                                      "tokenizer.json"], os.listdir(out))
    with open(script, "w", encoding="ascii") as f:
        f.write(EXPORTED)
    with Program(s, "exported", out, program=script) as p:
        check(p.wait() == 0, p.text())
        check_ends_equal(program, p)
    said = run(LOCO, "eval", "--state", program.state, "--text",
               s.path("text.txt"), code=3).stderr
    check("list of tensors" in said, said)


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
                check_export(s, first)


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


@test("kill -9 of a Python program: its locod waits for another one, then "
      "drains")
def program_killed():
    with Swarm(peers=1) as s:
        out, _ = made(s)
        words = ("--run", out, "--listen", "127.0.0.1:0", "--loop-grace-s", "1")
        with Program(s, "first", *words) as first:
            wait_for(lambda: "a training loop is here" in first.log(),
                     first.log)
            first.process.kill()
            wait_for(lambda: "no training loop was here for 1 s" in first.log(),
                     first.log)
            wait_for(lambda: subprocess.run(
                [LOCO, "status", "--state", first.state], check=False,
                capture_output=True, timeout=60).returncode != 0,
                "its locod has ended")


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


WAITS = """
import sys
import numpy as np
import loco

loco.PATIENCE_S = 0.2
model = {"table": np.zeros((256, 256), dtype=np.float32)}
with loco.join(None, model, run=sys.argv[1], args=sys.argv[2:]) as run:
    for batch in run.batches():
        run.step(1.0, tokens=batch.tokens.size)
"""


@test("a Python program whose step() waits is told what for")
def told_what_for():
    with Swarm(peers=1) as s:
        out, _ = made(s, "stop.rounds=100000", "round.min_peers=1")
        script = s.path("waits.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(WAITS)
        with Program(s, "alone", out, "--listen", "127.0.0.1:0",
                     program=script) as alone:
            wait_for(lambda: "round 1 committed" in alone.log(), alone.log)
            run(LOCO, "pause", "--state", alone.state)
            wait_for(lambda: "loco: step() waits, locod is paused" in alone.text(),
                     alone.text)
            run(LOCO, "resume", "--state", alone.state)
            check(alone.text().count("locod is paused") == 1, alone.text())
            rounds = alone.log().count(" committed")
            wait_for(lambda: alone.log().count(" committed") > rounds,
                     alone.log)
            alone.process.send_signal(signal.SIGINT)
            alone.wait()


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
