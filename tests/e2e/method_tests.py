"""method_tests.py - every method in real daemons, and in `loco sim`; see
e2e.py.
"""
import glob
import json
import os
import re
import tempfile
from xml.etree import ElementTree

from e2e_registry import test
from swarm import LOCO, Swarm, check, run, text_of


# Preset -> rounds, what is set beside the swarm's usual settings. Every row of
# train/sync/presets.def is here (tests/lists.py).
METHODS = {
    "opendiloco": (6, {}),
    "diloco": (6, {}),
    "localsgd": (6, {}),
    "favg-keep": (6, {}),
    "favg-reset": (6, {}),
    "local-adam": (8, {"sync.period": 20, "sync.period_u": 20,
                       "sync.period_v": 20}),
    # Rounds of x, of u, of x, of x with u and v: 4, 6, 8, 12 steps.
    "desloc": (12, {"sync.period": 20, "sync.period_u": 30,
                    "sync.period_v": 60}),
    "muloco": (6, {"sync.outer_lr": 0.7, "sync.outer_momentum": 0.6}),
    "muon-avg": (6, {}),
    "ddp": (40, {"sync.period": 1, "sync.wire": "bf16"}),
    "streaming": (12, {"sync.period": 40, "sync.fragments": 2,
                       "sync.overlap": 5, "sync.outer_lr": 0.7,
                       "sync.outer_momentum": 0.9}),
    # It leaves a plateau at rounds 7 to 10, with up to 12 bits for one of them.
    "eager": (16, {"sync.period": 20, "sync.outer_lr": 0.7,
                  "sync.outer_momentum": 0.5}),
    # A window of 50 ms: some are in the middle of a task when it closes.
    "async-dn": (30, {"sync.period": 60, "sync.outer_lr": 0.7,
                      "sync.outer_momentum": 0.9, "round.grace_ms": 200}),
    "async-naive": (30, {"sync.period": 60, "sync.outer_lr": 0.1,
                         "sync.outer_momentum": 0.9, "round.grace_ms": 200}),
    # Processes that share a processor are not ready together. Of three one is
    # alone every turn, and the draw may name the same one five times.
    "noloco": (24, {"sync.period": 100, "sync.outer_lr": 0.7,
                    "sync.outer_momentum": 0.5, "round.grace_ms": 20000}),
    # Two models for two rounds, one from the third on.
    "adloco": (7, {"sync.outer_lr": 0.7, "sync.trainers": 2,
                   "sync.merge_every": 2, "sync.batch_test": "norm",
                   "sync.batch_most": 4}),
}


def method_survives(preset):
    """Kill one of three in the middle; what is left goes on, and the dead one
    comes back for the state: parameters, and whatever else the method's
    members hold alike."""
    rounds, settings = METHODS[preset]
    settings = {**settings, "sync.robust": None, "sync.audit": None}
    with Swarm(peers=3, rounds=rounds, sync=preset, settings=settings) as s:
        s.start()
        before = s.peers[0].wait_round(2)
        check(before["replicas_equal"] == (preset != "noloco"),
              f"{preset}: replicas_equal is {before['replicas_equal']}")
        s.peers[2].kill()
        s.peers[2].start("--join", s.uri()).wait_up()
        done = s.wait_finished()
        check(all(d["rounds_committed"] >= 3 for d in done[:2]),
              f"{preset}: fewer than three rounds")
        check(done[0]["bits_per_byte"] < 7.5,
              f"{preset}: {done[0]['bits_per_byte']} bits per byte")


for _preset in METHODS:
    test(f"{_preset} survives a kill -9 in the middle", 240,
         smoke=_preset == "noloco")(
        lambda preset=_preset: method_survives(preset))


@test("a lone peer goes on from its checkpoint, whatever the method", 240)
def checkpoints():
    """What the method's members share is in the checkpoint: the state of the
    round that was written, with its hash."""
    for preset in ("desloc", "ddp", "streaming", "async-dn", "adloco"):
        rounds, settings = METHODS[preset]
        with Swarm(peers=1, rounds=2 * rounds, sync=preset,
                   settings=settings) as s:
            peer = s.peer().start("--run", s.yaml).wait_up()
            peer.wait_round(4)
            peer.drain()  # the last state is on disk
            before = peer.log()
            peer.start("--run", s.yaml).wait_up()
            done = s.wait_finished()[0]
            check("another run" not in peer.log(),
                  f"{preset}: the checkpoint was not used")
            check(done["rounds_committed"] < 2 * rounds - 3,
                  f"{preset}: it began anew: {done['rounds_committed']} rounds "
                  f"of {2 * rounds} in its second life; {before[-300:]}")


def newest_checkpoint(peer):
    """Metadata of it."""
    path = max(glob.glob(os.path.join(peer.state, "checkpoints", "round-*")))
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        return json.loads(f.read(size))["__metadata__"]


@test("the optimizer's steps go on from a checkpoint with its moments", 120)
def optimizer_steps():
    with Swarm(peers=1, rounds=40, sync="favg-keep") as s:
        peer = s.peer().start("--run", s.yaml).wait_up()
        peer.wait_round(4)
        peer.drain()
        before = newest_checkpoint(peer)
        check(before["moment_steps"] == before["inner_step"] != "0", before)
        peer.start("--run", s.yaml).wait_up()
        s.wait_finished()
        after = newest_checkpoint(peer)
        check(after["moment_steps"] == after["inner_step"], after)
        check(int(after["inner_step"]) > int(before["inner_step"]), after)


@test("what a method cannot do is refused with a sentence")
def refused():
    with Swarm(peers=1, rounds=1) as s:
        for preset, settings, word in (
                ("desloc", ["sync.wire=fp16"], "bf16"),
                ("local-adam", ["sync.wire=e3m0"], "moments"),
                ("ddp", ["sync.period=4"], "set sync.period=1"),
                ("streaming", ["sync.fragments=3"], "divide"),
                ("streaming", ["sync.fragments=4"], "would hold nothing"),
                ("streaming", ["sync.overlap=25"], "overlap"),
                ("async-dn", ["sync.topology=butterfly"], "topology=ring"),
                ("async-dn", ["sync.wire=int8"], "sync.wire=fp16"),
                ("async-dn", ["sync.topology=owners"],
                 "set sync.topology=ring"),
                ("diloco", ["sync.topology=owners"], "or sync.preset=async-dn"),
                ("desloc", ["inner.optimizer=sgdm"], "set sync.period_v=0"),
                ("desloc", ["inner.optimizer=muon"], "set sync.period_v=0"),
                ("ddp", ["inner.optimizer=muon"], "set inner.optimizer=adamw"),
                ("diloco", ["inner.muon_lr=4"], "or inner.optimizer=muon"),
                ("diloco", ["sync.preset=foo"], "the presets are opendiloco"),
                ("diloco", ["sync.gamma=0.5"], "sync.gamma")):
            sets = [w for v in settings for w in ("--set", v)]
            done = run(LOCO, "run", "create", "--name", "e2e", "--model",
                       s.path("model.yaml"), "--data", s.data, "--sync",
                       preset, *sets, "--out", s.path("no.yaml"), code=3)
            check(word in done.stderr, f"{preset} {settings}: {done.stderr}")


def make_text(d):
    """Packed text and a tiny model in directory d."""
    with open(d + "/text", "w", encoding="ascii") as f:
        f.write(text_of(60000))
    run(LOCO, "data", "pack", d + "/text", "--out", d + "/data",
        "--val-bytes", "4096")
    with open(d + "/tiny.yaml", "w", encoding="ascii") as f:
        f.write("dim: 16\nlayers: 4\nheads: 2\nkv_heads: 2\nffn: 32\n"
                "vocab: 256\nseq: 16\ntied: true\nrope_theta: 10000\n"
                "norm_eps: 0.00001\n")


@test("loco sim train runs every method and prints what the contract names")
def sim_train():
    fields = ("bits_per_byte", "loss", "tokens", "bytes_sent", "virtual_hours",
              "rounds")
    with tempfile.TemporaryDirectory() as d:
        make_text(d)
        with open(d + "/members", "w", encoding="ascii") as f:
            f.write("800 die 1\n1200 join 9\n1500 speed 0 500\n")
        for preset in METHODS:
            period = [] if preset == "ddp" else ["--set", "sync.period=4"]
            if preset == "streaming":
                period += ["--set", "sync.fragments=2"]
            if preset in ("local-adam", "desloc"):
                period += ["--set", "sync.period_u=8",
                           "--set", "sync.period_v=8"]
            out = run(LOCO, "sim", "train", "--sync", preset, "--peers", "3",
                      "--tokens", "3072", "--model", d + "/tiny.yaml",
                      "--data", d + "/data", "--members", d + "/members",
                      "--set", "inner.batch=2", "--set", "inner.micro_batch=2",
                      "--csv", d + "/points.csv", "--plot", d + "/plot.svg",
                      "--seed", "3", "--json", *period)
            answer = json.loads(out.stdout)
            for field in fields:
                check(isinstance(answer[field], (int, float)),
                      f"{preset}: {field} is missing")
            check(answer["tokens"] >= 3072, f"{preset}: too few tokens")
            check(answer["rounds"] > 0, f"{preset}: no round")
            ElementTree.parse(d + "/plot.svg")
        out = run(LOCO, "sim", "train", "--sync", "async-dn", "--set",
                  "sync.topology=owners", "--peers", "3", "--tokens", "3072",
                  "--model", d + "/tiny.yaml", "--data", d + "/data",
                  "--members", d + "/members", "--set", "sync.period=4",
                  "--set", "inner.batch=2", "--set", "inner.micro_batch=2",
                  "--json")
        check(json.loads(out.stdout)["rounds"] > 0, "owners: no flush")
        never = run(LOCO, "sim", "train", "--sync", "diloco", "--peers", "2",
                    "--tokens", "1024", "--model", d + "/tiny.yaml",
                    "--data", d + "/data", "--json")
        check(json.loads(never.stdout)["never_synchronised"] is True,
              "a run shorter than the period says nothing")
        run(LOCO, "sim", "train", "--sync", "noloco", "--set", "sync.gamma=0",
            "--data", d + "/data", code=3)
        # What would be ignored is refused.
        for words in (("ddp", "lab.liars=1"), ("noloco", "lab.liars=1"),
                      ("diloco", "lab.liars=4"),
                      ("opendiloco", "sync.norm_clip=1"),
                      ("opendiloco", "sync.audit=sums"),
                      ("diloco", "lab.lie=truth")):
            run(LOCO, "sim", "train", "--sync", words[0], "--set", words[1],
                "--data", d + "/data", code=3)


@test("loco sim byzantine: lies do damage to a plain mean, centred stands huge "
      "ones, and --most names what is above it")
def sim_byzantine():
    lies = ("huge", "against", "overshoot", "mimic")
    with tempfile.TemporaryDirectory() as d:
        make_text(d)
        lab = ("--model", d + "/tiny.yaml", "--data", d + "/data",
               "--sync", "favg-keep", "--set", "sync.wire=fp16",
               "--set", "sync.period=8", "--rounds", "6", "--json")
        done = run(LOCO, "sim", "byzantine", *lab, "--lies", ",".join(lies),
                   "--seeds", "2", "--most", "60")
        table = json.loads(done.stdout)
        cell = {(c["lie"], c["defence"]): c for c in table["cells"]}
        check(len(cell) == len(table["cells"]) == 3 * (2 + len(lies)),
              f"cells are {sorted(cell)}")
        check((table["peers"], table["liars"], table["rounds"],
               table["seeds"]) == (8, 3, 6, 2), f"heading: {table}")
        check(table["tokens"] == 6 * 8 * 4 * 16 * 8, f"{table['tokens']} tokens")
        for lie in lies:  # one that does nothing would give the same bits
            for defence in ("mean", "clip", "centred"):
                c = cell[lie, defence]
                check(c["diverged"] > 0 or abs(c["percent"]) > 0.02,
                      f"{lie} does nothing to {defence}: {c}")
        check(cell["huge", "mean"]["percent"] is None and
              cell["against", "mean"]["percent"] > 15,
              f"lies do no damage: {table['cells']}")
        check(cell["nobody", "centred"]["percent"] == 0 and
              abs(cell["alone", "centred"]["percent"]) < 3,
              "the honest ones alone train worse")
        for lie in ("huge", "against"):
            check(abs(cell[lie, "centred"]["percent"]) < 4,
                  f"{lie} moves the centre: {cell[lie, 'centred']}")
        check(table["above"] == [] and table["worst"]["centred"]["lie"] in lies,
              f"judged: {table['worst']}, {table['above']}")
        check(done.stderr.count("seed 2: ") == len(cell),
              "no line of progress for each run")
        bad = run(LOCO, "sim", "byzantine", *lab, "--lies", "against",
                  "--liars", "5", "--defences", "centred", "--most", "5",
                  code=1)
        check(json.loads(bad.stdout)["above"] == ["against"] and
              "against, centred: +" in bad.stderr, bad.stderr)
        for words in (("--lies", "truth"), ("--defences", "off"),
                      ("--liars", "8"), ("--set", "lab.lie=flip"),
                      ("--defences", "mean", "--most", "5")):
            run(LOCO, "sim", "byzantine", *lab, *words, code=2)


@test("loco sim work: with the maker's moments honest work is told from every "
      "lie, and nothing is said of what is no audit")
def sim_work():
    with tempfile.TemporaryDirectory() as d:
        make_text(d)
        lab = ("--model", d + "/tiny.yaml", "--data", d + "/data",
               "--sync", "favg-keep", "--set", "sync.wire=fp16",
               "--set", "sync.period=16", "--peers", "5", "--makers", "2",
               "--liars", "2", "--json")
        table = json.loads(run(LOCO, "sim", "work", *lab,
                               "--at", "4,8").stdout)
        check((table["peers"], table["period"]) == (5, 16), f"heading: {table}")
        rows = {r["kind"]: r for r in table["all"]}
        check(len(table["rounds"]) == 2 * len(rows) == 2 * 27,
              f"kinds are {sorted(rows)}")
        honest = ("repeat", "kernels", "fresh", "moments", "rough", "exact")
        for kind, r in rows.items():
            check(r["readings"] == 4, f"{kind} has {r['readings']} readings")
            if kind in honest:
                check((r["good"], r["bad"]) == (4, 0), f"{kind}: {r}")
            elif kind != "self":
                check((r["good"], r["bad"]) == (0, 4), f"{kind}: {r}")
                least = 0.95 if kind in ("push", "pull") else 0.9
                check(r["exact_own"]["most"] < least, f"{kind}: {r}")
        check(rows["rough"]["exact_own"]["least"] > 0.99 and
              rows["rough"]["after"]["least"] > 0.99, f"{rows['rough']}")
        check(rows["repeat"]["own"]["most"] < 0.95,
              "other moments make no difference")
        shown = run(LOCO, "sim", "work", *lab[:-1], "--at", "2").stdout
        check("round 2" in shown and "tilt" in shown, shown)
        for words in (("--at", "0"), ("--at", "5,2"), ("--at", "2,"),
                      ("--at", "x"), ("--other", "int8")):
            run(LOCO, "sim", "work", *lab, *words, code=2)
        for words in (("--sync", "ddp"), ("--makers", "5"),
                      ("--liars", "9")):
            run(LOCO, "sim", "work", *lab, *words, code=3)


@test("loco sim prints one object, and suggests the scenario that was meant")
def sim_command():
    done = run(LOCO, "sim", "dht", "--peers", "20", "--seeds", "2", "--json")
    figures = json.loads(done.stdout)
    check(figures["violations"] == 0 and figures["success"] == 1,
          f"figures are {figures}")
    check(len(figures["trace_hash"]) == 16, "no trace hash")
    wrong = run(LOCO, "sim", "eclispe", code=2)
    check("did you mean 'eclipse'" in wrong.stderr, wrong.stderr)
    wrong = run(LOCO, "sim", "dht", "--set", "link.los=1", code=2)
    check("did you mean 'link.loss'" in wrong.stderr, wrong.stderr)
    check("example:" in run(LOCO, "sim", "--help").stdout, "no example")


@test("run create --sync auto chooses by steps and line, says why, and obeys "
      "--set; a short run with the papers' momentum is warned")
def chosen_method():
    with Swarm(peers=1) as s:
        path = s.path("auto.yaml")

        def create(*words, code=0):
            return run(LOCO, "run", "create", "--name", "x", "--model",
                       s.path("model.yaml"), "--data", s.data, "--out", path,
                       *words, code=code).stderr

        def setting(key):
            with open(path, encoding="utf-8") as f:
                return re.search(rf'^ *{key}: *"?([^"\s]+)', f.read(),
                                 re.M)[1]

        fast = create("--sync", "auto", "--steps", 4096, "--mbit", 1000)
        period = int(setting("period"))
        check(f"period {period}:" in fast and "wire e3m0" in fast, fast)
        check(int(setting("rounds")) == 4096 // period, "not all steps")
        check(setting("optimizer") == "muon", "another inner optimizer")
        create("--sync", "auto", "--steps", 4096, "--mbit", 0.001)
        check(int(setting("period")) > period, "a slow line, the same period")
        create("--sync", "auto", "--steps", 4096, "--set", "sync.period=50")
        check(setting("period") == "50" and setting("rounds") == "82",
              "--set does not count")
        check("needs --steps" in create("--sync", "auto", code=2),
              "no steps, no sentence")
        check("with --sync auto" in create("--steps", 10, code=2),
              "--steps without auto")
        create("--sync", "auto", "--steps", 20)
        check(setting("warmup") == "2", "a short run only warms up")
        large = create("--sync", "auto", "--steps", 4096, "--set",
                       "sync.wire=fp32", "--step-ms", 9)
        check(int(setting("period")) > period and "wire fp32" in large, large)
        for words in (("--steps", 9, "--set", "sync.fragments=2"),
                      ("--steps", 9, "--set", "inner.steps=20")):
            create("--sync", "auto", *words, code=3)
        for words in (("--mbit", "1e-300"), ("--step-ms", "1e-9"),
                      ("--peers", 1), ("--peers", 2 ** 63)):
            create("--sync", "auto", "--steps", 4096, *words, code=2)
        create("--sync", "muloco", "--peers", 16, "--set", "sync.period=9")
        check(setting("outer_momentum") == "0.9", "MuLoCo's step of 16 peers")
        create("--sync", "diloco", "--peers", 16, code=2)
        said = create("--sync", "opendiloco", "--set", "stop.rounds=24",
                      "--set", "sync.period=20")
        check("warning: outer rate 0.7" in said and "sync.outer_lr=1" in said,
              f"no warning: {said}")
        check("warning" not in create("--sync", "opendiloco"),
              "a run without an end is warned")
        check("warning" not in create("--sync", "localsgd", "--set",
                                      "stop.rounds=24"), "plain averaging")
