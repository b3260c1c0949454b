/* backend.h - the table of kernels that the model is written against.
 *
 * One struct per operation carries its shapes and buffers; one function
 * pointer per operation runs it. backend_cpu_ref() fills the table with plain
 * loops, which are the specification; backend_cpu() with the fast ones for
 * this processor. All fp32, row-major.
 *
 * Letters: B batch, T time, N = B*T rows, C channels, H heads, KV key/value
 * heads, D head size, F ffn, V vocabulary. `x (N, C)` is a row-major array.
 * Every output says `=` (overwritten) or `+=` (accumulated) beside it.
 *
 * Kernels of a processor cannot fail: shapes are the caller's promise, no
 * kernel allocates. NaN and infinity travel through to the loss, where the
 * model reports them. Results of every kernel are the same bits for any thread
 * count.
 *
 * A *device* (a GPU behind kernels/plugin.h) fills the same table; three things
 * differ, and code that keeps to them runs on both:
 *   - theta, gradients, moments and activations lie in memory that take() or
 *     take_host() gave and only put(), get(), clear() and kernels touch;
 * tokens, targets and sumsq's partial sums stay with the caller;
 *   - with bf16 an *activation* (A below) is two bytes, so its pointer is only
 *     an address: act_at() counts its elements. Weights, their gradients, rrms,
 *     lse and losses are fp32 everywhere;
 *   - kernels run later and can fail: finish() waits and tells the first
 *     failure since the last finish(). After one, kernels do nothing.
 *
 * Threads: a backend belongs to one thread at a time. With `threads` > 1 it
 * owns threads - 1 helpers until backend_close().
 */
#ifndef LOCO_KERNELS_BACKEND_H
#define LOCO_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of queries that one attention tile holds. */
#define ATTENTION_TILE 64

#define BACKEND_THREADS_MAX 256

/* Rows or columns of a product that stay with one thread. */
#define MATMUL_UNIT 32

/* Elements of one partial sum of sumsq: fixed, so that the sum has the same
 * bits for every thread count. */
#define SUMSQ_CHUNK 65536

/* A target with this value carries no loss and no gradient. */
#define XENT_IGNORE UINT32_MAX

/* Rows of logits on a device, and of the head's bf16 copy there, are filled up
 * with zeros to a multiple of this: whatever V is, rows begin where tensor
 * cores like it. */
#define VOCAB_UNIT 64

/* c = alpha * op(a) op(b) + beta * c; op transposes where ta/tb say so.
 * op(a) (m, k), op(b) (k, n), c (m, n); ld = stored row length. beta 0 never
 * reads c. */
struct matmul {
    int64_t m, n, k;
    const float *a;
    const float *b;
    float *c;
    int64_t lda, ldb, ldc;
    float alpha, beta;
    bool ta, tb;
    /* c is symmetric: what is left of the diagonal is not asked for, and holds
     * anything afterwards. A kernel may make all of c. */
    bool upper;
    /* What a device with bf16 activations must know: a and b are activations
     * and c a weight's gradient; else b is a weight and c an activation. */
    bool to_weight;
};

/* Token embedding. fwd: x (N, C) = table[token]; bwd: dtable[token] += dx.
 * bwd is split over channels, so that no two threads meet in a row. Tokens are
 * the caller's memory, of a device too. x, dx: A. */
struct embed {
    const uint32_t *tokens; /* (N), each below V */
    const float *table;     /* (V, C) */
    float *x;               /* (N, C) */
    const float *dx;        /* (N, C) */
    float *dtable;          /* (V, C) */
    int64_t n, c;
};

/* A: x, add, y, dy, dx. y = x * rrms * w with rrms = 1 / sqrt(mean(x^2) + eps),
 * per row (Zhang & Sennrich 2019, eq. 4). Where `add` is given, x += add first:
 * the residual connection, fused because both passes are bound by memory. bwd:
 * dx += d(loss)/dx; dw: dw += d(loss)/dw. */
struct rmsnorm {
    float *x;         /* (N, C); fwd writes it only where add is given */
    const float *add; /* (N, C) or NULL */
    const float *w;   /* (C) */
    float *y;         /* (N, C) */
    float *rrms;      /* (N); written by fwd, read by bwd and dw */
    const float *dy;  /* (N, C) */
    float *dx;        /* (N, C) */
    float *dw;        /* (C) */
    int64_t n, c;
    float eps;
};

/* A: x. Rotary position embedding in place, Hugging Face's half rotation:
 * channel j of a head pairs with j + D/2 (Su et al. 2021). sign +1 rotates
 * forward, -1 back, which is also the gradient. Row n is at time n mod T. */
struct rope {
    float *x;         /* (N, ld): `heads` heads of D floats first in a row */
    const float *cos; /* (T, D/2) */
    const float *sin; /* (T, D/2) */
    int64_t n, t, ld, heads, d;
    float sign;
};

/* A: all but lse. Causal attention with grouped heads: query head h reads
 * key/value head h / (H/KV) (Ainslie et al. 2023). No T x T matrix outlives a
 * tile: bwd makes the probabilities again from lse (Dao et al. 2022). */
struct attention {
    const float *qkv;  /* (N, (H + 2 KV) D): all q, all k, all v of a row */
    float *out;        /* (N, H D) = */
    float *lse;        /* (B, H, T) = log of the sum of exponents, for bwd */
    const float *dout; /* (N, H D) */
    float *dqkv;       /* (N, (H + 2 KV) D) = */
    float *scratch;    /* backend_scratch_floats() */
    int64_t b, t, heads, kv_heads, d;
};

/* A: all. h = silu(gate) * up; bwd: dgu = gradient of both. Shazeer 2020. */
struct swiglu {
    const float *gu; /* (N, 2F): gate, then up, in each row */
    float *h;        /* (N, F) = */
    const float *dh; /* (N, F) */
    float *dgu;      /* (N, 2F) = */
    int64_t n, f;
};

/* A: logits. Softmax and cross-entropy per row: loss = -log
 * softmax(logits)[target]. With `grad` the logits become d(sum of
 * losses)/dlogits in place. A row with the target XENT_IGNORE has loss 0 and
 * gradient 0. What lies behind the V logits of a row is no part of it, whatever
 * it holds; with `grad` it becomes 0. */
struct xent {
    float *logits;           /* (N, ld): V, then what fills the row up */
    const uint32_t *targets; /* (N), the caller's memory */
    float *loss;             /* (N) = */
    int64_t n, v, ld;
    bool grad;
};

/* One step of an inner optimizer on n elements, g = grad * grad_scale; the
 * kernels adamw, adopt and sgdm (algorithms page 0.3) take from it what they
 * need. One pass over the memory. The operations and their order are
 * specified, each one IEEE: peers that start equal and see the same gradient
 * stay bit-equal. */
struct optimizer_op {
    float *theta;      /* (n) += */
    float *u;          /* (n) first moment, += */
    float *v;          /* (n) second moment, +=; not touched by sgdm */
    const float *grad; /* (n) */
    int64_t n;
    float grad_scale;
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float decay;       /* lr * weight decay; 0: none */
    float step;        /* lr; of adamw lr / (1 - beta1^t) */
    float rsqrt_bias2; /* adamw: 1 / sqrt(1 - beta2^t) */
    float eps;
    float limit; /* adopt: of |g / sqrt(v)|; 0: the first call, v alone moves */
};

/* A matrix of theta that Muon steps, row-major. */
struct muon_matrix {
    int64_t offset; /* of its first element in theta, u and grad */
    int64_t rows, columns;
};

/* The polynomial of Newton-Schulz, a x + b x x' x + c (x x')^2 x, what the norm
 * is divided by at least, and Liu's factor. */
#define MUON_ITERATIONS 5
#define MUON_A          3.4445
#define MUON_B          (-4.7750)
#define MUON_C          2.0315
#define MUON_EPS        1e-7
#define MUON_SCALE      0.2

/* One step of Muon on n matrices (cpu/muon.h has the formula): the momentum is
 * made orthogonal. A lane has its own scratch and matrices that follow one
 * another, about as much work as every other lane has; which lane steps a
 * matrix changes no bit. A device has one lane; products read bf16 where its
 * activations are. */
struct muon_op {
    float *theta; /* += */
    float *u;     /* momentum, += */
    const float *grad;
    const struct muon_matrix *matrices; /* (n), the caller's memory */
    int64_t n;
    int64_t lanes;
    unsigned char *scratch; /* lane_bytes for each lane, 64-byte aligned */
    size_t lane_bytes;      /* the most of muon_bytes() of all matrices; on a
                             * device of muon_device_bytes() */
    float grad_scale;
    float beta, one_minus_beta;
    float decay; /* lr * weight decay; 0: none */
    float lr;
};

/* partial[i] = sum of x^2 over chunk i, in double; the caller adds them in
 * order. */
struct sumsq {
    const float *x;
    double *partial; /* (sumsq_chunks(n)) */
    int64_t n;
};

/* Where a device keeps theta in bf16 for products, and keeps it up to date by
 * itself. Behind element `at`, the end of the head, it has `zeros` zeros: rows
 * that a product may read as more of the head. */
struct theta_copy {
    void *memory; /* backend_copy_bytes() of n + zeros */
    int64_t at, zeros;
};

/* clang-format off */
/* name, struct, how many units of work `op` has; one row per kernel. */
#define BACKEND_KERNELS(X)                                                     \
    X(matmul, matmul, matmul_units(op))                                        \
    X(embed_fwd, embed, op->n)                                                 \
    X(embed_bwd, embed, op->c)                                                 \
    X(rmsnorm_fwd, rmsnorm, op->n)                                             \
    X(rmsnorm_bwd, rmsnorm, op->n)                                             \
    X(rmsnorm_dw, rmsnorm, op->c)                                              \
    X(rope, rope, op->n)                                                       \
    X(attention_fwd, attention, op->b * op->kv_heads)                          \
    X(attention_bwd, attention, op->b * op->kv_heads)                          \
    X(swiglu_fwd, swiglu, op->n)                                               \
    X(swiglu_bwd, swiglu, op->n)                                               \
    X(xent, xent, op->n)                                                       \
    X(adamw, optimizer_op, op->n)                                              \
    X(adopt, optimizer_op, op->n)                                              \
    X(sgdm, optimizer_op, op->n)                                               \
    X(muon, muon_op, op->lanes)                                                \
    X(sumsq, sumsq, sumsq_chunks(op->n))
/* clang-format on */

struct affinity;
struct cpu_kernels;
struct device;
struct pool;

#ifndef __cplusplus /* members have the names of structs */
struct backend {
    const char *name; /* "cpu-ref", "cpu", "cuda" */
    const char *isa;  /* a name of sets.def, "reference", "sm_90" */
    int threads;
    bool bf16;           /* operands of matrix products are rounded to bf16 */
    int act_bytes;       /* of an activation: 4, or 2 on a device with bf16 */
    int64_t head_floats; /* logits that are worth making at a time */
    unsigned char *scratch; /* of matrix products; NULL with references */
    float *rounded;         /* of BACKEND_ROUNDED (rounded.h), else NULL */
    const struct cpu_kernels *cpu;
    struct pool *pool;     /* NULL with one thread; beside a device for who
                            * works on memory of the process */
    struct device *device; /* NULL: this processor and its memory */
#define X(kernel, type, units)                                                 \
    void (*kernel)(const struct backend *b, const struct type *op);
    BACKEND_KERNELS(X)
#undef X
    /* rmsnorm_bwd and rmsnorm_dw: a device reads x and dy once for both */
    void (*rmsnorm_back)(const struct backend *b, const struct rmsnorm *op);
    /* 64-byte aligned, contents unspecified; NULL when there is no more. */
    void *(*take)(const struct backend *b, size_t bytes);
    /* The same of the host's memory where a device is short of its own: used
     * like the device's, at the speed of PCIe (plugin.h). */
    void *(*take_host)(const struct backend *b, size_t bytes);
    void (*give)(const struct backend *b, void *p);
    /* Copies between the caller's memory and the backend's, done when they
     * return; get() leaves NaN-free zeros after a failure. */
    void (*put)(const struct backend *b,
                void *to,
                const void *from,
                size_t bytes);
    void (*get)(const struct backend *b,
                void *to,
                const void *from,
                size_t bytes);
    void (*clear)(const struct backend *b, void *p, size_t bytes);
    /* Products read theta (n) from now on, and its copy where there is one;
     * n = 0 forgets both. */
    void (*use_theta)(const struct backend *b,
                      const float *theta,
                      int64_t n,
                      const struct theta_copy *copy);
    /* 0, or the first failure: LOCO_ECUDA, LOCO_ENOMEM, LOCO_ETIMEOUT. */
    int (*finish)(const struct backend *b);
};

/* Fill `b` with the reference kernels, one thread. */
void backend_cpu_ref(struct backend *b);

/* Fill `b` with the fastest kernels that this processor has and that a test ran
 * on real or emulated hardware (sets.h). LOCO_ERANGE unless
 * 1 <= threads <= BACKEND_THREADS_MAX, LOCO_ENOMEM when a thread cannot
 * start. Environment variables such as OMP_NUM_THREADS have no effect. */
int backend_cpu(struct backend *b, int threads);

/* The same with one set of sets.def by its name, "auto", or "reference" (one
 * thread). LOCO_EDEVICE when this processor or build does not have it. */
int backend_cpu_isa(struct backend *b, int threads, const char *isa);

/* Threads keep to these processors from now on; what opens pins nothing.
 * LOCO_EINVAL for a list made for another number of threads, LOCO_ENOMEM. */
int backend_set_affinity(struct backend *b, const struct affinity *a);

/* How matrix products, those of attention included, read their operands. Sums
 * are fp32 in any case. */
enum backend_dtype {
    BACKEND_FP32,    /* as they are: what a backend opens with */
    BACKEND_BF16,    /* rounded to bf16 */
    BACKEND_AUTO,    /* bf16 if one product of each kind, timed for less than a
                      * millisecond, shows a gain */
    BACKEND_ROUNDED, /* rounded to bf16 by any kernels (rounded.h) */
};

/* LOCO_EDEVICE for bf16 where the processor has no bf16 dot products, and for
 * ROUNDED with a device; LOCO_ENOMEM. b->bf16 says what AUTO chose. */
int backend_set_dtype(struct backend *b, enum backend_dtype dtype);

/* "fp32", "bf16" or "auto"; false for another name. */
bool backend_dtype_named(const char *name, enum backend_dtype *dtype);

/* Stop the helper threads. */
void backend_close(struct backend *b);

/* Floats of scratch that attention over at most t steps needs. */
int64_t backend_scratch_floats(const struct backend *b, int64_t t);

/* Bytes of scratch that one lane of `muon` needs for a matrix. The references
 * (no `scratch` of products) sum in double. */
size_t muon_bytes(int64_t rows, int64_t columns, bool references);

/* Bytes of the copy of n parameters. */
static inline size_t backend_copy_bytes(const struct backend *b, int64_t n)
{
    return b->act_bytes == 2 ? 2 * (size_t)n : 0;
}

/* Stored length of a row of V logits. */
static inline int64_t backend_logits_ld(const struct backend *b, int64_t v)
{
    return b->cpu != NULL ? v : (v + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
}

/* Element i of an activation. */
static inline float *act_at(const struct backend *b, float *x, int64_t i)
{
    return (float *)(void *)((unsigned char *)x + i * b->act_bytes);
}

#endif

/* A buffer of a step of Muon on a device ends where an address may be that
 * tensor cores like. */
static inline size_t muon_device_piece(int64_t numbers, int bytes)
{
    return ((size_t)numbers * (size_t)bytes + 255) / 256 * 256;
}

/* Bytes that `muon` needs for a matrix on a device: y and x of its shape; a and
 * the polynomial in fp32 and as activations. */
static inline size_t
muon_device_bytes(int64_t rows, int64_t columns, int act_bytes)
{
    int64_t n = rows * columns;
    int64_t square = rows < columns ? rows * rows : columns * columns;

    return muon_device_piece(n, (int)sizeof(float)) +
           muon_device_piece(n, act_bytes) +
           2 * muon_device_piece(square, (int)sizeof(float)) +
           2 * muon_device_piece(square, act_bytes);
}

/* Units of work of a matrix product: MATMUL_UNIT rows or columns of c,
 * whichever are more. */
static inline int64_t matmul_units(const struct matmul *op)
{
    int64_t n = op->n > op->m ? op->n : op->m;

    return (n + MATMUL_UNIT - 1) / MATMUL_UNIT;
}

static inline int64_t sumsq_chunks(int64_t n)
{
    return (n + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK;
}

#endif
