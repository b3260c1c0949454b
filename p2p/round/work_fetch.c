/* work_fetch.c - see work_internal.h.
 *
 * Pieces of a lease that is to be made again are numbered: WORK_DRAWS blocks of
 * the contribution (first, as they are read beside the result of the round, and
 * the moments of a large model may take longer than that is kept), then the
 * moments in parts of at most PART elements, then as many blocks of the moments
 * after it. What was refused is
 * asked for again from the first piece on that is not here: a maker serves each
 * piece about once.
 */
#include <string.h>

#include "p2p/round/work_internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/blocks.h"

#define PART      (128U << 10) /* elements of moments: 256 KiB */
#define AGAIN_MAX 6            /* the last one after half of wait_ms */
#define BUSY_MAX  64           /* together wait_ms */
#define MOMENT    2            /* bytes: bf16 */
#define SENT_MOST 4            /* bytes of an element of a contribution */

static uint64_t blocks(uint64_t elements, uint32_t block)
{
    return (elements + block - 1) / block;
}

/* Elements of a part of the moments. */
static uint32_t part_of(uint32_t block)
{
    return PART / block * block;
}

static uint64_t n_moments(const struct work_task *t)
{
    return 2 * t->about.elements;
}

static uint32_t n_parts(const struct work_task *t)
{
    return (uint32_t)blocks(n_moments(t), part_of(t->about.block));
}

/* ---- bytes --------------------------------------------------------------- */

uint64_t work_piece_bytes(uint64_t elements,
                          uint32_t block,
                          uint32_t width,
                          uint64_t offset,
                          uint32_t len)
{
    return (uint64_t)width * len +
           ID_BYTES * (uint64_t)blocks_proof_len(blocks(elements, block),
                                                 offset / block,
                                                 blocks(offset + len, block));
}

/* A proof has at most two hashes a level. */
static uint64_t proof_most(uint64_t n)
{
    uint64_t levels = 0;

    while ((1ULL << levels) < n) {
        levels++;
    }
    return 2 * ID_BYTES * levels;
}

uint64_t work_lease_bytes(uint64_t n_params, uint32_t block)
{
    const uint64_t moments = 2 * n_params;
    const uint64_t proof = proof_most(blocks(moments, block));

    return MOMENT * moments + blocks(moments, part_of(block)) * proof +
           WORK_DRAWS * ((MOMENT + SENT_MOST) * (uint64_t)block + 2 * proof);
}

/* ---- pieces -------------------------------------------------------------- */

/* v lies behind u, and blocks are cut from the front of both. */
uint64_t work_v_block(uint64_t elements, uint32_t block, uint64_t at)
{
    const uint64_t first = elements + at;
    const uint64_t begin = first / block * block;
    const uint64_t beyond = first - begin;

    return 2 * beyond > block && begin + block < 2 * elements ? begin + block
                                                              : begin;
}

/* Draw what is to be looked at. */
static void draw_blocks(struct work *w, struct work_task *t)
{
    const uint32_t block = t->about.block;

    for (uint32_t k = 0; k < WORK_DRAWS; k++) {
        t->sent_at[k] =
            rng_below(&w->draw, blocks(t->about.elements, block)) * block;
        t->after_at[k] =
            k % 2 == 0
                ? rng_below(&w->draw, blocks(t->about.elements, block)) * block
                : work_v_block(t->about.elements, block, t->after_at[k - 1]);
    }
}

void work_fetch_begin(struct work *w, struct work_task *t)
{
    draw_blocks(w, t);
    t->n_pieces = n_parts(t) + 2 * WORK_DRAWS;
    t->next = t->n_again = t->n_busy = 0;
    t->again = false;
    t->phase = WORK_FETCHING;
}

static struct work_task *active(struct work *w)
{
    return w->active < WORK_ROOMS ? &w->task[w->active] : NULL;
}

/* What is on its way is asked for again when it is this one's turn. */
void work_fetch_end(struct work *w, struct work_task *t, struct out *out)
{
    struct action *action;

    if (t != active(w)) {
        return;
    }
    action = out_add(out, ACTION_CANCEL);
    if (action != NULL) {
        action->cancel.stream = STREAM_WORK;
        action->cancel.attempt = w->attempt;
    }
    for (uint32_t k = 0; k < WORK_WINDOW; k++) {
        if (w->flying[k] != 0 && w->flying[k] - 1 < t->next) {
            t->next = (uint32_t)w->flying[k] - 1;
        }
    }
    w->active = WORK_ROOMS;
}

/* ---- turns --------------------------------------------------------------- */

static bool is_ready(const struct work_task *t, uint64_t now_ms)
{
    return t->phase == WORK_FETCHING && (!t->again || now_ms >= t->again_ms);
}

/* A case first; of several the one behind the last. */
static uint32_t next_turn(const struct work *w, uint64_t now_ms)
{
    uint32_t best = WORK_ROOMS;

    for (uint32_t i = 1; i <= WORK_ROOMS; i++) {
        uint32_t k = (w->last + i) % WORK_ROOMS;

        if (is_ready(&w->task[k], now_ms) &&
            (best == WORK_ROOMS ||
             (w->task[k].is_case && !w->task[best].is_case))) {
            best = k;
        }
    }
    return best;
}

/* Whether another one is to have the turn: a case, or after wait_ms. */
static bool is_over(const struct work *w, uint64_t now_ms)
{
    uint32_t next = next_turn(w, now_ms);
    const struct work_task *t = &w->task[w->active];

    return next != w->active && next != WORK_ROOMS &&
           (w->task[next].is_case > t->is_case ||
            (w->task[next].is_case == t->is_case &&
             now_ms - w->since_ms >= w->wait_ms));
}

static void begin_turn(struct work *w, uint32_t k, uint64_t now_ms)
{
    w->active = w->last = k;
    w->n_flying = 0;
    memset(w->flying, 0, sizeof w->flying);
    w->attempt++;
    w->due_ms = now_ms + w->wait_ms;
    w->since_ms = now_ms;
    w->task[k].again = false;
}

/* ---- what is asked for --------------------------------------------------- */

/* What piece number i is. */
static struct segment
piece(const struct work *w, const struct work_task *t, uint32_t i)
{
    const struct work_maker *m = work_maker_of(t);
    const uint32_t block = t->about.block;
    struct segment s = {
        .peer = *work_maker_id(t),
        .attempt = w->attempt,
        .stream = STREAM_WORK,
        .seg = i,
        .buffer = BUFFER_MOMENTS,
        .index = t->about.what.round,
        .name = hash32_u64(&t->about.base),
        .op = SEGMENT_COPY,
        .proven = true,
        .maker = *work_maker_id(t),
        .offer = m->moments,
    };
    uint64_t end = n_moments(t), most = part_of(block);

    if (i < WORK_DRAWS) {
        s.buffer = BUFFER_OFFER;
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)i;
        s.offset = t->sent_at[s.lane];
        s.offer = m->offer;
        end = t->about.elements;
        most = block;
    } else if (i < n_parts(t) + WORK_DRAWS) {
        s.offset = (uint64_t)(i - WORK_DRAWS) * most;
    } else {
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)(i - n_parts(t) - WORK_DRAWS);
        s.index++;
        s.offset = t->after_at[s.lane];
        s.offer = m->ends;
        most = block;
    }
    s.lanes = s.op == SEGMENT_LANE ? WORK_DRAWS : 0;
    s.len = (uint32_t)(end - s.offset < most ? end - s.offset : most);
    return s;
}

static void ask(struct work *w,
                const struct work_task *t,
                uint32_t i,
                int row,
                struct out *out)
{
    struct action *action = out_add(out, ACTION_POST_RECV);
    const struct segment s = piece(w, t, i);
    const struct fetch msg = {
        .buffer = (uint8_t)s.buffer,
        .index = s.index,
        .offset = s.offset,
        .len = s.len,
        .attempt = s.attempt,
        .seg = s.seg,
        .stream = STREAM_WORK,
        .root = s.offer,
    };

    if (action != NULL) {
        action->segment = s;
        members_bulk_open(w->members, out, row);
        (void)members_send(w->members, out, row, MESSAGE_FETCH, &msg);
    }
}

/* Keep some pieces on their way. */
static void fetch(struct work *w, struct work_task *t, struct out *out)
{
    int row = members_find(w->members, work_maker_id(t));

    if (row == MEMBERS_NONE || !members_linked(w->members, row)) {
        return; /* until it is due */
    }
    for (uint32_t k = 0; k < WORK_WINDOW && t->next < t->n_pieces; k++) {
        if (w->flying[k] == 0) {
            w->flying[k] = 1 + (uint64_t)t->next;
            w->n_flying++;
            ask(w, t, t->next++, row, out);
        }
    }
}

/* ---- answers ------------------------------------------------------------- */

/* Whether that piece is on its way; then it is not any more. */
static bool take_flying(struct work *w, uint32_t i)
{
    for (uint32_t k = 0; k < WORK_WINDOW; k++) {
        if (w->flying[k] == 1 + (uint64_t)i) {
            w->flying[k] = 0;
            w->n_flying--;
            return true;
        }
    }
    return false;
}

/* Piece i did not come, and what is on its way beside it is not waited for. */
static void ask_again(struct work *w,
                      struct work_task *t,
                      uint32_t i,
                      uint32_t for_ms,
                      struct out *out)
{
    t->next = i < t->next ? i : t->next;
    work_fetch_end(w, t, out);
    t->again = true;
    t->again_ms = 0;
    t->again_for_ms = for_ms;
}

/* It is refused, or is not what was announced. */
static void
put_off(struct work *w, struct work_task *t, uint32_t i, struct out *out)
{
    if (t->n_again == AGAIN_MAX) {
        work_unserved(w, t, out);
        return;
    }
    ask_again(w, t, i, w->wait_ms >> (AGAIN_MAX - t->n_again++), out);
}

/* All our rooms are in use, one by a repeat that was stopped. That says nothing
 * of the maker. */
static void
wait_for_room(struct work *w, struct work_task *t, uint32_t i, struct out *out)
{
    if (t->n_busy++ == BUSY_MAX) {
        work_pass(w, t, out);
        return;
    }
    ask_again(w, t, i, w->wait_ms / BUSY_MAX, out);
}

/* The state is gone, or there is no memory here. */
static bool is_ours(int rc)
{
    return rc == LOCO_ENOENT || rc == LOCO_ENOMEM;
}

void work_seg_done(struct work *w,
                   const struct event_seg_done *ev,
                   struct out *out)
{
    struct work_task *t = active(w);

    if (t == NULL || ev->segment.attempt != w->attempt ||
        !take_flying(w, ev->segment.seg)) {
        return;
    }
    if (is_ours(ev->rc)) {
        work_pass(w, t, out);
    } else if (ev->rc == LOCO_EBUSY) {
        wait_for_room(w, t, ev->segment.seg, out);
    } else if (ev->rc != 0) { /* not what was announced, or the line broke */
        put_off(w, t, ev->segment.seg, out);
    } else if (t->next == t->n_pieces && w->n_flying == 0) {
        t->phase = WORK_WAITING;
        w->active = WORK_ROOMS;
    } else {
        w->due_ms = 0; /* the next tick says when */
    }
}

void work_refused(struct work *w,
                  int peer,
                  const struct fetch_no *no,
                  struct out *out)
{
    struct work_task *t = active(w);

    if (t != NULL && no->attempt == w->attempt &&
        id_eq(&w->members->peers[peer].id, work_maker_id(t)) &&
        take_flying(w, no->seg)) {
        put_off(w, t, no->seg, out);
    }
}

/* ---- time ---------------------------------------------------------------- */

/* What was put off since the last tick. */
static void set_times(struct work *w, uint64_t now_ms)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        struct work_task *t = &w->task[k];

        if (t->again && t->again_ms == 0) {
            t->again_ms = now_ms + t->again_for_ms;
        }
    }
}

void work_fetch_tick(struct work *w, uint64_t now_ms, struct out *out)
{
    uint32_t next;

    set_times(w, now_ms);
    if (w->due_ms == 0) {
        w->due_ms = now_ms + w->wait_ms;
    }
    if (active(w) != NULL && now_ms >= w->due_ms) {
        work_unserved(w, active(w), out); /* whoever else waits */
    }
    if (active(w) != NULL && is_over(w, now_ms)) {
        work_fetch_end(w, active(w), out);
    }
    next = next_turn(w, now_ms);
    if (active(w) == NULL && next < WORK_ROOMS) {
        begin_turn(w, next, now_ms);
    }
    if (active(w) != NULL) {
        fetch(w, active(w), out);
    }
}

/* When that one is to have the turn, unless it has to wait for another one. */
static uint64_t turn_ms(const struct work *w, const struct work_task *t)
{
    bool waits =
        w->active < WORK_ROOMS && t->is_case <= w->task[w->active].is_case;

    return t->phase != WORK_FETCHING || waits ? CORE_NEVER
           : t->again                         ? t->again_ms
                                              : 0;
}

uint64_t work_deadline(const struct work *w)
{
    uint64_t due = w->active < WORK_ROOMS ? w->due_ms : CORE_NEVER;

    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        uint64_t at = turn_ms(w, &w->task[k]);

        due = at < due ? at : due;
    }
    return due;
}
