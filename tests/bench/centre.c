/* centre.c - what sync.robust=centred costs, and how far lies move it.
 *
 * use: bench_centre
 *
 * Cost: processor time of the owner's sum, in ns an element of the slice, for a
 * plain mean, sync.norm_clip=1 and sync.robust=centred; the best of five.
 *
 * Lies: eight vectors of 64 blocks, five of them honest: a common vector, and
 * noise of 0.8 to 1.2 times its length, so that two honest ones have a cosine
 * of about 0.5, as contributions of 16 steps have (README.md). Three are as
 * honest, and then lie (train/lab/lies.c). The distance of the sum from the
 * honest mean, in honest spreads, is the mean over blocks; a plain mean of five
 * honest ones and three more honest ones is 0.27 away.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/base/rng.h"
#include "train/lab/lies.h"
#include "train/sync/codec/codec.h"

#define MEMBERS 8
#define HONEST  5
#define BLOCK   1024
#define LEN     ((size_t)64 * BLOCK)
#define TURNS   5

enum { MEAN, CLIP, CENTRED, RULES };

static float in[CODEC_TERMS_MAX][LEN], out[LEN];
static uint8_t wire[CODEC_TERMS_MAX][4 * LEN], sum[4 * LEN];

static void fill(uint64_t seed)
{
    for (uint32_t k = 0; k < CODEC_TERMS_MAX; k++) {
        float size = 0.8F + 0.4F * (float)(k % HONEST) / (HONEST - 1);

        for (size_t i = 0; i < LEN; i++) {
            float noise = (rng_float(&seed) - 0.5F) * sqrtf(12.0F);

            in[k][i] = (i % 2 == 0 ? 0.1F : -0.1F) + 0.1F * size * noise;
        }
    }
}

static void add_up(const struct codec *c, uint32_t n, int rule)
{
    const uint8_t *terms[CODEC_TERMS_MAX];
    float scale[CODEC_TERMS_MAX];
    struct codec_sum s = {.terms = terms,
                          .scale = scale,
                          .n_terms = n,
                          .n = LEN,
                          .clip = rule == MEAN ? 0 : 1,
                          .centred = rule == CENTRED,
                          .result = out};

    for (uint32_t k = 0; k < n; k++) {
        terms[k] = wire[k];
        scale[k] = 1.0F / (float)n;
    }
    if (c->sum(sum, &s) != 0) {
        (void)fprintf(stderr, "bench_centre: a sum of %s fails\n", c->name);
        exit(1);
    }
}

static void encode(const struct codec *c, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (c->encode(wire[k], in[k], LEN, 1) != 0) {
            exit(1);
        }
    }
}

static double cpu_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_of(const struct codec *c, uint32_t n, int rule)
{
    double best = INFINITY;

    for (int i = 0; i < TURNS; i++) {
        double from = cpu_s();

        add_up(c, n, rule);
        best = fmin(best, cpu_s() - from);
    }
    return 1e9 * best / (double)LEN;
}

static void print_costs(void)
{
    static const uint32_t members[] = {4, 8, 16, 64};
    static const char *const wires[] = {"fp16", "e3m0"};

    (void)printf("%-5s %7s %8s %8s %8s   ns an element of the slice\n", "wire",
                 "members", "mean", "clip", "centred");
    fill(1);
    for (size_t w = 0; w < sizeof wires / sizeof wires[0]; w++) {
        const struct codec *c = codec_find(wires[w]);

        encode(c, CODEC_TERMS_MAX);
        for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
            (void)printf("%-5s %7u", wires[w], members[i]);
            for (int rule = 0; rule < RULES; rule++) {
                (void)printf(" %8.1f", time_of(c, members[i], rule));
            }
            (void)printf("\n");
        }
    }
}

/* Of one block: how far `out` is from the honest mean, in honest spreads. */
static double moved(float honest[HONEST][LEN], size_t at)
{
    double far = 0, spread = 0;

    for (size_t i = at; i < at + BLOCK; i++) {
        double mean = 0;

        for (int k = 0; k < HONEST; k++) {
            mean += (double)honest[k][i] / HONEST;
        }
        for (int k = 0; k < HONEST; k++) {
            double d = (double)honest[k][i] - mean;

            spread += d * d / HONEST;
        }
        far += ((double)out[i] - mean) * ((double)out[i] - mean);
    }
    return sqrt(far / spread);
}

static void print_lie(enum lab_lie lie)
{
    (void)printf("%-10s", lab_lie_name(lie));
    for (int rule = 0; rule < RULES; rule++) {
        struct lies_group g = {.lie = lie,
                               .clip = rule == MEAN ? 0 : 1,
                               .block = BLOCK,
                               .seed = 1,
                               .len = LEN,
                               .n = MEMBERS};
        double far = 0;

        fill(2);
        for (uint32_t k = 0; k < MEMBERS; k++) {
            g.x[k] = in[k];
            g.number[k] = k;
            g.liar[k] = k >= HONEST;
        }
        lies_tell(&g);
        encode(codec_find("fp32"), MEMBERS);
        add_up(codec_find("fp32"), MEMBERS, rule);
        for (size_t at = 0; at < LEN; at += BLOCK) {
            far += moved(in, at) * BLOCK / (double)LEN;
        }
        (void)printf(" %8.3g", far);
    }
    (void)printf("\n");
}

int main(void)
{
    print_costs();
    (void)printf("\n%-10s %8s %8s %8s   moved, in honest spreads\n", "lie",
                 "mean", "clip", "centred");
    for (int lie = 0; lie < LAB_LIE_COUNT; lie++) {
        print_lie((enum lab_lie)lie);
    }
    return 0;
}
