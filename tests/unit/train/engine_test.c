/* engine_test.c - every method on a toy problem against the vectors.
 *
 * Worker i has f_i(x) = |x - c_i|^2 / 2 in two dimensions (algorithms page
 * 0.6). Workers step in turn, averages are exact means. engine_double_test.c
 * compiles this file and the engine once more with double in place of float
 * and asks for 1e-12 instead of 1e-6.
 */
#ifndef ENGINE_TOLERANCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ENGINE_TOLERANCE 1e-6
#endif

#include "proto/base/pairing.h"
#include "tests/unit/train/vectors.h"
#include "train/sync/engine.h"
#include "train/sync/pair_mean.h"

#define R(x)    ((float)(x)) /* a setting in the precision of this build */
#define TOY_MAX 4

enum toy_inner { TOY_SGD, TOY_ADAM, TOY_ADAMW, TOY_SGDM };

struct worker {
    struct engine e;
    float theta[2], grad[2], u[2], v[2], phi[2], m[2], sum[2], base[2], sent[2],
        own[2], own_m[2], wire[2];
    double count; /* of Adam's steps */
};

struct toy {
    struct worker w[TOY_MAX];
    uint32_t n;
    enum toy_inner inner;
    double lr, b1, b2;
    bool before; /* average before the update, the literal DES-LOC */
    uint64_t pair_round;
};

static const double toy_centre[TOY_MAX][2] = {
    {3.0, 1.0}, {-1.0, 2.5}, {0.5, -1.0}, {2.0, 4.5}};

static void assert_near(double got, double want)
{
    double scale = fabs(want) > 1.0 ? fabs(want) : 1.0;

    if (!(fabs(got - want) <= ENGINE_TOLERANCE * scale)) {
        fail_msg("%.15g instead of %.15g", got, want);
    }
}

static void assert_pair(const float x[2], const json_t *want)
{
    assert_near((double)x[0], vector_number(vector_at(want, 0)));
    assert_near((double)x[1], vector_number(vector_at(want, 1)));
}

static void toy_open(struct toy *toy, const struct method *m, uint32_t n)
{
    char errmsg[256] = "";

    if (method_check(m, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct worker *w = &toy->w[i];

        memset(w, 0, sizeof *w);
        engine_init(&w->e, m, NULL, 2, n);
        w->e.theta = w->theta;
        w->e.grad = w->grad;
        w->e.u = w->u;
        w->e.v = w->v;
        unsigned needs = engine_needs(m);
        w->e.phi = needs & ENGINE_PHI ? w->phi : NULL;
        w->e.m = needs & ENGINE_M ? w->m : NULL;
        w->e.sum = needs & ENGINE_SUM ? w->sum : NULL;
        w->e.base = needs & ENGINE_BASE ? w->base : NULL;
        w->e.sent = needs & ENGINE_SENT ? w->sent : NULL;
        w->e.own = needs & ENGINE_OWN ? w->own : NULL;
        w->e.own_m = needs & ENGINE_OWN_M ? w->own_m : NULL;
        w->theta[0] = R(0.5);
        w->theta[1] = R(-2.0);
        engine_start(&w->e);
    }
    toy->n = n;
}

static void toy_gradient(struct worker *w, uint32_t i)
{
    for (int k = 0; k < 2; k++) {
        w->grad[k] = w->theta[k] - R(toy_centre[i][k]);
    }
}

static void toy_update(const struct toy *toy, struct worker *w)
{
    const float lr = R(toy->lr), b1 = R(toy->b1), b2 = R(toy->b2);
    const float one = R(1.0), eps = R(1e-8);

    w->count += 1.0;
    for (int k = 0; k < 2; k++) {
        float g = w->grad[k];

        if (toy->inner == TOY_SGD) {
            w->theta[k] -= lr * g;
            continue;
        }
        w->u[k] = b1 * w->u[k] + (one - b1) * g;
        if (toy->inner == TOY_SGDM) {
            w->theta[k] -= lr * w->u[k];
            continue;
        }
        w->v[k] = b2 * w->v[k] + (one - b2) * g * g;
        if (toy->inner == TOY_ADAM) {
            w->theta[k] -= lr * w->u[k] / (R(sqrt((double)w->v[k])) + eps);
            continue;
        }
        double c1 = 1.0 - pow(toy->b1, w->count);
        double c2 = 1.0 - pow(toy->b2, w->count);
        float root = R(sqrt((double)w->v[k] / c2));
        w->theta[k] -=
            lr * R(0.1) * w->theta[k] + lr * (w->u[k] / R(c1)) / (root + eps);
    }
}

static void
toy_mean(const struct toy *toy, float out[2], size_t offset_of_vector)
{
    for (int k = 0; k < 2; k++) {
        float sum = 0;

        for (uint32_t i = 0; i < toy->n; i++) {
            const float *x =
                (const float *)(const void *)((const char *)&toy->w[i] +
                                              offset_of_vector);
            sum += x[k];
        }
        out[k] = sum / R(toy->n);
    }
}

/* All begin a turn together: average, and apply what is due. */
static void toy_turns(struct toy *toy)
{
    const struct engine *first = &toy->w[0].e;

    for (size_t s = 0; s < first->n_streams; s++) {
        struct stream_turn turn;
        float mean[2];
        struct engine_average a = {mean, 1.0 / toy->n, 1};
        bool begins = engine_begins(first, s, &turn);

        if (first->streams[s].tensor == STREAM_GRADIENT || !begins) {
            continue;
        }
        assert_true(engine_len(first, s, &turn) == 2);
        for (uint32_t i = 0; i < toy->n; i++) {
            struct worker *w = &toy->w[i];
            assert_int_equal(engine_pack(&w->e, s, &turn, w->wire), 0);
        }
        toy_mean(toy, mean, offsetof(struct worker, wire));
        for (uint32_t i = 0; i < toy->n; i++) {
            assert_int_equal(engine_apply(&toy->w[i].e, s, &turn, &a), 0);
            if (toy->w[i].e.moments_reset) {
                toy->w[i].count = 0;
                toy->w[i].e.moments_reset = false;
            }
        }
    }
}

/* One inner step of every worker and what follows. */
static void toy_step(struct toy *toy)
{
    for (uint32_t i = 0; i < toy->n; i++) {
        toy_gradient(&toy->w[i], i);
    }
    if (toy->w[0].e.method.gradients) {
        float mean[2];

        toy_mean(toy, mean, offsetof(struct worker, grad));
        for (uint32_t i = 0; i < toy->n; i++) {
            memcpy(toy->w[i].grad, mean, sizeof mean);
        }
    }
    if (toy->before) {
        toy_turns(toy);
    }
    for (uint32_t i = 0; i < toy->n; i++) {
        toy_update(toy, &toy->w[i]);
        engine_step(&toy->w[i].e);
    }
    if (!toy->before) {
        toy_turns(toy);
    }
}

/* ---- synchronous methods ----------------------------------------------- */

static void ddp_gives_its_vectors(void **state)
{
    const struct method m = {.gradients = true, .fragments = 1};
    const json_t *want = vector_of("DDP-SGD M=2 (c0,c1) lr=.1 from [.5,-2]");
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};

    (void)state;
    toy_open(&toy, &m, 2);
    for (size_t t = 0; t < 3; t++) {
        toy_step(&toy);
        assert_pair(toy.w[0].theta, vector_at(want, t));
        assert_memory_equal(toy.w[0].theta, toy.w[1].theta,
                            sizeof toy.w[0].theta);
    }
}

static struct method anchored(uint32_t period, double lr, double mu)
{
    struct method m = {.period = period, .fragments = 1};

    m.rule.lr = R(lr);
    m.rule.mu = R(mu);
    return m;
}

static void check_diloco(const char *key, const struct method *m, double sign)
{
    const json_t *want = vector_of(key);
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};

    toy_open(&toy, m, 2);
    for (size_t t = 0; t < 3; t++) {
        const json_t *round = vector_at(want, t);
        float delta[2];

        toy_step(&toy);
        toy_step(&toy);
        toy_mean(&toy, delta, offsetof(struct worker, wire));
        assert_pair(delta, vector_field(round, "Delta"));
        assert_pair(toy.w[0].phi, vector_field(round, "theta"));
        assert_pair(toy.w[1].theta, vector_field(round, "theta"));
        if (m->rule.mu != 0) {
            const json_t *momentum = vector_field(round, "m");
            for (size_t k = 0; k < 2; k++) {
                assert_near(sign * (double)toy.w[1].m[k],
                            vector_number(vector_at(momentum, k)));
            }
        }
    }
}

static void diloco_gives_its_vectors(void **state)
{
    struct method m = anchored(2, 0.7, 0.9);

    (void)state;
    check_diloco("DiLoCo M=2 H=2 innerSGD .1 outer Nesterov(.7,.9)", &m, 1.0);
    m = anchored(2, 1.0, 0.0);
    check_diloco("DiLoCo lr=1 mu=0 (=LocalSGD)", &m, 1.0);
    m = anchored(2, 0.7, 0.3);
    m.rule.form = RULE_HEAVY_BALL;
    check_diloco("DiLoCo heavy-ball (NoLoCo repo) beta=.7 alpha=.3", &m, -1.0);
}

static void local_sgd_gives_its_vectors(void **state)
{
    const struct method m = anchored(2, 1.0, 0.0);
    const json_t *want = vector_of("LocalSGD M=2 H=2 lr=.1: rounds 1..3");
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};

    (void)state;
    toy_open(&toy, &m, 2);
    for (size_t t = 0; t < 3; t++) {
        toy_step(&toy);
        toy_step(&toy);
        assert_pair(toy.w[0].theta, vector_field(vector_at(want, t), "avg"));
    }
}

static void diloco_keeps_the_inner_moments(void **state)
{
    const struct method m = anchored(2, 0.7, 0.9);
    const json_t *want = vector_of("DiLoCo AdamW(lr .05,b .9/.95,eps 1e-8,wd "
                                   ".1) H=2 M=2, state kept");
    struct toy toy = {.inner = TOY_ADAMW, .lr = 0.05, .b1 = 0.9, .b2 = 0.95};

    (void)state;
    toy_open(&toy, &m, 2);
    for (size_t t = 0; t < 2; t++) {
        toy_step(&toy);
        toy_step(&toy);
        assert_pair(toy.w[0].phi, vector_field(vector_at(want, t), "theta"));
    }
}

static void check_desloc(const char *key,
                         struct method m,
                         struct toy toy,
                         bool moments_differ)
{
    const json_t *want = vector_of(key), *x = vector_field(want, "x");
    size_t steps = json_array_size(x);

    toy_open(&toy, &m, 2);
    for (size_t t = 0; t < steps; t++) {
        toy_step(&toy);
        assert_pair(toy.w[0].theta, vector_at(vector_at(x, t), 0));
        assert_pair(toy.w[1].theta, vector_at(vector_at(x, t), 1));
    }
    for (size_t i = 0; i < 2; i++) {
        assert_pair(toy.w[i].u, vector_at(vector_field(want, "u"), i));
        assert_pair(toy.w[i].v, vector_at(vector_field(want, "v"), i));
    }
    assert_int_equal(memcmp(toy.w[0].u, toy.w[1].u, sizeof toy.w[0].u) != 0,
                     moments_differ);
}

static void desloc_and_its_special_cases_give_their_vectors(void **state)
{
    const struct toy adam = {
        .inner = TOY_ADAM, .lr = 0.1, .b1 = 0.9, .b2 = 0.99};
    struct toy literal = adam, sgdm = adam;
    struct method m = anchored(2, 1.0, 0.0);

    (void)state;
    check_desloc("FAVG+OPT (Kx=2, no state sync) post, 4 steps", m, adam, true);
    m.moments = METHOD_RESET;
    check_desloc("FAVG-OPT (Kx=2, reset) post, 4 steps", m, adam, false);
    m.moments = METHOD_KEEP;
    m.period_u = 2;
    m.period_v = 2;
    check_desloc("Local Adam (Kx=Ku=Kv=2) post, 4 steps", m, adam, false);
    m.period_u = 3;
    m.period_v = 6;
    check_desloc("DES-LOC-Adam post Kx=2 Ku=3 Kv=6, 6 steps (x of worker0,1 "
                 "per step)",
                 m, adam, false);
    literal.before = true;
    check_desloc("DES-LOC-Adam pre(literal) Kx=2 Ku=3 Kv=6, 6 steps", m,
                 literal, true);
    sgdm.inner = TOY_SGDM;
    m.period = 1;
    m.period_u = 2;
    m.period_v = 0;
    /* The third step is between two averages of u. */
    check_desloc("DES-LOC-SGDM post Kx=1 Ku=2, 3 steps", m, sgdm, true);
}

/* ---- fragments, overlap, eager ----------------------------------------- */

/* Two fragments of one element, inner step -2, outer SGD with rate 2: the
 * fixtures of torchft. */
static void check_streaming(uint32_t overlap,
                            double mix,
                            const char *key,
                            const double global[2])
{
    static const struct engine_span spans[2] = {{0, 1}, {1, 1}};
    static const uint32_t first[3] = {0, 1, 2};
    const struct engine_fragments fragments = {spans, first};
    const json_t *want = vector_of(key);
    struct method m = anchored(6, 2.0, 0.0);
    struct worker w = {0};
    float wire[1];

    m.fragments = 2;
    m.overlap = overlap;
    m.take = mix > 0.0 ? METHOD_MIX : METHOD_OVERWRITE;
    m.mix = R(mix);
    assert_int_equal(method_check(&m, NULL), 0);
    engine_init(&w.e, &m, &fragments, 2, 1);
    w.theta[0] = w.theta[1] = 1;
    w.e.theta = w.theta;
    w.e.phi = w.phi;
    engine_start(&w.e);
    for (size_t k = 1; k <= 15; k++) {
        struct stream_turn turn;
        const struct engine_average a = {wire, 1.0, 1};

        w.theta[0] -= 2;
        w.theta[1] -= 2;
        engine_step(&w.e);
        if (engine_begins(&w.e, 0, &turn)) {
            assert_true(engine_len(&w.e, 0, &turn) == 1);
            assert_int_equal(engine_pack(&w.e, 0, &turn, wire), 0);
        }
        if (engine_ends(&w.e, 0, &turn)) {
            assert_int_equal(engine_apply(&w.e, 0, &turn, &a), 0);
        }
        if (k % 3 == 0) {
            assert_pair(w.theta, vector_at(want, k / 3 - 1));
        }
    }
    assert_near((double)w.phi[0], global[0]);
    assert_near((double)w.phi[1], global[1]);
}

static void fragments_and_overlap_give_the_vectors_of_torchft(void **state)
{
    static const double global[4][2] = {
        {-59, -47}, {-44, -35}, {-47, -39}, {-38, -31}};

    (void)state;
    check_streaming(0, 0.0,
                    "streaming P=2 H=6 tau=0 alpha=0: local at step "
                    "3,6,9,12,15",
                    global[0]);
    check_streaming(0, 0.5,
                    "streaming P=2 H=6 tau=0 alpha=0.5: local at step "
                    "3,6,9,12,15",
                    global[1]);
    check_streaming(1, 0.0,
                    "streaming P=2 H=6 tau=1 alpha=0: local at step "
                    "3,6,9,12,15",
                    global[2]);
    check_streaming(1, 0.5,
                    "streaming P=2 H=6 tau=1 alpha=0.5: local at step "
                    "3,6,9,12,15",
                    global[3]);
}

/* Overlap 1, rule with rate 1: what the worker learnt meanwhile is all kept. */
static void
a_rebase_keeps_what_was_learnt_while_the_average_travelled(void **state)
{
    struct method m = anchored(4, 1.0, 0.0);
    struct worker w = {0};
    struct stream_turn turn;
    float wire[2];
    const float mean[2] = {R(0.25), R(-0.5)}; /* of all members */
    const struct engine_average a = {mean, 0.5, 1};

    (void)state;
    m.overlap = 1;
    m.take = METHOD_REBASE;
    assert_true(engine_needs(&m) & ENGINE_SENT);
    engine_init(&w.e, &m, NULL, 2, 2);
    w.theta[0] = w.theta[1] = 2;
    w.e.theta = w.theta;
    w.e.phi = w.phi;
    w.e.sent = w.sent;
    engine_start(&w.e);
    for (int k = 0; k < 3; k++) {
        w.theta[0] -= R(0.5);
        engine_step(&w.e);
    }
    assert_true(engine_begins(&w.e, 0, &turn));
    assert_int_equal(engine_pack(&w.e, 0, &turn, wire), 0);
    assert_near((double)wire[0], 1.5);
    w.theta[0] -= R(0.125); /* after it left */
    engine_step(&w.e);
    assert_true(engine_ends(&w.e, 0, &turn));
    assert_int_equal(engine_apply(&w.e, 0, &turn, &a), 0);
    assert_near((double)w.phi[0], 1.75);
    assert_near((double)w.theta[0], 1.75 - 0.125);
    assert_near((double)w.theta[1], 2.5);
}

static void who_was_not_in_the_mean_keeps_all_it_has_learnt(void **state)
{
    struct method m = anchored(2, 1.0, 0.0);
    struct worker w = {0};
    const struct stream_turn turn = {0, 0};
    const float mean[2] = {R(0.25), R(-0.5)};
    const struct engine_average a = {mean, 0.0, 1};

    (void)state;
    engine_init(&w.e, &m, NULL, 2, 2);
    w.theta[0] = w.theta[1] = 2;
    w.e.theta = w.theta;
    w.e.phi = w.phi;
    engine_start(&w.e);
    w.theta[0] = R(1.5);
    assert_int_equal(engine_apply(&w.e, 0, &turn, &a), 0);
    assert_near((double)w.phi[0], 1.75);
    assert_near((double)w.theta[0], 1.25);
    assert_near((double)w.theta[1], 2.5);
}

static void eager_exchanges_the_own_part_for_the_fresh_one(void **state)
{
    static const double delta[2][3] = {{0.4, 0.3, 0.2}, {0.2, 0.5, 0.1}};
    const json_t *want = vector_of("eager outer gradients t=1,2 (worker0,"
                                   "worker1) for Delta0=[.4,.3,.2] "
                                   "Delta1=[.2,.5,.1]");
    struct method m = anchored(1, 1.0, 0.0);
    struct toy toy = {0};
    float mean[2] = {0, 0};

    (void)state;
    m.overlap = 1;
    m.eager = true;
    toy_open(&toy, &m, 2);
    for (size_t t = 0; t < 3; t++) {
        float fresh[2] = {0, 0};

        for (uint32_t i = 0; i < 2; i++) {
            struct worker *w = &toy.w[i];
            const struct engine_average a = {mean, 0.5, 1};
            struct stream_turn turn;
            float anchor = w->theta[0]; /* this worker's, as the page has it */

            w->theta[0] = anchor - R(delta[i][t]);
            engine_step(&w->e);
            assert_int_equal(engine_ends(&w->e, 0, &turn), t > 0);
            if (t > 0) {
                assert_true(turn.number == t - 1);
                assert_int_equal(engine_apply(&w->e, 0, &turn, &a), 0);
            }
            assert_true(engine_begins(&w->e, 0, &turn));
            assert_int_equal(engine_pack(&w->e, 0, &turn, w->wire), 0);
            fresh[0] += w->wire[0] / 2;
            assert_near((double)w->wire[0], delta[i][t]);
            /* Before the first mean: the own share of it. */
            assert_near(
                (double)(anchor - w->theta[0]),
                t == 0 ? delta[i][0] / 2
                       : vector_number(vector_at(vector_at(want, t - 1), i)));
        }
        memcpy(mean, fresh, sizeof mean);
    }
}

static void eager_alone_is_diloco(void **state)
{
    struct method eager = anchored(2, 0.7, 0.9), plain = eager;
    struct toy a = {.inner = TOY_SGD, .lr = 0.1}, b = a;
    float mean[2];

    (void)state;
    eager.eager = true;
    eager.overlap = 2;
    toy_open(&a, &eager, 1);
    toy_open(&b, &plain, 1);
    for (uint64_t k = 1; k <= 8; k++) {
        struct stream_turn turn;
        const struct engine_average own = {mean, 1.0, 1};

        toy_gradient(&a.w[0], 0);
        toy_update(&a, &a.w[0]);
        engine_step(&a.w[0].e);
        if (engine_ends(&a.w[0].e, 0, &turn)) {
            assert_int_equal(engine_apply(&a.w[0].e, 0, &turn, &own), 0);
        }
        if (engine_begins(&a.w[0].e, 0, &turn)) {
            assert_int_equal(engine_pack(&a.w[0].e, 0, &turn, mean), 0);
        }
        toy_step(&b);
        assert_near((double)a.w[0].theta[0], (double)b.w[0].theta[0]);
        assert_near((double)a.w[0].theta[1], (double)b.w[0].theta[1]);
    }
}

/* ---- arrivals ---------------------------------------------------------- */

static const double arrivals[8][2] = {
    {0.04, -0.01}, {0.03, 0.02},  {0.05, -0.005}, {0.02, 0.01},
    {0.01, 0.01},  {0.02, -0.02}, {0.03, 0.0},    {0.04, 0.01}};

static void check_delayed(double c, const char *key, const char *m_key)
{
    const struct delayed rule = {R(0.7), R(0.9), R(c)};
    const json_t *want = vector_of(key);
    float phi[2] = {1, 1}, m[2] = {0}, sum[2] = {0};
    struct delayed_state s = {phi, m, sum, 4, 4, 0};

    for (size_t t = 0; t < 8; t++) {
        const float g[2] = {R(arrivals[t][0]), R(arrivals[t][1])};

        assert_int_equal(delayed_apply(&rule, &s, &s, g, 1, 2), 0);
        assert_pair(phi, vector_at(want, t));
    }
    assert_pair(m, vector_of(m_key));
}

static void delayed_nesterov_gives_its_vectors(void **state)
{
    (void)state;
    check_delayed(0.0, "DN N=4 eps=.7 beta=.9 c=0, theta after 1..8",
                  " m after 8");
    check_delayed(0.1, "DN N=4 c=.1, theta after 1..8", " m after 8");
}

/* Four arrivals at once, of which only the mean is known, are one step of rule
 * N: also when the cycle is cut elsewhere. */
static void a_quorum_of_a_whole_cycle_is_one_nesterov_step(void **state)
{
    const json_t *want = vector_of("sync Nesterov on the same two means (must "
                                   "equal DN c=0 at 4 and 8)");
    const struct delayed rule = {R(0.7), R(0.9), 0};
    float phi[2] = {1, 1}, m[2] = {0}, sum[2] = {0};
    struct delayed_state s = {phi, m, sum, 4, 4, 0};

    (void)state;
    for (size_t t = 0; t < 8; t += 4) {
        float g[2] = {0, 0};

        for (size_t i = t; i < t + 4; i++) {
            g[0] += R(arrivals[i][0]) / 4;
            g[1] += R(arrivals[i][1]) / 4;
        }
        assert_int_equal(delayed_apply(&rule, &s, &s, g, 4, 2), 0);
        assert_int_equal(s.count, 0);
    }
    assert_pair(phi, want);
}

/* The same arrivals in quorums of 3, 3 and 2 with c > 0, equal within each:
 * one by one and all at once give the same. */
static void a_quorum_equals_its_arrivals_one_by_one(void **state)
{
    static const uint32_t quorum[5] = {3, 3, 2, 11, 1};
    const struct delayed rule = {R(0.7), R(0.9), R(0.1)};
    float phi[2][2] = {{1, 1}, {1, 1}}, m[2][2] = {{0}}, sum[2][2] = {{0}};
    struct delayed_state one = {phi[0], m[0], sum[0], 4, 4, 0};
    struct delayed_state all = {phi[1], m[1], sum[1], 4, 4, 0};

    (void)state;
    for (size_t t = 0; t < 5; t++) {
        const float g[2] = {R(arrivals[t][0]), R(arrivals[t][1])};

        if (t == 1) { /* takes effect at the flush, not before */
            delayed_resize(&one, 5);
            delayed_resize(&all, 5);
            assert_int_equal(one.size, 4);
        }
        for (uint32_t i = 0; i < quorum[t]; i++) {
            assert_int_equal(delayed_apply(&rule, &one, &one, g, 1, 2), 0);
        }
        assert_int_equal(delayed_apply(&rule, &all, &all, g, quorum[t], 2), 0);
        assert_int_equal(one.count, all.count);
        assert_int_equal(one.size, all.size);
        for (size_t k = 0; k < 2; k++) {
            assert_near((double)phi[0][k], (double)phi[1][k]);
            assert_near((double)m[0][k], (double)m[1][k]);
            assert_near((double)sum[0][k], (double)sum[1][k]);
        }
    }
    assert_int_equal(one.size, 5);
}

static struct method quorum(bool delayed)
{
    struct method m = anchored(2, 0.7, 0.9);

    m.group = METHOD_QUORUM;
    m.delayed = delayed;
    m.baseline = !delayed;
    return m;
}

static void naive_arrivals_amplify_as_the_page_says(void **state)
{
    const json_t *want =
        vector_of("naive async 4x same g: per-arrival coefficients");
    const struct method m = quorum(false);
    const float g[2] = {1, 0};
    struct toy toy = {0};

    (void)state;
    toy_open(&toy, &m, 4);
    for (size_t j = 0; j < 4; j++) {
        const struct stream_turn turn = {j, 0};
        const struct engine_average a = {g, 0.0, 1};
        struct worker *w = &toy.w[0];
        float before = w->phi[0];

        assert_int_equal(engine_apply(&w->e, 0, &turn, &a), 0);
        assert_near((double)(before - w->phi[0]) / 0.7,
                    vector_number(vector_at(want, j)));
    }
}

static void only_who_was_in_the_quorum_leaves_its_task(void **state)
{
    const struct method m = quorum(true);
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};
    const struct stream_turn turn = {0, 0};
    float before[2];

    (void)state;
    toy_open(&toy, &m, 2);
    for (uint32_t i = 0; i < 2; i++) {
        toy_gradient(&toy.w[i], i);
        toy_update(&toy, &toy.w[i]);
    }
    memcpy(before, toy.w[1].theta, sizeof before);
    assert_int_equal(engine_pack(&toy.w[0].e, 0, &turn, toy.w[0].wire), 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct engine_average a = {toy.w[0].wire, i == 0 ? 1.0 : 0.0, 1};
        assert_int_equal(engine_apply(&toy.w[i].e, 0, &turn, &a), 0);
    }
    assert_memory_equal(toy.w[0].phi, toy.w[1].phi, sizeof before);
    assert_memory_equal(toy.w[0].theta, toy.w[0].phi, sizeof before);
    assert_memory_equal(toy.w[1].theta, before, sizeof before);
    /* The second one's task still counts from where it began. */
    assert_int_equal(engine_pack(&toy.w[1].e, 0, &turn, toy.w[1].wire), 0);
    assert_near((double)toy.w[1].wire[0], 0.5 - (double)before[0]);
}

/* ---- pairs ------------------------------------------------------------- */

/* A wire that takes nothing away, in the precision of this build. */
static size_t exact_bytes(size_t n)
{
    return n * sizeof(float);
}

static int exact_encode(uint8_t *dst, const float *src, size_t n, float scale)
{
    assert_true(scale == R(1.0));
    memcpy(dst, src, n * sizeof(float));
    return 0;
}

static int exact_decode(float *dst, const uint8_t *src, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
    return 0;
}

static const struct codec exact = {
    .bytes = exact_bytes, .encode = exact_encode, .decode = exact_decode};

static void pair_step(struct toy *toy, uint64_t t)
{
    const struct stream_turn turn = {t, 0};
    uint8_t sent[TOY_MAX][4 * sizeof(float)];
    uint32_t scratch[TOY_MAX];

    for (uint32_t i = 0; i < toy->n; i++) {
        struct worker *w = &toy->w[i];

        assert_int_equal(engine_pack(&w->e, 0, &turn, w->wire), 0);
        memcpy(sent[i], w->phi, sizeof w->phi);
        memcpy(sent[i] + sizeof w->phi, w->wire, sizeof w->wire);
    }
    for (uint32_t i = 0; i < toy->n; i++) {
        struct worker *w = &toy->w[i];
        uint32_t j = pairing_partner(42, 1, t, toy->n, i, scratch);
        const struct pair_mean partner = {
            &exact, j == PAIRING_BYE ? NULL : sent[j], i < j};
        const struct outer_state state = {w->phi, w->m};

        assert_int_equal(pair_mean_apply(&partner, &w->e.method.rule, &state,
                                         &state, w->wire, 2),
                         0);
        memcpy(w->theta, w->phi, sizeof w->theta);
    }
}

static void check_noloco(double gamma, size_t rounds)
{
    struct method m = anchored(2, 0.7, 0.5);
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};
    char key[64];

    m.group = METHOD_PAIR;
    m.rule.form = RULE_HEAVY_BALL;
    m.rule.gamma = R(gamma);
    toy_open(&toy, &m, 4);
    for (size_t t = 0; t < rounds; t++) {
        const json_t *want;

        for (uint32_t i = 0; i < 4; i++) {
            for (int h = 0; h < 2; h++) {
                toy_gradient(&toy.w[i], i);
                toy_update(&toy, &toy.w[i]);
            }
        }
        pair_step(&toy, t);
        (void)snprintf(key, sizeof key, "NoLoCo N=4 a=.5 b=.7 g=%s outer %zu",
                       gamma < 0.8 ? ".7" : ".9", t);
        want = vector_of(key);
        for (uint32_t i = 0; i < 4; i++) {
            const json_t *delta = vector_at(vector_field(want, "delta"), i);

            assert_pair(toy.w[i].phi, vector_at(vector_field(want, "phi"), i));
            assert_pair(toy.w[i].theta,
                        vector_at(vector_field(want, "phi"), i));
            for (size_t k = 0; k < 2; k++) {
                assert_near(-(double)toy.w[i].m[k],
                            vector_number(vector_at(delta, k)));
            }
        }
    }
}

static void pairs_give_the_vectors_of_noloco(void **state)
{
    (void)state;
    check_noloco(0.7, 3);
    check_noloco(0.9, 2);
}

static void one_pair_step_gives_both_forms(void **state)
{
    static const double phi[2][2] = {{1, 0}, {0, 2}};
    static const double theta[2][2] = {{1.2, -0.1}, {0.3, 1.5}};
    static const double delta[2][2] = {{0.1, 0.1}, {-0.1, 0.2}};
    const json_t *want = vector_of("NoLoCo one pair, full form delta");
    const json_t *same =
        vector_of(" shortcut (b=g): a*d+b*(mean theta - phi_i)");
    const struct rule rule = {RULE_HEAVY_BALL, R(0.7), R(0.5), R(0.7)};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        float p[2], m[2], g[2], mean_phi[2];
        struct outer_state s = {p, m};

        for (size_t k = 0; k < 2; k++) {
            p[k] = R(phi[i][k]);
            m[k] = R(-delta[i][k]);
            g[k] = R((phi[0][k] - theta[0][k] + phi[1][k] - theta[1][k]) / 2);
            mean_phi[k] = R((phi[0][k] + phi[1][k]) / 2);
        }
        assert_int_equal(rule_apply_pulled(&rule, &s, &s, g, mean_phi, 2), 0);
        for (size_t k = 0; k < 2; k++) {
            assert_near(-(double)m[k],
                        vector_number(vector_at(vector_at(want, i), k)));
            assert_near(-(double)m[k],
                        vector_number(vector_at(vector_at(same, i), k)));
        }
    }
}

/* The pull only moves replicas towards each other. */
static void the_pull_conserves_the_mean_of_a_pair(void **state)
{
    struct rule with = {RULE_HEAVY_BALL, R(0.7), R(0.5), R(0.9)};
    struct rule without = with;
    const float g[1] = {R(0.25)}, mean_phi[1] = {R(0.5)};
    double sum[2] = {0, 0};

    (void)state;
    without.gamma = 0;
    for (int i = 0; i < 2; i++) {
        float a = R(i), b = R(i), m_a = R(0.125), m_b = R(0.125);
        struct outer_state sa = {&a, &m_a}, sb = {&b, &m_b};

        assert_int_equal(rule_apply_pulled(&with, &sa, &sa, g, mean_phi, 1), 0);
        assert_int_equal(rule_apply_pulled(&without, &sb, &sb, g, NULL, 1), 0);
        sum[0] += (double)a;
        sum[1] += (double)b;
    }
    assert_near(sum[0], sum[1]);
}

/* With everybody in the group all anchors are equal, and the pull is zero. */
static void noloco_with_all_in_one_group_is_heavy_ball_diloco(void **state)
{
    const struct rule h = {RULE_HEAVY_BALL, R(0.7), R(0.3), 0};
    const struct rule pulled = {RULE_HEAVY_BALL, R(0.7), R(0.3), R(0.9)};
    float phi[2] = {R(0.5), R(0.5)}, m[2] = {R(0.1), R(0.1)};
    const float g = R(0.3), mean_phi = R(0.5);
    struct outer_state a = {&phi[0], &m[0]}, b = {&phi[1], &m[1]};

    (void)state;
    assert_int_equal(rule_apply(&h, &a, &a, &g, 1), 0);
    assert_int_equal(rule_apply_pulled(&pulled, &b, &b, &g, &mean_phi, 1), 0);
    assert_memory_equal(&phi[0], &phi[1], sizeof phi[0]);
}

static void a_turn_that_failed_leaves_everything_but_goes_on(void **state)
{
    const struct method m = anchored(2, 0.7, 0.9);
    struct toy toy = {.inner = TOY_SGD, .lr = 0.1};
    const struct stream_turn turn = {0, 0};
    struct worker before;
    float wire[2];

    (void)state;
    toy_open(&toy, &m, 1);
    toy_gradient(&toy.w[0], 0);
    toy_update(&toy, &toy.w[0]);
    before = toy.w[0];
    assert_int_equal(engine_pack(&toy.w[0].e, 0, &turn, wire), 0);
    /* Nothing is called: nobody applies it. */
    assert_memory_equal(before.phi, toy.w[0].phi, sizeof before.phi);
    assert_memory_equal(before.theta, toy.w[0].theta, sizeof before.theta);
    assert_memory_equal(before.m, toy.w[0].m, sizeof before.m);
    /* The next displacement contains this one. */
    toy_gradient(&toy.w[0], 0);
    toy_update(&toy, &toy.w[0]);
    assert_int_equal(engine_pack(&toy.w[0].e, 0, &turn, wire), 0);
    assert_near((double)wire[0], 0.5 - (double)toy.w[0].theta[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddp_gives_its_vectors),
        cmocka_unit_test(local_sgd_gives_its_vectors),
        cmocka_unit_test(diloco_gives_its_vectors),
        cmocka_unit_test(diloco_keeps_the_inner_moments),
        cmocka_unit_test(desloc_and_its_special_cases_give_their_vectors),
        cmocka_unit_test(fragments_and_overlap_give_the_vectors_of_torchft),
        cmocka_unit_test(
            a_rebase_keeps_what_was_learnt_while_the_average_travelled),
        cmocka_unit_test(who_was_not_in_the_mean_keeps_all_it_has_learnt),
        cmocka_unit_test(eager_exchanges_the_own_part_for_the_fresh_one),
        cmocka_unit_test(eager_alone_is_diloco),
        cmocka_unit_test(delayed_nesterov_gives_its_vectors),
        cmocka_unit_test(a_quorum_of_a_whole_cycle_is_one_nesterov_step),
        cmocka_unit_test(a_quorum_equals_its_arrivals_one_by_one),
        cmocka_unit_test(naive_arrivals_amplify_as_the_page_says),
        cmocka_unit_test(only_who_was_in_the_quorum_leaves_its_task),
        cmocka_unit_test(pairs_give_the_vectors_of_noloco),
        cmocka_unit_test(one_pair_step_gives_both_forms),
        cmocka_unit_test(the_pull_conserves_the_mean_of_a_pair),
        cmocka_unit_test(noloco_with_all_in_one_group_is_heavy_ball_diloco),
        cmocka_unit_test(a_turn_that_failed_leaves_everything_but_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
