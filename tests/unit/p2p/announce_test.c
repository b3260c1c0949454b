/* announce_test.c - runs with audits: what READY and a plan announce, and who
 * stays out of a round because what it sent is something else. No bytes move
 * here. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/view.h"
#include "proto/blocks.h"

/* A view of n in the first round of a butterfly, with audits or without. */
static struct cast *begin(uint32_t n, bool audits)
{
    struct cast *c = cast_open(n);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    c->terms.audits = audits;
    cast_configure(c);
    return c;
}

static struct hash32 blocks_of(int i)
{
    return (struct hash32){.b = {7, (uint8_t)i}};
}

static const struct hash32 ends = {.b = {6}}; /* of the moments of all */

/* What actor i announces for that round. */
static struct hash32 offer_of(const struct cast *c, int i, uint64_t round)
{
    const struct hash32 blocks = blocks_of(i);
    struct hash32 offer;

    blocks_offer(&c->a[i]->identity.id, round, &blocks, &offer);
    return offer;
}

static void all_announce(struct cast *c)
{
    for (int i = 0; i < (int)c->n; i++) {
        const struct round_work work = {
            .tokens = 100,
            .last_step = CAST_PERIOD,
            .blocks = blocks_of(i),
            .ends = ends,
        };

        c->out->n = c->out->n_bytes = 0;
        round_contribute(&c->a[i]->round, &work, c->now_ms, c->out);
        mail(c, i);
    }
    cast_run(c);
    cast_tick(c, 0);
}

/* A member that does not coordinate; not `but`. */
static int other(const struct cast *c, int but)
{
    int i = 0;

    while (i == coordinator(c) || i == but) {
        i++;
    }
    return i;
}

static uint32_t rank_of(const struct cast *c, const struct plan *p, int i)
{
    uint32_t k = 0;

    while (actor_of(c, p->body.members[k].index) != i) {
        k++;
        assert_true(k < p->body.n_members);
    }
    return k;
}

/* ---- READY --------------------------------------------------------------- */

/* Says this READY of actor `from`; whether it counts. */
static bool
counts(struct cast *c, int from, int to, const struct ready_body *body)
{
    struct round *r = &c->a[to]->round;
    struct ready m = {.body = *body};
    uint32_t before = r->malformed;
    const struct ready_body *kept;

    m.body.epoch = 1;
    m.body.view = c->a[0]->ballot.hash;
    m.body.round = r->round;
    assert_int_equal(
        message_sign(&c->a[from]->signer, &ready_body_schema, &m.body, m.sig),
        0);
    say(c, from, to, MESSAGE_READY, &m);
    kept = &r->readies[view_index_key(&c->a[0]->ballot.cert.body,
                                      c->a[from]->identity.public)];
    assert_int_equal(hash32_eq(&kept->offer, &m.body.offer) &&
                         kept->n_claims == m.body.n_claims &&
                         kept->tokens == m.body.tokens,
                     r->malformed == before);
    return r->malformed == before;
}

static void a_contribution_is_announced_where_there_are_audits(void **state)
{
    (void)state;
    for (int audits = 0; audits < 2; audits++) {
        struct cast *c = begin(3, audits);
        int boss = coordinator(c), liar = other(c, -1);
        struct ready_body m = {.tokens = 7, .last_step = 5};

        assert_int_equal(counts(c, liar, boss, &m), !audits);
        m.tokens++;
        m.offer.b[31] = 1;
        assert_int_equal(counts(c, liar, boss, &m), audits);
        cast_close(c);
    }
}

/* What attempts before finished was summed under another plan. */
static void nobody_claims_what_nobody_could_repeat(void **state)
{
    (void)state;
    for (int audits = 0; audits < 2; audits++) {
        struct cast *c = begin(3, audits);
        int boss = coordinator(c), liar = other(c, -1);
        struct ready_body m = {.tokens = 7, .last_step = 5, .n_claims = 1};

        m.claims[0].upto = 8;
        m.offer.b[31] = (uint8_t)audits;
        assert_int_equal(counts(c, liar, boss, &m), !audits);
        m.n_claims = 0;
        m.tokens++;
        assert_true(counts(c, liar, boss, &m));
        cast_close(c);
    }
}

/* Who wants a state back contributes nothing. */
static void a_wish_announces_nothing(void **state)
{
    struct cast *c = begin(3, true);
    struct ready_body m = {.n_rollback = 1};
    int boss, one;

    (void)state;
    for (int round = 1; round <= 2; round++) { /* there is a past */
        all_announce(c);
        finish_round(c);
    }
    boss = coordinator(c);
    one = other(c, -1);
    assert_int_equal(c->a[boss]->round.round, 3);
    m.rollback[0].round = 1;
    m.rollback[0].state.b[0] = 9;
    m.offer.b[31] = 1;
    assert_false(counts(c, one, boss, &m));
    m.offer.b[31] = 0;
    assert_true(counts(c, one, boss, &m));
    m.n_rollback = 0; /* and no work, all the same: it is announced */
    m.tokens = 1;
    m.last_step = 5;
    assert_false(counts(c, one, boss, &m));
    cast_close(c);
}

static void ready_and_plan_repeat_what_each_announced(void **state)
{
    (void)state;
    for (int audits = 0; audits < 2; audits++) {
        struct cast *c = begin(4, audits);

        all_announce(c);
        for (int i = 0; i < 4; i++) {
            const struct round *r = &c->a[i]->round;
            const struct butterfly *b = &r->exchange.butterfly;

            assert_true(r->in_plan);
            assert_int_equal(r->exchange.kind, EXCHANGE_BUTTERFLY);
            assert_int_equal(b->proven, audits);
            for (uint32_t k = 0; k < 4; k++) {
                int who = actor_of(c, r->plan.body.members[k].index);
                struct hash32 offer = offer_of(c, who, 1);

                memset(&offer, 0, audits ? 0 : sizeof offer);
                assert_true(hash32_eq(&r->plan.body.members[k].offer, &offer));
                assert_true(hash32_eq(&b->edges[k].offer, &offer));
            }
        }
        cast_close(c);
    }
}

/* The same bytes are another offer in the next round, and in the next attempt
 * of this one they are the same. */
static void an_offer_is_of_its_round(void **state)
{
    struct cast *c = begin(3, true);
    struct hash32 first = offer_of(c, 0, 1), second = offer_of(c, 0, 2);

    (void)state;
    all_announce(c);
    assert_true(hash32_eq(&c->a[0]->round.mine.offer, &first));
    finish_round(c);
    all_announce(c);
    assert_true(hash32_eq(&c->a[0]->round.mine.offer, &second));
    assert_false(hash32_eq(&first, &second));
    ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    for (int t = 0; t < 200 && c->a[0]->round.epoch < 2; t++) {
        cast_wait(c, 100);
    }
    assert_int_equal(c->a[0]->round.mine.epoch, 2);
    assert_true(hash32_eq(&c->a[0]->round.mine.offer, &second));
    cast_close(c);
}

/* ---- plans --------------------------------------------------------------- */

/* The coordinator's plan, which nobody else has. */
static struct plan plan_of(struct cast *c)
{
    c->drop = lose_plans;
    all_announce(c);
    assert_true(c->a[coordinator(c)]->round.has_plan);
    return c->a[coordinator(c)]->round.plan;
}

static void a_plan_with_other_offers_is_refused(void **state)
{
    struct cast *c = begin(4, true);
    int boss = coordinator(c), victim = other(c, -1);
    struct plan good = plan_of(c), p = good;
    uint32_t own = rank_of(c, &good, victim);

    (void)state;
    p.body.members[own].offer.b[0] ^= 1;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].offer = good.body.members[(own + 1) % 4].offer;
    try_plan(c, boss, victim, &p, false);
    for (uint32_t k = 0; k < 4; k++) { /* who announced nothing */
        p = good;
        memset(&p.body.members[k].offer, 0, sizeof p.body.members[k].offer);
        try_plan(c, boss, victim, &p, false);
    }
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

static void without_audits_a_plan_has_no_offers(void **state)
{
    struct cast *c = begin(4, false);
    int boss = coordinator(c), victim = other(c, -1);
    struct plan good = plan_of(c), p;

    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        p = good;
        p.body.members[k].offer.b[5] = 1;
        try_plan(c, boss, victim, &p, false);
    }
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

/* A plan says that an earlier one left something, to who holds nothing of it:
 * it cannot know. */
static void with_audits_nothing_is_inherited(void **state)
{
    (void)state;
    for (int audits = 0; audits < 2; audits++) {
        struct cast *c = begin(4, audits);
        int boss = coordinator(c), victim = other(c, -1);
        struct plan good = plan_of(c), p = good;
        uint32_t own = rank_of(c, &good, victim);

        p.body.n_ranges = 1;
        p.body.ranges[0].upto = 8;
        p.body.ranges[0].plan.b[0] = 1;
        p.body.ranges[0].n_contributors = 1;
        p.body.ranges[0].contributors[0].peer = c->a[victim]->identity.id;
        p.body.ranges[0].contributors[0].tokens = 100;
        p.body.ranges[0].contributors[0].last_step = CAST_PERIOD;
        p.body.members[(own + 1) % 4].holds = 8;
        try_plan(c, boss, victim, &p, !audits);
        try_plan(c, boss, victim, &good, true);
        cast_close(c);
    }
}

static void what_a_failed_attempt_finished_is_kept_without_audits_only(void **s)
{
    (void)s;
    for (int audits = 0; audits < 2; audits++) {
        struct cast *c = begin(3, audits);
        const struct round *r = &c->a[0]->round;

        all_announce(c);
        reduced(c, 0, 9); /* one of three is too few for a commit */
        cast_run(c);
        for (int t = 0; t < 200 && r->epoch < 2; t++) {
            cast_tick(c, 100);
        }
        assert_int_equal(r->mine.epoch, 2);
        assert_int_equal(r->mine.n_claims, !audits);
        assert_int_equal(r->kept.n, !audits);
        cast_close(c);
    }
}

/* ---- what comes ---------------------------------------------------------- */

static struct segment lane_from(const struct cast *c, int to, int from)
{
    return (struct segment){.attempt = c->a[to]->round.exchange.attempt,
                            .peer = c->a[from]->identity.id,
                            .op = SEGMENT_LANE,
                            .proven = c->terms.audits};
}

static struct segment final_from(const struct cast *c, int to, int from)
{
    return (struct segment){.attempt = c->a[to]->round.exchange.attempt,
                            .peer = c->a[from]->identity.id,
                            .op = SEGMENT_COPY,
                            .seg = BUTTERFLY_FINAL,
                            .final = true};
}

/* It fails at actor i. */
static void fails(struct cast *c, int i, const struct segment *s, int rc)
{
    const struct event_seg_done done = {.segment = *s, .rc = rc};

    assert_int_equal(c->a[i]->round.phase, ROUND_REDUCING);
    c->out->n = c->out->n_bytes = 0;
    round_seg_done(&c->a[i]->round, &done, c->out);
    mail(c, i);
    assert_true(c->a[i]->round.want_change);
}

/* The next attempt is made by all but these two: nobody knows which one is to
 * blame. */
static void goes_on_without(struct cast *c, int culprit, int witness)
{
    for (int t = 0; t < 200; t++) {
        cast_wait(c, 100);
        if (c->a[0]->round.epoch > 1 && c->a[0]->round.has_plan) {
            break;
        }
    }
    cast_wait(c, 500);
    for (int i = 0; i < (int)c->n; i++) {
        const struct round *r = &c->a[i]->round;

        assert_true(r->epoch > 1 && r->has_plan);
        assert_int_equal(r->plan.body.n_members, c->n - 2);
        assert_int_equal(r->in_plan, i != culprit && i != witness);
    }
}

static void who_sends_what_it_did_not_announce_stays_out(void **state)
{
    (void)state;
    for (int culprit = 0; culprit < 5; culprit++) {
        struct cast *c = begin(5, true);
        int owner = (culprit + 1) % 5;
        const struct round *r = &c->a[owner]->round;
        struct segment s;

        all_announce(c);
        s = lane_from(c, owner, culprit);
        fails(c, owner, &s, LOCO_EHASH);
        assert_true(r->has_rejected);
        assert_true(id_eq(&r->rejected, &c->a[culprit]->identity.id));
        goes_on_without(c, culprit, owner);
        cast_close(c);
    }
}

/* All would vote for it, and nobody could apply it. */
static void who_sends_a_sum_that_is_no_numbers_stays_out(void **state)
{
    const int codes[] = {LOCO_ENUMERIC, LOCO_EPROTO};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct cast *c = begin(5, k == 0);
        int culprit = other(c, -1), one = other(c, culprit);
        const struct round *r = &c->a[one]->round;
        struct segment s;

        all_announce(c);
        s = final_from(c, one, culprit);
        fails(c, one, &s, codes[k]);
        assert_true(r->has_rejected);
        assert_true(id_eq(&r->rejected, &c->a[culprit]->identity.id));
        goes_on_without(c, culprit, one);
        cast_close(c);
    }
}

static void lines_that_break_are_nobodys_lie(void **state)
{
    struct cast *c = begin(4, true);
    int one = other(c, -1);
    struct segment s;

    (void)state;
    all_announce(c);
    s = lane_from(c, one, other(c, one));
    fails(c, one, &s, LOCO_ECLOSED);
    assert_false(c->a[one]->round.has_rejected);
    assert_int_equal(c->a[one]->round.n_broken, 1);
    s = final_from(c, one, other(c, one));
    fails(c, one, &s, LOCO_ECLOSED);
    assert_false(c->a[one]->round.has_rejected);
    assert_int_equal(c->a[one]->round.n_broken, 2);
    cast_close(c);
}

/* The last partial sum of a ring becomes the result here, by our own addition.
 * Whoever sent it has added to what others gave it. */
static void a_ring_whose_sum_is_no_number_blames_no_neighbour(void **state)
{
    const int codes[] = {LOCO_ENUMERIC, LOCO_EPROTO};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct cast *c = cast_open(4);
        struct round *r = &c->a[0]->round;
        struct segment s = {.op = SEGMENT_ADD, .final = true};

        all_contribute(c);
        assert_int_equal(r->exchange.kind, EXCHANGE_RING);
        s.attempt = r->exchange.attempt;
        s.peer = r->exchange.ring.prev;
        fails(c, 0, &s, codes[k]);
        assert_false(r->has_rejected);
        cast_close(c);
    }
}

/* ---- audits of work ------------------------------------------------------ */

static struct cast *begin_work(uint32_t n)
{
    struct cast *c = cast_open(n);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    c->terms.audits = c->terms.audits_work = true;
    cast_configure(c);
    return c;
}

static struct moments moments_of(int i)
{
    return (struct moments){.root = {.b = {8, (uint8_t)i}}, .steps = 5};
}

/* Each is to begin its lease with these, from the state that is in place. */
static void all_begin(struct cast *c)
{
    for (int i = 0; i < (int)c->n; i++) {
        const struct moments m = moments_of(i);

        round_moments(&c->a[i]->round, &m, &c->a[i]->round.state);
    }
}

static void a_plan_has_the_moments_of_each(void **state)
{
    struct cast *c = begin_work(4);
    int boss = coordinator(c), victim = other(c, -1);
    struct plan good, p;
    struct hash32 end;
    uint32_t own;

    (void)state;
    all_begin(c);
    good = p = plan_of(c);
    own = rank_of(c, &good, victim);
    for (uint32_t k = 0; k < 4; k++) {
        const struct plan_member *m = &good.body.members[k];
        const struct moments want = moments_of(actor_of(c, m->index));

        assert_int_equal(m->n_moments, 1);
        assert_true(hash32_eq(&m->moments[0].root, &want.root));
        assert_int_equal(m->moments[0].steps, want.steps);
        blocks_offer(&c->a[actor_of(c, m->index)]->identity.id, 0, &ends, &end);
        assert_true(hash32_eq(&m->moments[0].ends, &end));
    }
    p.body.members[own].moments[0].ends.b[0] ^= 1;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].moments[0].root.b[0] ^= 1; /* others would have both */
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].moments[0].steps++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].n_moments = 0;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[(own + 1) % 4].tokens = 0; /* moments of no work */
    try_plan(c, boss, victim, &p, false);
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

/* Work that stays open began before the state that the next round has, and a
 * lease that was begun anew did not begin with what was announced. */
static void moments_are_of_the_state_that_work_began_from(void **state)
{
    struct cast *c = begin_work(3);
    struct round *r = &c->a[0]->round;
    struct round_work work = {
        .tokens = 100,
        .last_step = CAST_PERIOD,
        .ends = ends,
        .begun_anew = true,
    };
    const struct moments m = moments_of(0);
    struct hash32 elsewhere = {.b = {1, 2, 3}};

    (void)state;
    all_begin(c);
    for (int k = 0; k < 5; k++) {
        bool names = k == 1;

        if (k == 2) {
            round_moments(r, &m, &elsewhere);
        } else if (k == 3) { /* the lease under way goes on */
            round_moments(r, &m, &r->state);
            round_moments(r, NULL, NULL);
        } else if (k == 4) { /* nobody knows what it ended with */
            round_moments(r, &m, &r->state);
            work.ends = (struct hash32){{0}};
        }
        c->out->n = c->out->n_bytes = 0;
        round_contribute(r, &work, c->now_ms, c->out);
        assert_int_equal(r->mine.n_moments, names);
        assert_true(hash32_is_zero(&r->mine.moments[0].root) == !names);
        round_retract(r);
        work.begun_anew = false;
    }
    cast_close(c);
}

static void moments_are_for_runs_that_audit_work(void **state)
{
    struct ready_body m = {
        .tokens = 7, .last_step = 5, .n_moments = 1, .offer = {.b = {1}}};

    (void)state;
    for (int work = 0; work < 2; work++) {
        struct cast *c = work ? begin_work(3) : begin(3, true);
        int boss = coordinator(c), liar = other(c, -1);

        m.tokens = 7;
        assert_int_equal(counts(c, liar, boss, &m), work);
        m.tokens = 0; /* of no work */
        assert_false(counts(c, liar, boss, &m));
        cast_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_contribution_is_announced_where_there_are_audits),
        cmocka_unit_test(nobody_claims_what_nobody_could_repeat),
        cmocka_unit_test(a_wish_announces_nothing),
        cmocka_unit_test(ready_and_plan_repeat_what_each_announced),
        cmocka_unit_test(an_offer_is_of_its_round),
        cmocka_unit_test(a_plan_with_other_offers_is_refused),
        cmocka_unit_test(without_audits_a_plan_has_no_offers),
        cmocka_unit_test(with_audits_nothing_is_inherited),
        cmocka_unit_test(
            what_a_failed_attempt_finished_is_kept_without_audits_only),
        cmocka_unit_test(who_sends_what_it_did_not_announce_stays_out),
        cmocka_unit_test(who_sends_a_sum_that_is_no_numbers_stays_out),
        cmocka_unit_test(lines_that_break_are_nobodys_lie),
        cmocka_unit_test(a_ring_whose_sum_is_no_number_blames_no_neighbour),
        cmocka_unit_test(a_plan_has_the_moments_of_each),
        cmocka_unit_test(moments_are_of_the_state_that_work_began_from),
        cmocka_unit_test(moments_are_for_runs_that_audit_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
