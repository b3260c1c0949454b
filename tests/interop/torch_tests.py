"""torch_tests.py - PyTorch programs as peers. With --full only.

The examples of deploy/python that need torch or transformers, the outer step
beside one in torch alone, and a built-in trainer in one run with transformers'
Trainer. They need the Python of model_tests.py.
"""
import glob
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from e2e_registry import test  # noqa: E402
from model_tests import torch_python  # noqa: E402
from program import EXAMPLES, Program, check_ends_equal  # noqa: E402
from swarm import LOCO, Swarm, VAL_BYTES, check, run, wait_for  # noqa: E402

GPT2 = os.path.join(EXAMPLES, "gpt2.py")
OURS = os.path.join(HERE, "diloco_torch.py")
TRAINER = os.path.join(HERE, "trainer_hf.py")
# 20 rounds: after 8 the loss still falls so fast that the steps which a kill
# takes away weigh more than the noise between two seeds.
PEERS, ROUNDS, PERIOD = 4, 20, 20
TEXT_BYTES = 400000
SLOW_S = 900  # four programs with torch on two processors


def one_thread():
    os.environ["OMP_NUM_THREADS"] = "1"


def gpt2_run(s, python, *settings):
    out = os.path.join(s.data, "gpt2.yaml")
    with Program(s, "author", "--create", s.data, out, *settings, program=GPT2,
                 python=python) as p:
        check(p.wait() == 0, p.text())
        return out, p.text().split()[-1]


def references(s, python, seeds):
    """Bits per byte of the same in torch alone, one figure for each seed."""
    programs = [Program(s, f"reference-{seed}", s.path("text.txt"),
                        str(VAL_BYTES), str(PEERS), str(ROUNDS), str(PERIOD),
                        str(seed), program=OURS, python=python)
                for seed in seeds]
    try:
        for p in programs:
            check(p.wait(SLOW_S) == 0, p.text()[-900:])
        return [float(p.text()) for p in programs]
    finally:
        for p in programs:
            p.__exit__()


@test("an outer step of a PyTorch program alone in an fp32 run has the bits of "
      "the same step in torch alone")
def same_bits():
    python = torch_python()
    one_thread()
    with Swarm(peers=1, text_bytes=TEXT_BYTES) as s:
        out, _ = gpt2_run(s, python, "round.min_peers=1", "stop.rounds=4",
                          "sync.period=5", "sync.wire=fp32",
                          "sync.robust=off", "sync.audit=off")
        with Program(s, "bits", "--bits", out, program=OURS,
                     python=python) as p:
            check(p.wait(SLOW_S) == 0, p.text()[-1500:])
            check("compared 4 rounds" in p.text(), p.text()[-900:])


@test("four PyTorch programs train a GPT-2; one of them and the locod of "
      "another are killed, all end with equal parameters, as good as torch "
      "alone", SLOW_S)
def four_programs():
    python = torch_python()
    one_thread()
    with Swarm(peers=1, text_bytes=TEXT_BYTES) as s:
        out, run_id = gpt2_run(s, python, f"stop.rounds={ROUNDS}",
                               f"round.min_peers={PEERS}",
                               f"sync.period={PERIOD}", "sync.robust=off",
                               "sync.audit=off")
        listen = ("--listen", "127.0.0.1:0")
        how = {"program": GPT2, "python": python}
        first = Program(s, "p0", "--run", out, *listen, **how)
        programs = [first]
        try:
            uri = f"loco://127.0.0.1:{first.port()}/{run_id}"
            programs += [Program(s, f"p{i}", "--join", uri, *listen, **how)
                         for i in range(1, PEERS)]
            wait_for(lambda: "round 2 " in programs[1].text(),
                     programs[1].text, SLOW_S)
            programs[1].process.kill()
            programs[1].process.wait(30)
            programs[2].kill_locod()
            programs[1] = Program(s, "p1-again", "--join", uri, *listen,
                                  state=programs[1].state, **how)
            for p in programs:
                check(p.wait(SLOW_S) == 0, p.text()[-1500:])
            check_ends_equal(*programs)
            figures = [float(x) for p in programs for x in re.findall(
                rf"round {ROUNDS}: ([\d.]+) bits", p.log())]
        finally:
            for p in programs:
                p.__exit__()
        check(figures, "nobody measured the end")
        others = references(s, python, (1, 2))
        print(f"held out: {figures[-1]} bits per byte; in torch alone: {others}")
        check(abs(figures[-1] - sum(others) / 2) <
              0.05 + 2 * abs(others[0] - others[1]),
              f"{figures[-1]} bits per byte; torch alone has {others}")


def anchors(state):
    """Of each round whose checkpoint is in that state directory: the hash of
    the parameters."""
    found = {}
    for path in glob.glob(state + "/**/round-*.safetensors", recursive=True):
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            begin, end = json.loads(f.read(size))["phi"]["data_offsets"]
            f.seek(8 + size + begin)
            number = int(re.search(r"round-(\d+)", path).group(1))
            found[number] = hashlib.sha256(f.read(end - begin)).hexdigest()
    return found


EQUAL = """
import sys
import torch
from transformers import AutoModelForCausalLM
a, b = (AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32)
        for d in sys.argv[1:])
a, b = a.state_dict(), b.state_dict()
assert a.keys() == b.keys(), a.keys() ^ b.keys()
print(sum(torch.equal(a[k], b[k]) for k in a), "of", len(a), "are equal")
"""


def hf_llama(python):
    """What a run of the Llama that trainer_hf.py makes begins with."""
    def begin(s):
        with Program(s, "init", "--init", s.path("llama"), program=TRAINER,
                     python=python) as p:
            check(p.wait() == 0, p.text())
        return ["--init", s.path("llama")]
    return begin


def check_equal(s, python):
    """transformers reads the same from the swarm's `ours` and `theirs`."""
    script = s.path("equal.py")
    with open(script, "w", encoding="ascii") as f:
        f.write(EQUAL)
    with Program(s, "equal", s.path("ours"), s.path("theirs"), program=script,
                 python=python) as p:
        check(p.wait() == 0, p.text()[-1500:])
        n, total = re.search(r"(\d+) of (\d+) are equal", p.text()).groups()
        check(n == total, f"{n} of {total} tensors are equal")


@test("a built-in trainer and transformers' Trainer train one Llama with the "
      "same bits after every round, and transformers loads the export")
def with_trainer():
    python = torch_python()
    one_thread()
    how = {"program": TRAINER, "python": python}
    with Swarm(peers=2, rounds=6, period=10, model=hf_llama(python),
               settings={"inner.seq": 64}) as s:
        c = s.peer().start("--run", s.yaml, "--keep", "100",
                           "--checkpoint-percent", "100").wait_up()
        with Program(s, "hf", "--join", s.uri(), s.path("llama"),
                     s.path("text.txt"), s.path("theirs"), **how) as hf:
            check(hf.wait(SLOW_S) == 0, hf.text()[-1500:])
            theirs = anchors(hf.state)
        s.wait_finished([c])
        both = re.findall(r"committed: 2 of 2 peers", c.log(whole=True))
        check(len(both) >= 4, f"{len(both)} rounds of both")
        c.drain()
        ours = anchors(c.state)
        rounds = sorted(ours.keys() & theirs.keys())
        print("rounds with both checkpoints:", rounds)
        check(len(rounds) >= 5 and rounds[-1] == 6, str(rounds))
        check(all(ours[r] == theirs[r] for r in rounds), f"{ours}\n{theirs}")
        check(len(set(ours.values())) == len(ours), "a round changed nothing")
        run(LOCO, "export", "--state", c.state, "--out", s.path("ours"))
        check_equal(s, python)


@test("two PyTorch programs with data of their own and BatchNorm learn digits")
def learn_digits():
    python = torch_python()
    one_thread()
    how = {"program": os.path.join(EXAMPLES, "digits.py"), "python": python}
    with Swarm(peers=1) as s:
        out = s.path("digits.yaml")
        with Program(s, "author", "--create", out, **how) as p:
            check(p.wait() == 0, p.text())
            run_id = p.text().split()[-1]
        listen = ("--listen", "127.0.0.1:0")
        with Program(s, "first", "--run", out, *listen, **how) as first:
            uri = f"loco://127.0.0.1:{first.port()}/{run_id}"
            with Program(s, "second", "--join", uri, *listen, **how) as second:
                check(second.wait(SLOW_S) == 0, second.text()[-1500:])
                check(first.wait(SLOW_S) == 0, first.text()[-1500:])
                check_ends_equal(first, second)
                right = float(re.search(r"right ([\d.]+)", first.text())[1])
                check(right > 0.85, f"{right} of the digits are right")
