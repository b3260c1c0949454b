/* idle_test.c - for whom an attempt that failed waited, and who is named for
 * it. No bytes move here: a test says which segments are done. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/view.h"

static struct cast *begin(uint32_t n)
{
    struct cast *c = cast_open(n);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    cast_configure(c);
    all_contribute(c);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(c->a[i]->round.phase, ROUND_REDUCING);
    }
    return c;
}

/* A member that does not make the plan. */
static int some_other(const struct cast *c, int but)
{
    for (int i = 0; i < (int)c->n; i++) {
        if (i != coordinator(c) && i != but) {
            return i;
        }
    }
    fail_msg("nobody");
    return -1;
}

/* All segments of actor i are done, but those that `keeps` says of. */
static void move(struct cast *c,
                 int i,
                 bool (*keeps)(const struct event_seg_done *w,
                               const struct peer_id *who),
                 int who)
{
    struct actor *a = c->a[i];

    for (uint32_t k = 0; k < a->n_waiting;) {
        struct event_seg_done done = a->waiting[k];

        if (keeps(&done, &c->a[who]->identity.id)) {
            k++;
            continue;
        }
        a->n_waiting--;
        memmove(&a->waiting[k], &a->waiting[k + 1],
                (a->n_waiting - k) * sizeof done);
        c->out->n = c->out->n_bytes = 0;
        round_seg_done(&a->round, &done, c->out);
        mail(c, i);
        k = 0;
    }
}

static bool comes(const struct event_seg_done *w, const struct peer_id *who)
{
    return !w->sent && id_eq(&w->segment.peer, who) &&
           w->segment.op != SEGMENT_SUM;
}

static bool is_its_sum(const struct event_seg_done *w,
                       const struct peer_id *who)
{
    return comes(w, who) && (w->segment.seg & BUTTERFLY_FINAL) != 0;
}

/* Until all are in the view of that epoch, and have said READY there. */
static void until_epoch(struct cast *c, uint64_t epoch)
{
    for (uint32_t i = 0; i < c->n; i++) {
        for (int t = 0; t < 200 && c->a[i]->round.epoch < epoch; t++) {
            cast_tick(c, 100);
        }
        assert_int_equal(c->a[i]->round.epoch, epoch);
    }
    cast_run(c);
}

/* Whether actor i names actor k in READY. */
static bool names(const struct cast *c, int i, int k)
{
    const struct round *r = &c->a[i]->round;
    int at = view_index(&c->a[i]->ballot.cert.body, &c->a[k]->identity.id);

    return r->mine.silent >> at & 1;
}

/* All ask for another view. */
static void end_attempt(struct cast *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        ballot_want(&c->a[i]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    }
}

static void who_gives_nothing_has_no_part_in_the_next_plan(void **state)
{
    struct cast *c = begin(5);
    int idle = some_other(c, -1);

    (void)state;
    for (int i = 0; i < 5; i++) {
        if (i != idle) {
            move(c, i, comes, idle);
        }
    }
    until_epoch(c, 2);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 5; k++) {
            assert_int_equal(names(c, i, k), i != idle && k == idle);
        }
    }
    cast_tick(c, 0);
    for (int i = 0; i < 5; i++) {
        assert_true(c->a[i]->round.has_plan);
        assert_int_equal(c->a[i]->round.in_plan, i != idle);
        /* It is told why. */
        assert_int_equal(c->a[i]->round.rests,
                         i == idle ? ROUND_RESTS_SILENT : ROUND_RESTS_NOT);
    }
    cast_close(c);
}

/* One keeps its contribution from one owner: all others get no sum of that
 * owner, and do not know why. */
static void whose_sum_is_missing_is_not_named(void **state)
{
    struct cast *c = begin(5);
    int idle = some_other(c, -1), owner = some_other(c, idle);

    (void)state;
    for (int i = 0; i < 5; i++) {
        if (i == owner) {
            move(c, i, comes, idle);
        } else {
            move(c, i, is_its_sum, owner);
        }
    }
    until_epoch(c, 2);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 5; k++) {
            assert_int_equal(names(c, i, k), i == owner && k == idle);
        }
    }
    cast_close(c);
}

static void whose_vote_is_missing_is_not_named(void **state)
{
    struct cast *c = begin(5);
    int idle = some_other(c, -1);

    (void)state;
    for (int i = 0; i < 5; i++) {
        if (i != idle) {
            reduced(c, i, 9);
        }
    }
    cast_run(c);
    until_epoch(c, 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(c->a[i]->round.mine.silent, 0);
    }
    cast_close(c);
}

/* A slow member owns nothing, so that it sees nothing; a ring shows nobody. */
static void after_two_that_failed_all_own_as_much_of_a_plan(void **state)
{
    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        struct cast *c = cast_open(4);
        const struct peer_id *ids = c->a[0]->ballot.ids;

        c->terms.exchange = ring ? EXCHANGE_RING : EXCHANGE_BUTTERFLY;
        c->terms.adapts = ring;
        cast_configure(c);
        for (uint64_t epoch = 1; epoch <= 3; epoch++) {
            const struct plan_body *p;

            for (int i = 0; i < 4 && !ring; i++) {
                for (int k = 0; k < 16; k++) {
                    bandwidth_told(&c->a[i]->edges, &ids[k / 4], &ids[k % 4],
                                   k / 4 == 2 || k % 4 == 2 ? 100 : 4000,
                                   BANDWIDTH_CONFIDENCE, c->now_ms);
                }
            }
            if (epoch == 1) {
                all_contribute(c);
            } else {
                end_attempt(c);
            }
            until_epoch(c, epoch);
            for (int t = 0; t < 50 && !c->a[0]->round.has_plan; t++) {
                cast_tick(c, 100);
            }
            p = &c->a[0]->round.plan.body;
            assert_int_equal(p->n_members, 4);
            for (uint32_t k = 0; k < 4; k++) {
                uint32_t share = p->members[k].share;

                if (epoch == 3) {
                    assert_true(share > 0 && share == p->members[0].share);
                } else if (ring) {
                    assert_int_equal(share, 0);
                } else if (p->members[k].index == 2) {
                    assert_int_equal(share, 0);
                }
            }
        }
        cast_close(c);
    }
}

/* It is given up in the middle: bytes are on their way everywhere. */
static void an_attempt_that_ends_for_another_reason_names_nobody(void **state)
{
    struct cast *c = begin(5);
    const struct peer_id *peer = &c->a[1]->identity.id;
    struct event_seg_done failed = {
        .segment = {.attempt = c->a[0]->waiting[0].segment.attempt,
                    .peer = *peer},
        .sent = true,
        .rc = LOCO_EPROTO,
    };

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(cast_move(c, i, NULL));
    }
    c->out->n = c->out->n_bytes = 0;
    round_seg_done(&c->a[0]->round, &failed, c->out);
    end_attempt(c);
    until_epoch(c, 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(c->a[i]->round.mine.silent, 0);
    }
    cast_close(c);
}

static struct cast *without_plans(struct plan *plan)
{
    struct cast *c = cast_open(5);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    cast_configure(c);
    c->drop = lose_plans;
    all_contribute(c);
    *plan = c->a[coordinator(c)]->round.plan;
    assert_true(c->a[coordinator(c)]->round.has_plan);
    return c;
}

static void a_plan_comes_from_anybody_if_its_maker_signed_it(void **state)
{
    struct plan plan;
    struct cast *c = without_plans(&plan);
    int boss = coordinator(c), other = some_other(c, -1);
    int to = some_other(c, other);
    struct plan forged = plan;

    (void)state;
    assert_int_equal(message_sign(&c->a[other]->signer, &plan_body_schema,
                                  &forged.body, forged.sig),
                     0);
    c->drop = NULL;
    say(c, other, to, MESSAGE_PLAN, &forged);
    assert_false(c->a[to]->round.has_plan);
    assert_int_equal(c->a[to]->round.malformed, 1);
    say(c, CAST_STRANGE, to, MESSAGE_PLAN, &plan);
    assert_false(c->a[to]->round.has_plan);
    say(c, other, to, MESSAGE_PLAN, &plan);
    assert_true(c->a[to]->round.has_plan);
    assert_true(boss != other && boss != to);
    cast_close(c);
}

/* Two members with a plan each wait for each other, and show them. */
static void who_makes_two_plans_is_named_alone(void **state)
{
    struct plan plan, second;
    struct cast *c = without_plans(&plan);
    int boss = coordinator(c), one = some_other(c, -1);
    int two = some_other(c, one);
    struct plan_member first = plan.body.members[0];

    (void)state;
    second = plan;
    second.body.members[0] = second.body.members[1];
    second.body.members[1] = first;
    assert_int_equal(message_sign(&c->a[boss]->signer, &plan_body_schema,
                                  &second.body, second.sig),
                     0);
    c->drop = NULL;
    say(c, boss, one, MESSAGE_PLAN, &plan);
    say(c, boss, two, MESSAGE_PLAN, &second);
    assert_false(c->a[one]->round.idle.two_plans);
    say(c, two, one, MESSAGE_PLAN, &second); /* and one answers */
    assert_true(c->a[one]->round.idle.two_plans);
    assert_true(c->a[two]->round.idle.two_plans);
    until_epoch(c, 2);
    for (int k = 0; k < 5; k++) {
        assert_int_equal(names(c, one, k), k == boss);
        assert_int_equal(names(c, two, k), k == boss);
    }
    cast_close(c);
}

/* Until the attempt of that epoch has a plan; in those before each has other
 * bytes. */
static void until_plan(struct cast *c, uint64_t epoch)
{
    for (uint64_t next = c->a[0]->round.epoch + 1; next <= epoch; next++) {
        for (uint32_t i = 0; i < c->n; i++) {
            if (c->a[i]->round.in_plan) {
                reduced(c, (int)i, (uint8_t)(i + 1));
            }
        }
        cast_run(c);
        until_epoch(c, next);
        for (int t = 0; t < 50 && !c->a[0]->round.has_plan; t++) {
            cast_tick(c, 100);
        }
        cast_run(c);
    }
}

/* Actors (bits) that are in the plan that actor 0 follows. */
static uint32_t planned(const struct cast *c)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        mask |= c->a[i]->round.in_plan ? 1U << i : 0;
    }
    return mask;
}

/* Each plan has as many fewer as may lie; its maker is not one of them, others
 * are at one time or another. */
static void after_four_that_failed_members_are_drawn_that_stay_out(void **state)
{
    struct cast *c = begin(7);
    uint32_t out = 0;

    (void)state;
    for (uint64_t epoch = 2; epoch <= 12; epoch++) {
        until_plan(c, epoch);
        assert_true(c->a[coordinator(c)]->round.in_plan);
        assert_int_equal(__builtin_popcount(planned(c)), epoch <= 4 ? 7 : 5);
        out |= 127 & ~planned(c);
    }
    assert_true(__builtin_popcount(out) >= 5);
    cast_close(c);
}

/* It keeps its sums from all. */
static void who_sent_no_sum_is_left_out_first_and_rests(void **state)
{
    struct cast *c = begin(7);
    int owner;

    (void)state;
    until_plan(c, 4);
    for (uint64_t epoch = 4;; epoch++) {
        owner = some_other(c, -1);
        for (int i = 0; i < 7; i++) {
            if (i != owner && c->a[i]->round.in_plan) {
                move(c, i, is_its_sum, owner);
            }
        }
        until_epoch(c, epoch + 1);
        cast_tick(c, 0);
        cast_run(c);
        if (coordinator(c) != owner &&
            c->a[coordinator(c)]->round.n_unexplained % 2 == 0) {
            break;
        }
    }
    assert_false(c->a[owner]->round.in_plan);
    for (int i = 0; i < 7; i++) {
        if (c->a[i]->round.in_plan) {
            reduced(c, i, 9);
        }
    }
    cast_run(c);
    for (int i = 0; i < 7; i++) {
        const struct round *r = &c->a[i]->round;
        uint64_t rest = rests_mask(&r->idle.drawn, r->ballot->ids, 7, 2);
        int at = view_index(&r->ballot->cert.body, &c->a[owner]->identity.id);

        assert_int_equal(c->a[i]->n_committed, 1);
        assert_int_equal(rest >> at & 1, i != owner);
    }
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_nothing_has_no_part_in_the_next_plan),
        cmocka_unit_test(whose_sum_is_missing_is_not_named),
        cmocka_unit_test(whose_vote_is_missing_is_not_named),
        cmocka_unit_test(after_two_that_failed_all_own_as_much_of_a_plan),
        cmocka_unit_test(an_attempt_that_ends_for_another_reason_names_nobody),
        cmocka_unit_test(a_plan_comes_from_anybody_if_its_maker_signed_it),
        cmocka_unit_test(who_makes_two_plans_is_named_alone),
        cmocka_unit_test(
            after_four_that_failed_members_are_drawn_that_stay_out),
        cmocka_unit_test(who_sent_no_sum_is_left_out_first_and_rests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
