/* method.c - see method.h. */
#include "train/sync/method.h"

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/sync/pair.h"
#include "train/sync/trainers.h"

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

struct batch_rule method_batch_rule(const struct method *m)
{
    return (struct batch_rule){
        .test = m->batch,
        .eta = m->batch_eta > 0 ? m->batch_eta : BATCH_ETA,
        .vartheta = m->batch_vartheta > 0 ? m->batch_vartheta : BATCH_VARTHETA,
        .nu = BATCH_NU,
        .cap = BATCH_CAP * (uint64_t)m->batch_most,
        .growth = BATCH_GROWTH,
    };
}

bool method_replicas_equal(const struct method *m)
{
    return m->group != METHOD_PAIR && m->group != METHOD_TRAINER &&
           m->group != METHOD_OWNERS && !method_packs_theta(m);
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

/* Whether each contribution moves the anchor when it comes. */
static bool arrives(const struct method *m)
{
    return m->group == METHOD_QUORUM || m->group == METHOD_OWNERS;
}

bool method_refuses(enum conflict_id id, const struct method *m)
{
    switch (id) {
#define REFUSE_METHOD(name, settings, condition, reason, nearest)              \
    case CONFLICT_##name:                                                      \
        return condition;
#include "proto/base/rules.def"
    default:
        return false;
    }
}

int method_check(const struct method *m, char *errmsg)
{
    if (!m->gradients && m->period == 0) {
        return errmsg_invalid(errmsg,
                              "sync.period is 0: the parameters would never be "
                              "averaged; give the number of inner steps");
    }
    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        if (method_refuses((enum conflict_id)id, m)) {
            if (errmsg != NULL) {
                conflict_say((enum conflict_id)id, NULL, NULL, errmsg,
                             ERRMSG_SIZE);
            }
            return LOCO_EINVAL;
        }
    }
    return 0;
}
