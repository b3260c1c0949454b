/* ring_test.c - the ring's arithmetic, with n rings run against each other on
 * exact integers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/exchange/ring.h"
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
    struct ring_shape shape;
    uint64_t holds[MEMBERS_MAX];
    struct ring ring[MEMBERS_MAX];
    uint64_t own[MEMBERS_MAX][ELEMENTS], wire[MEMBERS_MAX][ELEMENTS];
    uint32_t n_posted[MEMBERS_MAX], n_inflight[MEMBERS_MAX];
    uint32_t sends[MEMBERS_MAX][ELEMENTS]; /* of each element, by member */
    /* Per edge into a member: a queue of frames and of posts. */
    struct frame *queue[MEMBERS_MAX];
    uint32_t head[MEMBERS_MAX], tail[MEMBERS_MAX], cap;
    struct segment post[MEMBERS_MAX][RING_WINDOW];
    struct out *out;
};

/* What inherited elements hold where they are held. */
static uint64_t final_of(uint64_t k)
{
    return 7 * k + (1ULL << 40);
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
    for (uint64_t k = s->offset; k < s->offset + s->len; k++) {
        g->sends[i][k]++;
    }
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
    struct event e = {
        .type = EVENT_SEG_DONE, .seg_done.sent = out, .seg_done.segment = *s};

    assert_int_equal(ring_done(&g->ring[i], &e.seg_done), 0);
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

/* `holds`: inherited elements by member, NULL for none. */
static struct rig *rig_inherit(uint32_t n,
                               uint64_t elements,
                               uint32_t segment,
                               uint32_t chunk_segments,
                               const uint64_t *holds)
{
    struct rig *g = calloc(1, sizeof *g);

    assert_non_null(g);
    g->n = n;
    g->elements = elements;
    g->shape = (struct ring_shape){.elements = elements,
                                   .block = BLOCK,
                                   .segment_elements = segment,
                                   .chunk_segments = chunk_segments,
                                   .n = n};
    for (uint32_t i = 0; i < n && holds != NULL; i++) {
        g->holds[i] = holds[i];
        g->shape.from = holds[i] > g->shape.from ? holds[i] : g->shape.from;
    }
    g->cap = (uint32_t)(2 * n * (elements / BLOCK + 2));
    g->out = calloc(1, sizeof *g->out);
    assert_non_null(g->out);
    for (uint32_t i = 0; i < n; i++) {
        g->queue[i] = calloc(g->cap, sizeof *g->queue[i]);
        assert_non_null(g->queue[i]);
        for (uint64_t k = 0; k < elements; k++) {
            g->own[i][k] = 1 + k + ((uint64_t)i << 20);
            g->wire[i][k] = k < g->holds[i] ? final_of(k) : 0xdead;
        }
        ring_init(&g->ring[i], &g->shape, i, g->holds[i],
                  g->holds[(i + 1) % n]);
    }
    return g;
}

static struct rig *rig_new(uint32_t n, uint64_t elements, uint32_t segment)
{
    return rig_inherit(n, elements, segment, MEMBERS_MAX, NULL);
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

static uint64_t expected(const struct rig *g, uint64_t k)
{
    uint64_t sum = 0;

    for (uint32_t j = 0; j < g->n; j++) {
        sum += g->own[j][k];
    }
    return k < g->shape.from ? final_of(k) : sum;
}

/* How often member i sends an element of chunk c of a stripe: the own chunk's
 * final bytes end at the one before, and those of the next rank's owner are not
 * sent to it again. */
static uint32_t times_of(const struct rig *g, uint32_t i, uint32_t c)
{
    return g->n == 2 || c == (i + 1) % g->n || c == (i + 2) % g->n ? 1 : 2;
}

static void check(const struct rig *g)
{
    uint64_t stripe = ring_stripe_elements(&g->shape);

    for (uint32_t i = 0; i < g->n; i++) {
        assert_true(ring_finished(&g->ring[i]));
        assert_int_equal(ring_final(&g->ring[i]), g->elements);
        assert_int_equal(g->n_posted[i], 0);
        for (uint64_t k = 0; k < g->elements; k++) {
            assert_int_equal(g->wire[i][k], expected(g, k));
        }
        for (uint64_t k = 0; k < g->shape.from; k++) {
            assert_int_equal(g->sends[i][k], k >= g->holds[(i + 1) % g->n]);
        }
        for (uint32_t s = 0; g->shape.from + s * stripe < g->elements; s++) {
            for (uint32_t c = 0; c < g->n; c++) {
                uint64_t begin, end;

                ring_chunk(&g->shape, s, c, &begin, &end);
                for (uint64_t k = begin; k < end; k++) {
                    assert_int_equal(g->sends[i][k], times_of(g, i, c));
                }
            }
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
    for (uint32_t n = 2; n <= 64; n++) {
        for (uint64_t elements = 0; elements < 3000; elements += 37) {
            struct ring_shape shape = {.elements = elements,
                                       .from = elements / 3 / BLOCK * BLOCK,
                                       .block = BLOCK,
                                       .segment_elements = BLOCK,
                                       .chunk_segments = 1 + n % 3,
                                       .n = n};
            uint64_t at = shape.from, begin, end;
            uint32_t stripes = 0;

            while (at < elements) {
                for (uint32_t c = 0; c < n; c++) {
                    ring_chunk(&shape, stripes, c, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin);
                    assert_true(begin % BLOCK == 0 || begin == elements);
                    at = end;
                }
                stripes++;
            }
            assert_int_equal(at, elements);
            assert_true(stripes <= RING_STRIPES_MAX);
        }
    }
}

static void inherited_elements_reach_who_lacks_them_and_stay(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed, holds[MEMBERS_MAX];
        uint32_t n = 2 + (uint32_t)rng_below(&rng, 7);
        uint64_t blocks = rng_below(&rng, 60), most = blocks;
        uint64_t elements = blocks * BLOCK + rng_below(&rng, BLOCK);
        struct rig *g;

        if (rng_below(&rng, 2) == 0) {
            most = rng_below(&rng, blocks + 1);
        }
        for (uint32_t i = 0; i < n; i++) {
            holds[i] = rng_below(&rng, most + 1) * BLOCK;
        }
        g = rig_inherit(n, elements, (uint32_t)(1 + seed % 3) * BLOCK,
                        1 + (uint32_t)(seed % 2), holds);
        run(g, seed);
        check(g);
        rig_free(g);
    }
}

/* What a death in the middle leaves: everything below ring_final() holds its
 * final value at that member, and the members are a few stripes apart. */
static void whole_stripes_are_final_while_the_ring_still_turns(void **state)
{
    struct rig *g = rig_inherit(4, ELEMENTS, BLOCK, 2, NULL);
    uint64_t seed = 5, stripe = ring_stripe_elements(&g->shape), low, high = 0;
    bool seen_between = false;

    (void)state;
    for (uint32_t i = 0; i < g->n; i++) {
        pump(g, i);
    }
    do {
        (void)step(g, (uint32_t)rng_below(&seed, g->n));
        low = ELEMENTS;
        high = 0;
        for (uint32_t i = 0; i < g->n; i++) {
            uint64_t final = ring_final(&g->ring[i]);

            assert_true(final == ELEMENTS || final % stripe == 0);
            for (uint64_t k = 0; k < final; k++) {
                assert_int_equal(g->wire[i][k], expected(g, k));
            }
            low = final < low ? final : low;
            high = final > high ? final : high;
        }
        assert_true(high - low <= 2 * stripe);
        seen_between = seen_between || (low > 0 && high < ELEMENTS);
    } while (low < ELEMENTS);
    assert_true(seen_between);
    rig_free(g);
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
    e.seg_done.segment.seg = 1;
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done), LOCO_EPROTO);
    e.seg_done.sent = true;
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done), LOCO_EPROTO);
    assert_int_equal(ring_progress(&g->ring[0]), before);
    e.seg_done.segment.seg = 0;
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done), 0);
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done),
                     LOCO_EPROTO); /* twice */
    rig_free(g);
}

static void what_was_never_posted_cannot_be_done(void **state)
{
    struct rig *g = rig_new(2, 2 * BLOCK, BLOCK);
    struct event e = {.type = EVENT_SEG_DONE};

    (void)state;
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done),
                     LOCO_EPROTO); /* no pump yet */
    e.seg_done.sent = true;
    assert_int_equal(ring_done(&g->ring[0], &e.seg_done), LOCO_EPROTO);
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
        cmocka_unit_test(inherited_elements_reach_who_lacks_them_and_stay),
        cmocka_unit_test(whole_stripes_are_final_while_the_ring_still_turns),
        cmocka_unit_test(a_ring_of_nothing_is_finished_at_once),
        cmocka_unit_test(completions_out_of_order_are_refused),
        cmocka_unit_test(what_was_never_posted_cannot_be_done),
        cmocka_unit_test(a_full_out_loses_actions_but_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
