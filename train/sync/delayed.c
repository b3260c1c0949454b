/* delayed.c - see delayed.h.
 *
 * A round of q arrivals is cut where a cycle ends. A part of k arrivals:
 *
 *     s = k * g                    (k as fp32; exact up to 2^24)
 *     D = D + s
 *     p = s / n
 *     early = (arrivals of the part before a flush) * c * mu, of the old m
 *     h = early * m
 *     flush:  t = D / n, a = mu * m, m = a + t, D = 0
 *             late = (1 - c * n + c) * mu
 *             i = late * m, h = h + i
 *     h = h + p
 *     d = lr * h
 *     phi = phi - d
 *
 * With c = 0 early is 0 and h of a plain arrival is 0 + p = p. The factors are
 * computed once, in double, and rounded to fp32.
 */
#include "train/sync/delayed.h"

#include <assert.h>
#include <stdbool.h>

#include "train/sync/finite.h"

struct part {
    float k, size, lr, mu, early, late;
    bool flush;
};

static unsigned apply_part(const struct part *p,
                           const struct delayed_state *out,
                           const struct delayed_state *in,
                           const float *g,
                           size_t n)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        float s = p->k * g[i];
        float sum = in->sum[i] + s;
        float step = s / p->size;
        float m = in->m[i];
        float h = p->early * m;

        if (p->flush) {
            float t = sum / p->size;
            float a = p->mu * m;
            float late;

            m = a + t;
            sum = 0.0F;
            late = p->late * m;
            h = h + late;
        }
        h = h + step;
        float d = p->lr * h;
        float phi = in->phi[i] - d;

        out->phi[i] = phi;
        out->m[i] = m;
        out->sum[i] = sum;
        bad |= (unsigned)not_finite(phi) | (unsigned)not_finite(m) |
               (unsigned)not_finite(sum);
    }
    return bad;
}

int delayed_apply(const struct delayed *rule,
                  struct delayed_state *out,
                  const struct delayed_state *in,
                  const float *g,
                  uint32_t q,
                  size_t n)
{
    const struct delayed_state *from = in;
    uint32_t size = in->size, count = in->count;
    const uint32_t next = in->next;
    unsigned bad = 0;

    assert(q > 0 && size > 0 && count < size);
    while (q > 0) {
        uint32_t left = size - count;
        uint32_t k = q < left ? q : left;
        bool flush = k == left;
        double c = (double)rule->c;
        struct part p = {
            .k = (float)k,
            .size = (float)size,
            .lr = rule->lr,
            .mu = rule->mu,
            .early =
                (float)((double)(flush ? k - 1 : k) * c * (double)rule->mu),
            .late = (float)((1.0 - c * (double)size + c) * (double)rule->mu),
            .flush = flush,
        };

        bad |= apply_part(&p, out, from, g, n);
        from = out;
        q -= k;
        count = flush ? 0 : count + k;
        size = flush ? next : size;
    }
    out->size = size;
    out->count = count;
    out->next = next;
    return finite_or_error(bad);
}

void delayed_resize(struct delayed_state *s, uint32_t size)
{
    assert(size > 0);
    s->next = size;
    if (s->count == 0) {
        s->size = size;
    }
}
