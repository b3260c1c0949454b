#!/usr/bin/env python3
"""methods.py - do the published methods keep their promises at our size?

use: methods.py [--build DIR] [--cache DIR] [--data DIR] [--short] [--list]
                [--threads K] [--table] [WORD...]

Trains every case below with `loco sim train` on real prose and prints a table
in Markdown. Each case is one JSON file in the cache, with commit and machine;
what is there already is not run again, so the script goes on where it was
stopped. WORDs choose cases by name; --table only prints. --short is the form
for tests: a tiny model, a few thousand tokens, nothing to conclude from.

Settings: the papers' where they name them, periods scaled so that every stream
is averaged at least 8 times. Nothing was tuned towards a result.
"""
import argparse
import json
import os
import platform
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
    "noloco": case("noloco", "sync.period=16"),
    "diloco, speeds 4:4:2:1": case("diloco", P, links=UNEQUAL),
    "async-naive, speeds 4:4:2:1": case("async-naive", P, links=UNEQUAL),
    "async-dn without DyLU's grace, speeds 4:4:2:1": case(
        "async-dn", P, "lab.grace_s=0", links=UNEQUAL),
    "async-dn, speeds 4:4:2:1": case("async-dn", P, links=UNEQUAL),
    "local-adam": case("local-adam", *ALL_16),
    "desloc": case("desloc", *MOMENTS),
    "favg-keep": case("favg-keep", "sync.period=16"),
    "favg-reset": case("favg-reset", "sync.period=16"),
    "desloc, peers double half way": case("desloc", *MOMENTS, members=DOUBLE),
    "favg-keep, peers double half way": case(
        "favg-keep", "sync.period=16", members=DOUBLE),
    "favg-reset, peers double half way": case(
        "favg-reset", "sync.period=16", members=DOUBLE),
    "adloco": case("adloco", P),
    "one peer alone": case("diloco", "sync.period=1000000000", peers=1),
}
# The headline claims with 8 replicas and two seeds.
for _seed in (1, 2):
    for _name, _preset, _set in (("ddp", "ddp", []),
                                 ("diloco", "diloco", [P]),
                                 ("noloco", "noloco", ["sync.period=16"])):
        CASES[f"{_name}, 8 peers, seed {_seed}"] = case(
            _preset, *_set, peers=8, seed=_seed)


def file_of(cache, name):
    keep = "".join(c if c.isalnum() else "-" for c in name)
    return os.path.join(cache, keep + ".json")


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        names = [line.split(":", 1)[1].strip() for line in f
                 if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores"


class Bench:
    def __init__(self, a):
        self.a = a
        self.tokens = 20_000 if a.short else TOKENS
        os.makedirs(a.cache, exist_ok=True)
        self.model = self.write("model.yaml", TINY if a.short else MODEL)

    def write(self, name, text):
        path = os.path.join(self.a.cache, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def train(self, c, tokens, mbit):
        """One run of `loco sim train`; its JSON."""
        settings = list(BASE) + c["set"]
        if self.a.short:
            settings = [s.replace("inner.warmup=50", "inner.warmup=0")
                        for s in settings]
        command = [os.path.join(self.a.build, "loco"), "sim", "train",
                   "--sync", c["preset"], "--peers", str(c["peers"]),
                   "--tokens", str(tokens), "--model", self.model,
                   "--links", self.write("links", c["links"].format(m=mbit)),
                   "--members", self.write("members", c["members"].format(
                       half=tokens // 2)),
                   "--seed", str(c["seed"]), "--json",
                   "--threads", str(self.a.threads),
                   "--csv", os.path.join(self.a.cache, "points.csv")]
        if self.a.data:
            command += ["--data", self.a.data]
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
        c = CASES[name]
        path = file_of(self.a.cache, name)
        if os.path.exists(path):
            return
        print(f"{name} ...", file=sys.stderr, flush=True)
        result = self.train(c, self.tokens * c["peers"], 100)
        points = self.curve() if "failed" not in result else []
        # Seconds at 1 Gbit/s: a method's seconds per token do not change, so a
        # short run tells them.
        part = max(self.tokens * c["peers"] // 20, 4 * H * 1024 * c["peers"])
        fast = self.train(dict(c, members=""), min(part, self.tokens *
                                                   c["peers"]), 1000)
        if "failed" not in result and "failed" not in fast:
            result["virtual_hours_1_gbit"] = (
                fast["virtual_hours"] * result["tokens"] / fast["tokens"])
        result.update(case=c, commit=commit(), machine=machine(),
                      points=points)
        with open(path + ".new", "w", encoding="ascii") as f:
            json.dump(result, f, indent=1)
        os.rename(path + ".new", path)

    def table(self, names):
        print("| case | bits per byte | MB sent per peer | rounds | virtual "
              "hours, 100 Mbit/s | 1 Gbit/s |")
        print("|---|---|---|---|---|---|")
        for name in names:
            path = file_of(self.a.cache, name)
            if not os.path.exists(path):
                continue
            with open(path, encoding="ascii") as f:
                r = json.load(f)
            if "failed" in r:
                print(f"| {name} | {r['failed'][:70]} | | | | |")
                continue
            peers = r["case"]["peers"]
            print(f"| {name} | {r['bits_per_byte']:.4f} | "
                  f"{r['bytes_sent'] / peers / 1e6:.1f} | {r['rounds']} | "
                  f"{r['virtual_hours']:.4f} | "
                  f"{r.get('virtual_hours_1_gbit', 0):.4f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--cache",
                        default=os.path.join(ROOT, "build", "methods"))
    parser.add_argument("--data", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    if a.short and a.cache == parser.get_default("cache"):
        a.cache += "-short"
    names = [n for n in CASES
             if not a.words or any(w in n for w in a.words)]
    if a.list:
        print("\n".join(names))
        return 0
    bench = Bench(a)
    if not a.table:
        for name in names:
            bench.run(name)
    bench.table(names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
