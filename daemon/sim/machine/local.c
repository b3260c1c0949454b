/* local.c - jobs of the fake machine: begun by actions, ended by timers. See
 * local.h. */
#include "daemon/sim/machine/local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/node.h"
#include "daemon/sim/machine/internal.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

/* What drawn windows show, per byte. */
#define GOOD_BITS 2.0
#define BAD_BITS  9.0

/* Everything but the disk. */
static void forget(struct machine *m)
{
    struct local_disk disk = m->disk;
    uint32_t slow = m->slow, life = m->life, gen = m->train_gen;
    bool spoiled = m->spoiled;

    free(m->terms);
    free(m->phi);
    free(m->m);
    free(m->theta);
    free(m->contribution);
    free(m->residual);
    free(m->error);
    for (uint32_t k = 0; k < WIRE_SLOTS; k++) {
        free(m->wire.slot[k].bytes);
    }
    lanes_free(&m->reduce.lanes);
    offers_free(&m->offers);
    audit_room_free(&m->audit);
    local_work_free(m);
    free(m->incoming.bytes);
    pieces_free(&m->leaves);
    free(m->pair_in);
    for (uint32_t k = 0; k < LOCAL_REDUCED; k++) {
        free(m->reduced[k].bytes);
    }
    local_states_forget(m);
    for (uint32_t k = 0; k < LOCAL_SHARDS; k++) {
        free(m->shard_in[k]);
    }
    for (uint32_t k = 0; k < LOCAL_OPS; k++) {
        free(m->ops[k].snapshot);
        free(m->ops[k].record);
    }
    memset(m, 0, sizeof *m);
    m->disk = disk;
    m->slow = slow;
    m->spoiled = spoiled;
    m->life = life + 1;
    m->train_gen = gen + 1;
}

void local_set_watch(struct local *l, const struct local_watch *watch)
{
    l->watch = *watch;
}

const struct local_file *local_peers(const struct local *l, uint32_t peer)
{
    return &l->machines[peer].disk.peers;
}

const struct local_file *local_chain(const struct local *l, uint32_t peer)
{
    return &l->machines[peer].disk.chain;
}

void local_slow(struct local *l, uint32_t peer, uint32_t k)
{
    l->machines[peer].slow = k;
}

void local_hang(struct local *l, uint32_t peer, uint32_t ms)
{
    l->machines[peer].hang_ms = ms;
}

void local_params_hash(struct local *l, uint32_t peer, struct hash32 *hash)
{
    const struct machine *m = &l->machines[peer];

    memset(hash, 0, sizeof *hash);
    if (m->phi != NULL) {
        local_tree(l, m->phi, l->state_bytes / 2, hash);
    }
}

uint64_t local_saved_round(const struct local *l, uint32_t peer, uint32_t stage)
{
    const struct local_disk *d = &l->machines[peer].disk;

    return d->state.used && d->stage == stage ? d->state.round : 0;
}

uint64_t local_params_sum(const struct local *l, uint32_t peer)
{
    const struct machine *m = &l->machines[peer];
    const uint8_t *at = (const uint8_t *)m->phi;
    uint64_t n = at == NULL ? 0 : l->state_bytes / 2, sum[4] = {n};

    for (; n >= sizeof sum; n -= sizeof sum, at += sizeof sum) {
        uint64_t words[4];

        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++) { /* order matters: each step is undone by
                                         no other bytes in its place */
            sum[i] = (sum[i] ^ words[i]) * 0x9e3779b97f4a7c15ULL;
            sum[i] ^= sum[i] >> 29;
        }
    }
    for (; n > 0; n--, at++) {
        sum[0] = (sum[0] ^ *at) * 0x9e3779b97f4a7c15ULL;
    }
    return rng_mix(sum, 4);
}

void local_shard_segments(const struct local *l,
                          uint32_t peer,
                          uint64_t *all,
                          uint64_t *both)
{
    *all = l->machines[peer].shard_segs;
    *both = l->machines[peer].shard_segs_both;
}

bool local_has_beginning(const struct local *l, uint32_t peer)
{
    const struct local_disk *d = &l->machines[peer].disk;

    return d->began || (l->opt.begins != 0 && d->shards[l->opt.n_shards - 1]);
}

uint32_t local_life(const struct local *l, uint32_t peer)
{
    return l->machines[peer].life;
}

void local_tokens(const struct local *l,
                  uint32_t peer,
                  uint64_t *trained,
                  uint64_t *open)
{
    *trained = l->machines[peer].tokens - l->machines[peer].tokens_before;
    *open = local_open_tokens(l, &l->machines[peer]);
}

void local_tell(struct local *l, uint32_t peer, const struct local_event *e)
{
    struct event event = {.type = EVENT_LOCAL, .local = *e};

    world_post(l->world, peer, &event);
}

/* ---- jobs -------------------------------------------------------------- */

static void write_checkpoint(struct machine *m, struct local_op *op)
{
    struct local_disk *d = &m->disk;

    if (op->snapshot == NULL) {
        return;
    }
    free(d->state.bytes);
    d->state.bytes = op->snapshot;
    d->state.used = true;
    d->state.round = op->job.checkpoint.round;
    d->state.name = op->snapshot_name;
    d->inner_step = op->snapshot_step;
    d->tokens = op->snapshot_tokens;
    d->trained = op->snapshot_trained;
    d->stage = op->snapshot_stage;
    d->commit = op->snapshot_commit;
    free(d->record);
    d->record = op->record;
    d->n_record = op->n_record;
    op->snapshot = op->record = NULL;
}

static void
begin_checkpoint(struct local *l, uint32_t peer, struct local_op *op)
{
    struct machine *m = &l->machines[peer];
    const struct node *node = l->calls.node(l->calls.self, peer);
    const struct commit *commit = node_record(node);
    const struct kept_state *kept;
    struct node_status status;
    size_t half = l->state_bytes / 2;
    int n;

    if (m->phi == NULL || m->round != op->job.checkpoint.round ||
        (l->opt.save_every > 1 && m->round % l->opt.save_every != 0)) {
        return;
    }
    op->snapshot = world_alloc(l->state_bytes);
    memcpy(op->snapshot, m->phi, half);
    memcpy(op->snapshot + half, m->m, half);
    kept = kept_find(&m->states, op->job.checkpoint.round, 0);
    op->snapshot_name = kept == NULL ? 0 : kept->name;
    op->snapshot_step = m->inner_step;
    op->snapshot_trained = m->tokens;
    op->snapshot_stage = m->stage;
    node_status(node, &status);
    op->snapshot_tokens = status.run_tokens;
    op->snapshot_commit = status.commit_hash;
    op->record = world_alloc(FRAME_CONTROL_MAX);
    n = commit == NULL
            ? 0
            : msg_encode(&commit_schema, commit, op->record, FRAME_CONTROL_MAX);
    op->n_record = n > 0 ? (uint32_t)n : 0;
}

static void write_file(struct local_file *f,
                       const struct out_span *span,
                       const struct out *out)
{
    free(f->bytes);
    f->bytes = world_alloc(span->len);
    f->len = span->len;
    memcpy(f->bytes, out->bytes + span->at, span->len);
}

static void keep(struct local *l, struct machine *m, uint64_t shard)
{
    struct hash32 hash;

    if (shard < l->opt.n_shards && m->shard_in[shard] != NULL) {
        local_tree(l, m->shard_in[shard], l->opt.shard_bytes, &hash);
        if (hash32_eq(&hash, &l->shard_hash[shard])) {
            m->held[shard] = m->disk.shards[shard] = true;
        }
    }
}

static int downloaded(struct local *l, struct machine *m, uint64_t shard)
{
    m->url_busy--;
    if (m->url_tries++ < l->opt.url_failures) {
        return LOCO_EIO;
    }
    m->held[shard] = m->disk.shards[shard] = true;
    m->disk.began = m->disk.began || m->terms->shards[shard].begins;
    return 0;
}

double local_bits_of(uint64_t round)
{
    return 8.0 / (double)(round + 1);
}

/* What comes of a job, into its report. */
static int
work(struct local *l, uint32_t peer, struct local_op *op, struct local_event *e)
{
    struct machine *m = &l->machines[peer];
    const struct job *job = &op->job;
    int rc;

    if (op->rc != 0) {
        return op->rc;
    }
    if (m->terms == NULL && job->type != JOB_CONFIGURE) {
        return LOCO_EINVAL;
    }
    switch (job->type) {
    case JOB_CONFIGURE:
        local_configure(l, m, &e->configured);
        return 0;
    case JOB_LOAD:
        rc = local_load(l, peer, &job->load, &e->loaded);
        local_moments(l, peer, &e->loaded);
        return rc;
    case JOB_APPLY:
        rc = local_apply(l, peer, &job->apply, &e->applied);
        local_moments(l, peer, &e->applied);
        return rc;
    case JOB_PAIR:
        return local_pair_apply(l, m, &job->pair, &e->applied);
    case JOB_EVAL:
        e->evaluated.bits_per_byte = local_bits_of(job->eval.round);
        if (job->eval.draw != 0) {
            e->evaluated.bits_per_byte =
                m->misjudges || local_is_ruined(l, peer) ? BAD_BITS : GOOD_BITS;
        }
        return 0;
    case JOB_HASH:
        return local_hash_buffer(l, m, &job->hash, &e->hashed);
    case JOB_VERIFY:
        return local_verify(m, &job->verify, &e->verified);
    case JOB_KEEP:
        keep(l, m, job->keep.index);
        return 0;
    case JOB_STAGE:
        local_stage(l, m, &e->staged);
        return 0;
    case JOB_AUDIT:
        return local_audit(l, m, &job->audit, &e->audited);
    case JOB_STRAYS:
        e->strays.mask = m->strays;
        return 0;
    case JOB_REPEAT:
        return local_repeat(l, peer, &job->repeat, &e->repeated);
    case JOB_PIPE:
        if (local_pipe_is_void(m, &job->pipe)) {
            e->type = LOCAL_TYPE_COUNT; /* nobody waits for it */
            return 0;
        }
        return local_pipe(l, peer, &job->pipe, &e->piped);
    case JOB_DOWNLOAD:
        return downloaded(l, m, job->download.index);
    default:
        assert(job->type == JOB_CHECKPOINT);
        write_checkpoint(m, op);
        return 0;
    }
}

/* The hashes of that state come later. */
static bool place(struct local *l,
                  uint32_t peer,
                  struct local_op *op,
                  const struct local_event *e)
{
    struct local_event placed = {.type = LOCAL_PLACED};

    if (op->job.type != JOB_APPLY || op->placed || e->rc != 0 ||
        l->opt.hash_ms == 0) {
        return false;
    }
    op->placed = true;
    op->state = e->applied;
    placed.placed = (struct report_placed){
        e->applied.round, e->applied.inner_step, e->applied.tokens};
    local_tell(l, peer, &placed);
    world_timer(l->world, peer, l->opt.hash_ms * l->machines[peer].slow,
                op->serial);
    return true;
}

static void finish(struct local *l, uint32_t peer, struct local_op *op)
{
    struct local_event e = job_answer(&op->job, 0);

    if (op->placed) {
        e.applied = op->state;
    } else {
        e.rc = work(l, peer, op, &e);
    }
    if (place(l, peer, op, &e)) {
        return;
    }
    if (e.type != LOCAL_TYPE_COUNT) {
        local_tell(l, peer, &e);
    }
    free(op->snapshot);
    free(op->record);
    op->snapshot = op->record = NULL;
    op->used = false;
}

static void on_timer(void *self, uint32_t peer, uint64_t token)
{
    struct local *l = self;

    if ((token & STEP_TOKEN) != 0) {
        local_on_step(l, peer, token & ~STEP_TOKEN);
        return;
    }
    for (uint32_t k = 0; k < LOCAL_OPS; k++) {
        struct local_op *op = &l->machines[peer].ops[k];

        if (op->used && op->serial == token) {
            finish(l, peer, op);
            return;
        }
    }
}

/* The trainer does one thing at a time; hashing and disk have workers. */
static uint32_t
delay_of(struct local *l, struct machine *m, const struct job *job)
{
    uint64_t now = world_now(l->world);
    uint32_t work = l->opt.work_ms * m->slow;

    if (job->type == JOB_DOWNLOAD) {
        m->url_busy++;
        return l->opt.url_ms;
    }
    if (job->type ==
        JOB_REPEAT) { /* states are put in place between its steps */
        return job->repeat.steps * l->opt.step_ms * m->slow;
    }
    if (job->type != JOB_LOAD && job->type != JOB_APPLY &&
        job->type != JOB_PAIR && job->type != JOB_EVAL &&
        job->type != JOB_PIPE) {
        return work;
    }
    if (job->type == JOB_PIPE && job->pipe.op != PIPE_STEP) {
        work =
            l->opt.forward_ms * m->slow *
            (job->pipe.op == PIPE_FORWARD || job->pipe.op >= PIPE_EVAL_FORWARD
                 ? 1
             : job->pipe.op == PIPE_BACKWARD ? 2
                                             : 3);
        work += m->hang_ms;
        m->hang_ms = 0;
    }
    m->busy_until_ms = (m->busy_until_ms > now ? m->busy_until_ms : now) + work;
    return (uint32_t)(m->busy_until_ms - now);
}

static void begin(struct local *l, uint32_t peer, const struct job *job, int rc)
{
    struct machine *m = &l->machines[peer];

    for (uint32_t k = 0; k < LOCAL_OPS; k++) {
        struct local_op *op = &m->ops[k];

        if (!op->used) {
            *op = (struct local_op){
                .used = true, .job = *job, .rc = rc, .serial = ++l->serial};
            if (job->type == JOB_CHECKPOINT) {
                begin_checkpoint(l, peer, op);
            }
            world_timer(l->world, peer, delay_of(l, m, job), op->serial);
            return;
        }
    }
    l->calls.logged(l->calls.self, peer, 3, "sim: too many jobs at once");
    l->calls.stopped(l->calls.self, peer, LOCO_EFULL);
}

static void begin_pipe(struct local *l, uint32_t peer, const struct job *job)
{
    if (job->pipe.op == PIPE_CLEAR) {
        local_pipe_clear(l, peer, job->pipe.attempt);
        return;
    }
    if (job->pipe.op == PIPE_STEP) {
        local_pipe_step(l, peer, &job->pipe);
    }
    begin(l, peer, job, 0);
}

static bool
is_manifest(const struct local *l, const struct job *job, const struct out *out)
{
    return job->configure.len == l->opt.manifest_len &&
           memcmp(out->bytes + job->configure.at, l->opt.manifest,
                  l->opt.manifest_len) == 0;
}

/* What convicts of bad work. Of sums it is checked at daemon/jobs/evidence.h.
 */
static void show(struct local *l,
                 uint32_t peer,
                 const struct out_span *conviction,
                 const struct out *out)
{
    if (conviction->len > 0 && l->calls.convicted != NULL) {
        l->calls.convicted(l->calls.self, peer, out->bytes + conviction->at,
                           conviction->len);
    }
}

static void
on_job(void *self, uint32_t peer, const struct job *job, const struct out *out)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];

    switch (job->type) {
    case JOB_TRAIN:
        if (job->train.idle || m->idle) {
            local_pack_nothing(l, peer);
            break;
        }
        local_trainers_turn(l, m, &job->train);
        local_take_lease(m, &job->train.lease, out);
        local_train_round(l, peer, job->train.steps);
        break;
    case JOB_PEERS:
        write_file(&m->disk.peers, &job->peers, out);
        break;
    case JOB_CHAIN:
        write_file(&m->disk.chain, &job->chain, out);
        break;
    case JOB_STRAYS:
        local_strays(l, peer, &job->strays, out);
        begin(l, peer, job, 0);
        break;
    case JOB_REPEAT:
        if (job->repeat.stop) {
            local_work_stop(m, &job->repeat);
        } else {
            begin(l, peer, job, 0);
        }
        break;
    case JOB_EVIDENCE:
        show(l, peer, &job->evidence.conviction, out);
        break;
    case JOB_REVOKED: /* who comes back is told again */
    case JOB_OVER:    /* its trainer rests anyway */
        break;
    case JOB_PIPE:
        begin_pipe(l, peer, job);
        break;
    case JOB_PAUSE:
        m->training = false;
        m->beside_left = 0;
        m->train_gen++;
        break;
    case JOB_RESUME:
        local_train(l, peer, m->steps_left);
        break;
    case JOB_INHERIT:
        if (!local_inherit(m, job->inherit.from, job->inherit.to)) {
            struct local_event e = job_answer(job, LOCO_ENOENT);

            local_tell(l, peer, &e);
        }
        break;
    case JOB_STOP:
        l->calls.stopped(l->calls.self, peer, job->stop.exit_code);
        break;
    case JOB_LOG:
        l->calls.logged(l->calls.self, peer, job->log.level,
                        (const char *)out->bytes + job->log.text.at);
        break;
    case JOB_CONFIGURE:
        begin(l, peer, job, is_manifest(l, job, out) ? 0 : LOCO_EHASH);
        break;
    default:
        begin(l, peer, job, 0);
        break;
    }
}

/* ---- life --------------------------------------------------------------- */

static void on_died(void *self, uint32_t peer)
{
    struct local *l = self;

    forget(&l->machines[peer]);
}

static void make_shards(struct local *l)
{
    for (uint32_t s = 0; s < l->opt.n_shards; s++) {
        uint64_t rng = l->opt.seed ^ 0x7368 ^ s;

        l->shards[s] = world_alloc(l->opt.shard_bytes);
        for (uint32_t i = 0; i < l->opt.shard_bytes; i++) {
            l->shards[s][i] = (uint8_t)rng_next(&rng);
        }
        local_tree(l, l->shards[s], l->opt.shard_bytes, &l->shard_hash[s]);
    }
}

bool local_raw(const struct local_options *opt)
{
    return lanes_raw(opt->codec, opt->audits != 0);
}

int local_open(struct local **local,
               struct world *world,
               const struct local_options *opt,
               const struct local_calls *calls)
{
    struct local *l = calloc(1, sizeof *l);
    struct world_machines machines = {
        .self = l, .local = on_job, .timer = on_timer, .died = on_died};

    if (l == NULL) {
        return LOCO_ENOMEM;
    }
    assert(opt->n_shards <= LOCAL_SHARDS);
    l->opt = *opt;
    l->calls = *calls;
    l->world = world;
    l->codec = codec_get(opt->codec);
    assert(l->codec != NULL && opt->block % l->codec->block == 0);
    local_trainers_open(l);
    l->vector_bytes = l->codec->bytes(local_most(opt));
    l->state_bytes = 2 * sizeof(float) * opt->n_params;
    l->lied = world_alloc(opt->n_peers * LOCAL_LIED * sizeof *l->lied);
    l->machines = world_alloc(opt->n_peers * sizeof *l->machines);
    l->scratch = world_alloc(opt->n_params * sizeof(float));
    make_shards(l);
    local_serve_segments(&machines);
    world_set_machines(world, &machines);
    for (uint32_t i = 0; i < opt->n_peers; i++) {
        l->machines[i].slow = 1;
        for (uint32_t s = 0; s < opt->n_shards; s++) {
            l->machines[i].disk.shards[s] =
                opt->shards_everywhere || (i == 0 && !opt->shards_nowhere);
        }
    }
    *local = l;
    return 0;
}

void local_close(struct local *l)
{
    if (l == NULL) {
        return;
    }
    for (uint32_t i = 0; i < l->opt.n_peers; i++) {
        forget(&l->machines[i]);
        free(l->machines[i].disk.state.bytes);
        free(l->machines[i].disk.record);
        free(l->machines[i].disk.peers.bytes);
        free(l->machines[i].disk.chain.bytes);
    }
    for (uint32_t s = 0; s < l->opt.n_shards; s++) {
        free(l->shards[s]);
    }
    free(l->machines);
    free(l->lied);
    free(l->scratch);
    free(l);
}
