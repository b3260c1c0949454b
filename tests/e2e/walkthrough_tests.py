"""walkthrough_tests.py - the short form of walkthrough.py: text that is made
here, and limits that hold on a busy machine, too."""
import os
import shutil
import subprocess
import sys
import tempfile

from e2e_registry import Skipped, test
from swarm import SCALE, check, text_of

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "walkthrough.py")
# Without a part of ours: what is broken there must fail, not be skipped.
PROBE = ("ip link add w0 type veth peer name w1 && tc qdisc add dev w0 root tbf "
         "rate 2mbit burst 32kb latency 200ms")


def need_namespaces():
    if os.geteuid() != 0:
        raise Skipped("needs root, for network namespaces")
    for program in ("ip", "tc", "curl", "unshare"):
        if shutil.which(program) is None:
            raise Skipped(f"the program '{program}' is not installed")
    probe = subprocess.run(["unshare", "--net", "sh", "-c", PROBE],
                           capture_output=True, text=True, timeout=60 * SCALE)
    if probe.returncode != 0:
        raise Skipped(f"no namespace with a slow line: {probe.stderr.strip()}")


@test("a new user's first hour on two machines holds, command by command", 400)
def first_hour():
    need_namespaces()
    with tempfile.TemporaryDirectory() as d:
        text = os.path.join(d, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write(text_of(1_500_000))
        # A loop that a round blocks answers after seconds: it lasts ten.
        done = subprocess.run(
            [sys.executable, SCRIPT, "--text", text, "--answers", "10",
             "--answer-ms", str(3000 * SCALE), "--idle-s", "10"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace")
    check(done.returncode == 0, done.stdout[-4000:])
    check("all of it held" in done.stdout, done.stdout[-1000:])
