#!/usr/bin/env python3
"""netlab.py - what must hold over real networks, as sentences.

use: tests/netlab/netlab.py [--list] [--shell] [--jobs N] [WORD...]

First of the laboratory itself, then of loco in it. Each test runs in a process
of its own with a deadline, one after the other, as links have real rates.
WORDs choose the tests whose sentence holds one of them. --shell makes a small
internet and takes commands. A test that cannot run here is skipped, by name,
with the reason. The last line is "netlab: N passed, N failed, N skipped"; exit
0 only when none failed.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import join_tests  # noqa: E402,F401
import lab_tests  # noqa: E402,F401
import loco_tests  # noqa: E402,F401
import router_tests  # noqa: E402,F401
import runner  # noqa: E402 of ../e2e
import shell  # noqa: E402
from lab import missing, not_built  # noqa: E402

if __name__ == "__main__":
    if "--shell" in sys.argv[1:]:
        sys.exit(shell.main())
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shell", action="store_true",
                        help="a small internet that takes commands")
    sys.exit(runner.main("netlab", os.path.abspath(__file__), parser, 1,
                         not_built, missing))
