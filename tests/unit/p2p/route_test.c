/* route_test.c - routes of micro-batches, and who changes its stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/pipeline/route.h"

/* Algorithms page, appendix V: R = 4, seed 42, epoch 1, step 0. */
static void random_routes_are_those_of_the_published_vectors(void **state)
{
    static const uint32_t hops[2][4] = {{1, 2, 0, 3}, {1, 0, 2, 3}};
    static const uint32_t ends[2][4] = {{0, 2, 1, 3}, {1, 2, 0, 3}};
    const struct route_draw d = {.seed = 42, .epoch = 1};
    const uint32_t hosts[3] = {4, 4, 4};

    (void)state;
    for (uint32_t c = 0; c < 4; c++) {
        assert_int_equal(route_next(&d, 0, 1, 4, 4, c), hops[0][c]);
        assert_int_equal(route_next(&d, 0, 2, 4, 4, c), hops[1][c]);
        for (uint64_t mb = 0; mb < 2; mb++) {
            uint32_t path[3];

            route_path(&d, mb, hosts, 3, c, path);
            assert_int_equal(path[0], c);
            assert_int_equal(path[2], ends[mb][c]);
        }
    }
}

static void every_host_gets_as_many_as_the_others_or_one_more(void **state)
{
    (void)state;
    for (uint32_t n_from = 1; n_from <= 9; n_from++) {
        for (uint32_t n_to = 1; n_to <= 9; n_to++) {
            for (uint64_t step = 0; step < 20; step++) {
                const struct route_draw d = {7, 3, step, false};
                uint32_t got[9] = {0}, least = 99, most = 0;

                for (uint32_t h = 0; h < n_from; h++) {
                    uint32_t to = route_next(&d, 1, 2, n_from, n_to, h);

                    assert_true(to < n_to);
                    got[to]++;
                }
                for (uint32_t h = 0; h < n_to; h++) {
                    least = got[h] < least ? got[h] : least;
                    most = got[h] > most ? got[h] : most;
                }
                assert_true(most - least <= 1);
            }
        }
    }
}

/* All pairs of neighbours meet, also where the sides differ. */
static void in_time_everybody_sends_to_everybody(void **state)
{
    (void)state;
    for (uint32_t n_to = 1; n_to <= 5; n_to++) {
        bool met[4][5] = {{false}};

        for (uint64_t step = 0; step < 200; step++) {
            const struct route_draw d = {1, 1, step, false};

            for (uint32_t h = 0; h < 4; h++) {
                met[h][route_next(&d, 0, 1, 4, n_to, h)] = true;
            }
        }
        for (uint32_t h = 0; h < 4; h++) {
            for (uint32_t k = 0; k < n_to; k++) {
                assert_true(met[h][k]);
            }
        }
    }
}

static void fixed_routes_stay(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 10; step++) {
        const struct route_draw d = {1, 1, step, true};

        assert_int_equal(route_next(&d, step, 1, 4, 4, 3), 3);
        assert_int_equal(route_next(&d, step, 1, 4, 3, 3), 0);
    }
}

static void the_idlest_host_moves_to_the_busiest_stage(void **state)
{
    /* Page, section 7: p2 moves to stage 1. */
    const struct route_queue table[] = {{0, 2}, {0, 1}, {1, 9}, {1, 8}, {2, 4}};
    uint32_t to;

    (void)state;
    assert_int_equal(route_moves(table, 5, 3, &to), 1);
    assert_int_equal(to, 1);
}

static void nobody_moves_where_it_would_not_help(void **state)
{
    const struct route_queue even[] = {{0, 2}, {0, 2}, {1, 4}};
    const struct route_queue last[] = {{0, 1}, {1, 9}, {1, 9}};
    const struct route_queue strange[] = {{7, 1}, {9, 9}};
    uint32_t to;

    (void)state;
    assert_int_equal(route_moves(even, 3, 2, &to), ROUTE_NONE);
    assert_int_equal(route_moves(last, 3, 2, &to), ROUTE_NONE);
    assert_int_equal(route_moves(strange, 2, 2, &to), ROUTE_NONE);
    assert_int_equal(route_moves(even, 0, 2, &to), ROUTE_NONE);
    assert_int_equal(route_moves(even, 3, 0, &to), ROUTE_NONE);
    assert_int_equal(route_moves(even, 3, 65, &to), ROUTE_NONE);
}

static void a_stage_that_nobody_serves_gets_a_host_first(void **state)
{
    const struct route_queue table[] = {{0, 0}, {1, 5}, {1, 3}, {3, 50}};
    uint32_t to;

    (void)state;
    /* Stage 0 waits least, but its only host stays. */
    assert_int_equal(route_moves(table, 4, 4, &to), 2);
    assert_int_equal(to, 2);
    /* One host for all stages goes nowhere. */
    assert_int_equal(route_moves(table, 1, 2, &to), ROUTE_NONE);
}

/* By steps of one host a period; a stage's queue is its work over its hosts. */
static void moves_bring_hosts_to_where_the_work_is(void **state)
{
    static const uint32_t work[3] = {60, 30, 10};
    struct route_queue q[20];
    uint32_t hosts[3], to, moves = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        q[i].stage = 0;
    }
    for (; moves < 100; moves++) {
        uint32_t who;

        memset(hosts, 0, sizeof hosts);
        for (int i = 0; i < 20; i++) {
            hosts[q[i].stage]++;
        }
        for (int i = 0; i < 20; i++) {
            uint32_t s = q[i].stage;
            /* What waits per stage, shared out among its hosts. */
            uint32_t waiting = work[s] * 20 / (hosts[s] * hosts[s]);

            q[i].waiting = waiting;
        }
        who = route_moves(q, 20, 3, &to);
        if (who == ROUTE_NONE) {
            break;
        }
        q[who].stage = to;
    }
    assert_true(hosts[0] > hosts[1] && hosts[1] > hosts[2] && hosts[2] >= 1);
}

/* For any costs: no host is done later than the last of the others and one
 * micro-batch more; who is twice as fast has twice as many. */
static void what_is_dealt_is_done_at_the_same_time(void **state)
{
    static const uint32_t cost[3] = {400, 200, 100};
    uint8_t host[70];
    uint32_t count[3] = {0};

    (void)state;
    for (uint64_t step = 0; step < 50; step++) {
        const struct route_draw d = {7, 3, step, false};

        memset(count, 0, sizeof count);
        route_deal(&d, 1, cost, 3, 70, host);
        for (uint32_t i = 0; i < 70; i++) {
            assert_true(host[i] < 3);
            count[host[i]]++;
        }
        assert_int_equal(count[0], 10);
        assert_int_equal(count[1], 20);
        assert_int_equal(count[2], 40);
    }
}

static void no_host_is_dealt_more_than_its_bound(void **state)
{
    uint32_t cost[16] = {1};
    const struct route_draw d = {7, 3, 1, false};
    uint8_t host[33];
    uint32_t count = 0;

    (void)state;
    for (uint32_t h = 1; h < 16; h++) {
        cost[h] = UINT32_MAX;
    }
    route_deal(&d, 1, cost, 16, 33, host);
    for (uint32_t i = 0; i < 33; i++) {
        count += host[i] == 0;
    }
    assert_int_equal(count, ROUTE_TIMES_MAX * 3); /* 33 / 16, rounded up */
}

/* Hosts of two stages, as fast as each other: no two are a pair for ever. */
static void dealt_routes_meet_all_in_time(void **state)
{
    static const uint32_t cost[3] = {100, 150, 220};
    uint32_t met[3][3] = {{0}};

    (void)state;
    for (uint64_t step = 0; step < 100; step++) {
        const struct route_draw d = {7, 3, step, false};
        uint8_t from[12], to[12];

        route_deal(&d, 0, cost, 3, 12, from);
        route_deal(&d, 1, cost, 3, 12, to);
        for (uint32_t i = 0; i < 12; i++) {
            met[from[i]][to[i]]++;
        }
    }
    for (uint32_t i = 0; i < 9; i++) {
        assert_true(met[i / 3][i % 3] > 25); /* of 1,200; alike: 133 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_routes_are_those_of_the_published_vectors),
        cmocka_unit_test(every_host_gets_as_many_as_the_others_or_one_more),
        cmocka_unit_test(in_time_everybody_sends_to_everybody),
        cmocka_unit_test(fixed_routes_stay),
        cmocka_unit_test(the_idlest_host_moves_to_the_busiest_stage),
        cmocka_unit_test(nobody_moves_where_it_would_not_help),
        cmocka_unit_test(a_stage_that_nobody_serves_gets_a_host_first),
        cmocka_unit_test(moves_bring_hosts_to_where_the_work_is),
        cmocka_unit_test(what_is_dealt_is_done_at_the_same_time),
        cmocka_unit_test(no_host_is_dealt_more_than_its_bound),
        cmocka_unit_test(dealt_routes_meet_all_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
