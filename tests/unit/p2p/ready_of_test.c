/* ready_of_test.c - a plan that is made of another READY than is here, or of
 * one that is not: who is asked for it, and what two of a member prove. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/view.h"

/* What the hooks of a cast know. */
static struct cast *cast;
static int liar, boss;
static uint64_t tokens_of_lie; /* 0: it says nothing to the others */

static struct cast *begin(uint32_t n)
{
    struct cast *c = cast_open(n);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    cast_configure(c);
    cast = c;
    boss = coordinator(c);
    liar = boss == 0 ? 1 : 0;
    return c;
}

/* The liar's READYs to all but the coordinator are other ones. */
static bool shows_two(const struct letter *l)
{
    struct ready m;

    if (l->type != MESSAGE_READY || l->from != liar || l->to == boss) {
        return false;
    }
    assert_int_equal(msg_decode(&ready_schema, l->bytes, l->len, &m), 0);
    if (tokens_of_lie == 0) {
        return true;
    }
    m.body.tokens = tokens_of_lie;
    assert_int_equal(message_sign(&cast->a[liar]->signer, &ready_body_schema,
                                  &m.body, m.sig),
                     0);
    assert_int_equal(msg_encode(&ready_schema, &m, l->bytes, l->len), l->len);
    return false;
}

static bool shows_two_and_no_answer(const struct letter *l)
{
    return shows_two(l) || l->type == MESSAGE_READY_OF;
}

static bool doubts(const struct cast *c, int i)
{
    struct statement closing = {0};

    round_closing(&c->a[i]->round, &closing);
    return closing.closing == CLOSING_DOUBTED;
}

static bool names_the_liar(const struct cast *c, int i)
{
    uint64_t mask =
        rests_mask(&c->a[i]->round.idle.rests, &c->a[liar]->identity.id, 1, 1);

    return mask != 0;
}

static void vote_all(struct cast *c)
{
    for (int i = 0; i < (int)c->n; i++) {
        if (i != liar) {
            reduced(c, i, 9);
        }
    }
    cast_run(c);
}

static void two_of_a_member_name_it_and_nobody_doubts(void **state)
{
    struct cast *c = begin(5);

    (void)state;
    tokens_of_lie = 77;
    c->drop = shows_two;
    all_contribute(c);
    vote_all(c);
    for (int i = 0; i < 5; i++) {
        const struct round *r = &c->a[i]->round;

        assert_true(r->has_plan);
        if (i != liar) {
            assert_true(names_the_liar(c, i));
            assert_false(doubts(c, i));
            assert_int_equal(r->idle.untrue, 0); /* nor is its maker blamed */
        }
    }
    cast_close(c);
}

static void one_that_is_not_here_comes(void **state)
{
    struct cast *c = begin(5);

    (void)state;
    tokens_of_lie = 0;
    c->drop = shows_two;
    all_contribute(c);
    vote_all(c);
    for (int i = 0; i < 5; i++) {
        if (i != liar) {
            assert_false(names_the_liar(c, i)); /* it may be lost on its way */
            assert_false(doubts(c, i));
        }
    }
    cast_close(c);
}

/* The coordinator may have made it up. */
static void without_an_answer_the_plan_is_doubted(void **state)
{
    struct cast *c = begin(5);

    (void)state;
    tokens_of_lie = 77;
    c->drop = shows_two_and_no_answer;
    all_contribute(c);
    vote_all(c);
    for (int i = 0; i < 5; i++) {
        if (i != liar) {
            assert_false(names_the_liar(c, i));
            assert_int_equal(doubts(c, i), i != boss);
        }
    }
    cast_close(c);
}

/* What the coordinator passes on as that member's READY: whether it counts. */
static bool believes(struct cast *c, int i, const struct ready *said)
{
    struct round *r = &c->a[i]->round;
    struct ready_of m = {.epoch = r->epoch,
                         .view = c->a[i]->ballot.hash,
                         .round = r->round,
                         .n_ready = 1,
                         .ready = {*said}};
    int at = view_index(&c->a[i]->ballot.cert.body, &c->a[liar]->identity.id);

    m.index = (uint32_t)at;
    say(c, boss, i, MESSAGE_READY_OF, &m);
    return r->ready >> at & 1;
}

static void sign_as(struct cast *c, int i, struct ready *m)
{
    assert_int_equal(
        message_sign(&c->a[i]->signer, &ready_body_schema, &m->body, m->sig),
        0);
}

static void nobody_makes_up_a_ready_of_another_member(void **state)
{
    struct cast *c = begin(5);
    int other = 0;
    struct ready m;
    uint32_t before;

    (void)state;
    while (other == boss || other == liar) {
        other++;
    }
    tokens_of_lie = 0;
    c->drop = shows_two_and_no_answer;
    all_contribute(c);
    c->drop = shows_two;
    before = c->a[other]->round.malformed;

    m = (struct ready){.body = c->a[liar]->round.mine};
    sign_as(c, boss, &m);
    assert_false(believes(c, other, &m));
    assert_int_equal(c->a[other]->round.malformed, before + 1);

    m.body.epoch++; /* of another attempt */
    sign_as(c, liar, &m);
    assert_false(believes(c, other, &m));

    m.body = c->a[liar]->round.mine; /* not what the plan is made of */
    m.body.tokens++;
    sign_as(c, liar, &m);
    assert_false(believes(c, other, &m));

    m.body = c->a[liar]->round.mine;
    sign_as(c, liar, &m);
    assert_true(believes(c, other, &m));
    assert_false(names_the_liar(c, other));
    cast_close(c);
}

/* An honest member that left the round out has work after all: READY is said
 * again, with tokens. */
static void work_after_all_is_no_contradiction(void **state)
{
    struct cast *c = begin(5);
    int other = 0;
    struct ready m;

    (void)state;
    while (other == boss || other == liar) {
        other++;
    }
    tokens_of_lie = 0;
    c->drop = shows_two_and_no_answer;
    all_contribute(c);
    m = (struct ready){.body = c->a[liar]->round.mine};
    m.body.tokens = 0;
    m.body.last_step = m.body.first_step;
    sign_as(c, liar, &m);
    c->drop = NULL;
    say(c, liar, other, MESSAGE_READY, &m);
    m.body = c->a[liar]->round.mine;
    sign_as(c, liar, &m);
    assert_true(believes(c, other, &m));
    vote_all(c);
    assert_false(names_the_liar(c, other));
    assert_false(doubts(c, other));
    cast_close(c);
}

/* Who asks is answered, and what it asks of which nobody says anything is not
 * remembered. */
static void what_is_out_of_bounds_is_dropped(void **state)
{
    struct cast *c = begin(5);
    struct round *r = &c->a[boss]->round;
    struct ready_of m;

    (void)state;
    all_contribute(c);
    m = (struct ready_of){.epoch = r->epoch,
                          .view = c->a[boss]->ballot.hash,
                          .round = r->round,
                          .index = UINT32_MAX};
    say(c, liar, boss, MESSAGE_READY_OF, &m);
    m.index = 5;
    say(c, liar, boss, MESSAGE_READY_OF, &m);
    m.index = 0;
    m.round++;
    say(c, liar, boss, MESSAGE_READY_OF, &m);
    assert_int_equal(r->idle.two_readies, 0);
    assert_int_equal(r->idle.rests.n, 0);
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_of_a_member_name_it_and_nobody_doubts),
        cmocka_unit_test(one_that_is_not_here_comes),
        cmocka_unit_test(without_an_answer_the_plan_is_doubted),
        cmocka_unit_test(nobody_makes_up_a_ready_of_another_member),
        cmocka_unit_test(work_after_all_is_no_contradiction),
        cmocka_unit_test(what_is_out_of_bounds_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
