/* repeat_test.c - audits of work: what a reading says, who is drawn, who is
 * convicted, and what it costs to accuse without a cause. */
#include "p2p/round/repeat.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"

static struct repeat r;

static struct peer_id id_of(uint32_t i)
{
    struct peer_id id = {.b = {1, (uint8_t)i, (uint8_t)(i >> 8)}};

    return id;
}

/* All are full and have a lease. */
static struct repeat_commit commit_of(uint64_t round, uint32_t n)
{
    struct repeat_commit c = {.round = round, .n = n};

    c.hash.b[0] = (uint8_t)round;
    c.hash.b[1] = (uint8_t)(round >> 8);
    for (uint32_t i = 0; i < n; i++) {
        c.member[i] = id_of(i);
        c.full |= 1ULL << i;
    }
    c.lease = c.full;
    return c;
}

static struct repeat_commit begin(uint64_t round, uint32_t n)
{
    struct repeat_commit c = commit_of(round, n);

    repeat_init(&r);
    repeat_commit(&r, &c);
    return c;
}

static enum repeat_end
accuse(const struct repeat_commit *c, uint32_t who, uint32_t whom)
{
    struct peer_id a = id_of(who), b = id_of(whom);

    return repeat_accuse(&r, &a, &c->hash, &b);
}

static enum repeat_end say(const struct repeat_commit *c,
                           uint32_t who,
                           uint32_t whom,
                           enum repeat_verdict verdict)
{
    struct peer_id a = id_of(who), b = id_of(whom);

    return repeat_say(&r, &a, &c->hash, &b, verdict);
}

/* ---- readings ----------------------------------------------------------- */

static const struct repeat_reading honest = {.cosine = 0.99,
                                             .own = 0.98,
                                             .length = 1.01,
                                             .best = 0.995,
                                             .best_own = 0.99,
                                             .has_steady = true,
                                             .steady = 1};

static void work_is_good_near_its_repeat(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.own = 0.999 * REPEAT_OWN * m.best_own; /* other text, fewer steps */
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.own = 1.001 * REPEAT_OWN * m.best_own;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.cosine = 0.999 * REPEAT_NEAR * m.best;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.cosine = -1; /* a flipped sign */
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m = honest;
    m.length = 1.01 * REPEAT_LENGTH;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.length = 0.99 / REPEAT_LENGTH;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.length = 0;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.length = 1.01 / REPEAT_LENGTH;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
}

/* As near as two repeats are to each other, about. */
static void what_the_next_step_is_made_of_may_part_as_repeats_do(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.has_next = true;
    m.has_steady = false;
    m.next = repeat_next(0.99 * REPEAT_NEXT, 0);
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.next = repeat_next(0.3, 0);
    assert_int_equal(repeat_judge(&m), REPEAT_AGAIN); /* is it wild? */
    m.has_steady = true;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.next = repeat_next(0.3, 0.3);
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.next = repeat_next(2, 0.3);
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.next = repeat_next((double)INFINITY, 0.3);
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.steady = 0.9; /* so is training, and there */
    m.has_calm = true;
    m.calm = 0.9;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
}

/* Its moments are of a few steps, and ours are not. */
static void a_beginner_may_be_wild_where_we_are_calm(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.own = 0.9;
    m.steady = 0.95;
    m.has_calm = true;
    m.calm = 1;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.begins = true;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.has_calm = false; /* it is not even tried */
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.own = 0.99 * REPEAT_FAR * m.best_own; /* but a gross lie is one */
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.steady = 1;
    m.own = 0.9;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
}

static void nobody_is_accused_where_training_is_wild(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.has_steady = false;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD); /* no second repeat */
    m.own = 0.9;
    assert_int_equal(repeat_judge(&m), REPEAT_AGAIN);
    m.has_steady = true;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.steady = REPEAT_STEADY;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.steady = REPEAT_STEADY - 0.001;
    assert_int_equal(repeat_judge(&m), REPEAT_AGAIN); /* with our moments? */
    m.has_calm = true;
    m.calm = 0.99 * REPEAT_CALM;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.steady = (double)NAN;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.own = honest.own;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
}

/* It is wild with the maker's moments alone: the maker chose them. */
static void wild_moments_do_not_hide_bad_work(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.own = 0.9;
    m.steady = 0.5;
    m.has_calm = true;
    m.calm = REPEAT_CALM;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.calm = (double)NAN;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.calm = 1;
    m.own = honest.own;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
}

/* Long moments steer what comes of any text, and short ones make it wild; but
 * so does text of another kind, and nobody is convicted for that. */
static void of_moments_of_another_length_nothing_is_said(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.stretch = 2 * REPEAT_STRETCH;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD); /* not known */
    m.has_stretch = true;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.stretch = REPEAT_STRETCH;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.stretch = (double)INFINITY;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.stretch = (double)NAN;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m.cosine = 0; /* a lie is one, whatever its moments are */
    m.has_steady = true;
    m.steady = 1;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
}

/* A wire of few bits takes as much from honest work as from the repeat. */
static void rounding_is_no_lie(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.own = 0.7;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.best_own = 0.71;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.own = 0;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.best_own = 0.99 * REPEAT_CLEAR; /* nothing is left to tell */
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    m = honest;
    m.best = 0;
    assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
}

/* Whoever may choose its moments chooses where its work points. */
static void moments_go_on_where_they_ended(void **state)
{
    struct repeat_reading m = honest;

    (void)state;
    m.after = -1;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD); /* not known */
    m.has_after = true;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.after = 0.99 * REPEAT_AFTER;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.after = REPEAT_AFTER;
    m.after_stretch = REPEAT_AFTER_STRETCH;
    assert_int_equal(repeat_judge(&m), REPEAT_GOOD);
    m.after_stretch *= 1.01; /* the same direction, another length */
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.after_stretch = (double)NAN;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.after_stretch = 1;
    m.after = (double)NAN;
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
    m.after = REPEAT_AFTER;
    m.cosine = 0; /* and the work counts all the same */
    assert_int_equal(repeat_judge(&m), REPEAT_BAD);
}

static void what_is_no_number_says_nothing(void **state)
{
    struct repeat_reading lie = honest;

    (void)state;
    lie.cosine = -1;
    lie.has_after = true;
    assert_int_equal(repeat_judge(&lie), REPEAT_BAD);
    for (int i = 0; i < 10; i++) {
        struct repeat_reading m = lie;
        double *const field[5] = {&m.cosine, &m.own, &m.length, &m.best,
                                  &m.best_own};

        *field[i / 2] = i % 2 == 0 ? (double)NAN : (double)INFINITY;
        assert_int_equal(repeat_judge(&m), REPEAT_UNCLEAR);
    }
}

/* ---- draws -------------------------------------------------------------- */

static void draws_are_rare_and_of_all_others_alike(void **state)
{
    enum { N = 8, SELF = 3, DRAWS = 80000 };
    const struct repeat_commit c = commit_of(9, N);
    uint32_t times[N] = {0}, all = 0, whom = 0;

    (void)state;
    for (uint64_t secret = 0; secret < DRAWS; secret++) {
        const uint64_t words[1] = {secret};

        if (repeat_draw(&c, SELF, rng_mix(words, 1), &whom)) {
            assert_in_range(whom, 0, N - 1);
            times[whom]++;
            all++;
        }
    }
    assert_in_range(all, DRAWS / REPEAT_EVERY * 9 / 10,
                    DRAWS / REPEAT_EVERY * 11 / 10);
    assert_int_equal(times[SELF], 0);
    for (uint32_t i = 0; i < N; i++) {
        if (i != SELF) {
            assert_in_range(times[i], all / 7 * 3 / 4, all / 7 * 5 / 4);
        }
    }
}

static void only_leases_are_drawn(void **state)
{
    struct repeat_commit c = commit_of(9, 4);
    uint32_t whom = 0, drawn = 0;

    (void)state;
    c.lease = 0x5;
    for (uint64_t secret = 0; secret < 4000; secret++) {
        const uint64_t words[1] = {secret};
        uint64_t s = rng_mix(words, 1);

        if (repeat_draw(&c, 0, s, &whom)) {
            assert_int_equal(whom, 2);
            drawn++;
        }
        assert_false(repeat_draw(&c, 4, s, &whom)); /* no member */
    }
    assert_true(drawn > 0);
    c.lease = 0x1; /* nobody else's */
    for (uint64_t secret = 0; secret < 4000; secret++) {
        assert_false(repeat_draw(&c, 0, secret, &whom));
    }
}

/* Nobody could be convicted, or nobody would ask us what we read. */
static void who_has_no_word_audits_nobody(void **state)
{
    struct repeat_commit c = commit_of(9, 2);
    uint32_t whom = 0, drawn = 0;

    (void)state;
    for (uint64_t secret = 0; secret < 4000; secret++) {
        assert_false(repeat_draw(&c, 0, secret, &whom));
    }
    c = commit_of(9, 4);
    c.full = 0x7;
    for (uint64_t secret = 0; secret < 4000; secret++) {
        assert_false(repeat_draw(&c, 3, secret, &whom)); /* on probation */
        drawn += repeat_draw(&c, 0, secret, &whom);
    }
    assert_true(drawn > 0);
}

/* ---- cases -------------------------------------------------------------- */

static void more_than_half_of_the_full_members_convict(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= VIEW_MEMBERS_MAX; n++) {
        const struct repeat_commit c = begin(9, n);
        uint32_t bad = 1;

        assert_int_equal(accuse(&c, 1, 0), REPEAT_NEW);
        for (uint32_t i = 2; i < n; i++) {
            bool enough = 2 * ++bad > n;

            assert_int_equal(say(&c, i, 0, REPEAT_BAD),
                             enough ? REPEAT_CONVICTED : REPEAT_OPEN);
            if (enough) {
                break;
            }
        }
        assert_true(2 * bad > n);
        /* It is over. */
        assert_int_equal(say(&c, n - 1, 0, REPEAT_BAD), REPEAT_NONE);
        /* Who was right owes nothing. */
        assert_true(repeat_may_accuse(&r, &c.member[1], 9));
    }
}

/* Three of eight, and four: all that lie say bad of an honest member. */
static void half_of_the_members_convict_nobody(void **state)
{
    (void)state;
    for (uint32_t liars = 1; liars <= 4; liars++) {
        const struct repeat_commit c = begin(9, 8);
        enum repeat_end end = accuse(&c, 0, 7);

        assert_int_equal(end, REPEAT_NEW);
        for (uint32_t i = 1; i < liars; i++) {
            assert_int_equal(say(&c, i, 7, REPEAT_BAD), REPEAT_OPEN);
            assert_int_equal(say(&c, i, 7, REPEAT_BAD), REPEAT_NONE);
        }
        for (uint32_t i = liars; i < 7 && end != REPEAT_DISMISSED; i++) {
            end = say(&c, i, 7, i % 2 == 0 ? REPEAT_GOOD : REPEAT_UNCLEAR);
            assert_int_not_equal(end, REPEAT_CONVICTED);
        }
        assert_int_equal(end, REPEAT_DISMISSED);
        assert_false(repeat_may_accuse(&r, &c.member[0], 9));
        assert_int_equal(accuse(&c, 0, 7), REPEAT_NONE);
        assert_int_equal(accuse(&c, 0, 6), REPEAT_NONE);
    }
}

static void the_word_of_a_second_accuser_may_convict(void **state)
{
    const struct repeat_commit c = begin(9, 3);

    (void)state;
    assert_int_equal(accuse(&c, 0, 2), REPEAT_NEW);
    assert_int_equal(accuse(&c, 0, 2), REPEAT_NONE); /* one word each */
    assert_int_equal(accuse(&c, 1, 2), REPEAT_CONVICTED);
}

static void who_is_no_full_member_has_no_word(void **state)
{
    struct repeat_commit c = commit_of(9, 6), other = commit_of(10, 6);

    (void)state;
    c.full = 0x1f; /* 5 is on probation */
    c.lease = 0x2f;
    repeat_init(&r);
    assert_int_equal(accuse(&c, 0, 1), REPEAT_NONE); /* no commit */
    repeat_commit(&r, &c);
    assert_int_equal(accuse(&other, 0, 1), REPEAT_NONE);
    assert_int_equal(accuse(&c, 5, 1), REPEAT_NONE);
    assert_int_equal(accuse(&c, 1, 1), REPEAT_NONE);
    assert_int_equal(accuse(&c, 0, 4), REPEAT_NONE); /* no lease */
    assert_int_equal(accuse(&c, 0, 9), REPEAT_NONE);
    assert_int_equal(accuse(&c, 9, 0), REPEAT_NONE);
    assert_int_equal(say(&c, 0, 1, REPEAT_BAD), REPEAT_NONE); /* no case */
    /* What was offered on probation is audited, too. */
    assert_int_equal(accuse(&c, 0, 5), REPEAT_NEW);
    assert_int_equal(say(&c, 5, 5, REPEAT_GOOD), REPEAT_NONE);
    assert_int_equal(say(&c, 9, 5, REPEAT_BAD), REPEAT_NONE);
    assert_int_equal(say(&c, 1, 5, REPEAT_BAD), REPEAT_OPEN);
    assert_int_equal(say(&c, 2, 5, REPEAT_BAD), REPEAT_CONVICTED);
}

static void two_members_cannot_convict_each_other(void **state)
{
    const struct repeat_commit c = begin(9, 2);

    (void)state;
    assert_int_equal(accuse(&c, 0, 1), REPEAT_NONE);
    assert_true(repeat_may_accuse(&r, &c.member[0], 9));
}

static void a_case_ends_with_its_contributions(void **state)
{
    struct repeat_commit c = begin(9, 4), next;

    (void)state;
    assert_int_equal(accuse(&c, 0, 1), REPEAT_NEW);
    next = commit_of(10, 4);
    repeat_commit(&r, &next);
    assert_int_equal(say(&c, 2, 1, REPEAT_BAD), REPEAT_OPEN);
    assert_int_equal(accuse(&next, 3, 1), REPEAT_NEW); /* another work */
    for (uint64_t round = 11; round < 9 + REPEAT_COMMITS; round++) {
        next = commit_of(round, 4);
        repeat_commit(&r, &next);
    }
    assert_true(repeat_may_accuse(&r, &c.member[0], 8 + REPEAT_COMMITS));
    next = commit_of(9 + REPEAT_COMMITS, 4);
    repeat_commit(&r, &next);
    assert_int_equal(say(&c, 3, 1, REPEAT_BAD), REPEAT_NONE);
    assert_false(repeat_may_accuse(&r, &c.member[0], 9 + REPEAT_COMMITS));
    assert_true(repeat_may_accuse(&r, &c.member[3], 9 + REPEAT_COMMITS));
}

/* We missed some commits. What others forgot nobody would speak about. */
static void a_gap_keeps_no_old_commit(void **state)
{
    struct repeat_commit c = begin(9, 4), next;

    (void)state;
    assert_int_equal(accuse(&c, 0, 1), REPEAT_NEW);
    next = commit_of(8 + REPEAT_COMMITS, 4);
    repeat_commit(&r, &next);
    assert_int_equal(accuse(&c, 2, 3), REPEAT_NEW); /* just in time */
    next = commit_of(9 + REPEAT_COMMITS, 4);
    repeat_commit(&r, &next);
    assert_int_equal(say(&c, 3, 1, REPEAT_BAD), REPEAT_NONE);
    assert_int_equal(accuse(&c, 3, 2), REPEAT_NONE);
    assert_false(repeat_may_accuse(&r, &c.member[0], 9 + REPEAT_COMMITS));
    assert_int_equal(r.n_commits, 2);
}

/* Words are said more than once: one that is late opens no second case. */
static void a_case_is_had_once(void **state)
{
    struct repeat_commit c = begin(9, 4);

    (void)state;
    assert_int_equal(accuse(&c, 0, 1), REPEAT_NEW);
    assert_int_equal(say(&c, 2, 1, REPEAT_BAD), REPEAT_OPEN);
    assert_int_equal(say(&c, 3, 1, REPEAT_BAD), REPEAT_CONVICTED);
    assert_int_equal(accuse(&c, 2, 1), REPEAT_NONE);
    assert_int_equal(accuse(&c, 0, 2), REPEAT_NEW);
    assert_int_equal(say(&c, 1, 2, REPEAT_GOOD), REPEAT_DISMISSED);
    assert_int_equal(accuse(&c, 3, 2), REPEAT_NONE);
}

/* A liar accuses whenever it may; each case is a repeat of everybody. */
static void false_accusations_become_rare(void **state)
{
    struct repeat_commit c = begin(1, 8);
    uint32_t cases = 0;

    (void)state;
    for (uint64_t round = 2; round < 1000; round++) {
        uint32_t whom = 1 + (uint32_t)(round % 7);

        if (accuse(&c, 0, whom) == REPEAT_NEW) {
            cases++;
            for (uint32_t i = 1; i < 8; i++) {
                (void)say(&c, i, whom, REPEAT_GOOD);
            }
        }
        assert_int_equal(accuse(&c, 0, 1 + (whom % 7)), REPEAT_NONE);
        c = commit_of(round, 8);
        repeat_commit(&r, &c);
    }
    assert_int_equal(cases, 5);
}

/* So many liars accuse at once that there is no room for a true accusation. */
static void fill_up(const struct repeat_commit *c)
{
    for (uint32_t i = 0; i < REPEAT_CASES_MAX; i++) {
        assert_int_equal(accuse(c, i, 10 + i), REPEAT_NEW);
    }
    assert_int_equal(accuse(c, 8, 9), REPEAT_WAITS);
    assert_int_equal(accuse(c, 8, 9), REPEAT_NONE);
}

static bool is_open(const struct repeat_commit *c, uint32_t accused, bool waits)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &r.cases[i];

        if (k->open && id_eq(&r.commit[k->commit].member[k->accused],
                             &c->member[accused])) {
            return k->waits == waits;
        }
    }
    return false;
}

static void an_accusation_without_room_is_kept(void **state)
{
    struct repeat_commit c = begin(9, 20), next = commit_of(10, 20);

    (void)state;
    fill_up(&c);
    repeat_commit(&r, &next);
    assert_true(is_open(&c, 9, true));
    for (uint32_t i = 1; i < 12; i++) { /* the first one ends */
        (void)say(&c, i, 10, REPEAT_GOOD);
    }
    assert_true(is_open(&c, 9, false));
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(say(&c, i, 9, REPEAT_BAD), REPEAT_OPEN);
    }
    assert_int_equal(say(&c, 11, 9, REPEAT_BAD), REPEAT_OPEN);
    assert_int_equal(say(&c, 12, 9, REPEAT_BAD), REPEAT_CONVICTED);
}

/* Others may have had room for it. */
static void words_count_while_a_case_waits(void **state)
{
    const struct repeat_commit c = begin(9, 20);

    (void)state;
    fill_up(&c);
    for (uint32_t i = 11; i < 20; i++) {
        assert_int_equal(say(&c, i, 9, REPEAT_BAD), REPEAT_OPEN);
    }
    assert_int_equal(accuse(&c, 0, 9), REPEAT_CONVICTED);
}

static void a_case_that_found_no_room_costs_nothing(void **state)
{
    struct repeat_commit c = begin(9, 20), next;

    (void)state;
    fill_up(&c);
    for (uint64_t round = 10; round <= 9 + REPEAT_FRESH; round++) {
        next = commit_of(round, 20);
        repeat_commit(&r, &next);
    }
    for (uint32_t i = 1; i < 12; i++) {
        (void)say(&c, i, 10, REPEAT_GOOD);
    }
    assert_true(is_open(&c, 9, true)); /* too late */
    for (uint64_t round = 10 + REPEAT_FRESH; round <= 9 + REPEAT_COMMITS;
         round++) {
        next = commit_of(round, 20);
        repeat_commit(&r, &next);
    }
    assert_true(repeat_may_accuse(&r, &c.member[8], 9 + REPEAT_COMMITS));
    assert_false(repeat_may_accuse(&r, &c.member[0], 9 + REPEAT_COMMITS));
}

static void cases_and_accounts_are_bounded(void **state)
{
    struct repeat_commit c = begin(1, VIEW_MEMBERS_MAX);
    struct peer_id first = id_of(0), worst = id_of(1);
    uint64_t round = 1;

    (void)state;
    for (uint32_t i = 0; i < REPEAT_CASES_MAX; i++) {
        assert_int_equal(accuse(&c, i, 40 + i), REPEAT_NEW);
    }
    for (uint32_t i = REPEAT_CASES_MAX; i < 32; i++) {
        assert_int_equal(accuse(&c, i, 44 + i % 20), i < REPEAT_CASES_MAX + 20
                                                         ? REPEAT_WAITS
                                                         : REPEAT_OPEN);
    }
    assert_int_equal(accuse(&c, 20, 30), REPEAT_NONE); /* one of each */
    /* Many keys fail, each once; one has failed twice and is kept. */
    for (uint32_t i = 0; i < 3 * REPEAT_ACCOUNTS; i++) {
        for (uint32_t k = 0; k < REPEAT_COMMITS; k++) {
            round += i == 0 ? REPEAT_WAIT : 0;
            c = commit_of(round, VIEW_MEMBERS_MAX);
            c.hash.b[2] = (uint8_t)i;
            c.hash.b[3] = (uint8_t)(i >> 8);
            c.hash.b[4] = (uint8_t)k;
            c.member[0] = i == 0 ? worst : id_of(1000 + i);
            repeat_commit(&r, &c);
        }
        assert_int_equal(repeat_accuse(&r, &c.member[0], &c.hash, &c.member[9]),
                         REPEAT_NEW);
    }
    assert_false(repeat_may_accuse(&r, &worst, round));
    assert_true(repeat_may_accuse(&r, &first, round)); /* forgotten, or over */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_good_near_its_repeat),
        cmocka_unit_test(what_the_next_step_is_made_of_may_part_as_repeats_do),
        cmocka_unit_test(a_beginner_may_be_wild_where_we_are_calm),
        cmocka_unit_test(nobody_is_accused_where_training_is_wild),
        cmocka_unit_test(rounding_is_no_lie),
        cmocka_unit_test(wild_moments_do_not_hide_bad_work),
        cmocka_unit_test(of_moments_of_another_length_nothing_is_said),
        cmocka_unit_test(moments_go_on_where_they_ended),
        cmocka_unit_test(what_is_no_number_says_nothing),
        cmocka_unit_test(draws_are_rare_and_of_all_others_alike),
        cmocka_unit_test(only_leases_are_drawn),
        cmocka_unit_test(who_has_no_word_audits_nobody),
        cmocka_unit_test(more_than_half_of_the_full_members_convict),
        cmocka_unit_test(half_of_the_members_convict_nobody),
        cmocka_unit_test(the_word_of_a_second_accuser_may_convict),
        cmocka_unit_test(who_is_no_full_member_has_no_word),
        cmocka_unit_test(two_members_cannot_convict_each_other),
        cmocka_unit_test(a_case_ends_with_its_contributions),
        cmocka_unit_test(a_gap_keeps_no_old_commit),
        cmocka_unit_test(a_case_is_had_once),
        cmocka_unit_test(false_accusations_become_rare),
        cmocka_unit_test(an_accusation_without_room_is_kept),
        cmocka_unit_test(words_count_while_a_case_waits),
        cmocka_unit_test(a_case_that_found_no_room_costs_nothing),
        cmocka_unit_test(cases_and_accounts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
