/* ring.c - see ring.h. */
#include "p2p/exchange/ring.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

enum { HERE, NEXT };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- how the vector is cut -------------------------------------------- */

uint64_t ring_stripe_elements(const struct ring_shape *s)
{
    uint64_t row = (uint64_t)s->n * s->segment_elements;
    uint64_t rest = s->elements - s->from;
    uint64_t most = row * RING_STRIPES_MAX;
    uint64_t rows = (rest + most - 1) / most;

    rows = rows > s->chunk_segments ? rows : s->chunk_segments;
    return row * (rows > 0 ? rows : 1);
}

void ring_chunk(const struct ring_shape *s,
                uint32_t stripe,
                uint32_t c,
                uint64_t *begin,
                uint64_t *end)
{
    uint64_t whole = ring_stripe_elements(s);
    uint64_t at = least(s->from + stripe * whole, s->elements);
    uint64_t len = least(whole, s->elements - at);
    uint64_t blocks = (len + s->block - 1) / s->block;
    uint64_t per = blocks / s->n, more = blocks % s->n;
    uint64_t first = per * c + (c < more ? c : more);
    uint64_t last = first + per + (c < more ? 1 : 0);

    *begin = at + least(first * s->block, len);
    *end = at + least(last * s->block, len);
}

static uint32_t segments_in(const struct ring *r, uint64_t elements)
{
    return (uint32_t)((elements + r->shape.segment_elements - 1) /
                      r->shape.segment_elements);
}

/* ---- cursors ----------------------------------------------------------
 * `side`: HERE for the edge into this rank, NEXT for the one out of it. */

/* Chunk that travels in `step` on that edge. */
static uint32_t chunk_at(const struct ring *r, int side, uint32_t step)
{
    uint32_t n = r->shape.n, to = (r->rank + (side == NEXT)) % n;

    return (to + 2 * n - 1 - step % n) % n;
}

static bool at_end(const struct ring *r, const struct ring_cursor *c)
{
    return c->filled && c->stripe >= r->n_stripes;
}

/* Elements [*begin, *end) of the fill or of the chunk that c is in. */
static void span(const struct ring *r,
                 const struct ring_cursor *c,
                 int side,
                 uint64_t *begin,
                 uint64_t *end)
{
    if (!c->filled) {
        *begin = r->holds[side];
        *end = r->shape.from;
        return;
    }
    ring_chunk(&r->shape, c->stripe, chunk_at(r, side, c->step), begin, end);
}

/* Skip what is empty. */
static void settle(const struct ring *r, struct ring_cursor *c, int side)
{
    uint64_t begin, end;

    while (!at_end(r, c)) {
        span(r, c, side, &begin, &end);
        if (c->segment < segments_in(r, end - begin)) {
            return;
        }
        c->segment = 0;
        if (!c->filled) {
            c->filled = true;
        } else if (++c->step == 2 * r->shape.n - 2) {
            c->step = 0;
            c->stripe++;
        }
    }
}

static void advance(const struct ring *r, struct ring_cursor *c, int side)
{
    c->segment++;
    c->number++;
    settle(r, c, side);
}

void ring_init(struct ring *r,
               const struct ring_shape *shape,
               uint32_t rank,
               uint64_t holds,
               uint64_t next_holds)
{
    uint64_t rest = shape->elements - shape->from;

    assert(shape->n >= 2 && rank < shape->n);
    assert(shape->block > 0 && shape->segment_elements > 0 &&
           shape->segment_elements % shape->block == 0);
    assert(shape->from <= shape->elements && holds <= shape->from &&
           next_holds <= shape->from);
    memset(r, 0, sizeof *r);
    r->shape = *shape;
    r->rank = rank;
    r->holds[HERE] = holds;
    r->holds[NEXT] = next_holds;
    r->stripe_elements = ring_stripe_elements(shape);
    r->n_stripes =
        (uint32_t)((rest + r->stripe_elements - 1) / r->stripe_elements);
    settle(r, &r->post, HERE);
    settle(r, &r->received, HERE);
    settle(r, &r->send, NEXT);
    settle(r, &r->sent, NEXT);
}

/* ---- segments --------------------------------------------------------- */

static void
emit(struct ring *r, const struct ring_cursor *c, int side, struct out *out)
{
    uint32_t n = r->shape.n;
    uint64_t begin, end, from;
    struct action *a;

    a = out_add(out, side == NEXT ? ACTION_SEND_SEG : ACTION_POST_RECV);
    if (a == NULL) {
        return;
    }
    span(r, c, side, &begin, &end);
    from = begin + (uint64_t)c->segment * r->shape.segment_elements;
    a->segment = (struct segment){
        .peer = side == NEXT ? r->next : r->prev,
        .attempt = r->attempt,
        .stream = STREAM_RING,
        .seg = c->number,
        .buffer = BUFFER_RING,
        .offset = from,
        .len = (uint32_t)least(end - from, r->shape.segment_elements),
        .op = SEGMENT_COPY,
        .scale = r->scale,
    };
    if (side == NEXT && c->filled && c->step == 0) {
        a->segment.op = SEGMENT_ENCODE;
    } else if (side == HERE && c->filled && c->step <= n - 2) {
        a->segment.op = SEGMENT_ADD;
    }
    a->segment.final = !c->filled || c->step >= (side == HERE ? n - 2 : n - 1);
}

/* Inherited elements that are here by now. */
static uint64_t filled_to(const struct ring *r)
{
    const struct ring_cursor *in = &r->received;

    return in->filled ? r->shape.from
                      : r->holds[HERE] +
                            (uint64_t)in->segment * r->shape.segment_elements;
}

/* What step s sends was received in step s-1, segment by segment. */
static bool may_send(const struct ring *r)
{
    const struct ring_cursor *s = &r->send, *in = &r->received;
    uint64_t end;

    if (!s->filled) {
        end = r->holds[NEXT] +
              (uint64_t)(s->segment + 1) * r->shape.segment_elements;
        return least(end, r->shape.from) <= filled_to(r);
    }
    if (s->step == 0) {
        return true;
    }
    if (!in->filled || in->stripe != s->stripe) {
        return in->filled && in->stripe > s->stripe;
    }
    return in->step > s->step - 1 ||
           (in->step == s->step - 1 && in->segment > s->segment);
}

void ring_pump(struct ring *r, struct out *out)
{
    while (!at_end(r, &r->post) &&
           r->post.number - r->received.number < RING_WINDOW) {
        emit(r, &r->post, HERE, out);
        advance(r, &r->post, HERE);
    }
    while (!at_end(r, &r->send) && may_send(r) &&
           r->send.number - r->sent.number < RING_WINDOW) {
        emit(r, &r->send, NEXT, out);
        advance(r, &r->send, NEXT);
    }
}

int ring_done(struct ring *r, const struct event_seg_done *event)
{
    struct ring_cursor *c = event->sent ? &r->sent : &r->received;
    const struct ring_cursor *limit = event->sent ? &r->send : &r->post;

    if (event->segment.seg != c->number || c->number >= limit->number) {
        return LOCO_EPROTO;
    }
    r->bytes += event->segment.len;
    advance(r, c, event->sent ? NEXT : HERE);
    return 0;
}

bool ring_finished(const struct ring *r)
{
    return at_end(r, &r->received) && at_end(r, &r->sent);
}

uint32_t ring_segments(const struct ring *r, bool sending)
{
    int side = sending ? NEXT : HERE;
    struct ring_cursor c = {0};

    settle(r, &c, side);
    while (!at_end(r, &c)) {
        advance(r, &c, side);
    }
    return c.number;
}

uint64_t ring_final(const struct ring *r)
{
    if (!r->received.filled) {
        return filled_to(r);
    }
    return least(r->shape.from + r->received.stripe * r->stripe_elements,
                 r->shape.elements);
}

uint64_t ring_progress(const struct ring *r)
{
    return (uint64_t)r->received.number + r->sent.number;
}
