#!/bin/sh
# neon.sh - the kernels for 64-bit Arm: compiled here, run by qemu-user, first as
# a processor with all that it knows, then as one without products in bf16.
#
# use: neon.sh TEST...     (TEST_test.c beside this file)
#
# Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user. Exit 77, which
# ctest calls skipped, where they are not installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64 ar; do
    command -v $tool >/dev/null || {
        echo "skipped: $tool is not installed"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
flags="-std=c11 -O3 -Wall -Wextra -Werror -D_GNU_SOURCE -DLOCO_ISA_NEON \
    -ffp-contract=off -I$here/cross -I$root"
fast="-DLOCO_ISA=neon -fno-math-errno -fno-trapping-math -Wno-psabi"
bf16="-march=armv8.2-a+bf16 -DLOCO_BF16 -DLOCO_BFMMLA"
k=$root/kernels
# shellcheck disable=SC2086 # lists of flags and files
{
    $cc $flags -c $k/affinity.c $k/pool.c $k/device.c $k/backend_cpu.c $k/sets.c $k/measure.c $k/rounded.c \
        $k/cpu/embed.c $k/cpu/rmsnorm.c $k/cpu/rope.c $k/cpu/attention.c \
        $k/cpu/swiglu.c $k/cpu/matmul.c $k/cpu/xent.c $k/cpu/optimizer.c \
        $k/cpu/muon.c \
        "$root/proto/base/err.c" "$root/proto/base/pages.c"
    for file in embed rope optimizer fast_muon fast_table; do
        $cc $flags $fast -DLOCO_ISA_BF16 -c "$k/cpu/$file.c" -o "neon_$file.o"
    done
    for file in rmsnorm swiglu xent attention matmul peak; do
        $cc $flags $fast -ffp-contract=fast -c "$k/cpu/fast_$file.c"
    done
    for file in matmul peak; do
        $cc $flags $fast $bf16 -c "$k/cpu/fast_$file.c" -o "bf16_$file.o"
    done
}
ar rc kernels.a ./*.o
# run PROCESSOR TEST: what it printed is left in TEST.out
run() {
    qemu-aarch64 -cpu "$1" "./$2" >"$2.out" || {
        cat "$2.out"
        exit 1
    }
}
for test; do
    # shellcheck disable=SC2086 # a list of flags
    $cc $flags -static "$here/${test}_test.c" kernels.a -o "$test" -lm -lpthread
    echo "== $test"
    run max "$test"
    cat "$test.out"
done
# What is skipped passes, so: the products in bf16 did run, and a processor that
# has none was seen as such.
if [ -e bf16 ]; then
    grep -q '^neon: products in bf16 ran' bf16.out
    echo "== bf16, on a processor without such products"
    run cortex-a72 bf16
    cat bf16.out
    ! grep -q '^neon: products in bf16 ran' bf16.out || exit 1
fi
