#!/bin/sh
# tarball.sh - loco for any Linux in one file, that install.sh installs.
#
# use: sh deploy/tarball.sh [FOLDER]        (default: dist)
#
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
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
# shellcheck disable=SC2119 # nothing more of PyPI
programs_build

version=$(sed -n 's/^project(loco VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
arch=$(uname -m)
name=loco-$version-linux-$arch
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
strip --strip-unneeded "$tree/bin/loco" "$tree/bin/locod" \
    "$(readlink -f "$tree/lib/libloco.so")"

# ---- libraries --------------------------------------------------------------
# The package of a file. Where /lib is a link to /usr/lib, dpkg knows one name.
package_of() {
    for path in "$1" "/usr$1" "${1#/usr}"; do
        if owner=$(dpkg -S "$path" 2>/dev/null); then
            echo "${owner%%:*}"
            return 0
        fi
    done
    die "no Debian package has $1, so its licence is not known"
}

# NAME PATH of each library that a program asks for.
needed() {
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u
}

licences=$tree/share/doc/loco/libraries
mkdir -p "$licences"
needed "$tree/bin/loco" "$tree/bin/locod" >"$work/needed"
while read -r library path; do
    package=$(package_of "$(readlink -f "$path")")
    # The system's glibc stays: its loader and it are of one version.
    [ "$package" != libc6 ] || continue
    cp -L "$path" "$tree/lib/$library"
    cp -L "/usr/share/doc/$package/copyright" "$licences/$package.copyright"
    echo "$library $package $(dpkg-query -W -f '${Version}' "$package")"
done <"$work/needed" >"$licences/VERSIONS"

# RPATH and not RUNPATH: it holds for the libraries of libraries as well, and
# these stay as Debian made them.
patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$tree/bin/loco" \
    "$tree/bin/locod"
needed "$tree/bin/loco" "$tree/bin/locod" >"$work/found"
while read -r library path; do
    case $path in
    "$tree"/*) ;;
    *)
        [ "$(package_of "$(readlink -f "$path")")" = libc6 ] ||
            die "$library is found at $path, not in the file"
        ;;
    esac
done <"$work/found"

# ---- one file ---------------------------------------------------------------
# What install.sh asks before it writes anything, and release.sh for its list.
glibc=$(getconf GNU_LIBC_VERSION)
newest=$(sed -n 's/^#define PROTO_VERSION \([0-9]*\)$/\1/p' proto/limits.h)
oldest=$(sed -n 's/^#define PROTO_OLDEST \([0-9]*\)$/\1/p' proto/limits.h)
case $oldest,$newest in
*[!0-9,]* | ,* | *,) die "proto/limits.h does not name the versions of the protocol" ;;
esac
cat >"$tree/ABOUT" <<EOF
version $version
arch $arch
glibc ${glibc#glibc }
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
