/* ring.c - see ring.h. */
#include "p2p/ring.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

void ring_chunk(uint64_t elements,
                uint32_t block,
                uint32_t n,
                uint32_t c,
                uint64_t *begin,
                uint64_t *end)
{
    uint64_t blocks = (elements + block - 1) / block;
    uint64_t per = blocks / n, more = blocks % n;
    uint64_t first = per * c + (c < more ? c : more);
    uint64_t last = first + per + (c < more ? 1 : 0);

    *begin = first * block < elements ? first * block : elements;
    *end = last * block < elements ? last * block : elements;
}

/* Chunk that travels in `step` on the edge into rank `to`. */
static uint32_t chunk_at(const struct ring *r, uint32_t to, uint32_t step)
{
    return (to + 2 * r->n - 1 - step % r->n) % r->n;
}

static uint32_t segments_of(const struct ring *r, uint32_t chunk)
{
    uint64_t begin, end;

    ring_chunk(r->elements, r->block, r->n, chunk, &begin, &end);
    return (uint32_t)((end - begin + r->segment_elements - 1) /
                      r->segment_elements);
}

static bool at_end(const struct ring *r, const struct ring_cursor *c)
{
    return c->step >= 2 * r->n - 2;
}

/* Skip steps whose chunk is empty. `to` is the receiving rank of the edge. */
static void settle(const struct ring *r, struct ring_cursor *c, uint32_t to)
{
    while (!at_end(r, c) &&
           c->segment >= segments_of(r, chunk_at(r, to, c->step))) {
        c->step++;
        c->segment = 0;
    }
}

static void advance(const struct ring *r, struct ring_cursor *c, uint32_t to)
{
    c->segment++;
    c->number++;
    settle(r, c, to);
}

void ring_init(struct ring *r,
               uint64_t elements,
               uint32_t block,
               uint32_t segment_elements,
               uint32_t n,
               uint32_t rank)
{
    assert(n >= 2 && rank < n);
    assert(block > 0 && segment_elements > 0 && segment_elements % block == 0);
    memset(r, 0, sizeof *r);
    r->n = n;
    r->rank = rank;
    r->elements = elements;
    r->block = block;
    r->segment_elements = segment_elements;
    settle(r, &r->post, rank);
    settle(r, &r->received, rank);
    settle(r, &r->send, (rank + 1) % n);
    settle(r, &r->sent, (rank + 1) % n);
}

static void
emit(struct ring *r, const struct ring_cursor *c, bool sending, struct out *out)
{
    uint32_t to = sending ? (r->rank + 1) % r->n : r->rank;
    uint32_t chunk = chunk_at(r, to, c->step);
    uint64_t begin, end, from;
    struct action *a;

    a = out_add(out, sending ? ACTION_SEND_SEG : ACTION_POST_RECV);
    if (a == NULL) {
        return;
    }
    ring_chunk(r->elements, r->block, r->n, chunk, &begin, &end);
    from = begin + (uint64_t)c->segment * r->segment_elements;
    a->segment = (struct segment){
        .peer = sending ? r->next : r->prev,
        .attempt = r->attempt,
        .stream = STREAM_RING,
        .seg = c->number,
        .buffer = BUFFER_RING,
        .offset = from,
        .len =
            (uint32_t)(end - from < r->segment_elements ? end - from
                                                        : r->segment_elements),
        .scale = r->scale,
    };
    if (sending) {
        a->segment.op = c->step == 0 ? SEGMENT_ENCODE : SEGMENT_COPY;
    } else {
        a->segment.op = c->step <= r->n - 2 ? SEGMENT_ADD : SEGMENT_COPY;
    }
}

/* What step s sends was received in step s-1, segment by segment. */
static bool may_send(const struct ring *r)
{
    const struct ring_cursor *s = &r->send, *in = &r->received;

    return s->step == 0 || in->step > s->step - 1 ||
           (in->step == s->step - 1 && in->segment > s->segment);
}

void ring_pump(struct ring *r, struct out *out)
{
    while (!at_end(r, &r->post) &&
           r->post.number - r->received.number < RING_WINDOW) {
        emit(r, &r->post, false, out);
        advance(r, &r->post, r->rank);
    }
    while (!at_end(r, &r->send) && may_send(r) &&
           r->send.number - r->sent.number < RING_WINDOW) {
        emit(r, &r->send, true, out);
        advance(r, &r->send, (r->rank + 1) % r->n);
    }
}

int ring_done(struct ring *r, const struct event *event)
{
    struct ring_cursor *c = event->sent ? &r->sent : &r->received;
    const struct ring_cursor *limit = event->sent ? &r->send : &r->post;

    if (event->segment.seg != c->number || c->number >= limit->number) {
        return LOCO_EPROTO;
    }
    r->bytes += event->segment.len;
    advance(r, c, event->sent ? (r->rank + 1) % r->n : r->rank);
    return 0;
}

bool ring_finished(const struct ring *r)
{
    return at_end(r, &r->received) && at_end(r, &r->sent);
}

uint64_t ring_progress(const struct ring *r)
{
    return (uint64_t)r->received.number + r->sent.number;
}
