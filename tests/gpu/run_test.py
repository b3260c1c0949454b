#!/usr/bin/env python3
"""run_test.py - what tests/gpu/run.sh does with the programs that it calls.

use: python3 tests/gpu/run_test.py [WORD]

No GPU, no nvcc, no build: false programs stand first in PATH and in the build
folder, keep what they were called with, and fail or hang where a test wants it.
With WORD only the tests whose sentence holds it. Exit 0 when all passed.
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
TRIPLET = f"{os.uname().machine}-linux-gnu"
OURS = ("kernels", "bits", "outer", "stage", "model", "speed", "speed_stage")
# Each call in a file of its own: parts run side by side.
KEEP = r"""#!/bin/sh
printf '%s\0' "$@" >"$CALLS/${0##*/}.$$"
"""
SMI = """case "$*" in
*compute_cap*) echo 9.0 ;;
*--list-gpus*) echo 'GPU 0: false'; echo 'GPU 1: false' ;;
*) echo 'False GPU, 1.0' ;;
esac
"""
# What hangs has a second, whatever limit was asked for; the others have it all.
TIMEOUT = """if [ "$1" = -k ]; then shift 2; fi
limit=$1
shift
case $1 in */$HANGS) limit=1 ;; esac
exec %s -k 1 "$limit" "$@"
"""
LOCO = """echo '{"tokens_per_s": 1234, "seed": 5}'
"""
# As loco's CMakeLists.txt asks for jansson; by a name that no system has.
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(ask LANGUAGES C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(UNPACKED REQUIRED IMPORTED_TARGET unpacked)
foreach(what INCLUDE_DIRECTORIES LINK_LIBRARIES)
  get_target_property(found PkgConfig::UNPACKED INTERFACE_${what})
  file(APPEND ${CMAKE_BINARY_DIR}/found "${found}\\n")
endforeach()
"""
# As Debian's package has it: it names the place where it would be installed.
UNPACKED_PC = """prefix=/usr
libdir=${prefix}/lib/%s
includedir=${prefix}/include

Name: unpacked
Description: as dpkg -x leaves it
Version: 2.14
Libs: -L${libdir} -lunpacked
Cflags: -I${includedir}
""" % TRIPLET


class Machine:
    """A folder for one call of run.sh: false programs, a build, their calls."""

    def __init__(self, folder):
        self.folder = folder
        self.calls_at = f"{folder}/calls"
        self.build = f"{folder}/build"
        os.mkdir(self.calls_at)
        self.program("bin/nvidia-smi", SMI)
        self.program("bin/timeout", TIMEOUT % shutil.which("timeout"))
        for name in ("cmake", "nvcc", "find", "compute-sanitizer"):
            self.program(f"bin/{name}")
        self.program("bin/ncu", "echo 'Section: Speed Of Light'\n")
        self.program("bin/python3", "exit 1\n")  # no torch
        for name in OURS:
            self.program(f"build/tests/gpu_{name}", f"echo '  {name} 1 ms'\n")
        self.program("build/loco", LOCO)

    def file(self, name, text):
        path = f"{self.folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def program(self, name, body=""):
        os.chmod(self.file(name, KEEP + body), stat.S_IRWXU)

    def run(self, *words, limit_s=9999, hangs="none"):
        """(exit status, all output, the table at the end)"""
        env = {k: v for k, v in os.environ.items() if k not in (
            "CUDA_VISIBLE_DEVICES", "CMAKE_PREFIX_PATH", "LD_LIBRARY_PATH",
            "PKG_CONFIG_SYSROOT_DIR", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR")}
        env.update(PATH=f"{self.folder}/bin:{env['PATH']}", HANGS=hangs,
                   CALLS=self.calls_at, LIMIT_S=str(limit_s))
        done = subprocess.run(
            ["sh", f"{ROOT}/tests/gpu/run.sh", "--build", self.build, *words],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False)
        return done.returncode, done.stdout, done.stdout.rpartition("\n\n")[2]

    def calls(self, name):
        """The arguments of each call of a program."""
        found = []
        for file in sorted(os.listdir(self.calls_at)):
            if file.rpartition(".")[0] == name:
                with open(f"{self.calls_at}/{file}", encoding="utf-8") as f:
                    found.append(f.read().split("\0")[:-1])
        return found

    def limits(self, program):
        """The limits in seconds under which a program was called."""
        return [int(call[2]) for call in self.calls("timeout")
                if call[0] == "-k" and call[3].split("/")[-1] == program]


def want(true, what):
    if not true:
        raise AssertionError(what)


def prefix_reaches_configure(m):
    """--prefix: what lies unpacked there is what CMake finds"""
    usr = f"{m.folder}/deps/usr"
    m.file(f"deps/usr/lib/{TRIPLET}/pkgconfig/unpacked.pc", UNPACKED_PC)
    m.file(f"deps/usr/lib/{TRIPLET}/libunpacked.so", "")
    os.mkdir(f"{usr}/include")
    m.file("ask/CMakeLists.txt", PROJECT)
    m.program("bin/cmake", f"""echo "$LD_LIBRARY_PATH" >{m.folder}/libraries
{shutil.which('cmake')} -S {m.folder}/ask -B {m.folder}/asked
exit 1 # this is all that is asked
""")
    status, out, _ = m.run("--prefix", usr)
    want(status == 1 and "FAILED  configure" in out, out)
    want("-DLOCO_CUDA_ARCHS=90" in m.calls("cmake")[0], m.calls("cmake"))
    with open(f"{m.folder}/asked/found", encoding="utf-8") as f:
        include, library = f.read().split("\n")[:2]
    want(include == f"{usr}/include", f"CMake includes {include!r}")
    want(library == f"{usr}/lib/{TRIPLET}/libunpacked.so",
         f"CMake links {library!r}")
    with open(f"{m.folder}/libraries", encoding="utf-8") as f:
        want(f.read() == f"{usr}/lib/{TRIPLET}\n", "LD_LIBRARY_PATH")


def check_sanitizers(m, limit_s):
    """Both, our kernels alone under racecheck, a finding is a failure."""
    calls = m.calls("compute-sanitizer")
    tool = {c[c.index("--tool") + 1]: c for c in calls}
    want(len(calls) == 2 and set(tool) == {"memcheck", "racecheck"}, calls)
    for call in calls:
        want(call[:2] == ["--error-exitcode", "9"], call)
        want(f"{m.build}/tests/gpu_kernels" in call, call)
        want(f"{m.build}/libloco_cuda.so" in call, call)
    want("kernel_substring=_kernel" in tool["racecheck"], tool)
    want(m.limits("compute-sanitizer") == [limit_s] * 2,
         m.limits("compute-sanitizer"))


def sanitize_alone(m):
    """--sanitize: memcheck and racecheck with 400 s each, and nothing else"""
    status, out, table = m.run("--ready", "--sanitize")
    want(status == 0 and "\ngpu: 0 failed, " in table, out)
    check_sanitizers(m, 400)
    want("ok      memcheck" in table and "ok      racecheck" in table, table)
    for name in [f"gpu_{name}" for name in OURS] + ["loco", "ncu", "cmake"]:
        want(not m.calls(name), f"{name} was called")


def quick_has_none(m):
    """--quick: no sanitizer, no profile, no torch"""
    status, out, table = m.run("--ready", "--quick")
    want(status == 0, out)
    for name in ("compute-sanitizer", "ncu", "python3"):
        want(not m.calls(name), f"{name} was called")
    for name in ("kernels", "bits", "outer", "stage", "model"):
        want(f"ok      {name} (" in table, table)


def others_go_on(m):
    """a part that fails, hangs or ends half way is a line, the others go on"""
    m.program("build/tests/gpu_bits", "exec sleep 3600\n")
    m.program("build/tests/gpu_model",
              "echo fine; echo 'ERROR: step 75: loss 2 for 1'; exit 1\n")
    m.program("build/tests/gpu_speed", "echo '  attention 7 ms'; exit 1\n")
    m.program("bin/compute-sanitizer",
              'case "$*" in *racecheck*) exit 9 ;; esac\n')
    m.program("build/loco", 'case "$*" in *--host-moments*) '
              f"echo 'no room' >&2; exit 1 ;; esac\n{LOCO}")
    status, out, table = m.run("--ready", hangs="gpu_bits")
    want(status == 1, out)
    check_sanitizers(m, 120)
    for line in ("GPU False GPU, 1.0, sm_90;",
                 "ok      kernels (", "ok      outer (", "ok      stage (",
                 "ok      memcheck (",
                 "FAILED  bits (time limit of 60 s, ",
                 "FAILED  model (exit 1, ", ": ERROR: step 75: loss 2 for 1\n",
                 "FAILED  racecheck (exit 9, ",
                 "skip    swarm: ",
                 "FAILED  speed (exit 1); as far as it came:\n"
                 "  attention 7 ms\n",
                 "loco   150M: tokens_per_s: 1234 \n",
                 "loco   1.1B: tokens_per_s: 1234 \n",
                 "  speed_stage 1 ms\n",
                 "skip    torch: ", "profile: 1 kernels",
                 "FAILED  loco 1.1B-host: no room\n",
                 "loco   150M on 2 GPUs: ", "loco   1.1B on 2 GPUs: ",
                 "\ngpu: 5 failed, "):
        want(line in table, f"no {line!r} in\n{out}")


def no_time_left(m):
    """where no time is left each part has a line that says so"""
    status, out, table = m.run("--ready", limit_s=5)
    want(status == 1, out)
    for name in OURS[:5]:
        want(f"FAILED  {name} (no time is left)" in table, out)
    for line in ("skip    sanitizer: no time is left, see --sanitize",
                 "skip    speed: ", "skip    loco 1.1B: ", "skip    stages: ",
                 "skip    profile: "):
        want(line in table, f"no {line!r} in\n{out}")
    for name in [f"gpu_{name}" for name in OURS] + ["compute-sanitizer"]:
        want(not m.calls(name), f"{name} was called")


TESTS = (prefix_reaches_configure, sanitize_alone, quick_has_none,
         others_go_on, no_time_left)


def main(word=""):
    chosen = [test for test in TESTS if word in test.__doc__]
    failed = 0 if chosen else 1
    for test in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Machine(folder))
                print(f"ok    {test.__doc__}")
            except (AssertionError, OSError) as e:
                failed += 1
                print(f"FAIL  {test.__doc__}\n{e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
