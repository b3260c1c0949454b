/* bulk_recv.c - see bulk.h: frames meet their posts. */
#include <assert.h>

#include <utlist.h>

#include "p2p/uv/bulk_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

static struct bulk_op *find_post(struct shell *s, const struct bulk_key *key)
{
    struct bulk_op *op;

    HASH_FIND(hh, s->bulk.posts, key, sizeof *key, op);
    return op;
}

static void unpost(struct shell *s, struct bulk_op *op)
{
    HASH_DEL(s->bulk.posts, op);
    s->stats.posts--;
}

void bulk_post(struct shell *s, const struct segment *segment)
{
    struct bulk_op *op;

    assert(segment->stream < STREAM_COUNT);
    if (bulk_is_cancelled(s, segment->stream, segment->attempt)) {
        return;
    }
    op = op_new(s, segment, false);
    if (find_post(s, &op->key) != NULL) {
        op_finish(s, op, LOCO_EINVAL); /* posted twice: the core's mistake */
        return;
    }
    if (s->stats.posts >= s->opt.posts_max) {
        op_finish(s, op, LOCO_EFULL);
        return;
    }
    HASH_ADD(hh, s->bulk.posts, key, sizeof op->key, op);
    s->stats.posts++;
    s->bulk.dirty = true;
}

/* ---- one frame -------------------------------------------------------- */

static void refuse(struct bulk *b)
{
    b->conn->shell->stats.segments_refused++;
    bulk_end(b, LOCO_EPROTO);
}

/* The slab of BODY back to the pool, if it has one; the op is the caller's
 * again. */
static struct bulk_op *detach(struct bulk *b)
{
    struct shell *s = b->conn->shell;
    struct bulk_op *op = b->op;

    if (b->slab != NULL) {
        slab_give(s, &s->bulk.in, b->slab);
    }
    b->slab = NULL;
    b->dst = NULL;
    b->op = NULL;
    if (op != NULL) {
        op->bulk = NULL;
    }
    return op;
}

/* Less than this beside what came with the header measures our own speed. */
#define BUSY_LEAST_BYTES (16U << 10)

static uint64_t now_us(void)
{
    return uv_hrtime() / 1000U;
}

/* Payload follows. What is in the read buffer already took no time. */
static void clock_start(struct bulk *b)
{
    size_t buffered = b->conn->fill - b->conn->pos;

    b->began_us = b->waited ? 0 : now_us();
    b->buffered = buffered < b->header.len ? (uint32_t)buffered : b->header.len;
}

static void clock_stop(struct bulk *b, struct event_seg_done *e)
{
    if (b->began_us != 0 && b->header.len >= b->buffered + BUSY_LEAST_BYTES) {
        e->busy_bytes = b->header.len - b->buffered;
        e->busy_us = now_us() - b->began_us;
    }
}

static void complete(struct bulk *b)
{
    struct shell *s = b->conn->shell;
    struct bulk_op *op = b->op;
    int rv;

    clock_stop(b, &op->note.event.seg_done);
    rv = s->calls.take(s->calls.self, &op->note.event.seg_done.segment, b->dst,
                       b->header.len);
    detach(b);
    b->state = BULK_HEAD;
    unpost(s, op);
    op_finish(s, op, rv < 0 ? rv : 0);
}

static void skip(struct bulk *b)
{
    b->conn->shell->stats.segments_skipped++;
    b->state = b->got < b->header.len ? BULK_SKIP : BULK_HEAD;
}

static void wait_for_post(struct bulk *b)
{
    b->state = BULK_WAIT;
    b->waited = true;
    b->conn->shell->stats.paused++;
    conn_pause(b->conn, b->conn->shell->opt.unposted_ms);
}

/* Where the payload of a posted frame goes; false: nowhere yet. */
static bool find_place(struct bulk *b, const struct segment *segment)
{
    struct shell *s = b->conn->shell;

    if (s->calls.place != NULL) {
        b->dst = s->calls.place(s->calls.self, segment);
    }
    if (b->dst == NULL) {
        b->slab = slab_take(s, &s->bulk.in);
        b->dst = b->slab != NULL ? b->slab->bytes : NULL;
    }
    return b->dst != NULL;
}

/* It waits like what nobody has asked for, until its attempt ends (core.h). */
static bool may_differ(const struct bulk_header *h)
{
    return h->stream == STREAM_RING;
}

/* What to do with the frame whose header has arrived. */
static void meet(struct bulk *b)
{
    struct shell *s = b->conn->shell;
    const struct bulk_header *h = &b->header;
    struct bulk_key key = {.peer = b->peer->id,
                           .attempt = h->attempt,
                           .stream = h->stream,
                           .seg = h->seg};
    struct bulk_op *op;
    bool other; /* than what was asked for */

    if (bulk_is_cancelled(s, h->stream, h->attempt)) {
        skip(b);
        return;
    }
    op = find_post(s, &key);
    other = op != NULL &&
            s->calls.wire_len(s->calls.self,
                              &op->note.event.seg_done.segment) != h->len;
    if (op != NULL && (op->bulk != NULL || (other && !may_differ(h)))) {
        refuse(b); /* a second copy, or another length */
        return;
    }
    if (op == NULL || other ||
        !find_place(b, &op->note.event.seg_done.segment)) {
        wait_for_post(b);
        return;
    }
    b->op = op;
    op->bulk = b;
    b->state = BULK_BODY;
    clock_start(b);
    if (h->len == 0) {
        complete(b);
    }
}

/* The attempt of this frame is carried here. One of a fetch may have left a
 * relay for this connection (bulk_send.c): what is still on its way there ends
 * with that one, and nothing else. */
static void carry(struct bulk *b)
{
    uint32_t stream = b->header.stream;
    struct bulk *o;

    DL_FOREACH(b->peer->bulks, o)
    {
        if (bulk_moves(stream, o, b) && o->carried[stream] &&
            !o->left[stream] &&
            o->carried_attempt[stream] == b->header.attempt) {
            o->left[stream] = true;
            o->left_before[stream] = b->header.seg;
        }
    }
    b->left[stream] =
        b->left[stream] && b->carried_attempt[stream] == b->header.attempt;
    b->carried[stream] = true;
    b->carried_attempt[stream] = b->header.attempt;
}

/* A header: where a frame begins. */
static void begin(struct bulk *b, const uint8_t in[BULK_HEADER_BYTES])
{
    struct shell *s = b->conn->shell;
    struct bulk_header *h = &b->header;

    *h = (struct bulk_header){.len = get_u32(in),
                              .stream = get_u16(in + 6),
                              .attempt = get_u64(in + 8),
                              .seg = get_u32(in + 16)};
    b->got = 0;
    b->waited = false;
    if (in[4] != BULK_TYPE_SEGMENT || in[5] != 0 || h->stream >= STREAM_COUNT ||
        h->len > s->opt.segment_bytes_max) {
        refuse(b);
        return;
    }
    carry(b);
    meet(b);
}

/* `len` more bytes of payload are where they belong. */
static void advance(struct bulk *b, size_t len)
{
    b->got += (uint32_t)len;
    if (b->got < b->header.len) {
        return;
    }
    if (b->state == BULK_BODY) {
        complete(b);
    } else {
        b->state = BULK_HEAD;
    }
}

uint8_t *bulk_on_place(struct conn *c, size_t len)
{
    struct bulk *b = c->owner;

    if (b->state != BULK_BODY || len > b->header.len - b->got) {
        return NULL;
    }
    return b->dst + b->got;
}

void bulk_on_record(struct conn *c, const uint8_t *plain, size_t len)
{
    struct bulk *b = c->owner;

    assert(b->state != BULK_WAIT); /* it is paused */
    if (b->state == BULK_HEAD) {
        if (len == BULK_HEADER_BYTES) {
            begin(b, plain);
        } else {
            refuse(b);
        }
    } else if (len == 0 || len > b->header.len - b->got) {
        refuse(b);
    } else {
        advance(b, len);
    }
}

uint8_t *bulk_on_room(struct conn *c, size_t *len)
{
    struct bulk *b = c->owner;

    assert(b->state != BULK_WAIT);
    if (b->state == BULK_HEAD) {
        *len = BULK_HEADER_BYTES - b->n_head;
        return b->head + b->n_head;
    }
    *len = b->header.len - b->got;
    return b->state == BULK_BODY ? b->dst + b->got : c->shell->bulk.scratch;
}

void bulk_on_bytes(struct conn *c, size_t len)
{
    struct bulk *b = c->owner;

    if (b->state != BULK_HEAD) {
        advance(b, len);
        return;
    }
    b->n_head += (uint32_t)len;
    if (b->n_head == BULK_HEADER_BYTES) {
        b->n_head = 0;
        begin(b, b->head);
    }
}

static void stop_waiting(struct bulk *b)
{
    assert(b->state == BULK_WAIT);
    b->state = BULK_HEAD;
    b->conn->shell->stats.paused--;
}

void bulk_recv_retry(struct bulk *b)
{
    stop_waiting(b);
    meet(b);
    if (!b->ended && b->state != BULK_WAIT) {
        conn_resume(b->conn);
    }
}

/* ---- how often we are woken ------------------------------------------- */

/* Bytes of the frame that must still come. Sealed: at least, since into how
 * many records they are cut is the sender's business. */
static size_t bytes_due(const struct bulk *b)
{
    size_t due = b->header.len - b->got, here = b->conn->fill - b->conn->pos;

    if (b->state != BULK_BODY && b->state != BULK_SKIP) {
        return 0;
    }
    if (b->conn->plain) {
        return due;
    }
    due += RECORD_HEAD_BYTES + NOISE_TAG_BYTES;
    return due > here ? due - here : 0;
}

/* The batch follows the line: doubled while it comes in a moment, halved when
 * it takes longer than anybody should have to wait. */
void bulk_await(struct conn *c)
{
    struct bulk *b = c->owner;
    uint64_t now = uv_now(c->shell->loop), took_ms = now - b->came_ms;
    size_t due = bytes_due(b);

    b->came_ms = now;
    if (took_ms <= BULK_BATCH_LEAST_MS && b->batch < BULK_BATCH_BYTES) {
        b->batch = b->batch < 1024 ? 1024 : 2 * b->batch;
    } else if (took_ms > BULK_BATCH_MOST_MS) {
        b->batch /= 2;
    }
    due = due < b->batch ? due : b->batch;
    conn_read_least(c, due > 1 ? (uint32_t)due : 1);
}

/* ---- endings ---------------------------------------------------------- */

void bulk_recv_stop(struct bulk *b, int rc)
{
    struct bulk_op *op;

    if (b->state == BULK_WAIT) {
        stop_waiting(b);
    }
    op = detach(b);
    if (op != NULL) {
        unpost(b->conn->shell, op);
        op_finish(b->conn->shell, op, rc);
    }
}

/* `b` ended, or a dial did (NULL): the posts that will not be met. */
void bulk_recv_fail(struct shell *s,
                    struct peer *p,
                    const struct bulk *b,
                    int rc)
{
    bool last = p->n_bulks == 0;
    struct bulk_op *op, *tmp;

    HASH_ITER(hh, s->bulk.posts, op, tmp)
    {
        uint32_t stream = op->key.stream;
        bool carried =
            b != NULL && b->carried[stream] &&
            b->carried_attempt[stream] == op->key.attempt &&
            (!b->left[stream] || op->key.seg < b->left_before[stream]);

        if (op->peer == p && op->bulk == NULL && (last || carried)) {
            unpost(s, op);
            op_finish(s, op, rc);
        }
    }
}

void bulk_recv_cancel(struct shell *s, uint32_t stream, uint64_t attempt)
{
    struct bulk_op *op, *tmp;

    HASH_ITER(hh, s->bulk.posts, op, tmp)
    {
        if (op->key.stream != stream || op->key.attempt > attempt) {
            continue;
        }
        if (op->bulk != NULL) {
            struct bulk *b = op->bulk;

            detach(b);
            skip(b);
        }
        unpost(s, op);
        op_drop(s, op);
    }
}
