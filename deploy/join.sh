#!/bin/sh
# join.sh - take part in a run with one line.
#
# use: sh deploy/join.sh URI [--yes] [--state DIR] [--listen HOST:PORT]
#
#   URI                 loco://HOST:PORT[,HOST:PORT...]/RUNID[?peer=ID]
#   --yes               do not ask
#   --state DIR         identity, data, checkpoints (XDG state directory)
#   --listen HOST:PORT  where other peers reach this one (0.0.0.0:7700)
#
# Installs what is missing (Debian), builds, fetches the run's signed
# manifest, shows what it asks for, asks, joins and shows the run live. Ctrl-C
# finishes the round in flight and says goodbye; the same line joins again.
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
mkdir -p "$state" || exit 1
out=$state/locod.log

pid=
view=
leave() {
    status=$?
    trap - EXIT INT TERM HUP
    [ -z "$view" ] || kill "$view" 2>/dev/null
    if [ -n "$pid" ]; then
        printf '\nfinishing the round in flight (log: %s)\n' "$out"
        kill -TERM "$pid" 2>/dev/null
        wait "$pid" || status=$?
    fi
    exit "$status"
}
trap leave EXIT
trap 'exit 0' INT
trap 'exit 143' TERM HUP

start() {
    setsid "$build/locod" --state "$state" --listen "$listen" --join "$uri" \
        >>"$out" 2>&1 &
    pid=$!
}

# A daemon that ended by itself: say why, and end like it.
check() {
    kill -0 "$pid" 2>/dev/null && return 0
    wait "$pid"
    status=$?
    pid=
    tail -n 3 "$out" >&2
    exit "$status"
}

if [ $yes = no ]; then
    # The manifest is the first thing that a joiner gets, long before it is
    # a member: fetch it, stop, ask.
    if [ ! -s "$state/run.manifest" ]; then
        printf 'asking the run what it needs\n'
        start
        tries=600
        while [ ! -s "$state/run.manifest" ]; do
            check
            tries=$((tries - 1))
            [ $tries -gt 0 ] || die "no peer answered within a minute"
            sleep 0.1
        done
        kill -TERM "$pid"
        wait "$pid"
        pid=
    fi
    printf '\n'
    "$loco" run show --state "$state" || exit 3
    printf '\nfree disk  %s\nstate      %s\nlisten     %s\n\n' \
        "$(df -h "$state" | awk 'NR == 2 { print $4 }')" "$state" "$listen"
    printf 'Join this run? [y/N] '
    read -r answer || answer=
    case $answer in
    y | Y | yes) ;;
    *)
        printf 'not joined; %s can be removed\n' "$state"
        exit 0
        ;;
    esac
fi

start
printf 'joining; Ctrl-C leaves after the round in flight\n'
"$loco" top --patience 120 "$state" &
view=$!
wait "$view"
view=
check
exit 1
