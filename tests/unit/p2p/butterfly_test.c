/* butterfly_test.c - the butterfly's arithmetic, with n of them run against
 * each other on exact integers, and its shares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/exchange/butterfly.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define BLOCK       4U
#define MEMBERS_MAX 16U
#define ELEMENTS    (12U * BLOCK * MEMBERS_MAX)
#define SLOTS_MAX   16U
#define POSTS_MAX   32U
#define QUEUE_MAX   1024U

/* A segment between SEND_SEG and the receiver. */
struct frame {
    struct segment segment;
    uint64_t value[4 * BLOCK];
};

/* What is on its way from one member to another: frames in one order, and what
 * the receiver has posted. */
struct edge {
    struct frame *queue;
    uint32_t head, tail;
    struct segment post[POSTS_MAX];
    uint32_t n_posts, blocked; /* frames that had to wait for a post */
};

struct member {
    struct butterfly b;
    struct peer_id id;
    uint64_t own[ELEMENTS], wire[ELEMENTS];
    uint32_t sends[ELEMENTS];
    uint64_t lane[MEMBERS_MAX][SLOTS_MAX][4 * BLOCK];
    uint32_t lane_seg[MEMBERS_MAX][SLOTS_MAX]; /* 1 + number; 0: empty */
    struct segment sum[POSTS_MAX];
    uint32_t n_sums;
};

struct rig {
    uint32_t n;
    struct butterfly_shape shape;
    struct member *m;
    struct edge *edge; /* [from * n + to] */
    struct out *out;
};

/* What inherited elements hold where they are held. */
static uint64_t final_of(uint64_t k)
{
    return 7 * k + (1ULL << 40);
}

static uint64_t expected(const struct rig *g, uint64_t k)
{
    uint64_t sum = 0;

    for (uint32_t j = 0; j < g->n; j++) {
        sum += (j + 1) * g->m[j].own[k]; /* the weight of j */
    }
    return k < g->shape.cut.from ? final_of(k) : sum;
}

static uint32_t rank_of(const struct rig *g, const struct peer_id *id)
{
    uint32_t i = 0;

    while (i < g->n && !id_eq(&g->m[i].id, id)) {
        i++;
    }
    assert_true(i < g->n);
    return i;
}

static void check_segment(const struct rig *g, const struct segment *s)
{
    assert_true(s->len > 0 && s->offset + s->len <= g->shape.cut.elements);
    assert_true(s->len <= g->shape.cut.segment_elements);
    assert_int_equal(s->offset % BLOCK, 0);
    assert_int_equal(s->stream, STREAM_RING);
    assert_int_equal(s->lanes, g->n);
}

static void take_send(struct rig *g, uint32_t i, const struct segment *s)
{
    struct member *m = &g->m[i];
    struct edge *e = &g->edge[i * g->n + rank_of(g, &s->peer)];
    struct frame *f;

    assert_true(e->tail < QUEUE_MAX);
    f = &e->queue[e->tail++];
    f->segment = *s;
    for (uint32_t k = 0; k < s->len; k++) {
        uint64_t at = s->offset + k;

        f->value[k] = s->op == SEGMENT_ENCODE ? m->own[at] : m->wire[at];
        m->sends[at]++;
    }
}

static void take(struct rig *g, uint32_t i, const struct action *a)
{
    const struct segment *s = &a->segment;
    struct member *m = &g->m[i];
    struct edge *e;

    check_segment(g, s);
    if (a->type == ACTION_SEND_SEG) {
        take_send(g, i, s);
    } else if (a->type == ACTION_SUM) {
        assert_true(m->n_sums < POSTS_MAX);
        m->sum[m->n_sums++] = *s;
    } else {
        assert_int_equal(a->type, ACTION_POST_RECV);
        e = &g->edge[rank_of(g, &s->peer) * g->n + i];
        assert_true(e->n_posts < POSTS_MAX);
        e->post[e->n_posts++] = *s;
        if (s->op == SEGMENT_LANE) { /* nothing that still waits is written */
            assert_true(s->slot < butterfly_slots(g->n));
            assert_int_equal(m->lane_seg[s->lane][s->slot], 0);
        }
    }
}

static void pump(struct rig *g, uint32_t i)
{
    g->out->n = g->out->n_bytes = g->out->dropped = 0;
    butterfly_pump(&g->m[i].b, g->out);
    assert_int_equal(g->out->dropped, 0);
    for (uint32_t k = 0; k < g->out->n; k++) {
        take(g, i, &g->out->action[k]);
    }
}

static void finish(struct rig *g, uint32_t i, const struct segment *s, bool out)
{
    struct event e = {
        .type = EVENT_SEG_DONE, .seg_done.sent = out, .seg_done.segment = *s};

    assert_int_equal(butterfly_done(&g->m[i].b, &e.seg_done), 0);
    pump(g, i);
}

static void arrive(struct rig *g,
                   uint32_t i,
                   const struct segment *p,
                   const struct frame *f)
{
    struct member *m = &g->m[i];

    assert_int_equal(p->offset, f->segment.offset);
    assert_int_equal(p->len, f->segment.len);
    if (p->op == SEGMENT_LANE) {
        memcpy(m->lane[p->lane][p->slot], f->value, p->len * sizeof *f->value);
        m->lane_seg[p->lane][p->slot] = p->seg + 1;
        return;
    }
    assert_true(p->final);
    for (uint32_t k = 0; k < p->len; k++) {
        m->wire[p->offset + k] = f->value[k];
    }
}

/* The next frame from member j into i; false: none, or it is not posted. */
static bool deliver(struct rig *g, uint32_t j, uint32_t i)
{
    struct edge *e = &g->edge[j * g->n + i];
    struct segment post, sent;
    uint32_t k = 0;

    if (e->head == e->tail) {
        return false;
    }
    sent = e->queue[e->head].segment;
    while (k < e->n_posts && e->post[k].seg != sent.seg) {
        k++;
    }
    if (k == e->n_posts) {
        e->blocked++;
        return false;
    }
    post = e->post[k];
    memmove(&e->post[k], &e->post[k + 1],
            (e->n_posts - k - 1) * sizeof e->post[0]);
    e->n_posts--;
    arrive(g, i, &post, &e->queue[e->head++]);
    finish(g, j, &sent, true);
    finish(g, i, &post, false);
    return true;
}

static bool sum(struct rig *g, uint32_t i)
{
    struct member *m = &g->m[i];
    struct segment s = m->sum[0];

    if (m->n_sums == 0) {
        return false;
    }
    memmove(m->sum, m->sum + 1, (m->n_sums - 1) * sizeof m->sum[0]);
    m->n_sums--;
    assert_true(s.final);
    assert_int_equal(s.lane, i);
    for (uint32_t k = 0; k < s.len; k++) {
        m->wire[s.offset + k] = (i + 1) * m->own[s.offset + k];
    }
    for (uint32_t j = 0; j < g->n; j++) {
        if (j == i) {
            continue;
        }
        assert_int_equal(m->lane_seg[j][s.slot], s.seg + 1);
        m->lane_seg[j][s.slot] = 0;
        for (uint32_t k = 0; k < s.len; k++) {
            m->wire[s.offset + k] += (j + 1) * m->lane[j][s.slot][k];
        }
    }
    finish(g, i, &s, false);
    return true;
}

static struct rig *rig_new(const struct butterfly_shape *shape)
{
    struct rig *g = calloc(1, sizeof *g);
    uint32_t n = shape->cut.n;

    assert_non_null(g);
    g->n = n;
    g->shape = *shape;
    g->m = calloc(n, sizeof *g->m);
    g->edge = calloc((size_t)n * n, sizeof *g->edge);
    g->out = calloc(1, sizeof *g->out);
    assert_true(g->m != NULL && g->edge != NULL && g->out != NULL);
    for (uint32_t i = 0; i < n * n; i++) {
        g->edge[i].queue = calloc(QUEUE_MAX, sizeof *g->edge[i].queue);
        assert_non_null(g->edge[i].queue);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = &g->m[i];

        m->id.b[0] = (uint8_t)(i + 1);
        for (uint64_t k = 0; k < shape->cut.elements; k++) {
            m->own[k] = 1 + k + ((uint64_t)i << 20);
            m->wire[k] = k < shape->holds[i] ? final_of(k) : 0xdead;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        butterfly_init(&g->m[i].b, shape, i);
        for (uint32_t k = 0; k < n; k++) {
            g->m[i].b.edges[k].peer = g->m[k].id;
        }
    }
    return g;
}

static void rig_free(struct rig *g)
{
    for (uint32_t i = 0; i < g->n * g->n; i++) {
        free(g->edge[i].queue);
    }
    free(g->edge);
    free(g->m);
    free(g->out);
    free(g);
}

/* One thing happens somewhere, drawn from the seed; `still` does nothing. */
static bool step(struct rig *g, uint64_t *seed, uint32_t still)
{
    uint32_t i = (uint32_t)rng_below(seed, g->n);
    uint32_t j = (uint32_t)rng_below(seed, g->n);

    if (i == still || j == still) {
        return false;
    }
    return i == j ? sum(g, i) : deliver(g, j, i);
}

static void run(struct rig *g, uint64_t seed)
{
    uint32_t idle = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        pump(g, i);
    }
    while (idle < 64 * g->n * g->n) {
        idle = step(g, &seed, UINT32_MAX) ? 0 : idle + 1;
    }
}

static void check(const struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        assert_true(butterfly_finished(&g->m[i].b));
        assert_int_equal(butterfly_final(&g->m[i].b), g->shape.cut.elements);
        for (uint64_t k = 0; k < g->shape.cut.elements; k++) {
            assert_int_equal(g->m[i].wire[k], expected(g, k));
        }
    }
    for (uint32_t i = 0; i < g->n * g->n; i++) {
        assert_int_equal(g->edge[i].n_posts, 0);
        assert_int_equal(g->edge[i].blocked, 0); /* credit: never unposted */
    }
}

static struct butterfly_shape
shape_of(uint32_t n, uint64_t elements, uint32_t segment)
{
    struct butterfly_shape s = {.cut = {.elements = elements,
                                        .block = BLOCK,
                                        .segment_elements = segment,
                                        .chunk_segments = 2,
                                        .n = n}};

    for (uint32_t i = 0; i < n; i++) {
        s.share[i] = 1;
    }
    return s;
}

static void every_member_ends_with_the_weighted_sum_of_all(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MEMBERS_MAX; n += 1 + n / 4) {
        const uint64_t sizes[] = {
            0, 1, BLOCK, n * BLOCK, n * BLOCK + 1, n * 9 * BLOCK + 3};

        for (unsigned k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            for (uint32_t segment = BLOCK; segment <= 4 * BLOCK; segment *= 2) {
                struct butterfly_shape s = shape_of(n, sizes[k], segment);
                struct rig *g = rig_new(&s);

                run(g, 1000 * n + k);
                check(g);
                rig_free(g);
            }
        }
    }
}

/* With equal shares each element leaves a member at most n - 1 times as its
 * owner's final bytes, else once: 2 (n-1)/n vectors in all. */
static void nobody_sends_more_than_a_ring_would(void **state)
{
    struct butterfly_shape s = shape_of(5, 20 * 5 * BLOCK, BLOCK);
    struct rig *g = rig_new(&s);

    (void)state;
    run(g, 3);
    check(g);
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t sent = 0;

        for (uint64_t k = 0; k < s.cut.elements; k++) {
            sent += g->m[i].sends[k];
        }
        assert_int_equal(sent, 2 * (s.cut.elements / 5) * 4);
    }
    rig_free(g);
}

static void slices_follow_the_shares_and_cover_the_vector_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t rng = seed, elements = rng_below(&rng, ELEMENTS), at, end;
        uint32_t n = 2 + (uint32_t)rng_below(&rng, MEMBERS_MAX - 1);
        struct butterfly_shape s = shape_of(n, elements, BLOCK);
        uint32_t stripe = 0;
        struct rig *g;

        for (uint32_t i = 0; i < n; i++) {
            s.share[i] = (uint32_t)rng_below(&rng, 4) * 20000;
        }
        s.share[seed % n] = BUTTERFLY_SHARE_MAX;
        for (at = 0; at < elements; stripe++) {
            for (uint32_t c = 0; c < n; c++) {
                uint64_t begin;

                butterfly_slice(&s, stripe, c, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end >= begin &&
                            (end % BLOCK == 0 || end == elements));
                assert_true(s.share[c] > 0 || end == begin);
                at = end;
            }
        }
        g = rig_new(&s);
        run(g, seed);
        check(g);
        rig_free(g);
    }
}

static void every_element_past_the_inherited_ones_has_one_owner(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t rng = seed, elements = 1 + rng_below(&rng, ELEMENTS);
        uint32_t n = 2 + (uint32_t)rng_below(&rng, MEMBERS_MAX - 1);
        struct butterfly_shape s = shape_of(n, elements, BLOCK);

        s.cut.from = seed % 3 == 0 ? elements / BLOCK / 2 * BLOCK : 0;
        for (uint32_t i = 0; i < n; i++) {
            s.share[i] = (uint32_t)rng_below(&rng, 4) * 20000;
        }
        s.share[seed % n] = BUTTERFLY_SHARE_MAX;
        for (uint64_t k = 0; k < s.cut.from; k++) {
            assert_int_equal(butterfly_owner(&s, k), n);
        }
        for (uint64_t at = s.cut.from, stripe = 0; at < elements; stripe++) {
            for (uint32_t c = 0; c < n; c++) {
                uint64_t end;

                butterfly_slice(&s, (uint32_t)stripe, c, &at, &end);
                for (; at < end; at++) {
                    assert_int_equal(butterfly_owner(&s, at), c);
                }
            }
        }
        assert_int_equal(butterfly_owner(&s, elements), n);
        assert_int_equal(butterfly_owner(&s, UINT64_MAX), n);
    }
}

static void inherited_elements_reach_who_lacks_them_and_stay(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed, blocks = rng_below(&rng, 60);
        uint32_t n = 2 + (uint32_t)rng_below(&rng, 7);
        struct butterfly_shape s =
            shape_of(n, blocks * BLOCK + rng_below(&rng, BLOCK), BLOCK);
        uint64_t most = rng_below(&rng, blocks + 1);
        struct rig *g;

        for (uint32_t i = 0; i < n; i++) {
            s.holds[i] = rng_below(&rng, 3) == 0
                             ? most * BLOCK
                             : rng_below(&rng, most + 1) * BLOCK;
            s.cut.from = s.holds[i] > s.cut.from ? s.holds[i] : s.cut.from;
        }
        g = rig_new(&s);
        run(g, seed);
        check(g);
        rig_free(g);
    }
}

/* What a death in the middle leaves, and one that says nothing any more. */
static void whole_stripes_are_final_while_it_still_goes_on(void **state)
{
    struct butterfly_shape s = shape_of(4, ELEMENTS, BLOCK);
    uint64_t seed = 5, stripe = ring_stripe_elements(&s.cut), high = 0;
    struct rig *g = rig_new(&s);
    uint32_t idle = 0;

    (void)state;
    for (uint32_t i = 0; i < g->n; i++) {
        pump(g, i);
    }
    while (idle < 4000) {
        bool moved = step(g, &seed, high > 2 * stripe ? 3 : UINT32_MAX);

        idle = moved ? 0 : idle + 1;
        for (uint32_t i = 0; i < g->n; i++) {
            uint64_t final = butterfly_final(&g->m[i].b);

            assert_true(final == ELEMENTS || final % stripe == 0);
            for (uint64_t k = 0; k < final && moved; k++) {
                assert_int_equal(g->m[i].wire[k], expected(g, k));
            }
            high = final > high ? final : high;
        }
    }
    assert_true(high > 2 * stripe && high < ELEMENTS);
    for (uint32_t i = 0; i < 3; i++) { /* who waits is stopped by credit */
        assert_false(butterfly_finished(&g->m[i].b));
        assert_true(butterfly_final(&g->m[i].b) + 2 * stripe >= high);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(g->edge[j * g->n + i].blocked, 0);
        }
    }
    rig_free(g);
}

static void completions_that_are_not_due_are_refused(void **state)
{
    struct butterfly_shape s = shape_of(3, 60 * BLOCK, BLOCK);
    struct rig *g = rig_new(&s);
    struct event e = {.type = EVENT_SEG_DONE};

    (void)state;
    e.seg_done.segment.peer = g->m[1].id;
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done),
                     LOCO_EPROTO); /* no pump */
    pump(g, 0);
    e.seg_done.segment.seg = 1;
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done), LOCO_EPROTO);
    e.seg_done.segment.seg = 0;
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done), 0);
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done),
                     LOCO_EPROTO); /* twice */
    e.seg_done.segment.seg = 1;
    e.seg_done.segment.peer = g->m[0].id; /* from ourselves */
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done), LOCO_EPROTO);
    e.seg_done.segment.peer.b[0] = 99;
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done), LOCO_EPROTO);
    e.seg_done.segment.op = SEGMENT_SUM; /* was not asked for */
    e.seg_done.segment.seg = 0;
    assert_int_equal(butterfly_done(&g->m[0].b, &e.seg_done), LOCO_EPROTO);
    assert_int_equal(butterfly_progress(&g->m[0].b), 1);
    rig_free(g);
}

/* ---- shares ------------------------------------------------------------ */

/* Time of the slowest, in vectors by the rate unit. */
static double
time_of(const struct butterfly_rate *r, const uint32_t *share, uint32_t n)
{
    double worst = 0, sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += share[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        double rate = (double)(r[i].up < r[i].down ? r[i].up : r[i].down);
        double t = (1 + (n - 2.0) * share[i] / sum) / rate;

        worst = t > worst ? t : worst;
    }
    return worst;
}

static void shares_make_the_slowest_as_fast_as_it_can_be(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t rng = seed, tries = 50;
        uint32_t n = 3 + (uint32_t)rng_below(&rng, 14), share[VIEW_MEMBERS_MAX];
        struct butterfly_rate r[VIEW_MEMBERS_MAX];
        double best, slowest = 0;

        for (uint32_t i = 0; i < n; i++) {
            r[i].up = 1 + rng_below(&rng, seed % 3 == 0 ? 1000 : 20);
            r[i].down = r[i].up + rng_below(&rng, 5);
            slowest = 1.0 / (double)r[i].up > slowest ? 1.0 / (double)r[i].up
                                                      : slowest;
        }
        butterfly_shares(r, n, share);
        best = time_of(r, share, n);
        assert_true(best >= slowest);
        while (tries-- > 0) { /* no shift of a share does better */
            uint32_t other[VIEW_MEMBERS_MAX];
            uint32_t from = (uint32_t)rng_below(&rng, n);
            uint32_t to = (uint32_t)rng_below(&rng, n);
            uint32_t some = (uint32_t)rng_below(&rng, share[from] + 1);

            memcpy(other, share, sizeof other);
            other[from] -= some;
            other[to] += some;
            assert_true(time_of(r, other, n) > best * 0.999);
        }
    }
}

static void shares_are_equal_while_a_rate_is_unknown(void **state)
{
    struct butterfly_rate r[4] = {{5, 5}, {0, 5}, {50, 50}, {1, 1}};
    uint32_t share[4];

    (void)state;
    butterfly_shares(r, 4, share);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(share[i], share[0]);
        assert_true(share[i] > 0);
    }
    r[1].up = 5;
    butterfly_shares(r, 4, share);
    assert_true(share[2] > share[0]);
    assert_int_equal(share[3], 0); /* it only gives */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_ends_with_the_weighted_sum_of_all),
        cmocka_unit_test(nobody_sends_more_than_a_ring_would),
        cmocka_unit_test(slices_follow_the_shares_and_cover_the_vector_once),
        cmocka_unit_test(every_element_past_the_inherited_ones_has_one_owner),
        cmocka_unit_test(inherited_elements_reach_who_lacks_them_and_stay),
        cmocka_unit_test(whole_stripes_are_final_while_it_still_goes_on),
        cmocka_unit_test(completions_that_are_not_due_are_refused),
        cmocka_unit_test(shares_make_the_slowest_as_fast_as_it_can_be),
        cmocka_unit_test(shares_are_equal_while_a_rate_is_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
