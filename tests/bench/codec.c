/* codec.c - how fast the wire codecs are, beside memcpy in the same run.
 *
 * use: bench_codec [memory|cache]
 *
 * For every codec and operation: elements per second of each instruction set
 * that this CPU has, and the best one as a share of its bound. The bound is
 * what memcpy moves: an operation that reads and writes B bytes per element
 * can do no more than (bytes that memcpy reads and writes per second) / B.
 * `memory` works on vectors of 16 Mi elements, `cache` on 16 Ki. Everything
 * is timed by the thread's CPU clock, in turns A B C A B C, medians of ROUNDS
 * turns, so that a neighbour on the machine hits all alike.
 *
 *   encode       wire = enc(scale * own)
 *   decode       result = dec(wire)
 *   add          wire = enc(dec(wire) + scale * own) in place: a ring's hop
 *   add+result   the same, and result = dec(wire): the last hop
 *   encode+ef    encode, and residual' = x - dec(wire)
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

#define ROUNDS       11
#define N_MEMORY     ((size_t)16 << 20)
#define N_CACHE      ((size_t)16 << 10)
#define CACHE_REPEAT 200

enum { ENCODE, DECODE, ADD, ADD_RESULT, ENCODE_EF, N_OPS };

static const char *const op_names[N_OPS] = {"encode", "decode", "add",
                                            "add+result", "encode+ef"};
static const char *const isas[] = {"portable", "avx2", "avx512"};
#define N_ISAS (sizeof isas / sizeof isas[0])

struct bench {
    size_t n;
    unsigned repeat;
    float *own;
    float *result;
    float *residual;
    uint8_t *wire; /* what decode reads */
    uint8_t *sum;  /* what the others write */
};

static double cpu_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, compare);
    return v[ROUNDS / 2];
}

static int run_op(struct bench *b, const struct codec *c, int op)
{
    struct codec_op o = {.own = b->own, .n = b->n, .scale = 0.5F};

    switch (op) {
    case ENCODE:
        return c->encode(b->sum, b->own, b->n, 0.5F);
    case DECODE:
        return c->decode(b->result, b->wire, b->n);
    case ADD:
        return c->add(b->sum, b->sum, b->own, b->n, 0.5F);
    case ADD_RESULT:
        o.result = b->result;
        return c->add_op(b->sum, b->sum, &o);
    default:
        o.residual = b->residual;
        o.next = b->residual;
        return c->encode_op(b->sum, &o);
    }
}

/* Bytes read and written per element, the wire's share from the codec. */
static double op_bytes(const struct codec *c, size_t n, int op)
{
    static const double floats[N_OPS] = {1, 1, 1, 2, 3};
    static const double wires[N_OPS] = {1, 1, 2, 2, 1};

    return 4 * floats[op] + wires[op] * (double)c->bytes(n) / (double)n;
}

static double time_op(struct bench *b, const struct codec *c, int op)
{
    double start = cpu_s();

    for (unsigned i = 0; i < b->repeat; i++) {
        if (run_op(b, c, op) != 0) {
            (void)fprintf(stderr, "bench_codec: %s %s %s failed\n", c->name,
                          c->isa, op_names[op]);
            exit(1);
        }
    }
    return (cpu_s() - start) / b->repeat;
}

static double time_memcpy(struct bench *b)
{
    double start = cpu_s();

    for (unsigned i = 0; i < b->repeat; i++) {
        memcpy(b->result, b->own, b->n * sizeof(float));
        /* The copy must be seen to be needed. */
        __asm__ volatile("" : : "r"(b->result) : "memory");
    }
    return (cpu_s() - start) / b->repeat;
}

static void print_row(struct bench *b, unsigned id, int op)
{
    const struct codec *forms[N_ISAS];
    double times[N_ISAS + 1][ROUNDS];
    double copied; /* bytes read and written per second */
    double best = 0;
    double bound;

    for (size_t k = 0; k < N_ISAS; k++) {
        forms[k] = codec_get_isa(id, isas[k]);
    }
    if (forms[0]->encode(b->wire, b->own, b->n, 0.5F) != 0 ||
        forms[0]->encode(b->sum, b->own, b->n, 0.5F) != 0) {
        exit(1);
    }
    for (unsigned r = 0; r < ROUNDS; r++) {
        times[N_ISAS][r] = time_memcpy(b);
        for (size_t k = 0; k < N_ISAS; k++) {
            times[k][r] = forms[k] == NULL ? 0 : time_op(b, forms[k], op);
        }
    }
    copied = 8 * (double)b->n / median(times[N_ISAS]);
    bound = copied / op_bytes(forms[0], b->n, op);
    (void)printf("%-5s %-11s", forms[0]->name, op_names[op]);
    for (size_t k = 0; k < N_ISAS; k++) {
        double rate = forms[k] == NULL ? 0 : (double)b->n / median(times[k]);

        best = rate > best ? rate : best;
        (void)printf(" %9.2f", rate / 1e9);
    }
    (void)printf(" %9.2f %6.0f%% %9.1f\n", bound / 1e9, 100 * best / bound,
                 copied / 2e9);
}

static void *allocate(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (p == NULL) {
        (void)fprintf(stderr, "bench_codec: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void measure(const char *where, size_t n, unsigned repeat)
{
    struct bench b = {.n = n, .repeat = repeat};
    uint64_t seed = 1;

    b.own = allocate(n * 4);
    b.result = allocate(n * 4);
    b.residual = allocate(n * 4);
    b.wire = allocate(n * 4);
    b.sum = allocate(n * 4);
    for (size_t i = 0; i < n; i++) {
        b.own[i] = ldexpf(rng_float(&seed) - 0.5F, -(int)rng_below(&seed, 8));
    }
    (void)printf("\n%s: vectors of %zu elements, G elements/s, memcpy GB/s\n"
                 "%-5s %-11s %9s %9s %9s %9s %7s %9s\n",
                 where, n, "type", "operation", isas[0], isas[1], isas[2],
                 "bound", "best", "memcpy");
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        for (int op = 0; op < N_OPS; op++) {
            bool adds = op == ADD || op == ADD_RESULT;

            if (!adds || codec_adds(codec_get(id))) {
                print_row(&b, id, op);
            }
        }
    }
    free(b.own);
    free(b.result);
    free(b.residual);
    free(b.wire);
    free(b.sum);
}

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "both";
    bool both = strcmp(where, "both") == 0;

    if (argc > 2 || (!both && strcmp(where, "memory") != 0 &&
                     strcmp(where, "cache") != 0)) {
        (void)fprintf(stderr, "use: bench_codec [memory|cache]\n");
        return 2;
    }
    if (both || strcmp(where, "cache") == 0) {
        measure("cache", N_CACHE, CACHE_REPEAT);
    }
    if (both || strcmp(where, "memory") == 0) {
        measure("memory", N_MEMORY, 1);
    }
    return 0;
}
