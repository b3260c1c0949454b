/* schedule.c - see schedule.h. */
#include "train/model/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/base/err.h"

#define PI 3.14159265358979323846

static const char *const names[SCHEDULE_KIND_COUNT] = {
    [SCHEDULE_CONSTANT] = "constant",
    [SCHEDULE_COSINE] = "cosine",
    [SCHEDULE_WSD_SQRT] = "wsd",
    [SCHEDULE_WSD_LINEAR] = "wsd-linear",
};

int schedule_kind_named(const char *name, enum schedule_kind *kind)
{
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *kind = (enum schedule_kind)i;
            return 0;
        }
    }
    return LOCO_ENOENT;
}

static const char *fault_of(const struct schedule *s)
{
    if ((unsigned)s->kind >= SCHEDULE_KIND_COUNT) {
        return "unknown learning-rate schedule";
    }
    if (!(s->peak >= 0 && s->peak <= 1000)) {
        return "inner.lr must be 0 to 1000";
    }
    if (s->kind == SCHEDULE_CONSTANT) {
        return NULL;
    }
    if (!(s->lowest >= 0 && s->lowest <= s->peak)) {
        return "the lowest learning rate must be 0 to inner.lr";
    }
    if (s->warmup_steps > s->total_steps) {
        return "the warm-up is longer than the schedule";
    }
    if (s->kind != SCHEDULE_COSINE &&
        s->decay_steps > s->total_steps - s->warmup_steps) {
        return "warm-up and decay are longer than the schedule";
    }
    return NULL;
}

int schedule_check(const struct schedule *s, const char **reason)
{
    const char *fault = fault_of(s);

    if (reason != NULL) {
        *reason = fault;
    }
    return fault == NULL ? 0 : LOCO_EINVAL;
}

static double cosine_lr(const struct schedule *s, uint64_t k)
{
    double f;

    if (k >= s->total_steps) {
        return s->lowest;
    }
    f = (double)(k - s->warmup_steps) /
        (double)(s->total_steps - s->warmup_steps);
    return s->lowest + 0.5 * (1 + cos(PI * f)) * (s->peak - s->lowest);
}

static double wsd_lr(const struct schedule *s, uint64_t k)
{
    uint64_t start = s->total_steps - s->decay_steps;
    double f;

    if (k < start) {
        return s->peak;
    }
    if (k >= s->total_steps) {
        return s->lowest;
    }
    f = (double)(k - start) / (double)s->decay_steps;
    f = s->kind == SCHEDULE_WSD_SQRT ? 1 - sqrt(f) : 1 - f;
    return s->lowest + (s->peak - s->lowest) * f;
}

double schedule_lr(const struct schedule *s, uint64_t k)
{
    if (k < s->warmup_steps) {
        return s->peak * (double)(k + 1) / (double)s->warmup_steps;
    }
    switch (s->kind) {
    case SCHEDULE_COSINE:
        return cosine_lr(s, k);
    case SCHEDULE_WSD_SQRT:
    case SCHEDULE_WSD_LINEAR:
        return wsd_lr(s, k);
    case SCHEDULE_CONSTANT:
    case SCHEDULE_KIND_COUNT:
        break;
    }
    return s->peak;
}
