/* engine.c - see engine.h. */
#include "train/sync/engine.h"

#include <string.h>

#include "train/sync/mix.h"
#include "train/sync/slices.h"

unsigned engine_needs(const struct method *m)
{
    unsigned bits = 0;

    if (m->group == METHOD_OWNERS) { /* who owns a slice has the rest of it */
        return ENGINE_BASE;
    }
    if (m->period > 0) {
        bits |= ENGINE_PHI;
    }
    if (method_has_momentum(m)) {
        bits |= ENGINE_M;
    }
    if (m->delayed) {
        bits |= ENGINE_SUM;
    }
    if (m->group == METHOD_QUORUM) {
        bits |= ENGINE_BASE;
    }
    if (m->eager || (m->overlap > 0 && m->take == METHOD_REBASE)) {
        bits |= ENGINE_SENT;
    }
    if (m->eager) {
        bits |= ENGINE_OWN;
    }
    if (m->eager && method_has_momentum(m)) {
        bits |= ENGINE_OWN_M;
    }
    return bits;
}

size_t engine_count(unsigned needs)
{
    size_t n = 0;

    for (; needs != 0; needs &= needs - 1) {
        n++;
    }
    return n;
}

void engine_slots(struct engine *e, float **slots[ENGINE_VECTORS])
{
    float **all[ENGINE_VECTORS] = {&e->phi,  &e->m,   &e->sum,  &e->base,
                                   &e->sent, &e->own, &e->own_m};

    memcpy(slots, all, sizeof all);
}

void engine_init(struct engine *e,
                 const struct method *m,
                 const struct engine_fragments *fragments,
                 uint64_t n,
                 uint32_t members)
{
    *e = (struct engine){.method = *m, .n = n};
    e->n_streams = method_streams(m, e->streams);
    if (fragments != NULL) {
        e->fragments = *fragments;
    }
    e->delayed.size = e->delayed.next = members > 0 ? members : 1;
    e->share = 1.0 / e->delayed.size;
}

static void zero(float *x, uint64_t n)
{
    if (x != NULL) {
        memset(x, 0, n * sizeof *x);
    }
}

static void copy(float *to, const float *from, uint64_t n)
{
    if (to != NULL) {
        memcpy(to, from, n * sizeof *to);
    }
}

void engine_start(struct engine *e)
{
    copy(e->phi, e->theta, e->n);
    copy(e->base, e->theta, e->n);
    zero(e->m, e->n);
    zero(e->sum, e->n);
    zero(e->sent, e->n);
    zero(e->own, e->n);
    zero(e->own_m, e->n);
    e->delayed.phi = e->phi;
    e->delayed.m = e->m;
    e->delayed.sum = e->sum;
    e->delayed.count = 0;
}

void engine_step(struct engine *e)
{
    e->k++;
}

bool engine_begins(const struct engine *e, size_t s, struct stream_turn *turn)
{
    return stream_begins(&e->streams[s], e->k, turn);
}

bool engine_ends(const struct engine *e, size_t s, struct stream_turn *turn)
{
    return stream_ends(&e->streams[s], e->k, turn);
}

/* The spans of a turn, one at a time: from *i = 0 until false. *at is the
 * span's place in the wire vector. */
struct walk {
    uint32_t i;
    uint64_t at;
    struct engine_span span;
};

static bool walk(const struct engine *e,
                 size_t s,
                 const struct stream_turn *turn,
                 struct walk *w)
{
    const struct engine_fragments *f = &e->fragments;

    if (f->spans == NULL || e->streams[s].tensor != STREAM_PARAMETERS ||
        e->streams[s].fragments == 1) {
        w->span = (struct engine_span){0, e->n};
        return w->i++ == 0;
    }
    if (w->i > 0) {
        w->at += w->span.len;
    }
    if (f->first[turn->fragment] + w->i >= f->first[turn->fragment + 1]) {
        return false;
    }
    w->span = f->spans[f->first[turn->fragment] + w->i++];
    return true;
}

uint64_t
engine_len(const struct engine *e, size_t s, const struct stream_turn *turn)
{
    struct walk w = {0};
    uint64_t n = 0;

    while (walk(e, s, turn, &w)) {
        n += w.span.len;
    }
    return n;
}

/* ---- packing ----------------------------------------------------------- */

/* The own part of a mean that is still to come, at once: own takes the rule's
 * step with share * g, less what was put in early the last time (that has come
 * with the others' meanwhile). theta = phi + own. */
static int eager_step(struct engine *e, const float *g)
{
    const float share = (float)e->share;
    struct outer_state own = {e->own, e->own_m};
    int rv;

    for (uint64_t i = 0; i < e->n; i++) {
        float fresh = share * g[i];

        e->sent[i] = fresh - e->sent[i];
    }
    rv = rule_apply(&e->method.rule, &own, &own, e->sent, e->n);
    for (uint64_t i = 0; i < e->n; i++) {
        e->sent[i] = share * g[i];
        e->theta[i] = e->phi[i] + e->own[i];
    }
    return rv;
}

/* g = phi + own - theta: since the last step of its own. */
static int pack_eager(struct engine *e, float *g)
{
    int rv;

    for (uint64_t i = 0; i < e->n; i++) {
        g[i] = e->phi[i] + e->own[i];
    }
    rv = rule_displacement(g, g, e->theta, e->n);
    return rv != 0 ? rv : eager_step(e, g);
}

static int pack_parameters(struct engine *e,
                           size_t s,
                           const struct stream_turn *turn,
                           float *wire)
{
    const float *from = e->base != NULL ? e->base : e->phi;
    struct walk w = {0};
    int rv = 0;

    if (e->method.eager) {
        return pack_eager(e, wire);
    }
    while (walk(e, s, turn, &w)) {
        int got = rule_displacement(wire + w.at, from + w.span.offset,
                                    e->theta + w.span.offset, w.span.len);
        rv = rv != 0 ? rv : got;
        if (e->sent != NULL) {
            copy(e->sent + w.span.offset, wire + w.at, w.span.len);
        }
    }
    return rv;
}

int engine_pack(struct engine *e,
                size_t s,
                const struct stream_turn *turn,
                float *wire)
{
    switch (e->streams[s].tensor) {
    case STREAM_PARAMETERS:
        return pack_parameters(e, s, turn, wire);
    case STREAM_MOMENT_1:
        copy(wire, e->u, e->n);
        return 0;
    case STREAM_MOMENT_2:
        copy(wire, e->v, e->n);
        return 0;
    default:
        copy(wire, e->grad, e->n);
        return 0;
    }
}

/* ---- applying ---------------------------------------------------------- */

/* theta keeps its way since it was packed (or since the anchor, when it was
 * not in the mean): before phi moves, theta becomes theta - start. */
static void lift(struct engine *e, const struct walk *w, bool contributed)
{
    float *theta = e->theta + w->span.offset;
    const float *phi = e->phi + w->span.offset;
    const float *sent = contributed ? e->sent + w->span.offset : NULL;

    for (uint64_t i = 0; i < w->span.len; i++) {
        float start = sent == NULL ? phi[i] : phi[i] - sent[i];

        theta[i] = theta[i] - start;
    }
}

static void put_down(struct engine *e, const struct walk *w)
{
    float *theta = e->theta + w->span.offset;
    const float *phi = e->phi + w->span.offset;

    for (uint64_t i = 0; i < w->span.len; i++) {
        theta[i] = phi[i] + theta[i];
    }
}

static void reset_moments(struct engine *e)
{
    zero(e->u, e->n);
    zero(e->v, e->n);
    e->moments_reset = true;
}

/* Where the rule's result of a span goes first. */
static struct outer_state made_at(const struct engine *e, const struct walk *w)
{
    uint64_t at = e->next_phi == NULL ? w->span.offset : w->at;

    return (struct outer_state){
        (e->next_phi == NULL ? e->phi : e->next_phi) + at,
        e->m == NULL ? NULL : (e->next_phi == NULL ? e->m : e->next_m) + at};
}

static struct outer_state state_from(const struct outer_state *s, uint64_t at)
{
    return (struct outer_state){s->phi + at, s->m == NULL ? NULL : s->m + at};
}

/* The rule on a span whose mean comes window by window. */
static int move_by_windows(const struct engine *e,
                           const struct outer_state *out,
                           const struct outer_state *in,
                           const struct engine_source *source)
{
    float mean[ENGINE_WINDOW];
    int rv = 0;

    for (uint64_t at = 0; at < e->n && rv == 0; at += ENGINE_WINDOW) {
        uint64_t left = e->n - at;
        uint64_t n = left < ENGINE_WINDOW ? left : ENGINE_WINDOW;
        struct outer_state to = state_from(out, at), from = state_from(in, at);

        rv = source->bring(source->self, at, n, mean);
        rv = rv != 0 ? rv : rule_apply(&e->method.rule, &to, &from, mean, n);
    }
    return rv;
}

/* The new anchor and momentum of every span: in place, or beside the old. */
static int move_anchor(struct engine *e,
                       size_t s,
                       const struct stream_turn *turn,
                       const struct engine_average *a,
                       const struct engine_source *source)
{
    struct walk w = {0};
    int rv = 0;

    while (walk(e, s, turn, &w)) {
        struct outer_state all = {e->phi, e->m};
        struct outer_state in = state_from(&all, w.span.offset);
        struct outer_state out = made_at(e, &w);
        int got = source != NULL ? move_by_windows(e, &out, &in, source)
                                 : rule_apply(&e->method.rule, &out, &in,
                                              a->mean + w.at, w.span.len);

        rv = rv != 0 ? rv : got;
    }
    return rv;
}

static void swap(float **a, float **b)
{
    float *x = *a;

    *a = *b;
    *b = x;
}

void engine_exchange(struct engine *e)
{
    swap(&e->phi, &e->next_phi);
    if (e->m != NULL) {
        swap(&e->m, &e->next_m);
    }
}

/* What was made beside is what counts now. */
static void adopt(struct engine *e, const struct walk *w)
{
    if (e->next_phi == NULL) {
        return;
    }
    if (e->exchanges && w->span.len == e->n) {
        engine_exchange(e);
        return;
    }
    copy(e->phi + w->span.offset, e->next_phi + w->at, w->span.len);
    if (e->m != NULL) {
        copy(e->m + w->span.offset, e->next_m + w->at, w->span.len);
    }
}

static int apply_anchored(struct engine *e,
                          size_t s,
                          const struct stream_turn *turn,
                          const struct engine_average *a,
                          const struct engine_source *source)
{
    bool contributed = a->share > 0.0;
    bool rebase = !contributed || e->method.eager ||
                  (e->method.take == METHOD_REBASE && e->method.overlap > 0);
    struct walk w = {0};
    int rv = 0;

    contributed = contributed && !e->method.eager;
    if (e->next_phi == NULL) { /* theta's way is measured from the old anchor */
        while (rebase && walk(e, s, turn, &w)) {
            lift(e, &w, contributed);
        }
    }
    rv = move_anchor(e, s, turn, a, source);
    if (rv != 0 && e->next_phi != NULL) {
        return rv;
    }
    w = (struct walk){0};
    while (walk(e, s, turn, &w)) {
        uint64_t at = w.span.offset;

        if (rebase && e->next_phi != NULL) {
            lift(e, &w, contributed);
        }
        adopt(e, &w);
        if (rebase) {
            put_down(e, &w);
        } else {
            mix_toward(e->theta + at, e->phi + at,
                       e->method.take == METHOD_MIX ? e->method.mix : 0.0F,
                       w.span.len);
        }
    }
    return rv;
}

/* A quorum of `arrivals`: all move phi; who was in it starts a new task. */
static int apply_quorum(struct engine *e, const struct engine_average *a)
{
    int rv;

    e->delayed.phi = e->phi;
    e->delayed.m = e->m;
    e->delayed.sum = e->sum;
    rv = slices_arrive(&e->method, &e->delayed, a->mean, a->arrivals, e->n);
    if (a->share > 0.0) {
        copy(e->theta, e->phi, e->n);
        copy(e->base, e->phi, e->n);
    }
    return rv;
}

static int apply_parameters(struct engine *e,
                            size_t s,
                            const struct stream_turn *turn,
                            const struct engine_average *a,
                            const struct engine_source *source)
{
    int rv = e->method.group == METHOD_QUORUM
                 ? apply_quorum(e, a)
                 : apply_anchored(e, s, turn, a, source);

    if (rv == 0 && a->share > 0.0) {
        e->share = a->share;
    }
    if (rv == 0 && e->method.moments == METHOD_RESET && a->share > 0.0) {
        reset_moments(e);
    }
    return rv;
}

int engine_apply(struct engine *e,
                 size_t s,
                 const struct stream_turn *turn,
                 const struct engine_average *a)
{
    switch (e->streams[s].tensor) {
    case STREAM_PARAMETERS:
        return apply_parameters(e, s, turn, a, NULL);
    case STREAM_MOMENT_1:
        copy(e->u, a->mean, e->n);
        return 0;
    case STREAM_MOMENT_2:
        copy(e->v, a->mean, e->n);
        return 0;
    default:
        copy(e->grad, a->mean, e->n);
        return 0;
    }
}

bool engine_streams_mean(const struct engine *e,
                         size_t s,
                         const struct stream_turn *turn)
{
    struct walk w = {0};

    return e->streams[s].tensor == STREAM_PARAMETERS &&
           e->method.group != METHOD_QUORUM && e->next_phi != NULL &&
           walk(e, s, turn, &w) && w.span.len == e->n;
}

int engine_apply_from(struct engine *e,
                      size_t s,
                      const struct stream_turn *turn,
                      const struct engine_average *a,
                      const struct engine_source *source)
{
    return apply_parameters(e, s, turn, a, source);
}

void engine_read(struct engine *e,
                 uint64_t offset,
                 uint64_t len,
                 const float *phi)
{
    copy(e->base + offset, phi, len);
    copy(e->theta + offset, phi, len);
}

void engine_begin_task(struct engine *e)
{
    if (e->method.moments == METHOD_RESET) {
        reset_moments(e);
    }
}
