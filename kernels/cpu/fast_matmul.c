/* fast_matmul.c - matmul.c with its sums in registers.
 *
 * Where oneDNN is linked it takes the large products, see own_is_faster().
 *
 * A panel of op(b), PANEL_K by two vectors, is copied to the stack (and so
 * stays in the first cache) for each pass over the rows; ROWS rows of c are
 * summed at a time in 2 * ROWS vector registers. a is read where it lies.
 * Products are summed over k in order within a panel.
 */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#define PANEL_K 256
#define PANEL_N (2 * VF_LANES)

#if VF_LANES == 16
#define ROWS 12 /* 24 sums, 2 of b, 1 of a: of 32 registers */
#else
#define ROWS 6 /* 12 sums, 2 of b, 1 of a: of 16 registers */
#endif

struct panel {
    const float *a; /* element (i, k) at a[i * row + k * step] */
    int64_t row;
    int64_t step;
    int64_t k;
    float alpha;
    float beta; /* 0: c is not read */
    int64_t n;  /* columns of c in this panel */
    int64_t ldc;
    float (*b)[PANEL_N]; /* (PANEL_K) */
};

/* b[k, n] = op(b)[k0 + k, n0 + n], zero beyond the last column */
static void
pack(struct panel *p, const struct matmul *op, int64_t k0, int64_t n0)
{
    if (!op->tb && p->n == PANEL_N) {
        for (int64_t k = 0; k < p->k; k++) {
            memcpy(p->b[k], op->b + (k0 + k) * op->ldb + n0, sizeof p->b[k]);
        }
        return;
    }
    for (int64_t n = 0; n < PANEL_N; n++) {
        const float *from = op->b;
        int64_t stride = op->tb ? 1 : op->ldb;

        if (n >= p->n) {
            for (int64_t k = 0; k < p->k; k++) {
                p->b[k][n] = 0;
            }
            continue;
        }
        from += op->tb ? (n0 + n) * op->ldb + k0 : k0 * op->ldb + n0 + n;
        for (int64_t k = 0; k < p->k; k++) {
            p->b[k][n] = from[k * stride];
        }
    }
}

/* c[0 .. n) = alpha sum + beta c */
VF_INLINE void finish_row(const struct panel *p, float *c, vf lo, vf hi)
{
    float sum[PANEL_N];

    lo *= p->alpha;
    hi *= p->alpha;
    if (p->n == PANEL_N) {
        if (p->beta != 0) {
            lo += p->beta * vf_load(c);
            hi += p->beta * vf_load(c + VF_LANES);
        }
        vf_store(c, lo);
        vf_store(c + VF_LANES, hi);
        return;
    }
    vf_store(sum, lo);
    vf_store(sum + VF_LANES, hi);
    for (int64_t n = 0; n < p->n; n++) {
        c[n] = p->beta == 0 ? sum[n] : sum[n] + p->beta * c[n];
    }
}

/* `rows` is a constant at each call, so the sums live in registers. */
VF_INLINE void
multiply_rows(const struct panel *p, int64_t i, float *c, const int rows)
{
    const float *a = p->a + i * p->row;
    vf lo[ROWS] = {{0}};
    vf hi[ROWS] = {{0}};

    for (int64_t k = 0; k < p->k; k++) {
        vf b0 = vf_load(p->b[k]);
        vf b1 = vf_load(p->b[k] + VF_LANES);

#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            vf x = vf_set(a[r * p->row + k * p->step]);

            lo[r] += x * b0;
            hi[r] += x * b1;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        finish_row(p, c + (i + r) * p->ldc, lo[r], hi[r]);
    }
}

static void multiply_panel(const struct panel *p, float *c, int64_t m)
{
    int64_t i = 0;

    for (; i + ROWS <= m; i += ROWS) {
        multiply_rows(p, i, c, ROWS);
    }
    for (; i + 4 <= m; i += 4) {
        multiply_rows(p, i, c, 4);
    }
    for (; i < m; i++) {
        multiply_rows(p, i, c, 1);
    }
}

static void own_matmul(const struct matmul *op, struct kernel_range r)
{
    float b[PANEL_K][PANEL_N] __attribute__((aligned(64)));
    struct panel p = {
        .b = b,
        .row = op->ta ? 1 : op->lda,
        .step = op->ta ? op->lda : 1,
        .alpha = op->alpha,
        .ldc = op->ldc,
    };

    for (int64_t k0 = 0; k0 < op->k; k0 += PANEL_K) {
        p.k = op->k - k0 < PANEL_K ? op->k - k0 : PANEL_K;
        p.a = op->a + r.from * p.row + k0 * p.step;
        p.beta = k0 == 0 ? op->beta : 1;
        for (int64_t n0 = 0; n0 < op->n; n0 += PANEL_N) {
            p.n = op->n - n0 < PANEL_N ? op->n - n0 : PANEL_N;
            pack(&p, op, k0, n0);
            multiply_panel(&p, op->c + r.from * op->ldc + n0, r.to - r.from);
        }
    }
}

#ifdef LOCO_HAVE_ONEDNN
/* Measured on Zen 5 with AVX-512, GFLOP/s of one core, ours / oneDNN 2.6:
 * (1024, 384, 128) NT 247/232, (64, 32, 64) NN 236/205, (64, 256, 32) NT
 * 163/212, (1024, 1024, 1024) NT 206/220. We win while op(b) stays in the
 * second cache, unless a transposed b is copied for few rows. */
#define OWN_B_FLOATS 98304
#define OWN_ROWS     256

static bool own_is_faster(const struct matmul *op)
{
    return op->n * op->k <= OWN_B_FLOATS && (!op->tb || op->m >= OWN_ROWS);
}

void CPU_KERNEL(matmul)(const struct matmul *op, struct kernel_range r)
{
    if (own_is_faster(op)) {
        own_matmul(op, r);
    } else {
        onednn_matmul(op, r);
    }
}
#else
void CPU_KERNEL(matmul)(const struct matmul *op, struct kernel_range r)
{
    own_matmul(op, r);
}
#endif
