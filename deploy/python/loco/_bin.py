"""The programs that a wheel has inside: loco, locod and libloco.

A package without them (a checkout, another platform) takes the system's.
"""
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def path(name: str) -> str:
    """Of the wheel's, or the name alone."""
    beside = os.path.join(FOLDER, name)
    return beside if os.path.exists(beside) else name


def run(name: str) -> None:
    program = path(name)
    if program == name:
        sys.exit(f"{name}: this package has no programs inside; install "
                 "loco's wheel for this platform, or its Debian package")
    os.execv(program, [name] + sys.argv[1:])


def loco() -> None:
    run("loco")


def locod() -> None:
    run("locod")
