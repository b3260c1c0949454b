/* schedule.h - the learning rate of an inner step.
 *
 * A pure function of k, the count of inner steps that a stream of samples has
 * made, from 0; never of time or of rounds. Forms and vectors: algorithms page
 * 0.4. Words: warm-up W steps, total T, decay D (WSD only), peak and lowest
 * rate.
 *
 * The cosine is libm's: rates may differ in the last bit between machines,
 * which inner steps tolerate.
 */
#ifndef LOCO_TRAIN_MODEL_SCHEDULE_H
#define LOCO_TRAIN_MODEL_SCHEDULE_H

#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT,   /* warm-up, then peak */
    SCHEDULE_COSINE,     /* NoLoCo's form, to lowest */
    SCHEDULE_WSD_SQRT,   /* warm-up, stable, decay 1 - sqrt (Hagele et al.) */
    SCHEDULE_WSD_LINEAR, /* the same with a straight decay */
    SCHEDULE_KIND_COUNT
};

struct schedule {
    enum schedule_kind kind;
    double peak;
    double lowest;
    uint64_t warmup_steps;
    uint64_t total_steps; /* not read by CONSTANT */
    uint64_t decay_steps; /* WSD: the last so many of total_steps */
};

/* "constant", "cosine", "wsd", "wsd-linear"; LOCO_ENOENT for another. */
int schedule_kind_named(const char *name, enum schedule_kind *kind);

/* 0, or LOCO_EINVAL with what is wrong in *reason (static text; may be NULL):
 * rates finite, 0 <= lowest <= peak, the phases fit into total_steps. */
int schedule_check(const struct schedule *s, const char **reason);

/* Rate of the step that follows k made steps, for a checked schedule. */
double schedule_lr(const struct schedule *s, uint64_t k);

#endif
