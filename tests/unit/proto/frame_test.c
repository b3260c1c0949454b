/* frame_test.c - frames in every cut, and everything that is refused. */
#include "tests/unit/proto/suite.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/frame.h"

enum { TYPE_NONE, TYPE_SMALL, TYPE_BULK, TYPE_FLAG, TYPE_COUNT };

static const struct frame_rule rules[TYPE_COUNT] = {
    [TYPE_SMALL] = {.bytes_max = 64, .delivery = FRAME_WHOLE},
    [TYPE_BULK] = {.bytes_max = 5000, .delivery = FRAME_PIECES},
    [TYPE_FLAG] = {.bytes_max = 0,
                   .delivery = FRAME_WHOLE,
                   .flags_allowed = 0x81},
};

static uint8_t buffer[64];

/* Append one frame of bytes seed, seed + 1, ... to out. */
static size_t put_frame(uint8_t *out, uint8_t type, uint32_t len, uint8_t seed)
{
    struct frame_header h = {.len = len, .type = type};

    frame_header_encode(&h, out);
    for (uint32_t i = 0; i < len; i++) {
        out[FRAME_HEADER_BYTES + i] = (uint8_t)(seed + i);
    }
    return FRAME_HEADER_BYTES + len;
}

/* What a decoder has said so far. */
struct heard {
    unsigned n_ready, n_begin, n_last;
    uint32_t bulk_bytes;
    uint8_t seed; /* of the frame that is expected next */
};

static void hear(struct heard *h, const struct frame_event *e)
{
    switch (e->kind) {
    case FRAME_NONE:
        return;
    case FRAME_READY:
        h->n_ready++;
        break;
    case FRAME_BEGIN:
        h->n_begin++;
        assert_int_equal(h->bulk_bytes, 0);
        return;
    case FRAME_PIECE:
        assert_int_equal(e->offset, h->bulk_bytes);
        h->bulk_bytes += e->len;
        break;
    }
    for (uint32_t i = 0; i < e->len; i++) {
        assert_int_equal(e->bytes[i], (uint8_t)(h->seed + e->offset + i));
    }
    if (e->last) {
        if (e->kind == FRAME_PIECE) {
            assert_int_equal(h->bulk_bytes, e->header.len);
            h->bulk_bytes = 0;
            h->n_last++;
        }
        h->seed++;
    }
}

/* Feed all of bytes[len]; 0 or what frame_feed() said. */
static int feed_all(struct frame_decoder *d,
                    const uint8_t *bytes,
                    size_t len,
                    struct heard *h)
{
    struct frame_event e;
    size_t used;

    for (;;) {
        int rv = frame_feed(d, bytes, len, &used, &e);

        if (rv != 0) {
            return rv;
        }
        assert_true(used <= len);
        bytes += used;
        len -= used;
        hear(h, &e);
        if (e.kind == FRAME_NONE) {
            assert_int_equal(len, 0);
            return 0;
        }
    }
}

static size_t make_stream(uint8_t *out)
{
    size_t n = 0;

    n += put_frame(out + n, TYPE_SMALL, 3, 0);
    n += put_frame(out + n, TYPE_SMALL, 0, 1);
    n += put_frame(out + n, TYPE_BULK, 5000, 2);
    n += put_frame(out + n, TYPE_BULK, 0, 3);
    n += put_frame(out + n, TYPE_FLAG, 0, 4);
    n += put_frame(out + n, TYPE_BULK, 1, 5);
    n += put_frame(out + n, TYPE_SMALL, 64, 6);
    return n;
}

static void check_stream(const struct heard *h)
{
    assert_int_equal(h->n_ready, 4);
    assert_int_equal(h->n_begin, 3);
    assert_int_equal(h->n_last, 3);
    assert_int_equal(h->seed, 7);
}

static void any_cut_of_the_stream_gives_the_same_frames(void **state)
{
    static const size_t cuts[] = {1, 2, 3, 7, 8, 9, 64, 71, 1000, 100000};
    static uint8_t stream[6000];
    size_t len = make_stream(stream);
    struct frame_decoder d;

    (void)state;
    for (size_t i = 0; i < N_OF(cuts); i++) {
        struct heard h = {0};

        frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
        for (size_t at = 0; at < len; at += cuts[i]) {
            size_t n = len - at < cuts[i] ? len - at : cuts[i];
            /* A copy of its own, so that reading past it is found. */
            uint8_t *copy = malloc(n);

            assert_non_null(copy);
            memcpy(copy, stream + at, n);
            assert_int_equal(feed_all(&d, copy, n, &h), 0);
            free(copy);
        }
        check_stream(&h);
    }
}

static void random_cuts_give_the_same_frames(void **state)
{
    static uint8_t stream[6000];
    size_t len = make_stream(stream);
    struct frame_decoder d;
    uint64_t rng = 5;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct heard h = {0};

        frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
        for (size_t at = 0; at < len;) {
            size_t n = (size_t)rng_below(&rng, 40);

            n = n > len - at ? len - at : n;
            assert_int_equal(feed_all(&d, stream + at, n, &h), 0);
            at += n;
        }
        check_stream(&h);
    }
}

static void whole_payloads_in_the_input_are_not_copied(void **state)
{
    uint8_t stream[100];
    size_t len = put_frame(stream, TYPE_SMALL, 10, 0), used;
    struct frame_decoder d;
    struct frame_event e;

    (void)state;
    frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
    assert_int_equal(frame_feed(&d, stream, len, &used, &e), 0);
    assert_int_equal(e.kind, FRAME_READY);
    assert_ptr_equal(e.bytes, stream + FRAME_HEADER_BYTES);
    assert_int_equal(used, len);
}

/* One header that must be refused, also byte by byte, and for good. */
static void refuse(const uint8_t head[FRAME_HEADER_BYTES])
{
    uint8_t good[FRAME_HEADER_BYTES];
    struct frame_decoder d;
    struct frame_event e;
    size_t used;
    struct heard h = {0};

    frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
    assert_int_equal(feed_all(&d, head, FRAME_HEADER_BYTES, &h), LOCO_EPROTO);
    frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
    for (int i = 0; i < FRAME_HEADER_BYTES - 1; i++) {
        assert_int_equal(feed_all(&d, head + i, 1, &h), 0);
    }
    assert_int_equal(feed_all(&d, head + 7, 1, &h), LOCO_EPROTO);
    (void)put_frame(good, TYPE_SMALL, 0, 0);
    assert_int_equal(frame_feed(&d, good, sizeof good, &used, &e), LOCO_EPROTO);
    assert_int_equal(used, 0);
    assert_int_equal(e.kind, FRAME_NONE);
}

static void bad_headers_end_the_stream_for_good(void **state)
{
    static const struct {
        uint32_t len;
        uint8_t type, flags;
        uint16_t reserved;
    } rows[] = {
        {65, TYPE_SMALL, 0, 0},         /* one byte too long */
        {UINT32_MAX, TYPE_SMALL, 0, 0}, /* -1 */
        {5001, TYPE_BULK, 0, 0},        /* also for bulk */
        {1, TYPE_FLAG, 0, 0},           /* where the limit is 0 */
        {0, TYPE_NONE, 0, 0},           /* a zeroed rule */
        {0, TYPE_COUNT, 0, 0},          /* beyond the table */
        {0, 255, 0, 0},
        {0, TYPE_SMALL, 1, 0},   /* a flag nobody knows */
        {0, TYPE_FLAG, 0x82, 0}, /* one known, one not */
        {0, TYPE_SMALL, 0, 1},   /* reserved */
        {0, TYPE_SMALL, 0, 0x8000},
    };
    uint8_t head[FRAME_HEADER_BYTES];

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        put_u32(head, rows[i].len);
        head[4] = rows[i].type;
        head[5] = rows[i].flags;
        put_u16(head + 6, rows[i].reserved);
        refuse(head);
    }
}

static void allowed_flags_are_handed_over(void **state)
{
    struct frame_header h = {.type = TYPE_FLAG, .flags = 0x81};
    uint8_t head[FRAME_HEADER_BYTES];
    struct frame_decoder d;
    struct frame_event e;
    size_t used;

    (void)state;
    frame_header_encode(&h, head);
    frame_decoder_init(&d, rules, N_OF(rules), buffer, sizeof buffer);
    assert_int_equal(frame_feed(&d, head, sizeof head, &used, &e), 0);
    assert_int_equal(e.kind, FRAME_READY);
    assert_int_equal(e.header.flags, 0x81);
    assert_int_equal(e.len, 0);
}

static void the_header_bytes_are_as_specified(void **state)
{
    static const uint8_t want[FRAME_HEADER_BYTES] = {0x34, 0x12, 0, 0,
                                                     7,    0x80, 0, 0};
    struct frame_header h = {.len = 0x1234, .type = 7, .flags = 0x80};
    uint8_t head[FRAME_HEADER_BYTES];

    (void)state;
    frame_header_encode(&h, head);
    assert_memory_equal(head, want, sizeof want);
    assert_int_equal(frame_buffer_bytes(rules, N_OF(rules)), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_of_the_stream_gives_the_same_frames),
        cmocka_unit_test(random_cuts_give_the_same_frames),
        cmocka_unit_test(whole_payloads_in_the_input_are_not_copied),
        cmocka_unit_test(bad_headers_end_the_stream_for_good),
        cmocka_unit_test(allowed_flags_are_handed_over),
        cmocka_unit_test(the_header_bytes_are_as_specified),
    };

    return cmocka_run_group_tests_name("proto/frame", tests, NULL, NULL);
}
