/* rule.c - see rule.h. */
#include "train/sync/rule.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "train/sync/finite.h"

/* Elements at a time: read, moved and then written, so that the compiler may
 * use vector registers whichever of the vectors are one. */
#define LANES 16

/* Both rules with momentum. The branches are hoisted: callers give `form` as a
 * constant, NULL or not for mean_phi, towards which it pulls, and n. */
static inline __attribute__((always_inline)) unsigned
move_lanes(const struct rule *rule,
           enum rule_form form,
           const struct outer_state *out,
           const struct outer_state *in,
           const float *g,
           const float *mean_phi,
           size_t n)
{
    const float lr = rule->lr, mu = rule->mu, gamma = rule->gamma;
    float phi[LANES], m[LANES];
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        float a = mu * in->m[i];
        float b = form == RULE_NESTEROV ? g[i] : lr * g[i];
        float d = a + b;

        m[i] = d;
        if (form == RULE_NESTEROV) {
            float ahead = mu * d;
            float c = g[i] + ahead;
            d = lr * c;
        }
        if (mean_phi != NULL) {
            float e = in->phi[i] - mean_phi[i];
            float f = gamma * e;
            d = d + f;
        }
        m[i] = form == RULE_NESTEROV ? m[i] : d;
        phi[i] = in->phi[i] - d;
        bad |= (unsigned)not_finite(m[i]) | (unsigned)not_finite(phi[i]);
    }
    memcpy(out->m, m, n * sizeof *m);
    memcpy(out->phi, phi, n * sizeof *phi);
    return bad;
}

static inline __attribute__((always_inline)) unsigned
with_momentum(const struct rule *rule,
              enum rule_form form,
              const struct outer_state *out,
              const struct outer_state *in,
              const float *g,
              const float *mean_phi,
              size_t n)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i += LANES) {
        struct outer_state to = {out->phi + i, out->m + i};
        struct outer_state from = {in->phi + i, in->m + i};
        const float *pull = mean_phi == NULL ? NULL : mean_phi + i;

        bad |= n - i >= LANES
                   ? move_lanes(rule, form, &to, &from, g + i, pull, LANES)
                   : move_lanes(rule, form, &to, &from, g + i, pull, n - i);
    }
    return bad;
}

static unsigned plain(const struct rule *rule,
                      const struct outer_state *out,
                      const struct outer_state *in,
                      const float *g,
                      size_t n)
{
    const float lr = rule->lr;
    unsigned bad = 0;

    if (out->m != NULL) {
        memmove(out->m, g, n * sizeof *g);
    }
    for (size_t i = 0; i < n; i++) {
        float d = lr * g[i];
        float phi = in->phi[i] - d;

        out->phi[i] = phi;
        bad |= (unsigned)not_finite(phi);
    }
    return bad;
}

int rule_apply_pulled(const struct rule *rule,
                      const struct outer_state *out,
                      const struct outer_state *in,
                      const float *g,
                      const float *mean_phi,
                      size_t n)
{
    bool pulled = mean_phi != NULL && rule->gamma != 0.0F;
    unsigned bad;

    if (rule->form == RULE_NESTEROV && rule->mu == 0.0F && !pulled) {
        return finite_or_error(plain(rule, out, in, g, n));
    }
    assert(in->m != NULL && out->m != NULL);
    if (rule->form == RULE_NESTEROV) {
        bad = pulled
                  ? with_momentum(rule, RULE_NESTEROV, out, in, g, mean_phi, n)
                  : with_momentum(rule, RULE_NESTEROV, out, in, g, NULL, n);
    } else {
        bad =
            pulled
                ? with_momentum(rule, RULE_HEAVY_BALL, out, in, g, mean_phi, n)
                : with_momentum(rule, RULE_HEAVY_BALL, out, in, g, NULL, n);
    }
    return finite_or_error(bad);
}

int rule_apply(const struct rule *rule,
               const struct outer_state *out,
               const struct outer_state *in,
               const float *g,
               size_t n)
{
    return rule_apply_pulled(rule, out, in, g, NULL, n);
}

int rule_displacement(float *g, const float *phi, const float *theta, size_t n)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        float d = phi[i] - theta[i];

        g[i] = d;
        bad |= (unsigned)not_finite(d);
    }
    return finite_or_error(bad);
}
