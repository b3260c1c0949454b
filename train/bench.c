/* bench.c - see bench.h. */
#include "train/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "kernels/backend.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/llama.h"
#include "train/optimizer.h"

#define STEPS_WARM 2
#define STEPS_MIN  3
#define STEPS_MAX  10000
#define BUDGET_S   5.0

/* Everything a step needs; zeroed, so that close works at any point. */
struct bench {
    struct backend be;
    struct llama *m;
    struct optimizer adam;
    float *theta;
    float *grad;
    uint32_t *tokens; /* (N + 1): targets are the tokens shifted by one */
    int64_t n;        /* tokens of a step */
    double *seconds;  /* (STEPS_MAX) */
};

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

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
    free(s->grad);
    free(s->theta);
    optimizer_close(&s->adam);
    llama_close(s->m);
    backend_close(&s->be);
}

static int bench_buffers(struct bench *s, const struct llama_config *c)
{
    size_t n = (size_t)llama_numel(c);
    uint64_t rng = 1;

    s->theta = malloc(n * sizeof *s->theta);
    s->grad = malloc(n * sizeof *s->grad);
    s->tokens = malloc((size_t)(s->n + 1) * sizeof *s->tokens);
    s->seconds = malloc(STEPS_MAX * sizeof *s->seconds);
    if (s->theta == NULL || s->grad == NULL || s->tokens == NULL ||
        s->seconds == NULL) {
        return LOCO_ENOMEM;
    }
    llama_init_params(c, s->theta, 1);
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

    rv = llama_gradient(s->m, s->theta, &batch, s->grad, loss_sum);
    if (rv != 0) {
        return rv;
    }
    return optimizer_step(&s->adam, &s->be, s->theta, s->grad, &rate, NULL);
}

static bool enough(const struct bench_train_options *opt, int made, double s)
{
    if (made >= STEPS_MAX || (opt->steps > 0 && made >= opt->steps)) {
        return true;
    }
    return opt->steps == 0 && made >= STEPS_MIN && s >= BUDGET_S;
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
        double start = now_s();
        double cpu_start = cpu_s();
        int rv = bench_step(s, opt, &loss_sum);

        if (rv != 0) {
            return rv;
        }
        if (i >= 0) {
            s->seconds[i] = now_s() - start;
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
#define PRODUCT     768
#define PRODUCT_S   0.3
#define PRODUCT_OPS (2.0 * PRODUCT * PRODUCT * PRODUCT)

static int time_product(const struct bench *s, double *wall, double *cpu)
{
    int64_t n = PRODUCT;
    float *x = calloc((size_t)(3 * n * n), sizeof *x);
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
                        .alpha = 1};

    if (x == NULL) {
        return LOCO_ENOMEM;
    }
    *wall = *cpu = INFINITY;
    for (double end = now_s() + PRODUCT_S;
         !(*wall < INFINITY) || now_s() < end;) {
        double wall_start = now_s();
        double cpu_start = cpu_s();

        s->be.matmul(&s->be, &op);
        *cpu = fmin(*cpu, cpu_s() - cpu_start);
        *wall = fmin(*wall, now_s() - wall_start);
    }
    free(x);
    return 0;
}

static int bench_product(const struct bench *s, struct bench_train_result *out)
{
    double wall, cpu;
    double step_flops = out->flops_per_s * out->ms_per_step / 1e3;
    int rv = time_product(s, &wall, &cpu);

    if (rv == 0) {
        out->product_flops_per_s = PRODUCT_OPS / wall;
        out->mfu = out->flops_per_s / out->product_flops_per_s;
        out->cpu_mfu =
            step_flops / (out->cpu_ms_per_step / 1e3) / (PRODUCT_OPS / cpu);
    }
    return rv;
}

static int64_t max_rss(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

static int bench_open(struct bench *s, const struct bench_train_options *opt)
{
    struct optimizer_options adam = optimizer_defaults();
    int rv;

    if (opt->isa == NULL) {
        rv = backend_cpu(&s->be, opt->threads);
    } else {
        rv = backend_cpu_isa(&s->be, opt->threads, opt->isa);
    }
    if (rv == 0 && opt->affinity.n > 0) {
        rv = backend_set_affinity(&s->be, &opt->affinity);
    }
    if (rv == 0) {
        rv = backend_set_dtype(&s->be, opt->dtype);
    }
    if (rv == 0) {
        rv = llama_open(&s->m, &opt->config, &s->be, opt->micro_batch,
                        opt->recompute);
    }
    if (rv == 0) {
        rv = optimizer_open_llama(&s->adam, &adam, &opt->config);
    }
    return rv == 0 ? bench_buffers(s, &opt->config) : rv;
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

int bench_train(const struct bench_train_options *options,
                struct bench_train_result *result)
{
    struct bench_train_options opt = *options;
    struct bench s = {0};
    int rv = check(&opt);

    memset(result, 0, sizeof *result);
    if (rv != 0) {
        return rv;
    }
    opt.config.seq = opt.seq == 0 ? opt.config.seq : opt.seq;
    opt.seq = opt.config.seq;
    opt.micro_batch = opt.micro_batch == 0 ? opt.batch : opt.micro_batch;
    s.n = (int64_t)opt.batch * opt.seq;
    s.be.threads = opt.threads;
    result->parameters = llama_numel(&opt.config);
    result->state_bytes = result->parameters * 4 * (int64_t)sizeof(float);
    result->workspace_bytes = (int64_t)llama_workspace_bytes(
        &opt.config, &s.be, opt.micro_batch, opt.recompute);
    if (!opt.dry_run) {
        rv = bench_open(&s, &opt);
        if (rv == 0) {
            result->isa = s.be.isa;
            result->bf16 = s.be.bf16;
            rv = bench_run(&s, &opt, result);
        }
        result->max_rss_bytes = max_rss();
        if (rv == 0) {
            rv = bench_product(&s, result);
        }
        bench_close(&s);
    }
    if (opt.dry_run) {
        result->max_rss_bytes = max_rss();
    }
    return rv;
}
