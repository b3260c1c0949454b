#!/usr/bin/env python3
"""methods.py - do the published methods keep their promises at our size?

use: methods.py [--build DIR] [--cache DIR] [--results DIR] [--out FILE]
                [--short] [--list] [--jobs N] [--table] [WORD...]

Trains every case of methods_cases.py with `loco sim train` on real prose and
writes tables and the claims beside their figures, in Markdown
(tests/bench/methods.md). Each case is one JSON file in tests/bench/methods,
with commit and machine; what is there already is not run again, so the script
goes on where it was stopped, on another machine too. Several processes may
share the cases, and --jobs runs so many at a time (as many as there are
processors). A case that failed is not kept: it runs again, and the exit code is
1. WORDs choose cases by name; --table only writes. The text is deploy/text.sh's
(packages of `sh deploy/packages.sh text`), packed into the cache.

--short is the form for tests: a tiny model, generated text, one seed, periods
an eighth as long, a few thousand tokens. It shows that every case runs; there
is nothing to conclude from its figures, and its table and results stay in its
cache.

Settings: the papers' where they name them, periods scaled so that every stream
is averaged at least 20 times. What was tried for a method is a row of the
table.
"""
import argparse
import concurrent.futures
import os
import statistics
import sys

import kept
import methods_cases as m

HERE = os.path.dirname(os.path.abspath(__file__))


class Bench(kept.Kept):
    def __init__(self, a, cases):
        super().__init__(a.results, cases)
        self.a = a
        self.room = kept.Room(a.cache, a.build, a.short)
        self.room.data()
        self.figures = m.Figures(self.get)

    def words(self, c, tokens, mbit, name):
        settings, model = c["set"], c["model"]
        if self.a.short:
            model = m.tiny(model)
            settings = [kept.shorter(s) for s in settings] + [
                "lab.eval_tokens=2048"]
            if c["preset"] == "streaming":
                settings.append("sync.fragments=2")
        write = self.room.write
        return ["--sync", c["preset"], "--peers", c["peers"], "--tokens",
                tokens, "--seed", c["seed"], "--data", self.room.data(),
                "--dtype", "fp32", "--model", write(f"{name}.model", model),
                "--links", write(f"{name}.links", c["links"].format(m=mbit)),
                "--members", write(f"{name}.members", c["members"].format(
                    half=tokens // 2))] + [
                    w for s in settings for w in ("--set", s)]

    def train(self, c):
        tokens = (12_000 if self.a.short else c["tokens"]) * c["peers"]
        name = f"{os.getpid()}-{abs(hash(str(c)))}"
        csv = os.path.join(self.room.cache, f"{name}.csv")
        result = kept.simulate(
            self.a.build, *self.words(c, tokens, 100, name), "--csv", csv)
        if result is None:
            return None
        if c["curve"]:
            with open(csv, encoding="ascii") as f:
                result["curve"] = [line.strip() for line in f]
        if c["members"] or c["preset"] == "adloco":
            return result  # seconds per token change on the way
        # Seconds at 1 Gbit/s: a short run of whole periods tells them.
        part = min(tokens, max(tokens // 20, 6 * m.H * 256 * c["peers"]))
        fast = kept.simulate(self.a.build,
                             *self.words(c, part, 1000, name + "f"))
        if fast is None:
            return None
        result["virtual_hours_1_gbit"] = (
            fast["virtual_hours"] * result["tokens"] / fast["tokens"])
        return result

    # ---- what is written --------------------------------------------------

    def claims(self):
        lines = ["| claim | base | bits per byte | compared | bits per byte | "
                 "change | here | remark |", "|---|---|---|---|---|---|---|---|"]
        for claim, base, other, promise, remark in m.CLAIMS:
            a, b = self.figures.of(base), self.figures.of(other)
            if not a or not b:
                lines.append(f"| {claim} | {base} | | {other} | | | not "
                             f"measured yet | {remark} |")
                continue
            change, noise = m.compared(a, b)
            text = f"{change:+.2f}" + (
                "" if noise is None else f" ± {noise:.2f}") + " %"
            here = m.judged(promise, change, noise, min(len(a), len(b)))
            lines.append(f"| {claim} | {base} | {m.shown(a)} | {other} | "
                         f"{m.shown(b)} | {text} | {here} | "
                         f"{remark} |")
        return lines

    def table(self):
        lines = ["| row | bits per byte | seeds | Mtokens, all | MB of the peer "
                 "that sent most | exchanges | virtual hours, 100 Mbit/s | "
                 "1 Gbit/s |", "|---|---|---|---|---|---|---|---|"]
        for name in m.ROWS:
            bits = self.figures.of(name)
            if not bits:
                lines.append(f"| {name} | not run yet | | | | | | |")
                continue
            mean = {key: statistics.mean(self.figures.of(name, key) or [0])
                    for key in ("rounds", "virtual_hours", "tokens",
                                "virtual_hours_1_gbit")}
            fast = mean["virtual_hours_1_gbit"]
            lines.append(
                f"| {name} | {m.shown(bits)} | {len(bits)} | "
                f"{mean['tokens'] / 1e6:.2f} | "
                f"{self.figures.megabytes(name):.2f} | {mean['rounds']:.0f} | "
                f"{mean['virtual_hours']:.4f} | "
                f"{f'{fast:.4f}' if fast else ''} |")
        return lines

    def jump(self, name):
        """Loss at the point after peers doubled less that before, nats."""
        jumps = []
        for seed in m.SEEDS:
            r = self.get(f"{name}, seed {seed}")
            rows = [line.split(",") for line in r["curve"]] if r else [[]]
            for before, after in zip(rows[1:], rows[2:]):
                if int(after[rows[0].index("peers")]) > int(
                        before[rows[0].index("peers")]):
                    at = rows[0].index("loss")
                    jumps.append(float(after[at]) - float(before[at]))
        return jumps

    def jumps(self):
        lines = ["## Where peers double half way", "",
                 "The training loss after it less that before, nats.", "",
                 "| row | jump |", "|---|---|"]
        for name, row in m.ROWS.items():
            found = self.jump(name) if row["curve"] else []
            if found:
                lines.append(f"| {name} | {m.shown(found)} |")
        return lines

    def routes_lower(self):
        """The claim of arXiv:2506.10911, which is about the spread."""
        for how in ("no averaging", "noloco"):
            a, b = (self.figures.of(f"2 stages, {routes} routes, {how}",
                                    "spread") for routes in m.ROUTES)
            if a and b:
                change, half = m.compared(a, b)
                yield (f"Random routes lower the spread, {how}: "
                       f"{change:+.1f}" + ("" if half is None else
                                           f" ± {half:.1f}") + " %, "
                       + m.judged(m.better, change, half or 0,
                                  min(len(a), len(b))) + ".")

    def routes(self):
        """Replica spread and loss, with fixed and with random routes."""
        lines = ["## Random and fixed routes through two stages", "",
                 "Four hosts a stage. *Columns*: held-out bits per byte of "
                 "each fixed route's model, their mean; *mean model*: of the "
                 "replicas' mean, stage by stage; *spread*: root mean square "
                 "distance of a replica from that mean, per parameter.", "",
                 *self.routes_lower(), "",
                 "| row | loss, nats | columns | mean model | spread |",
                 "|---|---|---|---|---|"]
        for name in m.ROWS:
            if name.startswith("2 stages") and self.figures.of(name):
                lines.append(f"| {name} | " + " | ".join(
                    m.shown(self.figures.of(name, key)) for key in (
                        "loss", "bits_per_byte_routes", "bits_per_byte",
                        "spread")) + " |")
        return lines

    def document(self):
        head = ["# Do the methods keep their promises at this size?", "",
                "Written by `tests/bench/methods.py` from one JSON a case "
                "(tests/bench/methods); do not edit.", ""]
        if self.a.short:
            head += ["**The short form**: a tiny model on generated text. It "
                     "shows that the cases run; nothing follows from the "
                     "figures.", ""]
        head += [self.where(), "",
                 "0.12M parameters (dim 64, 2 layers), 2,048 inner steps of 256 "
                 "tokens a replica, rate 0.003, 131,072 held-out bytes. ±: "
                 "half of the range over the seeds, of a change over its "
                 "seeds one by one. A change within twice of it is a tie. The verdicts "
                 "compare bits per byte; tokens, bytes, exchanges and seconds "
                 "of both rows are in the table: a claim about fewer of them "
                 "wants both. *Seconds* are virtual: 10,000 tokens a second a "
                 "machine, lines of 100 Mbit/s or 1 Gbit/s, 20 ms.", ""]
        return "\n".join(head + self.claims() + [""] + self.table() + [""]
                         + self.jumps() + [""] + self.routes()) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(kept.ROOT, "build"))
    parser.add_argument("--cache", default="")
    parser.add_argument("--results", default="")
    parser.add_argument("--out", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
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
    names = [n for n, c in m.CASES.items()
             if (not a.words or any(w in n for w in a.words))
             and (not a.short or c["seed"] == 1)]
    if a.list:
        print("\n".join(names))
        return 0
    bench = Bench(a, m.CASES)
    ended = []
    if not a.table:
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            ended = list(pool.map(bench.run, names))
    text = bench.document()
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(text)
    print(text)
    print(f"methods: {ended.count(True)} passed, {ended.count(False)} failed, "
          f"{ended.count(None)} skipped (another process is at them)")
    return 1 if False in ended else 0


if __name__ == "__main__":
    sys.exit(main())
