/* onednn_matmul.c - matmul by one dnnl_sgemm call.
 *
 * oneDNN is built on OpenMP, whose thread count is a setting of the calling
 * thread that OMP_NUM_THREADS may have raised. We split products over our own
 * pool, so every call pins it to 1 first; that costs a store.
 */
#include "kernels/cpu/kernels.h"

#include <dnnl.h>

/* libgomp's; no header, because clang's omp.h belongs to another runtime. */
void omp_set_num_threads(int n);

void onednn_matmul(const struct matmul *op, struct kernel_range r)
{
    const float *a = op->a + r.from * (op->ta ? 1 : op->lda);
    float *c = op->c + r.from * op->ldc;
    dnnl_status_t status;

    omp_set_num_threads(1);
    status = dnnl_sgemm(op->ta ? 'T' : 'N', op->tb ? 'T' : 'N', r.to - r.from,
                        op->n, op->k, op->alpha, a, op->lda, op->b, op->ldb,
                        op->beta, c, op->ldc);
    if (status != dnnl_success) { /* no memory for its packing buffer */
        ref_matmul(op, r);
    }
}
