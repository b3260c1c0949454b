/* ballot_own.c - a proposal of our own: the new value with all that it is made
 * of, so that everybody can make it again (ballot_check.c).
 *
 * Everybody who answered is in it. Of the joiners only those are shown who hold
 * the value's commit, which the promises decide, and who fit: the value is made
 * twice, without them and with them.
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

/* Founding: the index of a promise is that of its maker in the value. */
static void name_by_value(struct proposal *p,
                          const struct view_member *electors)
{
    struct promised sorted[VIEW_MEMBERS_MAX];
    uint32_t n = 0;

    for (uint32_t at = 0; at < p->value.n_members; at++) {
        for (uint32_t i = 0; i < p->n_promises; i++) {
            const struct view_member *m = &electors[p->promises[i].member];

            if (view_index_key(&p->value, m->public_key) == (int)at) {
                sorted[n] = p->promises[i];
                sorted[n++].member = (uint8_t)at;
            }
        }
    }
    p->n_promises = n;
    memcpy(p->promises, sorted, n * sizeof *sorted);
}

/* Who holds the commit of the value and wants in. False: nobody. */
static bool gather_joins(const struct ballot *b, struct proposal *p)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        const struct ballot_joiner *j = &b->joiners[k];

        if (ballot_joiner_here(b, j) &&
            ballot_joiner_holds(j, p->value.round, &p->value.commit) &&
            ballot_join_is_known(b, &j->join.body) &&
            !ballot_is_ousted(b, j->public_key, p->value.round)) {
            struct joining *to = &p->joins[p->n_joins++];

            memcpy(to->public_key, j->public_key, 32);
            to->join = j->join;
        }
    }
    return p->n_joins > 0;
}

/* How those said goodbye who do not count. */
static void show_departed(const struct ballot *b, struct proposal *p)
{
    for (uint64_t left = b->departed.mask; left != 0; left &= left - 1) {
        p->partings[p->n_partings++] = b->departed.said[__builtin_ctzll(left)];
    }
}

/* Who did not fit is not shown. */
static void drop_unused(struct proposal *p)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < p->n_joins; i++) {
        int at = view_index_key(&p->value, p->joins[i].public_key);

        if (at >= 0 && p->value.members[at].joined == p->value.epoch) {
            p->joins[kept++] = p->joins[i];
        }
    }
    p->n_joins = kept;
}

bool ballot_make_own(struct ballot *b)
{
    struct proposal *p = &b->proposal;
    struct ballot_making m = ballot_making_after(b, b->mode);
    struct view_member electors[VIEW_MEMBERS_MAX] = {0};

    memset(p, 0, sizeof *p);
    p->ballot = b->current;
    for (uint32_t i = 0; i < b->n_electors; i++) {
        memcpy(electors[i].public_key, b->elector_keys[i], 32);
        if (b->answered >> i & 1) {
            b->promises[i].member = (uint8_t)i;
            p->promises[p->n_promises++] = b->promises[i];
        }
    }
    if (b->mode == VIEW_FOUND) {
        m.epoch = b->founding.epoch;
        m.prev = b->opt.run;
        m.old = b->restored ? &b->cert.body : NULL;
        m.members = electors;
        m.n_members = b->n_electors;
    } else {
        m.departed = b->departed.mask;
        show_departed(b, p);
    }
    m.promises = p->promises;
    m.n_promises = p->n_promises;
    if (!ballot_make_value(&m, &p->value)) {
        return false;
    }
    if (b->mode == VIEW_FOUND) {
        name_by_value(p, electors);
    } else if (b->mode == VIEW_MAJORITY && gather_joins(b, p)) {
        m.joins = p->joins;
        m.n_joins = p->n_joins;
        (void)ballot_make_value(&m, &p->value);
        drop_unused(p);
    }
    return true;
}
