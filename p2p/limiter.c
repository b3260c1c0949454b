/* limiter.c - see limiter.h. */
#include "p2p/limiter.h"

#include <assert.h>

size_t limiter_bytes(const struct limiter_options *opt)
{
    return opt->peers_max * sizeof(struct limiter_entry);
}

void limiter_init(struct limiter *l,
                  const struct limiter_options *opt,
                  void *memory)
{
    assert(opt->peers_max >= 1);
    assert(opt->burst >= 1 && opt->burst <= LIMITER_BURST_MAX);
    *l = (struct limiter){.opt = *opt, .entry = memory};
}

static struct limiter_entry *
entry_of(struct limiter *l, const struct peer_id *peer, uint64_t now_ms)
{
    struct limiter_entry *oldest = &l->entry[0];

    for (uint32_t i = 0; i < l->n; i++) {
        if (id_eq(&l->entry[i].peer, peer)) {
            return &l->entry[i];
        }
        if (l->entry[i].at_ms < oldest->at_ms) {
            oldest = &l->entry[i];
        }
    }
    if (l->n < l->opt.peers_max) {
        oldest = &l->entry[l->n++];
    }
    *oldest = (struct limiter_entry){
        .peer = *peer, .at_ms = now_ms, .thousandths = l->opt.burst * 1000};
    return oldest;
}

bool limiter_take(struct limiter *l,
                  const struct peer_id *peer,
                  uint32_t cost,
                  uint64_t now_ms)
{
    struct limiter_entry *e = entry_of(l, peer, now_ms);
    uint64_t passed_ms = now_ms > e->at_ms ? now_ms - e->at_ms : 0;
    uint64_t full = (uint64_t)l->opt.burst * 1000, have;

    /* One token a second is one thousandth a millisecond. An idle time long
     * enough to fill the bucket is cut, so the product cannot overflow. */
    passed_ms = passed_ms < full ? passed_ms : full;
    have = e->thousandths + passed_ms * l->opt.per_s;
    have = have < full ? have : full;
    e->at_ms = now_ms > e->at_ms ? now_ms : e->at_ms;
    if (have < (uint64_t)cost * 1000) {
        e->thousandths = (uint32_t)have;
        return false;
    }
    e->thousandths = (uint32_t)(have - (uint64_t)cost * 1000);
    return true;
}
