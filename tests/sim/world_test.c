/* world_test.c - the world keeps the rules of p2p/core.h, under a toy core.
 *
 * The toy dials the other peer, sends numbered messages, posts and sends
 * segments when a test says so, and records what happens to it.
 */
#include "daemon/sim/world/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define SEEN_MAX 64

struct toy {
    uint32_t link, n_up, n_down, n_recv, n_failed;
    uint32_t n_done, n_errors;
    uint32_t order[SEEN_MAX]; /* numbers as received */
    uint32_t segs[SEEN_MAX];  /* received segments, in order */
    uint32_t n_segs;
    int rc; /* of the last failed dial or segment */
    uint64_t last_ms, deadline_ms, n_ticks;
    uint32_t answers; /* to each message, the same */
    struct out todo;  /* for the next tick */
};

struct fixture {
    struct world *world;
    struct toy toys[2];
    uint8_t bytes[2][256]; /* one buffer per peer */
};

static void toy_step(void *self, const struct event *e, struct out *out)
{
    struct toy *t = self;

    assert_true(e->now_ms >= t->last_ms);
    t->last_ms = e->now_ms;
    if (e->type == EVENT_TICK) {
        t->n_ticks++;
        memcpy(out, &t->todo, sizeof *out);
        memset(&t->todo, 0, sizeof t->todo);
        t->deadline_ms = CORE_NEVER;
    } else if (e->type == EVENT_LINK_UP) {
        t->link = e->link_up.link;
        t->n_up++;
    } else if (e->type == EVENT_LINK_DOWN) {
        t->n_down++;
    } else if (e->type == EVENT_DIAL_FAILED) {
        t->n_failed++;
        t->rc = e->dial_failed.rc;
    } else if (e->type == EVENT_RECV) {
        t->order[t->n_recv++ % SEEN_MAX] = get_u32(e->recv.bytes);
        for (uint32_t k = 0; k < t->answers; k++) {
            assert_true(
                out_send(out, e->recv.link, 1, e->recv.bytes, e->recv.len));
        }
    } else if (e->type == EVENT_SEG_DONE && e->seg_done.rc != 0) {
        t->n_errors++;
        t->rc = e->seg_done.rc;
    } else if (e->type == EVENT_SEG_DONE) {
        t->n_done++;
        if (!e->seg_done.sent) {
            t->segs[t->n_segs++ % SEEN_MAX] = e->seg_done.segment.seg;
        }
    }
}

static uint64_t toy_deadline(const void *self)
{
    return ((const struct toy *)self)->deadline_ms;
}

static size_t wire_len(void *self, uint32_t peer, const struct segment *s)
{
    (void)self;
    (void)peer;
    return s->len;
}

static int
fill(void *self, uint32_t peer, const struct segment *s, uint8_t *dst)
{
    struct fixture *f = self;

    memcpy(dst, f->bytes[peer] + s->offset, s->len);
    return 0;
}

static int take(void *self,
                uint32_t peer,
                const struct segment *s,
                const uint8_t *src,
                size_t len)
{
    struct fixture *f = self;

    memcpy(f->bytes[peer] + s->offset, src, len);
    return 0;
}

static void on_after(void *self,
                     uint32_t peer,
                     const struct event *e,
                     const struct out *out)
{
    (void)self;
    (void)peer;
    (void)e;
    (void)out;
}

static void start(struct fixture *f, uint32_t peer)
{
    struct core core = {&f->toys[peer], toy_step, toy_deadline};

    memset(&f->toys[peer], 0, sizeof f->toys[peer]);
    f->toys[peer].deadline_ms = CORE_NEVER;
    world_start(f->world, peer, &core);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct world_calls calls = {.self = f, .after = on_after};
    const struct world_machines machines = {
        .self = f, .wire_len = wire_len, .fill = fill, .take = take};
    struct world_options opt = {.seed = 7,
                                .n_peers = 2,
                                .latency_min_ms = 10,
                                .latency_max_ms = 10,
                                .jitter_ms = 50,
                                .bytes_per_s = 1 << 20,
                                .dial_timeout_ms = 5000,
                                .transport_timeout_ms = 20000};

    if (f == NULL || world_open(&f->world, &opt, &calls) != 0) {
        free(f);
        return -1;
    }
    world_set_machines(f->world, &machines);
    start(f, 0);
    start(f, 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    world_close(f->world);
    free(f);
    return 0;
}

/* Let a peer execute its `todo` now, then run for some time. */
static void go(struct fixture *f, uint32_t peer, uint64_t for_ms)
{
    struct event wake = {.type = EVENT_TICK};
    uint64_t end = world_now(f->world) + for_ms;

    world_post(f->world, peer, &wake);
    while (world_step(f->world, end)) {
    }
}

static void run(struct fixture *f, uint64_t for_ms)
{
    uint64_t end = world_now(f->world) + for_ms;

    while (world_step(f->world, end)) {
    }
}

static void dial(struct fixture *f, uint32_t from)
{
    struct action *a = out_add(&f->toys[from].todo, ACTION_DIAL);

    a->dial.request = 5;
    a->dial.address = world_address(f->world, !from);
    go(f, from, 6000);
}

static void send_numbers(struct fixture *f, uint32_t from, uint32_t n)
{
    uint8_t bytes[4];

    for (uint32_t k = 0; k < n; k++) {
        put_u32(bytes, k);
        assert_true(out_send(&f->toys[from].todo, f->toys[from].link, 1, bytes,
                             sizeof bytes));
    }
}

static void segment(struct fixture *f,
                    uint32_t peer,
                    enum action_type type,
                    uint64_t attempt,
                    uint32_t seg)
{
    struct action *a = out_add(&f->toys[peer].todo, type);

    a->segment = (struct segment){.peer = world_identity(f->world, !peer)->id,
                                  .attempt = attempt,
                                  .seg = seg,
                                  .offset = seg * 8,
                                  .len = 8};
}

static void open_bulk(struct fixture *f, uint32_t peer)
{
    struct action *a = out_add(&f->toys[peer].todo, ACTION_BULK_OPEN);

    a->bulk_open.peer = world_identity(f->world, !peer)->id;
}

static void a_dial_ends_in_a_link_on_both_sides(void **state)
{
    struct fixture *f = *state;

    dial(f, 0);
    assert_int_equal(f->toys[0].n_up, 1);
    assert_int_equal(f->toys[1].n_up, 1);
    assert_int_equal(f->toys[0].n_failed, 0);
}

static void
a_dial_to_a_dead_peer_is_refused_and_to_a_frozen_one_times_out(void **state)
{
    struct fixture *f = *state;

    world_freeze(f->world, 1);
    dial(f, 0);
    assert_int_equal(f->toys[0].n_failed, 1);
    assert_int_equal(f->toys[0].rc, LOCO_ETIMEOUT);
    world_kill(f->world, 1);
    dial(f, 0);
    assert_int_equal(f->toys[0].n_failed, 2);
    assert_int_equal(f->toys[0].rc, WORLD_EREFUSED);
    assert_int_equal(f->toys[0].n_up, 0);
}

static void messages_of_a_link_arrive_in_order(void **state)
{
    struct fixture *f = *state;

    dial(f, 0);
    send_numbers(f, 0, 40);
    go(f, 0, 1000);
    assert_int_equal(f->toys[1].n_recv, 40);
    for (uint32_t k = 0; k < 40; k++) {
        assert_int_equal(f->toys[1].order[k], k);
    }
}

static void a_killed_peer_takes_its_links_down_once(void **state)
{
    struct fixture *f = *state;

    dial(f, 0);
    world_kill(f->world, 0);
    run(f, 1000);
    assert_int_equal(f->toys[1].n_down, 1);
    start(f, 0);
    dial(f, 0);
    assert_int_equal(f->toys[1].n_up, 2);
}

static void
a_short_cut_delays_messages_and_a_long_one_ends_the_link(void **state)
{
    struct fixture *f = *state;
    const uint32_t apart[2] = {0, 1};

    dial(f, 0);
    world_partition(f->world, apart);
    send_numbers(f, 0, 3);
    go(f, 0, 5000);
    assert_int_equal(f->toys[1].n_recv, 0);
    world_heal(f->world);
    run(f, 1000);
    assert_int_equal(f->toys[1].n_recv, 3);
    assert_int_equal(f->toys[1].order[2], 2);
    world_partition(f->world, apart);
    run(f, 19000);
    assert_int_equal(f->toys[0].n_down + f->toys[1].n_down, 0);
    run(f, 2000);
    assert_int_equal(f->toys[0].n_down, 1);
    assert_int_equal(f->toys[1].n_down, 1);
}

static void a_frozen_peer_gets_everything_late_and_in_order(void **state)
{
    struct fixture *f = *state;

    dial(f, 0);
    world_freeze(f->world, 1);
    send_numbers(f, 0, 5);
    go(f, 0, 5000);
    assert_int_equal(f->toys[1].n_recv, 0);
    world_thaw(f->world, 1);
    run(f, 10);
    assert_int_equal(f->toys[1].n_recv, 5);
    assert_int_equal(f->toys[1].order[4], 4);
    assert_int_equal(f->toys[1].n_down, 0);
}

static void segments_wait_until_they_are_posted(void **state)
{
    struct fixture *f = *state;

    memset(f->bytes[0], 0x5a, sizeof f->bytes[0]);
    open_bulk(f, 0);
    for (uint32_t k = 0; k < 8; k++) {
        segment(f, 0, ACTION_SEND_SEG, 1, k);
    }
    go(f, 0, 5000);
    assert_int_equal(f->toys[1].n_segs, 0);
    assert_true(f->toys[0].n_done < 8); /* back-pressure */
    for (uint32_t k = 0; k < 8; k++) {
        segment(f, 1, ACTION_POST_RECV, 1, k);
    }
    go(f, 1, 5000);
    assert_int_equal(f->toys[0].n_done, 8);
    assert_int_equal(f->toys[1].n_segs, 8);
    assert_int_equal(f->toys[1].segs[7], 7);
    assert_memory_equal(f->bytes[1], f->bytes[0], 64);
}

static void
a_cancelled_attempt_reports_nothing_and_its_frames_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct action *a;

    open_bulk(f, 0);
    segment(f, 0, ACTION_SEND_SEG, 1, 0);
    segment(f, 0, ACTION_SEND_SEG, 2, 1);
    go(f, 0, 5000);
    segment(f, 1, ACTION_POST_RECV, 1, 3);
    a = out_add(&f->toys[1].todo, ACTION_CANCEL);
    a->cancel.attempt = 1;
    segment(f, 1, ACTION_POST_RECV, 2, 1);
    go(f, 1, 5000);
    assert_int_equal(f->toys[1].n_segs, 1);
    assert_int_equal(f->toys[1].segs[0], 1);
    assert_int_equal(f->toys[1].n_errors, 0);
}

static void a_broken_data_connection_ends_every_segment_once(void **state)
{
    struct fixture *f = *state;

    open_bulk(f, 0);
    for (uint32_t k = 0; k < 8; k++) {
        segment(f, 0, ACTION_SEND_SEG, 1, k);
    }
    go(f, 0, 5000);
    segment(f, 1, ACTION_POST_RECV, 9, 0);
    go(f, 1, 100);
    world_drop_bulk(f->world, 0, 1);
    run(f, 1000);
    assert_int_equal(f->toys[0].n_done + f->toys[0].n_errors, 8);
    assert_int_equal(f->toys[0].rc, LOCO_ECLOSED);
    assert_int_equal(f->toys[1].n_errors, 1);
}

static void
a_frame_that_contradicts_its_posting_breaks_the_connection(void **state)
{
    struct fixture *f = *state;

    open_bulk(f, 0);
    segment(f, 0, ACTION_SEND_SEG, 1, 0);
    segment(f, 1, ACTION_POST_RECV, 1, 0);
    f->toys[1].todo.action[0].segment.offset = 16;
    go(f, 1, 10);
    go(f, 0, 5000);
    assert_int_equal(f->toys[1].n_segs, 0);
    assert_int_equal(f->toys[1].n_errors, 1);
    assert_int_equal(world_stats(f->world)->broke_rules, 1);
}

static void save_is_a_barrier(void **state)
{
    struct fixture *f = *state;
    struct action *a;
    size_t len;

    dial(f, 0);
    a = out_add(&f->toys[0].todo, ACTION_SAVE);
    a->save.at = out_bytes(&f->toys[0].todo, "once", 4);
    a->save.len = 4;
    send_numbers(f, 0, 1);
    world_kill_at_action(f->world, 0, 2);
    go(f, 0, 1000);
    assert_false(world_alive(f->world, 0));
    assert_memory_equal(world_record(f->world, 0, &len), "once", 4);
    assert_int_equal(f->toys[1].n_recv, 0);
    start(f, 0);
    dial(f, 0);
    world_fail_save(f->world, 0);
    a = out_add(&f->toys[0].todo, ACTION_SAVE);
    a->save.at = out_bytes(&f->toys[0].todo, "more", 4);
    a->save.len = 4;
    send_numbers(f, 0, 1);
    go(f, 0, 1000);
    assert_int_equal(f->toys[1].n_recv, 0);
    assert_memory_equal(world_record(f->world, 0, &len), "once", 4);
}

/* Two answers to each message: without a bound no seed would end. */
static void storms_end(void **state)
{
    struct fixture *f = *state;
    char why[160] = "";
    uint64_t sent_ms;

    dial(f, 0);
    f->toys[0].answers = f->toys[1].answers = 1;
    send_numbers(f, 0, 1);
    go(f, 0, 3000);
    assert_true(f->toys[1].n_recv > 20);
    assert_true(world_is_sound(f->world, why, sizeof why));
    assert_string_equal(why, "");

    f->toys[0].answers = 2;
    sent_ms = world_now(f->world);
    run(f, 60000);
    assert_true(world_now(f->world) < sent_ms + 10000);
    assert_int_equal(world_stats(f->world)->storms, 1);
    assert_false(world_is_sound(f->world, why, sizeof why));
    assert_non_null(strstr(why, "1 storms"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_dial_ends_in_a_link_on_both_sides),
        T(a_dial_to_a_dead_peer_is_refused_and_to_a_frozen_one_times_out),
        T(messages_of_a_link_arrive_in_order),
        T(a_killed_peer_takes_its_links_down_once),
        T(a_short_cut_delays_messages_and_a_long_one_ends_the_link),
        T(a_frozen_peer_gets_everything_late_and_in_order),
        T(segments_wait_until_they_are_posted),
        T(a_cancelled_attempt_reports_nothing_and_its_frames_are_dropped),
        T(a_broken_data_connection_ends_every_segment_once),
        T(a_frame_that_contradicts_its_posting_breaks_the_connection),
        T(save_is_a_barrier),
        T(storms_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
