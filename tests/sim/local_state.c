/* local_state.c - the fake machine's model state: made, loaded, stepped on.
 *
 * CONFIGURE takes memory, LOAD puts anchor and momentum in place, APPLY makes
 * the outer step from wire bytes. With rebase the live parameters keep what
 * they are away from the anchor. See local.h.
 */
#include "tests/sim/local_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/world_internal.h"
#include "train/sync/rule.h"

/* ---- configure --------------------------------------------------------- */

static void fill_terms(struct local *l, struct machine *m)
{
    const struct local_options *o = &l->opt;
    struct run_terms *t = m->terms;

    *t = (struct run_terms){
        .n_params = o->n_params,
        .block = o->block,
        .segment_elements = o->segment_elements,
        .exchange = o->exchange,
        .pairs = o->pairs,
        .chunk_segments = 1, /* as many stripes as can be */
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

void local_configure(struct local *l, uint32_t peer, int rc)
{
    struct machine *m = &l->machines[peer];
    size_t bytes = l->opt.n_params * sizeof(float);
    struct local_event e = {.type = LOCAL_CONFIGURED, .rc = rc};

    if (rc != 0) {
        local_tell(l, peer, &e);
        return;
    }
    if (m->terms == NULL) {
        m->terms = world_alloc(sizeof *m->terms);
        m->phi = world_alloc(bytes);
        m->m = world_alloc(bytes);
        m->theta = world_alloc(bytes);
        m->contribution = world_alloc(bytes);
        m->residual = world_alloc(bytes);
        m->error = world_alloc(bytes);
        memcpy(m->held, m->disk.shards, sizeof m->held);
    }
    fill_terms(l, m);
    e.terms = m->terms;
    local_tell(l, peer, &e);
}

/* ---- load -------------------------------------------------------------- */

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

/* The contribution is spent, with this rounding error, or given up (NULL). */
static void
set_residual(const struct local *l, struct machine *m, const float *error)
{
    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->residual[i] = error == NULL || !l->opt.error_feedback ? 0 : error[i];
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
        m->tokens = m->tokens_before = m->disk.trained;
    } else if (m->incoming.used && m->incoming.round == a->round) {
        from = m->incoming.bytes;
    } else {
        from = local_state_at(l, m, a->round);
    }
    if (from == NULL) {
        return LOCO_ENOENT;
    }
    if (a->share > 0) {
        local_pair_mix(l, m, from, a->share);
        return 0;
    }
    memcpy(m->phi, from, half);
    memcpy(m->m, from + half, half);
    return 0;
}

void local_load(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_LOADED, .round = a->round};

    if (m->terms == NULL) {
        e.rc = LOCO_EINVAL;
        local_tell(l, peer, &e);
        return;
    }
    e.tokens = a->rebase ? 0 : local_open_tokens(l, m);
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    e.rc = load_from(l, m, a);
    if (e.rc == 0) {
        set_live(l, m, l->scratch, a->rebase);
        if (!a->rebase) {
            set_residual(l, m, NULL);
        }
        m->round = a->round;
        local_state_keep(l, m, a->round);
        hash_tree(m->phi, l->state_bytes / 2, &e.params_hash);
        hash_tree(m->m, l->state_bytes / 2, &e.momentum_hash);
        e.inner_step = m->inner_step;
        l->calls.loaded(l->calls.self, peer, a->round, &e.params_hash);
    }
    local_tell(l, peer, &e);
}

/* ---- apply ------------------------------------------------------------- */

static int outer_step(struct local *l, struct machine *m, const uint8_t *bytes)
{
    struct rule rule = {.lr = l->opt.lr, .mu = l->opt.mu};
    struct outer_state state = {m->phi, m->m};
    float *g = world_alloc(l->opt.n_params * sizeof *g);
    int rc = l->codec->decode(g, bytes, l->opt.n_params);

    if (rc == 0) {
        rc = rule_apply(&rule, &state, &state, g, l->opt.n_params);
    }
    free(g);
    return rc;
}

void local_apply(struct local *l, uint32_t peer, const struct action *a)
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

    if (a->buffer == BUFFER_STEP) {
        local_pair_apply(l, peer, a);
        return;
    }
    e.inner_step = m->inner_step;
    e.tokens = a->rebase ? 0 : local_open_tokens(l, m);
    if (r == NULL) {
        e.rc = LOCO_ENOENT;
        local_tell(l, peer, &e);
        return;
    }
    if (note.from_ring) {
        memcpy(r->bytes, local_ring_at(l, m, m->ring_hashed), l->vector_bytes);
    }
    local_params_hash(l, peer, &note.before);
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    e.rc = outer_step(l, m, r->bytes);
    if (e.rc == 0) {
        r->complete = true;
        if (!a->rebase) {
            set_residual(l, m, note.from_ring ? m->error : NULL);
        }
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
    local_tell(l, peer, &e);
}
