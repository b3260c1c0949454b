"""registry.py - `test` for the laboratory: some need a program of others."""
import shutil

from e2e_registry import Skipped
from e2e_registry import test as register


def test(sentence, seconds=60, program=None):
    """Register a function that raises when the sentence does not hold."""
    def wrap(function):
        def run():
            if program and shutil.which(program) is None:
                raise Skipped(f"the program '{program}' is not installed")
            function()
        register(sentence, seconds)(run)
        return function
    return wrap
