"""e2e_registry.py - the table that files of tests fill; see runner.py."""

TESTS = {}


class Skipped(Exception):
    """This machine cannot run it: the reason, for a person."""


class Test:
    def __init__(self, function, seconds, alone):
        self.function = function
        self.seconds = seconds
        self.alone = alone


def test(sentence, seconds=120, alone=False):
    """Register a function that raises when the sentence does not hold, within
    so many seconds; alone: while nothing else runs."""
    def register(function):
        assert sentence not in TESTS, sentence
        TESTS[sentence] = Test(function, seconds, alone)
        return function
    return register
