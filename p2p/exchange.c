/* exchange.c - see exchange.h. */
#include "p2p/exchange.h"

#include <string.h>

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
    for (uint32_t k = 0; k < p->cut.n; k++) {
        b->edges[k].peer = p->members[k].peer;
        b->edges[k].scale = p->members[k].scale;
    }
}

void exchange_init(struct exchange *x, const struct exchange_plan *plan)
{
    x->kind = plan->kind;
    x->attempt = plan->attempt;
    if (x->kind == EXCHANGE_RING) {
        init_ring(&x->ring, plan);
    } else {
        init_butterfly(&x->butterfly, plan);
    }
}

uint32_t exchange_block(enum exchange_kind kind, uint32_t codec_block)
{
    return kind == EXCHANGE_BUTTERFLY && codec_block == 1 ? EXCHANGE_SUM_BLOCK
                                                          : codec_block;
}

bool exchange_sends_to(const struct exchange_plan *plan, uint32_t rank)
{
    return plan->kind == EXCHANGE_RING ? rank == (plan->rank + 1) % plan->cut.n
                                       : rank != plan->rank;
}

void exchange_pump(struct exchange *x, struct out *out)
{
    if (x->kind == EXCHANGE_RING) {
        ring_pump(&x->ring, out);
    } else {
        butterfly_pump(&x->butterfly, out);
    }
}

int exchange_done(struct exchange *x, const struct event *event)
{
    return x->kind == EXCHANGE_RING ? ring_done(&x->ring, event)
                                    : butterfly_done(&x->butterfly, event);
}

bool exchange_finished(const struct exchange *x)
{
    return x->kind == EXCHANGE_RING ? ring_finished(&x->ring)
                                    : butterfly_finished(&x->butterfly);
}

uint64_t exchange_final(const struct exchange *x)
{
    return x->kind == EXCHANGE_RING ? ring_final(&x->ring)
                                    : butterfly_final(&x->butterfly);
}

uint64_t exchange_progress(const struct exchange *x)
{
    return x->kind == EXCHANGE_RING ? ring_progress(&x->ring)
                                    : butterfly_progress(&x->butterfly);
}

uint32_t exchange_segments(const struct exchange *x, bool sending)
{
    return x->kind == EXCHANGE_RING
               ? ring_segments(&x->ring, sending)
               : butterfly_segments(&x->butterfly, sending);
}

bool exchange_owes(const struct exchange *x,
                   const struct peer_id *peer,
                   bool *neighbour)
{
    const struct ring *r = &x->ring;

    if (x->kind == EXCHANGE_BUTTERFLY) {
        *neighbour = true;
        return butterfly_owes(&x->butterfly, peer);
    }
    *neighbour = id_eq(peer, &r->prev) || id_eq(peer, &r->next);
    return id_eq(peer, &r->prev) &&
           r->received.number < ring_segments(r, false);
}

const struct peer_id *exchange_laggard(const struct exchange *x, bool *sends)
{
    const struct ring *r = &x->ring;

    if (x->kind == EXCHANGE_BUTTERFLY) {
        return butterfly_laggard(&x->butterfly, sends);
    }
    *sends = r->post.number > r->received.number;
    return *sends ? &r->prev : &r->next;
}
