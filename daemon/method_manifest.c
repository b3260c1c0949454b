/* method_manifest.c - see method_manifest.h. */
#include "daemon/method_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/core.h"
#include "p2p/route.h"
#include "proto/base/err.h"
#include "train/errmsg.h"

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

void manifest_from_preset(struct manifest_sync *to, const struct preset *from)
{
    const struct method *m = &from->method;

    (void)snprintf(to->preset, sizeof to->preset, "%s", from->name);
    (void)snprintf(to->wire, sizeof to->wire, "%s", codec_get(m->wire)->name);
    (void)snprintf(to->topology, sizeof to->topology, "%s",
                   codec_adds(codec_get(m->wire)) ? "ring" : "butterfly");
    (void)snprintf(to->batch_test, sizeof to->batch_test, "%s",
                   batch_tests[m->batch]);
    to->batch_most = m->batch_most;
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

int method_from_manifest(struct method *to,
                         const struct manifest_sync *from,
                         char *errmsg)
{
    const struct preset *preset;
    const struct codec *codec = codec_find(from->wire);
    int rv = preset_find(from->preset, &preset, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (codec == NULL) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "sync.wire \"%.16s\" names no codec of this build",
                           from->wire);
    }
    *to = preset->method;
    to->wire = codec->id;
    for (int i = 0; i < BATCH_TEST_COUNT; i++) {
        if (strcmp(batch_tests[i], from->batch_test) == 0) {
            to->batch = (enum batch_test)i;
        }
    }
    if (strcmp(from->topology, "owners") == 0) {
        if (to->group != METHOD_QUORUM) {
            return errmsg_fail(errmsg, LOCO_EINVAL,
                               "owners of slices apply what comes one by one "
                               "and preset \"%s\" averages what belongs "
                               "together; take sync.topology ring, or async-dn",
                               from->preset);
        }
        to->group = METHOD_OWNERS;
    }
    to->batch_most = from->batch_most;
    to->merge_every = from->merge_every;
    to->trainers = from->trainers;
    to->error_feedback = from->error_feedback;
    to->fragments = from->fragments;
    to->rule.gamma = (float)from->gamma;
    to->rule.lr = (float)from->outer_lr;
    to->rule.mu = (float)from->outer_momentum;
    if (to->gradients && from->period != 1) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "preset \"%s\" averages the gradient of every inner "
                           "step: sync.period must be 1; take localsgd or "
                           "diloco to average every %u",
                           from->preset, from->period);
    }
    to->period = to->gradients ? 0 : from->period;
    to->period_u = from->period_u;
    to->period_v = from->period_v;
    to->overlap = to->eager ? from->period : from->overlap;
    to->mix = (float)from->mix;
    if (from->mix > 0.0) {
        to->take = METHOD_MIX;
    } else if (to->take == METHOD_MIX) {
        to->take = METHOD_OVERWRITE;
    }
    return method_check(to, errmsg);
}

/* The hosts of a stage average in rounds of their own, between two of the steps
 * that all stages make together. What needs steps beside a round, or rounds of
 * part of a stage's hosts, does not fit that yet. */
/* All that a host may post at once goes out of one step of its core. */
static bool is_wide(const struct manifest *f)
{
    uint64_t elements = (uint64_t)f->inner.micro_batch * f->inner.seq *
                        f->model.dim; /* of 16 bits */
    uint64_t segments = elements * 2 / (256U << 10) + 1;

    return segments * ((uint64_t)f->stages + 2) > CORE_OUT_MAX / 2;
}

static int
check_stages(const struct method *m, const struct manifest *f, char *errmsg)
{
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {m->group == METHOD_PAIR,
         "random pairs within a stage are not built: take opendiloco or "
         "localsgd"},
        {m->group == METHOD_TRAINER,
         "trainers are whole models, each with its own hosts: take opendiloco "
         "or localsgd"},
        {m->group == METHOD_QUORUM,
         "all hosts of a stage make the same steps, so there is no quorum of "
         "those who are ready: take opendiloco or localsgd"},
        {m->group == METHOD_OWNERS,
         "owners of slices of a stage are not built: take opendiloco or "
         "localsgd"},
        {m->gradients,
         "ddp averages the gradient of every step, and the steps of a pipeline "
         "are made by each host: take localsgd, with a short sync.period"},
        {m->overlap > 0 || m->eager,
         "no steps are made beside a round: set sync.overlap to 0, or take "
         "opendiloco"},
        {m->fragments > 1,
         "a stage is averaged whole: set sync.fragments to 1"},
        {f->sites > 1, "sites are not built for them: set sites to 0"},
        {f->stages > ROUTE_STAGES_MAX, "there are at most 64 stages"},
        {is_wide(f),
         "the activations of one micro-batch, micro_batch * seq * dim, are too "
         "many to send at once: lower inner.micro_batch"},
    };

    for (size_t i = 0; f->stages > 1 && i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL,
                               "a model cut into stages cannot be trained so: "
                               "%s",
                               rows[i].what);
        }
    }
    return 0;
}

/* Settings that each make sense and do not go together. */
static int
check_group(const struct method *m, const struct manifest *f, char *errmsg)
{
    const bool ring = strcmp(f->sync.topology, "ring") == 0;
    const bool butterfly = strcmp(f->sync.topology, "butterfly") == 0;
    const bool pairs = m->group == METHOD_PAIR;
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {m->group == METHOD_OWNERS && f->stop.tokens > 0,
         "with owners of slices (sync.topology owners) nobody knows the tokens "
         "of all peers; set stop.rounds in place of stop.tokens"},
        {m->group == METHOD_QUORUM && butterfly,
         "in a quorum machines in the middle of a task take part without "
         "weight, which a butterfly cannot; take sync.topology=ring, and fp32, "
         "bf16 or fp16 on the wire"},
        {ring && !codec_adds(codec_get(m->wire)),
         "sync.wire int8 and e3m0 are never summed on the way, which a ring "
         "does; take sync.topology=butterfly, or fp32, bf16 or fp16 on the "
         "wire"},
        {pairs && f->stop.tokens > 0,
         "in a run of random pairs nobody knows the tokens of all peers; set "
         "stop.rounds in place of stop.tokens"},
        {pairs && f->sites > 1, "random pairs know no sites: set sites to 0"},
        {f->sites > 1 && !ring,
         "sites need sync.topology ring: set it, or sites to 0"},
        {f->site_rtt_ms > 0 && f->sites < 2,
         "site_rtt_ms makes sites and `sites` allows none: set it to the "
         "machines that a site may have, or site_rtt_ms to 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL, "%s", rows[i].what);
        }
    }
    return 0;
}

static int
check_clip(const struct method *m, const struct manifest *f, char *errmsg)
{
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {strcmp(f->sync.topology, "butterfly") != 0,
         "it needs sync.topology butterfly: set that, or norm_clip to 0"},
        {m->period_u > 0 || m->period_v > 0,
         "it limits differences, and sync.period_u and period_v average "
         "moments, which are none: set it to 0"},
        {m->group == METHOD_TRAINER,
         "it compares the contributions of all peers, and trainers have their "
         "own: set it to 0"},
    };

    for (size_t i = 0;
         f->sync.norm_clip != 0 && i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL, "sync.norm_clip: %s",
                               rows[i].what);
        }
    }
    return 0;
}

int method_check_inner(const struct method *m,
                       const struct manifest_inner *f,
                       char *errmsg)
{
    bool sgd = strcmp(f->optimizer, "sgd") == 0;
    bool sgdm = strcmp(f->optimizer, "sgdm") == 0;

    if ((sgd || sgdm) && m->period_v > 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "inner.optimizer %s keeps no second moment to "
                           "average: set sync.period_v to 0, or take adamw",
                           f->optimizer);
    }
    if (sgd && m->period_u > 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "inner.optimizer sgd keeps no first moment to "
                           "average: set sync.period_u to 0, or take sgdm");
    }
    return 0;
}

int method_check_run(const struct method *m,
                     const struct manifest *f,
                     char *errmsg)
{
    int rv = check_stages(m, f, errmsg);

    rv = rv != 0 ? rv : check_group(m, f, errmsg);
    rv = rv != 0 ? rv : method_check_inner(m, &f->inner, errmsg);
    return rv != 0 ? rv : check_clip(m, f, errmsg);
}
