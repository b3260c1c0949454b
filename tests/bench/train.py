#!/usr/bin/env python3
"""train.py - `loco bench train` beside PyTorch, run by run.

use: tests/bench/train.py [--loco FILE] [--python FILE ...] [--shapes A,B]
                          [--threads 1,2] [--rounds N]

For each shape, dtype and thread count: ours, then each PyTorch, `rounds`
times (A B A B); medians over the rounds. `--python` names an interpreter that
has torch (repeatable: Debian's, a virtual environment's). Wall time means
something on a quiet machine only; CPU time is that of all threads in the
cheapest step, and can be compared on a busy one. GFLOP/s count 6 per matrix
parameter and token, and causal attention once.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# dim, layers, heads, ffn, vocab, seq, batch; steps of PyTorch
SHAPES = {
    "tiny": ((128, 4, 4, 344, 256, 256, 8), 20),
    "small": ((384, 6, 6, 1024, 4096, 256, 8), 4),
    "15m": ((512, 8, 8, 1376, 32000, 256, 4), 3),
}
KEYS = ("ms_per_step", "cpu_ms_per_step", "max_rss_bytes")


def last_json(command):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                         timeout=600)
    if run.returncode != 0:
        sys.exit(f"train.py: {' '.join(command)} failed ({run.returncode})")
    return json.loads(run.stdout.splitlines()[-1])


def model_file(folder, name):
    dim, layers, heads, ffn, vocab, seq, _ = SHAPES[name][0]
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w") as f:
        f.write(f"dim: {dim}\nlayers: {layers}\nheads: {heads}\n"
                f"kv_heads: {heads}\nffn: {ffn}\nvocab: {vocab}\nseq: {seq}\n"
                "tied: false\nrope_theta: 10000\nnorm_eps: 0.00001\n")
    return path


def commands(args, path, name, threads, dtype):
    shape, steps = SHAPES[name]
    yield "loco", [args.loco, "bench", "train", "--config", path, "--batch",
                   str(shape[-1]), "--threads", str(threads), "--dtype", dtype,
                   "--json"]
    for python in args.python:
        yield python, [python, os.path.join(HERE, "train_torch.py"),
                       *map(str, shape), str(threads), str(steps), dtype]


def compare(args, path, name, threads, dtype):
    found = {}
    for _ in range(args.rounds):
        for who, command in commands(args, path, name, threads, dtype):
            found.setdefault(who, []).append(last_json(command))
    ours = {k: statistics.median(r[k] for r in found["loco"]) for k in KEYS}
    gflops = statistics.median(r["flops_per_s"] for r in found["loco"]) / 1e9
    for who, runs in found.items():
        x = {k: statistics.median(r[k] for r in runs) for k in KEYS}
        label = f"torch {runs[0]['version']}" if "version" in runs[0] else \
            f"loco, {gflops:.0f} GFLOP/s"
        print(f"{name:6}{dtype:6}{threads} {label:24}"
              f"{x['ms_per_step']:9.1f} ms"
              f"{x['cpu_ms_per_step']:9.1f} CPU ms"
              f"{x['max_rss_bytes'] / 1e6:8.0f} MB   ours is "
              f"{x['ms_per_step'] / ours['ms_per_step']:.2f}x in wall, "
              f"{x['cpu_ms_per_step'] / ours['cpu_ms_per_step']:.2f}x in CPU "
              f"time, {ours['max_rss_bytes'] / x['max_rss_bytes']:.2f} of the "
              "memory", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--loco", default="build/loco")
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--shapes", default=",".join(SHAPES))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    args.python = args.python or [sys.executable]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.shapes.split(","):
            path = model_file(folder, name)
            for threads in map(int, args.threads.split(",")):
                for dtype in ("fp32", "bf16"):
                    compare(args, path, name, threads, dtype)


main()
