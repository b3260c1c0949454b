#!/bin/sh
# wheel.sh - the wheel is made in a Debian 11 and used on Debian 11, 12 and 13.
#
# use: sh tests/wheel.sh [FOLDER]        (FOLDER: where the wheel is to be kept)
#
# In each: a fresh virtual environment, `pip install` of the one file, and two
# peers of deploy/python/examples/bigram.py that make a run of four rounds and
# end with the same numbers. A table says how long each took. Needs root,
# debootstrap and a network; base systems are cached under $TMPDIR/loco-wheel.
set -eu
cd "$(dirname "$0")/.."
root=${TMPDIR:-/tmp}/loco-wheel
out=${1:-$root/dist}
mkdir -p "$root" "$out"
[ $# -gt 0 ] || rm -f "$out"/*.whl # made anew; in a FOLDER it may be there
mirror=${LOCO_MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" -eq 0 ] || { echo "wheel: needs root, for debootstrap and chroot" >&2; exit 2; }
command -v debootstrap >/dev/null ||
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null

# The base system of a release, once; with this machine's certificates, so that
# a proxy that pip trusts here is trusted there.
base() {
    [ -f "$root/$1.tar" ] && return 0
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv \
        "$1" "$root/$1.base" "$mirror" >"$root/$1.log" 2>&1 ||
        { tail -n 2 "$root/$1.log"; exit 1; }
    cp /etc/ssl/certs/ca-certificates.crt "$root/$1.base/etc/ssl/certs/"
    tar -C "$root/$1.base" -cf "$root/$1.part" .
    mv "$root/$1.part" "$root/$1.tar"
    rm -rf "$root/$1.base"
}

# COMMAND in a fresh copy of it; what is in /out there comes back to $out.
in_release() {
    release=$1 command=$2
    tree=$root/$release.$$
    base "$release"
    mkdir "$tree"
    tar -C "$tree" -xf "$root/$release.tar"
    cp /etc/resolv.conf "$tree/etc/resolv.conf"
    git clone -q . "$tree/root/loco"
    mkdir "$tree/out"
    cp "$out"/*.whl "$tree/out/" 2>/dev/null || true
    mount -t proc proc "$tree/proc"
    mount -t tmpfs tmpfs "$tree/dev/shm"
    status=0
    chroot "$tree" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
        ${PIP_INDEX_URL:+PIP_INDEX_URL=$PIP_INDEX_URL} \
        timeout 1200 sh -ec "$command" || status=$?
    umount "$tree/dev/shm" "$tree/proc"
    cp "$tree"/out/*.whl "$out/" 2>/dev/null || true
    rm -rf --one-file-system "$tree"
    return $status
}

# What one machine does with it: seconds of the installation and of the run.
USE='
cd /tmp
python3 -m venv v
began=$(date +%s)
v/bin/pip install -q --disable-pip-version-check /out/*.whl
installed=$(date +%s)
PATH=/tmp/v/bin:$PATH
export PYTHONUNBUFFERED=1
seq 1 60000 >text
loco data pack text --out data >/dev/null
example=/root/loco/deploy/python/examples/bigram.py
id=$(python3 "$example" --create data run.yaml | tail -n 1)
LOCO_STATE=/tmp/a python3 "$example" --run run.yaml --listen 127.0.0.1:7700 >one 2>&1 &
trap "kill $! 2>/dev/null || true; loco drain --state /tmp/a >/dev/null 2>&1 || true; wait" EXIT
LOCO_STATE=/tmp/b timeout 300 python3 "$example" --join "loco://127.0.0.1:7700/$id" \
    --listen 127.0.0.1:0 >two 2>&1 || { cat two; exit 1; }
wait
[ "$(grep "^end " one)" = "$(grep "^end " two)" ] && grep -q "^end " one ||
    { tail -n 3 one two; exit 1; }
. /etc/os-release
echo "| Debian $VERSION_ID | Python $(python3 -c "import sys; print(sys.version.split()[0])") |" \
    "$((installed - began)) s | $(($(date +%s) - installed)) s | $(tail -n 1 two) |"
'

[ -n "$(ls "$out"/*.whl 2>/dev/null)" ] ||
    in_release bullseye 'apt-get update -qq; cd /root/loco; sh deploy/wheel.sh /out'
ls -l "$out"/*.whl
echo "| system | with | pip install | four rounds | the end of both |"
echo "|---|---|---|---|---|"
failed=0
for release in bullseye bookworm trixie; do
    in_release "$release" "$USE" || { echo "| $release | failed |"; failed=1; }
done
exit $failed
