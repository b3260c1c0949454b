# debian.sh - a command in a fresh Debian of any release, for wheel.sh,
# tarball.sh and mixed.sh; systemd.sh boots one.
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
#     debian_open bullseye             the two halves of it: a fresh copy at
#     debian_exec COMMAND.. &          `debian_tree` until the script ends; and a
#                                      command there, which takes this shell's place
#     debian_emulate aarch64           after debian_begin; sets `debian_other`,
#     debian_in "bullseye$debian_other" 'COMMAND'    which is :arm64, or nothing
#                                      where this machine is of that kind
#
# Needs root, debootstrap and a network. Base systems are cached under
# $TMPDIR/loco-wheel, $LOCO_MIRROR says from where they come. Of another
# architecture they run in qemu-user, about 100 times slower where they compute:
# the kernel starts qemu for them (binfmt_misc) until this script ends. Where
# that cannot be, debian_emulate says so and exits 77, which means skipped.

debian_root=${TMPDIR:-/tmp}/loco-wheel
debian_kind=${debian_kind:-${packages:+full}}
debian_kind=${debian_kind:-min}
debian_tree=
debian_misc=/proc/sys/fs/binfmt_misc
debian_handler=
debian_other=

debian_begin() {
    out=${1:-$debian_root/dist}
    mkdir -p "$debian_root" "$out"
    # shellcheck disable=SC2086 # a pattern
    [ $# -gt 0 ] || (cd "$out" && rm -f $files) # made anew; in a FOLDER it may be there
    [ "$(id -u)" -eq 0 ] ||
        { echo "$name: needs root, for debootstrap and chroot" >&2; exit 2; }
    command -v debootstrap >/dev/null ||
        apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
    trap debian_leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

debian_skip() {
    echo "skipped: $*"
    exit 77
}

# Programs of ARCH, as uname -m says it, run here from now on.
debian_emulate() {
    [ "$1" != "$(uname -m)" ] || return 0
    [ "$1" = aarch64 ] || debian_skip "no programs of $1 on $(uname -m)"
    debian_other=:arm64
    command -v qemu-aarch64-static >/dev/null ||
        apt-get install -y -qq --no-install-recommends qemu-user-static >/dev/null ||
        debian_skip "qemu-aarch64-static is not installed"
    [ -e $debian_misc/register ] ||
        mount -t binfmt_misc binfmt_misc $debian_misc 2>/dev/null ||
        debian_skip "this kernel has no binfmt_misc that this root may mount"
    # The first bytes of an ELF file of 64-bit Arm; F: qemu is opened now, so that
    # a chroot needs none. A name of our own, as another script may do the same.
    debian_handler=loco-$$
    debian_magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    debian_mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":$debian_handler:M::$debian_magic:$debian_mask:$(command -v qemu-aarch64-static):F" \
        >$debian_misc/register || debian_skip "binfmt_misc takes no handler here"
}

# Sets `debian_tar`: the base system of RELEASE or RELEASE:ARCH, made once.
debian_base() {
    debian_arch=
    case $1 in
    *:*) debian_arch=${1#*:} ;;
    esac
    debian_new=$debian_root/${1%:*}-$debian_kind${debian_arch:+-$debian_arch}
    debian_tar=$debian_new.tar
    [ ! -f "$debian_tar" ] || return 0
    debootstrap --variant=minbase ${packages:+"--include=$packages"} \
        ${debian_arch:+"--arch=$debian_arch"} "${1%:*}" \
        "$debian_new" "${LOCO_MIRROR:-http://deb.debian.org/debian}" \
        >"$debian_new.log" 2>&1 ||
        { tail -n 2 "$debian_new.log"; exit 1; }
    tar -C "$debian_new" -cf "$debian_tar.part" .
    mv "$debian_tar.part" "$debian_tar"
    rm -rf "$debian_new"
}

# A fresh copy of it: the sources in /root/loco, the files in /out. With this
# machine's certificates, so that a proxy that pip trusts here is trusted there;
# apt-get would overwrite them in /etc.
debian_open() {
    debian_base "$1"
    debian_tree=$debian_root/${1%:*}.$$
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
}

debian_exec() {
    exec chroot "$debian_tree" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        PIP_CERT=/root/trusted.crt \
        ${PIP_INDEX_URL:+PIP_INDEX_URL=$PIP_INDEX_URL} \
        ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH} "$@"
}

# A command in a copy of its own; what it leaves in /out comes back to $out.
debian_in() {
    debian_open "$1"
    debian_status=0
    (debian_exec timeout "${limit_s:-1200}" sh -ec "$2") || debian_status=$?
    # shellcheck disable=SC2086 # a pattern
    (cd "$debian_tree/out" && cp $files "$out/" 2>/dev/null) || true
    debian_end
    return $debian_status
}

debian_end() {
    [ -d "$debian_tree" ] || return 0 # none, or a signal came here again
    umount "$debian_tree/dev/shm" "$debian_tree/proc"
    rm -rf --one-file-system "$debian_tree"
}

debian_leave() {
    [ -z "$debian_handler" ] || [ ! -e "$debian_misc/$debian_handler" ] ||
        echo -1 >"$debian_misc/$debian_handler"
    debian_end
}
