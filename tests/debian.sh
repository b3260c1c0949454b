# debian.sh - a command in a fresh Debian of any release, for wheel.sh and
# tarball.sh; systemd.sh boots one.
#
# Sourced in the root of the sources, after three variables are set:
#     name=wheel                       who speaks
#     files='*.whl'                    what is handed to a chroot and back
#     packages=python3,python3-venv    besides debootstrap's minbase; or empty
#     debian_kind=systemd              name of that base; full or min by default
#     limit_s=1200                     for a command; this by default
#     . tests/debian.sh
#     debian_begin [FOLDER]            sets `out`, where the files are kept
#     debian_in bullseye 'COMMAND'     exit status: the command's
#
# Needs root, debootstrap and a network. Base systems are cached under
# $TMPDIR/loco-wheel, $LOCO_MIRROR says from where they come.

debian_root=${TMPDIR:-/tmp}/loco-wheel
debian_kind=${debian_kind:-${packages:+full}}
debian_kind=${debian_kind:-min}

debian_begin() {
    out=${1:-$debian_root/dist}
    mkdir -p "$debian_root" "$out"
    # shellcheck disable=SC2086 # a pattern
    [ $# -gt 0 ] || (cd "$out" && rm -f $files) # made anew; in a FOLDER it may be there
    [ "$(id -u)" -eq 0 ] ||
        { echo "$name: needs root, for debootstrap and chroot" >&2; exit 2; }
    command -v debootstrap >/dev/null ||
        apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
}

# The base system of a release, once.
debian_base() {
    debian_tar=$debian_root/$1-$debian_kind.tar
    [ ! -f "$debian_tar" ] || return 0
    debootstrap --variant=minbase ${packages:+"--include=$packages"} "$1" \
        "$debian_root/$1.base" "${LOCO_MIRROR:-http://deb.debian.org/debian}" \
        >"$debian_root/$1.log" 2>&1 ||
        { tail -n 2 "$debian_root/$1.log"; exit 1; }
    tar -C "$debian_root/$1.base" -cf "$debian_tar.part" .
    mv "$debian_tar.part" "$debian_tar"
    rm -rf "$debian_root/$1.base"
}

# In a fresh copy of it: the sources in /root/loco, the files in /out; those in
# /out come back to $out. With this machine's certificates, so that a proxy that
# pip trusts here is trusted there; apt-get would overwrite them in /etc.
debian_in() {
    debian_tree=$debian_root/$1.$$
    debian_base "$1"
    mkdir "$debian_tree"
    tar -C "$debian_tree" -xf "$debian_tar"
    cp /etc/resolv.conf "$debian_tree/etc/resolv.conf"
    cp /etc/ssl/certs/ca-certificates.crt "$debian_tree/root/trusted.crt"
    # It is thrown away: dpkg need not wait for the disk.
    echo force-unsafe-io >"$debian_tree/etc/dpkg/dpkg.cfg.d/unsafe"
    git clone -q . "$debian_tree/root/loco"
    mkdir "$debian_tree/out"
    # shellcheck disable=SC2086 # a pattern
    (cd "$out" && cp $files "$debian_tree/out/" 2>/dev/null) || true
    mount -t proc proc "$debian_tree/proc"
    mount -t tmpfs tmpfs "$debian_tree/dev/shm"
    trap debian_end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    debian_status=0
    chroot "$debian_tree" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        PIP_CERT=/root/trusted.crt \
        ${PIP_INDEX_URL:+PIP_INDEX_URL=$PIP_INDEX_URL} \
        ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH} \
        timeout "${limit_s:-1200}" sh -ec "$2" || debian_status=$?
    # shellcheck disable=SC2086 # a pattern
    (cd "$debian_tree/out" && cp $files "$out/" 2>/dev/null) || true
    debian_end
    trap - EXIT
    return $debian_status
}

debian_end() {
    [ -d "$debian_tree" ] || return 0 # a signal may come here again
    umount "$debian_tree/dev/shm" "$debian_tree/proc"
    rm -rf --one-file-system "$debian_tree"
}
