#!/bin/sh
# no_environment.sh LOCO LIBRARY... - nothing that a user's shell has set can
# slow training down.
#
# The libraries that train read no environment variable and start no threads
# but the pool's: no getenv, no OpenMP, no BLAS among the symbols they want, and
# none among the shared libraries that the program loads. Then: variables that
# halve others change neither instruction set, dtype nor thread count.
set -eu
loco=$1
shift
for library; do
    if nm -u "$library" 2>/dev/null | grep -E \
        ' (secure_)?getenv$| (GOMP|omp|kmp|cblas|openblas|mkl|dnnl)_'; then
        echo "$library reads the environment or uses another's threads"
        exit 1
    fi
done
if ldd "$loco" | grep -Ei 'gomp|omp5|blas|mkl|dnnl|lapack'; then
    echo "$loco loads a library that has threads and variables of its own"
    exit 1
fi
# What `auto` chooses is measured, so on a busy machine it may change by itself.
run() {
    case $1 in auto) fields='isa|threads' ;; *) fields='isa|dtype|threads' ;; esac
    "$loco" bench train --config quickstart-1m --batch 1 --seq 16 --threads 2 \
        --steps 1 --dtype "$1" --json | tr ',' '\n' | grep -E "\"($fields)\""
}
for dtype in fp32 auto; do
    plain=$(run $dtype)
    changed=$(
        export OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 OMP_PROC_BIND=true \
            OMP_PLACES=cores KMP_AFFINITY=compact GOMP_CPU_AFFINITY=0 \
            OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 \
            OPENBLAS_L2_SIZE=262144 GOTO_NUM_THREADS=1 MKL_NUM_THREADS=1 \
            MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_DEBUG_CPU_TYPE=5 \
            DNNL_MAX_CPU_ISA=SSE41 ONEDNN_MAX_CPU_ISA=SSE41 \
            ATEN_CPU_CAPABILITY=default LOCO_THREADS=1 LOCO_DTYPE=fp32
        run $dtype
    )
    [ "$plain" = "$changed" ] || {
        echo "variables changed how it trains: $plain, then $changed"
        exit 1
    }
    echo "$dtype: $plain"
done
