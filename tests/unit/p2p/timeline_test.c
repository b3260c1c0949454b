/* timeline_test.c - rows of attempts: phases, blame, outcomes, copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "p2p/round/timeline.h"

#define CAP 4

static struct peer_id ids[3] = {{{1}}, {{2}}, {{3}}};

static int set_up(void **state)
{
    struct timeline *t = calloc(1, sizeof *t);
    void *memory = calloc(1, timeline_bytes(CAP));

    assert_non_null(t);
    assert_non_null(memory);
    timeline_init(t, memory, CAP);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct timeline *t = *state;

    free(t->row);
    free(t);
    return 0;
}

static void
begin(struct timeline *t, uint64_t round, uint64_t epoch, uint64_t now_ms)
{
    timeline_begin(t, round, epoch, ids, 3, 0, now_ms, 1000 + now_ms / 1000);
}

/* A plan that holds everybody, and a ring of 64 segments. */
static void plan(struct timeline *t, uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);

    a->has_plan = a->in_plan = true;
    a->to_send = a->to_receive = 64;
    timeline_enter(t, TIMELINE_REDUCE, now_ms);
}

static void phases_follow_each_other_and_end_with_the_next(void **state)
{
    struct timeline *t = *state;
    const struct timeline_attempt *a;

    begin(t, 5, 1, 1000);
    timeline_enter(t, TIMELINE_WAIT, 1400);
    timeline_enter(t, TIMELINE_WAIT, 1500); /* again: it began before */
    timeline_enter(t, TIMELINE_PLAN, 1700);
    plan(t, 1710);
    timeline_enter(t, TIMELINE_WAIT, 1800); /* back: ignored */
    timeline_enter(t, TIMELINE_HASH, 2710);
    timeline_enter(t, TIMELINE_VOTE, 2760);
    timeline_commit(t, 2800);
    a = timeline_at(t, 0);
    assert_int_equal(a->outcome, TIMELINE_COMMITTED);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_TRAIN, 0), 400);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_WAIT, 0), 300);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_PLAN, 0), 10);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_REDUCE, 0), 1000);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_HASH, 0), 50);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_VOTE, 0), 40);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_APPLY, 2850), 50);
    /* The next round trains from where the result is in place. */
    begin(t, 6, 1, 2800);
    timeline_applied(t, 5, 2900);
    a = timeline_at(t, 1);
    assert_int_equal(timeline_phase_ms(a, TIMELINE_APPLY, 9999), 100);
    assert_int_equal(timeline_took_ms(a, 9999), 2900 - 1710);
    assert_int_equal(timeline_phase_ms(timeline_at(t, 0), TIMELINE_TRAIN, 3000),
                     100);
}

static void a_skipped_phase_takes_no_time(void **state)
{
    struct timeline *t = *state;

    begin(t, 5, 1, 1000);
    timeline_enter(t, TIMELINE_WAIT, 1400);
    plan(t, 1500); /* everybody was ready: no time between */
    assert_int_equal(timeline_phase_ms(timeline_at(t, 0), TIMELINE_WAIT, 2000),
                     100);
    assert_int_equal(timeline_phase_ms(timeline_at(t, 0), TIMELINE_PLAN, 2000),
                     0);
}

static void who_was_waited_for_is_the_last_one_after_us(void **state)
{
    struct timeline *t = *state;
    uint64_t ms;

    begin(t, 5, 1, 1000);
    timeline_seen(t, 2, 0, 1100);
    timeline_seen(t, 3, 0, 1200);
    assert_int_equal(timeline_waited_for(timeline_at(t, 0), &ms), 3);
    timeline_seen(t, 7, 0, 1500);
    timeline_seen(t, 7, 0, 1900); /* seen before */
    assert_int_equal(timeline_waited_for(timeline_at(t, 0), &ms), 2);
    assert_int_equal(ms, 300);
}

static void time_between_segments_is_that_of_their_kind(void **state)
{
    struct timeline *t = *state;
    const struct timeline_attempt *a;

    begin(t, 5, 1, 0);
    plan(t, 100);
    timeline_segment(t, false, false, 1000, 130);
    timeline_segment(t, true, false, 1000, 140);
    timeline_segment(t, false, false, 1000, 150);
    timeline_segment(t, false, true, 500, 250);
    a = timeline_at(t, 0);
    assert_int_equal(a->scatter_ms, 50);
    assert_int_equal(a->gather_ms, 100);
    assert_int_equal(a->received_bytes, 2500);
    assert_int_equal(a->sent_bytes, 1000);
    assert_int_equal(a->received, 3);
}

static void
what_is_known_replaces_a_suspicion_and_not_the_other_way(void **state)
{
    struct timeline *t = *state;
    char reason[TIMELINE_REASON_MAX], want[TIMELINE_REASON_MAX];
    char who[ID_SHORT_MAX];

    begin(t, 412, 3, 0);
    plan(t, 100);
    for (int i = 0; i < 18; i++) {
        timeline_segment(t, false, false, 1000, 101);
    }
    timeline_trouble(t, "the ring stands still");
    timeline_blame(t, &ids[1], TIMELINE_SENT_NOTHING, TIMELINE_FROM, 2100);
    id_short(&ids[1], who);
    (void)snprintf(want, sizeof want,
                   "peer %s stopped sending at segment 18/64", who);
    timeline_reason(timeline_at(t, 0), reason);
    assert_string_equal(reason, want);
    timeline_blame(t, &ids[0], TIMELINE_NO_VOTE, TIMELINE_NO_EDGE, 2200);
    timeline_reason(timeline_at(t, 0), reason);
    assert_string_equal(reason, want);

    timeline_running(t)->member[2].lost = "no sign of life";
    timeline_blame(t, &ids[2], TIMELINE_LOST, TIMELINE_NO_EDGE, 2300);
    timeline_blame(t, &ids[1], TIMELINE_TOOK_NOTHING, TIMELINE_TO, 2400);
    id_short(&ids[2], who);
    (void)snprintf(want, sizeof want, "peer %s was lost: no sign of life", who);
    timeline_reason(timeline_at(t, 0), reason);
    assert_string_equal(reason, want);
    assert_string_equal(timeline_at(t, 0)->why, "the ring stands still");
}

static void a_stranger_is_never_blamed(void **state)
{
    struct timeline *t = *state;
    struct peer_id other = {{9}};
    char reason[TIMELINE_REASON_MAX];

    timeline_blame(t, &ids[0], TIMELINE_LOST, TIMELINE_NO_EDGE, 1);
    timeline_trouble(t, "nothing runs"); /* neither */
    assert_int_equal(t->n, 0);
    begin(t, 5, 1, 0);
    timeline_blame(t, &other, TIMELINE_LOST, TIMELINE_NO_EDGE, 10);
    assert_int_equal(timeline_at(t, 0)->guilt, TIMELINE_NOBODY);
    timeline_reason(timeline_at(t, 0), reason);
    assert_string_equal(reason, "another member asked for a new view");
}

static void how_an_attempt_ends_follows_from_what_comes_next(void **state)
{
    struct timeline *t = *state;

    begin(t, 5, 1, 0);
    begin(t, 5, 2, 10); /* another view, there was no plan */
    assert_int_equal(timeline_at(t, 1)->outcome, TIMELINE_RENEWED);
    plan(t, 20);
    begin(t, 5, 3, 30);
    assert_int_equal(timeline_at(t, 1)->outcome, TIMELINE_ABORTED);
    assert_int_equal(timeline_took_ms(timeline_at(t, 1), 99), 10);
    plan(t, 40);
    begin(t, 6, 3, 50); /* the others committed it */
    assert_int_equal(timeline_at(t, 1)->outcome, TIMELINE_ELSEWHERE);
    timeline_leave(t, 60);
    assert_int_equal(timeline_at(t, 0)->outcome, TIMELINE_RENEWED);
    assert_null(timeline_running(t));
}

static void only_the_last_ones_are_kept_and_a_copy_is_the_same(void **state)
{
    struct timeline *t = *state, copy;
    void *memory = calloc(1, timeline_bytes(CAP));

    timeline_init(&copy, memory, CAP);
    for (uint64_t round = 1; round <= 11; round++) {
        begin(t, round, 1, round * 100);
        plan(t, round * 100 + 10);
        timeline_commit(t, round * 100 + 20);
        if (round % 3 == 0) { /* the reader is not always there */
            timeline_copy(&copy, t);
        }
        timeline_applied(t, round, round * 100 + 30);
    }
    timeline_copy(&copy, t);
    assert_int_equal(t->n, CAP);
    assert_int_equal(copy.changes, t->changes);
    for (uint32_t back = 0; back < CAP; back++) {
        const struct timeline_attempt *a = timeline_at(t, back);
        const struct timeline_attempt *b = timeline_at(&copy, back);

        assert_int_equal(a->round, 11 - back);
        assert_memory_equal(a, b, sizeof *a);
        assert_int_equal(b->at_ms[TIMELINE_DONE], b->round * 100 + 30);
    }
    assert_null(timeline_at(t, CAP));
    free(memory);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(phases_follow_each_other_and_end_with_the_next),
        T(a_skipped_phase_takes_no_time),
        T(who_was_waited_for_is_the_last_one_after_us),
        T(time_between_segments_is_that_of_their_kind),
        T(what_is_known_replaces_a_suspicion_and_not_the_other_way),
        T(a_stranger_is_never_blamed),
        T(how_an_attempt_ends_follows_from_what_comes_next),
        T(only_the_last_ones_are_kept_and_a_copy_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
