/* round_test.c - plans, votes and the commit, among a few members. No bytes
 * move here: a test says which segments of an exchange are done. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/view.h"

/* A view of n, and everybody's round 1 begun. */
static struct cast *begin(uint32_t n)
{
    return cast_open(n); /* settle() begins the round with the view */
}

/* An actor that is not `a`, nor `b`. */
static int other_than(int a, int b)
{
    for (int i = 0; i < 4; i++) {
        if (i != a && i != b) {
            return i;
        }
    }
    return -1;
}

static bool all_planned(const struct cast *c, uint64_t epoch)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->a[i]->round.epoch < epoch || !c->a[i]->round.has_plan) {
            return false;
        }
    }
    return true;
}

/* Until everybody has a plan in that epoch; no longer: an exchange that stands
 * still ends the next attempt, too. */
static void until_planned(struct cast *c, uint64_t epoch)
{
    for (int t = 0; t < 200 && !all_planned(c, epoch); t++) {
        cast_wait(c, 100);
    }
    assert_true(all_planned(c, epoch));
}

/* Until actor i is in the view of that epoch. */
static void until_view(struct cast *c, int i, uint64_t epoch)
{
    for (int t = 0; t < 200 && c->a[i]->round.epoch < epoch; t++) {
        cast_tick(c, 100);
    }
    assert_true(c->a[i]->round.epoch >= epoch);
}

/* The segments between actor i and that peer fail: so often. */
static void
connection_fails(struct cast *c, int i, const struct peer_id *peer, int times)
{
    struct round *r = &c->a[i]->round;
    struct event_seg_done failed = {
        .segment = {.attempt = c->a[i]->waiting[0].segment.attempt,
                    .peer = *peer},
        .sent = true,
        .rc = LOCO_EPROTO,
    };

    for (int t = 0; t < times; t++) {
        c->out->n = c->out->n_bytes = 0;
        round_seg_done(r, &failed, c->out);
        mail(c, i);
    }
}

static void a_round_commits_when_every_member_of_the_plan_voted(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 6; n++) {
        struct cast *c = begin(n);

        all_contribute(c);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(c->a[i]->round.has_plan);
            assert_int_equal(c->a[i]->round.plan.body.n_members, n);
            assert_true(hash32_eq(&c->a[i]->round.plan_hash,
                                  &c->a[0]->round.plan_hash));
        }
        for (uint32_t i = 0; i + 1 < n; i++) {
            reduced(c, (int)i, 9);
            cast_run(c);
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(c->a[i]->n_committed, 0); /* one is missing */
            assert_false(c->a[i]->round.overdue);      /* but not late */
        }
        reduced(c, (int)n - 1, 9);
        cast_run(c);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(c->a[i]->n_committed, 1);
            assert_true(hash32_eq(&c->a[i]->commit, &c->a[0]->commit));
            assert_true(
                round_commit_valid(&c->a[i]->round, &c->a[0]->round.last));
        }
        cast_close(c);
    }
}

static void different_results_commit_nowhere(void **state)
{
    struct cast *c = begin(3);

    (void)state;
    all_contribute(c);
    for (int i = 0; i < 3; i++) {
        reduced(c, i, i == 1 ? 8 : 9);
    }
    cast_run(c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c->a[i]->n_committed, 0);
        assert_true(c->a[i]->round.want_change);
    }
    cast_close(c);
}

static void a_late_member_is_left_out_after_grace_and_bound(void **state)
{
    struct cast *c = begin(4);
    int late = other_than(coordinator(c), -1);

    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i != late) {
            contribute(c, i, 100);
        }
    }
    cast_run(c);
    cast_tick(c, 0);
    cast_tick(c, GRACE_MS - 1);
    assert_false(c->a[late]->round.has_plan);
    cast_tick(c, 1);
    cast_tick(c, 0);
    assert_true(c->a[late]->round.has_plan);
    assert_false(c->a[late]->round.in_plan);
    assert_int_equal(c->a[late]->round.plan.body.n_members, 3);
    contribute(c, late, 100); /* too late for this one */
    cast_run(c);
    for (int i = 0; i < 4; i++) {
        if (i != late) {
            reduced(c, i, 9);
        }
    }
    cast_run(c);
    assert_int_equal(c->a[late]->n_committed, 1);
    assert_true(hash32_eq(&c->a[late]->commit, &c->a[coordinator(c)]->commit));
    assert_true(c->a[late]->round.contributed); /* it enters the next one */
    cast_close(c);
}

static void half_of_a_view_makes_no_plan(void **state)
{
    struct cast *c = begin(4);
    int boss = coordinator(c);

    (void)state;
    contribute(c, boss, 100);
    cast_run(c);
    cast_wait(c, 2 * GRACE_MS);
    for (int i = 0; i < 4; i++) {
        assert_false(c->a[i]->round.has_plan);
    }
    cast_close(c);
}

static void a_round_of_no_weight_is_not_started(void **state)
{
    struct cast *c = begin(3);

    (void)state;
    for (int i = 0; i < 3; i++) {
        contribute(c, i, 0);
    }
    cast_run(c);
    cast_tick(c, 0);
    cast_tick(c, GRACE_MS);
    assert_false(c->a[0]->round.has_plan);
    cast_close(c);
}

/* The coordinator's plan as it would be, not sent yet. */
static struct plan plan_of(struct cast *c)
{
    int boss = coordinator(c);
    struct plan p;

    all_contribute(c);
    p = c->a[boss]->round.plan;
    assert_true(c->a[boss]->round.has_plan);
    return p;
}

static bool lose_all(const struct letter *l)
{
    (void)l;
    return true;
}

static void wrong_plans_are_ignored(void **state)
{
    struct cast *c = begin(4);
    int boss = coordinator(c), victim = other_than(boss, -1);
    int liar = other_than(boss, victim);
    struct plan good, p;
    uint32_t own = 0;

    (void)state;
    c->drop = lose_plans;
    good = plan_of(c);
    assert_false(c->a[victim]->round.has_plan);
    while (actor_of(c, good.body.members[own].index) != victim) {
        own++;
    }
    p = good;
    try_plan(c, liar, victim, &p, false); /* not the coordinator */
    p.body.members[own].tokens++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].first_step++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.n_members = 2; /* half of the view, or less */
    p.body.members[0] = good.body.members[(own + 1) % 4];
    p.body.members[1] = good.body.members[(own + 1) % 4];
    try_plan(c, boss, victim, &p, false);
    p.body.n_members = 1;
    try_plan(c, boss, victim, &p, false);
    p.body.n_members = 0;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[(own + 1) % 4].index = 63;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[(own + 1) % 4].tokens = ROUND_TOKENS_MAX + 1;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.epoch++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.round++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.base.b[0] ^= 1;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.tokens_before = 1ULL << 63;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.n_ledgers = 1; /* where there are no leases */
    try_plan(c, boss, victim, &p, false);
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

/* Everybody has the record of the commit that the round builds on, and offers
 * what it read of its slot. */
static void lease(struct cast *c)
{
    c->terms.lease_quota = CAST_PERIOD;
    cast_configure(c);
    for (uint32_t i = 0; i < c->n; i++) {
        struct round *r = &c->a[i]->round;
        const struct view_body *v = &r->ballot->cert.body;

        c->a[i]->record.known = true;
        c->a[i]->record.hash = r->base;
        c->out->n = c->out->n_bytes = 0;
        round_contribute(
            r,
            &(struct round_work){
                .tokens = 100,
                .last_step = CAST_PERIOD,
                .lease = 1 + CAST_PERIOD *
                                 (v->members[r->ballot->self_index].slot - 1U)},
            c->now_ms, c->out);
        mail(c, (int)i);
    }
    cast_run(c);
    cast_tick(c, 0);
}

static void a_plan_says_who_reads_what_after_it(void **state)
{
    struct cast *c = begin(3);
    int boss = coordinator(c), victim = other_than(boss, -1);
    struct round_record *record = &c->a[victim]->record;
    struct plan good, p;
    uint32_t own = 0;

    (void)state;
    c->drop = lose_plans;
    lease(c);
    assert_true(c->a[boss]->round.has_plan);
    good = c->a[boss]->round.plan;
    assert_int_equal(good.body.n_ledgers, 1);
    assert_int_equal(good.body.ledgers[0].next, 6 * CAST_PERIOD);
    assert_int_equal(good.body.ledgers[0].n_held, 3);
    while (actor_of(c, good.body.members[own].index) != victim) {
        own++;
    }
    p = good;
    p.body.ledgers[0].held[1].ranges[0].first++;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.n_ledgers = 0;
    try_plan(c, boss, victim, &p, false);
    p = good;
    p.body.members[own].lease += CAST_PERIOD; /* that of another one */
    try_plan(c, boss, victim, &p, false);
    record->known = false; /* nor can it be checked without the record */
    try_plan(c, boss, victim, &good, false);
    record->known = true;
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

static void there_is_one_plan_in_an_attempt(void **state)
{
    struct cast *c = begin(4);
    int boss = coordinator(c), victim = other_than(boss, -1);
    struct plan good, second;
    struct hash32 hash;

    (void)state;
    c->drop = lose_plans;
    good = plan_of(c);
    try_plan(c, boss, victim, &good, true);
    hash = c->a[victim]->round.plan_hash;
    second = good;
    second.body.members[0] = good.body.members[3];
    second.body.members[3] = good.body.members[0];
    try_plan(c, boss, victim, &second, true);
    assert_true(hash32_eq(&hash, &c->a[victim]->round.plan_hash));
    cast_close(c);
}

/* A frame of an attempt that we saw nothing of waits unposted at the head of a
 * data connection and holds up all behind it, until a CANCEL covers it. */
static void a_new_attempt_cancels_all_earlier_ones_unseen_ones_too(void **state)
{
    struct cast *c = begin(3);
    const struct actor *a = c->a[1];

    (void)state;
    assert_false(a->round.has_plan);
    ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    until_view(c, 1, 2);
    assert_true(a->cancelled >= (1ULL << 32 | 1)); /* epoch 1, round 1 */
    assert_true(a->cancelled < (2ULL << 32 | 1));  /* and not the new one */
    cast_close(c);
}

static uint32_t n_sending(const struct actor *a)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < a->n_waiting; k++) {
        n += a->waiting[k].sent;
    }
    return n;
}

/* The others committed this round and the next one without us. A CANCEL of all
 * earlier attempts ends what is to be received of them; our own sends end by
 * one that names their attempt. */
static void who_hears_that_the_round_is_over_stops_sending(void **state)
{
    struct cast *c = begin(3);
    struct actor *a = c->a[1];
    const struct hash32 commit = {{7}};

    (void)state;
    all_contribute(c);
    assert_int_equal(a->round.phase, ROUND_REDUCING);
    assert_true(n_sending(a) > 0);
    c->out->n = c->out->n_bytes = 0;
    round_begin(&a->round, 3, &commit, &a->state, 606, c->now_ms, c->out);
    mail(c, 1);
    assert_int_equal(a->n_waiting, 0);
    assert_int_equal(a->round.n_aborted, 0); /* it did not fail */
    cast_close(c);
}

static bool lose_promises(const struct letter *l)
{
    return l->type == MESSAGE_PROMISE;
}

static void who_promises_to_end_an_attempt_stops_sending(void **state)
{
    struct cast *c = begin(3);
    const struct actor *a = c->a[1];

    (void)state;
    all_contribute(c);
    assert_true(n_sending(a) > 0);
    c->drop = lose_promises;
    ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    for (int t = 0; t < 200 && !a->round.frozen; t++) {
        cast_tick(c, 100);
    }
    assert_true(a->round.frozen);
    assert_int_equal(n_sending(a), 0);
    cast_close(c);
}

/* Who hears the last vote first is ready first. Dropped, its READY would cost
 * the next round the time until it is repeated. */
static void a_ready_before_our_own_commit_is_kept(void **state)
{
    struct cast *c = begin(3);
    int boss, fast;

    (void)state;
    all_contribute(c);
    for (int i = 0; i < 3; i++) {
        reduced(c, i, 9);
    }
    boss = actor_of(c, view_coordinator(&c->a[0]->ballot.cert.body, 2));
    fast = other_than(boss, -1) % 3;
    {
        struct ready m = {.body = c->a[fast]->round.readies[0]};

        m.body.round = 2;
        m.body.epoch = c->a[boss]->round.epoch;
        m.body.view = c->a[boss]->ballot.hash;
        m.body.tokens = 77;
        assert_int_equal(c->a[boss]->round.round, 1); /* no commit there yet */
        assert_int_equal(message_sign(&c->a[fast]->signer, &ready_body_schema,
                                      &m.body, m.sig),
                         0);
        say(c, fast, boss, MESSAGE_READY, &m);
        assert_false(c->a[boss]->round.committed);
        cast_run(c);
        assert_int_equal(c->a[boss]->n_committed, 1);
        c->out->n = 0;
        round_begin(&c->a[boss]->round, 2, &c->a[boss]->commit, NULL, 0,
                    c->now_ms, c->out);
        for (uint32_t k = 0; k < 3; k++) {
            bool is = actor_of(c, k) == fast;

            assert_int_equal(c->a[boss]->round.ready >> k & 1, is);
            assert_true(!is || c->a[boss]->round.readies[k].tokens == 77);
        }
    }
    cast_close(c);
}

/* What the READY of actor i claims after the attempt that fails now. */
static uint32_t claims_after(struct cast *c, int i)
{
    const struct round *r = &c->a[i]->round;

    until_view(c, i, 2);
    assert_int_equal(r->mine.epoch, 2);
    return r->mine.n_claims;
}

/* Inherited, they would differ again, and again. */
static void bytes_that_were_voted_on_differently_are_not_kept(void **state)
{
    (void)state;
    for (int alike = 0; alike < 2; alike++) {
        struct cast *c = begin(5);

        all_contribute(c);
        for (int i = 0; i < (alike ? 2 : 5); i++) {
            reduced(c, i, (uint8_t)(alike ? 9 : 6 + i / 2));
        }
        cast_run(c);
        for (int i = 0; i < (alike ? 2 : 5); i++) {
            assert_int_equal(claims_after(c, i), alike);
        }
        cast_close(c);
    }
}

/* They are gone in the middle of the exchange, or while they are hashed. */
static void without_its_bytes_nobody_votes_or_claims_them(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        struct cast *c = begin(3);
        struct round *r = &c->a[1]->round;
        uint64_t attempt;

        all_contribute(c);
        attempt = r->exchange.attempt;
        assert_int_equal(r->phase, ROUND_REDUCING);
        while (exchange_final(&r->exchange) == 0) { /* something to claim */
            assert_true(cast_move(c, 1, NULL));
        }
        round_disinherited(r, attempt - 1, c->out); /* of another one */
        assert_int_equal(r->phase, ROUND_REDUCING);
        if (whole) {
            exchange_ends(c, 1);
        }
        c->out->n = 0;
        round_disinherited(r, attempt, c->out);
        mail(c, 1);
        assert_true(r->want_change);
        c->a[1]->hash_request = attempt;
        hashed(c, 1, 9);
        assert_int_not_equal(r->phase, ROUND_VOTED);
        assert_int_equal(claims_after(c, 1), 0);
        cast_close(c);
    }
}

/* ---- the butterfly ---------------------------------------------------- */

static struct cast *begin_butterfly(uint32_t n)
{
    struct cast *c = begin(n);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    cast_configure(c);
    return c;
}

/* The actor knows this rate between two members. */
static void
know(struct cast *c, int i, uint32_t from, uint32_t to, uint64_t rate)
{
    const struct peer_id *ids = c->a[i]->ballot.ids;

    bandwidth_told(&c->a[i]->edges, &ids[from], &ids[to], rate,
                   BANDWIDTH_CONFIDENCE, c->now_ms);
}

static void a_butterfly_plan_shares_the_vector_by_rate(void **state)
{
    struct cast *c = begin_butterfly(4);
    int boss = coordinator(c);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            know(c, boss, i, k, i == 2 ? 1000 : 4000);
        }
    }
    all_contribute(c);
    for (uint32_t i = 0; i < 4; i++) {
        const struct round *r = &c->a[i]->round;

        assert_true(r->in_plan);
        assert_int_equal(r->exchange.kind, EXCHANGE_BUTTERFLY);
        for (uint32_t k = 0; k < 4; k++) {
            const struct plan_member *m = &r->plan.body.members[k];

            assert_true(m->index == 2 ? m->share == 0 : m->share > 20000);
        }
    }
    cast_close(c);
}

/* Whether the plan's ring sends from one of these indices to the other. */
static bool ring_has(const struct round *r, uint32_t from, uint32_t to)
{
    const struct plan_body *p = &r->plan.body;

    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].index == from &&
            p->members[(k + 1) % p->n_members].index == to) {
            return true;
        }
    }
    return false;
}

static void a_ring_keeps_its_order_until_another_is_clearly_faster(void **state)
{
    struct cast *c = begin(5);
    uint8_t order[5];
    uint32_t from, to;

    (void)state;
    all_contribute(c);
    for (uint32_t k = 0; k < 5; k++) {
        order[k] = c->a[0]->round.plan.body.members[k].index;
    }
    from = order[1];
    to = order[2];
    finish_round(c);
    /* Nothing is known: the same ring, whoever coordinates. */
    all_contribute(c);
    for (uint32_t k = 0; k < 5; k++) {
        assert_true(ring_has(&c->a[0]->round, order[k], order[(k + 1) % 5]));
    }
    finish_round(c);
    for (int slower = 0; slower < 2; slower++) {
        uint64_t slow = slower ? 40 : 90;
        struct actor *boss = c->a[coordinator(c)];

        for (uint32_t i = 0; i < 5; i++) {
            for (uint32_t k = 0; k < 5; k++) {
                know(c, coordinator(c), i, k,
                     i == from && k == to ? slow : 100);
            }
        }
        all_contribute(c);
        assert_true(ring_has(&c->a[0]->round, from, to) != slower);
        finish_round(c);
        bandwidth_init(&boss->edges, boss->edge_rows, CAST_EDGES, 0);
    }
    /* The faster order is the one that is kept now. */
    all_contribute(c);
    assert_false(ring_has(&c->a[0]->round, from, to));
    cast_close(c);
}

static void after_a_plan_that_failed_another_ring_is_drawn(void **state)
{
    int differ = 0;

    (void)state;
    for (int again = 0; again < 2; again++) {
        struct cast *c = begin(6);
        uint8_t order[6];

        all_contribute(c);
        for (uint32_t k = 0; k < 6; k++) {
            order[k] = c->a[0]->round.plan.body.members[k].index;
        }
        finish_round(c);
        all_contribute(c);
        if (again) { /* all six are in the next view, too */
            assert_true(all_planned(c, 1));
            connection_fails(c, 1, &c->a[2]->identity.id, 1);
            until_planned(c, 2);
            assert_int_equal(c->a[0]->round.plan.body.n_members, 6);
        }
        for (uint32_t k = 0; k < 6; k++) {
            differ += !ring_has(&c->a[0]->round, order[k], order[(k + 1) % 6]);
        }
        assert_true(again ? differ > 0 : differ == 0);
        cast_close(c);
    }
}

/* Bit k: member k is a gateway in the plan of actor 0. */
static uint64_t gateways(const struct cast *c)
{
    const struct plan_body *p = &c->a[0]->round.plan.body;
    uint64_t mask = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        mask |= p->members[k].gateway ? 1ULL << p->members[k].index : 0;
    }
    return mask;
}

/* One of them may be why it failed. */
static void after_a_plan_that_failed_other_gateways_are_drawn(void **state)
{
    struct cast *c = begin(6);
    uint64_t before;

    (void)state;
    c->terms.exchange = EXCHANGE_SITES;
    cast_configure(c);
    all_contribute(c);
    before = gateways(c);
    assert_int_equal(__builtin_popcountll(before), 2);
    for (int k = 0; k < 5; k++) { /* whoever coordinates */
        finish_round(c);
        all_contribute(c);
        assert_int_equal(gateways(c), before);
    }
    assert_true(all_planned(c, 1));
    connection_fails(c, 1, &c->a[2]->identity.id, 1);
    until_planned(c, 2);
    assert_int_equal(c->a[0]->round.plan.body.n_members, 6);
    assert_int_equal(__builtin_popcountll(gateways(c)), 2);
    assert_int_not_equal(gateways(c), before);
    cast_close(c);
}

/* The longest that members of a butterfly wait, with and without bytes. */
static void a_butterfly_in_which_no_byte_moves_stands_still_soon(void **state)
{
    (void)state;
    for (int moving = 0; moving < 2; moving++) {
        struct cast *c = begin_butterfly(4);
        struct round *r = &c->a[0]->round;
        uint64_t start, waited;

        c->terms.segment_wire_bytes = 262144;
        c->terms.progress_floor_bytes_per_s = 32768;
        cast_configure(c);
        all_contribute(c);
        assert_int_equal(r->phase, ROUND_REDUCING);
        start = c->now_ms;
        do {
            c->now_ms += 250;
            c->out->n = c->out->n_bytes = 0;
            if (moving) {
                round_moved(r, c->now_ms);
            }
            round_tick(r, c->now_ms, c->out);
            assert_true(r->want_change || round_deadline(r) > c->now_ms ||
                        round_deadline(r) == r->resend_ms);
        } while (!r->want_change && c->now_ms < start + 60000);
        waited = c->now_ms - start;
        /* hop_ms and one segment at the floor; three, if bytes move. */
        assert_in_range(waited, moving ? 26000 : 10000, moving ? 26250 : 10250);
        cast_close(c);
    }
}

static void who_holds_up_a_butterfly_is_named_in_the_statement(void **state)
{
    struct cast *c = begin_butterfly(4);
    struct round *r = &c->a[0]->round;
    struct statement closing = {0};
    const struct peer_id hung = c->a[2]->identity.id;

    (void)state;
    all_contribute(c);
    while (cast_move(c, 0, &hung)) { /* all others have sent something */
    }
    assert_int_equal(r->phase, ROUND_REDUCING);
    round_tick(r, c->now_ms, c->out);
    round_closing(r, &closing);
    assert_false(closing.has_broken);
    c->now_ms += 1500;
    round_tick(r, c->now_ms, c->out); /* hop_ms is 2000 */
    assert_true(r->quiet && !r->want_change);
    round_closing(r, &closing);
    assert_true(closing.has_broken);
    assert_true(id_eq(&closing.broken, &hung));
    cast_close(c);
}

static void a_ring_plan_has_no_shares_and_a_butterfly_plan_some(void **state)
{
    (void)state;
    for (int butterfly = 0; butterfly < 2; butterfly++) {
        struct cast *c = butterfly ? begin_butterfly(3) : begin(3);
        int boss = coordinator(c), victim = other_than(boss, -1);
        struct plan good, p;

        c->drop = lose_plans;
        good = p = plan_of(c);
        for (int k = 0; k < 3; k++) {
            p.body.members[k].share = butterfly ? 0 : 1;
        }
        try_plan(c, boss, victim, &p, false);
        p.body.members[1].share = BUTTERFLY_SHARE_MAX + 1;
        try_plan(c, boss, victim, &p, false);
        try_plan(c, boss, victim, &good, true);
        cast_close(c);
    }
}

/* A plan of four in a run of that exchange: gateway and share of each member,
 * and whether it may be followed. */
struct marked {
    enum exchange_kind run;
    bool gateway[4];
    uint32_t share[4];
    bool follows;
};

static void mark(struct plan *p, const struct marked *m)
{
    for (int k = 0; k < 4; k++) {
        p->body.members[k].gateway = m->gateway[k];
        p->body.members[k].share = m->share[k];
    }
}

static void gateways_and_shares_are_for_runs_that_have_them(void **state)
{
    static const struct marked plans[] = {
        {EXCHANGE_SITES, {true, false, true, false}, {0}, true},
        {EXCHANGE_SITES, {0}, {0}, true}, /* all of one site: a ring */
        /* Sites begin with the first member, and are of two at most. */
        {EXCHANGE_SITES, {false, true, false, true}, {0}, false},
        {EXCHANGE_SITES, {true, false, false, true}, {0}, false},
        /* A share is no gateway's mark, and nothing a gateway has. */
        {EXCHANGE_SITES, {0}, {1, 0, 1, 0}, false},
        {EXCHANGE_SITES, {true, false, true, false}, {1, 0, 1, 0}, false},
        {EXCHANGE_BUTTERFLY, {0}, {1, 0, 1, 0}, true},
        {EXCHANGE_BUTTERFLY, {true, false, true, false}, {0}, false},
        {EXCHANGE_BUTTERFLY, {true, false, true, false}, {1, 1, 1, 1}, false},
        {EXCHANGE_RING, {0}, {0}, true},
        {EXCHANGE_RING, {true, false, true, false}, {0}, false},
        {EXCHANGE_RING, {true, false, true, false}, {1, 1, 1, 1}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct cast *c = begin(4);
        int boss, victim;
        struct plan p;

        c->terms.exchange = plans[i].run;
        c->terms.site_members = 2;
        c->terms.adapts = plans[i].run == EXCHANGE_RING;
        cast_configure(c);
        boss = coordinator(c);
        victim = other_than(boss, -1);
        c->drop = lose_plans;
        p = plan_of(c);
        mark(&p, &plans[i]);
        try_plan(c, boss, victim, &p, plans[i].follows);
        cast_close(c);
    }
}

static uint32_t rank_of(const struct round *r, uint32_t index)
{
    uint32_t k = 0;

    while (r->plan.body.members[k].index != index) {
        k++;
    }
    return k;
}

/* Member i could not use what came from member k. */
static void cannot_use(struct cast *c, int i, int k)
{
    struct round *r = &c->a[i]->round;
    struct event e = {.type = EVENT_SEG_DONE, .seg_done.rc = LOCO_EPROTO};
    uint32_t index =
        (uint32_t)view_index(&c->a[i]->ballot.cert.body, &c->a[k]->identity.id);

    e.seg_done.segment = (struct segment){.attempt = r->exchange.attempt,
                                          .op = SEGMENT_SUM,
                                          .lane = (uint8_t)rank_of(r, index)};
    c->out->n = c->out->n_bytes = 0;
    round_seg_done(r, &e.seg_done, c->out);
    assert_true(r->want_change);
    assert_true(id_eq(&r->rejected, &c->a[k]->identity.id));
}

/* The owner of a slice finds no numbers in it, or says so. */
static void who_is_rejected_and_who_rejects_stay_out_of_the_round(void **state)
{
    (void)state;
    for (uint32_t bad = 0; bad < 5; bad++) {
        struct cast *c = begin_butterfly(5);
        int culprit = actor_of(c, bad), owner = other_than(culprit, -1);

        all_contribute(c);
        cannot_use(c, owner, culprit);
        cast_wait(c, 4000);
        for (int i = 0; i < 5; i++) {
            const struct round *r = &c->a[i]->round;

            assert_true(r->epoch > 1 && r->has_plan);
            assert_int_equal(r->plan.body.n_members, 3);
            assert_int_equal(r->in_plan, i != culprit && i != owner);
            assert_int_equal(r->rests, i == culprit ? ROUND_RESTS_REJECTED
                                                    : ROUND_RESTS_NOT);
            assert_int_equal(r->plan.body.n_ranges, 0);
        }
        for (int i = 0; i < 5; i++) {
            if (i != culprit && i != owner) {
                reduced(c, i, 9);
            }
        }
        cast_run(c);
        assert_int_equal(c->a[culprit]->n_committed, 1);
        assert_true(c->a[culprit]->round.contributed); /* for the next one */
        assert_true(c->a[owner]->round.contributed);
        c->out->n = 0;
        round_begin(&c->a[owner]->round, 2, &c->a[owner]->commit, NULL, 0,
                    c->now_ms, c->out);
        assert_false(c->a[owner]->round.has_rejected); /* forgiven */
        cast_close(c);
    }
}

/* Of three, two cannot go: the one that is named does. */
static void where_few_are_left_only_the_rejected_stays_out(void **state)
{
    struct cast *c = begin_butterfly(3);
    int culprit = actor_of(c, 2), owner = other_than(culprit, -1);

    (void)state;
    all_contribute(c);
    cannot_use(c, owner, culprit);
    cast_wait(c, 4000);
    for (int i = 0; i < 3; i++) {
        assert_true(c->a[i]->round.has_plan);
        assert_int_equal(c->a[i]->round.plan.body.n_members, 2);
        assert_int_equal(c->a[i]->round.in_plan, i != culprit);
    }
    cast_close(c);
}

/* Members of the plan among the first n actors. */
static int n_in_plan(const struct cast *c, int n)
{
    int in = 0;

    for (int i = 0; i < n; i++) {
        in += c->a[i]->round.in_plan;
    }
    return in;
}

/* Three liars of eight name three honest ones: they shall not be three of five
 * afterwards. */
static void liars_that_reject_honest_members_go_with_them(void **state)
{
    struct cast *c = begin_butterfly(8);

    (void)state;
    all_contribute(c);
    for (int i = 0; i < 3; i++) {
        cannot_use(c, i, 3 + i);
    }
    cast_wait(c, 4000);
    assert_true(c->a[7]->round.epoch > 1 && c->a[7]->round.has_plan);
    assert_true(n_in_plan(c, 8) >= 4);
    assert_true(10 * n_in_plan(c, 3) <= 4 * n_in_plan(c, 8)); /* 2 of 5 */
    cast_close(c);
}

/* Who names somebody and is named itself is heard last: a liar of four names
 * one, and sends a second one bytes that are no numbers. */
static void no_two_of_a_plan_quarrel_if_it_can_be(void **state)
{
    (void)state;
    for (int k = 0; k < 64; k++) {
        int liar = k & 3, named = k >> 2 & 3, naming = k >> 4;
        struct cast *c;

        if (liar == named || liar == naming || named == naming) {
            continue;
        }
        c = begin_butterfly(4);
        all_contribute(c);
        cannot_use(c, liar, named);
        cannot_use(c, naming, liar);
        until_planned(c, 2);
        assert_true(
            !c->a[liar]->round.in_plan ||
            (!c->a[named]->round.in_plan && !c->a[naming]->round.in_plan));
        cast_close(c);
    }
}

/* More than half say the same of one: then it is that one alone. */
static void whom_most_reject_stays_out_alone(void **state)
{
    struct cast *c = begin_butterfly(5);

    (void)state;
    all_contribute(c);
    for (int i = 0; i < 3; i++) {
        cannot_use(c, i, 4);
    }
    cast_wait(c, 4000);
    for (int i = 0; i < 5; i++) {
        assert_true(c->a[i]->round.has_plan);
        assert_int_equal(c->a[i]->round.in_plan, i != 4);
    }
    cast_close(c);
}

/* Actors of the first n that found actor `silent` so have named it, as its
 * contribution did not come. */
static void found_silent(struct cast *c, int n, int silent)
{
    for (int i = 0; i < n; i++) {
        struct round *r = &c->a[i]->round;

        rests_add(&c->a[i]->silence, &c->a[silent]->identity.id, r->round);
    }
}

static void whom_most_find_silent_has_no_part_in_the_plan(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) { /* of five */
        struct cast *c = begin_butterfly(5);

        found_silent(c, n, 4);
        all_contribute(c);
        for (int i = 0; i < 5; i++) {
            assert_true(c->a[i]->round.has_plan);
            assert_int_equal(c->a[i]->round.in_plan, n < 3 || i != 4);
        }
        cast_close(c);
    }
}

/* What is left must be more than half of the view. */
static void most_members_cannot_be_left_out_for_silence(void **state)
{
    struct cast *c = begin_butterfly(5);
    int in = 0;

    (void)state;
    for (int silent = 2; silent < 5; silent++) {
        found_silent(c, 3, silent);
    }
    all_contribute(c);
    for (int i = 0; i < 5; i++) {
        assert_true(c->a[i]->round.has_plan);
        in += c->a[i]->round.in_plan;
    }
    assert_int_equal(in, 3);
    cast_close(c);
}

static struct cast *begin_watched(uint32_t n)
{
    struct cast *c = begin_butterfly(n);

    c->terms.watches = true;
    cast_configure(c);
    return c;
}

/* The first n actors saw that actor go astray. */
static void saw_astray(struct cast *c, uint32_t n, int astray)
{
    for (uint32_t i = 0; i < n; i++) {
        rests_add(&c->a[i]->astray, &c->a[astray]->identity.id,
                  c->a[i]->round.round);
    }
}

/* Less than half of the members cannot, whatever they say, nor can one of two;
 * and a commit must show what they say. */
static void whom_half_see_go_astray_has_no_part_in_the_next_plan(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 8; n++) {
        for (uint32_t naming = (n - 1) / 2; naming <= (n + 1) / 2; naming++) {
            struct cast *c = begin_watched(n);

            saw_astray(c, naming, (int)n - 1);
            all_contribute(c);
            assert_true(c->a[n - 1]->round.in_plan);
            finish_round(c);
            all_contribute(c);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(c->a[i]->round.has_plan);
                assert_int_equal(c->a[i]->round.in_plan,
                                 2 * naming < n || naming < 2 || i + 1 < n);
            }
            cast_close(c);
        }
    }
}

/* What a member says of itself does not count. */
static void nobody_is_left_out_by_its_own_word(void **state)
{
    struct cast *c = begin_watched(4);

    (void)state;
    saw_astray(c, 1, 3);
    rests_add(&c->a[3]->astray, &c->a[3]->identity.id, c->a[3]->round.round);
    all_contribute(c);
    finish_round(c);
    all_contribute(c);
    assert_true(c->a[3]->round.in_plan);
    cast_close(c);
}

/* Half of eight are left, however many are named (view_quorum()). */
static void most_members_cannot_be_left_out_as_astray(void **state)
{
    struct cast *c = begin_watched(8);
    int in = 0;

    (void)state;
    for (int astray = 3; astray < 8; astray++) {
        saw_astray(c, 8, astray);
    }
    all_contribute(c);
    finish_round(c);
    all_contribute(c);
    for (int i = 0; i < 8; i++) {
        const struct round *r = &c->a[i]->round;

        in += r->in_plan;
        assert_int_equal(r->rests,
                         r->in_plan ? ROUND_RESTS_NOT : ROUND_RESTS_ASTRAY);
    }
    assert_true(in == 4 || in == 5);
    cast_close(c);
}

/* By a coordinator that lies; but in another view than that which made the
 * commit it is followed: no words can stop the run. */
static void a_plan_with_a_member_that_rests_is_refused_once(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++) {
        struct cast *c = how == 4 ? begin_butterfly(8) : begin_watched(8);
        int boss = coordinator(c), victim = other_than(boss, -1);
        struct round *r = &c->a[victim]->round;
        struct plan p;

        c->drop = lose_plans;
        p = plan_of(c);
        assert_int_equal(p.body.n_members, 8);
        if (how < 2) {
            r->astray[r->n_astray++] = c->a[boss]->identity.id;
            r->has_last = how == 0; /* the view that made the commit */
            r->last_hash = r->base;
            r->last.plan.body.view = r->ballot->hash;
        }
        for (int k = 0; how > 2 && k < 8; k++) { /* not what READY said */
            p.body.members[k].astray |= how == 3 ? 1U << boss : 1;
        }
        try_plan(c, boss, victim, &p, how == 1 || how == 2);
        cast_close(c);
    }
}

/* A rest ends with rounds. Where without a silent member no two could be kept
 * apart that quarrel, or too few can exchange data, there would be none. */
static void who_is_silent_comes_back_if_there_is_no_round_without_it(void **s)
{
    (void)s;
    for (int quarrel = 0; quarrel < 2; quarrel++) {
        struct cast *c = begin_butterfly(4);
        int silent = actor_of(c, 0), a = actor_of(c, 1), b = actor_of(c, 2);

        for (int i = 0; i < 4; i++) {
            rests_add(&c->a[i]->silence, &c->a[silent]->identity.id, 1);
        }
        all_contribute(c);
        assert_false(c->a[silent]->round.in_plan);
        if (quarrel) {
            cannot_use(c, a, b);
        } else {
            connection_fails(c, a, &c->a[b]->identity.id, 2);
        }
        until_planned(c, 2);
        assert_true(quarrel || c->a[a]->round.plan.body.n_members == 3);
        assert_false(c->a[a]->round.in_plan && c->a[b]->round.in_plan);
        assert_true(c->a[silent]->round.in_plan);
        cast_close(c);
    }
}

/* Whatever the exchange: it cannot be encoded where it was made. */
static void who_cannot_encode_its_own_stays_out_by_itself(void **state)
{
    (void)state;
    for (int butterfly = 0; butterfly < 2; butterfly++) {
        struct cast *c = butterfly ? begin_butterfly(4) : begin(4);
        struct round *r = &c->a[1]->round;
        struct event e = {.type = EVENT_SEG_DONE,
                          .seg_done.sent = true,
                          .seg_done.rc = LOCO_ENUMERIC};

        all_contribute(c);
        e.seg_done.segment = (struct segment){.attempt = r->exchange.attempt,
                                              .peer = c->a[2]->identity.id,
                                              .op = SEGMENT_ENCODE};
        c->out->n = c->out->n_bytes = 0;
        round_seg_done(r, &e.seg_done, c->out);
        assert_true(r->has_rejected && id_eq(&r->rejected, &r->opt.self));
        until_planned(c, 2);
        for (int i = 0; i < 4; i++) {
            assert_true(c->a[i]->round.has_plan);
            assert_int_equal(c->a[i]->round.in_plan, i != 1);
        }
        cast_close(c);
    }
}

static void a_broken_connection_is_nobodys_bad_numbers(void **state)
{
    struct cast *c = begin_butterfly(3);
    struct round *r = &c->a[0]->round;
    struct event e = {.type = EVENT_SEG_DONE, .seg_done.rc = LOCO_EPROTO};

    (void)state;
    all_contribute(c);
    e.seg_done.segment = (struct segment){.attempt = r->exchange.attempt,
                                          .peer = c->a[1]->identity.id,
                                          .op = SEGMENT_LANE};
    c->out->n = c->out->n_bytes = 0;
    round_seg_done(r, &e.seg_done, c->out);
    assert_true(r->want_change);
    assert_false(r->has_rejected);
    assert_int_equal(r->n_broken, 1);
    cast_close(c);
}

static void of_two_that_cannot_reach_each_other_one_waits(void **state)
{
    struct cast *c = begin_butterfly(4);

    (void)state;
    all_contribute(c);
    connection_fails(c, actor_of(c, 1), &c->a[actor_of(c, 3)]->identity.id, 2);
    until_planned(c, 2);
    for (uint32_t i = 0; i < 4; i++) {
        const struct round *r = &c->a[i]->round;

        assert_true(r->has_plan);
        assert_int_equal(r->plan.body.n_members, 3);
        /* One of the two, by a draw that is the same for all. */
        assert_true(r->plan_mask == 7 || r->plan_mask == 13);
        assert_true(r->plan_mask == c->a[0]->round.plan_mask);
    }
    cast_close(c);
}

static void who_gave_a_closing_statement_never_votes(void **state)
{
    struct cast *c = begin(3);
    struct statement closing = {.round = 0};
    uint32_t mail_before;

    (void)state;
    all_contribute(c);
    cast_run(c);
    exchange_ends(c, 1);
    c->out->n = 0;
    round_freeze(&c->a[1]->round, c->out);
    round_closing(&c->a[1]->round, &closing);
    assert_int_equal(closing.closing, CLOSING_NONE);
    mail_before = c->tail;
    hashed(c, 1, 9);
    assert_int_equal(c->tail, mail_before);
    assert_int_equal(c->a[1]->round.phase, ROUND_HASHING);
    reduced(c, 0, 9);
    reduced(c, 2, 9);
    cast_run(c);
    assert_int_equal(c->a[0]->n_committed, 0);
    cast_close(c);
}

static void a_vote_is_in_the_closing_statement(void **state)
{
    struct cast *c = begin(3);
    struct statement closing = {.round = 0};

    (void)state;
    all_contribute(c);
    reduced(c, 1, 9);
    round_closing(&c->a[1]->round, &closing);
    assert_int_equal(closing.closing, CLOSING_VOTED);
    assert_int_equal(closing.plan_members, 7);
    assert_int_equal(closing.plan_tokens, 303);
    assert_true(hash32_eq(&closing.voted, &c->a[1]->round.commit_hash));
    cast_close(c);
}

static void absurd_weights_stop_nobody(void **state)
{
    struct cast *c = begin(3);
    int boss = coordinator(c), liar = other_than(boss, -1);
    struct ready m = {.body = c->a[liar]->round.mine};

    (void)state;
    m.body.epoch = 1;
    m.body.view = c->a[0]->ballot.hash;
    m.body.round = 1;
    m.body.tokens = UINT64_MAX - 100; /* with 101 the sum would be 0 */
    assert_int_equal(
        message_sign(&c->a[liar]->signer, &ready_body_schema, &m.body, m.sig),
        0);
    say(c, liar, boss, MESSAGE_READY, &m);
    assert_int_equal(c->a[boss]->round.malformed, 1);
    for (int i = 0; i < 3; i++) {
        if (i != liar) {
            contribute(c, i, 101);
        }
    }
    cast_run(c);
    cast_tick(c, 0);
    cast_tick(c, GRACE_MS);
    cast_tick(c, 0);
    assert_true(c->a[boss]->round.has_plan);
    assert_int_equal(c->a[boss]->round.plan.body.n_members, 2);
    cast_close(c);
}

/* Says READY of these steps; whether it counts. */
static bool
claims(struct cast *c, int from, int to, uint64_t tokens, uint64_t steps)
{
    struct ready m = {.body = c->a[from]->round.mine};
    uint32_t before = c->a[to]->round.malformed;

    m.body.epoch = 1;
    m.body.view = c->a[0]->ballot.hash;
    m.body.round = 1;
    m.body.tokens = tokens;
    m.body.first_step = 3;
    m.body.last_step = 3 + steps;
    assert_int_equal(
        message_sign(&c->a[from]->signer, &ready_body_schema, &m.body, m.sig),
        0);
    say(c, from, to, MESSAGE_READY, &m);
    return c->a[to]->round.malformed == before;
}

/* Tokens are weights: one member would outweigh all others by a claim. */
static void weights_are_those_of_the_steps(void **state)
{
    struct cast *c = begin(3);
    int boss = coordinator(c), liar = other_than(boss, -1);

    (void)state;
    c->terms.position_tokens = c->terms.step_tokens_most = 20;
    cast_configure(c);
    assert_true(claims(c, liar, boss, 100, 5));
    assert_true(claims(c, liar, boss, 0, 0)); /* of a quorum */
    assert_false(claims(c, liar, boss, 101, 5));
    assert_true(claims(c, liar, boss, 99, 5)); /* some were lost */
    assert_false(claims(c, liar, boss, 1ULL << 47, 5));
    assert_false(claims(c, liar, boss, 120, 6)); /* a round has five */
    assert_true(claims(c, liar, boss, 100, 6));  /* one was made twice */
    assert_false(claims(c, liar, boss, 100, UINT64_MAX - 2)); /* last < first */
    c->terms.step_tokens_most = 40; /* a batch that grows */
    cast_configure(c);
    assert_true(claims(c, liar, boss, 199, 5));
    assert_false(claims(c, liar, boss, 201, 5));
    cast_close(c);
}

static void no_plan_gives_another_member_more_weight(void **state)
{
    struct cast *c = begin(3);
    int boss = coordinator(c), victim = other_than(boss, -1);
    struct plan good, p;

    (void)state;
    c->terms.position_tokens = c->terms.step_tokens_most = 20;
    cast_configure(c);
    c->drop = lose_plans;
    for (int i = 0; i < 3; i++) {
        contribute(c, i, 100);
    }
    cast_run(c);
    cast_tick(c, 0);
    good = c->a[boss]->round.plan;
    assert_int_equal(good.body.n_members, 3);
    for (uint32_t k = 0; k < 3; k++) {
        if (actor_of(c, good.body.members[k].index) == victim) {
            continue;
        }
        p = good;
        p.body.members[k].tokens = 1ULL << 47;
        try_plan(c, boss, victim, &p, false);
        p = good;
        p.body.members[k].last_step++;
        p.body.members[k].tokens += 20;
        try_plan(c, boss, victim, &p, false);
    }
    try_plan(c, boss, victim, &good, true);
    cast_close(c);
}

/* A READY that is replaced by a worse one leaves no deadline in the past. */
static void a_ready_taken_back_leaves_nothing_due(void **state)
{
    struct cast *c = begin(3);
    int boss = coordinator(c), fickle = other_than(boss, -1);
    struct ready m = {{0}, {0}};

    (void)state;
    contribute(c, boss, 100);
    contribute(c, fickle, 100);
    cast_run(c);
    cast_tick(c, 0);
    assert_true(c->a[boss]->round.half_ready_ms > 0);
    m.body = c->a[fickle]->round.mine;
    m.body.state.b[0] ^= 1;
    assert_int_equal(
        message_sign(&c->a[fickle]->signer, &ready_body_schema, &m.body, m.sig),
        0);
    say(c, fickle, boss, MESSAGE_READY, &m);
    c->drop = lose_all;
    cast_tick(c, GRACE_MS + 1);
    assert_false(c->a[boss]->round.has_plan);
    assert_true(round_deadline(&c->a[boss]->round) > c->now_ms);
    cast_close(c);
}

static void forged_and_doubled_votes_do_not_commit(void **state)
{
    struct cast *c = begin(3);
    struct vote v;

    (void)state;
    all_contribute(c);
    reduced(c, 0, 9);
    v = c->a[0]->round.votes[c->a[0]->ballot.self_index];
    cast_run(c);
    say(c, 1, 2, MESSAGE_VOTE, &v); /* 0's signature in 1's mouth */
    assert_int_equal(c->a[2]->round.malformed, 1);
    say(c, 0, 2, MESSAGE_VOTE, &v);
    say(c, 0, 2, MESSAGE_VOTE, &v);
    assert_int_equal(__builtin_popcountll(c->a[2]->round.voted), 1);
    assert_int_equal(c->a[2]->n_committed, 0);
    cast_close(c);
}

static void a_commit_record_without_all_votes_proves_nothing(void **state)
{
    struct cast *c = begin(3);
    struct commit record;

    (void)state;
    all_contribute(c);
    for (int i = 0; i < 3; i++) {
        reduced(c, i, 9);
    }
    cast_run(c);
    record = c->a[0]->round.last;
    assert_true(round_commit_valid(&c->a[1]->round, &record));
    record.votes[1].sig[0] ^= 1;
    assert_false(round_commit_valid(&c->a[1]->round, &record));
    record = c->a[0]->round.last;
    record.n_votes = 2;
    assert_false(round_commit_valid(&c->a[1]->round, &record));
    record = c->a[0]->round.last;
    record.result.b[0] ^= 1;
    assert_false(round_commit_valid(&c->a[1]->round, &record));
    record = c->a[0]->round.last;
    record.plan.body.members[0].index = 63;
    assert_false(round_commit_valid(&c->a[1]->round, &record));
    cast_close(c);
}

/* Two of three made it, and one of the two has left since. The third has the
 * lowest id: of two halves its own would count. */
static void a_commit_stays_good_when_its_voters_leave(void **state)
{
    struct cast *c = begin(3);
    int late = actor_of(c, 0), one = actor_of(c, 1), two = actor_of(c, 2);
    struct goodbye bye = {.body = {.peer = c->a[one]->identity.id, .epoch = 1}};
    struct commit record;

    (void)state;
    contribute(c, one, 100);
    contribute(c, two, 101);
    cast_run(c);
    cast_wait(c, GRACE_MS + 500);
    reduced(c, one, 9);
    reduced(c, two, 9);
    cast_run(c);
    assert_int_equal(c->a[one]->n_committed, 1);
    record = c->a[one]->round.last;
    assert_int_equal(record.plan.body.n_members, 2);
    ballot_departed(&c->a[late]->ballot, &bye);
    assert_int_not_equal(c->a[late]->ballot.departed.mask, 0);
    assert_true(round_commit_valid(&c->a[late]->round, &record));
    cast_close(c);
}

static void missing_votes_ask_for_another_view(void **state)
{
    struct cast *c = begin(3);

    (void)state;
    all_contribute(c);
    reduced(c, 0, 9);
    reduced(c, 1, 9);
    cast_run(c);
    c->now_ms += 3000;
    c->out->n = 0;
    round_tick(&c->a[0]->round, c->now_ms, c->out);
    assert_true(c->a[0]->round.want_change);
    cast_close(c);
}

/* Its plan of the members of `mask` (actors), said to the honest ones there. */
static struct plan
plan_for(struct cast *c, int liar, const struct plan *whole, uint32_t mask)
{
    struct plan p = *whole;

    p.body.n_members = 0;
    for (uint32_t k = 0; k < whole->body.n_members; k++) {
        if (mask >> actor_of(c, whole->body.members[k].index) & 1) {
            p.body.members[p.body.n_members++] = whole->body.members[k];
        }
    }
    for (int i = 0; i < (int)c->n; i++) {
        if (i != liar && (mask >> i & 1)) {
            try_plan(c, liar, i, &p, true);
        }
    }
    return p;
}

static void
liar_votes(struct cast *c, int liar, const struct plan *p, uint32_t mask)
{
    const struct round *r = &c->a[liar]->round;
    struct vote v = {.body = {.epoch = r->epoch,
                              .view = r->ballot->hash,
                              .round = r->round}};

    message_hash(&plan_body_schema, "loco-plan-1", &p->body, &v.body.plan);
    for (int i = 0; i < (int)c->n; i++) {
        if (i != liar && (mask >> i & 1)) {
            v.body.result = c->a[i]->round.result;
            assert_int_equal(message_sign(&c->a[liar]->signer,
                                          &vote_body_schema, &v.body, v.sig),
                             0);
            say(c, liar, i, MESSAGE_VOTE, &v);
        }
    }
}

/* The coordinator is in the exchange of two halves, and votes in both. */
static void of_two_plans_for_one_round_one_commits_at_most(void **state)
{
    struct cast *c = begin(5);
    int liar = coordinator(c);
    uint32_t halves[2] = {1U << liar, 1U << liar}, n = 0;
    struct plan whole, p[2];

    (void)state;
    c->drop = lose_plans;
    whole = plan_of(c);
    for (int i = 0; i < 5; i++) {
        halves[n / 2] |= i == liar ? 0 : 1U << i;
        n += i != liar;
    }
    for (int h = 0; h < 2; h++) {
        p[h] = plan_for(c, liar, &whole, halves[h]);
        assert_int_equal(p[h].body.n_members, 3); /* of 5 */
    }
    for (int i = 0; i < 5; i++) {
        if (i != liar) {
            reduced(c, i, halves[0] >> i & 1 ? 8 : 9);
        }
    }
    c->drop = NULL;
    for (int h = 0; h < 2; h++) {
        liar_votes(c, liar, &p[h], halves[h]);
    }
    cast_run(c);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(c->a[i]->n_committed, 0);
    }
    for (int i = 0; i < 5; i++) {
        until_view(c, i, 2); /* the votes are missing */
    }
    for (int i = 0; i < 5; i++) {
        assert_true(hash32_eq(&c->a[i]->commit, &c->a[liar]->commit));
    }
    cast_close(c);
}

/* Half of them have the ring in another order. Nothing moves anywhere: lines
 * between members of one plan are to blame, no others. */
static void who_follows_another_plan_is_no_broken_edge(void **state)
{
    (void)state;
    for (int two = 0; two < 2; two++) {
        struct cast *c = begin(5);
        const struct view_body *v = &c->a[0]->ballot.cert.body;
        int liar = coordinator(c);
        uint32_t other = 0, across = 0;
        struct plan p;

        c->drop = lose_plans;
        p = plan_of(c);
        for (int i = 0, n = 0; i < 5; i++) {
            struct plan_member first = p.body.members[0];

            if (i == liar) {
                continue;
            }
            if (two && n++ == 2) {
                p.body.members[0] = p.body.members[2];
                p.body.members[2] = first;
            }
            other |= n > 2 ? 1U << i : 0;
            try_plan(c, liar, i, &p, true);
        }
        c->drop = NULL;
        for (int i = 0; i < 5; i++) {
            until_view(c, i, 2);
        }
        assert_int_equal(v->n_members, 5);
        assert_true(v->n_edges > 0);
        for (uint32_t e = 0; e < v->n_edges; e++) {
            int a = actor_of(c, v->edges[e] & 0xff);
            int b = actor_of(c, v->edges[e] >> 8);

            across += (other >> a & 1) != (other >> b & 1);
        }
        assert_int_equal(across, 0);
        assert_int_equal(other != 0, two);
        cast_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_commits_when_every_member_of_the_plan_voted),
        cmocka_unit_test(different_results_commit_nowhere),
        cmocka_unit_test(a_late_member_is_left_out_after_grace_and_bound),
        cmocka_unit_test(half_of_a_view_makes_no_plan),
        cmocka_unit_test(a_round_of_no_weight_is_not_started),
        cmocka_unit_test(wrong_plans_are_ignored),
        cmocka_unit_test(a_plan_says_who_reads_what_after_it),
        cmocka_unit_test(there_is_one_plan_in_an_attempt),
        cmocka_unit_test(
            a_new_attempt_cancels_all_earlier_ones_unseen_ones_too),
        cmocka_unit_test(who_hears_that_the_round_is_over_stops_sending),
        cmocka_unit_test(who_promises_to_end_an_attempt_stops_sending),
        cmocka_unit_test(a_ready_before_our_own_commit_is_kept),
        cmocka_unit_test(bytes_that_were_voted_on_differently_are_not_kept),
        cmocka_unit_test(without_its_bytes_nobody_votes_or_claims_them),
        cmocka_unit_test(a_butterfly_plan_shares_the_vector_by_rate),
        cmocka_unit_test(
            a_ring_keeps_its_order_until_another_is_clearly_faster),
        cmocka_unit_test(after_a_plan_that_failed_another_ring_is_drawn),
        cmocka_unit_test(after_a_plan_that_failed_other_gateways_are_drawn),
        cmocka_unit_test(a_butterfly_in_which_no_byte_moves_stands_still_soon),
        cmocka_unit_test(who_holds_up_a_butterfly_is_named_in_the_statement),
        cmocka_unit_test(a_ring_plan_has_no_shares_and_a_butterfly_plan_some),
        cmocka_unit_test(gateways_and_shares_are_for_runs_that_have_them),
        cmocka_unit_test(who_is_rejected_and_who_rejects_stay_out_of_the_round),
        cmocka_unit_test(where_few_are_left_only_the_rejected_stays_out),
        cmocka_unit_test(liars_that_reject_honest_members_go_with_them),
        cmocka_unit_test(whom_most_reject_stays_out_alone),
        cmocka_unit_test(no_two_of_a_plan_quarrel_if_it_can_be),
        cmocka_unit_test(whom_most_find_silent_has_no_part_in_the_plan),
        cmocka_unit_test(whom_half_see_go_astray_has_no_part_in_the_next_plan),
        cmocka_unit_test(nobody_is_left_out_by_its_own_word),
        cmocka_unit_test(most_members_cannot_be_left_out_as_astray),
        cmocka_unit_test(a_plan_with_a_member_that_rests_is_refused_once),
        cmocka_unit_test(
            who_is_silent_comes_back_if_there_is_no_round_without_it),
        cmocka_unit_test(most_members_cannot_be_left_out_for_silence),
        cmocka_unit_test(who_cannot_encode_its_own_stays_out_by_itself),
        cmocka_unit_test(a_broken_connection_is_nobodys_bad_numbers),
        cmocka_unit_test(of_two_that_cannot_reach_each_other_one_waits),
        cmocka_unit_test(who_gave_a_closing_statement_never_votes),
        cmocka_unit_test(a_vote_is_in_the_closing_statement),
        cmocka_unit_test(absurd_weights_stop_nobody),
        cmocka_unit_test(weights_are_those_of_the_steps),
        cmocka_unit_test(no_plan_gives_another_member_more_weight),
        cmocka_unit_test(a_ready_taken_back_leaves_nothing_due),
        cmocka_unit_test(forged_and_doubled_votes_do_not_commit),
        cmocka_unit_test(a_commit_record_without_all_votes_proves_nothing),
        cmocka_unit_test(a_commit_stays_good_when_its_voters_leave),
        cmocka_unit_test(missing_votes_ask_for_another_view),
        cmocka_unit_test(who_follows_another_plan_is_no_broken_edge),
        cmocka_unit_test(of_two_plans_for_one_round_one_commits_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
