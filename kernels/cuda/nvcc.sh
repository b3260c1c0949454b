#!/bin/sh
# nvcc.sh OBJECT COMMAND... - run nvcc and keep what ptxas says about registers
# and shared memory in OBJECT.ptxas; show only what is not that.
object=$1
shift
mkdir -p "$(dirname "$object")"
"$@" >"$object.ptxas" 2>&1
status=$?
grep -v -e '^ptxas info' -e '^    [0-9]* bytes stack frame' "$object.ptxas"
exit $status
