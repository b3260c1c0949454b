/* optimizer.c - see optimizer.h. */
#include "train/model/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

struct optimizer_options optimizer_defaults(void)
{
    return (struct optimizer_options){
        .rule = OPTIMIZER_ADAMW,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .clip_norm = 1,
    };
}

int optimizer_rule_named(const char *name, enum optimizer_rule *rule)
{
    static const char *const names[OPTIMIZER_RULE_COUNT] = {
        "adamw", "adopt", "sgdm", "sgd", "muon"};

    for (int i = 0; i < OPTIMIZER_RULE_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *rule = (enum optimizer_rule)i;
            return 0;
        }
    }
    return LOCO_ENOENT;
}

int optimizer_check(const struct optimizer_options *opt, const char **reason)
{
    const char *fault = NULL;

    if ((unsigned)opt->rule >= OPTIMIZER_RULE_COUNT) {
        fault = "unknown optimizer";
    } else if (!(opt->beta1 >= 0 && opt->beta1 < 1) ||
               !(opt->beta2 >= 0 && opt->beta2 < 1)) {
        fault = "betas must be at least 0 and below 1";
    } else if (!(opt->eps > 0 && opt->eps <= 1)) {
        fault = "eps must be above 0, at most 1";
    } else if (!(opt->weight_decay >= 0 && opt->weight_decay <= 100)) {
        fault = "weight decay must be 0 to 100";
    } else if (!(opt->clip_norm >= 0 && isfinite(opt->clip_norm))) {
        fault = "clip must be 0 (none) or a positive number";
    } else if (!(opt->muon_lr >= 0 && opt->muon_lr <= 1000)) {
        fault = "muon_lr must be 0 (the usual multiple) to 1000";
    }
    if (reason != NULL) {
        *reason = fault;
    }
    return fault == NULL ? 0 : LOCO_EINVAL;
}

/* Total of adjoining spans, or -1. */
static int64_t spans_numel(const struct optimizer_span *spans, int n_spans)
{
    int64_t n = 0;

    for (int i = 0; i < n_spans; i++) {
        if (spans[i].offset != n || spans[i].numel < 1) {
            return -1;
        }
        n += spans[i].numel;
    }
    return n;
}

/* Neighbours with one decay rule become one span: fewer, longer passes. */
static int join_spans(struct optimizer_span *out,
                      const struct optimizer_span *spans,
                      int n_spans)
{
    int n = 0;

    for (int i = 0; i < n_spans; i++) {
        if (n > 0 && out[n - 1].decay == spans[i].decay) {
            out[n - 1].numel += spans[i].numel;
        } else {
            out[n++] = spans[i];
        }
    }
    return n;
}

int optimizer_open(struct optimizer *a,
                   const struct optimizer_options *opt,
                   const struct optimizer_span *spans,
                   int n_spans)
{
    int64_t n = spans_numel(spans, n_spans);

    memset(a, 0, sizeof *a);
    if (n < 1 || optimizer_check(opt, NULL) != 0) {
        return LOCO_EINVAL;
    }
    a->opt = *opt;
    a->n = n;
    a->u = calloc((size_t)n, sizeof *a->u);
    a->v = calloc((size_t)n, sizeof *a->v);
    a->spans = malloc((size_t)n_spans * sizeof *spans);
    a->partial = malloc((size_t)sumsq_chunks(n) * sizeof *a->partial);
    if (a->u == NULL || a->v == NULL || a->spans == NULL ||
        a->partial == NULL) {
        optimizer_close(a);
        return LOCO_ENOMEM;
    }
    a->n_spans = join_spans(a->spans, spans, n_spans);
    return 0;
}

static bool is_muons(const struct optimizer_options *opt,
                     const struct llama_view *v)
{
    return opt->rule == OPTIMIZER_MUON && v->layered && v->ndim == 2;
}

/* The matrices of the layers are Muon's, the spans of the others AdamW's. */
static int take_matrices(struct optimizer *a,
                         const struct llama_config *c,
                         const struct llama_part *part)
{
    int n = llama_tensor_count(c), n_spans = 0;
    struct optimizer_span *spans = malloc((size_t)n * sizeof *spans);

    a->matrices = malloc((size_t)n * sizeof *a->matrices);
    if (spans == NULL || a->matrices == NULL) {
        free(spans);
        return LOCO_ENOMEM;
    }
    for (int i = 0; i < n; i++) {
        struct llama_view v;

        if (!llama_part_tensor(c, part, i, &v)) {
            continue;
        }
        if (is_muons(&a->opt, &v)) {
            a->matrices[a->n_matrices++] =
                (struct muon_matrix){v.offset, v.shape[0], v.shape[1]};
        } else {
            spans[n_spans++] =
                (struct optimizer_span){v.offset, v.numel, v.decay};
        }
    }
    free(a->spans);
    a->spans = spans;
    a->n_spans = n_spans;
    return 0;
}

int optimizer_open_part(struct optimizer *a,
                        const struct optimizer_options *opt,
                        const struct llama_config *c,
                        const struct llama_part *part)
{
    int n = llama_tensor_count(c), n_spans = 0;
    struct optimizer_span *spans = malloc((size_t)n * sizeof *spans);
    int rv;

    memset(a, 0, sizeof *a);
    if (spans == NULL) {
        return LOCO_ENOMEM;
    }
    for (int i = 0; i < n; i++) {
        struct llama_view v;

        if (llama_part_tensor(c, part, i, &v)) {
            spans[n_spans++] =
                (struct optimizer_span){v.offset, v.numel, v.decay};
        }
    }
    rv = optimizer_open(a, opt, spans, n_spans);
    free(spans);
    if (rv == 0 && opt->rule == OPTIMIZER_MUON) {
        rv = take_matrices(a, c, part);
        if (rv != 0) {
            optimizer_close(a);
        }
    }
    return rv;
}

int optimizer_open_llama(struct optimizer *a,
                         const struct optimizer_options *opt,
                         const struct llama_config *c)
{
    struct llama_part whole;

    llama_part_whole(c, &whole);
    return optimizer_open_part(a, opt, c, &whole);
}

static void give_moments(struct optimizer *a)
{
    if (a->be == NULL) {
        free(a->u);
        free(a->v);
    } else {
        a->be->give(a->be, a->u);
        a->be->give(a->be, a->v);
    }
    a->u = a->v = NULL;
}

static void give_scratch(struct optimizer *a)
{
    if (a->be == NULL) {
        free(a->scratch);
    } else {
        a->be->give(a->be, a->scratch);
    }
    a->scratch = NULL;
    a->scratch_bytes = 0;
}

/* The most that a matrix needs on a device. */
static size_t device_scratch(const struct optimizer *a, int act_bytes)
{
    size_t most = 0;

    for (int i = 0; i < a->n_matrices; i++) {
        size_t bytes = muon_device_bytes(a->matrices[i].rows,
                                         a->matrices[i].columns, act_bytes);

        most = bytes > most ? bytes : most;
    }
    return most;
}

int optimizer_place(struct optimizer *a, const struct backend *be, bool host)
{
    void *(*take)(const struct backend *, size_t) =
        host ? be->take_host : be->take;
    size_t bytes = (size_t)a->n * sizeof(float);

    give_moments(a);
    give_scratch(a);
    a->be = be;
    a->u = take(be, bytes);
    a->v = take(be, bytes);
    if (a->n_matrices > 0 && be->device != NULL) {
        a->scratch_bytes = device_scratch(a, be->act_bytes);
        a->scratch = be->take(be, a->scratch_bytes);
    }
    if (a->u == NULL || a->v == NULL ||
        (a->scratch_bytes > 0 && a->scratch == NULL)) {
        int rv = be->finish(be); /* a GPU that is lost has no memory, either */

        return rv != 0 ? rv : LOCO_ENOMEM;
    }
    optimizer_reset(a);
    return be->finish(be);
}

void optimizer_close(struct optimizer *a)
{
    give_moments(a);
    give_scratch(a);
    free(a->spans);
    free(a->matrices);
    free(a->partial);
    memset(a, 0, sizeof *a);
}

void optimizer_reset(struct optimizer *a)
{
    size_t bytes = (size_t)a->n * sizeof(float);

    if (a->be == NULL) {
        memset(a->u, 0, bytes);
        /* Pages of v that nobody touches are no memory: Muon's matrices have
         * none of it. */
        for (int i = 0; i < a->n_spans; i++) {
            memset(a->v + a->spans[i].offset, 0,
                   (size_t)a->spans[i].numel * sizeof *a->v);
        }
    } else {
        a->be->clear(a->be, a->u, bytes);
        a->be->clear(a->be, a->v, bytes);
    }
    a->t = 0;
}

/* Euclidean norm of x; infinite or NaN where x is. */
static double optimizer_norm(const struct backend *be,
                             const float *x,
                             int64_t n,
                             double *partial)
{
    int64_t chunks = sumsq_chunks(n);
    double sum = 0;

    be->sumsq(be, &(struct sumsq){.x = x, .partial = partial, .n = n});
    for (int64_t i = 0; i < chunks; i++) {
        sum += partial[i];
    }
    return sqrt(sum);
}

/* beta^t by squaring: libm's pow may differ between machines. */
static double power(double beta, uint64_t t)
{
    double result = 1;

    for (; t > 0; t >>= 1) {
        if ((t & 1) != 0) {
            result *= beta;
        }
        beta *= beta;
    }
    return result;
}

/* The scalars of step t, everything but the buffers. */
static struct optimizer_op step_op(const struct optimizer *a,
                                   const struct optimizer_rate *rate,
                                   double grad_scale)
{
    const struct optimizer_options *o = &a->opt;
    double beta1 = o->rule == OPTIMIZER_SGD ? 0 : o->beta1;
    bool corrected = o->rule == OPTIMIZER_ADAMW || o->rule == OPTIMIZER_MUON;
    double bias1 = corrected ? 1 - power(beta1, a->t) : 1;
    double bias2 = corrected ? 1 - power(o->beta2, a->t) : 1;

    return (struct optimizer_op){
        .grad_scale = (float)grad_scale,
        .beta1 = (float)beta1,
        .beta2 = (float)o->beta2,
        .one_minus_beta1 = (float)(1 - beta1),
        .one_minus_beta2 = (float)(1 - o->beta2),
        .step = (float)(rate->lr / bias1),
        .rsqrt_bias2 = (float)(1 / sqrt(bias2)),
        .eps = (float)o->eps,
        .limit = (float)sqrt(sqrt((double)(a->t - 1))),
    };
}

static void run_rule(const struct optimizer *a,
                     const struct backend *be,
                     const struct optimizer_op *op)
{
    switch (a->opt.rule) {
    case OPTIMIZER_ADAMW:
    case OPTIMIZER_MUON: /* what is none of its matrices */
        be->adamw(be, op);
        return;
    case OPTIMIZER_ADOPT:
        be->adopt(be, op);
        return;
    case OPTIMIZER_SGDM:
    case OPTIMIZER_SGD:
        be->sgdm(be, op);
        return;
    case OPTIMIZER_RULE_COUNT:
        return;
    }
}

/* ---- Muon --------------------------------------------------------------- */

/* A lane for each thread, as long as all scratch is no more than two moments
 * of AdamW. */
static int64_t
lanes_of(int64_t n, int64_t n_matrices, size_t lane_bytes, int threads)
{
    size_t most = 2 * (size_t)n * sizeof(float);
    int64_t lanes = threads < n_matrices ? threads : n_matrices;

    while (lanes > 1 && (size_t)lanes * lane_bytes > most) {
        lanes--;
    }
    return lanes;
}

/* 0: no memory. */
static int64_t
muon_lanes(struct optimizer *a, const struct backend *be, size_t *lane_bytes)
{
    int64_t lanes;
    size_t bytes;

    if (be->device != NULL) { /* optimizer_place() took it */
        *lane_bytes = a->scratch_bytes;
        return 1;
    }
    *lane_bytes = 0;
    for (int i = 0; i < a->n_matrices; i++) {
        const struct muon_matrix *m = &a->matrices[i];

        bytes = muon_bytes(m->rows, m->columns, be->scratch == NULL);
        *lane_bytes = bytes > *lane_bytes ? bytes : *lane_bytes;
    }
    lanes = lanes_of(a->n, a->n_matrices, *lane_bytes, be->threads);
    bytes = (size_t)lanes * *lane_bytes;
    if (bytes > a->scratch_bytes) {
        free(a->scratch);
        a->scratch = aligned_alloc(64, bytes);
        a->scratch_bytes = a->scratch == NULL ? 0 : bytes;
    }
    return a->scratch == NULL ? 0 : lanes;
}

size_t optimizer_scratch_bytes(const struct optimizer_options *opt,
                               const struct llama_config *c,
                               const struct llama_part *part,
                               int threads)
{
    int64_t n_matrices = 0;
    size_t lane_bytes = 0;

    for (int i = 0; i < llama_tensor_count(c); i++) {
        struct llama_view v;

        if (llama_part_tensor(c, part, i, &v) && is_muons(opt, &v)) {
            size_t bytes = muon_bytes(v.shape[0], v.shape[1], false);

            lane_bytes = bytes > lane_bytes ? bytes : lane_bytes;
            n_matrices++;
        }
    }
    return (size_t)lanes_of(part->numel, n_matrices, lane_bytes, threads) *
           lane_bytes;
}

size_t optimizer_device_bytes(const struct optimizer_options *opt,
                              const struct llama_config *c,
                              const struct llama_part *part,
                              int act_bytes)
{
    size_t most = 0;

    for (int i = 0; i < llama_tensor_count(c); i++) {
        struct llama_view v;

        if (llama_part_tensor(c, part, i, &v) && is_muons(opt, &v)) {
            size_t bytes = muon_device_bytes(v.shape[0], v.shape[1], act_bytes);

            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static void muon_step(struct optimizer *a,
                      const struct backend *be,
                      const struct optimizer_rate *rate,
                      struct muon_op *op)
{
    const struct optimizer_options *o = &a->opt;
    double lr = rate->lr * (o->muon_lr > 0 ? o->muon_lr : OPTIMIZER_MUON_LR);

    op->u = a->u;
    op->matrices = a->matrices;
    op->n = a->n_matrices;
    op->scratch = a->scratch;
    op->beta = (float)OPTIMIZER_MUON_BETA;
    op->one_minus_beta = (float)(1 - OPTIMIZER_MUON_BETA);
    op->lr = (float)lr;
    op->decay = (float)(lr * o->weight_decay);
    be->muon(be, op);
}

/* ---- a step ------------------------------------------------------------- */

static void adamw_and_others(struct optimizer *a,
                             const struct backend *be,
                             float *theta,
                             const float *grad,
                             const struct optimizer_rate *rate,
                             double scale)
{
    for (int i = 0; i < a->n_spans; i++) {
        const struct optimizer_span *s = &a->spans[i];
        struct optimizer_op op = step_op(a, rate, scale);

        op.theta = theta + s->offset;
        op.grad = grad + s->offset;
        op.u = a->u + s->offset;
        op.v = a->v + s->offset;
        op.n = s->numel;
        op.decay = s->decay ? (float)(rate->lr * a->opt.weight_decay) : 0;
        run_rule(a, be, &op);
    }
}

int optimizer_step(struct optimizer *a,
                   const struct backend *be,
                   float *theta,
                   const float *grad,
                   const struct optimizer_rate *rate,
                   double *norm)
{
    struct muon_op muon = {.theta = theta, .grad = grad};
    double scale = rate->grad_scale;
    double gnorm = optimizer_norm(be, grad, a->n, a->partial) * scale;
    int rv = be->finish(be);

    if (rv != 0) {
        return rv;
    }
    if (norm != NULL) {
        *norm = gnorm;
    }
    if (!isfinite(gnorm) || !isfinite(rate->lr)) {
        return LOCO_ENUMERIC;
    }
    if (a->n_matrices > 0) {
        muon.lanes = muon_lanes(a, be, &muon.lane_bytes);
        if (muon.lanes == 0) {
            return LOCO_ENOMEM;
        }
    }
    if (a->opt.clip_norm > 0 && gnorm > a->opt.clip_norm) {
        scale *= a->opt.clip_norm / gnorm;
    }
    a->t++;
    adamw_and_others(a, be, theta, grad, rate, scale);
    if (a->n_matrices > 0) {
        muon.grad_scale = (float)scale;
        muon_step(a, be, rate, &muon);
    }
    return 0;
}
