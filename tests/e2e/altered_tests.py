"""altered_tests.py - files that are altered at rest or while they are in use; see
e2e.py. Each mutation is seeded: LOCO_MUTATIONS says how many, for each file.
"""
import os
import random
import resource
import shutil
import subprocess

from e2e_registry import test
from swarm import LOCO, PACED, SCALE, Swarm, check, run

MUTATIONS = int(os.environ.get("LOCO_MUTATIONS", "25"))
MEMORY_BYTES = 1 << 30  # of a command, its libraries included
GIANT = 1 << 40  # of a sparse file


def mutated(good, rng):
    """A cut, a byte, a run of zeros or of noise, or a piece twice; never the
    file as it was."""
    data = good
    while data == good:
        data = mutated_once(good, rng)
    return data


def mutated_once(good, rng):
    data = bytearray(good)
    at = rng.randrange(len(data))
    if rng.random() < 0.5:  # where headers and signatures are
        at = rng.randrange(min(len(data), 400))
    n = rng.choice((1, 1, 1, 4, 64))
    kind = rng.randrange(5)
    if kind == 0:
        del data[at:]
    elif kind == 1:
        data[at:at + 1] = bytes([data[at] ^ (1 << rng.randrange(8))])
    elif kind == 2:
        data[at:at + n] = bytes(n)
    elif kind == 3:
        data[at:at + n] = rng.randbytes(n)
    else:
        data[at:at] = data[at:at + n]
    return bytes(data)


def answer(*command):
    """The output, None: refused, with its sentence. Nothing is a crash."""
    def bounded():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    done = subprocess.run([str(c) for c in command], capture_output=True,
                          timeout=60 * SCALE, check=False,
                          preexec_fn=None if os.environ.get("LOCO_SANITIZED")
                          else bounded)
    said = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
    check(0 <= done.returncode < 10, f"{command}: exit code "
          f"{done.returncode}: {said}")
    check(done.returncode == 0 or len(said) > 20, f"{command}: no sentence")
    return done.stdout if done.returncode == 0 else None


def attacked(path, seed, *command):
    """What was said of each mutation of the file (None: refused), and of the
    file itself."""
    rng, said = random.Random(seed), []
    with open(path, "rb") as f:
        good = f.read()
    for _ in range(MUTATIONS):
        with open(path, "wb") as f:
            f.write(mutated(good, rng))
        said.append(answer(*command))
    os.truncate(path, GIANT)  # sparse: it costs no disk
    check(answer(*command) is None, f"a {os.path.basename(path)} of 1 TB is taken")
    with open(path, "wb") as f:
        f.write(good)
    whole = answer(*command)
    check(whole is not None, "the file itself is refused")
    print(f"{os.path.basename(path)}: {said.count(None)} of {len(said)} refused")
    return said, whole


@test("an altered shard is never taken, an altered run.yaml in its comments alone", 90)
def run_files():
    with Swarm(peers=1) as s:
        shards = [x for x in sorted(os.listdir(s.data)) if x.endswith(".ltk")]
        check(len(shards) == 2, f"shards {shards}")
        for name in shards:
            said, _ = attacked(os.path.join(s.data, name), len(name), LOCO,
                               "verify", s.yaml)
            check(said.count(None) == MUTATIONS, f"{name}: some are taken")
        said, whole = attacked(s.yaml, 1, LOCO, "run", "show", s.yaml, "--json")
        check(all(x in (None, whole) for x in said),
              "an altered run.yaml is taken, and says something else")
        check(None in said, "no mutation was refused")


@test("an altered model or tokenizer ends in a figure or in a sentence", 120)
def models():
    with Swarm(peers=1, rounds=2) as s:
        s.start()
        s.wait_finished()
        s.peers[0].drain()
        model = s.path("model")
        run(LOCO, "export", "--state", s.peers[0].state, "--out", model)
        command = (LOCO, "eval", "--model", model, "--text",
                   s.path("text.txt"))
        with open(s.path("text.txt"), "r+", encoding="ascii") as f:
            f.truncate(2000)
        for name in ("model.safetensors", "config.json"):
            said, _ = attacked(os.path.join(model, name), len(name), *command)
            check(None in said, f"no mutation of {name} was refused")


@test("what a peer holds is checked again when it starts: a damaged shard is "
      "fetched anew, a damaged state is not trained on", 120)
def at_rest():
    with Swarm(peers=2, rounds=100000) as s:
        s.start(*PACED)
        s.wait_training()
        second = s.peers[1]
        second.drain()
        files = [os.path.join(path, name)
                 for path, _, names in os.walk(second.state)
                 for name in names]
        shard = next(f for f in files if f.endswith(".ltk"))
        states = [f for f in files if "checkpoint" in f]
        check(states, f"no checkpoint among {files}")
        for path in (shard, *states):
            with open(path, "r+b") as f:
                f.seek(os.path.getsize(path) // 2)
                byte = f.read(1)
                f.seek(-1, 1)
                f.write(bytes([byte[0] ^ 1]))
        began = s.peers[0].status()["rounds_committed"]
        second.start("--join", s.uri(), *PACED).wait_up()
        second.wait_state("training", "averaging")
        second.wait_round(began + 2)
        a, b = (p.wait_round(began + 2) for p in s.peers)
        check(a["peers_in_round"] == b["peers_in_round"] == 2,
              "they are in one round")
        with open(os.path.join(s.data, os.path.basename(shard)), "rb") as f:
            good = f.read()
        with open(shard, "rb") as f:
            check(f.read() == good, "the damaged shard is still there")


@test("a shard that is cut short while a daemon reads it ends it in a sentence",
      60)
def cut():
    with Swarm(peers=1, rounds=100000) as s:
        s.start()
        s.wait_training()
        copy = s.path("copy")
        for name in os.listdir(s.data):
            if name.startswith("train") and name.endswith(".ltk"):
                shutil.copy(os.path.join(s.data, name), copy)
                os.truncate(os.path.join(s.data, name), 4096)
        s.peers[0].wait_exit(3)
        check("cut short while it was in use" in s.peers[0].log(),
              "it does not say why")
