#!/bin/sh
# join.sh - take part in a run with one line.
#
# use: sh deploy/join.sh URI [--yes] [--state DIR] [--listen HOST:PORT]
#
#   URI                 loco://HOST:PORT[,HOST:PORT...]/RUNID[?peer=ID]
#   --yes               join without asking
#   --state DIR         identity, data, checkpoints (XDG state directory)
#   --listen HOST:PORT  address to listen on for peers (0.0.0.0:7700)
#
# Installs what is missing (Debian), builds, fetches the run's signed
# manifest, shows what it asks for, asks, joins and shows the run live. Ctrl-C
# finishes the current round and leaves the run; the same line joins again.
set -u

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
uri=
yes=no
state=${XDG_STATE_HOME:-${HOME:?}/.local/state}/loco
listen=0.0.0.0:7700

die() {
    printf 'join: %s\n' "$*" >&2
    exit 1
}

usage_error() {
    printf 'join: %s; see --help\n' "$*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --state | --listen)
        [ $# -ge 2 ] || usage_error "$1: the value is missing"
        case $1 in
        --state) state=$2 ;;
        --listen) listen=$2 ;;
        esac
        shift
        ;;
    --yes) yes=yes ;;
    --help | -h)
        sed -n '2,/^set -u/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 0
        ;;
    loco://*) uri=$1 ;;
    *) usage_error "'$1' is neither an option nor a loco:// address" ;;
    esac
    shift
done
[ -n "$uri" ] || usage_error "the loco:// address is missing"

# shellcheck source=deploy/packages.sh
. "$root/deploy/packages.sh"
packages_need build || exit 1

build=$root/build
log=$build/join-build.log
mkdir -p "$build" || exit 1
printf 'building (log: %s)\n' "$log"
(
    cd "$root" || exit 1
    generator=
    [ -f build/CMakeCache.txt ] || generator='-G Ninja'
    # shellcheck disable=SC2086 # two words or none
    cmake --preset release $generator -DLOCO_TESTS=OFF &&
        cmake --build build --target loco locod
) >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "the build failed; $log has all of it"
}
loco=$build/loco
set -- "$uri" --state "$state" --listen "$listen"
[ $yes = no ] || set -- "$@" --yes
exec "$loco" join "$@"
