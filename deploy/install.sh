#!/bin/sh
# install.sh - loco from one file, for one user, without root.
#
# use: sh install.sh FILE [--key KEY] [--sha256 HEX] [--prefix DIR]
#      sh install.sh --back [--prefix DIR]
#      sh install.sh --uninstall [--prefix DIR]
#
#   FILE          loco-VERSION-linux-ARCH.tar.gz, made by deploy/tarball.sh
#   --key KEY     the publisher's public key, RW..., or a file with it: FILE must
#                 have the signature in FILE.minisig; asks minisign or openssl 3
#   --sha256 HEX  the sum that FILE must have; without it FILE.sha256 says so,
#                 if that is there
#   --prefix DIR  where to install (~/.local)
#   --back        go back to the version that was in use before
#   --uninstall   take away all that was installed there, and nothing else
#
# Everything is checked before anything is written. The file is unpacked into
# a folder of its own, DIR/lib/loco-VERSION-SUM. The link DIR/lib/loco names the
# folder that is in use, and programs, pages and completions are links through
# it, so another version takes its place in one step. The version before stays,
# for --back. A daemon that runs goes on as it is until it is started again.
set -eu

say() {
    printf '%s\n' "$*"
}

die() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

usage_error() {
    printf 'install: %s; see --help\n' "$*" >&2
    exit 2
}

# ---- checks -----------------------------------------------------------------
# Sets `sum`. A sum beside the file shows that the download is whole; only one
# from another place shows that it is the published file.
check_sum() {
    command -v sha256sum >/dev/null 2>&1 ||
        die "sha256sum is missing here, so $file cannot be checked; install coreutils"
    sum=$(sha256sum <"$bytes")
    sum=${sum%% *}
    trouble=$(LC_ALL=C gzip -t <"$bytes" 2>&1) || trouble="gzip: $trouble"
    case $trouble in
    *"unexpected end"* | *"short read"*)
        die "$file is only a part of what was published, as the download ended too soon; download it again"
        ;;
    esac
    from="--sha256"
    if [ -z "$want" ] && [ -f "$file.sha256" ]; then
        from=$file.sha256
        want=$(sed '1!d;s/[[:space:]].*//' "$from")
    elif [ -z "$want" ]; then
        [ -z "$trouble" ] || die "$file is damaged: gzip cannot unpack it; download it again"
        [ -n "$key" ] ||
            say "not checked: whether $file is what was published, because no --key and no --sha256 was given and $file.sha256 is not there"
        return 0
    fi
    want=$(printf '%s' "$want" | tr 'A-F' 'a-f')
    case $want in
    *[!0-9a-f]*) want= ;;
    esac
    [ ${#want} -eq 64 ] ||
        die "$from gives no sha256, which has 64 hexadecimal digits"
    [ "$sum" = "$want" ] ||
        die "$file was altered or is damaged: its sha256 is $sum, and $from says $want"
    [ -z "$trouble" ] || die "$file has the right sha256, but gzip cannot unpack it"
    if [ -n "$key" ]; then
        say "checked: $file has the sha256 that $from says"
    elif [ "$from" = --sha256 ]; then
        say "checked: $file has the sha256 that you gave; not checked: who made the file, as no --key was given"
    else
        say "checked: $file has the sha256 that $from says; not checked: who made the two, as no --key was given"
    fi
}

# The signature in the format of minisign, by the first program that can tell.
# (A loco in the file cannot tell whether the file is the published one.)
check_signature() {
    [ -n "$key" ] || return 0
    [ ! -f "$key" ] || key=$(sed -n '/^RW/p' "$key")
    raw=$(printf '%s' "$key" | base64 -d 2>/dev/null | od -An -v -tx1 | tr -d ' \n')
    case ${#raw},$raw in
    84,4564*) ;;
    *) die "--key gives no public key of minisign, which has 56 characters and begins with RW" ;;
    esac
    cp "$file.minisig" "$work/signature" 2>/dev/null || die "$file.minisig is not there: get it from where $file is from"
    if command -v minisign >/dev/null 2>&1; then
        minisign -V -q -P "$key" -m "$bytes" -x "$work/signature" >/dev/null 2>&1 ||
            not_signed
    elif openssl version 2>/dev/null | grep -q '^OpenSSL [3-9]'; then
        openssl_says || not_signed
    else
        die "neither minisign nor openssl 3 is here, so the signature of $file cannot be checked; install one of them"
    fi
    say "checked: $file has the signature of $key"
}

not_signed() {
    die "$file was altered, is damaged, or is not signed with the key $key"
}

# Ed25519 of BLAKE2b-512 of the file, and the key's name in both.
openssl_says() {
    sed -n 2p "$work/signature" | base64 -d >"$work/whole" 2>/dev/null || return 1
    [ "$(head -c 2 "$work/whole")" = ED ] && [ "$(wc -c <"$work/whole")" -eq 74 ] || return 1
    named=$(head -c 10 "$work/whole" | tail -c 8 | od -An -v -tx1 | tr -d ' \n')
    [ "$named" = "$(printf '%s' "$raw" | cut -c5-20)" ] || return 1
    tail -c 64 "$work/whole" >"$work/ed25519"
    # RFC 8410: 12 bytes before the key.
    { printf MCowBQYDK2VwAyEA && printf '%s' "$key" | base64 -d | tail -c 32 | base64; } |
        base64 -d >"$work/key"
    openssl dgst -blake2b512 -binary <"$bytes" >"$work/hash" &&
        openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key" -rawin \
            -in "$work/hash" -sigfile "$work/ed25519" >/dev/null 2>&1
}

about() {
    printf '%s\n' "$facts" | sed -n "s/^$1 //p"
}

# 2.31 -> 2031
number() {
    rest=${1#*.}
    echo $((${1%%.*} * 1000 + ${rest%%.*}))
}

# Sets `version`.
check_file() {
    names=$(tar -tzf "$bytes" 2>/dev/null) || die "$file is no archive that tar can read"
    top=${names%%/*}
    case $top in
    loco-*-linux-*) ;;
    *) die "$file is not made by loco's tarball.sh: it has no folder loco-VERSION-linux-ARCH" ;;
    esac
    if printf '%s\n' "$names" | grep -q -e "^/" -e '\(^\|/\)\.\.\(/\|$\)' ||
        printf '%s\n' "$names" | grep -q -v "^$top/"; then
        die "$file would write outside of its folder $top"
    fi
    facts=$(tar -xzOf "$bytes" "$top/ABOUT" 2>/dev/null) ||
        die "$file is not made by loco's tarball.sh: $top/ABOUT is not in it"
    version=$(about version)
    arch=$(about arch)
    wanted=$(about glibc)
    case $version,$wanted in
    *[!0-9.,]* | ,* | *,) die "$file is damaged: $top/ABOUT does not name version and glibc" ;;
    esac
    [ "$arch" = "$(uname -m)" ] ||
        die "$file is for $arch, and this machine is $(uname -m): get loco-$version-linux-$(uname -m).tar.gz"
    have=$(getconf GNU_LIBC_VERSION 2>/dev/null) || have=
    have=${have#glibc }
    case $have in
    [0-9]*.[0-9]*) ;;
    *) die "this system has no glibc, which loco needs from $wanted on" ;;
    esac
    [ "$(number "$have")" -ge "$(number "$wanted")" ] ||
        die "this system has glibc $have, and loco needs $wanted or a newer one: use a newer system"
}

# Of names in a tarball, what is linked under the prefix: the name there, the
# name in the tarball.
links_of() {
    sed -n -e 's|^bin/[^/][^/]*$|& &|p' -e 's|^share/man/man[1-8]/[^/][^/]*$|& &|p' \
        -e 's|^share/bash-completion/completions/[^/][^/]*$|& &|p' \
        -e 's|^share/zsh/vendor-completions/\([^/][^/]*\)$|share/zsh/site-functions/\1 &|p' \
        -e 's|^share/fish/vendor_completions.d/[^/][^/]*$|& &|p'
}

# The same of an unpacked folder; and its units of systemd.
links() {
    (cd "$lib/$1" && find bin share ! -type d) | sort | links_of
}

units() {
    (cd "$lib/$1/share/systemd/user" 2>/dev/null && ls) || true
}

# Is there nothing, or what an earlier install put there?
check_free() {
    if [ -e "$lib/loco" ] || [ -L "$lib/loco" ]; then
        old=$(readlink "$lib/loco") || true
        [ -f "$lib/${old:-none}/installed" ] ||
            die "$lib/loco is there and is not from install.sh: move it away"
    fi
    for name in $(printf '%s\n' "$names" | sed -n "s|^$top/||p" | links_of | sed 's/ .*//'); do
        if [ -e "$prefix/$name" ] || [ -L "$prefix/$name" ]; then
            is_ours "$prefix/$name" ||
                die "$prefix/$name is there and is not from install.sh: move it away"
        fi
    done
}

is_ours() {
    case $(readlink "$1") in
    "$lib/loco/"*) return 0 ;;
    esac
    return 1
}

# ---- install ----------------------------------------------------------------
# Folders that we make are written down: --uninstall takes away no other.
folder() {
    [ -d "$1" ] || {
        folder "$(dirname "$1")"
        mkdir "$1"
        made="$made$1
"
    }
}

newest_first() {
    sed '1!G;h;$!d'
}

drop_folders() {
    newest_first | while read -r path; do
        [ -z "$path" ] || rmdir "$path" 2>/dev/null || true
    done
}

# The version before $1, if it is there still.
before() {
    name=$(cat "$lib/$1/before" 2>/dev/null) || name=
    [ -z "$name" ] || [ ! -f "$lib/$name/installed" ] || printf '%s' "$name"
}

# All unpacked folders but $1 and $2, also what an interrupted install left.
sweep() {
    for record in "$lib"/loco-*/installed; do
        case $record in
        "$lib/$1/installed" | "$lib/${2:-none}/installed") ;;
        *) rm -rf "${record%/installed}" ;;
        esac
    done
}

undo() {
    status=$?
    trap - EXIT
    trap '' INT TERM HUP
    [ -z "$work" ] || rm -rf "$work"
    if [ "$switched" = no ]; then
        [ -z "$tree" ] || rm -rf "${lib:?}/$tree"
        rm -f "$lib/.loco.new"
        printf '%s' "$made" | drop_folders
    fi
    exit "$status"
}

install_file() {
    work=
    made=
    tree=
    switched=no
    trap undo EXIT
    # What is checked is what is unpacked, also if somebody writes there.
    work=$(mktemp -d) || die "mktemp makes no folder; is the disk full?"
    bytes=$work/file
    cp "$file" "$bytes" || die "$file cannot be read, or the disk is full"
    check_sum
    check_signature
    check_file
    check_free

    folder "$lib"
    tree=loco-$version-$(printf '%.8s' "$sum")
    last=$old
    case $old in # the same file once more: what was before it stays so
    "$tree" | "$tree-again") last=$(before "$old") ;;
    esac
    [ "$tree" != "$old" ] || tree=$tree-again
    rm -rf "${lib:?}/$tree" # a leftover: no link leads there
    mkdir "$lib/$tree"
    : >"$lib/$tree/installed" # ours, also if this ends here
    tar -xzof "$bytes" -C "$lib/$tree" --strip-components=1
    for program in loco locod; do
        told=$("$lib/$tree/bin/$program" --version 2>&1) || told="${told:-nothing} (exit code $?)"
        [ "$told" = "$program $version" ] ||
            die "$program of this file does not run here; it says: $told"
    done
    folder "$prefix/share/systemd/user"
    for unit in $(units "$tree"); do
        unit=$lib/$tree/share/systemd/user/$unit
        sed "s|%h/.local|$prefix|" "$unit" >"$unit.new"
        mv "$unit.new" "$unit"
    done
    for name in $(links "$tree" | sed 's/ .*//'); do
        folder "$(dirname "$prefix/$name")"
    done
    {
        [ -z "$old" ] || grep '^folder ' "$lib/$old/installed" || true
        printf '%s' "$made" | sed 's/^/folder /'
        links "$tree" | sed "s|^\([^ ]*\) .*|link $prefix/\1|"
        for unit in $(units "$tree"); do echo "unit $prefix/share/systemd/user/$unit"; done
    } >"$lib/$tree/installed"

    printf '%s' "$last" >"$lib/$tree/before"
    use_tree
    sweep "$tree" "$last"
    settle
    next_step
}

# Where a systemd of this user runs: else it goes on with the units as they were.
reload_units() {
    systemctl --user daemon-reload >/dev/null 2>&1 || true
}

# What may take a while: Ctrl-C ends it again, and nothing is missing then.
settle() {
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    reload_units
    sync -f "$lib" 2>/dev/null || sync
}

# From $old to $tree. After the one step in which the version changes, nothing
# that fails takes it back: it is told. From that step on no signal ends this
# script, nor the programs that it runs, until all names are those of $tree.
use_tree() {
    sync -f "$lib/$tree" 2>/dev/null || sync # no link to what a power cut may empty
    trap '' INT TERM HUP
    rm -f "$lib/.loco.new"
    ln -s "$tree" "$lib/.loco.new"
    mv -T -f "$lib/.loco.new" "$lib/loco"
    switched=yes

    links "$tree" | while read -r name inside; do
        [ "$(readlink "$prefix/$name")" = "$lib/loco/$inside" ] ||
            ln -s -f "$lib/loco/$inside" "$prefix/$name" || say "not linked: $prefix/$name"
    done
    for unit in $(units "$tree"); do
        use_unit "share/systemd/user/$unit" || say "not written: $prefix/share/systemd/user/$unit"
    done
    [ -n "$old" ] || return 0
    # A name that this version does not have.
    sed -n -e 's/^link //p' -e 's/^unit //p' "$lib/$old/installed" | while read -r path; do
        if ! grep -q -x -F -e "link $path" -e "unit $path" "$lib/$tree/installed"; then
            case $path in
            */share/systemd/user/*) ! cmp -s "$lib/$old/share/systemd/user/${path##*/}" "$path" || rm -f "$path" ;;
            *) ! is_ours "$path" || rm -f "$path" ;;
            esac
        fi
    done
}

use_unit() {
    if [ ! -e "$prefix/$1" ] || { [ -n "$old" ] &&
        cmp -s "$lib/$old/$1" "$prefix/$1"; }; then
        if ! cp "$lib/$tree/$1" "$prefix/$1.new" || ! mv "$prefix/$1.new" "$prefix/$1"; then
            rm -f "$prefix/$1.new"
            return 1
        fi
    elif ! cmp -s "$lib/$tree/$1" "$prefix/$1"; then
        say "left as it is: $prefix/$1, which is not ours or was changed; the new one is $lib/loco/$1"
    fi
}

go_back() {
    old=$(readlink "$lib/loco") || true
    [ -f "$lib/${old:-none}/installed" ] ||
        die "nothing that install.sh installed is under $prefix"
    tree=$(before "$old")
    [ -n "$tree" ] || die "no version is there from before $lib/$old"
    # Folders of both: none of them may be left behind.
    if ! { sed -n '/^folder /p' "$lib/$old/installed" && cat "$lib/$tree/installed"; } |
        awk '!seen[$0]++' >"$lib/$tree/installed.new" ||
        ! mv "$lib/$tree/installed.new" "$lib/$tree/installed"; then
        say "not written: $lib/$tree/installed"
    fi
    use_tree
    sweep "$tree" "$(before "$tree")"
    settle
    say "loco $(sed -n 's/^version //p' "$lib/$tree/ABOUT") is in use again, from $lib/$tree; a locod that runs stays as it is until it is started again."
}

next_step() {
    say "loco $version is installed in $lib/$tree."
    [ -z "$old" ] || say "It took the place of $lib/$old; a locod that runs stays the old one until it is started again (loco drain --restart)."
    case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) say "Your PATH lacks $prefix/bin: log in again, or type  export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    say "Next:"
    say "  loco doctor                           what keeps this machine from taking part"
    say "  loco join loco://HOST:PORT/RUNID      take part in a run"
    say "As a service: loco config set join loco://HOST:PORT/RUNID; systemctl --user enable --now locod"
    [ "$prefix" = "$HOME/.local" ] ||
        say "(once before: systemctl --user link $prefix/share/systemd/user/*)"
    say "All of it goes away with: sh $lib/loco/install.sh --uninstall$([ "$prefix" = "$HOME/.local" ] || echo " --prefix $prefix")"
}

# ---- uninstall --------------------------------------------------------------
take_away() {
    old=$(readlink "$lib/loco") || true
    [ -f "$lib/${old:-none}/installed" ] ||
        die "nothing that install.sh installed is under $prefix"
    unit=$prefix/share/systemd/user/locod.service
    enabled=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
    for service in loco-upgrade.timer loco-upgrade.service locod.service; do
        ran=$(systemctl --user show -p FragmentPath --value $service 2>/dev/null) || ran=
        if [ -n "$ran" ] && [ "$(readlink -f "$ran")" = "$(readlink -f "${unit%/*}/$service")" ]; then
            if [ $service != locod.service ]; then
                systemctl --user stop $service || true
                rm -f "${XDG_DATA_HOME:-$HOME/.local/share}/systemd/timers/stamp-loco-upgrade.timer"
            elif systemctl --user is-active -q $service; then
                say "stopping the service locod, which finishes its round first"
                systemctl --user stop $service || true
            fi
        fi
    done
    for wanted in default.target.wants/locod.service timers.target.wants/loco-upgrade.timer \
        locod.service loco-upgrade.service loco-upgrade.timer; do
        if [ "$(readlink "$enabled/$wanted")" = "$prefix/share/systemd/user/${wanted##*/}" ]; then
            rm "$enabled/$wanted"
        fi
    done
    while read -r kind path; do
        case $kind in
        link) ! is_ours "$path" || rm -f "$path" ;;
        unit)
            if cmp -s "$lib/$old/share/systemd/user/${path##*/}" "$path"; then
                rm -f "$path"
            elif [ -e "$path" ]; then
                say "left as it is: $path, which is not ours or was changed"
            fi
            ;;
        esac
    done <"$lib/$old/installed"
    folders=$(sed -n 's/^folder //p' "$lib/$old/installed")
    trap '' INT TERM HUP # without its record the rest is found by nobody
    sweep none
    rm "$lib/loco"
    printf '%s\n' "$folders" | drop_folders
    reload_units
    say "loco is taken away from $prefix."
    say "Left alone, if they are there: state (identity, checkpoints) in ${XDG_STATE_HOME:-$HOME/.local/state}/loco and settings in ${XDG_CONFIG_HOME:-$HOME/.config}/loco."
}

# In a function, so that half of this script does nothing, and all of it is
# read before --uninstall takes it away.
main() {
    file=
    want=
    key=
    old=
    action=install
    prefix=${HOME:?HOME is not set}/.local
    while [ $# -gt 0 ]; do
        case $1 in
        --sha256 | --prefix | --key)
            [ -n "${2:-}" ] || usage_error "$1: the value is missing"
            case $1 in
            --sha256) want=$2 ;;
            --key) key=$2 ;;
            --prefix) prefix=$2 ;;
            esac
            shift
            ;;
        --uninstall) action=uninstall ;;
        --back) action=back ;;
        --help | -h)
            sed -n '2,/^set -eu/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
            exit 0
            ;;
        -*) usage_error "$1 is no option" ;;
        *)
            [ -z "$file" ] || usage_error "one FILE, not $file and $1"
            file=$1
            ;;
        esac
        shift
    done
    case $prefix in
    /*) ;;
    *) prefix=$(pwd)/$prefix ;;
    esac
    prefix=${prefix%/}
    # These mean something to systemd or sed, and a blank ends a name.
    case $prefix in
    *[[:space:]\"\'%\$\|\&\\\;*?[]*)
        die "$prefix: give a --prefix without blanks, quotes and signs such as % or *"
        ;;
    esac
    lib=$prefix/lib
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [ $action != install ]; then
        [ -z "$file$want$key" ] || usage_error "--$action goes with --prefix only"
        case $action in
        back) go_back ;;
        uninstall) take_away ;;
        esac
        return 0
    fi
    [ -n "$file" ] || usage_error "name the file to install"
    [ -f "$file" ] || die "$file is not there or is no file"
    install_file
}

main "$@"
