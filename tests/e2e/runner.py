"""runner.py - runs the sentences of e2e_registry.py.

Each test has a process of its own, in a process group that dies with its
deadline, and tells what it cost: seconds on the clock, and of the processors
with all that it started. A test with a longer deadline begins earlier, so that
none is left over at the end. Who ends the runner (SIGTERM: the time limit of
run.sh) ends the tests that run, and they are counted as failed.
"""
import concurrent.futures
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

from e2e_registry import TESTS, Skipped
from swarm import SCALE, Failed

SKIPPED = 77  # exit code of one test
BUSY = 3  # so many times its seconds may a test last where others run beside
RUNNING = set()  # processes of tests
LOCK = threading.Lock()  # of RUNNING and TOLD_TO_END
TOLD_TO_END = threading.Event()


def cpu_s():
    """Of this process and of those that it has waited for."""
    uses = [resource.getrusage(who) for who in
            (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def limit_s(one):
    """After it a test is taken for one that hangs. What it waits for has limits
    of its own, which say more."""
    return one.seconds * BUSY * SCALE


def be_one(sentence):
    """The child of run_one()."""
    one = TESTS[sentence]
    began = time.monotonic()

    def too_late(number, frame):
        raise Failed(f"no end after {time.monotonic() - began:.0f} s "
                     f"(limit {limit_s(one)} s)")

    signal.signal(signal.SIGTERM, too_late)
    try:
        one.function()
    except Failed as why:
        print(f"failed: {why}")
        return 1
    except Skipped as why:
        print(why)
        return SKIPPED
    finally:
        print(f"cpu {cpu_s():.1f} s", flush=True)
    return 0


def run_one(script, sentence):
    """(sentence, exit code, output, seconds, seconds of the processors)"""
    began = time.monotonic()
    with LOCK:
        if TOLD_TO_END.is_set():
            return sentence, 1, "not begun: the runner was ended", 0, 0
        process = subprocess.Popen(
            [sys.executable, script, "--one", sentence], text=True,
            errors="replace", start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        RUNNING.add(process)
    try:
        output, _ = process.communicate(
            timeout=limit_s(TESTS[sentence]))
    except subprocess.TimeoutExpired:
        process.terminate()  # it fails, shows the logs and cleans up
        try:
            output, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    with LOCK:
        RUNNING.discard(process)
    used = re.search(r"^cpu ([0-9.]+) s\n", output, re.M)
    if used:
        output = output.replace(used[0], "", 1)
    return (sentence, process.returncode, output,
            time.monotonic() - began, float(used[1]) if used else 0.0)


def end_all(number, frame):
    """SIGTERM: tests have process groups of their own, and would go on. Each
    cleans up and says where it was."""
    with LOCK:
        TOLD_TO_END.set()
        for process in RUNNING:
            process.terminate()


class Count:
    """Prints a line a test."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, sentence, code, output, seconds, used):
        if code == SKIPPED:
            self.skipped += 1
            print(f"skip  {sentence}: {output.strip()}", flush=True)
            return
        print(f"{'ok  ' if code == 0 else 'FAIL'} {seconds:6.1f} s "
              f"{used:6.1f} s CPU  {sentence}", flush=True)
        self.passed += code == 0
        self.failed += code != 0
        if code != 0:
            print("    " + output.strip().replace("\n", "\n    "), flush=True)


def chosen_of(words, smoke):
    """The sentences that hold one of the words; smoke: of those, the few."""
    return [t for t, one in TESTS.items()
            if (not words or any(w in t for w in words))
            and (one.smoke or not smoke)]


def run_all(name, script, chosen, jobs, missing):
    """The exit code. missing: why none of them can run, or None."""
    count = Count()
    longest_first = sorted(chosen, key=lambda t: -TESTS[t].seconds)
    signal.signal(signal.SIGTERM, end_all)
    began = time.monotonic()
    if missing:
        for sentence in chosen:
            count.add(sentence, SKIPPED, missing, 0, 0)
    else:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in pool.map(lambda t: run_one(script, t),
                                 longest_first):
                count.add(*done)
    print(f"{name}: {time.monotonic() - began:.0f} s on the clock, "
          f"{cpu_s():.0f} s of the processors, {jobs} tests at a time")
    print(f"{name}: {count.passed} passed, {count.failed} failed, "
          f"{count.skipped} skipped")
    return 1 if count.failed or not chosen else 0


def main(name, script, parser, jobs, not_built, missing=lambda: None):
    """The command line that every set of tests has. not_built(): the first
    program that is needed and is not there, or None; missing(): why none of
    the tests can run here, or None."""
    parser.add_argument("--list", action="store_true", help="the sentences")
    parser.add_argument("--jobs", type=int, default=jobs,
                        help=f"tests at a time ({jobs})")
    parser.add_argument("--one", metavar="SENTENCE",
                        help="in this process and with no deadline")
    parser.add_argument("--smoke", action="store_true",
                        help="only the few of `sh tests/run.sh quick`")
    parser.add_argument("words", nargs="*", metavar="WORD")
    a = parser.parse_args()
    if a.one:
        return be_one(a.one)
    chosen = chosen_of(a.words, a.smoke)
    if a.list:
        print("\n".join(chosen))
        return 0
    why = missing()
    if not why and not_built():
        print(f"{name}: {not_built()} is not built")
        print(f"{name}: 0 passed, {len(chosen)} failed, 0 skipped")
        return 1
    return run_all(name, script, chosen, a.jobs, why)
