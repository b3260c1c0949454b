/* history_test.c - samples, events and shares stay bounded and true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/control/history.h"

struct fixture {
    struct history h;
    struct node_status s;
    struct timeline rounds;
    struct history_look look;
    struct node_peer peer[3];
};

static struct peer_id id_of(uint8_t number)
{
    struct peer_id id;

    memset(id.b, number, sizeof id.b);
    return id;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    history_init(&f->h);
    timeline_init(&f->rounds, malloc(timeline_bytes(4)), 4);
    assert_non_null(f->rounds.row);
    f->s.state = NODE_TRAINING;
    for (uint8_t i = 0; i < 3; i++) {
        f->peer[i].id = id_of(i);
    }
    f->peer[0].self = true;
    f->look = (struct history_look){.status = &f->s,
                                    .reason = "",
                                    .rounds = &f->rounds,
                                    .peer = f->peer,
                                    .n_peers = 1,
                                    .now_ms = 1000,
                                    .wall_s = 1800000000};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    free(f->rounds.row);
    free(f);
    return 0;
}

static const char *newest_text(const struct fixture *f)
{
    return history_event_at(&f->h, f->h.event_number)->text;
}

static void samples_cover_all_of_a_long_life_ever_coarser(void **state)
{
    struct fixture *f = *state;
    struct history *h = &f->h;

    for (uint64_t i = 0; i < 5 * HISTORY_SAMPLES; i++) {
        f->look.now_ms = 1000 + i * HISTORY_INTERVAL_MS;
        f->s.tokens = i;
        (void)history_update(h, &f->look);
        assert_true(h->n_samples <= HISTORY_SAMPLES);
    }
    assert_int_equal(h->interval_ms, 8 * HISTORY_INTERVAL_MS);
    assert_int_equal(h->sample[0].tokens, 0);
    for (uint32_t i = 1; i < h->n_samples; i++) {
        uint64_t step = h->sample[i].tokens - h->sample[i - 1].tokens;

        assert_true(step >= 1 && step <= 8);
    }
    assert_true(history_newest(h)->tokens >= 5 * HISTORY_SAMPLES - 8);
}

static void between_two_intervals_nothing_is_sampled(void **state)
{
    struct fixture *f = *state;

    (void)history_update(&f->h, &f->look);
    f->look.now_ms += HISTORY_INTERVAL_MS - 1;
    (void)history_update(&f->h, &f->look);
    assert_int_equal(f->h.n_samples, 1);
    f->look.now_ms++;
    (void)history_update(&f->h, &f->look);
    assert_int_equal(f->h.n_samples, 2);
}

static void a_change_of_state_is_an_event_with_its_reason(void **state)
{
    struct fixture *f = *state;

    assert_true(history_update(&f->h, &f->look));
    assert_string_equal(newest_text(f), "training");
    assert_false(history_update(&f->h, &f->look));
    f->s.state = NODE_AVERAGING; /* every round: no news */
    assert_false(history_update(&f->h, &f->look));
    f->s.state = NODE_PAUSED;
    f->look.reason = "on battery";
    assert_true(history_update(&f->h, &f->look));
    assert_string_equal(newest_text(f), "paused: on battery");
    f->s.bits_per_byte = 2.5;
    f->s.fork = true;
    assert_true(history_update(&f->h, &f->look));
    assert_int_equal(f->h.event_number, 4);
    assert_string_equal(history_kind_name(history_event_at(&f->h, 3)->kind),
                        "fork");
}

static void peers_that_come_leave_and_die_are_events(void **state)
{
    struct fixture *f = *state;

    f->peer[2].state = PEER_LEFT; /* before we came */
    f->look.n_peers = 3;
    assert_true(history_update(&f->h, &f->look));
    assert_int_equal(f->h.event_number, 2); /* the state, and peer 1 */
    assert_non_null(strstr(newest_text(f), "is here"));
    f->peer[1].state = PEER_DEAD;
    f->s.n_lost = 1;
    f->s.lost[0] = (struct node_lost){.peer = id_of(1), .reason = "silent"};
    assert_true(history_update(&f->h, &f->look));
    assert_non_null(strstr(newest_text(f), "is lost: silent"));
    assert_false(history_update(&f->h, &f->look));
    f->peer[2].state = PEER_ALIVE;
    assert_true(history_update(&f->h, &f->look));
    f->peer[2].state = PEER_LEFT;
    assert_true(history_update(&f->h, &f->look));
    assert_non_null(strstr(newest_text(f), "said goodbye"));
}

/* Each once, as often as somebody looks. */
static void what_is_taken_back_and_who_lied_are_events(void **state)
{
    struct fixture *f = *state;

    f->look.n_peers = 3;
    (void)history_update(&f->h, &f->look);
    f->s.rollbacks = 2;
    f->peer[1].convicted = true;
    assert_true(history_update(&f->h, &f->look));
    assert_string_equal(
        history_kind_name(history_event_at(&f->h, f->h.event_number - 1)->kind),
        "rolled_back");
    assert_non_null(strstr(history_event_at(&f->h, f->h.event_number - 1)->text,
                           "taken back to an earlier state (2 times so far)"));
    assert_string_equal(
        history_kind_name(history_event_at(&f->h, f->h.event_number)->kind),
        "convicted");
    assert_non_null(strstr(newest_text(f), " is convicted: it lied"));
    assert_false(history_update(&f->h, &f->look));
    f->peer[1].state = PEER_DEAD;
    assert_true(history_update(&f->h, &f->look));
    assert_non_null(strstr(newest_text(f), "is lost"));
}

static void only_the_newest_events_are_kept(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 3 * HISTORY_EVENTS; i++) {
        f->s.state = i % 2 == 0 ? NODE_TRAINING : NODE_PAUSED;
        (void)history_update(&f->h, &f->look);
    }
    assert_int_equal(f->h.event_number, 3 * HISTORY_EVENTS);
    assert_int_equal(history_oldest(&f->h), 2 * HISTORY_EVENTS + 1);
    assert_null(history_event_at(&f->h, 2 * HISTORY_EVENTS));
    assert_int_equal(history_event_at(&f->h, 2 * HISTORY_EVENTS + 1)->number,
                     2 * HISTORY_EVENTS + 1);
    assert_null(history_event_at(&f->h, 3 * HISTORY_EVENTS + 1));
    assert_null(history_event_at(&f->h, 0));
}

/* An attempt of peers 0 and 1, 10 and 20 tokens. */
static void attempt(struct fixture *f, uint64_t round, bool commits)
{
    struct peer_id ids[2] = {id_of(0), id_of(1)};
    struct timeline_attempt *a;

    timeline_begin(&f->rounds, round, 1, ids, 2, 0, 10 * round, 1);
    a = timeline_running(&f->rounds);
    a->has_plan = true;
    for (uint32_t i = 0; i < 2; i++) {
        a->member[i].planned = true;
        a->member[i].tokens = 10 * (i + 1);
    }
    if (commits) {
        timeline_commit(&f->rounds, 10 * round + 5);
    } else {
        timeline_leave(&f->rounds, 10 * round + 5);
    }
}

static void shares_are_those_of_committed_plans_each_once(void **state)
{
    struct fixture *f = *state;
    struct peer_id one = id_of(1), other = id_of(2);

    attempt(f, 1, true);
    attempt(f, 2, false);
    (void)history_update(&f->h, &f->look);
    assert_non_null(strstr(newest_text(f), "round 2 was given up"));
    (void)history_update(&f->h, &f->look);
    attempt(f, 2, true);
    (void)history_update(&f->h, &f->look);
    assert_int_equal(history_share_of(&f->h, &one)->tokens, 40);
    assert_int_equal(history_share_of(&f->h, &one)->rounds, 2);
    assert_null(history_share_of(&f->h, &other));
}

static void attempts_that_fell_out_of_the_ring_are_passed_over(void **state)
{
    struct fixture *f = *state;
    struct peer_id one = id_of(1);

    for (uint64_t round = 1; round <= 9; round++) {
        attempt(f, round, true);
    }
    (void)history_update(&f->h, &f->look);
    assert_int_equal(history_share_of(&f->h, &one)->rounds, 4);
}

static void a_full_table_of_shares_drops_the_smallest(void **state)
{
    struct fixture *f = *state;

    f->h.n_shares = HISTORY_SHARES;
    for (uint32_t i = 0; i < HISTORY_SHARES; i++) {
        f->h.share[i] = (struct history_share){.tokens = i == 7 ? 1 : 1000,
                                               .peer.b = {9, (uint8_t)i, 1}};
    }
    attempt(f, 1, true); /* two peers that are not in it */
    (void)history_update(&f->h, &f->look);
    assert_int_equal(f->h.n_shares, HISTORY_SHARES);
    assert_int_equal(f->h.share[7].tokens, 20);
}

static void what_a_person_changed_is_an_event_once(void **state)
{
    struct fixture *f = *state;
    struct history_notes notes = {0};
    const struct history_event *e;
    uint64_t before;

    (void)history_update(&f->h, &f->look);
    before = f->h.event_number;
    f->look.notes = &notes;
    history_note(&notes, HISTORY_SETTING, "%s is %s now", "quota", "4\xff\n");
    history_note(&notes, HISTORY_REFUSED, "no");
    assert_true(history_update(&f->h, &f->look));
    assert_int_equal(f->h.event_number, before + 2);
    e = history_event_at(&f->h, before + 1);
    assert_int_equal(e->kind, HISTORY_SETTING);
    assert_string_equal(e->text, "quota is 4?? now");
    assert_string_equal(history_kind_name(e->kind), "setting");
    e = history_event_at(&f->h, before + 2);
    assert_string_equal(history_kind_name(e->kind), "setting_refused");
    assert_false(history_update(&f->h, &f->look));
    /* More than there is room for before the next look: the first ones. */
    for (int i = 0; i < 2 * HISTORY_NOTES; i++) {
        history_note(&notes, HISTORY_SETTING, "%d", i);
    }
    assert_int_equal(notes.n, HISTORY_NOTES);
    assert_true(history_update(&f->h, &f->look));
    assert_int_equal(f->h.event_number, before + 2 + HISTORY_NOTES);
    assert_string_equal(history_event_at(&f->h, before + 3)->text, "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(samples_cover_all_of_a_long_life_ever_coarser),
        TEST(between_two_intervals_nothing_is_sampled),
        TEST(a_change_of_state_is_an_event_with_its_reason),
        TEST(peers_that_come_leave_and_die_are_events),
        TEST(what_is_taken_back_and_who_lied_are_events),
        TEST(only_the_newest_events_are_kept),
        TEST(what_a_person_changed_is_an_event_once),
        TEST(shares_are_those_of_committed_plans_each_once),
        TEST(attempts_that_fell_out_of_the_ring_are_passed_over),
        TEST(a_full_table_of_shares_drops_the_smallest),
#undef TEST
    };

    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
