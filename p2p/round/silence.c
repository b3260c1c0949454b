/* silence.c - see silence.h. */
#include "p2p/round/silence.h"

static struct silence_row *find(struct silence *s, const struct peer_id *id)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (id_eq(&s->row[k].id, id)) {
            return &s->row[k];
        }
    }
    return NULL;
}

static struct silence_row *make(struct silence *s, const struct peer_id *id)
{
    struct silence_row *row = &s->row[0];

    if (s->n < SILENCE_MAX) {
        row = &s->row[s->n++];
    } else {
        for (uint32_t k = 1; k < SILENCE_MAX; k++) {
            row = s->row[k].last < row->last ? &s->row[k] : row;
        }
    }
    *row = (struct silence_row){.id = *id};
    return row;
}

/* Whether that round is in its rest: rounds of a branch that is left, or of
 * before a rollback, may be far above those that come now. */
static bool rests(const struct silence_row *row, uint64_t round)
{
    return round <= row->last && row->last - round <= 1ULL << row->n_seen;
}

void silence_add(struct silence *s, const struct peer_id *id, uint64_t round)
{
    struct silence_row *row = find(s, id);
    uint64_t calm;

    if (row != NULL && rests(row, round)) {
        return;
    }
    row = row != NULL ? row : make(s, id);
    calm = round > row->last ? (round - row->last) >> SILENCE_REST_LOG2 : 0;
    row->n_seen -= calm < row->n_seen ? (uint32_t)calm : row->n_seen;
    row->n_seen += row->n_seen < SILENCE_REST_LOG2;
    row->last = round + (1ULL << row->n_seen);
    s->n_seen++;
}

uint64_t silence_mask(const struct silence *s,
                      const struct peer_id *ids,
                      uint32_t n,
                      uint64_t round)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < s->n; k++) {
        for (uint32_t i = 0; i < n && rests(&s->row[k], round); i++) {
            mask |= id_eq(&ids[i], &s->row[k].id) ? 1ULL << i : 0;
        }
    }
    return mask;
}
