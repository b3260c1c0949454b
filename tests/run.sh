#!/bin/sh
# run.sh - every test, with small budgets.
#
# use: sh tests/run.sh [--full] [GROUP...]
#
# Installs what is missing (Debian), builds and runs the groups in order:
#   build   gcc, warnings are errors      unit    cmocka, through ctest
#   tidy    the house style               fuzz    saved corpora and mutations
#   sim     whole nodes in virtual time   e2e     real daemons on loopback
#   interop a peer made of other people's packages meets locod (needs PyPI)
#   netlab  real daemons over slow, cut and NATed links (needs root)
#   methods every published method in the laboratory, short
#   clang   the same with clang, unit     local   without the network, unit
#   asan    AddressSanitizer and UBSan: unit, fuzz, sim
#   tsan    ThreadSanitizer: what has threads
#   libfuzzer  each decoder under attack for some seconds
#   cuda    the CUDA plug-in: compiled and linked where nvcc is
# --full takes the long forms: hours, and a repeated call on the same commit
# goes on after the last group that passed.
#
# Each group has a time limit. At the end: a line a group, then what failed
# with the last lines of each, and "N passed, N failed, N skipped"; exit 0 only
# when none failed. Logs: build/test-logs/GROUP.log
set -u
cd "$(dirname "$0")/.." || exit 1

all="build tidy unit fuzz sim e2e interop netlab methods clang local asan tsan libfuzzer cuda"
full=no
chosen=
for word; do
    case $word in
    --full) full=yes ;;
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
[ -n "$chosen" ] || chosen=$all

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
packages_need build test || exit 1
packages_need cross || echo "without them unit/kernels/neon is skipped"
# Too large for a short run: a browser has 64 MB.
[ $full = no ] || packages_need judges || echo "without them tests are skipped"

logs=build/test-logs
mkdir -p "$logs"
jobs=$(nproc 2>/dev/null || echo 2)
passed=0
failed=0
skipped=0
summary=
not_well= # groups with a failure
# Seconds a group may take; --full takes this many times longer.
stretch=1
fuzz_s=5
soak_s=60
[ $full = no ] || { stretch=60 fuzz_s=1800 soak_s=1800; }

# What --full has behind it, for this commit with no local changes.
stamps=
if [ $full = yes ] && commit=$(git rev-parse HEAD 2>/dev/null) &&
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
    # `timeout` cannot run a shell function: this script runs itself for one.
    RUN_ONE=$3 FUZZ_S=$fuzz_s FULL=$full JOBS=$jobs LOCO_SOAK_S=$soak_s \
        timeout -k 20 $(($2 * stretch)) sh tests/run.sh \
        >"$logs/$1.log" 2>&1 || status=$?
    took=$(($(date +%s) - began))
    before=$(cat "$logs/used")
    used_s >"$logs/used"
    used=$(($(cat "$logs/used") - before))
    count "$1" $status
    passed=$((passed + n_passed))
    failed=$((failed + n_failed))
    skipped=$((skipped + n_skipped))
    why=
    [ $status -ne 124 ] || why=" (time limit of $(($2 * stretch)) s)"
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
build_clang() { configure clang; }
build_local() { configure local -DLOCO_WERROR=ON; }
build_asan() { configure asan -DLOCO_WERROR=ON; }
build_tsan() {
    targets='unit_uv unit_daemon unit_kernels'
    configure tsan -DLOCO_WERROR=ON
}
build_libfuzzer() {
    targets=fuzz_targets
    configure fuzz -DLOCO_FUZZ_SECONDS="$FUZZ_S"
}

do_ahead() {
    for one in clang local asan tsan libfuzzer; do
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

tests() {
    dir=$1
    pattern=$2
    shift 2
    ctest --test-dir "$dir" -R "$pattern" -j "$JOBS" --output-on-failure \
        --no-tests=error "$@"
}

# They compile with compilers of their own: once is enough.
own_compilers='golden_bits|kernels/neon|no_environment'
# Without the network train/pretoken.c and daemon/cli.c are compiled otherwise,
# and nothing else: what these tests are made of is what `unit` has tested.
same_objects='^unit/(kernels|cuda)/|^unit/train/(codec|dtype|engine|lab|llama|replica)'

do_build() { configure ci; }
do_tidy() { python3 tests/tidy.py --self-test && python3 tests/tidy.py; }
do_unit() { tests build '^unit/'; }
do_fuzz() { tests build '^fuzz/'; }

do_sim() {
    tests build '^sim/' || return 1
    [ "$FULL" = yes ] || return 0
    for scenario in plain kill-each freeze restart overlap fleeting quorum join \
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
    python3 tests/e2e/e2e.py --jobs "$JOBS" || return 1
    [ "$FULL" = yes ] || return 0
    n=0
    while [ $n -lt 20 ]; do
        LOCO_SOAK_S=60 python3 tests/e2e/e2e.py --jobs "$JOBS" || return 1
        n=$((n + 1))
    done
    build_asan && LOCO_BUILD=build-asan LOCO_TIME_SCALE=10 LOCO_SOAK_S=60 \
        python3 tests/e2e/e2e.py --jobs "$JOBS"
}

do_interop() {
    if [ "$FULL" = yes ]; then
        python3 tests/interop/interop.py --full
    else
        python3 tests/interop/interop.py
    fi
}
do_netlab() { python3 tests/netlab/netlab.py; }

# Afresh: what is cached was not tested.
do_methods() {
    rm -rf build/methods-short
    python3 tests/bench/methods.py --short
}

do_clang() {
    build_clang && tests build-clang '^unit/' -E "$own_compilers"
}

do_local() {
    build_local &&
        tests build-local '^unit/' -E "$own_compilers|$same_objects" || return 1
    build-local/loco bench train --config quickstart-1m --dry-run || return 1
    # No other command exists there.
    ! build-local/loco status --json
}

do_asan() {
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
    export UBSAN_OPTIONS=print_stacktrace=1
    export LOCO_TIME_SCALE=10
    build_asan && tests build-asan '^(unit|fuzz|sim)/' -E "$own_compilers"
}

do_tsan() {
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    export LOCO_TIME_SCALE=10
    build_tsan && tests build-tsan '^unit/(uv|daemon|kernels)/' \
        -E "$own_compilers"
}

do_libfuzzer() { build_libfuzzer && tests build-fuzz '^fuzz/'; }

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
    [ "$FULL" = no ] || archs=
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

group build 600 do_build
[ $failed -gt 0 ] || build_ahead
group tidy 180 do_tidy
group unit 600 do_unit
group fuzz 120 do_fuzz
group sim 900 do_sim
group e2e 900 do_e2e
group interop 300 do_interop
group netlab 700 do_netlab
group methods 180 do_methods
end_ahead
group clang 700 do_clang
group local 500 do_local
group asan 1800 do_asan
group tsan 600 do_tsan
group libfuzzer 900 do_libfuzzer
group cuda 600 do_cuda

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
