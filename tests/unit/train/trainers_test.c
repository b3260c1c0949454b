/* trainers_test.c - several models in one round: whose mean is whose, who works
 * for whom, mergers; with numbers that nobody should send. */
#include "train/sync/trainers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

#define N     1000
#define PEERS 5

static const struct rule plain = {.lr = 0.5F};

static struct trainers of(uint32_t count, uint32_t every, uint64_t n)
{
    return (struct trainers){
        .count = count, .merge_every = every, .most = 1024, .block = 8, .n = n};
}

static void trainers_become_fewer_by_the_number_of_the_round(void **state)
{
    const struct trainers t = of(3, 4, 10), never = of(3, 0, 10),
                          one = of(1, 4, 10);
    static const uint32_t want[] = {3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1};

    (void)state;
    for (uint64_t r = 1; r <= 13; r++) {
        assert_int_equal(trainers_in(&t, r), want[r - 1]);
        assert_int_equal(trainers_in(&never, r), 3);
        assert_int_equal(trainers_in(&one, r), 1);
    }
    assert_int_equal(trainers_rounds(&t), 8);
    /* Sections of 16, shares in a block of 8, as many requests. */
    assert_int_equal(trainers_elements(&t, 1), 3 * 16 + 8 + 3);
    assert_int_equal(trainers_elements(&t, 8), 2 * 16 + 8 + 2);
    assert_int_equal(trainers_elements(&t, 9), 16 + 1);
    assert_int_equal(trainers_most(&t), trainers_elements(&t, 1));
    assert_int_equal(trainers_elements(&t, UINT64_MAX), 16 + 1);
}

/* algorithms page 10.4: b (12,3,5,20), x ([1,0],[2,2],[0,4],[5,5]) -> the
 * second and the third, [.75,3.25]. */
static void the_page_merges_as_here(void **state)
{
    const struct trainers t = of(4, 1, 2);
    float anchors[8] = {1, 0, 2, 2, 0, 4, 5, 5};
    float numbers[8] = {12, 3, 5, 20, 1, 1, 1, 1};
    float mean[64];
    static const float x[8] = {1, 0, 0.75F, 3.25F, 5, 5, 0, 0};
    static const uint32_t moved[4] = {0, 1, 1, 2};

    (void)state;
    for (uint32_t own = 0; own < 4; own++) {
        float a[8], b[8];

        memcpy(a, anchors, sizeof a);
        memcpy(b, numbers, sizeof b);
        memset(mean, 0, sizeof mean); /* nobody contributed: all rest */
        assert_int_equal(trainers_step(&t, &plain, 1, mean, a, b), 0);
        assert_int_equal(trainers_take(&t, 1, mean, a, b, own), moved[own]);
        assert_memory_equal(a, x, sizeof x);
        assert_true(b[0] == 12 && b[1] == 5 && b[2] == 20 && b[3] == 0);
        assert_memory_equal(b, b + 4, 4 * sizeof *b); /* the new demand */
    }
}

/* 8 nodes, demand 12, 8, 20 -> 3, 1, 4. */
static void peers_go_where_the_demand_is(void **state)
{
    const struct trainers t = of(3, 4, 2);
    const float numbers[6] = {99, 99, 99, 12, 8, 20};
    uint32_t count[3] = {0};

    (void)state;
    for (uint32_t rank = 0; rank < 8; rank++) {
        count[trainers_assign(&t, numbers, 1, 8, rank)]++;
    }
    assert_int_equal(count[0], 3);
    assert_int_equal(count[1], 1);
    assert_int_equal(count[2], 4);
    /* Two peers: those that ask for most; whatever the rank says, one of them.
     */
    assert_int_equal(trainers_assign(&t, numbers, 1, 2, 0), 0);
    assert_int_equal(trainers_assign(&t, numbers, 1, 2, 1), 2);
    assert_int_equal(trainers_assign(&t, numbers, 1, 1, 7), 2);
    assert_int_equal(trainers_assign(&t, numbers, 1, 0, 0), 2);
    assert_int_equal(trainers_assign(&t, numbers, 9, 8, 5), 0); /* one left */
}

struct round {
    struct trainers t;
    float *anchors, numbers[2 * TRAINERS_MAX];
    float *g[PEERS], *mean;
    uint32_t trainer[PEERS], request[PEERS];
    double weight[PEERS];
};

static void round_open(struct round *r, uint32_t count, const char *wire)
{
    uint64_t seed = 7, n;

    r->t = of(count, 0, N);
    r->t.block = codec_find(wire)->block;
    n = trainers_most(&r->t);
    r->anchors = calloc(count * N, sizeof *r->anchors);
    r->mean = calloc(n, sizeof *r->mean);
    assert_non_null(r->anchors);
    assert_non_null(r->mean);
    for (uint32_t i = 0; i < count * N; i++) {
        r->anchors[i] = rng_float(&seed) - 0.5F;
    }
    trainers_begin(&r->t, r->numbers, 2);
    for (uint32_t p = 0; p < PEERS; p++) {
        r->trainer[p] = trainers_assign(&r->t, r->numbers, 1, PEERS, p);
        r->request[p] = 3 + 2 * p;
        r->weight[p] = 1.0 + p % 3;
        r->g[p] = calloc(n, sizeof **r->g);
        assert_non_null(r->g[p]);
        trainers_fill(&r->t, 1, r->trainer[p], r->request[p], r->g[p]);
        for (uint32_t i = 0; i < N; i++) {
            r->g[p][trainers_section(&r->t, r->trainer[p]) + i] =
                0.01F * (rng_float(&seed) - 0.5F);
        }
    }
}

static void round_close(struct round *r)
{
    for (uint32_t p = 0; p < PEERS; p++) {
        free(r->g[p]);
    }
    free(r->anchors);
    free(r->mean);
}

/* As a ring does it: partial sums in the wire's type. */
static void exchange(struct round *r, const char *wire)
{
    const struct codec *c = codec_find(wire);
    size_t n = (size_t)trainers_elements(&r->t, 1);
    uint8_t *bytes = malloc(c->bytes(n)), *next = malloc(c->bytes(n));
    double all = 0;

    assert_non_null(bytes);
    assert_non_null(next);
    for (uint32_t p = 0; p < PEERS; p++) {
        all += r->weight[p];
    }
    assert_int_equal(c->encode(bytes, r->g[0], n, (float)(r->weight[0] / all)),
                     0);
    for (uint32_t p = 1; p < PEERS; p++) {
        struct codec_op op = {
            .own = r->g[p], .n = n, .scale = (float)(r->weight[p] / all)};

        assert_int_equal(c->add_op(next, bytes, &op), 0);
        memcpy(bytes, next, c->bytes(n));
    }
    assert_int_equal(c->decode(r->mean, bytes, n), 0);
    free(bytes);
    free(next);
}

/* The mean over a trainer's own peers, by their weights, in double. */
static double wanted(const struct round *r, uint32_t trainer, uint32_t i)
{
    uint64_t at = trainers_section(&r->t, trainer) + i;
    double sum = 0, all = 0;

    for (uint32_t p = 0; p < PEERS; p++) {
        if (r->trainer[p] == trainer) {
            sum += r->weight[p] * (double)r->g[p][at];
            all += r->weight[p];
        }
    }
    return (double)r->anchors[trainer * N + i] - 0.5 * sum / all;
}

static void each_trainer_steps_with_the_mean_of_its_own(void **state)
{
    static const struct {
        const char *wire;
        double within; /* of a displacement of up to 0.005, times 0.5 */
    } rows[] = {{"fp32", 1e-7}, {"fp16", 1e-5}, {"bf16", 8e-5}};

    (void)state;
    for (uint32_t count = 1; count <= 3; count++) {
        for (size_t w = 0; w < 3; w++) {
            struct round r;

            round_open(&r, count, rows[w].wire);
            exchange(&r, rows[w].wire);
            assert_int_equal(
                trainers_step(&r.t, &plain, 1, r.mean, r.anchors, r.numbers),
                0);
            for (uint32_t k = 0; k < count; k++) {
                for (uint32_t i = 0; i < N; i++) {
                    double x = (double)r.mean[trainers_section(&r.t, k) + i];

                    assert_true(fabs(x - wanted(&r, k, i)) < rows[w].within);
                }
            }
            round_close(&r);
        }
    }
}

static void requests_are_the_mean_of_the_own_and_never_shrink(void **state)
{
    static const char *const wires[] = {"fp32", "fp16", "bf16"};

    (void)state;
    for (size_t w = 0; w < 3; w++) {
        for (uint32_t ask = 1; ask <= 200; ask += 7) {
            struct round r;

            round_open(&r, 2, wires[w]);
            for (uint32_t p = 0; p < PEERS; p++) {
                trainers_fill(&r.t, 1, r.trainer[p], ask, r.g[p]);
            }
            exchange(&r, wires[w]);
            assert_int_equal(
                trainers_step(&r.t, &plain, 1, r.mean, r.anchors, r.numbers),
                0);
            (void)trainers_take(&r.t, 1, r.mean, r.anchors, r.numbers, 0);
            for (uint32_t k = 0; k < 2; k++) {
                uint32_t got = trainers_request(&r.t, r.numbers, k);

                if (ask < 2) {
                    assert_int_equal(got, 2);
                } else { /* bf16 keeps 8 bits */
                    assert_true(abs((int)got - (int)ask) <= (int)ask / 100);
                }
            }
            round_close(&r);
        }
    }
}

static void a_trainer_without_contributions_rests(void **state)
{
    struct round r;
    float before[N];

    (void)state;
    round_open(&r, 3, "fp16");
    for (uint32_t p = 0; p < PEERS; p++) {
        if (r.trainer[p] == 1) {
            memset(r.g[p], 0, trainers_most(&r.t) * sizeof **r.g);
        }
    }
    memcpy(before, r.anchors + N, sizeof before);
    exchange(&r, "fp16");
    assert_int_equal(
        trainers_step(&r.t, &plain, 1, r.mean, r.anchors, r.numbers), 0);
    (void)trainers_take(&r.t, 1, r.mean, r.anchors, r.numbers, 0);
    assert_memory_equal(before, r.anchors + N, sizeof before);
    assert_int_equal(trainers_request(&r.t, r.numbers, 1), 2);
    assert_true(trainers_request(&r.t, r.numbers, 0) > 2);
    round_close(&r);
}

/* algorithms page 12, identity 11. */
static void one_trainer_is_diloco(void **state)
{
    struct round r;
    float *mean, phi[N];
    struct outer_state in = {phi, NULL};

    (void)state;
    round_open(&r, 1, "fp16");
    exchange(&r, "fp16");
    mean = malloc(N * sizeof *mean);
    assert_non_null(mean);
    memcpy(mean, r.mean, N * sizeof *mean);
    memcpy(phi, r.anchors, sizeof phi);
    assert_int_equal(
        trainers_step(&r.t, &plain, 1, r.mean, r.anchors, r.numbers), 0);
    assert_int_equal(rule_apply(&plain, &in, &in, mean, N), 0);
    assert_memory_equal(r.mean, phi, sizeof phi);
    free(mean);
    round_close(&r);
}

static void numbers_that_are_none_change_nothing(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct trainers t = of(2, 1, 2);
    float anchors[4] = {1, 2, 3, 4}, numbers[4] = {5, 6, 5, 6};
    uint64_t n = trainers_elements(&t, 1);

    (void)state;
    for (size_t b = 0; b < 3; b++) {
        for (uint64_t i = 0; i < n; i++) {
            float mean[64] = {0};
            float a[4], m[4];

            trainers_fill(&t, 1, 0, 9, mean);
            mean[8 + 8] = mean[8 + 8 + 1] = 0.5F; /* shares of both */
            mean[i] = bad[b];
            memcpy(a, anchors, sizeof a);
            memcpy(m, numbers, sizeof m);
            if (trainers_step(&t, &plain, 1, mean, a, m) == 0) {
                (void)trainers_take(&t, 1, mean, a, m, 0);
                for (int k = 0; k < 4; k++) {
                    assert_true(isfinite(a[k]) && isfinite(m[k]));
                }
            } else {
                assert_memory_equal(a, anchors, sizeof a);
                assert_memory_equal(m, numbers, sizeof m);
            }
        }
    }
}

/* A run may begin with a larger batch than its trainers can ask for. */
static void the_first_request_is_one_that_the_run_allows(void **state)
{
    const struct trainers t = of(2, 0, 1);
    float numbers[4];

    (void)state;
    trainers_begin(&t, numbers, 1024);
    assert_int_equal(trainers_request(&t, numbers, 0), 1024);
    trainers_begin(&t, numbers, 2000);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(trainers_request(&t, numbers, k), 1024);
        assert_int_equal(trainers_request(&t, numbers + 2, k), 1024);
    }
}

static void nobody_can_ask_for_more_than_the_run_allows(void **state)
{
    const struct trainers t = of(2, 0, 1);
    static const float asked[] = {1e30F, -1e30F, 1e9F, -5.0F, 0.4F};

    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        float anchors[2] = {0}, numbers[4] = {3, 3, 3, 3}, mean[64] = {0};
        uint32_t got;

        trainers_fill(&t, 1, 0, 4, mean);
        mean[24] = asked[i];
        assert_int_equal(trainers_step(&t, &plain, 1, mean, anchors, numbers),
                         0);
        (void)trainers_take(&t, 1, mean, anchors, numbers, 0);
        got = trainers_request(&t, numbers, 0);
        assert_int_equal(got, asked[i] > 1000 ? 1024 : 3);
        assert_int_equal(trainers_request(&t, numbers, 1), 3);
    }
    assert_int_equal(trainers_request(&t, (const float[]){NAN, 0, 0, 0}, 0), 1);
    assert_int_equal(trainers_request(&t, (const float[]){-3, 0, 0, 0}, 0), 1);
    assert_int_equal(trainers_request(&t, (const float[]){1e9F, 0, 0, 0}, 0),
                     1);
    assert_int_equal(trainers_request(&t, (const float[]){7, 0, 0, 0}, 5), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainers_become_fewer_by_the_number_of_the_round),
        cmocka_unit_test(the_page_merges_as_here),
        cmocka_unit_test(peers_go_where_the_demand_is),
        cmocka_unit_test(each_trainer_steps_with_the_mean_of_its_own),
        cmocka_unit_test(requests_are_the_mean_of_the_own_and_never_shrink),
        cmocka_unit_test(a_trainer_without_contributions_rests),
        cmocka_unit_test(one_trainer_is_diloco),
        cmocka_unit_test(numbers_that_are_none_change_nothing),
        cmocka_unit_test(the_first_request_is_one_that_the_run_allows),
        cmocka_unit_test(nobody_can_ask_for_more_than_the_run_allows),
    };

    return cmocka_run_group_tests_name("trainers", tests, NULL, NULL);
}
