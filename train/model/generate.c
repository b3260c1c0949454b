/* generate.c - see generate.h. */
#include "train/model/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/model/decode.h"

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

    if (opt->temperature == 0) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < v; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        return best;
    }
    for (uint32_t i = 0; i < v; i++) {
        order[i] = (struct generate_rank){.logit = logits[i], .token = i};
    }
    qsort(order, v, sizeof *order, compare_ranks);
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

/* What was written and fits, and room to choose in. */
struct writer {
    struct decoder *d;
    uint32_t *window; /* (seq) */
    int64_t n;
    int64_t seq;
    float *logits;               /* (V) of the token behind the window */
    struct generate_rank *order; /* (V) */
};

static int writer_begin(struct writer *w, const struct generate_options *opt)
{
    int64_t n = opt->prompt_n < w->seq ? opt->prompt_n : w->seq;

    memcpy(w->window, opt->prompt + opt->prompt_n - n,
           (size_t)n * sizeof *w->window);
    w->n = n;
    return decoder_read(w->d, w->window, n, w->logits);
}

static int writer_push(struct writer *w, uint32_t token)
{
    int64_t keep = w->seq / 2;

    if (w->n < w->seq) {
        w->window[w->n++] = token;
        return decoder_read(w->d, &token, 1, w->logits);
    }
    memmove(w->window, w->window + w->seq - keep,
            (size_t)keep * sizeof *w->window);
    w->window[keep] = token;
    w->n = keep + 1;
    decoder_reset(w->d);
    return decoder_read(w->d, w->window, w->n, w->logits);
}

static int write_tokens(struct writer *w,
                        uint32_t vocab,
                        const struct generate_options *opt,
                        generate_token_cb on_token,
                        void *data)
{
    uint64_t rng = rng_mix(&opt->seed, 1);

    for (int64_t i = 0; i < opt->max_tokens; i++) {
        uint32_t token;
        int rv = i == 0 ? writer_begin(w, opt) : 0;

        if (rv != 0) {
            return rv;
        }
        token = generate_choose(w->logits, vocab, opt, &rng, w->order);
        if (token == opt->stop) {
            return 0;
        }
        rv = on_token(data, token);
        if (rv == 0 && i + 1 < opt->max_tokens) {
            rv = writer_push(w, token);
        }
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

static int writer_open(struct writer *w,
                       const struct llama_config *c,
                       const struct backend *backend,
                       const float *theta)
{
    int rv = decoder_open(&w->d, c, backend, theta);

    w->seq = c->seq;
    w->window = malloc(c->seq * sizeof *w->window);
    w->logits = malloc(c->vocab * sizeof *w->logits);
    w->order = malloc(c->vocab * sizeof *w->order);
    if (rv == 0 &&
        (w->window == NULL || w->logits == NULL || w->order == NULL)) {
        rv = LOCO_ENOMEM;
    }
    return rv;
}

int generate(const struct llama_config *c,
             const struct backend *backend,
             const float *theta,
             const struct generate_options *opt,
             generate_token_cb on_token,
             void *data)
{
    struct writer w = {.d = NULL};
    int rv = check_options(opt);

    if (rv != 0) {
        return rv;
    }
    for (int64_t i = 0; i < opt->prompt_n; i++) {
        if (opt->prompt[i] >= c->vocab) {
            return LOCO_ERANGE;
        }
    }
    rv = writer_open(&w, c, backend, theta);
    rv = rv == 0 ? write_tokens(&w, c->vocab, opt, on_token, data) : rv;
    free(w.order);
    free(w.logits);
    free(w.window);
    decoder_close(w.d);
    return rv;
}
