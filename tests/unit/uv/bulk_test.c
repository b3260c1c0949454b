/* bulk_test.c - segments: every one arrives whole or ends in one report. */
#include "tests/unit/uv/pair.h"

static void three_megabytes_arrive_intact(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    for (uint32_t i = 0; i < 12; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.a, 0) == 12 && done(&p.b, 0) == 12);
    assert_memory_equal(p.a.memory, p.b.memory, 12 * PIECE);
    assert_once(&p.a, 12);
    assert_once(&p.b, 12);
    for (uint32_t i = 0; i < 12; i++) {
        const struct event *e = &node_event(&p.b, EVENT_SEG_DONE, i)->event;

        assert_int_equal(e->seg_done.segment.seg, i); /* in order */
        assert_true(!e->seg_done.sent &&
                    e->seg_done.segment.offset == (uint64_t)i * PIECE);
        assert_true(node_event(&p.a, EVENT_SEG_DONE, i)->event.seg_done.sent);
    }
    struct shell_peer_stats stats;
    shell_peer_stats(p.b.shell, &p.a.id.id, &stats);
    assert_true(stats.bytes_received > 12 * PIECE);
    assert_true(stats.bytes_received < 12 * PIECE + 12 * 200 + 1000);
    pair_close(&p);
}

/* With either cipher, whoever has which. */
static void segments_arrive_under_the_cipher_that_both_have(void **state)
{
    (void)state;
    for (int who = 0; who < 4; who++) {
        struct pair p;

        pair_open_aes(&p, (who & 1) != 0, (who & 2) != 0);
        paint(&p.a);
        for (uint32_t i = 0; i < 4; i++) {
            post(&p.b, &p.a, 5, i, PIECE);
            give(&p.a, &p.b, 5, i, PIECE);
        }
        RUN_UNTIL(&p.loop, done(&p.b, 0) == 4);
        assert_memory_equal(p.a.memory, p.b.memory, 4 * PIECE);
        for (uint32_t i = 0; i < 4; i++) {
            post(&p.a, &p.b, 5, i, PIECE);
            give(&p.b, &p.a, 5, i, PIECE);
        }
        RUN_UNTIL(&p.loop, done(&p.a, 0) == 8); /* four sent, four taken */
        assert_int_equal(node_stats(&p.a).bulks_aes, who == 3);
        assert_int_equal(node_stats(&p.b).bulks_aes, who == 3);
        pair_close(&p);
    }
}

/* Both ends hear that a long segment is on its way before it is through. */
static void a_slow_segment_is_seen_to_move(void **state)
{
    struct shell_options opt;
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    opt = node_init(&p.a, 1);
    opt.upload_bytes_per_s = 256U << 10;
    node_open(&p.a, &p.loop, &opt);
    node_start(&p.b, &p.loop, 2);
    bulk_open_act(&p.a, &p.b);
    for (uint32_t i = 0; i < 4; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_MOVED] > 0 &&
                           p.b.toy.counts[EVENT_MOVED] > 0);
    pair_close(&p);
}

static void both_directions_share_a_connection(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    for (uint32_t i = 0; i < 8; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 8);
    memset(p.a.memory, 0, TOY_MEMORY);
    for (uint32_t i = 0; i < 8; i++) {
        post(&p.a, &p.b, 5, i, PIECE);
        give(&p.b, &p.a, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 16 && done(&p.a, 0) == 16);
    assert_memory_equal(p.a.memory, p.b.memory, 8 * PIECE);
    assert_int_equal(node_stats(&p.a).bulks, 1);
    pair_close(&p);
}

static void odd_lengths_arrive(void **state)
{
    static const uint32_t lens[] = {0,     1,      15,     65518,         65519,
                                    65520, 131038, 131039, FRAME_BULK_MAX};
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    for (uint32_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        memset(p.b.memory, 0, TOY_MEMORY);
        segment_act(&p.b, ACTION_POST_RECV, &p.a, 1, i, 7, lens[i]);
        segment_act(&p.a, ACTION_SEND_SEG, &p.b, 1, i, 7, lens[i]);
        RUN_UNTIL(&p.loop, done(&p.b, 0) == i + 1 && done(&p.a, 0) == i + 1);
        assert_memory_equal(p.a.memory + 7, p.b.memory + 7, lens[i]);
        assert_int_equal(p.b.memory[7 + lens[i]], 0);
    }
    segment_act(&p.a, ACTION_SEND_SEG, &p.b, 1, 9, 0, FRAME_BULK_MAX + 1);
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_ERANGE) == 1);
    pair_close(&p);
}

static void segments_wait_for_the_connection(void **state)
{
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    node_start(&p.a, &p.loop, 1);
    node_start(&p.b, &p.loop, 2);
    paint(&p.a);
    for (uint32_t i = 0; i < 4; i++) {
        give(&p.a, &p.b, 5, i, PIECE);
        post(&p.b, &p.a, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.a).sends == 4);
    run_quiet(&p.loop);
    assert_int_equal(p.a.toy.counts[EVENT_SEG_DONE], 0);
    bulk_open_act(&p.b, &p.a); /* the other side dials */
    bulk_open_act(&p.b, &p.a); /* one is enough */
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 4);
    assert_int_equal(node_stats(&p.a).bulks, 1);
    bulk_open_act(&p.a, &p.b);
    RUN_UNTIL(&p.loop, p.a.toy.at == p.a.toy.n_queue);
    run_quiet(&p.loop);
    assert_int_equal(node_stats(&p.a).bulks, 1);
    pair_close(&p);
}

static void sum_act(struct node *n, uint64_t attempt, uint32_t seg)
{
    struct action *a = node_act(n, ACTION_SUM);

    a->segment = (struct segment){.attempt = attempt,
                                  .seg = seg,
                                  .op = SEGMENT_SUM,
                                  .lane = 1,
                                  .lanes = 4};
}

static void a_sum_ends_in_one_report_and_none_after_a_cancel(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    sum_act(&p.a, 5, 0);
    RUN_UNTIL(&p.loop, done(&p.a, 0) == 1);
    assert_int_equal(
        node_event(&p.a, EVENT_SEG_DONE, 0)->event.seg_done.segment.lane, 1);
    p.a.sum_rc = LOCO_ENUMERIC;
    sum_act(&p.a, 5, 1);
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_ENUMERIC) == 1);
    assert_int_equal(
        node_event(&p.a, EVENT_SEG_DONE, 1)->event.seg_done.segment.lane, 3);
    sum_act(&p.a, 5, 2);
    cancel(&p.a, 5);
    sum_act(&p.a, 6, 3);
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_ENUMERIC) == 2);
    run_quiet(&p.loop);
    assert_int_equal(p.a.toy.counts[EVENT_SEG_DONE], 3); /* not number 2 */
    pair_close(&p);
}

static void too_many_waiting_segments_are_refused(void **state)
{
    struct shell_options opt;
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    opt = node_init(&p.a, 1);
    opt.sends_max = 3;
    opt.posts_max = 2;
    node_open(&p.a, &p.loop, &opt);
    node_start(&p.b, &p.loop, 2);
    for (uint32_t i = 0; i < 5; i++) {
        give(&p.a, &p.b, 5, i, PIECE);
        post(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_EFULL) == 5);
    assert_int_equal(node_stats(&p.a).sends, 3);
    assert_int_equal(node_stats(&p.a).posts, 2);
    post(&p.a, &p.b, 5, 0, PIECE); /* the same once more */
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_EINVAL) == 1);
    pair_close(&p);
}

static void an_unposted_segment_holds_the_sender_until_posted(void **state)
{
    uint64_t received;
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    /* More than socket buffers hold: 50 MB of the same megabyte. */
    for (uint32_t i = 0; i < 50; i++) {
        segment_act(&p.a, ACTION_SEND_SEG, &p.b, 5, i, 0, 1 << 20);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    received = node_stats(&p.b).bytes_received;
    uint32_t sent = done(&p.a, 0);
    assert_true(sent < 50);
    run_quiet(&p.loop);
    /* Not read: the receiver's counter stands, and so does the sender. */
    assert_true(node_stats(&p.b).bytes_received == received);
    assert_true(received < 1 << 20);
    assert_int_equal(done(&p.a, 0), sent);
    assert_int_equal(p.b.n_taken, 0);
    for (uint32_t i = 0; i < 50; i++) {
        segment_act(&p.b, ACTION_POST_RECV, &p.a, 5, i, 0, 1 << 20);
    }
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 50 && done(&p.a, 0) == 50);
    assert_memory_equal(p.a.memory, p.b.memory, 1 << 20);
    assert_int_equal(node_stats(&p.b).paused, 0);
    assert_once(&p.b, 50);
    pair_close(&p);
}

static void an_unposted_segment_ends_its_connection_after_a_while(void **state)
{
    struct shell_options opt;
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    node_start(&p.a, &p.loop, 1);
    opt = node_init(&p.b, 2);
    opt.unposted_ms = 50;
    node_open(&p.b, &p.loop, &opt);
    bulk_open_act(&p.a, &p.b);
    give(&p.a, &p.b, 5, 0, PIECE);
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    /* What is posted meanwhile does not give it more time. */
    for (uint32_t i = 1; node_stats(&p.b).bulks > 0; i++) {
        if (i < 1000) {
            post(&p.b, &p.a, 6, i, PIECE);
        }
        uv_run(&p.loop, UV_RUN_ONCE);
    }
    assert_int_equal(node_stats(&p.b).paused, 0);
    assert_int_equal(p.b.n_taken, 0);
    RUN_UNTIL(&p.loop, node_stats(&p.a).bulks == 0);
    /* One that is posted in time never ends: its time is its own. */
    bulk_open_act(&p.a, &p.b);
    post(&p.b, &p.a, 7, 0, PIECE);
    give(&p.a, &p.b, 7, 0, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
    assert_int_equal(node_stats(&p.b).bulks, 1);
    pair_close(&p);
}

/* Else it would be at the head of the next life's connection. */
static void what_a_peer_wanted_to_fetch_goes_with_its_last_link(void **state)
{
    uint32_t first, second;
    struct segment *s;
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    node_start(&p.a, &p.loop, 1);
    node_start(&p.b, &p.loop, 2);
    first = connect_nodes(&p.a, &p.b, &p.loop);
    second = connect_nodes(&p.a, &p.b, &p.loop);
    s = &node_act(&p.a, ACTION_SEND_SEG)->segment;
    s->peer = p.b.id.id;
    s->stream = STREAM_FETCH;
    s->attempt = 5;
    s->len = PIECE;
    give(&p.a, &p.b, 5, 0, PIECE); /* of the ring: it waits for its line */
    node_act(&p.a, ACTION_HANG_UP)->hang_up.link = first;
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_LINK_DOWN] == 1);
    run_quiet(&p.loop);
    assert_int_equal(node_stats(&p.a).sends, 2);
    node_act(&p.a, ACTION_HANG_UP)->hang_up.link = second;
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_ECLOSED) == 1);
    assert_int_equal(node_stats(&p.a).sends, 1);
    pair_close(&p);
}

/* There is a connection that it goes over: the links are no matter. */
static void what_has_a_data_connection_stays_without_a_link(void **state)
{
    struct segment *s;
    struct pair p;
    uint32_t link;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    link = connect_nodes(&p.a, &p.b, &p.loop);
    give(&p.a, &p.b, 5, 0, PIECE); /* not posted: what follows waits */
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    s = &node_act(&p.a, ACTION_SEND_SEG)->segment;
    s->peer = p.b.id.id;
    s->stream = STREAM_FETCH;
    s->attempt = 6;
    s->len = PIECE;
    node_act(&p.a, ACTION_HANG_UP)->hang_up.link = link;
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_LINK_DOWN] == 1);
    run_quiet(&p.loop);
    assert_int_equal(node_stats(&p.a).bulks, 1);
    assert_int_equal(done(&p.a, LOCO_ECLOSED), 0);
    pair_close(&p);
}

static void control_passes_while_bulk_is_held(void **state)
{
    struct pair p;
    uint32_t link;

    (void)state;
    pair_open(&p);
    link = connect_nodes(&p.a, &p.b, &p.loop);
    give(&p.a, &p.b, 5, 0, PIECE);
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    send_message(&p.a, link, 1, 42, 8);
    RUN_UNTIL(&p.loop, p.b.toy.counts[EVENT_RECV] == 1);
    assert_int_equal(node_stats(&p.b).paused, 1);
    pair_close(&p);
}

static void frames_of_a_cancelled_attempt_are_skipped(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    cancel(&p.b, 5);
    post(&p.b, &p.a, 5, 0, PIECE); /* too late: nothing is reported */
    for (uint32_t i = 0; i < 4; i++) {
        give(&p.a, &p.b, 4 + i % 2, i, PIECE);
    }
    give(&p.a, &p.b, 6, 4, PIECE);
    post(&p.b, &p.a, 6, 4, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1 && done(&p.a, 0) == 5);
    assert_int_equal(node_stats(&p.b).segments_skipped, 4);
    assert_int_equal(p.b.n_taken, 1);
    assert_int_equal(p.b.toy.counts[EVENT_SEG_DONE], 1);
    assert_memory_equal(p.a.memory + 4 * PIECE, p.b.memory + 4 * PIECE, PIECE);
    for (size_t i = 0; i < 4 * PIECE; i++) {
        assert_int_equal(p.b.memory[i], 0);
    }
    pair_close(&p);
}

static void cancel_frees_a_held_connection(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    for (uint32_t i = 0; i < 8; i++) {
        give(&p.a, &p.b, 5, i, 1 << 20);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    cancel(&p.b, 5);
    give(&p.a, &p.b, 6, 9, PIECE);
    post(&p.b, &p.a, 6, 9, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
    assert_int_equal(node_stats(&p.b).segments_skipped, 8);
    assert_int_equal(p.b.toy.counts[EVENT_SEG_DONE], 1);
    pair_close(&p);
}

static void nothing_is_reported_of_a_cancelled_attempt(void **state)
{
    uint32_t reported;
    struct pair p;

    (void)state;
    pair_open(&p);
    for (uint32_t i = 0; i < 40; i++) {
        give(&p.a, &p.b, 5, i, 1 << 20); /* some written, some queued */
        post(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    reported = p.a.toy.counts[EVENT_SEG_DONE];
    assert_true(reported < 40);
    cancel(&p.a, 5);
    RUN_UNTIL(&p.loop, p.a.toy.at == p.a.toy.n_queue);
    assert_int_equal(node_stats(&p.a).sends, 0);
    assert_int_equal(node_stats(&p.a).posts, 0);
    cancel(&p.b, 5); /* lets the written bytes through */
    run_quiet(&p.loop);
    node_close(&p.b, &p.loop); /* and the connection end */
    RUN_UNTIL(&p.loop, node_stats(&p.a).bulks == 0);
    run_quiet(&p.loop);
    assert_int_equal(p.a.toy.counts[EVENT_SEG_DONE], reported);
    node_close(&p.a, &p.loop);
    loop_end(&p.loop);
}

static void cancel_zero_forgets_the_bound_and_ends_what_waits(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    paint(&p.a);
    cancel(&p.b, 100);
    give(&p.a, &p.b, 100, 0, PIECE); /* skipped */
    give(&p.a, &p.b, 101, 1, PIECE); /* waits */
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    assert_int_equal(node_stats(&p.b).segments_skipped, 1);
    cancel(&p.b, 0);
    RUN_UNTIL(&p.loop,
              node_stats(&p.b).bulks == 0 && node_stats(&p.a).bulks == 0);
    assert_int_equal(node_stats(&p.b).paused, 0);
    bulk_open_act(&p.a, &p.b);
    give(&p.a, &p.b, 1, 2, PIECE); /* far below the old bound */
    post(&p.b, &p.a, 1, 2, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
    pair_close(&p);
}

static void the_death_of_a_peer_is_reported_once_for_each(void **state)
{
    uint32_t sent_before;
    struct pair p;

    (void)state;
    pair_open(&p);
    for (uint32_t i = 0; i < 20; i++) {
        give(&p.a, &p.b, 5, i, 1 << 20);    /* written, half written, queued */
        post(&p.a, &p.b, 7, 20 + i, PIECE); /* nothing of it has come */
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    sent_before = done(&p.a, 0);
    assert_true(sent_before < 20);
    node_close(&p.b, &p.loop);
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_SEG_DONE] == 40);
    run_quiet(&p.loop);
    assert_int_equal(p.a.toy.counts[EVENT_SEG_DONE], 40);
    assert_once(&p.a, 40);
    assert_true(done(&p.a, 0) < 20);
    assert_int_equal(node_stats(&p.a).posts, 0);
    assert_int_equal(node_stats(&p.a).sends, 0);
    node_close(&p.a, &p.loop);
    loop_end(&p.loop);
}

static void a_receiver_learns_of_death_in_the_middle_of_a_segment(void **state)
{
    uint8_t plain[1000] = {0}, wire[2048];
    struct node a, b;
    uv_loop_t loop;
    struct raw r;
    size_t len;

    (void)state;
    uv_loop_init(&loop);
    node_init(&a, 1);
    node_start(&b, &loop, 2);
    raw_connect(&r, b.port);
    raw_shake(&r, &loop, &a.signer, CONNECTION_BULK);
    post(&b, &a, 9, 0, 5000);
    post(&b, &a, 9, 1, 5000);
    put_u32(plain, 5000);
    plain[4] = 1;
    put_u64(plain + 8, 9);
    len = raw_seal(&r, plain, 20, wire);
    len += raw_seal(&r, plain, sizeof plain, wire + len);
    raw_write(&r, &loop, wire, len);
    RUN_UNTIL(&loop, node_stats(&b).bytes_received ==
                         len + 8 + HANDSHAKE_1_BYTES + HANDSHAKE_3_BYTES);
    assert_int_equal(b.toy.counts[EVENT_SEG_DONE], 0);
    close(r.fd);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_SEG_DONE] == 2);
    assert_int_equal(done(&b, LOCO_ECLOSED), 2);
    assert_once(&b, 2);
    assert_int_equal(b.n_taken, 0);
    assert_int_equal(b.memory[0], 0);
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

/* The kernel is told to wait for what must come of a frame (bulk.h). Whoever
 * cuts payload into more records than need be sends more than that; nothing may
 * be waited for behind the last byte of a frame. */
static void a_frame_in_small_records_ends_without_the_next_one(void **state)
{
    enum { LEN = 120000 };
    static uint8_t plain[977], wire[2048];
    uint32_t records[] = {1, 977, 3};
    struct node a, b;
    uv_loop_t loop;
    struct raw r;

    (void)state;
    uv_loop_init(&loop);
    node_init(&a, 1);
    node_start(&b, &loop, 2);
    raw_connect(&r, b.port);
    raw_shake(&r, &loop, &a.signer, CONNECTION_BULK);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n, left = LEN - i;

        post(&b, &a, 9, i, left);
        memset(plain, 0, 20);
        put_u32(plain, left);
        plain[4] = 1;
        put_u64(plain + 8, 9);
        put_u32(plain + 16, i);
        raw_write(&r, &loop, wire, raw_seal(&r, plain, 20, wire));
        memset(plain, (int)i + 1, sizeof plain);
        /* The last record of a frame is one byte, all of it, or three. */
        for (left -= records[i]; left > 0; left -= n) {
            n = left < sizeof plain ? left : (uint32_t)sizeof plain;
            raw_write(&r, &loop, wire, raw_seal(&r, plain, n, wire));
        }
        raw_write(&r, &loop, wire, raw_seal(&r, plain, records[i], wire));
        RUN_UNTIL(&loop, done(&b, 0) == i + 1);
    }
    assert_int_equal(b.n_taken, 3);
    close(r.fd);
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

static void a_failed_dial_ends_the_queue_but_not_the_posts(void **state)
{
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    node_start(&p.a, &p.loop, 1);
    node_start(&p.b, &p.loop, 2);
    give(&p.a, &p.b, 5, 0, PIECE);
    post(&p.a, &p.b, 5, 1, PIECE); /* that peer may still dial us */
    bulk_open_act(&p.a, &p.b);
    p.a.toy.queue[p.a.toy.n_queue - 1].bulk_open.address.port = 1; /* nobody */
    RUN_UNTIL(&p.loop, done(&p.a, UV_ECONNREFUSED) == 1);
    run_quiet(&p.loop);
    assert_int_equal(node_stats(&p.a).posts, 1);
    assert_int_equal(p.a.toy.counts[EVENT_SEG_DONE], 1);
    /* Seen once, a dial that fails says that it is gone. */
    bulk_open_act(&p.b, &p.a);
    give(&p.b, &p.a, 5, 1, PIECE);
    RUN_UNTIL(&p.loop, done(&p.a, 0) == 1);
    node_close(&p.b, &p.loop);
    RUN_UNTIL(&p.loop, node_stats(&p.a).bulks == 0);
    post(&p.a, &p.b, 6, 2, PIECE);
    bulk_open_act(&p.a, &p.b);
    RUN_UNTIL(&p.loop, done(&p.a, UV_ECONNREFUSED) == 2);
    node_close(&p.a, &p.loop);
    loop_end(&p.loop);
}

/* What was asked for last is of that stream. */
static void to_stream(struct node *n, uint16_t stream)
{
    n->toy.queue[n->toy.n_queue - 1].segment.stream = stream;
}

/* Its sender follows another plan of that round. */
static void
a_segment_of_an_exchange_that_does_not_fit_waits_for_its_end(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    post(&p.b, &p.a, 5, 0, PIECE);
    give(&p.a, &p.b, 5, 0, PIECE - 1);
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    assert_int_equal(p.b.n_taken, 0);
    cancel(&p.b, 5);
    give(&p.a, &p.b, 6, 1, PIECE);
    post(&p.b, &p.a, 6, 1, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
    assert_int_equal(node_stats(&p.b).segments_skipped, 1);
    assert_int_equal(node_stats(&p.b).segments_refused, 0);
    assert_int_equal(node_stats(&p.b).bulks, 1);
    pair_close(&p);
}

static void
a_segment_that_contradicts_its_post_ends_the_connection(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    post(&p.b, &p.a, 5, 0, PIECE);
    to_stream(&p.b, 3);
    post(&p.b, &p.a, 5, 1, PIECE);
    to_stream(&p.b, 3);
    give(&p.a, &p.b, 5, 0, PIECE - 1);
    to_stream(&p.a, 3);
    RUN_UNTIL(&p.loop, done(&p.b, LOCO_EPROTO) == 2);
    assert_int_equal(node_stats(&p.b).segments_refused, 1);
    assert_int_equal(node_stats(&p.b).bulks, 0);
    assert_int_equal(p.b.n_taken, 0);
    RUN_UNTIL(&p.loop, node_stats(&p.a).bulks == 0);
    pair_close(&p);
}

static void malformed_bulk_frames_end_the_connection(void **state)
{
    uint8_t plain[64], wire[128];
    struct node a, b;
    uv_loop_t loop;
    struct raw r;

    (void)state;
    uv_loop_init(&loop);
    node_init(&a, 1);
    node_start(&b, &loop, 2);
    post(&b, &a, 9, 77, 10);
    for (uint32_t i = 0; i < 7; i++) {
        size_t len;

        memset(plain, 0, sizeof plain);
        put_u32(plain, i == 0 ? FRAME_BULK_MAX + 1 : 10);
        plain[4] = i == 1 ? 2 : 1; /* type */
        plain[5] = i == 2;         /* flags */
        put_u16(plain + 6, i == 3 ? STREAM_COUNT : 0);
        put_u64(plain + 8, 9);
        put_u32(plain + 16, 77);
        raw_connect(&r, b.port);
        raw_shake(&r, &loop, &a.signer, CONNECTION_BULK);
        len = raw_seal(&r, plain, i == 4 ? 19 : 20, wire);
        if (i >= 5) { /* payload longer than said, or empty */
            len += raw_seal(&r, plain, i == 5 ? 11 : 0, wire + len);
            post(&b, &a, 9, 77, 10);
        }
        raw_write(&r, &loop, wire, len);
        assert_true(raw_is_closed(&r, &loop));
        close(r.fd);
        assert_int_equal(node_stats(&b).segments_refused, i + 1);
    }
    assert_int_equal(node_stats(&b).conns, 0);
    assert_int_equal(b.n_taken, 0);
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

static void the_code_of_take_is_reported(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p);
    p.b.take_rc = LOCO_ENUMERIC;
    post(&p.b, &p.a, 5, 0, PIECE);
    post(&p.b, &p.a, 5, 1, PIECE);
    give(&p.a, &p.b, 5, 0, PIECE);
    give(&p.a, &p.b, 5, 1, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, LOCO_ENUMERIC) == 2);
    assert_int_equal(node_stats(&p.b).bulks, 1); /* the connection goes on */
    pair_close(&p);
}

static void few_slabs_are_enough_for_many_peers(void **state)
{
    struct shell_options opt;
    struct node hub, leaf[5];
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&hub, 9);
    opt.slabs = 1;
    node_open(&hub, &loop, &opt);
    for (uint8_t i = 0; i < 5; i++) {
        node_start(&leaf[i], &loop, i + 1);
        bulk_open_act(&leaf[i], &hub);
        for (uint32_t seg = 0; seg < 4; seg++) {
            give(&leaf[i], &hub, 5, seg, PIECE);
            post(&hub, &leaf[i], 5, seg, PIECE);
            give(&hub, &leaf[i], 5, seg, PIECE);
            post(&leaf[i], &hub, 5, seg, PIECE);
        }
    }
    RUN_UNTIL(&loop, done(&hub, 0) == 40);
    for (int i = 0; i < 5; i++) {
        RUN_UNTIL(&loop, done(&leaf[i], 0) == 8);
        node_close(&leaf[i], &loop);
    }
    node_close(&hub, &loop);
    loop_end(&loop);
}

/* A hub that sends to two strangers, who take nothing. */
struct idlers {
    uv_loop_t loop;
    struct node hub, idle[2], other;
};

static void idlers_open(struct idlers *t, uint32_t stall_ms)
{
    struct shell_options opt;

    uv_loop_init(&t->loop);
    opt = node_init(&t->hub, 9);
    opt.slabs = 4; /* two for each, but for the reserve */
    opt.stranger_slabs = 3;
    opt.stranger_stall_ms = stall_ms;
    node_open(&t->hub, &t->loop, &opt);
    for (uint8_t i = 0; i < 2; i++) {
        node_start(&t->idle[i], &t->loop, i + 1);
        bulk_open_act(&t->idle[i], &t->hub);
        RUN_UNTIL(&t->loop, node_stats(&t->hub).bulks == i + 1U);
        for (uint32_t seg = 0; seg < 50; seg++) {
            segment_act(&t->hub, ACTION_SEND_SEG, &t->idle[i], 5, seg, 0,
                        1 << 20);
        }
    }
    run_quiet(&t->loop);
    node_start(&t->other, &t->loop, 4);
}

/* The other one fetches a segment. */
static void idlers_fetch(struct idlers *t)
{
    bulk_open_act(&t->other, &t->hub);
    give(&t->hub, &t->other, 5, 0, PIECE);
    post(&t->other, &t->hub, 5, 0, PIECE);
    RUN_UNTIL(&t->loop, done(&t->other, 0) == 1);
}

static void idlers_close(struct idlers *t)
{
    node_close(&t->other, &t->loop);
    node_close(&t->idle[0], &t->loop);
    node_close(&t->idle[1], &t->loop);
    node_close(&t->hub, &t->loop);
    loop_end(&t->loop);
}

static void strangers_that_do_not_read_leave_slabs_to_members(void **state)
{
    struct idlers t;
    struct action *trust;
    uint32_t link;

    (void)state;
    idlers_open(&t, UINT32_MAX);
    link = connect_nodes(&t.hub, &t.other, &t.loop);
    trust = node_act(&t.hub, ACTION_TRUST);
    trust->trust.trusted = true;
    trust->trust.link = link;
    idlers_fetch(&t);
    /* Not because an idle connection ended. */
    assert_int_equal(t.hub.toy.counts[EVENT_SEG_DONE], done(&t.hub, 0));
    idlers_close(&t);
}

/* Nor does it where the core says nothing of the second link, which ends. */
static void a_second_link_takes_no_trust_away(void **state)
{
    struct idlers t;
    struct action *act;
    uint32_t link;

    (void)state;
    idlers_open(&t, UINT32_MAX);
    link = connect_nodes(&t.hub, &t.other, &t.loop);
    act = node_act(&t.hub, ACTION_TRUST);
    act->trust.trusted = true;
    act->trust.link = link;
    link = connect_nodes(&t.hub, &t.other, &t.loop);
    node_act(&t.hub, ACTION_HANG_UP)->hang_up.link = link;
    RUN_UNTIL(&t.loop, t.hub.toy.counts[EVENT_LINK_DOWN] == 1);
    idlers_fetch(&t);
    assert_int_equal(t.hub.toy.counts[EVENT_SEG_DONE], done(&t.hub, 0));
    idlers_close(&t);
}

static void strangers_that_stand_still_give_way_to_others(void **state)
{
    struct idlers t;

    (void)state;
    idlers_open(&t, 1500);
    idlers_fetch(&t);
    assert_true(done(&t.hub, LOCO_ETIMEOUT) > 0);
    idlers_close(&t);
}

/* What is queued in the same step is told of it, too. */
static void who_waits_hears_that_a_dial_could_not_be_made(void **state)
{
    struct pair p;

    (void)state;
    uv_loop_init(&p.loop);
    node_start(&p.a, &p.loop, 1);
    node_start(&p.b, &p.loop, 2);
    node_act(&p.a, ACTION_BULK_OPEN)->bulk_open.peer = p.b.id.id; /* nowhere */
    give(&p.a, &p.b, 5, 0, 100);
    RUN_UNTIL(&p.loop, done(&p.a, LOCO_EINVAL) == 1);
    node_act(&p.a, ACTION_BULK_OPEN)->bulk_open.peer = p.b.id.id;
    pair_close(&p); /* before it is told */
}

static void a_new_attempt_takes_the_newest_connection(void **state)
{
    struct pair p;
    struct raw r;

    (void)state;
    pair_open(&p);
    /* The same peer connects again, as after a restart that we have not
     * noticed: what we send from now on goes there. */
    raw_connect(&r, p.b.port);
    raw_shake(&r, &p.loop, &p.a.signer, CONNECTION_BULK);
    RUN_UNTIL(&p.loop, node_stats(&p.b).bulks == 2);
    give(&p.b, &p.a, 5, 0, 100);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
    uint8_t wire[256];
    assert_true(raw_read(&r, &p.loop, wire, 40));
    assert_int_equal(get_u32(wire), 36);
    assert_int_equal(noise_open(&r.recv, wire + 4, 36, wire), 20);
    assert_int_equal(get_u32(wire), 100);
    assert_true(get_u64(wire + 8) == 5);
    close(r.fd);
    RUN_UNTIL(&p.loop, node_stats(&p.b).bulks == 1);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_megabytes_arrive_intact),
        cmocka_unit_test(segments_arrive_under_the_cipher_that_both_have),
        cmocka_unit_test(a_slow_segment_is_seen_to_move),
        cmocka_unit_test(both_directions_share_a_connection),
        cmocka_unit_test(odd_lengths_arrive),
        cmocka_unit_test(segments_wait_for_the_connection),
        cmocka_unit_test(a_sum_ends_in_one_report_and_none_after_a_cancel),
        cmocka_unit_test(too_many_waiting_segments_are_refused),
        cmocka_unit_test(an_unposted_segment_holds_the_sender_until_posted),
        cmocka_unit_test(what_a_peer_wanted_to_fetch_goes_with_its_last_link),
        cmocka_unit_test(what_has_a_data_connection_stays_without_a_link),
        cmocka_unit_test(an_unposted_segment_ends_its_connection_after_a_while),
        cmocka_unit_test(control_passes_while_bulk_is_held),
        cmocka_unit_test(frames_of_a_cancelled_attempt_are_skipped),
        cmocka_unit_test(cancel_frees_a_held_connection),
        cmocka_unit_test(nothing_is_reported_of_a_cancelled_attempt),
        cmocka_unit_test(cancel_zero_forgets_the_bound_and_ends_what_waits),
        cmocka_unit_test(the_death_of_a_peer_is_reported_once_for_each),
        cmocka_unit_test(a_receiver_learns_of_death_in_the_middle_of_a_segment),
        cmocka_unit_test(a_frame_in_small_records_ends_without_the_next_one),
        cmocka_unit_test(a_failed_dial_ends_the_queue_but_not_the_posts),
        cmocka_unit_test(
            a_segment_of_an_exchange_that_does_not_fit_waits_for_its_end),
        cmocka_unit_test(
            a_segment_that_contradicts_its_post_ends_the_connection),
        cmocka_unit_test(malformed_bulk_frames_end_the_connection),
        cmocka_unit_test(the_code_of_take_is_reported),
        cmocka_unit_test(few_slabs_are_enough_for_many_peers),
        cmocka_unit_test(strangers_that_do_not_read_leave_slabs_to_members),
        cmocka_unit_test(a_second_link_takes_no_trust_away),
        cmocka_unit_test(strangers_that_stand_still_give_way_to_others),
        cmocka_unit_test(who_waits_hears_that_a_dial_could_not_be_made),
        cmocka_unit_test(a_new_attempt_takes_the_newest_connection),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
