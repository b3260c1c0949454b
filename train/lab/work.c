/* work.c - opens auditors, and does the work of others again; see work.h.
 *
 * The auditor of the laboratory is a *ghost*: a peer that is in no list, with
 * vectors of its own and the anchor and the data of the maker.
 */
#include "train/lab/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/lab/work_internal.h"
#include "train/sync/moments.h"

#define SCRATCH 11 /* vectors */

static const char *const names[WORK_TOLD] = {
    "repeat", "kernels", "fresh", "self",  "moments", "rough", "exact", "text",
    "half",   "step",    "thin",  "stale", "last",    "tilt",  "lean"};

const char *work_kind_name(int kind)
{
    return kind < WORK_TOLD ? names[kind]
                            : lab_lie_name((enum lab_lie)(kind - WORK_TOLD));
}

/* ---- open and close ----------------------------------------------------- */

static bool wants(const struct lab *lab, uint64_t turn)
{
    const struct work_options *o = lab->opt.work;

    for (size_t i = 0; o != NULL && i < o->n_turns; i++) {
        if (o->turns[i] == turn) {
            return true;
        }
    }
    return false;
}

static int open_other(struct lab *lab, struct lab_work *w)
{
    const struct lab_options *o = &lab->opt;
    int rv = 0;

    if (o->work->reference) {
        backend_cpu_ref(&w->backend);
    } else {
        rv = backend_cpu(&w->backend, o->threads);
    }
    w->has_backend = rv == 0;
    rv = rv != 0 ? rv : backend_set_dtype(&w->backend, o->work->other);
    return rv != 0 ? rv
                   : llama_open(&w->llama, &o->model, &w->backend,
                                o->micro_batch, LLAMA_RECOMPUTE_NOTHING);
}

static int take_vectors(struct lab *lab, struct lab_work *w)
{
    const struct lab_options *o = &lab->opt;
    size_t n = (size_t)lab->n, count = SCRATCH + o->work->liars + 3 * o->peers;
    float *at;

    w->n_blocks = (n + WORK_BLOCK - 1) / WORK_BLOCK;
    w->vectors = calloc(count * n, sizeof(float));
    w->blocks = calloc(w->n_blocks, sizeof *w->blocks);
    w->wire = malloc(codec_get(o->method.wire)->bytes(n));
    if (w->vectors == NULL || w->blocks == NULL || w->wire == NULL) {
        return LOCO_ENOMEM;
    }
    at = w->vectors;
    w->repeat = at;
    w->claim = at += n;
    w->mean = at += n;
    w->last = at += n;
    w->sent = at += n;
    w->theta = at += n;
    w->u = at += n;
    w->v = at += n;
    w->exact = at += n;
    w->end_u = at += n;
    w->end_v = at += n;
    for (uint32_t i = 0; i < o->work->liars; i++) {
        w->told[i] = at += n;
    }
    for (uint32_t i = 0; i < o->peers; i++) {
        w->past[i].u = at += n;
        w->past[i].v = at += n;
        w->past[i].sent = at += n;
    }
    return 0;
}

static int check(const struct lab *lab)
{
    const struct lab_options *o = &lab->opt;
    const struct method *m = &o->method;

    if (m->group != METHOD_ALL || m->gradients || m->fragments > 1 ||
        m->overlap > 0 || o->stages > 1 || o->n_events > 0) {
        return errmsg_invalid(lab->errmsg,
                              "work is audited where all average parameters "
                              "in one piece, in step, and nobody comes or "
                              "goes");
    }
    if (o->work->makers == 0 || o->work->makers >= o->peers ||
        o->work->liars == 0 || o->work->liars > WORK_LIARS_MAX ||
        o->work->liars >= o->peers) {
        return errmsg_invalid(lab->errmsg,
                              "the makers that are audited, and the liars (at "
                              "most %d), are fewer than the peers",
                              WORK_LIARS_MAX);
    }
    return 0;
}

int lab_work_open(struct lab *lab)
{
    const struct lab_options *o = &lab->opt;
    struct lab_work *w;
    int rv;

    if (o->work == NULL) {
        return 0;
    }
    rv = check(lab);
    if (rv != 0) {
        return rv;
    }
    w = lab->work = calloc(1, sizeof *w);
    rv = w == NULL ? LOCO_ENOMEM : take_vectors(lab, w);
    if (rv == 0) {
        llama_part_whole(&o->model, &w->ghost.part);
        engine_init(&w->ghost.e, &o->method, NULL, lab->n, o->peers);
        rv = optimizer_open_part(&w->ghost.optimizer, &o->optimizer, &o->model,
                                 &w->ghost.part);
        w->ghost.has_optimizer = rv == 0;
    }
    rv = rv != 0 ? rv : open_other(lab, w);
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv, "cannot open an auditor: %s",
                                 loco_strerror(rv));
}

void lab_work_close(struct lab *lab)
{
    struct lab_work *w = lab->work;

    if (w == NULL) {
        return;
    }
    if (w->ghost.has_optimizer) {
        optimizer_close(&w->ghost.optimizer);
    }
    llama_close(w->llama);
    if (w->has_backend) {
        backend_close(&w->backend);
    }
    free(w->wire);
    free(w->blocks);
    free(w->vectors);
    free(w);
    lab->work = NULL;
}

/* ---- a round ------------------------------------------------------------ */

void lab_work_begin(struct lab *lab)
{
    struct lab_work *w = lab->work;
    size_t bytes = (size_t)lab->n * sizeof(float);

    if (w == NULL || w->begun || !wants(lab, lab->turns + 1)) {
        return;
    }
    w->begun = true;
    w->tokens = lab->used_tokens;
    for (uint32_t i = 0; i < lab->opt.peers; i++) {
        const struct lab_peer *p = &lab->peers[i];
        struct work_past *past = &w->past[i];

        memcpy(past->u, p->optimizer.u, bytes);
        memcpy(past->v, p->optimizer.v, bytes);
        past->t = p->optimizer.t;
        past->row = p->row;
    }
}

void lab_work_end(struct lab *lab, const float *mean)
{
    struct lab_work *w = lab->work;
    size_t bytes = (size_t)lab->n * sizeof(float);

    if (w == NULL || !wants(lab, lab->turns + 2)) {
        return; /* nobody asks for it in the next round */
    }
    memcpy(w->last, mean, bytes);
    for (uint32_t i = 0; i < lab->opt.peers; i++) {
        memcpy(w->past[i].sent, lab->packed[i], bytes);
    }
}

/* ---- repeating ---------------------------------------------------------- */

/* What all the peers have counted is not the ghost's. */
struct counted {
    uint64_t used, loss_n, tail_n;
    double loss_sum, tail_sum;
};

static struct counted counted(const struct lab *lab)
{
    return (struct counted){lab->used_tokens, lab->loss_n, lab->tail_n,
                            lab->loss_sum, lab->tail_sum};
}

static void count_again(struct lab *lab, const struct counted *c)
{
    lab->used_tokens = c->used;
    lab->loss_n = c->loss_n;
    lab->tail_n = c->tail_n;
    lab->loss_sum = c->loss_sum;
    lab->tail_sum = c->tail_sum;
}

/* A model keeps the kernels that it was opened with. */
static void swap_kernels(struct lab *lab, bool other)
{
    struct lab_work *w = lab->work;
    struct llama *llama = lab->llama;

    lab->llama = w->llama;
    w->llama = llama;
    lab->kernels = other ? &w->backend : &lab->backend;
}

/* The ghost at the beginning of the maker's round. */
static void place(struct lab *lab, const struct work_task *t)
{
    struct lab_peer *g = &lab->work->ghost;
    size_t bytes = (size_t)lab->n * sizeof(float);

    g->number = t->maker;
    g->row = t->row;
    g->e.k = 0;
    g->e.grad = lab->grad;
    g->e.theta = lab->work->theta;
    g->e.phi = lab->peers[t->maker].e.phi;
    memcpy(g->e.theta, g->e.phi, bytes);
    optimizer_reset(&g->optimizer);
    if (t->u != NULL) {
        memcpy(g->optimizer.u, t->u, bytes);
        memcpy(g->optimizer.v, t->v, bytes);
        g->optimizer.t = t->t;
    }
}

/* out (n) = what comes of a task. */
int work_do(struct lab *lab, const struct work_task *t, float *out)
{
    const struct lab_options *o = &lab->opt;
    const struct stream_turn whole = {0};
    const struct counted before = counted(lab);
    struct lab_peer *g = &lab->work->ghost;
    int rv = 0;

    place(lab, t);
    if (t->other) {
        swap_kernels(lab, true);
    }
    for (uint32_t k = 0; k < t->steps && rv == 0; k++) {
        /* The maker's learning rate: peers take their turns in a step. */
        lab->used_tokens = lab->work->tokens + k * lab->tokens_per_step +
                           (uint64_t)t->maker * o->batch * o->seq;
        rv = lab_gradient(lab, g, t->rows);
        lab->used_tokens = lab->work->tokens + k * lab->tokens_per_step +
                           (uint64_t)(t->maker + 1) * o->batch * o->seq;
        rv = rv != 0 ? rv : lab_optimize(lab, g, (uint64_t)t->rows * o->seq);
    }
    if (t->other) {
        swap_kernels(lab, false);
    }
    count_again(lab, &before);
    rv = rv != 0 ? rv : engine_pack(&g->e, 0, &whole, out);
    for (uint64_t i = 0; i < lab->n; i++) {
        out[i] = (float)(t->factor * (double)out[i]);
    }
    return rv;
}

/* ---- kinds of honest work ----------------------------------------------- */

static int through_bf16(struct lab *lab, const float *x, float *out)
{
    const struct codec *bf16 = codec_get(CODEC_BF16);
    int rv = bf16->encode(lab->wire, x, (size_t)lab->n, 1.0F);

    return rv != 0 ? rv : bf16->decode(out, lab->wire, (size_t)lab->n);
}

/* The lease of a peer as an auditor of that kind repeats it. */
static int
honest_task(struct lab *lab, const struct work_reading *r, struct work_task *t)
{
    struct lab_work *w = lab->work;
    uint32_t whose = r->kind == WORK_SELF ? r->auditor : r->maker;
    const struct work_past *past = &w->past[whose];
    const struct optimizer *now = &lab->peers[r->auditor].optimizer;

    *t = (struct work_task){.maker = whose,
                            .row = past->row,
                            .steps = lab->opt.method.period,
                            .rows = lab->opt.batch,
                            .factor = 1};
    t->other = r->kind == WORK_KERNELS || r->kind == WORK_MOMENTS;
    switch (r->kind) {
    case WORK_ROUGH:
        t->u = w->u;
        t->v = w->v;
        t->t = past->t;
        return through_bf16(lab, past->u, w->u) != 0
                   ? LOCO_ENUMERIC
                   : through_bf16(lab, past->v, w->v);
    case WORK_MOMENTS:
    case WORK_EXACT:
        t->u = past->u;
        t->v = past->v;
        t->t = past->t;
        return 0;
    case WORK_FRESH:
        return 0;
    default:
        if (lab->opt.method.moments != METHOD_RESET) {
            t->u = now->u;
            t->v = now->v;
            t->t = now->t;
        }
        return 0;
    }
}

static double cosine_of_vectors(const float *x, const float *y, uint64_t n)
{
    double xx = 0, yy = 0, xy = 0;

    for (uint64_t i = 0; i < n; i++) {
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
        xy += (double)x[i] * (double)y[i];
    }
    return work_cosine(xx, yy, xy);
}

/* The ghost's moments beside the maker's, which has made its round, too. */
static double moments_after(const struct lab *lab, uint32_t maker)
{
    const struct optimizer *a = &lab->work->ghost.optimizer;
    const struct optimizer *b = &lab->peers[maker].optimizer;

    return fmin(cosine_of_vectors(a->u, b->u, lab->n),
                cosine_of_vectors(a->v, b->v, lab->n));
}

/* How far the maker is from both repeats, in its worst block. */
static void read_next(const struct lab *lab, struct work_reading *r)
{
    const struct lab_work *w = lab->work;
    const struct work_options *o = lab->opt.work;
    const struct optimizer *g = &w->ghost.optimizer;
    const struct optimizer *m = &lab->peers[r->maker].optimizer;
    const double eps = lab->opt.optimizer.eps;

    r->next = r->next_once = 0;
    for (uint64_t at = 0; o->next != NULL && at < lab->n; at += WORK_BLOCK) {
        uint64_t n = lab->n - at < WORK_BLOCK ? lab->n - at : WORK_BLOCK;
        const struct moments_part maker = {m->u + at, m->v + at};
        const struct moments_part one = {g->u + at, g->v + at};
        const struct moments_part other = {w->end_u + at, w->end_v + at};
        double agree = moments_apart(&one, &other, n, eps);
        double apart = fmax(moments_apart(&maker, &one, n, eps),
                            moments_apart(&maker, &other, n, eps));

        r->next = fmax(r->next, o->next(apart, agree));
        r->next_once = fmax(r->next_once, o->next(apart, 0));
    }
}

/* The same with the other kernels, and with what it ends. */
static int repeat_on_others(struct lab *lab, const struct work_task *t)
{
    struct lab_work *w = lab->work;
    struct work_task other = *t;
    int rv;

    other.other = true;
    rv = work_do(lab, &other, w->repeat);
    memcpy(w->end_u, w->ghost.optimizer.u, (size_t)lab->n * sizeof(float));
    memcpy(w->end_v, w->ghost.optimizer.v, (size_t)lab->n * sizeof(float));
    return rv;
}

/* The repeat with the maker's moments, and how far other kernels and the
 * rounding of the moments lead. */
static int prepare(struct lab *lab, struct work_reading *r)
{
    struct lab_work *w = lab->work;
    struct work_task t;
    int rv;

    r->kind = WORK_MOMENTS;
    rv = honest_task(lab, r, &t);
    rv = rv != 0 ? rv : work_do(lab, &t, w->exact);
    r->kind = WORK_ROUGH;
    rv = rv != 0 ? rv : honest_task(lab, r, &t);
    rv = rv != 0 ? rv : repeat_on_others(lab, &t);
    rv = rv != 0 ? rv : work_do(lab, &t, w->repeat);
    read_next(lab, r);
    r->steady = work_own_cosine(lab, w->exact, w->repeat);
    r->after = moments_after(lab, r->maker);
    memcpy(w->exact, w->repeat, (size_t)lab->n * sizeof(float));
    return rv != 0 ? rv : work_read_best(lab);
}

/* First what others are read beside; last the repeat that lies are. */
static int honest(struct lab *lab, struct work_reading *r)
{
    static const enum work_kind kinds[] = {
        WORK_SELF,  WORK_ROUGH,   WORK_EXACT, WORK_MOMENTS,
        WORK_FRESH, WORK_KERNELS, WORK_REPEAT};
    int rv = prepare(lab, r);

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && rv == 0; i++) {
        struct work_task t;

        r->kind = kinds[i];
        rv = honest_task(lab, r, &t);
        rv = rv != 0 ? rv : work_do(lab, &t, lab->work->repeat);
        rv = rv != 0 ? rv : work_read(lab, lab->packed[t.maker], r);
    }
    return rv;
}

int lab_work_measure(struct lab *lab)
{
    struct lab_work *w = lab->work;
    int rv = 0;

    if (w == NULL || !w->begun) {
        return 0;
    }
    w->begun = false;
    for (uint32_t k = 1; k <= lab->opt.work->makers && rv == 0; k++) {
        struct work_reading r = {.turn = lab->turns + 1, .maker = k};

        /* Never the first peer, whose work "copy" copies. */
        r.auditor = k + 1 < lab->opt.peers ? k + 1 : 1;
        work_mean_of_others(lab, r.maker, r.auditor);
        rv = honest(lab, &r);
        rv = rv != 0 ? rv : work_read_lies(lab, &r);
    }
    return rv;
}
