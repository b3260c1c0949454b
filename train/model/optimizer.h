/* optimizer.h - the inner optimizer on the flat parameter vector.
 *
 * A *rule* is one row of the table below (algorithms page 0.3): AdamW
 * (Loshchilov & Hutter 2019, decoupled weight decay, bias correction by the
 * count of steps; with weight_decay 0 it is Adam), ADOPT (Taniguchi et al.
 * 2024, decoupled decay; its first call only fills v), SGD with an averaged
 * momentum, plain SGD, Muon. One fused pass, 28 bytes a parameter. u and v
 * (first and second moment) are plain vectors beside theta, so that a sync
 * stream can average them and a checkpoint save them. SGD and momentum leave v
 * at 0; the u of plain SGD is its last gradient.
 *
 * Muon (Jordan et al. 2024; kernels/cpu/muon.h has the formula and the cost)
 * steps the matrices of a model's layers, at muon_lr times the rate; what is
 * no such matrix (embedding, head, norms, all of a vector that is no model's)
 * has AdamW. Decay is decoupled in both, each by its own rate. The v of those
 * matrices stays 0 and is never written.
 *
 * The gradient is first multiplied by grad_scale (1 / tokens where it is a
 * sum), then clipped by its global norm. A gradient that is not finite is
 * LOCO_ENUMERIC: theta, u, v and t keep their values.
 *
 * Same bits everywhere, but for Muon: elementwise IEEE operations in a fixed
 * order, double sums in fixed chunks for the norm, no libm but sqrt, which is
 * exact. Peers that start equal and see equal gradients stay equal, which the
 * ddp preset relies on. Muon's matrix products have the same bits for any
 * number of threads, not on two kinds of processor.
 */
#ifndef LOCO_TRAIN_MODEL_OPTIMIZER_H
#define LOCO_TRAIN_MODEL_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "train/model/llama_part.h"

enum optimizer_rule {
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADOPT,
    OPTIMIZER_SGDM, /* u = beta1 u + (1 - beta1) g; theta -= lr u */
    OPTIMIZER_SGD,
    OPTIMIZER_MUON,
    OPTIMIZER_RULE_COUNT
};

/* Muon's momentum, and its usual multiple of the learning rate. */
#define OPTIMIZER_MUON_BETA 0.95
#define OPTIMIZER_MUON_LR   4.0

struct optimizer_options {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double clip_norm; /* 0: no clipping */
    enum optimizer_rule rule;
    double muon_lr; /* of Muon's matrices, in learning rates; 0: the usual */
};

/* A run of elements that share one decay rule. */
struct optimizer_span {
    int64_t offset;
    int64_t numel;
    bool decay;
};

struct optimizer_rate {
    double lr;
    double grad_scale; /* 1 / tokens for a gradient of summed losses */
};

struct optimizer {
    struct optimizer_options opt;
    int64_t n;
    uint64_t t; /* steps made */
    float *u;   /* (n) first moment */
    float *v;   /* (n) second moment */
    int n_spans;
    struct optimizer_span *spans; /* of all but Muon's matrices */
    int n_matrices;
    struct muon_matrix *matrices;
    unsigned char *scratch; /* of Muon; a processor's is taken with the first
                             * step */
    size_t scratch_bytes;
    double *partial;          /* of the norm's sum */
    const struct backend *be; /* whose memory u and v are; NULL: malloc's */
};

/* "adamw", "adopt", "sgdm", "sgd", "muon"; LOCO_ENOENT for another. */
int optimizer_rule_named(const char *name, enum optimizer_rule *rule);

/* AdamW, betas .9/.95, eps 1e-8, weight decay .1, clip 1 (OpenDiLoCo). */
struct optimizer_options optimizer_defaults(void);

/* 0, or LOCO_EINVAL with what is wrong in *reason (static text; may be
 * NULL). */
int optimizer_check(const struct optimizer_options *opt, const char **reason);

/* Moments of 0 for n parameters. The spans are copied; they must be in order,
 * without gaps, and cover n (LOCO_EINVAL). LOCO_ENOMEM. */
int optimizer_open(struct optimizer *a,
                   const struct optimizer_options *opt,
                   const struct optimizer_span *spans,
                   int n_spans);

/* The same with the spans of a model: matrices decay, norms do not, and Muon
 * steps the matrices of the layers. */
int optimizer_open_llama(struct optimizer *a,
                         const struct optimizer_options *opt,
                         const struct llama_config *c);

/* Of a part of it. */
int optimizer_open_part(struct optimizer *a,
                        const struct optimizer_options *opt,
                        const struct llama_config *c,
                        const struct llama_part *part);

/* What optimizer_place() takes of a device beside u and v: 0 but for Muon. */
size_t optimizer_device_bytes(const struct optimizer_options *opt,
                              const struct llama_config *c,
                              const struct llama_part *part,
                              int act_bytes);

/* What the first step takes beside u and v: 0 but for Muon. */
size_t optimizer_scratch_bytes(const struct optimizer_options *opt,
                               const struct llama_config *c,
                               const struct llama_part *part,
                               int threads);

/* Right after opening: u, v and Muon's scratch into the memory of a device,
 * which is borrowed until optimizer_close. `host`: u and v into the host's
 * (backend.h, take_host); the same bits. LOCO_ENOMEM, LOCO_ECUDA. */
int optimizer_place(struct optimizer *a, const struct backend *be, bool host);

void optimizer_close(struct optimizer *a);

/* Moments and count of steps 0, as after opening: the next step begins as the
 * first one does (ADOPT's fills v again). */
void optimizer_reset(struct optimizer *a);

/* One step on theta (n); LOCO_ENOMEM for Muon's scratch, with nothing changed.
 * *norm (may be NULL) = norm of the scaled
 * gradient before clipping. */
int optimizer_step(struct optimizer *a,
                   const struct backend *be,
                   float *theta,
                   const float *grad,
                   const struct optimizer_rate *rate,
                   double *norm);

#endif
