/* lab.c - a laboratory's peers: open, step, measure, close. See lab.h.
 *
 * All peers share one model workspace: they are computed one after the other,
 * whatever the virtual clock says of them.
 */
#include "train/lab/lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/lab/internal.h"
#include "train/replica/eval.h"
#include "train/replica/layout.h"

/* Vectors of the engine that each peer has. */
static unsigned needs_of(const struct method *m)
{
    return engine_needs(m) & ~(m->trainers > 0 ? (unsigned)ENGINE_PHI : 0U);
}

/* Elements of the longest average. */
static size_t longest(const struct lab_options *o)
{
    const struct trainers t =
        layout_trainers(&o->method, (uint64_t)llama_numel(&o->model),
                        codec_get(o->method.wire)->block);

    return (size_t)(t.count > 0 ? trainers_most(&t) : t.n);
}

/* Bytes of what is encoded at a time: of pairs four vectors, in a butterfly one
 * of each peer, and their sum. */
static size_t wire_room(const struct lab_options *o)
{
    size_t vector = codec_get(CODEC_FP32)->bytes(longest(o));
    size_t sent = codec_get(o->method.wire)->bytes(longest(o));
    size_t peers = o->peers;

    for (size_t i = 0; i < o->n_events; i++) {
        peers += o->events[i].kind == LAB_JOIN;
    }
    sent *=
        o->butterfly || !codec_adds(codec_get(o->method.wire)) ? peers + 1 : 1;
    vector *= o->method.group == METHOD_PAIR ? 4 : 1;
    return (vector > sent ? vector : sent) + 8192;
}

/* ---- peers --------------------------------------------------------------- */

static int take_vectors(struct lab *lab, struct lab_peer *p)
{
    const struct method *m = &lab->opt.method;
    unsigned needs = needs_of(m);
    bool own_gradient = m->gradients || lab->opt.stages > 1;
    size_t n = (size_t)p->part.numel;
    size_t packed = m->trainers > 0 ? longest(&lab->opt) : n;
    float **to[ENGINE_VECTORS], *at;
    size_t count = 1 + engine_count(needs) + own_gradient + m->error_feedback;

    p->vectors = calloc(count * n + packed, sizeof(float));
    if (p->vectors == NULL) {
        return LOCO_ENOMEM;
    }
    at = p->vectors;
    p->e.theta = at;
    at += n;
    lab->packed[p->number] = at;
    at += packed;
    engine_slots(&p->e, to);
    for (unsigned i = 0; i < ENGINE_VECTORS; i++) {
        if ((needs & (1U << i)) != 0) {
            *to[i] = at;
            at += n;
        }
    }
    if (m->trainers > 0) {
        p->e.phi = lab->anchors;
    }
    p->e.grad = lab->grad;
    if (own_gradient) {
        p->e.grad = at;
        at += n;
    }
    if (m->error_feedback) {
        p->residual = at;
    }
    return 0;
}

static int peer_open(struct lab *lab, uint32_t number)
{
    struct lab_peer *p = &lab->peers[number];
    const uint64_t words[2] = {lab->opt.seed, number};
    const struct loader_options lo = {
        .shards = lab->opt.train,
        .n_shards = lab->opt.n_train,
        .seq = lab->opt.seq,
        .batch = 1, /* rows are taken one by one: batches may grow */
        .seed = lab->opt.seed,
        .peer = rng_mix(words, 2),
    };
    int rv;

    memset(p, 0, sizeof *p);
    p->used = true;
    p->number = number;
    p->machine = lab->opt.machines[number];
    if (lab->opt.stages > 1) {
        p->stage = number % lab->opt.stages;
        (void)llama_part_of_stage(&lab->opt.model, lab->opt.stages, p->stage,
                                  &p->part, NULL);
    } else {
        llama_part_whole(&lab->opt.model, &p->part);
    }
    engine_init(&p->e, &lab->opt.method, NULL, (uint64_t)p->part.numel,
                lab->opt.peers);
    rv = take_vectors(lab, p);
    rv = rv != 0 ? rv
                 : optimizer_open_part(&p->optimizer, &lab->opt.optimizer,
                                       &lab->opt.model, &p->part);
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv, "out of memory for peer %u",
                           number);
    }
    p->has_optimizer = true;
    p->e.u = p->optimizer.u;
    p->e.v = p->optimizer.v;
    lab->has_loader[number] = true;
    rv = loader_open(&lab->loaders[number], &lo, lab->errmsg);
    p->alive = rv == 0;
    return rv;
}

static void peer_close(struct lab *lab, struct lab_peer *p)
{
    if (p->has_optimizer) {
        optimizer_close(&p->optimizer);
    }
    free(p->vectors);
    if (lab->has_loader[p->number]) {
        loader_close(&lab->loaders[p->number]);
        lab->has_loader[p->number] = false;
    }
    memset(p, 0, sizeof *p);
}

uint32_t lab_alive(const struct lab *lab, uint32_t out[LAB_PEERS_MAX])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        const struct lab_peer *p = &lab->peers[i];

        if (p->used && p->alive &&
            (lab->stage == LAB_STAGES_ALL || p->stage == lab->stage)) {
            out[n++] = i;
        }
    }
    return n;
}

void lab_focus(struct lab *lab, uint32_t stage)
{
    lab->stage = stage;
    lab->n = (uint64_t)(stage == LAB_STAGES_ALL ? llama_numel(&lab->opt.model)
                                                : lab->peers[stage].part.numel);
}

/* ---- open and close ------------------------------------------------------ */

static float *vector(struct lab *lab)
{
    return calloc((size_t)lab->n, sizeof(float));
}

/* All trainers begin at one model. */
static int open_trainers(struct lab *lab)
{
    const struct lab_options *o = &lab->opt;
    struct trainers *t = &lab->trainers;
    struct llama_part whole;

    *t = layout_trainers(&o->method, lab->n, codec_get(o->method.wire)->block);
    if (t->count == 0) {
        return 0;
    }
    lab->micro = vector(lab);
    lab->anchors = calloc((size_t)(t->count * lab->n), sizeof(float));
    lab->numbers = calloc((size_t)trainers_numbers(t), sizeof(float));
    if (lab->micro == NULL || lab->anchors == NULL || lab->numbers == NULL) {
        return LOCO_ENOMEM;
    }
    llama_part_whole(&o->model, &whole);
    for (uint32_t i = 0; i < t->count; i++) {
        llama_part_init(&o->model, &whole, lab->anchors + i * lab->n, o->seed);
    }
    trainers_begin(t, lab->numbers, o->batch);
    return 0;
}

static int take_memory(struct lab *lab)
{
    const struct lab_options *o = &lab->opt;
    uint32_t rows = o->micro_batch > EVAL_ROWS ? o->micro_batch : EVAL_ROWS;
    size_t cells = (size_t)rows * o->seq;

    lab->grad = vector(lab);
    lab->mean = calloc(longest(o), sizeof(float));
    lab->mean_phi = vector(lab);
    lab->decoded = vector(lab);
    lab->wire = malloc(wire_room(o));
    lab->tokens = calloc(cells, sizeof *lab->tokens);
    lab->targets = calloc(cells, sizeof *lab->targets);
    if (lab->grad == NULL || lab->mean == NULL || lab->mean_phi == NULL ||
        lab->decoded == NULL || lab->wire == NULL || lab->tokens == NULL ||
        lab->targets == NULL) {
        return LOCO_ENOMEM;
    }
    return open_trainers(lab);
}

static int open_model(struct lab *lab)
{
    const struct lab_options *o = &lab->opt;
    int rv = 0;

    if (o->reference) {
        backend_cpu_ref(&lab->backend);
    } else {
        rv = backend_cpu(&lab->backend, o->threads);
    }
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv, "cannot start %d threads",
                           o->threads);
    }
    lab->has_backend = true;
    lab->kernels = &lab->backend;
    rv = backend_set_dtype(&lab->backend, o->dtype);
    rv = rv != 0 ? rv
                 : llama_open(&lab->llama, &o->model, &lab->backend,
                              o->micro_batch, LLAMA_RECOMPUTE_NOTHING);
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "cannot prepare the model's work: %s",
                                 loco_strerror(rv));
}

static int lab_open(struct lab *lab, const struct engine_fragments *fragments)
{
    const struct lab_options *o = &lab->opt;
    int rv = take_memory(lab);

    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv, "out of memory for %llu parameters",
                           (unsigned long long)lab->n);
    }
    rv = open_model(lab);
    for (uint32_t i = 0; i < o->peers && rv == 0; i++) {
        struct lab_peer *p = &lab->peers[i];

        rv = peer_open(lab, i);
        if (rv == 0) {
            p->e.fragments = *fragments;
            llama_part_init(&o->model, &p->part, p->e.theta, o->seed);
            engine_start(&p->e);
        }
    }
    rv = rv != 0 ? rv : lab_watch_open(lab, longest(o));
    return rv != 0 ? rv : lab_work_open(lab);
}

static void lab_close(struct lab *lab)
{
    lab_work_close(lab);
    lab_watch_close(lab);
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        if (lab->peers[i].used) {
            peer_close(lab, &lab->peers[i]);
        }
    }
    llama_close(lab->llama);
    if (lab->has_backend) {
        backend_close(&lab->backend);
    }
    free(lab->targets);
    free(lab->tokens);
    free(lab->wire);
    free(lab->numbers);
    free(lab->anchors);
    free(lab->micro);
    free(lab->decoded);
    free(lab->mean_phi);
    free(lab->mean);
    free(lab->owned);
    free(lab->grad);
}

/* ---- steps --------------------------------------------------------------- */

bool lab_goes_on(const struct lab *lab)
{
    uint32_t who[LAB_PEERS_MAX];

    return !lab->stopped && lab->used_tokens < lab->opt.tokens &&
           lab_alive(lab, who) > 0;
}

int lab_gradient(struct lab *lab, struct lab_peer *p, uint32_t rows)
{
    const struct lab_options *o = &lab->opt;
    const uint64_t positions = (uint64_t)rows * o->seq;
    double total = 0.0;

    memset(p->e.grad, 0, (size_t)lab->n * sizeof(float));
    for (uint32_t done = 0; done < rows;) {
        uint32_t n =
            rows - done < o->micro_batch ? rows - done : o->micro_batch;
        struct llama_batch batch = {lab->tokens, lab->targets, n, o->seq};
        double sum = 0.0;
        int rv = 0;

        for (uint32_t i = 0; i < n && rv == 0; i++) {
            rv = loader_batch(&lab->loaders[p->number], p->row++,
                              lab->tokens + (size_t)i * o->seq,
                              lab->targets + (size_t)i * o->seq);
        }
        rv = rv != 0
                 ? rv
                 : llama_loss(lab->llama, p->e.theta, &batch, p->e.grad, &sum);
        if (rv != 0 || !isfinite(sum)) {
            return errmsg_fail(lab->errmsg, rv != 0 ? rv : LOCO_ENUMERIC,
                               "peer %u: the loss is not finite after %llu "
                               "tokens; lower inner.lr or sync.outer_lr",
                               p->number, (unsigned long long)lab->used_tokens);
        }
        total += sum;
        done += n;
    }
    lab_note_loss(lab, total, positions);
    return 0;
}

void lab_note_loss(struct lab *lab, double loss, uint64_t positions)
{
    const struct lab_options *o = &lab->opt;

    lab->loss_sum += loss;
    lab->loss_n += positions;
    lab->used_tokens += positions;
    if (lab->used_tokens > o->tokens - o->tokens / 10) {
        lab->tail_sum += loss;
        lab->tail_n += positions;
    }
}

int lab_optimize(struct lab *lab, struct lab_peer *p, uint64_t positions)
{
    const struct optimizer_rate rate = {
        .lr = schedule_lr(&lab->opt.schedule,
                          lab->used_tokens / lab->tokens_per_step),
        .grad_scale = 1.0 / (double)positions,
    };
    int rv = optimizer_step(&p->optimizer, lab->kernels, p->e.theta, p->e.grad,
                            &rate, NULL);

    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "peer %u: the gradient is not finite", p->number);
    }
    p->steps++;
    engine_step(&p->e);
    return 0;
}

int lab_update(struct lab *lab, struct lab_peer *p, uint32_t rows)
{
    uint64_t positions = (uint64_t)rows * lab->opt.seq;

    p->clock_s += (double)positions / p->machine.tokens_per_s;
    return lab_optimize(lab, p, positions);
}

int lab_step(struct lab *lab, struct lab_peer *p)
{
    uint32_t rows = lab->opt.batch;
    int rv = lab->trainers.count > 0 ? lab_trainer_gradient(lab, p, &rows)
                                     : lab_gradient(lab, p, rows);

    return rv != 0 ? rv : lab_update(lab, p, rows);
}

int lab_period(struct lab *lab)
{
    uint32_t who[LAB_PEERS_MAX], n;
    int rv = 0;

    for (uint32_t k = 0; k < lab->opt.method.period && rv == 0; k++) {
        if (lab->opt.method.group == METHOD_TRAINER && !lab_goes_on(lab)) {
            break; /* batches have grown: a whole round could be half a run */
        }
        rv = lab_events(lab, false);
        n = lab_alive(lab, who);
        for (uint32_t i = 0; i < n && rv == 0; i++) {
            rv = lab_step(lab, &lab->peers[who[i]]);
        }
    }
    return rv;
}

/* ---- who comes and goes ------------------------------------------------- */

/* The newcomer takes what others hold and its method shares: the anchor, the
 * outer state, averaged moments. Own moments begin at 0. */
static int join(struct lab *lab, uint32_t number)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    struct lab_peer *p = &lab->peers[number], *from;
    size_t bytes = (size_t)lab->n * sizeof(float);
    unsigned needs = engine_needs(&lab->opt.method);
    double now;
    int rv;

    if (n == 0 || p->used) {
        return errmsg_fail(
            lab->errmsg, LOCO_EINVAL,
            "peer %u cannot join: it has joined already, or no peer is left",
            number);
    }
    from = &lab->peers[who[0]];
    now = lab_latest(lab, who, n);
    rv = peer_open(lab, number);
    if (rv != 0) {
        return rv;
    }
    p->e.fragments = from->e.fragments;
    p->e.k = from->e.k;
    p->clock_s = now;
    if (lab->opt.method.group == METHOD_OWNERS) {
        return 0; /* it reads all slices first */
    }
    if (lab->trainers.count > 0) { /* it takes one of them */
        from->sent += lab->trainers.count * (uint64_t)bytes;
        return 0;
    }
    if ((needs & ENGINE_PHI) != 0) {
        memcpy(p->e.phi, from->e.phi, bytes);
        memcpy(p->e.theta, from->e.phi, bytes);
    } else {
        memcpy(p->e.theta, from->e.theta, bytes);
    }
    if ((needs & ENGINE_M) != 0) {
        memcpy(p->e.m, from->e.m, bytes);
    }
    if ((needs & ENGINE_SUM) != 0) {
        memcpy(p->e.sum, from->e.sum, bytes);
        p->e.delayed = from->e.delayed;
        p->e.delayed.phi = p->e.phi;
        p->e.delayed.m = p->e.m;
        p->e.delayed.sum = p->e.sum;
    }
    if ((needs & ENGINE_BASE) != 0) {
        memcpy(p->e.base, p->e.phi, bytes);
    }
    if (lab->opt.method.period_u > 0 || lab->opt.method.gradients) {
        memcpy(p->optimizer.u, from->optimizer.u, bytes);
        p->optimizer.t = from->optimizer.t;
    }
    if (lab->opt.method.period_v > 0 || lab->opt.method.gradients) {
        memcpy(p->optimizer.v, from->optimizer.v, bytes);
        p->optimizer.t = from->optimizer.t;
    }
    from->sent += (uint64_t)bytes;
    return 0;
}

int lab_events(struct lab *lab, bool at_boundary)
{
    while (lab->next_event < lab->opt.n_events) {
        const struct lab_event *e = &lab->opt.events[lab->next_event];
        struct lab_peer *p = &lab->peers[e->peer];
        bool waits = e->kind == LAB_JOIN || e->kind == LAB_LEAVE;
        int rv = 0;

        if (e->at_tokens > lab->used_tokens || (waits && !at_boundary)) {
            return 0;
        }
        switch (e->kind) {
        case LAB_JOIN:
            rv = join(lab, e->peer);
            break;
        case LAB_SPEED:
            p->machine.tokens_per_s = e->value;
            break;
        default:
            p->alive = false;
            break;
        }
        if (rv != 0) {
            return rv;
        }
        lab->next_event++;
    }
    return 0;
}

/* ---- measuring ---------------------------------------------------------- */

int lab_eval(struct lab *lab, const float *theta, double *bits_per_byte)
{
    struct eval_llama model = {lab->llama, theta};
    const struct eval e = {
        .loss = eval_llama_loss,
        .self = &model,
        .val = lab->opt.val,
        .seq = lab->opt.seq,
        .most = lab->opt.eval_tokens,
        .rows = EVAL_ROWS,
        .tokens = lab->tokens,
        .targets = lab->targets,
    };
    int rv = eval_bits(&e, bits_per_byte);

    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "the model's held-out loss is not finite, or "
                                 "the text is shorter than two tokens");
}

static uint64_t sent_by_all(const struct lab *lab, uint64_t *most)
{
    uint64_t sum = 0;

    *most = 0;
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        uint64_t sent = lab->peers[i].used ? lab->peers[i].sent : 0;

        sum += sent;
        *most = sent > *most ? sent : *most;
    }
    return sum;
}

static int add_point(struct lab *lab, const struct lab_point *point)
{
    struct lab_result *r = lab->result;

    if (r->n_points == lab->room) {
        size_t room = lab->room == 0 ? 64 : lab->room * 2;
        struct lab_point *grown = realloc(r->points, room * sizeof *grown);

        if (grown == NULL) {
            return errmsg_fail(lab->errmsg, LOCO_ENOMEM,
                               "out of memory for points");
        }
        r->points = grown;
        lab->room = room;
    }
    r->points[r->n_points++] = *point;
    if (lab->opt.progress != NULL &&
        !lab->opt.progress(lab->opt.progress_data, point)) {
        lab->stopped = true;
    }
    return 0;
}

int lab_point(struct lab *lab, size_t s, const float *theta)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    uint64_t most;
    struct lab_point point = {
        .tokens = lab->used_tokens,
        .virtual_s = lab_latest(lab, who, n),
        .bits_per_byte = NAN,
        .bytes_sent = sent_by_all(lab, &most),
        .peers = n,
    };
    int rv = 0;

    if (lab->stage == LAB_STAGES_ALL || lab->stage == 0) {
        lab->stream_turns[s]++;
    }
    if (s != 0 || lab->stage != LAB_STAGES_ALL) {
        return 0; /* lab_run_stages() has a point for all stages */
    }
    point.turns = ++lab->turns;
    point.loss = lab->loss_n > 0 ? lab->loss_sum / (double)lab->loss_n : NAN;
    lab->loss_sum = 0.0;
    lab->loss_n = 0;
    if (lab->opt.eval_every > 0 && lab->used_tokens >= lab->next_eval) {
        lab->next_eval = lab->used_tokens + lab->opt.eval_every;
        rv = lab_eval(lab, theta, &point.bits_per_byte);
    }
    return rv != 0 ? rv : add_point(lab, &point);
}

/* ---- the whole ---------------------------------------------------------- */

/* mean (n) = mean of the live peers' models, or of those of the stage in focus;
 * returns the sum of their squared distances from it. */
static double mean_of(struct lab *lab, float *mean)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    double square = 0.0;

    for (uint64_t k = 0; k < lab->n; k++) {
        double sum = 0.0;

        for (uint32_t i = 0; i < n; i++) {
            sum += (double)lab->peers[who[i]].e.theta[k];
        }
        mean[k] = (float)(sum / n);
        for (uint32_t i = 0; i < n; i++) {
            double d = (double)lab->peers[who[i]].e.theta[k] - sum / n;
            square += d * d;
        }
    }
    return square;
}

/* mean (n) = the model that all peers make together; returns their root mean
 * square distance from it, per parameter. */
static double final_mean(struct lab *lab, float *mean)
{
    uint32_t stages = lab->opt.stages > 1 ? lab->opt.stages : 1;
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who) / stages;
    double square = 0.0;

    for (uint32_t s = 0; s < stages; s++) {
        float *at = mean;

        if (stages > 1) {
            lab_focus(lab, s);
            at += lab->peers[s].part.offset;
        }
        square += mean_of(lab, at);
    }
    lab_focus(lab, LAB_STAGES_ALL);
    return n == 0 ? 0.0 : sqrt(square / ((double)lab->n * n));
}

/* The model that the run has: the common anchor; for pairs the mean of all
 * replicas; of several trainers the first one, as with locod: a choice by the
 * held-out text would learn from it. */
static int final_eval(struct lab *lab)
{
    const struct method *m = &lab->opt.method;
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    struct lab_result *r = lab->result;

    if (n == 0) {
        return errmsg_fail(lab->errmsg, LOCO_EINVAL,
                           "all peers are gone; nothing is left to measure");
    }
    r->spread = final_mean(lab, lab->mean);
    if (m->group == METHOD_TRAINER) {
        return lab_eval(lab, lab->anchors, &r->bits_per_byte);
    }
    if (m->group == METHOD_OWNERS) {
        return lab_eval(lab, lab->owned, &r->bits_per_byte);
    }
    if (m->group == METHOD_QUORUM) {
        return lab_eval(lab, lab->peers[who[0]].e.phi, &r->bits_per_byte);
    }
    return lab_eval(lab, lab->mean, &r->bits_per_byte);
}

/* What is told at the end. */
static int finish(struct lab *lab)
{
    struct lab_result *r = lab->result;
    uint32_t who[LAB_PEERS_MAX];
    int rv = final_eval(lab);

    r->tokens = lab->used_tokens;
    r->turns = lab->turns;
    r->bytes_sent = sent_by_all(lab, &r->bytes_most);
    r->virtual_s = lab_latest(lab, who, lab_alive(lab, who));
    r->loss = lab->tail_n > 0 ? lab->tail_sum / (double)lab->tail_n : NAN;
    for (size_t s = 0; s < lab->peers[0].e.n_streams; s++) {
        r->never_synced[s] = lab->stream_turns[s] == 0;
    }
    return rv;
}

static int run(struct lab *lab)
{
    struct lab_result *r = lab->result;
    int rv;

    (void)final_mean(lab, lab->mean); /* all begin with it */
    rv = lab_eval(lab, lab->mean, &r->bits_per_byte_before);
    if (rv != 0) {
        return rv;
    }
    if (lab->opt.stages > 1) {
        rv = lab_run_stages(lab);
        return rv != 0 ? rv : finish(lab);
    }
    switch (lab->opt.method.group) {
    case METHOD_PAIR:
        rv = lab_run_pairs(lab);
        break;
    case METHOD_QUORUM:
        rv = lab_run_quorum(lab);
        break;
    case METHOD_OWNERS:
        rv = lab_run_owners(lab);
        break;
    case METHOD_TRAINER:
        rv = lab_run_trainers(lab);
        break;
    default:
        rv = lab_run_all(lab);
        break;
    }
    return rv != 0 ? rv : finish(lab);
}

static int check_stages(const struct lab_options *o, char *errmsg)
{
    const char *reason = NULL;
    struct llama_part part;

    if (llama_part_of_stage(&o->model, o->stages, 0, &part, &reason) != 0) {
        return errmsg_invalid(errmsg, "stages: %s", reason);
    }
    if (o->peers % o->stages != 0 || o->batch % o->micro_batch != 0) {
        return errmsg_invalid(
            errmsg,
            "%u peers do not divide into %u stages of equally many hosts, or "
            "%u sequences do not divide into micro-batches of %u",
            o->peers, o->stages, o->batch, o->micro_batch);
    }
    if ((o->method.group != METHOD_ALL && o->method.group != METHOD_PAIR) ||
        o->method.fragments > 1 || o->method.overlap > 0 || o->n_events > 0) {
        return errmsg_invalid(errmsg,
                              "with stages the laboratory averages among all "
                              "hosts of a stage or in pairs, without fragments "
                              "or overlap, and no peer joins or leaves");
    }
    return 0;
}

static int check(const struct lab_options *o, char *errmsg)
{
    const char *reason = NULL;
    int rv = method_check(&o->method, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (llama_config_check(&o->model, &reason) != 0) {
        return errmsg_invalid(errmsg, "model: %s", reason);
    }
    if (o->peers == 0 || o->peers > LAB_PEERS_MAX || o->batch == 0 ||
        o->micro_batch == 0 || o->seq < 2 || o->seq > o->model.seq) {
        return errmsg_invalid(
            errmsg,
            "1 to %d peers, a batch, and sequences of 2 to %u "
            "tokens are needed",
            LAB_PEERS_MAX, o->model.seq);
    }
    if (o->stages > 1 && check_stages(o, errmsg) != 0) {
        return LOCO_EINVAL;
    }
    for (size_t i = 0; i < o->n_events; i++) {
        if (o->events[i].peer >= LAB_PEERS_MAX) {
            return errmsg_invalid(errmsg,
                                  "the script names peer %u; the highest is %d",
                                  o->events[i].peer, LAB_PEERS_MAX - 1);
        }
    }
    return 0;
}

/* A stage has one: everything (check_stages). */
static int open_fragments(const struct lab_options *o,
                          struct engine_fragments *map)
{
    struct llama_part whole;

    llama_part_whole(&o->model, &whole);
    return o->stages > 1
               ? 0
               : layout_fragments(&o->model, &whole, o->method.fragments, map);
}

int lab_run(const struct lab_options *opt, struct lab_result *out, char *errmsg)
{
    struct engine_fragments map = {NULL, NULL};
    struct lab *lab;
    int rv;

    memset(out, 0, sizeof *out);
    rv = check(opt, errmsg);
    if (rv != 0) {
        return rv;
    }
    lab = calloc(1, sizeof *lab);
    if (lab == NULL || open_fragments(opt, &map) != 0) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    } else {
        lab->opt = *opt;
        lab->stage = LAB_STAGES_ALL;
        lab->n = (uint64_t)llama_numel(&opt->model);
        lab->result = out;
        lab->errmsg = errmsg;
        lab->next_eval = opt->eval_every;
        lab->tokens_per_step = (uint64_t)opt->peers * opt->batch * opt->seq /
                               (opt->stages > 1 ? opt->stages : 1);
        rv = lab_open(lab, &map);
        rv = rv != 0 ? rv : run(lab);
        lab_close(lab);
    }
    free(lab);
    layout_fragments_free(&map);
    return rv;
}

void lab_result_free(struct lab_result *r)
{
    free(r->points);
    r->points = NULL;
    r->n_points = 0;
}
