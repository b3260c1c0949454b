/* work_fetch.c - see work_internal.h.
 *
 * Pieces of a lease that is to be made again are numbered: the moments in parts
 * of at most PART elements, then WORK_DRAWS blocks of the contribution, then as
 * many of the moments after it, where there are such ones. What was refused is
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

static uint64_t n_moments(const struct work *w)
{
    return 2 * w->about.elements;
}

static uint32_t n_parts(const struct work *w)
{
    return (uint32_t)blocks(n_moments(w), part_of(w->about.block));
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

/* Draw what is to be looked at. */
static void draw_blocks(struct work *w)
{
    const uint32_t block = w->about.block;

    for (uint32_t k = 0; k < WORK_DRAWS; k++) {
        w->sent_at[k] =
            rng_below(&w->draw, blocks(w->about.elements, block)) * block;
        w->after_at[k] =
            rng_below(&w->draw, blocks(n_moments(w), block)) * block;
    }
}

static void from(struct work *w, uint32_t piece, uint64_t now_ms)
{
    w->next = piece;
    w->n_flying = 0;
    memset(w->flying, 0, sizeof w->flying);
    w->attempt++;
    w->due_ms = now_ms + w->wait_ms;
    w->again = false;
    w->phase = WORK_FETCHING;
}

void work_fetch_begin(struct work *w, uint64_t now_ms)
{
    draw_blocks(w);
    w->n_pieces =
        n_parts(w) + WORK_DRAWS + (hash32_is_zero(&w->after) ? 0 : WORK_DRAWS);
    w->n_again = w->n_busy = 0;
    from(w, 0, now_ms);
}

void work_fetch_cancel(const struct work *w, struct out *out)
{
    struct action *action = out_add(out, ACTION_CANCEL);

    if (action != NULL) {
        action->cancel.stream = STREAM_WORK;
        action->cancel.attempt = w->attempt;
    }
}

/* What piece number i is. */
static struct segment piece(const struct work *w, uint32_t i)
{
    const struct work_maker *m = work_maker_of(w);
    const uint32_t block = w->about.block;
    struct segment s = {
        .peer = *work_maker_id(w),
        .attempt = w->attempt,
        .stream = STREAM_WORK,
        .seg = i,
        .buffer = BUFFER_MOMENTS,
        .index = w->about.what.round,
        .name = hash32_u64(&w->about.base),
        .op = SEGMENT_COPY,
        .proven = true,
        .maker = *work_maker_id(w),
        .offer = m->moments,
    };
    uint64_t end = n_moments(w), most = part_of(block);

    if (i < n_parts(w)) {
        s.offset = (uint64_t)i * most;
    } else if (i < n_parts(w) + WORK_DRAWS) {
        s.buffer = BUFFER_OFFER;
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)(i - n_parts(w));
        s.offset = w->sent_at[s.lane];
        s.offer = m->offer;
        end = w->about.elements;
        most = block;
    } else {
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)(i - n_parts(w) - WORK_DRAWS);
        s.index++;
        s.offset = w->after_at[s.lane];
        s.offer = w->after;
        most = block;
    }
    s.lanes = s.op == SEGMENT_LANE ? WORK_DRAWS : 0;
    s.len = (uint32_t)(end - s.offset < most ? end - s.offset : most);
    return s;
}

static void ask(struct work *w, uint32_t i, int row, struct out *out)
{
    struct action *action = out_add(out, ACTION_POST_RECV);
    const struct segment s = piece(w, i);
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
static void fetch(struct work *w, struct out *out)
{
    int row = members_find(w->members, work_maker_id(w));

    if (row == MEMBERS_NONE || !members_linked(w->members, row)) {
        return; /* until it is due */
    }
    for (uint32_t k = 0; k < WORK_WINDOW && w->next < w->n_pieces; k++) {
        if (w->flying[k] == 0) {
            w->flying[k] = 1 + (uint64_t)w->next;
            w->n_flying++;
            ask(w, w->next++, row, out);
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
static void ask_again(struct work *w, uint32_t i, struct out *out)
{
    work_fetch_cancel(w, out);
    for (uint32_t k = 0; k < WORK_WINDOW; k++) {
        if (w->flying[k] != 0 && w->flying[k] - 1 < i) {
            i = (uint32_t)w->flying[k] - 1;
        }
    }
    w->next = i;
    w->again = true;
    w->again_ms = 0;
}

/* It is refused, or is not what was announced. */
static void put_off(struct work *w, uint32_t i, struct out *out)
{
    if (w->n_again == AGAIN_MAX) {
        work_unserved(w, out);
        return;
    }
    ask_again(w, i, out);
    w->again_for_ms = w->wait_ms >> (AGAIN_MAX - w->n_again++);
}

/* Our room is still in use, by a repeat that was stopped. That says nothing of
 * the maker, and is no turn of its. */
static void wait_for_room(struct work *w, uint32_t i, struct out *out)
{
    if (w->n_busy == BUSY_MAX) {
        work_pass(w, out);
        return;
    }
    ask_again(w, i, out);
    w->n_busy++;
    w->again_for_ms = w->wait_ms / BUSY_MAX;
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
    if (w->phase != WORK_FETCHING || w->again ||
        ev->segment.attempt != w->attempt || !take_flying(w, ev->segment.seg)) {
        return;
    }
    if (is_ours(ev->rc)) {
        work_pass(w, out);
    } else if (ev->rc == LOCO_EBUSY) {
        wait_for_room(w, ev->segment.seg, out);
    } else if (ev->rc != 0) { /* not what was announced, or the line broke */
        put_off(w, ev->segment.seg, out);
    } else if (w->next == w->n_pieces && w->n_flying == 0) {
        w->phase = WORK_WAITING;
    } else {
        w->due_ms = 0; /* the next tick says when */
    }
}

void work_refused(struct work *w,
                  int peer,
                  const struct fetch_no *no,
                  struct out *out)
{
    if (w->phase == WORK_FETCHING && !w->again && no->attempt == w->attempt &&
        id_eq(&w->members->peers[peer].id, work_maker_id(w)) &&
        take_flying(w, no->seg)) {
        put_off(w, no->seg, out);
    }
}

/* ---- time ---------------------------------------------------------------- */

/* What was put off, if its time has come. */
static bool is_due_again(struct work *w, uint64_t now_ms)
{
    if (w->again_ms == 0) {
        w->again_ms = now_ms + w->again_for_ms;
    }
    if (now_ms < w->again_ms) {
        return false;
    }
    from(w, w->next, now_ms);
    return true;
}

void work_fetch_tick(struct work *w, uint64_t now_ms, struct out *out)
{
    if (w->phase != WORK_FETCHING || (w->again && !is_due_again(w, now_ms))) {
        return;
    }
    if (w->due_ms == 0) {
        w->due_ms = now_ms + w->wait_ms;
    }
    if (now_ms >= w->due_ms) {
        work_unserved(w, out);
    } else {
        fetch(w, out);
    }
}

uint64_t work_deadline(const struct work *w)
{
    return w->phase != WORK_FETCHING ? CORE_NEVER
           : w->again                ? w->again_ms
                                     : w->due_ms;
}
