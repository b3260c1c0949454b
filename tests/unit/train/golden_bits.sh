#!/bin/sh
# golden_bits.sh COMPILER FLAGS... - compile golden_test.c, codec_isa_test.c and
# what they test with other settings than the build's and run them.
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
flags="-std=c11 -D_GNU_SOURCE -ffp-contract=off -I$root $*"
isas=
case $(uname -m) in
x86_64 | amd64)
    flags="$flags -DLOCO_ISA_X86"
    isas="avx2 avx512"
    ;;
esac
# shellcheck disable=SC2086 # flags are words
for isa in $isas; do
    more="-mavx2 -mf16c"
    [ "$isa" = avx2 ] ||
        more="$more -mavx512f -mavx512bw -mavx512dq -mavx512vl"
    # The AVX2 set must stay one when the build as a whole has AVX-512.
    [ "$isa" = avx512 ] || more="$more -mno-avx512f"
    for source in "$root"/train/sync/codec/fast*.c; do
        "$cc" $flags $more -DLOCO_ISA="$isa" -c "$source" \
            -o "$dir/$isa-$(basename "$source" .c).o"
    done
done
# The reference: every other file of the codecs, and the rules.
for source in "$root"/train/sync/codec/*.c "$root/train/sync/rule.c" \
    "$root/proto/base/codec_type.c"; do
    case $source in */fast*) continue ;; esac
    # shellcheck disable=SC2086
    "$cc" $flags -c "$source" -o "$dir/$(basename "$source" .c).o"
done
for test in golden codec_isa; do
    # shellcheck disable=SC2086
    "$cc" $flags "$root/tests/unit/train/${test}_test.c" "$dir"/*.o \
        -o "$dir/$test" -lcmocka -lm
    "$dir/$test"
done
