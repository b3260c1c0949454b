/* method.c - see method.h. */
#include "train/sync/method.h"

#include "proto/base/err.h"
#include "train/errmsg.h"
#include "train/sync/pair.h"
#include "train/sync/trainers.h"

static const char *const group_names[METHOD_GROUP_COUNT] = {
    [METHOD_ALL] = "all",       [METHOD_PAIR] = "pair",
    [METHOD_QUORUM] = "quorum", [METHOD_TRAINER] = "trainer",
    [METHOD_OWNERS] = "owners",
};

const char *method_group_name(enum method_group group)
{
    return group_names[group];
}

size_t method_streams(const struct method *m,
                      struct stream out[METHOD_STREAMS_MAX])
{
    size_t n = 0;

    if (m->gradients) {
        out[n++] = (struct stream){STREAM_GRADIENT, 1, 1, 0};
    }
    if (m->period > 0) {
        out[n++] = (struct stream){STREAM_PARAMETERS, m->period, m->fragments,
                                   m->overlap};
    }
    if (m->period_u > 0) {
        out[n++] = (struct stream){STREAM_MOMENT_1, m->period_u, 1, 0};
    }
    if (m->period_v > 0) {
        out[n++] = (struct stream){STREAM_MOMENT_2, m->period_v, 1, 0};
    }
    return n;
}

bool method_has_momentum(const struct method *m)
{
    return m->delayed || m->rule.mu != 0.0F || m->rule.gamma != 0.0F ||
           m->rule.form == RULE_HEAVY_BALL;
}

bool method_replicas_equal(const struct method *m)
{
    return m->group != METHOD_PAIR && m->group != METHOD_TRAINER &&
           m->group != METHOD_OWNERS && !m->eager;
}

double method_rate(const struct method *m)
{
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n = method_streams(m, streams);
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += stream_rate(&streams[i]);
    }
    return sum;
}

static int check_streams(const struct method *m, char *errmsg)
{
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n;
    const char *reason = NULL;

    if (m->gradients && (m->period > 0 || m->period_u > 0 || m->period_v > 0)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "gradients that are averaged at every step keep all "
                           "replicas equal, so averaging the parameters or "
                           "moments too does nothing; set sync.period, "
                           "period_u and period_v to 0, or take localsgd");
    }
    if (!m->gradients && m->period == 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "sync.period is 0: the parameters would never be "
                           "averaged; give the number of inner steps");
    }
    n = method_streams(m, streams);
    for (size_t i = 0; i < n; i++) {
        if (stream_check(&streams[i], &reason) != 0) {
            return errmsg_fail(errmsg, LOCO_EINVAL, "sync: %s", reason);
        }
    }
    return 0;
}

static int check_pull(const struct method *m, char *errmsg)
{
    double alpha = (double)m->rule.mu;
    double gamma = (double)m->rule.gamma;

    if (m->group != METHOD_PAIR) {
        if (m->rule.gamma == 0.0F) {
            return 0;
        }
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "sync.gamma pulls towards a partner and all members "
                           "of group \"%s\" hold the same anchor; set it to 0, "
                           "or take noloco",
                           method_group_name(m->group));
    }
    if (!(gamma > 0.0)) {
        return errmsg_fail(
            errmsg, LOCO_EINVAL,
            "pairs need sync.gamma above 0: without a pull the "
            "replicas walk apart; the nearest good value is %.2g",
            0.7 < pair_gamma_max(alpha) ? 0.7 : pair_gamma_max(alpha));
    }
    if (!(alpha >= 0.0 && alpha < 1.0) || gamma > pair_gamma_max(alpha)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "with outer_momentum %.3g pairs need sync.gamma of "
                           "at most %.3g: beyond that their spread does not "
                           "contract",
                           alpha, pair_gamma_max(alpha));
    }
    return 0;
}

/* Whether each contribution moves the anchor when it comes. */
static bool arrives(const struct method *m)
{
    return m->group == METHOD_QUORUM || m->group == METHOD_OWNERS;
}

/* A task is a whole model's way from the anchor that was read, at its worker's
 * own time. */
static int check_arrivals(const struct method *m, char *errmsg)
{
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {m->gradients, "gradients have no tasks: take ddp with a ring"},
        {m->fragments > 1, "sync.fragments must be 1"},
        {m->overlap > 0, "sync.overlap must be 0"},
        {m->period_u > 0, "sync.period_u must be 0"},
        {m->period_v > 0, "sync.period_v must be 0"},
        {m->take != METHOD_OVERWRITE, "sync.mix must be 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (arrives(m) && rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL,
                               "asynchronous peers finish whole tasks, each at "
                               "its own time, and nothing else is averaged: %s",
                               rows[i].what);
        }
    }
    return 0;
}

static int check_group(const struct method *m, char *errmsg)
{
    if (arrives(m) && !m->delayed && m->rule.mu != 0.0F && !m->baseline) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "plain momentum applied at every arrival counts old "
                           "momentum several times; take async-dn, or "
                           "outer_momentum 0");
    }
    if (m->delayed && !arrives(m)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "delayed Nesterov is for arrivals one by one; with "
                           "group \"%s\" it equals rule N: take diloco",
                           method_group_name(m->group));
    }
    if (m->eager && m->group != METHOD_ALL) {
        return errmsg_fail(
            errmsg, LOCO_EINVAL,
            "eager updates replace the own part of a known mean, "
            "and group \"%s\" has no such mean; take group all",
            method_group_name(m->group));
    }
    if (m->eager != (m->overlap > 0 && m->overlap == m->period)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "eager means an overlap of one whole period; set "
                           "sync.overlap to %u",
                           m->eager ? m->period : 0);
    }
    if (m->group == METHOD_TRAINER && m->overlap > 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "trainers merge between rounds, and a round that "
                           "overlaps with compute is never between; set "
                           "sync.overlap to 0");
    }
    if ((m->batch != BATCH_FIXED) != (m->group == METHOD_TRAINER)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "adaptive batches belong to trainers; take adloco, "
                           "or a fixed batch");
    }
    return 0;
}

static int check_wire(const struct method *m, char *errmsg)
{
    bool low = m->wire == CODEC_INT8 || m->wire == CODEC_E3M0;

    if (low && (m->period_u > 0 || m->period_v > 0)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "moments are states, not differences: 4 or 8 bits "
                           "ruin them; take sync.wire bf16 or fp32");
    }
    if (m->wire == CODEC_FP16 && m->period_v > 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "the second moment spans more powers of two than "
                           "fp16 has within a block, and what it loses becomes "
                           "0 under a root; take sync.wire bf16 or fp32");
    }
    if (low && m->group == METHOD_PAIR) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "pairs exchange anchors, which 4 or 8 bits ruin; "
                           "take sync.wire bf16 or fp32");
    }
    if (m->error_feedback && (m->period_u > 0 || m->period_v > 0)) {
        return errmsg_fail(
            errmsg, LOCO_EINVAL,
            "error feedback carries the rounding of a difference "
            "to the next one; moments are no differences: set "
            "sync.error_feedback to false");
    }
    return 0;
}

static int check_take(const struct method *m, char *errmsg)
{
    if (m->take == METHOD_MIX && !(m->mix > 0.0F && m->mix < 1.0F)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "sync.mix is the local share and lies between 0 and "
                           "1; 0.5 is the usual value, 0 overwrites");
    }
    if (m->take != METHOD_OVERWRITE && m->group == METHOD_PAIR) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "after a pair step the live parameters are the "
                           "anchor; set sync.mix to 0");
    }
    if (m->take != METHOD_OVERWRITE && m->eager) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "an eager step already holds the own fresh part; "
                           "set sync.mix to 0");
    }
    return 0;
}

/* A pair's step is of two whole replicas, with nothing beside it. */
static int check_pair(const struct method *m, char *errmsg)
{
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {m->fragments > 1, "sync.fragments must be 1"},
        {m->overlap > 0, "sync.overlap must be 0"},
        {m->period_u > 0, "sync.period_u must be 0"},
        {m->period_v > 0, "sync.period_v must be 0"},
        {m->error_feedback,
         "sync.error_feedback must be false, for both partners already step "
         "with what the wire made of both"},
        {m->moments == METHOD_RESET, "inner moments stay"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (m->group == METHOD_PAIR && rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL,
                               "pairs exchange whole replicas between two "
                               "tasks: %s",
                               rows[i].what);
        }
    }
    return 0;
}

/* Whole models that step plainly, and numbers that go with them on the wire. */
static int check_trainers(const struct method *m, char *errmsg)
{
    bool low = m->wire == CODEC_INT8 || m->wire == CODEC_E3M0;
    uint64_t merges =
        m->trainers > 0 ? (uint64_t)(m->trainers - 1) * m->merge_every : 0;
    const struct {
        bool asked;
        const char *what;
    } rows[] = {
        {m->trainers == 0 || m->trainers > TRAINERS_MAX,
         "sync.trainers must be 1 to 16"},
        {merges > TRAINERS_MERGES, "sync.merge_every must let all of them "
                                   "merge within 63 rounds"},
        {m->batch_most == 0 || m->batch_most > BATCH_MOST_MAX,
         "sync.batch_most must be 1 to 4096"},
        {m->rule.mu != 0.0F || m->rule.form != RULE_NESTEROV,
         "sync.outer_momentum must be 0"},
        {m->fragments > 1, "sync.fragments must be 1"},
        {m->period_u > 0, "sync.period_u must be 0"},
        {m->period_v > 0, "sync.period_v must be 0"},
        {m->take != METHOD_OVERWRITE, "sync.mix must be 0"},
        {m->error_feedback, "sync.error_feedback must be false"},
        {low, "sync.wire must be fp32, bf16 or fp16"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (m->group == METHOD_TRAINER && rows[i].asked) {
            return errmsg_fail(errmsg, LOCO_EINVAL,
                               "trainers average whole models, and the batch "
                               "that each asks for, in one vector: %s",
                               rows[i].what);
        }
    }
    if (m->group != METHOD_TRAINER &&
        (m->trainers > 0 || m->merge_every > 0 || m->batch_most > 0)) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "sync.trainers, merge_every and batch_most belong "
                           "to trainers; set them to 0, or take adloco");
    }
    return 0;
}

int method_check(const struct method *m, char *errmsg)
{
    int rv = check_streams(m, errmsg);

    rv = rv != 0 ? rv : check_pull(m, errmsg);
    rv = rv != 0 ? rv : check_group(m, errmsg);
    rv = rv != 0 ? rv : check_arrivals(m, errmsg);
    rv = rv != 0 ? rv : check_wire(m, errmsg);
    rv = rv != 0 ? rv : check_take(m, errmsg);
    rv = rv != 0 ? rv : check_pair(m, errmsg);
    return rv != 0 ? rv : check_trainers(m, errmsg);
}
