/* state.c - the fake machine's model state: made, loaded, stepped on.
 *
 * CONFIGURE takes memory, LOAD puts anchor and momentum in place, APPLY makes
 * the outer step from wire bytes. With rebase the live parameters keep what
 * they are away from the anchor. See local.h.
 */
#include "daemon/sim/machine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/sync/rule.h"

#define RUINED 20.0F /* a parameter that no honest step makes */

/* ---- configure --------------------------------------------------------- */

/* Whether the rounds are common and all tasks of one size. */
static bool is_leased(const struct local_options *o)
{
    return o->leases != 0 && !o->pairs && o->quorum == 0 && o->trainers == 0 &&
           o->stages <= 1 && o->overlap == 0;
}

/* The state on disk is that of the run, or of this machine's stage. */
static void fill_held(const struct local *l, const struct machine *m)
{
    const struct local_disk *d = &m->disk;
    struct run_terms *t = m->terms;

    if (!d->state.used || (m->staged && d->stage != m->stage)) {
        return;
    }
    t->holds_state = true;
    t->held_round = d->state.round;
    t->held_tokens = d->tokens;
    t->held_inner_step = d->inner_step;
    t->held_commit = d->commit;
    local_hash_state(l, d->state.bytes, &t->held_params_hash,
                     &t->held_momentum_hash);
}

void local_fill_terms(struct local *l, struct machine *m)
{
    const struct local_options *o = &l->opt;
    struct run_terms *t = m->terms;

    *t = (struct run_terms){
        .n_params = o->n_params,
        .block = o->block,
        .segment_elements = o->segment_elements,
        .exchange = o->exchange,
        .site_rtt_us = o->site_rtt_us,
        .audits = o->audits != 0,
        .audits_work = o->audits > 1,
        .watches = o->watches,
        .adapts = o->exchange == EXCHANGE_RING && o->quorum == 0,
        .pairs = o->pairs,
        .chunk_segments = 1, /* as many stripes as can be */
        .period = o->period,
        .min_peers = o->min_peers,
        .grace_ms = o->grace_ms,
        .fork_after_ms = o->fork_after_ms,
        .probation_rounds = o->probation_rounds,
        .progress_floor_bytes_per_s = 1024,
        .segment_wire_bytes = (uint32_t)l->codec->bytes(o->segment_elements),
        .stop_rounds = o->stop_rounds,
        .eval_every = o->eval_every,
        .rollback_microbits = o->rollback_microbits,
        .single_round = o->single_round || o->audits > 1,
        .quorum = o->quorum != 0,
        .lease_quota = is_leased(o) ? o->period : 0,
        .n_turns = o->fragments > 1 ? o->fragments : 0,
        .n_once = o->trainers > 0 ? (o->trainers - 1) * o->merge_every : 0,
        .state_bytes = l->state_bytes,
        .piece_bytes = o->piece_bytes,
        .n_shards = o->n_shards,
        .stages = o->stages,
        .stage_fits = o->stage_fits != 0 ? o->stage_fits : UINT64_MAX,
        .held_stage = m->disk.stage,
        .pipe_seed = o->seed,
        .micro_batches = o->micro_batches,
        .pipe_slots = o->pipe_slots,
        .cut_elements = o->cut_elements,
        .eval_micros = o->eval_micros,
        .cut_segment = o->cut_segment,
    };
    if (o->trainers > 0) {
        t->n_turns = t->n_once + 1;
    }
    t->invited = o->invited;
    memcpy(t->author, o->author, sizeof t->author);
    for (uint32_t i = 0; i < t->n_turns; i++) {
        t->turns[i].elements = local_elements(l, i + 1, NULL);
        t->turns[i].steps = o->period;
    }
    for (uint32_t s = 0; s < o->n_shards; s++) {
        t->shards[s].bytes = o->shard_bytes;
        t->shards[s].hash = l->shard_hash[s];
        t->shards[s].held = m->disk.shards[s];
        t->shards[s].urls = o->urls;
        t->shards[s].begins = o->begins != 0 && s == o->n_shards - 1;
        t->shards[s].windows = o->shard_windows;
    }
    t->window_batch = o->shard_windows > 0;
    t->position_tokens = o->tokens_per_step;
    t->step_tokens_most = o->stages > 1 ? 0 : o->tokens_per_step;
    fill_held(l, m);
}

/* Every second machine has the reference's kernels: sums that some make are
 * repeated by others. */
static const struct codec *kernels_of(const struct local *l,
                                      const struct machine *m)
{
    return (m - l->machines) % 2 == 0 ? l->codec
                                      : codec_get_portable(l->codec->id);
}

void local_configure(struct local *l,
                     struct machine *m,
                     struct report_configured *report)
{
    size_t bytes = l->opt.n_params * sizeof(float);
    size_t most = (size_t)local_most(&l->opt) * sizeof(float);

    if (m->terms == NULL) {
        m->terms = world_alloc(sizeof *m->terms);
        m->phi = world_alloc(bytes);
        m->m = world_alloc(bytes);
        m->theta = world_alloc(bytes);
        m->contribution = world_alloc(most);
        m->residual = world_alloc(most);
        m->error = world_alloc(most);
        m->reduce = (struct reduce){.codec = kernels_of(l, m),
                                    .segment_elements = l->opt.segment_elements,
                                    .clip = l->opt.norm_clip,
                                    .centred = l->opt.centred,
                                    .raw = local_raw(&l->opt)};
        memcpy(m->held, m->disk.shards, sizeof m->held);
    }
    local_fill_terms(l, m);
    if (m->terms->audits_work) {
        m->states.more = KEPT_STATES_MAX - KEPT_STATES;
        m->offers.more = OFFERS_PAST_MAX - OFFERS_PAST;
    }
    report->terms = m->terms;
    if (m->terms->holds_state) {
        report->record = m->disk.record;
        report->n_record = m->disk.n_record;
    }
}

/* ---- load -------------------------------------------------------------- */

static void initial(const struct local *l, struct machine *m)
{
    uint64_t rng = l->opt.seed ^ 0x696e6974 ^ (uint64_t)m->stage << 40;

    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->phi[i] = rng_float(&rng) - 0.5f;
    }
    memset(m->m, 0, l->opt.n_params * sizeof(float));
    if (l->trainers.count > 0) {
        local_trainers_begin(l, m);
    }
}

/* theta = phi, or phi + (theta - old phi, which is in scratch), or between the
 * two, of elements [first, first + n). */
static void set_live(const struct local *l,
                     struct machine *m,
                     uint64_t first,
                     uint64_t n,
                     bool rebase,
                     float mix)
{
    for (uint64_t i = first; i < first + n; i++) {
        m->theta[i] = rebase ? m->phi[i] + (m->theta[i] - l->scratch[i])
                             : m->phi[i] + mix * (m->theta[i] - m->phi[i]);
    }
}

/* Nothing is open but the steps made after `step`. */
static void begin_at(struct machine *m, uint64_t step)
{
    m->base_step = step;
    m->packed = false;
    m->beside_left = 0;
}

/* The contribution is spent, with this rounding error, or given up (NULL). */
static void set_residual(const struct local *l,
                         struct machine *m,
                         uint64_t first,
                         uint64_t n,
                         const float *error)
{
    for (uint64_t i = 0; i < n; i++) {
        m->residual[first + i] =
            error == NULL || !l->opt.error_feedback ? 0 : error[i];
    }
}

static int
load_from(struct local *l, struct machine *m, const struct job_load *job)
{
    const uint8_t *from = NULL;
    size_t half = l->state_bytes / 2;

    if (job->from_seed) {
        if (l->opt.begins != 0 && !m->held[l->opt.n_shards - 1]) {
            return LOCO_ENOENT;
        }
        initial(l, m);
        return 0;
    }
    if (job->from_kept) {
        from = local_state_at(m, job->kept_round, job->kept_name);
    } else if (job->from_disk) {
        from = m->disk.state.used ? m->disk.state.bytes : NULL;
        m->inner_step = m->disk.inner_step;
        m->tokens = m->tokens_before = m->disk.trained;
    } else if (m->incoming.used && m->incoming.round == job->round) {
        from = m->incoming.bytes;
    } else {
        from = local_state_at(m, job->round, 0);
    }
    if (from == NULL) {
        return LOCO_ENOENT;
    }
    if (job->share > 0) {
        local_pair_mix(l, m, from, job->share);
        return 0;
    }
    memcpy(m->phi, from, half);
    memcpy(m->m, from + half, half);
    return 0;
}

int local_load(struct local *l,
               uint32_t peer,
               const struct job_load *job,
               struct report_state *report)
{
    struct machine *m = &l->machines[peer];
    int rc;

    report->tokens = job->rebase ? 0 : local_open_tokens(l, m);
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    rc = load_from(l, m, job);
    if (rc != 0) {
        return rc;
    }
    if (l->trainers.count > 0) {
        local_trainers_loaded(l, m, job->round, job->rebase);
    } else {
        set_live(l, m, 0, l->opt.n_params, job->rebase, 0);
    }
    m->round = job->round;
    if (job->rebase) {
        local_pack_again(l, peer);
    } else {
        set_residual(l, m, 0, l->opt.n_params, NULL);
        begin_at(m, m->inner_step);
        local_end_task(m);
        if (job->anew) {
            local_begin_anew(m);
        }
        local_undo(m, job->undo, report);
    }
    local_state_keep(l, m, job->round);
    local_hash_anchor(l, m, report);
    report->inner_step = m->inner_step;
    if (l->watch.loaded != NULL) {
        l->watch.loaded(l->watch.self, peer, job->round, &report->params_hash);
    }
    return 0;
}

bool local_is_ruined(const struct local *l, uint32_t peer)
{
    const struct machine *m = &l->machines[peer];

    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        if (!(fabsf(m->phi[i]) < RUINED)) {
            return true;
        }
    }
    return false;
}

/* ---- apply ------------------------------------------------------------- */

static int outer_step(struct local *l,
                      struct machine *m,
                      const uint8_t *bytes,
                      uint64_t first,
                      uint64_t n)
{
    struct rule rule = {.lr = l->opt.lr, .mu = l->opt.mu};
    struct outer_state state = {m->phi + first, m->m + first};
    float *g = world_alloc(n * sizeof *g);
    int rc = l->codec->decode(g, bytes, n);

    if (rc == 0) {
        rc = rule_apply(&rule, &state, &state, g, n);
    }
    free(g);
    return rc;
}

/* Tokens whose work the commit replaces, or has. */
static uint64_t replaced(const struct local *l, const struct machine *m)
{
    return l->opt.overlap > 0 && m->packed
               ? (m->packed_step - m->base_step) * l->opt.tokens_per_step
               : local_open_tokens(l, m);
}

/* The live parameters, the open steps, what rounding took: after the commit of
 * `round`, whose elements are [first, first + n). */
static void take_in(struct local *l,
                    uint32_t peer,
                    const struct job_apply *job,
                    uint64_t first,
                    uint64_t n)
{
    struct machine *m = &l->machines[peer];
    bool kept = l->opt.overlap > 0 && m->packed;

    if (l->trainers.count == 0) { /* else it was done with the step */
        set_live(l, m, first, n, job->rebase, kept ? 0.5F : 0.0F);
    }
    m->round = job->round;
    if (job->rebase) {
        local_pack_again(l, peer);
        return;
    }
    if (job->undo == 0) { /* else nothing of ours was sent */
        set_residual(l, m, first, n, job->ours ? m->error : NULL);
    }
    begin_at(m, kept ? m->packed_step : m->inner_step);
}

int local_apply(struct local *l,
                uint32_t peer,
                const struct job_apply *job,
                struct report_state *report)
{
    struct machine *m = &l->machines[peer];
    struct local_applied note = {.round = job->round,
                                 .from_ring = job->buffer == BUFFER_RING,
                                 .rebase = job->rebase,
                                 .len = local_round_bytes(l, job->round)};
    uint64_t first, n = local_elements(l, job->round, &first);
    const struct wire_slot *slot = NULL;
    struct local_reduced *r =
        local_reduced_at(l, m, job->round, note.from_ring);
    int rc;

    report->inner_step = m->inner_step;
    report->tokens = job->rebase ? 0 : replaced(l, m);
    if (note.from_ring) {
        slot = wire_slots_apply(&m->wire, WIRE_RING, job->round);
    }
    if (r == NULL || (note.from_ring && slot == NULL)) {
        return LOCO_ENOENT;
    }
    if (slot != NULL) {
        memcpy(r->bytes, slot->bytes, note.len);
    }
    if (job->ours) {
        offers_spend(&m->offers, job->round);
    }
    local_params_hash(l, peer, &note.before);
    memcpy(l->scratch, m->phi, l->opt.n_params * sizeof(float));
    rc = l->trainers.count > 0 ? local_trainers_step(l, m, job, r->bytes)
                               : outer_step(l, m, r->bytes, first, n);
    if (rc != 0) {
        return rc;
    }
    r->complete = true;
    take_in(l, peer, job, first, n);
    local_undo(m, job->undo, report);
    local_state_keep(l, m, job->round);
    local_hash_anchor(l, m, report);
    note.bytes = r->bytes;
    note.after = report->params_hash;
    if (l->watch.applied != NULL) {
        l->watch.applied(l->watch.self, peer, &note);
    }
    return 0;
}
