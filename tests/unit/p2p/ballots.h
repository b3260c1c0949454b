/* ballots.h - the messages of a ballot, as a member or a liar says them: for
 * ballot_test.c and ballot_lies_test.c. Everything is static in this header. */
#ifndef LOCO_TESTS_UNIT_P2P_BALLOTS_H
#define LOCO_TESTS_UNIT_P2P_BALLOTS_H

#include "p2p/round/lease.h"
#include "p2p/round/view.h"
#include "tests/unit/p2p/cast.h"

#define FORK_BALLOT (1ULL << 40)

/* The word of actor i that it asks for the view after actor 0's. */
static inline struct asker asker_of(const struct cast *c, int i)
{
    const struct ballot *b = &c->a[0]->ballot;
    struct suspect_body body = {
        .epoch = b->cert.body.epoch, .view = b->hash, .round = c->a[i]->known};
    struct asker m = {.round = body.round};

    m.member = (uint8_t)view_index(&b->cert.body, &c->a[i]->identity.id);
    assert_int_equal(
        message_sign(&c->a[i]->signer, &suspect_body_schema, &body, m.sig), 0);
    return m;
}

/* Of a ballot for which its owner asks itself. */
static inline struct prepare prepare_of(const struct cast *c, uint64_t ballot)
{
    const struct view_body *v = &c->a[0]->ballot.cert.body;
    struct prepare p = {.epoch = v->epoch,
                        .view = c->a[0]->ballot.hash,
                        .mode = VIEW_MAJORITY,
                        .urgent = true,
                        .ballot = ballot,
                        .n_shown = 1};

    p.shown[0] = asker_of(c, actor_of(c, view_ballot_owner(v, ballot)));
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

/* What actor i says in a promise, when it is in no round. */
static inline struct statement says(const struct cast *c, int i)
{
    return (struct statement){.edges = UINT64_MAX,
                              .round = c->a[i]->known,
                              .tokens = c->a[i]->tokens,
                              .commit = c->a[i]->commit,
                              .made_by = (1U << c->n) - 1};
}

/* What all say after one more round with so many tokens: it tells a view from
 * any other. */
static inline struct statement says_after(const struct cast *c, uint64_t tokens)
{
    struct statement s = says(c, 0);

    s.round++;
    s.tokens = tokens;
    s.commit.b[0] ^= 0x77;
    return s;
}

static inline void sign_promise(const struct cast *c,
                                int i,
                                const struct prepare *p,
                                struct promised *m)
{
    struct promise_body body = {.epoch = p->epoch,
                                .view = p->view,
                                .mode = p->mode,
                                .ballot = p->ballot,
                                .said = m->said};

    assert_int_equal(
        message_sign(&c->a[i]->signer, &promise_body_schema, &body, m->sig), 0);
}

/* Promises of the actors in `who` (bits), each `said` (NULL: says()). */
static inline uint32_t promises_of(const struct cast *c,
                                   const struct prepare *p,
                                   uint32_t who,
                                   const struct statement *said,
                                   struct promised *out)
{
    uint32_t n = 0;

    for (uint32_t at = 0; at < c->n; at++) {
        int i = actor_of(c, at);

        if (who >> i & 1) {
            out[n].member = (uint8_t)at;
            out[n].said = said == NULL ? says(c, i) : *said;
            sign_promise(c, i, p, &out[n++]);
        }
    }
    return n;
}

/* The owner's own signature under what it proposes. */
static inline void sign_accept(const struct cast *c, struct accept *a)
{
    const struct view_body *v = &c->a[0]->ballot.cert.body;
    struct ballot_body body = {.ballot = a->ballot};
    int owner = actor_of(c, view_ballot_owner(v, a->ballot));

    view_hash(&a->of.proposal.value, &body.view);
    assert_int_equal(message_sign(&c->a[owner]->signer, &ballot_body_schema,
                                  &body, a->of.sig),
                     0);
}

/* What those in `who` (bits) make of a ballot when all say the same (NULL: what
 * they know): the view that they make without the others. */
static inline void accept_by(const struct cast *c,
                             uint64_t ballot,
                             uint32_t who,
                             const struct statement *said,
                             struct accept *a)
{
    const struct view_body *old = &c->a[0]->ballot.cert.body;
    struct prepare p = prepare_of(c, ballot);
    struct statement first = said == NULL ? says(c, 0) : *said;
    struct view_body *v = &a->of.proposal.value;

    memset(a, 0, sizeof *a);
    a->epoch = p.epoch;
    a->view = p.view;
    a->mode = VIEW_MAJORITY;
    a->ballot = a->of.proposal.ballot = ballot;
    *v = *old;
    v->mode = VIEW_MAJORITY;
    v->epoch = p.epoch + 1;
    v->prev = p.view;
    v->round = first.round;
    v->tokens = first.tokens;
    v->commit = first.commit;
    v->n_members = 0;
    memset(v->members, 0, sizeof v->members);
    for (uint32_t at = 0; at < c->n; at++) {
        if (who >> actor_of(c, at) & 1) {
            v->members[v->n_members++] = old->members[at];
        }
    }
    lease_slots(old, v);
    a->of.proposal.n_promises =
        promises_of(c, &p, who, said, a->of.proposal.promises);
    sign_accept(c, a);
}

static inline struct accept *accept_of(const struct cast *c, uint64_t ballot)
{
    struct accept *a = calloc(1, sizeof *a);

    assert_non_null(a);
    accept_by(c, ballot, (1U << c->n) - 1, NULL, a);
    return a;
}

/* What actor 0 makes of promises, as the proposer of a ballot of its own, to
 * which somebody's SUSPECT brings it when it is its turn. `closing`: its own
 * statement; NULL: of the round that it is in. */
static inline void proposes(struct cast *c,
                            const struct statement *closing,
                            uint64_t *ballot,
                            struct prepare *p)
{
    struct ballot *b = &c->a[0]->ballot;
    struct suspect s = {.epoch = b->cert.body.epoch,
                        .view = b->hash,
                        .ballot = ballot_of(c, 0, 1),
                        .by = asker_of(c, 1)};

    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    while (b->phase != BALLOT_GATHER || b->current == 0) {
        struct ballot_context ctx = context(c, 0);

        if (closing != NULL) {
            ctx.closing = *closing;
        }
        ballot_tick(b, &ctx);
        c->out->n = 0; /* its PREPAREs: the test answers itself */
        c->now_ms += b->phase == BALLOT_GATHER && b->current > 0 ? 0 : 100;
    }
    *ballot = b->current;
    *p = prepare_of(c, *ballot);
}

static inline struct promise
promise_of(struct cast *c, int i, const struct prepare *p)
{
    struct promise m = {.body = {.epoch = p->epoch,
                                 .view = p->view,
                                 .mode = p->mode,
                                 .ballot = p->ballot}};

    m.body.said = says(c, i);
    return m;
}

static inline void answer(struct cast *c, int i, struct promise *m)
{
    assert_int_equal(
        message_sign(&c->a[i]->signer, &promise_body_schema, &m->body, m->sig),
        0);
    say(c, i, 0, MESSAGE_PROMISE, m);
}

/* Its promise says that it accepted `a` in that ballot. */
static inline void
claims(struct promise *m, const struct accept *a, uint64_t ballot)
{
    m->body.said.has_accepted = true;
    m->body.said.accepted_ballot = ballot;
    view_hash(&a->of.proposal.value, &m->body.said.accepted_view);
    m->n_accepted = 1;
    m->accepted[0] = a->of;
}

#endif
