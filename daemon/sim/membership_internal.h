/* membership_internal.h - a running crowd; see membership.h.
 *
 * membership.c: peers, one run, the command; membership_faults.c: what happens
 * to them, when, and what is measured.
 */
#ifndef LOCO_DAEMON_SIM_MEMBERSHIP_INTERNAL_H
#define LOCO_DAEMON_SIM_MEMBERSHIP_INTERNAL_H

#include "daemon/sim/membership.h"
#include "daemon/sim/world/scenario.h"
#include "daemon/sim/world/world.h"
#include "p2p/swarm/members.h"

#define CROWD_FAULTS_MAX 512
#define CROWD_LINKS_MAX  100 /* group, neighbours, shuffles under way */

struct crowd;

struct crowd_peer {
    struct crowd *crowd;
    uint32_t number;
    uint64_t life, stepped_ms, declared;
    uint64_t back_ms; /* started again or woke */
    uint64_t bytes, bytes_of[32], mark_bytes;
    uint64_t open; /* bit k: fault open_faults[k] not known here yet */
    struct heartbeat beat;
    void *memory;
    struct members members;
};

/* One peer that dies or freezes. */
struct crowd_fault {
    uint32_t peer;
    bool freeze;
    uint64_t at_ms, back_ms; /* back_ms 0: for good */
};

struct crowd {
    struct membership_options opt;
    struct sim_result *r;
    struct membership_result m;
    struct world *world;
    uint32_t n, group, rows;
    uint32_t start_step; /* ms from one peer's start to the next one's */
    uint64_t rng;
    struct crowd_peer *peers;
    uint32_t *place, *at_place; /* of each peer; by place: groups are runs */
    void *scratch;
    uint64_t end_ms;
    bool done;

    uint32_t n_faults, n_open, open_faults[64], slots[64];
    struct crowd_fault faults[CROWD_FAULTS_MAX];
    uint32_t *delays, n_delays;

    uint64_t idle_from_ms, calm_from_ms;
    uint32_t *parts; /* of the cut */
    bool is_cut;
    uint64_t healed_ms;
};

uint64_t crowd_draw(struct crowd *s, uint64_t n);
/* More peers than rows: each knows a part. */
static inline bool crowd_is_sampled(const struct crowd *s)
{
    return s->n > s->rows;
}

/* world_fn: start this peer; let it watch its group. */
void crowd_start(void *data, uint64_t number);
void crowd_watch(void *data, uint64_t number);

/* membership_faults.c */
void crowd_schedule(struct crowd *s);
void crowd_finish(struct crowd *s);
bool crowd_cut(void *self, uint32_t from, uint32_t to, bool bulk);
/* A member of its group misses that peer; somebody declares it dead. */
void crowd_lost(struct crowd *s, uint32_t by, const struct peer_id *id);
void crowd_declared(struct crowd *s, uint32_t by, const struct peer_id *id);
/* After a step of that peer: what does it know by now? */
void crowd_look(struct crowd *s, uint32_t number);

#endif
