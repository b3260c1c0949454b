/* gemm.c - matrix products by cuBLASLt.
 *
 *   c = op(a) op(b) + beta c, all row-major
 *
 * cuBLASLt is column-major: the row-major c (m, n) is the column-major
 * transpose (n, m), so the product asked for is c' = op(b)' op(a)': b goes in
 * first, and "transposed" means tb ? T : N for b, ta ? T : N for a.
 *
 * Types: bf16 in, fp32 sums, bf16 out; with to_weight fp32 out. Without bf16
 * all fp32, not TF32: the tests' exact mode.
 *
 * The library is opened with dlopen (half a gigabyte: never a link
 * dependency), of the major version that the plug-in was compiled for. Each
 * shape gets a *plan* once: descriptors and an algorithm. Without a tuning
 * file that is the library's first choice, the same on every start. With one,
 * the first choices are timed on the real operands when the product overwrites
 * c, and the fastest is written down, so that a restart makes the same bits; a
 * shape that only ever adds to c takes the first choice. Alignment of the
 * operands is part of a shape: an algorithm for 256-byte addresses must not see
 * others.
 *
 * Where the library has no algorithm (odd bf16 rows on some GPUs) the product
 * goes to matmul.cu. PLANS_MAX shapes have a plan; a new one takes the place of
 * the oldest.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

#include "kernels/cuda/gpu.h"
#include "proto/base/err.h"

#define PLANS_MAX      256
#define CHOICES        32
#define TIMED_RUNS     4
#define WORKSPACE      ((size_t)PLUGIN_PRODUCTS_BYTES)
#define ALIGNMENT_MAX  256u
#define TUNING_VERSION 3

/* clang-format off */
#define CUBLAS_CALLS(X)                                                        \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion)                 \
    X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic)                        \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy)                   \
    X(cublasLtMatmulDescSetAttribute)                                          \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)               \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)       \
    X(cublasLtMatmulPreferenceSetAttribute)
/* clang-format on */

/* What makes a plan; compared as bytes, so it is zeroed first. */
struct shape {
    int64_t m, n, k, lda, ldb, ldc;
    uint32_t align_a, align_b, align_c;
    uint8_t ta, tb, to_weight;
    uint8_t adds; /* to c: such a shape is never timed */
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, result; /* b, a, c */
    cublasLtMatmulAlgo_t algo;
    bool none; /* the library has no algorithm */
};

struct gemm {
    void *library;
    cublasLtHandle_t handle;
#define X(name) __typeof__(&name) name;
    CUBLAS_CALLS(X)
#undef X
    void *workspace;
    struct plan plans[PLANS_MAX];
    int n_plans, oldest; /* when there are PLANS_MAX */
    bool said_none;
};

/* ---- opening ------------------------------------------------------------ */

#ifdef LOCO_CUDA_EMULATED
static void *library_open(void)
{
    return dlopen(NULL, RTLD_NOW);
}

static void *library_symbol(void *library, const char *name)
{
    (void)library;
    return emu_cublas_symbol(name);
}
#else
#define TEXT_OF(x)  #x
#define TEXT(x)     TEXT_OF(x)
#define CUBLAS_NAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static void *library_open(void)
{
    return dlopen(CUBLAS_NAME, RTLD_NOW | RTLD_LOCAL);
}

static void *library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
#endif

static bool read_symbols(struct gemm *m)
{
    bool all = true;

#define X(name)                                                                \
    *(void **)&m->name = library_symbol(m->library, #name);                    \
    all = all && m->name != NULL;
    CUBLAS_CALLS(X)
#undef X
    return all;
}

int gemm_open(struct gpu *g, char *errmsg)
{
    struct gemm *m = calloc(1, sizeof *m);
    int rv;

    if (m == NULL) {
        return LOCO_ENOMEM;
    }
    g->gemm = m;
    m->library = library_open();
    if (m->library == NULL || !read_symbols(m)) {
        const char *why = m->library == NULL ? dlerror() : "a call is missing";

        (void)snprintf(errmsg, PLUGIN_ERRMSG,
                       "cuBLASLt %d is needed beside the driver: %.150s; "
                       "install CUDA's cuBLAS package, or use --device cpu",
                       CUBLAS_VER_MAJOR, why == NULL ? "not found" : why);
        return LOCO_EDEVICE;
    }
    if (m->cublasLtCreate(&m->handle) != CUBLAS_STATUS_SUCCESS) {
        m->handle = NULL;
        return gpu_fail(g, LOCO_ECUDA, "cuBLASLt", "it does not start");
    }
    rv = gpu_slot(g, SLOT_WORKSPACE, WORKSPACE, &m->workspace);
    return rv;
}

static void plan_close(const struct gemm *m, struct plan *p)
{
    if (p->result != NULL) {
        (void)m->cublasLtMatrixLayoutDestroy(p->result);
    }
    if (p->second != NULL) {
        (void)m->cublasLtMatrixLayoutDestroy(p->second);
    }
    if (p->first != NULL) {
        (void)m->cublasLtMatrixLayoutDestroy(p->first);
    }
    if (p->desc != NULL) {
        (void)m->cublasLtMatmulDescDestroy(p->desc);
    }
}

void gemm_close(struct gpu *g)
{
    struct gemm *m = g->gemm;

    if (m == NULL) {
        return;
    }
    for (int i = 0; i < m->n_plans; i++) {
        plan_close(m, &m->plans[i]);
    }
    if (m->handle != NULL) {
        (void)m->cublasLtDestroy(m->handle);
    }
    gemm_forget(g);
}

void gemm_forget(struct gpu *g)
{
    free(g->gemm);
    g->gemm = NULL;
}

int gemm_product_version(const struct gpu *g)
{
    return (int)g->gemm->cublasLtGetVersion();
}

/* ---- plans -------------------------------------------------------------- */

static uint32_t alignment_of(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;

    return low == 0 || low > ALIGNMENT_MAX ? ALIGNMENT_MAX : (uint32_t)low;
}

static struct shape shape_of(const struct matmul *op, const void *b)
{
    struct shape s;

    memset(&s, 0, sizeof s);
    s.m = op->m;
    s.n = op->n;
    s.k = op->k;
    s.lda = op->lda;
    s.ldb = op->ldb;
    s.ldc = op->ldc;
    s.align_a = alignment_of(op->a);
    s.align_b = alignment_of(b);
    s.align_c = alignment_of(op->c);
    s.ta = op->ta;
    s.tb = op->tb;
    s.to_weight = op->to_weight;
    s.adds = op->beta != 0;
    return s;
}

static bool layout(const struct gemm *m,
                   cublasLtMatrixLayout_t *out,
                   cudaDataType_t type,
                   int64_t rows,
                   int64_t columns,
                   int64_t ld)
{
    return m->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows,
                                         (uint64_t)columns,
                                         ld) == CUBLAS_STATUS_SUCCESS;
}

/* Descriptors of the column-major product, see the top. */
static bool
describe(const struct gpu *g, struct plan *p, const struct matmul *op)
{
    const struct gemm *m = g->gemm;
    cublasOperation_t first = op->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = op->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t in = g->opt.bf16 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t out = op->to_weight ? CUDA_R_32F : in;

    return m->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F,
                                       CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           m->cublasLtMatmulDescSetAttribute(
               p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) ==
               CUBLAS_STATUS_SUCCESS &&
           m->cublasLtMatmulDescSetAttribute(
               p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) ==
               CUBLAS_STATUS_SUCCESS &&
           layout(m, &p->first, in, op->tb ? op->k : op->n,
                  op->tb ? op->n : op->k, op->ldb) &&
           layout(m, &p->second, in, op->ta ? op->m : op->k,
                  op->ta ? op->k : op->m, op->lda) &&
           layout(m, &p->result, out, op->n, op->m, op->ldc);
}

static bool prefer(const struct gemm *m,
                   cublasLtMatmulPreference_t preference,
                   const struct shape *s)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } rows[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_c},
    };
    uint64_t workspace = WORKSPACE;
    bool ok = m->cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  &workspace, sizeof workspace) == CUBLAS_STATUS_SUCCESS;

    for (int i = 0; i < 4; i++) {
        ok = ok && m->cublasLtMatmulPreferenceSetAttribute(
                       preference, rows[i].name, &rows[i].bytes,
                       sizeof rows[i].bytes) == CUBLAS_STATUS_SUCCESS;
    }
    return ok;
}

/* The library's choices for a plan, best first. */
static int find_choices(struct gpu *g,
                        struct plan *p,
                        cublasLtMatmulHeuristicResult_t *out)
{
    const struct gemm *m = g->gemm;
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;

    if (m->cublasLtMatmulPreferenceCreate(&preference) !=
        CUBLAS_STATUS_SUCCESS) {
        return 0;
    }
    if (!prefer(m, preference, &p->shape) ||
        m->cublasLtMatmulAlgoGetHeuristic(
            m->handle, p->desc, p->first, p->second, p->result, p->result,
            preference, CHOICES, out, &n) != CUBLAS_STATUS_SUCCESS) {
        n = 0;
    }
    (void)m->cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < n; i++) {
        if (out[i].state != CUBLAS_STATUS_SUCCESS) {
            return i;
        }
    }
    return n;
}

/* ---- the tuning file: one line a shape ---------------------------------- */

static void
write_key(char *line, size_t size, const struct gpu *g, const struct shape *s)
{
    (void)snprintf(line, size,
                   "%d sm_%d:%d cublas:%d %s m:%lld n:%lld k:%lld ld:%lld,"
                   "%lld,%lld %c%c%c%c align:%u,%u,%u =",
                   TUNING_VERSION, g->sm, g->multiprocessors,
                   gemm_product_version(g), g->opt.bf16 ? "bf16" : "fp32",
                   (long long)s->m, (long long)s->n, (long long)s->k,
                   (long long)s->lda, (long long)s->ldb, (long long)s->ldc,
                   s->ta != 0 ? 'T' : 'N', s->tb != 0 ? 'T' : 'N',
                   s->to_weight != 0 ? 'W' : 'A', s->adds != 0 ? '+' : '=',
                   s->align_a, s->align_b, s->align_c);
}

#define LINE_SIZE 256

/* The choice that was written down, or -1. */
static int read_choice(const struct gpu *g, const struct shape *s)
{
    char key[LINE_SIZE];
    char line[LINE_SIZE];
    FILE *f = fopen(g->opt.tuning_path, "re");
    int choice = -1;

    if (f == NULL) {
        return -1;
    }
    write_key(key, sizeof key, g, s);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            choice = (int)strtol(line + strlen(key), NULL, 10);
        }
    }
    (void)fclose(f);
    return choice;
}

/* Without the file it is measured again at the next start. */
static void write_choice(const struct gpu *g, const struct shape *s, int choice)
{
    char key[LINE_SIZE];
    FILE *f = fopen(g->opt.tuning_path, "ae");

    if (f != NULL) {
        write_key(key, sizeof key, g, s);
        (void)fprintf(f, "%s %d\n", key, choice);
        (void)fclose(f);
    }
}

/* ---- running ------------------------------------------------------------ */

static cublasStatus_t run_plan(struct gpu *g,
                               const struct plan *p,
                               const cublasLtMatmulAlgo_t *algo,
                               const struct matmul *op,
                               const void *b)
{
    const struct gemm *m = g->gemm;

    return m->cublasLtMatmul(m->handle, p->desc, &op->alpha, b, p->first, op->a,
                             p->second, &op->beta, op->c, p->result, op->c,
                             p->result, algo, m->workspace, WORKSPACE,
                             g->stream);
}

/* `runs` runs one after the other, from event to event, as a step has them;
 * milliseconds of one; negative: it does not run. */
static float time_runs(struct gpu *g,
                       const struct plan *p,
                       const cublasLtMatmulAlgo_t *algo,
                       const struct matmul *op,
                       const void *b,
                       cudaEvent_t *ends,
                       int runs)
{
    float ms = -1;

    (void)cudaEventRecord(ends[0], g->stream);
    for (int i = 0; i < runs; i++) {
        if (run_plan(g, p, algo, op, b) != CUBLAS_STATUS_SUCCESS) {
            return -1;
        }
    }
    (void)cudaEventRecord(ends[1], g->stream);
    if (gpu_wait(g, ends[1], "timing a product") != 0) {
        return -1;
    }
    (void)cudaEventElapsedTime(&ms, ends[0], ends[1]);
    return ms / (float)runs;
}

/* Milliseconds of one run; negative: it does not run. One that is far from the
 * best so far is not measured any further. */
static float time_choice(struct gpu *g,
                         const struct plan *p,
                         const cublasLtMatmulAlgo_t *algo,
                         const struct matmul *op,
                         const void *b,
                         float best)
{
    cudaEvent_t ends[2] = {NULL, NULL};
    float ms = -1;

    if (gpu_check(g, cudaEventCreate(&ends[0]), "event") != 0 ||
        gpu_check(g, cudaEventCreate(&ends[1]), "event") != 0) {
        return -1;
    }
    ms = time_runs(g, p, algo, op, b, ends, 1); /* warms up */
    if (ms >= 0) {
        ms = time_runs(g, p, algo, op, b, ends, 1);
    }
    if (ms >= 0 && (best < 0 || ms < 1.3f * best)) {
        ms = time_runs(g, p, algo, op, b, ends, TIMED_RUNS);
    }
    (void)cudaEventDestroy(ends[0]);
    (void)cudaEventDestroy(ends[1]);
    return ms;
}

static int fastest(struct gpu *g,
                   const struct plan *p,
                   const cublasLtMatmulHeuristicResult_t *choices,
                   int n,
                   const struct matmul *op,
                   const void *b)
{
    float best = -1;
    int choice = 0;

    for (int i = 0; i < n; i++) {
        float ms = time_choice(g, p, &choices[i].algo, op, b, best);

        if (ms >= 0 && (best < 0 || ms < best)) {
            best = ms;
            choice = i;
        }
    }
    return choice;
}

/* Once for a shape: a step that is a hundred times slower has a reason then. */
static void say_slow(struct gpu *g, const struct matmul *op)
{
    char *said = gpu_say(g);

    if (said != NULL) {
        (void)snprintf(said, PLUGIN_ERRMSG,
                       "cuBLASLt has no product of %lld x %lld by %lld x %lld "
                       "in %s on this GPU: loco's own takes its place, some "
                       "100 times slower",
                       (long long)op->m, (long long)op->k, (long long)op->k,
                       (long long)op->n, g->opt.bf16 ? "bf16" : "fp32");
    }
}

static void
choose(struct gpu *g, struct plan *p, const struct matmul *op, const void *b)
{
    cublasLtMatmulHeuristicResult_t choices[CHOICES];
    int n = find_choices(g, p, choices);
    int choice = 0;

    p->none = n == 0;
    if (p->none) {
        say_slow(g, op);
    }
    if (n > 1 && g->opt.tuning_path != NULL) {
        choice = read_choice(g, &p->shape);
        if ((choice < 0 || choice >= n) && op->beta == 0) {
            choice = fastest(g, p, choices, n, op, b);
            write_choice(g, &p->shape, choice);
        }
        choice = choice < 0 || choice >= n ? 0 : choice;
    }
    if (n > 0) {
        p->algo = choices[choice].algo;
    }
}

/* A new plan's place; with too many shapes (texts of all lengths, say) that of
 * the one made first. */
static struct plan *plan_place(struct gemm *m)
{
    struct plan *p = &m->plans[m->n_plans];

    if (m->n_plans == PLANS_MAX) {
        p = &m->plans[m->oldest];
        m->oldest = (m->oldest + 1) % PLANS_MAX;
        plan_close(m, p);
    } else {
        m->n_plans++;
    }
    memset(p, 0, sizeof *p);
    return p;
}

/* NULL: no descriptors. */
static struct plan *
plan_for(struct gpu *g, const struct matmul *op, const void *b)
{
    struct gemm *m = g->gemm;
    struct shape s = shape_of(op, b);
    struct plan *p;

    for (int i = 0; i < m->n_plans; i++) {
        if (memcmp(&m->plans[i].shape, &s, sizeof s) == 0) {
            return &m->plans[i];
        }
    }
    p = plan_place(m);
    if (!describe(g, p, op)) {
        plan_close(m, p);
        memset(p, 0, sizeof *p); /* no product has this shape */
        return NULL;
    }
    p->shape = s;
    choose(g, p, op, b);
    return p;
}

/* The driver loads a kernel of the library's when it first runs. One that finds
 * no memory then is ALLOC_FAILED, or an error of any kind on a GPU that is well
 * and has little left. */
static bool lacks_memory(cublasStatus_t status)
{
    const cudaError_t e = cudaGetLastError(); /* or the next launch has it */
    size_t left = 0, total;

    if (status == CUBLAS_STATUS_ALLOC_FAILED) {
        return true;
    }
    if (status != CUBLAS_STATUS_EXECUTION_FAILED &&
        status != CUBLAS_STATUS_INTERNAL_ERROR) {
        return false;
    }
    return e == cudaErrorMemoryAllocation ||
           (e == cudaSuccess && cudaMemGetInfo(&left, &total) == cudaSuccess &&
            left < 2 * PLUGIN_SPARE_BYTES);
}

int cuda_matmul(struct gpu *g, const struct matmul *op)
{
    const void *b = op->b;
    struct plan *p;
    cublasStatus_t status;

    if (g->broken != 0) {
        return g->broken;
    }
    if (g->opt.bf16 && !op->to_weight) {
        b = gpu_copy_of(g, op->b);
        if (b == NULL) { /* a weight outside theta: only in tests */
            return cuda_matmul_plain(g, op);
        }
    }
    p = plan_for(g, op, b);
    if (p == NULL && !g->gemm->said_none) {
        g->gemm->said_none = true; /* no plan is kept that could remember it */
        say_slow(g, op);
    }
    if (p == NULL || p->none) {
        return g->broken != 0 ? g->broken : cuda_matmul_plain(g, op);
    }
    status = run_plan(g, p, &p->algo, op, b);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE) {
        p->none = true; /* it promised too much: never again */
        say_slow(g, op);
        return cuda_matmul_plain(g, op);
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
        char why[64];

        (void)snprintf(why, sizeof why, "cuBLASLt status %d", (int)status);
        return gpu_fail(g, lacks_memory(status) ? LOCO_ENOMEM : LOCO_ECUDA,
                        "matrix product", why);
    }
    return gpu_launched(g, "matrix product");
}
