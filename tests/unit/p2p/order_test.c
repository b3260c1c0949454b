/* order_test.c - rings that go around missing edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/exchange/order.h"
#include "proto/base/rng.h"

#define ALL(n) ((n) == 64 ? UINT64_MAX : (1ULL << (n)) - 1)

static const uint64_t even[VIEW_MEMBERS_MAX];

static uint32_t count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static void expect_ring(const struct order_graph *g, uint64_t mask, uint64_t s)
{
    uint8_t ring[VIEW_MEMBERS_MAX];
    uint32_t n = count(mask);
    uint64_t seen = 0;

    assert_true(order_ring(g, mask, s, ring));
    for (uint32_t k = 0; k < n; k++) {
        assert_true(mask >> ring[k] & 1);
        seen |= 1ULL << ring[k];
        if (n > 1) {
            assert_true(g->edges[ring[k]] >> ring[(k + 1) % n] & 1);
        }
    }
    assert_true(seen == mask);
}

static void all_edges_give_a_ring_of_all(void **state)
{
    struct order_graph g;

    (void)state;
    for (uint32_t n = 1; n <= VIEW_MEMBERS_MAX; n++) {
        order_init(&g, n);
        expect_ring(&g, ALL(n), n);
        assert_true(order_largest(&g, ALL(n), even, n) == ALL(n));
    }
}

static void the_same_seed_names_the_same_ring(void **state)
{
    uint8_t a[VIEW_MEMBERS_MAX], b[VIEW_MEMBERS_MAX];
    struct order_graph g;

    (void)state;
    order_init(&g, 20);
    order_cut(&g, 3, 4);
    assert_true(order_ring(&g, ALL(20), 7, a));
    assert_true(order_ring(&g, ALL(20), 7, b));
    assert_memory_equal(a, b, 20);
    assert_true(order_ring(&g, ALL(20), 8, b));
    assert_memory_not_equal(a, b, 20);
}

static void one_missing_edge_of_four_or_more_is_avoided(void **state)
{
    struct order_graph g;

    (void)state;
    for (uint32_t n = 4; n <= VIEW_MEMBERS_MAX; n += 5) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            order_init(&g, n);
            order_cut(&g, (uint32_t)(seed % n), (uint32_t)((seed + 1) % n));
            expect_ring(&g, ALL(n), seed);
        }
    }
}

/* Only one ring is left: 0 - 1 - .. - n-1 - 0. No draw finds it. */
static void the_only_ring_is_found(void **state)
{
    struct order_graph g;

    (void)state;
    for (uint32_t n = 4; n <= VIEW_MEMBERS_MAX; n++) {
        order_init(&g, n);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = i + 2; k < n; k++) {
                if (i != 0 || k != n - 1) {
                    order_cut(&g, i, k);
                }
            }
        }
        expect_ring(&g, ALL(n), n);
    }
}

static void three_with_a_missing_edge_leave_out_each_end_in_turn(void **state)
{
    uint64_t left_out = 0;
    struct order_graph g;

    (void)state;
    order_init(&g, 3);
    order_cut(&g, 0, 2);
    for (uint64_t seed = 0; seed < 40; seed++) {
        uint64_t mask = order_largest(&g, ALL(3), even, seed);

        assert_int_equal(count(mask), 2);
        assert_true(mask >> 1 & 1);
        left_out |= ALL(3) & ~mask;
        expect_ring(&g, mask, seed);
    }
    assert_int_equal(left_out, 5);
}

static void who_comes_later_goes_first(void **state)
{
    static const uint64_t first[VIEW_MEMBERS_MAX] = {9, 1, 4};
    struct order_graph g;

    (void)state;
    order_init(&g, 3);
    order_cut(&g, 0, 2);
    for (uint64_t seed = 0; seed < 10; seed++) {
        assert_int_equal(order_largest(&g, ALL(3), first, seed), 6);
    }
}

static void a_star_keeps_its_middle_and_one_ray(void **state)
{
    struct order_graph g;
    uint64_t mask;

    (void)state;
    order_init(&g, 5);
    for (uint32_t i = 1; i < 5; i++) {
        for (uint32_t k = i + 1; k < 5; k++) {
            order_cut(&g, i, k);
        }
    }
    mask = order_largest(&g, ALL(5), even, 3);
    assert_int_equal(count(mask), 2);
    assert_true(mask & 1);
}

static void sparse_graphs_end_in_time(void **state)
{
    uint64_t rng = 5;
    struct order_graph g;

    (void)state;
    for (int t = 0; t < 30; t++) {
        uint64_t mask;

        order_init(&g, VIEW_MEMBERS_MAX);
        for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
            for (uint32_t k = i + 1; k < VIEW_MEMBERS_MAX; k++) {
                if (rng_below(&rng, 100) < 90) {
                    order_cut(&g, i, k);
                }
            }
        }
        mask = order_largest(&g, ALL(VIEW_MEMBERS_MAX), even, (uint64_t)t);
        assert_true(mask != 0);
        expect_ring(&g, mask, (uint64_t)t);
    }
}

/* ---- cliques ------------------------------------------------------------ */

static void expect_clique(const struct order_graph *g, uint64_t mask)
{
    for (uint32_t i = 0; i < g->n; i++) {
        if (mask >> i & 1) {
            assert_int_equal(mask & ~g->edges[i] & ~(1ULL << i), 0);
        }
    }
}

static void a_clique_of_all_edges_is_everybody(void **state)
{
    struct order_graph g;

    (void)state;
    for (uint32_t n = 1; n <= VIEW_MEMBERS_MAX; n++) {
        order_init(&g, n);
        assert_true(order_clique(&g, ALL(n), even, 1) == ALL(n));
    }
    assert_true(order_clique(&g, 0, even, 1) == 0);
    assert_true(order_clique(&g, 5, even, 1) == 5);
}

static void
of_a_pair_without_an_edge_one_leaves_the_clique_in_turn(void **state)
{
    static const uint64_t first[VIEW_MEMBERS_MAX] = {0, 0, 7};
    uint64_t without = 0;
    struct order_graph g;

    (void)state;
    order_init(&g, 4);
    order_cut(&g, 1, 2);
    for (uint64_t seed = 0; seed < 40; seed++) {
        uint64_t mask = order_clique(&g, ALL(4), even, seed);

        assert_int_equal(count(mask), 3);
        assert_true(order_clique(&g, ALL(4), even, seed) == mask);
        expect_clique(&g, mask);
        without |= ALL(4) & ~mask;
        assert_int_equal(order_clique(&g, ALL(4), first, seed), 11);
    }
    assert_int_equal(without, 6);
}

/* A ring goes around two missing edges, a clique does not. */
static void a_clique_needs_more_than_a_ring(void **state)
{
    struct order_graph g;
    uint64_t mask;

    (void)state;
    order_init(&g, 4);
    order_cut(&g, 0, 1);
    order_cut(&g, 2, 3);
    assert_int_equal(order_largest(&g, ALL(4), even, 1), 15);
    mask = order_clique(&g, ALL(4), even, 1);
    assert_int_equal(count(mask), 2);
    expect_clique(&g, mask);
    /* Who lacks most goes: one leaves, not three. */
    order_init(&g, 5);
    for (uint32_t i = 1; i < 4; i++) {
        order_cut(&g, 0, i);
    }
    assert_int_equal(order_clique(&g, ALL(5), even, 1), 30);
}

static void what_is_left_of_any_graph_is_a_clique(void **state)
{
    uint64_t rng = 9;
    struct order_graph g;

    (void)state;
    for (uint64_t t = 0; t < 50; t++) {
        uint64_t mask;

        order_init(&g, VIEW_MEMBERS_MAX);
        for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
            for (uint32_t k = i + 1; k < VIEW_MEMBERS_MAX; k++) {
                if (rng_below(&rng, 50) < t) {
                    order_cut(&g, i, k);
                }
            }
        }
        mask = order_clique(&g, ALL(VIEW_MEMBERS_MAX), even, t);
        assert_true(mask != 0);
        expect_clique(&g, mask);
    }
}

/* 0 1 2 and 3 4 near each other, 5 far from all. */
static const uint64_t near_all[VIEW_MEMBERS_MAX] = {0x06, 0x05, 0x03,
                                                    0x10, 0x08, 0x00};

static void who_is_near_to_each_other_is_a_site(void **state)
{
    struct order_sites s = {0};

    (void)state;
    order_near(0x3f, near_all, &s);
    assert_true(s.site[0] >= ORDER_SITE_MEASURED);
    assert_int_equal(s.site[1], s.site[0]);
    assert_int_equal(s.site[2], s.site[0]);
    assert_true(s.site[3] >= ORDER_SITE_MEASURED);
    assert_int_equal(s.site[4], s.site[3]);
    assert_int_not_equal(s.site[3], s.site[0]);
    assert_int_equal(s.site[5], 0);
}

static void a_named_site_stays_and_a_full_one_takes_no_more(void **state)
{
    struct order_sites s = {.most = 2, .site = {[1] = 7}};

    (void)state;
    order_near(0x3f, near_all, &s);
    assert_int_equal(s.site[1], 7);
    assert_true(s.site[0] >= ORDER_SITE_MEASURED);
    assert_int_equal(s.site[2], s.site[0]);
    s = (struct order_sites){.most = 2};
    order_near(0x3f, near_all, &s);
    assert_int_equal(s.site[0], s.site[1]);
    assert_int_equal(s.site[2], 0);
}

static void near_is_what_both_say_and_all_of_a_site(void **state)
{
    /* 0 says it is near to all, which 1 and 2 do not say. */
    static const uint64_t liar[VIEW_MEMBERS_MAX] = {0x0e, 0x04, 0x02, 0};
    /* A chain: 0 near 1, 1 near 2, 2 not near 0. */
    static const uint64_t chain[VIEW_MEMBERS_MAX] = {0x02, 0x05, 0x02};
    struct order_sites s = {0};

    (void)state;
    order_near(0x0f, liar, &s);
    assert_int_equal(s.site[0], 0);
    assert_true(s.site[1] >= ORDER_SITE_MEASURED);
    assert_int_equal(s.site[2], s.site[1]);
    assert_int_equal(s.site[3], 0);
    s = (struct order_sites){0};
    order_near(0x07, chain, &s);
    assert_int_equal(s.site[0], s.site[1]);
    assert_int_equal(s.site[2], 0);
    s = (struct order_sites){0};
    order_near(0x05, chain, &s); /* 1 is not there */
    assert_int_equal(s.site[0], 0);
    assert_int_equal(s.site[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_near_to_each_other_is_a_site),
        cmocka_unit_test(a_named_site_stays_and_a_full_one_takes_no_more),
        cmocka_unit_test(near_is_what_both_say_and_all_of_a_site),
        cmocka_unit_test(all_edges_give_a_ring_of_all),
        cmocka_unit_test(the_same_seed_names_the_same_ring),
        cmocka_unit_test(one_missing_edge_of_four_or_more_is_avoided),
        cmocka_unit_test(the_only_ring_is_found),
        cmocka_unit_test(three_with_a_missing_edge_leave_out_each_end_in_turn),
        cmocka_unit_test(who_comes_later_goes_first),
        cmocka_unit_test(a_star_keeps_its_middle_and_one_ray),
        cmocka_unit_test(sparse_graphs_end_in_time),
        cmocka_unit_test(a_clique_of_all_edges_is_everybody),
        cmocka_unit_test(
            of_a_pair_without_an_edge_one_leaves_the_clique_in_turn),
        cmocka_unit_test(a_clique_needs_more_than_a_ring),
        cmocka_unit_test(what_is_left_of_any_graph_is_a_clique),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
