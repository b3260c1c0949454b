"""e2e_registry.py - the table that files of tests fill; see runner.py."""

TESTS = {}


class Skipped(Exception):
    """This machine cannot run it: the reason, for a person."""


class Test:
    def __init__(self, function, seconds, smoke):
        self.function = function
        self.seconds = seconds
        self.smoke = smoke


def test(sentence, seconds=120, smoke=False):
    """Register a function that raises when the sentence does not hold, within
    so many seconds where nothing else runs. smoke: it is one of the few of
    `sh tests/run.sh quick`."""
    def register(function):
        assert sentence not in TESTS, sentence
        TESTS[sentence] = Test(function, seconds, smoke)
        return function
    return register
