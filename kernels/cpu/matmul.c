/* matmul.c - c = alpha op(a) op(b) + beta c.
 *
 *   op(a) (m, k)  op(b) (k, n)  c (m, n)
 *
 * Blocked so that tests can bear the reference: a block of op(b) is copied
 * to the stack in row order, which makes the inner loop one a[i, k] times one
 * row for all four kinds of product. Sums run over k in order.
 */
#include "kernels/cpu/kernels.h"

#define BLOCK_K 64
#define BLOCK_N 64

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void scale(const struct matmul *op, const struct matmul_part *p)
{
    for (int64_t i = p->i; i < p->i_end; i++) {
        for (int64_t j = p->j; j < p->j_end; j++) {
            float *c = &op->c[i * op->ldc + j];

            *c = op->beta == 0 ? 0 : *c * op->beta;
        }
    }
}

/* pack[k, n] = op(b)[k0 + k, n0 + n], zero beyond the edge */
static void pack_b(const struct matmul *op,
                   int64_t k0,
                   int64_t n0,
                   int64_t n_end,
                   float pack[BLOCK_K][BLOCK_N])
{
    for (int64_t k = 0; k < BLOCK_K; k++) {
        for (int64_t n = 0; n < BLOCK_N; n++) {
            int64_t row = op->tb ? n0 + n : k0 + k;
            int64_t col = op->tb ? k0 + k : n0 + n;
            bool inside = k0 + k < op->k && n0 + n < n_end;

            pack[k][n] = inside ? op->b[row * op->ldb + col] : 0;
        }
    }
}

/* c[i, n0 ..] += alpha * op(a)[i, k0 ..] pack */
static void row_times_block(const struct matmul *op,
                            int64_t i,
                            int64_t k0,
                            int64_t n0,
                            int64_t n_end,
                            float pack[BLOCK_K][BLOCK_N])
{
    int64_t k_end = least(BLOCK_K, op->k - k0);
    int64_t columns = least(BLOCK_N, n_end - n0);
    float acc[BLOCK_N] = {0};

    for (int64_t k = 0; k < k_end; k++) {
        int64_t at = op->ta ? (k0 + k) * op->lda + i : i * op->lda + k0 + k;
        float a = op->a[at];

        for (int64_t n = 0; n < BLOCK_N; n++) {
            acc[n] += a * pack[k][n];
        }
    }
    for (int64_t n = 0; n < columns; n++) {
        op->c[i * op->ldc + n0 + n] += op->alpha * acc[n];
    }
}

void ref_matmul(const struct matmul *op, struct kernel_range r)
{
    struct matmul_part p = matmul_part(op, r);
    float pack[BLOCK_K][BLOCK_N];

    scale(op, &p);
    for (int64_t n0 = p.j; n0 < p.j_end; n0 += BLOCK_N) {
        for (int64_t k0 = 0; k0 < op->k; k0 += BLOCK_K) {
            pack_b(op, k0, n0, p.j_end, pack);
            for (int64_t i = p.i; i < p.i_end; i++) {
                row_times_block(op, i, k0, n0, p.j_end, pack);
            }
        }
    }
}
