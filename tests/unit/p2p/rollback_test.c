/* rollback_test.c - members that ask for an earlier state, and plans that give
 * it back. No bytes move here. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/rollback.h"
#include "p2p/round/view.h"

static const struct hash32 good_state = {.b = {0x33}};

/* A view of n in round 3. */
static struct cast *begin(uint32_t n)
{
    struct cast *c = cast_open(n);

    for (int k = 0; k < 2; k++) {
        all_contribute(c);
        finish_round(c);
    }
    return c;
}

static void ask(struct cast *c, int i, uint64_t round, uint8_t state)
{
    struct round_work work = {.asks_rollback = true,
                              .rollback = {.round = round}};

    work.rollback.state.b[0] = state;
    c->out->n = c->out->n_bytes = 0;
    round_contribute(&c->a[i]->round, &work, c->now_ms, c->out);
    mail(c, i);
    cast_run(c);
    cast_tick(c, 0);
}

static void a_quorum_that_asks_gets_its_state_back(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 7; n++) {
        struct cast *c = begin(n);
        uint32_t need = (n + (n - 1) / 3) / 2 + 1; /* above (n + f) / 2 */

        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(c->a[i]->n_committed, i < need ? 2 : 3);
            if (i < need) {
                ask(c, (int)i, 1, 0x33);
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            const struct round *r = &c->a[i]->round;

            assert_int_equal(c->a[i]->n_committed, 3);
            assert_int_equal(r->last.plan.body.n_members, need);
            assert_int_equal(r->last.plan.body.rollback[0].round, 1);
            assert_true(hash32_eq(&r->last.result, &good_state));
            assert_true(round_commit_valid(r, &c->a[0]->round.last));
            assert_int_equal(plan_tokens(&r->last.plan.body), 0);
        }
        cast_close(c);
    }
}

/* A plan that goes back says, too, whom its members name astray, and a member
 * follows none that says something else of it. */
static void who_asks_may_name_who_strays(void **state)
{
    struct cast *c = begin(4);

    (void)state;
    c->terms.watches = true;
    cast_configure(c);
    for (int i = 0; i < 3; i++) {
        rests_add(&c->a[i]->astray, &c->a[3]->identity.id,
                  c->a[i]->round.round);
        ask(c, i, 1, 0x33);
    }
    for (int i = 0; i < 4; i++) {
        const struct round *r = &c->a[i]->round;

        assert_int_equal(c->a[i]->n_committed, 3);
        assert_int_equal(r->n_astray, 1);
        assert_true(id_eq(&r->astray[0], &c->a[3]->identity.id));
    }
    cast_close(c);
}

/* Three of four would be enough. */
static void fewer_than_a_quorum_are_left_out(void **state)
{
    struct cast *c = begin(4);
    uint64_t before = c->a[0]->tokens;

    (void)state;
    ask(c, 0, 1, 0x33);
    for (int i = 1; i < 4; i++) {
        contribute(c, i, 100);
    }
    cast_run(c);
    cast_tick(c, 0);
    for (int i = 0; i < 4; i++) {
        assert_false(c->a[i]->round.has_plan); /* it could still come */
    }
    cast_wait(c, c->a[0]->round.terms.grace_ms);
    for (int i = 0; i < 4; i++) {
        const struct plan_body *p = &c->a[i]->round.plan.body;

        assert_true(c->a[i]->round.has_plan);
        assert_int_equal(p->n_rollback, 0);
        assert_int_equal(p->n_members, 3);
        assert_int_equal(c->a[i]->round.in_plan, i != 0);
    }
    for (int i = 1; i < 4; i++) {
        reduced(c, i, 9);
        cast_run(c);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c->a[i]->n_committed, 3);
        assert_int_equal(c->a[i]->tokens, before + 300);
    }
    cast_close(c);
}

static void wishes_for_different_states_do_not_add_up(void **state)
{
    struct cast *c = begin(4);

    (void)state;
    ask(c, 0, 1, 0x33);
    ask(c, 1, 1, 0x33);
    ask(c, 2, 1, 0x44);
    ask(c, 3, 0, 0x33);
    for (int i = 0; i < 4; i++) {
        assert_false(c->a[i]->round.has_plan);
        assert_int_equal(c->a[i]->round.possible_ms, 0);
    }
    cast_close(c);
}

/* The plan with one thing wrong. */
static struct plan wrong(const struct plan *good, int k)
{
    struct plan p = *good;

    switch (k) {
    case 0:
        p.body.rollback[0].state.b[0] ^= 1;
        break;
    case 1:
        p.body.rollback[0].round = 2; /* the state in place */
        break;
    case 2:
        p.body.n_rollback = 0; /* a round of no work */
        break;
    case 3:
        p.body.members[0].tokens = 1;
        break;
    case 4:
        p.body.members[1].share = 1;
        break;
    case 5:
        p.body.members[1].gateway = true;
        break;
    case 6:
        p.body.members[2].holds = 8;
        break;
    case 7:
        p.body.n_members--; /* no quorum any more */
        break;
    default:
        p.body.members[2] = p.body.members[1];
        break;
    }
    return p;
}

static void a_rollback_that_nobody_asked_for_is_ignored(void **state)
{
    struct cast *c = begin(4);
    int boss = coordinator(c), victim = (boss + 1) % 4;
    struct plan good, p;

    (void)state;
    c->drop = lose_plans;
    for (int i = 0; i < 3; i++) {
        ask(c, (boss + i) % 4, 1, 0x33);
    }
    assert_true(c->a[boss]->round.has_plan);
    good = c->a[boss]->round.plan;
    assert_int_equal(good.body.n_rollback, 1);
    for (int k = 0; k < 9; k++) {
        p = wrong(&good, k);
        try_plan(c, boss, victim, &p, false);
    }
    /* It did not ask, and is in the plan. */
    victim = (boss + 3) % 4;
    p = good;
    for (uint32_t k = 0; k < 3; k++) {
        if (actor_of(c, p.body.members[k].index) == (boss + 2) % 4) {
            p.body.members[k].index = (uint8_t)c->a[victim]->ballot.self_index;
        }
    }
    try_plan(c, boss, victim, &p, false);
    /* Not in it: it follows, and does not vote. */
    try_plan(c, boss, victim, &good, true);
    assert_false(c->a[victim]->round.voted >> c->a[victim]->ballot.self_index &
                 1);
    cast_close(c);
}

static void who_asks_offers_nothing_and_means_the_past(void **state)
{
    struct cast *c = begin(3);
    struct ready m = {0};

    (void)state;
    contribute(c, 0, 100);
    cast_run(c);
    for (int k = 0; k < 2; k++) {
        uint32_t before = c->a[1]->round.malformed;

        m.body = c->a[0]->round.mine;
        m.body.n_rollback = 1;
        m.body.tokens = k == 0 ? 100 : 0;
        m.body.rollback[0].round = k == 0 ? 1 : 2;
        assert_int_equal(
            message_sign(&c->a[0]->signer, &ready_body_schema, &m.body, m.sig),
            0);
        say(c, 0, 1, MESSAGE_READY, &m);
        assert_int_equal(c->a[1]->round.malformed, before + 1);
    }
    cast_close(c);
}

/* Its maker takes in members that offer work. */
static void a_plan_of_members_that_did_not_ask_is_not_followed(void **state)
{
    (void)state;
    for (int n = 4; n <= 8; n += 4) {
        struct cast *c = begin((uint32_t)n);
        int boss = coordinator(c);
        const struct round *r = &c->a[boss]->round;
        struct plan p = {0};
        uint64_t made = r->round;

        c->drop = NULL;
        for (int i = 0; i < n; i++) {
            int who = (boss + i) % n;

            if (i < n / 2) {
                ask(c, who, 1, 0x33);
            } else {
                contribute(c, who, 100);
            }
        }
        cast_run(c);
        assert_false(r->has_plan);
        p.body.epoch = r->epoch;
        p.body.view = c->a[boss]->ballot.hash;
        p.body.round = r->round;
        p.body.base = r->base;
        p.body.state = r->state;
        p.body.tokens_before = r->tokens_before;
        p.body.n_rollback = 1;
        p.body.rollback[0] = r->mine.rollback[0];
        for (int i = 0; i < (n + (n - 1) / 3) / 2 + 1; i++) {
            p.body.members[p.body.n_members++].index =
                (uint8_t)c->a[(boss + i) % n]->ballot.self_index;
        }
        assert_int_equal(message_sign(&c->a[boss]->signer, &plan_body_schema,
                                      &p.body, p.sig),
                         0);
        for (int i = 1; i < n; i++) {
            say(c, boss, (boss + i) % n, MESSAGE_PLAN, &p);
        }
        cast_run(c);
        for (int i = 1; i < (int)p.body.n_members; i++) {
            assert_false(c->a[(boss + i) % n]->round.has_plan);
        }
        cast_wait(c, 8000);
        for (int i = 0; i < n; i++) {
            assert_true(c->a[i]->ballot.cert.body.round < made);
        }
        cast_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quorum_that_asks_gets_its_state_back),
        cmocka_unit_test(a_plan_of_members_that_did_not_ask_is_not_followed),
        cmocka_unit_test(who_asks_may_name_who_strays),
        cmocka_unit_test(fewer_than_a_quorum_are_left_out),
        cmocka_unit_test(wishes_for_different_states_do_not_add_up),
        cmocka_unit_test(a_rollback_that_nobody_asked_for_is_ignored),
        cmocka_unit_test(who_asks_offers_nothing_and_means_the_past),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
