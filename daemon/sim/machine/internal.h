/* internal.h - one machine; shared by local.c (jobs), sim/machine/state.c (the
 * model's state), sim/machine/train.c (inner steps) and sim/machine/buffer.c
 * (bytes of segments). See local.h. */
#ifndef LOCO_DAEMON_SIM_MACHINE_INTERNAL_H
#define LOCO_DAEMON_SIM_MACHINE_INTERNAL_H

#include "daemon/jobs/answer.h"
#include "daemon/jobs/audit_room.h"
#include "daemon/jobs/kept.h"
#include "daemon/jobs/offers.h"
#include "daemon/jobs/pair_payload.h"
#include "daemon/jobs/pieces.h"
#include "daemon/jobs/reduce.h"
#include "daemon/jobs/segments.h"
#include "daemon/jobs/wire_slots.h"
#include "daemon/jobs/work_room.h"
#include "daemon/sim/machine/local.h"
#include "p2p/pipeline/pipeline.h"
#include "train/sync/trainers.h"

/* Timers of inner steps; others name a job. */
#define STEP_TOKEN (1ULL << 63)

struct local_op {
    bool used;
    struct job job;
    int rc; /* CONFIGURE: what comes of it */
    uint64_t serial;
    bool placed; /* APPLY: it is, and that its hashes are known is to be said */
    struct report_state state;
    uint8_t *snapshot; /* CHECKPOINT: the state as of the action */
    uint64_t snapshot_step, snapshot_tokens, snapshot_trained, snapshot_name;
    uint32_t snapshot_stage;
    struct hash32 snapshot_commit;
    uint8_t *record; /* CHECKPOINT: of that commit */
    uint32_t n_record;
};

struct local_reduced {
    bool used, complete;
    uint64_t index;
    uint8_t *bytes;
};

/* A state on disk, or one that comes in. */
struct local_state {
    bool used;
    uint64_t round, name; /* as in struct segment */
    uint8_t *bytes;       /* phi, then m */
};

struct local_disk {
    struct local_file peers, chain;
    struct local_state state;
    uint64_t inner_step, tokens, trained;
    uint32_t stage;
    struct hash32 commit;
    uint8_t *record;
    uint32_t n_record;
    bool shards[LOCAL_SHARDS];
    bool began; /* local_has_beginning() */
};

/* A micro-batch in a slot of this stage: elements that arrived, and what is
 * computed. */
struct local_micro {
    uint64_t tag;
    uint32_t number, in, gradient;
    uint32_t origin; /* who entered it, and its draw there */
    bool forth, back;
};

#define LOCAL_SUM_MAX 1024
#define LOCAL_MOMENTS (2 + OFFERS_PAST_MAX) /* rounds */
#define LOCAL_LIED    32 /* rounds of which it is known who lied */

struct machine {
    struct run_terms *terms;
    bool staged;
    uint32_t stage;
    struct local_micro micros[PIPELINE_SLOTS_MAX + EVAL_SLOTS];
    uint64_t eval_tag; /* of what was scored last: so many micro-batches */
    uint32_t eval_scored;
    uint32_t n_sum, sum[LOCAL_SUM_MAX], origins[LOCAL_SUM_MAX];
    uint64_t pipe_void;                    /* work of tags up to this one is */
    struct pieces leaves;                  /* of what is being fetched */
    float *phi, *m, *theta, *contribution; /* (n_params) */
    /* Error feedback, as daemon/machine/trainer.h and machine/internal.h have
     * it. */
    float *residual, *error;
    bool poisoned, spoiled, ruins, misjudges, missums, lies, accuses, mute,
        idle, forges, anew;
    uint64_t strays;        /* of the members of the last JOB_STRAYS */
    struct wire_slots wire; /* of attempts; applied ones go to `reduced` */
    struct reduce reduce;
    struct offers offers; /* of runs with audits */
    struct audit_room audit;
    struct offer moments[LOCAL_MOMENTS]; /* by round, of beginnings.. */
    struct offer ends[LOCAL_MOMENTS];    /* ..and by the round after */
    struct work_room rooms[WORK_ROOMS];
    uint64_t n_missums;
    bool forgets; /* the next INHERIT fails */
    struct local_reduced reduced[LOCAL_REDUCED];
    struct kept states;
    struct local_state incoming;
    uint8_t *pair_in; /* the partner's anchor, then its displacement */
    uint8_t *shard_in[LOCAL_SHARDS];
    bool held[LOCAL_SHARDS];              /* readable: on disk or kept */
    uint32_t url_tries, url_busy;         /* DOWNLOADs ended, under way */
    uint64_t shard_segs, shard_segs_both; /* local_shard_segments() */
    uint64_t inner_step, base_step, round;
    uint64_t moments_at;   /* of the optimizer: all that they come from.. */
    uint64_t moment_steps; /* ..after so many steps.. */
    struct {
        uint64_t round, at, steps;
    } begin;            /* ..and when the lease of that round began */
    uint32_t trainer;   /* that theta is of */
    struct lease lease; /* that the steps after base_step read; none: empty */
    bool packed; /* a contribution is open: the steps up to packed_step */
    uint64_t packed_step;
    uint32_t beside_left;           /* steps that may go on beside its round */
    uint64_t tokens, tokens_before; /* ever; of them in earlier lives */
    uint32_t steps_left, train_gen, slow, hang_ms, life;
    bool training;
    uint64_t busy_until_ms;
    struct local_op ops[LOCAL_OPS];
    struct local_disk disk;
};

struct local {
    struct local_options opt;
    struct local_calls calls;
    struct local_watch watch; /* no function: nobody looks on */
    struct world *world;
    const struct codec *codec;
    struct trainers trainers; /* count 0: none */
    size_t vector_bytes, state_bytes;
    uint64_t blind_steps; /* local_blind_steps() */
    uint64_t serial;
    /* (n_peers, LOCAL_LIED) by round: the round twice, and 1 for a lie. */
    uint64_t *lied;
    struct machine *machines;
    uint8_t *shards[LOCAL_SHARDS]; /* as the manifest names them */
    struct hash32 shard_hash[LOCAL_SHARDS];
    float *scratch; /* (n_params) */
};

/* Bytes of the encoded vector of `round`. */
static inline size_t local_round_bytes(const struct local *l, uint64_t round)
{
    return l->codec->bytes(local_elements(l, round, NULL));
}

/* sim/machine/buffer.c */
/* What segments need of a machine. */
void local_serve_segments(struct world_machines *machines);
struct local_reduced *
local_reduced_at(struct local *l, struct machine *m, uint64_t index, bool make);
/* One that is kept or on disk; name 0: any. NULL: there is none. */
const uint8_t *local_state_at(struct machine *m, uint64_t round, uint64_t name);
bool local_inherit(struct machine *m, uint64_t from, uint64_t to);
void local_states_forget(struct machine *m);
void local_state_keep(struct local *l, struct machine *m, uint64_t round);
int local_hash_buffer(struct local *l,
                      struct machine *m,
                      const struct job_hash *job,
                      struct report_hashed *report);
/* Of the state in place. */
void local_hash_anchor(const struct local *l,
                       const struct machine *m,
                       struct report_state *report);
void local_hash_state(const struct local *l,
                      const uint8_t *state,
                      struct hash32 *params,
                      struct hash32 *momentum);

/* sim/machine/pieces.c */
/* Tree hash over pieces of piece_bytes. */
void local_tree(const struct local *l,
                const void *bytes,
                size_t len,
                struct hash32 *out);
/* The leaf list of a state or shard that is held, for free(). */
struct hash32 *local_leaves_make(const struct machine *m,
                                 const uint8_t *object,
                                 const struct segment *seg);
int local_verify(const struct machine *m,
                 const struct job_verify *job,
                 struct report_verified *report);
/* sim/machine/audit.c */
/* Announce what was packed. */
int local_announce(const struct local *l,
                   struct machine *m,
                   struct hash32 *blocks);
int local_offer_fill(const struct local *l,
                     struct machine *m,
                     const struct segment *s,
                     uint8_t *dst);
int local_audit(struct local *l,
                struct machine *m,
                const struct job_audit *job,
                struct report_audited *report);

/* Pieces of a lease that is made again, and its room no more. */
int local_work_take(struct machine *m,
                    const struct offer_cut *cut,
                    const struct segment *s,
                    const uint8_t *src);
void local_work_stop(struct machine *m, const struct job_repeat *job);

/* sim/machine/work.c */
/* Who strays, as this machine says it of that job. */
void local_strays(struct local *l,
                  uint32_t peer,
                  const struct job_strays *job,
                  const struct out *out);

/* Whether the contribution that is packed now is a lie. */
void local_note_lie(struct local *l, uint32_t peer);
/* Moments of the state in place; of the lease that is trained now. */
void local_moments(struct local *l, uint32_t peer, struct report_state *report);
void local_moments_end(struct local *l, uint32_t peer, struct hash32 *ends);
/* After an inner step. */
void local_moments_step(struct machine *m);
/* The optimizer made no step. */
void local_begin_anew(struct machine *m);
/* With audits of work: a LOAD without rebase ends what is trained. */
void local_end_task(struct machine *m);
/* The lease of that round is undone, as job_apply.undo says. */
void local_undo(struct machine *m, uint64_t round, struct report_state *report);
int local_moments_fill(const struct local *l,
                       const struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
int local_repeat(const struct local *l,
                 uint32_t peer,
                 const struct job_repeat *job,
                 struct report_repeated *report);
void local_work_free(struct machine *m);

/* sim/machine/pair.c */
/* Anchor and displacement as they go out. */
struct pair_payload local_pair_own(const struct local *l,
                                   const struct machine *m);
/* Where the partner's come. */
uint8_t *local_pair_in(const struct local *l, struct machine *m);
int local_pair_apply(struct local *l,
                     struct machine *m,
                     const struct job_pair *job,
                     struct report_state *report);
/* The state in place becomes a mean with this one. */
void local_pair_mix(const struct local *l,
                    struct machine *m,
                    const uint8_t *state,
                    double share);

/* sim/machine/stage.c */
size_t local_cut_bytes(const struct segment *seg);
int local_cut_fill(const struct local *l,
                   const struct machine *m,
                   const struct segment *seg,
                   uint8_t *dst);
int local_cut_take(const struct local *l,
                   struct machine *m,
                   const struct segment *seg,
                   const uint8_t *src);
void local_stage(struct local *l,
                 struct machine *m,
                 struct report_staged *report);
/* A CLEAR came after this job: it is not done. */
bool local_pipe_is_void(const struct machine *m, const struct job_pipe *job);
int local_pipe(struct local *l,
               uint32_t peer,
               const struct job_pipe *job,
               struct report_piped *report);
void local_pipe_step(struct local *l,
                     uint32_t peer,
                     const struct job_pipe *job);
void local_pipe_clear(struct local *l, uint32_t peer, uint64_t tag);

/* sim/machine/trainers.c */
void local_trainers_open(struct local *l);
/* All are where the first one is. */
void local_trainers_begin(const struct local *l, struct machine *m);
void local_trainers_loaded(const struct local *l,
                           struct machine *m,
                           uint64_t round,
                           bool rebase);
/* TRAIN: for whom. */
void local_trainers_turn(const struct local *l,
                         struct machine *m,
                         const struct job_train *job);
int local_trainers_fill(const struct local *l, uint32_t peer);
int local_trainers_step(const struct local *l,
                        struct machine *m,
                        const struct job_apply *job,
                        const uint8_t *bytes);

/* local.c */
void local_tell(struct local *l, uint32_t peer, const struct local_event *e);

/* sim/machine/state.c: what CONFIGURE, LOAD and APPLY do when their time has
 * come. */
void local_fill_terms(struct local *l, struct machine *m);
void local_configure(struct local *l,
                     struct machine *m,
                     struct report_configured *report);
int local_load(struct local *l,
               uint32_t peer,
               const struct job_load *job,
               struct report_state *report);
int local_apply(struct local *l,
                uint32_t peer,
                const struct job_apply *job,
                struct report_state *report);

/* sim/machine/train.c */
/* What is open goes into the next round, whose vector is another. */
void local_pack_again(struct local *l, uint32_t peer);
/* TRAIN: `steps`, less those made beside the round before. */
void local_train_round(struct local *l, uint32_t peer, uint32_t steps);
/* A contribution of nothing. */
void local_pack_nothing(struct local *l, uint32_t peer);
/* Begin `steps` inner steps, instead of those under way. */
void local_train(struct local *l, uint32_t peer, uint32_t steps);
/* One step of the optimizer, at once. */
void local_step_once(struct local *l, uint32_t peer);
/* The timer of a step: STEP_TOKEN | gen. */
void local_on_step(struct local *l, uint32_t peer, uint64_t gen);
/* TRAIN: which part of the text. */
void local_take_lease(struct machine *m,
                      const struct out_span *lease,
                      const struct out *out);
/* Tokens of the steps since the state in place. */
uint64_t local_open_tokens(const struct local *l, const struct machine *m);

#endif
