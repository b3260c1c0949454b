/* local.h - the fake machine below each simulated node.
 *
 * It executes the jobs of a node (p2p/local.h) with virtual durations and real
 * arithmetic on a small model: anchor phi, outer momentum m, live parameters
 * theta. An inner step moves theta by a pseudo-random displacement of (seed,
 * peer, life, step); a contribution is phi - theta; wire bytes go through
 * train/sync/codec/codec.h and the outer step is rule N of train/sync/rule.h.
 * So every hash that peers compare is the hash of bytes that really took the
 * way through their segments.
 *
 * States and shards have tree hashes over pieces of piece_bytes, so that even
 * the small ones here come in several.
 *
 * Words: a *machine* is one peer's; its *disk* (checkpoint, shards) survives
 * its process, everything else does not. The *base step* is the last inner
 * step that the anchor contains.
 *
 * Fails where a daemon would: LOCO_ENOENT for a buffer that it does not hold,
 * codes of the codec and the rule pass through.
 */
#ifndef LOCO_DAEMON_SIM_MACHINE_LOCAL_H
#define LOCO_DAEMON_SIM_MACHINE_LOCAL_H

#include "daemon/sim/world/world.h"
#include "p2p/core.h"
#include "p2p/terms.h"
#include "proto/messages.h"

/* As machine/past.c: wire bytes of at most so many rounds are kept, and of no
 * more than two states; the last states, and one that is being fetched, until
 * nobody has asked for it for PIN_MS. */
#define LOCAL_REDUCED 64
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
    bool pairs; /* random pairs: rule H with a pull of 0.7 */
    /* A model cut into stages, each of n_params: its terms, and how long a
     * forward pass of a micro-batch takes; a backward pass takes twice that. */
    uint32_t stages, micro_batches, pipe_slots, cut_elements, cut_segment;
    uint32_t forward_ms;
    uint32_t eval_micros; /* of held-out windows in an evaluation */
    uint64_t stage_fits;  /* 0: all */
    bool error_feedback;
    float norm_clip;         /* butterfly; 0: none */
    bool centred;            /* its clip is from a centre */
    uint32_t missum_percent; /* of the sums of who sums wrong; 0: all */
    bool watches;            /* terms.watches */
    uint32_t audits;         /* 1: terms.audits; 2: terms.audits_work, too */
    /* The vector of round r is part (r - 1) mod fragments of the parameters;
     * steps go on beside a round, at most so many; half of what they moved in
     * that part outlives its commit. */
    uint32_t fragments, overlap;
    bool single_round; /* terms.single_round */
    uint32_t quorum;   /* 1: terms.quorum */
    uint32_t leases;   /* 1: terms.lease_quota, where the method allows it */
    /* So many models of n_params / trainers each; rounds between mergers. */
    uint32_t trainers, merge_every;
    uint32_t period, min_peers, grace_ms, fork_after_ms, eval_every;
    uint32_t probation_rounds; /* of newcomers; 0: they count at once */
    uint64_t stop_rounds;
    uint32_t n_shards, shard_bytes;
    uint32_t shard_windows; /* of each, one a step; 0: none begins before all
                               shards are here */
    uint32_t begins;        /* 1: round 0 begins from the last one */
    uint32_t piece_bytes;   /* of the tree hashes of states and shards */
    bool shards_everywhere; /* else only peer 0 starts with them */
    bool shards_nowhere;    /* nor does that */
    bool urls;              /* shards can be downloaded, in url_ms */
    uint32_t url_ms, url_failures; /* the first ones of each process fail */
    uint32_t step_ms, work_ms;     /* an inner step; any other job */
    uint32_t save_every;           /* rounds; 0, 1: each is written to disk */
    uint32_t hash_ms; /* the hashes of a new state, behind the next steps; 0:
                         before them */
    uint32_t tokens_per_step;
    float lr, mu;
    uint32_t rollback_microbits; /* as in terms */
    const uint8_t *manifest;     /* what CONFIGURE must name; borrowed */
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
};

/* An optimizer step of a stage's host: the micro-batches in its sum. */
struct local_step {
    uint64_t round;
    uint64_t inner; /* steps of this process's machine before it */
    uint32_t step, stage;
    uint32_t n;
    /* (n) who entered each and its draw there; borrowed for the call */
    const uint32_t *origins;
};

struct local_calls {
    void *self;
    /* The node of a live peer. */
    const struct node *(*node)(void *self, uint32_t peer);
    void (*stopped)(void *self, uint32_t peer, int rc);
    void (*logged)(void *self, uint32_t peer, int level, const char *text);
    /* What convicts a member of bad work is to be written down
     * (p2p/round/conviction.h, encoded). NULL: nobody looks. */
    void (*convicted)(void *self,
                      uint32_t peer,
                      const uint8_t *bytes,
                      size_t len);
    /* Stages only. */
    void (*stepped)(void *self, uint32_t peer, const struct local_step *s);
    void (*wrong)(void *self, const char *what);
};

/* Who looks on: what machines offer, apply and load. */
struct local_watch {
    void *self;
    void (*contributed)(void *self, const struct local_contribution *c);
    void (*applied)(void *self, uint32_t peer, const struct local_applied *a);
    /* A state came in from seed, disk or a peer. */
    void (*loaded)(void *self,
                   uint32_t peer,
                   uint64_t round,
                   const struct hash32 *params);
};

/* A file on the disk; bytes NULL: there is none. */
struct local_file {
    uint8_t *bytes;
    size_t len;
};

struct local;

/* LOCO_ENOMEM. Borrows the world, whose machines these are from now on. */
int local_open(struct local **local,
               struct world *world,
               const struct local_options *opt,
               const struct local_calls *calls);
void local_close(struct local *l);

void local_set_watch(struct local *l, const struct local_watch *watch);

/* The peers cache, and the chain of views, on that peer's disk. */
const struct local_file *local_peers(const struct local *l, uint32_t peer);
const struct local_file *local_chain(const struct local *l, uint32_t peer);

/* What this machine sends of its contribution is no numbers any more; or is
 * again. */
void local_poison(struct local *l, uint32_t peer, bool on);

/* What this machine packs is plus and minus 1000 per element; or is what it
 * learnt again. */
void local_ruin(struct local *l, uint32_t peer, bool on);

/* This machine measures every state as bad; or as it is again. */
void local_misjudge(struct local *l, uint32_t peer, bool on);

/* What this machine contributes is not what it learnt; or is again. */
void local_lie(struct local *l, uint32_t peer, bool on);
/* It finds bad what others contribute; or reads it as it is again. */
void local_accuse(struct local *l, uint32_t peer, bool on);
/* It announces no moments; or does again. */
void local_mute(struct local *l, uint32_t peer, bool on);
/* It trains nothing, and offers that; or trains again. */
void local_idle(struct local *l, uint32_t peer, bool on);
/* Its leases of even rounds begin with any moments, which it announces. */
void local_forge(struct local *l, uint32_t peer, bool on);
/* Each of its leases begins with moments of no step; or goes on again. */
void local_anew(struct local *l, uint32_t peer, bool on);

/* Each sum that this machine makes, or missum_percent of them, is wrong in one
 * bit; or is right again. */
void local_missum(struct local *l, uint32_t peer, bool on);
/* How many it made in this life; each is of one block. */
uint64_t local_missums(const struct local *l, uint32_t peer);

/* Whether a parameter of the anchor is no number, or larger than the steps of a
 * whole run could make it. */
bool local_is_ruined(const struct local *l, uint32_t peer);

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

/* Whether it has what round 0 begins from, or any of its bytes ever came. */
bool local_has_beginning(const struct local *l, uint32_t peer);

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

/* lanes_raw() of its sums. */
bool local_raw(const struct local_options *opt);

/* Bytes of a state: anchor and momentum. */
size_t local_state_bytes(const struct local *l);

/* Bytes of a whole encoded vector. */
size_t local_vector_bytes(const struct local *l);

#endif
