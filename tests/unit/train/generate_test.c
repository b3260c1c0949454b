/* Sampling filters on hand-made logits, and whole generations of a model. */
#include "train/model/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "train/model/llama.h"

#define V     5
#define DRAWS 20000

/* probabilities .1 .4 .2 .25 .05 */
static const double p[V] = {0.1, 0.4, 0.2, 0.25, 0.05};

static void tally(const struct generate_options *opt, double share[V])
{
    struct generate_rank order[V];
    float logits[V];
    uint64_t rng = 9;

    memset(share, 0, V * sizeof *share);
    for (int i = 0; i < V; i++) {
        logits[i] = (float)log(p[i]);
    }
    for (int i = 0; i < DRAWS; i++) {
        uint32_t token = generate_choose(logits, V, opt, &rng, order);

        assert_true(token < V);
        share[token] += 1.0 / DRAWS;
    }
}

static void draws_follow_the_distribution(void **state)
{
    const struct generate_options opt = {.temperature = 1, .top_p = 1};
    double share[V];

    (void)state;
    tally(&opt, share);
    for (int i = 0; i < V; i++) {
        assert_true(fabs(share[i] - p[i]) < 0.015);
    }
}

static void temperature_sharpens(void **state)
{
    const struct generate_options opt = {.temperature = 0.5, .top_p = 1};
    double share[V];
    double sum = 0;

    (void)state;
    tally(&opt, share);
    for (int i = 0; i < V; i++) {
        sum += p[i] * p[i];
    }
    for (int i = 0; i < V; i++) {
        assert_true(fabs(share[i] - p[i] * p[i] / sum) < 0.015);
    }
}

static void temperature_zero_takes_the_most_likely(void **state)
{
    const struct generate_options opt = {.temperature = 0, .top_p = 1};
    double share[V];

    (void)state;
    tally(&opt, share);
    assert_true(fabs(share[1] - 1) < 1e-9);
}

static void top_k_keeps_the_k_most_likely(void **state)
{
    const struct generate_options opt = {
        .temperature = 1, .top_k = 2, .top_p = 1};
    double share[V];

    (void)state;
    tally(&opt, share);
    assert_true(fabs(share[1] - 0.4 / 0.65) < 0.015);
    assert_true(fabs(share[3] - 0.25 / 0.65) < 0.015);
    assert_true(share[0] == 0 && share[2] == 0 && share[4] == 0);
}

/* .4 + .25 = .65 is not yet .7, so the third (.2) is kept too. */
static void top_p_keeps_the_smallest_set_that_reaches_p(void **state)
{
    const struct generate_options opt = {.temperature = 1, .top_p = 0.7};
    double share[V];

    (void)state;
    tally(&opt, share);
    assert_true(fabs(share[1] - 0.4 / 0.85) < 0.015);
    assert_true(fabs(share[2] - 0.2 / 0.85) < 0.015);
    assert_true(share[0] == 0 && share[4] == 0);
}

struct text {
    uint32_t token[64];
    int n;
    int stop_at;
};

static int on_token(void *data, uint32_t token)
{
    struct text *t = data;

    t->token[t->n++] = token;
    return t->n == t->stop_at ? LOCO_ECANCELED : 0;
}

static const struct llama_config tiny = {16, 1, 2,    1,    16,
                                         11, 8, true, 1e4f, 1e-5f};

struct model {
    struct backend be;
    float *theta;
};

static void open_model(struct model *s)
{
    backend_cpu_ref(&s->be);
    s->theta = malloc((size_t)llama_numel(&tiny) * sizeof(float));
    assert_non_null(s->theta);
    llama_init_params(&tiny, s->theta, 4);
}

static void close_model(struct model *s)
{
    free(s->theta);
}

static int
run(struct model *s, const struct generate_options *o, struct text *t)
{
    return generate(&tiny, &s->be, s->theta, o, on_token, t);
}

static void one_seed_gives_one_text_even_past_the_window(void **state)
{
    const uint32_t prompt[] = {1, 2, 3};
    struct generate_options opt = {.prompt = prompt,
                                   .prompt_n = 3,
                                   .max_tokens = 30,
                                   .seed = 5,
                                   .temperature = 1,
                                   .top_p = 1,
                                   .stop = UINT32_MAX};
    struct text a = {.stop_at = -1};
    struct text b = {.stop_at = -1};
    struct text c = {.stop_at = -1};
    struct model s;

    (void)state;
    open_model(&s);
    assert_int_equal(run(&s, &opt, &a), 0);
    assert_int_equal(run(&s, &opt, &b), 0);
    opt.seed = 6;
    assert_int_equal(run(&s, &opt, &c), 0);
    assert_int_equal(a.n, 30);
    assert_memory_equal(a.token, b.token, sizeof a.token);
    assert_memory_not_equal(a.token, c.token, sizeof a.token);
    close_model(&s);
}

/* Greedy: each token is the best of the model's logits. The window grows to 8
 * tokens; full, it goes on with the last 4 and the new one. */
static void greedy_text_agrees_with_the_models_logits(void **state)
{
    uint32_t all[40] = {7};
    const struct generate_options opt = {.prompt = all,
                                         .prompt_n = 1,
                                         .max_tokens = 39,
                                         .top_p = 1,
                                         .stop = UINT32_MAX};
    struct text t = {.stop_at = -1};
    struct llama *m;
    float logits[11];
    int n = 1;
    struct model s;

    (void)state;
    open_model(&s);
    assert_int_equal(llama_open(&m, &tiny, &s.be, 1, LLAMA_RECOMPUTE_NOTHING),
                     0);
    assert_int_equal(run(&s, &opt, &t), 0);
    assert_int_equal(t.n, 39);
    memcpy(all + 1, t.token, 39 * sizeof *all);
    for (int i = 1; i < 40; i++) {
        assert_int_equal(llama_logits(m, s.theta, all + i - n, n, logits), 0);
        for (int v = 0; v < 11; v++) {
            assert_true(logits[v] <= logits[all[i]] + 1e-6F);
        }
        n = n == 8 ? 5 : n + 1;
    }
    llama_close(m);
    close_model(&s);
}

static void the_stop_token_ends_the_text(void **state)
{
    const uint32_t prompt[] = {7};
    struct generate_options opt = {.prompt = prompt,
                                   .prompt_n = 1,
                                   .max_tokens = 20,
                                   .top_p = 1,
                                   .stop = UINT32_MAX};
    struct text t = {.stop_at = -1};
    int before = 0;
    struct model s;

    (void)state;
    open_model(&s);
    assert_int_equal(run(&s, &opt, &t), 0);
    opt.stop = t.token[5];
    while (t.token[before] != opt.stop) {
        before++;
    }
    t.n = 0;
    assert_int_equal(run(&s, &opt, &t), 0);
    assert_int_equal(t.n, before);
    close_model(&s);
}

static void the_callback_can_stop(void **state)
{
    const uint32_t prompt[] = {1};
    const struct generate_options opt = {.prompt = prompt,
                                         .prompt_n = 1,
                                         .max_tokens = 30,
                                         .temperature = 1,
                                         .top_p = 1,
                                         .stop = UINT32_MAX};
    struct text t = {.stop_at = 4};
    struct model s;

    (void)state;
    open_model(&s);
    assert_int_equal(run(&s, &opt, &t), LOCO_ECANCELED);
    assert_int_equal(t.n, 4);
    close_model(&s);
}

static void bad_requests_are_refused(void **state)
{
    const uint32_t prompt[] = {1, 11};
    const struct generate_options good = {.prompt = prompt,
                                          .prompt_n = 1,
                                          .max_tokens = 1,
                                          .temperature = 1,
                                          .top_p = 1};
    struct generate_options bad[5] = {good, good, good, good, good};
    struct text t = {.stop_at = -1};
    struct model s;

    (void)state;
    open_model(&s);
    bad[0].prompt_n = 0;
    bad[1].temperature = NAN;
    bad[2].top_p = 0;
    bad[3].top_p = 1.5;
    bad[4].max_tokens = -1;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run(&s, &bad[i], &t), LOCO_EINVAL);
    }
    bad[0].prompt_n = 2; /* 11 is past the vocabulary */
    assert_int_equal(run(&s, &bad[0], &t), LOCO_ERANGE);
    assert_int_equal(t.n, 0);
    close_model(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(temperature_sharpens),
        cmocka_unit_test(temperature_zero_takes_the_most_likely),
        cmocka_unit_test(top_k_keeps_the_k_most_likely),
        cmocka_unit_test(top_p_keeps_the_smallest_set_that_reaches_p),
        cmocka_unit_test(one_seed_gives_one_text_even_past_the_window),
        cmocka_unit_test(greedy_text_agrees_with_the_models_logits),
        cmocka_unit_test(the_stop_token_ends_the_text),
        cmocka_unit_test(the_callback_can_stop),
        cmocka_unit_test(bad_requests_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
