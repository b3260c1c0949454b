/* rounds_json_test.c - the timeline as the JSON that scripts read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/control/rounds_json.h"

static struct peer_id ids[2] = {{{1}}, {{2}}};

/* Round 4 committed; round 5 aborted by peer 1 at segment 3 of 8, then runs
 * in the next view. */
static struct timeline *story(void)
{
    struct timeline *t = calloc(1, sizeof *t);
    struct timeline_attempt *a;

    timeline_init(t, calloc(1, timeline_bytes(8)), 8);
    timeline_begin(t, 4, 1, ids, 2, 0, 1000, 1800000000);
    timeline_seen(t, 3, 0, 1200);
    a = timeline_running(t);
    a->has_plan = a->in_plan = true;
    a->member[0].planned = a->member[1].planned = true;
    a->member[1].tokens = 77;
    a->member[1].gateway = true;
    timeline_enter(t, TIMELINE_REDUCE, 1300);
    timeline_segment(t, true, false, 500, 1350);
    timeline_commit(t, 1400);
    timeline_begin(t, 5, 1, ids, 2, 0, 1400, 1800000001);
    a = timeline_running(t);
    a->has_plan = a->in_plan = true;
    a->to_receive = 8;
    timeline_enter(t, TIMELINE_REDUCE, 1500);
    for (int i = 0; i < 3; i++) {
        timeline_segment(t, false, false, 100, 1600);
    }
    timeline_trouble(t, "the ring stands still");
    a->member[1].lost = "no sign of life";
    timeline_blame(t, &ids[1], TIMELINE_LOST, TIMELINE_FROM, 3600);
    timeline_begin(t, 5, 2, ids, 1, 0, 4600, 1800000005);
    return t;
}

static json_t *parsed(const struct timeline *t, uint64_t round)
{
    char *text = rounds_json(t, round, 0, 5000);
    json_t *o = json_loads(text, 0, NULL);

    assert_true(json_is_object(o));
    free(text);
    return o;
}

static void end(struct timeline *t, json_t *o)
{
    json_decref(o);
    free(t->row);
    free(t);
}

static json_int_t number(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void the_list_is_newest_first_and_has_no_members(void **state)
{
    struct timeline *t = story();
    json_t *o = parsed(t, 0), *list = json_object_get(o, "rounds"), *a;

    (void)state;
    assert_int_equal(json_array_size(list), 3);
    a = json_array_get(list, 2);
    assert_int_equal(number(a, "round"), 4);
    assert_string_equal(json_string_value(json_object_get(a, "outcome")),
                        "committed");
    assert_true(json_is_null(json_object_get(a, "reason")));
    assert_true(json_is_null(json_object_get(a, "culprit")));
    assert_int_equal(number(a, "bytes_sent"), 500);
    assert_int_equal(number(a, "members_in_plan"), 2);
    assert_int_equal(number(json_object_get(a, "phase_ms"), "reduce"), 100);
    assert_true(
        json_is_null(json_object_get(json_object_get(a, "phase_ms"), "hash")));
    assert_null(json_object_get(a, "members"));
    a = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(a, "outcome")),
                        "running");
    end(t, o);
}

static void one_round_has_its_attempts_in_order_and_the_culprit(void **state)
{
    struct timeline *t = story();
    json_t *o = parsed(t, 5), *list = json_object_get(o, "rounds"), *a, *who;

    (void)state;
    assert_int_equal(json_array_size(list), 2);
    a = json_array_get(list, 0);
    assert_int_equal(number(a, "epoch"), 1);
    assert_string_equal(json_string_value(json_object_get(a, "outcome")),
                        "aborted");
    assert_int_equal(number(a, "took_ms"), 3100);
    assert_non_null(strstr(json_string_value(json_object_get(a, "reason")),
                           "stopped sending at segment 3/8: no sign of life"));
    assert_string_equal(json_string_value(json_object_get(a, "trouble")),
                        "the ring stands still");
    who = json_object_get(a, "culprit");
    assert_true(json_is_true(json_object_get(who, "known")));
    assert_int_equal(number(who, "segment"), 3);
    assert_int_equal(number(who, "segments"), 8);
    assert_int_equal(number(who, "at_ms"), 2200);
    who = json_array_get(json_object_get(a, "members"), 1);
    assert_string_equal(json_string_value(json_object_get(who, "lost")),
                        "no sign of life");
    assert_int_equal(number(json_array_get(list, 1), "epoch"), 2);
    end(t, o);
}

static void a_round_that_is_not_known_is_an_empty_list(void **state)
{
    struct timeline *t = story();
    json_t *o = parsed(t, 99);

    (void)state;
    assert_int_equal(json_array_size(json_object_get(o, "rounds")), 0);
    end(t, o);
}

static void a_round_says_who_spoke_for_a_site(void **state)
{
    struct timeline *t = story();
    json_t *o = parsed(t, 4);
    const json_t *a = json_array_get(json_object_get(o, "rounds"), 0);
    const json_t *members = json_object_get(a, "members");

    (void)state;
    assert_true(
        json_is_false(json_object_get(json_array_get(members, 0), "gateway")));
    assert_true(
        json_is_true(json_object_get(json_array_get(members, 1), "gateway")));
    end(t, o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_says_who_spoke_for_a_site),
        cmocka_unit_test(the_list_is_newest_first_and_has_no_members),
        cmocka_unit_test(one_round_has_its_attempts_in_order_and_the_culprit),
        cmocka_unit_test(a_round_that_is_not_known_is_an_empty_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
