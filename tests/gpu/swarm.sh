#!/bin/sh
# swarm.sh - a run of one peer on the GPU and a peer on the processor, with real
# daemons: ten committed rounds, equal hashes at the end (tests/e2e/cuda_tests.py).
#
# use: sh tests/gpu/swarm.sh [--build DIR] [--prefix DIR] [--emulated]
#      sh tests/gpu/swarm.sh --packages DIR
#
# Builds locod with the plug-in for the GPU that is there and runs the tests
# named "GPU" with it. locod wants the libraries of deploy/packages.sh. A machine
# that lacks them takes them from DIR, where --packages put them on a machine
# with Debian's archive: downloaded and unpacked, nothing is installed, no root;
# carry DIR over and name it with --prefix. With --emulated the emulator of tests/emu takes
# the GPU's place, to try this script; nothing of that is a result of a GPU.
# Exit 0 when the tests passed, 77 without a GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1

build="build-gpu-swarm"
prefix=
emulated=no
packages=
while [ $# -gt 0 ]; do
    case $1 in
    --build)
        build=$2
        shift
        ;;
    --prefix)
        prefix=$(cd "$2" && pwd) || exit 2
        shift
        ;;
    --packages)
        packages=$2
        shift
        ;;
    --emulated) emulated=yes ;;
    *)
        sed -n '2,/^set -u/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 2
        ;;
    esac
    shift
done

# Everything that the libraries of the group "build" want, but for the compiler
# and the C library, which must be this machine's own.
unpack() {
    # shellcheck source=/dev/null
    . deploy/packages.sh
    mkdir -p "$packages/debs" && packages=$(cd "$packages" && pwd) || return 1
    wanted=$(packages_list build | tr ' ' '\n' | grep -E '^lib|^uthash' |
        grep -v -E '^libc6|^libjs')
    # shellcheck disable=SC2086 # words
    all=$(apt-cache depends --recurse --no-recommends --no-suggests \
        --no-conflicts --no-breaks --no-replaces --no-enhances $wanted |
        grep -E '^[a-z0-9]' | sort -u | grep -v -E \
        '^(libc6|libc-bin|libc-dev|libcrypt|gcc|cpp|perl|debconf|dpkg|tar)')
    # shellcheck disable=SC2086
    (cd "$packages/debs" && apt-get download $all) || return 1
    for deb in "$packages"/debs/*.deb; do
        dpkg -x "$deb" "$packages" || return 1
    done
    echo "unpacked $(find "$packages/debs" -name '*.deb' | wc -l) packages:" \
        "--prefix $packages"
}

if [ -n "$packages" ]; then
    unpack
    exit
fi

sm=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
    2>/dev/null | head -n 1 | tr -d ' .')
if [ -z "$sm" ] && [ $emulated = no ]; then
    echo "no GPU  swarm: nvidia-smi shows none (--emulated tries the script)"
    exit 77
fi
if [ -n "$prefix" ]; then
    triplet=$(uname -m)-linux-gnu
    lib=$prefix/usr/lib/$triplet
    export CMAKE_PREFIX_PATH="$prefix/usr"
    export PKG_CONFIG_SYSROOT_DIR="$prefix"
    export PKG_CONFIG_LIBDIR="$lib/pkgconfig:$prefix/usr/share/pkgconfig"
    export LDFLAGS="-Wl,-rpath-link,$lib -L$lib"
    LD_LIBRARY_PATH=$lib:$prefix/lib/$triplet${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
generator=
command -v ninja >/dev/null 2>&1 && [ ! -f "$build/CMakeCache.txt" ] &&
    generator='-G Ninja'
if [ $emulated = yes ]; then
    options='-DLOCO_TESTS=ON'
    targets='loco locod loco_cuda_emulated'
else
    options="-DLOCO_TESTS=OFF -DLOCO_CUDA=ON -DLOCO_CUDA_ARCHS=$sm"
    targets='loco locod loco_cuda'
fi
# shellcheck disable=SC2086 # words
if ! { timeout 120 cmake -S . -B "$build" $generator \
    -DCMAKE_BUILD_TYPE=Release $options >"$build.log" 2>&1 &&
    timeout 600 cmake --build "$build" -j "$(nproc)" --target $targets \
        >>"$build.log" 2>&1; }; then
    tail -n 30 "$build.log"
    echo "swarm: it does not build, see $build.log"
    exit 1
fi
build=$(cd "$build" && pwd)
if [ $emulated = no ]; then
    LOCO_GPU_PLUGIN=$build/libloco_cuda.so
    export LOCO_GPU_PLUGIN
fi
LOCO_BUILD=$build timeout 900 python3 tests/e2e/e2e.py --jobs 1 "GPU"
