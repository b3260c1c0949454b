"""e2e_registry.py - the table that files of tests fill; see runner.py."""

TESTS = {}


class Skipped(Exception):
    """This machine cannot run it: the reason, for a person."""


class Test:
    def __init__(self, function, seconds):
        self.function = function
        self.seconds = seconds


def test(sentence, seconds=120):
    """Register a function that raises when the sentence does not hold, within
    so many seconds."""
    def register(function):
        assert sentence not in TESTS, sentence
        TESTS[sentence] = Test(function, seconds)
        return function
    return register
