#!/bin/sh
# run.sh - everything that only a GPU can say about the CUDA plug-in, in one
# command and at most nine minutes; one table at the end.
#
# use: sh tests/gpu/run.sh [--build DIR] [--prefix DIR] [--ready]
#                          [--quick|--sanitize]
#
# Builds with CMake, a C and a C++ compiler, nvcc and jansson alone
# (LOCO_NETWORK=OFF; --prefix is where jansson was unpacked, say DIR/usr) for
# the GPU that is there (without one for sm_90, and each part then says why it
# cannot run: nothing of it counts). --ready: DIR was built elsewhere, from the
# same commit, and is taken as it is. Then:
#   correctness  kernels, bits and whole model against kernels/cpu (fp32 and
#                bf16), a curve of 200 losses, the same bits twice; the outer
#                step against the engine's; a model in stages; where DIR holds a
#                locod, ten rounds of a peer on the GPU and one on the processor,
#                and a stage on each
#   sanitizer    memcheck and racecheck, where compute-sanitizer works
#   speed        kernels, 150M and 1.1B training steps, the outer step, 150M in
#                two stages; 1.1B with moments in the host's memory, and on all
#                GPUs where there are several
#   torch        the same models in PyTorch, where python3 has it
#   profile      what each large kernel waits for, where ncu works
# Correctness, sanitizer and PyTorch's compiling run side by side; the others one
# after the other, alone on the GPU. --quick leaves out torch, sanitizer and
# profile, --sanitize all but the sanitizer. Each part has a time limit, and all
# together LIMIT_S; one that runs out or fails is a line of the table, the others
# go on. Exit 0 only when all correctness passed, 77 where there was no GPU and
# nothing else failed.
# For kernels/BENCH.md: the table, GPU, date, commit.
set -u
cd "$(dirname "$0")/../.." || exit 1

build="build-gpu"
quick=no
only=no
ready=no
while [ $# -gt 0 ]; do
    case $1 in
    --build)
        build=$2
        shift
        ;;
    --prefix)
        # The unpacked .pc files name /usr: pkg-config puts --prefix before it.
        CMAKE_PREFIX_PATH=$(cd "$2" && pwd) || exit 2
        PKG_CONFIG_SYSROOT_DIR=${CMAKE_PREFIX_PATH%/usr}
        lib=$CMAKE_PREFIX_PATH/lib/$(uname -m)-linux-gnu
        LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export CMAKE_PREFIX_PATH PKG_CONFIG_SYSROOT_DIR LD_LIBRARY_PATH
        shift
        ;;
    --ready) ready=yes ;;
    --quick) quick=yes ;;
    --sanitize) only=yes ;;
    *)
        sed -n '2,/^set -u/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 2
        ;;
    esac
    shift
done
mkdir -p "$build/gpu-logs"
build=$(cd "$build" && pwd)
logs=$build/gpu-logs
LIMIT_S=${LIMIT_S:-525} # and what the table and a killed part's end take
began=$(date +%s)
table=$logs/table
: >"$table"

line() {
    echo "$1" | tee -a "$table"
}

# count WORD: lines of the table that begin with it.
count() {
    grep -c "^$1" "$table"
}

# within LIMIT_S: $limit = that, or what is left of the whole; false: too little.
within() {
    limit=$((LIMIT_S - ($(date +%s) - began)))
    [ "$limit" -lt "$1" ] || limit=$1
    [ "$limit" -ge 10 ]
}

# absent NAME COMMAND...: there is no GPU. The command is asked all the same: it
# must refuse, with a sentence, and not hang.
absent() {
    name=$1
    shift
    if [ $# -eq 0 ]; then
        line "no GPU  $name"
        return 1
    fi
    timeout -k 5 20 "$@" >"$logs/$name.log" 2>&1
    status=$?
    why=$(grep -oE -m 1 'no NVIDIA GPU[^)]*)' "$logs/$name.log")
    if [ $status -ne 0 ] && [ $status -lt 124 ] && [ -n "$why" ]; then
        line "no GPU  $name: $why"
    else
        line "FAILED  $name (exit $status without a GPU): $(head -n 1 \
            "$logs/$name.log" | cut -c1-120)"
    fi
    return 1
}

# part NAME LIMIT_S COMMAND...: a test; fails the whole when it fails.
part() {
    name=$1
    if ! within "$2"; then
        line "FAILED  $name (no time is left)"
        return 1
    fi
    shift 2
    from=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1
    status=$?
    took=$(($(date +%s) - from))
    if [ $status -eq 0 ]; then
        line "ok      $name ($took s)"
        return 0
    fi
    why="exit $status"
    [ $status -ne 124 ] || why="time limit of $limit s"
    line "FAILED  $name ($why, $took s): $(grep -E 'ERROR|error|:.*: ' \
        "$logs/$name.log" | head -n 1 | cut -c1-120)"
    return 1
}

# A driver that hangs hangs this, too.
sm=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
    2>/dev/null | head -n 1 | tr -d ' .')
gpu=$(timeout 20 nvidia-smi --query-gpu=name,driver_version \
    --format=csv,noheader 2>/dev/null | head -n 1)
gpus=$(timeout 20 nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
[ -z "${CUDA_VISIBLE_DEVICES-}" ] ||
    gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
there=yes
if [ -z "$sm" ]; then
    there=no
    sm=90
    gpu="none (nvidia-smi shows none), built all the same"
fi
commit=$(git rev-parse --short HEAD 2>/dev/null || echo "no git")
line "GPU $gpu, sm_$sm; commit $commit; $(date -u +%Y-%m-%d)"

# Where CUDA's parts lie apart (in Python's packages, say): the first found.
anywhere() {
    timeout 20 find /usr/local /usr/lib /usr/include /opt -name "$1" 2>/dev/null |
        head -n 1
}
more=
root=/usr/local/cuda
if [ ! -f $root/include/cublasLt.h ] && header=$(anywhere cublasLt.h) &&
    [ -n "$header" ]; then
    more=-DLOCO_CUDA_INCLUDE=$(dirname "$header")
fi
if [ ! -f $root/lib64/libcublasLt.so.13 ] && blas=$(anywhere 'libcublasLt.so.1[23]') &&
    [ -n "$blas" ]; then
    LD_LIBRARY_PATH=$(dirname "$blas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi

compile() {
    generator=
    command -v ninja >/dev/null 2>&1 && [ ! -f "$build/CMakeCache.txt" ] &&
        generator='-G Ninja'
    jobs=$(nproc 2>/dev/null || echo 4)
    build_s=200
    [ $there = yes ] || build_s=$LIMIT_S # nothing else takes time
    # shellcheck disable=SC2086 # two words or none
    part configure 60 cmake -S . -B "$build" $generator \
        -DCMAKE_BUILD_TYPE=Release -DLOCO_NETWORK=OFF -DLOCO_CUDA=ON $more \
        -DLOCO_CUDA_ARCHS="$sm" -DLOCO_TESTS=OFF -DLOCO_GPU_TESTS=ON &&
        part build $build_s cmake --build "$build" -j "$jobs" --target loco \
            loco_cuda gpu_kernels gpu_bits gpu_model gpu_outer gpu_stage \
            gpu_speed gpu_speed_stage
}

if [ $ready = no ] && ! compile; then
    tail -n 30 "$logs/build.log" "$logs/configure.log" 2>/dev/null
    echo
    cat "$table"
    echo "gpu: $(count FAILED) failed, $(($(date +%s) - began)) s"
    exit 1
fi
plugin=$build/libloco_cuda.so

# sanitize LIMIT_S: both side by side. racecheck has our kernels alone, and not
# the steps of Muon: under it (2025.3) they end with "The Sanitizer failed to
# handle a hardware exception", the reason is not found; memcheck runs them.
sanitize() {
    if [ $there = no ]; then
        absent sanitizer
    elif ! command -v compute-sanitizer >/dev/null 2>&1; then
        line "skip    sanitizer: no compute-sanitizer here"
    elif within 60; then
        part memcheck "$1" compute-sanitizer --error-exitcode 9 \
            --tool memcheck "$build/tests/gpu_kernels" "$plugin" &
        part racecheck "$1" compute-sanitizer --error-exitcode 9 \
            --tool racecheck --kernel-name kernel_substring=_kernel \
            "$build/tests/gpu_kernels" "$plugin" steps_of_muon_equal_the_reference &
        wait
    else
        line "skip    sanitizer: no time is left, see --sanitize"
    fi
}

# Real daemons, where this build has them (tests/gpu/swarm.sh builds them alone).
swarm() {
    if [ $there = no ]; then
        absent swarm
    elif [ -x "$build/locod" ]; then
        LOCO_BUILD=$build LOCO_GPU_PLUGIN=$plugin part swarm 120 \
            python3 tests/e2e/e2e.py --jobs 1 "GPU"
    else
        line "skip    swarm: this build has no locod, see tests/gpu/swarm.sh"
    fi
}

tuning=$logs/tuning

# The speed of what is wrong is of no use, but the figures may say why.
speed() {
    if [ $there = no ]; then
        absent speed "$build/tests/gpu_speed" "$plugin"
        return
    fi
    if ! within 100; then
        line "skip    speed: no time is left"
        return
    fi
    rm -f "$tuning"
    timeout -k 5 "$limit" "$build/tests/gpu_speed" "$plugin" "$tuning" \
        >"$logs/speed.log" 2>&1
    status=$?
    [ $status -eq 0 ] ||
        line "FAILED  speed (exit $status); as far as it came:"
    line "$(cat "$logs/speed.log")"
}

# train NAME CONFIG BATCH SEQ [OPTION...]
train() {
    name=$1
    config=$2
    rows=$3
    tokens=$4
    shift 4
    if [ $there = no ]; then
        absent "loco-$name" "$build/loco" bench train --config "$config" \
            --batch "$rows" --seq "$tokens" --device cuda --plugin "$plugin" "$@"
        return
    fi
    if ! within 110; then
        line "skip    loco $name: no time is left"
        return
    fi
    if timeout -k 5 "$limit" "$build/loco" bench train --config "$config" \
        --batch "$rows" --seq "$tokens" --device cuda --plugin "$plugin" \
        --tuning "$tuning" --steps 20 --json "$@" \
        >"$logs/train-$name.json" 2>"$logs/train-$name.log"; then
        line "loco   $name: $(tr ',' '\n' <"$logs/train-$name.json" |
            grep -E 'tokens_per_s|ms_per_step|flops_per_s|mfu|micro_batch|_bytes|slow_product|"gpus' |
            tr -d '"{}' | tr '\n' ' ')"
    else
        line "FAILED  loco $name: $(head -n 1 "$logs/train-$name.log")"
    fi
}

# A model in two stages beside the whole one, and the copies at the edge.
stages() {
    if [ $there = no ]; then
        absent speed-stage "$build/tests/gpu_speed_stage" "$plugin"
    elif ! within 30; then
        line "skip    stages: no time is left"
    elif timeout -k 5 "$limit" "$build/tests/gpu_speed_stage" "$plugin" \
        "$tuning" >"$logs/speed-stage.log" 2>&1; then
        line "$(cat "$logs/speed-stage.log")"
    else
        line "FAILED  stages: $(head -n 1 "$logs/speed-stage.log")"
    fi
}

has_torch() {
    [ $quick = no ] && [ $there = yes ] &&
        timeout -k 5 60 python3 -c 'import torch, transformers' 2>/dev/null
}

# What torch.compile makes is kept: the measured run finds it.
TORCHINDUCTOR_CACHE_DIR=$logs/../torch-cache
export TORCHINDUCTOR_CACHE_DIR

torch() {
    if [ $there = no ]; then
        absent torch
    elif ! has_torch; then
        line "skip    torch: python3 has no torch and transformers"
    elif ! within 180 || [ "$limit" -lt 60 ]; then
        line "skip    torch: no time is left"
    else
        timeout -k 5 "$limit" python3 tests/gpu/torch_train.py \
            >"$logs/torch.log" 2>&1
        line "$(grep '^torch' "$logs/torch.log" || tail -n 2 "$logs/torch.log")"
    fi
}

# What the large kernels wait for, launch by launch.
profile() {
    if [ $there = no ]; then
        absent profile
    elif ! command -v ncu >/dev/null 2>&1; then
        line "skip    profile: no ncu here"
    elif within 60; then
        timeout -k 5 "$limit" ncu --clock-control none \
            --section SpeedOfLight --section WarpStateStats \
            -k 'regex:flash|hopper|rmsnorm|swiglu|xent|rope|step' \
            "$build/tests/gpu_speed" "$plugin" "$tuning" 1 once \
            >"$logs/ncu.txt" 2>&1
        line "profile: $(grep -c 'Speed Of Light' "$logs/ncu.txt") kernels, in \
gpu-logs/ncu.txt"
    else
        line "skip    profile: no time is left"
    fi
}

# test_part NAME LIMIT_S COMMAND...: a part that wants a GPU.
test_part() {
    name=$1
    limit=$2
    shift 2
    if [ $there = yes ]; then
        part "$name" "$limit" "$@"
    else
        absent "$name" "$@"
    fi
}

if [ $only = yes ]; then
    sanitize 400
else
    test_part kernels 90 "$build/tests/gpu_kernels" "$plugin" &
    test_part bits 60 "$build/tests/gpu_bits" "$plugin" &
    test_part outer 60 "$build/tests/gpu_outer" "$plugin" &
    test_part stage 60 "$build/tests/gpu_stage" "$plugin" &
    test_part model 120 "$build/tests/gpu_model" "$plugin" 200 &
    swarm &
    if [ $quick = no ]; then
        sanitize 120 &
        has_torch && timeout -k 5 120 python3 tests/gpu/torch_train.py --warm \
            >"$logs/torch-warm.log" 2>&1 &
    fi
    wait
    speed
    train 150M llama-150m 64 1024
    train 1.1B llama-1b 16 2048
    stages
    if [ $quick = no ]; then
        torch
        profile
    fi
    train 1.1B-host llama-1b 16 2048 --host-moments
    if [ "$gpus" -gt 1 ]; then
        train "150M on $gpus GPUs" llama-150m $((64 * gpus)) 1024 \
            --micro-batch 64 --gpus all
        train "1.1B on $gpus GPUs" llama-1b $((16 * gpus)) 2048 \
            --micro-batch 16 --gpus all
    fi
fi

echo
cat "$table"
took=$(($(date +%s) - began))
failed=$(count FAILED)
if [ $there = no ]; then
    echo "gpu: $failed failed, $(count 'no GPU') not run, $took s: NOTHING ABOVE" \
        "RAN ON A GPU"
    [ "$failed" -eq 0 ] && exit 77
    exit 1
fi
echo "gpu: $failed failed, $took s"
[ "$failed" -eq 0 ]
