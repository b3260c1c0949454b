/* owners_world.h - owners of slices alone, in virtual time: peers that are
 * nothing but a p2p/owners core, a trainer that makes tasks, and slices of a
 * few real numbers on which train/sync/slices.h does its steps.
 *
 * A service beside the peers stands for views: it sees who dies or freezes
 * after notice_ms, and gives every live member the new view, each after a time
 * of its own; who lives again comes in with the next one. So members are in
 * different epochs for a while, and some never see one that others see.
 *
 * Messages arrive in order on each link, some not at all, some twice; bytes
 * take their time, and some break off.
 *
 * What must hold, checked where it happens (the end is in owners.c):
 *   A  an arrival is acknowledged when owner and backup both have it
 *   B  nothing is applied twice in one state of a slice, and nothing that
 *      nobody submitted
 *   C  owner and backup make the same steps: the same bits at each position
 *   D  a slice is opened from less than all that was acknowledged only where
 *      no state as new is left among the members
 *   E  a call leaves nothing that does not fit `out`, and deadlines move on
 *   F  after all have died all slices go on from one mark, the newest that the
 *      members have of all; marks beyond one that all went on from before are
 *      of another history and count no more
 *
 * One seed, one run. Memory grows with peers, slices and tasks.
 */
#ifndef LOCO_TESTS_SIM_OWNERS_WORLD_H
#define LOCO_TESTS_SIM_OWNERS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/owners.h"
#include "tests/sim/agenda.h"
#include "tests/sim/sim.h"

#define OW_PEERS_MAX 32
#define OW_VALUES    4 /* numbers in a slice */

struct ow_options {
    uint64_t seed;
    uint32_t peers, slices, tasks; /* tasks of each peer */
    uint32_t records, readings, pieces, mark_every, stale_most;
    uint32_t train_ms, link_ms, piece_ms, resend_ms, stuck_ms, notice_ms;
    uint32_t unequal;              /* the slowest takes so many times as long */
    uint32_t lose, repeat, breaks; /* of a thousand */
    uint32_t stops;                /* times that all die together */
    uint64_t end_ms;
};

/* An arrival: whose, which, and the size of cycles behind it. */
struct ow_arrival {
    uint32_t peer, next;
    uint64_t task;
};

/* What a peer has of a slice. */
struct ow_slice {
    float phi[OW_VALUES], m[OW_VALUES], sum[OW_VALUES];
    uint32_t size, count, n, room;
    uint32_t first_size;
    bool whole; /* `log` is all since the initial weights */
    struct ow_arrival *log;
};

struct ow_slot {
    uint64_t attempt; /* expected; 0: none */
    bool whole;
    float piece[OW_VALUES];
    struct ow_slice state;
};

/* On a peer's disk. */
struct ow_kept {
    uint32_t slice;
    struct owners_version at;
    struct ow_slice state;
};

struct ow_peer {
    struct owners c;
    bool alive, frozen, joined, training, done;
    uint64_t epoch_in; /* joined */
    uint32_t slowness, n_tasks, life;
    uint64_t task; /* in training, or being submitted */
    struct ow_slice held[OWNERS_SLICES_MAX], read[OWNERS_SLICES_MAX];
    struct ow_slot slot[OWNERS_SLOTS_MAX];
    uint64_t ticked;
    uint64_t last_us[OW_PEERS_MAX]; /* arrival of the last to each */
    struct ow_kept *kept;           /* outlives the process */
    uint32_t n_kept, room_kept;
};

/* Bits of a slice as a mark. */
struct ow_mark {
    uint32_t slice;
    uint64_t flush, generation, hash;
};

struct owners_world {
    struct ow_options opt;
    uint64_t rng, now_us;
    struct peer_id id[OW_PEERS_MAX]; /* ascending */
    struct ow_peer *peer;            /* (peers) */
    struct agenda agenda;            /* of struct ow_event */
    struct owners_out *out;          /* of the call under way */
    uint64_t epoch;
    uint64_t in;            /* bits: members of it */
    uint64_t restart, from; /* epoch in which all began anew, and the mark that
                               they go on from; 0: none, the initial weights */
    bool calm;              /* no fault since */
    uint64_t doubt_us;      /* since when too few are there to found a view */
    uint64_t restart_before, from_before; /* the time before */
    uint32_t n_restarts;
    struct ow_mark *marks;
    uint32_t n_marks, room_marks;
    uint32_t faults_left; /* strikes, returns and views to come */
    uint64_t *acked;      /* (slices, peers, tasks): its id; 0: not */
    uint64_t opened[OWNERS_SLICES_MAX], fed[OWNERS_SLICES_MAX]; /* epochs */
    bool anew[OWNERS_SLICES_MAX]; /* not all that was acknowledged is there */
    uint64_t n_acked, n_lost, n_refused, n_copies, n_suspects, n_bytes;
    uint64_t hash, checked;
    char why[SIM_TEXT_MAX];
};

/* NULL: out of memory. ow_close afterwards. */
struct owners_world *ow_open(const struct ow_options *opt);
void ow_close(struct owners_world *w);

/* Before ow_run: at that time a peer dies or freezes, and lives again after
 * back_ms (0: never). */
void ow_strike(struct owners_world *w,
               uint32_t peer,
               uint64_t at_ms,
               bool freeze,
               uint64_t back_ms);

/* Until all live members have made their tasks and nothing is under way, a
 * violation, or end_ms. */
void ow_run(struct owners_world *w);

void ow_fail(struct owners_world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* From the seed, below n. */
uint64_t ow_below(struct owners_world *w, uint64_t n);

/* The numbers that this task has for a slice. */
void ow_piece(uint32_t peer, uint64_t task, uint32_t slice, float *out);

bool ow_has(const struct ow_slice *s, uint32_t peer, uint64_t task);

/* One arrival more, as delayed Nesterov takes it; not finite: false. */
bool ow_step(struct ow_slice *s, const float *piece, uint32_t next);

/* As it begins. */
void ow_build(struct ow_slice *s, uint32_t slice, uint32_t size);

bool ow_same(const struct ow_slice *a, const struct ow_slice *b);

/* Where task number k (from 1) of a peer is in `acked`. */
uint64_t *ow_acked(const struct owners_world *w,
                   uint32_t slice,
                   uint32_t peer,
                   uint32_t k);

/* Peer number of member k of the view that peer `me` is in. */
uint32_t ow_number(const struct owners_world *w, uint32_t me, uint32_t k);

#endif
