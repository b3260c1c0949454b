/* transfer_test.c - one object, piece by piece, from sources that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/transfer.h"
#include "proto/base/err.h"
#include "proto/sign.h"

#define FETCH_MS 5000
#define PIECE    100U

struct fixture {
    struct members m;
    struct transfer t;
    struct out out;
    struct identity self, peer[2];
    int row[2];
};

static int open_fixture(void **state)
{
    struct members_options opt = {.seed = 1};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));

    assert_non_null(f);
    identity_fake(&f->self, 50);
    opt.self = f->self.id;
    members_init(&f->m, &opt, f + 1, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct event e = {
            .type = EVENT_LINK_UP, .link = i + 1, .request = UINT32_MAX};

        identity_fake(&f->peer[i], i);
        e.peer = f->peer[i].id;
        memcpy(e.public_key, f->peer[i].public, 32);
        assert_true(members_link_up(&f->m, &e, &f->out));
        f->row[i] = members_find(&f->m, &f->peer[i].id);
    }
    transfer_init(&f->t, &f->m, FETCH_MS, 1000);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static void clear(struct fixture *f)
{
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
}

static uint32_t count(const struct fixture *f, enum action_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        n += f->out.action[i].type == type;
    }
    return n;
}

static const struct segment *posted(const struct fixture *f, uint32_t k)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_POST_RECV && k-- == 0) {
            return &f->out.action[i].segment;
        }
    }
    fail_msg("not posted");
    return NULL;
}

static void begin(struct fixture *f, uint64_t total, int source)
{
    clear(f);
    transfer_start(&f->t, BUFFER_SHARD, 3, total, PIECE, &f->out);
    assert_true(f->t.want_source || f->t.finished);
    transfer_source(&f->t, f->row[source], 0, &f->out);
}

static void arrive(struct fixture *f, uint32_t seg, int rc)
{
    struct event e = {.type = EVENT_SEG_DONE, .rc = rc, .now_ms = 10};

    e.segment.attempt = f->t.attempt;
    e.segment.seg = seg;
    clear(f);
    transfer_seg_done(&f->t, &e, &f->out);
}

static void at_most_a_window_is_asked_for(void **state)
{
    struct fixture *f = *state;

    begin(f, 20 * PIECE + 1, 0);
    assert_int_equal(count(f, ACTION_POST_RECV), TRANSFER_WINDOW);
    assert_int_equal(count(f, ACTION_SEND), TRANSFER_WINDOW);
    assert_int_equal(count(f, ACTION_BULK_OPEN), 1);
    arrive(f, 0, 0);
    assert_int_equal(count(f, ACTION_POST_RECV), 1);
    assert_int_equal(posted(f, 0)->seg, TRANSFER_WINDOW);
    assert_int_equal(posted(f, 0)->offset, TRANSFER_WINDOW * PIECE);
}

static void all_pieces_are_asked_for_once_and_cover_the_object(void **state)
{
    struct fixture *f = *state;
    uint64_t total = 20 * PIECE + 1, at = 0;

    begin(f, total, 0);
    for (uint32_t seg = 0; seg < 21; seg++) {
        uint32_t n = count(f, ACTION_POST_RECV);

        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(posted(f, k)->offset, at);
            at += posted(f, k)->len;
        }
        assert_false(f->t.finished);
        arrive(f, seg, 0);
    }
    assert_int_equal(at, total);
    assert_true(f->t.finished);
}

static void a_lost_source_is_replaced_at_the_same_piece(void **state)
{
    struct fixture *f = *state;
    uint64_t attempt;

    begin(f, 20 * PIECE, 0);
    attempt = f->t.attempt;
    arrive(f, 0, 0);
    arrive(f, 1, 0);
    clear(f);
    members_link_down(&f->m, 1, 20);
    transfer_tick(&f->t, 20, &f->out);
    assert_true(f->t.want_source);
    assert_int_equal(count(f, ACTION_CANCEL), 1);
    assert_int_equal(f->out.action[0].attempt, attempt);
    clear(f);
    transfer_source(&f->t, f->row[1], 30, &f->out);
    assert_true(f->t.attempt > attempt);
    assert_int_equal(posted(f, 0)->seg, 2);
    assert_int_equal(posted(f, 0)->offset, 2 * PIECE);
    assert_true(id_eq(&posted(f, 0)->peer, &f->peer[1].id));
}

static void a_refusal_of_another_attempt_or_peer_is_ignored(void **state)
{
    struct fixture *f = *state;
    struct fetch_no no = {0};

    begin(f, 5 * PIECE, 0);
    no.attempt = f->t.attempt - 1;
    transfer_refused(&f->t, f->row[0], &no, &f->out);
    assert_false(f->t.want_source);
    no.attempt = f->t.attempt;
    transfer_refused(&f->t, f->row[1], &no, &f->out);
    assert_false(f->t.want_source);
    transfer_refused(&f->t, f->row[0], &no, &f->out);
    assert_true(f->t.want_source);
}

static void a_silent_source_is_given_up_and_its_connection_freed(void **state)
{
    struct fixture *f = *state;

    begin(f, 5 * PIECE, 0);
    clear(f);
    transfer_tick(&f->t, FETCH_MS - 1, &f->out);
    assert_int_equal(f->out.n, 0);
    assert_int_equal(transfer_deadline(&f->t), FETCH_MS);
    transfer_tick(&f->t, FETCH_MS, &f->out);
    assert_true(f->t.want_source);
    /* First the frames of an earlier life that stand in the way, then ours. */
    assert_int_equal(count(f, ACTION_CANCEL), 2);
    assert_int_equal(f->out.action[0].attempt, 0);
    assert_int_equal(f->out.action[1].attempt, f->t.attempt);
    assert_true(transfer_deadline(&f->t) == CORE_NEVER);
}

static void a_failed_or_misplaced_piece_ends_the_source(void **state)
{
    struct fixture *f = *state;

    begin(f, 5 * PIECE, 0);
    arrive(f, 0, LOCO_ECLOSED);
    assert_true(f->t.want_source);
    begin(f, 5 * PIECE, 0);
    arrive(f, 1, 0);
    assert_true(f->t.want_source);
    assert_int_equal(f->t.done, 0);
}

static void late_pieces_of_a_dead_attempt_do_not_count(void **state)
{
    struct fixture *f = *state;
    struct event e = {.type = EVENT_SEG_DONE};

    begin(f, 5 * PIECE, 0);
    e.segment.attempt = f->t.attempt - 1;
    transfer_seg_done(&f->t, &e, &f->out);
    assert_int_equal(f->t.done, 0);
    assert_false(f->t.want_source);
}

static void an_empty_object_is_finished_at_once(void **state)
{
    struct fixture *f = *state;

    clear(f);
    transfer_start(&f->t, BUFFER_STATE, 1, 0, PIECE, &f->out);
    assert_true(f->t.finished);
}

#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(at_most_a_window_is_asked_for),
        T(all_pieces_are_asked_for_once_and_cover_the_object),
        T(a_lost_source_is_replaced_at_the_same_piece),
        T(a_refusal_of_another_attempt_or_peer_is_ignored),
        T(a_silent_source_is_given_up_and_its_connection_freed),
        T(a_failed_or_misplaced_piece_ends_the_source),
        T(late_pieces_of_a_dead_attempt_do_not_count),
        T(an_empty_object_is_finished_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
