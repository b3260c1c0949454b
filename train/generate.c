/* generate.c - see generate.h. */
#include "train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Most likely first; equal logits by token id, so that qsort's order is
 * fixed. */
static int compare_ranks(const void *a, const void *b)
{
    const struct generate_rank *x = a;
    const struct generate_rank *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

/* Weights of the kept tokens, most likely first; returns how many. */
static uint32_t keep(struct generate_rank *order,
                     uint32_t v,
                     const struct generate_options *opt)
{
    uint32_t n = opt->top_k == 0 || opt->top_k > v ? v : opt->top_k;
    double sum = 0;
    double part = 0;

    for (uint32_t i = 0; i < n; i++) {
        double z = ((double)order[i].logit - (double)order[0].logit);

        order[i].weight = exp(z / opt->temperature);
        sum += order[i].weight;
    }
    for (uint32_t i = 0; i < n; i++) {
        part += order[i].weight;
        if (part >= opt->top_p * sum) {
            return i + 1;
        }
    }
    return n;
}

uint32_t generate_choose(const float *logits,
                         uint32_t v,
                         const struct generate_options *opt,
                         uint64_t *rng,
                         struct generate_rank *order)
{
    double point = (double)rng_float(rng);
    double sum = 0;
    uint32_t n;

    for (uint32_t i = 0; i < v; i++) {
        order[i] = (struct generate_rank){.logit = logits[i], .token = i};
    }
    qsort(order, v, sizeof *order, compare_ranks);
    if (opt->temperature == 0) {
        return order[0].token;
    }
    n = keep(order, v, opt);
    for (uint32_t i = 0; i < n; i++) {
        sum += order[i].weight;
    }
    point *= sum;
    for (uint32_t i = 0; i + 1 < n; i++) {
        point -= order[i].weight;
        if (point < 0) {
            return order[i].token;
        }
    }
    return order[n - 1].token;
}

static int check_options(const struct generate_options *opt)
{
    if (opt->prompt_n < 1 || opt->max_tokens < 0) {
        return LOCO_EINVAL;
    }
    if (!(opt->temperature >= 0 && opt->temperature <= 1000)) {
        return LOCO_EINVAL;
    }
    return opt->top_p > 0 && opt->top_p <= 1 ? 0 : LOCO_EINVAL;
}

/* The window of the last tokens, and room to choose in. */
struct writer {
    uint32_t *window; /* (seq) */
    int64_t n;
    int64_t seq;
    float *logits;               /* (V) */
    struct generate_rank *order; /* (V) */
};

static void writer_push(struct writer *w, uint32_t token)
{
    if (w->n == w->seq) {
        w->n--;
        memmove(w->window, w->window + 1, (size_t)w->n * sizeof *w->window);
    }
    w->window[w->n++] = token;
}

static int write_tokens(struct llama *m,
                        const float *theta,
                        const struct generate_options *opt,
                        struct writer *w,
                        generate_token_cb on_token,
                        void *data)
{
    uint32_t vocab = llama_get_config(m)->vocab;
    uint64_t rng = rng_mix(&opt->seed, 1);

    for (int64_t i = 0; i < opt->max_tokens; i++) {
        uint32_t token;
        int rv = llama_logits(m, theta, w->window, w->n, w->logits);

        if (rv != 0) {
            return rv;
        }
        token = generate_choose(w->logits, vocab, opt, &rng, w->order);
        writer_push(w, token);
        rv = on_token(data, token);
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

int generate(struct llama *m,
             const float *theta,
             const struct generate_options *opt,
             generate_token_cb on_token,
             void *data)
{
    const struct llama_config *c = llama_get_config(m);
    struct writer w = {.seq = c->seq};
    int rv = check_options(opt);

    if (rv != 0) {
        return rv;
    }
    for (int64_t i = 0; i < opt->prompt_n; i++) {
        if (opt->prompt[i] >= c->vocab) {
            return LOCO_ERANGE;
        }
    }
    w.window = malloc(c->seq * sizeof *w.window);
    w.logits = malloc(c->vocab * sizeof *w.logits);
    w.order = malloc(c->vocab * sizeof *w.order);
    rv = LOCO_ENOMEM;
    if (w.window != NULL && w.logits != NULL && w.order != NULL) {
        for (int64_t i = 0; i < opt->prompt_n; i++) {
            writer_push(&w, opt->prompt[i]);
        }
        rv = write_tokens(m, theta, opt, &w, on_token, data);
    }
    free(w.order);
    free(w.logits);
    free(w.window);
    return rv;
}
