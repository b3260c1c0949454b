/* defences.c - see defences.h. */
#include "daemon/settings/defences.h"

#include <stddef.h>
#include <stdio.h>

#include "train/replica/eval.h"

#define ROBUST_RADIUS 1 /* tests/bench/README.md, Members that lie */
/* Bits per byte: eight standard deviations of a figure (eval.h there). A ruined
 * model is worse by more than 1. */
#define GATE_BITS 0.5

/* clang-format off */
static const char *const titles[DEFENCE_COUNT] = {
#define DEFENCE(name, title) [DEFENCE_##name] = title,
#include "daemon/settings/defences.def"
};

static const struct defence_lack lacks[] = {
#define LACKS(name, condition, who, reason, nearest)                           \
    {DEFENCE_##name, who, reason, nearest},
#include "daemon/settings/defences.def"
};
/* clang-format on */
#define N_LACKS (sizeof lacks / sizeof lacks[0])

/* Of the time of a round's steps: a forward pass is a third of a step. */
static double defence_gate_costs(const struct manifest *f)
{
    double tokens = (double)f->sync.period * f->inner.batch * f->model.seq;

    return EVAL_DRAWN / (3 * tokens);
}

const char *defence_title(enum defence d)
{
    return titles[d];
}

const struct defence_lack *
defence_lack(enum defence d, const struct method *m, const struct manifest *f)
{
    const bool holds[N_LACKS] = {
#define LACKS(name, condition, who, reason, nearest) condition,
#include "daemon/settings/defences.def"
    };

    for (size_t i = 0; i < N_LACKS; i++) {
        if (lacks[i].of == d && holds[i]) {
            return &lacks[i];
        }
    }
    return NULL;
}

const struct defence_lack *defence_lack_at(size_t i)
{
    return i < N_LACKS ? &lacks[i] : NULL;
}

void defence_gate(struct manifest_sync *sync)
{
    sync->rollback = GATE_BITS;
}

void defence_slices(struct manifest_sync *sync)
{
    (void)snprintf(sync->topology, sizeof sync->topology, "butterfly");
}

void defence_audit(struct manifest_sync *sync)
{
    defence_slices(sync);
    (void)snprintf(sync->audit, sizeof sync->audit, "sums");
}

void defence_robust(struct manifest_sync *sync)
{
    defence_slices(sync);
    (void)snprintf(sync->robust, sizeof sync->robust, "centred");
    sync->norm_clip = ROBUST_RADIUS;
}

bool defence_is_robust(const struct manifest_sync *sync)
{
    return text_is(sync->topology, "butterfly") &&
           text_is(sync->robust, "centred") && sync->norm_clip > 0;
}

bool defence_is_audited(const struct manifest_sync *sync)
{
    return text_is(sync->topology, "butterfly") && audit_has_sums(sync->audit);
}
