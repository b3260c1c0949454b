/* bulk_send.c - see bulk.h: the queues of a peer and the way to the kernel. */
#include <assert.h>
#include <stdlib.h>

#include <utlist.h>

#include "p2p/uv/bulk_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define CONTAINER_OF(p, type, field)                                           \
    ((type *)(void *)((char *)(p)-offsetof(type, field)))

static void dequeue(struct shell *s, struct peer_stream *q, struct bulk_op *op)
{
    DL_DELETE(q->sends, op);
    q->n_sends--;
    s->stats.sends--;
}

/* ---- writing ---------------------------------------------------------- */

static void forget_writing(struct bulk *b, const struct slab *slab)
{
    for (unsigned i = 0; i < b->n_writing; i++) {
        if (b->writing[i] == slab) {
            b->writing[i] = b->writing[--b->n_writing];
            return;
        }
    }
    assert(false);
}

static void on_written(struct conn_write *w, int status)
{
    struct slab *slab = CONTAINER_OF(w, struct slab, w);
    struct bulk *b = slab->bulk;
    struct shell *s = b->conn->shell;
    struct bulk_op *op = slab->op;

    forget_writing(b, slab);
    slab_give(s, &s->bulk.out, slab);
    if (op != NULL) {
        op_finish(s, op, status != 0 && b->rc != 0 ? b->rc : status);
    }
}

static void put_header(uint8_t out[BULK_HEADER_BYTES],
                       const struct bulk_key *key,
                       size_t len)
{
    put_u32(out, (uint32_t)len);
    out[4] = BULK_TYPE_SEGMENT;
    out[5] = 0;
    put_u16(out + 6, (uint16_t)key->stream);
    put_u64(out + 8, key->attempt);
    put_u32(out + 16, key->seg);
}

/* Header and plain[len] sealed into the slab: bytes, or a negative code. */
static int seal(struct bulk *b,
                const struct bulk_key *key,
                const uint8_t *plain,
                size_t len,
                struct slab *slab)
{
    size_t used, n;
    int rv;

    put_header(slab->head, key, len);
    rv = conn_seal(b->conn, slab->head, sizeof slab->head, slab->bytes);
    if (rv < 0) {
        return rv;
    }
    used = (size_t)rv;
    for (size_t at = 0; at < len; at += n) {
        n = len - at < NOISE_PLAIN_MAX ? len - at : NOISE_PLAIN_MAX;
        rv = conn_seal(b->conn, plain + at, n, slab->bytes + used);
        if (rv < 0) {
            return rv;
        }
        used += (size_t)rv;
    }
    return (int)used;
}

/* Find the op's payload, if need be in `room`: its length, or a negative
 * code. */
static int find_payload(struct shell *s,
                        struct bulk_op *op,
                        uint8_t *room,
                        const uint8_t **payload)
{
    const struct segment *segment = &op->note.event.seg_done.segment;
    size_t len = s->calls.wire_len(s->calls.self, segment);
    int rv;

    *payload = NULL;
    if (len > s->opt.segment_bytes_max) {
        return LOCO_ERANGE;
    }
    if (s->calls.lend != NULL) {
        *payload = s->calls.lend(s->calls.self, segment);
    }
    if (*payload == NULL) {
        *payload = room;
        rv = s->calls.fill(s->calls.self, segment, room);
        if (rv < 0) {
            return rv;
        }
    }
    return (int)len;
}

static int write_sealed(struct bulk *b,
                        const struct bulk_key *key,
                        const uint8_t *payload,
                        size_t len,
                        struct slab *slab)
{
    int n = seal(b, key, payload, len, slab);
    uv_buf_t buf;

    if (n < 0) {
        return n;
    }
    buf = conn_bytes(slab->bytes, (size_t)n);
    return pace_write(b->conn, &slab->w, &buf, 1, on_written);
}

static int write_plain(struct bulk *b,
                       const struct bulk_key *key,
                       const uint8_t *payload,
                       size_t len,
                       struct slab *slab)
{
    uv_buf_t bufs[2];

    put_header(slab->head, key, len);
    bufs[0] = conn_bytes(slab->head, sizeof slab->head);
    bufs[1] = conn_bytes(payload, len);
    return pace_write(b->conn, &slab->w, bufs, len > 0 ? 2 : 1, on_written);
}

static bool is_strange(const struct bulk *b)
{
    return b->conn->shell->opt.stranger_slabs > 0 && !b->peer->trusted;
}

bool bulk_waits(const struct bulk *b)
{
    const struct shell *s = b->conn->shell;

    return is_strange(b) && s->bulk.n_strange >= s->opt.stranger_slabs;
}

/* Write one op that was taken off its queue. */
static void write_op(struct bulk *b, struct bulk_op *op, struct slab *slab)
{
    struct shell *s = b->conn->shell;
    bool plain = b->conn->plain;
    const uint8_t *payload;
    int rv, len = find_payload(s, op, plain ? slab->bytes : s->bulk.scratch,
                               &payload);

    if (len < 0) {
        slab_give(s, &s->bulk.out, slab);
        op_finish(s, op, len);
        return;
    }
    slab->bulk = b;
    slab->op = op;
    slab->strange = is_strange(b);
    s->bulk.n_strange += slab->strange;
    rv = plain ? write_plain(b, &op->key, payload, (size_t)len, slab)
               : write_sealed(b, &op->key, payload, (size_t)len, slab);
    if (rv != 0) {
        slab_give(s, &s->bulk.out, slab);
        op_finish(s, op, rv);
        bulk_end(b, rv); /* nonces were used: the stream is broken */
        return;
    }
    b->writing[b->n_writing++] = slab;
}

struct bulk *bulk_best(const struct peer *p)
{
    struct bulk *b;

    DL_FOREACH(p->bulks, b)
    {
        if (!conn_is_relayed(b->conn)) {
            return b;
        }
    }
    return p->bulks;
}

static bool is_writing(const struct bulk *b, unsigned stream)
{
    for (unsigned i = 0; i < b->n_writing; i++) {
        if (b->writing[i]->op != NULL &&
            b->writing[i]->op->key.stream == stream) {
            return true;
        }
    }
    return false;
}

bool bulk_moves(uint32_t stream, const struct bulk *from, const struct bulk *to)
{
    return stream >= STREAM_FETCH && stream < STREAM_FETCH + STREAM_FETCHES &&
           conn_is_relayed(from->conn) && !conn_is_relayed(to->conn);
}

/* When nothing of it is on the way there. */
static bool may_move(const struct peer *p, unsigned stream)
{
    const struct bulk *b = p->streams[stream].bound;

    return bulk_moves(stream, b, bulk_best(p)) && !is_writing(b, stream);
}

/* The next op that must go over `b`, off its queue. Streams in order: the
 * ring is waited for by everybody, a fetch by one. */
static struct bulk_op *next_op(struct bulk *b)
{
    struct peer *p = b->peer;

    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        struct peer_stream *q = &p->streams[i];
        struct bulk_op *op = q->sends;

        if (op == NULL) {
            continue;
        }
        if (q->bound == NULL || q->bound_attempt != op->key.attempt ||
            may_move(p, i)) {
            q->bound = bulk_best(p);
            q->bound_attempt = op->key.attempt;
        }
        if (q->bound == b) {
            dequeue(b->conn->shell, q, op);
            return op;
        }
    }
    return NULL;
}

void bulk_send_next(struct bulk *b)
{
    struct shell *s = b->conn->shell;
    struct slab *slab;
    struct bulk_op *op;

    while (!b->ended && b->n_writing < BULK_WRITES_MAX && !bulk_waits(b)) {
        slab = slab_take(s, &s->bulk.out);
        if (slab == NULL) {
            return; /* slab_give() will set `dirty` */
        }
        op = next_op(b);
        if (op == NULL) {
            slab->next = s->bulk.out.free;
            s->bulk.out.free = slab;
            return;
        }
        write_op(b, op, slab);
    }
}

/* ---- queueing --------------------------------------------------------- */

void bulk_send(struct shell *s, const struct segment *segment)
{
    struct peer_stream *q;
    struct bulk_op *op;

    assert(segment->stream < STREAM_COUNT);
    op = op_new(s, segment, true);
    q = &op->peer->streams[segment->stream];
    if (q->n_sends >= s->opt.sends_max) {
        op_finish(s, op, LOCO_EFULL);
        return;
    }
    DL_APPEND(q->sends, op);
    q->n_sends++;
    s->stats.sends++;
    s->bulk.dirty = true;
}

/* `b` ended, or a dial did (NULL). */
void bulk_send_fail(struct shell *s,
                    struct peer *p,
                    const struct bulk *b,
                    int rc)
{
    bool last = p->n_bulks == 0 && !p->dialling && (b != NULL || !p->meeting);

    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        struct peer_stream *q = &p->streams[i];
        bool bound = b != NULL && q->bound == b;
        struct bulk_op *op, *tmp;

        DL_FOREACH_SAFE(q->sends, op, tmp)
        {
            if (last || (bound && op->key.attempt == q->bound_attempt)) {
                dequeue(s, q, op);
                op_finish(s, op, rc);
            }
        }
        if (bound) {
            q->bound = NULL;
        }
    }
}

void bulk_unlinked(struct shell *s, const struct peer_id *id)
{
    struct peer *p = peer_find(s, id);
    struct bulk_op *op, *tmp;

    if (p == NULL || p->n_bulks > 0 || p->dialling || p->meeting) {
        return;
    }
    for (unsigned i = STREAM_FETCH; i < STREAM_FETCH + STREAM_FETCHES; i++) {
        struct peer_stream *q = &p->streams[i];

        DL_FOREACH_SAFE(q->sends, op, tmp)
        {
            dequeue(s, q, op);
            op_finish(s, op, LOCO_ECLOSED);
        }
    }
}

void bulk_send_cancel(struct shell *s, uint32_t stream, uint64_t attempt)
{
    struct peer *p;
    struct bulk *b;

    for (p = s->peers; p != NULL; p = p->hh.next) {
        struct peer_stream *q = &p->streams[stream];
        struct bulk_op *op, *tmp;

        DL_FOREACH_SAFE(q->sends, op, tmp)
        {
            if (op->key.attempt == attempt) {
                dequeue(s, q, op);
                op_drop(s, op);
            }
        }
    }
    DL_FOREACH2(s->bulk.all, b, all_next)
    {
        for (unsigned i = 0; i < b->n_writing; i++) {
            struct slab *slab = b->writing[i];

            if (slab->op != NULL && slab->op->key.stream == stream &&
                slab->op->key.attempt == attempt) {
                op_drop(s, slab->op); /* its bytes go on, nobody is told */
                slab->op = NULL;
            }
        }
    }
}
