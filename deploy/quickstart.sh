#!/bin/sh
# quickstart.sh - four peers train one real model together, on this machine.
#
# use: sh deploy/quickstart.sh [--peers N] [--steps N] [--state DIR] [--keep]
#                              [--compare] [--json FILE]
#
#   --peers N    daemons to start (4)
#   --steps N    inner steps per peer; rounded up to whole rounds
#   --state DIR  where everything lies (build/quickstart)
#   --keep       leave the peers' state, data and logs there afterwards
#   --compare    train one peer alone, too, same inner steps: with the run's
#                optimizer, then with AdamW
#   --json FILE  write the result as JSON
#
# Installs what is missing (Debian), builds, packs the text, writes a signed
# run.yaml, starts the first daemon with it and the others with nothing but
# its loco:// address, and shows the run live. Ctrl-C stops every process that
# it started and removes what it wrote. Exit 0: the run finished and all peers
# hold the same bits.
set -u

# ---- the one place for the run's settings -----------------------------------
# Chosen by measurement for a run of about a thousand steps: Muon inside, plain
# averaging of the parameters outside, four bits a value between (muon-avg). The
# papers' outer 0.7 / 0.9 is made for thousands of steps.
peers=4
steps=1100
model=quickstart-1m
sync=muon-avg
optimizer=muon
period=20
outer_lr=1.0
outer_momentum=0.0
batch=4
lr=0.003
lr_min=0.0
warmup=20
eval_every=6
eval_tokens=16384 # while it trains; the result is of the whole text
val_bytes=131072
seed=1
prompt="The LORD is my"

# ---- arguments --------------------------------------------------------------
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
state=
keep=no
compare=no
json=

say() {
    printf '%s\n' "$*"
}

die() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

usage_error() {
    printf 'quickstart: %s; see --help\n' "$*" >&2
    exit 2
}

is_count() {
    case $1 in
    '' | *[!0-9]* | ??????*) return 1 ;;
    esac
    [ "$1" -ge 1 ]
}

while [ $# -gt 0 ]; do
    case $1 in
    --peers | --steps | --state | --json)
        [ $# -ge 2 ] || usage_error "$1: the value is missing"
        case $1 in
        --peers) peers=$2 ;;
        --steps) steps=$2 ;;
        --state) state=$2 ;;
        --json) json=$2 ;;
        esac
        shift
        ;;
    --keep) keep=yes ;;
    --compare) compare=yes ;;
    --help | -h)
        sed -n '2,/^set -u/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 0
        ;;
    *) usage_error "unknown option $1" ;;
    esac
    shift
done
is_count "$peers" || usage_error "--peers is 1 to 64"
[ "$peers" -le 64 ] || usage_error "--peers is 1 to 64"
is_count "$steps" || usage_error "--steps is 1 to 99999"
[ "$steps" -ge "$period" ] || period=$steps
rounds=$(((steps + period - 1) / period))
[ $((rounds * period)) -eq "$steps" ] ||
    say "$steps steps are rounded up to $((rounds * period)): whole rounds"
steps=$((rounds * period))
[ "$warmup" -le "$steps" ] || warmup=0
# Relative paths are the caller's, not the repository's.
case $json in '' | /*) ;; *) json=$PWD/$json ;; esac
case $state in '' | /*) ;; *) state=$PWD/$state ;; esac

# ---- leaving ----------------------------------------------------------------
pids=
made=no
finished=no

# Is the process still there? Zombies are collected by wait afterwards.
alive() {
    kill -0 "$1" 2>/dev/null || return 1
    case $(sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null) in
    Z*) return 1 ;;
    esac
    return 0
}

# Wait at most $1 tenths of a second until no daemon is left.
gone_within() {
    tenths=$1
    while [ "$tenths" -gt 0 ]; do
        left=no
        for pid in $pids; do
            ! alive "$pid" || left=yes
        done
        [ $left = yes ] || return 0
        sleep 0.1
        tenths=$((tenths - 1))
    done
    return 1
}

# Drain; then stop at once; then kill. Only processes that we started.
stop_peers() {
    [ -n "$pids" ] || return 0
    for pid in $pids; do kill -TERM "$pid" 2>/dev/null; done
    if ! gone_within 150; then
        for pid in $pids; do kill -TERM "$pid" 2>/dev/null; done
        if ! gone_within 50; then
            for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
        fi
    fi
    for pid in $pids; do
        wait "$pid" 2>/dev/null || stop_status=$?
    done
    pids=
}

remove_work() {
    [ $made = yes ] && [ $keep = no ] || return 0
    rm -rf "$state"/peer-* "$state"/alone* "$state/data" "$state/text"
    rm -f "$state"/*.log "$state"/*.txt
    if [ $finished = no ]; then
        rm -rf "$state/model"
        rmdir "$state" 2>/dev/null
    fi
    return 0
}

leave() {
    status=$?
    trap - EXIT INT TERM HUP
    [ -z "$view" ] || kill "$view" 2>/dev/null
    stop_peers
    remove_work
    exit "$status"
}

view=
stop_status=0
trap leave EXIT
trap 'say; say "stopping"; exit 130' INT
trap 'exit 143' TERM HUP

# ---- packages, build --------------------------------------------------------
# shellcheck source=deploy/packages.sh
. "$root/deploy/packages.sh"
packages_need build text || exit 1

build=$root/build
log=$build/quickstart-build.log
mkdir -p "$build" || exit 1
say "building (log: $log)"
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
locod=$build/locod

# ---- state ------------------------------------------------------------------
if [ -z "$state" ]; then
    state=$build/quickstart
    rm -rf "$state"
fi
case $state in
*[[:space:]]*) die "$state: the path must not hold blanks" ;;
esac
mkdir -p "$state" || die "cannot make $state"
[ -z "$(ls -A "$state")" ] ||
    die "$state is not empty: remove it or name another directory"
made=yes

# ---- text: public domain prose from a Debian package -------------------------
module=TDavid
source="C. H. Spurgeon, The Treasury of David (1869-1885), Debian package \
sword-comm-tdavid, module $module"
licence="Public Domain"
text=$state/text
mkdir "$text" || exit 1
sh "$root/deploy/text.sh" "$text/tdavid.txt" || exit 1
"$loco" data pack "$text/tdavid.txt" --out "$state/data" \
    --val-bytes "$val_bytes" --source "$source" --licence "$licence" || exit 1
# The held-out part again as plain text: a shard of bytes behind its header.
tail -c +4097 "$state/data/val.ltk" >"$text/held-out.txt"

# ---- run --------------------------------------------------------------------
# create FILE SYNC PEERS PERIOD ROUNDS LR MOMENTUM OPTIMIZER: prints the run id
# All peers are ours and listen on loopback: nobody lies, so the mean is plain,
# nobody makes a sum again, and no round is measured before the next one.
create() {
    "$loco" run create --name "quickstart" --model "$model" \
        --data "$state/data" --sync "$2" --out "$1" \
        --key "$state/data/author.key" --set seed=$seed \
        --set round.min_peers="$3" --set sync.period="$4" \
        --set stop.rounds="$5" --set sync.outer_lr="$6" \
        --set sync.outer_momentum="$7" --set inner.optimizer="$8" \
        --set sync.robust=off --set sync.audit=off --set sync.rollback=0 \
        --set inner.batch=$batch \
        --set inner.micro_batch=$batch --set inner.lr=$lr \
        --set inner.lr_min=$lr_min --set inner.warmup="$warmup" \
        --set inner.steps="$steps" --set eval.every_rounds=$eval_every \
        --set eval.tokens=$eval_tokens 2>"$text/create.log" ||
        die "$(cat "$text/create.log")"
}

# start NAME ARGUMENTS...: a daemon of its own session, so that Ctrl-C reaches
# only this script, which then drains all of them.
start() {
    name=$1
    shift
    setsid "$locod" --state "$state/$name" --listen 127.0.0.1:0 \
        --control 127.0.0.1:0 --threads 1 --battery train "$@" >"$state/$name.log" 2>&1 &
    pids="$pids $!"
    last_pid=$!
}

# The port that NAME listens on, from the first line of its log.
port_of() {
    tries=150
    while [ $tries -gt 0 ]; do
        port=$(sed -n 's/^.*, port \([0-9][0-9]*\),.*$/\1/p' \
            "$state/$1.log" | head -n 1)
        [ -z "$port" ] || return 0
        alive "$last_pid" || break
        sleep 0.1
        tries=$((tries - 1))
    done
    tail -n 3 "$state/$1.log" >&2
    die "the daemon $1 did not start"
}

# Runs in the background so that a signal interrupts the wait.
watch() {
    "$loco" top --until-finished "$@" &
    view=$!
    wait "$view"
    watched=$?
    view=
    return $watched
}

field() {
    "$loco" status --state "$state/$1" --get "$2"
}

run_id=$(create "$state/data/run.yaml" $sync "$peers" "$period" "$rounds" \
    "$outer_lr" "$outer_momentum" $optimizer) || exit 1
say "run $run_id"
say "$peers peers, $steps inner steps each, averaging every $period"

began=$(date +%s)
start peer-1 --run "$state/data/run.yaml"
port_of peer-1
uri=loco://127.0.0.1:$port/$run_id
say "joining: locod --join $uri"
dirs=$state/peer-1
n=2
while [ "$n" -le "$peers" ]; do
    start "peer-$n" --join "$uri"
    dirs="$dirs $state/peer-$n"
    n=$((n + 1))
done
# shellcheck disable=SC2086 # a list of paths without blanks
watch $dirs || watched=1
seconds=$(($(date +%s) - began))
if [ "${watched:-0}" -ne 0 ]; then
    for n in 1 2; do tail -n 3 "$state/peer-$n.log" >&2; done
    die "the run did not finish"
fi

# ---- result -----------------------------------------------------------------
hashes=
sents=
sum_sent=0
n=1
while [ "$n" -le "$peers" ]; do
    hash=$(field peer-$n params_hash) || exit 1
    sent=$(field peer-$n bytes_sent) || exit 1
    hashes="$hashes $hash"
    sents="$sents $sent"
    sum_sent=$((sum_sent + sent))
    n=$((n + 1))
done
before=$(field peer-1 bits_per_byte_before)
context=$(sed -n 's/^ *seq: *\([0-9]*\).*/\1/p' "$state/data/run.yaml" | head -n 1)
committed=$(field peer-1 rounds_committed)
aborted=$(field peer-1 rounds_aborted)
stop_peers
[ "$stop_status" -eq 0 ] || die "a daemon ended with exit code $stop_status"

bits_of() {
    "$loco" eval --state "$state/$1" --text "$text/held-out.txt" \
        >"$text/eval.txt" || return 1
    cut -d ' ' -f 1 <"$text/eval.txt"
}

shared=$(bits_of peer-1) || exit 1
"$loco" export --state "$state/peer-1" --format hf --out "$state/model" \
    >/dev/null || exit 1

# train_alone NAME OPTIMIZER: one peer by itself; its bits per byte in $lone.
train_alone() {
    say "one peer alone, $2, $steps inner steps"
    # One round at the very end, of one member: no outer step before that, and
    # that one takes the parameters as they are.
    create "$state/data/$1.yaml" localsgd 1 "$steps" 1 1.0 0.0 "$2" \
        >/dev/null || exit 1
    start "$1" --run "$state/data/$1.yaml"
    watch "$state/$1" || die "the lone run did not finish"
    stop_peers
    lone=$(bits_of "$1") || exit 1
}

alone=
alone_adamw=
if [ $compare = yes ]; then
    train_alone alone $optimizer
    alone=$lone
    train_alone alone-adamw adamw
    alone_adamw=$lone
fi

same=yes
first=
for hash in $hashes; do
    [ -n "$first" ] || first=$hash
    [ "$hash" = "$first" ] || same=no
done
[ -n "$first" ] || same=no

# All-reducing every gradient in fp32 by ring: 2 (n - 1) / n * 4 bytes a
# parameter and step.
parameters=$("$loco" bench train --config $model --dry-run | cut -d ' ' -f 2)
ratio=$(awk -v p="$parameters" -v n="$peers" -v s="$steps" \
    -v b="$sum_sent" 'BEGIN {
        if (n > 1 && b > 0)
            printf "%.1f", s * 2 * (n - 1) / n * 4 * p / (b / n)
        else printf "-" }')

row() {
    printf '  %-34s %s\n' "$1" "$2"
}

say
say "result"
row "held-out bits per byte, untrained" "${before:--}"
row "held-out bits per byte, shared" "$shared"
[ -z "$alone" ] || row "held-out bits per byte, one alone" "$alone"
[ -z "$alone" ] || row "the same with AdamW" "$alone_adamw"
row "tokens, all peers" $((steps * peers * batch * context))
row "rounds committed, aborted" "$committed, $aborted"
row "seconds" "$seconds"
n=1
for sent in $sents; do
    row "bytes sent by peer $n" "$sent"
    n=$((n + 1))
done
row "less than every gradient in fp32" "$ratio times (data and state included)"
n=1
for hash in $hashes; do
    row "parameters of peer $n" "$hash"
    n=$((n + 1))
done
row "parameters equal" "$same"
row "text" "$source"
row "licence of the text" "$licence"
row "model (Hugging Face format)" "$state/model"
[ $keep = no ] || row "state, data, logs" "$state"
say
say "sample"
"$loco" generate --model "$state/model" --prompt "$prompt" --max-tokens 300 \
    --seed 1 --temperature 0.8 --top-k 40 | fold -s -w 76 | sed 's/^/  /'

# A number, or null where there is none.
number() {
    [ -n "$1" ] && printf %s "$1" || printf null
}

if [ -n "$json" ]; then
    list=
    for hash in $hashes; do list="$list${list:+, }\"$hash\""; done
    per_peer=
    for sent in $sents; do per_peer="$per_peer${per_peer:+, }$sent"; done
    {
        printf '{"bits_per_byte_before": %s' "$(number "$before")"
        printf ', "bits_per_byte_shared": %s' "$(number "$shared")"
        [ -z "$alone" ] || printf ', "bits_per_byte_alone": %s' "$alone"
        [ -z "$alone" ] ||
            printf ', "bits_per_byte_alone_adamw": %s' "$alone_adamw"
        printf ', "tokens": %s' $((steps * peers * batch * context))
        printf ', "params_hashes": [%s]' "$list"
        printf ', "rounds_committed": %s' "$(number "$committed")"
        printf ', "rounds_aborted": %s' "$(number "$aborted")"
        printf ', "bytes_sent": %s' "$sum_sent"
        printf ', "bytes_sent_per_peer": [%s]' "$per_peer"
        printf ', "seconds": %s}\n' "$seconds"
    } >"$json" || die "cannot write $json"
fi

[ $same = yes ] || die "the peers hold different parameters"
finished=yes
exit 0
