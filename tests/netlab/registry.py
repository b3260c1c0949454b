"""registry.py - the tests of netlab.py by their sentence."""
import shutil

TESTS = {}


class Test:
    def __init__(self, function, seconds, program):
        self.function = function
        self.seconds = seconds
        self.program = program

    def missing(self):
        """Why this test cannot run here, or None."""
        if self.program and shutil.which(self.program) is None:
            return f"the program '{self.program}' is not installed"
        return None


def test(sentence, seconds=60, program=None):
    """Register a function that raises when the sentence does not hold."""
    def register(function):
        TESTS[sentence] = Test(function, seconds, program)
        return function
    return register
