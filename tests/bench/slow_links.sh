#!/bin/sh
# slow_links.sh - how much of slow links the all-reduce uses, beside its targets.
#
# use: sh tests/bench/slow_links.sh [BUILD] [--rounds N] [--mi N]
# Four hosts in network namespaces (tests/netlab; needs root), 16 Mi elements
# of fp16, encrypted, each case beside what one raw TCP stream reaches in the
# same run. About six minutes, nearly all of it waiting for the links.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=build
case ${1:-} in
'' | --*) ;;
*)
    build=$1
    shift
    ;;
esac
rounds=5
mi=16
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --mi) mi=$2 ;;
    *)
        echo "slow_links: no option is called '$1'" >&2
        exit 2
        ;;
    esac
    shift 2
done
LOCO_BUILD=$(cd "$build" && pwd)
export LOCO_BUILD

# measure TARGET WORDS...: one case, with what share of the bound is wanted.
measure() {
    target=$1
    shift
    echo "== $* (target: $target % of the bound)"
    python3 "$here/../netlab/rate.py" --elements $((mi << 20)) \
        --rounds "$rounds" --rate 100mbit "$@"
}
measure 96 --rtt-ms 1
measure 90 --rtt-ms 50
measure 90 --rtt-ms 1 --slow 25mbit --exchange auto --warmup 8
echo "load average: $(cut -d' ' -f1 /proc/loadavg) on $(nproc) cores"
