"""interop_registry.py - the list of interop tests; files of tests add to it."""

TESTS = {}


class Skipped(Exception):
    """This test cannot run here; the text says why."""


def test(sentence):
    def register(function):
        TESTS[sentence] = function
        return function
    return register
