#!/usr/bin/env python3
"""recipe.py - which inner optimizer, outer step, period and wire for a run?

use: recipe.py [--build DIR] [--cache DIR] [--results DIR] [--out FILE]
               [--short] [--list] [--table] [WORD...]

Trains every case below with `loco sim train` on real prose and writes
tests/bench/recipe.md. Each case is one JSON file in tests/bench/recipe, with
commit and machine. What is there already is not run again: the script goes on
where it was stopped, on another machine too. Two processes may share the work:
a case that one has begun is skipped by the other for a day. WORDs choose cases
by name; --table only writes.

--short is the form for tests: a tiny model, generated text, some cases of each
group. Nothing follows from its figures; they stay in its cache.

Groups of cases, each a question:
  recipe   the methods beside each other: 2M tokens a peer, two sizes of model
  rate     learning rates of AdamW and of Muon at two sizes
  outer    rate and momentum of the outer step by the number of rounds
  period   what a longer period costs
"""
import argparse
import os
import statistics
import sys

import kept

HERE = os.path.dirname(os.path.abspath(__file__))

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
SMALL = MODEL.replace("80", "64").replace("216", "172").replace(
    "layers: 4", "layers: 2")
TINY = MODEL.replace("80", "16").replace("216", "32").replace("128", "32")
# Name of the size: the model, sequences of a batch.
MODELS = {"0.12M": (SMALL, 8), "0.35M": (MODEL, 8),
          "1M": ("quickstart-1m", 4)}
BASE = ["inner.lr=0.003", "inner.lr_min=0.0003", "inner.warmup=50",
        "lab.eval_tokens=131072", "lab.eval_every_tokens=0"]

# Cases of muon-avg to be made again: delete their files.
OLD = ("90e9ab8", "c30cf00")
OLD_SAYS = (" Muon with E3M0 of commit 90e9ab8 is from before the laboratory "
            "gave an owner's slice of the sum error feedback.")

H = "sync.period=32"
MUON = "inner.optimizer=muon"
# The rows of the table; AdamW-DDP is what the others are compared with.
METHODS = {
    "AdamW, every gradient (DDP)": ("ddp", []),
    "Muon, every gradient (DDP)": ("ddp", [MUON]),
    "AdamW, averaging": ("favg-keep", [H]),
    "AdamW, DiLoCo .7/.9": ("diloco", [H]),
    "Muon, averaging, E3M0 (muon-avg)": ("muon-avg", [H]),
}

# AdamW's processor time of a step, of Muon's: `loco bench train --config MODEL
# --batch 8 (1M: 4) --steps 40`, with --optimizer muon; Xeon with AVX-512, fp32.
# A step has 1,024 tokens, where Muon's share is largest.
IN_ADAMW_SECONDS = {"0.35M": 0.845, "1M": 0.797}


def cases():
    """name -> what is trained; tokens of one peer."""
    found = {}

    def add(group, model, method, preset, sets, peers=4, seed=1,
            tokens=2_000_000):
        name = f"{group}: {model}, {method}, {peers} peers, seed {seed}"
        found[name] = {"group": group, "model": model, "method": method,
                       "preset": preset, "set": sets, "peers": peers,
                       "seed": seed, "tokens": tokens}

    for model in ("0.35M", "1M"):
        for peers, seeds in ((4, (1, 2, 3)), (8, (1,))):
            for seed in seeds:
                for method, (preset, sets) in METHODS.items():
                    add("recipe", model, method, preset, sets, peers, seed)
    for model, seeds in (("0.35M", (1, 2, 3)), ("1M", (1,))):
        for seed in seeds:
            add("recipe", model, "muon-avg in AdamW's seconds", "muon-avg",
                [H], seed=seed,
                tokens=int(2_000_000 * IN_ADAMW_SECONDS[model]))
    for model in ("0.12M", "0.35M"):
        for lr in (0.0015, 0.003, 0.006, 0.012):
            add("rate", model, f"AdamW lr {lr}", "favg-keep",
                [H, f"inner.lr={lr}", f"inner.lr_min={lr / 10:g}"],
                tokens=500_000)
        for times in (1, 2, 4, 8, 16):
            add("rate", model, f"Muon times {times}", "muon-avg",
                [H, f"inner.muon_lr={times}"], tokens=500_000)
    # 256 tokens a step: many steps of a peer are cheap.
    short = ["inner.batch=2", "inner.micro_batch=2"]

    def outer(steps, period, lr, mu, preset="muon-avg", name="Muon", seed=1):
        add("outer", "0.12M",
            f"{name}, {steps} steps, period {period}, outer {lr}/{mu}", preset,
            [f"sync.period={period}", f"sync.outer_lr={lr}",
             f"sync.outer_momentum={mu}"] + short, seed=seed,
            tokens=steps * 256)

    for seed in (1, 2):
        for period in (8, 32, 128):
            for lr, mu in ((1, 0), (0.7, 0.9)):
                outer(512, period, lr, mu, "favg-keep", "AdamW", seed)
                outer(512, period, lr, mu, seed=seed)
            outer(512, period, 0.9, 0.8, seed=seed)
    for period in (128, 32, 8):
        for lr, mu in ((1, 0), (0.7, 0.9), (0.9, 0.8)):
            outer(4096, period, lr, mu)
        for lr, mu in ((1, 0), (0.7, 0.9)):
            outer(4096, period, lr, mu, "favg-keep", "AdamW")
    for period in (8, 16, 32, 64, 128):
        for peers in (4, 8):
            add("period", "0.12M", f"period {period}", "muon-avg",
                [f"sync.period={period}"], peers=peers, tokens=500_000)
    return found


CASES = cases()


def mean(bits):
    """Over the seeds, with half of their range."""
    text = f"{statistics.mean(bits):.4f}"
    return (text if len(bits) == 1
            else f"{text} ± {(max(bits) - min(bits)) / 2:.4f}")


class Bench(kept.Kept):
    """Trains cases and keeps what came of them; liars.py has others."""

    def __init__(self, a, cases, models):
        super().__init__(a.results, cases)
        self.a, self.models = a, models
        self.room = kept.Room(a.cache, a.build, a.short)

    def tokens(self, c):
        return (12_000 if self.a.short else c["tokens"]) * c["peers"]

    def settings(self, c, batch):
        found = (BASE + [f"inner.batch={batch}", f"inner.micro_batch={batch}"]
                 + c["set"])
        if self.a.short:
            found = [kept.shorter(s) for s in found] + [
                "lab.eval_tokens=2048"]
        return found

    def more(self, c):
        """More options of `loco sim train`."""
        return []

    def train(self, c):
        model, batch = self.models[c["model"]]
        model = TINY if self.a.short else model
        if "\n" in model:
            model = self.room.write(f"{c['model']}.yaml", model)
        result = kept.simulate(
            self.a.build, "--sync", c["preset"], "--peers", c["peers"],
            "--tokens", self.tokens(c), "--model", model, "--seed", c["seed"],
            "--data", self.room.data(), "--dtype", "fp32", *self.more(c),
            *(w for s in self.settings(c, batch) for w in ("--set", s)))
        if result is not None:
            result.pop("points", None)
        return result

    def rows(self, group):
        """(model, method, peers) -> results of all seeds, in order."""
        rows = {}
        for name, c in self.cases.items():
            if c["group"] == group:
                found = rows.setdefault((c["model"], c["method"], c["peers"]),
                                        [])
                r = self.get(name)
                if r:
                    found.append(r)
        return rows

    def table(self, group, base=None):
        """Bits per byte: the mean over seeds ± half of their range. `base`: the
        method that the others are compared with."""
        lines = ["| model, peers | method | bits per byte | seeds | rounds | "
                 "MB sent a peer |" + (" to DDP | bytes |" if base else ""),
                 "|---|---|---|---|---|---|" + ("---|---|" if base else "")]
        rows = self.rows(group)
        for (model, method, peers), found in rows.items():
            if not found:
                continue
            bits = [r["bits_per_byte"] for r in found]
            sent = found[0]["bytes_sent"] / peers
            line = (f"| {model}, {peers} | {method} | {mean(bits)} | "
                    f"{len(bits)} | "
                    f"{found[0]['rounds']} | {sent / 1e6:.2f} |")
            than = rows.get((model, base, peers)) if base else None
            if than:
                x = statistics.mean(r["bits_per_byte"] for r in than)
                line += (f" {100 * (statistics.mean(bits) / x - 1):+.1f} % | "
                         f"1/{than[0]['bytes_sent'] / peers / sent:.0f} |")
            elif base:
                line += " | |"
            lines.append(line)
        return lines

    def document(self):
        titles = {"recipe": "Methods beside each other",
                  "rate": "Learning rates",
                  "outer": "The outer step, by the number of rounds",
                  "period": "The period"}
        old = any(r and r["commit"] in OLD and r["case"]["preset"] == "muon-avg"
                  for r in map(self.get, self.cases))
        lines = ["# The recipe, measured", "",
                 "Written by `tests/bench/recipe.py` from one JSON a case "
                 "(tests/bench/recipe); do not edit.", "",
                 self.where() + (OLD_SAYS if old else ""), "",
                 "131,072 held-out bytes; ±: half of the range over the seeds. "
                 "One seed has no ±: two seeds of a case of 0.12M differ by "
                 "about 0.05.", ""]
        for group, title in titles.items():
            base = next(iter(METHODS)) if group == "recipe" else None
            table = self.table(group, base)
            if len(table) > 2:
                lines += [f"## {title}", ""] + table + [""]
        return "\n".join(lines)


def some(names):
    """The first three cases of each group, another preset each."""
    found = {}
    for name in names:
        c = CASES[name]
        kinds = found.setdefault(c["group"], {})
        if len(kinds) < 3:
            kinds.setdefault(c["preset"], name)
    return [name for kinds in found.values() for name in kinds.values()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(kept.ROOT, "build"))
    parser.add_argument("--cache", default="")
    parser.add_argument("--results", default="")
    parser.add_argument("--out", default="")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    a.cache = a.cache or os.path.join(
        a.build, "recipe-short" if a.short else f"recipe-{os.getpid()}")
    a.results = a.results or (a.cache if a.short
                              else os.path.join(HERE, "recipe"))
    a.out = a.out or (os.path.join(a.cache, "recipe.md") if a.short
                      else os.path.join(HERE, "recipe.md"))
    names = [n for n in CASES if not a.words or any(w in n for w in a.words)]
    if a.short:
        names = some(names)
    if a.list:
        print("\n".join(names))
        return 0
    bench = Bench(a, CASES, MODELS)
    ended = [] if a.table else [bench.run(n) for n in names]
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(bench.document())
    print(f"recipe: {ended.count(True)} passed, {ended.count(False)} failed, "
          f"{ended.count(None)} skipped (another process is at them)")
    return 1 if False in ended else 0


if __name__ == "__main__":
    sys.exit(main())
