/* bulk.c - see bulk.h: connections, slabs, ops; sending and receiving have
 * files of their own. */
#include "p2p/uv/bulk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "p2p/uv/bulk_internal.h"
#include "proto/base/err.h"

/* ---- slabs ------------------------------------------------------------ */

static size_t slab_bytes(uint32_t segment_bytes)
{
    size_t n_records =
        1 + (segment_bytes + NOISE_PLAIN_MAX - 1) / NOISE_PLAIN_MAX;

    return BULK_HEADER_BYTES + segment_bytes +
           n_records * (RECORD_HEAD_BYTES + NOISE_TAG_BYTES);
}

struct slab *slab_take(struct shell *s, struct slab_pool *pool)
{
    struct slab *slab = pool->free;

    pool->used_ms = shell_now_ms();
    if (slab != NULL) {
        pool->free = slab->next;
        return slab;
    }
    if (pool->n_made == pool->n_max) {
        return NULL;
    }
    slab = malloc(sizeof *slab + slab_bytes(s->opt.segment_bytes_max));
    if (slab != NULL) {
        slab->strange = false;
        pool->n_made++;
    }
    return slab;
}

void slab_give(struct shell *s, struct slab_pool *pool, struct slab *slab)
{
    pool->used_ms = shell_now_ms();
    s->bulk.n_strange -= slab->strange;
    slab->strange = false;
    slab->next = pool->free;
    slab->bulk = NULL;
    slab->op = NULL;
    pool->free = slab;
    s->bulk.dirty = true;
}

static void pool_empty(struct slab_pool *pool)
{
    struct slab *slab, *tmp;

    LL_FOREACH_SAFE(pool->free, slab, tmp)
    {
        free(slab);
        pool->n_made--;
    }
    pool->free = NULL;
}

static void pool_free(struct slab_pool *pool)
{
    pool_empty(pool);
    assert(pool->n_made == 0);
}

bool bulk_spare(struct shell *s, uint64_t now_ms)
{
    struct slab_pool *pools[] = {&s->bulk.in, &s->bulk.out};
    bool any = false;

    for (int i = 0; i < 2; i++) {
        if (pools[i]->free != NULL &&
            now_ms - pools[i]->used_ms >= s->opt.spare_ms) {
            pool_empty(pools[i]);
            any = true;
        }
    }
    return any;
}

/* ---- ops -------------------------------------------------------------- */

struct bulk_op *
op_new(struct shell *s, const struct segment *segment, bool sent)
{
    struct bulk_op *op = shell_alloc(sizeof *op);

    memset(op, 0, sizeof *op);
    op->note.event.type = EVENT_SEG_DONE;
    op->note.event.seg_done.segment = *segment;
    op->note.event.seg_done.sent = sent;
    op->key.peer = segment->peer;
    op->key.attempt = segment->attempt;
    op->key.stream = segment->stream;
    op->key.seg = segment->seg;
    op->peer = peer_acquire(s, &segment->peer);
    return op;
}

void op_finish(struct shell *s, struct bulk_op *op, int rc)
{
    static_assert(offsetof(struct bulk_op, note) == 0, "freed as a note");
    peer_release(s, op->peer);
    op->note.event.seg_done.rc = rc;
    shell_note_taken(s, &op->note);
}

void op_drop(struct shell *s, struct bulk_op *op)
{
    peer_release(s, op->peer);
    free(op);
}

bool bulk_is_cancelled(const struct shell *s, uint32_t stream, uint64_t attempt)
{
    return s->bulk.fenced[stream] && attempt <= s->bulk.fence[stream];
}

/* ---- connections ------------------------------------------------------ */

static void on_fail(struct conn *c, int rc)
{
    bulk_end(c->owner, rc);
}

static void on_closed(struct conn *c)
{
    struct bulk *b = c->owner;

    if (b == NULL) {
        return;
    }
    bulk_end(b, LOCO_ECLOSED);
    assert(b->n_writing == 0);
    peer_release(c->shell, b->peer);
    free(b);
}

static const struct conn_ops bulk_ops = {
    .on_place = bulk_on_place,
    .on_record = bulk_on_record,
    .on_room = bulk_on_room,
    .on_bytes = bulk_on_bytes,
    .on_fail = on_fail,
    .on_closed = on_closed,
};

void bulk_adopt(struct conn *c)
{
    struct shell *s = c->shell;
    struct peer *p = peer_acquire(s, &c->remote.id);
    struct bulk *b = shell_alloc(sizeof *b);

    memset(b, 0, sizeof *b);
    b->conn = c;
    b->peer = p;
    c->owner = b;
    c->ops = &bulk_ops;
    if (!c->plain) {
        conn_buffer(c, BULK_READ_BYTES);
    }
    if (p->n_bulks >= s->opt.bulks_per_peer_max) {
        /* It opened a new one, so it has no use for the oldest. */
        bulk_end(p->bulks->prev, LOCO_ECLOSED);
    }
    DL_PREPEND(p->bulks, b);
    DL_APPEND2(s->bulk.all, b, all_prev, all_next);
    p->n_bulks++;
    p->bulk_seen = true;
    s->stats.bulks++;
    s->bulk.dirty = true;
}

bool bulk_make_room(struct shell *s)
{
    struct bulk *b;

    DL_FOREACH2(s->bulk.all, b, all_next)
    {
        if (b->conn->inbound && !b->peer->trusted) {
            bulk_end(b, LOCO_ECLOSED);
            return true;
        }
    }
    return false;
}

void bulk_end(struct bulk *b, int rc)
{
    struct peer *p = b->peer;
    struct shell *s = b->conn->shell;

    if (b->ended) {
        return;
    }
    b->ended = true;
    b->rc = rc;
    DL_DELETE(p->bulks, b);
    DL_DELETE2(s->bulk.all, b, all_prev, all_next);
    p->n_bulks--;
    s->stats.bulks--;
    s->bulk.dirty = true;
    bulk_recv_stop(b, rc);
    bulk_recv_fail(s, p, b, rc);
    bulk_send_fail(s, p, b, rc);
    conn_close(b->conn);
}

/* ---- dialling --------------------------------------------------------- */

static bool has_direct(const struct peer *p)
{
    return p->bulks != NULL && !conn_is_relayed(bulk_best(p)->conn);
}

/* A way to a connection is over, for reason rc. Who waits for one is told, but
 * not while another way may lead to it. */
static void way_over(struct shell *s, struct peer *p, int rc)
{
    if (rc != 0 && p->n_bulks == 0 && !p->dialling && !p->meeting) {
        bulk_send_fail(s, p, NULL, rc);
        if (p->bulk_seen) {
            bulk_recv_fail(s, p, NULL, rc);
        }
    }
    peer_release(s, p);
}

static void dial_over(struct shell *s, struct peer *p, int rc)
{
    assert(p->dialling);
    p->dialling = false;
    p->dial_rc = 0;
    way_over(s, p, rc);
}

static void on_dial_up(struct conn *c)
{
    bulk_adopt(c);
    dial_over(c->shell, peer_find(c->shell, &c->expected), 0);
}

static void on_dial_fail(struct conn *c, int rc)
{
    dial_over(c->shell, peer_find(c->shell, &c->expected), rc);
    conn_close(c);
}

static const struct conn_ops dial_ops = {
    .on_up = on_dial_up,
    .on_fail = on_dial_fail,
    .on_closed = on_closed,
};

/* A meeting is over: whatever there was before goes on being used. */
static void meet_over(struct shell *s, struct peer *p, int rc)
{
    struct event e = {.type = EVENT_BULK_MET,
                      .bulk_met = {.peer = p->id,
                                   .up = rc == 0 || has_direct(p),
                                   .made = rc == 0}};

    p->meeting = false;
    shell_note(s, &e);
    way_over(s, p, rc);
}

static void on_meet_up(struct conn *c)
{
    bulk_adopt(c);
    meet_over(c->shell, peer_find(c->shell, &c->expected), 0);
}

static void on_meet_fail(struct conn *c, int rc)
{
    meet_over(c->shell, peer_find(c->shell, &c->expected), rc);
    conn_close(c);
}

static const struct conn_ops meet_ops = {
    .on_up = on_meet_up,
    .on_fail = on_meet_fail,
    .on_closed = on_closed,
};

static int dial(struct shell *s,
                const struct conn_ops *ops,
                const struct action_bulk_open *open)
{
    struct conn_way way = {
        .address = open->address, .relay = open->relay, .meet = open->meet};
    struct conn *c;

    return conn_dial_through(s, ops, CONNECTION_BULK, &way, &open->peer, &c);
}

static void meet_open(struct shell *s, const struct action_bulk_open *open)
{
    struct peer *p = peer_acquire(s, &open->peer);
    int rv;

    if (p->meeting) {
        peer_release(s, p);
        return;
    }
    p->meeting = true;
    rv = has_direct(p) ? LOCO_ECANCELED : dial(s, &meet_ops, open);
    if (rv != 0) {
        meet_over(s, p, rv);
    }
}

void bulk_open(struct shell *s, const struct action_bulk_open *open)
{
    bool relayed = !id_is_zero(&open->relay);
    struct peer *p;

    assert(!id_is_zero(&open->peer));
    if (open->meet) {
        meet_open(s, open);
        return;
    }
    p = peer_acquire(s, &open->peer);
    if (p->dialling || (relayed ? p->n_bulks > 0 : has_direct(p))) {
        peer_release(s, p);
        return;
    }
    p->dialling = true;
    p->dial_rc = dial(s, &dial_ops, open);
    if (p->dial_rc != 0) {
        s->bulk.undialled = s->bulk.dirty = true;
    }
}

/* What is queued in the step of the BULK_OPEN waits for it as well. */
static void end_undialled(struct shell *s)
{
    s->bulk.undialled = false;
    for (struct peer *p = s->peers; p != NULL; p = p->hh.next) {
        if (p->dial_rc != 0) {
            dial_over(s, p, p->dial_rc);
        }
    }
}

/* ---- bytes move ------------------------------------------------------- */

void bulk_came(const struct conn *c)
{
    const struct bulk *b = c->owner;

    if (b->header.stream == STREAM_RING) {
        c->shell->bulk.moved = true;
    }
}

/* Bytes of one segment that the kernel has not taken yet, and of what is
 * before it. */
static uint64_t unsent_of(const struct bulk *b, const struct slab *slab)
{
    bool paced = b->conn->shell->pace.up.rate_bytes_per_s > 0;

    return conn_unsent(b->conn) +
           (paced ? slab->w.rest[0].len + slab->w.rest[1].len : 0);
}

/* Of the segments of the exchange. */
static uint64_t unsent(const struct shell *s)
{
    const struct bulk *b;
    uint64_t n = 0;

    DL_FOREACH2(s->bulk.all, b, all_next)
    {
        for (unsigned i = 0; i < b->n_writing; i++) {
            const struct slab *slab = b->writing[i];

            if (slab->op != NULL && slab->op->key.stream == STREAM_RING) {
                n += unsent_of(b, slab);
            }
        }
    }
    return n;
}

/* Strangers that stand still while others of them wait. */
static void end_stalled(struct shell *s, uint64_t now_ms)
{
    struct bulk *b, *tmp;

    DL_FOREACH_SAFE2(s->bulk.all, b, tmp, all_next)
    {
        uint64_t left = b->n_writing;

        for (unsigned i = 0; i < b->n_writing; i++) {
            left += unsent_of(b, b->writing[i]);
        }
        if (left != b->unsent) {
            b->unsent = left;
            b->unsent_ms = now_ms;
        } else if (left > 0 && bulk_waits(b) &&
                   now_ms - b->unsent_ms >= s->opt.stranger_stall_ms) {
            bulk_end(b, LOCO_ETIMEOUT);
        }
    }
}

/* Nothing came for a while: whatever comes now is news. */
static void look_at_all(struct shell *s)
{
    struct bulk *b;

    DL_FOREACH2(s->bulk.all, b, all_next)
    {
        b->batch = 0;
        conn_read_least(b->conn, 1);
    }
}

void bulk_tell_moved(struct shell *s)
{
    struct event e = {.type = EVENT_MOVED};
    uint64_t now = shell_now_ms(), left;

    if (now < s->bulk.moved_told_ms + BULK_MOVED_MS) {
        return;
    }
    if (!s->bulk.moved) {
        look_at_all(s);
    }
    end_stalled(s, now);
    left = unsent(s);
    if (s->bulk.moved || left != s->bulk.unsent) {
        shell_note(s, &e);
    }
    s->bulk.moved = false;
    s->bulk.unsent = left;
    s->bulk.moved_told_ms = now;
}

/* ---- the rest --------------------------------------------------------- */

void bulk_cancel(struct shell *s, uint32_t stream, uint64_t attempt)
{
    struct bulk *b, *tmp;

    assert(stream < STREAM_COUNT);
    bulk_recv_cancel(s, stream, attempt);
    bulk_send_cancel(s, stream, attempt);
    s->bulk.dirty = true;
    if (attempt > 0) {
        if (!bulk_is_cancelled(s, stream, attempt)) {
            s->bulk.fenced[stream] = true;
            s->bulk.fence[stream] = attempt;
        }
        return;
    }
    s->bulk.fenced[stream] = false;
    DL_FOREACH_SAFE2(s->bulk.all, b, tmp, all_next)
    {
        if (b->state == BULK_WAIT && b->header.stream == stream) {
            bulk_end(b, LOCO_ECANCELED);
        }
    }
}

bool bulk_pump(struct shell *s)
{
    struct bulk *b, *tmp;

    if (!s->bulk.dirty) {
        return false;
    }
    s->bulk.dirty = false;
    if (s->bulk.undialled) {
        end_undialled(s);
    }
    DL_FOREACH_SAFE2(s->bulk.all, b, tmp, all_next)
    {
        if (b->state == BULK_WAIT) {
            bulk_recv_retry(b);
        }
        bulk_send_next(b);
    }
    return true;
}

void bulk_init(struct shell *s)
{
    s->bulk = (struct bulk_state){
        .in.n_max = s->opt.slabs,
        .out.n_max = s->opt.slabs,
        .scratch = shell_alloc(s->opt.segment_bytes_max),
    };
}

void bulk_free(struct shell *s)
{
    struct peer *p;

    assert(s->bulk.all == NULL);
    end_undialled(s);
    for (p = s->peers; p != NULL; p = p->hh.next) {
        bulk_send_fail(s, p, NULL, LOCO_ECLOSED);
        bulk_recv_fail(s, p, NULL, LOCO_ECLOSED);
    }
    assert(s->bulk.posts == NULL);
    pool_free(&s->bulk.in);
    pool_free(&s->bulk.out);
    free(s->bulk.scratch);
}
