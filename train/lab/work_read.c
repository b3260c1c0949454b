/* work_read.c - what was sent beside the repeat; see work.h. */
#include <math.h>
#include <string.h>

#include "proto/base/rng.h"
#include "train/lab/work_internal.h"

#define DRAWS 32 /* of samples of each size */

static const uint32_t sample_blocks[WORK_SAMPLES] = {4, 16, 64};

uint32_t work_sample_blocks(int sample)
{
    return sample_blocks[sample];
}

double work_cosine(double xx, double rr, double xr)
{
    return xx > 0 && rr > 0 ? xr / sqrt(xx * rr) : 0;
}

static void sum_block(const struct lab_work *w, size_t block, uint64_t n)
{
    struct work_sums *s = &w->blocks[block];
    uint64_t at = (uint64_t)block * WORK_BLOCK;
    uint64_t end = n - at < WORK_BLOCK ? n : at + WORK_BLOCK;

    *s = (struct work_sums){0};
    for (; at < end; at++) {
        double x = (double)w->sent[at], r = (double)w->repeat[at];
        double own_x = x - (double)w->mean[at];
        double own_r = r - (double)w->mean[at];
        double exact = (double)w->exact[at];
        double own_exact = exact - (double)w->mean[at];

        s->xx += x * x;
        s->rr += r * r;
        s->xr += x * r;
        s->own_xx += own_x * own_x;
        s->own_rr += own_r * own_r;
        s->own_xr += own_x * own_r;
        s->exact_rr += exact * exact;
        s->exact_xr += x * exact;
        s->exact_own_rr += own_exact * own_exact;
        s->exact_own_xr += own_x * own_exact;
    }
}

static void add(struct work_sums *to, const struct work_sums *s)
{
    to->xx += s->xx;
    to->rr += s->rr;
    to->xr += s->xr;
    to->own_xx += s->own_xx;
    to->own_rr += s->own_rr;
    to->own_xr += s->own_xr;
    to->exact_rr += s->exact_rr;
    to->exact_xr += s->exact_xr;
    to->exact_own_rr += s->exact_own_rr;
    to->exact_own_xr += s->exact_own_xr;
}

/* A block in which both have nothing is as it should be. */
static double least_block(const struct lab_work *w)
{
    double least = 1;

    for (size_t i = 0; i < w->n_blocks; i++) {
        const struct work_sums *s = &w->blocks[i];

        if (s->xx > 0 || s->exact_rr > 0) {
            least = fmin(least, work_cosine(s->xx, s->exact_rr, s->exact_xr));
        }
    }
    return least;
}

/* How far a few blocks lead from the whole. */
static void sample(const struct lab_work *w, struct work_reading *r)
{
    uint64_t rng = 1;

    for (int k = 0; k < WORK_SAMPLES; k++) {
        double square = 0, exact_square = 0;

        for (int draw = 0; draw < DRAWS; draw++) {
            struct work_sums s = {0};
            double d;

            for (uint32_t i = 0; i < sample_blocks[k]; i++) {
                add(&s, &w->blocks[rng_below(&rng, w->n_blocks)]);
            }
            d = work_cosine(s.xx, s.rr, s.xr) - r->cosine;
            square += d * d;
            d = work_cosine(s.xx, s.exact_rr, s.exact_xr) - r->exact;
            exact_square += d * d;
        }
        r->sampled[k] = sqrt(square / DRAWS);
        r->exact_sampled[k] = sqrt(exact_square / DRAWS);
    }
}

/* A claim as the wire gives it, and its sums beside both repeats. */
static int over_the_wire(struct lab *lab,
                         const float *claim,
                         const float *residual,
                         struct work_sums *all)
{
    struct lab_work *w = lab->work;
    const struct codec_op op = {
        .own = claim,
        .n = (size_t)lab->n,
        .scale = 1.0F,
        .residual = residual,
        .result = w->sent,
    };
    int rv = codec_get(lab->opt.method.wire)->encode_op(w->wire, &op);

    *all = (struct work_sums){0};
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv, "a claim does not fit the wire");
    }
    for (size_t i = 0; i < w->n_blocks; i++) {
        sum_block(w, i, lab->n);
        add(all, &w->blocks[i]);
    }
    return 0;
}

double work_own_cosine(const struct lab *lab, const float *x, const float *r)
{
    double xx = 0, rr = 0, xr = 0;

    for (uint64_t i = 0; i < lab->n; i++) {
        double m = (double)lab->work->mean[i];
        double a = (double)x[i] - m, b = (double)r[i] - m;

        xx += a * a;
        rr += b * b;
        xr += a * b;
    }
    return work_cosine(xx, rr, xr);
}

static double exact_of(const struct work_sums *s)
{
    return work_cosine(s->xx, s->exact_rr, s->exact_xr);
}

static double exact_own_of(const struct work_sums *s)
{
    return work_cosine(s->own_xx, s->exact_own_rr, s->exact_own_xr);
}

/* The rest of a reading: beside the repeat with the maker's moments. */
static void read_exact(const struct lab_work *w,
                       const struct work_sums *all,
                       struct work_reading *r)
{
    r->exact = exact_of(all);
    r->exact_own = exact_own_of(all);
    r->exact_length = all->exact_rr > 0 ? sqrt(all->xx / all->exact_rr) : 0;
    r->block = least_block(w);
    r->best = w->best;
    r->best_own = w->best_own;
}

int work_read(struct lab *lab, const float *claim, struct work_reading *r)
{
    struct lab_work *w = lab->work;
    bool self = r->kind == WORK_SELF;
    const float *residual = lab->peers[self ? r->auditor : r->maker].residual;
    struct work_sums all;
    int rv = over_the_wire(lab, claim, residual, &all);

    if (rv != 0) {
        return rv;
    }
    r->cosine = work_cosine(all.xx, all.rr, all.xr);
    r->own = work_cosine(all.own_xx, all.own_rr, all.own_xr);
    r->length = all.rr > 0 ? sqrt(all.xx / all.rr) : 0;
    if (self) {
        w->cosine = r->cosine;
        w->own = r->own;
    } else {
        read_exact(w, &all, r);
    }
    r->self_cosine = w->cosine;
    r->self_own = w->own;
    r->near = w->cosine > 0 ? r->cosine / w->cosine : 0;
    r->share = w->own > 0 ? r->own / w->own : 0;
    sample(w, r);
    lab->opt.work->reading(lab->opt.work->data, r);
    return 0;
}

int work_read_best(struct lab *lab)
{
    struct lab_work *w = lab->work;
    struct work_sums all;
    int rv = over_the_wire(lab, w->exact, NULL, &all);

    w->best = exact_of(&all);
    w->best_own = exact_own_of(&all);
    return rv;
}

/* Mean of all but the two. */
void work_mean_of_others(struct lab *lab, uint32_t maker, uint32_t auditor)
{
    uint32_t n = 0;

    memset(lab->work->mean, 0, (size_t)lab->n * sizeof(float));
    for (uint32_t k = 0; k < lab->opt.peers; k++) {
        for (uint64_t i = 0; k != maker && k != auditor && i < lab->n; i++) {
            lab->work->mean[i] += lab->packed[k][i];
        }
        n += k != maker && k != auditor;
    }
    for (uint64_t i = 0; n > 0 && i < lab->n; i++) {
        lab->work->mean[i] /= (float)n;
    }
}
