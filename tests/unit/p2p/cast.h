/* cast.h - a few members with ballots and rounds, and the messages between
 * them, in one process: for ballot_test.c and round_test.c.
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

#include "p2p/ballot.h"
#include "p2p/members.h"
#include "p2p/round.h"
#include "proto/base/err.h"

#define CAST_MAX     7
#define CAST_QUEUE   4096
#define BALLOT_MS    2000
#define FORK_MS      30000
#define GRACE_MS     5000
#define CAST_PERIOD  5U
#define CAST_STRANGE 6 /* an actor that is no member */

struct actor {
    struct identity identity;
    struct signer signer;
    struct members members;
    void *members_memory;
    struct ballot ballot;
    struct round round;
    uint64_t known, tokens;
    struct hash32 commit, state;
    uint32_t n_saves, n_segments, n_hashes, n_committed;
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
        .coordinates = round_coordinates(&a->round),
        .may_found = !a->ballot.have,
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

/* Post what actor i has just said; count the rest. */
static inline void mail(struct cast *c, int i)
{
    for (uint32_t k = 0; k < c->out->n; k++) {
        const struct action *a = &c->out->action[k];
        struct letter *l = &c->queue[c->tail % CAST_QUEUE];

        c->a[i]->n_saves += a->type == ACTION_SAVE;
        c->a[i]->n_segments +=
            a->type == ACTION_SEND_SEG || a->type == ACTION_POST_RECV;
        c->a[i]->n_hashes += a->type == ACTION_HASH;
        if (a->type != ACTION_SEND) {
            continue;
        }
        assert_true(c->tail - c->head < CAST_QUEUE);
        *l = (struct letter){.from = i,
                             .to = (int)a->link - 1,
                             .type = a->message,
                             .len = a->len,
                             .bytes = malloc(a->len + 1U)};
        assert_non_null(l->bytes);
        memcpy(l->bytes, c->out->bytes + a->bytes, a->len);
        c->tail++;
    }
    c->out->n = c->out->n_bytes = 0;
}

/* What node.c does with a view or a commit just made. */
static inline void settle(struct cast *c, int i)
{
    struct actor *a = c->a[i];
    struct round *r = &a->round;

    if (r->committed) {
        r->committed = false;
        a->n_committed++;
        a->known = r->last.plan.body.round;
        a->commit = r->last_hash;
        for (uint32_t k = 0; k < r->last.plan.body.n_members; k++) {
            a->tokens += r->last.plan.body.members[k].tokens;
        }
    }
    if (a->ballot.adopted) {
        const struct view_body *v = &a->ballot.cert.body;

        a->ballot.adopted = false;
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
    if (l->type >= MESSAGE_READY && l->type <= MESSAGE_VOTE) {
        round_recv(&a->round, peer, (enum message_type)l->type, c->scratch,
                   c->now_ms, c->out);
    } else {
        ballot_recv(&a->ballot, &ctx, peer, (enum message_type)l->type,
                    c->scratch);
    }
    mail(c, l->to);
    settle(c, l->to);
}

/* A joiner knows nobody of the view before and waits for the members' own word
 * (node_branch.c): here they always give it. */
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
        if (c->a[i]->round.want_change) {
            c->a[i]->round.want_change = false;
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

/* Member i is gone: its links are down and it is lost to the others. */
static inline void cast_lose(struct cast *c, int i)
{
    c->deaf[i] = true;
    for (uint32_t k = 0; k < c->n; k++) {
        if ((int)k != i) {
            members_link_down(&c->a[k]->members, (uint32_t)i + 1, c->now_ms);
            ballot_lost(&c->a[k]->ballot, &c->a[i]->identity.id);
            ballot_want(&c->a[k]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        }
    }
}

static inline void link_up(struct cast *c, int at, int whom)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = c->now_ms,
                      .link = (uint32_t)whom + 1,
                      .inbound = true,
                      .peer = c->a[whom]->identity.id,
                      .address = {.port = (uint16_t)(4000 + whom)}};

    memcpy(e.public_key, c->a[whom]->identity.public, 32);
    assert_true(members_link_up(&c->a[at]->members, &e, c->out));
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
    struct round_options ro = {
        .plan_ms = 2000, .vote_ms = 3000, .hop_ms = 2000};
    struct run_terms *terms = calloc(1, sizeof *terms);

    assert_non_null(terms);
    identity_fake(&a->identity, (uint64_t)i);
    a->signer = signer_keyed(&a->identity);
    mo.self = bo.self = ro.self = a->identity.id;
    bo.signer = ro.signer = a->signer;
    memcpy(bo.public_key, a->identity.public, 32);
    a->members_memory = malloc(members_bytes(&mo));
    assert_non_null(a->members_memory);
    members_init(&a->members, &mo, a->members_memory, c->now_ms);
    ballot_init(&a->ballot, &bo, &a->members, c->now_ms);
    round_init(&a->round, &ro, &a->members, &a->ballot);
    terms->n_params = 64;
    terms->block = 4;
    terms->segment_elements = 8;
    terms->period = CAST_PERIOD;
    terms->grace_ms = GRACE_MS;
    round_configure(&a->round, terms);
    free(terms);
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

#endif
