/* link.c - control links: dial, send, go down. See world.h. */
#include "daemon/sim/world/internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Who listens there; NOBODY where nothing does. */
static uint32_t listener(const struct world *w, const struct address *a)
{
    uint32_t i = (uint32_t)a->ip[13] << 16 | (uint32_t)a->ip[14] << 8 |
                 (uint32_t)a->ip[15];

    return i < w->opt.n_peers && address_eq(&w->peers[i].address, a) ? i
                                                                     : NOBODY;
}

void world_link_dial(struct world *w,
                     uint32_t peer,
                     const struct action_dial *dial)
{
    uint32_t to = listener(w, &dial->address);
    struct dial *d;

    if (!id_is_zero(&dial->relay)) {
        relay_dial(w, peer, dial);
        return;
    }
    d = world_alloc(sizeof *d);

    *d = (struct dial){.from = peer,
                       .life = w->peers[peer].life,
                       .to = to,
                       .request = dial->request,
                       .started_ms = w->now_ms,
                       .address = dial->address,
                       .expected = dial->peer};
    world_push(
        w, (struct entry){.at_ms = w->now_ms +
                                   (to == NOBODY ? w->opt.latency_max_ms
                                                 : world_latency(w, peer, to)) +
                                   world_resend_ms(w),
                          .kind = ENTRY_DIAL,
                          .peer = NOBODY,
                          .ptr = d});
}

static void
dial_failed(struct world *w, const struct dial *d, uint64_t at, int rc)
{
    struct event e = {.type = EVENT_DIAL_FAILED,
                      .dial_failed = {.request = d->request,
                                      .address = d->address,
                                      .rc = rc}};

    if (w->peers[d->from].alive && w->peers[d->from].life == d->life) {
        world_event(w, d->from, at > w->now_ms ? at : w->now_ms, &e);
    }
}

static void link_up_at(
    struct world *w, uint32_t link, uint32_t side, uint64_t at, struct dial *d)
{
    struct link *l = &w->links[link];

    l->last_ms[side] = at;
    world_push(w, (struct entry){.at_ms = at,
                                 .kind = ENTRY_LINK_UP,
                                 .peer = l->peer[side],
                                 .life = l->life[side],
                                 .a = link,
                                 .b = side,
                                 .ptr = d});
}

static uint32_t link_new(struct world *w, const struct dial *d)
{
    struct link *l;

    if (w->n_links == w->cap_links) {
        w->cap_links = w->cap_links == 0 ? 64 : 2 * w->cap_links;
        l = world_alloc(w->cap_links * sizeof *l);
        if (w->n_links > 0) {
            memcpy(l, w->links, w->n_links * sizeof *l);
        }
        free(w->links);
        w->links = l;
    }
    l = &w->links[w->n_links];
    memset(l, 0, sizeof *l);
    l->peer[0] = d->from;
    l->peer[1] = d->to;
    l->life[0] = d->life;
    l->life[1] = w->peers[d->to].life;
    return w->n_links++;
}

/* The first packet of a dial has arrived, or has not. */
static void on_dial(struct world *w, struct dial *d)
{
    const struct world_peer *from = &w->peers[d->from];
    uint64_t late = d->started_ms + w->opt.dial_timeout_ms;
    uint32_t link, back;
    struct dial *copy;

    if (!from->alive || from->life != d->life) {
        return;
    }
    w->stats.nowhere += d->to == NOBODY;
    if (d->to == NOBODY) {
        dial_failed(w, d, late, LOCO_ETIMEOUT);
        return;
    }
    back = world_latency(w, d->to, d->from);
    if (world_cut(w, d->from, d->to) || w->peers[d->to].frozen ||
        w->peers[d->to].nat) {
        dial_failed(w, d, late, LOCO_ETIMEOUT);
    } else if (!w->peers[d->to].alive) {
        dial_failed(w, d, w->now_ms + back, WORLD_EREFUSED);
    } else if (d->to != d->from &&
               id_eq(&from->identity.id, &w->peers[d->to].identity.id)) {
        dial_failed(w, d, w->now_ms + back, LOCO_ETWIN);
    } else if (d->to == d->from ||
               (!id_is_zero(&d->expected) &&
                !id_eq(&d->expected, &w->peers[d->to].identity.id))) {
        dial_failed(w, d, w->now_ms + back, LOCO_EPROTO);
    } else {
        copy = world_alloc(sizeof *copy);
        *copy = *d;
        link = link_new(w, d);
        link_up_at(w, link, 0, w->now_ms + back, copy);
        link_up_at(w, link, 1,
                   w->now_ms + back + world_latency(w, d->from, d->to), NULL);
    }
}

static void on_link_up(struct world *w, const struct entry *e)
{
    struct link *l = &w->links[e->a];
    uint32_t side = (uint32_t)e->b;
    const struct world_peer *other = &w->peers[l->peer[!side]];
    struct event event = {.type = EVENT_LINK_UP,
                          .link_up = {.link = (uint32_t)e->a + 1,
                                      .inbound = side == 1,
                                      .peer = other->identity.id,
                                      .address = other->address}};
    const struct dial *d = e->ptr;

    if (l->met != 0) {
        event.link_up.met_at = w->peers[l->met - 1].identity.id;
    }
    if (l->via != 0) {
        event.link_up.relay = w->peers[l->via - 1].identity.id;
        event.link_up.address = (struct address){0};
    }
    if (l->end[side] != END_OPENING || world_cut(w, l->peer[0], l->peer[1])) {
        l->end[side] = END_DOWN;
        if (d != NULL) {
            dial_failed(w, d, w->now_ms, LOCO_ECLOSED);
        }
        return;
    }
    memcpy(event.link_up.public_key, other->identity.public, 32);
    if (d != NULL) {
        event.link_up.request = d->request;
    }
    l->end[side] = END_UP;
    world_deliver(w, l->peer[side], &event);
}

static void on_message(struct world *w, const struct entry *e)
{
    const struct link *l = &w->links[e->a];
    const struct packet *m = e->ptr;
    struct event event = {.type = EVENT_RECV,
                          .recv = {.link = (uint32_t)e->a + 1,
                                   .message = m->type,
                                   .bytes = m->bytes,
                                   .len = m->len}};

    if (l->via == 0) {
        event.recv.rtt_us =
            1000 * (world_least_latency(w, l->peer[0], l->peer[1]) +
                    world_least_latency(w, l->peer[1], l->peer[0]));
    }
    if (l->end[e->b] == END_UP) {
        world_deliver(w, l->peer[e->b], &event);
    }
}

static void link_down_at(
    struct world *w, uint32_t link, uint32_t side, uint64_t at, bool forced)
{
    struct link *l = &w->links[link];

    if (!forced) {
        at = at > l->last_ms[side] ? at : l->last_ms[side];
        l->last_ms[side] = at;
    }
    world_push(w, (struct entry){.at_ms = at,
                                 .kind = ENTRY_LINK_DOWN,
                                 .peer = l->peer[side],
                                 .life = l->life[side],
                                 .a = link,
                                 .b = side | (forced ? 2U : 0U),
                                 .ptr = (void *)(uintptr_t)w->cut_serial});
}

static void on_link_down(struct world *w, const struct entry *e)
{
    struct link *l = &w->links[e->a];
    uint32_t side = e->b & 1;
    bool forced = (e->b & 2) != 0;
    struct event event = {.type = EVENT_LINK_DOWN,
                          .link_down = {(uint32_t)e->a + 1,
                                        forced ? LOCO_ETIMEOUT : LOCO_ECLOSED}};

    if (forced && (uintptr_t)e->ptr != w->cut_serial) {
        return; /* Healed, or cut anew, in time. */
    }
    if (l->end[side] == END_UP) {
        l->end[side] = END_DOWN;
        world_deliver(w, l->peer[side], &event);
    }
    l = &w->links[e->a];
    l->end[side] = END_DOWN;
    if (l->via != 0) {
        relay_link_gone(w, (uint32_t)e->a);
    }
}

void link_on_entry(struct world *w, struct entry *e)
{
    bool holds = (e->kind == ENTRY_MESSAGE ||
                  (e->kind == ENTRY_LINK_DOWN && (e->b & 2) == 0));

    if (holds && world_blocked(w, w->links[e->a].peer[!(e->b & 1)],
                               w->links[e->a].peer[e->b & 1], false)) {
        entry_list_add(&w->links[e->a].held, e);
        return;
    }
    switch (e->kind) {
    case ENTRY_DIAL:
        on_dial(w, e->ptr);
        break;
    case ENTRY_LINK_UP:
        on_link_up(w, e);
        break;
    case ENTRY_MESSAGE:
        on_message(w, e);
        break;
    default:
        on_link_down(w, e);
        break;
    }
    entry_free(e);
}

/* One way, from this side to the other. */
static uint32_t latency(struct world *w, const struct link *l, uint32_t side)
{
    uint32_t from = l->peer[side], to = l->peer[!side];

    return l->via == 0 ? world_latency(w, from, to)
                       : world_latency(w, from, l->via - 1) +
                             world_latency(w, l->via - 1, to);
}

/* Side of `peer` on a link it named; -1 where it is not (any more) its own. */
static int side_of(struct world *w, uint32_t peer, uint32_t link)
{
    const struct link *l;

    if (link == 0 || link > w->n_links) {
        w->stats.broke_rules++;
        return -1;
    }
    l = &w->links[link - 1];
    for (int side = 0; side < 2; side++) {
        if (l->peer[side] == peer && l->life[side] == w->peers[peer].life) {
            return l->end[side] == END_UP ? side : -1;
        }
    }
    w->stats.broke_rules++;
    return -1;
}

/* A tampered message may be longer by this. */
#define TAMPER_BYTES 4096

void world_link_send(struct world *w,
                     uint32_t peer,
                     const struct action_send *send)
{
    int side = side_of(w, peer, send->link);
    struct link *l;
    struct packet *m;
    uint64_t at;
    uint32_t other;

    if (side < 0) {
        return;
    }
    w->stats.messages++;
    if (w->opt.lose_per_million > 0 &&
        rng_below(&w->rng, 1000000) < w->opt.lose_per_million) {
        w->stats.messages_lost++;
        return;
    }
    l = &w->links[send->link - 1];
    other = (uint32_t)!side;
    at = w->now_ms + latency(w, l, (uint32_t)side) + world_resend_ms(w);
    if (w->opt.spike_per_million > 0 &&
        rng_below(&w->rng, 1000000) < w->opt.spike_per_million) {
        at += rng_below(&w->rng, w->opt.spike_ms + 1);
    }
    at = at > l->last_ms[other] ? at : l->last_ms[other];
    l->last_ms[other] = at;
    m = world_alloc(sizeof *m + send->bytes.len +
                    (w->opt.tamper == NULL ? 0 : TAMPER_BYTES));
    m->type = send->message;
    m->len = send->bytes.len;
    memcpy(m->bytes, w->out->bytes + send->bytes.at, send->bytes.len);
    if (w->opt.tamper != NULL) {
        m->len = w->opt.tamper(w->opt.tamper_self, peer, l->peer[other],
                               send->message, m->bytes, send->bytes.len,
                               send->bytes.len + TAMPER_BYTES);
    }
    w->stats.bytes += send->bytes.len;
    world_push(w, (struct entry){.at_ms = at,
                                 .kind = ENTRY_MESSAGE,
                                 .peer = l->peer[other],
                                 .life = l->life[other],
                                 .a = send->link - 1,
                                 .b = other,
                                 .ptr = m});
}

void world_link_hang_up(struct world *w, uint32_t peer, uint32_t link)
{
    int side = side_of(w, peer, link);
    struct event event = {.type = EVENT_LINK_DOWN,
                          .link_down = {link, LOCO_ECLOSED}};
    struct link *l;

    if (side < 0) {
        return;
    }
    l = &w->links[link - 1];
    l->end[side] = END_DOWN;
    world_event(w, peer, w->now_ms, &event);
    link_down_at(w, link - 1, (uint32_t)!side,
                 w->now_ms + world_latency(w, peer, l->peer[!side]), false);
}

uint32_t link_through(struct world *w, const struct carry *c)
{
    struct dial *d = world_alloc(sizeof *d);
    uint32_t link;

    *d = (struct dial){.from = c->end,
                       .life = c->life,
                       .to = c->other,
                       .request = c->request,
                       .started_ms = w->now_ms,
                       .address = c->address};
    link = link_new(w, d);
    if (c->meet) {
        w->links[link].met = c->relay + 1;
    } else {
        w->links[link].via = c->relay + 1;
    }
    link_up_at(
        w, link, 0,
        w->now_ms + world_latency(w, c->meet ? c->other : c->relay, c->end), d);
    link_up_at(w, link, 1,
               w->now_ms +
                   world_latency(w, c->meet ? c->end : c->relay, c->other),
               NULL);
    return link;
}

void link_drop(struct world *w, uint32_t link)
{
    for (uint32_t side = 0; side < 2; side++) {
        if (w->links[link].end[side] != END_DOWN) {
            link_down_at(w, link, side, w->now_ms, false);
        }
    }
}

void link_peer_died(struct world *w, uint32_t peer)
{
    for (uint32_t k = 0; k < w->n_links; k++) {
        struct link *l = &w->links[k];

        for (uint32_t side = 0; side < 2; side++) {
            if (l->peer[side] != peer || l->end[side] == END_DOWN) {
                continue;
            }
            l->end[side] = END_DOWN;
            if (l->end[!side] == END_UP) {
                link_down_at(w, k, !side,
                             w->now_ms + world_latency(w, peer, l->peer[!side]),
                             false);
            } else {
                l->end[!side] = END_DOWN;
            }
        }
    }
}

void link_on_cut(struct world *w)
{
    if (w->opt.transport_timeout_ms == 0) {
        return;
    }
    for (uint32_t k = 0; k < w->n_links; k++) {
        struct link *l = &w->links[k];

        if (!world_cut(w, l->peer[0], l->peer[1])) {
            continue;
        }
        for (uint32_t side = 0; side < 2; side++) {
            if (l->end[side] != END_DOWN) {
                link_down_at(w, k, side,
                             w->now_ms + w->opt.transport_timeout_ms, true);
            }
        }
    }
}

void link_on_heal(struct world *w)
{
    for (uint32_t k = 0; k < w->n_links; k++) {
        struct entry_list *held = &w->links[k].held;

        for (uint32_t i = 0; i < held->n; i++) {
            held->at[i].at_ms = w->now_ms;
            world_push_again(w, held->at[i]);
        }
        held->n = 0;
        /* One end gave up during the cut: the other hears of it now. */
        for (uint32_t side = 0; side < 2; side++) {
            if (w->links[k].end[side] == END_DOWN &&
                w->links[k].end[!side] == END_UP) {
                link_down_at(w, k, !side, w->now_ms + w->opt.latency_max_ms,
                             false);
            }
        }
    }
}

void world_drop_links(struct world *w, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < w->n_links; k++) {
        const struct link *l = &w->links[k];

        if ((l->peer[0] == a && l->peer[1] == b) ||
            (l->peer[0] == b && l->peer[1] == a)) {
            for (uint32_t side = 0; side < 2; side++) {
                if (w->links[k].end[side] == END_UP) {
                    link_down_at(w, k, side, w->now_ms, false);
                }
            }
        }
    }
}

void link_free(struct world *w)
{
    for (uint32_t k = 0; k < w->n_links; k++) {
        struct entry_list *held = &w->links[k].held;

        for (uint32_t i = 0; i < held->n; i++) {
            entry_free(&held->at[i]);
        }
        free(held->at);
    }
    free(w->links);
}
