/* text.c - the text that is ours to train: our lease, and what of it is here.
 *
 * The ledger of leases (p2p/round/lease.h) is in the record of the commit whose
 * state is in place. Whoever was there, or came by that commit's bytes, holds
 * the record; whoever fetched a state whole may have to ask for it, and neither
 * trains nor offers anything until it is here. A checkpoint has it beside the
 * state. From one without, or of a version with another form of COMMIT, the
 * order of the text begins anew, far behind what can have been given out,
 * unless somebody has the record.
 *
 * Training begins while data shards still come (p2p/round/text.h): a member
 * reads its lease as far as the text of it is here. It says in READY what is
 * here, and a commit takes from its lease what is not, and fills it with
 * nothing else. Who can read nothing takes part in the round of the others
 * without weight. The shard that training has reached comes first, then those
 * after it. Rounds and the way into them go first: beside them one piece at a
 * time is on its way.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/lease.h"
#include "p2p/round/text.h"
#include "proto/base/log.h"

#define ASK_MS      500  /* the record is asked for again after this */
#define PATIENCE_MS 5000 /* then nobody has it */

static void
take(struct node *n, const struct commit *c, const struct hash32 *hash)
{
    n->text.record.known = true;
    n->text.record.hash = *hash;
    n->text.record.commit = *c;
    n->text.assumed = false;
}

/* What is held is of a version without leases. A function of the round: all who
 * hold that begin at the same place. */
static void assume(struct node *n)
{
    struct round_record *r = &n->text.record;

    memset(r, 0, sizeof *r);
    r->known = n->text.assumed = true;
    r->hash = n->held.applied.commit;
    r->commit.plan.body.ledgers[0].next =
        n->held.applied.round * n->terms.lease_quota * VIEW_MEMBERS_MAX;
    out_log(n->out, LOG_WARN,
            "the checkpoint of round %llu has no record that this version "
            "reads: the order of the text begins anew",
            (unsigned long long)n->held.applied.round);
}

/* Whether that is the record of what is in place. */
static bool is_applied(const struct node *n,
                       const struct commit *c,
                       const struct hash32 *hash)
{
    const struct node_point *p = node_held_stand(&n->held);

    return c->plan.body.round == p->round && hash32_eq(hash, &p->commit) &&
           c->plan.body.n_ledgers == 1;
}

bool node_lease_known(const struct node *n)
{
    return n->terms.lease_quota == 0 ||
           (n->text.record.known &&
            hash32_eq(&n->text.record.hash,
                      &node_held_stand(&n->held)->commit));
}

const struct commit *node_record(const struct node *n)
{
    const struct round_record *r =
        n->held.applying && n->held.placed ? &n->text.before : &n->text.record;
    bool assumed = r == &n->text.record && n->text.assumed;

    if (n->terms.lease_quota == 0) {
        return n->round.has_last &&
                       hash32_eq(&n->round.last_hash, &n->held.applied.commit)
                   ? &n->round.last
                   : NULL;
    }
    return n->held.applied.round > 0 && r->known &&
                   hash32_eq(&r->hash, &n->held.applied.commit) && !assumed
               ? &r->commit
               : NULL;
}

void node_lease_restored(struct node *n, const struct local_event *e)
{
    struct commit c;
    struct hash32 hash;

    if (e->configured.n_record == 0 ||
        msg_decode(&commit_schema, e->configured.record, e->configured.n_record,
                   &c) != 0) {
        return;
    }
    message_commit_hash(&c.plan.body, &c.result, &hash);
    if (hash32_eq(&hash, &n->terms.held_commit)) {
        history_add(&n->history, &c);
    }
}

void node_lease_find(struct node *n)
{
    const struct node_point *p = node_held_stand(&n->held);
    struct commit c;
    struct hash32 hash;

    if (node_lease_known(n)) {
        return;
    }
    if (n->held.applying && n->held.placed) { /* a checkpoint may need it */
        n->text.before = n->text.record;
        n->text.before.known = n->text.before.known && !n->text.assumed;
    }
    n->text.record.known = n->text.assumed = false;
    n->text.ask_ms = 0;
    n->text.missing_ms = n->now;
    if (p->round == 0) {
        memset(&c, 0, sizeof c);
        take(n, &c, &p->commit); /* nothing was given out */
    } else if (history_get(&n->history, p->round, &c)) {
        message_commit_hash(&c.plan.body, &c.result, &hash);
        if (is_applied(n, &c, &hash)) {
            take(n, &c, &hash);
        }
    }
    node_text_look(n);
}

static bool is_missing(const struct node *n)
{
    return !node_lease_known(n) ||
           (n->terms.lease_quota > 0 && n->text.assumed);
}

/* The attempt waits for its base. */
static void begin(struct node *n)
{
    if (n->ballot.have) {
        node_next_round(n);
    }
}

void node_lease_heard(struct node *n,
                      const struct commit *c,
                      const struct hash32 *hash)
{
    if (!n->held.loaded || n->held.applying || !is_missing(n) ||
        !is_applied(n, c, hash)) {
        return;
    }
    take(n, c, hash);
    node_text_look(n);
    begin(n);
}

static bool may_know(const struct node *n, const struct member *p)
{
    return p->beat.ready && p->beat.round >= n->held.applied.round;
}

void node_lease_advance(struct node *n)
{
    struct get_commit ask = {.round = n->held.applied.round};
    int peer;

    if (!n->held.loaded || n->held.applying || !is_missing(n)) {
        return;
    }
    if (!node_lease_known(n) && n->terms.holds_state &&
        hash32_eq(&n->held.applied.commit, &n->terms.held_commit) &&
        n->now - n->text.missing_ms >= node_scaled(n, PATIENCE_MS)) {
        assume(n);
        node_text_look(n);
        begin(n);
    }
    if (n->now < n->text.ask_ms) {
        return;
    }
    peer = node_pick(n, may_know);
    if (peer != MEMBERS_NONE) {
        n->text.ask_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
}

static bool own_lease(const struct node *n, struct lease *lease)
{
    const struct view_body *v = &n->ballot.cert.body;

    return n->ballot.have && node_lease_known(n) &&
           lease_of(&n->text.record.commit.plan.body.ledgers[0],
                    n->terms.lease_quota, v, (uint32_t)n->ballot.self_index,
                    id_u64(&n->opt.self),
                    hash32_eq(&v->commit, &node_held_stand(&n->held)->commit),
                    lease);
}

void node_lease_none(struct node *n)
{
    n->text.under_way = 0;
}

void node_lease_name(struct node *n, struct job_train *train)
{
    struct lease lease;
    uint32_t at;

    n->text.under_way = 0;
    if (n->terms.lease_quota == 0 || !own_lease(n, &lease)) {
        return;
    }
    at = out_bytes(n->out, &lease, sizeof lease);
    if (at != UINT32_MAX) {
        train->lease = (struct out_span){at, sizeof lease};
        n->text.under_way = lease.ranges[0].first + 1;
    }
}

/* ---- what of it is here -------------------------------------------------- */

/* What was not given out yet; who has no ledger tells it by the tokens that the
 * others have trained, and what they may hold. */
static uint64_t next_position(const struct node *n)
{
    uint64_t tokens = 0, n_ready = 0;

    if (n->held.loaded && node_lease_known(n)) {
        return n->text.record.commit.plan.body.ledgers[0].next;
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

    return own_lease(n, &lease) &&
                   !text_has(&n->text.span, lease.ranges[0].first)
               ? lease.ranges[0].first
               : next_position(n);
}

void node_text_look(struct node *n)
{
    struct lease lease;

    if (!text_comes_later(&n->terms)) {
        memset(&n->text.span, 0, sizeof n->text.span);
        return;
    }
    if (own_lease(n, &lease)) {
        n->text.span = text_span_at(&n->terms, lease.ranges[0].first);
        if (text_has(&n->text.span, lease.ranges[0].first)) {
            return;
        }
    }
    n->text.span = text_span_at(&n->terms, next_position(n));
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
    uint64_t since_ms = n->now - n->rounds.commit_ms;
    uint64_t piece_ms = transfer_piece_ms(&n->transfer);

    if (!n->training.active && !n->training.packed && !n->round.contributed &&
        !node_quorum_offered(n)) {
        return true;
    }
    return n->text.quiet_ms == 0 || since_ms + piece_ms <= n->text.quiet_ms ||
           (piece_ms > n->text.quiet_ms && since_ms <= n->text.quiet_ms / 2);
}

void node_text_make_way(struct node *n)
{
    bool exchanges = n->round.phase == ROUND_REDUCING;
    bool shard = n->transfer.object.buffer == BUFFER_SHARD;
    bool comes_in = n->held.loaded && !n->ballot.have &&
                    n->way.paused_ms == 0 && node_sees_view(n);

    if (exchanges && !n->text.exchanges && n->rounds.commit_ms != 0) {
        n->text.quiet_ms = n->now - n->rounds.commit_ms;
    }
    n->text.exchanges = exchanges;
    if (!shard || !n->data.ready || n->data.begin.fetched ||
        !text_comes_later(&n->terms)) {
        transfer_limit(&n->transfer, TRANSFER_FLIGHTS);
    } else if (exchanges || comes_in || !has_time(n)) {
        transfer_limit(&n->transfer, 0);
    } else {
        transfer_limit(&n->transfer, 1);
    }
}

bool node_text_waits(const struct node *n)
{
    return n->ballot.have && n->held.loaded && !n->finished &&
           !n->training.active && !n->training.packed && n->text.span.end > 0 &&
           n->text.span.first == n->text.span.end;
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
        most = readable(&lease, &n->text.span);
    } else if (n->text.span.end == 0) {
        return true; /* in an order of its own */
    }
    if (most == 0) {
        if (node_quorum_offered(n)) {
            round_contribute(
                &n->round,
                &(struct round_work){.first_step = n->training.first_step,
                                     .last_step = n->training.first_step},
                n->now, n->out);
        }
        return false;
    }
    *steps = most < *steps ? (uint32_t)most : *steps;
    return true;
}
