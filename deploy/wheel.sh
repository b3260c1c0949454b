#!/bin/sh
# wheel.sh - the Python wheel: the package with loco, locod and libloco inside.
#
# use: sh deploy/wheel.sh [--arch aarch64] [FOLDER]        (default: dist)
#
# For this machine, or, with --arch, for 64-bit Arm.
# It runs where the oldest glibc is that the wheel shall work on: in a Debian 11
# for every Linux since 2020. Libraries that such a machine may lack are put
# into the wheel (auditwheel). programs.sh builds the programs, and says what
# comes from PyPI. tests/wheel.sh does this in a Debian 11 and tries the wheel
# on Debian 11, 12 and 13.
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh
. deploy/programs.sh
# shellcheck disable=SC2034 # programs.sh reads it
[ "${1:-}" != --arch ] || { programs_arch=${2:?--arch names no architecture}; shift 2; }
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
programs_build 'setuptools>=70.1' wheel auditwheel
work=$programs_work

rm -rf "$work/python" "$work/wheel"
cp -r deploy/python "$work/python"
mkdir "$work/python/loco/bin"
cp "$programs_made/loco" "$programs_made/locod" "$work/python/loco/bin/"
cp "$programs_made/libloco.so.0" "$work/python/loco/bin/"
"${programs_cross}strip" --strip-unneeded "$work"/python/loco/bin/*
# Python takes this name for the platform's, which is in the wheel's tag.
_PYTHON_HOST_PLATFORM=linux-$programs_arch \
    "$programs_tools/pip" wheel -q --no-deps --no-build-isolation -w "$work/wheel" \
    "$work/python"
"$programs_tools/auditwheel" repair -w "$out" "$work"/wheel/*.whl \
    >"$work/repair.log" 2>&1 ||
    { tail -n 20 "$work/repair.log"; exit 1; }
ls -l "$out"
