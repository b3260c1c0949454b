/* ballot_own.c - a proposal of our own: the new value with all that it is made
 * of, so that everybody can make it again (ballot_check.c).
 *
 * Everybody who answered is in it. Of the joiners only those are shown who hold
 * the value's commit, which the promises decide, and who fit: the value is made
 * twice, without them and with them. A joiner says itself with whom it is
 * linked, and who is said to be and is not does not sign. So PREPARE names the
 * joiners, each PROMISE says which of them are linked to its sender, and only
 * those are shown with whom enough would sign: a liar keeps out itself alone.
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

void ballot_name_joiners(struct ballot *b, struct prepare *p)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        j->linked = 0;
        if (ballot_joiner_here(b, j)) {
            j->linked = BIT(b->self_index);
            p->joiners[p->n_joiners++] = id_u64(&b->members->peers[j->peer].id);
        }
    }
}

void ballot_note_linked(struct ballot *b, uint32_t member, uint32_t linked)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        for (uint32_t i = 0; j->linked != 0 && i < b->asked.n_joiners; i++) {
            if ((linked >> i & 1) &&
                b->asked.joiners[i] == id_u64(&b->members->peers[j->peer].id)) {
                j->linked |= BIT(member);
            }
        }
    }
}

/* Of the members that answered, who would sign a view with that joiner: who is
 * linked to it, or need not be (is_there() in ballot_check.c). */
static uint64_t signers_of(const struct ballot *b,
                           const struct ballot_joiner *j)
{
    uint64_t mask = j->linked;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if (!ballot_join_links(&j->join.body, &b->ids[i])) {
            mask |= BIT(i);
        }
    }
    return mask & b->answered;
}

/* Whether it holds the commit of the value and was named in our PREPARE, and
 * enough members see it. Who says of itself that others do is out for a while,
 * not those who ask with it. */
static bool may_come(struct ballot *b,
                     const struct ballot_joiner *j,
                     const struct view_body *v)
{
    if (j->linked == 0 || !ballot_joiner_here(b, j) ||
        !ballot_joiner_holds(j, v->round, &v->commit) ||
        !ballot_join_is_known(b, &j->join.body) ||
        ballot_is_ousted(b, j->public_key, v->round)) {
        return false;
    }
    if (!view_quorum(&b->cert.body, signers_of(b, j), b->departed.mask)) {
        ballot_oust(b, j->public_key, v->round);
        return false;
    }
    return true;
}

/* Of those left, the one that most members see. NULL: nobody. */
static const struct ballot_joiner *best_seen(const struct ballot *b,
                                             uint32_t left)
{
    const struct ballot_joiner *best = NULL;
    int most = -1;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        const struct ballot_joiner *j = &b->joiners[k];
        int n = __builtin_popcountll(signers_of(b, j));

        if ((left >> k & 1) && n > most) {
            most = n;
            best = j;
        }
    }
    return best;
}

/* Who may come in and is seen by enough of those who see all others that come.
 * False: nobody. */
static bool gather_joins(struct ballot *b, struct proposal *p)
{
    uint64_t signers = b->answered;
    const struct ballot_joiner *j;
    uint32_t left = 0;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        left |= may_come(b, &b->joiners[k], &p->value) ? 1U << k : 0;
    }
    while ((j = best_seen(b, left)) != NULL) {
        uint64_t both = signers & signers_of(b, j);

        left &= ~(1U << (j - b->joiners));
        if (view_quorum(&b->cert.body, both, b->departed.mask)) {
            struct joining *to = &p->joins[p->n_joins++];

            signers = both;
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

/* Who did not fit is not shown. True: there was one. */
static bool drop_unused(struct proposal *p)
{
    uint32_t shown = p->n_joins, kept = 0;

    for (uint32_t i = 0; i < p->n_joins; i++) {
        int at = view_index_key(&p->value, p->joins[i].public_key);

        if (at >= 0 && p->value.members[at].joined == p->value.epoch) {
            p->joins[kept++] = p->joins[i];
        }
    }
    p->n_joins = kept;
    return kept < shown;
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
        do { /* one that did not fit may have taken a seat from another */
            m.n_joins = p->n_joins;
            (void)ballot_make_value(&m, &p->value);
        } while (drop_unused(p));
    }
    return true;
}
