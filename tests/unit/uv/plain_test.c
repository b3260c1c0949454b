/* plain_test.c - segments without encryption: only where both sides agree, and
 * with the same promises; segments that are sent and received where they lie.
 */
#include "tests/unit/uv/pair.h"

#include "p2p/uv/bulk.h"

/* A raw peer with identity `a` that says `features` on a bulk connection to
 * `b`, which agrees to plain segments. */
struct stranger {
    uv_loop_t loop;
    struct node a, b;
    struct raw r;
};

static void
stranger_open(struct stranger *s, enum connection_kind kind, uint64_t features)
{
    struct shell_options opt;

    uv_loop_init(&s->loop);
    node_init(&s->a, 1);
    opt = node_init(&s->b, 2);
    opt.plain_bulk = true;
    node_open(&s->b, &s->loop, &opt);
    raw_connect(&s->r, s->b.port);
    raw_shake_features(&s->r, &s->loop, &s->a.signer, kind, features);
}

static void stranger_close(struct stranger *s)
{
    close(s->r.fd);
    RUN_UNTIL(&s->loop, node_stats(&s->b).conns == 0);
    node_close(&s->b, &s->loop);
    loop_end(&s->loop);
    free(s->a.toy.queue);
    free(s->a.toy.log);
    free(s->a.memory);
}

static void
put_frame(uint8_t *out, uint32_t len, uint64_t attempt, uint32_t seg)
{
    memset(out, 0, BULK_HEADER_BYTES);
    put_u32(out, len);
    out[4] = BULK_TYPE_SEGMENT;
    put_u64(out + 8, attempt);
    put_u32(out + 16, seg);
}

static void plain_segments_of_all_lengths_arrive(void **state)
{
    static const uint32_t lens[] = {0, 1, 19, 20, 21, 65535, FRAME_BULK_MAX};
    struct pair p;

    (void)state;
    pair_open_plain(&p, true, true);
    paint(&p.a);
    for (uint32_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        uint64_t before = node_stats(&p.b).bytes_received;

        memset(p.b.memory, 0, TOY_MEMORY);
        segment_act(&p.b, ACTION_POST_RECV, &p.a, 1, i, 7, lens[i]);
        segment_act(&p.a, ACTION_SEND_SEG, &p.b, 1, i, 7, lens[i]);
        RUN_UNTIL(&p.loop, done(&p.a, 0) == i + 1 && done(&p.b, 0) == i + 1);
        assert_memory_equal(p.a.memory + 7, p.b.memory + 7, lens[i]);
        assert_int_equal(p.b.memory[7 + lens[i]], 0);
        /* A header and the bytes: no tags, no records. */
        assert_int_equal(node_stats(&p.b).bytes_received - before,
                         BULK_HEADER_BYTES + lens[i]);
    }
    pair_close(&p);
}

static void one_side_alone_keeps_its_segments_encrypted(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        struct pair p;
        uint64_t before;

        pair_open_plain(&p, side == 0, side == 1);
        paint(&p.a);
        before = node_stats(&p.b).bytes_received;
        post(&p.b, &p.a, 5, 0, PIECE);
        give(&p.a, &p.b, 5, 0, PIECE);
        RUN_UNTIL(&p.loop, done(&p.b, 0) == 1);
        assert_memory_equal(p.a.memory, p.b.memory, PIECE);
        assert_true(node_stats(&p.b).bytes_received - before >=
                    PIECE + BULK_HEADER_BYTES + 6 * NOISE_TAG_BYTES);
        pair_close(&p);
    }
}

static void a_peer_without_the_feature_must_seal(void **state)
{
    uint8_t frame[BULK_HEADER_BYTES + 10] = {0};
    struct stranger s;

    (void)state;
    stranger_open(&s, CONNECTION_BULK, 0);
    post(&s.b, &s.a, 9, 0, 10);
    put_frame(frame, 10, 9, 0);
    raw_write(&s.r, &s.loop, frame, sizeof frame);
    assert_true(raw_is_closed(&s.r, &s.loop)); /* no record, no tag */
    assert_int_equal(s.b.n_taken, 0);
    stranger_close(&s);
}

static void control_stays_encrypted_between_plain_sides(void **state)
{
    uint8_t frame[64] = {0};
    struct stranger s;

    (void)state;
    stranger_open(&s, CONNECTION_CONTROL, HANDSHAKE_PLAIN_BULK);
    RUN_UNTIL(&s.loop, s.b.toy.counts[EVENT_LINK_UP] == 1);
    put_u32(frame, 40);
    raw_write(&s.r, &s.loop, frame, sizeof frame);
    RUN_UNTIL(&s.loop, s.b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(s.b.toy.counts[EVENT_RECV], 0);
    stranger_close(&s);
}

static void a_plain_frame_may_come_byte_by_byte(void **state)
{
    uint8_t frame[BULK_HEADER_BYTES + 10];
    struct stranger s;

    (void)state;
    stranger_open(&s, CONNECTION_BULK, HANDSHAKE_PLAIN_BULK);
    post(&s.b, &s.a, 9, 3, 10);
    put_frame(frame, 10, 9, 3);
    memset(frame + BULK_HEADER_BYTES, 0x5a, 10);
    for (size_t i = 0; i < sizeof frame; i++) {
        uint64_t before = node_stats(&s.b).bytes_received;

        assert_int_equal(done(&s.b, 0), 0);
        raw_write(&s.r, &s.loop, frame + i, 1);
        RUN_UNTIL(&s.loop, node_stats(&s.b).bytes_received == before + 1);
    }
    RUN_UNTIL(&s.loop, done(&s.b, 0) == 1);
    assert_memory_equal(s.b.memory + place(3), frame + BULK_HEADER_BYTES, 10);
    stranger_close(&s);
}

static void malformed_plain_headers_end_the_connection(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        uint8_t frame[BULK_HEADER_BYTES];
        struct stranger s;

        stranger_open(&s, CONNECTION_BULK, HANDSHAKE_PLAIN_BULK);
        post(&s.b, &s.a, 9, 0, 10);
        s.b.toy.queue[s.b.toy.n_queue - 1].segment.stream = i == 1;
        put_frame(frame, i == 0 ? FRAME_BULK_MAX + 1 : i == 1 ? 11 : 10, 9, 0);
        frame[4] = i == 2 ? 2 : frame[4];
        frame[5] = i == 3;
        frame[6] = i == 4 ? STREAM_COUNT : i == 1;
        raw_write(&s.r, &s.loop, frame, sizeof frame);
        assert_true(raw_is_closed(&s.r, &s.loop));
        assert_int_equal(node_stats(&s.b).segments_refused, 1);
        assert_int_equal(s.b.n_taken, 0);
        stranger_close(&s);
    }
}

static void a_plain_frame_waits_for_its_post(void **state)
{
    struct pair p;

    (void)state;
    pair_open_plain(&p, true, true);
    paint(&p.a);
    for (uint32_t i = 0; i < 12; i++) {
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    assert_int_equal(p.b.n_taken, 0);
    for (uint32_t i = 0; i < 12; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 12 && done(&p.a, 0) == 12);
    assert_memory_equal(p.a.memory, p.b.memory, 12 * PIECE);
    assert_int_equal(node_stats(&p.b).paused, 0);
    pair_close(&p);
}

static void plain_frames_of_a_cancelled_attempt_are_skipped(void **state)
{
    struct pair p;

    (void)state;
    pair_open_plain(&p, true, true);
    paint(&p.a);
    cancel(&p.b, 5);
    for (uint32_t i = 0; i < 4; i++) {
        give(&p.a, &p.b, 5, i, PIECE);
    }
    give(&p.a, &p.b, 6, 4, PIECE);
    post(&p.b, &p.a, 6, 4, PIECE);
    RUN_UNTIL(&p.loop, done(&p.b, 0) == 1 && done(&p.a, 0) == 5);
    assert_int_equal(node_stats(&p.b).segments_skipped, 4);
    assert_memory_equal(p.a.memory + 4 * PIECE, p.b.memory + 4 * PIECE, PIECE);
    pair_close(&p);
}

static void segments_travel_from_and_to_where_they_lie(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct pair p;

        pair_open_plain(&p, plain, plain);
        p.a.in_place = p.b.in_place = true;
        paint(&p.a);
        for (uint32_t i = 0; i < 12; i++) {
            post(&p.b, &p.a, 5, i, PIECE);
            give(&p.a, &p.b, 5, i, PIECE);
        }
        RUN_UNTIL(&p.loop, done(&p.a, 0) == 12 && done(&p.b, 0) == 12);
        assert_memory_equal(p.a.memory, p.b.memory, 12 * PIECE);
        assert_int_equal(p.a.n_lent, 12);
        assert_int_equal(p.a.n_filled, 0);
        assert_int_equal(p.b.n_placed, 12);
        assert_int_equal(p.b.n_taken, 12);
        pair_close(&p);
    }
}

static void a_cancelled_segment_is_not_written_to_its_place(void **state)
{
    uint8_t frame[BULK_HEADER_BYTES + 1000];
    struct stranger s;

    (void)state;
    stranger_open(&s, CONNECTION_BULK, HANDSHAKE_PLAIN_BULK);
    s.b.in_place = true;
    post(&s.b, &s.a, 9, 0, 1000);
    put_frame(frame, 1000, 9, 0);
    memset(frame + BULK_HEADER_BYTES, 0x77, 1000);
    raw_write(&s.r, &s.loop, frame, BULK_HEADER_BYTES + 400);
    RUN_UNTIL(&s.loop, s.b.memory[399] == 0x77);
    cancel(&s.b, 9);
    RUN_UNTIL(&s.loop, s.b.toy.at == s.b.toy.n_queue);
    memset(s.b.memory, 0, 1000); /* somebody else's now */
    raw_write(&s.r, &s.loop, frame + BULK_HEADER_BYTES + 400, 600);
    RUN_UNTIL(&s.loop, node_stats(&s.b).segments_skipped == 1);
    post(&s.b, &s.a, 10, 11, 5);
    put_frame(frame, 5, 10, 11);
    raw_write(&s.r, &s.loop, frame, BULK_HEADER_BYTES + 5);
    RUN_UNTIL(&s.loop, done(&s.b, 0) == 1);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(s.b.memory[i], 0);
    }
    stranger_close(&s);
}

static void a_peer_that_dies_ends_plain_segments_once(void **state)
{
    struct pair p;

    (void)state;
    pair_open_plain(&p, true, true);
    p.a.in_place = true;
    for (uint32_t i = 0; i < 20; i++) {
        segment_act(&p.a, ACTION_SEND_SEG, &p.b, 5, i, 0, 1 << 20);
        post(&p.a, &p.b, 7, 20 + i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).paused == 1);
    run_quiet(&p.loop);
    node_close(&p.b, &p.loop);
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_SEG_DONE] == 40);
    run_quiet(&p.loop);
    assert_once(&p.a, 40);
    assert_true(done(&p.a, 0) < 20);
    node_close(&p.a, &p.loop);
    loop_end(&p.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_segments_of_all_lengths_arrive),
        cmocka_unit_test(one_side_alone_keeps_its_segments_encrypted),
        cmocka_unit_test(a_peer_without_the_feature_must_seal),
        cmocka_unit_test(control_stays_encrypted_between_plain_sides),
        cmocka_unit_test(a_plain_frame_may_come_byte_by_byte),
        cmocka_unit_test(malformed_plain_headers_end_the_connection),
        cmocka_unit_test(a_plain_frame_waits_for_its_post),
        cmocka_unit_test(plain_frames_of_a_cancelled_attempt_are_skipped),
        cmocka_unit_test(segments_travel_from_and_to_where_they_lie),
        cmocka_unit_test(a_cancelled_segment_is_not_written_to_its_place),
        cmocka_unit_test(a_peer_that_dies_ends_plain_segments_once),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
