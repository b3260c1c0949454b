#!/usr/bin/env python3
"""cuda_plugin.py - what the compiler says about libloco_cuda.so.

use: tests/cuda_plugin.py BUILD
     tests/cuda_plugin.py BUILD --table [--before COMMIT] [SOURCE...]

Reads the .ptxas files that nvcc.sh left beside each object and the plug-in
itself: no kernel spills registers or keeps a stack frame, none needs more than
255 registers or more than its block can have, static shared memory is not used
(all of it is asked for at the launch); the library shows one name, wants nothing
of CUDA but the driver, which it opens by itself, and reads no symbol of the
program that loads it; a multiprocessor with 100 KB of shared memory holds two
blocks of attention's forms for it. Prints a line per kernel; exit 0 when all
holds.

--table prints registers, spills, shared memory and blocks a multiprocessor in
Markdown (cuda_table.py) and checks nothing; in parentheses stands a form for
other GPUs (flash_small() in attention.cuh). SOURCE is how names of .cu files
begin: "attention rmsnorm". COMMIT's kernels are compiled for the same
architectures as BUILD's, in a temporary folder.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

import cuda_table

REGISTERS_MAX = 255
# Of a multiprocessor: a kernel that wants more for its block does not start.
# Blocks have at most 256 threads but for these.
REGISTERS_ALL = 65536
THREADS = {"xent_kernel": 512, "xent_kept_kernel": 512}
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+a?)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(.*)")
# What the library may want: libc, the loader, threads, mathematics.
LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s)\.so|ld-linux")


def kernels(build, sources=("",)):
    """(kernel, sm, registers, frame, spills, static shared bytes)"""
    for path in sorted(glob.glob(f"{build}/kernels/cuda/*.ptxas")):
        if not os.path.basename(path).startswith(tuple(sources)):
            continue
        name = sm = None
        frame = (0, 0, 0)
        with open(path, encoding="utf-8") as f:
            for line in f:
                entry, found = ENTRY.search(line), FRAME.search(line)
                used = USED.search(line)
                if entry:
                    name, sm = entry.groups()
                    frame = (0, 0, 0)
                elif found:
                    frame = tuple(int(x) for x in found.groups())
                elif used and name:
                    shared = re.search(r"(\d+) bytes smem", used.group(2))
                    yield (name, sm, int(used.group(1)), frame[0],
                           frame[1] + frame[2],
                           int(shared.group(1)) if shared else 0)


def short(name):
    plain = subprocess.run(["c++filt", name], capture_output=True, text=True,
                           check=False).stdout.strip() or name
    return plain.split("(")[0].replace("void ", "")


def check_library(path):
    def run(*command):
        return subprocess.run(command, capture_output=True, text=True,
                              check=True).stdout

    shown = [line.split()[-1] for line in
             run("nm", "-D", "--defined-only", path).splitlines()]
    if shown != ["loco_device_plugin"]:
        yield f"{path} shows {', '.join(shown)}"
    for line in run("readelf", "-d", path).splitlines():
        wanted = re.search(r"NEEDED.*\[(.*)\]", line)
        if wanted and not LIBRARIES.match(wanted.group(1)):
            yield f"{path} needs {wanted.group(1)}"


def check(build):
    findings = []
    seen = list(kernels(build))
    for name, sm, registers, frame, spills, shared in seen:
        print(f"{sm} {registers:4d} registers  {short(name)}")
        threads = next((n for kernel, n in THREADS.items() if kernel in name),
                       256)
        if (registers > min(REGISTERS_MAX, REGISTERS_ALL // threads) or frame
                or spills or shared):
            findings.append(f"{short(name)} ({sm}): {registers} registers, "
                            f"{frame} bytes of stack, {spills} of spills, "
                            f"{shared} of static shared memory")
    if not seen:
        findings.append(f"no .ptxas files under {build}/kernels/cuda")
    findings += check_library(os.path.join(build, "libloco_cuda.so"))
    findings += cuda_table.self_test()
    findings += cuda_table.alone(figures(build, [""]))
    for finding in findings:
        print(finding)
    print(f"cuda_plugin: {len(seen)} kernels, {len(findings)} findings")
    return 1 if findings else 0


def figures(build, sources):
    """{(kernel, sm): (registers, spills, static shared bytes)}"""
    return {(short(name), sm.rstrip("a")): (registers, spills, shared)
            for name, sm, registers, _, spills, shared
            in kernels(build, sources)}


def main():
    parser = argparse.ArgumentParser(add_help=False, usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--before")
    parser.add_argument("sources", nargs="*", default=[""])
    args = parser.parse_intermixed_args()
    if not args.table:
        return check(args.build)
    now = figures(args.build, args.sources)
    before = None
    if args.before:
        with cuda_table.compiled(args.before, args.build,
                                 args.sources) as build:
            before = figures(build, args.sources)
    print("\n".join(cuda_table.lines(now, before)))
    return 0 if now else 1


if __name__ == "__main__":
    sys.exit(main())
