/* mapping_test.c - when the router is asked for a port. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/swarm/mapping.h"
#include "proto/base/err.h"

static const struct address outer = {.ip = {[10] = 0xff, 0xff, 11, 0, 0, 1},
                                     .port = 7700};

static struct mapping held(uint64_t now_ms)
{
    struct mapping m;

    mapping_init(&m, 7700, now_ms);
    assert_int_equal(mapping_next(&m, now_ms), MAPPING_ASK);
    assert_true(mapping_answer(&m, 0, &outer, 3600, now_ms));
    return m;
}

static void a_lease_is_renewed_at_its_half(void **state)
{
    struct mapping m = held(1000);

    (void)state;
    assert_int_equal(mapping_deadline(&m), 1000 + 1800 * 1000);
    assert_int_equal(mapping_next(&m, 1000 + 1800 * 1000 - 1), MAPPING_NOTHING);
    assert_int_equal(mapping_next(&m, 1000 + 1800 * 1000), MAPPING_ASK);
    assert_int_equal(mapping_next(&m, 1000 + 1800 * 1000), MAPPING_NOTHING);
    assert_int_equal(mapping_deadline(&m), CORE_NEVER); /* one at a time */
    assert_false(mapping_answer(&m, 0, &outer, 3600, 2000000));
    assert_int_equal(mapping_deadline(&m), 2000000 + 1800 * 1000);
}

static void a_lease_of_no_time_is_no_storm(void **state)
{
    struct mapping m;

    (void)state;
    mapping_init(&m, 7700, 0);
    assert_int_equal(mapping_next(&m, 0), MAPPING_ASK);
    assert_true(mapping_answer(&m, 0, &outer, 0, 0));
    assert_int_equal(mapping_deadline(&m), 30000);
    assert_int_equal(mapping_next(&m, 30000), MAPPING_ASK);
    assert_false(mapping_answer(&m, 0, &outer, UINT32_MAX, 30000));
    assert_int_equal(mapping_deadline(&m), 30000 + 1800 * 1000);
}

static void an_address_that_nobody_can_have_counts_as_not_said(void **state)
{
    static const struct address never[] = {
        {.ip = {[10] = 0xff, 0xff, 224, 0, 0, 1}, .port = 7700},
        {.ip = {[10] = 0xff, 0xff, 255, 255, 255, 255}, .port = 7700},
        {.ip = {[10] = 0xff, 0xff, 127, 0, 0, 1}, .port = 7700},
        {.ip = {[10] = 0xff, 0xff, 169, 254, 0, 1}, .port = 7700},
        {.ip = {[10] = 0xff, 0xff, 0, 1, 2, 3}, .port = 7700},
        {.ip = {0xff, 2, [15] = 1}, .port = 7700},
        {.ip = {0xfe, 0x80, [15] = 1}, .port = 7700},
        {.ip = {[15] = 1}, .port = 7700},
    };
    static const struct address none = {.port = 7700};

    (void)state;
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        struct mapping m = held(0);

        assert_true(address_eq(&m.at, &outer));
        assert_int_equal(mapping_next(&m, m.due_ms), MAPPING_ASK);
        assert_true(mapping_answer(&m, 0, &never[i], 3600, m.due_ms));
        assert_true(m.held && address_eq(&m.at, &none));
    }
}

static void a_failure_is_tried_again_ever_later(void **state)
{
    struct mapping m;
    uint64_t now_ms = 0, last = 0;

    (void)state;
    mapping_init(&m, 7700, 0);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(mapping_next(&m, now_ms), MAPPING_ASK);
        assert_false(mapping_answer(&m, LOCO_ENOENT, &outer, 0, now_ms));
        assert_true(m.due_ms - now_ms >= last);
        assert_true(m.due_ms - now_ms >= 60000);
        last = m.due_ms - now_ms;
        now_ms = m.due_ms;
    }
    assert_int_equal(last, 1800000);
}

static void what_is_lost_or_moved_is_told(void **state)
{
    struct mapping m = held(0);
    struct address moved = outer;
    uint64_t now_ms;

    (void)state;
    moved.port = 7701;
    now_ms = mapping_deadline(&m);
    assert_int_equal(mapping_next(&m, now_ms), MAPPING_ASK);
    assert_true(mapping_answer(&m, 0, &moved, 3600, now_ms));
    assert_int_equal(m.outer, 7701); /* asked for from now on */
    now_ms = mapping_deadline(&m);
    assert_int_equal(mapping_next(&m, now_ms), MAPPING_ASK);
    assert_true(mapping_answer(&m, LOCO_EBUSY, &moved, 0, now_ms));
    assert_false(m.held);
    assert_int_equal(mapping_deadline(&m), now_ms + 60000);
}

static void it_is_given_back_at_the_end(void **state)
{
    struct mapping m = held(0);

    (void)state;
    mapping_close(&m);
    assert_int_equal(mapping_deadline(&m), 0);
    assert_int_equal(mapping_next(&m, 0), MAPPING_REMOVE);
    assert_int_equal(mapping_next(&m, 0), MAPPING_NOTHING);
    assert_true(mapping_answer(&m, LOCO_ENOENT, &outer, 0, 0));
    assert_int_equal(mapping_next(&m, 1 << 30), MAPPING_NOTHING);
    assert_int_equal(mapping_deadline(&m), CORE_NEVER);
}

static void a_question_that_runs_at_the_end_is_undone(void **state)
{
    struct mapping m;

    (void)state;
    mapping_init(&m, 7700, 0);
    assert_int_equal(mapping_next(&m, 0), MAPPING_ASK);
    mapping_close(&m);
    assert_int_equal(mapping_next(&m, 0), MAPPING_NOTHING);
    (void)mapping_answer(&m, 0, &outer, 3600, 0);
    assert_int_equal(mapping_next(&m, 0), MAPPING_REMOVE);
    (void)mapping_answer(&m, 0, &outer, 0, 0);
    assert_false(m.held);
    mapping_init(&m, 7700, 0); /* nothing held: nothing to give back */
    mapping_close(&m);
    assert_int_equal(mapping_next(&m, 0), MAPPING_NOTHING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_renewed_at_its_half),
        cmocka_unit_test(a_lease_of_no_time_is_no_storm),
        cmocka_unit_test(an_address_that_nobody_can_have_counts_as_not_said),
        cmocka_unit_test(a_failure_is_tried_again_ever_later),
        cmocka_unit_test(what_is_lost_or_moved_is_told),
        cmocka_unit_test(it_is_given_back_at_the_end),
        cmocka_unit_test(a_question_that_runs_at_the_end_is_undone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
