/* transfer_test.c - one object, piece by piece, from sources that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/transfer.h"
#include "proto/base/err.h"
#include "proto/sign.h"
#include "tests/unit/p2p/linked.h"

#define FETCH_MS 5000
#define PIECE    100U
#define PART     40U
#define PEERS    4

struct fixture {
    struct members m;
    struct transfer t;
    struct out out;
    struct identity self, peer[PEERS];
    int row[PEERS];
    struct segment asked[256]; /* posted, not arrived */
    uint32_t n_asked;
    uint64_t checks[64]; /* VERIFY not answered */
    uint32_t n_checks;
    uint64_t now_ms;
};

/* Take in what the transfer wants. */
static void collect(struct fixture *f)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];
        uint32_t kept = 0;

        if (a->type == ACTION_POST_RECV) {
            f->asked[f->n_asked++] = a->segment;
        } else if (a->type == ACTION_JOB && a->job.type == JOB_VERIFY) {
            f->checks[f->n_checks++] = a->job.verify.request;
        } else if (a->type == ACTION_CANCEL) {
            for (uint32_t k = 0; k < f->n_asked; k++) {
                if (f->asked[k].stream != a->cancel.stream ||
                    f->asked[k].attempt > a->cancel.attempt) {
                    f->asked[kept++] = f->asked[k];
                }
            }
            f->n_asked = kept;
        }
    }
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
}

static int open_fixture(void **state)
{
    struct members_options opt = {.seed = 1};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));

    assert_non_null(f);
    linked_open(&f->m, f + 1, &f->self, f->peer, PEERS, &f->out);
    for (uint32_t i = 0; i < PEERS; i++) {
        f->row[i] = members_find(&f->m, &f->peer[i].id);
    }
    transfer_init(&f->t, &f->m, FETCH_MS, 1000);
    f->out.n = 0;
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

/* Two sections of `half` bytes, from so many of the peers. */
static void
begin_object(struct fixture *f, bool shard, uint64_t half, uint32_t n_sources)
{
    struct transfer_object o = {
        .buffer = shard ? BUFFER_SHARD : BUFFER_STATE,
        .leaves = shard ? BUFFER_SHARD_LEAVES : BUFFER_STATE_LEAVES,
        .index = 3,
        .total = 2 * half,
        .first = half,
        .piece = PIECE,
        .part = PART,
        .sources = TRANSFER_SOURCES,
    };

    assert_true(transfer_start(&f->t, &o, f->now_ms, &f->out));
    for (uint32_t i = 0; i < n_sources; i++) {
        assert_true(transfer_wants(&f->t));
        transfer_source(&f->t, f->row[i], f->now_ms, &f->out);
    }
    collect(f);
}

static void begin(struct fixture *f, uint64_t half, uint32_t n_sources)
{
    begin_object(f, false, half, n_sources);
}

static void arrive(struct fixture *f, uint32_t k, int rc)
{
    struct event e = {.type = EVENT_SEG_DONE,
                      .seg_done.rc = rc,
                      .now_ms = f->now_ms,
                      .seg_done.segment = f->asked[k]};

    memmove(f->asked + k, f->asked + k + 1,
            (--f->n_asked - k) * sizeof f->asked[0]);
    transfer_seg_done(&f->t, &e.seg_done, e.now_ms, &f->out);
    collect(f);
}

/* The first asked of this peer arrives; false: nothing is. */
static bool arrive_from(struct fixture *f, uint32_t peer, int rc)
{
    for (uint32_t k = 0; k < f->n_asked; k++) {
        if (id_eq(&f->asked[k].peer, &f->peer[peer].id)) {
            arrive(f, k, rc);
            return true;
        }
    }
    return false;
}

static int checked(struct fixture *f, int rc)
{
    uint64_t request = f->checks[0];
    int guilty;

    assert_true(f->n_checks > 0);
    memmove(f->checks, f->checks + 1, --f->n_checks * sizeof f->checks[0]);
    guilty = transfer_verified(&f->t, request, rc, f->now_ms, &f->out);
    collect(f);
    return guilty;
}

/* The leaf list, good. */
static void get_leaves(struct fixture *f)
{
    while (f->n_checks == 0) {
        assert_int_equal(f->asked[0].buffer, BUFFER_STATE_LEAVES);
        arrive(f, 0, 0);
    }
    assert_int_equal((uint32_t)f->checks[0], TRANSFER_LEAVES);
    assert_int_equal(checked(f, 0), MEMBERS_NONE);
}

/* Everything asked arrives and is good, until the end. */
static void finish(struct fixture *f)
{
    for (int turn = 0; turn < 10000 && !f->t.finished; turn++) {
        if (f->n_checks > 0) {
            (void)checked(f, 0);
        } else {
            assert_true(f->n_asked > 0);
            arrive(f, 0, 0);
        }
    }
    assert_true(f->t.finished);
    assert_int_equal(f->t.done_units, f->t.object.total);
}

/* ---- tests -------------------------------------------------------------- */

static void no_piece_is_asked_for_before_the_leaf_list_is_good(void **state)
{
    struct fixture *f = *state;

    begin(f, 250, 3);
    for (uint32_t k = 0; k < f->n_asked; k++) {
        assert_int_equal(f->asked[k].buffer, BUFFER_STATE_LEAVES);
    }
    assert_int_equal(f->n_asked, 5); /* 6 hashes of 32 bytes in parts of 40 */
    get_leaves(f);
    assert_true(f->n_asked > 0);
    assert_int_equal(f->asked[0].buffer, BUFFER_STATE);
    finish(f);
}

static void pieces_end_where_a_section_ends(void **state)
{
    struct fixture *f = *state;
    struct transfer_object o = {.total = 500, .first = 250, .piece = PIECE};
    uint32_t len;

    (void)f;
    assert_int_equal(transfer_pieces(&o), 6);
    assert_int_equal(transfer_piece_at(&o, 2, &len), 200);
    assert_int_equal(len, 50);
    assert_int_equal(transfer_piece_at(&o, 3, &len), 250);
    assert_int_equal(len, 100);
    assert_int_equal(transfer_piece_at(&o, 5, &len), 450);
    assert_int_equal(len, 50);
}

/* As the state of a method whose members share the parameters alone. */
static void a_section_may_be_empty(void **state)
{
    struct fixture *f = *state;
    struct transfer_object o = {
        .buffer = BUFFER_STATE,
        .leaves = BUFFER_STATE_LEAVES,
        .index = 3,
        .total = 250,
        .first = 250,
        .piece = PIECE,
        .part = PART,
        .sources = TRANSFER_SOURCES,
    };
    uint32_t len;

    assert_int_equal(transfer_pieces(&o), 3);
    assert_int_equal(transfer_piece_at(&o, 2, &len), 200);
    assert_int_equal(len, 50);
    assert_true(transfer_start(&f->t, &o, f->now_ms, &f->out));
    transfer_source(&f->t, f->row[0], f->now_ms, &f->out);
    collect(f);
    get_leaves(f);
    finish(f);
}

static void all_sources_work_and_no_piece_is_asked_of_two(void **state)
{
    struct fixture *f = *state;
    uint32_t of[PEERS] = {0};

    begin(f, 2000, 4);
    get_leaves(f);
    for (uint32_t k = 0; k < f->n_asked; k++) {
        for (uint32_t p = 0; p < PEERS; p++) {
            of[p] += id_eq(&f->asked[k].peer, &f->peer[p].id);
        }
        for (uint32_t i = 0; i < k; i++) {
            assert_true(f->asked[i].offset != f->asked[k].offset);
        }
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        assert_true(of[p] > 0);
    }
    finish(f);
}

static void a_source_of_a_bad_piece_is_named_and_asked_no_more(void **state)
{
    struct fixture *f = *state;

    begin(f, 2000, 2);
    get_leaves(f);
    while (f->n_checks == 0) {
        assert_true(arrive_from(f, 1, 0));
    }
    assert_int_equal(checked(f, LOCO_EHASH), f->row[1]);
    assert_false(arrive_from(f, 1, 0)); /* what it was asked for is void */
    assert_false(transfer_may(&f->t, f->row[1], f->now_ms + 1000000));
    finish(f);
    /* Nor for the next object. */
    begin(f, 200, 0);
    assert_false(transfer_may(&f->t, f->row[1], f->now_ms));
    assert_true(transfer_may(&f->t, f->row[0], f->now_ms));
}

static void a_check_that_could_not_be_made_blames_nobody(void **state)
{
    struct fixture *f = *state;

    begin(f, 200, 1);
    get_leaves(f);
    while (f->n_checks == 0) {
        arrive(f, 0, 0);
    }
    assert_int_equal(checked(f, LOCO_ENOMEM), MEMBERS_NONE);
    assert_int_equal(f->t.n_shunned, 0);
    finish(f);
}

static void a_bad_leaf_list_is_asked_of_another(void **state)
{
    struct fixture *f = *state;

    begin(f, 200, 2);
    while (f->n_checks == 0) {
        assert_true(arrive_from(f, 0, 0));
    }
    assert_int_equal(checked(f, LOCO_EHASH), f->row[0]);
    assert_true(f->n_asked > 0);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[1].id));
    get_leaves(f);
    finish(f);
}

static void a_silent_source_gives_its_pieces_to_the_others(void **state)
{
    struct fixture *f = *state;

    begin(f, 2000, 2);
    get_leaves(f);
    for (int k = 0; k < 5; k++) { /* source 0 goes on, 1 is silent */
        f->now_ms += FETCH_MS / 4;
        (void)arrive_from(f, 0, 0);
        transfer_tick(&f->t, f->now_ms, &f->out);
        collect(f);
    }
    assert_int_equal(transfer_n_sources(&f->t), 1);
    assert_false(arrive_from(f, 1, 0));
    assert_false(transfer_may(&f->t, f->row[1], f->now_ms));
    assert_true(transfer_may(&f->t, f->row[1], f->now_ms + FETCH_MS));
    finish(f);
}

/* No data passes to it, as where a crowd keeps a peer's port busy. On a line as
 * slow as the floor a piece may take 30 s; the list has 5 s, then 10. */
static void who_is_silent_about_the_leaf_list_holds_nobody_up(void **state)
{
    struct fixture *f = *state;
    struct transfer_object o = {.buffer = BUFFER_STATE,
                                .leaves = BUFFER_STATE_LEAVES,
                                .index = 3,
                                .total = 200,
                                .piece = PIECE,
                                .part = PIECE,
                                .sources = TRANSFER_SOURCES,
                                .floor_bytes_per_s = 2};

    assert_true(transfer_start(&f->t, &o, f->now_ms, &f->out));
    transfer_source(&f->t, f->row[0], f->now_ms, &f->out);
    transfer_source(&f->t, f->row[1], f->now_ms, &f->out);
    transfer_source(&f->t, f->row[2], f->now_ms, &f->out);
    collect(f);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(f->n_asked, 1);
        assert_int_equal(f->asked[0].buffer, BUFFER_STATE_LEAVES);
        assert_true(id_eq(&f->asked[0].peer, &f->peer[k].id));
        assert_int_equal(transfer_deadline(&f->t),
                         f->now_ms + ((uint64_t)FETCH_MS << k));
        if (k < 2) {
            f->now_ms = transfer_deadline(&f->t);
            transfer_tick(&f->t, f->now_ms, &f->out);
            collect(f);
        }
    }
    assert_true(arrive_from(f, 2, 0));
    assert_int_equal(checked(f, 0), MEMBERS_NONE);
    assert_int_equal(transfer_deadline(&f->t),
                     f->now_ms + FETCH_MS + PIECE * 1000U / 2);
}

/* Two that dial each other have two links, and the question may have gone by
 * the one that ends. */
static void what_a_link_took_with_it_is_asked_anew(void **state)
{
    struct fixture *f = *state;
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = PEERS + 1,
                      .link_up.request = UINT32_MAX};
    uint32_t ends = 0;

    begin(f, 2000, 1);
    e.link_up.peer = f->peer[0].id;
    memcpy(e.link_up.public_key, f->peer[0].public, 32);
    assert_true(members_link_up(&f->m, &e.link_up, e.now_ms, &f->out));
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_HANG_UP) {
            ends =
                f->out.action[i].hang_up.link; /* one of the two is too many */
        }
    }
    ends = ends == 0 ? PEERS + 1 : ends;
    assert_int_equal(members_link_down(&f->m, ends, f->now_ms), f->row[0]);
    f->n_asked = 0; /* it never arrives */
    transfer_link_down(&f->t, f->row[0], f->now_ms, &f->out);
    assert_true(transfer_may(&f->t, f->row[0], f->now_ms));
    transfer_source(&f->t, f->row[0], f->now_ms, &f->out);
    collect(f);
    get_leaves(f);
    finish(f);
}

/* The second link is held back until its HELLO is here. */
static void
what_the_only_link_took_with_it_is_asked_anew_over_the_next(void **state)
{
    struct fixture *f = *state;
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = PEERS + 1,
                      .link_up.request = UINT32_MAX};

    begin(f, 2000, 1);
    assert_int_equal(members_link_down(&f->m, 1, f->now_ms), f->row[0]);
    f->n_asked = 0; /* it never arrives */
    transfer_link_down(&f->t, f->row[0], f->now_ms, &f->out);
    transfer_tick(&f->t, f->now_ms, &f->out);
    collect(f);
    e.link_up.peer = f->peer[0].id;
    memcpy(e.link_up.public_key, f->peer[0].public, 32);
    assert_true(members_link_up(&f->m, &e.link_up, f->now_ms, &f->out));
    assert_true(transfer_may(&f->t, f->row[0], f->now_ms));
    transfer_source(&f->t, f->row[0], f->now_ms, &f->out);
    collect(f);
    get_leaves(f);
    finish(f);
}

static void a_slow_source_does_not_keep_the_end_waiting(void **state)
{
    struct fixture *f = *state;

    begin(f, 500, 2);
    get_leaves(f);
    for (int turn = 0; turn < 1000; turn++) { /* 1 sends nothing */
        f->now_ms++;
        if (f->n_checks > 0) {
            (void)checked(f, 0);
        } else if (!arrive_from(f, 0, 0)) {
            break;
        }
    }
    assert_false(f->t.finished);
    assert_int_equal(transfer_n_sources(&f->t), 2);
    f->now_ms += 1000; /* long before it counts as silent */
    transfer_tick(&f->t, f->now_ms, &f->out);
    collect(f);
    assert_int_equal(transfer_n_sources(&f->t), 1);
    assert_false(arrive_from(f, 1, 0));
    finish(f);
}

static void who_refuses_is_not_asked_again_for_this_object(void **state)
{
    struct fixture *f = *state;
    struct fetch_no no = {0};

    begin(f, 2000, 2);
    get_leaves(f);
    no.attempt = f->t.sources[0].attempt - 1;
    transfer_refused(&f->t, f->row[0], &no, f->now_ms, &f->out);
    assert_int_equal(transfer_n_sources(&f->t), 2); /* not this attempt */
    no.attempt = f->t.sources[0].attempt;
    transfer_refused(&f->t, f->row[0], &no, f->now_ms, &f->out);
    collect(f);
    assert_int_equal(transfer_n_sources(&f->t), 1);
    assert_false(transfer_may(&f->t, f->row[0], UINT64_MAX - 1));
    finish(f);
    begin(f, 200, 0);
    assert_true(transfer_may(&f->t, f->row[0], f->now_ms));
}

static void who_has_no_such_file_yet_is_asked_again_later(void **state)
{
    struct fixture *f = *state;
    struct fetch_no no = {0};

    begin_object(f, true, 2000, 2);
    no.attempt = f->t.sources[0].attempt;
    transfer_refused(&f->t, f->row[0], &no, f->now_ms, &f->out);
    collect(f);
    assert_int_equal(transfer_n_sources(&f->t), 1);
    assert_false(transfer_may(&f->t, f->row[0], f->now_ms + 2 * FETCH_MS - 1));
    assert_true(transfer_may(&f->t, f->row[0], f->now_ms + 2 * FETCH_MS));
    finish(f);
}

/* Each says that it has nothing, and another one is asked: without an end where
 * more are there than are remembered. */
static void who_only_hears_no_starves_until_something_comes(void **state)
{
    struct fixture *f = *state;
    struct fetch_no no = {0};

    begin(f, 2000, 1);
    get_leaves(f);
    for (uint32_t k = 0; f->now_ms < 2 * FETCH_MS; k++) {
        assert_false(transfer_starves(&f->t, f->now_ms));
        f->now_ms += FETCH_MS / 4;
        no.attempt = f->t.sources[0].attempt;
        transfer_refused(&f->t, f->row[k % 2], &no, f->now_ms, &f->out);
        transfer_source(&f->t, f->row[1 - k % 2], f->now_ms, &f->out);
        collect(f);
        assert_int_equal(transfer_n_sources(&f->t), 1);
    }
    f->now_ms++;
    assert_true(transfer_starves(&f->t, f->now_ms));
    arrive(f, 0, 0);
    assert_false(transfer_starves(&f->t, f->now_ms));
    f->now_ms += 3 * FETCH_MS;
    transfer_gap(&f->t, f->now_ms);
    assert_false(transfer_starves(&f->t, f->now_ms));
    finish(f);
}

static void a_transfer_without_sources_goes_on_with_the_next_one(void **state)
{
    struct fixture *f = *state;

    begin(f, 500, 1);
    get_leaves(f);
    while (f->t.n_done < 3) {
        if (f->n_checks > 0) {
            (void)checked(f, 0);
        } else {
            arrive(f, 0, 0);
        }
    }
    arrive(f, 0, LOCO_ECLOSED);
    assert_int_equal(transfer_n_sources(&f->t), 0);
    assert_int_equal(f->n_asked, 0);
    assert_true(transfer_deadline(&f->t) == CORE_NEVER);
    transfer_source(&f->t, f->row[2], f->now_ms, &f->out);
    collect(f);
    assert_true(f->n_asked > 0);
    assert_true(f->t.n_done >= 3);
    finish(f);
}

static void what_an_earlier_life_left_is_not_fetched(void **state)
{
    struct fixture *f = *state;
    uint8_t held[2] = {0x07, 0x00}; /* the first section of three pieces */

    begin(f, 250, 1);
    while (f->n_checks == 0) {
        arrive(f, 0, 0);
    }
    transfer_held(&f->t, held);
    (void)checked(f, 0);
    for (uint32_t k = 0; k < f->n_asked; k++) {
        assert_true(f->asked[k].offset >= 250);
    }
    assert_int_equal(f->t.done_units, 250);
    finish(f);
}

static void a_verdict_on_another_object_is_void(void **state)
{
    struct fixture *f = *state;
    uint64_t old;

    begin(f, 250, 1);
    get_leaves(f);
    while (f->n_checks == 0) {
        arrive(f, 0, 0);
    }
    old = f->checks[0];
    f->n_checks = 0;
    begin(f, 250, 1);
    get_leaves(f);
    while (f->n_checks == 0) {
        arrive(f, 0, 0);
    }
    assert_int_equal((uint32_t)f->checks[0], (uint32_t)old);
    (void)transfer_verified(&f->t, old, 0, f->now_ms, &f->out);
    assert_int_equal(f->t.n_done, 0);
    finish(f);
}

static void an_object_without_leaf_list_comes_from_one_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct transfer_object o = {
        .buffer = BUFFER_REDUCED,
        .leaves = BUFFER_KIND_COUNT,
        .total = 1000,
        .piece = PIECE,
        .part = PIECE,
        .sources = 1,
    };

    assert_true(transfer_start(&f->t, &o, 0, &f->out));
    transfer_source(&f->t, f->row[0], 0, &f->out);
    collect(f);
    assert_false(transfer_wants(&f->t));
    finish(f);
    assert_int_equal(transfer_spoiled(&f->t), f->row[0]);
    assert_false(transfer_may(&f->t, f->row[0], UINT64_MAX - 1));
}

static void nothing_is_whole_at_once_and_too_much_is_refused(void **state)
{
    struct fixture *f = *state;
    struct transfer_object o = {.leaves = BUFFER_KIND_COUNT, .piece = PIECE};

    assert_true(transfer_start(&f->t, &o, 0, &f->out));
    assert_true(f->t.finished);
    o.total = (uint64_t)PIECE * TRANSFER_PIECES_MAX + 1;
    assert_false(transfer_start(&f->t, &o, 0, &f->out));
    assert_false(f->t.active);
}

#define TEST(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_piece_is_asked_for_before_the_leaf_list_is_good),
        TEST(pieces_end_where_a_section_ends),
        TEST(a_section_may_be_empty),
        TEST(all_sources_work_and_no_piece_is_asked_of_two),
        TEST(a_source_of_a_bad_piece_is_named_and_asked_no_more),
        TEST(a_check_that_could_not_be_made_blames_nobody),
        TEST(a_bad_leaf_list_is_asked_of_another),
        TEST(a_silent_source_gives_its_pieces_to_the_others),
        TEST(who_is_silent_about_the_leaf_list_holds_nobody_up),
        TEST(what_a_link_took_with_it_is_asked_anew),
        TEST(what_the_only_link_took_with_it_is_asked_anew_over_the_next),
        TEST(a_slow_source_does_not_keep_the_end_waiting),
        TEST(who_refuses_is_not_asked_again_for_this_object),
        TEST(who_has_no_such_file_yet_is_asked_again_later),
        TEST(who_only_hears_no_starves_until_something_comes),
        TEST(a_transfer_without_sources_goes_on_with_the_next_one),
        TEST(what_an_earlier_life_left_is_not_fetched),
        TEST(a_verdict_on_another_object_is_void),
        TEST(an_object_without_leaf_list_comes_from_one_at_a_time),
        TEST(nothing_is_whole_at_once_and_too_much_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
