/* arrivals_test.c - who of those that connect shakes hands, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/arrivals.h"
#include "proto/base/rng.h"

#define BEGIN       1000000ULL /* ms */
#define PATIENCE_MS 4000
#define RATE        50 /* a second, of all strangers */
#define BURST       150

struct fixture {
    struct arrivals a;
    uint64_t now_ms;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct arrivals_options opt;

    assert_non_null(f);
    arrivals_options_default(&opt);
    opt.patience_ms = PATIENCE_MS;
    opt.seed = 7;
    arrivals_init(&f->a, &opt);
    f->now_ms = BEGIN;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

/* a.b.c.d, mapped */
static int come(struct fixture *f, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    const uint8_t ip[16] = {[10] = 0xff, 0xff, a, b, c, d};

    return arrivals_come(&f->a, ip, f->now_ms);
}

/* The same, and it says how it begins at once. */
static int say(struct fixture *f, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    int place = come(f, a, b, c, d);

    if (place != ARRIVALS_ENTER) {
        arrivals_said(&f->a, place);
    }
    return place;
}

/* Peer `who` has a link there. */
static void know(struct fixture *f, uint8_t who, uint8_t b, uint8_t c)
{
    const struct peer_id id = {{who}};
    const uint8_t ip[16] = {[10] = 0xff, 0xff, 7, b, c, 7};

    arrivals_know(&f->a, &id, ip, f->now_ms);
}

/* Uses up what all strangers have. */
static void press(struct fixture *f)
{
    while (say(f, 127, 0, 0, 1) == ARRIVALS_ENTER) {
    }
}

static int enter_next(struct fixture *f)
{
    int place = arrivals_next(&f->a, f->now_ms);

    if (place != ARRIVALS_NONE) {
        arrivals_enter(&f->a, place, f->now_ms);
    }
    return place;
}

static void all_strangers_together_get_their_rate(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    for (int ms = 0; ms < 10000; ms++, f->now_ms++) {
        n += say(f, 127, 0, 0, 1) == ARRIVALS_ENTER;
        n += enter_next(f) != ARRIVALS_NONE;
    }
    assert_in_range(n, BURST + 10 * RATE - 1, BURST + 10 * RATE + 1);
}

static void one_network_of_the_internet_gets_less(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    for (int i = 0; i < 1000; i++) {
        n += say(f, 9, 9, 9, (uint8_t)i) == ARRIVALS_ENTER;
    }
    assert_int_equal(n, 20);
    for (int i = 0; i < 100;
         i++) { /* it waits, and others do not wait for it */
        (void)say(f, 8, 8, (uint8_t)i, 1);
    }
    for (n = 0; enter_next(f) != ARRIVALS_NONE;) {
        n++;
    }
    assert_int_equal(n, 100);
    f->now_ms += 1000;
    for (n = 0; enter_next(f) != ARRIVALS_NONE;) {
        n++;
    }
    assert_int_equal(n, 5);
}

static void a_private_address_is_no_network(void **state)
{
    static const uint8_t loopback6[16] = {[15] = 1};
    struct fixture *f = *state;

    for (int i = 0; i < 50; i++) {
        assert_int_equal(say(f, 10, 0, 0, 7), ARRIVALS_ENTER);
        assert_int_equal(arrivals_come(&f->a, loopback6, f->now_ms),
                         ARRIVALS_ENTER);
    }
}

static void who_is_known_does_not_wait_behind_strangers(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    press(f);
    assert_int_not_equal(say(f, 7, 7, 7, 7), ARRIVALS_ENTER);
    know(f, 1, 7, 7);
    while (say(f, 7, 7, 7, 7) == ARRIVALS_ENTER) {
        n++;
    }
    assert_int_equal(n, 40);
    assert_int_not_equal(say(f, 7, 7, 7, 8), ARRIVALS_ENTER); /* not it */
    f->now_ms += 100; /* one more of it, and 5 strangers */
    assert_int_equal(f->a.places[arrivals_next(&f->a, f->now_ms)].ip[15], 7);
    assert_int_not_equal(enter_next(f), ARRIVALS_NONE);
    f->now_ms += 3600000; /* long ago */
    press(f);
    assert_int_not_equal(say(f, 7, 7, 7, 7), ARRIVALS_ENTER);
}

/* A member with a thousand addresses has no more than one, and who is known
 * elsewhere stays so. */
static void a_peer_is_known_where_it_was_last(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    press(f);
    know(f, 1, 7, 7);
    for (int i = 0; i < 1000; i++) {
        know(f, 2, (uint8_t)(i >> 8), (uint8_t)i);
        n += say(f, 7, (uint8_t)(i >> 8), (uint8_t)i, 7) == ARRIVALS_ENTER;
    }
    assert_int_equal(n, 40);
    assert_int_equal(say(f, 7, 7, 7, 7), ARRIVALS_ENTER);
}

static void one_of_the_largest_group_makes_room(void **state)
{
    struct fixture *f = *state;
    int other;

    press(f);
    other = say(f, 9, 9, 9, 9);
    for (int i = 0; i < 5000; i++) {
        assert_int_not_equal(say(f, 127, 0, 0, 1), other);
    }
    assert_int_equal(f->a.n_waiting, ARRIVALS_WAITING_MAX);
    assert_int_not_equal(say(f, 9, 9, 8, 1), other); /* not the other's place */
    assert_true(f->a.places[other].used);
}

/* A lot for each place would be 40 us a connection. */
static void a_full_room_draws_one_lot_a_connection(void **state)
{
    struct fixture *f = *state;
    uint64_t rng;

    press(f);
    while (f->a.n_waiting < ARRIVALS_WAITING_MAX) {
        (void)say(f, 127, 0, 0, 1);
    }
    rng = f->a.rng;
    (void)say(f, 127, 0, 0, 1);
    (void)rng_next(&rng);
    assert_true(rng == f->a.rng);
}

/* There are as many rows for groups as for places and more. */
static void as_many_groups_as_places_are_told_apart(void **state)
{
    struct fixture *f = *state;

    press(f);
    for (int i = 0; i < 70000; i++) {
        int place = say(f, 9, (uint8_t)(i >> 8), (uint8_t)i, 1);
        const struct arrivals_place *p = &f->a.places[place];

        assert_int_equal(f->a.groups[p->group].ip[14], (uint8_t)i);
    }
    f->now_ms += PATIENCE_MS;
    for (int i = 0; i < ARRIVALS_WAITING_MAX; i++) {
        assert_int_not_equal(arrivals_late(&f->a, f->now_ms), ARRIVALS_NONE);
    }
    assert_int_equal(f->a.n_waiting, 0);
    assert_int_equal(arrivals_late(&f->a, f->now_ms), ARRIVALS_NONE);
}

static void who_says_nothing_gets_no_turn(void **state)
{
    struct fixture *f = *state;
    int honest;

    press(f);
    while (enter_next(f) != ARRIVALS_NONE) {
    }
    arrivals_gone(&f->a, 0);
    assert_int_equal(f->a.n_waiting, 0);
    for (int i = 0; i < 500; i++) {
        (void)come(f, 127, 0, 0, 1);
    }
    honest = come(f, 127, 0, 0, 1);
    f->now_ms += 1000;
    assert_int_equal(arrivals_next(&f->a, f->now_ms), ARRIVALS_NONE);
    arrivals_said(&f->a, honest);
    assert_int_equal(enter_next(f), honest);
    assert_int_equal(enter_next(f), ARRIVALS_NONE);
}

/* 800 come each second and each gives up after one. Who waits longer enters. */
static void a_crowd_without_patience_is_outlived(void **state)
{
    struct fixture *f = *state;
    uint64_t since[ARRIVALS_WAITING_MAX] = {0};
    int honest = ARRIVALS_NONE;

    press(f);
    for (int ms = 0; ms < 2000 * 5; ms++) {
        f->now_ms++;
        if (ms % 5 != 0) {
            int place = say(f, 127, 0, 0, 1);

            if (place != ARRIVALS_ENTER) {
                since[place] = f->now_ms;
            }
        }
        if (ms == 2000) {
            honest = say(f, 127, 0, 0, 1);
        }
        for (int i = 0; i < ARRIVALS_WAITING_MAX; i++) {
            if (i != honest && f->a.places[i].used &&
                f->now_ms - since[i] >= 1000) {
                arrivals_gone(&f->a, i);
            }
        }
        if (enter_next(f) == honest && honest != ARRIVALS_NONE) {
            assert_in_range(ms, 2000, 3200);
            return;
        }
    }
    fail();
}

/* 1,000 wait for as long as they may: by lot the newcomer gets in, too. */
static void of_a_patient_crowd_all_have_the_same_chance(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0, tries = 200;

    press(f);
    for (uint32_t k = 0; k < tries; k++) {
        int honest;

        while (f->a.n_waiting < 1000) {
            (void)say(f, 127, 0, 0, 1);
        }
        honest = say(f, 127, 0, 0, 1);
        for (int ms = 0; ms < PATIENCE_MS; ms++) {
            int place = enter_next(f);

            f->now_ms++;
            n += place == honest;
            if (place == honest) {
                break;
            }
            if (place != ARRIVALS_NONE) {
                (void)say(f, 127, 0, 0, 1);
            }
        }
        arrivals_gone(&f->a, honest);
    }
    /* 100 lots in its time, each one of 1,000 */
    assert_in_range(n, tries / 20, tries / 5);
}

static void a_network_that_was_not_let_in_lately_comes_first(void **state)
{
    struct fixture *f = *state;
    int fresh;

    for (int i = 0; i < BURST; i++) {
        assert_int_equal(say(f, 9, 1, (uint8_t)(i % 100), 1), ARRIVALS_ENTER);
    }
    for (int i = 0; i < 200; i++) {
        assert_int_not_equal(say(f, 9, 1, (uint8_t)(i % 100), 1),
                             ARRIVALS_ENTER);
    }
    fresh = say(f, 9, 2, 1, 1);
    f->now_ms += 20;
    assert_int_equal(enter_next(f), fresh);
}

/* Of one private address many may come, but not before all others. */
static void one_private_address_keeps_nobody_out(void **state)
{
    struct fixture *f = *state;
    int near, far;

    press(f);
    while (f->a.n_waiting < 500) {
        (void)say(f, 127, 0, 0, 1);
    }
    far = say(f, 9, 9, 9, 9);
    f->now_ms += 20;
    assert_int_equal(enter_next(f), far);
    far = say(f, 9, 9, 9, 9);
    near = say(f, 127, 0, 0, 2);
    f->now_ms += 20;
    assert_int_equal(enter_next(f), near);
    f->now_ms += 20;
    assert_int_equal(enter_next(f), far);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_strangers_together_get_their_rate),
        TEST(one_network_of_the_internet_gets_less),
        TEST(a_private_address_is_no_network),
        TEST(who_is_known_does_not_wait_behind_strangers),
        TEST(a_peer_is_known_where_it_was_last),
        TEST(one_of_the_largest_group_makes_room),
        TEST(a_full_room_draws_one_lot_a_connection),
        TEST(as_many_groups_as_places_are_told_apart),
        TEST(who_says_nothing_gets_no_turn),
        TEST(a_crowd_without_patience_is_outlived),
        TEST(of_a_patient_crowd_all_have_the_same_chance),
        TEST(a_network_that_was_not_let_in_lately_comes_first),
        TEST(one_private_address_keeps_nobody_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
