"""stage_counts.py - how many tokens the committed rounds of a stage may have.

A host of the first stage enters `entered` tokens in a round, and each goes
through one host of every stage. That is the *measure* of a round. It may *lack*
some: hosts die, and what they made is lost. It may have more for one reason: a
host that was left out of a round offers what it made for it with the next one
that it is in. So rounds have more than their measure by what the few before
them lack, and no lack fills two.

What a lack hides here the simulator sees: each micro-batch (`loco sim stages`,
invariant T).
"""
import re

from e2e_registry import test
from swarm import Failed, check

CARRIED_ROUNDS = 8  # no work gets older: WORK_MAX in daemon/node/follow.c

LINE = re.compile(r" stage (\d+) of \d+$|"
                  r" round (\d+) committed: (\d+) of \d+ peers, (\d+) tok",
                  re.MULTILINE)


def commits_of(log):
    """[(stage, round, peers, tokens)], in turn. A stage that was only chosen
    has a row with peers 0."""
    rows, stage, newest = [], 0, 0
    for to, number, n, tokens in LINE.findall(log):
        if to:
            stage = int(to)
            rows.append((stage, newest, 0, 0))
        else:
            newest = int(number)
            rows.append((stage, newest, int(n), int(tokens)))
    return rows


def n_entering(logs, number):
    """Hosts that the first stage had about then, at most: more than two where
    one of another stage moved to it. Who chose it and then, before any commit,
    another one, made nothing there."""
    found = 0
    for rows in logs:
        spans, since = [], None
        for stage, at, *_ in rows:
            if stage == 1 and since is None:
                since = at
            elif stage != 1 and since is not None:
                spans += [(since, at + 1)] if at > since else []
                since = None
        spans += [(since, number)] if since is not None else []
        found += any(a <= number <= b for a, b in spans)
    return found


def by_stage(logs):
    """{stage: {round: (tokens, peers)}}; of one that was made in two branches
    the larger."""
    found = {}
    for rows in logs:
        for stage, number, n, tokens in rows:
            rounds = found.setdefault(stage, {})
            if n:
                rounds[number] = max(rounds.get(number, (0, 0)), (tokens, n))
    return found


def check_stage(stage, rounds, measure):
    """`measure`: of a round. Returns what later rounds have of earlier ones, and
    {round: tokens} that none has."""
    lack, carried = {}, 0
    for number in range(1, max(rounds, default=0) + 1):
        tokens, n = rounds.get(number, (0, 1))
        more = tokens - measure(number)
        if tokens < measure(number):
            lack[number] = measure(number) - tokens
        for at in range(max(1, number - CARRIED_ROUNDS), number):
            part = max(0, min(more, lack.get(at, 0)))
            lack[at] = lack.get(at, 0) - part
            more -= part
            carried += part
        # A host that made none of the steps weighs 1: it came late, or has just
        # moved to the stage.
        before = [rounds.get(r) for r in range(max(1, number - 9), number)]
        check(more <= n - 1, f"something counted twice: round {number} of stage "
              f"{stage} has {tokens} tokens of {n} hosts, {more} more than its "
              f"measure, {measure(number)}, and what is missing in those "
              f"before it: {before}")
    return carried, {at: left for at, left in lack.items() if left}


def check_rounds(logs, entered):
    """The texts of the logs; tokens that a host of the first stage enters in a
    round. Returns as check_stage, of all stages."""
    logs = [commits_of(log) for log in logs]
    stages = by_stage(logs)
    check(any(stages.values()), "no log names a committed round")
    found = [check_stage(stage, rounds,
                         lambda at: entered * n_entering(logs, at))
             for stage, rounds in stages.items()]
    return sum(c for c, _ in found), {
        (stage, at): left for stage, (_, lack) in zip(stages, found)
        for at, left in lack.items()}


def check_peer(name, given, rounds, status):
    """A process gives what it trained once; an empty contribution weighs 1.
    `given`, in so many rounds: seen before the status."""
    check(given + status["tokens_dropped"] <= status["tokens"] + rounds,
          f"{name} trained {status['tokens']} tokens, and {given} are in "
          f"{rounds} rounds, {status['tokens_dropped']} dropped")


def log_of(*rounds, stage=2):
    """A log: (peers, tokens) of rounds from 1 on."""
    lines = [f"T info  node   stage {stage} of 3"]
    lines += [f"T info  node   round {i + 1} committed: {n} of 2 peers, "
              f"{tokens} tokens" for i, (n, tokens) in enumerate(rounds)]
    return "\n".join(lines) + "\n"


@test("what a host of a stage made for a round that went on without it counts "
      "in a later one, once", 10)
def counts_of_stages():
    first = [log_of((2, 512), (2, 512), (2, 512), stage=1)] * 2
    carried, lack = check_rounds(
        first + [log_of((2, 512), (1, 384), (2, 640))], 256)
    check((carried, lack) == (128, {}), f"{carried} came later, {lack} never")
    for rounds, what in ((((2, 512), (2, 640)), "of no round"),
                         (((1, 384), (2, 640), (2, 640)), "twice"),
                         (((1, 384), (2, 642)), "more than is missing")):
        try:
            check_rounds(first + [log_of(*rounds)], 256)
        except Failed as why:
            check("counted twice" in str(why), str(why))
        else:
            raise Failed(f"nobody sees tokens {what}: {rounds}")
    # A third host of the first stage enters more.
    moved = log_of((2, 512), stage=3) + log_of((3, 768), stage=1)
    check_rounds(first + [moved, log_of((2, 512), (2, 768))], 256)
