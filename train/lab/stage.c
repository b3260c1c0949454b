/* stage.c - pipelines: hosts of stages, and micro-batches between them.
 *
 * Peer p holds stage p mod S in column p / S. In an inner step every column
 * enters batch / micro_batch micro-batches; the caller's route says which
 * column's host each stage of it meets. What travels goes through the wire
 * type of activations, there and back. Then each host takes its own step, and
 * each stage averages among its hosts what is due (NoLoCo 3.1, section 5.2).
 *
 * Micro-batches are computed one after the other, whatever the clock says: all
 * orders have the same sums but for roundings.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/lab/internal.h"

struct pipe {
    struct lab *lab;
    uint32_t stages, columns;
    struct llama *model[LLAMA_STAGES_MAX];
    float *x;      /* (micro_batch * seq, dim) what travels */
    uint8_t *wire; /* and its encoding */
    uint64_t step, turns;
    uint64_t before[LAB_PEERS_MAX]; /* bytes sent at the step's beginning */
    struct lab_flight flights[LLAMA_STAGES_MAX][METHOD_STREAMS_MAX];
};

static struct lab_peer *host(const struct pipe *p, uint32_t column, uint32_t s)
{
    return &p->lab->peers[column * p->stages + s];
}

static uint64_t positions(const struct pipe *p)
{
    return (uint64_t)p->lab->opt.micro_batch * p->lab->opt.seq;
}

static int pipe_open(struct pipe *p)
{
    const struct lab_options *o = &p->lab->opt;
    const struct codec *c = codec_get(o->activations);
    size_t n = (size_t)positions(p) * o->model.dim;
    int rv = 0;

    p->x = malloc(n * sizeof *p->x);
    p->wire = malloc(c->bytes(n));
    if (p->x == NULL || p->wire == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t s = 0; s < p->stages && rv == 0; s++) {
        const struct llama_room room = {.part = host(p, 0, s)->part,
                                        .micro_batch = o->micro_batch,
                                        .slots = 1,
                                        .recompute = LLAMA_RECOMPUTE_NOTHING};

        rv = llama_open_room(&p->model[s], &o->model, &p->lab->backend, &room);
    }
    return rv;
}

static void pipe_close(struct pipe *p)
{
    for (uint32_t s = 0; s < p->stages; s++) {
        llama_close(p->model[s]);
    }
    free(p->wire);
    free(p->x);
}

/* ---- one micro-batch --------------------------------------------------- */

/* p->x = y as the next host gets it; `extra` bytes go with it. */
static int
travel(struct pipe *p, struct lab_peer *from, const float *y, uint64_t extra)
{
    const struct lab_options *o = &p->lab->opt;
    const struct codec *c = codec_get(o->activations);
    size_t n = (size_t)positions(p) * o->model.dim;
    int rv = c->encode(p->wire, y, n, 1.0F);

    from->sent += c->bytes(n) + extra;
    return rv != 0 ? rv : c->decode(p->x, p->wire, n);
}

/* In `path`, forward and back. *loss: the sum. */
static int pass(struct pipe *p, const uint32_t *path, double *loss)
{
    struct lab *lab = p->lab;
    struct stage_batch batch = {.b = lab->opt.micro_batch,
                                .t = lab->opt.seq,
                                .tokens = lab->tokens,
                                .targets = lab->targets,
                                .x = p->x};
    uint32_t last = p->stages - 1;
    struct lab_peer *h;
    const float *y = NULL;
    int rv = 0;

    for (uint32_t s = 0; s < last && rv == 0; s++) {
        h = host(p, path[s], s);
        rv = stage_forward(p->model[s], 0, h->e.theta, &batch, &y);
        rv = rv != 0 ? rv : travel(p, h, y, positions(p) * sizeof(uint32_t));
    }
    h = host(p, path[last], last);
    rv = rv != 0 ? rv
                 : stage_score(p->model[last], h->e.theta, &batch, h->e.grad,
                               loss, &y);
    for (uint32_t s = last; s-- > 0 && rv == 0;) {
        rv = travel(p, h, y, 0);
        h = host(p, path[s], s);
        rv = rv != 0 ? rv
                     : stage_backward(p->model[s], 0, h->e.theta, lab->tokens,
                                      p->x, h->e.grad, &y);
    }
    for (uint32_t s = 0; s < p->stages; s++) {
        host(p, path[s], s)->summed++;
    }
    return rv;
}

/* Rows of one order of the data for all. */
static int draw(struct pipe *p)
{
    struct lab *lab = p->lab;
    size_t seq = lab->opt.seq;
    int rv = 0;

    for (uint32_t i = 0; i < lab->opt.micro_batch && rv == 0; i++) {
        rv = loader_batch(&lab->loaders[0], lab->peers[0].row++,
                          lab->tokens + i * seq, lab->targets + i * seq);
    }
    return rv;
}

static void find_path(const struct pipe *p,
                      uint64_t mb,
                      uint32_t entry,
                      uint32_t path[LLAMA_STAGES_MAX])
{
    const struct lab_options *o = &p->lab->opt;

    for (uint32_t s = 0; s < p->stages; s++) {
        path[s] = entry;
    }
    if (o->route != NULL) {
        o->route(o->route_data, p->step, mb, p->columns, p->stages, entry,
                 path);
    }
}

static int enter(struct pipe *p, uint64_t mb, uint32_t entry)
{
    struct lab *lab = p->lab;
    uint32_t path[LLAMA_STAGES_MAX];
    double loss = 0;
    int rv = draw(p);

    find_path(p, mb, entry, path);
    rv = rv != 0 ? rv : pass(p, path, &loss);
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "a micro-batch of column %u is not finite after "
                           "%llu tokens; lower inner.lr or sync.outer_lr",
                           entry, (unsigned long long)lab->used_tokens);
    }
    lab_note_loss(lab, loss, positions(p));
    return 0;
}

/* ---- one step ---------------------------------------------------------- */

/* Seconds that a host computes on one micro-batch: its share of the model. */
static double micro_s(const struct pipe *p, const struct lab_peer *h)
{
    const struct lab_options *o = &p->lab->opt;
    struct llama_part whole;

    llama_part_whole(&o->model, &whole);
    return (double)positions(p) / h->machine.tokens_per_s *
           llama_part_cost(&o->model, &h->part, o->seq) /
           llama_part_cost(&o->model, &whole, o->seq);
}

/* The slowest host, and the pipeline's filling: one micro-batch through all
 * stages but the last and over all cuts, there and back. */
static void pass_time(struct pipe *p)
{
    struct lab *lab = p->lab;
    uint32_t n = p->stages * p->columns, who[LAB_PEERS_MAX];
    double span = 0, fill = 0, now;

    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *h = &lab->peers[i];
        double up = h->machine.up_bytes_per_s;
        double sending = up > 0 ? (double)(h->sent - p->before[i]) / up : 0;

        span = fmax(span, fmax(h->summed * micro_s(p, h), sending));
        if (h->stage + 1 < p->stages && i < p->stages) {
            fill += micro_s(p, h) + 2 * h->machine.delay_s +
                    (h->summed > 0 ? 2 * sending / h->summed : 0);
        }
    }
    now = lab_latest(lab, who, lab_alive(lab, who)) + span + fill;
    for (uint32_t i = 0; i < n; i++) {
        lab->peers[i].clock_s = now;
    }
}

static int optimize(struct pipe *p)
{
    struct lab *lab = p->lab;
    int rv = 0;

    for (uint32_t s = 0; s < p->stages && rv == 0; s++) {
        lab_focus(lab, s);
        rv = lab->opt.method.gradients ? lab_gradients_all(lab) : 0;
    }
    lab_focus(lab, LAB_STAGES_ALL);
    for (uint32_t i = 0; i < p->stages * p->columns && rv == 0; i++) {
        struct lab_peer *h = &lab->peers[i];

        rv = lab_optimize(lab, h, h->summed * positions(p));
    }
    return rv;
}

static int step(struct pipe *p)
{
    struct lab *lab = p->lab;
    uint32_t turns = lab->opt.batch / lab->opt.micro_batch;
    int rv = 0;

    for (uint32_t i = 0; i < p->stages * p->columns; i++) {
        struct lab_peer *h = &lab->peers[i];

        memset(h->e.grad, 0, (size_t)h->part.numel * sizeof(float));
        h->summed = 0;
        p->before[i] = h->sent;
    }
    for (uint32_t mb = 0; mb < turns && rv == 0; mb++) {
        for (uint32_t c = 0; c < p->columns && rv == 0; c++) {
            rv = enter(p, mb, c);
        }
    }
    pass_time(p);
    rv = rv != 0 ? rv : optimize(p);
    p->step++;
    return rv;
}

/* ---- the whole --------------------------------------------------------- */

/* lab->mean_phi = the model of a column: a fixed route. */
static const float *column_model(struct pipe *p, uint32_t column)
{
    for (uint32_t s = 0; s < p->stages; s++) {
        const struct lab_peer *h = host(p, column, s);

        memcpy(p->lab->mean_phi + h->part.offset, h->e.theta,
               (size_t)h->part.numel * sizeof(float));
    }
    return p->lab->mean_phi;
}

/* Each stage by itself; pairs of each stage are drawn anew. */
static int synchronise(struct pipe *p)
{
    struct lab *lab = p->lab;
    bool pairs = lab->opt.method.group == METHOD_PAIR;
    bool due =
        lab->opt.method.gradients || p->step % lab->opt.method.period == 0;
    int rv = 0;

    for (uint32_t s = 0; s < p->stages && rv == 0; s++) {
        lab_focus(lab, s);
        if (!pairs) {
            rv = lab_turns_all(lab, p->flights[s]);
        } else if (due) {
            rv = lab_turn_pairs(lab, p->turns, s);
        }
    }
    lab_focus(lab, LAB_STAGES_ALL);
    p->turns += due;
    return rv != 0 || !due ? rv : lab_point(lab, 0, column_model(p, 0));
}

static int eval_routes(struct pipe *p)
{
    double sum = 0, bits = 0;
    int rv = 0;

    for (uint32_t c = 0; c < p->columns && rv == 0; c++) {
        rv = lab_eval(p->lab, column_model(p, c), &bits);
        sum += bits;
    }
    p->lab->result->bits_per_byte_routes = sum / p->columns;
    return rv;
}

int lab_run_stages(struct lab *lab)
{
    struct pipe *p = calloc(1, sizeof *p);
    int rv = p == NULL ? LOCO_ENOMEM : 0;

    if (rv == 0) {
        p->lab = lab;
        p->stages = lab->opt.stages;
        p->columns = lab->opt.peers / lab->opt.stages;
        rv = pipe_open(p);
    }
    if (rv != 0) {
        rv = errmsg_fail(lab->errmsg, rv, "out of memory for the stages");
    }
    while (rv == 0 && lab_goes_on(lab)) {
        rv = step(p);
        rv = rv != 0 ? rv : synchronise(p);
    }
    rv = rv != 0 ? rv : eval_routes(p);
    if (p != NULL) {
        pipe_close(p);
    }
    free(p);
    return rv;
}
