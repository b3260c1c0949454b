/* rates_test.c - which ring is taken where edges differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/exchange/rates.h"
#include "proto/base/rng.h"

#define ALL(n) ((n) == 64 ? UINT64_MAX : (1ULL << (n)) - 1)
#define ROWS   16384

struct fixture {
    struct bandwidth map;
    struct bandwidth_row rows[ROWS];
    struct peer_id ids[VIEW_MEMBERS_MAX];
    struct rates rates;
    struct order_graph graph;
    uint8_t ring[VIEW_MEMBERS_MAX];
};

static struct fixture *fixture_open(uint32_t n)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    bandwidth_init(&f->map, f->rows, ROWS, 0);
    order_init(&f->graph, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t words[] = {77, i};
        uint64_t x = rng_mix(words, 2);

        memcpy(f->ids[i].b, &x, sizeof x);
        f->ring[i] = (uint8_t)i;
    }
    return f;
}

static void know(struct fixture *f, uint32_t i, uint32_t k, uint64_t rate)
{
    bandwidth_told(&f->map, &f->ids[i], &f->ids[k], rate, 50, 1000);
}

static void look(struct fixture *f)
{
    rates_init(&f->rates, &f->map, f->ids, f->graph.n, 1000);
}

static bool better(struct fixture *f, uint64_t seed)
{
    return rates_order(&f->rates, &f->graph, ALL(f->graph.n), seed, f->ring);
}

static void assert_ring(const struct fixture *f)
{
    uint64_t seen = 0;

    for (uint32_t k = 0; k < f->graph.n; k++) {
        seen |= 1ULL << f->ring[k];
    }
    assert_true(seen == ALL(f->graph.n));
    assert_true(order_closes(&f->graph, f->ring, f->graph.n));
}

static void without_rates_nothing_changes(void **state)
{
    struct fixture *f = fixture_open(5);

    (void)state;
    rates_init(&f->rates, NULL, f->ids, 5, 1000);
    assert_int_equal(rates_guess(&f->rates, 0, 1), 0);
    assert_false(better(f, 1));
    look(f);
    assert_false(better(f, 1));
    know(f, 0, 1, 100); /* one edge alone is neither slow nor fast */
    look(f);
    assert_false(better(f, 1));
    free(f);
}

static void one_sample_counts_as_nothing(void **state)
{
    struct fixture *f = fixture_open(3);

    (void)state;
    bandwidth_told(&f->map, &f->ids[0], &f->ids[1], 500, RATES_CONFIDENCE - 1,
                   1000);
    look(f);
    assert_int_equal(f->rates.edge[0][1], 0);
    assert_int_equal(f->rates.fastest, 0);
    free(f);
}

static void a_slow_edge_is_left_for_one_that_is_not_known(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct fixture *f = fixture_open(4);

        for (uint32_t i = 0; i < 4; i++) {
            know(f, i, (i + 1) % 4, i == 2 ? 25 : 100);
        }
        look(f);
        assert_int_equal(rates_ring(&f->rates, f->ring, 4), 25);
        assert_true(better(f, seed));
        assert_ring(f);
        assert_int_equal(rates_ring(&f->rates, f->ring, 4), 100);
        assert_false(better(f, seed)); /* there is nothing faster */
        free(f);
    }
}

static void a_gain_below_a_fifth_moves_nobody(void **state)
{
    struct fixture *f = fixture_open(6);

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t k = 0; k < 6; k++) {
            know(f, i, k, k == (i + 1) % 6 && i == 3 ? 84 : 100);
        }
    }
    look(f);
    assert_false(better(f, 3));
    know(f, 3, 4, 82);
    look(f);
    assert_true(better(f, 3));
    assert_ring(f);
    free(f);
}

/* All edges of one member are slow: no ring is faster than any other. */
static void a_slow_line_is_no_reason_to_move(void **state)
{
    struct fixture *f = fixture_open(5);

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        know(f, i, (i + 1) % 5, i == 2 ? 20 : 100);
    }
    for (uint32_t tried = 0; tried < 4; tried++) {
        look(f);
        if (!better(f, tried)) {
            break;
        }
        assert_true(tried < RATES_ENOUGH(5)); /* then it is recognised */
        for (uint32_t k = 0; k < 5; k++) {
            know(f, f->ring[k], f->ring[(k + 1) % 5],
                 f->ring[k] == 2 ? 20 : 100);
        }
    }
    assert_int_equal(f->rates.n_up[2], RATES_ENOUGH(5));
    assert_int_equal(rates_guess(&f->rates, 2, f->ring[0]), 20);
    free(f);
}

static void missing_edges_are_missing_however_fast(void **state)
{
    struct fixture *f = fixture_open(4);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            know(f, i, k, i == 1 && k == 2 ? 10 : 100);
        }
    }
    order_cut(&f->graph, 1, 3);
    order_cut(&f->graph, 0, 2);
    look(f);
    /* 0 1 2 3 and its reverse are left; the reverse has no slow edge. */
    assert_true(better(f, 1));
    assert_ring(f);
    assert_int_equal(rates_ring(&f->rates, f->ring, 4), 100);
    order_cut(&f->graph, 0, 1); /* no ring any more: what there is stays */
    assert_false(better(f, 1));
    free(f);
}

/* A hidden ring of fast edges among random ones is found, for any size. */
static void a_hidden_fast_ring_is_found(void **state)
{
    uint64_t rng = 11;

    (void)state;
    for (uint32_t n = 3; n <= 12; n++) {
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct fixture *f = fixture_open(n);
            uint32_t perm[VIEW_MEMBERS_MAX];

            for (uint32_t i = 0; i < n; i++) {
                for (uint32_t k = 0; k < n; k++) {
                    know(f, i, k, 1 + rng_below(&rng, 50));
                }
            }
            rng_perm(perm, n, rng_next(&rng));
            for (uint32_t i = 0; i < n; i++) {
                know(f, perm[i], perm[(i + 1) % n], 1000);
            }
            look(f);
            if (rates_ring(&f->rates, f->ring, n) < 1000) {
                assert_true(better(f, seed));
            }
            assert_ring(f);
            assert_true(rates_ring(&f->rates, f->ring, n) >= 980);
            free(f);
        }
    }
}

/* The largest view ends in time, and never with a slower ring. */
static void sixty_four_members_end_in_time(void **state)
{
    struct fixture *f = fixture_open(VIEW_MEMBERS_MAX);
    uint64_t rng = 4, before;

    (void)state;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        for (uint32_t k = 0; k < VIEW_MEMBERS_MAX; k++) {
            know(f, i, k, 1 + rng_below(&rng, 1000000));
        }
    }
    look(f);
    before = rates_ring(&f->rates, f->ring, VIEW_MEMBERS_MAX);
    assert_true(better(f, 9));
    assert_ring(f);
    assert_true(rates_ring(&f->rates, f->ring, VIEW_MEMBERS_MAX) >
                before + before / RATES_GAIN);
    free(f);
}

static void a_line_is_as_fast_as_its_fastest_edge(void **state)
{
    struct butterfly_rate lines[VIEW_MEMBERS_MAX];
    uint32_t shares[VIEW_MEMBERS_MAX];
    struct fixture *f = fixture_open(4);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            know(f, i, k, i == 0 || k == 0 ? 25 : 100); /* 0 is slow */
        }
    }
    look(f);
    rates_lines(&f->rates, lines);
    assert_int_equal(lines[0].up, 25);
    assert_int_equal(lines[0].down, 25);
    assert_int_equal(lines[1].up, 100); /* although its edge to 0 is slow */
    assert_int_equal(lines[3].down, 100);
    butterfly_shares(lines, 4, shares);
    assert_int_equal(shares[0], 0);
    assert_true(shares[1] > 20000 && shares[1] == shares[3]);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rates_nothing_changes),
        cmocka_unit_test(one_sample_counts_as_nothing),
        cmocka_unit_test(a_slow_edge_is_left_for_one_that_is_not_known),
        cmocka_unit_test(a_gain_below_a_fifth_moves_nobody),
        cmocka_unit_test(a_slow_line_is_no_reason_to_move),
        cmocka_unit_test(missing_edges_are_missing_however_fast),
        cmocka_unit_test(a_hidden_fast_ring_is_found),
        cmocka_unit_test(sixty_four_members_end_in_time),
        cmocka_unit_test(a_line_is_as_fast_as_its_fastest_edge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
