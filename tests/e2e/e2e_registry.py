"""e2e_registry.py - the table that e2e.py and its files of tests fill."""

TESTS = {}


class Skipped(Exception):
    """This machine cannot run it: the reason, for a person."""


def test(sentence, seconds=120):
    def register(function):
        assert sentence not in TESTS, sentence
        TESTS[sentence] = (function, seconds)
        return function
    return register
