/* node_lease.c - which part of the text is ours to train (p2p/lease.h).
 *
 * The ledger is in the record of the commit whose state is in place. Whoever
 * was there, or came by that commit's bytes, holds the record; whoever fetched
 * a state whole may have to ask for it, and neither trains nor offers anything
 * until it is here. A checkpoint has it beside the state; from one without (of
 * an earlier version) the order of the text begins anew, far behind what can
 * have been given out, unless somebody has the record.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "p2p/lease.h"
#include "proto/base/log.h"

#define ASK_MS      500  /* it is asked for again after this */
#define PATIENCE_MS 5000 /* then nobody has it */

static void
take(struct node *n, const struct commit *c, const struct hash32 *hash)
{
    n->record.known = true;
    n->record.hash = *hash;
    n->record.commit = *c;
    n->record_assumed = false;
}

/* What is held is of a version without leases. A function of the round: all who
 * hold that begin at the same place. */
static void assume(struct node *n)
{
    struct round_record *r = &n->record;

    memset(r, 0, sizeof *r);
    r->known = n->record_assumed = true;
    r->hash = n->applied.commit;
    r->commit.plan.body.ledgers[0].next =
        n->applied.round * n->terms.lease_quota * VIEW_MEMBERS_MAX;
    out_log(n->out, LOG_WARN,
            "round %llu was saved without its record: the order of the text "
            "begins anew",
            (unsigned long long)n->applied.round);
}

/* Whether that is the record of what is in place. */
static bool is_applied(const struct node *n,
                       const struct commit *c,
                       const struct hash32 *hash)
{
    return c->plan.body.round == n->applied.round &&
           hash32_eq(hash, &n->applied.commit) && c->plan.body.n_ledgers == 1;
}

bool node_lease_known(const struct node *n)
{
    return n->terms.lease_quota == 0 ||
           (n->record.known && hash32_eq(&n->record.hash, &n->applied.commit));
}

const struct commit *node_record(const struct node *n)
{
    return n->terms.lease_quota > 0 && n->applied.round > 0 &&
                   node_lease_known(n) && !n->record_assumed
               ? &n->record.commit
               : NULL;
}

void node_lease_restored(struct node *n, const struct local_event *e)
{
    struct commit c;
    struct hash32 hash;

    if (e->n_bytes == 0 ||
        msg_decode(&commit_schema, e->bytes, e->n_bytes, &c) != 0) {
        return;
    }
    message_commit_hash(&c.plan.body, &c.result, &hash);
    if (hash32_eq(&hash, &n->terms.held_commit)) {
        history_add(&n->history, &c);
    }
}

void node_lease_find(struct node *n)
{
    struct commit c;
    struct hash32 hash;

    if (node_lease_known(n)) {
        return;
    }
    n->record.known = n->record_assumed = false;
    n->record_ms = 0;
    n->record_since_ms = n->now;
    if (n->applied.round == 0) {
        memset(&c, 0, sizeof c);
        take(n, &c, &n->applied.commit); /* nothing was given out */
    } else if (history_get(&n->history, n->applied.round, &c)) {
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
           (n->terms.lease_quota > 0 && n->record_assumed);
}

/* The attempt waits for its base. */
static void begin(struct node *n)
{
    if (n->ballot.have) {
        round_begin(&n->round, n->known.round + 1, &n->known.commit,
                    node_base(n), n->known.tokens, n->now, n->out);
    }
}

void node_lease_heard(struct node *n,
                      const struct commit *c,
                      const struct hash32 *hash)
{
    if (!n->loaded || n->applying || !is_missing(n) ||
        !is_applied(n, c, hash)) {
        return;
    }
    take(n, c, hash);
    node_text_look(n);
    begin(n);
}

static bool may_know(const struct node *n, const struct member *p)
{
    return p->beat.ready && p->beat.round >= n->applied.round;
}

void node_lease_advance(struct node *n)
{
    struct get_commit ask = {.round = n->applied.round};
    int peer;

    if (!n->loaded || n->applying || !is_missing(n)) {
        return;
    }
    if (!node_lease_known(n) && n->terms.holds_state &&
        hash32_eq(&n->applied.commit, &n->terms.held_commit) &&
        n->now - n->record_since_ms >=
            (uint64_t)PATIENCE_MS * n->opt.time_scale) {
        assume(n);
        node_text_look(n);
        begin(n);
    }
    if (n->now < n->record_ms) {
        return;
    }
    peer = node_pick(n, may_know);
    if (peer != MEMBERS_NONE) {
        n->record_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
}

void node_lease_name(struct node *n, struct action *a)
{
    const struct view_body *v = &n->ballot.cert.body;
    struct lease lease;
    uint32_t at;

    n->lease = 0;
    if (n->terms.lease_quota == 0 ||
        !lease_of(&n->record.commit.plan.body.ledgers[0], n->terms.lease_quota,
                  v, (uint32_t)n->ballot.self_index, id_u64(&n->opt.self),
                  hash32_eq(&v->commit, &n->applied.commit), &lease)) {
        return;
    }
    at = out_bytes(n->out, &lease, sizeof lease);
    if (at != UINT32_MAX) {
        a->bytes = at;
        a->len = sizeof lease;
        n->lease = lease.ranges[0].first + 1;
    }
}
