/* method.h - a training method as choices of one engine.
 *
 * Every published method that loco knows is a value of this struct (algorithms
 * page, section 11): what is synchronised and when, who averages with whom,
 * how the average is applied, what goes on the wire. A preset is a named value
 * (presets.def); a run manifest may change single fields of it. What makes no
 * sense together (11.4) is a row of proto/base/rules.def, with the reason and
 * the nearest valid setting.
 *
 * Plain data and pure functions.
 */
#ifndef LOCO_TRAIN_SYNC_METHOD_H
#define LOCO_TRAIN_SYNC_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/rules.h"
#include "train/sync/batch_size.h"
#include "train/sync/codec/codec.h"
#include "train/sync/rule.h"
#include "train/sync/stream.h"

/* Who averages with whom. */
enum method_group {
    METHOD_ALL,     /* every member of the view */
    METHOD_PAIR,    /* a random partner (pair.h); replicas differ */
    METHOD_QUORUM,  /* those who finish within a grace period; all apply */
    METHOD_TRAINER, /* the members of one AdLoCo trainer */
    METHOD_OWNERS,  /* arrivals one by one at the owners of slices (slices.h):
                       in the laboratory only */
    METHOD_GROUP_COUNT
};

/* How live parameters take in the new anchor (mix.h). */
enum method_take { METHOD_OVERWRITE, METHOD_MIX, METHOD_REBASE };

/* What the inner optimizer's moments do when the parameters are averaged. */
enum method_moments { METHOD_KEEP, METHOD_RESET };

struct method {
    bool gradients;     /* average the gradient of each step (DDP) */
    uint32_t period;    /* inner steps between averages of the parameters */
    uint32_t period_u;  /* of the first moment; 0: never */
    uint32_t period_v;  /* of the second moment; 0: never */
    uint32_t fragments; /* of the parameters */
    uint32_t overlap;   /* inner steps a round may run beside compute */
    bool eager;         /* overlap = period: own fresh part, others' late */
    enum method_group group;
    struct rule rule; /* of the anchor */
    bool delayed;     /* delayed Nesterov (delayed.h) with rule's lr, mu */
    float delayed_c;
    bool baseline; /* known to be bad, kept to be compared with */
    enum method_take take;
    float mix; /* local fraction of METHOD_MIX */
    enum method_moments moments;
    enum codec_id wire;
    bool error_feedback;
    bool dylu; /* steps in proportion to speed (dylu.h) */
    enum batch_test batch;
    /* AdLoCo's trainers (trainers.h), and how many sequences fit in memory: the
     * most of one micro-batch. 0 elsewhere. */
    uint32_t trainers, merge_every, batch_most;
    double batch_eta, batch_vartheta; /* of the tests; 0: the paper's */
};

/* What the life of a replica asks of a method, whichever method it is. */

/* Packing a contribution moves the live parameters. */
static inline bool method_packs_theta(const struct method *m)
{
    return m->eager;
}

/* Inner steps made while a round was under way outlive its commit. */
static inline bool method_keeps_beside(const struct method *m)
{
    return m->overlap > 0 && (m->eager || m->take != METHOD_OVERWRITE);
}

/* Inner steps beyond its last packing of a replica that begins at an anchor. */
static inline uint32_t method_head_start(const struct method *m)
{
    return m->eager ? 0 : m->overlap;
}

#define METHOD_STREAMS_MAX 3

/* The streams of a method, at most METHOD_STREAMS_MAX; returns how many. */
size_t method_streams(const struct method *m,
                      struct stream out[METHOD_STREAMS_MAX]);

/* Whether phi is moved by more than the plain mean, so that peers must hold an
 * outer momentum. */
bool method_has_momentum(const struct method *m);

/* Whether all members hold the same bits after a round. With owners there is no
 * such moment: each reads when its own task is over. */
bool method_replicas_equal(const struct method *m);

/* How the batches of its trainers grow. */
struct batch_rule method_batch_rule(const struct method *m);

/* Whether a rule refuses it: REFUSE_METHOD of proto/base/rules.def. */
bool method_refuses(enum conflict_id id, const struct method *m);

/* 0, or LOCO_EINVAL with the sentence of the first rule that refuses it in
 * errmsg (errmsg.h). */
int method_check(const struct method *m, char *errmsg);

/* Vectors that one member sends per inner step, in units of one all-reduce of
 * all parameters; DDP is 1. */
double method_rate(const struct method *m);

#endif
