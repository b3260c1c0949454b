/* ring_test.c - the ring's arithmetic, with n rings run against each other on
 * exact integers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/ring.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define BLOCK       4U
#define MEMBERS_MAX 16U
#define ELEMENTS    (16U * BLOCK * MEMBERS_MAX)

/* A segment between SEND_SEG and the receiver. */
struct frame {
    struct segment segment;
    uint64_t value[ELEMENTS];
};

struct rig {
    uint32_t n;
    uint64_t elements;
    struct ring ring[MEMBERS_MAX];
    uint64_t own[MEMBERS_MAX][ELEMENTS], wire[MEMBERS_MAX][ELEMENTS];
    uint32_t n_posted[MEMBERS_MAX], n_inflight[MEMBERS_MAX];
    uint32_t sends_of_chunk[MEMBERS_MAX][MEMBERS_MAX];
    /* Per edge into a member: a queue of frames and of posts. */
    struct frame *queue[MEMBERS_MAX];
    uint32_t head[MEMBERS_MAX], tail[MEMBERS_MAX], cap;
    struct segment post[MEMBERS_MAX][RING_WINDOW];
    struct out *out;
};

static uint32_t chunk_of(const struct rig *g, uint64_t offset)
{
    for (uint32_t c = 0; c < g->n; c++) {
        uint64_t begin, end;

        ring_chunk(g->elements, BLOCK, g->n, c, &begin, &end);
        if (offset >= begin && offset < end) {
            return c;
        }
    }
    fail_msg("an offset outside of the vector");
    return 0;
}

static void take(struct rig *g, uint32_t i, const struct action *a)
{
    const struct segment *s = &a->segment;
    uint32_t next = (i + 1) % g->n;

    assert_true(s->len > 0 && s->offset + s->len <= g->elements);
    assert_int_equal(s->offset % BLOCK, 0);
    assert_int_equal(s->stream, STREAM_RING);
    if (a->type == ACTION_POST_RECV) {
        assert_true(g->n_posted[i] < RING_WINDOW);
        g->post[i][g->n_posted[i]++] = *s;
        return;
    }
    assert_int_equal(a->type, ACTION_SEND_SEG);
    assert_true(++g->n_inflight[i] <= RING_WINDOW);
    g->sends_of_chunk[i][chunk_of(g, s->offset)] += s->len;
    assert_true(g->tail[next] < g->cap);
    {
        struct frame *f = &g->queue[next][g->tail[next]++];

        f->segment = *s;
        for (uint64_t k = s->offset; k < s->offset + s->len; k++) {
            if (s->op == SEGMENT_ENCODE) {
                g->wire[i][k] = g->own[i][k];
            }
            f->value[k - s->offset] = g->wire[i][k];
        }
    }
}

static void pump(struct rig *g, uint32_t i)
{
    g->out->n = g->out->n_bytes = g->out->dropped = 0;
    ring_pump(&g->ring[i], g->out);
    assert_int_equal(g->out->dropped, 0);
    for (uint32_t k = 0; k < g->out->n; k++) {
        take(g, i, &g->out->action[k]);
    }
}

static void finish(struct rig *g, uint32_t i, const struct segment *s, bool out)
{
    struct event e = {.type = EVENT_SEG_DONE, .sent = out, .segment = *s};

    assert_int_equal(ring_done(&g->ring[i], &e), 0);
    pump(g, i);
}

/* Move one frame into member i; false: none is there, or none is posted. */
static bool step(struct rig *g, uint32_t i)
{
    uint32_t prev = (i + g->n - 1) % g->n;
    struct segment post;
    struct frame *f;

    if (g->head[i] == g->tail[i] || g->n_posted[i] == 0) {
        return false;
    }
    f = &g->queue[i][g->head[i]++];
    post = g->post[i][0];
    memmove(g->post[i], g->post[i] + 1,
            (RING_WINDOW - 1) * sizeof g->post[i][0]);
    g->n_posted[i]--;
    assert_int_equal(post.seg, f->segment.seg);
    assert_int_equal(post.offset, f->segment.offset);
    assert_int_equal(post.len, f->segment.len);
    for (uint64_t k = 0; k < post.len; k++) {
        uint64_t at = post.offset + k;

        g->wire[i][at] =
            f->value[k] + (post.op == SEGMENT_ADD ? g->own[i][at] : 0);
    }
    g->n_inflight[prev]--;
    finish(g, prev, &f->segment, true);
    finish(g, i, &post, false);
    return true;
}

static struct rig *rig_new(uint32_t n, uint64_t elements, uint32_t segment)
{
    struct rig *g = calloc(1, sizeof *g);

    assert_non_null(g);
    g->n = n;
    g->elements = elements;
    g->cap = 2 * n * (16 + 1);
    g->out = calloc(1, sizeof *g->out);
    assert_non_null(g->out);
    for (uint32_t i = 0; i < n; i++) {
        g->queue[i] = calloc(g->cap, sizeof *g->queue[i]);
        assert_non_null(g->queue[i]);
        for (uint64_t k = 0; k < elements; k++) {
            g->own[i][k] = 1 + k + ((uint64_t)i << 20);
        }
        ring_init(&g->ring[i], elements, BLOCK, segment, n, i);
    }
    return g;
}

static void rig_free(struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        free(g->queue[i]);
    }
    free(g->out);
    free(g);
}

/* Members move in an order drawn from `seed` until nothing moves. */
static void run(struct rig *g, uint64_t seed)
{
    uint32_t idle = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        pump(g, i);
    }
    while (idle < 64 * g->n) {
        idle = step(g, (uint32_t)rng_below(&seed, g->n)) ? 0 : idle + 1;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        while (step(g, i)) {
            i = 0;
        }
    }
}

static void check(const struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        assert_true(ring_finished(&g->ring[i]));
        assert_int_equal(g->n_posted[i], 0);
        for (uint64_t k = 0; k < g->elements; k++) {
            uint64_t sum = 0;

            for (uint32_t j = 0; j < g->n; j++) {
                sum += g->own[j][k];
            }
            assert_int_equal(g->wire[i][k], sum);
        }
        for (uint32_t c = 0; c < g->n; c++) {
            uint64_t begin, end;
            /* The own chunk's final bytes end at the one before, and those of
             * the next rank's owner are not sent to it again. */
            uint32_t times = c == (i + 1) % g->n || c == (i + 2) % g->n ? 1 : 2;

            times = g->n == 2 ? 1 : times;
            ring_chunk(g->elements, BLOCK, g->n, c, &begin, &end);
            assert_int_equal(g->sends_of_chunk[i][c], times * (end - begin));
        }
    }
}

static void every_member_ends_with_the_sum_of_all(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MEMBERS_MAX; n++) {
        const uint64_t sizes[] = {0,
                                  1,
                                  BLOCK - 1,
                                  BLOCK,
                                  n * BLOCK,
                                  n * BLOCK + 1,
                                  n * 5 * BLOCK + 3};

        for (unsigned k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            for (uint32_t segment = BLOCK; segment <= 4 * BLOCK; segment *= 2) {
                struct rig *g = rig_new(n, sizes[k], segment);

                run(g, 1000 * n + k);
                check(g);
                rig_free(g);
            }
        }
    }
}

static void chunks_cover_the_vector_once_at_block_boundaries(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 64; n++) {
        for (uint64_t elements = 0; elements < 300; elements += 7) {
            uint64_t at = 0, begin, end;

            for (uint32_t c = 0; c < n; c++) {
                ring_chunk(elements, BLOCK, n, c, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end >= begin);
                assert_true(begin % BLOCK == 0 || begin == elements);
                at = end;
            }
            assert_int_equal(at, elements);
        }
    }
}

static void a_ring_of_nothing_is_finished_at_once(void **state)
{
    struct rig *g = rig_new(3, 0, BLOCK);

    (void)state;
    assert_true(ring_finished(&g->ring[0]));
    pump(g, 0);
    assert_int_equal(g->out->n, 0);
    rig_free(g);
}

static void completions_out_of_order_are_refused(void **state)
{
    struct rig *g = rig_new(2, 8 * BLOCK, BLOCK);
    struct event e = {.type = EVENT_SEG_DONE};
    uint64_t before;

    (void)state;
    pump(g, 0);
    before = ring_progress(&g->ring[0]);
    e.segment.seg = 1;
    assert_int_equal(ring_done(&g->ring[0], &e), LOCO_EPROTO);
    e.sent = true;
    assert_int_equal(ring_done(&g->ring[0], &e), LOCO_EPROTO);
    assert_int_equal(ring_progress(&g->ring[0]), before);
    e.segment.seg = 0;
    assert_int_equal(ring_done(&g->ring[0], &e), 0);
    assert_int_equal(ring_done(&g->ring[0], &e), LOCO_EPROTO); /* twice */
    rig_free(g);
}

static void what_was_never_posted_cannot_be_done(void **state)
{
    struct rig *g = rig_new(2, 2 * BLOCK, BLOCK);
    struct event e = {.type = EVENT_SEG_DONE};

    (void)state;
    assert_int_equal(ring_done(&g->ring[0], &e), LOCO_EPROTO); /* no pump yet */
    e.sent = true;
    assert_int_equal(ring_done(&g->ring[0], &e), LOCO_EPROTO);
    rig_free(g);
}

static void a_full_out_loses_actions_but_is_counted(void **state)
{
    struct rig *g = rig_new(2, 8 * BLOCK, BLOCK);

    (void)state;
    g->out->n = CORE_OUT_MAX - 1;
    g->out->dropped = 0;
    ring_pump(&g->ring[0], g->out);
    assert_int_equal(g->out->n, CORE_OUT_MAX);
    assert_true(g->out->dropped > 0);
    rig_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_ends_with_the_sum_of_all),
        cmocka_unit_test(chunks_cover_the_vector_once_at_block_boundaries),
        cmocka_unit_test(a_ring_of_nothing_is_finished_at_once),
        cmocka_unit_test(completions_out_of_order_are_refused),
        cmocka_unit_test(what_was_never_posted_cannot_be_done),
        cmocka_unit_test(a_full_out_loses_actions_but_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
