/* shard_pick.c - see shard_pick.h. */
#include "train/sync/shard_pick.h"

struct totals {
    double tokens, consumed, behind;
};

static double behind(const struct shard_use *s, const struct totals *t)
{
    double share = (double)s->tokens / t->tokens;
    double used = t->consumed > 0.0 ? (double)s->consumed / t->consumed : share;
    double d = share - used;

    return d > 0.0 ? d : 0.0;
}

static struct totals sum_up(const struct shard_use *shards, size_t n)
{
    struct totals t = {0.0, 0.0, 0.0};

    for (size_t i = 0; i < n; i++) {
        t.tokens += (double)shards[i].tokens;
        t.consumed += (double)shards[i].consumed;
    }
    for (size_t i = 0; i < n && t.tokens > 0.0; i++) {
        t.behind += behind(&shards[i], &t);
    }
    return t;
}

static double probability(const struct shard_use *s, const struct totals *t)
{
    if (t->tokens <= 0.0) {
        return 0.0;
    }
    /* Balance up to rounding counts as balance. */
    return t->behind > 1e-12 ? behind(s, t) / t->behind
                             : (double)s->tokens / t->tokens;
}

void shard_pick_probabilities(const struct shard_use *shards,
                              size_t n,
                              double *p)
{
    struct totals t = sum_up(shards, n);

    for (size_t i = 0; i < n; i++) {
        p[i] = probability(&shards[i], &t);
    }
}

size_t shard_pick(const struct shard_use *shards, size_t n, uint64_t word)
{
    struct totals t = sum_up(shards, n);
    double at = (double)(word >> 11) * 0x1p-53;
    double sum = 0.0;
    size_t last = n;

    for (size_t i = 0; i < n; i++) {
        double p = probability(&shards[i], &t);

        if (p <= 0.0) {
            continue;
        }
        last = i;
        sum += p;
        if (at < sum) {
            return i;
        }
    }
    return last; /* rounding left the sum below 1 */
}
