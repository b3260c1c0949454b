#!/bin/sh
# run.sh - every test, with small budgets.
#
# use: sh tests/run.sh [quick | --full] [GROUP...]
#
# quick: what breaks most often, in at most 4 minutes on 2 cores once all is
# compiled: build, tidy, unit without neon and cuda, fuzz, a quarter of sim's
# seeds, eight tests of e2e.
# Installs what is missing (Debian), builds and runs the groups in order:
#   build   gcc, warnings are errors      unit    cmocka, through ctest
#   tidy    the house style               fuzz    saved corpora and mutations
#   sim     whole nodes in virtual time   e2e     real daemons on loopback
#   interop a peer made of other people's packages meets locod (needs PyPI)
#   netlab  real daemons over slow, cut and NATed links (needs root)
#   methods every published method in the laboratory, short
#   local   without the network, unit
#   asan    clang, AddressSanitizer and UBSan: unit, sim
#   libfuzzer  each decoder under attack for some seconds, same build
#   tsan    ThreadSanitizer: what has threads
#   cuda    the CUDA plug-in: compiled and linked where nvcc is
# Half of sim's seeds run. --full takes all seeds and the long forms: hours, and
# a repeated call on the same commit goes on after the last group that passed.
#
# Each group has a limit of processor time: a busy machine fails no test. At the
# end: a line a group, then what failed with the last lines of each, and
# "N passed, N failed, N skipped"; exit 0 only when none failed. Logs:
# build/test-logs/GROUP.log
set -u
cd "$(dirname "$0")/.." || exit 1

all="build tidy unit fuzz sim e2e interop netlab methods local asan libfuzzer tsan cuda"
form=usual
chosen=
for word; do
    case $word in
    quick | --full)
        if [ "$form" != usual ]; then
            echo "run.sh: quick or --full, not both" >&2
            exit 2
        fi
        form=${word#--}
        ;;
    --help | -h)
        sed -n '2,/^set -u/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 0
        ;;
    -*)
        echo "run.sh: unknown option $word; see --help" >&2
        exit 2
        ;;
    *)
        case " $all " in
        *" $word "*) chosen="$chosen $word" ;;
        *)
            echo "run.sh: no group is called '$word'; there are: $all" >&2
            exit 2
            ;;
        esac
        ;;
    esac
done
if [ -z "$chosen" ]; then
    chosen=$all
    [ "$form" != quick ] || chosen="build tidy unit fuzz sim e2e"
fi

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
packages_need build test || exit 1
[ "$form" = quick ] || packages_need cross ||
    echo "without them unit/kernels/neon is skipped"
# Too large for a short run: a browser has 64 MB.
[ "$form" != full ] || packages_need judges ||
    echo "without them tests are skipped"

logs=build/test-logs
mkdir -p "$logs"
jobs=$(nproc 2>/dev/null || echo 2)
passed=0
failed=0
skipped=0
summary=
not_well= # groups with a failure
# Limits of --full are so many times higher.
stretch=1
fuzz_s=2
soak_s=60
sim_share=2 # one in so many seeds
case $form in
quick) sim_share=4 ;;
full) stretch=60 fuzz_s=1800 soak_s=1800 sim_share=1 ;;
esac

# What --full has behind it, for this commit with no local changes.
stamps=
if [ "$form" = full ] && commit=$(git rev-parse HEAD 2>/dev/null) &&
    [ -z "$(git status --porcelain 2>/dev/null)" ]; then
    stamps=build/full-passed/$commit
    mkdir -p "$stamps"
fi

# count GROUP STATUS: read the group's log for what the tool counted; a tool
# that counts nothing is one test.
count() {
    n_failed=$(sed -n 's/^.*% tests passed, \([0-9]*\) tests\{0,1\} failed out of [0-9]*$/\1/p' \
        "$logs/$1.log" | awk '{ n += $1 } END { print n + 0 }')
    n_total=$(sed -n 's/^.*% tests passed, [0-9]* tests\{0,1\} failed out of \([0-9]*\)$/\1/p' \
        "$logs/$1.log" | awk '{ n += $1 } END { print n + 0 }')
    n_skipped=$(grep -c '\*\*\*Skipped' "$logs/$1.log")
    own=$(sed -n 's/^\(e2e\|interop\|netlab\|methods\|cuda\): \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\2 \3 \4/p' \
        "$logs/$1.log" | awk '{ p += $1; f += $2; s += $3 }
            END { print p + 0, f + 0, s + 0 }')
    # shellcheck disable=SC2086 # three numbers
    set -- "$2" $own
    n_passed=$((n_total - n_failed - n_skipped + $2))
    n_failed=$((n_failed + $3))
    n_skipped=$((n_skipped + $4))
    # A failure outside the counted tests (a build, a time limit), or a tool
    # that passed without a count.
    if [ "$1" -ne 0 ] && [ "$n_failed" -eq 0 ]; then
        n_failed=1
    elif [ $((n_passed + n_failed + n_skipped)) -eq 0 ]; then
        n_passed=1
    fi
}

# Seconds of the processors that children which have ended have had.
used_s() {
    times >"$logs/times" # in this shell: a pipe would be another
    awk 'NR == 2 { gsub(/[ms]/, " "); split($0, t, " ")
        print int(60 * t[1] + t[2] + 60 * t[3] + t[4]) }' "$logs/times"
}

# group NAME LIMIT_S FUNCTION
# The limit is processor time, summed up when the group has ended. What loops or
# waits for ever is ended by the clock, which leaves time for a busy machine: a
# test by ctest or e2e/runner.py, a group after three times its limit. Not by
# `ulimit -t`: with it the clock of a process' processor time moves in ticks, and
# what measures a step by it finds zero.
group() {
    case " $chosen " in *" $1 "*) ;; *) return 0 ;; esac
    if [ -n "$stamps" ] && [ -f "$stamps/$1" ]; then
        echo "== $1: passed before on this commit"
        passed=$((passed + $(cat "$stamps/$1")))
        return 0
    fi
    echo "== $1"
    began=$(date +%s)
    used_s >"$logs/used"
    status=0
    limit=$(($2 * stretch))
    # `timeout` cannot run a shell function: this script runs itself for one.
    RUN_ONE=$3 FUZZ_S=$fuzz_s FORM=$form JOBS=$jobs \
        SIM_SHARE=$sim_share LOCO_SOAK_S=$soak_s \
        timeout -k 20 $((3 * limit)) sh tests/run.sh \
        >"$logs/$1.log" 2>&1 || status=$?
    took=$(($(date +%s) - began))
    before=$(cat "$logs/used")
    used_s >"$logs/used"
    used=$(($(cat "$logs/used") - before))
    why=
    if [ $status -eq 124 ]; then
        why=" (no end after $((3 * limit)) s)"
    elif [ $used -gt $limit ]; then
        status=1
        why=" (limit of $limit s CPU)"
    fi
    count "$1" $status
    passed=$((passed + n_passed))
    failed=$((failed + n_failed))
    skipped=$((skipped + n_skipped))
    if [ "$n_failed" -gt 0 ]; then
        not_well="$not_well $1"
        tail -n 40 "$logs/$1.log"
    elif [ -n "$stamps" ]; then
        echo "$n_passed" >"$stamps/$1"
    fi
    grep -e '\*\*\*Skipped' -e '^skip  ' "$logs/$1.log"
    line=$(printf '%-10s %4d passed %3d failed %3d skipped %5d s %5d s CPU%s' \
        "$1" "$n_passed" "$n_failed" "$n_skipped" "$took" "$used" "$why")
    echo "$line"
    summary="$summary$line
"
}

# ---- what the groups do -----------------------------------------------------

# Two builds share most of their objects, and so do two runs of this script.
launcher=
if command -v ccache >/dev/null 2>&1; then
    launcher='-DCMAKE_C_COMPILER_LAUNCHER=ccache
        -DCMAKE_CXX_COMPILER_LAUNCHER=ccache'
    # And so does a clone in another folder.
    export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
fi

# configure PRESET OPTIONS...: and build all, or $targets. It may be under way
# already, ahead: then that is waited for.
targets=
configure() {
    preset=$1
    shift
    dir=build
    [ "$preset" = ci ] || dir=build-$preset
    generator=
    [ -f "$dir/CMakeCache.txt" ] || generator='-G Ninja'
    (
        flock 9
        # shellcheck disable=SC2086 # words or none
        cmake --preset "$preset" $generator $launcher -DLOCO_TESTS=ON "$@" &&
            cmake --build "$dir" ${targets:+--target $targets}
    ) 9>"$logs/$preset.lock"
}

# The builds of the later groups. Each group makes its own; before that
# build_ahead has made what it could of them from what the tests of other groups
# leave of the processors: daemons wait for each other and for slow links. What
# fails there fails in its group again.
build_local() { configure local -DLOCO_WERROR=ON; }
build_asan() { configure clang-asan -DLOCO_FUZZ_SECONDS="$FUZZ_S"; }
build_tsan() {
    targets='unit_uv unit_daemon unit_kernels'
    configure tsan -DLOCO_WERROR=ON
}

do_ahead() {
    for one in local asan tsan; do
        case " $CHOSEN " in *" $one "*) (build_$one) ;; esac
    done
}

build_ahead() {
    case " $chosen " in *" e2e "* | *" netlab "*) ;; *) return 0 ;; esac
    # The scheduler's idle class: a daemon that wakes up runs at once.
    idle='chrt --idle 0'
    $idle true 2>/dev/null || idle='nice -n 19'
    # Not a child of this shell, whose children are counted by group.
    # shellcheck disable=SC2086 # words
    (
        RUN_ONE=do_ahead CHOSEN=$chosen FUZZ_S=$fuzz_s \
            $idle timeout 7200 sh tests/run.sh >"$logs/ahead.log" 2>&1 &
        echo $! >"$logs/ahead.pid"
    )
}

# From here on the processors are busy: whoever is in the idle class is in the
# way of who waits for it.
end_ahead() {
    [ ! -f "$logs/ahead.pid" ] || kill "$(cat "$logs/ahead.pid")" 2>/dev/null
    rm -f "$logs/ahead.pid"
}

# tests BUILD PATTERN OPTIONS...: none of them takes 15 minutes, whatever else
# the machine does.
tests() {
    dir=$1
    pattern=$2
    shift 2
    ctest --test-dir "$dir" -R "$pattern" -j "$JOBS" --timeout 900 \
        --output-on-failure --no-tests=error "$@"
}

# They compile with compilers of their own: once is enough.
own_compilers='golden_bits|kernels/neon|no_environment'
# Without the network train/data/pretoken.c and daemon/cli/cli.c differ,
# and nothing else: what these tests are made of is what `unit` has tested.
same_objects='^unit/(kernels|cuda)/|^unit/train/(codec|dtype|engine|lab|llama|replica)'

do_build() { configure ci -DLOCO_SIM_SHARE="$SIM_SHARE"; }
do_tidy() { python3 tests/tidy.py --self-test && python3 tests/tidy.py; }
do_unit() {
    if [ "$FORM" = quick ]; then # emulators: half of the time of all
        tests build '^unit/' -E '^unit/(cuda/|kernels/neon)'
        return
    fi
    tests build '^unit/' || return 1
    [ "$FORM" = full ] || return 0
    # The curve of losses that a GPU makes: minutes under the emulator.
    build/tests/test_cuda_model build/tests/libloco_cuda_emulated.so 200
}
do_fuzz() { tests build '^fuzz/'; }

do_sim() {
    tests build '^sim/' || return 1
    [ "$FORM" = full ] || return 0
    for scenario in plain kill-each freeze restart overlap single-round quorum join \
        split-2-2 split-3-1 lone-survivor two-peers lossy rounds-churn; do
        build/tests/loco_sim $scenario --seeds 20000 || return 1
    done
    build/tests/loco_sim pairs --seeds 5000 || return 1
    build/tests/loco_sim pairs-nodes --seeds 5000 || return 1
    build/tests/loco_sim pairs --peers 1000 --rounds 6 --seeds 10 || return 1
    build/tests/loco_sim dht --peers 10000 --seeds 10 &&
        build/tests/loco_sim churn --peers 1000 --seeds 20 &&
        build/tests/loco_sim eclipse --peers 1000 --seeds 50 &&
        build/tests/loco_sim flood --peers 1000 --seeds 10
}

# Daemons wait for each other most of the time: two tests a processor.
do_e2e() {
    JOBS=$((2 * JOBS))
    smoke=
    [ "$FORM" != quick ] || smoke=--smoke
    # shellcheck disable=SC2086 # a word or none
    python3 tests/e2e/e2e.py --jobs "$JOBS" $smoke || return 1
    [ "$FORM" = full ] || return 0
    n=0
    while [ $n -lt 20 ]; do
        LOCO_SOAK_S=60 python3 tests/e2e/e2e.py --jobs "$JOBS" || return 1
        n=$((n + 1))
    done
    build_asan && LOCO_BUILD=build-clang-asan LOCO_TIME_SCALE=10 LOCO_SOAK_S=60 \
        python3 tests/e2e/e2e.py --jobs "$JOBS"
}

do_interop() {
    if [ "$FORM" = full ]; then
        python3 tests/interop/interop.py --full
    else
        python3 tests/interop/interop.py
    fi
}
do_netlab() { python3 tests/netlab/netlab.py; }

# Afresh: what is cached was not tested.
do_methods() {
    rm -rf build/methods-short build/recipe-short
    python3 tests/bench/recipe.py --short &&
        python3 tests/bench/methods.py --short
}

do_local() {
    build_local &&
        tests build-local '^unit/' -E "$own_compilers|$same_objects" || return 1
    build-local/loco bench train --config quickstart-1m --dry-run || return 1
    # No other command exists there.
    ! build-local/loco status --json
}

do_asan() {
    # A fresh Debian has clang without llvm-symbolizer.
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:allow_addr2line=1
    export UBSAN_OPTIONS=print_stacktrace=1
    export LOCO_TIME_SCALE=10
    build_asan && tests build-clang-asan '^(unit|sim)/' -E "$own_compilers"
}

do_libfuzzer() {
    export ASAN_OPTIONS=allow_addr2line=1
    build_asan && tests build-clang-asan '^fuzz/'
}

do_tsan() {
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    export LOCO_TIME_SCALE=10
    build_tsan && tests build-tsan '^unit/(uv|daemon|kernels)/' \
        -E "$own_compilers"
}

# One architecture and its PTX; a machine that has a GPU runs
# tests/gpu/run.sh. Its kernels run on the processor in unit/cuda.
do_cuda() {
    if ! command -v nvcc >/dev/null 2>&1 && [ ! -x /usr/local/cuda/bin/nvcc ]
    then
        echo "skip  cuda/plugin: there is no nvcc here"
        echo "cuda: 0 passed, 0 failed, 1 skipped"
        return 0
    fi
    archs='-DLOCO_CUDA_ARCHS=80'
    [ "$FORM" != full ] || archs=
    # shellcheck disable=SC2086 # a word or none
    configure cuda -DLOCO_WERROR=ON -DLOCO_NETWORK=OFF -DLOCO_TESTS=OFF \
        -DLOCO_GPU_TESTS=ON $archs || return 1
    python3 tests/cuda_plugin.py build-cuda || return 1
    # The plug-in loads and, without a GPU, is refused with a sentence.
    if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then
        echo "cuda: 1 passed, 0 failed, 0 skipped"
        return 0
    fi
    status=0
    build-cuda/loco bench train --config quickstart-1m --device cuda ||
        status=$?
    [ $status -eq 8 ] || return 1
    echo "cuda: 1 passed, 0 failed, 0 skipped"
}

if [ -n "${RUN_ONE:-}" ]; then
    one=$RUN_ONE
    unset RUN_ONE
    "$one"
    exit
fi

rm -f "$logs/ahead.pid" # of a run that was killed
trap 'end_ahead; echo; echo "interrupted"; exit 130' INT TERM

# What needs build/ and finds none builds it first.
case " $chosen " in
*" build "*) ;;
*" unit "* | *" fuzz "* | *" sim "* | *" e2e "* | *" interop "* | *" netlab "* | *" methods "*) chosen="build $chosen" ;;
esac

group build 1500 do_build
[ $failed -gt 0 ] || build_ahead
group tidy 120 do_tidy
group unit 900 do_unit
group fuzz 120 do_fuzz
group sim 1200 do_sim
group e2e 2400 do_e2e
group interop 300 do_interop
group netlab 700 do_netlab
group methods 300 do_methods
end_ahead
group local 900 do_local
group asan 3600 do_asan
group libfuzzer 2400 do_libfuzzer
group tsan 1200 do_tsan
group cuda 900 do_cuda

# Again, where whoever sees only the end of the output sees it.
failures() {
    echo
    echo "FAILED in $1, build/test-logs/$1.log:"
    told=$(awk -f tests/failures.awk "$logs/$1.log")
    # No test by its name: a build, a time limit.
    [ -n "$told" ] || told=$(tail -n 15 "$logs/$1.log")
    echo "$told"
}

echo
printf '%s' "$summary"
for one in $not_well; do
    failures "$one"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
