/* lies.c - members that send something else than what they learnt.
 *
 * The attacks of the literature that need no more than what a member sees:
 * alone (noise, a flipped sign, a scaled update, huge numbers, nothing, a copy)
 * and together with the knowledge of what the honest send: "a little is enough"
 * (Baruch, Baruch, Goldberg 2019, arXiv:1902.06156) and the mean turned round
 * (Xie et al. 2019, arXiv:1903.03936). A liar's own replica goes on as if it
 * had been honest.
 *
 * Four are made against our own mean (sync.robust: centred), by liars that know
 * how it is computed. This is why they should do damage; whether they do is
 * measured (tests/bench/README.md). Let s be the distance of honest members
 * from their mean, at right angles to any direction, as in many dimensions.
 *
 * "overshoot". A clip bounds how far a lie moves the centre, not where to. Let
 * k = clip * l / h with l liars and h honest members. A liar at distance R from
 * the honest mean moves the centre of centred clipping by l / (l + h) R, and is
 * not clipped up to R = s (1 + h / l) k / sqrt(1 - k^2): for 3 of 8 that is 2
 * s, and the centre moves by 0.75 s, the most that any lie can do there. Along
 * the honest mean, the outer step is too long in every round, by a factor that
 * no learning rate was chosen for; nothing in it looks wrong, and the honest
 * ones do not push back, as they do against a step that is too short. With k >=
 * 1 there is no such bound at all.
 *
 * "mimic" (compare Karimireddy et al. 2022, arXiv:2006.09365). l copies and the
 * copied one are l + 1 equal vectors. With 3 of 8 these are half. Where equal
 * vectors have as many voices the centre goes to them: the run has the gradient
 * noise of one member in place of eight, and who is farthest from the mean is
 * the noisiest.
 *
 * "push" and "pull". These two are made against centre.c, where equal vectors
 * have one voice and where what is far away hardly counts: a lie has to keep
 * the distances that an honest member has. A liar learns as the honest do, so
 * its own noise is real, and adds PUSH s along the honest mean, or takes PULL s
 * away. Each is about the best of five lengths for three of eight by how far
 * the mean moves, by 0.4 s (tests/bench/centre.c, README.md there).
 */
#include "train/lab/lies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/rng.h"

#define HUGE_VALUE   1000.0F
#define DRIFT_SPREAD 1.5
#define EDGE_MOST    10.0 /* spreads, where nothing clips */
#define PUSH         1.25 /* spreads */
#define PULL         1.0

static const char *const names[LAB_LIE_COUNT] = {
    "noise",   "flip", "scale",     "huge",  "zero", "drift",
    "against", "copy", "overshoot", "mimic", "push", "pull"};

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

const char *lab_lie_name(enum lab_lie lie)
{
    return names[lie];
}

void lab_lie_names(char *text, size_t room)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < LAB_LIE_COUNT && at < room; i++) {
        const char *between = i == 0                   ? ""
                              : i + 1 == LAB_LIE_COUNT ? " or "
                                                       : ", ";

        at += (size_t)snprintf(text + at, room - at, "%s%s", between, names[i]);
    }
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
static double honest(const struct lies_group *g, uint64_t i, double *spread)
{
    double sum = 0, squares = 0, mean;
    uint32_t count = 0;

    for (uint32_t k = 0; k < g->n; k++) {
        if (!g->liar[k]) {
            double x = (double)g->x[k][i];

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

/* ---- lies that all liars tell alike, into x, which one of them packed ---- */

static void around_mean(const struct lies_group *g, float *x)
{
    for (uint64_t i = 0; i < g->len; i++) {
        double spread;
        double mean = honest(g, i, &spread);

        x[i] = (float)(g->lie == LAB_LIE_DRIFT ? mean - DRIFT_SPREAD * spread
                                               : -mean);
    }
}

/* Distance from the honest mean, in honest spreads, up to which a lie of all
 * liars is not clipped. */
static double edge(const struct lies_group *g)
{
    uint32_t liars = 0;
    double ratio, k;

    for (uint32_t i = 0; i < g->n; i++) {
        liars += g->liar[i];
    }
    if (liars == g->n) {
        return EDGE_MOST;
    }
    ratio = (double)liars / (g->n - liars);
    k = (g->clip > 0 ? (double)g->clip : 1) * ratio;
    return k < 1 ? fmin((1 + 1 / ratio) * k / sqrt(1 - k * k), EDGE_MOST)
                 : EDGE_MOST;
}

/* In each block the mean times 1 + edge * spread / length. */
static void overshoot(const struct lies_group *g, float *x)
{
    double reach = edge(g);

    for (uint64_t at = 0; at < g->len; at += g->block) {
        uint64_t end = g->len - at < g->block ? g->len : at + g->block;
        double length = 0, far = 0, factor;

        for (uint64_t i = at; i < end; i++) {
            double spread;
            double mean = honest(g, i, &spread);

            length += mean * mean;
            far += spread * spread;
            x[i] = (float)mean;
        }
        factor = length > 0 ? 1 + reach * sqrt(far / length) : 1;
        for (uint64_t i = at; i < end; i++) {
            x[i] = (float)((double)x[i] * factor);
        }
    }
}

/* The honest one that is farthest from their mean; without any, x stays. */
static void mimic(const struct lies_group *g, float *x)
{
    double far[LAB_PEERS_MAX] = {0}, spread;
    uint32_t best = g->n;

    for (uint64_t i = 0; i < g->len; i++) {
        double mean = honest(g, i, &spread);

        for (uint32_t k = 0; k < g->n; k++) {
            double d = (double)g->x[k][i] - mean;

            far[k] += d * d;
        }
    }
    for (uint32_t k = 0; k < g->n; k++) {
        if (!g->liar[k] && (best == g->n || far[k] > far[best])) {
            best = k;
        }
    }
    if (best < g->n) {
        memcpy(x, g->x[best], g->len * sizeof *x);
    }
}

/* False: this lie is of each liar alone. */
static bool together(const struct lies_group *g, float *x)
{
    switch (g->lie) {
    case LAB_LIE_DRIFT:
    case LAB_LIE_AGAINST:
        around_mean(g, x);
        return true;
    case LAB_LIE_COPY:
        memmove(x, g->x[0], g->len * sizeof *x);
        return true;
    case LAB_LIE_OVERSHOOT:
        overshoot(g, x);
        return true;
    case LAB_LIE_MIMIC:
        mimic(g, x);
        return true;
    default:
        return false;
    }
}

/* ---- lies of one -------------------------------------------------------- */

/* In each block x plus `reach` spreads along the honest mean. */
static void shift(const struct lies_group *g, float *x, double reach)
{
    for (uint64_t at = 0; at < g->len; at += g->block) {
        uint64_t end = g->len - at < g->block ? g->len : at + g->block;
        double length = 0, far = 0, factor, spread;

        for (uint64_t i = at; i < end; i++) {
            double mean = honest(g, i, &spread);

            length += mean * mean;
            far += spread * spread;
        }
        factor = length > 0 ? reach * sqrt(far / length) : 0;
        for (uint64_t i = at; i < end; i++) {
            x[i] = (float)((double)x[i] + factor * honest(g, i, &spread));
        }
    }
}

static void alone(const struct lies_group *g, uint32_t member)
{
    const uint64_t words[3] = {g->seed, g->turn, g->number[member]};
    uint64_t rng = rng_mix(words, 3);
    float *x = g->x[member];

    if (g->lie == LAB_LIE_NOISE) {
        noise(x, g->len, &rng);
        return;
    }
    if (g->lie == LAB_LIE_PUSH || g->lie == LAB_LIE_PULL) {
        shift(g, x, g->lie == LAB_LIE_PUSH ? PUSH : -PULL);
        return;
    }
    for (uint64_t i = 0; i < g->len; i++) {
        switch (g->lie) {
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

void lies_tell(const struct lies_group *g)
{
    const float *common = NULL;

    for (uint32_t k = 0; k < g->n; k++) {
        if (!g->liar[k]) {
            continue;
        }
        if (common != NULL) {
            memcpy(g->x[k], common, g->len * sizeof *common);
        } else if (together(g, g->x[k])) {
            common = g->x[k];
        } else {
            alone(g, k);
        }
    }
}
