/* engine_source_test.c - a mean that is made while the rule reads it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "train/sync/engine.h"

#define N (2 * ENGINE_WINDOW + 100)

static const struct method diloco = {
    .group = METHOD_ALL,
    .period = 1,
    .fragments = 1,
    .rule = {.form = RULE_NESTEROV, .lr = 0.7F, .mu = 0.9F},
};
static const struct stream_turn turn = {0, 0};

struct vectors {
    float theta[N], phi[N], m[N], next_phi[N], next_m[N];
};

/* Where the mean comes from, and what is wrong with its last window. */
struct mean {
    float x[N];
    uint64_t at; /* brought so far */
    int rc;
    float last;
};

static struct vectors one, two;
static struct mean mean;

static void begin(struct engine *e, struct vectors *v)
{
    engine_init(e, &diloco, NULL, N, 2);
    e->theta = v->theta;
    e->phi = v->phi;
    e->m = v->m;
    for (size_t i = 0; i < N; i++) {
        v->theta[i] = 1.0F / (float)(i + 1);
        v->next_phi[i] = v->next_m[i] = -1;
    }
    engine_start(e);
    for (size_t i = 0; i < N; i++) {
        v->m[i] = (float)(i % 7) * 0.1F;
        mean.x[i] = (float)(i % 13) * 0.01F - 0.05F;
    }
    mean.at = 0;
    mean.rc = 0;
    mean.last = mean.x[N - 1];
}

static int bring(void *self, uint64_t at, uint64_t n, float *out)
{
    struct mean *s = self;

    assert_int_equal(at, s->at);
    assert_int_equal(at % ENGINE_WINDOW, 0);
    assert_true(n > 0 && n <= ENGINE_WINDOW && at + n <= N);
    s->at += n;
    memcpy(out, s->x + at, n * sizeof *out);
    if (at + n < N) {
        return 0;
    }
    out[n - 1] = s->last;
    return s->rc;
}

static int apply_from(struct engine *e)
{
    const struct engine_average a = {NULL, 0.5, 1};
    const struct engine_source source = {bring, &mean};

    assert_true(engine_streams_mean(e, 0, &turn));
    return engine_apply_from(e, 0, &turn, &a, &source);
}

static void it_gives_the_bits_of_a_mean_in_memory(void **state)
{
    const struct engine_average a = {mean.x, 0.5, 1};

    (void)state;
    for (int exchanges = 0; exchanges < 2; exchanges++) {
        struct engine e, f;

        begin(&e, &one);
        begin(&f, &two);
        assert_false(engine_streams_mean(&e, 0, &turn)); /* nothing beside */
        f.next_phi = two.next_phi;
        f.next_m = two.next_m;
        f.exchanges = exchanges == 1;
        for (int round = 0; round < 3; round++) {
            mean.at = 0;
            assert_int_equal(engine_apply(&e, 0, &turn, &a), 0);
            assert_int_equal(apply_from(&f), 0);
            assert_int_equal(mean.at, N);
            assert_memory_equal(e.phi, f.phi, sizeof one.phi);
            assert_memory_equal(e.m, f.m, sizeof one.m);
            assert_memory_equal(e.theta, f.theta, sizeof one.theta);
        }
        /* An odd number of exchanges. */
        assert_ptr_equal(f.phi, exchanges == 1 ? two.next_phi : two.phi);
        assert_ptr_equal(f.m, exchanges == 1 ? two.next_m : two.m);
        assert_ptr_equal(f.next_phi, exchanges == 1 ? two.phi : two.next_phi);
        assert_ptr_equal(f.next_m, exchanges == 1 ? two.m : two.next_m);
    }
}

static void what_fails_in_the_last_window_leaves_everything(void **state)
{
    static struct vectors before;

    (void)state;
    for (int numeric = 0; numeric < 2; numeric++) {
        struct engine e;

        begin(&e, &two);
        e.next_phi = two.next_phi;
        e.next_m = two.next_m;
        e.exchanges = true;
        before = two;
        mean.rc = numeric == 1 ? 0 : LOCO_EPROTO;
        mean.last = numeric == 1 ? INFINITY : 0;
        assert_int_equal(apply_from(&e),
                         numeric == 1 ? LOCO_ENUMERIC : LOCO_EPROTO);
        assert_ptr_equal(e.phi, two.phi);
        assert_ptr_equal(e.m, two.m);
        assert_memory_equal(two.phi, before.phi, sizeof before.phi);
        assert_memory_equal(two.m, before.m, sizeof before.m);
        assert_memory_equal(two.theta, before.theta, sizeof before.theta);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_the_bits_of_a_mean_in_memory),
        cmocka_unit_test(what_fails_in_the_last_window_leaves_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
