/* outer.c - see replica/outer.h. */
#include "train/replica/outer.h"

#include <string.h>

#include "proto/base/err.h"
#include "train/replica/carry.h"
#include "train/replica/device.h"
#include "train/replica/outer_pass.h"

/* Elements at a time: a multiple of every codec's block; 16 MB, which takes
 * a third of a millisecond to copy out. */
#define PIECE ((uint64_t)1 << 22)

static const struct plugin_table *table(const struct replica *r)
{
    return device_table(r->backend.device);
}

static struct gpu *gpu(const struct replica *r)
{
    return device_gpu(r->backend.device);
}

/* ---- memory ------------------------------------------------------------ */

bool replica_outer_serves(const struct method *m)
{
    const unsigned served =
        ENGINE_PHI | ENGINE_M |
        (m->group == METHOD_QUORUM ? ENGINE_SUM | ENGINE_BASE : 0U);

    return !m->gradients && (m->group == METHOD_ALL || outer_passes(m)) &&
           m->period > 0 && m->period_u == 0 && m->period_v == 0 &&
           (engine_needs(m) & ~served) == 0;
}

static uint64_t piece_of(uint64_t n)
{
    return n < PIECE ? n : PIECE;
}

static bool keeps_m(const struct method *m)
{
    return method_has_momentum(m) && !outer_passes(m);
}

size_t replica_outer_bytes(const struct replica_options *opt, uint64_t n)
{
    const struct method *m = &opt->method;
    size_t vectors = 1 + (size_t)keeps_m(m);
    size_t pieces = 2 + (outer_passes(m) ? outer_pass_pieces(m) : 0);
    size_t wires = 2 + (outer_passes(m) ? outer_pass_wires(m) : 0);

    if (m->trainers > 0) {
        return (size_t)n * sizeof(float);
    }
    if (!replica_outer_serves(m)) {
        return 0;
    }
    return (size_t)(vectors * n + pieces * piece_of(n)) * sizeof(float) +
           wires * opt->codec->bytes((size_t)piece_of(n + opt->codec->block));
}

/* Both pieces of what every method has. */
static bool take_pieces(struct replica *r)
{
    const struct backend *be = &r->backend;
    struct replica_outer *o = &r->outer;
    size_t piece = (size_t)piece_of(r->n) * sizeof(float);
    size_t wire = r->opt.codec->bytes((size_t)piece_of(r->n_wire));
    bool all = true;

    for (int i = 0; i < 2; i++) {
        o->wire[i] = be->take(be, wire);
        o->piece[i] = be->take(be, piece);
        (void)table(r)->pin(gpu(r), (void **)&o->pinned[i], piece);
        all = all && o->wire[i] != NULL && o->piece[i] != NULL &&
              o->pinned[i] != NULL;
    }
    return all &&
           (!outer_passes(&r->opt.method) || outer_pass_take(r, piece, wire));
}

void replica_outer_open(struct replica *r)
{
    const struct backend *be = &r->backend;
    const bool with_m = keeps_m(&r->opt.method);
    struct replica_outer *o = &r->outer;
    size_t bytes = r->n * sizeof(float);
    bool all;

    memset(o, 0, sizeof *o);
    if (be->device == NULL || !r->outer_fits) {
        return;
    }
    if (r->opt.method.trainers > 0) {
        o->half = be->take(be, bytes);
    }
    if (!replica_outer_serves(&r->opt.method)) {
        return;
    }
    o->phi = be->take(be, bytes);
    o->m = with_m ? be->take(be, bytes) : NULL;
    all = o->phi != NULL && (!with_m || o->m != NULL);
    if (take_pieces(r) && all) {
        o->on = true;
        o->most = PIECE;
    } else {
        replica_outer_close(r);
    }
}

void replica_outer_close(struct replica *r)
{
    const struct backend *be = &r->backend;
    struct replica_outer *o = &r->outer;

    if (be->device != NULL) {
        be->give(be, o->phi);
        be->give(be, o->m);
        be->give(be, o->half);
        be->give(be, o->eval);
        outer_pass_give(r);
        for (int i = 0; i < 2; i++) {
            be->give(be, o->wire[i]);
            be->give(be, o->piece[i]);
            table(r)->unpin(gpu(r), o->pinned[i]);
        }
    }
    memset(o, 0, sizeof *o);
}

void replica_outer_forget(struct replica *r)
{
    r->outer.current = r->outer.eval_current = false;
}

int replica_outer_begin(struct replica *r)
{
    const struct backend *be = &r->backend;
    const float *base = r->engine.base;
    size_t bytes = r->n * sizeof(float);
    int rv;

    if (!r->outer.current) {
        be->put(be, r->outer.phi, base != NULL ? base : r->phi, bytes);
        if (r->outer.m != NULL) {
            be->put(be, r->outer.m, r->m, bytes);
        }
    }
    rv = be->finish(be);
    r->outer.current = rv == 0;
    return rv;
}

/* ---- the elements of a part -------------------------------------------- */

/* A run of them: from `offset` of the vectors, from `at` of the part. */
struct run {
    uint64_t offset, at, n;
};

struct walk {
    const struct engine_span *spans;
    uint32_t left;     /* spans */
    uint64_t done;     /* of the first one */
    uint64_t at, most; /* elements of a run */
};

static struct walk
walk_of(const struct replica *r, const struct layout_part *p, uint64_t most)
{
    const struct engine_fragments *f = &r->layout.fragments;

    if (f->spans == NULL || r->opt.method.fragments == 1) {
        return (struct walk){NULL, 1, 0, 0, most};
    }
    return (struct walk){f->spans + f->first[p->turn.fragment],
                         f->first[p->turn.fragment + 1] -
                             f->first[p->turn.fragment],
                         0, 0, most};
}

static bool next_run(const struct replica *r, struct walk *w, struct run *run)
{
    struct engine_span span;
    uint64_t n;

    if (w->left == 0) {
        return false;
    }
    span = w->spans == NULL ? (struct engine_span){0, r->n} : *w->spans;
    n = span.len - w->done < w->most ? span.len - w->done : w->most;
    *run = (struct run){span.offset + w->done, w->at, n};
    w->at += n;
    w->done += n;
    if (w->done == span.len) {
        w->done = 0;
        w->left--;
        w->spans = w->spans == NULL ? NULL : w->spans + 1;
    }
    return true;
}

/* ---- out of the GPU ---------------------------------------------------- */

int replica_outer_pack(struct replica *r, const struct layout_part *p)
{
    struct walk w = walk_of(r, p, r->outer.most);
    struct carry c = {0};
    struct run run;
    int rv = replica_outer_begin(r), bad = 0;

    for (int i = 0; rv == 0 && next_run(r, &w, &run); i++) {
        /* Of the copy before the last, which is done. */
        float *piece = r->outer.piece[i % 2];
        const struct shift_op op = {.theta = r->theta + run.offset,
                                    .phi_old = r->outer.phi + run.offset,
                                    .out = piece,
                                    .n = (int64_t)run.n};

        rv = table(r)->shift(gpu(r), &op);
        if (rv == LOCO_ENUMERIC) {
            bad = rv;
            rv = 0;
        }
        rv = rv != 0 ? rv
                     : carry_out(r, &c, piece, r->contribution + p->at + run.at,
                                 run.n);
    }
    rv = rv != 0 ? rv : carry_out(r, &c, NULL, NULL, 0);
    return rv != 0 ? rv : bad;
}

/* ---- into the GPU ------------------------------------------------------ */

/* Piece i of the wire bytes to the GPU, if there is one; *n: its elements. What
 * the GPU knows travels beside what it decodes meanwhile. */
static int send_piece(struct replica *r,
                      const struct layout_part *p,
                      const uint8_t *wire,
                      uint64_t i,
                      uint64_t *n)
{
    const struct codec *codec = r->opt.codec;
    uint64_t at = i * r->outer.most;
    uint64_t left = at < p->room ? p->room - at : 0;
    const uint8_t *from = wire + codec->bytes(at);

    *n = left < r->outer.most ? left : r->outer.most;
    return *n == 0 ? 0
                   : carry_in(r, r->outer.wire[i % 2], from, codec->bytes(*n));
}

/* The mean into grad, which is spent between two steps; the padding of the
 * part is looked at, too. */
static int
take_mean(struct replica *r, const struct layout_part *p, const uint8_t *wire)
{
    uint64_t n, next = 0;
    int rv = send_piece(r, p, wire, 0, &n);

    for (uint64_t i = 0; n > 0 && rv == 0; i++) {
        const struct wire_op op = {.wire = r->opt.codec->id,
                                   .bytes = r->outer.wire[i % 2],
                                   .x = r->grad + i * r->outer.most,
                                   .n = (int64_t)n};

        rv = carry_done(r);
        rv = rv != 0 ? rv : send_piece(r, p, wire, i + 1, &next);
        rv = rv != 0 ? rv : table(r)->decode(gpu(r), &op);
        n = next;
    }
    if (rv != 0) { /* the piece that nobody wants is there before another */
        (void)carry_done(r);
    }
    return rv;
}

/* The rule on every run: phi_out and m_out are the caller's. */
static struct outer_op rule_of(const struct replica *r, const struct run *run)
{
    const struct rule *rule = &r->opt.method.rule;

    return (struct outer_op){
        .heavy_ball = rule->form == RULE_HEAVY_BALL,
        .lr = rule->lr,
        .mu = rule->mu,
        .gamma = rule->gamma,
        .phi = r->outer.phi + run->offset,
        .m = r->m == NULL ? NULL : r->outer.m + run->offset,
        .g = r->grad + run->at,
        .n = (int64_t)run->n,
    };
}

static int try_rule(struct replica *r, const struct layout_part *p)
{
    struct walk w = walk_of(r, p, r->n);
    struct run run;
    int rv = 0;

    while (rv == 0 && next_run(r, &w, &run)) {
        struct outer_op op = rule_of(r, &run);

        rv = table(r)->outer(gpu(r), &op);
    }
    return rv;
}

/* theta keeps its way from the old anchor: the new one is made in grad. */
static int rebase_run(struct replica *r, const struct run *run)
{
    struct outer_op op = rule_of(r, run);
    struct shift_op shift = {.phi_new = r->grad + run->at,
                             .theta = r->theta + run->offset,
                             .phi_old = r->outer.phi + run->offset,
                             .out = r->theta + run->offset,
                             .n = (int64_t)run->n};
    int rv;

    op.phi_out = r->grad + run->at;
    op.m_out = r->m == NULL ? NULL : r->outer.m + run->offset;
    rv = table(r)->outer(gpu(r), &op);
    rv = rv != 0 ? rv : table(r)->shift(gpu(r), &shift);
    return rv != 0 ? rv
                   : table(r)->copy(gpu(r), r->outer.phi + run->offset,
                                    r->grad + run->at, run->n * sizeof(float));
}

/* phi and m move; theta is phi, or on the way to it. */
static int take_run(struct replica *r, const struct run *run)
{
    const struct method *m = &r->opt.method;
    float keep = m->take == METHOD_MIX ? m->mix : 0.0F;
    struct outer_op op = rule_of(r, run);
    struct mix_op mix = {.theta = r->theta + run->offset,
                         .phi = r->outer.phi + run->offset,
                         .keep = keep,
                         .n = (int64_t)run->n};
    int rv;

    op.phi_out = r->outer.phi + run->offset;
    op.m_out = r->m == NULL ? NULL : r->outer.m + run->offset;
    rv = table(r)->outer(gpu(r), &op);
    if (rv != 0 || keep == 1.0F) {
        return rv;
    }
    return keep != 0.0F ? table(r)->mix(gpu(r), &mix)
                        : table(r)->copy(gpu(r), mix.theta, mix.phi,
                                         run->n * sizeof(float));
}

static int
move(struct replica *r, const struct layout_part *p, bool contributed)
{
    struct walk w = walk_of(r, p, r->n);
    struct run run;
    int rv = 0;

    while (rv == 0 && next_run(r, &w, &run)) {
        rv = contributed ? take_run(r, &run) : rebase_run(r, &run);
    }
    return rv;
}

/* phi and m of the part to where the engine makes new ones. */
static int bring_back(struct replica *r, const struct layout_part *p)
{
    struct walk w = walk_of(r, p, r->outer.most);
    struct carry c = {0};
    struct run run;
    int rv = 0;

    while (rv == 0 && next_run(r, &w, &run)) {
        rv = carry_out(r, &c, r->outer.phi + run.offset,
                       r->engine.next_phi + run.at, run.n);
        if (rv == 0 && r->m != NULL) {
            rv = carry_out(r, &c, r->outer.m + run.offset,
                           r->engine.next_m + run.at, run.n);
        }
    }
    return rv != 0 ? rv : carry_out(r, &c, NULL, NULL, 0);
}

/* What has come is the state: all of it changes places with what was, a
 * fragment is copied. */
void replica_outer_adopt(struct replica *r, const struct layout_part *p)
{
    struct walk w;
    struct run run;

    r->stale = true;
    if (p == NULL || p->len == r->n) {
        engine_exchange(&r->engine);
        replica_exchanged(r);
        return;
    }
    w = walk_of(r, p, r->n);
    while (next_run(r, &w, &run)) {
        size_t bytes = run.n * sizeof(float);

        memcpy(r->phi + run.offset, r->engine.next_phi + run.at, bytes);
        if (r->m != NULL) {
            memcpy(r->m + run.offset, r->engine.next_m + run.at, bytes);
        }
    }
}

static int commit_mean(struct replica *r,
                       const struct layout_part *p,
                       const struct replica_commit *c)
{
    int rv = replica_outer_begin(r);

    rv = rv != 0 ? rv : take_mean(r, p, c->wire);
    rv = rv != 0 ? rv : try_rule(r, p);
    if (rv != 0) {
        return rv;
    }
    rv = move(r, p, c->share > 0.0);
    rv = rv != 0 ? rv : bring_back(r, p);
    if (rv != 0) { /* theta there is not what phi here says */
        r->outer.current = false;
        return rv == LOCO_ETIMEOUT ? rv : LOCO_ECUDA;
    }
    replica_outer_adopt(r, p);
    return 0;
}

int replica_outer_commit(struct replica *r,
                         const struct layout_part *p,
                         const struct replica_commit *c)
{
    int rv = r->opt.method.group == METHOD_QUORUM ? replica_outer_quorum(r, c)
                                                  : commit_mean(r, p, c);

    if (rv == 0 && c->share > 0.0) {
        r->engine.share = c->share;
        r->engine.moments_reset = r->opt.method.moments == METHOD_RESET;
    }
    return rv;
}

/* ---- the batch test ------------------------------------------------------ */

bool replica_outer_keep_half(struct replica *r)
{
    if (r->outer.half != NULL) {
        (void)table(r)->copy(gpu(r), r->outer.half, r->grad,
                             r->n * sizeof(float));
    }
    return r->outer.half != NULL;
}

int replica_outer_halves(struct replica *r, double *norms2)
{
    const struct halves_op op = {.first = r->outer.half,
                                 .second = r->grad,
                                 .norms2 = norms2,
                                 .n = (int64_t)r->n};

    return op.first == NULL ? LOCO_ENOENT : table(r)->halves(gpu(r), &op);
}
