/* snapshot.h - what a peer holds of one committed round.
 *
 * The trainer makes one after each LOAD and APPLY; joiners fetch its state, the
 * checkpoint is written from it. Which vectors a state has behind phi is the
 * method's matter (replica_state_names()).
 *
 * Where the replica's state lies in a room (replica/state.h) a snapshot holds
 * that room, and only the inner moments are copied; else it has a copy of all.
 *
 * Inner moments are for checkpoints alone, and from a GPU they take as long as
 * the state: one that is not to be saved is made without (`lacks`). Who wants
 * to save it after all asks the trainer for them (trainer.h, JOB_CHECKPOINT).
 *
 * Immutable once made, but for moments that come later; counted by its owners.
 */
#ifndef LOCO_DAEMON_MACHINE_SNAPSHOT_H
#define LOCO_DAEMON_MACHINE_SNAPSHOT_H

#include "proto/id.h"
#include "train/replica/replica.h"

struct snapshot {
    uint64_t round, inner_step, tokens;
    uint64_t name; /* of the state: as struct segment has it */
    uint64_t n;
    uint64_t n_state;        /* elements (replica_state_elements) */
    float *state;            /* (n_state) */
    struct state_room *room; /* that has `state`; NULL: it is a copy */
    float *moments;          /* (2, n) u, then v: this peer's own; NULL: it has
                                none here (replica.h, shared) */
    bool lacks;              /* the optimizer has some, which are not here */
    float *idle;             /* (2, n) for those of a later one; or NULL */
    uint64_t moment_steps;   /* that its optimizer made */
    struct hash32 *leaves;   /* of the pieces of phi, then of all behind it */
    uint64_t number;         /* of those that a machine was handed */
    unsigned refs; /* owners, all on one thread at a time; 1 when made */
};

/* One owner less; the last one frees it. NULL is allowed. */
void snapshot_free(struct snapshot *s);

/* The room of one that nobody needs any more, for the state to come; NULL: it
 * has none. `s` may be NULL. */
struct state_room *snapshot_take_room(struct snapshot *s);

/* Of a state that is to be trained from, and not served any more, only the
 * parameters stay: the pages behind them are given back and read as nothing,
 * the inner moments and the leaves are freed. False: others hold its memory.
 * Where the state has what a lease begins with behind its parameters
 * (`method`), that stays. */
bool snapshot_reduce(struct snapshot *s, const struct method *method);

/* On the replica's thread, and with the help of those that work for it. `old`,
 * one that nobody needs any more, or NULL, is gone afterwards: its memory is
 * taken where it fits, since pages that are new cost more than the copying.
 * NULL when memory is out: then nothing is served or saved this round. */
struct snapshot *snapshot_make(struct replica *r, struct snapshot *old);

/* The same in two halves: memory and, if they are wanted, moments, which the
 * next inner step changes; then what the next commit changes, where that is a
 * copy. */
struct snapshot *
snapshot_begin(struct replica *r, struct snapshot *old, bool moments);
void snapshot_fill(const struct replica *r, struct snapshot *s);

/* What members agree on: a hash of phi, and one of all vectors behind it. `s`,
 * the snapshot of just that state or NULL, keeps the leaves of both for those
 * who fetch it; without memory it has none. With `s` nothing of the replica is
 * read but its pool, which hashes. */
void snapshot_hash(const struct replica *r,
                   struct snapshot *s,
                   struct hash32 *params,
                   struct hash32 *rest);

/* The sample (proto/sample.h) of the same state, whose hash is `state`. */
void snapshot_sample(const struct replica *r,
                     const struct snapshot *s,
                     const struct hash32 *state,
                     struct hash32 *sample);

#endif
