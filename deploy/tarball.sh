#!/bin/sh
# tarball.sh - loco for any Linux in one file, that install.sh installs.
#
# use: sh deploy/tarball.sh [--arch aarch64] [FOLDER]        (default: dist)
#
# For this machine, or, with --arch, for 64-bit Arm.
# Makes loco-VERSION-linux-ARCH.tar.gz and the same name with .sha256. Inside:
# bin/loco, bin/locod, lib/ with every library that they need but glibc's own,
# libloco for training loops, pages, completions, a systemd user unit, licences.
# It runs where the oldest glibc is that the file shall work on, in a Debian 11:
# tests/tarball.sh does that, twice, and tries the file on Debian 11, 12 and 13.
#
# The same commit gives the same bytes in any folder, as long as Debian's and
# PyPI's packages are the same. All times in the file are SOURCE_DATE_EPOCH,
# else the time of the last commit.
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh
. deploy/programs.sh
LC_ALL=C
export LC_ALL

die() {
    echo "tarball: $*" >&2
    exit 1
}

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) ||
        die "git cannot tell the time of the last commit; set SOURCE_DATE_EPOCH to it"
fi
export SOURCE_DATE_EPOCH
# shellcheck disable=SC2034 # programs.sh reads it
[ "${1:-}" != --arch ] || { programs_arch=${2:?--arch names no architecture}; shift 2; }
case ${1:-} in
-*) die "$1 is no option; the use is in the first lines of this script" ;;
esac
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
# shellcheck disable=SC2119 # nothing more of PyPI
programs_build

version=$(sed -n 's/^project(loco VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
name=loco-$version-linux-$programs_arch
work=$programs_work/tarball
tree=$work/$name

# ---- what the Debian package has, too ---------------------------------------
rm -rf "$work"
mkdir -p "$work"
DESTDIR=$work/root cmake --install "$programs_made" >"$programs_work/install.log"
mv "$work/root/usr" "$tree" # leaves the system unit and /etc
rm "$tree/share/doc/loco/changelog.gz"
# Found from where it is, as nobody knows here where it will be.
# shellcheck disable=SC2016 # pkg-config's variable, not ours
sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$tree/lib/pkgconfig/loco.pc"
cp LICENSE CHANGELOG.md "$tree/share/doc/loco/"
mkdir -p "$tree/share/systemd/user"
for unit in locod.user.service loco-upgrade.user.service loco-upgrade.user.timer; do
    cp "deploy/$unit" "$tree/share/systemd/user/${unit%.user.*}.${unit##*.}"
done
cp deploy/install.sh "$tree/"
"${programs_cross}strip" --strip-unneeded "$tree/bin/loco" "$tree/bin/locod" \
    "$(readlink -f "$tree/lib/libloco.so")"

# ---- libraries --------------------------------------------------------------
# The package of a file, as dpkg-query wants it. Where /lib is a link to
# /usr/lib, dpkg knows one name.
package_of() {
    for path in "$1" "/usr$1" "${1#/usr}"; do
        if owner=$(dpkg -S "$path" 2>/dev/null); then
            echo "${owner%: *}"
            return 0
        fi
    done
    die "no Debian package has $1, so its licence is not known"
}

# The system's glibc stays: its loader and it are of one version.
is_glibc() {
    package=$(package_of "$(readlink -f "$1")")
    [ "${package%%:*}" = libc6 ]
}

# NAME PATH of each library that FILE asks for, and those ask for, and so on.
# Read and not run, as ldd does it: the file may be of another architecture.
needed() {
    "${programs_cross}readelf" -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' |
        while read -r library; do
            ! grep -q -x -F "$library" "$work/seen" || continue
            echo "$library" >>"$work/seen"
            path=
            for folder in "$tree/lib" "/lib/$programs_triple" "/usr/lib/$programs_triple"; do
                [ -n "$path" ] || [ ! -e "$folder/$library" ] || path=$folder/$library
            done
            [ -n "$path" ] || die "$library, which $1 asks for, is not in $programs_triple"
            echo "$library $path"
            case $path in
            "$tree"/*) needed "$path" ;;
            *) is_glibc "$path" || needed "$path" ;;
            esac
        done
}

all_needed() {
    : >"$work/seen"
    needed "$tree/bin/loco" >"$work/unsorted"
    needed "$tree/bin/locod" >>"$work/unsorted"
    sort "$work/unsorted"
}

licences=$tree/share/doc/loco/libraries
mkdir -p "$licences"
all_needed >"$work/needed"
while read -r library path; do
    ! is_glibc "$path" || continue
    package=$(package_of "$(readlink -f "$path")")
    cp -L "$path" "$tree/lib/$library"
    cp -L "/usr/share/doc/${package%%:*}/copyright" "$licences/${package%%:*}.copyright"
    echo "$library ${package%%:*} $(dpkg-query -W -f '${Version}' "$package")"
done <"$work/needed" >"$licences/VERSIONS"

# RPATH and not RUNPATH: it holds for the libraries of libraries as well, and
# these stay as Debian made them.
patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$tree/bin/loco" \
    "$tree/bin/locod"
all_needed >"$work/found"
while read -r library path; do
    case $path in
    "$tree"/*) ;;
    *) is_glibc "$path" || die "$library is found at $path, not in the file" ;;
    esac
done <"$work/found"

# ---- one file ---------------------------------------------------------------
# What install.sh asks before it writes anything, and release.sh for its list.
newest=$(sed -n 's/^#define PROTO_VERSION \([0-9]*\)$/\1/p' proto/limits.h)
oldest=$(sed -n 's/^#define PROTO_OLDEST \([0-9]*\)$/\1/p' proto/limits.h)
case $oldest,$newest in
*[!0-9,]* | ,* | *,) die "proto/limits.h does not name the versions of the protocol" ;;
esac
cat >"$tree/ABOUT" <<EOF
version $version
arch $programs_arch
glibc $programs_glibc
protocols $oldest $newest
time $SOURCE_DATE_EPOCH
EOF
tar -C "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX -cf "$work/$name.tar" "$name"
gzip -9n "$work/$name.tar"
mv "$work/$name.tar.gz" "$out/"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
ls -l "$out/$name.tar.gz"
cat "$out/$name.tar.gz.sha256"
