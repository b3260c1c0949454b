/* timeline.c - what a node tells its timeline (p2p/round/timeline.h).
 *
 * Mostly by looking: after each step the round's state is compared with what
 * was noted last, so the round itself knows nothing of it. Told directly are
 * only what a later look cannot see: segments, commits, troubles and losses.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/node/internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

int node_timeline_open(struct node *n)
{
    uint32_t cap = n->opt.timeline > 0 ? n->opt.timeline : NODE_TIMELINE_MIN;

    n->timeline.memory = malloc(timeline_bytes(cap));
    if (n->timeline.memory == NULL) {
        return LOCO_ENOMEM;
    }
    timeline_init(&n->timeline.core, n->timeline.memory, cap);
    return 0;
}

const struct timeline *node_timeline(const struct node *n)
{
    return &n->timeline.core;
}

/* ---- looking ---------------------------------------------------------- */

/* After its last round a run begins none, although the round core would. */
static bool beyond_the_end(const struct node *n)
{
    return (n->terms.stop_rounds > 0 &&
            n->round.round > n->terms.stop_rounds) ||
           (n->terms.stop_tokens > 0 &&
            n->held.known.tokens >= n->terms.stop_tokens);
}

static void log_end(struct node *n, const struct timeline_attempt *a)
{
    char reason[TIMELINE_REASON_MAX];

    if (a->outcome == TIMELINE_ABORTED) {
        timeline_reason(a, reason);
        out_log(n->out, LOG_WARN, "round %llu aborted in %.1f s: %s",
                (unsigned long long)a->round,
                (double)timeline_took_ms(a, n->now) / 1000.0, reason);
    }
}

static void begin(struct node *n)
{
    bool had = timeline_running(&n->timeline.core) != NULL;

    timeline_begin(&n->timeline.core, n->round.round, n->round.epoch,
                   n->ballot.ids, n->ballot.cert.body.n_members,
                   (uint32_t)n->ballot.self_index, n->now, n->wall_s);
    if (had) {
        log_end(n, timeline_at(&n->timeline.core, 1));
    }
}

static void note_plan(struct node *n, struct timeline_attempt *a)
{
    const struct round *r = &n->round;
    const struct plan_body *p = &r->plan.body;

    a->has_plan = true;
    a->in_plan = r->in_plan;
    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].index < a->n) {
            a->member[p->members[k].index].planned = true;
            a->member[p->members[k].index].tokens = p->members[k].tokens;
            a->member[p->members[k].index].gateway = p->members[k].gateway;
        }
    }
    a->inherited = inherit_total(p);
    n->timeline.core.changes++;
    if (!r->in_plan) {
        return;
    }
    if (p->n_members > 1 && p->n_rollback == 0) {
        a->to_send = exchange_segments(&r->exchange, true);
        a->to_receive = exchange_segments(&r->exchange, false);
    }
    timeline_enter(&n->timeline.core, TIMELINE_REDUCE, n->now);
}

static const char *loss_of(const struct node *n, const struct peer_id *id)
{
    for (uint32_t i = 0; i < n->n_lost; i++) {
        if (id_eq(&n->lost[i].peer, id)) {
            return n->lost[i].reason;
        }
    }
    return "lost before";
}

/* Members that were lost before this attempt began. */
static void look_for_losses(struct node *n, struct timeline_attempt *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        struct timeline_member *m = &a->member[i];

        if ((n->ballot.lost >> i & 1) && m->lost == NULL) {
            m->lost = loss_of(n, &m->id);
            timeline_blame(&n->timeline.core, &m->id, TIMELINE_LOST,
                           TIMELINE_NO_EDGE, n->now);
        }
    }
}

static void look(struct node *n, struct timeline_attempt *a)
{
    const struct round *r = &n->round;

    if (n->ballot.lost != 0) {
        look_for_losses(n, a);
    }

    if (r->phase != ROUND_TRAINING) {
        timeline_enter(&n->timeline.core, TIMELINE_WAIT, n->now);
    }
    timeline_seen(&n->timeline.core, r->ready, r->voted, n->now);
    if (r->possible_ms != 0 && r->phase == ROUND_READY) {
        timeline_enter(&n->timeline.core, TIMELINE_PLAN, n->now);
    }
    if (r->has_plan && !a->has_plan) {
        note_plan(n, a);
    }
    if (r->in_plan && r->has_plan &&
        (r->phase == ROUND_HASHING || r->phase == ROUND_VOTED)) {
        timeline_enter(&n->timeline.core, TIMELINE_HASH, n->now);
    }
    if (r->in_plan && r->has_plan && r->phase == ROUND_VOTED) {
        timeline_enter(&n->timeline.core, TIMELINE_VOTE, n->now);
    }
}

void node_timeline_note(struct node *n)
{
    const struct round *r = &n->round;
    struct timeline_attempt *a = timeline_running(&n->timeline.core);

    if (!n->ballot.have) {
        timeline_leave(&n->timeline.core, n->now);
        if (a != NULL) {
            log_end(n, a);
        }
        return;
    }
    if (r->round == 0 || r->phase == ROUND_COMMITTED || beyond_the_end(n)) {
        return;
    }
    if (a == NULL || a->round != r->round || a->epoch != r->epoch) {
        begin(n);
        a = timeline_running(&n->timeline.core);
    }
    look(n, a);
}

/* ---- told ------------------------------------------------------------- */

/* Payload bytes of a segment: exact for whole ones, else in proportion. */
static uint64_t wire_bytes(const struct node *n, const struct segment *s)
{
    uint64_t all = n->terms.segment_elements;

    return all == 0
               ? 0
               : ((uint64_t)s->len * n->terms.segment_wire_bytes + all - 1) /
                     all;
}

void node_timeline_segment(struct node *n, const struct event_seg_done *ev)
{
    if (ev->rc == 0 && ev->segment.attempt == n->round.exchange.attempt) {
        timeline_segment(&n->timeline.core, ev->sent,
                         ev->segment.op == SEGMENT_COPY,
                         wire_bytes(n, &ev->segment), n->now);
    }
}

void node_timeline_committed(struct node *n)
{
    struct timeline_attempt *a = timeline_running(&n->timeline.core);

    if (a != NULL && a->round == n->held.known.round) {
        look(n, a);       /* what this very step brought */
        if (a->in_plan) { /* our own vote may have been the last one */
            timeline_enter(&n->timeline.core, TIMELINE_HASH, n->now);
            timeline_enter(&n->timeline.core, TIMELINE_VOTE, n->now);
        }
        timeline_commit(&n->timeline.core, n->now);
    }
}

/* What goes on between that peer and us. */
static enum timeline_edge edge_to(const struct node *n,
                                  const struct peer_id *id)
{
    const struct round *r = &n->round;
    bool neighbour;

    if (r->phase != ROUND_REDUCING || !r->in_plan ||
        r->plan.body.n_members < 2) {
        return TIMELINE_NO_EDGE;
    }
    if (exchange_owes(&r->exchange, id, &neighbour)) {
        return TIMELINE_FROM;
    }
    return neighbour ? TIMELINE_TO : TIMELINE_NO_EDGE;
}

/* The first member of the plan without a vote; NULL. */
static const struct peer_id *without_vote(const struct node *n)
{
    const struct round *r = &n->round;

    for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
        if ((r->plan_mask & ~r->voted) >> i & 1) {
            return &n->ballot.ids[i];
        }
    }
    return NULL;
}

/* Who seems to be the reason, as seen from here; NULL: nobody in particular. */
static const struct peer_id *suspect(const struct node *n,
                                     enum timeline_guilt *guilt)
{
    const struct round *r = &n->round;
    uint32_t coordinator = view_coordinator(&n->ballot.cert.body, r->round);

    if (r->broken != MEMBERS_NONE) {
        *guilt = TIMELINE_LINK_BROKE;
        return &n->members.peers[r->broken].id;
    }
    if (!r->has_plan) {
        *guilt = TIMELINE_NO_PLAN;
        return &n->ballot.ids[coordinator];
    }
    if (r->phase == ROUND_VOTED) {
        *guilt = TIMELINE_NO_VOTE;
        return without_vote(n);
    }
    if (r->phase == ROUND_REDUCING && r->plan.body.n_members > 1) {
        bool sends;
        const struct peer_id *id = exchange_laggard(&r->exchange, &sends);

        *guilt = sends ? TIMELINE_SENT_NOTHING : TIMELINE_TOOK_NOTHING;
        return id;
    }
    return NULL;
}

void node_timeline_trouble(struct node *n, const char *why)
{
    enum timeline_guilt guilt = TIMELINE_NOBODY;
    const struct peer_id *id;

    if (!n->ballot.have) {
        return;
    }
    node_timeline_note(n);
    timeline_trouble(&n->timeline.core, why);
    id = suspect(n, &guilt);
    if (id != NULL) {
        timeline_blame(&n->timeline.core, id, guilt, edge_to(n, id), n->now);
    }
}

void node_timeline_lost(struct node *n,
                        const struct peer_id *id,
                        const char *reason)
{
    struct timeline_attempt *a = timeline_running(&n->timeline.core);

    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        if (id_eq(&a->member[i].id, id)) {
            a->member[i].lost = reason;
        }
    }
    timeline_trouble(&n->timeline.core, "a member was lost");
    timeline_blame(&n->timeline.core, id, TIMELINE_LOST, edge_to(n, id),
                   n->now);
}

void node_timeline_left(struct node *n, const struct peer_id *id)
{
    timeline_trouble(&n->timeline.core, "a member left");
    timeline_blame(&n->timeline.core, id, TIMELINE_LEFT, edge_to(n, id),
                   n->now);
}
