/* node_text.c - training while data shards still come (p2p/text.h).
 *
 * A member reads its lease as far as the text of it is here. It says in READY
 * what is here, and a commit takes from its lease what is not, and fills it
 * with nothing else (p2p/lease.h). Who can read nothing takes part in the round
 * of the others without weight.
 *
 * The shard that training has reached comes first, then those after it. Rounds
 * and the way into them go first: beside them one piece at a time is on its
 * way.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "p2p/lease.h"
#include "p2p/text.h"

static bool own_lease(const struct node *n, struct lease *lease)
{
    const struct view_body *v = &n->ballot.cert.body;

    return n->ballot.have && node_lease_known(n) &&
           lease_of(&n->record.commit.plan.body.ledgers[0],
                    n->terms.lease_quota, v, (uint32_t)n->ballot.self_index,
                    id_u64(&n->opt.self),
                    hash32_eq(&v->commit, &n->applied.commit), lease);
}

/* What was not given out yet; who has no ledger tells it by the tokens that the
 * others have trained, and what they may hold. */
static uint64_t next_position(const struct node *n)
{
    uint64_t tokens = 0, n_ready = 0;

    if (n->loaded && node_lease_known(n)) {
        return n->record.commit.plan.body.ledgers[0].next;
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.ready) {
            n_ready++;
            tokens = p->beat.tokens > tokens ? p->beat.tokens : tokens;
        }
    }
    return tokens == 0 || n->terms.position_tokens == 0
               ? 0
               : tokens / n->terms.position_tokens +
                     n_ready * n->terms.lease_quota;
}

uint64_t node_text_front(const struct node *n)
{
    struct lease lease;

    return own_lease(n, &lease) && !text_has(&n->text, lease.ranges[0].first)
               ? lease.ranges[0].first
               : next_position(n);
}

void node_text_look(struct node *n)
{
    struct lease lease;

    if (!text_comes_later(&n->terms)) {
        memset(&n->text, 0, sizeof n->text);
        return;
    }
    if (own_lease(n, &lease)) {
        n->text = text_span_at(&n->terms, lease.ranges[0].first);
        if (text_has(&n->text, lease.ranges[0].first)) {
            return;
        }
    }
    n->text = text_span_at(&n->terms, next_position(n));
}

bool node_text_suffices(const struct node *n)
{
    return text_suffices(&n->terms, next_position(n));
}

/* Whether a piece that is asked for now is here before the members exchange,
 * as far as one can tell; where none can be, in the first half of that time.
 * Who can train nothing before a shard is here, while nobody offers anything,
 * need not make way: there may be no exchange without it. */
static bool has_time(const struct node *n)
{
    uint64_t since_ms = n->now - n->commit_ms;
    uint64_t piece_ms = transfer_piece_ms(&n->transfer);

    if (!n->training && !n->packed && !n->round.contributed &&
        !node_quorum_offered(n)) {
        return true;
    }
    return n->quiet_ms == 0 || since_ms + piece_ms <= n->quiet_ms ||
           (piece_ms > n->quiet_ms && since_ms <= n->quiet_ms / 2);
}

void node_text_make_way(struct node *n)
{
    bool exchanges = n->round.phase == ROUND_REDUCING;
    bool shard = n->transfer.object.buffer == BUFFER_SHARD;
    bool comes_in = n->loaded && !n->ballot.have && n->way.paused_ms == 0 &&
                    node_sees_view(n);

    if (exchanges && !n->exchanges && n->commit_ms != 0) {
        n->quiet_ms = n->now - n->commit_ms;
    }
    n->exchanges = exchanges;
    if (!shard || !n->data_ready || !text_comes_later(&n->terms)) {
        transfer_limit(&n->transfer, TRANSFER_FLIGHTS);
    } else if (exchanges || comes_in || !has_time(n)) {
        transfer_limit(&n->transfer, 0);
    } else {
        transfer_limit(&n->transfer, 1);
    }
}

bool node_text_waits(const struct node *n)
{
    return n->ballot.have && n->loaded && !n->finished && !n->training &&
           !n->packed && n->text.end > 0 && n->text.first == n->text.end;
}

/* Positions of a lease, from its front on, that can be read. */
static uint64_t readable(const struct lease *lease, const struct text_span *s)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < lease->n_ranges; i++) {
        const struct lease_range *r = &lease->ranges[i];

        if (!text_has(s, r->first)) {
            break;
        }
        if (s->end > 0 && r->n > s->end - r->first) {
            return n + s->end - r->first;
        }
        n += r->n;
    }
    return n;
}

bool node_text_allows(struct node *n, uint32_t *steps)
{
    struct lease lease;
    uint64_t most = 0;

    if (n->terms.lease_quota == 0) {
        return true;
    }
    if (n->round.contributed) {
        return false; /* without weight: until that round is over */
    }
    node_text_look(n);
    if (own_lease(n, &lease)) {
        most = readable(&lease, &n->text);
    } else if (n->text.end == 0) {
        return true; /* in an order of its own */
    }
    if (most == 0) {
        if (node_quorum_offered(n)) {
            round_contribute(&n->round,
                             &(struct round_work){.first_step = n->first_step,
                                                  .last_step = n->first_step},
                             n->now, n->out);
        }
        return false;
    }
    *steps = most < *steps ? (uint32_t)most : *steps;
    return true;
}
