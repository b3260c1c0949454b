#!/usr/bin/env python3
"""netlab.py - what must hold over real networks, as sentences.

use: tests/netlab/netlab.py [--list] [--shell] [WORD...]

First of the laboratory itself, then of loco in it. Each test runs in a process
of its own with a deadline, one after the other, as links have real rates.
WORDs choose the tests whose sentence holds one of them. --shell makes a small
internet and takes commands. A test that cannot run here is skipped, by name,
with the reason. The last line is "netlab: N passed, N failed, N skipped"; exit
0 only when none failed.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import join_tests  # noqa: E402,F401
import lab_tests  # noqa: E402,F401
import loco_tests  # noqa: E402,F401
import shell  # noqa: E402
from lab import SCALE, Failed, missing, not_built  # noqa: E402
from registry import TESTS  # noqa: E402


def run_one(sentence):
    """In a process group of its own, which dies with the deadline."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--one", sentence],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(
            timeout=TESTS[sentence].seconds * SCALE)
    except subprocess.TimeoutExpired:
        process.terminate()  # it fails, shows the logs and cleans up
        try:
            output, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    return process.returncode, output, time.monotonic() - began


def be_one(sentence):
    """The child of run_one()."""
    def too_late(number, frame):
        raise Failed(f"no end after {TESTS[sentence].seconds * SCALE} s")

    signal.signal(signal.SIGTERM, too_late)
    try:
        TESTS[sentence].function()
    except Failed as why:
        print(f"failed: {why}")
        return 1
    return 0


def run_all(chosen):
    passed = failed = skipped = 0
    reason = missing()
    if not reason and not_built():
        print(f"netlab: {not_built()} is not built")
        print(f"netlab: 0 passed, {len(chosen)} failed, 0 skipped")
        return 1
    for sentence in chosen:
        why = reason or TESTS[sentence].missing()
        if why:
            skipped += 1
            print(f"skip  {sentence}: {why}", flush=True)
            continue
        code, output, seconds = run_one(sentence)
        print(f"{'ok  ' if code == 0 else 'FAIL'} {seconds:6.1f} s  "
              f"{sentence}", flush=True)
        passed += code == 0
        failed += code != 0
        if code != 0:
            print("    " + output.strip().replace("\n", "\n    "))
    print(f"netlab: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not chosen else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    if a.one:
        return be_one(a.one)
    if a.shell:
        return shell.main()
    chosen = [t for t in TESTS
              if not a.words or any(w in t for w in a.words)]
    if a.list:
        print("\n".join(chosen))
        return 0
    return run_all(chosen)


if __name__ == "__main__":
    sys.exit(main())
