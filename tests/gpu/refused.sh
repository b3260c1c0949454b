#!/bin/sh
# refused.sh GPU_SPEED PLUGIN - a system that locks no memory for the GPU costs
# gpu_speed one line, which says why; it is no failure.
#
# PLUGIN is the emulated one. The n-th registration is refused, n from 1 to 4:
# the wire bytes, then three vectors; what was registered before is given back.
# The fifth does not come, and the step is measured.
set -u
failed=0

# outer N: gpu_speed's lines about the outer step.
outer() {
    LOCO_EMULATOR=fail_register=$1 "$speed" "$plugin" "" 256 all outer 2>&1
    status=$?
}

# mind N LINE: it ended well, and an expression finds LINE.
mind() {
    out=$(outer "$1"; echo "exit $status")
    if ! echo "$out" | grep -q "^  outer step of 0.00B in locod: $2" ||
        ! echo "$out" | grep -q '^exit 0$'; then
        echo "registration $1: not '$2' and exit 0, but:"
        echo "$out"
        failed=1
    fi
}

speed=$1
plugin=$2
for n in 1 2 3 4; do
    mind $n 'skipped, registered memory: out of memory$'
done
mind 5 'pack and out .* registered in .* ms, once$'
exit $failed
