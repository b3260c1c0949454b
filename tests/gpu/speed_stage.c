/* speed_stage.c - what cutting a model into stages costs on this GPU.
 *
 * use: gpu_speed_stage PLUGIN [TUNING [tiny]]
 *
 * One micro-batch of the 150M model (B 16, T 1024) forward and backward: in one
 * piece, then through two stages that lie on the same GPU one after the other,
 * each of its parts by itself; then the copies at the edge alone, as the
 * plug-in makes them. Milliseconds, the best of some runs after a warm-up. The
 * sum of the parts less the whole is what two edges take: copies, rounding to
 * bf16 and back by one core, looking for what is not finite, and waits. tiny: a
 * small model, to try the program under the emulator.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/model/llama_stage.h"

#define RUNS 10

static struct backend gpu;
static struct llama_config config;
static uint32_t micro_batch = 16;
static int runs = RUNS;
static int64_t n;                 /* rows of a micro-batch */
static uint32_t *tokens, *labels; /* (n) */

static double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e3 * (double)ts.tv_sec + 1e-6 * (double)ts.tv_nsec;
}

static void must(int rv, const char *what)
{
    if (rv != 0) {
        (void)printf("%s: %s: %s\n", what, loco_strerror(rv),
                     device_message(gpu.device));
        exit(1);
    }
}

static void *need(void *p)
{
    must(p == NULL ? LOCO_ENOMEM : 0, "memory");
    return p;
}

/* A part of the model, and its workspace. */
struct part {
    struct llama_room room;
    struct llama *m;
    float *theta, *grad; /* the GPU's */
};

static void open_part(struct part *p)
{
    size_t bytes = (size_t)p->room.part.numel * sizeof(float);
    float *theta = need(malloc(bytes));

    llama_part_init(&config, &p->room.part, theta, 1);
    p->theta = need(gpu.take(&gpu, bytes));
    p->grad = need(gpu.take(&gpu, bytes));
    gpu.put(&gpu, p->theta, theta, bytes);
    gpu.clear(&gpu, p->grad, bytes);
    must(gpu.finish(&gpu), "parameters");
    free(theta);
    must(llama_open_room(&p->m, &config, &gpu, &p->room), "a workspace");
}

static void close_part(struct part *p)
{
    llama_close(p->m);
    gpu.give(&gpu, p->grad);
    gpu.give(&gpu, p->theta);
}

static double whole(void)
{
    struct part p = {.room = {.micro_batch = micro_batch, .slots = 1}};
    struct llama_batch batch = {tokens, labels, micro_batch, config.seq};
    double best = INFINITY, loss;

    llama_part_whole(&config, &p.room.part);
    open_part(&p);
    for (int i = 0; i <= runs; i++) {
        double began = now_ms();

        must(llama_loss(p.m, p.theta, &batch, p.grad, &loss), "the model");
        best = i > 0 ? fmin(best, now_ms() - began) : best;
    }
    close_part(&p);
    return best;
}

/* best[]: first forward, last forward and backward, first backward. */
static void stages(double best[3])
{
    struct part first = {.room = {.micro_batch = micro_batch, .slots = 2}};
    struct part last = {.room = {.micro_batch = micro_batch, .slots = 2}};
    struct stage_batch text = {
        .b = micro_batch, .t = config.seq, .tokens = tokens};
    struct stage_batch rows = {
        .b = micro_batch, .t = config.seq, .targets = labels};
    size_t bytes = (size_t)(n * config.dim) * sizeof(float);
    float *x = need(malloc(bytes)), *dy = need(malloc(bytes));

    rows.x = x;
    must(llama_part_of_stage(&config, 2, 0, &first.room.part, NULL), "cut");
    must(llama_part_of_stage(&config, 2, 1, &last.room.part, NULL), "cut");
    open_part(&first);
    open_part(&last);
    best[0] = best[1] = best[2] = INFINITY;
    for (int i = 0; i <= runs; i++) {
        const float *y, *dx;
        double at[6], loss;

        at[0] = now_ms();
        must(stage_forward(first.m, 0, first.theta, &text, &y), "forward");
        at[1] = now_ms();
        memcpy(x, y, bytes); /* the network's */
        at[2] = now_ms();
        must(stage_score(last.m, last.theta, &rows, last.grad, &loss, &dx),
             "score");
        at[3] = now_ms();
        memcpy(dy, dx, bytes);
        at[4] = now_ms();
        must(stage_backward(first.m, 0, first.theta, tokens, dy, first.grad,
                            &dx),
             "backward");
        at[5] = now_ms();
        for (int k = 0; k < 3 && i > 0; k++) {
            best[k] = fmin(best[k], at[2 * k + 1] - at[2 * k]);
        }
    }
    close_part(&last);
    close_part(&first);
    free(dy);
    free(x);
}

static void edge(void)
{
    size_t bytes = (size_t)(n * config.dim * gpu.act_bytes);
    void *here = need(calloc(1, bytes)), *there = need(gpu.take(&gpu, bytes));
    double in = INFINITY, out = INFINITY;

    for (int i = 0; i <= runs; i++) {
        double at[3];

        at[0] = now_ms();
        gpu.put(&gpu, there, here, bytes);
        must(gpu.finish(&gpu), "copy in");
        at[1] = now_ms();
        gpu.get(&gpu, here, there, bytes);
        must(gpu.finish(&gpu), "copy out");
        at[2] = now_ms();
        in = fmin(in, at[1] - at[0]);
        out = fmin(out, at[2] - at[1]);
    }
    (void)printf("  a copy at the edge, %.1f MB: in %.2f ms (%.1f GB/s), out "
                 "%.2f ms (%.1f GB/s)\n",
                 (double)bytes * 1e-6, in, (double)bytes / in * 1e-6, out,
                 (double)bytes / out * 1e-6);
    gpu.give(&gpu, there);
    free(here);
}

int main(int argc, char **argv)
{
    struct device_options opt = {.plugin = argc > 1 ? argv[1] : NULL,
                                 .gpu = {.bf16 = true}};
    char errmsg[PLUGIN_ERRMSG];
    double one, best[3];
    uint64_t rng = 1;

    opt.gpu.tuning_path = argc > 2 ? argv[2] : NULL;
    must(llama_config_named("llama-150m", &config), "llama-150m");
    if (argc > 3) {
        config.dim = 64;
        config.heads = config.kv_heads = 1;
        config.layers = 2;
        config.ffn = 40;
        config.vocab = 64;
        config.seq = 16;
        micro_batch = 1;
        runs = 1;
    }
    if (backend_device(&gpu, &opt, errmsg) != 0) {
        (void)printf("%s\n", errmsg);
        return LOCO_EXIT_DEVICE;
    }
    n = (int64_t)micro_batch * config.seq;
    tokens = need(malloc((size_t)n * sizeof *tokens));
    labels = need(malloc((size_t)n * sizeof *labels));
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (uint32_t)rng_below(&rng, config.vocab);
        labels[i] = (uint32_t)rng_below(&rng, config.vocab);
    }
    one = whole();
    stages(best);
    (void)printf("  %s, B %u, T %u, forward and backward: %.2f ms in one "
                 "piece; two stages: %.2f + %.2f + %.2f = %.2f ms (%+.1f %%)\n",
                 argc > 3 ? "tiny" : "150M", micro_batch, config.seq, one,
                 best[0], best[1], best[2], best[0] + best[1] + best[2],
                 100 * ((best[0] + best[1] + best[2]) / one - 1));
    edge();
    free(labels);
    free(tokens);
    backend_close(&gpu);
    return 0;
}
