/* slice_store_test.c - owner, backup and worker hold the bits that went over
 * the wire, and what does not fit is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/slice_store.h"
#include "proto/base/err.h"

#define N       100 /* parameters: slices of 64 and 36 */
#define EACH    64
#define ATTEMPT 77

static const struct method method = {
    .group = METHOD_OWNERS, .delayed = true, .rule = {.lr = 0.5F, .mu = 0.5F}};

static int initial(void *self, uint64_t at, uint64_t len, float *out)
{
    (void)self;
    for (uint64_t i = 0; i < len; i++) {
        out[i] = (float)(at + i);
    }
    return 0;
}

static struct slice_store *store(enum codec_id codec)
{
    struct slice_store_options opt = {.n = N,
                                      .count = 2,
                                      .each = EACH,
                                      .codec = codec_get(codec),
                                      .method = &method,
                                      .initial = initial};
    struct slice_store *s = NULL;

    assert_int_equal(slice_store_open(&s, &opt), 0);
    return s;
}

static int run(struct slice_store *s, struct slice_job job)
{
    static const float none[N];
    struct action a = {.type = ACTION_SLICE, .job = job, .attempt = ATTEMPT};

    return slice_store_run(s, &a, none);
}

static struct segment
segment(enum buffer_kind buffer, uint32_t slice, uint64_t at, uint32_t len)
{
    return (struct segment){.attempt = ATTEMPT,
                            .buffer = buffer,
                            .index = slice,
                            .offset = at,
                            .len = len};
}

/* What give 0 of one has goes into slot 0 of the other. */
static void carry(struct slice_store *from,
                  struct slice_store *to,
                  enum buffer_kind buffer,
                  uint32_t slice,
                  uint32_t len)
{
    for (uint32_t at = 0; at < len; at += 16) {
        struct segment seg =
            segment(buffer, slice, at, len - at < 16 ? len - at : 16);
        uint8_t bytes[16 * sizeof(float)];
        size_t n = slice_store_wire_len(from, &seg);

        assert_true(n <= sizeof bytes);
        assert_int_equal(slice_store_fill(from, &seg, bytes), 0);
        assert_int_equal(slice_store_take(to, &seg, bytes, n), 0);
    }
}

static void a_backup_makes_the_owners_steps(void **state)
{
    struct slice_store *owner = store(CODEC_BF16), *backup = store(CODEC_BF16);
    struct slice_store *worker = store(CODEC_BF16);
    struct action give = {
        .attempt = ATTEMPT,
        .job = {.op = SLICE_GIVE, .what = OWNERS_PIECE, .slice = 1}};
    struct slice_job apply = {
        .op = SLICE_APPLY, .slice = 1, .size = 2, .next = 2};
    float task[N];

    (void)state;
    assert_int_equal(
        run(owner, (struct slice_job){.op = SLICE_BUILD, .slice = 1}), 0);
    for (uint32_t i = 0; i < N; i++) {
        task[i] = (float)i / 7.0F;
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (k == 1) { /* it comes in with the sum of a cycle under way */
            assert_int_equal(run(owner, (struct slice_job){.op = SLICE_GIVE,
                                                           .what = OWNERS_STATE,
                                                           .slice = 1}),
                             0);
            carry(owner, backup, BUFFER_SLICE, 1, 3 * (N - EACH));
            assert_int_equal(
                run(backup, (struct slice_job){.op = SLICE_LOAD,
                                               .what = OWNERS_STATE,
                                               .slice = 1}),
                0);
        }
        assert_int_equal(slice_store_run(worker, &give, task), 0);
        carry(worker, owner, BUFFER_PIECE, 1, N - EACH);
        carry(worker, backup, BUFFER_PIECE, 1, N - EACH);
        apply.count = k % 2;
        assert_int_equal(run(owner, apply), 0);
        assert_int_equal(run(backup, apply), k == 0 ? LOCO_ENOENT : 0);
    }
    assert_memory_equal(slice_store_held(owner, 1), slice_store_held(backup, 1),
                        3 * (N - EACH) * sizeof(float));
    assert_true(slice_store_held(owner, 1)[1] < (float)(EACH + 1));
    slice_store_close(owner);
    slice_store_close(backup);
    slice_store_close(worker);
}

/* What goes to the disk is a state as it was at its mark, the newest of each
 * slice, and comes back with the same bits. */
static void a_mark_is_the_newest_of_its_slice(void **state)
{
    struct slice_store *s = store(CODEC_BF16), *again = store(CODEC_BF16);
    struct slice_job job = {.op = SLICE_MARK, .slice = 1};
    uint64_t n = N - EACH;
    struct slice_mark mark;

    (void)state;
    assert_int_equal(run(s, job), LOCO_ENOENT);
    assert_false(slice_store_next_mark(s, &mark));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(
            run(s, (struct slice_job){.op = SLICE_BUILD, .slice = i}), 0);
    }
    for (uint32_t k = 1; k <= 2; k++) {
        job.at = (struct slice_version){.generation = 3, .position = k};
        assert_int_equal(run(s, job), 0);
    }
    job.slice = 0;
    assert_int_equal(run(s, job), 0);
    assert_true(slice_store_next_mark(s, &mark));
    assert_int_equal(mark.slice, 0);
    free(mark.v);
    assert_true(slice_store_next_mark(s, &mark));
    assert_int_equal(mark.slice, 1);
    assert_int_equal(mark.at.position, 2);
    assert_false(slice_store_next_mark(s, &(struct slice_mark){0}));
    assert_int_equal(
        slice_store_put(again, 1, mark.v, mark.v + n, mark.v + 2 * n), 0);
    assert_memory_equal(slice_store_held(again, 1), slice_store_held(s, 1),
                        3 * n * sizeof(float));
    free(mark.v);
    slice_store_close(s);
    slice_store_close(again);
}

/* The owner's own reading has the bits of everybody else's. */
static void all_read_the_same(void **state)
{
    struct slice_store *owner = store(CODEC_INT8), *other = store(CODEC_INT8);
    struct slice_job keep = {.op = SLICE_KEEP, .slot = SLICE_NO_SLOT};

    (void)state;
    assert_int_equal(run(owner, keep), LOCO_ENOENT);
    assert_int_equal(run(owner, (struct slice_job){.op = SLICE_BUILD}), 0);
    assert_int_equal(run(owner, keep), 0);
    assert_int_equal(run(owner, (struct slice_job){.op = SLICE_GIVE,
                                                   .what = OWNERS_READING}),
                     0);
    {
        struct segment seg = segment(BUFFER_READING, 0, 0, EACH);
        uint8_t bytes[4 * EACH];
        size_t n = slice_store_wire_len(owner, &seg);

        assert_true(n <= sizeof bytes);
        assert_int_equal(slice_store_fill(owner, &seg, bytes), 0);
        assert_int_equal(slice_store_take(other, &seg, bytes, n), 0);
    }
    keep.slot = 0;
    assert_int_equal(run(other, keep), 0);
    assert_memory_equal(slice_store_reading(owner), slice_store_reading(other),
                        EACH * sizeof(float));
    assert_true(slice_store_reading(owner)[EACH - 1] > 0);
    /* A copy of what was read has no momentum. */
    assert_int_equal(run(other, (struct slice_job){.op = SLICE_LOAD,
                                                   .what = OWNERS_COPY,
                                                   .slot = SLICE_NO_SLOT}),
                     0);
    assert_memory_equal(slice_store_held(other, 0), slice_store_reading(owner),
                        EACH * sizeof(float));
    assert_true(slice_store_held(other, 0)[EACH] == 0.0F);
    assert_int_equal(run(other, (struct slice_job){.op = SLICE_FORGET}), 0);
    assert_null(slice_store_held(other, 0));
    slice_store_close(owner);
    slice_store_close(other);
}

static void what_does_not_fit_is_refused(void **state)
{
    const struct segment bad[] = {
        segment(BUFFER_PIECE, 2, 0, 8),
        segment(BUFFER_PIECE, 1, 0, 37),
        segment(BUFFER_PIECE, 1, 36, 1),
        segment(BUFFER_SLICE, 0, 193, 1),
        segment(BUFFER_SLICE, 0, 0, 193),
        segment(BUFFER_READING, 0, 65, 0),
        segment(BUFFER_PIECE, 1, UINT64_MAX, 2),
    };
    struct slice_store *s = store(CODEC_FP32);
    struct segment seg = segment(BUFFER_SLICE, 0, 0, EACH);
    uint8_t bytes[1024] = {0};

    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_int_equal(slice_store_fill(s, &bad[k], bytes), LOCO_ERANGE);
        assert_int_equal(slice_store_take(s, &bad[k], bytes, 4), LOCO_ERANGE);
    }
    assert_int_equal(slice_store_take(s, &seg, bytes, 4), LOCO_EPROTO);
    seg.slot = STREAM_SLOTS;
    assert_int_equal(slice_store_take(s, &seg, bytes, EACH * sizeof(float)),
                     LOCO_ERANGE);
    seg.slot = SLICE_GIVES_MAX;
    assert_int_equal(slice_store_fill(s, &seg, bytes), LOCO_ERANGE);
    slice_store_close(s);
}

/* Bytes that were made for one question answer no other. */
static void a_give_is_for_one_attempt(void **state)
{
    struct slice_store *s = store(CODEC_FP32);
    struct segment seg = segment(BUFFER_SLICE, 0, 0, 8);
    uint8_t bytes[8 * sizeof(float)];

    (void)state;
    assert_int_equal(slice_store_fill(s, &seg, bytes), LOCO_ENOENT);
    assert_int_equal(run(s, (struct slice_job){.op = SLICE_BUILD}), 0);
    assert_int_equal(
        run(s, (struct slice_job){.op = SLICE_GIVE, .what = OWNERS_STATE}), 0);
    assert_int_equal(slice_store_fill(s, &seg, bytes), 0);
    seg.attempt++;
    assert_int_equal(slice_store_fill(s, &seg, bytes), LOCO_ENOENT);
    seg.attempt--;
    seg.peer.b[0] = 1;
    assert_int_equal(slice_store_fill(s, &seg, bytes), LOCO_ENOENT);
    slice_store_close(s);
}

static void what_is_no_number_is_seen(void **state)
{
    struct slice_store *s = store(CODEC_FP32);
    struct segment seg = segment(BUFFER_SLICE, 1, 3 * (N - EACH) - 1, 1);
    const uint8_t nan[4] = {0xff, 0xff, 0xff, 0xff};
    struct slice_job check = {
        .op = SLICE_CHECK, .what = OWNERS_STATE, .slice = 1};

    (void)state;
    assert_int_equal(run(s, check), 0);
    assert_int_equal(slice_store_take(s, &seg, nan, sizeof nan), 0);
    assert_int_equal(run(s, check), LOCO_ENUMERIC);
    seg = segment(BUFFER_PIECE, 1, 0, 1);
    assert_int_equal(slice_store_take(s, &seg, nan, sizeof nan), 0);
    check.what = OWNERS_PIECE;
    assert_int_equal(run(s, check), LOCO_ENUMERIC);
    slice_store_close(s);
    s = store(CODEC_INT8); /* a scale that no encoder writes */
    seg = segment(BUFFER_PIECE, 1, 0, N - EACH);
    {
        uint8_t bytes[4 + N - EACH];

        memset(bytes, 0xff, sizeof bytes);
        assert_int_equal(slice_store_take(s, &seg, bytes, sizeof bytes), 0);
    }
    assert_int_equal(run(s, check), LOCO_ENUMERIC);
    slice_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backup_makes_the_owners_steps),
        cmocka_unit_test(a_mark_is_the_newest_of_its_slice),
        cmocka_unit_test(all_read_the_same),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_give_is_for_one_attempt),
        cmocka_unit_test(what_is_no_number_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
