/* bench.h - what the tests of the plug-in share: a GPU (emulated or real), the
 * reference beside it, buffers on both sides.
 *
 * The plug-in is argv[1], or the emulated one of this build. Each kernel runs
 * three times into outputs that begin as NaN: under the emulator's three orders
 * of blocks and threads, each launch at once and as late as it may, or three
 * times on a GPU; the bits must be the same.
 * With bf16 the inputs are rounded first, so that the reference sees the same
 * numbers.
 */
#ifndef LOCO_TESTS_UNIT_CUDA_BENCH_H
#define LOCO_TESTS_UNIT_CUDA_BENCH_H

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/device.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/emu/emu_control.h"
#include "train/replica/replica.h"

#define BUFFERS_MAX 64

static const char *plugin_path = LOCO_EMULATED_PLUGIN;
static struct emu_control *emu; /* NULL on a real GPU */
static struct backend gpu;
static struct backend ref;
static uint64_t rng = 7;

/* The emulated GPU breaks no more, and has its memory. */
static inline void emu_as_new(void)
{
    if (emu != NULL) {
        emu->memory = (uint64_t)8 << 30;
        emu->fail_malloc = emu->fail_launch = emu->hang_after = 0;
        emu->fail_pin = emu->fail_register = emu->register_error = 0;
        emu->host_pages = emu->pin_error = 0;
        emu->sticky = emu->hanging = emu->schedule = emu->early = 0;
        emu->fault_device = emu->no_peers = 0;
        memset(emu->memory_of, 0, sizeof emu->memory_of);
    }
}

/* What host_floats() gave, for forget(). */
static void *hosts[BUFFERS_MAX];
static int n_hosts;

/* What up() and room() gave, for done(). */
static void *taken[BUFFERS_MAX];
static int n_taken;

static inline int
open_gpu_with(struct backend *b, const struct plugin_options *opt, char *errmsg)
{
    struct device_options d = {.plugin = plugin_path, .gpu = *opt};
    int rv = backend_device(b, &d, errmsg);
    void *library = dlopen(plugin_path, RTLD_NOW | RTLD_NOLOAD);

    if (library != NULL) {
        emu = dlsym(library, "emu_control");
    }
    return rv;
}

static inline void open_gpu(bool bf16)
{
    char errmsg[PLUGIN_ERRMSG];
    struct plugin_options opt = {.bf16 = bf16};

    backend_cpu_ref(&ref);
    if (open_gpu_with(&gpu, &opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
}

static inline void *keep(void *p)
{
    assert_non_null(p);
    assert_true(n_taken < BUFFERS_MAX);
    return taken[n_taken++] = p;
}

/* The case is over: nothing failed, all memory goes back. */
static inline void done(void)
{
    int rv = gpu.finish(&gpu);

    if (rv != 0) {
        fail_msg("%s: %s", loco_strerror(rv), device_message(gpu.device));
    }
    while (n_taken > 0) {
        gpu.give(&gpu, taken[--n_taken]);
    }
}

static inline float round_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
    memcpy(&x, &bits, 4);
    return x;
}

/* Memory of the caller until forget(). */
static inline float *host_floats(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + 4);

    assert_non_null(x);
    assert_true(n_hosts < BUFFERS_MAX);
    hosts[n_hosts++] = x;
    return x;
}

static inline void forget(void)
{
    while (n_hosts > 0) {
        free(hosts[--n_hosts]);
    }
}

/* n numbers in (-1, 1), as an activation of the GPU can hold them. */
static inline float *random_floats(int64_t n)
{
    float *x = host_floats(n);

    for (int64_t i = 0; i < n; i++) {
        x[i] = rng_float(&rng) * 2 - 1;
        x[i] = gpu.act_bytes == 2 ? round_bf16(x[i]) : x[i];
    }
    return x;
}

static inline float *copy_of(const float *x, int64_t n)
{
    float *y = host_floats(n);

    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static inline void *bytes_up(const void *x, size_t bytes)
{
    void *p = keep(gpu.take(&gpu, bytes > 0 ? bytes : 1));

    gpu.put(&gpu, p, x, bytes);
    return p;
}

static inline float *up(const float *x, int64_t n)
{
    return bytes_up(x, (size_t)n * sizeof *x);
}

/* An activation. */
static inline float *act_up(const float *x, int64_t n)
{
    uint16_t *half;
    float *p;

    if (gpu.act_bytes == 4) {
        return up(x, n);
    }
    half = malloc((size_t)n * sizeof *half + 2);
    assert_non_null(half);
    for (int64_t i = 0; i < n; i++) {
        float r = round_bf16(x[i]);
        uint32_t bits;

        memcpy(&bits, &r, 4);
        half[i] = (uint16_t)(bits >> 16);
    }
    p = bytes_up(half, (size_t)n * sizeof *half);
    free(half);
    return p;
}

/* NaN everywhere, as fp32 and as bf16. */
static inline float *room(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + 4);
    float *p;

    assert_non_null(x);
    memset(x, 0xff, (size_t)n * sizeof *x);
    p = up(x, n);
    free(x);
    return p;
}

static inline void down(float *x, const float *p, int64_t n)
{
    gpu.get(&gpu, x, p, (size_t)n * sizeof *x);
}

static inline void act_down(float *x, const float *p, int64_t n)
{
    if (gpu.act_bytes == 4) {
        down(x, p, n);
        return;
    }
    gpu.get(&gpu, x, p, (size_t)n * 2);
    for (int64_t i = n - 1; i >= 0; i--) {
        uint16_t half;
        uint32_t bits;

        memcpy(&half, (const unsigned char *)x + 2 * i, 2);
        bits = (uint32_t)half << 16;
        memcpy(&x[i], &bits, 4);
    }
}

static inline double norm_of(const float *x, const float *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (y == NULL ? 0 : (double)y[i]);

        sum += d * d;
    }
    return sqrt(sum);
}

/* ||got - want|| <= tolerance ||want||, in all and, four times as loosely, in
 * each piece of 128: an error in one row must not drown. */
static inline void check_close(const float *got,
                               const float *want,
                               int64_t n,
                               double tolerance,
                               const char *what)
{
    double all = norm_of(want, NULL, n);
    double off = norm_of(got, want, n);

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(got[i])) {
            fail_msg("%s[%lld of %lld] is %g", what, (long long)i, (long long)n,
                     (double)got[i]);
        }
    }
    if (!(off <= tolerance * all + 1e-30)) {
        fail_msg("%s: off by %.3g of its norm", what, off / all);
    }
    for (int64_t i = 0; i < n; i += 128) {
        int64_t m = n - i < 128 ? n - i : 128;
        double piece = norm_of(want + i, NULL, m);
        double usual = all * sqrt((double)m / (double)n);

        off = norm_of(got + i, want + i, m);
        if (!(off <= 4 * tolerance * (piece > usual ? piece : usual) + 1e-30)) {
            fail_msg("%s[%lld ..]: off by %.3g, norm %.3g", what, (long long)i,
                     off, piece);
        }
    }
}

/* The number of runs, and what changes between them. AddressSanitizer looks at
 * addresses, which are the same in every order, and is slow. */
#ifdef __SANITIZE_ADDRESS__
#define RUNS 1
#else
#define RUNS 3
#endif

static inline void begin_run(int run)
{
    if (emu != NULL) {
        emu->schedule = run;
        emu->early = run == 0; /* and as late as may be */
    }
}

/* Compares run after run; the first one is kept. */
struct same_bits {
    float *first;
};

static inline void
same_bits(struct same_bits *s, const float *x, int64_t n, const char *what)
{
    if (s->first == NULL) {
        s->first = copy_of(x, n);
    } else if (memcmp(s->first, x, (size_t)n * sizeof *x) != 0) {
        fail_msg("%s has other bits in another order of threads", what);
    }
}

static inline double tolerance(void)
{
    return gpu.act_bytes == 2 ? 1e-2 : 1e-5;
}

/* ---- replicas ----------------------------------------------------------- */

static uint8_t text[4000];
static struct shard shard; /* of text */

static inline void set_text(void)
{
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)('a' + i % 23);
    }
}

static inline void open_text(void)
{
    set_text();
    shard_from_text(&shard, text, sizeof text);
}

/* A small model on that text; of its method nothing is set. */
static inline struct replica_options small_replica(void)
{
    return (struct replica_options){
        .model = {.dim = 16,
                  .layers = 1,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 16,
                  .vocab = 256,
                  .seq = 16,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5f},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
        .members = 1,
        .batch = 1,
        .micro_batch = 1,
        .seq = 16,
        .seed = 3,
        .peer = 9,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 32,
        .threads = 1,
        .reference = true,
    };
}

/* What others would be sent: replica_state_elements(), then zeros up to that of
 * any method. */
static inline float *state_of(const struct replica *r)
{
    struct replica_vector at[REPLICA_STATE_MAX];
    size_t count = replica_state(r, at);
    float *out = calloc(REPLICA_STATE_MAX * r->n, sizeof *out), *to = out;

    assert_non_null(out);
    for (size_t i = 0; i < count; i++) {
        memcpy(to, at[i].x, at[i].n * sizeof *to);
        to += at[i].n;
    }
    return out;
}

/* ---- cases -------------------------------------------------------------- */

/* With fp32 and bf16 activations. */
static inline void both(void (*body)(void))
{
    uint64_t used = emu == NULL ? 0 : emu->used;

    n_taken = 0; /* of a case that failed */
    for (int bf16 = 0; bf16 < 2; bf16++) {
        open_gpu(bf16 != 0);
        body();
        assert_int_equal(gpu.finish(&gpu), 0);
        backend_close(&gpu);
    }
    if (emu != NULL) {
        assert_int_equal(emu->used, used); /* all memory came back */
    }
}

#define CASE(name, body)                                                       \
    static void name(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        both(body);                                                            \
    }

#endif
