/* lies.c - members that send something else than what they learnt.
 *
 * The attacks of the literature that need no more than what a member sees:
 * alone (noise, a flipped sign, a scaled update, huge numbers, nothing, a copy)
 * and together with the knowledge of what the honest send: "a little is enough"
 * (Baruch, Baruch, Goldberg 2019, arXiv:1902.06156) and the mean turned round
 * (Xie et al. 2019, arXiv:1903.03936). A liar's own replica goes on as if it
 * had been honest.
 */
#include <math.h>
#include <string.h>

#include "proto/base/rng.h"
#include "train/lab/internal.h"

#define HUGE_VALUE   1000.0F
#define DRIFT_SPREAD 1.5

static const char *const names[LAB_LIE_COUNT] = {
    "noise", "flip", "scale", "huge", "zero", "drift", "against", "copy"};

bool lab_lie_named(const char *name, enum lab_lie *lie)
{
    for (int i = 0; i < LAB_LIE_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *lie = (enum lab_lie)i;
            return true;
        }
    }
    return false;
}

static bool lies(const struct lab *lab, uint32_t peer)
{
    return peer < lab->opt.peers && peer + lab->opt.liars >= lab->opt.peers;
}

static double norm_of(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

/* A direction in which every element has the same chance. */
static void noise(float *x, uint64_t len, uint64_t *rng)
{
    double length = norm_of(x, len), scale;

    for (uint64_t i = 0; i < len; i++) {
        x[i] = rng_float(rng) - 0.5F;
    }
    scale = length / norm_of(x, len);
    for (uint64_t i = 0; i < len; i++) {
        x[i] = (float)((double)x[i] * scale);
    }
}

/* Mean and spread of what the honest send, in element i. */
static double honest(const struct lab *lab,
                     const uint32_t *who,
                     uint32_t n,
                     uint64_t i,
                     double *spread)
{
    double sum = 0, squares = 0, mean;
    uint32_t count = 0;

    for (uint32_t k = 0; k < n; k++) {
        if (!lies(lab, who[k])) {
            double x = (double)lab->packed[who[k]][i];

            sum += x;
            squares += x * x;
            count++;
        }
    }
    mean = count > 0 ? sum / count : 0;
    squares = count > 0 ? squares / count - mean * mean : 0;
    *spread = squares > 0 ? sqrt(squares) : 0;
    return mean;
}

/* What all liars send when they know what the honest send. */
static void together(
    struct lab *lab, const uint32_t *who, uint32_t n, uint64_t len, float *x)
{
    for (uint64_t i = 0; i < len; i++) {
        double spread;
        double mean = honest(lab, who, n, i, &spread);

        x[i] =
            (float)(lab->opt.lie == LAB_LIE_DRIFT ? mean - DRIFT_SPREAD * spread
                                                  : -mean);
    }
}

static void alone(struct lab *lab, uint32_t peer, uint64_t len)
{
    const uint64_t words[3] = {lab->opt.seed, lab->turns, peer};
    uint64_t rng = rng_mix(words, 3);
    float *x = lab->packed[peer];

    if (lab->opt.lie == LAB_LIE_NOISE) {
        noise(x, len, &rng);
        return;
    }
    for (uint64_t i = 0; i < len; i++) {
        switch (lab->opt.lie) {
        case LAB_LIE_FLIP:
            x[i] = -x[i];
            break;
        case LAB_LIE_SCALE:
            x[i] = HUGE_VALUE * x[i];
            break;
        case LAB_LIE_HUGE:
            x[i] = (rng_next(&rng) >> 63) != 0 ? HUGE_VALUE : -HUGE_VALUE;
            break;
        default:
            x[i] = 0;
            break;
        }
    }
}

void lab_lie(struct lab *lab, const uint32_t *who, uint32_t n, uint64_t len)
{
    enum lab_lie lie = lab->opt.lie;
    const float *common = NULL;

    for (uint32_t k = 0; k < n; k++) {
        float *x = lab->packed[who[k]];

        if (!lies(lab, who[k])) {
            continue;
        }
        if (lie == LAB_LIE_COPY) {
            common = lab->packed[who[0]];
        } else if (lie != LAB_LIE_DRIFT && lie != LAB_LIE_AGAINST) {
            alone(lab, who[k], len);
            continue;
        } else if (common == NULL) {
            together(lab, who, n, len, x);
            common = x;
        }
        if (x != common) {
            memcpy(x, common, len * sizeof *x);
        }
    }
}
