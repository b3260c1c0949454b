/* manifest_schema.c - the keys of the run manifest: ranges, words, help. */
#include <stdio.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "proto/manifest.h"

#define BETA_MAX  0.99999999 /* an average must forget */
#define COUNT_MAX 1e18       /* tokens, bytes: far below 2^64 */

/* clang-format off */
static const char *const optimizers[] = {"sgd", "sgdm", "adamw", "adopt",
                                         "muon", NULL};
static const char *const schedules[] = {"constant", "cosine", "wsd", NULL};
static const char *const wires[] = {
#define CODEC(ID, type, ...) #type,
#include "proto/base/codec.def"
    NULL};
static const char *const topologies[] = {"ring", "butterfly", "owners", NULL};
static const char *const robusts[] = {"off", "clip", "centred", NULL};
static const char *const audits[] = {"off", "sums", "work", NULL};
static const char *const batch_tests[] = {"fixed", "norm", "inner",
                                          "augmented", NULL};
static const char *const encryptions[] = {"on", "off", NULL};

DOC_PART(manifest_shard,
    DOC_FIELD_HEX(struct manifest_shard, blake2b, "tree hash of the file"),
    DOC_FIELD_U64(struct manifest_shard, bytes, 1, COUNT_MAX, "file size"),
    DOC_FIELD_STR(struct manifest_shard, name, NULL, "file name"),
    DOC_FIELD_U64(struct manifest_shard, tokens, 0, COUNT_MAX,
                  "tokens in it; 0: it is no text"),
    DOC_LIST_STR(struct manifest_shard, urls, n_urls,
                 "download addresses, besides peers"),
    DOC_FIELD_BOOL(struct manifest_shard, val, "held out for evaluation"));

DOC_PART(manifest_data,
    DOC_FIELD_STR(struct manifest_data, licence, NULL,
                  "terms of use of the text"),
    DOC_LIST_MAP(struct manifest_data, shards, n_shards, manifest_shard_schema,
                 "files of tokens"),
    DOC_FIELD_STR(struct manifest_data, tokenizer, NULL,
                  "byte, or the name of the shard that is a tokenizer.json"),
    DOC_FIELD_HEX(struct manifest_data, tokenizer_blake2b,
                  "tree hash of that file; zeros for byte"));

DOC_PART(manifest_eval,
    DOC_FIELD_U32(struct manifest_eval, every_rounds, 0, UINT32_MAX,
                  "rounds between evaluations; 0: never"),
    DOC_FIELD_U64(struct manifest_eval, tokens, 0, COUNT_MAX,
                  "held-out tokens per evaluation; 0: all"));

DOC_PART(manifest_inner,
    DOC_FIELD_U32(struct manifest_inner, batch, 1, 1 << 20,
                  "sequences per optimizer step of one peer"),
    DOC_FIELD_F64(struct manifest_inner, beta1, 0, BETA_MAX,
                  "decay of the first moment"),
    DOC_FIELD_F64(struct manifest_inner, beta2, 0, BETA_MAX,
                  "decay of the second moment"),
    DOC_FIELD_F64(struct manifest_inner, clip, 0, 1e9,
                  "global gradient norm; 0: off"),
    DOC_FIELD_U32(struct manifest_inner, decay, 0, UINT32_MAX,
                  "last steps, in which schedule wsd decays"),
    DOC_FIELD_F64(struct manifest_inner, eps, 0, 1, "of the optimizer"),
    DOC_FIELD_F64(struct manifest_inner, lr, 0, 100, "peak learning rate"),
    DOC_FIELD_F64(struct manifest_inner, lr_min, 0, 100,
                  "learning rate at the end of the schedule"),
    DOC_FIELD_U32(struct manifest_inner, micro_batch, 1, 1 << 20,
                  "sequences per forward pass"),
    DOC_OPTIONAL_F64(struct manifest_inner, muon_lr, 0, 1000,
                     "muon: rate of its matrices, in learning rates; 0: 4"),
    DOC_FIELD_STR(struct manifest_inner, optimizer, optimizers, "update rule"),
    DOC_FIELD_STR(struct manifest_inner, schedule, schedules,
                  "of the learning rate"),
    DOC_FIELD_U32(struct manifest_inner, seq, 1, 1 << 20,
                  "tokens per sequence, 2 at least for a Llama"),
    DOC_FIELD_U64(struct manifest_inner, steps, 1, COUNT_MAX,
                  "length of the schedule, inner steps"),
    DOC_FIELD_U64(struct manifest_inner, warmup, 0, COUNT_MAX,
                  "first steps, in which the learning rate rises"),
    DOC_FIELD_F64(struct manifest_inner, weight_decay, 0, 100, "decoupled"));

DOC_PART(manifest_limits,
    DOC_FIELD_U64(struct manifest_limits, disk_bytes, 0, COUNT_MAX,
                  "disk that a member needs; 0: not stated"),
    DOC_FIELD_U64(struct manifest_limits, memory_bytes, 0, COUNT_MAX,
                  "memory that a member needs; 0: not stated"),
    DOC_FIELD_U64(struct manifest_limits, traffic_bytes_per_day, 0, COUNT_MAX,
                  "traffic that a member needs; 0: not stated"));

DOC_PART(manifest_model,
    DOC_FIELD_U32(struct manifest_model, dim, 0, 65536,
                  "channels; 0, as all of the shape: no Llama"),
    DOC_FIELD_U32(struct manifest_model, ffn, 0, 1 << 20, "hidden size"),
    DOC_FIELD_U32(struct manifest_model, heads, 0, 1024, "query heads"),
    DOC_OPTIONAL_STR(struct manifest_model, init, NULL,
                     "shard with the parameters to begin from; none: from the seed"),
    DOC_FIELD_U32(struct manifest_model, kv_heads, 0, 1024,
                  "key and value heads"),
    DOC_FIELD_U32(struct manifest_model, layers, 0, 1024, "blocks"),
    DOC_OPTIONAL_STR(struct manifest_model, layout, NULL,
                     "shard with the names and shapes of tensors"),
    DOC_FIELD_F64(struct manifest_model, norm_eps, 0, 1, "of RMSNorm"),
    DOC_OPTIONAL_U64(struct manifest_model, params, 0, MANIFEST_PARAMS_MAX,
                     "elements of a model that is a list of tensors; 0: a Llama"),
    DOC_FIELD_F64(struct manifest_model, rope_theta, 0, 1e12,
                  "base of the rotary angles"),
    DOC_FIELD_U32(struct manifest_model, seq, 0, 1 << 20, "longest context"),
    DOC_FIELD_BOOL(struct manifest_model, tied, "head shares the embedding"),
    DOC_FIELD_U32(struct manifest_model, vocab, 0, 1 << 24, "tokens known"));

DOC_PART(manifest_round,
    DOC_FIELD_U32(struct manifest_round, fork_after_ms, 1000, 86400000,
                  "a side without majority goes on alone after this"),
    DOC_FIELD_U32(struct manifest_round, grace_ms, 0, 86400000,
                  "wait for late members"),
    DOC_FIELD_U32(struct manifest_round, min_peers, 1, VIEW_MEMBERS_MAX,
                  "peers that the first round waits for"),
    DOC_FIELD_U64(struct manifest_round, progress_floor_bytes_per_s, 0,
                  COUNT_MAX, "a slower peer counts as gone"));

DOC_PART(manifest_stop,
    DOC_FIELD_U64(struct manifest_stop, rounds, 0, COUNT_MAX,
                  "rounds; 0: no limit"),
    DOC_FIELD_U64(struct manifest_stop, tokens, 0, COUNT_MAX,
                  "tokens over all peers; 0: no limit"));

DOC_PART(manifest_sync,
    DOC_OPTIONAL_STR(struct manifest_sync, audit, audits,
                     "butterfly: members compute parts of the sums of others "
                     "again (sums), and make some of their work again as "
                     "well (work: both); off: they do not"),
    DOC_OPTIONAL_F64(struct manifest_sync, batch_eta, 0, 1000,
                     "trainers, test norm: most noise of a batch, in lengths of "
                     "its gradient; 0: 0.8"),
    DOC_FIELD_U32(struct manifest_sync, batch_most, 0, 4096,
                  "trainers: sequences in a micro-batch; 0: no trainers"),
    DOC_FIELD_STR(struct manifest_sync, batch_test, batch_tests,
                  "trainers: the test that asks for a larger batch"),
    DOC_OPTIONAL_F64(struct manifest_sync, batch_vartheta, 0, 1000,
                     "trainers, tests inner and augmented: most noise along "
                     "the gradient, likewise; 0: 0.01"),
    DOC_FIELD_BOOL(struct manifest_sync, error_feedback,
                   "carry rounding errors of the wire into the next round"),
    DOC_FIELD_U32(struct manifest_sync, fragments, 1, 1024,
                  "parts that are averaged in turn"),
    DOC_FIELD_F64(struct manifest_sync, gamma, 0, 2, "pull to the partner"),
    DOC_FIELD_U32(struct manifest_sync, merge_every, 0, UINT32_MAX,
                  "trainers: rounds between two mergers; 0: never"),
    DOC_FIELD_F64(struct manifest_sync, mix, 0, 1,
                  "share of the live value that stays; 0: overwrite"),
    DOC_FIELD_F64(struct manifest_sync, norm_clip, 0, 1000,
                  "butterfly: longest contribution to a block, in medians of "
                  "all; 0: any"),
    DOC_FIELD_F64(struct manifest_sync, outer_lr, 0, 100,
                  "outer learning rate"),
    DOC_FIELD_F64(struct manifest_sync, outer_momentum, 0, BETA_MAX,
                  "outer momentum"),
    DOC_FIELD_U32(struct manifest_sync, overlap, 0, UINT32_MAX,
                  "inner steps that may be made during a round"),
    DOC_FIELD_U32(struct manifest_sync, period, 1, UINT32_MAX,
                  "inner steps between averages"),
    DOC_FIELD_U32(struct manifest_sync, period_u, 0, UINT32_MAX,
                  "same for the first moment; 0: never"),
    DOC_FIELD_U32(struct manifest_sync, period_v, 0, UINT32_MAX,
                  "same for the second moment; 0: never"),
    DOC_FIELD_STR(struct manifest_sync, preset, NULL, "named method"),
    DOC_OPTIONAL_STR(struct manifest_sync, robust, robusts,
                     "norm_clip from 0 (clip) or from a common centre; off: none"),
    DOC_OPTIONAL_F64(struct manifest_sync, rollback, 0, 8,
                     "take back a round after which held-out text costs so "
                     "many more bits per byte; 0: never"),
    DOC_FIELD_STR(struct manifest_sync, topology, topologies,
                  "how contributions are exchanged"),
    DOC_FIELD_U32(struct manifest_sync, trainers, 0, 16,
                  "models that begin apart and merge; 0: no trainers"),
    DOC_FIELD_STR(struct manifest_sync, wire, wires, "type on the wire"));

DOC_PART(manifest_transport,
    DOC_FIELD_STR(struct manifest_transport, encryption, encryptions,
                  "of the connections between peers"));

static const struct doc_field manifest_fields[] = {
    DOC_FIELD_HEX(struct manifest, author,
                  "public key of the person who made the run"),
    DOC_FIELD_MAP(struct manifest, data, manifest_data_schema, "the text"),
    DOC_FIELD_MAP(struct manifest, eval, manifest_eval_schema, "evaluation"),
    DOC_FIELD_MAP(struct manifest, inner, manifest_inner_schema,
                  "inner optimizer"),
    DOC_OPTIONAL_BOOL(struct manifest, invited,
                      "whether a peer needs an invitation of the author"),
    DOC_FIELD_MAP(struct manifest, limits, manifest_limits_schema,
                  "what a member must be able to give"),
    DOC_FIELD_MAP(struct manifest, model, manifest_model_schema, "the model"),
    DOC_FIELD_STR(struct manifest, name, NULL, "for people"),
    DOC_OPTIONAL_U32(struct manifest, probation_rounds, 0, 1000,
                     "rounds that a newcomer offers work for before it counts; 0: none"),
    DOC_FIELD_MAP(struct manifest, round, manifest_round_schema,
                  "outer rounds"),
    DOC_FIELD_U64(struct manifest, seed, 0, 0, "of weights and data order"),
    DOC_OPTIONAL_U32(struct manifest, site_rtt_ms, 0, 1000,
                     "machines within this round trip are a site, if they name none; 0: only named sites"),
    DOC_FIELD_U32(struct manifest, sites, 0, VIEW_MEMBERS_MAX,
                  "members per site at most; 0: no sites"),
    DOC_FIELD_U32(struct manifest, stages, 1, 1024, "pipeline stages"),
    DOC_FIELD_MAP(struct manifest, stop, manifest_stop_schema,
                  "when the run ends"),
    DOC_FIELD_MAP(struct manifest, sync, manifest_sync_schema,
                  "how replicas are averaged"),
    DOC_FIELD_MAP(struct manifest, transport, manifest_transport_schema,
                  "connections"),
    DOC_FIELD_U32(struct manifest, version, MANIFEST_VERSION, MANIFEST_VERSION,
                  "of this format"),
};
static const struct doc_schema schema =
    DOC_SCHEMA(struct manifest, manifest_fields);
/* clang-format on */

const struct doc_schema *manifest_schema(void)
{
    return &schema;
}

/* What a Llama needs at least, in the order of the keys. */
static const struct {
    const char *key;
    double least;
} llama_least[] = {
    {"dim", 1},        {"ffn", 1},    {"heads", 1},
    {"kv_heads", 1},   {"layers", 1}, {"norm_eps", 1e-12},
    {"rope_theta", 1}, {"seq", 1},    {"vocab", 2},
};

#define N_LLAMA (sizeof llama_least / sizeof llama_least[0])

int manifest_check_llama(const struct manifest *m, char *errmsg)
{
    struct doc_field f = *doc_find(&manifest_inner_schema, "seq", NULL);
    int rv;

    f.least = 2;
    rv = doc_check_value(&f, "inner.seq", &m->inner.seq, errmsg);
    for (size_t i = 0; i < N_LLAMA && rv == 0; i++) {
        char path[DOC_PATH_MAX];

        f = *doc_find(&manifest_model_schema, llama_least[i].key, NULL);
        f.least = llama_least[i].least;
        (void)snprintf(path, sizeof path, "model.%s", f.key);
        rv = doc_check_value(&f, path, (const char *)&m->model + f.offset,
                             errmsg);
    }
    return rv;
}

int manifest_check_tensors(const struct manifest *m, char *errmsg)
{
    static const struct manifest_model none;

    for (size_t i = 0; i < N_LLAMA; i++) {
        const struct doc_field *f =
            doc_find(&manifest_model_schema, llama_least[i].key, NULL);
        const char *p = (const char *)&m->model + f->offset;

        if (memcmp(p, (const char *)&none + f->offset, f->size) != 0) {
            return errmsg_invalid(errmsg,
                                  "model.%s: must be 0, as model.params says "
                                  "that the model is a list of tensors",
                                  f->key);
        }
    }
    return m->model.tied
               ? errmsg_invalid(errmsg, "model.tied: must be false, as "
                                        "model.params says that the model is "
                                        "a list of tensors")
               : 0;
}

void manifest_default(struct manifest *m)
{
    memset(m, 0, sizeof *m);
    m->version = MANIFEST_VERSION;
    m->stages = 1;
    (void)snprintf(m->data.tokenizer, sizeof m->data.tokenizer, "%s", "byte");
    m->eval.every_rounds = 1;
    m->inner = (struct manifest_inner){
        .batch = 8,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .clip = 1.0,
        .eps = 1e-8,
        .lr = 4e-4,
        .lr_min = 4e-5,
        .micro_batch = 8,
        .optimizer = "adamw",
        .schedule = "cosine",
        .seq = 256,
        .steps = 10000,
        .warmup = 100,
        .weight_decay = 0.1,
    };
    m->model.norm_eps = 1e-5;
    m->model.rope_theta = 10000;
    m->round = (struct manifest_round){
        .fork_after_ms = 30000,
        .grace_ms = 10000,
        .min_peers = 2,
        .progress_floor_bytes_per_s = 32768,
    };
    m->sync = (struct manifest_sync){
        .batch_test = "fixed",
        .fragments = 1,
        .outer_lr = 0.7,
        .outer_momentum = 0.9,
        .period = 50,
        .preset = "opendiloco",
        .topology = "ring",
        .wire = "fp16",
    };
    (void)snprintf(m->transport.encryption, sizeof m->transport.encryption,
                   "%s", "on");
}
