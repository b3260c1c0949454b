/* backend_cpu.c - a kernel set as a backend: shares its work out over threads.
 */
#include "kernels/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/affinity.h"
#include "kernels/cpu/kernels.h"
#include "kernels/device.h"
#include "kernels/measure.h"
#include "kernels/pool.h"
#include "kernels/rounded.h"
#include "kernels/sets.h"
#include "proto/base/err.h"
#include "proto/base/pages.h"

static const struct cpu_kernels cpu_ref = {
#define X(kernel, type, units) .kernel = ref_##kernel,
    BACKEND_KERNELS(X)
#undef X
};

/* Worker w's share of `units`, within one unit of all others. */
static struct kernel_range
share(const struct backend *b, int64_t units, int worker)
{
    return (struct kernel_range){
        .from = units * worker / b->threads,
        .to = units * (worker + 1) / b->threads,
        .worker = worker,
        .bf16 = b->bf16,
        .scratch = b->scratch == NULL
                       ? NULL
                       : b->scratch + (size_t)worker * MATMUL_SCRATCH,
    };
}

static void run(const struct backend *b, pool_job job, void *arg)
{
    if (b->pool == NULL) {
        job(arg, 0);
    } else {
        pool_run(b->pool, job, arg);
    }
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
        struct kernel_range r = share(job->b, units, worker);                  \
                                                                               \
        if (r.from < r.to) {                                                   \
            job->b->cpu->kernel(op, r);                                        \
        }                                                                      \
    }                                                                          \
    static void cpu_##kernel(const struct backend *b, const struct type *op)   \
    {                                                                          \
        struct kernel##_job job = {.b = b, .op = op};                          \
                                                                               \
        run(b, kernel##_share, &job);                                          \
    }
BACKEND_KERNELS(X)
/* What backend_set_dtype() puts in the place of matmul. */
X(matmul_bf16, matmul, matmul_units(op))
#undef X

static void cpu_rmsnorm_back(const struct backend *b, const struct rmsnorm *op)
{
    b->rmsnorm_bwd(b, op);
    b->rmsnorm_dw(b, op);
}

/* ---- memory: the process's own ------------------------------------------ */

/* From half of this on memory is asked for in such pages: products walk down
 * columns, and with pages of 4 KB each row of a tile is in another one. */
#define HUGE_PAGE ((size_t)2 << 20)

static void *take_memory(size_t bytes)
{
    size_t align = bytes < HUGE_PAGE / 2 ? 64 : HUGE_PAGE;
    size_t whole = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, whole);

    if (p != NULL && align == HUGE_PAGE) {
        pages_prefer_large(p, whole);
    }
    return p;
}

static void *cpu_take(const struct backend *b, size_t bytes)
{
    (void)b;
    return take_memory(bytes);
}

static void cpu_give(const struct backend *b, void *p)
{
    (void)b;
    free(p);
}

static void
cpu_copy(const struct backend *b, void *to, const void *from, size_t bytes)
{
    (void)b;
    memcpy(to, from, bytes);
}

static void cpu_clear(const struct backend *b, void *p, size_t bytes)
{
    (void)b;
    memset(p, 0, bytes);
}

static void cpu_use_theta(const struct backend *b,
                          const float *theta,
                          int64_t n,
                          const struct theta_copy *copy)
{
    (void)b;
    (void)theta;
    (void)n;
    (void)copy;
}

static int cpu_finish(const struct backend *b)
{
    (void)b;
    return 0;
}

/* Logits are made for this many floats at a time (64 MB): the whole of
 * (N, 32000) would be the largest buffer of all. */
#define HEAD_FLOATS (16 << 20)

static void fill(struct backend *b, const struct cpu_kernels *cpu)
{
    memset(b, 0, sizeof *b);
    b->threads = 1;
    b->act_bytes = sizeof(float);
    b->head_floats = HEAD_FLOATS;
    b->cpu = cpu;
    b->rmsnorm_back = cpu_rmsnorm_back;
    b->take = b->take_host = cpu_take;
    b->give = cpu_give;
    b->put = cpu_copy;
    b->get = cpu_copy;
    b->clear = cpu_clear;
    b->use_theta = cpu_use_theta;
    b->finish = cpu_finish;
#define X(kernel, type, units) b->kernel = cpu_##kernel;
    BACKEND_KERNELS(X)
#undef X
}

void backend_cpu_ref(struct backend *b)
{
    fill(b, &cpu_ref);
    b->name = "cpu-ref";
    b->isa = "reference";
}

static int
open_set(struct backend *b, const struct kernel_set *set, int threads)
{
    fill(b, kernel_set_cpu(set));
    b->name = "cpu";
    b->isa = set->name;
    if (threads < 1 || threads > BACKEND_THREADS_MAX) {
        return LOCO_ERANGE;
    }
    b->scratch = take_memory((size_t)threads * MATMUL_SCRATCH);
    if (b->scratch == NULL) {
        return LOCO_ENOMEM;
    }
    if (threads > 1) {
        int rv = pool_open(&b->pool, threads, NULL);

        if (rv != 0) {
            backend_close(b);
            return rv;
        }
    }
    b->threads = threads;
    return 0;
}

int backend_cpu(struct backend *b, int threads)
{
    return backend_cpu_isa(b, threads, "auto");
}

int backend_cpu_isa(struct backend *b, int threads, const char *isa)
{
    const struct kernel_set *set = kernel_set_named(isa);

    if (strcmp(isa, "reference") == 0 && threads == 1) {
        backend_cpu_ref(b);
        return 0;
    }
    if (set == NULL) {
        memset(b, 0, sizeof *b);
        return LOCO_EDEVICE;
    }
    return open_set(b, set, threads);
}

int backend_set_affinity(struct backend *b, const struct affinity *a)
{
    struct pool *old = b->pool;

    if (b->device != NULL) {
        return 0; /* one thread, which waits most of the time */
    }
    if (a->n != 0 && a->n != b->threads) {
        return LOCO_EINVAL;
    }
    b->pool = NULL;
    pool_close(old);
    return b->threads == 1 && a->n == 0
               ? 0
               : pool_open(&b->pool, b->threads, a->n == 0 ? NULL : a->cpu);
}

static int set_bf16(struct backend *b, bool on)
{
    const struct kernel_set *set = on ? kernel_set_named(b->isa) : NULL;

    if (on && (set == NULL || !kernel_set_bf16_here(set))) {
        return LOCO_EDEVICE;
    }
    b->bf16 = on;
    b->matmul = on ? cpu_matmul_bf16 : cpu_matmul;
    return 0;
}

static void cpu_matmul_rounded(const struct backend *b, const struct matmul *op)
{
    rounded_matmul(b, op, cpu_matmul);
}

static int set_rounded(struct backend *b)
{
    if (b->rounded == NULL) {
        b->rounded = malloc(rounded_bytes());
    }
    if (b->rounded == NULL) {
        return LOCO_ENOMEM;
    }
    (void)set_bf16(b, false);
    b->matmul = cpu_matmul_rounded;
    return 0;
}

static int choose_dtype(struct backend *b)
{
    double fp32, bf16;

    if (set_bf16(b, true) != 0) {
        return 0;
    }
    bf16 = backend_product_seconds(b);
    (void)set_bf16(b, false);
    fp32 = backend_product_seconds(b);
    if (isinf(bf16) || isinf(fp32)) {
        return LOCO_ENOMEM;
    }
    return set_bf16(b, bf16 < 0.9 * fp32);
}

int backend_set_dtype(struct backend *b, enum backend_dtype dtype)
{
    if (b->device != NULL) { /* chosen when it was opened */
        return dtype == BACKEND_ROUNDED ? LOCO_EDEVICE : 0;
    }
    if (dtype == BACKEND_ROUNDED) {
        return set_rounded(b);
    }
    return dtype == BACKEND_AUTO ? choose_dtype(b)
                                 : set_bf16(b, dtype == BACKEND_BF16);
}

bool backend_dtype_named(const char *name, enum backend_dtype *dtype)
{
    static const char *const names[] = {"fp32", "bf16", "auto"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *dtype = (enum backend_dtype)i;
            return true;
        }
    }
    return false;
}

void backend_close(struct backend *b)
{
    pool_close(b->pool);
    b->pool = NULL;
    if (b->device != NULL) {
        device_close(b->device);
        b->device = NULL;
        return;
    }
    free(b->scratch);
    b->scratch = NULL;
    free(b->rounded);
    b->rounded = NULL;
    b->threads = 1;
}

int64_t backend_scratch_floats(const struct backend *b, int64_t t)
{
    /* a device has its own */
    return b->cpu == NULL ? 0 : b->threads * attention_scratch(t);
}

size_t muon_bytes(int64_t rows, int64_t columns, bool references)
{
    size_t side = (size_t)(rows < columns ? rows : columns);
    size_t numbers = 2 * ((size_t)rows * (size_t)columns + side * side);
    size_t bytes = numbers * (references ? sizeof(double) : sizeof(float));

    return (bytes + 63) / 64 * 64;
}
