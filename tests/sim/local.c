/* local.c - jobs of the fake machine: begun by actions, ended by timers. See
 * local.h. */
#include "tests/sim/local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/local_internal.h"
#include "tests/sim/world_internal.h"

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

int local_open(struct local **local,
               struct world *world,
               const struct local_options *opt,
               const struct local_calls *calls)
{
    struct local *l = calloc(1, sizeof *l);

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
    l->machines = world_alloc(opt->n_peers * sizeof *l->machines);
    l->scratch = world_alloc(opt->n_params * sizeof(float));
    make_shards(l);
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
    for (uint32_t k = 0; k < LOCAL_RINGS; k++) {
        free(m->rings[k].bytes);
    }
    lanes_free(&m->lanes);
    local_owners_free(m);
    free(m->incoming.bytes);
    free(m->leaves.bytes);
    free(m->pair_in);
    for (uint32_t k = 0; k < LOCAL_REDUCED; k++) {
        free(m->reduced[k].bytes);
    }
    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        free(m->states[k].bytes);
    }
    free(m->pinned.bytes);
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

void local_close(struct local *l)
{
    if (l == NULL) {
        return;
    }
    for (uint32_t i = 0; i < l->opt.n_peers; i++) {
        forget(&l->machines[i]);
        free(l->machines[i].disk.state.bytes);
        free(l->machines[i].disk.record);
        local_owners_wipe(&l->machines[i]);
    }
    for (uint32_t s = 0; s < l->opt.n_shards; s++) {
        free(l->shards[s]);
    }
    free(l->machines);
    free(l->scratch);
    free(l);
}

void local_died(void *self, uint32_t peer)
{
    struct local *l = self;

    forget(&l->machines[peer]);
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

uint64_t local_inner_step(const struct local *l, uint32_t peer)
{
    return l->machines[peer].inner_step;
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

static void
write_checkpoint(struct local *l, struct machine *m, struct local_op *op)
{
    struct local_disk *d = &m->disk;

    (void)l;
    if (op->snapshot == NULL) {
        return;
    }
    free(d->state.bytes);
    d->state.bytes = op->snapshot;
    d->state.used = true;
    d->state.round = op->action.round;
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
    size_t half = l->state_bytes / 2;

    if (m->phi == NULL || m->round != op->action.round || m->owned != NULL) {
        return; /* of slices: local_owners.c */
    }
    op->snapshot = world_alloc(l->state_bytes);
    memcpy(op->snapshot, m->phi, half);
    memcpy(op->snapshot + half, m->m, half);
    op->snapshot_name = local_state_name(m, op->action.round);
    op->snapshot_step = m->inner_step;
    op->snapshot_trained = m->tokens;
    op->snapshot_stage = m->stage;
    l->calls.describe(l->calls.self, peer, &op->snapshot_tokens,
                      &op->snapshot_commit);
    op->record = world_alloc(FRAME_CONTROL_MAX);
    op->n_record = l->calls.record == NULL
                       ? 0
                       : l->calls.record(l->calls.self, peer, op->record,
                                         FRAME_CONTROL_MAX);
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

static void downloaded(struct local *l, uint32_t peer, uint64_t shard)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_DOWNLOADED, .index = shard};

    m->url_busy--;
    if (m->url_tries++ < l->opt.url_failures) {
        e.rc = LOCO_EIO;
    } else {
        m->held[shard] = m->disk.shards[shard] = true;
    }
    local_tell(l, peer, &e);
}

double local_bits_of(uint64_t round)
{
    return 8.0 / (double)(round + 1);
}

static void evaluated(struct local *l, uint32_t peer, uint64_t round)
{
    struct local_event e = {.type = LOCAL_EVALUATED,
                            .round = round,
                            .bits_per_byte = local_bits_of(round)};

    local_tell(l, peer, &e);
}

static void hashed(struct local *l, uint32_t peer, const struct action *a)
{
    struct local_event e = {.type = LOCAL_HASHED,
                            .buffer = a->buffer,
                            .index = a->index,
                            .request = a->request};

    e.rc = l->machines[peer].terms == NULL
               ? LOCO_EINVAL
               : local_hash_buffer(l, &l->machines[peer], a, &e);
    local_tell(l, peer, &e);
}

static void verified(struct local *l, uint32_t peer, const struct action *a)
{
    struct local_event e = {.type = LOCAL_VERIFIED,
                            .buffer = a->buffer,
                            .index = a->index,
                            .request = a->request};

    e.rc = l->machines[peer].terms == NULL
               ? LOCO_EINVAL
               : local_verify(l, &l->machines[peer], a, &e);
    local_tell(l, peer, &e);
}

static void finish(struct local *l, uint32_t peer, struct local_op *op)
{
    struct action a = op->action;

    switch (a.type) {
    case ACTION_CONFIGURE:
        local_configure(l, peer, a.rc);
        break;
    case ACTION_LOAD:
        local_load(l, peer, &a);
        break;
    case ACTION_APPLY:
        local_apply(l, peer, &a);
        break;
    case ACTION_EVAL:
        evaluated(l, peer, a.round);
        break;
    case ACTION_HASH:
        hashed(l, peer, &a);
        break;
    case ACTION_VERIFY:
        verified(l, peer, &a);
        break;
    case ACTION_KEEP:
        keep(l, &l->machines[peer], a.index);
        break;
    case ACTION_STAGE:
        local_stage(l, peer, (uint32_t)a.index);
        break;
    case ACTION_PIPE:
        local_pipe(l, peer, &a);
        break;
    case ACTION_DOWNLOAD:
        downloaded(l, peer, a.index);
        break;
    default:
        assert(a.type == ACTION_CHECKPOINT);
        write_checkpoint(l, &l->machines[peer], op);
        break;
    }
    free(op->snapshot);
    free(op->record);
    op->snapshot = op->record = NULL;
    op->used = false;
}

void local_timer(void *self, uint32_t peer, uint64_t token)
{
    struct local *l = self;

    if ((token & STEP_TOKEN) != 0) {
        local_on_step(l, peer, token & ~STEP_TOKEN);
        return;
    }
    if ((token & SLICE_TOKEN) != 0) {
        local_slice_done(l, peer);
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
delay_of(struct local *l, struct machine *m, const struct action *a)
{
    uint64_t now = world_now(l->world);
    uint32_t work = l->opt.work_ms * m->slow;

    if (a->type == ACTION_DOWNLOAD) {
        m->url_busy++;
        return l->opt.url_ms;
    }
    if (a->type != ACTION_LOAD && a->type != ACTION_APPLY &&
        a->type != ACTION_EVAL && a->type != ACTION_PIPE) {
        return work;
    }
    if (a->type == ACTION_PIPE && a->op != PIPE_STEP) {
        work = l->opt.forward_ms * m->slow *
               (a->op == PIPE_FORWARD || a->op >= PIPE_EVAL_FORWARD ? 1
                : a->op == PIPE_BACKWARD                            ? 2
                                                                    : 3);
        work += m->hang_ms;
        m->hang_ms = 0;
    }
    m->busy_until_ms = (m->busy_until_ms > now ? m->busy_until_ms : now) + work;
    return (uint32_t)(m->busy_until_ms - now);
}

static void begin(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];

    for (uint32_t k = 0; k < LOCAL_OPS; k++) {
        struct local_op *op = &m->ops[k];

        if (!op->used) {
            *op = (struct local_op){
                .used = true, .action = *a, .serial = ++l->serial};
            if (a->type == ACTION_CHECKPOINT) {
                begin_checkpoint(l, peer, op);
            }
            world_timer(l->world, peer, delay_of(l, m, a), op->serial);
            return;
        }
    }
    l->calls.logged(l->calls.self, peer, 3, "sim: too many jobs at once");
    l->calls.stopped(l->calls.self, peer, LOCO_EFULL);
}

void local_action(void *self,
                  uint32_t peer,
                  const struct action *a,
                  const struct out *out)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    struct action copy;

    switch (a->type) {
    case ACTION_TRAIN:
        local_trainers_turn(l, m, a);
        local_take_lease(m, a, out);
        local_train_round(l, peer, a->steps);
        break;
    case ACTION_PEERS:
    case ACTION_CHAIN:
    case ACTION_REVOKED:
        break; /* nodes.c keeps it */
    case ACTION_PIPE:
        if (a->op == PIPE_CLEAR) {
            local_pipe_clear(l, peer, a->attempt);
        } else {
            if (a->op == PIPE_STEP) {
                local_pipe_step(l, peer, a);
            }
            begin(l, peer, a);
        }
        break;
    case ACTION_SLICE:
        local_slice(l, peer, a);
        break;
    case ACTION_PAUSE:
        m->training = false;
        m->beside_left = 0;
        m->train_gen++;
        break;
    case ACTION_RESUME:
        local_train(l, peer, m->steps_left);
        break;
    case ACTION_INHERIT:
        if (!local_inherit(m, a->attempt, a->request)) {
            struct local_event e = {.type = LOCAL_INHERITED,
                                    .rc = LOCO_ENOENT,
                                    .request = a->request};

            local_tell(l, peer, &e);
        }
        break;
    case ACTION_STOP:
        l->calls.stopped(l->calls.self, peer, a->rc);
        break;
    case ACTION_LOG:
        l->calls.logged(l->calls.self, peer, a->level,
                        (const char *)out->bytes + a->bytes);
        break;
    case ACTION_CONFIGURE:
        copy = *a;
        copy.rc =
            a->len == l->opt.manifest_len &&
                    memcmp(out->bytes + a->bytes, l->opt.manifest, a->len) == 0
                ? 0
                : LOCO_EHASH;
        begin(l, peer, &copy);
        break;
    default:
        begin(l, peer, a);
        break;
    }
}
