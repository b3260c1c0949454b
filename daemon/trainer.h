/* trainer.h - the thread that owns the model.
 *
 * The loop thread posts commands; the trainer works on one at a time, in
 * order, and answers each with exactly one event (trainer_options.post, which
 * any thread may call). A LOAD or APPLY that arrives during a TRAIN is done
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
 * `take_snapshot`, which owns it from then on.
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
 * Where peers own slices nothing is applied here: READ takes what was read from
 * them (state), and the next task begins there. Each piece of a packed task is
 * encoded when it is asked for, perhaps several times, with the same bits; so
 * the residual is what that takes, whatever becomes of the task.
 *
 * The messages are plain structs, so that a trainer in another process could
 * stand here.
 */
#ifndef LOCO_DAEMON_TRAINER_H
#define LOCO_DAEMON_TRAINER_H

#include "daemon/snapshot.h"
#include "daemon/trainer_stage.h"
#include "p2p/core.h"
#include "proto/messages.h"
#include "train/replica.h"

enum trainer_command_type {
    TRAINER_INIT,    /* round 0 from the seed -> LOADED */
    TRAINER_RESTORE, /* state, moments, round, counts -> LOADED */
    TRAINER_LOAD,    /* state, round, rebase -> LOADED */
    TRAINER_TRAIN,   /* -> PROGRESS*, TRAINED */
    TRAINER_APPLY,   /* wire, round, share -> APPLIED */
    TRAINER_PAIR,    /* wire (NULL: alone), first, round -> APPLIED */
    TRAINER_MIX,     /* state, share -> LOADED */
    TRAINER_READ,    /* state, round, job -> SLICED */
    TRAINER_PIPE,    /* pipe -> PIPED, after a STEP's PROGRESS; CLEAR: none */
    TRAINER_EVAL     /* -> EVALUATED */
};

struct trainer_command {
    enum trainer_command_type type;
    uint64_t round, inner_step, tokens;
    bool rebase;    /* LOAD */
    bool first;     /* PAIR: our id is the lower one */
    uint32_t steps; /* TRAIN: of a quorum's task; with a lease at most so many;
                       else the rounds know; 0: no limit */
    double share;   /* APPLY: own weight in the commit; 0: rebase. MIX: of the
                       state in the mean */
    uint32_t arrivals, members; /* APPLY: as in struct replica_commit */
    uint32_t rank;              /* TRAIN: the own place among `members` */
    struct lease lease;         /* TRAIN: what it reads; no ranges: its own */
    const float *state;         /* (replica_state_elements) */
    const float *moments;       /* (2, n) or NULL */
    const uint8_t *wire;
    size_t wire_room; /* APPLY: bytes for replica_know_wire() */
    const float
        *error; /* APPLY: as long as the wire, what rounding took from the
                   contribution, for the next one; NULL: not known */
    struct stage_command pipe; /* PIPE */
    struct slice_job job;      /* READ: its answer has it */
    uint64_t reading;          /* READ: its snapshot has it */
};

struct trainer_options {
    struct replica_options replica;
    struct stage_slots *slots; /* of a stage, borrowed; NULL: no pipeline */
    /* Add to each contribution what rounding took from the one before. */
    bool error_feedback;
    /* A GPU that fails is opened again once; then training goes on on the
     * processor, or without this the TRAIN ends with the code. */
    bool cpu_fallback;
    void *self;
    void (*post)(void *self, const struct local_event *event);
    /* Called on the trainer thread, before the event that goes with it. */
    void (*take_snapshot)(void *self, struct snapshot *s);
    /* Likewise, before one is made: one that nobody needs any more, for its
     * memory; NULL: there is none. The function may be NULL. */
    struct snapshot *(*spare_snapshot)(void *self);
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

/* Of the time, this share in which its threads may be at work (1 to 100; 100 at
 * first): after each inner step it rests. Commands are not held up by it. Any
 * thread. */
void trainer_set_share(struct trainer *t, unsigned percent);

/* A train shard (its place among them) that was not here: it is, until the
 * trainer is closed. The next TRAIN may read it. Any thread. */
void trainer_add_text(struct trainer *t,
                      size_t slot,
                      const struct shard *shard);

/* The packed contribution: stable from TRAINED to the next TRAIN. */
const float *trainer_contribution(const struct trainer *t);

/* Ends after the current inner step and joins the thread; the contribution
 * stays readable. NULL is allowed. */
void trainer_stop(struct trainer *t);

/* Stops it and gives its memory back. */
void trainer_close(struct trainer *t);

#endif
