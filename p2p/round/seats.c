/* seats.c - see seats.h. */
#include "p2p/round/seats.h"

#include "p2p/prefix.h"
#include "p2p/round/view.h"

bool seats_same_group(const struct msg_address *a, const struct msg_address *b)
{
    return !prefix_is_private(a->ip) && prefix_eq(a->ip, b->ip);
}

bool seats_may_move(const struct msg_address *from,
                    const struct msg_address *to)
{
    bool bound = !prefix_is_private(from->ip) && !prefix_is_nowhere(from->ip);

    return !bound || seats_same_group(from, to);
}

/* Members of the group of that address; of them those on probation. */
static uint32_t group_of(const struct view_body *v,
                         const struct msg_address *at,
                         uint32_t *n_probation)
{
    uint32_t n = 0;

    *n_probation = 0;
    for (uint32_t i = 0; i < v->n_members; i++) {
        if (seats_same_group(at, &v->members[i].address)) {
            n++;
            *n_probation += !view_is_full(v, i);
        }
    }
    return n;
}

bool seats_may_count(const struct view_body *v, const struct msg_address *at)
{
    uint32_t on_probation, n = group_of(v, at, &on_probation);
    uint32_t all = view_n_full(v);

    n -= on_probation;
    return 2 * (n + 1) <= all + 1 || 2 * n > all;
}

/* Who of those on probation goes for a group that has `own` of them. */
static int who_goes(const struct view_body *v, uint32_t own, bool full)
{
    uint32_t most = full ? 0 : own + 1, crowd;
    int at = -1;

    for (uint32_t i = 0; i < v->n_members; i++) {
        const struct view_member *m = &v->members[i];

        if (view_is_full(v, i)) {
            continue;
        }
        (void)group_of(v, &m->address, &crowd);
        crowd = crowd == 0 ? 1 : crowd; /* of a private address */
        if (crowd > most ||
            (at >= 0 && crowd == most && m->joined >= v->members[at].joined)) {
            most = crowd;
            at = (int)i;
        }
    }
    return at;
}

int seats_find(const struct view_body *v,
               const struct msg_address *at,
               bool full)
{
    uint32_t own, n_probation = 0;

    if (group_of(v, at, &own) >= VIEW_PROBATION_MAX) {
        return -1;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        n_probation += !view_is_full(v, i);
    }
    if (v->n_members < VIEW_MEMBERS_MAX &&
        (full || n_probation < VIEW_PROBATION_MAX)) {
        return (int)v->n_members;
    }
    return who_goes(v, own, full);
}
