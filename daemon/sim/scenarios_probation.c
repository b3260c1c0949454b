/* scenarios_probation.c - many identities of one network want into a run.
 *
 * Four founders; when they have made some rounds a *crowd* whose addresses are
 * one /24 comes, then one peer of another network, the *newcomer*. The crowd
 * works as everybody does, with odd seeds; with even ones it offers nothing
 * (its READYs have no tokens).
 *
 * P: a view has at most 16 members on probation, and no more than 16 of the
 * crowd, who are at most half of the full members; nobody who came later is
 * full before it offered work for probation_rounds rounds, who offers nothing
 * never; who is on probation is in no plan. The newcomer has a seat within 30
 * s, and is full in the end. E as ever.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define FOUNDERS 4
#define ROUNDS   3  /* of probation */
#define PATIENCE 12 /* rounds after which it is full */
#define LOOK_MS  100
#define SEAT_MS  30000 /* until the newcomer is in a view */

struct crowd {
    bool idle;
    uint64_t came_ms, seated_ms; /* the newcomer; 0: not yet */
    uint64_t
        since[VIEW_MEMBERS_MAX * 2]; /* round in which it came in; 0: not */
    struct ready ready;              /* while it is changed */
};

static bool is_crowd(const struct sim *s, uint32_t peer)
{
    return peer >= FOUNDERS && peer + 1 < s->n;
}

/* The crowd offers nothing. */
static uint32_t empty(void *self,
                      uint32_t from,
                      uint32_t to,
                      uint16_t message,
                      uint8_t *bytes,
                      uint32_t len,
                      uint32_t cap)
{
    struct sim *s = self;
    struct ready *m = s->crowd == NULL ? NULL : &s->crowd->ready;
    struct signer pen;
    int n = (int)len;

    (void)to;
    if (m != NULL && s->crowd->idle && is_crowd(s, from) &&
        message == MESSAGE_READY &&
        msg_decode(&ready_schema, bytes, len, m) == 0) {
        pen = signer_keyed(world_identity(s->world, from));
        m->body.tokens = 0;
        (void)message_sign(&pen, &ready_body_schema, &m->body, m->sig);
        n = msg_encode(&ready_schema, m, bytes, cap);
    }
    return n < 0 ? len : (uint32_t)n;
}

/* Peer p of the view of a founder, in which it is number i; the founder knows
 * of so many rounds. */
static void look_at(struct sim *s,
                    const struct view_body *v,
                    uint32_t p,
                    uint32_t i,
                    uint64_t round)
{
    uint64_t *since = &s->crowd->since[p % (2 * VIEW_MEMBERS_MAX)];

    if (p < FOUNDERS) {
        return;
    }
    *since = *since == 0 ? v->round + 1 : *since;
    if (p + 1 == s->n && s->crowd->seated_ms == 0) {
        s->crowd->seated_ms = world_now(s->world);
    }
    if (!view_is_full(v, i)) {
        if (p + 1 == s->n && round > *since + PATIENCE) {
            check_fail(s->check,
                       "P: the newcomer does not count in round %" PRIu64,
                       round);
        }
        return;
    }
    if (is_crowd(s, p) && s->crowd->idle) {
        check_fail(s->check, "P: peer %u counts and offered nothing", p);
    } else if (v->round + 2 < *since + ROUNDS) {
        check_fail(s->check, "P: peer %u counts after %" PRIu64 " rounds", p,
                   v->round + 1 - *since);
    }
}

static void look_at_view(struct sim *s, uint32_t q)
{
    const struct node *node = s->nodes[q];
    const struct ballot *b = node == NULL ? NULL : node_parts(node).ballot;
    uint32_t n_crowd = 0, n_counted = 0, n_full;

    if (b == NULL || !b->have) {
        return;
    }
    n_full = view_n_full(&b->cert.body);
    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        uint32_t p = world_find(s->world, &b->ids[i]);

        n_crowd += is_crowd(s, p);
        n_counted += is_crowd(s, p) && view_is_full(&b->cert.body, i);
        look_at(s, &b->cert.body, p, i, node_parts(node).held->known.round);
    }
    if (n_crowd > VIEW_PROBATION_MAX ||
        b->cert.body.n_members - n_full > VIEW_PROBATION_MAX ||
        2 * n_counted > n_full) {
        check_fail(s->check, "P: of %u, %u full, the crowd is %u, %u full",
                   b->cert.body.n_members, n_full, n_crowd, n_counted);
    }
}

/* Who is on probation is in no plan. */
static void look_at_plan(struct sim *s, uint32_t q)
{
    const struct node *node = s->nodes[q];
    const struct round *r = node == NULL ? NULL : node_parts(node).round;
    const struct view_body *v = r == NULL ? NULL : &r->ballot->cert.body;

    if (r == NULL || !r->ballot->have || !r->has_plan ||
        !hash32_eq(&r->plan.body.view, &r->ballot->hash)) {
        return;
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        if (!view_is_full(v, r->plan.body.members[k].index)) {
            check_fail(s->check, "P: who is on probation is in a plan");
        }
    }
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct crowd *c = s->crowd;

    (void)arg;
    for (uint32_t q = 0; q < FOUNDERS; q++) {
        look_at_view(s, q);
        look_at_plan(s, q);
    }
    if (c->seated_ms == 0 && world_now(s->world) > c->came_ms + SEAT_MS) {
        check_fail(s->check, "P: the newcomer is outside after %u ms", SEAT_MS);
        return;
    }
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

void options_probation(struct sim *s)
{
    s->starters = FOUNDERS;
    s->local_opt.min_peers = FOUNDERS;
    s->local_opt.probation_rounds = ROUNDS;
    s->local_opt.shards_everywhere = false;
    s->need = FOUNDERS + 1;
    s->world_opt.public_from = FOUNDERS;
    s->world_opt.public_to = s->n - 1;
    s->world_opt.tamper = empty;
    s->world_opt.tamper_self = s;
}

void setup_probation(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 4);
    struct crowd *c = world_alloc(sizeof *c);

    c->idle = s->opt.seed % 2 == 0;
    c->came_ms = at + 5000;
    s->crowd = c;
    for (uint32_t i = FOUNDERS; i + 1 < s->n; i++) {
        world_call(s->world, at + sim_draw(s, 0, 1000), sim_start_call, s, i);
    }
    world_call(s->world, c->came_ms, sim_start_call, s, s->n - 1);
    world_call(s->world, at, look_call, s, 0);
    s->calm_ms = c->came_ms;
}
