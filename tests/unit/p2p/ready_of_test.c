/* ready_of_test.c - a plan that is made of another READY than is here, or of
 * one that is not: who is asked for it, and what is believed. */
#include "tests/unit/p2p/cast.h"

#include "p2p/round/view.h"

enum lie { NOTHING, TOKENS, NO_TOKENS, STATE /* and tokens */ };

/* What the hooks of a cast know. */
static struct cast *cast;
static int liar, boss;
static enum lie lie; /* what the liar says to all but the coordinator */
static bool no_answers;
static uint32_t n_asked, n_answered;

static void sign_as(struct cast *c, int i, struct ready *m)
{
    assert_int_equal(
        message_sign(&c->a[i]->signer, &ready_body_schema, &m->body, m->sig),
        0);
}

static void alter(struct ready_body *b)
{
    b->tokens = lie == NO_TOKENS ? 0 : 77;
    b->state.b[3] ^= lie == STATE;
}

/* The liar's READYs to all but the coordinator are other ones, or lost. */
static bool hook(const struct letter *l)
{
    struct ready m;
    int n;

    if (l->type == MESSAGE_READY_OF) {
        n_asked += l->to == boss;
        n_answered += l->from == boss;
        return no_answers && l->from == boss;
    }
    if (l->type != MESSAGE_READY || l->from != liar || l->to == boss) {
        return false;
    }
    if (lie == NOTHING) {
        return true;
    }
    assert_int_equal(msg_decode(&ready_schema, l->bytes, l->len, &m), 0);
    alter(&m.body);
    sign_as(cast, liar, &m);
    n = msg_encode(&ready_schema, &m, l->bytes, l->len);
    assert_true(n > 0);
    ((struct letter *)l)->len = (size_t)n;
    return false;
}

static struct cast *begin(enum lie how)
{
    struct cast *c = cast_open(5);

    c->terms.exchange = EXCHANGE_BUTTERFLY;
    cast_configure(c);
    cast = c;
    boss = coordinator(c);
    liar = boss == 0 ? 1 : 0;
    lie = how;
    no_answers = false;
    n_asked = n_answered = 0;
    c->drop = hook;
    return c;
}

static bool doubts(const struct cast *c, int i)
{
    struct statement closing = {0};

    round_closing(&c->a[i]->round, &closing);
    return closing.closing == CLOSING_DOUBTED;
}

static uint32_t index_of_liar(const struct cast *c)
{
    return (uint32_t)view_index(&c->a[boss]->ballot.cert.body,
                                &c->a[liar]->identity.id);
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

/* How many of the others, which have voted, doubt the plan. */
static int n_doubting(const struct cast *c)
{
    int n = 0;

    for (int i = 0; i < (int)c->n; i++) {
        assert_true(c->a[i]->round.has_plan);
        n += i != liar && doubts(c, i);
        /* Nor is who made the plan to blame for it. */
        assert_true(i == liar || doubts(c, i) ||
                    c->a[i]->round.idle.untrue == 0);
    }
    return n;
}

static void nobody_doubts_what_the_coordinator_passes_on(void **state)
{
    (void)state;
    for (enum lie how = NOTHING; how <= STATE; how++) {
        struct cast *c = begin(how);

        all_contribute(c);
        assert_int_equal(n_asked, 3);
        assert_int_equal(n_answered, 3);
        vote_all(c);
        assert_int_equal(n_doubting(c), 0);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(c->a[i]->round.malformed, 0);
            assert_int_equal(c->a[i]->round.idle.rests.n, 0);
        }
        cast_close(c);
    }
}

static void nobody_asks_where_all_is_here(void **state)
{
    struct cast *c = begin(TOKENS);

    (void)state;
    c->drop = NULL;
    all_contribute(c);
    c->drop = hook;
    cast_wait(c, 1500); /* said again */
    assert_int_equal(n_asked, 0);
    cast_close(c);
}

/* The coordinator may have made it up. */
static void without_an_answer_the_plan_is_doubted(void **state)
{
    struct cast *c = begin(TOKENS);

    (void)state;
    no_answers = true;
    all_contribute(c);
    vote_all(c);
    assert_int_equal(n_doubting(c), 3);
    no_answers = false; /* it is asked again */
    cast_wait(c, 1500);
    assert_int_equal(n_doubting(c), 0);
    cast_close(c);
}

/* Each member but the liar has the plan, and hears another READY then. */
static void what_the_plan_is_made_of_stays(void **state)
{
    (void)state;
    for (enum lie how = TOKENS; how <= STATE; how++) {
        struct cast *c = begin(how);
        struct ready m;

        c->drop = NULL;
        all_contribute(c);
        m = (struct ready){.body = c->a[liar]->round.mine};
        alter(&m.body);
        sign_as(c, liar, &m);
        for (int i = 0; i < 5; i++) {
            if (i != liar) {
                say(c, liar, i, MESSAGE_READY, &m);
            }
        }
        vote_all(c);
        assert_int_equal(n_doubting(c), 0);
        cast_close(c);
    }
}

/* Another member than the coordinator, and than the liar. */
static int some_other(int but)
{
    int i = 0;

    while (i == boss || i == liar || i == but) {
        i++;
    }
    return i;
}

/* What `from` passes on as the liar's READY: whether it counts. */
static bool believes(struct cast *c, int from, int i, const struct ready *said)
{
    struct round *r = &c->a[i]->round;
    struct ready_of m = {.epoch = r->epoch,
                         .view = c->a[i]->ballot.hash,
                         .round = r->round,
                         .index = index_of_liar(c),
                         .n_ready = 1,
                         .ready = {*said}};

    say(c, from, i, MESSAGE_READY_OF, &m);
    return r->ready >> m.index & 1;
}

static void nobody_makes_up_a_ready_of_another_member(void **state)
{
    struct cast *c = begin(NOTHING);
    int other = some_other(-1), third = some_other(other);
    struct ready m, of;
    uint32_t before;

    (void)state;
    no_answers = true;
    all_contribute(c);
    c->drop = NULL;
    before = c->a[other]->round.malformed;
    of = m = (struct ready){.body = c->a[liar]->round.mine};

    sign_as(c, boss, &m);
    assert_false(believes(c, boss, other, &m));
    assert_int_equal(c->a[other]->round.malformed, before + 1);

    m.body.epoch++; /* of another attempt */
    sign_as(c, liar, &m);
    assert_false(believes(c, boss, other, &m));
    m = of;
    m.body.round++;
    sign_as(c, liar, &m);
    assert_false(believes(c, boss, other, &m));
    m = of;
    m.body.view.b[0] ^= 1;
    sign_as(c, liar, &m);
    assert_false(believes(c, boss, other, &m));
    m = of;
    m.body.state.b[0] ^= 1; /* of another state */
    sign_as(c, liar, &m);
    assert_false(believes(c, boss, other, &m));
    m = of;
    m.body.tokens++; /* not what the plan is made of */
    sign_as(c, liar, &m);
    assert_false(believes(c, boss, other, &m));
    m = of;
    m.body.n_rejected = 1; /* true of the plan, and signed */
    sign_as(c, liar, &m);
    assert_false(believes(c, third, other, &m)); /* nobody asked that one */
    assert_int_equal(c->a[other]->round.malformed, before + 1);
    assert_true(believes(c, boss, other, &m));
    cast_close(c);
}

static void what_is_out_of_bounds_is_not_answered(void **state)
{
    struct cast *c = begin(NOTHING);
    struct round *r = &c->a[boss]->round;
    struct ready_of m;

    (void)state;
    c->drop = NULL;
    all_contribute(c);
    c->drop = hook;
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
    m.round--;
    m.epoch++;
    say(c, liar, boss, MESSAGE_READY_OF, &m);
    assert_int_equal(n_answered, 0);
    m.epoch--;
    say(c, liar, boss, MESSAGE_READY_OF, &m);
    assert_int_equal(n_answered, 1);
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_doubts_what_the_coordinator_passes_on),
        cmocka_unit_test(nobody_asks_where_all_is_here),
        cmocka_unit_test(without_an_answer_the_plan_is_doubted),
        cmocka_unit_test(what_the_plan_is_made_of_stays),
        cmocka_unit_test(nobody_makes_up_a_ready_of_another_member),
        cmocka_unit_test(what_is_out_of_bounds_is_not_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
