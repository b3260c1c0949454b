/* replica_test.c - one DiLoCo worker: pack, apply, rebase, restore, evaluate.
 */
#include "train/replica/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/sets.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/small_run.h"

static uint8_t text[SMALL_TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    (void)state;
    small_text(text, &shard);
    return 0;
}

static struct replica_options options(uint64_t peer)
{
    return (struct replica_options){
        .model = small_model(2, 16),
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 2, 0, 0},
        .method = {.period = 3,
                   .fragments = 1,
                   .rule = {.lr = 0.7f, .mu = 0.9f}},
        .codec = codec_find("fp32"),
        .batch = 2,
        .micro_batch = 2,
        .seq = 16,
        .seed = 11,
        .peer = peer,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 512,
        .threads = 1,
    };
}

static void open_replica(struct replica *r, uint64_t peer)
{
    struct replica_options o = options(peer);

    assert_int_equal(replica_open(r, &o, errmsg), 0);
    replica_init(r);
}

static void steps(struct replica *r, int n)
{
    float loss;

    while (n-- > 0) {
        assert_int_equal(replica_step(r, &loss), 0);
    }
}

static int
take(struct replica *r, uint64_t round, const uint8_t *wire, double share)
{
    const struct replica_commit c = {round, wire, share, 0, 0};

    return replica_commit(r, &c);
}

static uint8_t *wire_of(const struct replica *a, const struct replica *b)
{
    const struct codec *c = a->opt.codec;
    uint8_t *wire = malloc(c->bytes(a->n));

    assert_non_null(wire);
    assert_int_equal(c->encode(wire, a->contribution, a->n, 0.5f), 0);
    assert_int_equal(c->add(wire, wire, b->contribution, b->n, 0.5f), 0);
    return wire;
}

/* Batch `position` of the order that all read. */
static void assert_reads(const struct replica *r, uint64_t position)
{
    uint32_t tokens[2 * 16], targets[2 * 16];
    struct loader l = r->loader;

    l.opt.peer = 0;
    assert_int_equal(loader_batch(&l, position, tokens, targets), 0);
    assert_memory_equal(r->tokens, tokens, sizeof tokens);
    assert_memory_equal(r->targets, targets, sizeof targets);
}

static void what_is_read_in_the_order_of_all_is_the_same_for_all(void **state)
{
    const uint64_t positions[] = {7, 8, 30000, 0};
    struct replica a, b;

    (void)state;
    open_replica(&a, 1);
    open_replica(&b, 2);
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        replica_read(&a, true, positions[i]);
        replica_read(&b, true, positions[i]);
        steps(&a, 1);
        steps(&b, 1);
        assert_reads(&a, positions[i]);
        assert_memory_equal(a.theta, b.theta, a.n * sizeof(float));
    }
    replica_read(&a, false, 0); /* each by its own count again */
    replica_read(&b, false, 0);
    steps(&a, 1);
    steps(&b, 1);
    assert_memory_not_equal(a.theta, b.theta, a.n * sizeof(float));
    replica_close(&a);
    replica_close(&b);
}

static void two_workers_take_the_outer_step_of_algorithm_1(void **state)
{
    struct replica a, b;
    float *phi, *m;
    uint8_t *wire;

    (void)state;
    open_replica(&a, 1);
    open_replica(&b, 2);
    assert_memory_equal(a.phi, b.phi, a.n * sizeof(float));
    phi = calloc(a.n, sizeof(float));
    m = calloc(a.n, sizeof(float));
    assert_true(phi != NULL && m != NULL);
    memcpy(phi, a.phi, a.n * sizeof(float));
    for (uint64_t round = 1; round <= 3; round++) {
        steps(&a, 3);
        steps(&b, 3);
        assert_int_equal(replica_pack(&a), 0);
        assert_int_equal(replica_pack(&b), 0);
        for (uint64_t i = 0; i < a.n; i++) {
            double g = 0.5 * ((double)a.phi[i] - a.theta[i]) +
                       0.5 * ((double)b.phi[i] - b.theta[i]);

            m[i] = (float)(0.9 * m[i] + g);
            phi[i] -= (float)(0.7 * (g + 0.9 * m[i]));
        }
        wire = wire_of(&a, &b);
        assert_int_equal(take(&a, round, wire, 0.5), 0);
        assert_int_equal(take(&b, round, wire, 0.5), 0);
        free(wire);
        assert_memory_equal(a.phi, b.phi, a.n * sizeof(float));
        assert_memory_equal(a.m, b.m, a.n * sizeof(float));
        assert_memory_equal(a.theta, a.phi, a.n * sizeof(float));
        for (uint64_t i = 0; i < a.n; i++) {
            assert_true(phi[i] - a.phi[i] <= 1e-6 && a.phi[i] - phi[i] <= 1e-6);
        }
    }
    free(phi);
    free(m);
    replica_close(&a);
    replica_close(&b);
}

static void a_late_worker_keeps_its_displacement_and_contribution(void **state)
{
    struct replica a, b;
    float *before, *contribution;
    uint8_t *wire;

    (void)state;
    open_replica(&a, 1);
    open_replica(&b, 2);
    steps(&a, 3);
    steps(&b, 3);
    assert_int_equal(replica_pack(&a), 0);
    assert_int_equal(replica_pack(&b), 0);
    wire = wire_of(&a, &a); /* a round that b is not part of */
    before = malloc(b.n * sizeof(float));
    contribution = malloc(b.n * sizeof(float));
    assert_true(before != NULL && contribution != NULL);
    memcpy(contribution, b.contribution, b.n * sizeof(float));
    assert_int_equal(take(&b, 1, wire, 0.0), 0);
    assert_int_equal(b.tokens_pending, 3 * 2 * 16);
    assert_memory_equal(b.contribution, contribution, b.n * sizeof(float));
    assert_int_equal(replica_pack(&b), 0);
    for (uint64_t i = 0; i < b.n; i++) { /* up to the rounding of two sums */
        assert_true(b.contribution[i] - contribution[i] <= 1e-6f &&
                    contribution[i] - b.contribution[i] <= 1e-6f);
    }
    free(wire);
    free(before);
    free(contribution);
    replica_close(&a);
    replica_close(&b);
}

static void state_copy(const struct replica *r, float *out)
{
    struct replica_vector at[REPLICA_STATE_MAX];
    size_t n = replica_state(r, at);

    for (size_t i = 0; i < n; i++) {
        memcpy(out, at[i].x, at[i].n * sizeof(float));
        out += at[i].n;
    }
}

static float *state_room(const struct replica *r)
{
    float *out = calloc(REPLICA_STATE_MAX * r->n, sizeof(float));

    assert_non_null(out);
    return out;
}

static void open_rule(struct replica *r, enum optimizer_rule rule)
{
    struct replica_options o = options(1);

    o.optimizer.rule = rule;
    assert_int_equal(replica_open(r, &o, errmsg), 0);
    replica_init(r);
}

static void restore(enum optimizer_rule rule)
{
    struct replica a, b;
    float *stored;

    open_rule(&a, rule);
    steps(&a, 3);
    a.optimizer.t = 2; /* as where work was undone */
    assert_int_equal(replica_pack(&a), 0);
    {
        uint8_t *wire = wire_of(&a, &a);

        assert_int_equal(take(&a, 1, wire, 0.5), 0);
        free(wire);
    }
    open_rule(&b, rule);
    stored = state_room(&a);
    state_copy(&a, stored);
    assert_int_equal(replica_restore(&b, a.round, stored, a.optimizer.u,
                                     a.optimizer.v, a.optimizer.t, a.inner_step,
                                     a.tokens_seen),
                     0);
    free(stored);
    steps(&a, 5);
    steps(&b, 5);
    assert_memory_equal(a.theta, b.theta, a.n * sizeof(float));
    assert_memory_equal(a.optimizer.u, b.optimizer.u, a.n * sizeof(float));
    assert_memory_equal(a.optimizer.v, b.optimizer.v, a.n * sizeof(float));
    assert_int_equal(a.tokens_seen, b.tokens_seen);
    replica_close(&a);
    replica_close(&b);
}

static void a_restored_worker_continues_with_the_same_bits(void **state)
{
    (void)state;
    for (int rule = 0; rule < OPTIMIZER_RULE_COUNT; rule++) {
        restore((enum optimizer_rule)rule);
    }
}

static float largest(const float *x, uint64_t n)
{
    float most = 0.0f;

    for (uint64_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];

        most = a > most ? a : most;
    }
    return most;
}

/* favg-reset: who was in the round begins the next one with moments of 0; who
 * was not goes on with its own. */
static void moments_are_reset_where_the_method_says_so(void **state)
{
    struct replica_options o = options(1);
    struct replica a, b;
    uint8_t *wire;

    (void)state;
    o.method.moments = METHOD_RESET;
    assert_int_equal(replica_open(&a, &o, errmsg), 0);
    replica_init(&a);
    open_replica(&b, 2);
    steps(&a, 3);
    steps(&b, 3);
    assert_int_equal(replica_pack(&a), 0);
    assert_int_equal(replica_pack(&b), 0);
    wire = wire_of(&a, &b);
    assert_int_equal(take(&a, 1, wire, 0.0), 0);
    assert_true(largest(a.optimizer.u, a.n) > 0.0f);
    assert_int_equal(a.optimizer.t, 3);
    assert_int_equal(take(&a, 1, wire, 0.5), 0);
    assert_int_equal(take(&b, 1, wire, 0.5), 0);
    assert_true(largest(a.optimizer.u, a.n) == 0.0f);
    assert_true(largest(a.optimizer.v, a.n) == 0.0f);
    assert_int_equal(a.optimizer.t, 0);
    assert_true(largest(b.optimizer.u, b.n) > 0.0f);
    assert_int_equal(b.optimizer.t, 3);
    free(wire);
    replica_close(&a);
    replica_close(&b);
}

static void damaged_wire_bytes_change_nothing(void **state)
{
    struct replica a;
    float *phi;
    uint8_t *wire;

    (void)state;
    open_replica(&a, 1);
    steps(&a, 3);
    assert_int_equal(replica_pack(&a), 0);
    wire = wire_of(&a, &a);
    memset(wire + 4 * 7, 0xff, 4); /* a NaN in element 7 */
    phi = malloc(a.n * sizeof(float));
    assert_non_null(phi);
    memcpy(phi, a.phi, a.n * sizeof(float));
    assert_true(take(&a, 1, wire, 0.5) < 0);
    assert_memory_equal(a.phi, phi, a.n * sizeof(float));
    assert_int_equal(a.round, 0);
    free(phi);
    free(wire);
    replica_close(&a);
}

static void training_lowers_the_held_out_bits(void **state)
{
    struct replica a;
    double before, after;

    (void)state;
    open_replica(&a, 1);
    assert_int_equal(replica_eval(&a, 0, &before), 0);
    assert_true(before > 7.5 && before < 8.5); /* a uniform guess is 8 */
    steps(&a, 60);
    memcpy(a.phi, a.theta, a.n * sizeof(float)); /* eval looks at phi */
    assert_int_equal(replica_eval(&a, 0, &after), 0);
    assert_true(after < before - 1.5);
    replica_close(&a);
}

static void kernels_are_chosen_by_name_and_missing_ones_refused(void **state)
{
    struct replica_options o = options(1);
    struct replica r;
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        o.isa = sets[i].name;
        if (kernel_set_here(&sets[i])) {
            assert_int_equal(replica_open(&r, &o, errmsg), 0);
            assert_string_equal(r.backend.isa, sets[i].name);
        } else {
            assert_int_equal(replica_open(&r, &o, errmsg), LOCO_EDEVICE);
            assert_non_null(strstr(errmsg, sets[i].name));
        }
        replica_close(&r);
    }
}

/* Of theta and the moments, after steps of every optimizer. */
static void activations_that_are_made_again_change_no_bit(void **state)
{
    (void)state;
    for (int rule = 0; rule < OPTIMIZER_RULE_COUNT; rule++) {
        size_t before = SIZE_MAX;
        struct replica r[3];
        float *moments[3];

        for (int level = 0; level <= LLAMA_RECOMPUTE_LAYERS; level++) {
            struct replica_options o = options(7);

            o.optimizer.rule = (enum optimizer_rule)rule;
            o.recompute = (enum llama_recompute)level;
            assert_true(replica_bytes(&o) < before);
            before = replica_bytes(&o);
            assert_int_equal(replica_open(&r[level], &o, errmsg), 0);
            assert_int_equal(r[level].recompute, level);
            replica_init(&r[level]);
            steps(&r[level], 3);
            moments[level] = malloc(2 * r[level].n * sizeof(float));
            assert_non_null(moments[level]);
            replica_moments(&r[level], moments[level]);
            assert_memory_equal(r[level].theta, r[0].theta,
                                r[0].n * sizeof(float));
            assert_memory_equal(moments[level], moments[0],
                                2 * r[0].n * sizeof(float));
        }
        for (int level = 0; level <= LLAMA_RECOMPUTE_LAYERS; level++) {
            free(moments[level]);
            replica_close(&r[level]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_that_are_made_again_change_no_bit),
        cmocka_unit_test(two_workers_take_the_outer_step_of_algorithm_1),
        cmocka_unit_test(what_is_read_in_the_order_of_all_is_the_same_for_all),
        cmocka_unit_test(a_late_worker_keeps_its_displacement_and_contribution),
        cmocka_unit_test(a_restored_worker_continues_with_the_same_bits),
        cmocka_unit_test(moments_are_reset_where_the_method_says_so),
        cmocka_unit_test(damaged_wire_bytes_change_nothing),
        cmocka_unit_test(training_lowers_the_held_out_bits),
        cmocka_unit_test(kernels_are_chosen_by_name_and_missing_ones_refused),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
