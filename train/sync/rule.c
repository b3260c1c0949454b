/* rule.c - see rule.h. */
#include "train/sync/rule.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/err.h"

/* Bits without sign: their order is the order of magnitudes, and everything
 * that is not finite is at or above those of infinity. */
static inline uint32_t magnitude_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffU;
}

static int finite_or_error(uint32_t max_bits)
{
    return max_bits < 0x7f800000U ? 0 : LOCO_ENUMERIC;
}

static int apply_nesterov(const struct rule *rule,
                          const struct outer_state *out,
                          const struct outer_state *in,
                          const float *g,
                          size_t n)
{
    const float lr = rule->lr;
    const float mu = rule->mu;
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        float a = mu * in->m[i];
        float m = a + g[i];
        float b = mu * m;
        float c = g[i] + b;
        float d = lr * c;
        float phi = in->phi[i] - d;
        uint32_t m_bits = magnitude_bits(m);
        uint32_t phi_bits = magnitude_bits(phi);

        out->m[i] = m;
        out->phi[i] = phi;
        max = m_bits > max ? m_bits : max;
        max = phi_bits > max ? phi_bits : max;
    }
    return finite_or_error(max);
}

static int apply_plain(const struct rule *rule,
                       const struct outer_state *out,
                       const struct outer_state *in,
                       const float *g,
                       size_t n)
{
    const float lr = rule->lr;
    uint32_t max = 0;

    if (out->m != NULL) {
        memmove(out->m, g, n * sizeof *g);
    }
    for (size_t i = 0; i < n; i++) {
        float d = lr * g[i];
        float phi = in->phi[i] - d;
        uint32_t bits = magnitude_bits(phi);

        out->phi[i] = phi;
        max = bits > max ? bits : max;
    }
    return finite_or_error(max);
}

int rule_apply(const struct rule *rule,
               const struct outer_state *out,
               const struct outer_state *in,
               const float *g,
               size_t n)
{
    if (rule->mu == 0.0F) {
        return apply_plain(rule, out, in, g, n);
    }
    assert(in->m != NULL && out->m != NULL);
    return apply_nesterov(rule, out, in, g, n);
}

int rule_displacement(float *g, const float *phi, const float *theta, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        float d = phi[i] - theta[i];
        uint32_t bits = magnitude_bits(d);

        g[i] = d;
        max = bits > max ? bits : max;
    }
    return finite_or_error(max);
}
