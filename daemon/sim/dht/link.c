/* link.c - how bytes travel between the slots of a swarm; see swarm.h. */
#include "daemon/sim/dht/internal.h"

#include <math.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"

#define PACKET_BYTES    1400 /* of one message, in one TCP segment */
#define RTO_MIN_MS      200  /* RFC 6298 as Linux has it */
#define LOSSES_MAX      6    /* in a row, then TCP is as good as dead */
#define DIAL_TIMEOUT_MS 5000
/* One-way trips before a dialler's first message leaves: TCP's SYN and its
 * answer, Noise's first two messages. The third travels with the data. */
#define DIAL_TRIPS 4

uint32_t swarm_slot(const struct swarm *s, const struct address *a)
{
    uint32_t slot = (uint32_t)a->port - 1024;

    return a->port >= 1024 && slot < s->opt.n &&
                   address_eq(&s->node[slot].address, a)
               ? slot
               : UINT32_MAX;
}

/* The address that others are told: clients have port 0. */
static struct address told(const struct swarm *s, uint32_t slot)
{
    struct address a = s->node[slot].address;

    a.port = s->node[slot].client ? 0 : a.port;
    return a;
}

/* ---- time on the way ----------------------------------------------------- */

static float side(float a, float b)
{
    float d = fabsf(a - b);

    return d > 0.5f ? 1 - d : d;
}

/* One way, without losses. */
static uint64_t trip_ms(struct swarm *s, uint32_t a, uint32_t b)
{
    const struct swarm_node *p = &s->node[a], *q = &s->node[b];
    float dx = side(p->x, q->x), dy = side(p->y, q->y);
    /* Opposite places of the torus are sqrt(1/2) apart. */
    double way = s->opt.reach_ms * (double)sqrtf(2 * (dx * dx + dy * dy));
    uint64_t ms = 1 + (uint64_t)way + p->access_ms + q->access_ms;

    return ms + swarm_below(s, ms / 8 + 1);
}

/* What losses add: a time-out each, doubled while they go on. */
static uint64_t loss_ms(struct swarm *s, uint64_t trip, uint32_t len)
{
    uint64_t rto_ms = RTO_MIN_MS > 3 * trip ? RTO_MIN_MS : 3 * trip;
    uint64_t ms = 0;

    for (uint32_t p = 0; p <= len / PACKET_BYTES && s->opt.loss > 0; p++) {
        for (int i = 0; i < LOSSES_MAX && swarm_unit(s) < s->opt.loss; i++) {
            ms += rto_ms << i;
        }
    }
    return ms;
}

/* The message waits for those before it on the sender's uplink. */
static uint64_t uplink_ms(struct swarm *s, uint32_t from, uint32_t len)
{
    struct swarm_node *n = &s->node[from];
    uint64_t now_us = s->now_ms * 1000;

    if (s->opt.uplink_bytes_per_s == 0) {
        return 0;
    }
    n->uplink_us = n->uplink_us > now_us ? n->uplink_us : now_us;
    n->uplink_us += (uint64_t)len * 1000000 / s->opt.uplink_bytes_per_s;
    return (n->uplink_us - now_us) / 1000;
}

/* ---- links -------------------------------------------------------------- */

static struct swarm_link *link_of(struct swarm *s, uint32_t a, uint32_t b)
{
    struct swarm_node *n = &s->node[a];

    for (int i = 0; i < SWARM_LINKS; i++) {
        if (n->link[i].life != 0 && n->link[i].slot == b &&
            n->link[i].life == s->node[b].life) {
            return &n->link[i];
        }
    }
    return NULL;
}

/* Note a use; the link unused longest makes room. */
static void link_use(struct swarm *s, uint32_t a, uint32_t b)
{
    struct swarm_link *l = link_of(s, a, b);
    struct swarm_node *n = &s->node[a];

    if (l == NULL) {
        l = &n->link[0];
        for (int i = 1; i < SWARM_LINKS; i++) {
            if (n->link[i].used_ms < l->used_ms) {
                l = &n->link[i];
            }
        }
    }
    *l = (struct swarm_link){
        .slot = b, .life = s->node[b].life, .used_ms = s->now_ms};
}

static void link_cut(struct swarm *s, uint32_t a, uint32_t b)
{
    struct swarm_link *l = link_of(s, a, b);

    if (l != NULL) {
        memset(l, 0, sizeof *l);
    }
}

static bool linked(struct swarm *s, uint32_t a, uint32_t b)
{
    return link_of(s, a, b) != NULL || link_of(s, b, a) != NULL;
}

/* ---- sending ------------------------------------------------------------ */

/* `from` learns after `ms` that `id` cannot be reached. */
static void
fail(struct swarm *s, uint32_t from, const struct peer_id *id, uint64_t ms)
{
    struct swarm_event *e = swarm_push(s, s->now_ms + ms, ITEM_FAILED);

    e->from = e->to = from;
    e->from_life = s->node[from].life;
    e->expect = *id;
}

/* Milliseconds until a link to `to` stands, or UINT64_MAX and the failure is on
 * its way. `expect` NULL: anybody. */
static uint64_t
dial(struct swarm *s, uint32_t from, uint32_t to, const struct peer_id *expect)
{
    static const struct peer_id anybody;
    const struct peer_id *id = expect == NULL ? &anybody : expect;
    const struct swarm_node *n = to == UINT32_MAX ? NULL : &s->node[to];
    uint64_t trip;

    if (n == NULL || n->client || (!n->up && n->silent)) {
        fail(s, from, id, DIAL_TIMEOUT_MS);
        return UINT64_MAX;
    }
    trip = trip_ms(s, from, to);
    if (!n->up) {
        fail(s, from, id, 2 * trip);
        return UINT64_MAX;
    }
    if (expect != NULL && !id_eq(&n->identity.id, expect)) {
        fail(s, from, id, DIAL_TRIPS * trip); /* its proof is another's */
        return UINT64_MAX;
    }
    return DIAL_TRIPS * trip;
}

void swarm_send(struct swarm *s,
                uint32_t from,
                uint32_t to,
                const struct peer_id *expect,
                uint16_t message,
                const uint8_t *bytes,
                uint32_t len)
{
    struct swarm_event *e;
    uint64_t ms = 0, trip;

    if (to == UINT32_MAX || !linked(s, from, to) ||
        !id_eq(&s->node[to].identity.id, expect)) {
        ms = dial(s, from, to, expect);
        if (ms == UINT64_MAX) {
            return;
        }
    }
    link_use(s, from, to);
    link_use(s, to, from);
    trip = trip_ms(s, from, to);
    ms += trip + loss_ms(s, trip, len) + uplink_ms(s, from, len);
    e = swarm_push(s, s->now_ms + ms, ITEM_MESSAGE);
    e->from = from;
    e->to = to;
    e->from_life = s->node[from].life;
    e->to_life = s->node[to].life;
    e->expect = *expect;
    e->message = message;
    e->len = len;
    e->bytes = world_alloc(len + 1);
    memcpy(e->bytes, bytes, len);
    s->messages++;
    s->bytes += len;
}

void swarm_deliver(struct swarm *s, const struct swarm_event *e)
{
    struct swarm_node *n = &s->node[e->to];
    struct dht_input in = {.peer = s->node[e->from].identity.id,
                           .address = told(s, e->from),
                           .message = e->message,
                           .bytes = e->bytes,
                           .len = e->len,
                           .now_ms = s->now_ms,
                           .wall_s = swarm_wall_s(s)};
    int rv;

    if (!n->up || n->life != e->to_life) {
        if (s->node[e->from].life == e->from_life && !n->silent) {
            fail(s, e->from, &e->expect, trip_ms(s, e->to, e->from));
        }
        return;
    }
    if (s->node[e->from].life != e->from_life) {
        return; /* whoever said it is gone and its link with it */
    }
    if (n->role != SWARM_HONEST &&
        swarm_liar_recv(s, e->to, e->from, e->message, e->bytes, e->len)) {
        return;
    }
    s->reply_to = e->from;
    rv = dht_recv(&n->d, &in, &s->out);
    if (rv == LOCO_EPROTO) { /* the daemon hangs up */
        link_cut(s, e->to, e->from);
        link_cut(s, e->from, e->to);
    }
    if (s->node[e->from].role == SWARM_HONEST && rv != 0 && rv != LOCO_ESTALE &&
        n->role == SWARM_HONEST) {
        swarm_fail(s, "slot %u refuses what honest slot %u says: %s", e->to,
                   e->from, loco_strerror(rv));
    }
    swarm_flush(s, e->to);
    s->reply_to = UINT32_MAX;
}

/* ---- joining ------------------------------------------------------------ */

void swarm_meet(struct swarm *s, uint32_t slot, uint32_t to)
{
    uint64_t ms = dial(s, slot, to, NULL);
    struct swarm_event *e;

    if (ms == UINT64_MAX) {
        return;
    }
    e = swarm_push(s, s->now_ms + ms, ITEM_MEET);
    e->from = slot;
    e->to = to;
    e->from_life = s->node[slot].life;
    e->to_life = s->node[to].life;
}

void swarm_met(struct swarm *s, const struct swarm_event *e)
{
    struct swarm_node *a = &s->node[e->from], *b = &s->node[e->to];
    struct address at_a = told(s, e->from), at_b = told(s, e->to);

    if (!a->up || !b->up || a->life != e->from_life || b->life != e->to_life) {
        return;
    }
    link_use(s, e->from, e->to);
    link_use(s, e->to, e->from);
    s->out.n_sends = s->out.n_done = 0;
    dht_seen(&a->d, &b->identity.id, &at_b, s->now_ms);
    swarm_flush(s, e->from);
    s->out.n_sends = s->out.n_done = 0;
    dht_seen(&b->d, &a->identity.id, &at_a, s->now_ms);
    swarm_flush(s, e->to);
}
