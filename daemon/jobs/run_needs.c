/* run_needs.c - see run_needs.h. */
#include "daemon/jobs/run_needs.h"

#include "daemon/jobs/kept.h"
#include "daemon/jobs/offers.h"
#include "daemon/jobs/wire_slots.h"
#include "daemon/jobs/work_room.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/run_model.h"
#include "p2p/exchange/exchange.h"
#include "p2p/round/work.h"
#include "proto/base/err.h"
#include "train/replica/layout.h"
#include "train/replica/plan.h"

#define SMALL_BYTES (8U << 20) /* manifest, chain, peers, headers ... */
/* Of a locod without a run: programs, threads, links (measured). */
#define PROCESS_BYTES (24U << 20)

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t state_bytes(const struct method *m, uint64_t n)
{
    return replica_state_elements(m, n) * (uint64_t)sizeof(float);
}

/* The state and the own moments. */
static uint64_t checkpoint_bytes(const struct method *m, uint64_t n)
{
    return state_bytes(m, n) + 2 * n * sizeof(float);
}

/* Of rounds that are over, and one more: it is pinned, written or on its way
 * here. The newest is the replica's where it lies in a room
 * (train/replica/state.h); else each is a copy, and the next one is made beside
 * them. Moments are copies of a trainer's in this process. */
static uint64_t
states_kept(const struct method *m, const struct replica_options *r, uint64_t n)
{
    uint64_t state = state_bytes(m, n), moments = 2 * n * sizeof(float);

    if (r->device != NULL || m->gradients) {
        return (KEPT_STATES + 1) * checkpoint_bytes(m, n) + 2 * state;
    }
    return KEPT_STATES * state + (r->shared ? 0 : KEPT_STATES * moments);
}

/* Vectors of rounds, encoded: one is under way, and the last commit's goes when
 * its file is written (machine/wire.c); beside a GPU slots keep their memory.
 * With audits the contributions that others may ask for. */
static uint64_t wire_kept(const struct run_vector *v,
                          const struct replica_options *r,
                          uint64_t wire)
{
    const bool butterfly = v->exchange == EXCHANGE_BUTTERFLY;
    uint64_t vector = v->codec->bytes(wire);
    uint64_t need = (r->device != NULL ? WIRE_SLOTS : 1) * vector;

    if (v->audits && butterfly) {
        need += (1 + OFFERS_PAST) * vector;
    }
    if (butterfly ||
        (v->exchange == EXCHANGE_RING && v->method.group != METHOD_QUORUM)) {
        uint64_t lanes = EXCHANGE_LANES_MAX *
                         (uint64_t)v->codec->bytes(run_vector_segment(v));

        /* What waits in them is of the own slice: no more than all of it. */
        need += lanes < vector ? lanes : vector;
    }
    return need;
}

/* What audits of work take beside all that: older states, of which only what a
 * lease begins with is resident; contributions and own moments that others may
 * ask about; rooms for leases of others, each with the state and own moments
 * from which they began; the replica that makes one again, its moments where it
 * begins and what it came to the first time (machine/trainer_repeat.c). */
static uint64_t work_kept(const struct run_vector *v,
                          const struct replica_options *r,
                          uint64_t wire,
                          uint64_t n)
{
    const uint64_t moments = 2 * n * sizeof(uint16_t);
    const uint64_t base = replica_begins_with_phi(&v->method)
                              ? n * sizeof(float)
                              : state_bytes(&v->method, n);
    const uint64_t blocks = 3 * (uint64_t)WORK_DRAWS *
                            exchange_block(v->exchange, v->codec->block) *
                            sizeof(float);
    uint64_t need = (KEPT_STATES_MAX - KEPT_STATES) * base +
                    (OFFERS_PAST_MAX - OFFERS_PAST) * v->codec->bytes(wire) +
                    (2 + OFFERS_PAST_MAX) * moments +
                    WORK_ROOMS * (base + 2 * moments + blocks);

    if (!r->shared && r->slots == 0) {
        need += replica_bytes(r) + (2 + 3) * n * sizeof(float);
    }
    return need;
}

uint64_t run_memory(const struct run_vector *v,
                    const struct replica_options *r,
                    uint64_t wire,
                    bool residual)
{
    uint64_t n = (uint64_t)r->part.numel;
    uint64_t need = PROCESS_BYTES + replica_bytes(r) + wire_kept(v, r, wire) +
                    states_kept(&v->method, r, n);

    if (v->audits && v->exchange == EXCHANGE_BUTTERFLY && !residual &&
        replica_packs_pieces(r)) {
        need -= wire * sizeof(float); /* it goes out as it was announced */
    }
    if (v->audits_work && v->exchange == EXCHANGE_BUTTERFLY) {
        need += work_kept(v, r, wire, n);
    }
    if (v->method.group == METHOD_PAIR) {
        need += 2 * v->codec->bytes(n);
    }
    if (residual) { /* and its candidate */
        need += (n + wire) * sizeof(float);
    }
    return need;
}

uint64_t
run_results(const struct run_vector *v, uint64_t state_bytes, uint64_t wire)
{
    const uint64_t bytes = v->codec->bytes(wire);
    const uint64_t least = v->audits_work ? WORK_RESULTS : 0;
    const uint64_t n = bytes > 0 ? 2 * state_bytes / bytes : 0;

    return n < least ? least : n;
}

uint64_t
run_disk(const struct run_vector *v, uint64_t n, uint64_t wire, unsigned keep)
{
    const uint64_t state = state_bytes(&v->method, n);
    const uint64_t results = run_results(v, state, wire);

    /* One is written before the oldest is deleted; a state that comes in;
     * results, and the one being written. */
    return (keep + 1ULL) * checkpoint_bytes(&v->method, n) + state +
           (results + 1) * v->codec->bytes(wire) + SMALL_BYTES;
}

int run_inner_read(struct replica_options *r,
                   const struct manifest_inner *f,
                   const char **reason)
{
    int rv;

    r->optimizer = (struct optimizer_options){
        .beta1 = f->beta1,
        .beta2 = f->beta2,
        .eps = f->eps,
        .weight_decay = f->weight_decay,
        .clip_norm = f->clip,
        .muon_lr = f->muon_lr,
    };
    r->schedule = (struct schedule){
        .peak = f->lr,
        .lowest = f->lr_min,
        .warmup_steps = f->warmup,
        .total_steps = f->steps,
        .decay_steps = f->decay,
    };
    rv = optimizer_rule_named(f->optimizer, &r->optimizer.rule);
    rv = rv != 0 ? rv : optimizer_check(&r->optimizer, reason);
    rv = rv != 0 ? rv : schedule_kind_named(f->schedule, &r->schedule.kind);
    rv = rv != 0 ? rv : schedule_check(&r->schedule, reason);
    if (rv != 0 && *reason == NULL) {
        *reason = "this build does not have the run's inner.optimizer or "
                  "inner.schedule";
    }
    r->batch = f->batch;
    r->micro_batch = f->micro_batch > 0 ? f->micro_batch : f->batch;
    r->seq = f->seq;
    return rv;
}

/* More micro-batches than stages are on their way at once, so that no host
 * waits for one that another holds. */
uint32_t run_pipe_slots(uint32_t stages)
{
    uint32_t n = stages + 2;

    return n < LLAMA_SLOTS_MAX ? n : LLAMA_SLOTS_MAX;
}

/* A figure that an author may make as large as it likes. */
static uint64_t bounded(double bytes)
{
    return bytes < 1e18 ? (uint64_t)bytes : (uint64_t)1e18;
}

/* Wire bytes of all rounds of a cycle, in sync.period steps on average. */
static uint64_t
wire_bytes(const struct layout *l, const struct codec *codec, uint32_t period)
{
    uint64_t sum = 0;

    for (uint32_t i = 1; i <= l->cycle.n; i++) {
        sum += codec->bytes((size_t)layout_elements(l, i));
    }
    return bounded((double)sum * period / (double)l->cycle.steps);
}

static void add_data(struct run_needs *needs, const struct manifest_data *data)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < data->n_shards; i++) {
        needs->data_bytes += data->shards[i].bytes;
        largest = larger(largest, data->shards[i].bytes);
    }
    needs->spare_bytes = largest;
    needs->disk_bytes += needs->data_bytes + largest;
}

/* Of the stage that takes least of this process's memory, but for the least. */
static struct run_gpu gpu_of(const struct replica_options *r)
{
    struct replica_plan all, none;

    replica_plan(r, UINT64_MAX, &all);
    replica_plan(r, 0, &none);
    return (struct run_gpu){
        .bytes = all.state_bytes + all.work_bytes + all.outer_bytes +
                 PLUGIN_PRODUCTS_BYTES,
        .least_bytes =
            none.state_bytes + none.work_bytes + PLUGIN_PRODUCTS_BYTES,
        .stay_bytes = all.stay_bytes + PLUGIN_PRODUCTS_BYTES,
        .moments_bytes = none.host_bytes,
    };
}

/* For r->part of a model that needs->parameters is the whole of. */
static void add_part(struct run_needs *needs,
                     const struct run_vector *v,
                     struct replica_options *r,
                     uint64_t wire,
                     const struct manifest *m,
                     const struct run_host *host)
{
    const struct device_options some = {.gpu = {.bf16 = !host->gpu_fp32}};
    uint64_t n = (uint64_t)r->part.numel, all = needs->parameters;
    struct run_gpu gpu = {0};
    uint64_t memory, least;

    wire = wire / all * n + wire % all;
    r->device = host->gpu ? &some : NULL;
    r->recompute = LLAMA_RECOMPUTE_LAYERS;
    least = run_memory(v, r, wire, m->sync.error_feedback);
    if (needs->memory_least_bytes == 0 || least < needs->memory_least_bytes) {
        needs->memory_least_bytes = least; /* of whichever stage */
    }
    r->recompute = LLAMA_RECOMPUTE_NOTHING;
    memory = run_memory(v, r, wire, m->sync.error_feedback);
    if (host->gpu && host->cpu_fallback && !r->shared) {
        memory += replica_fallback_bytes(r);
    }
    if (host->gpu && !r->shared) {
        gpu = gpu_of(r);
    }
    r->device = NULL; /* it is here */
    least = needs->gpu.least_bytes;
    if (least != 0 && least < gpu.least_bytes) {
        gpu.least_bytes = least;
    }
    needs->gpu.least_bytes = gpu.least_bytes;
    if (needs->memory_bytes != 0 && memory >= needs->memory_bytes) {
        return; /* another stage takes less */
    }
    needs->memory_bytes = memory;
    needs->state_bytes = state_bytes(&v->method, n);
    needs->disk_bytes = run_disk(v, n, wire, host->keep);
    needs->gpu = gpu;
}

/* Each way, of a host of stage s: its part of the state, and what crosses its
 * cuts, as it is wired (train/replica/stage_wire.h). 0: not to be cut so. */
static uint64_t stage_round_bytes(const struct run_vector *v,
                                  const struct replica_options *r,
                                  const struct manifest *m,
                                  uint32_t s)
{
    const uint64_t row = (uint64_t)r->model.dim * sizeof(uint16_t) +
                         sizeof(uint32_t); /* bf16, and a label */
    const uint64_t cuts = s == 0 || s + 1 == m->stages ? 1 : 2;
    struct layout l = {0};
    uint64_t bytes = 0;

    if (layout_open_part(&l, &v->method, &r->model, &r->part, v->codec->block,
                         NULL) == 0) {
        bytes = 2 * wire_bytes(&l, v->codec, m->sync.period) +
                bounded((double)(cuts * row) * m->sync.period * m->inner.batch *
                        m->inner.seq);
    }
    layout_close(&l);
    return bytes;
}

static void add_parts(struct run_needs *needs,
                      const struct run_vector *v,
                      struct replica_options *r,
                      uint64_t wire,
                      const struct manifest *m,
                      const struct run_host *host)
{
    if (m->stages <= 1) {
        add_part(needs, v, r, wire, m, host);
        return;
    }
    r->slots = run_pipe_slots(m->stages);
    needs->round_bytes = 0;
    for (uint32_t s = 0; s < m->stages; s++) {
        uint64_t bytes;

        if (llama_part_of_stage(&r->model, m->stages, s, &r->part, NULL) != 0) {
            continue;
        }
        add_part(needs, v, r, wire, m, host);
        bytes = stage_round_bytes(v, r, m, s);
        if (needs->round_bytes == 0 || bytes < needs->round_bytes) {
            needs->round_bytes = bytes;
        }
    }
}

struct run_needs run_needs(const struct manifest *m,
                           const struct run_host *host)
{
    static const struct run_host usual = {.threads = 1, .keep = 2};
    struct run_needs needs = {0};
    struct replica_options r = {.threads = 1};
    const char *reason = NULL;
    struct run_vector v;
    struct layout l = {0};

    host = host == NULL ? &usual : host;
    if (run_model_whole(m, &r.model, &r.part, NULL) != 0 ||
        run_vector_read(&v, m, NULL) != 0 ||
        layout_open_part(&l, &v.method, &r.model, &r.part, v.codec->block,
                         NULL) != 0) {
        layout_close(&l);
        return needs; /* not a run that this build knows */
    }
    /* Of a schedule that `run create --sync auto` has yet to choose only the
     * batch matters here. */
    (void)run_inner_read(&r, &m->inner, &reason);
    r.method = v.method;
    r.codec = v.codec;
    r.shared = host->socket || manifest_has_tensors(m);
    r.threads = host->threads;
    needs.parameters = l.n;
    /* Every element about twice. */
    needs.round_bytes = 2 * wire_bytes(&l, v.codec, m->sync.period);
    add_parts(&needs, &v, &r, layout_most(&l), m, host);
    add_data(&needs, &m->data);
    layout_close(&l);
    return needs;
}

struct run_needs run_needs_stated(const struct manifest *m,
                                  const struct run_host *host)
{
    struct run_needs needs = run_needs(m, host);

    needs.disk_bytes = larger(needs.disk_bytes, m->limits.disk_bytes);
    needs.memory_bytes = larger(needs.memory_bytes, m->limits.memory_bytes);
    needs.memory_least_bytes =
        larger(needs.memory_least_bytes, m->limits.memory_bytes);
    return needs;
}

double run_step_s(const struct manifest *m, uint64_t parameters)
{
    double own = (double)parameters / (m->stages > 1 ? m->stages : 1);

    return 6.0 * own * m->inner.batch * m->inner.seq / RUN_USUAL_FLOPS;
}

double run_round_s(const struct manifest *m,
                   const struct run_needs *needs,
                   double step_s,
                   double bytes_per_s)
{
    double steps_s = m->sync.period * step_s;
    double exchange_s = (double)needs->round_bytes / bytes_per_s;

    if (m->sync.overlap > 0) {
        return steps_s > exchange_s ? steps_s : exchange_s;
    }
    return steps_s + exchange_s;
}
