/* rests_test.c - for how many rounds a member is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/round/rests.h"

static struct peer_id id_of(uint32_t i)
{
    return (struct peer_id){.b = {(uint8_t)i, (uint8_t)(i >> 8), 1}};
}

/* Rounds, from `from` on, for which peer i is named. */
static uint64_t named(const struct rests *s, uint32_t i, uint64_t from)
{
    const struct peer_id ids[3] = {id_of(1000), id_of(i), id_of(1001)};
    uint64_t n = 0;

    while (rests_mask(s, ids, 3, from + n) == 2) {
        n++;
    }
    assert_int_equal(rests_mask(s, ids, 3, from + n), 0);
    return n;
}

static void rests_double_up_to_64_rounds(void **state)
{
    const uint64_t rests[] = {2, 4, 8, 16, 32, 64, 64, 64};
    struct rests s = {0};
    const struct peer_id who = id_of(7);
    uint64_t round = 100;

    (void)state;
    for (uint32_t k = 0; k < 8; k++) {
        rests_add(&s, &who, round);
        assert_int_equal(named(&s, 7, round), rests[k] + 1); /* and this one */
        rests_add(&s, &who, round + 1); /* while it rests */
        assert_int_equal(named(&s, 7, round), rests[k] + 1);
        round += rests[k] + 1;
    }
    assert_int_equal(s.n_seen, 8);
    assert_int_equal(s.n, 1);
}

/* One time less for each 64 rounds without any. */
static void time_without_silence_shortens_the_next_rest(void **state)
{
    struct rests s = {0};
    const struct peer_id who = id_of(7);

    (void)state;
    for (uint32_t k = 0, round = 1; k < 4; k++) {
        rests_add(&s, &who, round);
        round += (uint32_t)named(&s, 7, round);
    }
    assert_int_equal(s.row[0].n_seen, 4);
    rests_add(&s, &who, s.row[0].last + 2 * 64);
    assert_int_equal(s.row[0].n_seen, 3);
    rests_add(&s, &who, s.row[0].last + 1000000);
    assert_int_equal(s.row[0].n_seen, 1);
}

/* Another branch has rounds of lower numbers: a rest ends there, too. */
static void rounds_that_jump_back_make_no_rest_longer(void **state)
{
    struct rests s = {0};
    const struct peer_id who = id_of(7);

    (void)state;
    rests_add(&s, &who, 1000);
    assert_int_equal(named(&s, 7, 500), 0);
    assert_int_equal(named(&s, 7, 1000), 3);
    rests_add(&s, &who, 500);
    assert_int_equal(named(&s, 7, 500), 5); /* the second time */
    assert_int_equal(named(&s, 7, 505), 0);
    assert_int_equal(s.n, 1);
}

static void a_full_table_forgets_whose_rest_ends_first(void **state)
{
    struct rests s = {0};
    struct peer_id who = id_of(5);

    (void)state;
    for (uint32_t i = 0; i < RESTS_MAX; i++) {
        who = id_of(i);
        rests_add(&s, &who, i == 5 ? 10 : 20);
    }
    who = id_of(500);
    rests_add(&s, &who, 12);
    assert_int_equal(s.n, RESTS_MAX);
    assert_int_equal(named(&s, 5, 11), 0);
    assert_int_equal(named(&s, 500, 12), 3);
    assert_int_equal(named(&s, 6, 20), 3);
}

/* Of who strays: 64 rounds, then 128 and 256. */
static void rests_can_be_longer(void **state)
{
    struct rests s = {.more_log2 = 5, .most_log2 = 3};
    const struct peer_id who = id_of(7);
    uint64_t round = 100;

    (void)state;
    for (uint32_t k = 0; k < 6; k++) {
        uint64_t rest = 64ULL << (k < 3 ? k : 2);

        rests_add(&s, &who, round);
        assert_int_equal(named(&s, 7, round), rest + 1);
        round += rest + 1;
    }
    rests_add(&s, &who, s.row[0].last + 256); /* once less, once more */
    assert_int_equal(s.row[0].n_seen, 3);
    rests_add(&s, &who, s.row[0].last + 3 * 256);
    assert_int_equal(s.row[0].n_seen, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rests_double_up_to_64_rounds),
        cmocka_unit_test(time_without_silence_shortens_the_next_rest),
        cmocka_unit_test(rounds_that_jump_back_make_no_rest_longer),
        cmocka_unit_test(rests_can_be_longer),
        cmocka_unit_test(a_full_table_forgets_whose_rest_ends_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
