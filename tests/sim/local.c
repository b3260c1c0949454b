/* local.c - jobs of the fake machine. See local.h. */
#include "tests/sim/local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/local_internal.h"
#include "tests/sim/world_internal.h"
#include "train/sync/rule.h"

#define STEP_TOKEN (1ULL << 63)

static void make_shards(struct local *l)
{
    for (uint32_t s = 0; s < l->opt.n_shards; s++) {
        uint64_t rng = l->opt.seed ^ 0x7368 ^ s;

        l->shards[s] = world_alloc(l->opt.shard_bytes);
        for (uint32_t i = 0; i < l->opt.shard_bytes; i++) {
            l->shards[s][i] = (uint8_t)rng_next(&rng);
        }
        hash_tree(l->shards[s], l->opt.shard_bytes, &l->shard_hash[s]);
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
    l->vector_bytes = l->codec->bytes(opt->n_params);
    l->state_bytes = 2 * sizeof(float) * opt->n_params;
    l->machines = world_alloc(opt->n_peers * sizeof *l->machines);
    l->scratch = world_alloc(opt->n_params * sizeof(float));
    make_shards(l);
    for (uint32_t i = 0; i < opt->n_peers; i++) {
        l->machines[i].slow = 1;
        for (uint32_t s = 0; s < opt->n_shards; s++) {
            l->machines[i].disk.shards[s] = opt->shards_everywhere || i == 0;
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

    free(m->terms);
    free(m->phi);
    free(m->m);
    free(m->theta);
    free(m->contribution);
    free(m->ring);
    free(m->incoming.bytes);
    for (uint32_t k = 0; k < LOCAL_REDUCED; k++) {
        free(m->reduced[k].bytes);
    }
    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        free(m->states[k].bytes);
    }
    for (uint32_t k = 0; k < LOCAL_SHARDS; k++) {
        free(m->shard_in[k]);
    }
    for (uint32_t k = 0; k < LOCAL_OPS; k++) {
        free(m->ops[k].snapshot);
    }
    memset(m, 0, sizeof *m);
    m->disk = disk;
    m->slow = slow;
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

void local_params_hash(struct local *l, uint32_t peer, struct hash32 *hash)
{
    const struct machine *m = &l->machines[peer];

    memset(hash, 0, sizeof *hash);
    if (m->phi != NULL) {
        hash_tree(m->phi, l->state_bytes / 2, hash);
    }
}

uint64_t local_inner_step(const struct local *l, uint32_t peer)
{
    return l->machines[peer].inner_step;
}

static void tell(struct local *l, uint32_t peer, const struct local_event *e)
{
    struct event event = {.type = EVENT_LOCAL, .local = *e};

    world_post(l->world, peer, &event);
}

/* ---- configure and load ------------------------------------------------ */

static void fill_terms(struct local *l, struct machine *m)
{
    const struct local_options *o = &l->opt;
    struct run_terms *t = m->terms;

    *t = (struct run_terms){
        .n_params = o->n_params,
        .block = o->block,
        .segment_elements = o->segment_elements,
        .period = o->period,
        .min_peers = o->min_peers,
        .grace_ms = o->grace_ms,
        .fork_after_ms = o->fork_after_ms,
        .progress_floor_bytes_per_s = 1024,
        .segment_wire_bytes = (uint32_t)l->codec->bytes(o->segment_elements),
        .stop_rounds = o->stop_rounds,
        .eval_every = o->eval_every,
        .state_bytes = l->state_bytes,
        .n_shards = o->n_shards,
    };
    for (uint32_t s = 0; s < o->n_shards; s++) {
        t->shards[s].bytes = o->shard_bytes;
        t->shards[s].hash = l->shard_hash[s];
        t->shards[s].held = m->disk.shards[s];
    }
    if (m->disk.state.used) {
        t->holds_state = true;
        t->held_round = m->disk.state.round;
        t->held_tokens = m->disk.tokens;
        t->held_inner_step = m->disk.inner_step;
        t->held_commit = m->disk.commit;
        local_hash_state(l, m->disk.state.bytes, &t->held_params_hash,
                         &t->held_momentum_hash);
    }
}

static void configure(struct local *l, uint32_t peer, int rc)
{
    struct machine *m = &l->machines[peer];
    size_t bytes = l->opt.n_params * sizeof(float);
    struct local_event e = {.type = LOCAL_CONFIGURED, .rc = rc};

    if (rc != 0) {
        tell(l, peer, &e);
        return;
    }
    if (m->terms == NULL) {
        m->terms = world_alloc(sizeof *m->terms);
        m->phi = world_alloc(bytes);
        m->m = world_alloc(bytes);
        m->theta = world_alloc(bytes);
        m->contribution = world_alloc(bytes);
        m->ring = world_alloc(l->vector_bytes);
        memcpy(m->held, m->disk.shards, sizeof m->held);
    }
    fill_terms(l, m);
    e.terms = m->terms;
    tell(l, peer, &e);
}

static void initial(const struct local *l, struct machine *m)
{
    uint64_t rng = l->opt.seed ^ 0x696e6974;

    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->phi[i] = rng_float(&rng) - 0.5f;
        m->m[i] = 0;
    }
}

/* theta = phi, or phi + (theta - old phi, which is in scratch). */
static void set_live(const struct local *l,
                     struct machine *m,
                     const float *old,
                     bool rebase)
{
    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->theta[i] = rebase ? m->phi[i] + (m->theta[i] - old[i]) : m->phi[i];
    }
    if (!rebase) {
        m->base_step = m->inner_step;
    }
}

static int load_from(struct local *l, struct machine *m, const struct action *a)
{
    const uint8_t *from = NULL;
    size_t half = l->state_bytes / 2;

    if (a->from_seed) {
        initial(l, m);
        return 0;
    }
    if (a->from_disk) {
        from = m->disk.state.used ? m->disk.state.bytes : NULL;
        m->inner_step = m->disk.inner_step;
    } else if (m->incoming.used && m->incoming.round == a->round) {
        from = m->incoming.bytes;
    } else {
        from = local_state_at(l, m, a->round);
    }
    if (from == NULL) {
        return LOCO_ENOENT;
    }
    memcpy(m->phi, from, half);
    memcpy(m->m, from + half, half);
    return 0;
}

static void load(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_LOADED, .round = a->round};

    if (m->terms == NULL) {
        e.rc = LOCO_EINVAL;
        tell(l, peer, &e);
        return;
    }
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    e.rc = load_from(l, m, a);
    if (e.rc == 0) {
        set_live(l, m, l->scratch, a->rebase);
        m->round = a->round;
        local_state_keep(l, m, a->round);
        hash_tree(m->phi, l->state_bytes / 2, &e.params_hash);
        hash_tree(m->m, l->state_bytes / 2, &e.momentum_hash);
        e.inner_step = m->inner_step;
        l->calls.loaded(l->calls.self, peer, a->round, &e.params_hash);
    }
    tell(l, peer, &e);
}

/* ---- apply ------------------------------------------------------------- */

static int outer_step(struct local *l, struct machine *m, const uint8_t *bytes)
{
    struct rule rule = {l->opt.lr, l->opt.mu};
    struct outer_state state = {m->phi, m->m};
    float *g = world_alloc(l->opt.n_params * sizeof *g);
    int rc = l->codec->decode(g, bytes, l->opt.n_params);

    if (rc == 0) {
        rc = rule_apply(&rule, &state, &state, g, l->opt.n_params);
    }
    free(g);
    return rc;
}

static void apply(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_APPLIED, .round = a->round};
    struct local_applied note = {.round = a->round,
                                 .from_ring = a->buffer == BUFFER_RING,
                                 .rebase = a->rebase,
                                 .len = l->vector_bytes};
    struct local_reduced *r =
        m->terms == NULL ? NULL
                         : local_reduced_at(l, m, a->round, note.from_ring);

    e.inner_step = m->inner_step;
    if (r == NULL) {
        e.rc = LOCO_ENOENT;
        tell(l, peer, &e);
        return;
    }
    if (note.from_ring) {
        memcpy(r->bytes, m->ring, l->vector_bytes);
    }
    local_params_hash(l, peer, &note.before);
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    e.rc = outer_step(l, m, r->bytes);
    if (e.rc == 0) {
        r->complete = true;
        set_live(l, m, l->scratch, a->rebase);
        m->round = a->round;
        local_state_keep(l, m, a->round);
        local_params_hash(l, peer, &note.after);
        hash_tree(m->m, l->state_bytes / 2, &note.momentum);
        note.bytes = r->bytes;
        e.params_hash = note.after;
        e.momentum_hash = note.momentum;
        l->calls.applied(l->calls.self, peer, &note);
    }
    tell(l, peer, &e);
}

/* ---- training ---------------------------------------------------------- */

static void arm_step(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];

    world_timer(l->world, peer, l->opt.step_ms * m->slow,
                STEP_TOKEN | m->train_gen);
}

static void pack(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    uint64_t steps = m->inner_step - m->base_step;
    struct local_contribution c = {
        .peer = peer,
        .life = m->life,
        .first_step = m->base_step,
        .last_step = m->inner_step,
        .tokens = steps * l->opt.tokens_per_step,
        .values = m->contribution,
    };
    struct local_event e = {
        .type = LOCAL_TRAINED,
        .inner_step = m->inner_step,
        .tokens = c.tokens,
        .loss = 5.0f / (float)(m->inner_step + 1),
        .round = m->round,
    };

    e.rc =
        rule_displacement(m->contribution, m->phi, m->theta, l->opt.n_params);
    m->training = false;
    l->calls.contributed(l->calls.self, &c);
    tell(l, peer, &e);
}

static void inner_step(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    uint64_t words[] = {l->opt.seed, peer, m->life, m->inner_step};
    uint64_t rng = rng_mix(words, 4);
    struct local_event e = {.type = LOCAL_PROGRESS};

    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->theta[i] += 0.01f * (rng_float(&rng) - 0.5f);
    }
    m->inner_step++;
    m->tokens += l->opt.tokens_per_step;
    m->steps_left--;
    if (m->inner_step % 4 == 0) {
        e.inner_step = m->inner_step;
        e.tokens = m->tokens;
        e.loss = 5.0f / (float)(m->inner_step + 1);
        e.tokens_per_s = (float)l->opt.tokens_per_step * 1000.0f /
                         (float)(l->opt.step_ms * m->slow);
        tell(l, peer, &e);
    }
    if (m->steps_left == 0) {
        pack(l, peer);
    } else {
        arm_step(l, peer);
    }
}

static void on_step(struct local *l, uint32_t peer, uint64_t gen)
{
    struct machine *m = &l->machines[peer];
    uint64_t now = world_now(l->world);

    if (!m->training || gen != m->train_gen) {
        return;
    }
    if (m->busy_until_ms > now) { /* The trainer loads or applies first. */
        world_timer(l->world, peer,
                    (uint32_t)(m->busy_until_ms - now) + l->opt.step_ms,
                    STEP_TOKEN | m->train_gen);
        return;
    }
    inner_step(l, peer);
}

static void train(struct local *l, uint32_t peer, uint32_t steps)
{
    struct machine *m = &l->machines[peer];

    m->train_gen++;
    m->steps_left = steps;
    m->training = steps > 0 && m->terms != NULL;
    if (m->training) {
        arm_step(l, peer);
    }
}

/* ---- other jobs -------------------------------------------------------- */

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
    d->inner_step = op->snapshot_step;
    d->tokens = op->snapshot_tokens;
    d->commit = op->snapshot_commit;
    op->snapshot = NULL;
}

static void
begin_checkpoint(struct local *l, uint32_t peer, struct local_op *op)
{
    struct machine *m = &l->machines[peer];
    size_t half = l->state_bytes / 2;

    if (m->phi == NULL || m->round != op->action.round) {
        return;
    }
    op->snapshot = world_alloc(l->state_bytes);
    memcpy(op->snapshot, m->phi, half);
    memcpy(op->snapshot + half, m->m, half);
    op->snapshot_step = m->inner_step;
    l->calls.describe(l->calls.self, peer, &op->snapshot_tokens,
                      &op->snapshot_commit);
}

static void keep(struct local *l, struct machine *m, uint64_t shard)
{
    struct hash32 hash;

    if (shard < l->opt.n_shards && m->shard_in[shard] != NULL) {
        hash_tree(m->shard_in[shard], l->opt.shard_bytes, &hash);
        if (hash32_eq(&hash, &l->shard_hash[shard])) {
            m->held[shard] = m->disk.shards[shard] = true;
        }
    }
}

static void evaluated(struct local *l, uint32_t peer, uint64_t round)
{
    struct local_event e = {.type = LOCAL_EVALUATED,
                            .round = round,
                            .bits_per_byte = 8.0 / (double)(round + 1)};

    tell(l, peer, &e);
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
    tell(l, peer, &e);
}

static void finish(struct local *l, uint32_t peer, struct local_op *op)
{
    struct action a = op->action;

    switch (a.type) {
    case ACTION_CONFIGURE:
        configure(l, peer, a.rc);
        break;
    case ACTION_LOAD:
        load(l, peer, &a);
        break;
    case ACTION_APPLY:
        apply(l, peer, &a);
        break;
    case ACTION_EVAL:
        evaluated(l, peer, a.round);
        break;
    case ACTION_HASH:
        hashed(l, peer, &a);
        break;
    case ACTION_KEEP:
        keep(l, &l->machines[peer], a.index);
        break;
    default:
        assert(a.type == ACTION_CHECKPOINT);
        write_checkpoint(l, &l->machines[peer], op);
        break;
    }
    free(op->snapshot);
    op->snapshot = NULL;
    op->used = false;
}

void local_timer(void *self, uint32_t peer, uint64_t token)
{
    struct local *l = self;

    if ((token & STEP_TOKEN) != 0) {
        on_step(l, peer, token & ~STEP_TOKEN);
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

    if (a->type != ACTION_LOAD && a->type != ACTION_APPLY &&
        a->type != ACTION_EVAL) {
        return work;
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
        train(l, peer, a->steps);
        break;
    case ACTION_PAUSE:
        m->training = false;
        m->train_gen++;
        break;
    case ACTION_RESUME:
        train(l, peer, m->steps_left);
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
