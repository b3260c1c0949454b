/* bulk.c - data connections: segments wait, travel, are taken.
 *
 * One connection per pair of peers. Each direction is a channel: `queued`
 * segments wait at the sender by stream, `wire` holds at most WIRE_WINDOW that
 * were written and not yet taken. The receiver takes the head of the wire when
 * it is posted; until then everything behind it waits, of other streams too,
 * as on a socket that is not read: the back-pressure.
 */
#include "daemon/sim/world/internal.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/base/err.h"

#define WIRE_WINDOW 4

/* ---- queues ----------------------------------------------------------- */

static bool bulk_cut(const struct world *w, const struct bulk *k)
{
    return world_blocked(w, k->peer[0], k->peer[1], true) ||
           world_blocked(w, k->peer[1], k->peer[0], true);
}

static void queue_add(struct frame_queue *q, struct frame *f)
{
    f->next = NULL;
    *(q->head == NULL ? &q->head : q->tail) = f;
    q->tail = &f->next;
    q->n++;
}

static struct frame *queue_take(struct frame_queue *q)
{
    struct frame *f = q->head;

    q->head = f->next;
    q->n--;
    return f;
}

static void frame_free(struct frame *f)
{
    free(f->bytes);
    free(f);
}

static void queue_clear(struct frame_queue *q)
{
    while (q->head != NULL) {
        frame_free(queue_take(q));
    }
}

static struct bulk *bulk_of(struct world *w, uint32_t a, uint32_t b)
{
    uint32_t lo = a < b ? a : b, hi = a < b ? b : a;
    struct bulk **at = &w->bulks[(size_t)lo * w->opt.n_peers + hi];
    struct bulk *k;

    if (*at == NULL) {
        k = world_alloc(sizeof *k);
        k->peer[0] = lo;
        k->peer[1] = hi;
        for (uint32_t side = 0; side < 2; side++) {
            k->channels[side].bulk = k;
            k->channels[side].side = side;
        }
        k->next = w->all_bulks;
        w->all_bulks = k;
        *at = k;
    }
    return *at;
}

bool bulk_cancelled(const struct world_peer *p,
                    const struct segment *seg,
                    bool sent)
{
    uint64_t bound = p->cancelled[seg->stream];

    return p->cancelled_any[seg->stream] &&
           (sent ? seg->attempt == bound : seg->attempt <= bound);
}

static void done(struct world *w,
                 uint32_t peer,
                 uint64_t at_ms,
                 const struct segment *seg,
                 bool sent,
                 int rc)
{
    struct event e = {.type = EVENT_SEG_DONE,
                      .seg_done = {.segment = *seg, .sent = sent, .rc = rc}};

    if (w->peers[peer].alive) {
        world_event(w, peer, at_ms, &e);
    }
}

static uint64_t rate_of(const struct world *w, uint32_t from, uint32_t to)
{
    return w->opt.rate == NULL ? w->opt.bytes_per_s
                               : w->opt.rate(w->opt.rate_self, from, to);
}

/* When the receiver's line has taken what was sent by `at_ms`: in that order,
 * whoever it is from. */
static uint64_t
line_until(struct world *w, uint32_t to, uint64_t at_ms, size_t len)
{
    uint64_t rate = w->opt.line == NULL ? 0 : w->opt.line(w->opt.rate_self, to);
    uint64_t *busy_ms = &w->peers[to].line_until_ms;

    if (rate == 0) {
        return at_ms;
    }
    *busy_ms = (*busy_ms > at_ms ? *busy_ms : at_ms) + 1 + len * 1000 / rate;
    return *busy_ms;
}

/* Received, at the speed of the link. */
static void done_busy(struct world *w,
                      uint32_t from,
                      uint32_t peer,
                      const struct segment *seg,
                      size_t len)
{
    uint64_t rate = rate_of(w, from, peer);
    struct event e = {.type = EVENT_SEG_DONE, .seg_done.segment = *seg};

    e.seg_done.busy_bytes = rate > 0 ? len : 0;
    e.seg_done.busy_us = rate > 0 ? len * 1000000U / rate : 0;
    if (w->peers[peer].alive) {
        world_event(w, peer, w->now_ms, &e);
    }
}

/* ---- a connection ends ------------------------------------------------ */

static void fail_posts(struct world *w, uint32_t peer, uint32_t other, int rc)
{
    struct world_peer *p = &w->peers[peer];
    const struct peer_id *id = &w->peers[other].identity.id;
    struct post **at = &p->posts;

    while (*at != NULL) {
        struct post *post = *at;

        if (id_eq(&post->segment.peer, id)) {
            done(w, peer, w->now_ms, &post->segment, false, rc);
            *at = post->next;
            free(post);
            p->n_posts--;
        } else {
            at = &post->next;
        }
    }
}

static void fail_sends(struct world *w, struct channel *c, int rc)
{
    uint32_t peer = c->bulk->peer[c->side];
    bool same = w->peers[peer].life == c->bulk->life[c->side];
    struct frame *f;

    for (f = c->wire.head; f != NULL; f = f->next) {
        if (!f->sent && !f->silent && same) {
            done(w, peer, w->now_ms, &f->segment, true, rc);
        }
    }
    queue_clear(&c->wire);
    for (uint32_t s = 0; s < STREAM_COUNT; s++) {
        for (f = c->queued[s].head; f != NULL && same; f = f->next) {
            done(w, peer, w->now_ms, &f->segment, true, rc);
        }
        queue_clear(&c->queued[s]);
    }
    c->busy_until_ms = c->last_ms = 0;
}

static void bulk_break(struct world *w, struct bulk *k, int rc)
{
    k->generation++;
    k->break_on_heal = false;
    for (uint32_t side = 0; side < 2; side++) {
        fail_sends(w, &k->channels[side], rc);
    }
    for (uint32_t side = 0; side < 2; side++) {
        if (k->state == BULK_UP && w->peers[k->peer[side]].alive &&
            w->peers[k->peer[side]].life == k->life[side]) {
            fail_posts(w, k->peer[side], k->peer[!side], rc);
        }
    }
    k->state = BULK_NONE;
    k->via = 0;
}

static void break_at(struct world *w, struct bulk *k, uint64_t at, bool forced)
{
    world_push(w, (struct entry){.at_ms = at,
                                 .kind = ENTRY_BULK_BREAK,
                                 .peer = NOBODY,
                                 .life = (uint32_t)w->cut_serial,
                                 .a = k->generation,
                                 .b = forced,
                                 .ptr = k});
}

/* A process at one end is not the one that opened it. */
static bool outlived(const struct world *w, const struct bulk *k)
{
    return k->life[0] != w->peers[k->peer[0]].life ||
           k->life[1] != w->peers[k->peer[1]].life;
}

/* Nothing of an earlier life is left on it. */
static void refresh(struct world *w, struct bulk *k)
{
    if (outlived(w, k)) {
        bulk_break(w, k, LOCO_ECLOSED);
        k->life[0] = w->peers[k->peer[0]].life;
        k->life[1] = w->peers[k->peer[1]].life;
    }
}

/* ---- bytes move ------------------------------------------------------- */

/* The next to write: streams in order, as p2p/uv has it. */
static struct frame *next_frame(struct channel *c)
{
    for (uint32_t s = 0; s < STREAM_COUNT; s++) {
        if (c->queued[s].n > 0) {
            return queue_take(&c->queued[s]);
        }
    }
    return NULL;
}

static bool
is_kept(const struct world *w, uint32_t from, uint32_t to, struct frame *f)
{
    return w->opt.tamper_bulk != NULL &&
           w->opt.tamper_bulk(w->opt.tamper_self, from, to, &f->segment,
                              f->bytes, f->len);
}

static void pump_sender(struct world *w, struct channel *c)
{
    struct bulk *k = c->bulk;
    uint32_t peer = k->peer[c->side], to = k->peer[!c->side];
    struct frame *f;

    while (k->state == BULK_UP && c->wire.n < WIRE_WINDOW &&
           w->peers[peer].alive && !w->peers[peer].frozen &&
           (f = next_frame(c)) != NULL) {
        uint64_t start =
            c->busy_until_ms > w->now_ms ? c->busy_until_ms : w->now_ms;
        uint64_t here;
        int rc;

        f->len = w->machines.wire_len(w->machines.self, peer, &f->segment);
        f->bytes = world_alloc(f->len);
        rc = w->machines.fill(w->machines.self, peer, &f->segment, f->bytes);
        if (rc != 0 || is_kept(w, peer, to, f)) {
            done(w, peer, w->now_ms, &f->segment, true, rc);
            frame_free(f);
            continue;
        }
        c->busy_until_ms = start + 1 + f->len * 1000 / rate_of(w, peer, to);
        here = line_until(w, to, c->busy_until_ms, f->len) +
               world_latency(w, peer, to);
        here = here > c->last_ms ? here : c->last_ms;
        c->last_ms = here;
        w->stats.segments++;
        w->stats.bytes += f->len;
        queue_add(&c->wire, f);
        world_push(w, (struct entry){.at_ms = c->busy_until_ms,
                                     .kind = ENTRY_BULK_SENT,
                                     .peer = NOBODY,
                                     .a = k->generation,
                                     .ptr = c});
        world_push(w, (struct entry){.at_ms = here,
                                     .kind = ENTRY_BULK_HERE,
                                     .peer = NOBODY,
                                     .a = k->generation,
                                     .ptr = c});
    }
}

static struct post **find_post(struct world_peer *p,
                               const struct peer_id *from,
                               const struct segment *seg)
{
    for (struct post **at = &p->posts; *at != NULL; at = &(*at)->next) {
        const struct segment *s = &(*at)->segment;

        if (s->stream == seg->stream && s->attempt == seg->attempt &&
            s->seg == seg->seg && id_eq(&s->peer, from)) {
            return at;
        }
    }
    return NULL;
}

static bool fits(const struct segment *post, const struct segment *frame)
{
    return post->buffer == frame->buffer && post->index == frame->index &&
           post->offset == frame->offset && post->len == frame->len;
}

static void wait_for_post(struct world *w, struct channel *c, struct frame *f)
{
    if (f->waiting == 0) {
        f->waiting = ++w->n_waits;
        world_push(w, (struct entry){.at_ms = w->now_ms + UNPOSTED_MS,
                                     .kind = ENTRY_BULK_STALE,
                                     .peer = NOBODY,
                                     .a = c->bulk->generation,
                                     .b = f->waiting,
                                     .ptr = c});
    }
}

/* Take the head of the wire; false when it must wait. */
static bool take_head(struct world *w, struct channel *c)
{
    struct bulk *k = c->bulk;
    uint32_t from = k->peer[c->side], to = k->peer[!c->side];
    struct world_peer *p = &w->peers[to];
    struct frame *f = c->wire.head;
    struct post **at, *post;
    int rc;

    if (bulk_cancelled(p, &f->segment, false)) {
        frame_free(queue_take(&c->wire));
        return true;
    }
    at = find_post(p, &w->peers[from].identity.id, &f->segment);
    if (at == NULL) {
        wait_for_post(w, c, f);
        return false;
    }
    if (!fits(&(*at)->segment, &f->segment)) {
        world_note(w, to, "a frame contradicts its posting");
        if (w->opt.frames_contradict && f->segment.stream == STREAM_RING) {
            wait_for_post(w, c, f);
            return false;
        }
        w->stats.broke_rules++;
        bulk_break(w, k, LOCO_EPROTO);
        return false;
    }
    post = *at;
    *at = post->next;
    p->n_posts--;
    rc = w->machines.take(w->machines.self, to, &post->segment, f->bytes,
                          f->len);
    if (rc == 0 && f->waiting == 0) {
        done_busy(w, from, to, &post->segment, f->len);
    } else {
        done(w, to, w->now_ms, &post->segment, false, rc);
    }
    free(post);
    frame_free(queue_take(&c->wire));
    return true;
}

static void pump_receiver(struct world *w, struct channel *c)
{
    struct bulk *k = c->bulk;
    uint32_t to = k->peer[!c->side];

    while (k->state == BULK_UP && c->wire.n > 0 && c->wire.head->here &&
           w->peers[to].alive && !w->peers[to].frozen && !outlived(w, k) &&
           !bulk_cut(w, k)) {
        if (!take_head(w, c)) {
            return;
        }
        pump_sender(w, c);
    }
}

static void pump_bulk(struct world *w, struct bulk *k)
{
    for (uint32_t side = 0; side < 2; side++) {
        pump_sender(w, &k->channels[side]);
        pump_receiver(w, &k->channels[side]);
    }
}

/* ---- actions ---------------------------------------------------------- */

void world_bulk_open(struct world *w,
                     uint32_t peer,
                     const struct action_bulk_open *open)
{
    uint32_t to = world_find(w, &open->peer);
    struct bulk *k;

    if (to == w->opt.n_peers || to == peer) {
        w->stats.broke_rules++;
        return;
    }
    k = bulk_of(w, peer, to);
    refresh(w, k);
    if (open->meet && k->state == BULK_UP && k->via == 0) {
        struct event e = {.type = EVENT_BULK_MET,
                          .bulk_met = {.peer = open->peer, .up = true}};

        world_event(w, peer, w->now_ms, &e);
        return;
    }
    if (k->state != BULK_NONE && !open->meet) {
        return;
    }
    if (!id_is_zero(&open->relay)) {
        relay_bulk(w, peer, open);
        return;
    }
    if (w->peers[to].nat) { /* in vain; the other side may dial meanwhile */
        world_push(w,
                   (struct entry){.at_ms = w->now_ms + w->opt.dial_timeout_ms,
                                  .kind = ENTRY_BULK_DENIED,
                                  .peer = NOBODY,
                                  .a = k->generation,
                                  .b = k->peer[1] == peer,
                                  .ptr = k});
        return;
    }
    k->state = BULK_DIALLING;
    k->started_ms = w->now_ms;
    world_push(
        w, (struct entry){.at_ms = w->now_ms + 2 * world_latency(w, peer, to),
                          .kind = ENTRY_BULK_UP,
                          .peer = NOBODY,
                          .a = k->generation,
                          .ptr = k});
}

void world_bulk_post(struct world *w, uint32_t peer, const struct segment *seg)
{
    struct world_peer *p = &w->peers[peer];
    uint32_t from = world_find(w, &seg->peer);
    struct post *post = world_alloc(sizeof *post);
    struct bulk *k;

    assert(seg->stream < STREAM_COUNT);
    if (from == w->opt.n_peers || from == peer ||
        bulk_cancelled(p, seg, false)) {
        w->stats.broke_rules++;
        free(post);
        return;
    }
    post->segment = *seg;
    post->next = p->posts;
    p->posts = post;
    p->n_posts++;
    if (p->n_posts > w->stats.queue_max) {
        w->stats.queue_max = p->n_posts;
    }
    k = bulk_of(w, peer, from);
    pump_receiver(w, &k->channels[k->peer[0] == from ? 0 : 1]);
}

/* Without a connection it waits for one: either end may open it. */
void world_bulk_send(struct world *w, uint32_t peer, const struct segment *seg)
{
    uint32_t to = world_find(w, &seg->peer);
    struct frame_queue *q;
    struct frame *f;
    struct channel *c;
    struct bulk *k;

    assert(seg->stream < STREAM_COUNT);
    if (to == w->opt.n_peers || to == peer) {
        w->stats.broke_rules++;
        return;
    }
    k = bulk_of(w, peer, to);
    refresh(w, k);
    f = world_alloc(sizeof *f);
    f->segment = *seg;
    c = &k->channels[k->peer[0] == peer ? 0 : 1];
    q = &c->queued[seg->stream];
    queue_add(q, f);
    if (q->n > w->stats.queue_max) {
        w->stats.queue_max = q->n;
    }
    pump_sender(w, c);
}

void world_bulk_sum(struct world *w, uint32_t peer, const struct segment *seg)
{
    struct segment s = *seg;
    int rc = w->machines.sum(w->machines.self, peer, &s);

    done(w, peer, w->now_ms, &s, false, rc);
}

/* Sends that were queued before and posts end without a report. */
static void cancel_sends(struct channel *c, uint32_t stream, uint64_t attempt)
{
    struct frame_queue *queued = &c->queued[stream], rest = {0};

    while (queued->head != NULL) {
        struct frame *f = queue_take(queued);

        if (f->segment.attempt == attempt) {
            frame_free(f);
        } else {
            queue_add(&rest, f);
        }
    }
    *queued = rest;
    if (rest.head == NULL) {
        queued->tail = NULL;
    }
    for (struct frame *f = c->wire.head; f != NULL; f = f->next) {
        if (f->segment.stream == stream && f->segment.attempt == attempt) {
            f->silent = true; /* It travels on; nothing is reported. */
        }
    }
}

/* CANCEL 0: attempts count from elsewhere now. A connection on which a frame
 * of the stream waits unposted ends with it. */
static void forget_bound(struct world *w, uint32_t peer, uint32_t stream)
{
    w->peers[peer].cancelled_any[stream] = false;
    w->peers[peer].cancelled[stream] = 0;
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        for (uint32_t side = 0; side < 2; side++) {
            const struct frame *f = k->channels[!side].wire.head;

            if (k->peer[side] == peer && k->state == BULK_UP && f != NULL &&
                f->here && f->segment.stream == stream) {
                bulk_break(w, k, LOCO_ECANCELED);
            }
        }
    }
}

void world_bulk_cancel(struct world *w,
                       uint32_t peer,
                       uint32_t stream,
                       uint64_t attempt)
{
    struct world_peer *p = &w->peers[peer];

    assert(stream < STREAM_COUNT);
    if (attempt == 0) {
        forget_bound(w, peer, stream);
        return;
    }
    if (!p->cancelled_any[stream] || p->cancelled[stream] < attempt) {
        p->cancelled_any[stream] = true;
        p->cancelled[stream] = attempt;
        p->cancel_seq[stream] = w->seq;
    }
    for (struct post **at = &p->posts; *at != NULL;) {
        struct post *post = *at;

        if (post->segment.stream == stream &&
            post->segment.attempt <= attempt) {
            *at = post->next;
            free(post);
            p->n_posts--;
        } else {
            at = &post->next;
        }
    }
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        for (uint32_t side = 0; side < 2; side++) {
            if (k->peer[side] == peer) {
                cancel_sends(&k->channels[side], stream, attempt);
                pump_receiver(w, &k->channels[!side]);
            }
        }
    }
}

/* ---- entries ---------------------------------------------------------- */

static void on_bulk_up(struct world *w, struct bulk *k, bool late)
{
    const struct world_peer *a = &w->peers[k->peer[0]];
    const struct world_peer *b = &w->peers[k->peer[1]];

    if (k->state == BULK_UP) {
        return; /* since a thaw */
    }
    if (outlived(w, k) || !a->alive || !b->alive) {
        bulk_break(w, k, WORLD_EREFUSED);
    } else if (bulk_cut(w, k) || a->frozen || b->frozen) {
        if (late) {
            bulk_break(w, k, LOCO_ETIMEOUT);
            return;
        }
        world_push(
            w, (struct entry){.at_ms = k->started_ms + w->opt.dial_timeout_ms,
                              .kind = ENTRY_BULK_UP,
                              .peer = NOBODY,
                              .a = k->generation,
                              .b = 1,
                              .ptr = k});
    } else {
        k->state = BULK_UP;
        pump_bulk(w, k);
    }
}

static void denied(struct world *w, struct bulk *k, uint32_t side, int rc)
{
    if (k->state == BULK_NONE) {
        fail_sends(w, &k->channels[side], rc);
    }
}

void bulk_denied(struct world *w, uint32_t peer, uint32_t to, int rc)
{
    struct bulk *k = bulk_of(w, peer, to);

    denied(w, k, k->peer[1] == peer, rc);
}

bool bulk_through(struct world *w, uint32_t a, uint32_t b, uint64_t via)
{
    struct bulk *k = bulk_of(w, a, b);
    uint64_t left = k->via;

    refresh(w, k);
    if (k->state == BULK_UP && (via != 0 || k->via == 0)) {
        return false;
    }
    if (k->state == BULK_UP) { /* what is under way there still arrives */
        k->via = 0;
        relay_left(w, left);
        return true;
    }
    k->generation += k->state == BULK_DIALLING; /* that dial was in vain */
    k->state = BULK_UP;
    k->via = via;
    pump_bulk(w, k);
    return true;
}

void bulk_carry_gone(struct world *w, uint32_t a, uint32_t b, uint64_t via)
{
    struct bulk *k = bulk_of(w, a, b);

    if (k->state == BULK_UP && k->via == via) {
        bulk_break(w, k, LOCO_ECLOSED);
    }
}

uint64_t bulk_generation(struct world *w, uint32_t a, uint32_t b)
{
    return bulk_of(w, a, b)->generation;
}

void bulk_hole_gone(struct world *w, uint32_t a, uint32_t b, uint64_t made_as)
{
    struct bulk *k = bulk_of(w, a, b);

    if (k->state == BULK_UP && k->via == 0 && k->generation == made_as) {
        w->stats.broken++;
        bulk_break(w, k, LOCO_ECLOSED);
    }
}

static void on_sent(struct world *w, struct channel *c)
{
    struct frame *f = c->wire.head;

    while (f != NULL && f->sent) {
        f = f->next;
    }
    if (f != NULL) {
        f->sent = true;
        if (!f->silent) {
            done(w, c->bulk->peer[c->side], w->now_ms, &f->segment, true, 0);
        }
    }
}

static void on_here(struct world *w, struct channel *c)
{
    struct frame *f = c->wire.head;

    while (f != NULL && f->here) {
        f = f->next;
    }
    if (f != NULL) {
        f->here = true;
    }
    pump_receiver(w, c);
}

static void on_stale(struct world *w, struct channel *c, uint64_t waiting)
{
    const struct frame *f = c->wire.head;

    if (f != NULL && f->waiting == waiting &&
        !w->peers[c->bulk->peer[!c->side]].frozen) {
        world_note(w, c->bulk->peer[!c->side],
                   "a frame was never posted: its connection is closed");
        w->stats.unposted++;
        bulk_break(w, c->bulk, LOCO_ETIMEOUT);
    }
}

static void on_break(struct world *w, struct bulk *k, const struct entry *e)
{
    bool cut = bulk_cut(w, k);

    if (e->b != 0) {
        if (cut && e->life == (uint32_t)w->cut_serial) {
            bulk_break(w, k, LOCO_ETIMEOUT);
        }
    } else if (cut) {
        k->break_on_heal = true;
    } else {
        bulk_break(w, k, LOCO_ECLOSED);
    }
}

void bulk_on_entry(struct world *w, struct entry *e)
{
    struct channel *c;
    struct bulk *k;

    if (e->kind == ENTRY_BULK_SENT || e->kind == ENTRY_BULK_HERE ||
        e->kind == ENTRY_BULK_STALE) {
        c = e->ptr;
        if (c->bulk->generation != e->a) {
            return;
        }
        if (e->kind == ENTRY_BULK_SENT) {
            on_sent(w, c);
        } else if (e->kind == ENTRY_BULK_HERE) {
            on_here(w, c);
        } else {
            on_stale(w, c, e->b);
        }
        return;
    }
    k = e->ptr;
    if (k->generation != e->a) {
        return;
    }
    if (e->kind == ENTRY_BULK_DENIED) {
        denied(w, k, (uint32_t)e->b, LOCO_ETIMEOUT);
    } else if (e->kind == ENTRY_BULK_UP) {
        on_bulk_up(w, k, e->b != 0);
    } else {
        on_break(w, k, e);
    }
}

/* ---- faults ----------------------------------------------------------- */

void bulk_peer_died(struct world *w, uint32_t peer)
{
    struct world_peer *p = &w->peers[peer];

    while (p->posts != NULL) {
        struct post *next = p->posts->next;

        free(p->posts);
        p->posts = next;
    }
    p->n_posts = 0;
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        if (k->peer[0] == peer || k->peer[1] == peer) {
            break_at(w, k, w->now_ms + world_latency(w, k->peer[0], k->peer[1]),
                     false);
        }
    }
}

void bulk_on_cut(struct world *w)
{
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        if (w->opt.transport_timeout_ms > 0 && k->state == BULK_UP &&
            bulk_cut(w, k)) {
            break_at(w, k, w->now_ms + w->opt.transport_timeout_ms, true);
        }
    }
}

void bulk_on_heal(struct world *w)
{
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        if (k->break_on_heal) {
            bulk_break(w, k, LOCO_ECLOSED);
        }
        pump_bulk(w, k);
    }
}

void bulk_on_thaw(struct world *w, uint32_t peer)
{
    for (struct bulk *k = w->all_bulks; k != NULL; k = k->next) {
        if (k->peer[0] != peer && k->peer[1] != peer) {
            continue;
        }
        if (k->state == BULK_DIALLING && !bulk_cut(w, k) &&
            !w->peers[k->peer[0]].frozen && !w->peers[k->peer[1]].frozen &&
            w->now_ms > k->started_ms) {
            k->state = BULK_UP; /* its kernel had taken the connection */
        }
        pump_bulk(w, k);
    }
}

void world_drop_bulk(struct world *w, uint32_t a, uint32_t b)
{
    struct bulk *k = bulk_of(w, a, b);

    if (k->state != BULK_NONE) {
        bulk_break(w, k, LOCO_ECLOSED);
    }
}

void world_bulk_free(struct world *w)
{
    while (w->all_bulks != NULL) {
        struct bulk *k = w->all_bulks;

        w->all_bulks = k->next;
        for (uint32_t side = 0; side < 2; side++) {
            queue_clear(&k->channels[side].wire);
            for (uint32_t s = 0; s < STREAM_COUNT; s++) {
                queue_clear(&k->channels[side].queued[s]);
            }
        }
        free(k);
    }
    for (uint32_t i = 0; i < w->opt.n_peers; i++) {
        while (w->peers[i].posts != NULL) {
            struct post *next = w->peers[i].posts->next;

            free(w->peers[i].posts);
            w->peers[i].posts = next;
        }
    }
}
