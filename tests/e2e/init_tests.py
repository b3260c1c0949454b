"""init_tests.py - runs that begin from given weights; see e2e.py."""
import json
import os
import shutil
import struct
import subprocess
import tempfile

from e2e_registry import test
from loop_tests import Loop, Looped
from pairs_tests import parameters
from swarm import LOCO, Swarm, check, run

WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8}


def bf16(values):
    return b"".join(struct.pack("<f", x)[2:] for x in values)


def write(path, tensors, meta=None):
    """A safetensors file of (name, dtype, shape, bytes)."""
    head, at = {"__metadata__": meta} if meta else {}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode("ascii")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors:
            f.write(data)
    return path


def any_tensors(path):
    """A model of nobody's: 12 + 3 elements and a scalar, of two types."""
    return write(path, [
        ("embed.weight", "BF16", [4, 3], bf16([0.5] * 11 + [0.25])),
        ("bias", "F32", [3], struct.pack("<3f", 1, 2, 3)),
        ("scale", "F32", [], struct.pack("<f", 7))])


@test("run create --init FILE: the model is whatever tensors there are, two "
      "loops train them from there to equal hashes")
def tensors():
    def words(s):
        return ["--init", any_tensors(s.path("begin.safetensors"))]

    with Looped(peers=2, rounds=4, model=words,
                settings={"inner.seq": 64}.items()) as s:
        shown = run(LOCO, "run", "show", s.yaml).stdout
        check("16 parameters in tensors" in shown, shown)
        s.start()
        loops = s.loops("--read")
        s.wait_finished()
        for p in s.peers:
            p.drain()
        for loop in loops:
            loop.wait_exit(0)
        had = loops[1].lines("tensors")[0]
        check(had == {"embed.weight": [0, 12, [4, 3]], "bias": [12, 3, [3]],
                      "scale": [15, 1, []]}, f"other tensors: {had}")
        takes = [[x for x in loop.lines() if "take" in x] for loop in loops]
        check(all(t[0]["take"] == 0 and t[0]["first"] == 0.5 and
                  t[0]["last"] == 7 for t in takes),
              f"they begin from something else: {takes}")
        check(takes[0][-1] == takes[1][-1] and takes[0][-1]["take"] == 4,
              f"they end apart: {takes}")


@test("run create --init DIR --model tensors: one file, or several with their "
      "index, are one model")
def several_files():
    def folder(of, files):
        os.mkdir(of)
        index = {}
        for name, given in files.items():
            write(os.path.join(of, name), given)
            index.update({t[0]: name for t in given})
        with open(os.path.join(of, "model.safetensors.index.json"), "w",
                  encoding="ascii") as f:
            json.dump({"metadata": {}, "weight_map": index}, f)
        return of

    def created(source, name):
        os.mkdir(name)
        run(LOCO, "run", "create", "--name", "x", "--init", source, "--model",
            "tensors", "--out", os.path.join(name, "run.yaml"))
        return sorted(x for x in os.listdir(name)
                      if x.startswith(("init-", "layout-")))

    a = ("a", "BF16", [4, 3], bf16([0.5] * 11 + [0.25]))
    b = ("b", "F32", [3], struct.pack("<3f", 1, 2, 3))
    with tempfile.TemporaryDirectory(prefix="loco-init-") as d:
        two = folder(d + "/two", {"model-1.safetensors": [a],
                                  "model-2.safetensors": [b]})
        one = folder(d + "/one", {"model.safetensors": [a, b]})
        made = created(two, d + "/of-two")
        check(len(made) == 2 and made == created(one, d + "/of-one"), f"{made}")
        again = folder(d + "/again", {"model-1.safetensors": [a, b],
                                      "model-2.safetensors": [b]})
        refused("b is there twice", "--init", again, "--model", "tensors",
                "--out", d + "/run.yaml")


@test("run create --init DIR: a Llama begins from a Hugging Face directory, at "
      "every member")
def llama():
    with Swarm(peers=1, rounds=2, period=5, min_peers=1) as before:
        before.start()
        before.wait_finished()
        folder = tempfile.mkdtemp(prefix="loco-init-")
        try:
            run(LOCO, "export", "--state", before.peers[0].state, "--format",
                "hf", "--out", os.path.join(folder, "hf"))
            go_on(os.path.join(folder, "hf"), folder)
            with Swarm(peers=2, rounds=120, period=5, model=lambda s: [
                    "--init", os.path.join(folder, "hf")]) as s:
                s.start("--cpu-percent", "25")  # the run outlasts two joins
                late = comes_late(s)
                late.drain()
                run(LOCO, "verify", "--state", late.state)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def go_on(begin, folder):
    """Steps of no length: what members hold in the end is what they began
    from, if they began from it."""
    still = {"inner.lr": 1e-12, "inner.lr_min": 1e-12, "inner.warmup": 0}
    with Swarm(peers=2, rounds=2, period=2, settings=still.items(),
               model=lambda s: ["--init", begin]) as s:
        s.start()
        s.wait_finished()
        for i, p in enumerate(s.peers):
            out = os.path.join(folder, f"end-{i}")
            run(LOCO, "export", "--state", p.state, "--format", "hf", "--out",
                out)
            a, b = parameters(begin), parameters(out)
            check(len(a) == len(b) and
                  max(abs(x - y) for x, y in zip(a, b)) < 1e-5,
                  f"{p.name} did not begin from {begin}")


def files(peer, kind):
    """What it has, or began to fetch, of those files of the model."""
    return [x for x in os.listdir(os.path.join(peer.state, "shards"))
            if x.startswith(kind + "-")]


def comes_late(s, *arguments, begin=lambda peer: None):
    """A peer comes when there are commits; it dies, and comes back."""
    s.peers[0].wait_round(1)
    check(len(files(s.peers[1], "init")) == 1,
          "a peer that was there at round 0 did not begin from the file")
    late = s.peer()
    for life in (1, 2):
        late.start("--join", s.uri(), *arguments).wait_up()
        begin(late)
        late.wait_status(lambda t: t["rounds_committed"] > 0,
                         "it took part in a round", 60)
        shards = late.status()["shards"]
        check(shards["here"] == shards["of"], f"it waits for some: {shards}")
        if life == 1:
            late.kill()
    s.wait_finished()
    check(files(late, "init") == [], f"it fetched {files(late, 'init')}")
    return late


@test("run create --init FILE: who comes when there are commits does not fetch "
      "what round 0 began from, who was there does")
def late_tensors():
    def words(s):
        return ["--init", any_tensors(s.path("begin.safetensors"))]

    with Looped(peers=2, rounds=60, model=words,
                settings={"inner.seq": 64}.items()) as s:
        s.start()
        s.loops("--step-s", 0.05)
        late = comes_late(s, "--trainer", "socket", begin=lambda peer:
                          Loop(peer, "--goal", 3, "--step-s", 0.05))
        check(len(files(late, "layout")) == 1, "it trains without a layout")


def refused(sentence, *words):
    done = subprocess.run([LOCO, "run", "create", "--name", "x", *words],
                          capture_output=True, text=True, timeout=60,
                          check=False)
    check(done.returncode != 0 and sentence in done.stderr,
          f"{words}: {done.returncode}: {done.stderr}")


@test("run create --init refuses numbers that nobody could train, and says "
      "which tensor")
def refusals():
    with tempfile.TemporaryDirectory(prefix="loco-init-") as folder:
        def path(name):
            return os.path.join(folder, name)

        out = ("--out", path("run.yaml"))
        write(path("ids"), [("a", "F32", [1], struct.pack("<f", 1)),
                            ("position_ids", "I64", [1], bytes(8))])
        refused("position_ids is I64", "--init", path("ids"), *out)
        write(path("nan"), [("a", "F32", [2], struct.pack("<2f", 1, 1)),
                            ("b", "BF16", [2], b"\0\0\xc0\x7f")])
        refused("b has an element that is not finite", "--init", path("nan"),
                *out)
        check(sorted(os.listdir(folder)) in (["author.key", "ids", "nan"],
                                             ["ids", "nan"]),
              f"it left something: {os.listdir(folder)}")
        any_tensors(path("any"))
        refused("brings its model along", "--init", path("any"), "--model",
                "tiny", *out)
        refused("needs text", "--model", "quickstart-1m", *out)
        refused("sync.rollback", "--init", path("any"), "--set",
                "sync.rollback=0.5", *out)
        os.mkdir(path("hf"))
        refused("name a preset", "--init", path("any"), "--sync", "auto", *out)
        refused("--model tensors takes the tensors", "--init", path("hf"), *out)
        with open(path("junk"), "wb") as f:
            f.write(b"\xff" * 64)
        refused("--init", "--init", path("junk"), *out)
