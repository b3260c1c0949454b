/* backend_cpu.c - choose a kernel set and share its work out over threads. */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/pool.h"
#include "proto/base/err.h"

static const struct cpu_kernels cpu_ref = {
#define X(kernel, type, units) .kernel = ref_##kernel,
    BACKEND_KERNELS(X)
#undef X
};

/* Worker w's share of `units`, within one unit of all others. */
static struct kernel_range share(int64_t units, int worker, int workers)
{
    return (struct kernel_range){
        .from = units * worker / workers,
        .to = units * (worker + 1) / workers,
        .worker = worker,
    };
}

/* One wrapper per kernel: a job for the pool, and the table's entry. */
#define X(kernel, type, units)                                                 \
    struct kernel##_job {                                                      \
        const struct backend *b;                                               \
        const struct type *op;                                                 \
    };                                                                         \
    static void kernel##_share(void *arg, int worker)                          \
    {                                                                          \
        struct kernel##_job *job = arg;                                        \
        const struct type *op = job->op;                                       \
        struct kernel_range r = share(units, worker, job->b->threads);         \
                                                                               \
        if (r.from < r.to) {                                                   \
            job->b->cpu->kernel(op, r);                                        \
        }                                                                      \
    }                                                                          \
    static void cpu_##kernel(const struct backend *b, const struct type *op)   \
    {                                                                          \
        struct kernel##_job job = {.b = b, .op = op};                          \
                                                                               \
        if (b->pool == NULL) {                                                 \
            kernel##_share(&job, 0);                                           \
        } else {                                                               \
            pool_run(b->pool, kernel##_share, &job);                           \
        }                                                                      \
    }
BACKEND_KERNELS(X)
#undef X

static void fill(struct backend *b, const struct cpu_kernels *cpu)
{
    memset(b, 0, sizeof *b);
    b->threads = 1;
    b->cpu = cpu;
#define X(kernel, type, units) b->kernel = cpu_##kernel;
    BACKEND_KERNELS(X)
#undef X
}

void backend_cpu_ref(struct backend *b)
{
    fill(b, &cpu_ref);
    b->name = "cpu-ref";
    b->isa = "baseline";
    b->gemm = "reference";
}

static bool has_baseline(void)
{
    return true;
}

#ifdef LOCO_ISA_X86
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw");
}
#endif

/* From the fastest to the one that always works. */
static const struct {
    const char *name;
    const struct cpu_kernels *cpu;
    bool (*supported)(void);
} sets[] = {
#ifdef LOCO_ISA_X86
    {"avx512", &cpu_fast_avx512, has_avx512},
    {"avx2", &cpu_fast_avx2, has_avx2},
#endif
    {"baseline", &cpu_fast_baseline, has_baseline},
};

#define SET_COUNT (sizeof sets / sizeof sets[0])

static int open_set(struct backend *b, size_t i, int threads)
{
    fill(b, sets[i].cpu);
    b->name = "cpu";
    b->isa = sets[i].name;
#ifdef LOCO_HAVE_ONEDNN
    b->gemm = "own+oneDNN";
#else
    b->gemm = "own";
#endif
    if (threads < 1 || threads > BACKEND_THREADS_MAX) {
        return LOCO_ERANGE;
    }
    if (threads > 1) {
        int rv = pool_open(&b->pool, threads);

        if (rv != 0) {
            return rv;
        }
    }
    b->threads = threads;
    return 0;
}

int backend_cpu(struct backend *b, int threads)
{
    size_t i = 0;

    while (!sets[i].supported()) {
        i++;
    }
    return open_set(b, i, threads);
}

int backend_cpu_isa(struct backend *b, int threads, const char *isa)
{
    for (size_t i = 0; i < SET_COUNT; i++) {
        if (strcmp(sets[i].name, isa) == 0 && sets[i].supported()) {
            return open_set(b, i, threads);
        }
    }
    memset(b, 0, sizeof *b);
    return LOCO_EDEVICE;
}

void backend_close(struct backend *b)
{
    pool_close(b->pool);
    b->pool = NULL;
    b->threads = 1;
}

int64_t backend_scratch_floats(const struct backend *b, int64_t t)
{
    return b->threads * attention_scratch(t);
}
