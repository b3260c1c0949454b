#!/bin/sh
# golden_bits.sh COMPILER FLAGS... - compile golden_test.c and what it tests
# with other settings than the build's and run it.
# Exit 77 (skipped) where the compiler is missing or the CPU lacks what an -m
# flag asks for.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
cc=$1
shift
if ! command -v "$cc" >/dev/null 2>&1; then
    echo "skipped: $cc is not installed"
    exit 77
fi
for flag in "$@"; do
    case $flag in
    -mavx*)
        if ! grep -qw "${flag#-m}" /proc/cpuinfo 2>/dev/null; then
            echo "skipped: this CPU has no ${flag#-m}"
            exit 77
        fi
        ;;
    esac
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$cc" -std=c11 -D_GNU_SOURCE -ffp-contract=off -I"$root" "$@" \
    "$root/tests/unit/train/golden_test.c" "$root/train/sync/codec.c" \
    "$root/train/sync/rule.c" -o "$dir/golden" -lcmocka -lm
"$dir/golden"
