/* probation.c - see probation.h. */
#include "p2p/round/probation.h"

#include <stddef.h>

static struct probation_row *find(const struct probation *p, uint64_t id)
{
    for (uint32_t i = 0; i < PROBATION_KEYS_MAX; i++) {
        if (p->row[i].id == id) {
            return (struct probation_row *)&p->row[i];
        }
    }
    return NULL;
}

/* Whether row x is to go before row y. */
static bool goes_first(const struct probation_row *x,
                       const struct probation_row *y)
{
    if ((x->id == 0) != (y->id == 0)) {
        return x->id == 0;
    }
    return x->full != y->full ? !x->full : x->last_round < y->last_round;
}

static struct probation_row *row_of(struct probation *p, uint64_t id)
{
    struct probation_row *row = find(p, id);

    if (row != NULL) {
        return row;
    }
    row = &p->row[0];
    for (uint32_t i = 1; i < PROBATION_KEYS_MAX; i++) {
        row = goes_first(&p->row[i], row) ? &p->row[i] : row;
    }
    *row = (struct probation_row){.id = id};
    return row;
}

void probation_worked(struct probation *p,
                      const struct peer_id *id,
                      uint64_t round)
{
    struct probation_row *row = row_of(p, id_u64(id));

    if (row->n_rounds == 0 || round > row->last_round) {
        row->last_round = round;
        row->n_rounds++;
    }
}

void probation_full(struct probation *p,
                    const struct peer_id *id,
                    uint64_t round)
{
    struct probation_row *row = row_of(p, id_u64(id));

    row->full = true;
    row->last_round = round > row->last_round ? round : row->last_round;
}

uint32_t probation_rounds(const struct probation *p, const struct peer_id *id)
{
    const struct probation_row *row = find(p, id_u64(id));

    return row == NULL ? 0 : row->n_rounds;
}

bool probation_was_full(const struct probation *p, const struct peer_id *id)
{
    const struct probation_row *row = find(p, id_u64(id));

    return row != NULL && row->full;
}

bool probation_vouches(const struct probation *p,
                       const struct peer_id *id,
                       uint32_t least)
{
    return probation_was_full(p, id) || probation_rounds(p, id) >= least;
}

bool probation_is_due(const struct probation *p,
                      const struct peer_id *id,
                      uint32_t least)
{
    const struct probation_row *row = find(p, id_u64(id));

    if (row == NULL || (!row->full && row->n_rounds <= least)) {
        return false;
    }
    return row->tried == 0 || row->n_rounds >= 2 * row->tried;
}

void probation_tried(struct probation *p, const struct peer_id *id)
{
    struct probation_row *row = find(p, id_u64(id));

    if (row != NULL) {
        row->tried = row->n_rounds > 0 ? row->n_rounds : 1;
    }
}
