#!/bin/sh
# allreduce.sh - `loco bench allreduce` beside Open MPI and gloo, in turns.
#
# use: sh tests/bench/allreduce.sh [BUILD] [--turns N] [--rounds N] [--ranks A,B]
#          [--mi A,B] [--python PYTHON]
# BUILD has `loco` (default: build). The others take part where they are
# installed (Debian: openmpi-bin libopenmpi-dev python3-torch); what is missing
# is left out of the table. Nothing is written outside a temporary folder.
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
[ -x "$build/loco" ] || {
    echo "allreduce: no loco in '$build': build it, or name the folder" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/cipher" "$here/allreduce_cipher.c" -lsodium -lcrypto
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -O3 -mavx2 -mf16c -o "$work/mpi" "$here/allreduce_mpi.c" -lm
fi
python3 "$here/allreduce.py" --loco "$build/loco" --work "$work" "$@"
