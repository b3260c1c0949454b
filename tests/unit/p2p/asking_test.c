/* asking_test.c - who asks for a new view, how often it may, and who pays. */
#include "p2p/round/asking.h"
#include "tests/unit/p2p/ballots.h"

/* ---- accounts ----------------------------------------------------------- */

static const uint8_t *key(uint32_t i)
{
    static uint8_t k[32];

    memset(k, 0, sizeof k);
    memcpy(k, &i, sizeof i);
    return k;
}

static void three_at_once_and_then_one_in_ten_rounds(void **state)
{
    struct asking a = {0};
    uint32_t n = 0;

    (void)state;
    for (uint64_t round = 5; round < 65; round++) {
        if (asking_may(&a, key(1), round)) {
            asking_charge(&a, key(1), round);
            n++;
        }
        while (round == 5 && n < 9 && asking_may(&a, key(1), round)) {
            asking_charge(&a, key(1), round);
            n++;
        }
        assert_int_equal(n, 3 + (round - 5) / 10);
    }
    assert_true(asking_may(&a, key(2), 5));
    asking_begin(&a, 64); /* a view later */
    assert_false(asking_may(&a, key(1), 64));
    asking_begin(&a, 2); /* on another branch */
    assert_false(asking_may(&a, key(1), 2));
    assert_true(asking_may(&a, key(1), 12));
}

static void accounts_are_bounded_and_who_owes_most_is_kept(void **state)
{
    struct asking a = {0};

    (void)state;
    for (int k = 0; k < 3; k++) {
        asking_charge(&a, key(1), 100);
    }
    for (uint32_t i = 2; i < 2 + 4 * ASKING_ACCOUNTS; i++) {
        asking_charge(&a, key(i), 100);
    }
    assert_false(asking_may(&a, key(1), 100));
}

/* ---- members ------------------------------------------------------------ */

static struct suspect asks(const struct cast *c, int i, int whom)
{
    const struct ballot *b = &c->a[0]->ballot;

    return (struct suspect){.epoch = b->cert.body.epoch,
                            .view = b->hash,
                            .ballot = ballot_of(c, whom, b->next_ballot),
                            .by = asker_of(c, i)};
}

static bool may(const struct cast *c, int at, int whom)
{
    return asking_may(&c->a[at]->ballot.asks, c->a[whom]->identity.public,
                      c->a[at]->known);
}

static uint64_t epoch_of(const struct cast *c, int i)
{
    return c->a[i]->ballot.cert.body.epoch;
}

/* Actor 1 asks for views until it gets none: how many there were. */
static uint32_t views_of(struct cast *c)
{
    uint32_t n = 0;

    for (uint64_t epoch = epoch_of(c, 0); n < 10; n++, epoch++) {
        struct suspect s = asks(c, 1, 0);

        say(c, 1, 0, MESSAGE_SUSPECT, &s);
        say(c, 1, 0, MESSAGE_SUSPECT, &s); /* twice is once */
        cast_wait(c, 5000);
        if (epoch_of(c, 0) == epoch) {
            break;
        }
    }
    return n;
}

static void make_rounds(struct cast *c, int n)
{
    for (int k = 0; k < n; k++) {
        all_contribute(c);
        finish_round(c);
    }
}

static void who_asks_without_a_cause_gets_three_views(void **state)
{
    struct cast *c = cast_open(4);

    (void)state;
    assert_int_equal(views_of(c), 3);
    for (int i = 0; i < 4; i++) {
        assert_false(may(c, i, 1));
        assert_true(may(c, i, 2));
    }
    make_rounds(c, 9);
    assert_int_equal(views_of(c), 0);
    make_rounds(c, 1);
    assert_int_equal(views_of(c), 1);
    cast_close(c);
}

/* What it said in an earlier view, or long ago in this one, is no word. */
static void an_old_word_is_worth_nothing(void **state)
{
    struct cast *c = cast_open(4);
    struct suspect old = asks(c, 1, 0), s;

    (void)state;
    s = old;
    s.by.round++; /* it is in what was signed */
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_int_equal(c->a[0]->ballot.malformed, 1);
    make_rounds(c, 2);
    say(c, 2, 0, MESSAGE_SUSPECT, &old);
    assert_int_equal(c->a[0]->ballot.want, BALLOT_WANT_NOTHING);
    s = asks(c, 1, 0);
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    cast_wait(c, 5000);
    assert_int_equal(epoch_of(c, 0), 2);
    old = s;
    old.epoch = 2;
    old.view = c->a[0]->ballot.hash;
    say(c, 2, 0, MESSAGE_SUSPECT, &old);
    assert_int_equal(c->a[0]->ballot.want, BALLOT_WANT_NOTHING);
    cast_close(c);
}

/* Beyond its account a round in flight goes on, and nobody signs for it. */
static void a_ballot_of_one_in_debt_ends_no_round(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p;

    (void)state;
    assert_int_equal(views_of(c), 3);
    all_contribute(c);
    p = prepare_of(c, ballot_of(c, 1, 1));
    for (int i = 0; i < 4; i++) {
        if (i != 1) {
            say(c, 1, i, MESSAGE_PREPARE, &p);
            assert_false(c->a[i]->ballot.frozen);
        }
    }
    p.n_shown = 0; /* nobody's word */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.n_shown = 1;
    p.shown[0] = asker_of(c, 2);
    p.shown[0].sig[0] ^= 1;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.frozen);
    finish_round(c);
    p = prepare_of(c, p.ballot); /* nor between two rounds */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.urgent = false;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.frozen);
    p.shown[0] = asker_of(c, 2); /* of an accomplice, whose account it is */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.frozen);
    cast_close(c);
}

/* Its owner asks once more, as no answer came: the disk has it already. */
static void a_promise_said_again_is_saved_once(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 1));
    uint32_t n_saves;

    (void)state;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.frozen);
    n_saves = c->a[0]->n_saves;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_int_equal(c->a[0]->n_saves, n_saves);
    ballot_save_failed(&c->a[0]->ballot);
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_int_equal(c->a[0]->n_saves, n_saves + 1);
    cast_close(c);
}

/* Its round is late: everybody sees the cause. */
static void a_round_that_stands_still_is_a_cause(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p;

    (void)state;
    assert_int_equal(views_of(c), 3);
    all_contribute(c); /* and no segment moves */
    p = prepare_of(c, ballot_of(c, 1, 1));
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.frozen);
    c->now_ms += 1000; /* half of what a hop may take */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.frozen);
    for (int k = 0; k < 100 && epoch_of(c, 0) == 4; k++) {
        cast_tick(c, 100);
    }
    assert_int_equal(epoch_of(c, 0), 5);
    assert_true(may(c, 0, 2) && may(c, 0, 3)); /* nobody pays */
    cast_close(c);
}

/* Who saw a loss before the others did does not pay. */
static void the_first_to_see_a_loss_pays_nothing(void **state)
{
    struct cast *c = cast_open(5);
    struct suspect s = asks(c, 1, 0);

    (void)state;
    cast_cut(c, 4);
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_int_equal(c->a[0]->ballot.want, BALLOT_WANT_CHANGE);
    cast_wait(c, 5000);
    assert_int_equal(epoch_of(c, 0), 2);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 4);
    c->n = 4;
    assert_int_equal(views_of(c), 3);
    cast_close(c);
}

/* It asks one member alone: that one is frozen, all hear of it, and the one
 * that is frozen does not pay for ending what another began. */
static void who_asks_one_member_alone_pays_everybody(void **state)
{
    struct cast *c = cast_open(4);

    (void)state;
    for (uint64_t epoch = 1; epoch < 4; epoch++) {
        struct prepare p = prepare_of(c, ballot_of(c, 1, 1));

        say(c, 1, 0, MESSAGE_PREPARE, &p);
        assert_true(c->a[0]->ballot.frozen);
        assert_false(c->a[2]->ballot.frozen || c->a[3]->ballot.frozen);
        cast_wait(c, 5000);
        assert_int_equal(epoch_of(c, 0), epoch + 1);
    }
    for (int i = 0; i < 4; i++) {
        assert_false(may(c, i, 1));
        assert_true(may(c, i, 0));
    }
    cast_close(c);
}

/* ---- turns -------------------------------------------------------------- */

static bool to_one(const struct letter *l)
{
    return l->to == 1;
}

/* An owner that begins ballot after ballot, and ends none. */
static void an_owner_that_never_ends_does_not_stop_the_others(void **state)
{
    struct cast *c = cast_open(4);

    (void)state;
    for (int k = 0; k < 200 && epoch_of(c, 0) == 1; k++) {
        uint64_t from = c->a[0]->ballot.promised + 1;
        struct prepare p = prepare_of(c, ballot_of(c, 1, from));

        c->drop = NULL;
        for (int i = 0; i < 4; i++) {
            if (i != 1) {
                say(c, 1, i, MESSAGE_PREPARE, &p);
            }
        }
        c->drop = to_one; /* it is not honest beside */
        cast_tick(c, 100);
    }
    assert_int_equal(epoch_of(c, 0), 2);
    cast_close(c);
}

/* Nobody believed it, and the round of which it despaired is committed. */
static void a_wish_ends_with_its_round(void **state)
{
    struct cast *c = cast_open(4);

    (void)state;
    assert_int_equal(views_of(c), 3);
    all_contribute(c);
    ballot_want(&c->a[1]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    cast_tick(c, 0);
    assert_false(c->a[1]->ballot.frozen);
    assert_int_equal(c->a[1]->ballot.want, BALLOT_WANT_CHANGE);
    finish_round(c);
    cast_tick(c, 0);
    assert_int_equal(c->a[1]->ballot.want, BALLOT_WANT_NOTHING);
    assert_int_equal(epoch_of(c, 0), 4);
    cast_close(c);
}

/* Who promised a higher ballot says so, and is not left out. */
static void who_promised_more_is_asked_again(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 40));
    struct suspect s = asks(c, 1, 0);

    (void)state;
    say(c, 1, 2, MESSAGE_PREPARE, &p);
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    for (int k = 0; k < 40 && epoch_of(c, 0) == 1; k++) {
        cast_tick(c, 100);
    }
    assert_int_equal(epoch_of(c, 0), 2);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 4);
    cast_close(c);
}

/* It saw no cause, and more than half promised: it is in the next ballot. */
static void who_refused_follows_more_than_half(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    struct accept *a = accept_of(c, ballot);

    (void)state;
    accept_by(c, ballot, 14, NULL, a);
    a->of.proposal.promises[0].sig[0] ^= 1; /* they did not */
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_false(c->a[0]->ballot.frozen);
    ballot = ballot_of(c, 1, ballot + 1);
    accept_by(c, ballot, 14, NULL, a);
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_true(c->a[0]->ballot.frozen);
    assert_int_equal(c->a[0]->ballot.promised, ballot);
    assert_false(c->a[0]->ballot.has_accepted);
    free(a);
    cast_close(c);
}

#define T(test) cmocka_unit_test(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(three_at_once_and_then_one_in_ten_rounds),
        T(accounts_are_bounded_and_who_owes_most_is_kept),
        T(who_asks_without_a_cause_gets_three_views),
        T(an_old_word_is_worth_nothing),
        T(a_ballot_of_one_in_debt_ends_no_round),
        T(a_promise_said_again_is_saved_once),
        T(a_round_that_stands_still_is_a_cause),
        T(the_first_to_see_a_loss_pays_nothing),
        T(who_asks_one_member_alone_pays_everybody),
        T(an_owner_that_never_ends_does_not_stop_the_others),
        T(a_wish_ends_with_its_round),
        T(who_promised_more_is_asked_again),
        T(who_refused_follows_more_than_half),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
