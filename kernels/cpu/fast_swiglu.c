/* fast_swiglu.c - swiglu.c with the vector exp of simd.h. */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

VF_INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

VF_INLINE vf forward(vf g, vf u)
{
    return g * sigmoid(g) * u;
}

/* dg returned, du in *du */
VF_INLINE vf backward(vf g, vf u, vf dh, vf *du)
{
    vf sig = sigmoid(g);
    vf silu = g * sig;

    *du = dh * silu;
    return dh * u * (sig + silu * (1.0f - sig));
}

void CPU_KERNEL(swiglu_fwd)(const struct swiglu *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *g = op->gu + n * 2 * op->f;
        const float *u = g + op->f;
        float *h = op->h + n * op->f;
        int64_t f = 0;

        for (; f + VF_LANES <= op->f; f += VF_LANES) {
            vf_store(h + f, forward(vf_load(g + f), vf_load(u + f)));
        }
        if (f < op->f) {
            int64_t rest = op->f - f;

            vf_store_part(h + f, rest,
                          forward(vf_load_part(g + f, rest, 0),
                                  vf_load_part(u + f, rest, 0)));
        }
    }
}

void CPU_KERNEL(swiglu_bwd)(const struct swiglu *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *g = op->gu + n * 2 * op->f;
        const float *u = g + op->f;
        const float *dh = op->dh + n * op->f;
        float *dg = op->dgu + n * 2 * op->f;
        float *du = dg + op->f;
        int64_t f = 0;
        vf b;

        for (; f + VF_LANES <= op->f; f += VF_LANES) {
            vf_store(dg + f, backward(vf_load(g + f), vf_load(u + f),
                                      vf_load(dh + f), &b));
            vf_store(du + f, b);
        }
        if (f < op->f) {
            int64_t rest = op->f - f;

            vf_store_part(dg + f, rest,
                          backward(vf_load_part(g + f, rest, 0),
                                   vf_load_part(u + f, rest, 0),
                                   vf_load_part(dh + f, rest, 0), &b));
            vf_store_part(du + f, rest, b);
        }
    }
}
