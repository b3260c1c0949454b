/* text_test.c - which positions can be trained with some of the shards: held
 * against the windows one by one. */
#include "p2p/round/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"

/* Train shards of 5 and 3 windows; a tokenizer before, held-out text between,
 * an empty one behind them. */
static struct run_terms terms_of(uint32_t batch)
{
    struct run_terms t = {
        .lease_quota = 4, .window_batch = batch, .n_shards = 5};

    t.shards[1].windows = 5;
    t.shards[3].windows = 3;
    t.shards[0].held = t.shards[2].held = t.shards[4].held = true;
    return t;
}

static void nothing_comes_later_without_an_order_of_all(void **state)
{
    struct run_terms t = terms_of(2);
    struct text_span s;

    (void)state;
    t.lease_quota = 0;
    assert_false(text_comes_later(&t));
    s = text_span_at(&t, 7);
    assert_int_equal(s.end, 0);
    assert_true(text_has(&s, 7));
    assert_int_equal(text_missing(&t, 7), 1); /* the first one */
    assert_false(text_suffices(&t, 7));
    t.shards[1].held = true;
    assert_false(text_suffices(&t, 7));
    t.shards[3].held = true;
    assert_true(text_suffices(&t, 7));
}

static void a_span_ends_where_a_batch_needs_the_next_shard(void **state)
{
    struct run_terms t = terms_of(2);
    struct text_span s;

    (void)state;
    assert_true(text_comes_later(&t));
    t.shards[1].held = true; /* windows 0 to 4, 8 to 12, .. */
    s = text_span_at(&t, 0);
    assert_int_equal(s.first, 0);
    assert_int_equal(s.end, 2);
    assert_false(text_has(&s, 2)); /* windows 4 and 5 */
    s = text_span_at(&t, 2);
    assert_false(text_has(&s, 2) || s.end == 0);
    s = text_span_at(&t, 5); /* windows 10 and 11 */
    assert_int_equal(s.first, 4);
    assert_int_equal(s.end, 6);
    t.shards[3].held = true;
    s = text_span_at(&t, 1000);
    assert_int_equal(s.end, 0);
    assert_true(text_span_valid(&s));
}

static void the_next_shard_is_the_one_that_is_read_next(void **state)
{
    struct run_terms t = terms_of(1);

    (void)state;
    assert_int_equal(text_missing(&t, 0), 1);
    assert_int_equal(text_missing(&t, 5), 3);
    assert_int_equal(text_missing(&t, 8), 1);
    t.shards[1].held = true;
    assert_int_equal(text_missing(&t, 8), 3);
    assert_true(text_suffices(&t, 8) && !text_suffices(&t, 5));
    t.shards[4].held = false; /* nothing begins without it */
    assert_int_equal(text_missing(&t, 8), 4);
    assert_false(text_suffices(&t, 8));
    t.shards[3].held = t.shards[4].held = true;
    assert_int_equal(text_missing(&t, 8), t.n_shards);
}

static void what_round_0_begins_from_is_asked_for_apart(void **state)
{
    struct run_terms t = terms_of(1);

    (void)state;
    assert_int_equal(text_beginning(&t), t.n_shards); /* from the seed */
    t.shards[4].begins = true;
    t.shards[4].held = false;
    for (uint32_t quota = 0; quota < 2; quota++) {
        t.lease_quota = quota;
        t.shards[1].held = t.shards[3].held = true;
        assert_int_equal(text_missing(&t, 0), t.n_shards);
        assert_true(text_suffices(&t, 0));
        assert_int_equal(text_beginning(&t), 4);
        t.shards[1].held = false;
        assert_int_equal(text_missing(&t, 0), 1);
    }
    t.shards[4].held = true;
    assert_int_equal(text_beginning(&t), t.n_shards);
}

/* Whether all windows of a position are here. */
static bool can_read(const struct run_terms *t, uint64_t all, uint64_t at)
{
    for (uint32_t b = 0; b < t->window_batch; b++) {
        uint64_t window = (at * t->window_batch + b) % all;
        uint32_t i = 0;

        while (window >= t->shards[i].windows) {
            window -= t->shards[i++].windows;
        }
        if (!t->shards[i].held) {
            return false;
        }
    }
    return true;
}

static void spans_are_what_can_be_read_window_by_window(void **state)
{
    uint64_t rng = 7;

    (void)state;
    for (uint32_t k = 0; k < 2000; k++) {
        struct run_terms t = {.lease_quota = 1,
                              .window_batch = 1 + (uint32_t)(k % 7),
                              .n_shards = 1 + (uint32_t)rng_below(&rng, 6)};
        uint64_t all = 0, at = rng_below(&rng, 60);
        struct text_span s;

        for (uint32_t i = 0; i < t.n_shards; i++) {
            t.shards[i].windows = rng_below(&rng, 20);
            t.shards[i].held = rng_below(&rng, 3) > 0;
            all += t.shards[i].windows;
        }
        s = text_span_at(&t, at);
        assert_true(text_span_valid(&s));
        if (s.end == 0 || all == 0) {
            continue;
        }
        assert_int_equal(text_has(&s, at), can_read(&t, all, at));
        if (text_has(&s, at)) {
            for (uint64_t i = s.first; i < s.end; i++) {
                assert_true(can_read(&t, all, i));
            }
            assert_false(can_read(&t, all, s.end));
            assert_true(s.first == 0 || !can_read(&t, all, s.first - 1));
        }
    }
}

static void places_beyond_all_sense_are_nowhere(void **state)
{
    struct run_terms t = terms_of(UINT32_MAX);
    struct text_span s;

    (void)state;
    t.shards[1].held = true;
    s = text_span_at(&t, UINT64_MAX);
    assert_false(s.end == 0 || text_has(&s, UINT64_MAX));
    assert_true(text_missing(&t, UINT64_MAX) == 3);
    memset(t.shards, 0, sizeof t.shards); /* no train text at all */
    s = text_span_at(&t, 3);
    assert_int_equal(s.end, 0);
    assert_int_equal(text_missing(&t, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_comes_later_without_an_order_of_all),
        cmocka_unit_test(a_span_ends_where_a_batch_needs_the_next_shard),
        cmocka_unit_test(the_next_shard_is_the_one_that_is_read_next),
        cmocka_unit_test(what_round_0_begins_from_is_asked_for_apart),
        cmocka_unit_test(spans_are_what_can_be_read_window_by_window),
        cmocka_unit_test(places_beyond_all_sense_are_nowhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
