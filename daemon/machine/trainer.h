/* trainer.h - the thread that owns the model.
 *
 * The loop thread posts commands: jobs (p2p/local.h) with the bytes that they
 * need. The trainer works on one at a time, in order, and answers each with
 * exactly one event (trainer_options.post, which any thread may call); an APPLY
 * with APPLIED, and with PLACED before that where the hashes come later
 * (publisher.h). A LOAD or APPLY that arrives during a TRAIN is done
 * between two inner steps; the rest of the steps follow.
 *
 * A TRAIN makes the inner steps that are left until the next round packs. Where
 * the method lets rounds overlap with training the trainer goes on by itself
 * after TRAINED, as many steps as the method says, and an APPLY of what was
 * packed waits until these are made (not while paused). Nobody else needs to
 * know of it.
 *
 * Ownership: pointers in a command are borrowed until its answer. A *snapshot*
 * (the state of one committed round, for joiners; with inner moments, for the
 * checkpoint) is made by the trainer after LOAD and APPLY and handed to
 * `take_snapshot`, which owns it from then on. With a GPU only one that is to
 * be saved has moments; a CHECKPOINT brings them as they are now, between two
 * inner steps, and is answered by `take_late` instead of an event.
 *
 * A REPEAT makes the lease of another member again, on a second replica, before
 * the steps of a TRAIN (trainer_repeat.h). One at a time: a second one is
 * answered with LOCO_EBUSY.
 *
 * Train shards may come while it trains (trainer_text.h).
 *
 * The steps of a TRAIN read its lease from the front on; what takes the steps
 * back that are open (a new anchor without rebase, a lost GPU) begins there
 * again. Steps beyond its end, or without one, read the peer's own order.
 *
 * A stage of a pipeline (slots): PIPE commands make the inner steps, a TRAIN
 * packs what they made. A CLEAR takes the place of what waits before it, but
 * for a STEP and held-out windows.
 *
 * Error feedback: a contribution goes out as phi - theta + residual. The
 * residual is what rounding took from the contribution of the last commit that
 * this peer was in (in its own unit, whoever rounded); commits without this
 * peer leave it as it is. It is lost, and nothing else, with the process, or
 * when the commit's bytes came from others.
 *
 * Where another process makes the inner steps this thread does all the rest: it
 * waits for them, and holds the process while theta is read or written
 * (trainer_loop.h).
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_H
#define LOCO_DAEMON_MACHINE_TRAINER_H

#include <stdatomic.h>

#include "daemon/jobs/offers.h"
#include "daemon/jobs/work_room.h"
#include "daemon/machine/loop_socket.h"
#include "daemon/machine/snapshot.h"
#include "daemon/machine/trainer_stage.h"
#include "daemon/settings/config.h"
#include "p2p/core.h"
#include "proto/messages.h"
#include "train/replica/replica.h"

struct trainer_command {
    /* LOAD, TRAIN, APPLY, PAIR, PIPE, EVAL, REPEAT, CHECKPOINT or OVER. A
     * PIPE's STEP is answered after its PROGRESS. The steps of a TRAIN are a
     * quorum's task; with a lease at most so many are made; else the rounds
     * know how many. */
    struct job job;
    struct lease lease; /* TRAIN: what it reads; no ranges: its own. REPEAT */
    bool saves;         /* LOAD, APPLY, PAIR: the new state is to be saved */
    const float *state; /* LOAD: (replica_state_elements); REPEAT: the state
                           before that round, of which the parameters matter */
    const struct work_room *room; /* REPEAT: full; nobody changes it meanwhile
                                   */
    const atomic_bool *stop;      /* REPEAT: it is to end now */
    const float *moments;         /* LOAD from_disk: (2, n) or NULL */
    /* REPEAT: (2, n) our own with that state, in bf16, or NULL; after so many
     * steps. LOAD, APPLY with `undo`: those of that lease. LOAD from_disk: the
     * steps of `moments`. */
    const uint8_t *own;
    uint64_t moment_steps;
    uint64_t inner_step, tokens; /* LOAD from_disk */
    const uint8_t *wire;         /* APPLY; PAIR: NULL where it is alone */
    size_t wire_room;            /* APPLY: bytes for replica_know_wire() */
    /* APPLY: as long as the wire, what rounding took from the contribution, for
     * the next one; NULL: not known. */
    const float *error;
};

struct trainer_options {
    struct replica_options replica;
    struct stage_slots *slots; /* of a stage, borrowed; NULL: no pipeline */
    uint64_t tokens_seen;      /* by this peer's trainers before: it goes on */
    /* Add to each contribution what rounding took from the one before. */
    bool error_feedback;
    /* A GPU that fails is opened again once; then training goes on on the
     * processor, or without this the TRAIN ends with the code. A stage that
     * finds none opens it once more, and says LOCO_EDEVICE where that fails. */
    bool cpu_fallback;
    void *self;
    void (*post)(void *self, const struct local_event *event);
    /* Called before the event that goes with it, on that one's thread. */
    void (*take_snapshot)(void *self, struct snapshot *s);
    /* On the trainer thread, before one is made: one that nobody needs any
     * more, for its memory; NULL: there is none. The function may be NULL. */
    struct snapshot *(*spare_snapshot)(void *self);
    /* On the trainer thread: a CHECKPOINT's answer, for free(), and after how
     * many steps of the optimizer. NULL: the GPU is lost, or memory out. */
    void (*take_late)(void *self, float *moments, uint64_t steps);
    /* Likewise, with each contribution: it is announced in blocks of so many
     * elements. 0: it is not. */
    void (*take_offer)(void *self, struct offer *o);
    uint32_t offer_block;
    /* Likewise the inner moments, after so many steps of the optimizer: behind
     * each snapshot, before its event, and behind each contribution. o->round
     * is the round whose lease begins with them, or with `ends` the one after
     * that whose lease ended with them. 0: they are not. */
    void (*take_moments)(void *self,
                         struct offer *o,
                         uint64_t steps,
                         bool ends);
    uint32_t moments_block;
    /* A training loop of its own makes the inner steps (trainer_loop.h);
     * borrowed for trainer_open(). NULL: this thread does. */
    const struct loop_socket_options *loop;
};

struct trainer;

/* Start the thread; the model's memory is taken here. errmsg as in train/. */
int trainer_open(struct trainer **trainer,
                 const struct trainer_options *opt,
                 char *errmsg);

/* False when TRAINER_QUEUE_MAX commands wait. */
bool trainer_post(struct trainer *t, const struct trainer_command *command);

/* Stop and go on between two inner steps. Any thread. */
void trainer_pause(struct trainer *t, bool paused);

/* A training loop of its own shall make the steps, and none is here. Any
 * thread. */
bool trainer_waits_for_loop(const struct trainer *t);

/* Take over the settings that are the trainer's: cpu_percent of the time its
 * threads may be at work (100 at first), and after each inner step it rests.
 * Commands are not held up by it. Any thread. */
void trainer_configure(struct trainer *t, const struct config *settings);

/* A train shard (its place among them) that was not here: it is, until the
 * trainer is closed. The next TRAIN may read it. Any thread. */
void trainer_add_text(struct trainer *t,
                      size_t slot,
                      const struct shard *shard);

/* The packed contribution: stable from TRAINED to the next TRAIN. Nothing where
 * it was announced (take_offer) and no error feedback is kept: the offer is all
 * that goes out then. */
const float *trainer_contribution(const struct trainer *t);

/* Ends after the current inner step and joins the thread; the contribution
 * stays readable. NULL is allowed. */
void trainer_stop(struct trainer *t);

/* What a CHECKPOINT brings, of one that was stopped. NULL is allowed. */
float *trainer_moments(const struct trainer *t, uint64_t *steps);

/* Ever, by this peer; of one that was stopped. */
uint64_t trainer_tokens_seen(const struct trainer *t);

/* Its GPU failed, and the processor was to take its place; of one that was
 * stopped. */
bool trainer_left_gpu(const struct trainer *t);

/* Stops it and gives its memory back. */
void trainer_close(struct trainer *t);

#endif
