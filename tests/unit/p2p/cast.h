/* cast.h - a few members with ballots and rounds, and the messages between
 * them, in one process: for the tests of ballots and rounds.
 *
 * What the node does around the two cores is done here in its simplest form:
 * views are adopted, commits become known. Messages wait in one queue until
 * cast_run(); a test may drop, change or add some. Everything is static in
 * this header: each test is one file.
 */
#ifndef LOCO_TESTS_UNIT_P2P_CAST_H
#define LOCO_TESTS_UNIT_P2P_CAST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/ballot.h"
#include "p2p/round/round.h"
#include "p2p/swarm/members.h"
#include "proto/base/err.h"

#define CAST_MAX     8
#define CAST_QUEUE   4096
#define BALLOT_MS    2000
#define FORK_MS      30000
#define GRACE_MS     5000
#define CAST_PERIOD  5U
#define CAST_STRANGE 6   /* an actor that is no member */
#define CAST_WAITING 256 /* segments of an actor at a time */
#define CAST_EDGES   1024

struct actor {
    struct identity identity;
    struct signer signer;
    struct members members;
    void *members_memory;
    struct ballot ballot;
    struct round round;
    struct rests silence, astray;
    uint64_t known, tokens;
    struct hash32 commit, state;
    uint32_t n_saves, n_committed;
    uint64_t hash_request; /* of its last JOB_HASH */
    uint64_t cancelled;    /* attempts of rounds up to this one */
    /* What its exchange asked the shell to move or to sum, not done yet. */
    uint32_t n_waiting;
    struct event_seg_done waiting[CAST_WAITING];
    /* What its node lends to the round, the test's to fill: what is known of
     * edges (nothing), the commit whose state is in place (unknown). */
    struct bandwidth edges;
    struct bandwidth_row edge_rows[CAST_EDGES];
    struct round_record record;
    /* A state that was in place, if any: what joiners prove. */
    bool has_past;
    struct past_state past;
};

struct letter {
    int from, to;
    uint16_t type;
    size_t len;
    uint8_t *bytes;
};

struct cast {
    uint32_t n;
    uint64_t now_ms;
    struct actor *a[CAST_MAX];
    struct out *out;
    void *scratch;
    struct run_terms terms; /* of all; a change counts from cast_configure() */
    uint32_t head, tail;
    struct letter queue[CAST_QUEUE];
    bool deaf[CAST_MAX];                  /* neither sends nor receives */
    bool (*drop)(const struct letter *l); /* true: the message is lost */
};

static inline int row_of(const struct cast *c, int at, int whom)
{
    return members_find(&c->a[at]->members, &c->a[whom]->identity.id);
}

static inline struct ballot_context context(struct cast *c, int i)
{
    struct actor *a = c->a[i];
    struct ballot_context ctx = {
        .now_ms = c->now_ms,
        .out = c->out,
        .in_flight = a->round.has_plan && a->round.phase != ROUND_COMMITTED,
        .late = round_is_late(&a->round, c->now_ms),
        .coordinates = round_coordinates(&a->round),
        .may_found = !a->ballot.have,
        .past = &a->past,
        .n_past = a->has_past,
    };

    c->out->n = c->out->n_bytes = c->out->dropped = 0;
    ctx.closing.round = a->known;
    ctx.closing.tokens = a->tokens;
    ctx.closing.commit = a->commit;
    if (a->ballot.have) {
        round_closing(&a->round, &ctx.closing);
    }
    return ctx;
}

/* Segments wait until the test says that they are done: cast_move(). */
static inline void cast_wait_for(struct actor *a, const struct action *x)
{
    uint32_t kept = 0;

    if (x->type != ACTION_CANCEL) {
        assert_true(a->n_waiting < CAST_WAITING);
        a->waiting[a->n_waiting++] = (struct event_seg_done){
            .segment = x->segment, .sent = x->type == ACTION_SEND_SEG};
        return;
    }
    if (x->cancel.stream != STREAM_RING) {
        return;
    }
    a->cancelled = x->cancel.attempt;
    for (uint32_t k = 0; k < a->n_waiting; k++) {
        const struct event_seg_done *w = &a->waiting[k];
        bool gone = w->sent ? w->segment.attempt == x->cancel.attempt
                            : w->segment.attempt <= x->cancel.attempt;

        if (!gone) {
            a->waiting[kept++] = *w;
        }
    }
    a->n_waiting = kept;
}

/* What actor i asks its shell and its machine for. */
static inline void cast_shell(struct actor *a, const struct action *x)
{
    switch (x->type) {
    case ACTION_SAVE:
        a->n_saves++;
        break;
    case ACTION_SEND_SEG:
    case ACTION_POST_RECV:
    case ACTION_SUM:
    case ACTION_CANCEL:
        cast_wait_for(a, x);
        break;
    case ACTION_JOB:
        if (x->job.type == JOB_HASH) {
            a->hash_request = x->job.hash.request;
        }
        break;
    default:
        break;
    }
}

/* Post what actor i has just said; the rest is for its shell. */
static inline void mail(struct cast *c, int i)
{
    for (uint32_t k = 0; k < c->out->n; k++) {
        const struct action *a = &c->out->action[k];
        struct letter *l = &c->queue[c->tail % CAST_QUEUE];

        cast_shell(c->a[i], a);
        if (a->type != ACTION_SEND) {
            continue;
        }
        assert_true(c->tail - c->head < CAST_QUEUE);
        *l = (struct letter){.from = i,
                             .to = (int)a->send.link - 1,
                             .type = a->send.message,
                             .len = a->send.bytes.len,
                             .bytes = malloc(a->send.bytes.len + 1U)};
        assert_non_null(l->bytes);
        memcpy(l->bytes, c->out->bytes + a->send.bytes.at, a->send.bytes.len);
        c->tail++;
    }
    c->out->n = c->out->n_bytes = 0;
}

/* The oldest segment that actor i waits for, but for those with peer `but`
 * (NULL: any), is done: sent, received or summed. False: there is none. No
 * bytes are moved. */
static inline bool cast_move(struct cast *c, int i, const struct peer_id *but)
{
    struct actor *a = c->a[i];

    for (uint32_t k = 0; k < a->n_waiting; k++) {
        struct event_seg_done done = a->waiting[k];

        if (but != NULL && id_eq(&done.segment.peer, but)) {
            continue;
        }
        a->n_waiting--;
        memmove(&a->waiting[k], &a->waiting[k + 1],
                (a->n_waiting - k) * sizeof done);
        c->out->n = c->out->n_bytes = 0;
        round_seg_done(&a->round, &done, c->out);
        mail(c, i);
        return true;
    }
    return false;
}

/* What node.c does with a view or a commit just made. */
static inline void settle(struct cast *c, int i)
{
    struct actor *a = c->a[i];
    struct round *r = &a->round;

    if (round_take_commit(r)) {
        a->n_committed++;
        a->known = r->last.plan.body.round;
        a->commit = r->last_hash;
        for (uint32_t k = 0; k < r->last.plan.body.n_members; k++) {
            a->tokens += r->last.plan.body.members[k].tokens;
        }
    }
    if (ballot_take_view(&a->ballot)) {
        const struct view_body *v = &a->ballot.cert.body;

        if (r->round == v->round && round_decided(r, &v->commit)) {
            a->n_committed++;
        }
        a->known = v->round;
        a->tokens = v->tokens;
        a->commit = v->commit;
        round_begin(r, a->known + 1, &a->commit, &a->state, a->tokens,
                    c->now_ms, c->out);
        mail(c, i);
    }
    if (a->ballot.frozen) {
        round_freeze(r, c->out);
        mail(c, i);
    }
}

static inline void deliver(struct cast *c, const struct letter *l)
{
    struct actor *a = c->a[l->to];
    int peer = row_of(c, l->to, l->from);
    struct ballot_context ctx;

    assert_int_equal(
        msg_decode(message_schema(l->type), l->bytes, l->len, c->scratch), 0);
    ctx = context(c, l->to);
    switch (l->type) {
    case MESSAGE_READY:
        round_on_ready(&a->round, peer, c->scratch, c->now_ms);
        break;
    case MESSAGE_READY_OF:
        round_on_ready_of(&a->round, peer, c->scratch, c->out);
        break;
    case MESSAGE_PLAN:
        round_on_plan(&a->round, peer, c->scratch, c->now_ms, c->out);
        break;
    case MESSAGE_VOTE:
        round_on_vote(&a->round, peer, c->scratch);
        break;
    case MESSAGE_SUSPECT:
        ballot_on_suspect(&a->ballot, &ctx, peer, c->scratch);
        break;
    case MESSAGE_PREPARE:
        ballot_on_prepare(&a->ballot, &ctx, peer, c->scratch);
        break;
    case MESSAGE_PROMISE:
        ballot_on_promise(&a->ballot, &ctx, peer, c->scratch);
        break;
    case MESSAGE_ACCEPT:
        ballot_on_accept(&a->ballot, &ctx, peer, c->scratch);
        break;
    case MESSAGE_ACCEPTED:
        ballot_on_accepted(&a->ballot, &ctx, peer, c->scratch);
        break;
    case MESSAGE_VIEW:
        ballot_on_view(&a->ballot, &ctx, c->scratch);
        break;
    default:
        break;
    }
    mail(c, l->to);
    settle(c, l->to);
}

/* A joiner knows nobody of the view before and waits for the members' own word
 * (node/branch.c): here they always give it. */
static inline void confirm(struct cast *c, int i)
{
    struct ballot_context ctx = context(c, i);

    ballot_confirm(&c->a[i]->ballot, &ctx);
    mail(c, i);
    settle(c, i);
}

/* Deliver until nobody has anything to say. */
static inline void cast_run(struct cast *c)
{
    while (c->head != c->tail) {
        struct letter l = c->queue[c->head++ % CAST_QUEUE];

        if (!c->deaf[l.from] && !c->deaf[l.to] &&
            (c->drop == NULL || !c->drop(&l))) {
            deliver(c, &l);
        }
        free(l.bytes);
    }
}

static inline void cast_tick(struct cast *c, uint64_t after_ms)
{
    c->now_ms += after_ms;
    for (uint32_t i = 0; i < c->n; i++) {
        struct ballot_context ctx;

        if (c->deaf[i]) {
            continue;
        }
        c->out->n = c->out->n_bytes = 0;
        round_tick(&c->a[i]->round, c->now_ms, c->out);
        mail(c, (int)i);
        settle(c, (int)i);
        if (round_take_trouble(&c->a[i]->round) != NULL) {
            ballot_want(&c->a[i]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        }
        ctx = context(c, (int)i);
        ballot_tick(&c->a[i]->ballot, &ctx);
        mail(c, (int)i);
        settle(c, (int)i);
        cast_run(c);
    }
}

/* Ticks of 100 ms for `ms`. */
static inline void cast_wait(struct cast *c, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 100) {
        cast_tick(c, 100);
    }
}

/* Member i is gone: its links are down. */
static inline void cast_cut(struct cast *c, int i)
{
    c->deaf[i] = true;
    for (uint32_t k = 0; k < c->n; k++) {
        if ((int)k != i) {
            members_link_down(&c->a[k]->members, (uint32_t)i + 1, c->now_ms);
        }
    }
}

/* Member k notices that member i is lost. */
static inline void cast_notice(struct cast *c, int k, int i)
{
    ballot_lost(&c->a[k]->ballot, &c->a[i]->identity.id);
    ballot_want(&c->a[k]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
}

/* Member i is gone, and lost to the others. */
static inline void cast_lose(struct cast *c, int i)
{
    cast_cut(c, i);
    for (uint32_t k = 0; k < c->n; k++) {
        if ((int)k != i) {
            cast_notice(c, (int)k, i);
        }
    }
}

static inline void link_up(struct cast *c, int at, int whom)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = c->now_ms,
                      .link_up.link = (uint32_t)whom + 1,
                      .link_up.inbound = true,
                      .link_up.peer = c->a[whom]->identity.id,
                      .link_up.address = {.port = (uint16_t)(4000 + whom)}};

    memcpy(e.link_up.public_key, c->a[whom]->identity.public, 32);
    assert_true(
        members_link_up(&c->a[at]->members, &e.link_up, e.now_ms, c->out));
}

static inline void actor_open(struct cast *c, int i)
{
    struct actor *a = c->a[i];
    struct members_options mo = {
        .seed = (uint64_t)i + 1,
        .links_wanted = 8,
        .suspect_ms = 3600000, /* there are no pulses here */
    };
    struct ballot_options bo = {.ballot_ms = BALLOT_MS,
                                .fork_after_ms = FORK_MS,
                                .seed = (uint64_t)i + 1};
    struct round_options ro = {.bandwidth = &a->edges,
                               .record = &a->record,
                               .silence = &a->silence,
                               .astray = &a->astray,
                               .site = 1 + (uint32_t)i % 2, /* two sites */
                               .plan_ms = 2000,
                               .vote_ms = 3000,
                               .hop_ms = 2000};

    identity_fake(&a->identity, (uint64_t)i);
    a->signer = signer_keyed(&a->identity);
    mo.self = bo.self = ro.self = a->identity.id;
    bo.signer = ro.signer = a->signer;
    memcpy(bo.public_key, a->identity.public, 32);
    a->members_memory = malloc(members_bytes(&mo));
    assert_non_null(a->members_memory);
    members_init(&a->members, &mo, a->members_memory, c->now_ms);
    ballot_init(&a->ballot, &bo, &a->members, c->now_ms);
    bandwidth_init(&a->edges, a->edge_rows, CAST_EDGES, 0);
    round_init(&a->round, &ro, &a->members, &a->ballot);
    round_configure(&a->round, &c->terms);
}

/* The run has the terms that the test has changed. */
static inline void cast_configure(struct cast *c)
{
    for (int i = 0; i < CAST_MAX; i++) {
        round_configure(&c->a[i]->round, &c->terms);
    }
}

/* Everybody founds a view with everybody, through actor 0. */
static inline void cast_found(struct cast *c)
{
    struct ballot_context ctx = context(c, 0);
    struct ballot_founding all = {.epoch = 1, .least = c->n};
    int rows[CAST_MAX];

    for (uint32_t i = 1; i < c->n; i++) {
        rows[i - 1] = row_of(c, 0, (int)i);
    }
    ballot_found(&c->a[0]->ballot, &ctx, rows, c->n - 1, &all);
    mail(c, 0);
    settle(c, 0);
    cast_run(c);
    for (uint32_t i = 0; i < c->n; i++) {
        assert_true(c->a[i]->ballot.have);
        assert_int_equal(c->a[i]->ballot.cert.body.n_members, c->n);
    }
}

/* n members, and one linked stranger (CAST_STRANGE) that is in no view. */
static inline struct cast *cast_open(uint32_t n)
{
    struct cast *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->n = n;
    c->now_ms = 1000;
    c->terms.n_params = 64;
    c->terms.block = 4;
    c->terms.segment_elements = 8;
    c->terms.period = CAST_PERIOD;
    c->terms.grace_ms = GRACE_MS;
    c->out = calloc(1, sizeof *c->out);
    c->scratch = malloc(message_struct_max());
    assert_true(c->out != NULL && c->scratch != NULL);
    for (int i = 0; i < CAST_MAX; i++) {
        c->a[i] = calloc(1, sizeof *c->a[i]);
        assert_non_null(c->a[i]);
        actor_open(c, i);
    }
    for (int i = 0; i < CAST_MAX; i++) {
        for (int k = 0; k < CAST_MAX; k++) {
            bool in = (i < (int)n || i == CAST_STRANGE) &&
                      (k < (int)n || k == CAST_STRANGE);

            if (i != k && in) {
                link_up(c, i, k);
            }
        }
    }
    cast_found(c);
    return c;
}

static inline void cast_close(struct cast *c)
{
    while (c->head != c->tail) {
        free(c->queue[c->head++ % CAST_QUEUE].bytes);
    }
    for (int i = 0; i < CAST_MAX; i++) {
        free(c->a[i]->members_memory);
        free(c->a[i]);
    }
    free(c->out);
    free(c->scratch);
    free(c);
}

/* Hand `msg` to actor `to` as if `from` had sent it. */
static inline void
say(struct cast *c, int from, int to, enum message_type type, const void *msg)
{
    struct letter *l = &c->queue[c->tail % CAST_QUEUE];
    uint8_t *bytes = malloc(FRAME_CONTROL_MAX);
    int n;

    assert_non_null(bytes);
    n = msg_encode(message_schema((uint16_t)type), msg, bytes,
                   FRAME_CONTROL_MAX);
    assert_true(n >= 0);
    *l = (struct letter){.from = from,
                         .to = to,
                         .type = (uint16_t)type,
                         .len = (size_t)n,
                         .bytes = bytes};
    c->tail++;
    cast_run(c);
}

/* Actor behind member `index` of actor 0's view. */
static inline int actor_of(const struct cast *c, uint32_t index)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (memcmp(c->a[0]->ballot.cert.body.members[index].public_key,
                   c->a[i]->identity.public, 32) == 0) {
            return (int)i;
        }
    }
    fail_msg("no such member");
    return -1;
}

static inline void contribute(struct cast *c, int i, uint64_t tokens)
{
    c->out->n = c->out->n_bytes = 0;
    round_contribute(
        &c->a[i]->round,
        &(struct round_work){.tokens = tokens, .last_step = CAST_PERIOD},
        c->now_ms, c->out);
    mail(c, i);
}

static inline void all_contribute(struct cast *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        contribute(c, (int)i, 100 + i);
    }
    cast_run(c);
    cast_tick(c, 0);
}

/* All bytes of the exchange of actor i are there. */
static inline void exchange_ends(struct cast *c, int i)
{
    const struct round *r = &c->a[i]->round;

    assert_int_equal(r->phase, ROUND_REDUCING);
    while (cast_move(c, i, NULL)) {
    }
    assert_int_equal(r->phase, ROUND_HASHING);
}

/* The machine of actor i has hashed them: it is `h`. */
static inline void hashed(struct cast *c, int i, uint8_t h)
{
    struct hash32 hash = {.b = {h}};

    c->out->n = c->out->n_bytes = 0;
    round_hashed(&c->a[i]->round, c->a[i]->hash_request, 0, &hash, c->now_ms,
                 c->out);
    mail(c, i);
    settle(c, i);
}

static inline void reduced(struct cast *c, int i, uint8_t h)
{
    exchange_ends(c, i);
    hashed(c, i, h);
}

/* All members have the bytes of their plan and commit it; the next begins. */
static inline void finish_round(struct cast *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        reduced(c, (int)i, 9);
        cast_run(c);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        struct actor *a = c->a[i];

        assert_int_equal(a->round.phase, ROUND_COMMITTED);
        c->out->n = c->out->n_bytes = 0;
        round_contribution_clear(&a->round);
        round_begin(&a->round, a->known + 1, &a->commit, &a->state, a->tokens,
                    c->now_ms, c->out);
        mail(c, (int)i);
    }
    cast_run(c);
}

/* Actor that makes the plan of the round under way. */
static inline int coordinator(const struct cast *c)
{
    const struct round *r = &c->a[0]->round;

    return actor_of(c, view_coordinator(&c->a[0]->ballot.cert.body, r->round));
}

static inline bool lose_plans(const struct letter *l)
{
    return l->type == MESSAGE_PLAN;
}

/* Whether actor `to` follows the plan of actor `from`; others are lost. */
static inline void
try_plan(struct cast *c, int from, int to, struct plan *p, bool follows)
{
    assert_int_equal(
        message_sign(&c->a[from]->signer, &plan_body_schema, &p->body, p->sig),
        0);
    c->drop = NULL;
    say(c, from, to, MESSAGE_PLAN, p);
    c->drop = lose_plans;
    assert_int_equal(c->a[to]->round.has_plan, follows);
}

#endif
