/* state.c - see replica/state.h. */
#include "train/replica/state.h"

#include <string.h>

#include "proto/base/err.h"

bool replica_makes_beside(const struct replica_options *opt,
                          uint64_t n,
                          uint64_t n_wire)
{
    const struct method *m = &opt->method;

    return opt->device == NULL && !m->gradients && n_wire == n &&
           m->period_u == 0 && m->period_v == 0 &&
           (m->group == METHOD_ALL || m->group == METHOD_PAIR);
}

/* ---- rooms -------------------------------------------------------------- */

bool replica_take_room(struct replica *r, int *rv)
{
    const struct method *m = &r->opt.method;
    float *at;

    *rv = 0;
    if (r->opt.device != NULL || m->gradients) {
        return false;
    }
    r->room = state_room_take(replica_state_elements(m, r->n));
    if (r->room == NULL) {
        *rv = LOCO_ENOMEM;
        return true;
    }
    at = r->phi = r->engine.phi = r->room->x;
    at += (m->trainers > 0 ? m->trainers : 1) * r->n;
    if (replica_shares_m(m)) {
        r->m = r->engine.m = at;
        at += r->n;
    }
    if (replica_shares_u(m)) {
        r->state_u = at;
        at += r->n;
    }
    if (replica_shares_v(m)) {
        r->state_v = at;
        at += r->n;
    }
    if (replica_shares_sum(m)) {
        r->engine.sum = at;
    }
    return true;
}

void replica_free_rooms(struct replica *r)
{
    state_room_drop(r->room);
    state_room_drop(r->next);
    r->room = r->next = NULL;
}

void replica_offer_room(struct replica *r, struct state_room *m)
{
    bool fits = r->room != NULL && r->next == NULL && m != NULL &&
                m->n == r->room->n && !state_room_is_shared(m);

    if (fits) {
        r->next = m;
    } else {
        state_room_drop(m);
    }
}

/* One that nobody else holds. */
static struct state_room *next_room(struct replica *r)
{
    if (r->next == NULL) {
        r->next = state_room_take(r->room->n);
    }
    return r->next;
}

/* The state is in `next`. The room before is the next one, if nobody has it. */
static void enter_next(struct replica *r)
{
    struct state_room *was = r->room;

    r->room = r->next;
    r->next = NULL;
    replica_offer_room(r, was);
}

struct state_room *replica_hold_state(struct replica *r)
{
    struct replica_vector state[REPLICA_STATE_MAX];
    size_t n = r->room == NULL ? 0 : replica_state(r, state);
    float *at = n == 0 ? NULL : r->room->x;

    if (n == 0) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) { /* numbers lie elsewhere */
        if (state[i].x != at && !state_room_is_shared(r->room)) {
            memcpy(at, state[i].x, state[i].n * sizeof *at);
        }
        at += state[i].n;
    }
    return state_room_hold(r->room);
}

/* ---- changing it -------------------------------------------------------- */

static void
move(float **x, const struct state_room *from, const struct state_room *to)
{
    if (*x != NULL && *x >= from->x && *x < from->x + from->n) {
        *x = to->x + (*x - from->x);
    }
}

static void move_all(struct replica *r)
{
    struct engine *e = &r->engine;
    float **const all[] = {
        &r->phi, &r->m,   &r->state_u,     &r->state_v,   &e->phi,
        &e->m,   &e->sum, &e->delayed.phi, &e->delayed.m, &e->delayed.sum};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        move(all[i], r->room, r->next);
    }
}

int replica_own_state(struct replica *r, bool keep)
{
    if (r->room == NULL || !state_room_is_shared(r->room)) {
        return 0;
    }
    if (next_room(r) == NULL) {
        return LOCO_ENOMEM;
    }
    if (keep) {
        memcpy(r->next->x, r->room->x, r->room->n * sizeof(float));
    }
    move_all(r);
    enter_next(r);
    return 0;
}

int replica_begin_next(struct replica *r)
{
    struct engine *e = &r->engine;

    if (next_room(r) == NULL) {
        return LOCO_ENOMEM;
    }
    e->next_phi = r->next->x;
    e->next_m = e->m == NULL ? NULL : r->next->x + r->n;
    return 0;
}

void replica_end_next(struct replica *r, bool made)
{
    struct engine *e = &r->engine;

    if (made) {
        r->phi = e->phi = r->next->x;
        r->m = e->m = e->m == NULL ? NULL : r->next->x + r->n;
        enter_next(r);
    }
    e->next_phi = e->next_m = NULL;
}
