#!/usr/bin/env python3
"""methods.py - do the published methods keep their promises at our size?

use: methods.py [--build DIR] [--cache DIR] [--results DIR] [--data DIR]
                [--out FILE] [--short] [--list] [--threads K] [--table]
                [WORD...]

Trains every case below with `loco sim train` on real prose and writes a table
and the claims beside their figures, in Markdown (tests/bench/methods.md). Each
case is one JSON file in tests/bench/methods, with commit and machine; what is
there already is not run again, so the script goes on where it was stopped, on
another machine too. A case that failed is not kept: it runs again, and the exit
code is 1. WORDs choose cases by name; --table only writes. Without --data the
text is deploy/text.sh's (packages of `sh deploy/packages.sh text`), packed into
the cache.

--short is the form for tests: a tiny model, generated text, periods an eighth
as long, a few thousand tokens. It shows that every case runs; there is nothing
to conclude from its figures, and its table and results stay in its cache.

Settings: the papers' where they name them, periods scaled so that every stream
is averaged at least 8 times. Nothing was tuned towards a result.
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

MODEL = """dim: 80
layers: 4
heads: 4
kv_heads: 4
ffn: 216
vocab: 256
seq: 128
tied: true
rope_theta: 10000
norm_eps: 0.00001
"""
TINY = MODEL.replace("80", "16").replace("216", "32").replace("128", "32")

# Of one replica; all cases see the same number of tokens over all replicas.
TOKENS = 2_000_000
PEERS = 4
H = 32
BASE = ["inner.batch=8", "inner.micro_batch=8", "inner.lr=0.003",
        "inner.lr_min=0.0003", "inner.warmup=50"]
MOMENTS = ["sync.period=16", "sync.period_u=48", "sync.period_v=96"]
ALL_16 = ["sync.period=16", "sync.period_u=16", "sync.period_v=16"]
UNEQUAL = "0 10000 {m} {m} 20\n1 10000 {m} {m} 20\n" \
          "2 5000 {m} {m} 20\n3 2500 {m} {m} 20\n"
EQUAL = "* 10000 {m} {m} 20\n"
DOUBLE = "{half} join 10\n{half} join 11\n{half} join 12\n{half} join 13\n"


def case(preset, *settings, links=EQUAL, members="", peers=PEERS, seed=1):
    return {"preset": preset, "set": list(settings), "links": links,
            "members": members, "peers": peers, "seed": seed}


P = f"sync.period={H}"
CASES = {
    "ddp": case("ddp"),
    "localsgd (AdamW inside)": case("favg-keep", P),
    "diloco": case("diloco", P),
    "diloco, fp16 wire": case("opendiloco", P),
    "diloco, int8 wire": case("diloco", P, "sync.wire=int8"),
    "diloco, E3M0 wire": case("diloco", P, "sync.wire=e3m0"),
    "diloco, E3M0 wire, error feedback": case(
        "diloco", P, "sync.wire=e3m0", "sync.error_feedback=true"),
    "streaming": case("streaming", P),
    "eager": case("eager", P),
    "eager, outer rate 0.7": case("eager", P, "sync.outer_lr=0.7"),
    "noloco": case("noloco", "sync.period=16"),
    "diloco, speeds 4:4:2:1": case("diloco", P, links=UNEQUAL),
    "async-naive, speeds 4:4:2:1": case("async-naive", P, links=UNEQUAL),
    "async-dn without DyLU's grace, speeds 4:4:2:1": case(
        "async-dn", P, "lab.grace_s=0", links=UNEQUAL),
    "async-dn, speeds 4:4:2:1": case("async-dn", P, links=UNEQUAL),
    "async-dn, owners of slices, speeds 4:4:2:1": case(
        "async-dn", P, "sync.topology=owners", links=UNEQUAL),
    "local-adam": case("local-adam", *ALL_16),
    "desloc": case("desloc", *MOMENTS),
    "favg-keep": case("favg-keep", "sync.period=16"),
    "favg-reset": case("favg-reset", "sync.period=16"),
    "desloc, peers double half way": case("desloc", *MOMENTS, members=DOUBLE),
    "favg-keep, peers double half way": case(
        "favg-keep", "sync.period=16", members=DOUBLE),
    "favg-reset, peers double half way": case(
        "favg-reset", "sync.period=16", members=DOUBLE),
    "adloco": case("adloco", P, "sync.trainers=2"),
    "one peer alone": case("diloco", "sync.period=1000000000", peers=1),
}
# NoLoCo's experiment with routes (section 5.2): two stages of four hosts each,
# every micro-batch in its column or in random order through them.
NEVER = "sync.period=1000000000"
STAGES = ["stages=2", "inner.micro_batch=2"]
ROUTES = {"fixed": ["lab.fixed_routes=1"], "random": []}
for _routes, _how in ROUTES.items():
    for _name, _preset, _set in (
            ("no averaging", "noloco", [NEVER]),
            ("noloco", "noloco", ["sync.period=16"]),
            ("diloco", "diloco", [P])):
        CASES[f"2 stages, {_routes} routes, {_name}"] = dict(
            case(_preset, *_set, *STAGES, *_how, peers=8), tied=False)
# The headline claims with 8 replicas and two seeds.
for _seed in (1, 2):
    for _name, _preset, _set in (("ddp", "ddp", []),
                                 ("diloco", "diloco", [P]),
                                 ("noloco", "noloco", ["sync.period=16"])):
        CASES[f"{_name}, 8 peers, seed {_seed}"] = case(
            _preset, *_set, peers=8, seed=_seed)


def file_of(results, name):
    keep = "".join(c if c.isalnum() else "-" for c in name)
    return os.path.join(results, keep + ".json")


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        names = [line.split(":", 1)[1].strip() for line in f
                 if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores"


def shorter(setting):
    """A period an eighth as long; no warm-up of the learning rate."""
    key, value = setting.split("=")
    if key.startswith("sync.period"):
        value = max(2, int(value) // 8)
    return f"{key}={0 if key == 'inner.warmup' else value}"


def generated_text(n_bytes):
    """Words in lines: enough for a program, not for a claim."""
    rng = random.Random(1)
    words = ("the river ran under a low bridge and we walked along it until "
             "evening came with rain from western hills").split()
    lines, size = [], 0
    while size < n_bytes:
        lines.append(" ".join(rng.choice(words) for _ in range(10)) + ".\n")
        size += len(lines[-1])
    return "".join(lines)


class Bench:
    def __init__(self, a):
        self.a = a
        self.tokens = 12_000 if a.short else TOKENS
        os.makedirs(a.cache, exist_ok=True)
        os.makedirs(a.results, exist_ok=True)
        self.model = self.write("model.yaml", TINY if a.short else MODEL)

    def data(self):
        """Packed text; made once."""
        at = os.path.join(self.a.cache, "data")
        if self.a.data or os.path.exists(os.path.join(at, "data.json")):
            return self.a.data or at
        text = os.path.join(self.a.cache, "text.txt")
        if self.a.short:
            self.write("text.txt", generated_text(200_000))
        else:
            subprocess.run(["sh", os.path.join(ROOT, "deploy", "text.sh"),
                            text], check=True)
        subprocess.run([os.path.join(self.a.build, "loco"), "data", "pack",
                        text, "--out", at, "--val-bytes",
                        "8192" if self.a.short else "131072"],
                       check=True, stdout=subprocess.DEVNULL)
        return at

    def write(self, name, text):
        path = os.path.join(self.a.cache, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def train(self, c, tokens, mbit):
        """One run of `loco sim train`; its JSON."""
        settings = list(BASE) + c["set"]
        if self.a.short:
            settings = [shorter(s) for s in settings]
            if c["preset"] == "streaming":
                settings.append("sync.fragments=2")
        model = self.model if c.get("tied", True) else self.write(
            "untied.yaml", (TINY if self.a.short else MODEL).replace(
                "tied: true", "tied: false"))
        command = [os.path.join(self.a.build, "loco"), "sim", "train",
                   "--sync", c["preset"], "--peers", str(c["peers"]),
                   "--tokens", str(tokens), "--model", model,
                   "--links", self.write("links", c["links"].format(m=mbit)),
                   "--members", self.write("members", c["members"].format(
                       half=tokens // 2)),
                   "--seed", str(c["seed"]), "--json",
                   "--threads", str(self.a.threads),
                   "--csv", os.path.join(self.a.cache, "points.csv"),
                   "--data", self.data()]
        for s in settings:
            command += ["--set", s]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            return {"failed": done.stderr.strip()}
        return json.loads(done.stdout)

    def curve(self):
        with open(os.path.join(self.a.cache, "points.csv"),
                  encoding="ascii") as f:
            return [line.strip() for line in f]

    def run(self, name):
        """False: it failed. A case whose settings have changed, or whose
        engine ("outdated": why), runs again."""
        c = CASES[name]
        path = file_of(self.a.results, name)
        kept = self.result(name)
        if kept and kept["case"] == c and "outdated" not in kept and (
                kept["tokens"] >= self.tokens * c["peers"]):
            return True
        print(f"{name} ...", file=sys.stderr, flush=True)
        result = self.train(c, self.tokens * c["peers"], 100)
        points = self.curve()
        # Seconds at 1 Gbit/s: a method's seconds per token do not change, so a
        # short run tells them.
        part = max(self.tokens * c["peers"] // 20, 4 * H * 1024 * c["peers"])
        fast = self.train(dict(c, members=""), min(part, self.tokens *
                                                   c["peers"]), 1000)
        for done in (result, fast):
            if "failed" in done:
                print(f"{name}: {done['failed']}", file=sys.stderr)
                return False
        result["virtual_hours_1_gbit"] = (
            fast["virtual_hours"] * result["tokens"] / fast["tokens"])
        result.update(case=c, commit=commit(), machine=machine(),
                      points=points)
        with open(path + ".new", "w", encoding="ascii") as f:
            json.dump(result, f, indent=1)
        os.rename(path + ".new", path)
        return True

    def result(self, name):
        path = file_of(self.a.results, name)
        if not os.path.exists(path):
            return None
        with open(path, encoding="ascii") as f:
            kept = json.load(f)
        return kept if "bits_per_byte" in kept else None

    def table(self, names):
        lines = ["| case | bits per byte | MB sent per peer | rounds | virtual "
                 "hours, 100 Mbit/s | 1 Gbit/s |",
                 "|---|---|---|---|---|---|"]
        for name in names:
            r = self.result(name)
            if r is None:
                lines.append(f"| {name} | not run yet | | | | |")
                continue
            lines.append(
                f"| {name} | {r['bits_per_byte']:.4f} | "
                f"{self.sent(name) / 1e6:.1f} | {r['rounds']} | "
                f"{r['virtual_hours']:.4f} | "
                f"{r['virtual_hours_1_gbit']:.4f} |")
        return lines

    def bits(self, name):
        """Mean over the seeds of a name with {seed}, and half their range."""
        names = ([name.format(seed=k) for k in (1, 2)] if "{seed}" in name
                 else [name])
        found = [self.result(n)["bits_per_byte"] for n in names]
        return sum(found) / len(found), (max(found) - min(found)) / 2

    def sent(self, name):
        r = self.result(name.format(seed=1))
        return r["bytes_sent"] / r["case"]["peers"]

    def jump(self, name):
        """Loss at the point after peers doubled less that before, nats."""
        if "jump" in self.result(name):
            return self.result(name)["jump"]
        rows = [line.split(",") for line in self.result(name)["points"]]
        loss, peers = rows[0].index("loss"), rows[0].index("peers")
        for before, after in zip(rows[1:], rows[2:]):
            if int(after[peers]) > int(before[peers]):
                return float(after[loss]) - float(before[loss])
        return float("nan")

    def claims(self):
        """What the papers promise, and what is there."""
        lines = ["| claim | here |", "|---|---|"]
        for sentence, figures in CLAIMS:
            try:
                lines.append(f"| {sentence} | {figures(self)} |")
            except (TypeError, KeyError, ValueError, IndexError):
                lines.append(f"| {sentence} | not measured yet |")
        return lines

    def routes(self):
        """Replica spread and loss, with fixed and with random routes."""
        lines = ["## Random and fixed routes through two stages", "",
                 "Four hosts a stage. *Columns*: held-out bits per byte of "
                 "each fixed route's model, their mean; *mean model*: of the "
                 "replicas' mean, stage by stage; *spread*: root mean square "
                 "distance of a replica from that mean, per parameter.", "",
                 "| averaging | routes | loss, nats | columns | mean model | "
                 "spread |", "|---|---|---|---|---|---|"]
        for averaging in ("no averaging", "noloco", "diloco"):
            spread = {}
            for routes in ROUTES:
                r = self.result(f"2 stages, {routes} routes, {averaging}")
                if r is None:
                    lines.append(f"| {averaging} | {routes} | not run yet | | "
                                 "| |")
                    continue
                spread[routes] = r["spread"]
                lines.append(
                    f"| {averaging} | {routes} | {r['loss']:.4f} | "
                    f"{r['bits_per_byte_routes']:.4f} | "
                    f"{r['bits_per_byte']:.4f} | {r['spread']:.3g} |")
            if len(spread) == 2 and spread["fixed"] > 0:
                change = 100 * (spread["random"] / spread["fixed"] - 1)
                lines.append(f"| {averaging} | random against fixed | | | | "
                             f"{change:+.1f} % |")
        return lines

    def document(self, names):
        done = [r for r in map(self.result, names) if r]
        where = sorted({f"{r['machine']}, commit {r['commit']}" for r in done})
        head = ["# Do the methods keep their promises at this size?", "",
                "Written by `tests/bench/methods.py` from one JSON a case "
                "(tests/bench/methods); do not edit.", ""]
        if self.a.short:
            head += ["**The short form**: a tiny model on generated text. It "
                     "shows that the cases run; nothing follows from the "
                     "figures.", ""]
        head += [f"{len(done)} of {len(names)} cases, {self.tokens:,} tokens "
                 f"per first replica. " + "; ".join(where) + ".", ""]
        head += self.outdated(names)
        return "\n".join(head + self.claims() + [""] + self.table(names) +
                         [""] + self.routes()) + "\n"


    def outdated(self, names):
        """A sentence for each reason why figures are not today's engine's."""
        why = {}
        for name in names:
            r = self.result(name)
            if r and "outdated" in r:
                why.setdefault(r["outdated"], []).append(name)
        return [line for reason, cases in why.items() for line in
                (f"Not measured again since {reason}: "
                 + "; ".join(cases) + ".", "")]


def against(a, b):
    """b in bits per byte, beside a."""
    def figures(bench):
        (x, dx), (y, dy) = bench.bits(a), bench.bits(b)
        return (f"{y:.4f} against {x:.4f}: {100 * (y / x - 1):+.2f} %"
                + (f" (spread {max(dx, dy):.4f})" if "{seed}" in a else ""))
    return figures


def fewer_bytes(a, b):
    def figures(bench):
        return (f"{against(a, b)(bench)}, "
                f"{bench.sent(a) / bench.sent(b):.1f} times fewer bytes")
    return figures


def gap(base, bad, good):
    """How much of the gap between base and bad is closed by good."""
    def figures(bench):
        x, y, z = (bench.bits(n)[0] for n in (base, bad, good))
        return (f"{y:.4f} and {z:.4f} against {x:.4f}"
                + (f": {100 * (y - z) / (y - x):.0f} % of the gap closed"
                   if y > x else ": there is no gap"))
    return figures


def jumps(*names):
    def figures(bench):
        return ", ".join(f"{n.split(',')[0]} {bench.jump(n):+.3f}"
                         for n in names) + " nats"
    return figures


CLAIMS = [
    ("fp16 on the wire costs nothing", against("diloco", "diloco, fp16 wire")),
    ("int8", against("diloco", "diloco, int8 wire")),
    ("E3M0", against("diloco", "diloco, E3M0 wire")),
    ("DiLoCo is near DDP at far fewer bytes", fewer_bytes("ddp", "diloco")),
    ("the same, 8 peers, two seeds", fewer_bytes(
        "ddp, 8 peers, seed {seed}", "diloco, 8 peers, seed {seed}")),
    ("pair averaging stays within a few per cent of DiLoCo (8 peers)", against(
        "diloco, 8 peers, seed {seed}", "noloco, 8 peers, seed {seed}")),
    ("naive async is clearly worse, DN with DyLU closes most of the gap", gap(
        "diloco, speeds 4:4:2:1", "async-naive, speeds 4:4:2:1",
        "async-dn, speeds 4:4:2:1")),
    ("arrivals one by one at owners of slices, in the laboratory only, are "
     "no better than quorums", against(
        "async-dn, speeds 4:4:2:1",
        "async-dn, owners of slices, speeds 4:4:2:1")),
    ("eager updates lose little to DiLoCo", against("diloco", "eager")),
    ("eager with DiLoCo's outer rate, 0.7, is not stable in short runs",
     against("diloco", "eager, outer rate 0.7")),
    ("DES-LOC is as good as Local Adam at half of the bytes", fewer_bytes(
        "local-adam", "desloc")),
    ("where peers double, kept moments jump and DES-LOC's do not", jumps(
        "favg-keep, peers double half way", "desloc, peers double half way")),
    ("AdLoCo needs fewer exchanges for the same loss", fewer_bytes(
        "diloco", "adloco")),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--cache", default="")
    parser.add_argument("--results", default="")
    parser.add_argument("--data", default="")
    parser.add_argument("--out", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    a.cache = a.cache or os.path.join(
        a.build, "methods-short" if a.short else "methods")
    a.results = a.results or (a.cache if a.short
                              else os.path.join(HERE, "methods"))
    a.out = a.out or (os.path.join(a.cache, "methods.md") if a.short
                      else os.path.join(HERE, "methods.md"))
    names = [n for n in CASES
             if not a.words or any(w in n for w in a.words)]
    if a.list:
        print("\n".join(names))
        return 0
    bench = Bench(a)
    failed = []
    if not a.table:
        failed = [n for n in names if not bench.run(n)]
    text = bench.document(list(CASES))
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(text)
    print(text)
    print(f"methods: {len(names) - len(failed)} passed, {len(failed)} failed, "
          "0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
