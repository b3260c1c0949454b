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

#include "train/sync/finite.h"

static unsigned apply_part(const struct delayed_part *p,
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

struct delayed_part
delayed_next(const struct delayed *rule, struct delayed_state *s, uint32_t *q)
{
    uint32_t left = s->size - s->count;
    uint32_t k = *q < left ? *q : left;
    bool flush = k == left;
    double c = (double)rule->c, size = (double)s->size;
    struct delayed_part p = {
        .k = (float)k,
        .size = (float)s->size,
        .lr = rule->lr,
        .mu = rule->mu,
        .early = (float)((double)(flush ? k - 1 : k) * c * (double)rule->mu),
        .late = (float)((1.0 - c * size + c) * (double)rule->mu),
        .flush = flush,
    };

    assert(*q > 0 && s->size > 0 && s->count < s->size);
    *q -= k;
    s->count = flush ? 0 : s->count + k;
    s->size = flush ? s->next : s->size;
    return p;
}

void delayed_count(struct delayed_state *s, uint32_t q)
{
    const struct delayed none = {0};

    while (q > 0) {
        (void)delayed_next(&none, s, &q);
    }
}

int delayed_apply(const struct delayed *rule,
                  struct delayed_state *out,
                  const struct delayed_state *in,
                  const float *g,
                  uint32_t q,
                  size_t n)
{
    const struct delayed_state *from = in;
    struct delayed_state counts = *in;
    unsigned bad = 0;

    assert(q > 0);
    while (q > 0) {
        struct delayed_part p = delayed_next(rule, &counts, &q);

        bad |= apply_part(&p, out, from, g, n);
        from = out;
    }
    out->size = counts.size;
    out->count = counts.count;
    out->next = counts.next;
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
