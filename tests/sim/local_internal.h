/* local_internal.h - one machine; shared by local.c (jobs), local_state.c (the
 * model's state), local_train.c (inner steps) and local_buffer.c (bytes of
 * segments). See local.h. */
#ifndef LOCO_TESTS_SIM_LOCAL_INTERNAL_H
#define LOCO_TESTS_SIM_LOCAL_INTERNAL_H

#include "p2p/pipeline.h"
#include "tests/sim/local.h"
#include "train/sync/codec.h"
#include "train/sync/lanes.h"
#include "train/sync/trainers.h"

/* Timers of inner steps, and of the first job of slices; others name a job. */
#define STEP_TOKEN  (1ULL << 63)
#define SLICE_TOKEN (1ULL << 62)

struct local_op {
    bool used;
    struct action action;
    uint64_t serial;
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

struct local_state {
    bool used;
    uint64_t round, name; /* as in struct segment */
    uint64_t asked_ms;    /* some of it was sent; 0: never */
    uint8_t *bytes;       /* phi, then m */
};

struct local_disk {
    struct local_state state;
    uint64_t inner_step, tokens, trained;
    uint32_t stage;
    struct hash32 commit;
    uint8_t *record;
    uint32_t n_record;
    bool shards[LOCAL_SHARDS];
    struct local_slices *slices; /* local_owners.c */
};

/* Wire bytes of an attempt. */
struct local_ring {
    uint64_t attempt; /* 0: none */
    uint8_t *bytes;
};

/* The leaf list of what is being fetched. */
struct local_leaves {
    enum buffer_kind buffer; /* STATE or SHARD */
    uint64_t index;
    uint8_t *bytes;
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

struct local_owned; /* local_owners.c */

struct machine {
    struct run_terms *terms;
    bool staged;
    uint32_t stage;
    struct local_micro micros[PIPELINE_SLOTS_MAX + EVAL_SLOTS];
    uint64_t eval_tag; /* of what was scored last: so many micro-batches */
    uint32_t eval_scored;
    uint32_t n_sum, sum[LOCAL_SUM_MAX], origins[LOCAL_SUM_MAX];
    uint64_t pipe_void; /* work of tags up to this one is */
    struct local_leaves leaves;
    float *phi, *m, *theta, *contribution; /* (n_params) */
    /* Error feedback, as daemon/trainer.h and machine_internal.h have it. */
    float *residual, *error;
    bool poisoned, spoiled;
    struct local_ring rings[LOCAL_RINGS];
    struct lanes lanes;    /* contributions to the own slice */
    bool forgets;          /* the next INHERIT fails */
    uint64_t ring_refused; /* INHERIT failed for this attempt */
    uint64_t ring_hashed;  /* the attempt that was hashed last: to be applied */
    struct local_reduced reduced[LOCAL_REDUCED];
    struct local_state states[LOCAL_STATES], pinned;
    struct local_state incoming;
    struct local_owned *owned;
    uint8_t *pair_in; /* the partner's anchor, then its displacement */
    uint8_t *shard_in[LOCAL_SHARDS];
    bool held[LOCAL_SHARDS];              /* readable: on disk or kept */
    uint32_t url_tries, url_busy;         /* DOWNLOADs ended, under way */
    uint64_t shard_segs, shard_segs_both; /* local_shard_segments() */
    uint64_t inner_step, base_step, round;
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
    struct world *world;
    const struct codec *codec;
    struct trainers trainers; /* count 0: none */
    size_t vector_bytes, state_bytes;
    uint64_t blind_steps; /* local_blind_steps() */
    uint64_t serial;
    struct machine *machines;
    uint8_t *shards[LOCAL_SHARDS]; /* as the manifest names them */
    struct hash32 shard_hash[LOCAL_SHARDS];
    float *scratch; /* (n_params) */
};

/* The round of an attempt. */
static inline uint64_t local_round_of(uint64_t attempt)
{
    return attempt & 0xffffffff;
}

/* Bytes of the encoded vector of `round`. */
static inline size_t local_round_bytes(const struct local *l, uint64_t round)
{
    return l->codec->bytes(local_elements(l, round, NULL));
}

/* local_buffer.c */
struct local_reduced *
local_reduced_at(struct local *l, struct machine *m, uint64_t index, bool make);
/* name 0: any. */
const uint8_t *local_state_at(const struct local *l,
                              const struct machine *m,
                              uint64_t round,
                              uint64_t name);
uint8_t *local_ring_at(struct local *l, struct machine *m, uint64_t attempt);
bool local_inherit(struct machine *m, uint64_t from, uint64_t to);
/* Of the one of `round` that is kept. */
uint64_t local_state_name(const struct machine *m, uint64_t round);
void local_state_keep(struct local *l, struct machine *m, uint64_t round);
int local_hash_buffer(struct local *l,
                      struct machine *m,
                      const struct action *a,
                      struct local_event *e);
void local_hash_state(const struct local *l,
                      const uint8_t *state,
                      struct hash32 *params,
                      struct hash32 *momentum);

/* local_pieces.c */
/* Tree hash over pieces of piece_bytes. */
void local_tree(const struct local *l,
                const void *bytes,
                size_t len,
                struct hash32 *out);
size_t local_leaves_bytes(const struct local *l, const struct segment *seg);
/* The leaf list of a state or shard that is held, for free(); NULL: not. */
uint8_t *local_leaves_make(const struct local *l,
                           const uint8_t *object,
                           enum buffer_kind buffer);
uint8_t *local_leaves_in(const struct local *l,
                         struct machine *m,
                         const struct segment *seg);
int local_verify(const struct local *l,
                 struct machine *m,
                 const struct action *a,
                 struct local_event *e);
/* local_pair.c */
int local_pair_fill(const struct local *l,
                    const struct machine *m,
                    const struct segment *seg,
                    uint8_t *dst);
uint8_t *local_pair_in(const struct local *l,
                       struct machine *m,
                       const struct segment *seg);
int local_pair_hash(const struct local *l,
                    const struct machine *m,
                    bool first,
                    struct hash32 *hash);
void local_pair_apply(struct local *l, uint32_t peer, const struct action *a);
/* The state in place becomes a mean with this one. */
void local_pair_mix(const struct local *l,
                    struct machine *m,
                    const uint8_t *state,
                    double share);

/* local_stage.c */
bool local_is_cut(const struct segment *seg);
size_t local_cut_bytes(const struct segment *seg);
int local_cut_fill(const struct local *l,
                   const struct machine *m,
                   const struct segment *seg,
                   uint8_t *dst);
int local_cut_take(const struct local *l,
                   struct machine *m,
                   const struct segment *seg,
                   const uint8_t *src);
void local_stage(struct local *l, uint32_t peer, uint32_t stage);
void local_pipe(struct local *l, uint32_t peer, const struct action *a);
void local_pipe_step(struct local *l, uint32_t peer, const struct action *a);
void local_pipe_clear(struct local *l, uint32_t peer, uint64_t tag);

/* local_owners.c */
void local_owners_terms(const struct local *l,
                        const struct machine *m,
                        struct run_terms *t);
void local_owners_wipe(struct machine *m); /* its disk */
void local_owners_open(const struct local *l, struct machine *m);
void local_owners_free(struct machine *m);
size_t local_owned_bytes(const struct machine *m, const struct segment *seg);
int local_owned_fill(const struct machine *m,
                     const struct segment *seg,
                     uint8_t *dst);
int local_owned_take(struct machine *m,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len);
/* A job of its queue; and the time of the first one is over. */
void local_slice(struct local *l, uint32_t peer, const struct action *a);
void local_slice_done(struct local *l, uint32_t peer);

/* local_trainers.c */
void local_trainers_open(struct local *l);
/* All are where the first one is. */
void local_trainers_begin(const struct local *l, struct machine *m);
/* theta is at the anchor of `own`; with rebase as far from it as it was from
 * the one before, which is in scratch. */
void local_trainers_live(const struct local *l,
                         struct machine *m,
                         uint32_t own,
                         bool rebase);
void local_trainers_loaded(const struct local *l,
                           struct machine *m,
                           uint64_t round,
                           bool rebase);
/* TRAIN: for whom. */
void local_trainers_turn(const struct local *l,
                         struct machine *m,
                         const struct action *a);
int local_trainers_fill(const struct local *l, uint32_t peer);
int local_trainers_step(const struct local *l,
                        struct machine *m,
                        const struct action *a,
                        const uint8_t *bytes);

/* local.c */
void local_tell(struct local *l, uint32_t peer, const struct local_event *e);

/* local_state.c: what CONFIGURE, LOAD and APPLY do when their time has come. */
void local_fill_terms(struct local *l, struct machine *m);
/* The parameters that the run begins with: (n_params). */
void local_initial(const struct local *l, const struct machine *m, float *phi);
void local_configure(struct local *l, uint32_t peer, int rc);
void local_load(struct local *l, uint32_t peer, const struct action *a);
void local_apply(struct local *l, uint32_t peer, const struct action *a);

/* local_train.c */
/* What is open goes into the next round, whose vector is another. */
void local_pack_again(struct local *l, uint32_t peer);
/* TRAIN: `steps`, less those made beside the round before. */
void local_train_round(struct local *l, uint32_t peer, uint32_t steps);
/* Begin `steps` inner steps, instead of those under way. */
void local_train(struct local *l, uint32_t peer, uint32_t steps);
/* One step of the optimizer, at once. */
void local_step_once(struct local *l, uint32_t peer);
/* The timer of a step: STEP_TOKEN | gen. */
void local_on_step(struct local *l, uint32_t peer, uint64_t gen);
/* TRAIN: which part of the text. */
void local_take_lease(struct machine *m,
                      const struct action *a,
                      const struct out *out);
/* Tokens of the steps since the state in place. */
uint64_t local_open_tokens(const struct local *l, const struct machine *m);

#endif
