#!/usr/bin/env python3
"""e2e.py - what must hold of real daemons, as sentences.

use: tests/e2e/e2e.py [--list] [--smoke] [--jobs N] [WORD...]

Each test runs in a process of its own with a deadline and is independent of
the others (runner.py); WORDs choose the tests whose sentence holds one of them.
The last line is "e2e: N passed, N failed, N skipped"; exit 0 only when none
failed.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import runner  # noqa: E402
from swarm import not_built  # noqa: E402
import access_tests  # noqa: E402, F401
import altered_tests  # noqa: E402, F401
import audit_soak  # noqa: E402, F401
import audit_tests  # noqa: E402, F401
import command_tests  # noqa: E402, F401 registers its tests
import courtesy_tests  # noqa: E402, F401
import cuda_tests  # noqa: E402, F401
import dashboard_tests  # noqa: E402, F401
import data_tests  # noqa: E402, F401
import death_tests  # noqa: E402, F401
import doctor_tests  # noqa: E402, F401
import eval_tests  # noqa: E402, F401
import identity_tests  # noqa: E402, F401
import init_tests  # noqa: E402, F401
import install_tests  # noqa: E402, F401
import join_tests  # noqa: E402, F401
import lease_tests  # noqa: E402, F401
import loop_tests  # noqa: E402, F401
import memory_tests  # noqa: E402, F401
import method_tests  # noqa: E402, F401
import metrics_tests  # noqa: E402, F401
import mistake_tests  # noqa: E402, F401
import package_tests  # noqa: E402, F401
import page_tests  # noqa: E402, F401
import pairs_tests  # noqa: E402, F401
import python_tests  # noqa: E402, F401
import release_tests  # noqa: E402, F401
import rollback_tests  # noqa: E402, F401
import rounds_tests  # noqa: E402, F401
import run_tests  # noqa: E402, F401
import runner_tests  # noqa: E402, F401
import share_tests  # noqa: E402, F401
import soak  # noqa: E402, F401
import stage_soak  # noqa: E402, F401
import stage_tests  # noqa: E402, F401
import storm_tests  # noqa: E402, F401
import stranger_tests  # noqa: E402, F401
import terms_tests  # noqa: E402, F401
import upgrade_tests  # noqa: E402, F401
import walkthrough_tests  # noqa: E402, F401

if __name__ == "__main__":
    sys.exit(runner.main("e2e", os.path.abspath(__file__),
                         argparse.ArgumentParser(
                             description=__doc__.split("\n")[0]),
                         2, not_built))
