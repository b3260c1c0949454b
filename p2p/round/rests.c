/* rests.c - see rests.h. */
#include "p2p/round/rests.h"

static struct rests_row *find(struct rests *s, const struct peer_id *id)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (id_eq(&s->row[k].id, id)) {
            return &s->row[k];
        }
    }
    return NULL;
}

static struct rests_row *make(struct rests *s, const struct peer_id *id)
{
    struct rests_row *row = &s->row[0];

    if (s->n < RESTS_MAX) {
        row = &s->row[s->n++];
    } else {
        for (uint32_t k = 1; k < RESTS_MAX; k++) {
            row = s->row[k].last < row->last ? &s->row[k] : row;
        }
    }
    *row = (struct rests_row){.id = *id};
    return row;
}

/* Whether that round is in its rest: rounds of a branch that is left, or of
 * before a rollback, may be far above those that come now. */
static bool
is_resting(const struct rests *s, const struct rests_row *row, uint64_t round)
{
    return round <= row->last &&
           row->last - round <= 1ULL << (row->n_seen + s->more_log2);
}

void rests_add(struct rests *s, const struct peer_id *id, uint64_t round)
{
    uint32_t most = s->most_log2 > 0 ? s->most_log2 : REST_LOG2;
    struct rests_row *row = find(s, id);
    uint64_t calm;

    if (row != NULL && is_resting(s, row, round)) {
        return;
    }
    row = row != NULL ? row : make(s, id);
    calm = round > row->last ? (round - row->last) >> (s->more_log2 + most) : 0;
    row->n_seen -= calm < row->n_seen ? (uint32_t)calm : row->n_seen;
    row->n_seen += row->n_seen < most;
    row->last = round + (1ULL << (row->n_seen + s->more_log2));
    s->n_seen++;
}

uint64_t rests_mask(const struct rests *s,
                    const struct peer_id *ids,
                    uint32_t n,
                    uint64_t round)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < s->n; k++) {
        for (uint32_t i = 0; i < n && is_resting(s, &s->row[k], round); i++) {
            mask |= id_eq(&ids[i], &s->row[k].id) ? 1ULL << i : 0;
        }
    }
    return mask;
}
