/* slices.c - see slices.h. */
#include "train/sync/slices.h"

#include <assert.h>

struct slices slices_cut(uint64_t n, uint32_t block)
{
    uint64_t blocks = (n + block - 1) / block;
    uint64_t per = (blocks + SLICES_MAX - 1) / SLICES_MAX;

    assert(n > 0 && block > 0);
    return (struct slices){.n = n,
                           .each = per * block,
                           .count = (uint32_t)((blocks + per - 1) / per)};
}

uint64_t slices_offset(const struct slices *s, uint32_t i)
{
    return i * s->each;
}

uint64_t slices_len(const struct slices *s, uint32_t i)
{
    uint64_t left = s->n - slices_offset(s, i);

    return left < s->each ? left : s->each;
}

static int naive(const struct rule *rule,
                 struct delayed_state *s,
                 const float *g,
                 uint32_t q,
                 uint64_t n)
{
    struct outer_state at = {s->phi, s->m};
    int rv = 0;

    for (uint32_t i = 0; i < q && rv == 0; i++) {
        rv = rule_apply(rule, &at, &at, g, n);
        if (++s->count == s->size) {
            s->count = 0;
            s->size = s->next;
        }
    }
    return rv;
}

int slices_arrive(const struct method *m,
                  struct delayed_state *s,
                  const float *g,
                  uint32_t q,
                  uint64_t n)
{
    const struct delayed rule = {m->rule.lr, m->rule.mu, m->delayed_c};

    assert(m->group == METHOD_QUORUM || m->group == METHOD_OWNERS);
    return m->delayed ? delayed_apply(&rule, s, s, g, q, n)
                      : naive(&m->rule, s, g, q, n);
}

enum codec_id slices_reading(enum codec_id wire)
{
    return codec_types[wire].holds < CODEC_STATES ? CODEC_FP16 : wire;
}
