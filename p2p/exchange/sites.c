/* sites.c - see sites.h. */
#include "p2p/exchange/sites.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

enum { INSIDE, OUTSIDE };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct ring_shape sites_slices(const struct sites_shape *shape)
{
    struct ring_shape cut = shape->cut;

    cut.n = shape->sites.n;
    return cut;
}

/* ---- edges ------------------------------------------------------------ */

/* The next one in the ring of its site; itself: alone there. */
static uint32_t next_inside(const struct walk_sites *s, uint32_t rank)
{
    uint32_t site = walk_site(s, rank);

    return rank + 1 < s->first[site + 1] ? rank + 1 : s->first[site];
}

static uint32_t prev_inside(const struct walk_sites *s, uint32_t rank)
{
    uint32_t site = walk_site(s, rank);

    return rank > s->first[site] ? rank - 1 : s->first[site + 1] - 1;
}

/* The gateway `step` sites on; the rank itself where there is none. */
static uint32_t
gateway(const struct walk_sites *s, uint32_t rank, uint32_t step)
{
    uint32_t site = walk_site(s, rank);

    return s->first[site] == rank ? s->first[(site + step) % s->n] : rank;
}

static uint32_t edge_to(const struct walk_sites *s, uint32_t rank, int where)
{
    return where == INSIDE ? next_inside(s, rank) : gateway(s, rank, 1);
}

static uint32_t edge_from(const struct walk_sites *s, uint32_t rank, int where)
{
    return where == INSIDE ? prev_inside(s, rank) : gateway(s, rank, s->n - 1);
}

bool sites_sends(const struct walk_sites *s, uint32_t rank, uint32_t to)
{
    return to != rank &&
           (edge_to(s, rank, INSIDE) == to || edge_to(s, rank, OUTSIDE) == to);
}

/* From whom a member that lacks inherited elements gets them. */
static uint32_t fill_source(const struct sites_shape *shape, uint32_t rank)
{
    const struct walk_sites *s = &shape->sites;
    uint32_t site = walk_site(s, rank);
    bool here = false;

    for (uint32_t k = s->first[site]; k < s->first[site + 1]; k++) {
        here = here || shape->holds[k] == shape->cut.from;
    }
    return here || rank != s->first[site] ? prev_inside(s, rank)
                                          : gateway(s, rank, s->n - 1);
}

static uint64_t
fill_of(const struct sites_shape *shape, uint32_t from, uint32_t to)
{
    return shape->holds[to] < shape->cut.from && fill_source(shape, to) == from
               ? shape->holds[to]
               : shape->cut.from;
}

static void set_edges(struct sites *t, const struct sites_shape *shape)
{
    const struct walk_sites *s = &shape->sites;

    for (int where = INSIDE; where <= OUTSIDE; where++) {
        struct sites_edge *in = &t->in[where], *out = &t->out[where];

        in->rank = edge_from(s, t->rank, where);
        out->rank = edge_to(s, t->rank, where);
        in->used = in->rank != t->rank;
        out->used = out->rank != t->rank;
        in->fill =
            in->used ? fill_of(shape, in->rank, t->rank) : shape->cut.from;
        out->fill =
            out->used ? fill_of(shape, t->rank, out->rank) : shape->cut.from;
    }
}

/* ---- lanes ------------------------------------------------------------ */

static struct sites_edge *edge_of(struct sites_edge *edges, uint32_t rank)
{
    for (int where = INSIDE; where <= OUTSIDE; where++) {
        if (edges[where].used && edges[where].rank == rank) {
            return &edges[where];
        }
    }
    assert(false); /* a walk follows edges */
    return NULL;
}

static bool is_before(const struct sites_lane *a, const struct sites_lane *b)
{
    return a->depth != b->depth ? a->depth < b->depth : a->slice < b->slice;
}

/* In the order of both ends. */
static void insert(struct sites_edge *e, bool final, const struct sites_lane *l)
{
    uint32_t at = e->n[final]++;

    while (at > 0 && is_before(l, &e->lane[final][at - 1])) {
        e->lane[final][at] = e->lane[final][at - 1];
        at--;
    }
    e->lane[final][at] = *l;
}

static struct sites_lane lane_of(const struct walk_hop *h, uint32_t slice)
{
    return (struct sites_lane){.slice = (uint8_t)slice,
                               .depth = h->depth,
                               .adds = h->adds,
                               .ends = h->ends,
                               .after_edge = -1};
}

/* Lanes in are complete: where each lane out has its bytes from. */
static void add_out(struct sites *t,
                    const struct walk_hop *hops,
                    const struct walk_hop *h,
                    uint32_t slice)
{
    struct sites_lane l = lane_of(h, slice);
    const struct walk_hop *by;
    const struct sites_edge *e;

    if (h->after >= 0) {
        by = &hops[h->after];
        e = edge_of(t->in, by->from);
        l.after_edge = (int8_t)(e - t->in);
        l.after_final = by->final;
        while (e->lane[by->final][l.after_lane].slice != slice) {
            l.after_lane++;
        }
    }
    insert(edge_of(t->out, h->to), h->final, &l);
}

static void set_lanes(struct sites *t, const struct walk_sites *s)
{
    struct walk_hop hops[WALK_HOPS_MAX];

    for (int out = 0; out < 2; out++) {
        for (uint32_t slice = 0; slice < s->n; slice++) {
            uint32_t n = walk_of(s, slice, hops);

            for (uint32_t k = 0; k < n; k++) {
                struct sites_lane l = lane_of(&hops[k], slice);

                if (out == 0 && hops[k].to == t->rank) {
                    insert(edge_of(t->in, hops[k].from), hops[k].final, &l);
                } else if (out == 1 && hops[k].from == t->rank) {
                    add_out(t, hops, &hops[k], slice);
                }
            }
        }
    }
}

/* ---- cursors ---------------------------------------------------------- */

/* Phase of the partial sums, or the final bytes, of a stripe. */
static uint32_t phase_of(const struct sites *t, uint32_t stripe, bool final)
{
    if (!final) {
        return stripe == 0 ? 0 : 2 * stripe - 1;
    }
    return stripe + 1 < t->n_stripes ? 2 * stripe + 2 : 2 * stripe + 1;
}

static bool is_final(const struct sites *t, uint32_t phase)
{
    return phase + 1 == 2 * t->n_stripes || (phase > 0 && phase % 2 == 0);
}

static uint32_t stripe_of(const struct sites *t, uint32_t phase)
{
    if (is_final(t, phase)) {
        return phase + 1 == 2 * t->n_stripes ? t->n_stripes - 1 : phase / 2 - 1;
    }
    return (phase + 1) / 2;
}

static bool at_end(const struct sites *t, const struct sites_cursor *c)
{
    return c->filled && c->phase >= 2 * t->n_stripes;
}

static const struct sites_lane *at_lane(const struct sites *t,
                                        const struct sites_edge *e,
                                        const struct sites_cursor *c)
{
    return &e->lane[is_final(t, c->phase)][c->lane];
}

static void span(const struct sites *t,
                 const struct sites_edge *e,
                 const struct sites_cursor *c,
                 uint64_t *begin,
                 uint64_t *end)
{
    if (!c->filled) {
        *begin = e->fill;
        *end = t->slices.from;
        return;
    }
    ring_chunk(&t->slices, stripe_of(t, c->phase), at_lane(t, e, c)->slice,
               begin, end);
}

static uint32_t segments_in(const struct sites *t, uint64_t elements)
{
    uint32_t whole = t->slices.segment_elements;

    return (uint32_t)((elements + whole - 1) / whole);
}

/* Skip what is empty. */
static void settle(const struct sites *t,
                   const struct sites_edge *e,
                   struct sites_cursor *c)
{
    uint64_t begin, end;

    while (!at_end(t, c)) {
        if (c->filled && c->lane >= e->n[is_final(t, c->phase)]) {
            c->phase++;
            c->lane = 0;
            continue;
        }
        span(t, e, c, &begin, &end);
        if (c->segment < segments_in(t, end - begin)) {
            return;
        }
        c->segment = 0;
        if (c->filled) {
            c->lane++;
        }
        c->filled = true;
    }
}

static void advance(const struct sites *t,
                    const struct sites_edge *e,
                    struct sites_cursor *c)
{
    c->segment++;
    c->number++;
    settle(t, e, c);
}

void sites_init(struct sites *t, const struct sites_shape *shape, uint32_t rank)
{
    const struct ring_shape *cut = &shape->cut;

    assert(cut->n >= 2 && cut->n <= VIEW_MEMBERS_MAX && rank < cut->n);
    assert(shape->sites.n >= 1 && shape->sites.first[shape->sites.n] == cut->n);
    assert(cut->block > 0 && cut->segment_elements > 0 &&
           cut->segment_elements % cut->block == 0);
    memset(t, 0, sizeof *t);
    t->slices = sites_slices(shape);
    t->rank = rank;
    t->stripe_elements = ring_stripe_elements(&t->slices);
    t->n_stripes =
        (uint32_t)((cut->elements - cut->from + t->stripe_elements - 1) /
                   t->stripe_elements);
    set_edges(t, shape);
    set_lanes(t, &shape->sites);
    for (int where = INSIDE; where <= OUTSIDE; where++) {
        settle(t, &t->in[where], &t->in[where].asked);
        settle(t, &t->out[where], &t->out[where].asked);
        t->in[where].done = t->in[where].asked;
        t->out[where].done = t->out[where].asked;
    }
}

/* ---- segments --------------------------------------------------------- */

static void emit(const struct sites *t,
                 const struct sites_edge *e,
                 bool in,
                 struct out *out)
{
    const struct sites_cursor *c = &e->asked;
    const struct sites_lane *l = c->filled ? at_lane(t, e, c) : NULL;
    struct action *a = out_add(out, in ? ACTION_POST_RECV : ACTION_SEND_SEG);
    uint64_t begin, end, from;

    if (a == NULL) {
        return;
    }
    span(t, e, c, &begin, &end);
    from = begin + (uint64_t)c->segment * t->slices.segment_elements;
    a->segment = (struct segment){
        .peer = e->peer,
        .attempt = t->attempt,
        .stream = STREAM_RING,
        .seg = c->number,
        .buffer = BUFFER_RING,
        .offset = from,
        .len = (uint32_t)least(end - from, t->slices.segment_elements),
        .op = SEGMENT_COPY,
        .scale = t->scale,
        .final = l == NULL || is_final(t, c->phase) || (in && l->ends),
    };
    if (l != NULL && in && l->adds) {
        a->segment.op = SEGMENT_ADD;
    } else if (l != NULL && !in && l->after_edge < 0) {
        a->segment.op = SEGMENT_ENCODE;
    }
}

/* Inherited elements that are here by now. */
static uint64_t filled_to(const struct sites *t)
{
    uint64_t at = t->slices.from;

    for (int where = INSIDE; where <= OUTSIDE; where++) {
        const struct sites_edge *e = &t->in[where];

        if (e->used && !e->done.filled) {
            at = least(at, e->fill + (uint64_t)e->done.segment *
                                         t->slices.segment_elements);
        }
    }
    return at;
}

/* What goes out came in before, segment by segment. */
static bool may_send(const struct sites *t, const struct sites_edge *e)
{
    const struct sites_cursor *c = &e->asked, *in;
    const struct sites_lane *l;
    uint32_t phase;

    if (!c->filled) {
        return least(e->fill + (uint64_t)(c->segment + 1) *
                                   t->slices.segment_elements,
                     t->slices.from) <= filled_to(t);
    }
    l = at_lane(t, e, c);
    if (l->after_edge < 0) {
        return true;
    }
    in = &t->in[l->after_edge].done;
    phase = phase_of(t, stripe_of(t, c->phase), l->after_final);
    if (!in->filled || in->phase != phase) {
        return in->filled && in->phase > phase;
    }
    return in->lane > l->after_lane ||
           (in->lane == l->after_lane && in->segment > c->segment);
}

void sites_pump(struct sites *t, struct out *out)
{
    for (int where = OUTSIDE; where >= INSIDE; where--) {
        struct sites_edge *in = &t->in[where], *to = &t->out[where];

        while (in->used && !at_end(t, &in->asked) &&
               in->asked.number - in->done.number < RING_WINDOW) {
            emit(t, in, true, out);
            advance(t, in, &in->asked);
        }
        while (to->used && !at_end(t, &to->asked) && may_send(t, to) &&
               to->asked.number - to->done.number < RING_WINDOW) {
            emit(t, to, false, out);
            advance(t, to, &to->asked);
        }
    }
}

int sites_done(struct sites *t, const struct event_seg_done *event)
{
    struct sites_edge *edges = event->sent ? t->out : t->in;

    for (int where = INSIDE; where <= OUTSIDE; where++) {
        struct sites_edge *e = &edges[where];

        if (e->used && id_eq(&e->peer, &event->segment.peer)) {
            if (event->segment.seg != e->done.number ||
                e->done.number >= e->asked.number) {
                return LOCO_EPROTO;
            }
            t->progress++;
            advance(t, e, &e->done);
            return 0;
        }
    }
    return LOCO_EPROTO;
}

bool sites_finished(const struct sites *t)
{
    for (int where = INSIDE; where <= OUTSIDE; where++) {
        if ((t->in[where].used && !at_end(t, &t->in[where].done)) ||
            (t->out[where].used && !at_end(t, &t->out[where].done))) {
            return false;
        }
    }
    return true;
}

uint64_t sites_final(const struct sites *t)
{
    uint32_t stripes = t->n_stripes;

    if (filled_to(t) < t->slices.from) {
        return filled_to(t);
    }
    for (int where = INSIDE; where <= OUTSIDE; where++) {
        uint32_t whole = 0;

        while (t->in[where].used && whole < stripes &&
               t->in[where].done.phase > phase_of(t, whole, true)) {
            whole++;
        }
        stripes = t->in[where].used && whole < stripes ? whole : stripes;
    }
    return least(t->slices.from + stripes * t->stripe_elements,
                 t->slices.elements);
}

uint64_t sites_progress(const struct sites *t)
{
    return t->progress;
}

uint32_t sites_segments(const struct sites *t, bool sending)
{
    const struct sites_edge *edges = sending ? t->out : t->in;
    uint32_t n = 0;

    for (int where = INSIDE; where <= OUTSIDE; where++) {
        struct sites_cursor c = {0};

        settle(t, &edges[where], &c);
        while (edges[where].used && !at_end(t, &c)) {
            advance(t, &edges[where], &c);
        }
        n += c.number;
    }
    return n;
}

bool sites_owes(const struct sites *t,
                const struct peer_id *peer,
                bool *neighbour)
{
    bool owes = false;

    *neighbour = false;
    for (int where = INSIDE; where <= OUTSIDE; where++) {
        const struct sites_edge *in = &t->in[where], *to = &t->out[where];

        if (in->used && id_eq(&in->peer, peer)) {
            *neighbour = true;
            owes = owes || !at_end(t, &in->done);
        }
        *neighbour = *neighbour || (to->used && id_eq(&to->peer, peer));
    }
    return owes;
}

void sites_stall_of(const struct sites *t,
                    bool outside,
                    uint32_t *next,
                    uint32_t *sent,
                    uint32_t *got)
{
    int where = outside ? OUTSIDE : INSIDE;

    *next = t->out[where].rank;
    *sent = t->out[where].asked.number;
    *got = t->in[where].done.number;
}

const struct peer_id *sites_laggard(const struct sites *t, bool *sends)
{
    const struct sites_edge *late = NULL;

    *sends = true;
    for (int where = OUTSIDE; where >= INSIDE && late == NULL; where--) {
        const struct sites_edge *e = &t->in[where];

        late = e->used && e->asked.number > e->done.number ? e : NULL;
    }
    for (int where = OUTSIDE; where >= INSIDE && late == NULL; where--) {
        const struct sites_edge *e = &t->out[where];

        late = e->used && e->asked.number > e->done.number ? e : NULL;
        *sends = false;
    }
    return late == NULL ? NULL : &late->peer;
}
