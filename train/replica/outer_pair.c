/* outer_pair.c - see replica/outer_pair.h. */
#include "train/replica/outer_pair.h"

#include "proto/base/err.h"
#include "train/replica/carry.h"
#include "train/replica/outer.h"

static const struct plugin_table *table(const struct replica *r)
{
    return device_table(r->backend.device);
}

static struct gpu *gpu(const struct replica *r)
{
    return device_gpu(r->backend.device);
}

/* ---- memory ------------------------------------------------------------ */

bool replica_outer_pair_take(struct replica *r, size_t piece, size_t wire)
{
    const struct backend *be = &r->backend;
    struct replica_outer *o = &r->outer;
    bool all;

    o->pair.own = be->take(be, piece);
    o->pair.encoded = be->take(be, wire);
    all = o->pair.own != NULL && o->pair.encoded != NULL;
    for (int i = 0; i < 2; i++) {
        o->pair.m[i] = be->take(be, piece);
        o->pair.anchor[i] = be->take(be, wire);
        all = all && o->pair.m[i] != NULL && o->pair.anchor[i] != NULL;
    }
    return all;
}

void replica_outer_pair_give(struct replica *r)
{
    const struct backend *be = &r->backend;
    struct replica_outer *o = &r->outer;

    be->give(be, o->pair.own);
    be->give(be, o->pair.encoded);
    for (int i = 0; i < 2; i++) {
        be->give(be, o->pair.m[i]);
        be->give(be, o->pair.anchor[i]);
    }
}

/* ---- a piece ------------------------------------------------------------ */

/* Elements [at, at + n) of all vectors, of which number i of the two rooms has
 * those that come in. */
struct piece {
    uint64_t at, n;
    int i;
};

static struct piece piece_of(const struct replica *r, uint64_t at)
{
    uint64_t left = r->n - at, most = r->outer.most;

    return (struct piece){at, left < most ? left : most, (int)(at / most % 2)};
}

/* All of it that this process has; wire NULL: alone. */
static int
send_piece(struct replica *r, const struct piece *p, const uint8_t *wire)
{
    const struct codec *codec = r->opt.codec;
    const struct replica_outer *o = &r->outer;
    size_t bytes = p->n * sizeof(float), coded = codec->bytes(p->n);
    int rv = carry_in(r, o->piece[p->i], r->contribution + p->at, bytes);

    rv = rv != 0 ? rv : carry_in(r, o->pair.m[p->i], r->m + p->at, bytes);
    if (rv != 0 || wire == NULL) {
        return rv;
    }
    wire += codec->bytes(p->at);
    rv = carry_in(r, o->pair.anchor[p->i], wire, coded);
    return rv != 0
               ? rv
               : carry_in(r, o->wire[p->i], wire + codec->bytes(r->n), coded);
}

/* own = what the wire makes of x, theirs = what came. */
static int decode_both(struct replica *r,
                       const struct piece *p,
                       const float *x,
                       uint8_t *came,
                       float *theirs)
{
    struct wire_op op = {.wire = r->opt.codec->id,
                         .bytes = r->outer.pair.encoded,
                         .phi = x,
                         .scale = 1.0F,
                         .n = (int64_t)p->n};
    int rv = table(r)->encode(gpu(r), &op);

    op.x = r->outer.pair.own;
    rv = rv != 0 ? rv : table(r)->decode(gpu(r), &op);
    op.bytes = came;
    op.x = theirs;
    return rv != 0 ? rv : table(r)->decode(gpu(r), &op);
}

/* The contribution's room = the mean displacement, grad = the mean anchor. */
static int take_means(struct replica *r, const struct piece *p, bool first)
{
    struct replica_outer *o = &r->outer;
    float *g = o->piece[p->i], *theirs = r->grad + p->at, *own = o->pair.own;
    const float *phi = o->phi + p->at;
    const struct pair_op step = {.low = first ? own : theirs,
                                 .high = first ? theirs : own,
                                 .out = g,
                                 .n = (int64_t)p->n};
    const struct pair_op anchor = {.phi = phi,
                                   .low = own,
                                   .high = theirs,
                                   .out = theirs,
                                   .n = (int64_t)p->n};
    int rv = decode_both(r, p, g, o->wire[p->i], theirs);

    rv = rv != 0 ? rv : table(r)->pair(gpu(r), &step);
    rv = rv != 0 ? rv : decode_both(r, p, phi, o->pair.anchor[p->i], theirs);
    return rv != 0 ? rv : table(r)->pair(gpu(r), &anchor);
}

/* grad = the new anchor, and the momentum's room the new one. */
static int step_piece(struct replica *r, const struct piece *p, bool alone)
{
    const struct rule *rule = &r->opt.method.rule;
    float *m = r->outer.pair.m[p->i], *made = r->grad + p->at;
    const struct outer_op op = {.heavy_ball = rule->form == RULE_HEAVY_BALL,
                                .lr = rule->lr,
                                .mu = rule->mu,
                                .gamma = rule->gamma,
                                .phi = r->outer.phi + p->at,
                                .m = m,
                                .g = r->outer.piece[p->i],
                                .mean_phi = alone ? NULL : made,
                                .phi_out = made,
                                .m_out = m,
                                .n = (int64_t)p->n};

    return table(r)->outer(gpu(r), &op);
}

/* ---- all of them -------------------------------------------------------- */

/* The new anchor in grad; that and the new momentum where the engine makes
 * them. */
static int make(struct replica *r, const uint8_t *wire, bool first)
{
    const struct engine *e = &r->engine;
    struct carry c = {0};
    struct piece p = piece_of(r, 0), next;
    int rv = send_piece(r, &p, wire);

    for (; p.n > 0 && rv == 0; p = next) {
        next = piece_of(r, p.at + p.n);
        rv = carry_done(r);
        rv = rv != 0 || next.n == 0 ? rv : send_piece(r, &next, wire);
        rv = rv != 0 || wire == NULL ? rv : take_means(r, &p, first);
        rv = rv != 0 ? rv : step_piece(r, &p, wire == NULL);
        rv = rv != 0
                 ? rv
                 : carry_out(r, &c, r->grad + p.at, e->next_phi + p.at, p.n);
        rv = rv != 0 ? rv
                     : carry_out(r, &c, r->outer.pair.m[p.i], e->next_m + p.at,
                                 p.n);
    }
    if (rv != 0) { /* the piece that nobody wants is there before another */
        (void)carry_done(r);
        return rv;
    }
    return carry_out(r, &c, NULL, NULL, 0);
}

int replica_outer_pair(struct replica *r, const uint8_t *wire, bool first)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);
    int rv = replica_outer_begin(r);

    rv = rv != 0 ? rv : make(r, wire, first);
    if (rv != 0) {
        return rv;
    }
    rv = table(r)->copy(gpu(r), r->outer.phi, r->grad, bytes);
    rv = rv != 0 ? rv : table(r)->copy(gpu(r), r->theta, r->grad, bytes);
    rv = rv != 0 ? rv : be->finish(be);
    if (rv != 0) { /* phi there is not what it is here */
        r->outer.current = false;
        return rv == LOCO_ETIMEOUT ? rv : LOCO_ECUDA;
    }
    replica_outer_adopt(r, NULL);
    return 0;
}
