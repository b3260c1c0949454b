#!/usr/bin/env python3
"""allreduce.py - the table behind allreduce.sh: everything in turns, medians.

Rows are ranks x elements. M elements per second: the median over the turns of
each program's own median over its rounds. The cipher's bound of a row is what
all cores together seal and open in the same turn, over the bytes that its
ranks seal and open: 4(n-1) encoded vectors; of libsodium's ChaCha20-Poly1305,
which all peers can speak, and of AES-256-GCM, which two with instructions for
it take. "cipher's CPU" is the part of the ranks' CPU time that AES needs, from
CPU times, so that other work on the machine does not matter.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"fp32": 4, "fp16": 2 + 2 / 4096}
MI = 1 << 20


def output(command, **more):
    return subprocess.run(command, check=True, text=True, timeout=600,
                          stdout=subprocess.PIPE, **more).stdout


def ours(a, ranks, elements, wire, encryption):
    return json.loads(output(
        [a.loco, "bench", "allreduce", "--peers", str(ranks), "--elements",
         str(elements), "--wire", wire, "--encryption", encryption,
         "--rounds", str(a.rounds), "--json"]))


def mpi(a, ranks, elements):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    r = json.loads(output(
        ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "pml",
         "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include",
         "lo", "-np", str(ranks), a.work + "/mpi", str(elements),
         str(a.rounds)], env=env))
    assert r["wrong"] == 0
    return elements / r["seconds_median"]


def gloo(a, ranks, elements):
    r = json.loads(output(
        [a.python, HERE + "/allreduce_gloo.py", str(ranks), str(elements),
         str(a.rounds)], stderr=subprocess.DEVNULL))
    assert r["wrong"] == 0
    return elements / r["seconds_median"]


def cipher(a, kind):
    """Bytes per second of all cores at once, and per CPU second."""
    runs = [subprocess.Popen([a.work + "/cipher", "1", kind], text=True,
                             stdout=subprocess.PIPE)
            for _ in range(os.cpu_count())]
    seen = [[float(x) for x in r.communicate()[0].split()] for r in runs]
    return sum(s[0] for s in seen), statistics.mean(s[1] for s in seen)


def has_torch(python):
    return shutil.which(python) is not None and subprocess.run(
        [python, "-c", "import torch.distributed"],
        stderr=subprocess.DEVNULL).returncode == 0


def row(a, ranks, elements):
    seen = {}

    def note(name, value):
        seen.setdefault(name, []).append(value)

    for _ in range(a.turns):
        for encryption in ("off", "on"):
            r = ours(a, ranks, elements, "fp16", encryption)
            note(encryption, r["elements_per_s"])
            note("cpu " + encryption, r["cpu_seconds"] / elements * 1e9)
            note("commit", r["commit_seconds_median"])
            note("rss", r["max_rss_bytes"])
        note("fp32", ours(a, ranks, elements, "fp32", "off")["elements_per_s"])
        if os.path.exists(a.work + "/mpi"):
            note("mpi", mpi(a, ranks, elements))
        if a.torch:
            note("gloo", gloo(a, ranks, elements))
        bytes_each = 4 * (ranks - 1) * BYTES["fp16"]
        note("bound sodium", cipher(a, "sodium")[0] / bytes_each)
        wall, cpu = cipher(a, "aes")
        note("bound", wall / bytes_each)
        note("cpu cipher", bytes_each / cpu * 1e9)
    return {k: statistics.median(v) for k, v in seen.items()}


def ratio(r, over, under):
    return f"{r[over] / r[under]:.2f}" if under in r else "-"


def rate(r, name):
    return f"{r[name] / 1e6:,.0f}" if name in r else "-"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--loco", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--mi", default="16,64", help="elements, in 2^20")
    p.add_argument("--python", default="/usr/bin/python3",
                   help="the one that has torch")
    a = p.parse_args()
    a.torch = has_torch(a.python)
    print("| ranks, elements | plain fp16 | Open MPI fp16 | ratio | gloo fp32 "
          "| ratio | plain fp32 | encrypted fp16 | libsodium's bound | ratio "
          "| AES bound | ratio | CPU ns/el. plain, encrypted | cipher's CPU "
          "| commit ms | RSS MB |")
    print("|" + "---|" * 16)
    for ranks in (int(x) for x in a.ranks.split(",")):
        for mi in (float(x) for x in a.mi.split(",")):
            r = row(a, ranks, int(mi * MI))
            print(f"| {ranks}, {mi:g} Mi | {rate(r, 'off')} | "
                  f"{rate(r, 'mpi')} | {ratio(r, 'off', 'mpi')} | "
                  f"{rate(r, 'gloo')} | {ratio(r, 'off', 'gloo')} | "
                  f"{rate(r, 'fp32')} | {rate(r, 'on')} | "
                  f"{rate(r, 'bound sodium')} | "
                  f"{ratio(r, 'on', 'bound sodium')} | "
                  f"{rate(r, 'bound')} | {ratio(r, 'on', 'bound')} | "
                  f"{r['cpu off']:.2f}, {r['cpu on']:.2f} | "
                  f"{ratio(r, 'cpu cipher', 'cpu on')} | "
                  f"{r['commit'] * 1e3:.0f} | {r['rss'] / 1e6:.0f} |",
                  flush=True)
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
