/* exchange.c - see exchange.h. */
#include "p2p/exchange/exchange.h"

#include "proto/base/err.h"

static void init_ring(struct ring *r, const struct exchange_plan *p)
{
    uint32_t n = p->cut.n, next = (p->rank + 1) % n;

    ring_init(r, &p->cut, p->rank, p->members[p->rank].holds,
              p->members[next].holds);
    r->attempt = p->attempt;
    r->scale = p->members[p->rank].scale;
    r->next = p->members[next].peer;
    r->prev = p->members[(p->rank + n - 1) % n].peer;
}

static void init_butterfly(struct butterfly *b, const struct exchange_plan *p)
{
    struct butterfly_shape shape = {.cut = p->cut};

    for (uint32_t k = 0; k < p->cut.n; k++) {
        shape.share[k] = p->members[k].share;
        shape.holds[k] = p->members[k].holds;
    }
    butterfly_init(b, &shape, p->rank);
    b->attempt = p->attempt;
    b->scale = p->members[p->rank].scale;
    b->proven = p->proven;
    for (uint32_t k = 0; k < p->cut.n; k++) {
        b->edges[k].peer = p->members[k].peer;
        b->edges[k].scale = p->members[k].scale;
        b->edges[k].offer = p->members[k].offer;
    }
}

static void sites_of(const struct exchange_plan *p, struct walk_sites *s)
{
    bool gateway[VIEW_MEMBERS_MAX];

    for (uint32_t k = 0; k < p->cut.n; k++) {
        gateway[k] = p->members[k].gateway;
    }
    (void)walk_sites_of(gateway, p->cut.n, s); /* the plan was checked */
}

static void init_sites(struct sites *t, const struct exchange_plan *p)
{
    struct sites_shape shape = {.cut = p->cut};

    sites_of(p, &shape.sites);
    for (uint32_t k = 0; k < p->cut.n; k++) {
        shape.holds[k] = p->members[k].holds;
    }
    sites_init(t, &shape, p->rank);
    t->attempt = p->attempt;
    t->scale = p->members[p->rank].scale;
    for (int k = 0; k < SITES_EDGES; k++) {
        t->in[k].peer = p->members[t->in[k].rank].peer;
        t->out[k].peer = p->members[t->out[k].rank].peer;
    }
}

void exchange_init(struct exchange *x, const struct exchange_plan *plan)
{
    x->kind = plan->kind;
    x->attempt = plan->attempt;
    switch (x->kind) {
    case EXCHANGE_RING:
        init_ring(&x->ring, plan);
        return;
    case EXCHANGE_BUTTERFLY:
        init_butterfly(&x->butterfly, plan);
        return;
    case EXCHANGE_SITES:
        init_sites(&x->sites, plan);
        return;
    }
}

uint32_t exchange_block(enum exchange_kind kind, uint32_t codec_block)
{
    return kind == EXCHANGE_BUTTERFLY && codec_block == 1 ? EXCHANGE_SUM_BLOCK
                                                          : codec_block;
}

bool exchange_sends_to(const struct exchange_plan *plan, uint32_t rank)
{
    struct walk_sites s;

    switch (plan->kind) {
    case EXCHANGE_RING:
        return rank == (plan->rank + 1) % plan->cut.n;
    case EXCHANGE_BUTTERFLY:
        return rank != plan->rank;
    case EXCHANGE_SITES:
        sites_of(plan, &s);
        return sites_sends(&s, plan->rank, rank);
    }
    return false;
}

void exchange_pump(struct exchange *x, struct out *out)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        ring_pump(&x->ring, out);
        return;
    case EXCHANGE_BUTTERFLY:
        butterfly_pump(&x->butterfly, out);
        return;
    case EXCHANGE_SITES:
        sites_pump(&x->sites, out);
        return;
    }
}

int exchange_done(struct exchange *x, const struct event_seg_done *event)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        return ring_done(&x->ring, event);
    case EXCHANGE_BUTTERFLY:
        return butterfly_done(&x->butterfly, event);
    case EXCHANGE_SITES:
        return sites_done(&x->sites, event);
    }
    return LOCO_EPROTO;
}

bool exchange_finished(const struct exchange *x)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        return ring_finished(&x->ring);
    case EXCHANGE_BUTTERFLY:
        return butterfly_finished(&x->butterfly);
    case EXCHANGE_SITES:
        return sites_finished(&x->sites);
    }
    return false;
}

uint64_t exchange_final(const struct exchange *x)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        return ring_final(&x->ring);
    case EXCHANGE_BUTTERFLY:
        return butterfly_final(&x->butterfly);
    case EXCHANGE_SITES:
        return sites_final(&x->sites);
    }
    return 0;
}

uint64_t exchange_progress(const struct exchange *x)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        return ring_progress(&x->ring);
    case EXCHANGE_BUTTERFLY:
        return butterfly_progress(&x->butterfly);
    case EXCHANGE_SITES:
        return sites_progress(&x->sites);
    }
    return 0;
}

uint32_t exchange_segments(const struct exchange *x, bool sending)
{
    switch (x->kind) {
    case EXCHANGE_RING:
        return ring_segments(&x->ring, sending);
    case EXCHANGE_BUTTERFLY:
        return butterfly_segments(&x->butterfly, sending);
    case EXCHANGE_SITES:
        return sites_segments(&x->sites, sending);
    }
    return 0;
}

bool exchange_owes(const struct exchange *x,
                   const struct peer_id *peer,
                   bool *neighbour)
{
    const struct ring *r = &x->ring;

    if (x->kind == EXCHANGE_SITES) {
        return sites_owes(&x->sites, peer, neighbour);
    }
    if (x->kind == EXCHANGE_BUTTERFLY) {
        *neighbour = true;
        return butterfly_owes(&x->butterfly, peer);
    }
    *neighbour = id_eq(peer, &r->prev) || id_eq(peer, &r->next);
    return id_eq(peer, &r->prev) &&
           r->received.number < ring_segments(r, false);
}

bool exchange_stall_of(const struct exchange *x, struct exchange_stall *s)
{
    const struct ring *r = &x->ring;

    switch (x->kind) {
    case EXCHANGE_RING:
        *s = (struct exchange_stall){
            .next = {(r->rank + 1) % r->shape.n, r->rank},
            .sent = {r->send.number, 0},
            .got = {r->received.number, 0},
        };
        return true;
    case EXCHANGE_SITES:
        for (int k = 0; k < SITES_EDGES; k++) {
            sites_stall_of(&x->sites, k == 1, &s->next[k], &s->sent[k],
                           &s->got[k]);
        }
        return true;
    case EXCHANGE_BUTTERFLY:
        break;
    }
    return false;
}

const struct peer_id *exchange_laggard(const struct exchange *x, bool *sends)
{
    const struct ring *r = &x->ring;

    if (x->kind == EXCHANGE_SITES) {
        return sites_laggard(&x->sites, sends);
    }
    if (x->kind == EXCHANGE_BUTTERFLY) {
        return butterfly_laggard(&x->butterfly, sends);
    }
    *sends = r->post.number > r->received.number;
    return *sends ? &r->prev : &r->next;
}
