/* crew.h - whole nodes (daemon/node.h) that make one run to its end under
 * faults: processes that start, die and come back, machines (local.h), cuts.
 * What kind of run it is says the scenario: pairs_nodes.c, owners_nodes.c.
 *
 * What must hold in each: when the faults are over every live peer ends
 * `finished` in time, all with the same parameters; no `out` overflowed, no
 * deadline span, no rule of the shell was broken. Each seed draws one fault.
 */
#ifndef LOCO_TESTS_SIM_CREW_H
#define LOCO_TESTS_SIM_CREW_H

#include "daemon/node.h"
#include "proto/hash.h"
#include "tests/sim/local.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

#define CREW_MANIFEST_BYTES 64
#define CREW_PEERS_BYTES    (64U << 10)

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
    size_t n_cache;
    uint8_t cache[CREW_PEERS_BYTES];
    size_t n_chain;
    uint8_t *chain;
};

struct crew {
    struct sim_options opt;
    struct sim_result *r;
    struct world *world;
    struct local *local;
    struct crew_peer *peers;
    uint32_t n, starters, fault, n_faults;
    uint64_t rng, rounds, calm_ms;
    uint32_t mute_ms, mute; /* the data connections of one peer (n: of none)
                               fail for so long, its links do not */
    uint32_t stop; /* all processes are killed at one time, and come back */
    bool stopping, stopped; /* that is being done, and has been */
    uint32_t *group;
    uint8_t manifest[CREW_MANIFEST_BYTES];
    struct hash32 run_id;
    bool done;

    /* Of the scenario. */
    const char *name;
    struct local_options machines; /* the crew fills in what is common */
    uint64_t round_ms, limit_ms;   /* a round, about; the whole run at most */
    uint32_t found_least; /* so many start at once, where there are, and found:
                             who comes later makes no run of its own */
    uint32_t alive_least; /* who dies when no more than these live comes back */
    bool record;          /* who comes back has its durable record */
    bool beyond;          /* the run may end with more rounds than asked for */
    void *self;           /* of the two */
    void (*after)(struct crew *s, uint32_t peer, const struct event *event);
    void (*logged)(void *self, uint32_t peer, const char *text);
    void (*sliced)(void *self, uint32_t peer, const struct local_sliced *x);
};

/* Settings, fault and seed; crew_run, then crew_close. */
int crew_open(struct crew *s,
              const struct sim_options *opt,
              struct sim_result *result);
void crew_run(struct crew *s);
void crew_close(struct crew *s);

void crew_fail(struct crew *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* From the seed, below n. */
uint64_t crew_draw(struct crew *s, uint64_t n);

#endif
