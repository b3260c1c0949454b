#!/usr/bin/env python3
"""train.py - `loco bench train` beside PyTorch, run by run: the whole table.

use: tests/bench/train.py [--loco FILE] [--rounds N] [--shapes A,B]
                          [--threads 1,2] [--dtypes fp32,bf16] [--isa avx2]
                          [--python FILE ...] [--venv DIR] [--no-install]

For each shape, dtype and thread count: ours, then each PyTorch, `rounds`
times (A B A B), medians over the rounds. Ratios are PyTorch's time of a step
over ours, in wall time and, in brackets, in CPU time of all threads; wall time
means something on a quiet machine only: the last column says what share of the
machine others used meanwhile. *Share* is ours of the best large product that
our own kernels reach with the same threads and dtype; *of the peak* is ours of
what multiply-adds in registers alone reach. In brackets: in CPU time.

--isa avx2 switches AVX-512 off for both sides. A dtype that the processor
lacks is left out by name.

PyTorch: every --python FILE, an interpreter that has torch. Without one:
Debian's (installed with apt-get where that is possible: python3-torch and
libopenblas0-pthread, without which it runs on the reference BLAS) and PyPI's
newest in a virtual environment (--venv, by default in ~/.cache/loco-bench;
some gigabytes). --no-install takes what is there. Versions are printed.

Then two more figures: quickstart-1m in tokens per second, and two processes
of one thread each beside one process of two threads.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# dim, layers, heads, ffn, vocab, seq, batch; steps of PyTorch
SHAPES = {
    "tiny": ((128, 4, 4, 344, 256, 256, 8), 20),
    "small": ((384, 6, 6, 1024, 4096, 256, 8), 4),
    "15m": ((512, 8, 8, 1376, 32000, 256, 4), 3),
}
# What is asked of the ratio: (shape, threads) or threads alone, fp32 and bf16.
TARGETS = {1: (1.25, 1.3), 2: (1.4, 1.4), ("tiny", 2): (1.6, 1.6)}
# PyTorch, its oneDNN and its MKL without AVX-512.
NO_AVX512 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
# Of a processor's features, those that products can use.
FEATURES = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16",
            "avx512_fp16", "amx_tile", "amx_bf16", "avx10", "asimd", "bf16",
            "i8mm", "sve")
# What a shell may have set for others; PyTorch's own settings follow.
FOREIGN = ("OMP_", "KMP_", "GOMP_", "OPENBLAS_", "GOTO_", "MKL_", "DNNL_",
           "ONEDNN_", "ATEN_")
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(FOREIGN)}


# ---- PyTorch ----------------------------------------------------------------

def version(python):
    """What that interpreter has: version and the libraries it loads; None."""
    code = ("import torch; torch.mm(*[torch.ones(64, 64)] * 2); "
            "names = {l.split('/')[-1].strip() for l in "
            "open('/proc/self/maps') if '.so' in l}; print(torch.__version__, "
            "*sorted(n for n in names if 'blas' in n or 'mkl' in n))")
    try:
        run = subprocess.run([python, "-c", code], capture_output=True,
                             text=True, timeout=300, env=ENVIRONMENT)
    except OSError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def attempt(*command):
    print("train.py:", *command, file=sys.stderr, flush=True)
    try:
        return subprocess.run(command, stdout=sys.stderr).returncode == 0
    except OSError as e:
        print(f"train.py: {e}", file=sys.stderr)
        return False


def debian_torch(install):
    python = "/usr/bin/python3"
    if version(python) is None and install:
        attempt("apt-get", "install", "-y", "-qq", "--no-install-recommends",
                "python3-torch", "libopenblas0-pthread")
    return python


def pypi_torch(venv, install):
    python = os.path.join(venv, "bin", "python")
    if version(python) is None and install:
        if attempt(sys.executable, "-m", "venv", venv):
            attempt(python, "-m", "pip", "install", "-q", "torch")
    return python


def find_torch(args):
    pythons = args.python or [debian_torch(args.install),
                              pypi_torch(args.venv, args.install)]
    found = []
    for python in pythons:
        what = version(python)
        print(f"{python}: {'no torch' if what is None else 'torch ' + what}")
        if what is not None:
            found.append(python)
    if not found:
        sys.exit("train.py: no PyTorch; give --python FILE, or leave "
                 "--no-install away")
    return found


# ---- runs -------------------------------------------------------------------

def machine_s():
    """Seconds that all processors have worked so far."""
    with open("/proc/stat", encoding="ascii") as f:
        x = [int(word) for word in f.readline().split()[1:]]
    return (x[0] + x[1] + x[2] + x[5] + x[6] + x[7]) / os.sysconf("SC_CLK_TCK")


def children_s():
    x = os.times()
    return x.children_user + x.children_system


def run_all(*commands):
    """Side by side; the last line of each is JSON. `others`: the share of the
    machine that other processes used meanwhile."""
    began, machine, own = os.times().elapsed, machine_s(), children_s()
    runs = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True,
                             env=ENVIRONMENT) for c in commands]
    results = []
    for c, run in zip(commands, runs):
        text = run.communicate(timeout=1200)[0]
        if run.returncode != 0:
            sys.exit(f"train.py: {' '.join(c)} failed ({run.returncode})")
        results.append(json.loads(text.splitlines()[-1]))
    took = (os.times().elapsed - began) * os.cpu_count()
    others = (machine_s() - machine) - (children_s() - own)
    for r in results:
        r["others"] = max(0.0, others / took)
    return results


def model_file(folder, name):
    dim, layers, heads, ffn, vocab, seq, _ = SHAPES[name][0]
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w", encoding="ascii") as f:
        f.write(f"dim: {dim}\nlayers: {layers}\nheads: {heads}\n"
                f"kv_heads: {heads}\nffn: {ffn}\nvocab: {vocab}\nseq: {seq}\n"
                "tied: false\nrope_theta: 10000\nnorm_eps: 0.00001\n")
    return path


def ours(args, config, batch, threads, dtype):
    return [args.loco, "bench", "train", "--config", config, "--batch",
            str(batch), "--threads", str(threads), "--dtype", dtype, "--json",
            *(["--isa", args.isa] if args.isa else [])]


def torch(python, name, threads, dtype):
    shape, steps = SHAPES[name]
    return [python, "-W", "ignore", os.path.join(HERE, "train_torch.py"),
            *map(str, shape), str(threads), str(steps), dtype]


def median(runs, key):
    return statistics.median(r[key] for r in runs)


# ---- tables -----------------------------------------------------------------

def compare(args, pythons, name, threads, dtype):
    commands = [ours(args, model_file(args.folder, name),
                     SHAPES[name][0][-1], threads, dtype)]
    commands += [torch(p, name, threads, dtype) for p in pythons]
    rounds = [[run_all(c)[0] for c in commands] for _ in range(args.rounds)]
    runs = list(zip(*rounds))  # of each command
    we = runs[0]
    cells = [f"{name} {dtype}, {threads}",
             f"{median(we, 'ms_per_step'):.1f} "
             f"({median(we, 'cpu_ms_per_step'):.1f})"]
    for x in runs[1:]:
        wall = median(x, "ms_per_step") / median(we, "ms_per_step")
        cpu = median(x, "cpu_ms_per_step") / median(we, "cpu_ms_per_step")
        cells += [f"{median(x, 'ms_per_step'):.1f} "
                  f"({median(x, 'cpu_ms_per_step'):.1f})",
                  f"{wall:.2f} ({cpu:.2f})"]
    target = TARGETS.get((name, threads), TARGETS.get(threads, ("", "")))
    memory = max(median(we, "max_rss_bytes") / median(x, "max_rss_bytes")
                 for x in runs[1:])
    others = max(r["others"] for x in runs for r in x)
    cells += [str(target[dtype == "bf16"]),
              f"{median(we, 'tokens_per_s'):.0f}",
              f"{median(we, 'flops_per_s') / 1e9:.0f}",
              f"{median(we, 'mfu'):.0%} ({median(we, 'cpu_mfu'):.0%})",
              of_peak(we),
              f"{memory:.2f}", f"{others:.0%}"]
    row(cells)


def of_peak(runs):
    """Whole steps in parts of the peak, in wall time and in CPU time."""
    peak = [r["flops_per_s"] / r["peak_flops_per_s"] for r in runs]
    cpu = [x * r["ms_per_step"] * r["threads"] / r["cpu_ms_per_step"]
           for x, r in zip(peak, runs)]
    return f"{statistics.median(peak):.0%} ({statistics.median(cpu):.0%})"


def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def header(pythons):
    names = [version(p).split()[0] for p in pythons]
    cells = ["shape, dtype, threads", "ours, ms a step (CPU)"]
    for name in names:
        cells += [f"torch {name}", "ratio"]
    cells += ["target", "our tokens/s", "GFLOP/s", "share", "of the peak",
              "most memory",
              "others"]
    row(cells)
    row(["---"] * len(cells))


def quickstart(args):
    """Tokens per second, and what a second process costs."""
    for dtype in args.dtypes:
        one = ours(args, "quickstart-1m", 4, 1, dtype)
        two = ours(args, "quickstart-1m", 4, 2, dtype)
        pairs, threads, others = [], [], []
        for _ in range(args.rounds):
            side = run_all(one, one)
            both = run_all(two)
            pairs.append(sum(r["tokens_per_s"] for r in side))
            threads.append(both[0]["tokens_per_s"])
            others += [r["others"] for r in side + both]
        pair, thread = statistics.median(pairs), statistics.median(threads)
        print(f"quickstart-1m {dtype}: one process of 2 threads "
              f"{thread:.0f} tokens/s (target 35000), 2 processes of one "
              f"{pair:.0f}, {pair / thread:.2f} of it (target 0.9); others "
              f"used {max(others):.0%}", flush=True)


# ---- the machine ------------------------------------------------------------

def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


def processor(args):
    """Name, features, siblings and peak of this machine, in two lines."""
    info = dict(line.split(":", 1) for line in
                read("/proc/cpuinfo").split("\n\n")[0].splitlines()
                if ":" in line)
    info = {k.strip(): v.strip() for k, v in info.items()}
    words = (info.get("flags") or info.get("Features") or "").split()
    cores = {read(f"/sys/devices/system/cpu/cpu{i}/topology/"
                  "thread_siblings_list").strip()
             for i in os.sched_getaffinity(0)}
    n = len(os.sched_getaffinity(0))
    print(f"{info.get('model name', 'a processor')}: "
          f"{' '.join(w for w in FEATURES if w in words)}; {n} processors of "
          f"{len(cores)} cores"
          f"{' (siblings share a core)' if len(cores) < n else ''}")
    one = run_all(ours(args, "quickstart-1m", 1, 1, "fp32"))[0]
    print(f"kernels {one['isa']}; peak of a core in fp32, multiply-adds in "
          f"registers alone: {one['peak_flops_per_s'] / 1e9:.0f} GFLOP/s")


def has(args, dtype):
    """Whether ours runs; else says why not."""
    run = subprocess.run(ours(args, "quickstart-1m", 1, 1, dtype) +
                         ["--steps", "1"], capture_output=True, text=True,
                         env=ENVIRONMENT)
    if run.returncode != 0:
        print(f"{dtype} is left out: {run.stderr.strip()}")
    return run.returncode == 0


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--loco", default=os.path.join(ROOT, "build", "loco"))
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--venv", default=os.path.expanduser(
        "~/.cache/loco-bench/torch"))
    p.add_argument("--no-install", dest="install", action="store_false")
    p.add_argument("--shapes", default=",".join(SHAPES))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--isa", choices=["avx2"])
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    args.shapes = args.shapes.split(",")
    args.dtypes = args.dtypes.split(",")
    args.threads = [int(n) for n in args.threads.split(",")]
    if not os.path.exists(args.loco):
        sys.exit(f"train.py: {args.loco} is not there; build it, or give "
                 "--loco FILE")
    if args.isa:
        ENVIRONMENT.update(NO_AVX512)
    return args


def main():
    args = arguments()
    processor(args)
    args.dtypes = [dtype for dtype in args.dtypes if has(args, dtype)]
    pythons = find_torch(args)
    with tempfile.TemporaryDirectory() as args.folder:
        header(pythons)
        for name in args.shapes:
            for threads in args.threads:
                for dtype in args.dtypes:
                    compare(args, pythons, name, threads, dtype)
    quickstart(args)


main()
