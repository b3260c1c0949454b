/* pairs.h - a crowd of real membership and pair cores (p2p/swarm/members.h,
 * p2p/pair/pair.h), without DHT, data and joining: a thousand replicas that
 * train and average in random pairs, in virtual time, under faults.
 *
 * Each peer is a small core around struct members and struct pair that does
 * what daemon/node/pairs.c does, above a machine with real vectors: an inner
 * phase moves the replica by pseudo-random steps, payloads go through
 * train/sync/codec/codec.h segment by segment, the step is rule H of
 * train/sync/rule.h. A peer that starts again copies a live replica.
 *
 * What must hold
 *   A  who steps with a partner that confirmed it: so does that partner, unless
 *      its process ends before it has decided
 *   B  both then used the same bytes of both
 *   C  such a step leaves the sum of the two replicas where two steps alone
 *      would have brought it; a step that only one of the two took with the
 *      other's payload (counted) moves it by no more than the bound of 8.7
 *   D  a process takes each turn at most once, and turns only grow
 *   E  from packing to the decision it takes no longer than the deadlines allow
 *   F  at the end every live peer has taken the last turn, and no `out`
 *      overflowed, no deadline span, no rule of the shell was broken
 *   G  without faults nobody steps with a partner that has not confirmed, and
 *      after the start less than a tenth of the steps, and one of each peer,
 *      are taken alone although there was a partner (who got out of step with
 *      it by more than the grace period)
 */
#ifndef LOCO_DAEMON_SIM_PAIRS_H
#define LOCO_DAEMON_SIM_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sim/world/scenario.h"
#include "daemon/sim/world/world.h"
#include "p2p/pair/pair.h"
#include "p2p/swarm/members.h"
#include "train/sync/codec/codec.h"

#define PAIRS_PAST      4
#define PAIRS_LINKS_MAX 64 /* of one peer, at rest */

enum pairs_fault {
    PAIRS_PLAIN,
    PAIRS_KILL,    /* for good */
    PAIRS_RESTART, /* and back */
    PAIRS_FREEZE,
    PAIRS_CUT,   /* into two halves, and healed */
    PAIRS_LOSSY, /* control messages get lost */
    PAIRS_SLOW,  /* some compute three times as long */
    PAIRS_DROPS, /* data connections and links between two break */
    PAIRS_ALL,
    PAIRS_FAULT_COUNT
};

struct pairs_options {
    uint32_t peers, faults, fault; /* enum pairs_fault */
    uint32_t n_params, segment_elements, train_ms, work_ms, grace_ms;
    uint64_t rounds, seed;
    enum codec_id wire;
};

struct pairs;

/* What a peer did in one turn, until its partner has done the same. */
struct pairs_record {
    bool with;
    uint64_t turn, epoch;
    uint32_t partner; /* drawn or agreed; `peers`: a bye */
    uint64_t life, partner_life;
    enum pair_end end;
    float *before;   /* (n) phi */
    float *shift;    /* (n) what the step took from phi */
    float *alone;    /* (n) what a step alone would have taken */
    uint8_t *own;    /* anchor, displacement, as sent */
    uint8_t *theirs; /* as used; only `with` */
};

struct pairs_peer {
    struct pairs *crowd;
    uint32_t number;
    uint64_t life, stepped_ms;
    uint32_t lives;
    struct heartbeat beat;
    struct members members;
    void *members_memory;
    struct pair pair;

    /* The machine. */
    float *phi, *m, *g; /* (n) */
    uint8_t *theirs;    /* anchor, then displacement, encoded */
    uint64_t round;     /* the last turn taken */
    bool loaded, training, applying;
    uint32_t slow;
    uint64_t packed_ms, decided_turn;
    uint64_t froze_ms; /* woke up last */
    uint32_t n_past;   /* turns taken; the last ones are kept */
    struct pairs_record past[PAIRS_PAST];
};

struct pairs {
    struct pairs_options opt;
    struct sim_result *r;
    struct world *world;
    const struct codec *codec;
    size_t vector_bytes;
    struct run_terms terms;
    uint64_t rng;
    struct pairs_peer *peers;
    uint32_t *group;
    void *scratch;
    uint64_t end_ms;
    bool is_cut;
    float *a, *b;                  /* (n) work space */
    uint64_t n_calm, n_calm_alone; /* steps after the start; alone, not odd */
    uint64_t n_with, n_alone, n_holder, n_one_sided, n_taken, n_checked;
    uint64_t ends[PAIR_END_COUNT], n_resumed, n_moved_on;
    uint32_t longest_ms;
    double worst_shift; /* of a one-sided step, in parts of its bound */
};

uint64_t pairs_draw(struct pairs *s, uint64_t n);
bool pairs_healthy(const struct pairs *s, uint32_t q);
/* world_fn: start this peer. */
void pairs_start(void *data, uint64_t number);

/* pairs_machine.c */
int pairs_machine_open(struct pairs *s, uint32_t number);
/* They are those of the world. */
void pairs_machines_serve(struct pairs *s);
void pairs_machine_free(struct pairs_peer *p);
/* Copy a live replica; false: there is none yet, and this is no first start. */
bool pairs_load(struct pairs *s, uint32_t number);
bool pairs_quiet(const struct pairs *s); /* nothing fails in this run */
/* Mean square of the replicas' distance from their mean, per element. */
double pairs_spread(struct pairs *s);

/* pairs_check.c */
/* It decided; from now on its partner must fit. */
void pairs_check_decided(struct pairs *s, uint32_t number);
/* It took the step that this record is of. */
void pairs_check_taken(struct pairs *s,
                       uint32_t number,
                       const struct pairs_record *r);
void pairs_check_end(struct pairs *s);

/* pairs_faults.c */
void pairs_schedule(struct pairs *s);
bool pairs_cut(void *self, uint32_t from, uint32_t to, bool bulk);

#endif
