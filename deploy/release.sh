#!/bin/sh
# release.sh - sign what is published: the files, and the list of all of them.
#
# use: sh deploy/release.sh FOLDER --key FILE
#
#   FOLDER      with loco-VERSION-linux-ARCH.tar.gz of this release and, where
#               they shall stay on the list, of earlier ones
#   --key FILE  secret key of minisign (`minisign -G` makes one)
#
# Writes FOLDER/releases.json, and the signatures of it and of each file, as
# NAME.minisig (minisign asks for the key's password once). Publish the whole folder at one place: the
# files lie beside the list. `loco upgrade` asks for the list, install.sh --key
# for the signature of a file. Needs minisign 0.10 or newer.
#
# The serial of a list is the time at which it was made, and never less than
# that of the list before plus one: a loco that has seen a list refuses any
# with a smaller serial.
set -eu

die() {
    printf 'release: %s\n' "$*" >&2
    exit 1
}

folder=
key=
while [ $# -gt 0 ]; do
    case $1 in
    --key)
        [ -n "${2:-}" ] || die "--key: the value is missing; see --help"
        key=$2
        shift
        ;;
    --help | -h)
        sed -n '2,/^set -eu/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 0
        ;;
    -*) die "$1 is no option; see --help" ;;
    *) folder=$1 ;;
    esac
    shift
done
[ -d "$folder" ] || die "name the folder of the files; see --help"
[ -f "$key" ] || die "--key names no file; see --help"
key=$(realpath "$key")
command -v minisign >/dev/null 2>&1 || die "minisign is missing: install it"
cd "$folder"

about() { # WORD
    printf '%s\n' "$facts" | sed -n "s/^$1 //p"
}

serial=$(date +%s)
before=$(sed -n 's/.*"serial": \([0-9]*\).*/\1/p' releases.json 2>/dev/null) || before=
[ -z "$before" ] || [ "$serial" -gt "$before" ] || serial=$((before + 1))

list=releases.json.new
trap 'rm -f "$list"' EXIT
{
    printf '{"loco_releases": 1, "serial": %s, "releases": [' "$serial"
    last=
    comma=
    for file in loco-*-linux-*.tar.gz; do
        [ -f "$file" ] || die "no loco-VERSION-linux-ARCH.tar.gz is in $folder"
        facts=$(tar -xzOf "$file" "${file%.tar.gz}/ABOUT") ||
            die "$file is not made by deploy/tarball.sh"
        [ "$file" = "loco-$(about version)-linux-$(about arch).tar.gz" ] ||
            die "$file has another name than what is in it"
        [ -n "$(about protocols)" ] || die "$file is of a loco before upgrades: move it away"
        sum=$(sha256sum <"$file")
        release="$(about version) $(about protocols)"
        if [ "$release" = "$last" ]; then # the same for another architecture
            printf ',\n'
        else
            printf '%s\n {"version": "%s", "protocols": [%s, %s], "files": [\n' "$comma" \
                "$(about version)" "$(about protocols | cut -d' ' -f1)" "$(about protocols | cut -d' ' -f2)"
        fi
        last=$release
        comma=']},'
        printf '  {"arch": "%s", "glibc": "%s", "name": "%s",\n   "bytes": %s, "sha256": "%s"}' \
            "$(about arch)" "$(about glibc)" "$file" "$(wc -c <"$file")" "${sum%% *}"
    done
    printf ']}\n]}\n'
} >"$list"
rm -f releases.json.minisig # never an old signature beside a new list
mv "$list" releases.json
trap - EXIT
minisign -S -s "$key" -m releases.json loco-*-linux-*.tar.gz >&2 ||
    die "minisign did not sign"
cat releases.json
