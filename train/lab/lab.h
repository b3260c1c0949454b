/* lab.h - the laboratory: many replicas of a real model in one process.
 *
 * An operator chooses a method, its period and its wire before renting
 * machines; a method's claims must be seen on real text. The laboratory trains
 * M replicas of a real model with any method (sync/method.h) through the same
 * engine, optimizer, codecs and data order as the daemon, and computes what
 * the network would have cost in virtual time from links and speeds. Losses
 * are real, seconds are not. With the same learning rates the parameters have
 * the bits of replica.h's; tests compare both, method by method.
 *
 * Words
 *   tokens      over all peers together; a run ends when so many were used
 *   script      peers that join, leave, die or change speed at a token count
 *   turn        one synchronisation of one stream or fragment
 *   point       what the run looked like after a turn
 *
 * Virtual time. Each peer has a clock. A step takes batch * seq / speed. A ring
 * over n members takes 2 (n - 1) / n * bytes at the slowest member's link and
 * 2 (n - 1) times the largest delay; a pair takes its payload once and one
 * delay. Who waits takes the later clock. What overlaps costs only what is
 * left when it is due. Nothing else is modelled: no loss, no congestion, no
 * time for the outer step.
 *
 * Learning rates follow the tokens, in a swarm the steps: step k of the
 * schedule is tokens used so far divided by the tokens that all first peers use
 * in one step, so that a run whose peers are unequal, or change, or whose
 * batches grow, ends at the end of its schedule.
 *
 * Stages. With `stages` S above 1 every peer is a host of one stage, number
 * p of stage p mod S in column p / S; each stage averages among its hosts, and
 * micro-batches go through the stages by `route`, column by column or in random
 * order (NoLoCo 3.1). A step then takes as long as its slowest host computes
 * and sends, and the way of one micro-batch through all stages before it.
 *
 * Memory: 4 bytes * parameters * (5 to 9 vectors of the method) per peer, with
 * AdLoCo (4 and one for each trainer); in a butterfly its encoded vector, too.
 *
 * Liars (lies.h) are in groups of all peers that average parameters.
 * One thread drives it; kernels may use more. Errors: codes with a sentence in
 * errmsg; LOCO_ENUMERIC when a replica diverged.
 */
#ifndef LOCO_TRAIN_LAB_LAB_H
#define LOCO_TRAIN_LAB_LAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "train/data/shard.h"
#include "train/model/llama_config.h"
#include "train/model/optimizer.h"
#include "train/model/schedule.h"
#include "train/sync/merge.h"
#include "train/sync/method.h"

#define LAB_PEERS_MAX  64
#define LAB_EVENTS_MAX 256

/* A peer's own line and machine. */
struct lab_machine {
    double tokens_per_s;     /* of the inner loop */
    double up_bytes_per_s;   /* 0: never waits for bytes */
    double down_bytes_per_s; /* 0: never waits for bytes */
    double delay_s;          /* one way, to anybody */
};

enum lab_event_kind {
    LAB_JOIN,  /* the peer with this number begins from the others' state */
    LAB_LEAVE, /* at its next turn's end */
    LAB_DIE,   /* at once: what it learnt since its last turn is lost */
    LAB_SPEED  /* tokens_per_s becomes `value` */
};

struct lab_event {
    uint64_t at_tokens;
    enum lab_event_kind kind;
    uint32_t peer;
    double value;
};

struct lab_point {
    uint64_t tokens;
    uint64_t turns;
    double virtual_s;
    double loss;          /* of the inner steps since the last point, nats */
    double bits_per_byte; /* held out; NAN where it was not measured */
    uint64_t bytes_sent;  /* by all peers together */
    uint32_t peers;
};

/* Of stages: the columns that micro-batch `mb` of an inner step passes when it
 * enters in column `entry`, path[s] (stages) of `columns` each. */
typedef void lab_route(void *data,
                       uint64_t step,
                       uint64_t mb,
                       uint32_t columns,
                       uint32_t stages,
                       uint32_t entry,
                       uint32_t *path);

/* What a member that lies sends in place of its pseudo-gradient d. */
enum lab_lie {
    LAB_LIE_NOISE,   /* a random direction of the same length */
    LAB_LIE_FLIP,    /* -d */
    LAB_LIE_SCALE,   /* 1,000 d */
    LAB_LIE_HUGE,    /* 1,000 or -1,000 in every element */
    LAB_LIE_ZERO,    /* nothing */
    LAB_LIE_DRIFT,   /* all the same: the honest mean less 1.5 times the spread,
                      * element by element (Baruch et al. 2019) */
    LAB_LIE_AGAINST, /* all the same: the honest mean turned round */
    LAB_LIE_COPY,    /* what the first peer sends */
    LAB_LIE_OVERSHOOT, /* all the same: the honest mean, made longer by as much
                        * as no clip takes away */
    LAB_LIE_MIMIC, /* all the same: the honest one farthest from their mean */
    LAB_LIE_PUSH,  /* d, and a spread or so along the honest mean */
    LAB_LIE_PULL,  /* d, less a spread along the honest mean */
    LAB_LIE_COUNT
};

/* "noise", "flip" ..; false for another name. */
bool lab_lie_named(const char *name, enum lab_lie *lie);
const char *lab_lie_name(enum lab_lie lie);

/* All names, "a, b or c", for a sentence. */
void lab_lie_names(char *text, size_t room);

struct lab_options {
    struct method method;
    struct llama_config model;
    struct optimizer_options optimizer;
    struct schedule schedule;
    uint32_t peers; /* that begin */
    uint64_t tokens;
    uint32_t batch, micro_batch, seq;
    uint64_t seed;
    const struct lab_machine *machines; /* (LAB_PEERS_MAX), by peer number */
    const struct lab_event *events;     /* sorted by at_tokens */
    size_t n_events;
    double grace_s;   /* of a quorum */
    bool butterfly;   /* also where the wire type could go round a ring */
    float clip;       /* butterfly: codec_sum's */
    bool centred;     /* the same */
    uint32_t liars;   /* the last of the first peers */
    enum lab_lie lie; /* that they send in place of what they learnt */
    const struct work_options *work; /* work.h; NULL: nobody audits */
    uint32_t stages;                 /* above 1: a divisor of peers */
    lab_route *route;                /* NULL: micro-batches stay in a column */
    void *route_data;
    enum codec_id activations; /* and their gradients, between stages */
    const struct shard *train; /* borrowed */
    size_t n_train;
    const struct shard *val;
    uint64_t eval_tokens;
    uint64_t eval_every; /* tokens; 0: only before and after */
    int threads;
    enum backend_dtype dtype;
    bool reference;
    /* After each point; may be NULL. False ends the run early. */
    bool (*progress)(void *data, const struct lab_point *p);
    void *progress_data;
};

struct lab_result {
    struct lab_point *points; /* lab_result_free() */
    size_t n_points;
    double bits_per_byte_before;
    double bits_per_byte; /* of the final model: the replicas' mean, or the
                             first trainer's */
    double loss;          /* of the last tenth of the tokens, nats */
    uint64_t tokens;
    uint64_t bytes_sent; /* by all peers */
    uint64_t bytes_most; /* by the one that sent most */
    double virtual_s;
    uint64_t turns; /* of the parameters, or of the gradients */
    double spread;  /* root mean square distance of the replicas from
                       their mean, per parameter, before the last mean */
    double bits_per_byte_routes; /* stages: mean over the columns' models */
    double batch;      /* AdLoCo: mean request at the end, sequences */
    uint32_t trainers; /* AdLoCo: left at the end */
    bool never_synced[METHOD_STREAMS_MAX]; /* a stream without any turn */
};

int lab_run(const struct lab_options *opt,
            struct lab_result *out,
            char *errmsg);

void lab_result_free(struct lab_result *r);

#endif
