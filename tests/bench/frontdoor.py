"""frontdoor.py - one PyTorch loop as a peer of loco, torchft and hivemind.

use: frontdoor.py [--build DIR] [--python EXE] [--json FILE] CASE...
     CASE  sync   seconds to synchronise 64 Mi fp32 parameters of two peers
           train  tokens a second of two peers, GPT-2, period 20
           death  kill -9 of one of two: what the other one sees

EXE has torch, torchft and hivemind; a system that it lacks is skipped by name.
Both peers are on this machine, one thread each, over loopback; systems in
turns. A sync's seconds: those of a round, less its steps at their median. Its
copies: what it costs the program's process on a processor, in copies of that
many numbers.
"""
import argparse
import difflib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LOOPS = os.path.join(HERE, "frontdoor")
PYTHON = os.path.join(ROOT, "deploy", "python")
SYSTEMS = {  # program, wire, encrypted
    "loco, fp32": ("with_loco", "fp32", False),
    "loco, fp32, encrypted": ("with_loco", "fp32", True),
    "loco, fp16": ("with_loco", "fp16", False),
    "loco, fp16, encrypted": ("with_loco", "fp16", True),
    "torchft, fp32": ("with_torchft", "fp32", False),
    "hivemind, fp32": ("with_hivemind", "fp32", True),
    "hivemind, fp16": ("with_hivemind", "fp16", True),
}
NEEDS = {"with_torchft": "torchft", "with_hivemind": "hivemind"}
CASES = {  # model, rounds, period, systems
    "sync": ("flat", 12, 4, list(SYSTEMS)),
    "train": ("gpt2", 6, 20, ["plain", "loco, fp16, encrypted", "torchft, fp32",
                              "hivemind, fp16"]),
    "death": ("gpt2", 12, 20, ["loco, fp16, encrypted", "torchft, fp32",
                               "hivemind, fp16"]),
}
TOKENS = 8 * 128  # a step


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Bench:
    def __init__(self, args, case, system, folder):
        self.model, self.rounds, self.period, _ = CASES[case]
        self.program, self.wire, self.encrypted = SYSTEMS.get(
            system, ("plain", "fp32", False))
        self.args, self.folder, self.processes = args, folder, []
        self.env = dict(
            os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1",
            PYTHONPATH=":".join((PYTHON, os.path.join(PYTHON, "examples"))),
            LOCO_LIBRARY=os.path.join(args.build, "libloco.so.0"),
            LOCO_COMMAND=os.path.join(args.build, "loco"),
            LOCO_LOCOD=os.path.join(args.build, "locod"),
            BENCH_MODEL=self.model, BENCH_ROUNDS=str(self.rounds),
            BENCH_PERIOD=str(self.period), BENCH_WIRE=self.wire,
            BENCH_FOLDER=folder,
            BENCH_PEERS_LEAST="1" if case == "death" else "2")

    def start(self, name, *command, **env):
        path = os.path.join(self.folder, name + ".out")
        with open(path, "wb") as out:
            self.processes.append(subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env=dict(self.env, **env), cwd=self.folder,
                start_new_session=True))
        return path

    def make_run(self):
        off = not self.encrypted
        out = os.path.join(self.folder, "run.yaml")
        made = subprocess.run(
            [self.args.python, "-c", MAKE, out, self.wire,
             "off" if off else "on"], check=True, cwd=self.folder,
            env=dict(self.env, BENCH_RANK="0",
                     PYTHONPATH=self.env["PYTHONPATH"] + ":" + LOOPS),
            capture_output=True, text=True)
        self.port, self.words = free_port(), "--encryption=off" if off else ""
        self.uri = f"loco://127.0.0.1:{self.port}/{made.stdout.split()[-1]}"

    def of_rank(self, rank):
        env = {"BENCH_RANK": str(rank)}
        if self.program == "with_loco":
            port = self.port if rank == 0 else 0
            env["BENCH_ARGS"] = f"{self.words} --listen 127.0.0.1:{port}"
            env["LOCO_STATE"] = os.path.join(self.folder, f"state-{rank}")
            env["BENCH_URI" if rank else "BENCH_RUN"] = (
                self.uri if rank else os.path.join(self.folder, "run.yaml"))
        elif self.program == "with_torchft":
            env["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{self.port}"
        return env

    def begin(self):
        """Paths of what the two programs print."""
        if self.program == "with_loco":
            self.make_run()
        if self.program == "with_torchft":
            self.port = free_port()
            self.start("lighthouse", os.path.join(
                os.path.dirname(self.args.python), "torchft_lighthouse"),
                "--bind", f"127.0.0.1:{self.port}", "--min_replicas",
                self.env["BENCH_PEERS_LEAST"], "--join_timeout_ms", "1000")
        return [self.start(f"rank-{r}", self.args.python, os.path.join(
            LOOPS, self.program + ".py"), **self.of_rank(r)) for r in (0, 1)]

    def end(self):
        """With the processes that a program started."""
        for p in self.processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait(30)
        for r in (0, 1):
            subprocess.run([self.env["LOCO_COMMAND"], "drain", "--state",
                            os.path.join(self.folder, f"state-{r}")],
                           capture_output=True, check=False, timeout=60)


MAKE = """
import sys
import common, loco
print(loco.create("bench", common.model(), out=sys.argv[1], settings={
    "inner.batch": common.BATCH, "inner.seq": common.gpt2.CONTEXT,
    "sync.period": common.PERIOD, "sync.wire": sys.argv[2],
    "round.min_peers": common.PEERS_LEAST, "sync.robust": "off",
    "sync.audit": "off", "transport.encryption": sys.argv[3]}))
"""


def text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def figures_of(path, limit_s):
    """What the program says when it has ended (frontdoor/common.py)."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = re.search(r'^\{"times".*$', text(path), re.M)
        if found:
            return json.loads(found[0])
        if "Traceback" in text(path):
            break
        time.sleep(0.5)
    raise RuntimeError(text(path)[-1500:])


def measure(bench, case):
    paths = bench.begin()
    if case == "death":
        return death(bench, paths)
    figures = [figures_of(p, 280) for p in paths][0]
    times = figures["times"]
    step = statistics.median(times)
    rounds = [sum(times[i:i + bench.period])
              for i in range(0, len(times), bench.period)]
    # Before that new memory is touched for the first time.
    rounds = rounds[4:] if case == "sync" else rounds[2:]
    if case == "sync":
        last = figures["cpu"][bench.period - 1::bench.period][4:]
        cpu = statistics.median(last) - statistics.median(figures["cpu"])
        return {"sync_s": statistics.median(rounds) - bench.period * step,
                "least_s": min(rounds) - bench.period * step,
                "cpu_s": cpu, "copies": cpu / figures["copy_s"]}
    return {"tokens_per_s": 2 * TOKENS * bench.period /
            statistics.median(rounds)}


def death(bench, paths):
    """Seconds of rank 0's longest step after rank 1 was killed; its last words."""
    until = time.monotonic() + 120
    while f"step {4 * bench.period + 5} " not in text(paths[1]):
        if time.monotonic() > until:
            raise RuntimeError(text(paths[0])[-900:])
        time.sleep(0.02)
    # Rank 0 may have begun alone: its steps are counted by themselves.
    before, done = len(text(paths[0])), text(paths[0]).count("step ")
    if '{"times"' in text(paths[0]):
        raise RuntimeError("rank 0 had ended before rank 1 was killed")
    os.killpg(bench.processes[-1].pid, signal.SIGKILL)
    if bench.program == "with_loco":  # locod has a session of its own
        subprocess.run(["pkill", "-9", "-f", os.path.join(
            bench.folder, "state-1")], check=False)
    try:
        times = figures_of(paths[0], 150)["times"]
    except RuntimeError:
        return {"stands": True, "says": said(paths[0], before)}
    return {"longest_s": max(times[done:]),
            "says": said(paths[0], before)}


def said(path, at):
    lines = [x for x in text(path)[at:].splitlines()
             if not re.match(r'step |\{"times|group of', x)]
    return lines[:12]


def lines_changed(program):
    """Lines of the loop that are not in plain.py; without the docstring."""
    def code(name):
        source = text(os.path.join(LOOPS, name + ".py"))
        return [x for x in source.split('"""')[2].splitlines() if x.strip()]
    moved = [x.strip() for x in code("plain")]
    new = [x for x in difflib.ndiff(moved, [x.strip() for x in code(program)])
           if x.startswith("+ ")]
    return len(new)


def has(args, program):
    name = NEEDS.get(program)
    return name is None or subprocess.run(
        [args.python, "-c", f"import {name}"], capture_output=True,
        check=False).returncode == 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--build", default=os.path.join(ROOT, "build"))
    ap.add_argument("--python", default=sys.executable)
    ap.add_argument("--json")
    ap.add_argument("--turns", type=int, default=1)
    ap.add_argument("--only", default="")
    ap.add_argument("case", nargs="+", choices=sorted(CASES))
    args = ap.parse_args()
    args.build, args.python = map(os.path.abspath, (args.build, args.python))
    results = []
    for p in ("with_loco", "with_torchft", "with_hivemind"):
        print(f"{p}: {lines_changed(p)} lines beside plain.py", flush=True)
    for case in args.case:
        for turn in range(args.turns):
            for system in CASES[case][3]:
                program = SYSTEMS.get(system, ("plain",))[0]
                if not re.search(args.only, system) or not has(args, program):
                    print(f"{case}: {system}: skipped", flush=True)
                    continue
                with tempfile.TemporaryDirectory(prefix="loco-door-") as d:
                    b = Bench(args, case, system, d)
                    try:
                        found = measure(b, case)
                    except RuntimeError as e:
                        found = {"failed": str(e)}
                    finally:
                        b.end()
                print(f"{case} {turn + 1}: {system}: {found}", flush=True)
                results.append({"case": case, "system": system, **found})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
