/* owners.h - every peer owns slices of the parameters, and arrivals are applied
 * one by one (AsyncDiLoCo, arXiv:2401.09135; algorithms page 6.4 A).
 *
 * The parameters are cut into a fixed number of *slices*. Of the members of a
 * view, sorted by a weight drawn from (run, slice, member), the first owns the
 * slice and the second is its *backup*. So nobody appoints anybody: who dies is
 * followed by his backup, and of all other slices nothing moves.
 *
 *   worker  *task* finished: SUBMIT{slice, task} to all owners, whose WANT asks
 *           for the piece; ACKs of all slices: SUBMITTED. Then it reads all
 *           slices again, and begins the next task
 *   owner   gives arrivals their *positions* in the slice's log, one at a time:
 *           LOG{position, worker, task} to the backup
 *   backup  asks for the piece (WANT), applies it, HELD{position}
 *   owner   applies it too, ACK to the worker
 *
 * An arrival is acknowledged when both hold it, and each peer's tasks have
 * growing numbers, of which every slice knows the last one that it has: what is
 * sent again is acknowledged again and applied once. Slices may see arrivals in
 * different orders: delayed Nesterov is element-wise.
 *
 * A new view freezes every slice. Its owner asks all members what they hold of
 * it (ASK, HOLDING), takes the *newest* state, by the epoch in which it was
 * opened (its *generation*) and then by position, sees that the backup holds
 * the same (FOLLOW, HELD), and opens the slice under the new epoch. States of
 * one generation are beginnings of one log, and one that holds all that was
 * acknowledged is there as long as owner or backup is. If both went, the newest
 * copy that somebody read stands in, without momentum; a worker that reads a
 * slice and does not find its own last task in it says so: LOST.
 *
 * A *flush* is the end of a cycle of as many arrivals as there were members
 * when it began. `round` is what all slices have flushed. Every mark_every-th
 * flush is a MARK, for a caller that writes only then. After all have stopped
 * each tells its core, before the next view, what its disk has
 * (owners_restore), and the rest is as in any new view: the newest of each
 * slice counts, and nobody needs to agree on a moment of all slices, as nobody
 * ever reads one.
 *
 * All bytes are asked for: who receives has a place (a *slot*, with a growing
 * attempt) before anything is sent. Slots for records and states, for reading
 * and for pieces are kept apart: a piece waits for a record slot of the backup,
 * which waits for nothing, so no circle of peers waits for itself.
 *
 * Failing: a lost message or broken transfer is asked for again. A member that
 * lives and does not do its part for stuck_ms is named (SUSPECT), by readers
 * after twice that, since its owner may wait itself: its slices stand still
 * until a view change, which is the caller's. What a liar can do: an owner can
 * make what it likes of its slices; nobody votes on bytes here, which is what
 * this group costs compared with rounds. Any other member can submit any finite
 * piece, under its own name; and where owner and backup went together, what it
 * says it read may stand in. Messages of strangers and of other epochs, numbers
 * out of range and roles that are not the sender's are dropped and counted.
 *
 * Pure: no clock but `now_ms`, no allocation, no tensor bytes. Memory: 140
 * KB. Cost of a call: O(slices * slots). A node runs this in the simulator
 * (daemon/node_owners.c).
 */
#ifndef LOCO_P2P_OWNERS_H
#define LOCO_P2P_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"

#define OWNERS_SLICES_MAX 64
#define OWNERS_SLOTS_MAX  32
#define OWNERS_NOBODY     UINT32_MAX

struct owners_options {
    struct peer_id self;
    uint64_t seed;       /* of the run */
    uint32_t slices;     /* 1..OWNERS_SLICES_MAX, the same for the whole run */
    uint32_t records;    /* slots for records and states, at least 1 */
    uint32_t readings;   /* slots for slices that are read, at least 1 */
    uint32_t pieces;     /* slots for pieces, at least 1 */
    uint32_t mark_every; /* flushes; 0: never */
    uint32_t stale_most; /* arrivals since a task read the slice; 0: any */
    uint32_t resend_ms;  /* what is said is said again, without an answer */
    uint32_t quiet_ms;   /* bytes of which nothing has come for so long are
                            asked for again; 0: resend_ms. Where a HEAD goes
                            before them: without it already after twice
                            resend_ms */
    uint64_t first_attempt; /* those of an earlier life are others */
    uint32_t stuck_ms; /* who does nothing for so long is named; longer than
                          a state takes */
};

struct owners_member {
    struct peer_id id;
    uint64_t joined; /* epoch: a peer that came back is another worker */
};

/* Where a slice is: which log, and how much of it. */
struct owners_version {
    uint64_t generation;  /* epoch; 0: the initial weights */
    uint64_t position;    /* arrivals in it */
    uint64_t flush;       /* cycles that are over */
    uint32_t size, count; /* of this cycle: its arrivals, and those so far */
    uint64_t task[VIEW_MEMBERS_MAX]; /* last one of each member; 0: none */
};

enum owners_kind {
    OWNERS_ASK,     /* slice */
    OWNERS_HOLDING, /* slice, held with generation and position; of the newest
                       reading `read_generation`, `read_position` */
    OWNERS_FOLLOW,  /* slice, position; generation, position: what it was called
                       when it was found */
    OWNERS_LOG,     /* slice, position, worker, task, size: of later cycles */
    OWNERS_HELD,    /* slice, position */
    OWNERS_SUBMIT,  /* slice, task; generation, position: that it read */
    OWNERS_WANT,    /* slice, what, slot, attempt; task or position */
    OWNERS_HEAD,    /* slot, attempt, and the version of what is being sent */
    OWNERS_ACK,     /* slice, task, refused */
    OWNERS_KIND_COUNT
};

/* What travels. */
enum owners_what {
    OWNERS_PIECE,   /* of a task: worker to owner */
    OWNERS_RECORD,  /* the same: owner to backup */
    OWNERS_STATE,   /* parameters, momentum, sum of a slice */
    OWNERS_READING, /* its parameters, from the owner */
    OWNERS_COPY,    /* the same, from somebody who read it */
    OWNERS_WHAT_COUNT
};

struct owners_message {
    enum owners_kind kind;
    uint64_t epoch;
    uint32_t slice;
    enum owners_what what;
    uint32_t slot;
    uint64_t attempt;
    bool held, refused;
    uint32_t worker; /* member */
    uint64_t task;
    uint64_t generation, position, read_generation, read_position;
    uint64_t flush;
    uint32_t size, count;
};

enum owners_action_type {
    OWNERS_SAY,   /* message to the members of `to`; HEAD: with out->task */
    OWNERS_TAKE,  /* slot, attempt, what, slice: from `peer`, who is asked */
    OWNERS_DROP,  /* slot, attempt: no more; nothing of it is reported */
    OWNERS_GIVE,  /* what, slice to `peer`, into its slot under attempt. PIECE:
                     of our `task`; RECORD: of our slot `from`; others: as they
                     are now, though they change while this is sent */
    OWNERS_FILL,  /* slot: our own piece of `task` for slice */
    OWNERS_APPLY, /* slice, slot: `task` of member `peer`, number `count` of a
                     cycle of `size`; cycles after this one have `next` */
    OWNERS_BUILD, /* slice: from the initial weights */
    OWNERS_LOAD,  /* slice, slot, what: STATE, or COPY (momentum and sum 0; slot
                     OWNERS_NOBODY: of our own reading) */
    OWNERS_FORGET,    /* slice: its state is not needed here any more */
    OWNERS_MARK,      /* slice, flush: keep a copy as it is after this step */
    OWNERS_KEEP,      /* slice, slot: was read; NOBODY: of our own state */
    OWNERS_SUBMITTED, /* task: all slices have it, or have `refused` (so many)
                         of it */
    OWNERS_GATHERED,  /* all slices are read */
    OWNERS_VOID,      /* task: we are another worker now, it counts nowhere
                         where it was not acknowledged */
    OWNERS_LOST,      /* slice, task: our last acknowledged one there is gone */
    OWNERS_SUSPECT,   /* the members of `to` */
    OWNERS_ACTION_COUNT
};

struct owners_action {
    enum owners_action_type type;
    uint64_t to; /* bit k: member k */
    struct owners_message message;
    uint32_t peer; /* member */
    uint32_t slice, slot, from;
    uint64_t attempt;
    enum owners_what what;
    uint64_t task, flush, generation;
    uint32_t size, count, next, refused;
};

#define OWNERS_OUT_MAX (8 * OWNERS_SLICES_MAX + 8 * OWNERS_SLOTS_MAX + 16)

/* Actions of one call, in order. Always large enough. */
struct owners_out {
    uint32_t n;
    struct owners_action action[OWNERS_OUT_MAX];
    uint64_t task[VIEW_MEMBERS_MAX]; /* of the HEAD, by member */
};

enum owners_phase {
    OWNERS_AWAY,   /* not ours */
    OWNERS_GATHER, /* who holds what? */
    OWNERS_FETCH,  /* the newest state is on its way to us */
    OWNERS_FEED,   /* and to the backup */
    OWNERS_OPEN
};

struct owners_slice {
    uint32_t owner, backup;         /* members; OWNERS_NOBODY */
    uint32_t was_owner, was_backup; /* in the view before, as members of this */
    bool held;
    struct owners_version at, seen; /* seen: as read last */

    /* Of the owner. */
    enum owners_phase phase;
    uint64_t since_ms, said_ms;       /* in this phase, or with this record */
    uint64_t heard, shunned;          /* members that answered; of them liars */
    uint32_t source;                  /* member with the newest; NOBODY: none */
    bool is_reading;                  /* it is a reading */
    uint64_t generation, position;    /* of it */
    uint64_t base;                    /* generation that it was opened from */
    uint64_t asked[VIEW_MEMBERS_MAX]; /* task submitted and not here; 0 */
    uint32_t turn;                    /* whose piece is asked for next */
    uint32_t shipped;                 /* slot of the record under way; NOBODY */

    /* Of the backup: what the owner said last, and is not done. */
    bool follow, record;
    struct owners_message said;

    /* Of the worker. */
    bool acked, refused, wanted; /* wanted: to be read */
    uint64_t acked_task;         /* the last one that was not refused */
    uint64_t wanted_ms;          /* nothing of it came since */
};

struct owners_slot {
    bool used, here, has_head, has_bytes;
    enum owners_what what;
    uint32_t slice, peer, worker, tries; /* members: who gives, whose it is */
    uint64_t task, position, attempt, asked_ms, order;
    struct owners_version head;
};

struct owners {
    struct owners_options opt;
    uint64_t epoch, before; /* of the view, and of the last one; 0: none */
    uint64_t restored;      /* the latest generation of what was; 0: nothing */
    uint32_t n, self;
    struct owners_member member[VIEW_MEMBERS_MAX]; /* by id */
    struct owners_slice slice[OWNERS_SLICES_MAX];
    struct owners_slot slot[OWNERS_SLOTS_MAX];
    uint32_t n_slots;
    uint64_t task, submit_ms; /* the one that is being submitted; 0: none */
    bool gathering;
    uint32_t read_turn, piece_turn; /* slices whose turn it is */
    uint64_t order, now_ms;
    uint64_t stale, malformed; /* messages dropped: of another epoch; wrong */
    uint64_t n_applied, n_again, n_refused, n_taken_over, n_rebuilt;
};

/* LOCO_EINVAL where an option is out of range. */
int owners_init(struct owners *o, const struct owners_options *opt);

/* Before the first view: this is held, from the disk of an earlier life. Of
 * each slice the newest that anybody holds is what it goes on from, so slices
 * are as far apart as what was written last. LOCO_EINVAL: there was a view, or
 * that is no version of a slice. */
int owners_restore(struct owners *o,
                   uint32_t slice,
                   const struct owners_version *at);

/* The same of what was read last: it stands in where nobody holds a state. */
int owners_restore_reading(struct owners *o,
                           uint32_t slice,
                           const struct owners_version *at);

/* A new view: members sorted by id, this one among them, of a higher epoch.
 * and later than all that was restored. LOCO_EINVAL: not so. */
int owners_view(struct owners *o,
                uint64_t epoch,
                const struct owners_member *members,
                uint32_t n,
                uint64_t now_ms,
                struct owners_out *out);

/* Another branch won: nothing that is here counts. */
void owners_reset(struct owners *o, struct owners_out *out);

/* Our task is finished. `task` is above all before, those of earlier lives too
 * (the epoch of the view in the upper half will do). LOCO_EINVAL: not so, one
 * is under way, or there is no view. */
int owners_submit(struct owners *o,
                  uint64_t task,
                  uint64_t now_ms,
                  struct owners_out *out);

/* Read all slices. */
void owners_gather(struct owners *o, uint64_t now_ms, struct owners_out *out);

/* From that member; task (n members): of a HEAD, else NULL. */
void owners_recv(struct owners *o,
                 const struct peer_id *from,
                 const struct owners_message *m,
                 const uint64_t *task,
                 uint64_t now_ms,
                 struct owners_out *out);

/* All bytes of a TAKE are here, rc 0; LOCO_ENUMERIC: they are no numbers; else
 * it broke. Anything of another attempt is ignored. */
void owners_taken(struct owners *o,
                  uint32_t slot,
                  uint64_t attempt,
                  int rc,
                  uint64_t now_ms,
                  struct owners_out *out);

/* Some of its bytes came. */
void owners_moved(struct owners *o,
                  uint32_t slot,
                  uint64_t attempt,
                  uint64_t now_ms);

/* This process did not run for a while: who is late may not be to blame. */
void owners_gap(struct owners *o, uint64_t now_ms);

/* When to call owners_tick(); UINT64_MAX: never. */
uint64_t owners_deadline(const struct owners *o);
void owners_tick(struct owners *o, uint64_t now_ms, struct owners_out *out);

/* Flushes of all slices, as far as they are known here. */
uint64_t owners_round(const struct owners *o);

/* Owner and backup of a slice among these members (OWNERS_NOBODY). */
void owners_holders(uint64_t seed,
                    uint32_t slice,
                    const struct owners_member *members,
                    uint32_t n,
                    uint32_t *owner,
                    uint32_t *backup);

#endif
