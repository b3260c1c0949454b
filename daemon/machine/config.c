/* config.c - from a manifest to a machine that can train.
 *
 * configure_run is on a worker and touches only what nobody else has
 * yet: the manifest, the shards on disk, the newest checkpoint.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sodium.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/machine/hash_threads.h"
#include "daemon/machine/internal.h"
#include "daemon/settings/run_model.h"
#include "daemon/settings/state_dir.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/pages.h"
#include "proto/hash.h"

static int fail(struct machine_job *j, int rc, const char *what)
{
    if (what != NULL) {
        (void)snprintf(j->errmsg, sizeof j->errmsg, "%s", what);
    }
    return rc;
}

bool machine_refuses(enum conflict_id id,
                     const struct manifest *f,
                     const struct machine_limits *o)
{
    switch (id) {
#define REFUSE_MACHINE(name, settings, condition, reason, nearest)             \
    case CONFLICT_##name:                                                      \
        return condition;
#include "proto/base/rules.def"
    default:
        return false;
    }
}

struct machine_run {
    const struct manifest *f;
    const struct machine_limits *o;
};

/* A value of this machine's settings, else of the run. */
static bool
value_text(const void *self, const char *path, char *out, size_t cap)
{
    const struct machine_run *r = self;
    int n;

    if (strcmp(path, "encryption") == 0) {
        n = snprintf(out, cap, "%s", r->o->encryption ? "on" : "off");
    } else if (strcmp(path, "upload_bytes_per_s") == 0) {
        n = snprintf(out, cap, "%" PRIu64, r->o->upload_bytes_per_s);
    } else if (strcmp(path, "download_bytes_per_s") == 0) {
        n = snprintf(out, cap, "%" PRIu64, r->o->download_bytes_per_s);
    } else {
        return manifest_value(r->f, path, out, cap);
    }
    return n > 0 && (size_t)n < cap;
}

int machine_check(const struct manifest *f,
                  const struct machine_limits *o,
                  char *errmsg)
{
    const struct machine_run run = {f, o};

    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        if (machine_refuses((enum conflict_id)id, f, o)) {
            conflict_say((enum conflict_id)id, value_text, &run, errmsg,
                         LOCO_ERRMSG_MAX);
            return LOCO_EINVAL;
        }
    }
    return 0;
}

/* How contributions travel and what becomes of their average. */
static int read_sync(struct machine *m, struct machine_job *j)
{
    int rv = run_vector_read(&m->vector, m->manifest, j->errmsg);

    if (rv != 0) {
        return rv;
    }
    m->codec = m->vector.codec;
    m->exchange = m->vector.exchange;
    m->replica.codec = m->codec;
    m->replica.method = m->vector.method;
    m->replica.members = m->manifest->round.min_peers;
    m->pairs = m->vector.method.group == METHOD_PAIR;
    return 0;
}

static int read_inner(struct machine *m, struct machine_job *j)
{
    const char *reason = NULL;
    int rv = run_inner_read(&m->replica, &m->manifest->inner, &reason);

    return rv == 0 ? 0 : fail(j, rv, reason);
}

/* A model cut into stages: until the node says which one this machine holds,
 * the first. */
static int read_stages(struct machine *m, struct machine_job *j)
{
    struct replica_options *r = &m->replica;
    const char *reason = NULL;
    int rv;

    rv = llama_part_of_stage(&r->model, m->manifest->stages, 0, &r->part,
                             &reason);
    if (rv != 0) {
        return fail(j, rv, reason);
    }
    r->slots = run_pipe_slots(m->manifest->stages);
    m->stage.activations = codec_get(CODEC_BF16);
    return 0;
}

/* Who makes the inner steps: a model that is a list of tensors only a training
 * loop of its own knows. */
static int read_trainer(struct machine *m, struct machine_job *j)
{
    const char *who = m->opt.settings->trainer;
    bool tensors = manifest_has_tensors(m->manifest);

    m->replica.shared = tensors || strcmp(who, "socket") == 0;
    if (tensors && strcmp(who, "builtin") == 0) {
        return fail(j, LOCO_EINVAL,
                    "the run's model is a list of tensors, which the trainer "
                    "of locod does not know: set trainer to auto, and start a "
                    "training loop (deploy/PYTHON.md)");
    }
    if (m->replica.shared && m->manifest->stages > 1) {
        return fail(j, LOCO_EINVAL,
                    "a stage of a model is trained by locod alone: set "
                    "trainer to auto");
    }
    if (m->replica.shared && m->vector.audits_work) {
        return fail(j, LOCO_EINVAL,
                    "members of this run make each other's work again "
                    "(sync.audit=work), and only that of locod's own trainer "
                    "can be: set trainer to auto");
    }
    if (m->replica.shared &&
        (m->replica.method.gradients || m->replica.method.trainers > 0 ||
         m->replica.method.period_u > 0 || m->replica.method.period_v > 0)) {
        return fail(j, LOCO_EINVAL,
                    "the run's method averages more than parameters, which "
                    "only locod's own trainer does: set trainer to auto, or "
                    "join a run of another method, such as opendiloco");
    }
    return 0;
}

/* What the manifest asks for, in the trainer's words. */
static int read_replica(struct machine *m, struct machine_job *j)
{
    const struct machine_limits limits = {
        .encryption = m->opt.settings->encryption,
        .upload_bytes_per_s = atomic_load(&m->use.upload_cap),
        .download_bytes_per_s = atomic_load(&m->use.download_cap),
    };
    const struct manifest *f = m->manifest;
    struct replica_options *r = &m->replica;
    const char *reason = NULL;
    int rv;

    rv = run_model_whole(f, &r->model, &r->part, &reason);
    if (rv != 0) {
        return fail(j, rv, reason);
    }
    rv = machine_check(f, &limits, j->errmsg);
    rv = rv != 0 ? rv : read_sync(m, j);
    rv = rv != 0 ? rv : read_inner(m, j);
    rv = rv != 0 ? rv : read_trainer(m, j);
    if (rv == 0 && f->stages > 1) {
        rv = read_stages(m, j);
    }
    if (rv != 0) {
        return rv;
    }
    r->seed = f->seed;
    r->peer = id_u64(&m->opt.self);
    r->eval_tokens = f->eval.tokens;
    r->threads = (int)m->opt.settings->threads;
    r->affinity = m->opt.affinity;
    r->dtype = m->opt.dtype;
    r->isa = m->opt.settings->isa;
    r->reference = m->opt.reference;
    r->device = m->opt.device;
    m->n = (uint64_t)r->part.numel;
    return 0;
}

/* What the exchange needs beside the vectors. */
static int open_exchange(struct machine *m)
{
    const struct manifest_sync *s = &m->manifest->sync;
    uint64_t seed; /* nobody else knows what is watched here */

    m->wire.reduce.codec = m->codec;
    m->wire.reduce.segment_elements = m->terms.segment_elements;
    m->wire.reduce.clip = m->vector.clip;
    m->wire.reduce.centred = m->vector.centred;
    m->wire.reduce.raw = m->vector.raw;
    if (m->terms.watches) {
        randombytes_buf(&seed, sizeof seed);
        strays_open(&m->wire.strays,
                    m->terms.n_turns == 0
                        ? m->terms.n_params
                        : terms_begin(&m->terms, m->terms.n_turns),
                    seed);
        m->wire.reduce.strays = &m->wire.strays;
    }
    if (m->terms.quorum && m->wire.zeros == NULL) {
        m->wire.zeros = calloc(m->n_wire, sizeof *m->wire.zeros);
        if (m->wire.zeros == NULL) {
            return LOCO_ENOMEM;
        }
    }
    if (s->error_feedback && m->wire.error == NULL) {
        m->wire.error = calloc(m->n_wire, sizeof *m->wire.error);
        return m->wire.error == NULL ? LOCO_ENOMEM : 0;
    }
    return 0;
}

static bool has_train_text(const struct manifest_data *data)
{
    for (uint32_t i = 0; i < data->n_shards; i++) {
        if (manifest_is_text(data, i) && !data->shards[i].val) {
            return true;
        }
    }
    return false;
}

/* With common rounds and tasks of one size all read one order of the text:
 * leases of the longest round (p2p/round/LEASES.md). */
static uint32_t lease_quota(const struct machine *m)
{
    const struct method *method = &m->replica.method;
    const struct run_terms *t = &m->terms;
    return !has_train_text(&m->manifest->data) || t->pairs || t->quorum ||
                   method->trainers > 0 || method->overlap > 0 ||
                   terms_staged(t)
               ? 0
               : terms_most_steps(t);
}

/* How long each round's vector is, and how many steps go before it. */
int machine_read_part(struct machine *m, char *errmsg)
{
    struct run_terms *t = &m->terms;

    t->n_params = m->n;
    t->state_bytes =
        replica_state_elements(&m->replica.method, m->n) * sizeof(float);
    return run_vector_turns(&m->vector, &m->replica.model, &m->replica.part, t,
                            &m->n_wire, errmsg);
}

static void read_terms(struct machine *m)
{
    const struct manifest *f = m->manifest;
    struct run_terms *t = &m->terms;

    run_vector_cut(&m->vector, t);
    t->site_members = m->exchange == EXCHANGE_SITES ? f->sites : 0;
    t->site_rtt_us = f->site_rtt_ms * 1000;
    t->invited = f->invited;
    t->probation_rounds = f->probation_rounds;
    memcpy(t->author, f->author, sizeof t->author);
    t->pairs = m->pairs;
    t->period = f->sync.period;
    t->single_round = m->replica.method.gradients || t->audits_work;
    t->quorum = m->replica.method.group == METHOD_QUORUM;
    t->adapts = m->exchange == EXCHANGE_RING && !t->quorum;
    t->by_speed = m->replica.method.dylu;
    t->min_peers = f->round.min_peers;
    t->grace_ms = f->round.grace_ms;
    t->fork_after_ms = f->round.fork_after_ms;
    t->progress_floor_bytes_per_s =
        (uint32_t)f->round.progress_floor_bytes_per_s;
    t->stop_rounds = f->stop.rounds;
    t->stop_tokens = f->stop.tokens;
    t->eval_every = f->eval.every_rounds;
    t->rollback_microbits = (uint32_t)(f->sync.rollback * 1e6);
    t->piece_bytes = HASH_PIECE_BYTES;
    t->n_shards = f->data.n_shards;
    for (uint32_t i = 0; i < t->n_shards; i++) {
        t->shards[i].bytes = f->data.shards[i].bytes;
        t->shards[i].hash = f->data.shards[i].blake2b;
        t->shards[i].urls = machine_has_urls(m, i);
        t->shards[i].begins =
            strcmp(f->data.shards[i].name, f->model.init) == 0;
    }
}

/* Of all held-out windows that an evaluation reads; 0: there are none. */
static uint32_t eval_micros(const struct machine *m)
{
    const struct replica_options *r = &m->replica;
    uint64_t tokens = 0, micros;

    for (uint32_t i = 0; i < m->manifest->data.n_shards; i++) {
        const struct manifest_shard *s = &m->manifest->data.shards[i];

        tokens = s->val ? s->tokens : tokens;
    }
    micros =
        (eval_windows(tokens, r->seq, r->eval_tokens) + r->micro_batch - 1) /
        r->micro_batch;
    return tokens == 0 || micros > UINT32_MAX ? 0 : (uint32_t)micros;
}

/* What hosts of stages agree on beside that. */
static void read_stage_terms(struct machine *m)
{
    const struct replica_options *r = &m->replica;
    struct run_terms *t = &m->terms;
    const struct stage_wire wire = {m->stage.activations, r->model.dim,
                                    r->model.vocab};
    uint64_t rows = RUN_SEGMENT_BYTES / stage_wire_forth_bytes(&wire, 1);

    t->stages = m->manifest->stages;
    t->pipe_seed = r->seed;
    t->micro_batches = r->batch / r->micro_batch;
    t->pipe_slots = r->slots;
    t->cut_elements = r->micro_batch * r->seq * r->model.dim;
    t->cut_segment = (uint32_t)(rows > 0 ? rows : 1) * r->model.dim;
    t->eval_micros = eval_micros(m);
}

int machine_shard_open(const struct machine *m,
                       uint32_t i,
                       const char *path,
                       struct shard *shard,
                       struct hash32 **leaves,
                       char *errmsg)
{
    struct hash32 root;
    size_t n;
    int rv;

    *leaves = NULL;
    memset(shard, 0, sizeof *shard);
    rv = manifest_is_text(&m->manifest->data, i)
             ? shard_open(shard, path, errmsg)
             : file_map_open(&shard->map, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    n = hash_tree_pieces(shard->map.size);
    *leaves = calloc(n, sizeof **leaves);
    if (*leaves == NULL) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    } else {
        hash_threads(shard->map.data, shard->map.size,
                     (int)m->opt.settings->threads, *leaves, &root);
        pages_forget(shard->map.data, shard->map.size);
        if (!hash32_eq(&root, &m->terms.shards[i].hash)) {
            rv = errmsg_fail(errmsg, LOCO_EHASH,
                             "%.180s does not have the hash that the run names",
                             path);
        }
    }
    if (rv != 0) {
        shard_close(shard);
        free(*leaves);
        *leaves = NULL;
    }
    return rv;
}

/* Does the file at `path` hold shard i? 0, LOCO_ENOENT, LOCO_EHASH or ENOMEM.
 */
static int try_shard(struct machine *m, uint32_t i, const char *path)
{
    struct shard_file *f = &m->files[i];
    char errmsg[ERRMSG_SIZE];
    struct stat st;
    int rv;

    if (stat(path, &st) != 0) {
        return LOCO_ENOENT;
    }
    if ((uint64_t)st.st_size != m->terms.shards[i].bytes) {
        return LOCO_EHASH;
    }
    rv = machine_shard_open(m, i, path, &f->shard, &f->leaves, errmsg);
    if (rv != 0) {
        return rv == LOCO_ENOMEM ? rv : LOCO_EHASH;
    }
    f->held = m->terms.shards[i].held = true;
    return 0;
}

/* `loco export` looks for them in the state directory. */
static void keep_small(struct machine *m, uint32_t i)
{
    const struct manifest *run = m->manifest;
    const struct shard_file *f = &m->files[i];
    char errmsg[ERRMSG_SIZE];

    if ((manifest_is_tokenizer(&run->data, i) ||
         strcmp(run->data.shards[i].name, run->model.layout) == 0) &&
        file_write_whole(f->path, f->shard.map.data, f->shard.map.size,
                         errmsg) != 0) {
        log_warn("data", "%s", errmsg);
    }
}

static int find_shard(struct machine *m, struct machine_job *j, uint32_t i)
{
    const struct manifest_shard *s = &m->manifest->data.shards[i];
    struct shard_file *f = &m->files[i];
    char beside[MACHINE_PATH_MAX];
    int n, rv;

    n = snprintf(f->path, sizeof f->path, "%s/" STATE_DIR_SHARDS "/%s",
                 m->opt.state_dir, s->name);
    if (n < 0 || (size_t)n >= sizeof f->path) {
        return fail(j, LOCO_ERANGE, "the state directory's path is too long");
    }
    rv = try_shard(m, i, f->path);
    if (rv == 0 || m->opt.data_dir == NULL) {
        return 0; /* what is missing or damaged comes from peers */
    }
    rv = file_path_join(beside, m->opt.data_dir, s->name, j->errmsg);
    rv = rv == 0 ? try_shard(m, i, beside) : rv;
    f->elsewhere = rv == 0;
    if (rv == 0) {
        keep_small(m, i);
    }
    if (rv == LOCO_EHASH) {
        (void)snprintf(j->errmsg, sizeof j->errmsg,
                       "shard %.150s does not have the hash that the manifest "
                       "names: pack the data again, or restore the file",
                       beside);
        return LOCO_EINVAL;
    }
    return 0;
}

/* Whether everything is there that the method's members share. */
static bool holds_state(const struct checkpoint *c, const struct method *m)
{
    uint64_t n = c->state.n, all = replica_state_elements(m, n);
    struct replica_names names;

    replica_state_names(m, &names);
    for (size_t i = 0; i < names.n; i++) {
        if (checkpoint_vector(c, names.name[i]) == NULL) {
            return false;
        }
    }
    return all == (1 + names.n) * n || checkpoint_text(c, "numbers") != NULL;
}

/* Parameters of what a checkpoint holds, if it is of this run: a stage's file
 * names it. */
static uint64_t checkpoint_params(struct machine *m, const struct checkpoint *c)
{
    const char *text = checkpoint_text(c, "stage");
    struct llama_part part;

    if (m->terms.stages <= 1) {
        return m->n;
    }
    m->terms.held_stage = text == NULL ? 0 : (uint32_t)strtoul(text, NULL, 10);
    return text != NULL &&
                   llama_part_of_stage(&m->replica.model, m->terms.stages,
                                       m->terms.held_stage, &part, NULL) == 0
               ? (uint64_t)part.numel
               : 0;
}

/* The record that goes with it, if it has one. */
static void read_record(struct machine *m, const struct checkpoint *c)
{
    const char *text = checkpoint_text(c, "record");
    size_t n = text == NULL ? 0 : strlen(text) / 2;

    free(m->found.record);
    m->found.record = n == 0 || n > FRAME_CONTROL_MAX ? NULL : malloc(n);
    if (m->found.record != NULL && hex_decode(text, m->found.record, n) == 0) {
        m->found.n_record = (uint32_t)n;
    }
}

static void find_checkpoint(struct machine *m)
{
    char errmsg[ERRMSG_SIZE], run[ID_HEX_MAX];
    struct checkpoint *c = &m->found.file;
    struct run_terms *t = &m->terms;
    const char *text;

    hash32_hex(&m->opt.run_id, run);
    if (checkpoint_open_newest(c, m->checkpoints, errmsg) != 0) {
        checkpoint_close(c);
        return;
    }
    text = checkpoint_text(c, "commit");
    if (c->state.n != checkpoint_params(m, c) ||
        !holds_state(c, &m->replica.method) || c->state.run_id == NULL ||
        strcmp(c->state.run_id, run) != 0 || text == NULL ||
        hash32_parse_hex(text, &t->held_commit) != 0) {
        log_warn("state", "the checkpoint is of another run and is not used");
        checkpoint_close(c);
        return;
    }
    text = checkpoint_text(c, "run_tokens");
    t->holds_state = true;
    t->held_round = c->state.round;
    t->held_tokens = text == NULL ? 0 : strtoull(text, NULL, 10);
    t->held_inner_step = c->state.inner_step;
    m->found.held = true;
    read_record(m, c);
}

static int make_directories(struct machine *m, struct machine_job *j)
{
    char path[MACHINE_PATH_MAX];
    const char *names[] = {STATE_DIR_SHARDS, STATE_DIR_ROUNDS,
                           STATE_DIR_CHECKPOINTS};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (file_path_join(path, m->opt.state_dir, names[i], j->errmsg) != 0 ||
            (mkdir(path, 0755) != 0 && errno != EEXIST)) {
            (void)snprintf(j->errmsg, sizeof j->errmsg,
                           "cannot make %.180s: %s", path, strerror(errno));
            return LOCO_EIO;
        }
        if (i == 1 || i == 2) {
            *(i == 1 ? &m->past.rounds : &m->checkpoints) = strdup(path);
        }
    }
    return m->checkpoints == NULL || m->past.rounds == NULL ? LOCO_ENOMEM : 0;
}

static void configure_run(struct machine_job *j)
{
    const struct bytes_job *b = (const struct bytes_job *)j;
    struct machine *m = j->m;
    struct signer verifier = signer_sodium(NULL);
    struct hash32 run = {{0}};

    m->manifest =
        m->manifest == NULL ? malloc(sizeof *m->manifest) : m->manifest;
    if (m->manifest == NULL) {
        j->rc = LOCO_ENOMEM;
        return;
    }
    j->rc = manifest_unpack(b->bytes, b->len, &verifier, m->manifest, NULL,
                            &run, j->errmsg);
    /* The run id first: what a peer sends in place of our run's manifest must
     * not stop us, however invalid it is. Both codes ask another peer. */
    if (j->rc == LOCO_EPROTO) {
        j->rc = LOCO_ESIG;
    } else if (j->rc != LOCO_ENOMEM && !hash32_eq(&run, &m->opt.run_id)) {
        j->rc = fail(j, LOCO_EHASH, "that is the manifest of another run");
    }
    j->rc = j->rc != 0 ? j->rc : read_replica(m, j);
    j->rc = j->rc != 0 ? j->rc : make_directories(m, j);
    if (j->rc != 0) {
        return;
    }
    read_terms(m);
    if (m->manifest->stages > 1) {
        read_stage_terms(m);
    }
    j->rc = machine_read_part(m, j->errmsg);
    m->terms.lease_quota = lease_quota(m);
    machine_read_text(m);
    j->rc = j->rc != 0 ? j->rc : machine_memory_check(m, j->errmsg);
    j->rc = j->rc == 0 ? open_exchange(m) : j->rc;
    m->files = calloc(m->terms.n_shards, sizeof *m->files);
    m->train = calloc(m->terms.n_shards, sizeof *m->train);
    if (j->rc == 0 && (m->files == NULL || m->train == NULL)) {
        j->rc = LOCO_ENOMEM;
    }
    for (uint32_t i = 0; m->files != NULL && i < m->terms.n_shards; i++) {
        m->files[i].fd = -1;
    }
    for (uint32_t i = 0; j->rc == 0 && i < m->terms.n_shards; i++) {
        j->rc = find_shard(m, j, i);
    }
    j->rc = j->rc == 0 ? machine_disk_check(m, j->errmsg) : j->rc;
    machine_disk_measure(m);
    if (j->rc == 0) {
        find_checkpoint(m);
    }
}

static void configured(struct machine *m, struct bytes_job *b)
{
    struct machine_job *j = &b->job;
    struct report_configured *report = &j->answer.configured;
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];

    if (j->rc != 0) {
        log_error("run", "cannot join the run: %s", j->errmsg);
    } else {
        m->configured = true;
        report->terms = &m->terms;
        report->record = m->found.record;
        report->n_record = m->found.n_record;
        if (file_path_join(path, m->opt.state_dir, STATE_DIR_MANIFEST,
                           errmsg) != 0 ||
            file_write_whole(path, b->bytes, b->len, errmsg) != 0) {
            log_error("state", "%s", errmsg);
        }
    }
}

static void configure_done(struct machine_job *j, int status)
{
    struct bytes_job *b = (struct bytes_job *)j;

    if (status == 0) {
        configured(j->m, b);
    }
    free(b->bytes);
}

const struct job_kind machine_configure_job = {
    .size = sizeof(struct bytes_job),
    .pool = POOL_WORKERS,
    .run = configure_run,
    .done = configure_done,
};
