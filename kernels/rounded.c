/* rounded.c - see rounded.h. */
#include "kernels/rounded.h"

#include <string.h>

/* Sides of the blocks: two of them have 5 MiB. */
#define BLOCK_M 256
#define BLOCK_N 256
#define BLOCK_K 2560

size_t rounded_bytes(void)
{
    return (size_t)(BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(float);
}

static float rounded(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) {
        return x; /* adding to it could make a number of it */
    }
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* out (rows, columns) = x rounded; ld: stored row length of x. */
static void round_block(
    float *out, const float *x, int64_t rows, int64_t columns, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) {
            out[i * columns + k] = rounded(x[i * ld + k]);
        }
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Part [m0, m) x [n0, n) of c, the sum over [k0, k). */
struct part {
    int64_t m0, n0, k0, m, n, k;
};

static struct matmul
part_of(const struct matmul *op, const struct part *p, float *memory)
{
    struct matmul r = *op;
    int64_t m = p->m - p->m0, n = p->n - p->n0, k = p->k - p->k0;
    float *a = memory, *b = memory + BLOCK_M * BLOCK_K;

    r.m = m;
    r.n = n;
    r.k = k;
    r.lda = op->ta ? m : k;
    r.ldb = op->tb ? k : n;
    round_block(a,
                op->ta ? op->a + p->k0 * op->lda + p->m0
                       : op->a + p->m0 * op->lda + p->k0,
                op->ta ? k : m, r.lda, op->lda);
    round_block(b,
                op->tb ? op->b + p->n0 * op->ldb + p->k0
                       : op->b + p->k0 * op->ldb + p->n0,
                op->tb ? n : k, r.ldb, op->ldb);
    r.a = a;
    r.b = b;
    r.c = op->c + p->m0 * op->ldc + p->n0;
    r.beta = p->k0 == 0 ? op->beta : 1;
    r.upper = false; /* a part has another diagonal */
    return r;
}

void rounded_matmul(const struct backend *b,
                    const struct matmul *op,
                    void (*product)(const struct backend *b,
                                    const struct matmul *op))
{
    struct part p;

    for (p.m0 = 0; p.m0 < op->m; p.m0 = p.m) {
        p.m = least(op->m, p.m0 + BLOCK_M);
        for (p.n0 = 0; p.n0 < op->n; p.n0 = p.n) {
            p.n = least(op->n, p.n0 + BLOCK_N);
            for (p.k0 = 0; p.k0 < op->k; p.k0 = p.k) {
                struct matmul r;

                p.k = least(op->k, p.k0 + BLOCK_K);
                r = part_of(op, &p, b->rounded);
                product(b, &r);
            }
        }
    }
}
