/* relay.c - peers behind NAT: who cannot be dialled, probes, relays.
 *
 * A peer with `nat` dials like any other and is reached by nobody: a dial to it
 * ends after the time limit. A *carry* is one connection to a relay, of the one
 * who asks for another peer or of the one who comes because it was called; two
 * of them joined are a link or a data connection between the two ends, which
 * breaks when the relay dies or refuses it. Two that only meet there are told
 * where the other is, and have a connection when both dial and both NATs are
 * cones. Frozen and cut relays are not
 * modelled: only the two ends count for a cut.
 */
#include "daemon/sim/world/internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define PROBE_MS 3000

void world_set_nat(struct world *w, uint32_t peer, enum world_nat nat)
{
    w->peers[peer].nat = nat;
}

enum world_nat world_nat(const struct world *w, uint32_t peer)
{
    return w->peers[peer].nat;
}

static struct carry *carry_of(struct world *w, uint64_t request)
{
    return request > 0 && request <= w->n_carries ? w->carries[request - 1]
                                                  : NULL;
}

static bool same_life(const struct world *w, uint32_t peer, uint32_t life)
{
    return w->peers[peer].alive && w->peers[peer].life == life;
}

static struct carry *carry_new(struct world *w, uint32_t peer, uint32_t relay)
{
    struct carry *c = world_alloc(sizeof *c);

    if (w->n_carries == w->cap_carries) {
        struct carry **more;

        w->cap_carries = w->cap_carries == 0 ? 64 : 2 * w->cap_carries;
        more = world_alloc(w->cap_carries * sizeof *more);
        if (w->n_carries > 0) {
            memcpy(more, w->carries, w->n_carries * sizeof *more);
        }
        free(w->carries);
        w->carries = more;
    }
    w->carries[w->n_carries++] = c;
    c->name = w->n_carries;
    c->end = peer;
    c->life = w->peers[peer].life;
    c->relay = relay;
    c->relay_life = w->peers[relay].life;
    return c;
}

static void carry_at(struct world *w, struct carry *c, uint64_t at, bool late)
{
    world_push(w, (struct entry){.at_ms = at,
                                 .kind = ENTRY_CARRY,
                                 .peer = NOBODY,
                                 .a = c->name,
                                 .b = late});
}

/* Where the world sees a connection come from. */
static struct address seen_at(const struct world *w, const struct carry *c)
{
    struct address a = w->peers[c->end].address;

    a.port = (uint16_t)(20000 + c->name % 40000);
    return a;
}

/* ---- actions ---------------------------------------------------------- */

/* A connection through a relay; NULL: not allowed. */
static struct carry *begin(struct world *w,
                           uint32_t peer,
                           const struct peer_id *through,
                           const struct peer_id *other)
{
    uint32_t relay = world_find(w, through), to = world_find(w, other);
    struct carry *c;

    if (relay == w->opt.n_peers || to == w->opt.n_peers || relay == peer ||
        to == peer) {
        w->stats.broke_rules++;
        return NULL;
    }
    c = carry_new(w, peer, relay);
    c->other = to;
    carry_at(w, c, w->now_ms + world_latency(w, peer, relay), false);
    carry_at(w, c, w->now_ms + w->opt.dial_timeout_ms, true);
    return c;
}

void relay_dial(struct world *w, uint32_t peer, const struct action_dial *dial)
{
    struct carry *c = begin(w, peer, &dial->relay, &dial->peer);

    if (c != NULL) {
        c->request = dial->request;
        c->address = dial->address;
        c->meet = dial->meet;
    }
}

/* Who dialled at that meeting hears how it ended. */
static void tell_punched(struct world *w, const struct carry *c, bool up)
{
    struct event e = {.type = EVENT_PUNCHED, .punched.up = up};

    if (c->dialled && same_life(w, c->end, c->life)) {
        e.punched.address = seen_at(w, carry_of(w, c->pair));
        world_event(w, c->end, w->now_ms, &e);
    }
}

/* A meeting for data of that carry is over. */
static void tell_bulk_met(struct world *w, const struct carry *c, bool made)
{
    struct event e = {.type = EVENT_BULK_MET,
                      .bulk_met = {.peer = w->peers[c->other].identity.id,
                                   .up = made,
                                   .made = made}};

    world_event(w, c->end, w->now_ms, &e);
}

void relay_bulk(struct world *w,
                uint32_t peer,
                const struct action_bulk_open *open)
{
    struct carry *c = begin(w, peer, &open->relay, &open->peer);

    if (c != NULL) {
        c->address = open->address;
        c->bulk = true;
        c->meet = open->meet;
    }
}

void relay_come(struct world *w,
                uint32_t peer,
                const struct action_relay_come *come)
{
    struct carry *c = begin(w, peer, &come->relay, &come->peer);

    if (c != NULL) {
        c->address = come->address;
        c->token = come->token;
        c->meet = come->meet;
    }
}

void relay_probe(struct world *w,
                 uint32_t peer,
                 const struct action_probe *probe)
{
    struct event e = {.type = EVENT_PROBED, .probed.request = probe->request};
    uint32_t to = world_find(w, &probe->peer);
    uint64_t at = w->now_ms + PROBE_MS;

    if (to == w->opt.n_peers || world_cut(w, peer, to) || w->peers[to].frozen ||
        w->peers[to].nat ||
        !address_eq(&w->peers[to].address, &probe->address)) {
        e.probed.rc = LOCO_ETIMEOUT;
    } else {
        e.probed.rc = w->peers[to].alive ? 0 : WORLD_EREFUSED;
        at =
            w->now_ms + world_latency(w, peer, to) + world_latency(w, to, peer);
    }
    world_event(w, peer, at, &e);
}

/* ---- endings ---------------------------------------------------------- */

/* The relay's core hears that a connection is gone. */
static void tell_relay(struct world *w, const struct carry *c)
{
    struct event e = {.type = EVENT_RELAY_MOVED,
                      .relay_moved = {.request = c->name, .rc = LOCO_ECLOSED}};

    if (same_life(w, c->relay, c->relay_life)) {
        world_event(w, c->relay, w->now_ms, &e);
    }
}

static void carry_fail(struct world *w, struct carry *c, int rc)
{
    struct event e = {.type = EVENT_DIAL_FAILED,
                      .dial_failed = {.request = c->request,
                                      .address = c->address,
                                      .rc = rc}};

    if (c->state == CARRY_WAITING) {
        tell_relay(w, c);
    }
    tell_punched(w, c, false);
    c->state = CARRY_OVER;
    if (c->token != 0 || !same_life(w, c->end, c->life)) {
        return;
    }
    if (c->bulk && c->meet) {
        tell_bulk_met(w, c, false);
    } else if (c->bulk) {
        bulk_denied(w, c->end, c->other, rc);
    } else {
        world_event(w, c->end, w->now_ms, &e);
    }
}

static void carry_break(struct world *w, struct carry *c)
{
    c->state = CARRY_OVER;
    if (c->bulk) {
        bulk_carry_gone(w, c->end, c->other, c->name);
    } else {
        link_drop(w, c->link);
    }
    tell_relay(w, c);
}

void relay_left(struct world *w, uint64_t carry)
{
    struct carry *c = carry_of(w, carry);

    if (c != NULL && c->state == CARRY_JOINED) {
        c->state = CARRY_OVER;
        tell_relay(w, c);
    }
}

void relay_refuse(struct world *w, uint32_t peer, uint64_t request)
{
    struct carry *c = carry_of(w, request);

    if (c == NULL || c->relay != peer) {
        return;
    }
    if (c->state == CARRY_WAITING) {
        carry_fail(w, c, LOCO_ECLOSED);
    } else if (c->state == CARRY_JOINED) {
        carry_break(w, c);
    }
}

void relay_link_gone(struct world *w, uint32_t link)
{
    for (uint32_t i = 0; i < w->n_carries; i++) {
        struct carry *c = w->carries[i];

        if (c->state == CARRY_JOINED && !c->bulk && c->link == link) {
            c->state = CARRY_OVER;
            tell_relay(w, c);
        }
    }
}

void relay_peer_died(struct world *w, uint32_t peer)
{
    for (uint32_t i = 0; i < w->n_carries; i++) {
        struct carry *c = w->carries[i];

        if (c->relay != peer && c->end != peer && c->other != peer) {
            continue;
        }
        if (c->state == CARRY_JOINED) {
            carry_break(w, c);
        } else if (c->state != CARRY_OVER) {
            carry_fail(w, c, LOCO_ECLOSED);
        }
    }
}

void relay_free(struct world *w)
{
    for (uint32_t i = 0; i < w->n_carries; i++) {
        free(w->carries[i]);
    }
    free(w->carries);
}

/* ---- joined ----------------------------------------------------------- */

static void tell_met(struct world *w, struct carry *c, struct carry *other)
{
    struct event e = {
        .type = EVENT_MET,
        .met = {.meeting = c->name,
                .request = c->bulk ? 0 : c->request,
                .peer = w->peers[other->end].identity.id,
                .relay = w->peers[c->relay].identity.id,
                .address = seen_at(w, other)},
    };

    c->state = CARRY_MET;
    c->pair = other->name;
    world_event(w, c->end, w->now_ms + world_latency(w, c->relay, c->end), &e);
}

/* A hole that a router forgets. */
static void link_hole_gone(void *world, uint64_t link)
{
    struct world *w = world;

    w->stats.broken += w->links[link].end[0] == END_UP;
    link_drop(w, (uint32_t)link);
}

static void data_hole_gone(void *world, uint64_t carry)
{
    struct world *w = world;
    const struct carry *c = carry_of(w, carry);

    bulk_hole_gone(w, c->end, c->other, c->made_as);
}

/* Whether the packets of two that dial at once cross, and for how long. */
static bool makes_a_hole(struct world *w, uint64_t *lasts_ms)
{
    *lasts_ms = w->opt.hole_lasts_ms > 0
                    ? 1 + rng_below(&w->rng, w->opt.hole_lasts_ms)
                    : 0;
    return w->opt.holes_fail_per_million == 0 ||
           rng_below(&w->rng, 1000000) >= w->opt.holes_fail_per_million;
}

/* Both have dialled. Who asked begins. */
static void meet(struct world *w, struct carry *x, struct carry *y)
{
    uint64_t lasts_ms;

    if (w->peers[x->end].nat == WORLD_NAT_SYMMETRIC ||
        w->peers[y->end].nat == WORLD_NAT_SYMMETRIC ||
        world_cut(w, x->end, y->end) || !same_life(w, x->end, x->life) ||
        !same_life(w, y->end, y->life) || !makes_a_hole(w, &lasts_ms)) {
        return; /* both wait until their time is over */
    }
    x->state = y->state = CARRY_OVER;
    tell_punched(w, x, true);
    tell_punched(w, y, true);
    w->stats.punched++;
    if (x->token != 0) {
        x = y;
    }
    if (x->bulk) {
        (void)bulk_through(w, x->end, x->other, 0);
        x->made_as = bulk_generation(w, x->end, x->other);
        tell_bulk_met(w, x, true);
    } else {
        x->link = link_through(w, x);
    }
    if (lasts_ms > 0) {
        world_call(w, w->now_ms + lasts_ms,
                   x->bulk ? data_hole_gone : link_hole_gone, w,
                   x->bulk ? x->name : x->link);
    }
}

void relay_punch(struct world *w,
                 uint32_t peer,
                 const struct action_punch *punch)
{
    struct carry *c = carry_of(w, punch->meeting);
    struct carry *other = c == NULL ? NULL : carry_of(w, c->pair);
    struct address a;

    if (c == NULL || c->end != peer || c->state != CARRY_MET || c->dialled) {
        return;
    }
    if (punch->address.port == 0) {
        carry_fail(w, c, LOCO_EINVAL);
        return;
    }
    a = seen_at(w, other);
    w->stats.punches++;
    w->stats.nowhere += !address_eq(&a, &punch->address);
    c->dialled = address_eq(&a, &punch->address);
    if (c->dialled && other->dialled && other->state == CARRY_MET) {
        meet(w, c, other);
    }
}

void relay_join(struct world *w,
                uint32_t peer,
                const struct action_relay_join *join)
{
    struct carry *x = carry_of(w, join->request);
    struct carry *y = carry_of(w, join->other_request);

    if (x == NULL || y == NULL || x->relay != peer || y->relay != peer ||
        x->state != CARRY_WAITING || y->state != CARRY_WAITING ||
        x->meet != join->meet || y->meet != join->meet || x->other != y->end ||
        y->other != x->end) {
        relay_refuse(w, peer, join->other_request);
        relay_refuse(w, peer, join->request);
        return;
    }
    if (join->meet) {
        tell_met(w, x, y);
        tell_met(w, y, x);
        return;
    }
    y->state = CARRY_OVER;
    x->state = CARRY_JOINED;
    w->stats.relayed++;
    if (x->bulk && !bulk_through(w, x->end, y->end, x->name)) {
        relay_left(w, x->name);
    } else if (!x->bulk) {
        x->link = link_through(w, x);
    }
}

/* It has reached the relay, or should long have been joined. */
void relay_on_entry(struct world *w, const struct entry *e)
{
    struct carry *c = carry_of(w, e->a);
    struct event event = {.type = EVENT_RELAY,
                          .relay = {.request = c->name,
                                    .peer = w->peers[c->end].identity.id,
                                    .other = w->peers[c->other].identity.id,
                                    .token = c->token,
                                    .meet = c->meet,
                                    .from = seen_at(w, c)}};
    const struct world_peer *r = &w->peers[c->relay];

    if (e->b != 0) {
        if (c->state == CARRY_COMING || c->state == CARRY_WAITING ||
            c->state == CARRY_MET) {
            carry_fail(w, c, LOCO_ETIMEOUT);
        }
        return;
    }
    if (c->state != CARRY_COMING || r->nat || r->frozen ||
        !same_life(w, c->relay, c->relay_life) ||
        !same_life(w, c->end, c->life) || world_cut(w, c->end, c->relay)) {
        return;
    }
    c->state = CARRY_WAITING;
    world_deliver(w, c->relay, &event);
}
