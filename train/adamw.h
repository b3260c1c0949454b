/* adamw.h - the inner optimizer: AdamW on the flat parameter vector.
 *
 * Loshchilov & Hutter 2019 as on algorithms page 0.3: decoupled weight decay,
 * bias correction by the count of steps. One fused pass, 28 bytes a parameter.
 * u and v (first and second moment) are plain vectors beside theta, so that a
 * sync stream can average them and a checkpoint save them.
 *
 * The gradient is first multiplied by grad_scale (1 / tokens where it is a
 * sum), then clipped by its global norm. A gradient that is not finite is
 * LOCO_ENUMERIC: theta, u, v and t keep their values.
 *
 * Same bits everywhere: elementwise IEEE operations in a fixed order, double
 * sums in fixed chunks for the norm, no libm. Peers that start equal and see
 * equal gradients stay equal, which the ddp preset relies on.
 */
#ifndef LOCO_TRAIN_ADAMW_H
#define LOCO_TRAIN_ADAMW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "train/llama_config.h"

struct adamw_options {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double clip_norm; /* 0: no clipping */
};

/* A run of elements that share one decay rule. */
struct adamw_span {
    int64_t offset;
    int64_t numel;
    bool decay;
};

struct adamw_rate {
    double lr;
    double grad_scale; /* 1 / tokens for a gradient of summed losses */
};

struct adamw {
    struct adamw_options opt;
    int64_t n;
    uint64_t t; /* steps made */
    float *u;   /* (n) first moment */
    float *v;   /* (n) second moment */
    int n_spans;
    struct adamw_span *spans;
    double *partial; /* of the norm's sum */
};

/* betas .9/.95, eps 1e-8, weight decay .1, clip 1 (OpenDiLoCo). */
struct adamw_options adamw_defaults(void);

/* 0, or LOCO_EINVAL with what is wrong in *reason (static text; may be
 * NULL). */
int adamw_check(const struct adamw_options *opt, const char **reason);

/* Moments of 0 for n parameters. The spans are copied; they must be in order,
 * without gaps, and cover n (LOCO_EINVAL). LOCO_ENOMEM. */
int adamw_open(struct adamw *a,
               const struct adamw_options *opt,
               const struct adamw_span *spans,
               int n_spans);

/* The same with the spans of a model: matrices decay, norms do not. */
int adamw_open_llama(struct adamw *a,
                     const struct adamw_options *opt,
                     const struct llama_config *c);

void adamw_close(struct adamw *a);

/* Euclidean norm of x; infinite or NaN where x is. partial as in struct
 * sumsq. */
double adamw_norm(const struct backend *be,
                  const float *x,
                  int64_t n,
                  double *partial);

/* One step on theta (n). *norm (may be NULL) = norm of the scaled
 * gradient before clipping. */
int adamw_step(struct adamw *a,
               const struct backend *be,
               float *theta,
               const float *grad,
               const struct adamw_rate *rate,
               double *norm);

#endif
