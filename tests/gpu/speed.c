/* speed.c - how fast the plug-in's kernels are on this GPU.
 *
 * use: gpu_speed PLUGIN [TUNING [DIVISOR [once|all [attention|outer]]]]
 *
 * Prints one line a kernel at the shapes of the 150M model (B 64, T 1024) and
 * of the 1.1B one (B 16, T 2048): milliseconds, the best of some runs after a
 * warm-up, and bytes or operations a second by these counts:
 * bytes that must move once, causal attention counted once. Then the
 * outer step of 1.1B parameters (speed_outer.c). DIVISOR makes everything
 * smaller by about that, to try the program under the emulator. once: each
 * kernel runs twice and no outer step is made, for a profiler.
 * attention, outer: nothing else is measured.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/gpu/speed.h"

#define RUNS 20

struct backend gpu;
static int64_t divisor = 1;
static bool once;
static void *taken[32];
static int n_taken;

double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e3 * (double)ts.tv_sec + 1e-6 * (double)ts.tv_nsec;
}

void must(int rv, const char *what)
{
    if (rv != 0) {
        (void)printf("%s: %s: %s\n", what, loco_strerror(rv),
                     device_message(gpu.device));
        exit(1);
    }
}

/* Device memory with random numbers that are so as bf16 and as fp32: the first
 * four megabytes from here, and copies of them. */
float *room(int64_t bytes)
{
    static uint32_t noise[1 << 20];
    unsigned char *p = gpu.take(&gpu, (size_t)bytes);
    int64_t have =
        bytes < (int64_t)sizeof noise ? bytes : (int64_t)sizeof noise;
    uint64_t rng = 1;

    if (p == NULL) {
        must(LOCO_ENOMEM, "memory");
    }
    taken[n_taken++] = p;
    for (int i = 0; i < 1 << 20; i++) {
        uint32_t half = 0x3e00U | (uint32_t)(rng_next(&rng) & 0x80ffU);

        noise[i] = half << 16 | half;
    }
    gpu.put(&gpu, p, noise, (size_t)have);
    must(gpu.finish(&gpu), "put");
    for (; have < bytes; have *= 2) {
        int64_t more = bytes - have < have ? bytes - have : have;

        must(device_table(gpu.device)
                 ->copy(device_gpu(gpu.device), p + have, p, (size_t)more),
             "copy");
    }
    must(gpu.finish(&gpu), "copy");
    return (float *)(void *)p;
}

void forget(void)
{
    must(gpu.finish(&gpu), "finish");
    while (n_taken > 0) {
        gpu.give(&gpu, taken[--n_taken]);
    }
}

/* One kernel of the table on one op. */
typedef void (*body)(const void *op);

#define BODY(kernel, type)                                                     \
    static void run_##kernel(const void *op)                                   \
    {                                                                          \
        gpu.kernel(&gpu, (const struct type *)op);                             \
    }
/* clang-format off */
BODY(embed_fwd, embed)
BODY(embed_bwd, embed)
BODY(rmsnorm_fwd, rmsnorm)
BODY(rmsnorm_back, rmsnorm)
BODY(rmsnorm_bwd, rmsnorm)
BODY(rmsnorm_dw, rmsnorm)
BODY(rope, rope)
BODY(attention_fwd, attention)
BODY(attention_bwd, attention)
BODY(swiglu_fwd, swiglu)
BODY(swiglu_bwd, swiglu)
BODY(xent, xent)
BODY(adamw, optimizer_op)
BODY(muon, muon_op)
BODY(sumsq, sumsq)
BODY(matmul, matmul)
/* clang-format on */

/* RUNS in a row, so that launches overlap, the best of three such rows. */
static double time_of(body run, const void *op)
{
    double best = INFINITY;
    int runs = once || divisor > 1 ? 1 : RUNS;

    for (int i = 0; i < (once ? 2 : 4); i++) {
        double began = now_ms();

        for (int k = 0; k < (i == 0 ? 1 : runs); k++) {
            run(op);
        }
        must(gpu.finish(&gpu), "a kernel");
        if (i > 0) {
            best = fmin(best, (now_ms() - began) / runs);
        }
    }
    return best;
}

static void
row(const char *name, body run, const void *op, double bytes, double flops)
{
    double ms = time_of(run, op);

    (void)printf("  %-28s %9.3f ms", name, ms);
    if (bytes > 0) {
        (void)printf(" %7.2f TB/s", bytes / ms * 1e-9);
    }
    if (flops > 0) {
        (void)printf(" %7.0f TFLOP/s", flops / ms * 1e-9);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

struct shape {
    const char *name;
    int64_t b, t, c, heads, kv, d, f, v;
};

static void elementwise(const struct shape *s)
{
    int64_t n = s->b * s->t;
    double nc = (double)(n * s->c), nf = (double)(n * s->f);
    struct rmsnorm norm = {.x = room(n * s->c * 2),
                           .add = room(n * s->c * 2),
                           .w = room(s->c * 4),
                           .y = room(n * s->c * 2),
                           .rrms = room(n * 4),
                           .dy = room(n * s->c * 2),
                           .dx = room(n * s->c * 2),
                           .dw = room(s->c * 4),
                           .n = n,
                           .c = s->c,
                           .eps = 1e-5f};
    struct swiglu swiglu = {.gu = room(n * s->f * 4),
                            .h = room(n * s->f * 2),
                            .dh = room(n * s->f * 2),
                            .dgu = room(n * s->f * 4),
                            .n = n,
                            .f = s->f};
    int64_t ld = (s->heads + 2 * s->kv) * s->d;
    struct rope rope = {.x = room(n * ld * 2),
                        .cos = room(s->t * s->d * 2),
                        .sin = room(s->t * s->d * 2),
                        .n = n,
                        .t = s->t,
                        .ld = ld,
                        .heads = s->heads + s->kv,
                        .d = s->d,
                        .sign = 1};

    row("rmsnorm + residual", run_rmsnorm_fwd, &norm, 8 * nc, 0);
    row("rmsnorm backward", run_rmsnorm_back, &norm, 8 * nc, 0);
    row("- first rung: dx alone", run_rmsnorm_bwd, &norm, 8 * nc, 0);
    row("- and dw alone", run_rmsnorm_dw, &norm, 4 * nc, 0);
    row("swiglu", run_swiglu_fwd, &swiglu, 6 * nf, 0);
    row("swiglu backward", run_swiglu_bwd, &swiglu, 10 * nf, 0);
    row("rope", run_rope, &rope, 4.0 * (double)(n * rope.heads * s->d), 0);
    forget();
}

static void attention(const struct shape *s)
{
    int64_t n = s->b * s->t, ld = (s->heads + 2 * s->kv) * s->d;
    /* causal: half of the T x T products, two forward, five backward */
    double pairs = (double)(s->b * s->heads * s->d) * (double)(s->t * s->t);
    struct attention op = {.qkv = room(n * ld * 2),
                           .out = room(n * s->heads * s->d * 2),
                           .lse = room(n * s->heads * 4),
                           .dout = room(n * s->heads * s->d * 2),
                           .dqkv = room(n * ld * 2),
                           .b = s->b,
                           .t = s->t,
                           .heads = s->heads,
                           .kv_heads = s->kv,
                           .d = s->d};

    row("attention", run_attention_fwd, &op, 0, 2 * pairs);
    row("attention backward", run_attention_bwd, &op, 0, 5 * pairs);
    forget();
}

/* The first rung: no shared memory, no tensor cores (attention_plain.cu). An
 * address that is no multiple of 16 bytes leaves it nothing else. One sequence:
 * it is slow. */
static void attention_rung(const struct shape *s)
{
    int64_t n = s->t, ld = (s->heads + 2 * s->kv) * s->d;
    double pairs = (double)(s->heads * s->d) * (double)(s->t * s->t);
    unsigned char *qkv = (unsigned char *)room(n * ld * 2 + 16);
    struct attention op = {.qkv = (float *)(void *)(qkv + 8),
                           .out = room(n * s->heads * s->d * 2),
                           .lse = room(n * s->heads * 4),
                           .dout = room(n * s->heads * s->d * 2),
                           .dqkv = room(n * ld * 2),
                           .b = 1,
                           .t = s->t,
                           .heads = s->heads,
                           .kv_heads = s->kv,
                           .d = s->d};

    row("- first rung, B 1", run_attention_fwd, &op, 0, 2 * pairs);
    row("- backward", run_attention_bwd, &op, 0, 5 * pairs);
    forget();
}

static void head_and_embedding(const struct shape *s)
{
    int64_t n = s->b * s->t, rows = 8192 / divisor;
    int64_t n_tokens = n > rows ? n : rows;
    uint32_t *tokens = malloc((size_t)n_tokens * sizeof *tokens);
    uint64_t rng = 3;
    struct xent xent = {.logits = room(rows * s->v * 2),
                        .targets = tokens,
                        .loss = room(rows * 4),
                        .n = rows,
                        .v = s->v,
                        .ld = s->v,
                        .grad = true};
    struct embed embed = {.tokens = tokens,
                          .table = room(s->v * s->c * 4),
                          .x = room(n * s->c * 2),
                          .dx = room(n * s->c * 2),
                          .dtable = room(s->v * s->c * 4),
                          .n = n,
                          .c = s->c};

    if (tokens == NULL) {
        must(LOCO_ENOMEM, "tokens");
        return;
    }
    for (int64_t i = 0; i < n_tokens; i++) {
        tokens[i] = (uint32_t)rng_below(&rng, (uint64_t)s->v);
    }
    row("loss of 8,192 rows", run_xent, &xent, 4.0 * (double)(rows * s->v), 0);
    row("embedding", run_embed_fwd, &embed, 6.0 * (double)(n * s->c), 0);
    row("embedding backward", run_embed_bwd, &embed, 2.0 * (double)(n * s->c),
        0);
    forget();
    free(tokens);
}

/* With a copy. */
static void use_theta(const float *theta, int64_t n)
{
    struct theta_copy copy = {.memory = room(n * 2)};

    gpu.use_theta(&gpu, theta, n, &copy);
}

/* The products of a layer, by their forward shape (N, in) x (in, out). */
static void products(const struct shape *s)
{
    const struct {
        const char *name;
        int64_t in, out, rows;
    } list[] = {{"product qkv", s->c, (s->heads + 2 * s->kv) * s->d, 0},
                {"product out", s->c, s->c, 0},
                {"product gate, up", s->c, 2 * s->f, 0},
                {"product down", s->f, s->c, 0},
                {"product head", s->c, s->v, 8192 / divisor}};

    for (int i = 0; i < 5; i++) {
        int64_t n = list[i].rows > 0 ? list[i].rows : s->b * s->t;
        int64_t in = list[i].in, out = list[i].out;
        float *theta = room(in * out * 4);
        struct matmul op = {.m = n,
                            .n = out,
                            .k = in,
                            .a = room(n * in * 2),
                            .lda = in,
                            .b = theta,
                            .ldb = in,
                            .tb = true,
                            .c = room(n * out * 2),
                            .ldc = out,
                            .alpha = 1};
        double flops = 2.0 * (double)n * (double)in * (double)out;
        char name[40];

        use_theta(theta, in * out);
        row(list[i].name, run_matmul, &op, 0, flops);
        op = (struct matmul){.m = out,
                             .n = in,
                             .k = n,
                             .a = op.c,
                             .lda = out,
                             .ta = true,
                             .b = op.a,
                             .ldb = in,
                             .c = theta,
                             .ldc = in,
                             .alpha = 1,
                             .to_weight = true};
        (void)snprintf(name, sizeof name, "%s, weights", list[i].name);
        row(name, run_matmul, &op, 0, flops);
        gpu.use_theta(&gpu, NULL, 0, NULL);
        forget();
    }
}

static void optimizer(int64_t n)
{
    double *partial = malloc((size_t)sumsq_chunks(n) * sizeof *partial);
    struct optimizer_op op = {.theta = room(n * 4),
                              .u = room(n * 4),
                              .v = room(n * 4),
                              .grad = room(n * 4),
                              .n = n,
                              .grad_scale = 1,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .one_minus_beta1 = 0.1f,
                              .one_minus_beta2 = 0.05f,
                              .step = 1e-4f,
                              .rsqrt_bias2 = 1,
                              .eps = 1e-8f};
    struct sumsq norm = {.x = op.grad, .partial = partial, .n = n};

    use_theta(op.theta, n);
    row("adamw and bf16 copy", run_adamw, &op, 30.0 * (double)n, 0);
    row("gradient norm", run_sumsq, &norm, 4.0 * (double)n, 0);
    gpu.use_theta(&gpu, NULL, 0, NULL);
    forget();
    free(partial);
}

/* All matrices of a layer of 150M: four square ones, three of 2,688. The flops
 * are those of the products, whole. */
static void muon_step(int64_t c, int64_t f)
{
    struct muon_matrix matrices[7];
    struct muon_op op = {.matrices = matrices,
                         .lanes = 1,
                         .grad_scale = 1,
                         .beta = 0.95f,
                         .one_minus_beta = 0.05f,
                         .lr = 1e-4f};
    double flops = 0;
    int64_t n = 0;

    for (; op.n < 7; op.n++) {
        int64_t rows = op.n < 4 ? c : op.n < 6 ? f : c;
        int64_t columns = op.n == 6 ? f : c;
        double s = (double)(rows < columns ? rows : columns);
        size_t bytes = muon_device_bytes(rows, columns, gpu.act_bytes);

        matrices[op.n] = (struct muon_matrix){n, rows, columns};
        n += rows * columns;
        op.lane_bytes = bytes > op.lane_bytes ? bytes : op.lane_bytes;
        flops += 5 * 2 * s * s * (2 * (double)(rows * columns) / s + s);
    }
    op.theta = room(n * 4);
    op.u = room(n * 4);
    op.grad = room(n * 4);
    op.scratch = (unsigned char *)room((int64_t)op.lane_bytes);
    use_theta(op.theta, n);
    row("muon, a layer of 150M", run_muon, &op, 0, flops);
    gpu.use_theta(&gpu, NULL, 0, NULL);
    forget();
}

static void all_but_attention(const struct shape *s, int number)
{
    if (number == 0) {
        attention_rung(s);
    }
    if (number < 2) {
        elementwise(s);
        head_and_embedding(s);
        products(s);
    }
}

int main(int argc, char **argv)
{
    struct shape shapes[] = {
        {"150M, B 64, T 1024", 64, 1024, 1024, 16, 16, 64, 2688, 32000},
        {"1.1B, B 16, T 2048", 16, 2048, 2048, 32, 4, 64, 5632, 32000},
        {"heads of 128, B 8, T 2048", 8, 2048, 2048, 16, 16, 128, 5632, 32000}};
    struct device_options opt = {.plugin = argc > 1 ? argv[1] : NULL,
                                 .gpu = {.bf16 = true}};
    const char *only = argc > 5 ? argv[5] : "";
    char errmsg[PLUGIN_ERRMSG];

    opt.gpu.tuning_path = argc > 2 ? argv[2] : NULL;
    divisor = argc > 3 ? strtol(argv[3], NULL, 10) : 1;
    once = argc > 4 && strcmp(argv[4], "once") == 0;
    for (int i = 0; i < 3 && divisor > 1; i++) {
        shapes[i].b = 1;
        shapes[i].t /= divisor;
        shapes[i].c = shapes[i].heads = shapes[i].kv = 2;
        shapes[i].c *= shapes[i].d;
        shapes[i].f = 40;
        shapes[i].v /= divisor;
    }
    if (backend_device(&gpu, &opt, errmsg) != 0) {
        (void)printf("%s\n", errmsg);
        return LOCO_EXIT_DEVICE;
    }
    for (int i = 0; i < 3 && strcmp(only, "outer") != 0; i++) {
        (void)printf("%s\n", shapes[i].name);
        attention(&shapes[i]);
        if (only[0] == '\0') {
            all_but_attention(&shapes[i], i);
        }
    }
    if (only[0] == '\0') {
        (void)printf("states\n");
        optimizer(214000000 / divisor / divisor);
        muon_step(divisor > 1 ? 64 : 1024, divisor > 1 ? 40 : 2688);
    }
    if (!once && strcmp(only, "attention") != 0) {
        outer_step(1100000000 / divisor / divisor);
        outer_step_of_locod(1100000000 / divisor / divisor);
    }
    backend_close(&gpu);
    return 0;
}
