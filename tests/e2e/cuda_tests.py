"""cuda_tests.py - real daemons with --device cuda.

The plug-in is the emulated one of this build (tests/emu): the same host code
and kernels, a processor in the GPU's place. LOCO_GPU_PLUGIN names another, on a
machine with a GPU.
"""
import json
import os
import re
import tempfile

from e2e_registry import Skipped, test
from swarm import BUILD, LOCO, LOCOD, Swarm, check, run, wait_for

EMULATED = os.path.join(BUILD, "tests", "libloco_cuda_emulated.so")
# The emulator is slow: the other peer waits for it.
SMALL = {"inner.batch": 1, "inner.micro_batch": 1, "inner.warmup": 1,
         "round.grace_ms": 30000, "round.fork_after_ms": 40000,
         "eval.every_rounds": 5, "eval.tokens": 512}.items()


def plugin():
    found = os.environ.get("LOCO_GPU_PLUGIN", EMULATED)
    if not os.path.exists(found):
        raise Skipped("this build has no emulated plug-in (no C++ compiler)")
    return found


def start_both(swarm, env=None):
    """One peer on the GPU that starts the run, one that joins it."""
    first = swarm.peer().start("--run", swarm.yaml, "--device", "cuda",
                               "--gpu-plugin", plugin(), env=env).wait_up()
    swarm.peer().start("--join", swarm.uri()).wait_up()
    return first


def gpu_and_processor(swarm, env=None, rounds_s=300):
    first = start_both(swarm, env)
    return first, swarm.wait_finished(seconds=rounds_s)


@test("a peer on a GPU and a peer on a processor commit ten rounds and end "
      "equal", seconds=330)
def together():
    with Swarm(peers=2, rounds=10, period=1, settings=SMALL) as s:
        first, done = gpu_and_processor(s)
        check(all(d["rounds_committed"] == 10 for d in done),
              "a round was missed")
        log = first.log(whole=True)
        check("sm_" in log, "the log does not name the GPU")
        check("the outer step on the GPU" in log,
              "the outer step was not made on the GPU")
        check("GPU failed" not in log, "the GPU failed")


@test("a GPU that breaks in the middle of an outer step costs no round",
      seconds=330)
def breaks_in_an_outer_step():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator breaks when it is told to")
    with Swarm(peers=2, rounds=3, period=1, settings=SMALL) as s:
        # the contribution is copied out beside, then the anchor, then this
        first, done = gpu_and_processor(s, {"LOCO_EMULATOR": "fail_beside=3"})
        log = first.log(whole=True)
        check("the GPU failed" in log, "the failure is not said")
        check("continuing on the processor: done" in log,
              f"nothing took its place: {log[-600:]}")
        check(all(d["rounds_committed"] == 3 and d["rounds_aborted"] == 0
                  for d in done), "a round was missed")


@test("a GPU that breaks is left for the processor and the run goes on",
      seconds=330)
def breaks():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator breaks when it is told to")
    with Swarm(peers=2, rounds=3, period=2, settings=SMALL) as s:
        first, _ = gpu_and_processor(s, {"LOCO_EMULATOR": "fail_launch=150"})
        log = first.log(whole=True)
        check("the GPU failed" in log, "the failure is not said")
        check("continuing on the processor: done" in log,
              f"nothing took its place: {log[-600:]}")


def several(env, rounds):
    """A peer on three GPUs, one on a processor; the log of the first."""
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator has as many GPUs as it is told")
    settings = {**dict(SMALL), "inner.batch": 4}
    with Swarm(peers=2, rounds=rounds, period=2,
               settings=settings.items()) as s:
        first = s.peer().start(
            "--run", s.yaml, "--device", "cuda", "--gpu-plugin", plugin(),
            "--gpus", "all", env={"LOCO_EMULATOR": env}).wait_up()
        s.peer().start("--join", s.uri()).wait_up()
        done = s.wait_finished(seconds=300)
        check(all(d["rounds_committed"] == rounds for d in done),
              "a round was missed")
        log = first.log(whole=True)
        check("3 GPUs make each gradient of 4 sequences" in log,
              f"they do not train together: {log[-600:]}")
        check("the GPU failed" not in log, "the first GPU failed")
        return log


@test("a peer on three GPUs and a peer on a processor end equal", seconds=330)
def several_together():
    check("left out" not in several("devices=3", 3), "a GPU was left out")


@test("one of three GPUs breaks: it is named, and no round is missed",
      seconds=330)
def one_of_several_breaks():
    log = several("devices=3 fault_device=2 fail_launch=150", 3)
    check(log.count("GPU 1 is left out") == 1,
          f"it is not named once: {log[-600:]}")


@test("a GPU that is not there, or named twice, is refused with a sentence; "
      "one that is not used is named")
def gpus_that_are_not_there():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator has as many GPUs as it is told")
    with Swarm(peers=1, rounds=1) as s:
        for gpus, code, says in (
                ("0,2", 3, "gpus 0,2: this machine shows fewer GPUs"),
                ("0,0", 3, "gpus 0,0: a GPU is named twice"),
                ("first", 3, "it is all, or a list such as 0,2-3")):
            done = run(LOCOD, "--state", s.peer().state, "--listen",
                       "127.0.0.1:0", "--run", s.yaml, "--device", "cuda",
                       "--gpu-plugin", plugin(), "--gpus", gpus, code=code,
                       env={**os.environ, "LOCO_EMULATOR": "devices=2"})
            check(says in done.stderr, f"not said: {done.stderr}")
        idle = s.peer().start("--run", s.yaml, "--gpus", "all").wait_up()
        check("gpus all: not used; device is cpu" in idle.log(whole=True),
              "GPUs that a processor's trainer ignores, and not a word")


def staged(rounds, env=None):
    """The same two peers, each with one of two stages; the log of the first and
    what both say at the end."""
    settings = {**dict(SMALL), "stages": 2, "model.tied": "false",
                "inner.batch": 2}
    with Swarm(peers=2, rounds=rounds, period=2, min_peers=2,
               settings=settings.items()) as s:
        first = start_both(s, env)
        done = [p.wait_state("finished", seconds=300) for p in s.peers]
        log = first.log(whole=True)
        check("sm_" in log and re.search(r"stage \d of 2", log),
              "no GPU holds a stage")
        check(all(d["rounds_committed"] == rounds for d in done),
              f"a round was missed: {log[-600:]}")
        check(len({d["params_hash"] for d in done}) == 2, "both hold the same")

        def bits():
            now = [(p.status() or {}).get("bits_per_byte") for p in s.peers]
            return now[0] and now[0] < 8 and now[0] == now[1] and now

        # The figure of the last round may come after its end.
        print(f"bits per byte {wait_for(bits, 'held-out text of both')}")
        return log


@test("a stage on a GPU and a stage on a processor make the steps of a run",
      seconds=330)
def stages_together():
    log = staged(rounds=5)
    check("the outer step on the GPU" in log,
          "the outer step was not made on the GPU")
    check("GPU failed" not in log, "the GPU failed")
    check("cannot finish the step" not in log, "a step was left")


@test("a stage whose GPU breaks goes on on the processor", seconds=330)
def a_stage_breaks():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator breaks when it is told to")
    log = staged(rounds=3, env={"LOCO_EMULATOR": "fail_launch=100"})
    check("the GPU failed" in log, "the failure is not said")
    check("continuing on the processor: done" in log,
          f"nothing took its place: {log[-600:]}")


@test("a GPU that breaks and may not be left stops its peer with a sentence, "
      "and the other goes on", seconds=330)
def stops():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator breaks when it is told to")
    with Swarm(peers=2, rounds=3, period=2, settings=SMALL) as s:
        first = s.peer().start(
            "--run", s.yaml, "--device", "cuda", "--gpu-plugin", plugin(),
            "--gpu-fallback", "off",
            env={"LOCO_EMULATOR": "fail_launch=150"}).wait_up()
        s.peer().start("--join", s.uri()).wait_up()
        first.wait_exit(8, seconds=100)
        log = first.log(whole=True)
        check("the GPU is lost, and cannot be opened again" in log,
              f"not said: {log[-600:]}")
        s.peers[1].wait_state("finished", seconds=100)


@test("a stage whose GPU breaks and may not go on on the processor stops with "
      "a sentence, and comes back", seconds=330)
def a_stage_stops():
    if "LOCO_GPU_PLUGIN" in os.environ:
        raise Skipped("only the emulator breaks when it is told to")
    settings = {**dict(SMALL), "stages": 2, "model.tied": "false",
                "inner.batch": 2}
    with Swarm(peers=2, rounds=3, period=2, min_peers=2,
               settings=settings.items()) as s:
        first = s.peer().start(
            "--run", s.yaml, "--device", "cuda", "--gpu-plugin", plugin(),
            "--gpu-fallback", "off",
            env={"LOCO_EMULATOR": "fail_launch=100"}).wait_up()
        s.peer().start("--join", s.uri()).wait_up()
        first.wait_exit(8, seconds=100)
        log = first.log(whole=True)
        check("the GPU is lost, and cannot be opened again" in log and
              "this machine leaves stage" in log, f"not said: {log[-600:]}")
        check("the others continue" not in log, "its stage had no other host")
        check(log.count("cannot finish the step") <= 2,
              "it tried again and again")
        wait_for(lambda: "has no host" in (s.peers[1].status()["reason"] or ""),
                 "the other host to miss its stage")
        first.start("--run", s.yaml, "--device", "cpu").wait_up()
        for p in s.peers:
            p.wait_state("finished", seconds=100)


@test("--device cuda without a plug-in or a GPU is exit code 8 with a sentence")
def missing():
    for command in ((LOCOD, "--state", "/nonexistent", "--run", "x"),
                    (LOCO, "bench", "train", "--config", "quickstart-1m")):
        option = "--gpu-plugin" if command[0] == LOCOD else "--plugin"
        done = run(*command, "--device", "cuda", option, "/nowhere.so", code=8)
        check("cannot load the plug-in" in done.stderr, done.stderr)
    if os.path.exists(EMULATED):
        done = run(LOCO, "bench", "train", "--config", "quickstart-1m",
                   "--device", "cuda", "--plugin", EMULATED, code=8,
                   env={**os.environ, "LOCO_EMULATOR": "devices=0"})
        check("no NVIDIA GPU" in done.stderr, done.stderr)


@test("loco bench train shares its steps among GPUs, keeps moments in the "
      "host's memory, and refuses what it cannot do", seconds=120)
def bench_of_gpus():
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "model.yaml")
        with open(config, "w", encoding="ascii") as f:
            f.write("dim: 16\nlayers: 1\nheads: 2\nkv_heads: 2\nffn: 16\n"
                    "vocab: 64\nseq: 16\ntied: true\nrope_theta: 10000\n"
                    "norm_eps: 0.00001\n")

        def bench(*words, code=0):
            return run(LOCO, "bench", "train", "--config", config, "--batch",
                       "6", "--steps", "1", "--json", *words, code=code,
                       env={**os.environ, "LOCO_EMULATOR": "devices=3"})

        cuda = ("--device", "cuda", "--plugin", EMULATED)
        if os.path.exists(EMULATED):
            all_of_them = json.loads(bench(*cuda, "--gpus", "all").stdout)
            check(all_of_them["gpus"] == 3, all_of_them)
            host = json.loads(bench(*cuda, "--host-moments").stdout)
            check(host["gpus"] == 1 and host["host_moments"], host)
            done = bench(*cuda, "--gpus", "0,3", code=2)
            check("gpus 0,3: this machine shows fewer" in done.stderr,
                  done.stderr)
            done = bench(*cuda, "--gpus", "0,,1", "--dry-run", code=2)
            check("gpus 0,,1: it is all, or a list" in done.stderr,
                  done.stderr)
        for option in (("--gpus", "all"), ("--host-moments",)):
            done = bench(*option, code=2)
            check(f"{option[0]} needs --device cuda" in done.stderr,
                  done.stderr)
