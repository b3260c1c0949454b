/* method_manifest.c - see method_manifest.h. */
#include "daemon/settings/method_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/defences.h"
#include "p2p/core.h"
#include "p2p/pipeline/route.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

double manifest_real(float v)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.6g", (double)v);
    return strtod(text, NULL);
}

static const char *const batch_tests[BATCH_TEST_COUNT] = {
    [BATCH_FIXED] = "fixed",
    [BATCH_NORM] = "norm",
    [BATCH_INNER_PRODUCT] = "inner",
    [BATCH_AUGMENTED] = "augmented",
};

void manifest_from_preset(struct manifest *f, const struct preset *from)
{
    const struct method *m = &from->method;
    struct manifest_sync *to = &f->sync;

    if (from->optimizer != NULL) {
        (void)snprintf(f->inner.optimizer, sizeof f->inner.optimizer, "%s",
                       from->optimizer);
    }
    if (m->trainers > 0) {
        f->inner.batch = 1; /* batches grow from there */
    }
    (void)snprintf(to->preset, sizeof to->preset, "%s", from->name);
    (void)snprintf(to->wire, sizeof to->wire, "%s", codec_get(m->wire)->name);
    (void)snprintf(to->topology, sizeof to->topology, "%s",
                   codec_adds(codec_get(m->wire)) ? "ring" : "butterfly");
    (void)snprintf(to->batch_test, sizeof to->batch_test, "%s",
                   batch_tests[m->batch]);
    to->batch_most = m->batch_most;
    to->batch_eta = m->batch_eta;
    to->batch_vartheta = m->batch_vartheta;
    to->merge_every = m->merge_every;
    to->trainers = m->trainers;
    to->error_feedback = m->error_feedback;
    to->fragments = m->fragments;
    to->gamma = manifest_real(m->rule.gamma);
    to->mix = manifest_real(m->mix);
    to->outer_lr = manifest_real(m->rule.lr);
    to->outer_momentum = manifest_real(m->rule.mu);
    to->overlap = m->overlap;
    to->period = m->gradients ? 1 : m->period;
    to->period_u = m->period_u;
    to->period_v = m->period_v;
}

/* What the manifest names, whether it makes sense or not. */
static int
resolve(struct method *to, const struct manifest_sync *from, char *errmsg)
{
    const struct preset *preset;
    const struct codec *codec = codec_find(from->wire);
    int rv = preset_find(from->preset, &preset, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (codec == NULL) {
        return errmsg_invalid(
            errmsg, "sync.wire \"%.16s\" names no codec of this build",
            from->wire);
    }
    *to = preset->method;
    to->wire = codec->id;
    for (int i = 0; i < BATCH_TEST_COUNT; i++) {
        if (strcmp(batch_tests[i], from->batch_test) == 0) {
            to->batch = (enum batch_test)i;
        }
    }
    if (strcmp(from->topology, "owners") == 0 && to->group == METHOD_QUORUM) {
        to->group = METHOD_OWNERS;
    }
    to->batch_most = from->batch_most;
    to->batch_eta = from->batch_eta;
    to->batch_vartheta = from->batch_vartheta;
    to->merge_every = from->merge_every;
    to->trainers = from->trainers;
    to->error_feedback = from->error_feedback;
    to->fragments = from->fragments;
    to->rule.gamma = (float)from->gamma;
    to->rule.lr = (float)from->outer_lr;
    to->rule.mu = (float)from->outer_momentum;
    /* A preset that overlaps a whole period does so whatever the period is. */
    to->overlap = to->overlap > 0 && to->overlap == to->period ? from->period
                                                               : from->overlap;
    to->period = to->gradients ? 0 : from->period;
    to->period_u = from->period_u;
    to->period_v = from->period_v;
    to->mix = (float)from->mix;
    if (from->mix > 0.0) {
        to->take = METHOD_MIX;
    } else if (to->take == METHOD_MIX) {
        to->take = METHOD_OVERWRITE;
    }
    return 0;
}

/* One step of a stage host's core gives out all that it may post at once. */
static bool is_wide(const struct manifest *f)
{
    uint64_t elements = (uint64_t)f->inner.micro_batch * f->inner.seq *
                        f->model.dim; /* of 16 bits */
    uint64_t segments = elements * 2 / (256U << 10) + 1;

    return segments * ((uint64_t)f->stages + 2) > CORE_OUT_MAX / 2;
}

bool rules_refuse(enum conflict_id id,
                  const struct method *m,
                  const struct manifest *f)
{
    switch (id) {
#define REFUSE_SETTINGS(name, settings, condition, reason, nearest)            \
    case CONFLICT_##name:                                                      \
        return condition;
#define REFUSE_RUN(name, settings, condition, reason, nearest)                 \
    case CONFLICT_##name:                                                      \
        return condition;
#include "proto/base/rules.def"
    default:
        return manifest_refuses(id, f) || method_refuses(id, m);
    }
}

int rules_check(const struct method *m,
                const struct manifest *f,
                enum conflict_scope most,
                char *errmsg)
{
    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        enum conflict_scope scope = conflicts[id].scope;

        if (scope != SCOPE_FORMAT && scope <= most &&
            rules_refuse((enum conflict_id)id, m, f)) {
            return manifest_refuse((enum conflict_id)id, f, errmsg);
        }
    }
    return 0;
}

/* The one place where a run's wish for audits of work meets what they need. */
static int
check_work(const struct method *m, const struct manifest *f, char *errmsg)
{
    const struct defence_lack *lack =
        text_is(f->sync.audit, "work")
            ? defence_lack(DEFENCE_AUDIT_OF_WORK, m, f)
            : NULL;

    return lack == NULL ? 0
                        : errmsg_invalid(errmsg,
                                         "this run cannot have audits of work: "
                                         "%s; nearest that can: %s",
                                         lack->reason, lack->nearest);
}

int method_from_manifest(struct method *to,
                         const struct manifest *f,
                         enum conflict_scope most,
                         char *errmsg)
{
    int rv = resolve(to, &f->sync, errmsg);

    rv = rv != 0 ? rv : rules_check(to, f, most, errmsg);
    return rv != 0 || most < SCOPE_RUN ? rv : check_work(to, f, errmsg);
}
