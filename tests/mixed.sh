#!/bin/sh
# mixed.sh - x86-64 and 64-bit Arm in one run: all peers end with the same bits.
#
# use: sh tests/mixed.sh [FOLDER]
#
# FOLDER has the two files of tests/tarball.sh and tests/tarball.sh --arch
# aarch64. Two peers of the x86-64 file run here, one of the Arm file in a Debian
# 11 of arm64 under qemu-user: all of locod, with its NEON kernels. They are an
# open run with its defences (robust averages, audits of sums, the gate), once
# with the recipe of the quick start (muon-avg, 4 bits with error feedback), once
# with opendiloco (AdamW, fp16). After three rounds the Arm peer gets SIGKILL; it
# comes back and trains with the others to the end. Then all three must hold one
# model; each must have repeated sums of the others and found none wrong.
# Exit 77, which means skipped, where no program of Arm can run.
set -eu
cd "$(dirname "$0")/.."
name=mixed
files='loco-*-linux-aarch64.tar.gz*'
packages=
. tests/debian.sh
debian_begin "${1:-$debian_root/dist}"
[ "$(uname -m)" = x86_64 ] || debian_skip "two of the peers are x86-64, and this is $(uname -m)"
for arch in x86_64 aarch64; do
    [ -f "$(echo "$out"/loco-*-linux-$arch.tar.gz)" ] || {
        echo "mixed: $out has no file for $arch: sh tests/tarball.sh --arch $arch $out" >&2
        exit 2
    }
done
debian_emulate aarch64
debian_open "bullseye$debian_other"
work=$debian_tree/mixed
arm=
others=
leave() {
    # shellcheck disable=SC2086 # lists
    kill $arm $others 2>/dev/null || true
    wait
    debian_leave
}
trap leave EXIT
mkdir "$work"
tar -C "$work" -xzf "$out"/loco-*-linux-x86_64.tar.gz
PATH=$(echo "$work"/loco-*/bin):$PATH
(debian_exec sh -c 'sh /root/loco/deploy/install.sh /out/loco-*.tar.gz') >/dev/null

fail() {
    echo "mixed: $*" >&2
    exit 1
}

get() { loco status --state "$1" --get "$2" 2>/dev/null; }

audits() { # DIR FIELD
    loco status --state "$1" --json | sed -n "s/.*\"audits\":{[^}]*\"$2\":\([0-9]*\).*/\1/p"
}

# Until FIELD of the daemon in DIR is as wanted: DIR FIELD TEST...
until_status() {
    there=$1 field=$2
    shift 2
    end=$(($(date +%s) + 900))
    until value=$(get "$there" "$field") && test "$value" "$@" 2>/dev/null; do
        [ "$(date +%s)" -lt $end ] || fail "$there: $field is $value; $(tail -n 3 "$there.log")"
        for pid in $arm $others; do
            kill -0 "$pid" 2>/dev/null || fail "a daemon ended: $(tail -n 1 "$dir"/*.log)"
        done
        sleep 0.2
    done
}

# PORT STATE ARGUMENTS... With 5 % of a processor: Arm is slow.
start_here() {
    port=$1 state=$2
    shift 2
    locod --state "$state" --listen "127.0.0.1:$port" --control 127.0.0.1:0 --threads 1 \
        --cpu-percent 5 --battery train "$@" >>"$state.log" 2>&1 &
    others="$others $!"
}

# There $work is /mixed.
start_arm() {
    debian_exec /root/.local/bin/locod --state "/mixed/$1/arm" --listen 127.0.0.1:17802 \
        --control 127.0.0.1:0 --threads 1 --battery train --join "loco://127.0.0.1:17800/$id" \
        >>"$work/$1/arm.log" 2>&1 &
    arm=$!
}

# NAME OPTIONS of `loco run create`...
mixed_run() {
    label=$1
    shift
    dir=$work/$label
    mkdir "$dir"
    id=$(loco run create --name mixed --model "$work/model.yaml" --data "$work/data" "$@" \
        --set round.min_peers=3 --set probation_rounds=1 --set round.grace_ms=120000 \
        --set sync.period=4 --set stop.rounds=16 --set inner.steps=64 --set inner.batch=2 \
        --set inner.micro_batch=2 --set eval.tokens=2048 --set sync.rollback=0.5 \
        --out "$dir/run.yaml" 2>"$dir/created") || fail "$(cat "$dir/created")"
    began=$(date +%s)
    start_here 17800 "$dir/one" --run "$dir/run.yaml"
    until_status "$dir/one" run_id = "$id"
    start_here 17801 "$dir/two" --join "loco://127.0.0.1:17800/$id"
    start_arm "$label"
    until_status "$dir/arm" rounds_committed -ge 3
    kill -9 "$arm"
    wait "$arm" 2>/dev/null || true
    arm=
    # They go on without it; and wait for it, as they are faster.
    until_status "$dir/one" round -gt "$(get "$dir/one" round)"
    for peer in one two; do loco pause --state "$dir/$peer" >/dev/null; done
    start_arm "$label"
    until_status "$dir/arm" peers_alive -ge 3
    for peer in one two; do loco resume --state "$dir/$peer" >/dev/null; done
    for peer in one two arm; do until_status "$dir/$peer" state = finished; done
    took=$(($(date +%s) - began))
    hash=$(get "$dir/one" params_hash)
    sums=
    for peer in one two arm; do
        [ "$(get "$dir/$peer" params_hash)" = "$hash" ] || fail "$label: $peer ends with another model"
        n=$(audits "$dir/$peer" sums)
        [ "$n" -gt 0 ] || fail "$label: $peer repeated no sum of another"
        sums="$sums, $n"
        [ "$(audits "$dir/$peer" wrong) $(audits "$dir/$peer" convicts)" = "0 0" ] ||
            fail "$label: $peer found fault with an honest peer: $(loco status --state "$dir/$peer")"
        [ "$(get "$dir/$peer" rollbacks)" -eq 0 ] || fail "$label: $peer took a round back"
    done
    rounds=$(get "$dir/one" round)
    # Of its second life alone.
    committed=$(get "$dir/arm" rounds_committed)
    [ "$committed" -ge 4 ] || fail "$label: Arm had a part in $committed rounds since it came back"
    grep -q ' neon kernels' "$dir/arm.log" || fail "$label: Arm did not train with its own kernels"
    # shellcheck disable=SC2086 # a list
    kill $arm $others
    for pid in $arm $others; do wait "$pid" || fail "$label: a daemon ended with exit code $?"; done
    arm=
    others=
    echo "| $label | $rounds | $committed | ${sums#, } | $hash | $took s |"
}

echo "| run | rounds | of Arm, since its return | sums that one, two, Arm repeated | parameters of all three | |"
echo "|---|---|---|---|---|---|"
seq 1 60000 >"$work/text"
loco data pack "$work/text" --out "$work/data" --val-bytes 8192 --licence CC0-1.0 >/dev/null
# No width is a multiple of a vector's, so the kernels' last columns count, too.
printf '%s\n' 'dim: 36' 'layers: 2' 'heads: 3' 'kv_heads: 3' 'ffn: 76' 'vocab: 256' 'seq: 64' \
    'tied: true' 'rope_theta: 10000' 'norm_eps: 1.0e-5' >"$work/model.yaml"
mixed_run quickstart --sync muon-avg --set inner.optimizer=muon --set inner.lr=0.003 \
    --set inner.lr_min=0 --set inner.warmup=8 --set sync.outer_lr=1 --set sync.outer_momentum=0
mixed_run opendiloco --sync opendiloco --set inner.warmup=8
