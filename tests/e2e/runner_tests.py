"""runner_tests.py - what the runner makes of tests that fail, crash and hang,
and what tests/run.sh says of them at its end."""
import os
import signal
import subprocess
import sys
import tempfile

from e2e_registry import test
from swarm import ROOT, SCALE, Failed, check, run, wait_for

# A set of tests of its own: each does what its sentence says.
SCRIPT = f"""
import argparse, os, signal, sys, time
sys.path.insert(0, {os.path.join(ROOT, "tests", "e2e")!r})
import runner
from e2e_registry import Skipped, test
from swarm import check

@test("holds")
def holds():
    pass

@test("does not hold")
def does_not_hold():
    check(False, "it was to be expected")

@test("raises")
def raises():
    raise KeyError("nobody has thought of this")

@test("crashes")
def crashes():
    os.kill(os.getpid(), signal.SIGKILL)

@test("is skipped")
def is_skipped():
    raise Skipped("no such machine")

@test("never ends", 5)
def never_ends():
    time.sleep(1000)  # the fault

@test("hangs")
def hangs():
    with open(os.environ["PID_FILE"], "w") as f:
        f.write(str(os.getpid()))
        f.flush()
        time.sleep(1000)  # the fault

sys.exit(runner.main("own", os.path.abspath(__file__),
                     argparse.ArgumentParser(), 2, lambda: None))
"""


def written(folder):
    path = os.path.join(folder, "own.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(SCRIPT)
    return path


@test("a test that fails, raises, crashes or never ends is a failed one")
def counted():
    with tempfile.TemporaryDirectory() as d:
        done = subprocess.run(
            [sys.executable, written(d), "hold", "raises", "crashes",
             "skipped", "never"], capture_output=True, text=True,
            timeout=100 * SCALE)
    check(done.returncode == 1, f"exit code {done.returncode}")
    check(sorted(told_again(done.stdout)) == [
        "FAILED crashes", "FAILED does not hold", "FAILED never ends",
        "FAILED raises"], f"{told_again(done.stdout)}")
    check(done.stdout.splitlines()[-1] == "own: 1 passed, 4 failed, 1 skipped",
          done.stdout + done.stderr)
    for words in ("it was to be expected", "nobody has thought of this",
                  "is skipped: no such machine", "no end after"):
        check(words in done.stdout, f"'{words}' is not said: {done.stdout}")


def told_again(log):
    """The names that tests/failures.awk finds in a log."""
    said = run("awk", "-f", os.path.join(ROOT, "tests", "failures.awk"),
               input=log).stdout
    return [line for line in said.splitlines() if not line.startswith(" ")]


CTEST = """
add_test(unit/good echo "well done")
add_test(unit/bad sh -c "echo '[ RUN      ] this'; echo the reason; exit 1")
add_test(unit/skips sh -c "exit 77")
set_tests_properties(unit/skips PROPERTIES SKIP_RETURN_CODE 77)
add_test(unit/late sleep 1000)
set_tests_properties(unit/late PROPERTIES TIMEOUT 1)
add_test(unit/missing /nonexistent)
add_test(unit/aborts sh -c "kill -ABRT $$")
"""


@test("a failure that ctest reports is told again with its reason")
def ctest_told():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "CTestTestfile.cmake"), "w",
                  encoding="ascii") as f:
            f.write(CTEST)
        log = run("ctest", "--output-on-failure", "-j2", cwd=d, code=8).stdout
    check(sorted(told_again(log)) == [
        "FAILED unit/aborts: Subprocess aborted", "FAILED unit/bad: Failed",
        "FAILED unit/late: Timeout", "FAILED unit/missing: Not Run"], f"{told_again(log)} of {log}")
    said = run("awk", "-f", os.path.join(ROOT, "tests", "failures.awk"),
               input=log).stdout
    check("\n    the reason\n" in said and "RUN" not in said
          and "well done" not in said, said)


def gone(pid):
    """It runs no more; nobody need have asked for its exit code."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@test("SIGTERM of the runner ends the tests that run")
def ended():
    with tempfile.TemporaryDirectory() as d:
        at = os.path.join(d, "pid")
        runner = subprocess.Popen(
            [sys.executable, written(d), "hangs"], text=True,
            stdout=subprocess.PIPE, env={**os.environ, "PID_FILE": at})

        def pid_of():
            if not os.path.exists(at):
                return 0
            with open(at, encoding="ascii") as f:
                return int(f.read() or 0)

        pid = wait_for(pid_of, "the test runs")
        runner.terminate()
        said, _ = runner.communicate(timeout=60 * SCALE)
        check(runner.returncode == 1, f"exit code {runner.returncode}")
        check(said.splitlines()[-1] == "own: 0 passed, 1 failed, 0 skipped",
              said)
        try:
            wait_for(lambda: gone(pid), "the test has ended")
        except Failed:
            os.kill(pid, signal.SIGKILL)
            raise
