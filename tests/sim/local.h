/* local.h - the fake machine below each simulated node.
 *
 * It executes what a trainer thread and its workers would: CONFIGURE, LOAD,
 * TRAIN, APPLY, EVAL, HASH, KEEP, CHECKPOINT, STAGE, PIPE, PAUSE, RESUME and
 * STOP, with
 * virtual durations and real arithmetic on a small model: anchor phi, outer
 * momentum m, live parameters theta. An inner step moves theta by a
 * pseudo-random displacement of (seed, peer, life, step); a contribution is
 * phi - theta; wire bytes go through train/sync/codec.h and the outer step is
 * rule N of train/sync/rule.h. So every hash that peers compare is the hash of
 * bytes that really took the way through their segments.
 *
 * States and shards have tree hashes over pieces of piece_bytes, so that even
 * the small ones here come in several.
 *
 * Words: a *machine* is one peer's; its *disk* (checkpoint, shards) survives
 * local_died(), everything else does not. The *base step* is the last inner
 * step that the anchor contains.
 *
 * Fails where a daemon would: LOCO_ENOENT for a buffer that it does not hold,
 * codes of the codec and the rule pass through.
 */
#ifndef LOCO_TESTS_SIM_LOCAL_H
#define LOCO_TESTS_SIM_LOCAL_H

#include "p2p/core.h"
#include "p2p/terms.h"
#include "proto/messages.h"
#include "tests/sim/world.h"

#define LOCAL_RINGS 3 /* wire bytes of that many attempts are kept */
/* As machine_past.c: wire bytes of at most so many rounds are kept, and of no
 * more than two states; the last states, and one that is being fetched, until
 * nobody has asked for it for PIN_MS. */
#define LOCAL_REDUCED 64
#define LOCAL_STATES  2
#define LOCAL_PIN_MS  60000
#define LOCAL_OPS     64
#define LOCAL_SHARDS  4

struct local_options {
    uint64_t seed;
    uint32_t n_peers, n_params;
    unsigned codec; /* enum codec_id */
    uint32_t segment_elements, block;
    enum exchange_kind exchange;
    uint32_t site_rtt_us; /* as in terms */
    bool invited;         /* terms.invited, of that author */
    uint8_t author[32];
    uint32_t slices; /* at most so many, owned by members; 0: none */
    bool pairs;      /* random pairs: rule H with a pull of 0.7 */
    /* A model cut into stages, each of n_params: its terms, and how long a
     * forward pass of a micro-batch takes; a backward pass takes twice that. */
    uint32_t stages, micro_batches, pipe_slots, cut_elements, cut_segment;
    uint32_t forward_ms;
    uint32_t eval_micros; /* of held-out windows in an evaluation */
    uint64_t stage_fits;  /* 0: all */
    bool error_feedback;
    float norm_clip; /* butterfly; 0: none */
    /* The vector of round r is part (r - 1) mod fragments of the parameters;
     * steps go on beside a round, at most so many; half of what they moved in
     * that part outlives its commit. */
    uint32_t fragments, overlap;
    bool fleeting;   /* terms.fleeting */
    uint32_t quorum; /* 1: terms.quorum */
    uint32_t leases; /* 1: terms.lease_quota, where the method allows it */
    /* So many models of n_params / trainers each; rounds between mergers. */
    uint32_t trainers, merge_every;
    uint32_t period, min_peers, grace_ms, fork_after_ms, eval_every;
    uint64_t stop_rounds;
    uint32_t n_shards, shard_bytes;
    uint32_t shard_windows; /* of each, one a step; 0: none begins before all
                               shards are here */
    uint32_t piece_bytes;   /* of the tree hashes of states and shards */
    bool shards_everywhere; /* else only peer 0 starts with them */
    bool shards_nowhere;    /* nor does that */
    bool urls;              /* shards can be downloaded, in url_ms */
    uint32_t url_ms, url_failures; /* the first ones of each process fail */
    uint32_t step_ms, work_ms;     /* an inner step; any other job */
    uint32_t tokens_per_step;
    float lr, mu;
    const uint8_t *manifest; /* what CONFIGURE must name; borrowed */
    size_t manifest_len;
};

/* What a peer offers for averaging: the inner steps [first_step, last_step),
 * counted from 0, that is steps made before and after it. */
struct local_contribution {
    uint32_t peer, life;
    uint64_t first_step, last_step, tokens;
    const struct lease *lease; /* that they read from its front on; borrowed */
    const float *values;       /* (n) borrowed for the call */
    uint64_t n;
};

/* An outer step. */
struct local_applied {
    uint64_t round;
    bool from_ring, rebase;
    const uint8_t *bytes; /* wire bytes, borrowed for the call */
    size_t len;
    struct hash32 before, after; /* of the anchor */
    struct hash32 momentum;
};

/* An optimizer step of a stage's host: the micro-batches in its sum. */
struct local_step {
    uint64_t round;
    uint32_t step, stage;
    uint32_t n;
    /* (n) who entered each and its draw there; borrowed for the call */
    const uint32_t *origins;
};

/* A job of slices that was done. Hashes: of the state of that slice here
 * before and after (0: none), of its parameters, of these as they are read; of
 * a piece (FILL, GIVE of one, APPLY). */
struct local_sliced {
    const struct slice_job *job;
    struct peer_id maker; /* APPLY: of the piece; GIVE: who gets it */
    uint64_t task;
    uint64_t before, after, phi, reading, piece;
};

struct local_calls {
    void *self;
    void (*contributed)(void *self, const struct local_contribution *c);
    void (*applied)(void *self, uint32_t peer, const struct local_applied *a);
    /* A state came in from seed, disk or a peer. */
    void (*loaded)(void *self,
                   uint32_t peer,
                   uint64_t round,
                   const struct hash32 *params);
    /* What a checkpoint of the node's last commit should name, and its record:
     * how many bytes of the room. */
    void (*describe)(void *self,
                     uint32_t peer,
                     uint64_t *tokens,
                     struct hash32 *commit);
    uint32_t (*record)(void *self, uint32_t peer, uint8_t *to, size_t room);
    void (*stopped)(void *self, uint32_t peer, int rc);
    void (*logged)(void *self, uint32_t peer, int level, const char *text);
    /* Owners of slices only; NULL: nobody looks. */
    void (*sliced)(void *self, uint32_t peer, const struct local_sliced *x);
    /* Stages only. */
    void (*stepped)(void *self, uint32_t peer, const struct local_step *s);
    void (*wrong)(void *self, const char *what);
};

struct local;

/* LOCO_ENOMEM. Borrows the world. */
int local_open(struct local **local,
               struct world *world,
               const struct local_options *opt,
               const struct local_calls *calls);
void local_close(struct local *l);

/* The callbacks of struct world_calls, with self = struct local. */
size_t local_wire_len(void *self, uint32_t peer, const struct segment *seg);
int local_fill(void *self,
               uint32_t peer,
               const struct segment *seg,
               uint8_t *dst);
int local_take(void *self,
               uint32_t peer,
               const struct segment *seg,
               const uint8_t *src,
               size_t len);
int local_sum(void *self, uint32_t peer, struct segment *seg);
void local_action(void *self,
                  uint32_t peer,
                  const struct action *action,
                  const struct out *out);
void local_timer(void *self, uint32_t peer, uint64_t token);
void local_died(void *self, uint32_t peer);

/* What this machine sends of its contribution is no numbers any more; or is
 * again. */
void local_poison(struct local *l, uint32_t peer, bool on);

/* Pieces of states and shards that this machine serves are not what they
 * should be; or are again. */
void local_spoil(struct local *l, uint32_t peer, bool on);

/* Inner steps whose text was not here, of all machines. */
uint64_t local_blind_steps(const struct local *l);

/* Segments of shards that this process received from peers; `both`: those that
 * came while a download was under way. */
void local_shard_segments(const struct local *l,
                          uint32_t peer,
                          uint64_t *all,
                          uint64_t *both);

/* The next INHERIT of this machine finds its bytes gone. */
void local_forget(struct local *l, uint32_t peer);

/* Compute takes k times as long from now on. */
void local_slow(struct local *l, uint32_t peer, uint32_t k);

/* The next training step, or pass of a micro-batch, takes so much longer; all
 * other work does not. */
void local_hang(struct local *l, uint32_t peer, uint32_t ms);

/* Hash of the anchor now. */
void local_params_hash(struct local *l, uint32_t peer, struct hash32 *hash);

/* Of the same bytes, a tenth of the work and no hash; 0: there are none. */
uint64_t local_params_sum(const struct local *l, uint32_t peer);

/* What an evaluation finds after that round. */
double local_bits_of(uint64_t round);

/* Newest round of that stage (from 0) that its disk has; 0: none. */
uint64_t
local_saved_round(const struct local *l, uint32_t peer, uint32_t stage);

/* Of what it holds of a slice; 0: nothing. */
uint64_t local_slice_hash(const struct local *l, uint32_t peer, uint32_t slice);

/* The last mark of it that its disk has; generation 0: none. */
struct slice_version
local_slice_on_disk(const struct local *l, uint32_t peer, uint32_t slice);

/* Inner steps made in this life. */
uint64_t local_inner_step(const struct local *l, uint32_t peer);

/* Processes of this peer before this one. */
uint32_t local_life(const struct local *l, uint32_t peer);

/* Tokens trained in this life, and those of them since the state in place. */
void local_tokens(const struct local *l,
                  uint32_t peer,
                  uint64_t *trained,
                  uint64_t *open);

/* Elements of the vector of `round`, and which is its first (may be NULL). */
uint64_t local_elements(const struct local *l, uint64_t round, uint64_t *first);

/* Elements of the longest vector of a run. */
uint64_t local_most(const struct local_options *opt);

/* Bytes of a state: anchor and momentum. */
size_t local_state_bytes(const struct local *l);

/* Bytes of a whole encoded vector. */
size_t local_vector_bytes(const struct local *l);

#endif
