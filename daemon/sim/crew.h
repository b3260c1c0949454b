/* crew.h - whole nodes (daemon/node/node.h) that make one run to its end under
 * faults: processes that start, die and come back, machines (local.h), cuts.
 * The scenario says what kind of run it is: pairs_nodes.c has the faults of
 * crew_faults.c, of which each seed draws one; stages.c has its own.
 *
 * What must hold in each:
 *   E  when the faults are over every live peer ends `finished` in time, all
 *      with the same parameters
 *   F  no `out` overflowed, no deadline span, no rule of the shell was broken,
 *      no storm of messages
 */
#ifndef LOCO_DAEMON_SIM_CREW_H
#define LOCO_DAEMON_SIM_CREW_H

#include "daemon/node/node.h"
#include "daemon/sim/machine/local.h"
#include "daemon/sim/world/scenario.h"
#include "daemon/sim/world/world.h"
#include "proto/hash.h"

#define CREW_MANIFEST_BYTES 64
#define CREW_POLL_MS        500

enum crew_fault {
    CREW_PLAIN,
    CREW_KILL,
    CREW_RESTART,
    CREW_FREEZE,
    CREW_CUT,
    CREW_DROPS,
    CREW_JOIN,
    CREW_ALL,
    CREW_FAULTS
};

struct crew_peer {
    struct node *node; /* NULL: dead */
    uint32_t lives;
    uint64_t round; /* of this life, as last seen */
};

struct crew {
    struct sim_options opt;
    struct sim_result *r;
    struct world *world;
    struct local *local;
    struct crew_peer *peers;
    uint32_t n, starters, fault, n_faults;
    uint64_t rng, rounds, calm_ms;
    uint32_t *group;
    uint8_t manifest[CREW_MANIFEST_BYTES];
    struct hash32 run_id;
    bool done;

    /* Of the scenario. */
    const char *name;
    struct local_options machines; /* the crew fills in what is common */
    uint64_t round_ms, limit_ms;   /* a round, about; the whole run at most */
    uint32_t alive_least; /* who dies when no more than these live comes back */
    bool record;          /* who comes back has its durable record */
    uint64_t salt;        /* of what peers draw */
    uint64_t least_ms;    /* the run takes that and its rounds at least */
    uint32_t latency_max_ms, bytes_per_s; /* of links */

    /* Each may be NULL, but `schedule`: what happens when. `self` goes to those
     * that do not get the crew. */
    void *self;
    void (*schedule)(struct crew *s);
    void (*starts)(struct crew *s, uint32_t peer);
    uint64_t (*back_ms)(struct crew *s, uint32_t peer); /* it died; 0: for good,
                                                   else when it comes back */
    bool (*finished)(void *self, char *why, size_t size); /* in place of E */
    void (*look)(void *self);                             /* now and then */
    void (*judge)(void *self);                            /* at the end */
    void (*print)(void *self); /* after a violation: who is where */
    void (*stepped)(void *self, uint32_t peer, const struct local_step *step);
    void (*after)(struct crew *s, uint32_t peer, const struct event *event);
};

/* Settings, fault and seed of crew_faults.c; crew_run, then crew_close. */
int crew_open(struct crew *s,
              const struct sim_options *opt,
              struct sim_result *result);
void crew_run(struct crew *s);
void crew_close(struct crew *s);

/* The two halves of crew_open for who has other faults: what the options say;
 * then, when the rest is filled in, world and machines. */
void crew_begin(struct crew *s,
                const struct sim_options *opt,
                struct sim_result *result);
int crew_make(struct crew *s);

/* For schedules (world_call): start that peer where it is dead; let it go on
 * where it is frozen. */
void crew_start(void *crew, uint64_t peer);
void crew_thaw(void *crew, uint64_t peer);

/* All connections between that peer and some other one. */
void crew_drop_links(struct crew *s, uint32_t peer);
void crew_schedule(struct crew *s);

/* Something has happened: the run has longer to come to rest. */
void crew_note_fault(struct crew *s);
uint32_t crew_n_alive(const struct crew *s);

/* From the seed, below n. */
uint64_t crew_draw(struct crew *s, uint64_t n);

#endif
