/* outer_pass.c - see replica/outer_pass.h. */
#include "train/replica/outer_pass.h"

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

static bool is_pair(const struct method *m)
{
    return m->group == METHOD_PAIR;
}

bool outer_passes(const struct method *m)
{
    return is_pair(m) || m->group == METHOD_QUORUM;
}

size_t outer_pass_pieces(const struct method *m)
{
    return 1 + 2 * ((size_t)method_has_momentum(m) + (size_t)m->delayed);
}

size_t outer_pass_wires(const struct method *m)
{
    return is_pair(m) ? 3 : 0;
}

bool outer_pass_take(struct replica *r, size_t piece, size_t wire)
{
    const struct backend *be = &r->backend;
    const struct method *m = &r->opt.method;
    struct replica_passing *o = &r->outer.passing;
    bool all;

    o->own = be->take(be, piece);
    o->encoded = is_pair(m) ? be->take(be, wire) : NULL;
    all = o->own != NULL && (!is_pair(m) || o->encoded != NULL);
    for (int i = 0; i < 2; i++) {
        o->m[i] = r->m == NULL ? NULL : be->take(be, piece);
        o->sum[i] = m->delayed ? be->take(be, piece) : NULL;
        o->anchor[i] = is_pair(m) ? be->take(be, wire) : NULL;
        all = all && (r->m == NULL || o->m[i] != NULL) &&
              (!m->delayed || o->sum[i] != NULL) &&
              (!is_pair(m) || o->anchor[i] != NULL);
    }
    return all;
}

void outer_pass_give(struct replica *r)
{
    const struct backend *be = &r->backend;
    struct replica_passing *o = &r->outer.passing;

    be->give(be, o->own);
    be->give(be, o->encoded);
    for (int i = 0; i < 2; i++) {
        be->give(be, o->m[i]);
        be->give(be, o->sum[i]);
        be->give(be, o->anchor[i]);
    }
}

/* ---- all pieces --------------------------------------------------------- */

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

/* A step: its commit as it comes, and what is done with each piece: `send`
 * sends what this process has of it, `make` makes grad = the new anchor, and
 * the new m and sum in their rooms. */
struct pass {
    const uint8_t *wire; /* NULL: alone */
    bool first;          /* pair: the own id is the lower one */
    uint32_t arrivals;   /* quorum */
    int (*send)(struct replica *, const struct pass *, const struct piece *);
    int (*make)(struct replica *, const struct pass *, const struct piece *);
};

/* The piece that was made, to where the engine makes new ones; a sum has no
 * such place, but the copy of theta is not read meanwhile. */
static int bring_back(struct replica *r, struct carry *c, const struct piece *p)
{
    const struct engine *e = &r->engine;
    const struct replica_passing *o = &r->outer.passing;
    int rv = carry_out(r, c, r->grad + p->at, e->next_phi + p->at, p->n);

    if (rv == 0 && o->m[p->i] != NULL) {
        rv = carry_out(r, c, o->m[p->i], e->next_m + p->at, p->n);
    }
    if (rv == 0 && o->sum[p->i] != NULL) {
        r->stale = true;
        rv = carry_out(r, c, o->sum[p->i], e->theta + p->at, p->n);
    }
    return rv;
}

static int pass_all(struct replica *r, const struct pass *pass)
{
    struct carry c = {0};
    struct piece p = piece_of(r, 0), next;
    int rv = replica_outer_begin(r);

    rv = rv != 0 ? rv : pass->send(r, pass, &p);
    for (; p.n > 0 && rv == 0; p = next) {
        next = piece_of(r, p.at + p.n);
        rv = carry_done(r);
        rv = rv != 0 || next.n == 0 ? rv : pass->send(r, pass, &next);
        rv = rv != 0 ? rv : pass->make(r, pass, &p);
        rv = rv != 0 ? rv : bring_back(r, &c, &p);
    }
    if (rv != 0) { /* the piece that nobody wants is there before another */
        (void)carry_done(r);
        return rv;
    }
    return carry_out(r, &c, NULL, NULL, 0);
}

/* theta, and what the GPU keeps, = the anchor that was made in grad. */
static int take_made(struct replica *r)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);
    int rv = table(r)->copy(gpu(r), r->outer.phi, r->grad, bytes);

    rv = rv != 0 ? rv : table(r)->copy(gpu(r), r->theta, r->grad, bytes);
    return rv != 0 ? rv : be->finish(be);
}

/* On a failure what the GPU keeps is not what it is here. */
static int lost(struct replica *r, int rv)
{
    r->outer.current = rv == 0;
    return rv == 0 || rv == LOCO_ETIMEOUT ? rv : LOCO_ECUDA;
}

/* The anchor by the rule from `phi`, with the mean g, into grad. */
static int apply_rule(struct replica *r,
                      const struct piece *p,
                      const float *phi,
                      const float *g,
                      const float *mean_phi)
{
    const struct rule *rule = &r->opt.method.rule;
    float *m = r->outer.passing.m[p->i];
    const struct outer_op op = {.heavy_ball = rule->form == RULE_HEAVY_BALL,
                                .lr = rule->lr,
                                .mu = rule->mu,
                                .gamma = rule->gamma,
                                .phi = phi,
                                .m = m,
                                .g = g,
                                .mean_phi = mean_phi,
                                .phi_out = r->grad + p->at,
                                .m_out = m,
                                .n = (int64_t)p->n};

    return table(r)->outer(gpu(r), &op);
}

/* ---- a pair ------------------------------------------------------------- */

static int
send_pair(struct replica *r, const struct pass *pass, const struct piece *p)
{
    const struct codec *codec = r->opt.codec;
    const struct replica_outer *o = &r->outer;
    size_t bytes = p->n * sizeof(float), coded = codec->bytes(p->n);
    const uint8_t *anchor;
    int rv = carry_in(r, o->piece[p->i], r->contribution + p->at, bytes);

    rv = rv != 0 ? rv : carry_in(r, o->passing.m[p->i], r->m + p->at, bytes);
    if (rv != 0 || pass->wire == NULL) {
        return rv;
    }
    anchor = pass->wire + codec->bytes(p->at);
    rv = carry_in(r, o->passing.anchor[p->i], anchor, coded);
    return rv != 0
               ? rv
               : carry_in(r, o->wire[p->i], anchor + codec->bytes(r->n), coded);
}

/* own = what the wire makes of x, theirs = what came. */
static int decode_both(struct replica *r,
                       const struct piece *p,
                       const float *x,
                       uint8_t *came,
                       float *theirs)
{
    struct wire_op op = {.wire = r->opt.codec->id,
                         .bytes = r->outer.passing.encoded,
                         .phi = x,
                         .scale = 1.0F,
                         .n = (int64_t)p->n};
    int rv = table(r)->encode(gpu(r), &op);

    op.x = r->outer.passing.own;
    rv = rv != 0 ? rv : table(r)->decode(gpu(r), &op);
    op.bytes = came;
    op.x = theirs;
    return rv != 0 ? rv : table(r)->decode(gpu(r), &op);
}

/* The contribution's room = the mean displacement, grad = the mean anchor. */
static int take_means(struct replica *r, const struct piece *p, bool first)
{
    struct replica_outer *o = &r->outer;
    float *g = o->piece[p->i], *theirs = r->grad + p->at, *own = o->passing.own;
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
    rv = rv != 0 ? rv : decode_both(r, p, phi, o->passing.anchor[p->i], theirs);
    return rv != 0 ? rv : table(r)->pair(gpu(r), &anchor);
}

static int
make_pair(struct replica *r, const struct pass *pass, const struct piece *p)
{
    const bool alone = pass->wire == NULL;
    int rv = alone ? 0 : take_means(r, p, pass->first);

    return rv != 0
               ? rv
               : apply_rule(r, p, r->outer.phi + p->at, r->outer.piece[p->i],
                            alone ? NULL : r->grad + p->at);
}

int replica_outer_pair(struct replica *r, const uint8_t *wire, bool first)
{
    const struct pass pass = {
        .wire = wire, .first = first, .send = send_pair, .make = make_pair};
    int rv = pass_all(r, &pass);

    rv = rv != 0 ? rv : lost(r, take_made(r));
    if (rv == 0) {
        replica_outer_adopt(r, NULL);
    }
    return rv;
}

/* ---- a quorum ----------------------------------------------------------- */

static int
send_quorum(struct replica *r, const struct pass *pass, const struct piece *p)
{
    const struct codec *codec = r->opt.codec;
    const struct replica_outer *o = &r->outer;
    size_t bytes = p->n * sizeof(float);
    int rv = carry_in(r, o->wire[p->i], pass->wire + codec->bytes(p->at),
                      codec->bytes(p->n));

    rv = rv != 0 ? rv : carry_in(r, o->piece[p->i], r->phi + p->at, bytes);
    if (rv == 0 && o->passing.m[p->i] != NULL) {
        rv = carry_in(r, o->passing.m[p->i], r->m + p->at, bytes);
    }
    if (rv == 0 && o->passing.sum[p->i] != NULL) {
        rv = carry_in(r, o->passing.sum[p->i], r->engine.sum + p->at, bytes);
    }
    return rv;
}

static int delay(struct replica *r,
                 const struct delayed_part *part,
                 const struct piece *p,
                 const float *phi)
{
    const struct replica_passing *o = &r->outer.passing;
    const struct delayed_op op = {.k = part->k,
                                  .size = part->size,
                                  .lr = part->lr,
                                  .mu = part->mu,
                                  .early = part->early,
                                  .late = part->late,
                                  .flush = part->flush,
                                  .g = o->own,
                                  .phi = phi,
                                  .phi_out = r->grad + p->at,
                                  .m = o->m[p->i],
                                  .sum = o->sum[p->i],
                                  .n = (int64_t)p->n};

    return table(r)->delayed(gpu(r), &op);
}

/* q arrivals from `phi`, each by the rule or, cut where cycles end, as delayed
 * Nesterov takes them. */
static int
arrive(struct replica *r, const struct piece *p, const float *phi, uint32_t q)
{
    const struct method *m = &r->opt.method;
    const struct delayed rule = {m->rule.lr, m->rule.mu, m->delayed_c};
    struct delayed_state counts = r->engine.delayed;
    int rv = 0;

    for (; q > 0 && rv == 0; phi = r->grad + p->at) {
        if (m->delayed) {
            struct delayed_part part = delayed_next(&rule, &counts, &q);

            rv = delay(r, &part, p, phi);
        } else {
            rv = apply_rule(r, p, phi, r->outer.passing.own, NULL);
            q--;
        }
    }
    return rv;
}

static int
make_quorum(struct replica *r, const struct pass *pass, const struct piece *p)
{
    const struct wire_op op = {.wire = r->opt.codec->id,
                               .bytes = r->outer.wire[p->i],
                               .x = r->outer.passing.own,
                               .n = (int64_t)p->n};
    int rv = table(r)->decode(gpu(r), &op);

    return rv != 0 ? rv : arrive(r, p, r->outer.piece[p->i], pass->arrivals);
}

/* The base of the next task, which is needed here when the GPU's is not there
 * any more. */
static int bring_base(struct replica *r)
{
    struct carry c = {0};
    struct piece p = piece_of(r, 0);
    int rv = 0;

    for (; p.n > 0 && rv == 0; p = piece_of(r, p.at + p.n)) {
        rv = carry_out(r, &c, r->outer.phi + p.at, r->engine.base + p.at, p.n);
    }
    return rv != 0 ? rv : carry_out(r, &c, NULL, NULL, 0);
}

int replica_outer_quorum(struct replica *r, const struct replica_commit *c)
{
    const struct pass pass = {.wire = c->wire,
                              .arrivals = c->arrivals > 0 ? c->arrivals : 1,
                              .send = send_quorum,
                              .make = make_quorum};
    struct engine *e = &r->engine;
    int rv = pass_all(r, &pass);

    if (rv == 0 && c->share > 0.0) {
        rv = take_made(r);
        rv = lost(r, rv != 0 ? rv : bring_base(r));
    }
    if (rv != 0) {
        return rv;
    }
    if (e->sum != NULL) {
        float *made = e->theta;

        e->theta = e->sum;
        e->sum = made;
    }
    replica_outer_adopt(r, NULL);
    delayed_count(&e->delayed, pass.arrivals);
    return 0;
}
