/* bench.c - see bench.h. */
#include "train/replica/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "kernels/backend.h"
#include "kernels/measure.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/model/llama.h"
#include "train/model/optimizer.h"
#include "train/replica/gpus.h"

#define STEPS_WARM 2
#define STEPS_MIN  3
#define STEPS_MAX  10000
#define BUDGET_S   5.0

/* Everything a step needs; zeroed, so that close works at any point. */
struct bench {
    struct backend be;
    struct llama *m;
    struct replica replica; /* of several GPUs: what gpus.h works with */
    struct optimizer adam;
    float *theta;
    float *grad;
    uint32_t *tokens; /* (N + 1): targets are the tokens shifted by one */
    int64_t n;        /* tokens of a step */
    double *seconds;  /* (STEPS_MAX) */
};

/* Of all threads of the process. */
static double cpu_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    return (*x > *y) - (*x < *y);
}

static void bench_close(struct bench *s)
{
    free(s->seconds);
    free(s->tokens);
    replica_gpus_close(&s->replica);
    optimizer_close(&s->adam);
    llama_close(s->m);
    if (s->be.give != NULL) {
        s->be.give(&s->be, s->grad);
        s->be.give(&s->be, s->theta);
        backend_close(&s->be);
    }
}

/* theta in the backend's memory, by way of the caller's. */
static int bench_theta(struct bench *s, const struct llama_config *c)
{
    size_t bytes = (size_t)llama_numel(c) * sizeof(float);
    float *theta = malloc(bytes);

    s->theta = s->be.take(&s->be, bytes);
    s->grad = s->be.take(&s->be, bytes);
    if (theta == NULL || s->theta == NULL || s->grad == NULL) {
        free(theta);
        return LOCO_ENOMEM;
    }
    llama_init_params(c, theta, 1);
    s->be.put(&s->be, s->theta, theta, bytes);
    free(theta);
    return s->be.finish(&s->be);
}

static int bench_buffers(struct bench *s, const struct llama_config *c)
{
    uint64_t rng = 1;

    s->tokens = malloc((size_t)(s->n + 1) * sizeof *s->tokens);
    s->seconds = malloc(STEPS_MAX * sizeof *s->seconds);
    if (s->tokens == NULL || s->seconds == NULL) {
        return LOCO_ENOMEM;
    }
    for (int64_t i = 0; i <= s->n; i++) {
        s->tokens[i] = (uint32_t)rng_below(&rng, c->vocab);
    }
    return 0;
}

static int bench_step(struct bench *s,
                      const struct bench_train_options *opt,
                      double *loss_sum)
{
    struct llama_batch batch = {
        .tokens = s->tokens,
        .targets = s->tokens + 1,
        .b = opt->batch,
        .t = opt->seq,
    };
    struct optimizer_rate rate = {.lr = 1e-4, .grad_scale = 1 / (double)s->n};
    int rv;

    rv = s->replica.gpus != NULL
             ? replica_gpus_gradient(&s->replica, &batch, loss_sum)
             : llama_gradient(s->m, s->theta, &batch, s->grad, loss_sum);
    if (rv != 0) {
        return rv;
    }
    rv = optimizer_step(&s->adam, &s->be, s->theta, s->grad, &rate, NULL);
    return rv != 0 ? rv : s->be.finish(&s->be);
}

static bool enough(const struct bench_train_options *opt, int made, double s)
{
    if (made >= STEPS_MAX || (opt->steps > 0 && made >= opt->steps)) {
        return true;
    }
    return opt->steps == 0 && made >= STEPS_MIN && s >= BUDGET_S;
}

/* What is said of GPUs that are left out, the first sentence of it; whether any
 * was since the last call. */
static bool hear(struct bench *s, struct bench_train_result *out)
{
    const char *said;
    bool any = false;

    while ((said = device_said(s->be.device)) != NULL) {
        if (out->slow[0] == '\0') {
            (void)snprintf(out->slow, sizeof out->slow, "%.*s",
                           (int)sizeof out->slow - 1, said);
        }
    }
    while ((said = replica_gpus_said(&s->replica)) != NULL) {
        any = true;
        if (out->left_out[0] == '\0') {
            (void)snprintf(out->left_out, sizeof out->left_out, "%.*s",
                           (int)sizeof out->left_out - 1, said);
        }
    }
    return any;
}

static int bench_run(struct bench *s,
                     const struct bench_train_options *opt,
                     struct bench_train_result *out)
{
    double total = 0;
    double loss_sum = 0;
    double median;
    double cpu = INFINITY;

    for (int i = -STEPS_WARM; i < 0 || !enough(opt, i, total); i++) {
        double start = monotonic_s();
        double cpu_start = cpu_s();
        int rv = bench_step(s, opt, &loss_sum);

        if (rv != 0) {
            return rv;
        }
        if (hear(s, out)) { /* the steps of those that are left, from here on */
            i = -STEPS_WARM - 1;
            total = 0;
            cpu = INFINITY;
        }
        if (i >= 0) {
            s->seconds[i] = monotonic_s() - start;
            total += s->seconds[i];
            cpu = fmin(cpu, cpu_s() - cpu_start);
            out->steps = i + 1;
        }
    }
    qsort(s->seconds, (size_t)out->steps, sizeof *s->seconds, compare_doubles);
    median = s->seconds[out->steps / 2];
    out->loss = loss_sum / (double)s->n;
    out->ms_per_step = median * 1e3;
    out->cpu_ms_per_step = cpu * 1e3;
    out->tokens_per_s = (double)s->n / median;
    out->flops_per_s =
        out->tokens_per_s * llama_flops_per_token(&opt->config, opt->seq);
    return 0;
}

/* The best of some products of PRODUCT rows and columns, as many as fit into
 * PRODUCT_S, in seconds of wall time and of CPU time of all threads. */
#define PRODUCT        768
#define PRODUCT_DEVICE 8192
#define PRODUCT_S      0.3

/* Rows of the product: enough to fill the backend. */
static int64_t product_rows(const struct bench *s)
{
    int64_t n;

    if (s->be.device == NULL) {
        return PRODUCT;
    }
    n = (int64_t)device_info(s->be.device)->multiprocessors * 256;
    return n < PRODUCT_DEVICE ? n : PRODUCT_DEVICE;
}

/* Random numbers: a GPU multiplies zeros faster than it can anything else. */
static int fill_product(const struct bench *s, float *x, int64_t n)
{
    float *random = malloc((size_t)n * sizeof *random);
    uint64_t rng = 1;

    if (random == NULL) {
        return LOCO_ENOMEM;
    }
    for (int64_t i = 0; i < n; i++) {
        /* as bf16 both halves are numbers in (-1, 1), too */
        uint32_t half = 0x3f00U | (uint32_t)(rng_next(&rng) & 0x807fU);
        uint32_t bits = half << 16 | half;

        memcpy(&random[i], &bits, sizeof bits);
    }
    s->be.put(&s->be, x, random, (size_t)n * sizeof *random);
    free(random);
    return s->be.finish(&s->be);
}

static int time_product(const struct bench *s, double *wall, double *cpu)
{
    int64_t n = product_rows(s);
    float *x = s->be.take(&s->be, (size_t)(3 * n * n) * sizeof *x);
    /* to_weight: a and b are activations, so that a GPU takes bf16 for both */
    struct matmul op = {.m = n,
                        .n = n,
                        .k = n,
                        .a = x,
                        .lda = n,
                        .b = x == NULL ? NULL : x + n * n,
                        .ldb = n,
                        .tb = true,
                        .c = x == NULL ? NULL : x + 2 * n * n,
                        .ldc = n,
                        .alpha = 1,
                        .to_weight = true};
    int rv = x == NULL ? LOCO_ENOMEM : fill_product(s, x, 2 * n * n);

    if (rv != 0) {
        s->be.give(&s->be, x);
        return rv;
    }
    *wall = *cpu = INFINITY;
    for (double end = monotonic_s() + PRODUCT_S;
         !(*wall < INFINITY) || monotonic_s() < end;) {
        double wall_start = monotonic_s();
        double cpu_start = cpu_s();

        s->be.matmul(&s->be, &op);
        rv = s->be.finish(&s->be);
        if (rv != 0) {
            break;
        }
        *cpu = fmin(*cpu, cpu_s() - cpu_start);
        *wall = fmin(*wall, monotonic_s() - wall_start);
    }
    s->be.give(&s->be, x);
    return rv;
}

static int bench_product(const struct bench *s, struct bench_train_result *out)
{
    double wall = INFINITY, cpu = INFINITY;
    double step_flops = out->flops_per_s * out->ms_per_step / 1e3;
    double ops = 2.0 * pow((double)product_rows(s), 3);
    int rv = time_product(s, &wall, &cpu);

    if (rv == 0) {
        out->product_flops_per_s = ops / wall;
        out->peak_flops_per_s = backend_peak_flops(&s->be);
        out->gpus = replica_gpus_at_work(&s->replica);
        out->mfu = out->flops_per_s / out->product_flops_per_s /
                   (out->gpus > 1 ? out->gpus : 1);
        out->cpu_mfu = step_flops / (out->cpu_ms_per_step / 1e3) / (ops / cpu);
    }
    return rv;
}

static int64_t max_rss(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

static int open_backend(struct bench *s,
                        const struct bench_train_options *opt,
                        struct bench_train_result *out)
{
    int rv;

    if (opt->device != NULL) {
        rv = backend_device(&s->be, opt->device, out->errmsg);
        if (rv == 0) {
            memcpy(out->device, device_info(s->be.device)->name,
                   sizeof out->device);
        }
        return rv;
    }
    rv = backend_cpu_isa(&s->be, opt->threads,
                         opt->isa == NULL ? "auto" : opt->isa);
    if (rv == 0 && opt->affinity.n > 0) {
        rv = backend_set_affinity(&s->be, &opt->affinity);
    }
    return rv == 0 ? backend_set_dtype(&s->be, opt->dtype) : rv;
}

/* The other GPUs: they know a replica by these. */
static int open_gpus(struct bench *s,
                     const struct bench_train_options *opt,
                     struct bench_train_result *out)
{
    struct replica *r = &s->replica;
    int rv;

    r->backend = s->be;
    r->have_backend = true;
    r->n = (uint64_t)llama_numel(&opt->config);
    r->theta = s->theta;
    r->grad = s->grad;
    r->llama = s->m;
    r->micro_batch = out->micro_batch;
    r->recompute = opt->recompute;
    rv = replica_gpus_open(r);
    (void)hear(s, out);
    return rv;
}

/* Halves the micro-batch while a GPU has no room for it. */
static int open_llama(struct bench *s,
                      const struct bench_train_options *opt,
                      struct bench_train_result *out)
{
    uint32_t b = replica_gpus_rows(&s->replica.opt);
    int rv = LOCO_ENOMEM;

    while (rv == LOCO_ENOMEM && b > 0) {
        rv = llama_open(&s->m, &opt->config, &s->be, b, opt->recompute);
        out->micro_batch = b;
        b = opt->device == NULL ? 0 : b / 2;
    }
    return rv;
}

static int bench_open(struct bench *s,
                      const struct bench_train_options *opt,
                      struct bench_train_result *out)
{
    struct optimizer_options adam = optimizer_defaults();
    int rv = open_backend(s, opt, out);

    s->replica.opt = (struct replica_options){.model = opt->config,
                                              .batch = opt->batch,
                                              .micro_batch = opt->micro_batch,
                                              .seq = opt->seq,
                                              .device = opt->device};
    adam.rule = opt->optimizer;
    rv = rv == 0 ? optimizer_open_llama(&s->adam, &adam, &opt->config) : rv;
    if (rv == 0 && opt->device != NULL) {
        rv = optimizer_place(&s->adam, &s->be, opt->host_moments);
    }
    rv = rv == 0 ? bench_theta(s, &opt->config) : rv;
    rv = rv == 0 ? bench_buffers(s, &opt->config) : rv;
    rv = rv == 0 ? open_llama(s, opt, out) : rv;
    return rv == 0 ? open_gpus(s, opt, out) : rv;
}

/* What sizes depend on, before anything is opened. */
static void plan_backend(struct backend *be,
                         const struct bench_train_options *opt)
{
    if (opt->device != NULL) {
        backend_device_plan(be, opt->device->gpu.bf16);
    } else {
        backend_cpu_ref(be);
        be->threads = opt->threads;
    }
}

static int check(const struct bench_train_options *opt)
{
    if (llama_config_check(&opt->config, NULL) != 0 || opt->batch < 1 ||
        opt->batch > LLAMA_MICRO_BATCH_MAX || opt->micro_batch > opt->batch ||
        opt->seq > opt->config.seq || opt->threads < 1 ||
        opt->threads > BACKEND_THREADS_MAX || opt->steps < 0 ||
        opt->steps > STEPS_MAX) {
        return LOCO_EINVAL;
    }
    return 0;
}

/* Of a micro-batch: of several GPUs no more than a part of the batch. */
static uint32_t rows_of(const struct bench_train_options *opt)
{
    const struct replica_options r = {.batch = opt->batch,
                                      .micro_batch = opt->micro_batch,
                                      .device = opt->device};

    return replica_gpus_rows(&r);
}

/* What the optimizer's step takes beside its moments. */
static size_t optimizer_bytes(const struct bench_train_options *opt,
                              const struct backend *plan)
{
    struct optimizer_options o = optimizer_defaults();
    struct llama_part whole;

    o.rule = opt->optimizer;
    llama_part_whole(&opt->config, &whole);
    return opt->device != NULL ? optimizer_device_bytes(&o, &opt->config,
                                                        &whole, plan->act_bytes)
                               : optimizer_scratch_bytes(&o, &opt->config,
                                                         &whole, opt->threads);
}

int bench_train(const struct bench_train_options *options,
                struct bench_train_result *result)
{
    struct bench_train_options opt = *options;
    struct bench s = {0};
    struct backend plan;
    int rv = check(&opt);

    memset(result, 0, sizeof *result);
    if (rv != 0) {
        return rv;
    }
    opt.config.seq = opt.seq == 0 ? opt.config.seq : opt.seq;
    opt.seq = opt.config.seq;
    opt.micro_batch = opt.micro_batch == 0 ? opt.batch : opt.micro_batch;
    s.n = (int64_t)opt.batch * opt.seq;
    plan_backend(&plan, &opt);
    result->parameters = llama_numel(&opt.config);
    result->state_bytes = result->parameters * 4 * (int64_t)sizeof(float);
    result->workspace_bytes =
        (int64_t)llama_workspace_bytes(&opt.config, &plan, rows_of(&opt),
                                       opt.recompute) +
        (int64_t)optimizer_bytes(&opt, &plan);
    if (!opt.dry_run) {
        rv = bench_open(&s, &opt, result);
        if (rv == 0) {
            result->isa = s.be.isa;
            result->bf16 = s.be.bf16;
            rv = bench_run(&s, &opt, result);
        }
        result->max_rss_bytes = max_rss();
        rv = rv == 0 ? bench_product(&s, result) : rv;
        (void)hear(&s, result);
        if (rv != 0 && s.be.device != NULL && result->errmsg[0] == '\0') {
            (void)snprintf(result->errmsg, sizeof result->errmsg, "%s",
                           device_message(s.be.device));
        }
        bench_close(&s);
    }
    if (opt.dry_run) {
        result->max_rss_bytes = max_rss();
    }
    return rv;
}
