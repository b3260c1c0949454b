#!/usr/bin/env python3
"""cuda_plugin.py - what the compiler says about libloco_cuda.so.

use: tests/cuda_plugin.py BUILD

Reads the .ptxas files that nvcc.sh left beside each object and the plug-in
itself: no kernel spills registers or keeps a stack frame, none needs more than
255 registers or more than its block can have, static shared memory is not used
(all of it is asked for at the launch); the library shows one name, wants nothing
of CUDA but the driver, which it opens by itself, and reads no symbol of the
program that loads it. Prints a line per kernel; exit 0 when all holds.
"""
import glob
import os
import re
import subprocess
import sys

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


def kernels(build):
    """(kernel, sm, registers, frame, spills, static shared bytes)"""
    for path in sorted(glob.glob(f"{build}/kernels/cuda/*.ptxas")):
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


def main(build):
    findings = []
    seen = list(kernels(build))
    for name, sm, registers, frame, spills, shared in seen:
        short = subprocess.run(["c++filt", name], capture_output=True,
                               text=True, check=False).stdout.strip() or name
        short = short.split("(")[0].replace("void ", "")
        print(f"{sm} {registers:4d} registers  {short}")
        threads = next((n for kernel, n in THREADS.items() if kernel in name),
                       256)
        if (registers > min(REGISTERS_MAX, REGISTERS_ALL // threads) or frame
                or spills or shared):
            findings.append(f"{short} ({sm}): {registers} registers, {frame} "
                            f"bytes of stack, {spills} of spills, {shared} of "
                            "static shared memory")
    if not seen:
        findings.append(f"no .ptxas files under {build}/kernels/cuda")
    findings += check_library(os.path.join(build, "libloco_cuda.so"))
    for finding in findings:
        print(finding)
    print(f"cuda_plugin: {len(seen)} kernels, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else 2)
