/* sites_test.c - two levels: the way of a slice, and n members of several sites
 * run against each other on exact integers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/exchange/sites.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define BLOCK       4U
#define MEMBERS_MAX 16U
#define ELEMENTS    (40U * BLOCK * MEMBERS_MAX)
#define SEGMENT     (2U * BLOCK)
#define POSTS_MAX   32U
#define QUEUE_MAX   4096U

struct frame {
    struct segment segment;
    uint64_t value[SEGMENT];
};

struct edge {
    struct frame *queue;
    uint32_t head, tail;
    struct segment post[POSTS_MAX];
    uint32_t n_posts;
    uint64_t elements; /* that went over it */
};

struct member {
    struct sites t;
    struct peer_id id;
    uint64_t own[ELEMENTS], wire[ELEMENTS];
    bool final[ELEMENTS];
};

struct rig {
    uint32_t n;
    struct sites_shape shape;
    struct member *m;
    struct edge *edge; /* [from * n + to] */
    struct out *out;
    uint64_t random;
};

static uint64_t inherited(uint64_t k)
{
    return 7 * k + (1ULL << 40);
}

static uint64_t expected(const struct rig *g, uint64_t k)
{
    uint64_t sum = 0;

    for (uint32_t j = 0; j < g->n; j++) {
        sum += g->m[j].own[k];
    }
    return k < g->shape.cut.from ? inherited(k) : sum;
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

static bool is_gateway(const struct rig *g, uint32_t i)
{
    return g->shape.sites.first[walk_site(&g->shape.sites, i)] == i;
}

static void send(struct rig *g, uint32_t i, const struct segment *s)
{
    uint32_t to = rank_of(g, &s->peer);
    struct edge *e = &g->edge[i * g->n + to];
    struct frame *f = &e->queue[e->tail++];

    assert_true(e->tail < QUEUE_MAX);
    assert_true(sites_sends(&g->shape.sites, i, to));
    f->segment = *s;
    e->elements += s->len;
    for (uint32_t k = 0; k < s->len; k++) {
        uint64_t at = s->offset + k;

        assert_int_equal(g->m[i].final[at], s->final);
        f->value[k] =
            s->op == SEGMENT_ENCODE ? g->m[i].own[at] : g->m[i].wire[at];
    }
}

static void take(struct rig *g, uint32_t i, const struct action *a)
{
    const struct segment *s = &a->segment;
    struct edge *e;

    assert_true(s->len > 0 && s->len <= SEGMENT);
    assert_true(s->offset + s->len <= g->shape.cut.elements);
    assert_int_equal(s->offset % BLOCK, 0);
    if (a->type == ACTION_SEND_SEG) {
        send(g, i, s);
        return;
    }
    assert_int_equal(a->type, ACTION_POST_RECV);
    e = &g->edge[rank_of(g, &s->peer) * g->n + i];
    assert_true(e->n_posts < POSTS_MAX);
    e->post[e->n_posts++] = *s;
}

static void pump(struct rig *g, uint32_t i)
{
    g->out->n = g->out->n_bytes = g->out->dropped = 0;
    sites_pump(&g->m[i].t, g->out);
    assert_int_equal(g->out->dropped, 0);
    for (uint32_t k = 0; k < g->out->n; k++) {
        take(g, i, &g->out->action[k]);
    }
}

static void finish(struct rig *g, uint32_t i, const struct segment *s, bool out)
{
    struct event e = {
        .type = EVENT_SEG_DONE, .seg_done.sent = out, .seg_done.segment = *s};

    assert_int_equal(sites_done(&g->m[i].t, &e.seg_done), 0);
    pump(g, i);
}

/* What is final is right, and known to be. */
static void check_final(const struct rig *g, uint32_t i)
{
    uint64_t to = sites_final(&g->m[i].t);

    for (uint64_t k = 0; k < to; k++) {
        assert_true(g->m[i].final[k]);
        assert_true(g->m[i].wire[k] == expected(g, k));
    }
}

/* The frame at the head of an edge, if it is posted. */
static bool deliver(struct rig *g, uint32_t from, uint32_t to)
{
    struct edge *e = &g->edge[from * g->n + to];
    struct frame *f = &e->queue[e->head];
    struct member *m = &g->m[to];
    struct segment post;

    if (e->head == e->tail || e->n_posts == 0) {
        return false;
    }
    post = e->post[0];
    memmove(e->post, e->post + 1, --e->n_posts * sizeof post);
    e->head++;
    assert_int_equal(post.seg, f->segment.seg);
    assert_int_equal(post.offset, f->segment.offset);
    assert_int_equal(post.len, f->segment.len);
    for (uint32_t k = 0; k < post.len; k++) {
        uint64_t at = post.offset + k;

        assert_false(m->final[at]); /* nothing comes twice */
        m->wire[at] = f->value[k] + (post.op == SEGMENT_ADD ? m->own[at] : 0);
        m->final[at] = post.final;
    }
    post.peer = g->m[from].id;
    finish(g, to, &post, false);
    check_final(g, to);
    f->segment.peer = g->m[to].id;
    finish(g, from, &f->segment, true);
    return true;
}

static bool all_finished(const struct rig *g)
{
    bool all = true;

    for (uint32_t i = 0; i < g->n; i++) {
        all = all && sites_finished(&g->m[i].t);
    }
    return all;
}

/* Edges take turns at random until nothing moves. */
static void run(struct rig *g)
{
    uint32_t still = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        pump(g, i);
    }
    while (still < 50 * g->n * g->n) {
        uint32_t from = (uint32_t)rng_below(&g->random, g->n);
        uint32_t to = (uint32_t)rng_below(&g->random, g->n);

        still = deliver(g, from, to) ? 0 : still + 1;
    }
    for (uint32_t k = 0; k < g->n * g->n; k++) {
        while (deliver(g, k / g->n, k % g->n)) {
            k = 0;
        }
    }
    assert_true(all_finished(g));
}

static void open_rig(struct rig *g,
                     uint32_t n,
                     const bool *gateway,
                     uint64_t elements,
                     uint64_t from,
                     uint64_t seed)
{
    memset(g, 0, sizeof *g);
    g->n = n;
    g->random = seed;
    g->shape.cut = (struct ring_shape){.elements = elements,
                                       .from = from,
                                       .block = BLOCK,
                                       .segment_elements = SEGMENT,
                                       .chunk_segments = 2,
                                       .n = n};
    assert_true(walk_sites_of(gateway, n, &g->shape.sites));
    g->m = calloc(n, sizeof *g->m);
    g->edge = calloc((size_t)n * n, sizeof *g->edge);
    g->out = calloc(1, sizeof *g->out);
    for (uint32_t k = 0; k < n * n; k++) {
        g->edge[k].queue = calloc(QUEUE_MAX, sizeof *g->edge[k].queue);
    }
    for (uint32_t i = 0; i < n; i++) {
        memset(g->m[i].id.b, (int)i + 1, sizeof g->m[i].id.b);
        g->shape.holds[i] =
            from == 0 ? 0 : rng_below(&g->random, from / BLOCK + 1) * BLOCK;
    }
    g->shape.holds[rng_below(&g->random, n)] = from; /* somebody has all */
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < elements; k++) {
            g->m[i].own[k] = rng_next(&g->random) >> 8;
            g->m[i].final[k] = k < g->shape.holds[i];
            g->m[i].wire[k] = g->m[i].final[k] ? inherited(k) : 0;
        }
    }
}

static void start(struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct sites *t = &g->m[i].t;

        sites_init(t, &g->shape, i);
        t->attempt = 1;
        t->scale = 1;
        for (int k = 0; k < SITES_EDGES; k++) {
            t->in[k].peer = g->m[t->in[k].rank].id;
            t->out[k].peer = g->m[t->out[k].rank].id;
        }
    }
}

static void close_rig(struct rig *g)
{
    for (uint32_t k = 0; k < g->n * g->n; k++) {
        free(g->edge[k].queue);
    }
    free(g->edge);
    free(g->m);
    free(g->out);
}

static void check_all(const struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        assert_true(sites_final(&g->m[i].t) == g->shape.cut.elements);
        for (uint64_t k = 0; k < g->shape.cut.elements; k++) {
            assert_true(g->m[i].wire[k] == expected(g, k));
        }
    }
}

/* Segments that went out and came in are as many as were counted before. */
static void check_counts(const struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t out = 0, in = 0;

        for (uint32_t k = 0; k < g->n; k++) {
            out += g->edge[i * g->n + k].head;
            in += g->edge[k * g->n + i].head;
        }
        assert_int_equal(out, sites_segments(&g->m[i].t, true));
        assert_int_equal(in, sites_segments(&g->m[i].t, false));
    }
}

/* Nobody but gateways speaks with another site, and these no more than a ring
 * of sites would. */
static void check_outside(const struct rig *g)
{
    uint32_t n_sites = g->shape.sites.n;
    uint64_t rest = g->shape.cut.elements - g->shape.cut.from, all = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; k < g->n; k++) {
            uint64_t moved = g->edge[i * g->n + k].elements;

            if (walk_site(&g->shape.sites, i) ==
                walk_site(&g->shape.sites, k)) {
                continue;
            }
            assert_true(moved == 0 || (is_gateway(g, i) && is_gateway(g, k)));
            all += moved;
        }
    }
    if (g->shape.cut.from == 0) {
        assert_true(all == 2ULL * (n_sites - 1) * rest);
    }
}

static void members_of_any_sites_end_with_the_same_sum(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed * 977;
        uint32_t n = 2 + (uint32_t)rng_below(&random, MEMBERS_MAX - 1);
        bool gateway[MEMBERS_MAX] = {true};
        uint64_t elements = rng_below(&random, ELEMENTS);
        uint64_t from = seed % 3 != 0 ? 0 : elements / 2 / BLOCK * BLOCK;
        struct rig g;

        for (uint32_t k = 1; k < n; k++) {
            gateway[k] = rng_below(&random, 3) == 0;
        }
        open_rig(&g, n, gateway, elements, from, seed);
        start(&g);
        run(&g);
        check_all(&g);
        check_counts(&g);
        check_outside(&g);
        close_rig(&g);
    }
}

/* Two sites of three: each link outside carries the vector once. */
static void two_sites_send_each_other_one_vector(void **state)
{
    static const bool gateway[] = {true, false, false, true, false, false};
    struct rig g;

    (void)state;
    open_rig(&g, 6, gateway, ELEMENTS, 0, 5);
    start(&g);
    run(&g);
    assert_true(g.edge[0 * 6 + 3].elements == ELEMENTS);
    assert_true(g.edge[3 * 6 + 0].elements == ELEMENTS);
    close_rig(&g);
}

/* With a member a site, a slice walks as a chunk of a ring does. */
static void sites_of_one_are_a_ring(void **state)
{
    static const bool gateway[] = {true, true, true, true, true};
    struct walk_hop hops[WALK_HOPS_MAX];
    struct walk_sites s;

    (void)state;
    assert_true(walk_sites_of(gateway, 5, &s));
    for (uint32_t slice = 0; slice < 5; slice++) {
        assert_int_equal(walk_of(&s, slice, hops), 8);
        for (uint32_t k = 0; k < 8; k++) {
            assert_int_equal(hops[k].from, (slice + 1 + k) % 5);
            assert_int_equal(hops[k].to, (slice + 2 + k) % 5);
            assert_int_equal(hops[k].adds, k < 4);
            assert_int_equal(hops[k].ends, k == 3);
            assert_int_equal(hops[k].final, k >= 4);
            assert_int_equal(hops[k].after, (int)k - 1);
        }
    }
}

static void the_largest_plan_fits(void **state)
{
    bool gateway[VIEW_MEMBERS_MAX] = {true};
    struct walk_hop hops[WALK_HOPS_MAX];
    struct walk_sites s;

    (void)state;
    for (uint32_t size = 1; size <= VIEW_MEMBERS_MAX; size++) {
        for (uint32_t k = 0; k < VIEW_MEMBERS_MAX; k++) {
            gateway[k] = k % size == 0;
        }
        assert_true(walk_sites_of(gateway, VIEW_MEMBERS_MAX, &s));
        for (uint32_t slice = 0; slice < s.n; slice++) {
            assert_true(walk_of(&s, slice, hops) <= WALK_HOPS_MAX);
        }
    }
}

static void the_first_member_begins_a_site(void **state)
{
    static const bool gateway[] = {false, true, true};
    struct walk_sites s;

    (void)state;
    assert_false(walk_sites_of(gateway, 3, &s));
}

/* Completions out of order are the shell's fault, or a stranger's. */
static void only_the_segment_that_is_due_is_taken(void **state)
{
    static const bool gateway[] = {true, false, true};
    struct event e = {.type = EVENT_SEG_DONE};
    struct rig g;

    (void)state;
    open_rig(&g, 3, gateway, ELEMENTS, 0, 5);
    start(&g);
    pump(&g, 0);
    e.seg_done.segment = g.edge[1 * 3 + 0].post[0];
    e.seg_done.segment.seg = 1;
    assert_int_equal(sites_done(&g.m[0].t, &e.seg_done), LOCO_EPROTO);
    e.seg_done.segment.seg = 0;
    memset(e.seg_done.segment.peer.b, 0xee, sizeof e.seg_done.segment.peer.b);
    assert_int_equal(sites_done(&g.m[0].t, &e.seg_done), LOCO_EPROTO);
    e.seg_done.segment.peer = g.m[1].id;
    assert_int_equal(sites_done(&g.m[0].t, &e.seg_done), 0);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_any_sites_end_with_the_same_sum),
        cmocka_unit_test(two_sites_send_each_other_one_vector),
        cmocka_unit_test(sites_of_one_are_a_ring),
        cmocka_unit_test(the_largest_plan_fits),
        cmocka_unit_test(the_first_member_begins_a_site),
        cmocka_unit_test(only_the_segment_that_is_due_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
