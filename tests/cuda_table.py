"""cuda_table.py - how many blocks of a kernel a multiprocessor holds, and the
table of it that cuda_plugin.py --table prints.

A block waits for memory while another one computes, if there is another one:
registers and shared memory decide. The arithmetic is that of NVIDIA's
cuda_occupancy.h, with all shared memory that the hardware can give (which a
driver does by itself); self_test() has blocks that this header gave.
"""
import contextlib
import glob
import os
import re
import subprocess
import tempfile

# Of a multiprocessor: threads, blocks, KB of shared memory.
LIMITS = {"sm_80": (2048, 32, 164), "sm_86": (1536, 16, 100),
          "sm_89": (1536, 24, 100), "sm_90": (2048, 32, 228),
          "sm_100": (2048, 32, 228), "sm_120": (1536, 24, 100)}
REGISTERS = 65536
PARTS = 4  # of a multiprocessor, each with a quarter of the registers
REGISTER_STEP = 256  # a warp's registers are given in such steps,
SHARED_STEP = 128    # a block's shared bytes in these
RESERVED = 1024  # bytes of a block's shared memory that the driver takes
C = 1024  # channels of a row where a norm's shared memory depends on it


def tiles(d, rows):
    """Rows of bf16 with eight more against bank conflicts."""
    return rows * (d + 8) * 2


def gradient(d, m=1, walked=None, kept=0):
    """Rows that a block of flash_dkv or flash_dq holds, and those of one of its
    four walked tiles. Older commits have one form, <d>."""
    walked = walked or (64 if d <= 80 else 32)
    return (2 - kept) * 64 * m + 4 * walked, walked


# Threads and dynamic shared bytes at the launch, by the numbers in <>; what the
# launchers under kernels/cuda ask for. `flash`: attention.cu, attention_bwd.cu.
LAUNCHES = {
    "flash_fwd": lambda d, m: (128, tiles(d, 64 * m + 4 * 64)),
    "flash_fwd_small": lambda d: (128, tiles(d, 2 * 64)),
    "flash_dkv": lambda d, *form: (128, tiles(d, gradient(d, *form)[0])
                                   + 16 * gradient(d, *form)[1]),
    "flash_dq": lambda d, *form: (128, tiles(d, gradient(d, *form)[0])),
    "flash_delta": lambda: (128, 0),
    "hopper_fwd": lambda d: (256, 1024 + (128 + 8 * 64) * d * 2),
    "hopper_dkv": lambda: (256, 1024 + (256 + 8 * 64) * 128 + 8 * 64 * 4),
    "hopper_dq": lambda: (256, 1024 + (256 + 8 * 64) * 128 + 8 * 64 * 4),
    "plain_fwd": lambda *_: (128, 0),
    "plain_dkv": lambda *_: (128, 0),
    "plain_dq": lambda *_: (128, 0),
    "delta": lambda *_: (128, 0),
    "rmsnorm_fwd": lambda *_: (128, 0),
    "rmsnorm_back": lambda *_: (256, 8 * C * 4),
    "rmsnorm_kept": lambda keep: (256, 2 * keep * 256 * 4),
    "rmsnorm_join": lambda: (256, 8 * 32 * 4),
}


def words(kernel):
    """Its name, and the numbers in <>."""
    name, _, rest = kernel.partition("<")
    return (name.removesuffix("_kernel"),
            [int(n) for n in re.findall(r"\b\d+\b", rest)])


def launch(kernel):
    """(threads, dynamic shared bytes), or None where it is not known."""
    name, numbers = words(kernel)
    how = LAUNCHES.get(name)
    return how and how(*numbers)


# Kernels of attention that have two forms, and how many numbers are in their
# <>; those of older commits have fewer, and one form.
FORMS = {"flash_fwd": 2, "flash_fwd_small": 1, "flash_dkv": 4, "flash_dq": 4}


# Where heads of 64 have 32 rows a warp: run_wide(), attention_bwd.cu.
WIDE = {"flash_dkv": ("sm_80", "sm_100"), "flash_dq": ("sm_80",)}


def is_small(kernel):
    """The form for multiprocessors with 100 KB: flash_small(), attention.cuh."""
    name, numbers = words(kernel)
    return name == "flash_fwd_small" or (
        FORMS.get(name) == len(numbers) == 4 and numbers[3] > 0)


def is_launched(kernel, sm):
    """False where GPUs of this kind take another form."""
    name, numbers = words(kernel)
    if FORMS.get(name) != len(numbers):
        return True
    if name in WIDE and numbers[0] == 64 and LIMITS[sm][2] > 100:
        return (numbers[1] == 2) == (sm in WIDE[name]) and not numbers[3]
    return is_small(kernel) == (LIMITS[sm][2] <= 100 and numbers[0] > 32)


def up(n, step):
    return (n + step - 1) // step * step


def blocks(sm, threads, registers, shared):
    """How many a multiprocessor holds at a time; 0: it cannot start."""
    threads_all, blocks_max, shared_kb = LIMITS[sm]
    warps = up(threads, 32) // 32
    of_warp = up(registers * 32, REGISTER_STEP)
    if of_warp * up(warps, PARTS) > REGISTERS:
        return 0
    by_registers = REGISTERS // PARTS // of_warp * PARTS // warps
    by_shared = shared_kb * 1024 // up(shared + RESERVED, SHARED_STEP)
    return min(threads_all // threads, blocks_max, by_registers, by_shared)


# Blocks by cuda_occupancy.h of CUDA 13.0: of sm, threads, registers, shared.
OCCUPANCY = (
    (16, "sm_80", 128, 32, 0),
    (2, "sm_80", 128, 170, 56647),
    (2, "sm_80", 128, 255, 70426),
    (1, "sm_86", 128, 182, 55116),
    (12, "sm_86", 128, 32, 0),
    (12, "sm_89", 128, 32, 0),
    (3, "sm_89", 256, 64, 32151),
    (2, "sm_90", 256, 128, 99515),
    (1, "sm_90", 256, 255, 0),
    (0, "sm_90", 512, 129, 0),
    (4, "sm_100", 192, 40, 48992),
    (1, "sm_120", 1024, 48, 1531),
    (1, "sm_120", 128, 214, 87267),
    (0, "sm_120", 256, 64, 102577),
)


def self_test():
    """A sentence for each that is another here."""
    for want, *args in OCCUPANCY:
        got = blocks(*args)
        if got != want:
            yield f"blocks{tuple(args)} are {got}, not {want}"


def alone(figures):
    """A sentence for each small form of which fewer than two blocks fit."""
    for (kernel, sm), (registers, _, static) in sorted(figures.items()):
        if is_small(kernel) and is_launched(kernel, sm):
            threads, dynamic = launch(kernel)
            held = blocks(sm, threads, registers, static + dynamic)
            if held < 2:
                yield f"{kernel} ({sm}): {held} block a multiprocessor"


@contextlib.contextmanager
def compiled(commit, build, sources):
    """A build folder in which that commit's kernels were compiled."""
    with open(f"{build}/CMakeCache.txt", encoding="utf-8") as f:
        archs = re.search(r"^LOCO_CUDA_ARCHS:\w+=(.*)$", f.read(), re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        tree = subprocess.run(["git", "archive", commit], check=True,
                              stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=tree, check=True)
        there = f"{folder}/build"
        objects = sorted(
            f"kernels/cuda/{os.path.basename(path)[:-len('.cu')]}.o"
            for path in glob.glob(f"{folder}/kernels/cuda/*.cu")
            if os.path.basename(path).startswith(tuple(sources)))
        for command in (
                ["cmake", "-S", folder, "-B", there, "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=Release", "-DLOCO_CUDA=ON",
                 "-DLOCO_NETWORK=OFF", "-DLOCO_TESTS=OFF",
                 f"-DLOCO_CUDA_ARCHS={archs}"],
                ["cmake", "--build", there, "--target", *objects]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield there


def cell(kernel, sm, found):
    if found is None:
        return "-"
    registers, spills, static = found
    known = launch(kernel)
    held = blocks(sm, known[0], registers, static + known[1]) if known else "?"
    text = f"{registers}{f' + {spills} B' if spills else ''}, {held}"
    return text if is_launched(kernel, sm) else f"({text})"


def row(kernel, when, figures, sms):
    threads, dynamic = launch(kernel) or ("?", "?")
    static = max(f[2] for (name, _), f in figures.items() if name == kernel)
    cells = [cell(kernel, sm, figures.get((kernel, sm))) for sm in sms]
    dynamic = f"{dynamic:,}" if isinstance(dynamic, int) else dynamic
    name = kernel.replace("_kernel", "")
    return (f"| `{name}` | {when} | {threads} | {static} + {dynamic} | "
            + " | ".join(cells) + " |")


def by_number(kernel):
    return [int(word) if word.isdigit() else word
            for word in re.split(r"(\d+)", kernel)]


def lines(now, before):
    """Markdown; of each kernel one row, or two where COMMIT's differs."""
    sms = [sm for sm in LIMITS if any(sm == s for _, s in now)]
    yield ("| registers (+ spills), blocks | | threads | shared bytes | "
           + " | ".join(sms) + " |")
    yield "|---" * (4 + len(sms)) + "|"
    old = before or {}
    for kernel in sorted({name for name, _ in (*now, *old)}, key=by_number):
        was = [old.get((kernel, sm)) for sm in sms]
        is_now = [now.get((kernel, sm)) for sm in sms]
        if was == is_now:
            yield row(kernel, "same", now, sms)
            continue
        if any(was):
            yield row(kernel, "before", old, sms)
        if any(is_now):
            yield row(kernel, "now" if before is not None else "", now, sms)
