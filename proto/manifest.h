/* manifest.h - the run manifest: everything the peers of a run agree on.
 *
 * Written once by the *author*, signed, and never changed: the hash of its
 * canonical bytes (doc.h) is the *run id*, which is in every invitation and in
 * every handshake. The signature stands outside the hashed bytes. It says what
 * is trained (model, data), how (inner, sync, round), until when (stop), and
 * what a member must be able to give (limits); it can never widen a limit that
 * the member's own configuration sets.
 *
 * Bytes: canonical map M. Run id = hash_bytes("loco-run-1", M). Signature =
 * sign(author, "loco-manifest-1", M). Wire = msgpack [bin M, bin public,
 * bin signature]. Size: at most MANIFEST_BYTES_MAX; the struct is about
 * 0.6 MB, so it lives on the heap, once per process.
 *
 * Bytes from peers that are wrong: LOCO_EPROTO, LOCO_ESIG. A value that makes
 * no sense: LOCO_EINVAL with a sentence.
 */
#ifndef LOCO_PROTO_MANIFEST_H
#define LOCO_PROTO_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/rules.h"
#include "proto/doc.h"
#include "proto/id.h"
#include "proto/limits.h"
#include "proto/sign.h"

#define MANIFEST_VERSION 1

struct manifest_shard {
    struct hash32 blake2b; /* tree hash of the file (hash.h) */
    uint64_t bytes;
    char name[MANIFEST_NAME_MAX]; /* safe as a file name */
    uint64_t tokens;              /* 0: it is no text (manifest_is_text) */
    uint32_t n_urls;              /* 0: only from peers */
    char urls[MANIFEST_URLS_MAX][MANIFEST_URL_MAX];
    bool val; /* held out: evaluated, never trained on */
};

struct manifest_data {
    char licence[MANIFEST_NAME_MAX];
    uint32_t n_shards;
    struct manifest_shard shards[MANIFEST_SHARDS_MAX];
    /* "byte", or the name of one of the shards: a tokenizer.json, which travels
     * as they do; it is no tokens, and not counted as a shard to train on. So
     * do the files that model.layout and model.init name. */
    char tokenizer[MANIFEST_NAME_MAX];
    struct hash32 tokenizer_blake2b; /* zero for "byte" */
};

/* A Llama of this shape, or, with `params`, a list of named tensors that a
 * training loop of its own knows what to do with; the shape is then zeros. */
struct manifest_model {
    uint32_t dim;
    uint32_t ffn;
    uint32_t heads;
    char init[MANIFEST_NAME_MAX]; /* shard with the parameters of round 0, a
                                     safetensors file; "": from the seed */
    uint32_t kv_heads;
    uint32_t layers;
    char layout[MANIFEST_NAME_MAX]; /* shard with names and shapes of tensors,
                                       the header of such a file */
    double norm_eps;
    uint64_t params; /* elements of the list of tensors; 0: a Llama */
    double rope_theta;
    uint32_t seq; /* longest context, tokens */
    bool tied;    /* head shares the embedding */
    uint32_t vocab;
};

struct manifest_inner {
    uint32_t batch; /* sequences per optimizer step and peer */
    double beta1;
    double beta2;
    double clip;    /* global gradient norm; 0: off */
    uint32_t decay; /* last steps of schedule wsd */
    double eps;
    double lr;
    double lr_min;
    uint32_t micro_batch; /* sequences per forward pass */
    double muon_lr;       /* of muon's matrices, in lr; 0: 4 */
    char optimizer[16];
    char schedule[16];
    uint32_t seq;   /* tokens per sequence */
    uint64_t steps; /* length of the schedule */
    uint64_t warmup;
    double weight_decay;
};

struct manifest_sync {
    char audit[8];         /* butterfly: "" or off; sums; work: both */
    double batch_eta;      /* trainers: of the norm test; 0: the paper's 0.8 */
    uint32_t batch_most;   /* trainers: sequences in one micro-batch */
    char batch_test[12];   /* trainers: what asks for a larger batch */
    double batch_vartheta; /* of the inner product test; 0: 0.01 */
    bool error_feedback;
    uint32_t fragments;
    double gamma;         /* pull to the partner (rule H) */
    uint32_t merge_every; /* trainers: rounds between two mergers; 0: none */
    double mix;           /* share of the live value that stays; 0: overwrite */
    double norm_clip;     /* butterfly: in medians of the norms; 0: none */
    double outer_lr;
    double outer_momentum;
    uint32_t overlap;  /* inner steps a round may run beside compute */
    uint32_t period;   /* inner steps between averages of the parameters */
    uint32_t period_u; /* of the first moment; 0: never */
    uint32_t period_v; /* of the second moment; 0: never */
    char preset[16];   /* any name: who trains knows which there are */
    double rollback;   /* bits per byte; 0: never */
    char robust[12];   /* butterfly with norm_clip: "" or clip: from 0; centred:
                        * from a common centre; off: norm_clip is 0 */
    char topology[12]; /* how contributions become one vector */
    uint32_t trainers; /* models that begin apart; 0: one, of all peers */
    char wire[8];
};

struct manifest_round {
    uint32_t fork_after_ms;
    uint32_t grace_ms;
    uint32_t min_peers;
    uint64_t progress_floor_bytes_per_s;
};

struct manifest_stop {
    uint64_t rounds; /* 0: no limit */
    uint64_t tokens; /* 0: no limit */
};

struct manifest_eval {
    uint32_t every_rounds; /* 0: never */
    uint64_t tokens;       /* of the held-out text; 0: all */
};

/* What the run asks of a member, shown before it joins; 0: not stated. */
struct manifest_limits {
    uint64_t disk_bytes;
    uint64_t memory_bytes;
    uint64_t traffic_bytes_per_day;
};

struct manifest_transport {
    char encryption[8]; /* on, off */
};

struct manifest {
    uint8_t author[SIGN_PUBLIC_BYTES];
    struct manifest_data data;
    struct manifest_eval eval;
    struct manifest_inner inner;
    bool invited; /* a peer needs an invitation of the author (invite.h) */
    struct manifest_limits limits;
    struct manifest_model model;
    char name[MANIFEST_NAME_MAX];
    uint32_t probation_rounds; /* of newcomers; 0: they count at once */
    struct manifest_round round;
    uint64_t seed;
    uint32_t sites;       /* 0: flat; else members per site at most */
    uint32_t site_rtt_ms; /* who is this near, and names no site, is one */
    uint32_t stages;      /* pipeline stages; 1: none */
    struct manifest_stop stop;
    struct manifest_sync sync;
    struct manifest_transport transport;
    uint32_t version;
};

/* The keys, for doc_set(), doc_get() and YAML. */
const struct doc_schema *manifest_schema(void);

/* The values that a new run starts from: model and data are empty. */
void manifest_default(struct manifest *m);

/* Whether shard i is the tokenizer's file. */
bool manifest_is_tokenizer(const struct manifest_data *data, uint32_t i);

/* Whether shard i is text, to train on or held out: neither the tokenizer nor a
 * file of the model. */
bool manifest_is_text(const struct manifest_data *data, uint32_t i);

/* Whether the model is a list of tensors. */
bool manifest_has_tensors(const struct manifest *m);

/* The shard of that name; n_shards: there is none. */
uint32_t manifest_shard_named(const struct manifest_data *data,
                              const char *name);

/* The values that a Llama's shape and text need, which the table of keys leaves
 * at 0 for other models: LOCO_EINVAL and a sentence. */
int manifest_check_llama(const struct manifest *m, char *errmsg);

/* LOCO_EINVAL and a sentence: a list of tensors has no such shape. */
int manifest_check_tensors(const struct manifest *m, char *errmsg);

/* Every value alone and against the others; LOCO_EINVAL and a sentence. */
int manifest_validate(const struct manifest *m, char *errmsg);

/* Whether a rule of the format refuses it: REFUSE_FORMAT of rules.def. The
 * values alone are right (doc_check). */
bool manifest_refuses(enum conflict_id id, const struct manifest *f);

/* A value of the manifest at self, for conflict_say(). */
bool manifest_value(const void *self, const char *path, char *out, size_t cap);

/* LOCO_EINVAL and the sentence of that rule, of any scope, with the manifest's
 * values. */
int manifest_refuse(enum conflict_id id,
                    const struct manifest *m,
                    char *errmsg);

/* Canonical bytes M: their number, at most MANIFEST_BYTES_MAX, or negative. */
int manifest_encode(const struct manifest *m, uint8_t *out, size_t cap);

/* Canonical bytes back, not validated: 0 or LOCO_EPROTO. */
int manifest_decode(const uint8_t *in, size_t len, struct manifest *m);

/* Run id of canonical bytes. */
void manifest_hash(const uint8_t *bytes, size_t len, struct hash32 *run);

/* Run id of a manifest; encodes into memory of its own: LOCO_ENOMEM. */
int manifest_run_id(const struct manifest *m, struct hash32 *run);

/* Set the author, then sign. Encodes into memory of its own. */
int manifest_sign(struct manifest *m,
                  const struct signer *signer,
                  uint8_t sig[SIGN_BYTES]);

/* 0 or LOCO_ESIG: whether `sig` is the author's. */
int manifest_verify(const struct manifest *m,
                    const struct signer *signer,
                    const uint8_t sig[SIGN_BYTES]);

/* Wire form into out[cap]: bytes, or negative. */
int manifest_pack(const struct manifest *m,
                  const uint8_t sig[SIGN_BYTES],
                  uint8_t *out,
                  size_t cap);

/* Wire form from a peer: signature, canonical form, validity. `sig` may be
 * NULL. *run is the id of what was received; comparing it with the invitation
 * is the caller's. */
int manifest_unpack(const uint8_t *in,
                    size_t len,
                    const struct signer *signer,
                    struct manifest *m,
                    uint8_t sig[SIGN_BYTES],
                    struct hash32 *run,
                    char *errmsg);

/* Longest wire form. */
#define MANIFEST_WIRE_MAX (MANIFEST_BYTES_MAX + 128U)

#endif
