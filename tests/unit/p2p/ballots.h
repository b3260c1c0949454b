/* ballots.h - the messages of a ballot, as a member or a liar says them: for
 * ballot_test.c and ballot_lies_test.c. Everything is static in this header. */
#ifndef LOCO_TESTS_UNIT_P2P_BALLOTS_H
#define LOCO_TESTS_UNIT_P2P_BALLOTS_H

#include "p2p/round/view.h"
#include "tests/unit/p2p/cast.h"

#define FORK_BALLOT (1ULL << 40)

static inline struct prepare prepare_of(const struct cast *c, uint64_t ballot)
{
    struct prepare p = {.epoch = c->a[0]->ballot.cert.body.epoch,
                        .view = c->a[0]->ballot.hash,
                        .mode = VIEW_MAJORITY,
                        .urgent = true,
                        .ballot = ballot};

    return p;
}

/* A ballot at or above `from` that belongs to actor i. */
static inline uint64_t ballot_of(const struct cast *c, int i, uint64_t from)
{
    while (actor_of(c, view_ballot_owner(&c->a[0]->ballot.cert.body, from)) !=
           i) {
        from++;
    }
    return from;
}

static inline struct accept accept_of(const struct cast *c, uint64_t ballot)
{
    struct accept a = {.epoch = 1,
                       .view = c->a[0]->ballot.hash,
                       .mode = VIEW_MAJORITY,
                       .ballot = ballot,
                       .value = c->a[0]->ballot.cert.body};

    a.value.mode = VIEW_MAJORITY;
    a.value.epoch = 2;
    a.value.prev = c->a[0]->ballot.hash;
    return a;
}

/* What actor 0 makes of promises, as the proposer of a ballot of its own, to
 * which somebody's SUSPECT brings it. `closing`: its own statement; NULL: of
 * the round that it is in. */
static inline void proposes(struct cast *c,
                            const struct promise_body *closing,
                            uint64_t *ballot,
                            struct prepare *p)
{
    struct suspect s = {.ballot = ballot_of(c, 0, 1)};
    struct ballot_context ctx;

    *ballot = s.ballot;
    *p = prepare_of(c, *ballot);
    s.epoch = p->epoch;
    s.view = p->view;
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    ctx = context(c, 0);
    if (closing != NULL) {
        ctx.closing = *closing;
    }
    ballot_tick(&c->a[0]->ballot, &ctx);
    c->out->n = 0; /* its PREPAREs: the test answers itself */
    assert_int_equal(c->a[0]->ballot.phase, BALLOT_GATHER);
    assert_int_equal(c->a[0]->ballot.current, *ballot);
}

static inline struct promise
promise_of(struct cast *c, int i, const struct prepare *p)
{
    struct promise m = {.body = {.epoch = p->epoch,
                                 .view = p->view,
                                 .mode = p->mode,
                                 .ballot = p->ballot}};

    m.body.commit = c->a[i]->commit;
    return m;
}

static inline void answer(struct cast *c, int i, struct promise *m)
{
    assert_int_equal(
        message_sign(&c->a[i]->signer, &promise_body_schema, &m->body, m->sig),
        0);
    say(c, i, 0, MESSAGE_PROMISE, m);
}

#endif
