"""group_tests.py - processes of torch.distributed that are one peer. --full only.

torchrun starts group_torch.py: two processes with DDP, or with the model in
shards (FSDP2). They need the Python of model_tests.py.
"""
import glob
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from e2e_registry import test  # noqa: E402
from model_tests import torch_python  # noqa: E402
from program import Program  # noqa: E402
from swarm import LOCO, Swarm, check, run, wait_for  # noqa: E402
from torch_tests import (GPT2, SLOW_S, TEXT_BYTES, TRAINER,  # noqa: E402
                         check_equal, gpt2_run, hf_llama, one_thread)

GROUP = os.path.join(HERE, "group_torch.py")
LISTEN = ("--listen", "127.0.0.1:0")


def torchrun(s, python, name, *words, state=None):
    """Two processes of the program in `words`."""
    return Program(s, name, "torch.distributed.run", "--standalone",
                   "--nproc-per-node", "2", *words, program="-m",
                   python=python, state=state)


def group(s, python, name, *words, state=None):
    return torchrun(s, python, name, GROUP, *words, *LISTEN, state=state)


def ends_of(p):
    ends = re.findall(r"^process \d end (.*)$", p.text(), re.M)
    check(len(ends) == 2 and len(set(ends)) == 1, p.text()[-1500:])
    return ends[0]


@test("a pair of processes with DDP, a pair with FSDP2 and one process alone "
      "train a GPT-2 as three peers and end with equal parameters")
def three_peers():
    python = torch_python()
    one_thread()
    with Swarm(peers=1, text_bytes=TEXT_BYTES) as s:
        out, run_id = gpt2_run(s, python, "stop.rounds=5", "round.min_peers=3",
                               "sync.period=5")
        with Program(s, "one", "--run", out, *LISTEN, program=GPT2,
                     python=python) as one:
            uri = f"loco://127.0.0.1:{one.port()}/{run_id}"
            with group(s, python, "ddp", "ddp", "join", uri) as ddp, \
                    group(s, python, "fsdp", "fsdp", "join", uri) as fsdp:
                for p in (ddp, fsdp, one):
                    check(p.wait(SLOW_S) == 0, p.text()[-1500:])
                for p in (ddp, fsdp):
                    check(" rows 4 " in p.text(), "a process has half a batch")
                    check(f"end {ends_of(p)}" in one.text(),
                          f"{ends_of(p)}\n{one.text()[-300:]}")
            check(re.search(r"committed: 3 of 3", one.log()), one.log()[-900:])


@test("new parameters are used by FSDP2 also behind a forward that only measured")
def settled():
    python = torch_python()
    one_thread()
    with Swarm(peers=1) as s:
        with torchrun(s, python, "settle", GROUP, "settle") as p:
            check(p.wait(SLOW_S) == 0, p.text()[-1500:])
            check(p.text().count("settled") == 2, p.text()[-900:])


APART = """
import sys
from safetensors.numpy import load_file
import numpy as np
begin, one, two = (load_file(f) for f in sys.argv[1:])
flat = [np.concatenate([m[k].ravel() for k in sorted(begin)]).astype("f8")
        for m in (begin, one, two)]
way = [f - flat[0] for f in flat[1:]]
print("apart", np.linalg.norm(way[0] - way[1]) / np.linalg.norm(way[0]))
"""


@test("a pair of processes makes the steps of one process with the same batches")
def same_steps():
    python = torch_python()
    one_thread()
    with Swarm(peers=1, text_bytes=TEXT_BYTES) as s:
        out, _ = gpt2_run(s, python, "stop.rounds=2", "round.min_peers=1",
                          "sync.period=5", "sync.wire=fp32",
                          "sync.robust=off", "sync.audit=off")
        files = []
        for name, start in (
                ("alone", lambda: Program(s, "alone", "--run", out, *LISTEN,
                                          program=GPT2, python=python)),
                ("pair", lambda: group(s, python, "pair", "fsdp", "run",
                                       out))):
            with start() as p:
                check(p.wait(SLOW_S) == 0, p.text()[-1500:])
                run(LOCO, "export", "--state", p.state, "--out", s.path(name))
            files.append(os.path.join(s.path(name), "model.safetensors"))
        script = s.path("apart.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(APART)
        begin, = glob.glob(os.path.join(s.data, "init-*.safetensors"))
        with Program(s, "apart", begin, *files, program=script,
                     python=python) as p:
            check(p.wait() == 0, p.text()[-1500:])
            apart = float(p.text().split()[-1])
            print(f"relative distance of the two ways: {apart:.4f}")
            check(apart < 0.005, str(apart))


@test("kill -9 of a process of a group: the others end, the group started again "
      "goes on at the same locod and ends as the other peer does")
def killed():
    python = torch_python()
    one_thread()
    with Swarm(peers=1, text_bytes=TEXT_BYTES) as s:
        out, run_id = gpt2_run(s, python, "stop.rounds=8", "round.min_peers=2",
                               "sync.period=5")
        with Program(s, "one", "--run", out, *LISTEN, program=GPT2,
                     python=python) as one:
            how = ("ddp", "join", f"loco://127.0.0.1:{one.port()}/{run_id}")
            with group(s, python, "pair", *how) as pair:
                wait_for(lambda: "process 1 round 2 " in pair.text(),
                         pair.text, SLOW_S)
                os.kill(process(pair, 1), signal.SIGKILL)
                check(pair.wait(SLOW_S) != 0, pair.text())
                with group(s, python, "again", *how, state=pair.state) as again:
                    for p in (again, one):
                        check(p.wait(SLOW_S) == 0, p.text()[-1500:])
                    check(f"end {ends_of(again)}" in one.text(), again.text())
                check(len(re.findall("a training loop is here",
                                     pair.log())) == 2, pair.log())


@test("transformers' Trainer in two processes is one peer beside a built-in "
      "trainer, and saves what the run ended with")
def trainer_pair():
    python = torch_python()
    one_thread()
    with Swarm(peers=2, rounds=3, period=5, model=hf_llama(python),
               settings={"inner.seq": 64}) as s:
        c = s.peer().start("--run", s.yaml).wait_up()
        with torchrun(s, python, "hf", TRAINER, "--join", s.uri(),
                      s.path("llama"), s.path("text.txt"),
                      s.path("theirs")) as hf:
            check(hf.wait(SLOW_S) == 0, hf.text()[-1500:])
        s.wait_finished([c])
        check("committed: 2 of 2 peers" in c.log(whole=True), c.log())
        run(LOCO, "export", "--state", c.state, "--out", s.path("ours"))
        check_equal(s, python)


def process(pair, rank):
    """The process of that rank in the group that torchrun started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if f"LOCAL_RANK={rank}".encode() in env and \
                f"LOCO_STATE={pair.state}".encode() in env:
            return int(pid)
    return check(False, f"no process has rank {rank}")
