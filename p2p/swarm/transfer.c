/* transfer.c - see transfer.h.
 *
 * Happy path: transfer_start(), a source for every slot; the leaf list from the
 * first of them, VERIFY; then flights to all, each VERIFYed, until every piece
 * is here.
 *
 * What can go wrong: whatever a source does ends its slot (end_source), which
 * gives back what it was asked for; dispatch() gives it to others. An action
 * that did not fit is found by its silence, a VERIFY is said again by the tick.
 */
#include "p2p/swarm/transfer.h"

#include <string.h>

#include "proto/base/err.h"

#define WINDOW_FIRST     2
#define WINDOW_MAX       8
#define FAST_MS          300  /* a piece that took less: ask for more at once */
#define SLOW_MS          3000 /* one that took more: ask for less */
#define STEAL_MS         200  /* no slot is given up at the end before this */
#define HASH_BYTES       32
#define FLOOR_MAX_MS     60000
#define LOOK_MS          1000 /* so often a better way is looked for */
#define LISTS_SILENT_MAX 8    /* so often the patience doubles */

void transfer_init(struct transfer *t,
                   struct members *members,
                   uint32_t fetch_ms,
                   uint64_t first_attempt)
{
    memset(t, 0, sizeof *t);
    t->members = members;
    t->fetch_ms = fetch_ms;
    t->attempt = first_attempt;
    t->most = TRANSFER_FLIGHTS;
}

uint32_t transfer_piece_ms(const struct transfer *t)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        const struct transfer_source *s = &t->sources[i];

        most = s->used && s->piece_ms > most ? s->piece_ms : most;
    }
    return most;
}

void transfer_limit(struct transfer *t, uint32_t most)
{
    t->most = most;
}

/* ---- pieces ------------------------------------------------------------- */

static bool bit(const uint8_t *map, uint32_t i)
{
    return map[i / 8] >> (i % 8) & 1;
}

static void bit_set(uint8_t *map, uint32_t i, bool on)
{
    uint8_t mask = (uint8_t)(1U << (i % 8));

    map[i / 8] = (uint8_t)(on ? map[i / 8] | mask : map[i / 8] & ~mask);
}

/* Pieces of so many units. */
static uint64_t cut(uint64_t units, uint32_t piece)
{
    return units / piece + (units % piece != 0);
}

uint64_t transfer_pieces(const struct transfer_object *o)
{
    return cut(o->first, o->piece) + cut(o->total - o->first, o->piece);
}

uint64_t transfer_piece_at(const struct transfer_object *o,
                           uint32_t piece,
                           uint32_t *len)
{
    uint64_t n_first = cut(o->first, o->piece);
    bool behind = piece >= n_first;
    uint64_t from = behind ? o->first : 0;
    uint64_t end = behind || o->first == 0 ? o->total : o->first;
    uint64_t at = from + (piece - (behind ? n_first : 0)) * o->piece;

    *len = (uint32_t)(end - at < o->piece ? end - at : o->piece);
    return at;
}

static bool needs_leaves(const struct transfer *t)
{
    return t->object.leaves != BUFFER_KIND_COUNT && !t->has_leaves;
}

static uint32_t n_flights(const struct transfer *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        n += t->flights[i].used;
    }
    return n;
}

/* The next piece that nobody is asked for; false: there is none. */
static bool next_piece(struct transfer *t, uint32_t *piece)
{
    if (needs_leaves(t)) {
        *piece = TRANSFER_LEAVES;
        return n_flights(t) == 0;
    }
    while (t->low < t->n_pieces &&
           (bit(t->have, t->low) || bit(t->busy, t->low))) {
        t->low++;
    }
    *piece = t->low;
    return t->low < t->n_pieces;
}

static void set_busy(struct transfer *t, uint32_t piece, bool busy)
{
    if (piece != TRANSFER_LEAVES) {
        bit_set(t->busy, piece, busy);
        t->low = !busy && piece < t->low ? piece : t->low;
    }
}

/* ---- sources ------------------------------------------------------------ */

static void cancel(struct transfer *t, uint32_t slot, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->cancel.stream = STREAM_FETCH + slot;
        a->cancel.attempt = t->sources[slot].attempt;
    }
}

static void forget_flights(struct transfer *t, uint32_t slot)
{
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        struct transfer_flight *f = &t->flights[i];

        if (f->used && f->slot == slot && !f->arrived) {
            set_busy(t, f->piece, false);
            f->used = false;
        }
    }
}

static void stay_away(struct transfer *t, int peer, uint64_t until_ms)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < t->n_away; i++) {
        if (t->away[i].peer == peer) {
            t->away[i].until_ms = until_ms;
            return;
        }
        at = t->away[i].until_ms < t->away[at].until_ms ? i : at;
    }
    if (t->n_away < TRANSFER_AWAY) {
        at = t->n_away++;
    }
    t->away[at].peer = peer;
    t->away[at].until_ms = until_ms;
}

/* Give up what it was asked for. What has arrived of it is still checked. */
static void end_source(struct transfer *t,
                       uint32_t slot,
                       uint64_t until_ms,
                       struct out *out)
{
    struct transfer_source *s = &t->sources[slot];

    cancel(t, slot, out);
    forget_flights(t, slot);
    stay_away(t, s->peer, until_ms);
    s->used = false;
}

void transfer_shun(struct transfer *t, int peer)
{
    const struct peer_id *id = &t->members->peers[peer].id;

    if (t->n_shunned == TRANSFER_SHUNNED) {
        memmove(t->shunned, t->shunned + 1,
                (TRANSFER_SHUNNED - 1) * sizeof t->shunned[0]);
        t->n_shunned--;
    }
    t->shunned[t->n_shunned++] = *id;
}

bool transfer_shuns(const struct transfer *t, int peer)
{
    const struct peer_id *id = &t->members->peers[peer].id;

    for (uint32_t i = 0; i < t->n_shunned; i++) {
        if (id_eq(&t->shunned[i], id)) {
            return true;
        }
    }
    return false;
}

static int slot_of(const struct transfer *t, int peer)
{
    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        if (t->sources[i].used && t->sources[i].peer == peer) {
            return (int)i;
        }
    }
    return -1;
}

uint32_t transfer_n_sources(const struct transfer *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        n += t->sources[i].used;
    }
    return n;
}

bool transfer_may(const struct transfer *t, int peer, uint64_t now_ms)
{
    if (slot_of(t, peer) >= 0 || transfer_shuns(t, peer)) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_away; i++) {
        if (t->away[i].peer == peer && now_ms < t->away[i].until_ms) {
            return false;
        }
    }
    return true;
}

uint64_t transfer_units(const struct transfer *t)
{
    uint64_t units = t->done_units;

    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        const struct transfer_flight *f = &t->flights[i];
        uint64_t came = (uint64_t)f->n_done * t->object.part;
        uint32_t len = 0;

        if (f->used && f->piece != TRANSFER_LEAVES) {
            (void)transfer_piece_at(&t->object, f->piece, &len);
            units += came < len ? came : len;
        }
    }
    return units;
}

bool transfer_wants(const struct transfer *t)
{
    return t->active && !t->finished &&
           transfer_n_sources(t) < t->object.sources;
}

/* ---- flights ------------------------------------------------------------ */

static void ask_part(struct transfer *t,
                     uint32_t slot,
                     struct segment *seg,
                     struct out *out)
{
    struct transfer_source *s = &t->sources[slot];
    struct action *a = out_add(out, ACTION_POST_RECV);
    struct fetch msg;

    seg->peer = t->members->peers[s->peer].id;
    seg->attempt = s->attempt;
    seg->stream = STREAM_FETCH + slot;
    seg->seg = s->seg++;
    seg->op = SEGMENT_COPY;
    if (a == NULL) {
        return; /* it is silent, then */
    }
    a->segment = *seg;
    msg = (struct fetch){
        .buffer = (uint8_t)seg->buffer,
        .index = seg->index,
        .offset = seg->offset,
        .len = seg->len,
        .attempt = seg->attempt,
        .seg = seg->seg,
        .stream = (uint8_t)seg->stream,
        .root = t->object.root,
    };
    (void)members_send(t->members, out, s->peer, MESSAGE_FETCH, &msg);
}

static void begin_flight(struct transfer *t,
                         struct transfer_flight *f,
                         uint32_t slot,
                         uint64_t now_ms,
                         struct out *out)
{
    const struct transfer_object *o = &t->object;
    struct transfer_source *s = &t->sources[slot];
    struct segment seg = {.buffer = o->buffer, .index = o->index};
    uint32_t len = t->n_pieces * HASH_BYTES, done;
    uint64_t at = 0;

    if (f->piece == TRANSFER_LEAVES) {
        seg.buffer = o->leaves;
    } else {
        at = transfer_piece_at(o, f->piece, &len);
    }
    set_busy(t, f->piece, true);
    f->used = true;
    f->arrived = f->checking = false;
    f->slot = slot;
    f->peer = s->peer;
    f->first_seg = s->seg;
    f->n_done = 0;
    f->n_parts = 0;
    f->asked_ms = now_ms;
    if (s->n_flight++ == 0) {
        s->progress_ms = now_ms;
    }
    for (done = 0; done < len; done += seg.len, f->n_parts++) {
        seg.offset = at + done;
        seg.len = len - done < o->part ? len - done : o->part;
        ask_part(t, slot, &seg, out);
    }
}

static struct transfer_flight *free_flight(struct transfer *t)
{
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        if (!t->flights[i].used) {
            return &t->flights[i];
        }
    }
    return NULL;
}

static uint32_t on_their_way(const struct transfer *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        n += t->sources[i].used ? t->sources[i].n_flight : 0;
    }
    return n;
}

/* Work for everybody who has room: one piece each in turn. */
static void dispatch(struct transfer *t, uint64_t now_ms, struct out *out)
{
    bool any = t->active && !t->finished;
    uint32_t n = on_their_way(t);

    while (any) {
        any = false;
        for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
            struct transfer_source *s = &t->sources[i];
            struct transfer_flight *f = free_flight(t);
            uint32_t piece;

            if (!s->used || s->n_flight >= s->window || f == NULL ||
                n >= t->most || !next_piece(t, &piece)) {
                continue;
            }
            f->piece = piece;
            begin_flight(t, f, i, now_ms, out);
            any = true;
            n++;
        }
    }
}

static void
verify(struct transfer *t, struct transfer_flight *f, struct out *out)
{
    struct job *job = out_job(out, JOB_VERIFY);

    f->checking = job != NULL;
    if (job != NULL) {
        job->verify.buffer = t->object.buffer;
        job->verify.index = t->object.index;
        job->verify.request = (uint64_t)t->generation << 32 | f->piece;
    }
}

static void piece_done(struct transfer *t, uint32_t piece)
{
    uint32_t len = 0;

    if (!bit(t->have, piece)) {
        (void)transfer_piece_at(&t->object, piece, &len);
        bit_set(t->have, piece, true);
        t->n_done++;
        t->done_units += len;
    }
    bit_set(t->busy, piece, false);
    t->finished = t->n_done == t->n_pieces;
}

static void adapt(struct transfer_source *s, uint64_t took_ms)
{
    s->piece_ms = took_ms > 0 ? (uint32_t)took_ms : 1;
    if (took_ms < FAST_MS && s->window < WINDOW_MAX) {
        s->window++;
    } else if (took_ms > SLOW_MS && s->window > 1) {
        s->window--;
    }
}

static void arrived(struct transfer *t,
                    struct transfer_flight *f,
                    uint64_t now_ms,
                    struct out *out)
{
    struct transfer_source *s = &t->sources[f->slot];
    uint32_t len = 0;

    f->arrived = true;
    s->n_flight--;
    adapt(s, now_ms - f->asked_ms);
    if (f->piece != TRANSFER_LEAVES) {
        (void)transfer_piece_at(&t->object, f->piece, &len);
        s->bytes += len;
    }
    if (t->object.leaves != BUFFER_KIND_COUNT) {
        verify(t, f, out);
    } else {
        piece_done(t, f->piece);
        f->used = false;
    }
}

void transfer_seg_done(struct transfer *t,
                       const struct event_seg_done *ev,
                       uint64_t now_ms,
                       struct out *out)
{
    const struct segment *seg = &ev->segment;
    uint32_t slot = seg->stream - STREAM_FETCH;
    struct transfer_source *s;

    if (!t->active || t->finished || seg->stream < STREAM_FETCH ||
        slot >= TRANSFER_SOURCES || !t->sources[slot].used ||
        t->sources[slot].attempt != seg->attempt) {
        return;
    }
    s = &t->sources[slot];
    if (ev->rc != 0) {
        end_source(t, slot, now_ms + t->fetch_ms, out);
        dispatch(t, now_ms, out);
        return;
    }
    s->progress_ms = t->news_ms = now_ms;
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        struct transfer_flight *f = &t->flights[i];

        if (f->used && f->slot == slot && !f->arrived &&
            seg->seg - f->first_seg < f->n_parts && ++f->n_done == f->n_parts) {
            arrived(t, f, now_ms, out);
            break;
        }
    }
    dispatch(t, now_ms, out);
}

/* ---- what the owner says ------------------------------------------------ */

void transfer_stop(struct transfer *t, struct out *out)
{
    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        if (t->sources[i].used && t->sources[i].n_flight > 0) {
            cancel(t, i, out);
        }
        t->sources[i].used = false;
    }
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        t->flights[i].used = false;
    }
    t->active = t->finished = false;
}

bool transfer_start(struct transfer *t,
                    const struct transfer_object *object,
                    uint64_t now_ms,
                    struct out *out)
{
    uint64_t n = transfer_pieces(object);

    transfer_stop(t, out);
    if (object->first > object->total || n > TRANSFER_PIECES_MAX ||
        object->sources > TRANSFER_SOURCES) {
        return false;
    }
    t->active = true;
    t->generation++;
    t->object = *object;
    t->n_pieces = (uint32_t)n;
    t->n_done = t->low = 0;
    t->done_units = t->resumed_units = 0;
    t->started_ms = t->news_ms = now_ms;
    t->has_leaves = false;
    t->n_lists_silent = 0;
    t->n_away = 0;
    memset(t->have, 0, (n + 7) / 8);
    memset(t->busy, 0, (n + 7) / 8);
    t->finished = n == 0;
    return true;
}

void transfer_source(struct transfer *t,
                     int peer,
                     uint64_t now_ms,
                     struct out *out)
{
    for (uint32_t i = 0; i < t->object.sources; i++) {
        struct transfer_source *s = &t->sources[i];

        if (!s->used) {
            members_bulk_open(t->members, out, peer);
            *s = (struct transfer_source){
                .used = true,
                .peer = peer,
                .attempt = ++t->attempt,
                .window = t->object.leaves == BUFFER_KIND_COUNT ? WINDOW_MAX
                                                                : WINDOW_FIRST,
                .progress_ms = now_ms,
                .around = members_relayed(t->members, peer) ||
                          members_punched(t->members, peer),
                .look_ms = now_ms + LOOK_MS,
            };
            dispatch(t, now_ms, out);
            return;
        }
    }
}

void transfer_refused(struct transfer *t,
                      int peer,
                      const struct fetch_no *no,
                      uint64_t now_ms,
                      struct out *out)
{
    int slot = slot_of(t, peer);

    if (t->active && !t->finished && slot >= 0 &&
        no->attempt == t->sources[slot].attempt) {
        /* Who fetches a file, too, may have it soon; a state gets only older.
         */
        end_source(t, (uint32_t)slot,
                   t->object.buffer == BUFFER_SHARD ? now_ms + 2 * t->fetch_ms
                                                    : UINT64_MAX,
                   out);
        dispatch(t, now_ms, out);
    }
}

int transfer_verified(struct transfer *t,
                      uint64_t request,
                      int rc,
                      uint64_t now_ms,
                      struct out *out)
{
    struct transfer_flight *f = NULL;
    uint32_t piece = (uint32_t)request;
    int guilty = MEMBERS_NONE;

    for (uint32_t i = 0; i < TRANSFER_FLIGHTS && f == NULL; i++) {
        if (t->flights[i].used && t->flights[i].checking &&
            t->flights[i].piece == piece) {
            f = &t->flights[i];
        }
    }
    if (!t->active || t->finished || f == NULL ||
        request >> 32 != t->generation) {
        return MEMBERS_NONE;
    }
    f->used = false;
    if (rc == 0 && piece == TRANSFER_LEAVES) {
        t->has_leaves = true;
    } else if (rc == 0) {
        piece_done(t, piece);
    } else {
        set_busy(t, piece, false);
    }
    if (rc == LOCO_EHASH) {
        int slot = slot_of(t, f->peer);

        guilty = transfer_shuns(t, f->peer) ? MEMBERS_NONE : f->peer;
        if (guilty != MEMBERS_NONE) {
            transfer_shun(t, guilty);
        }
        if (slot >= 0) {
            end_source(t, (uint32_t)slot, UINT64_MAX, out);
        }
    }
    dispatch(t, now_ms, out);
    return guilty;
}

void transfer_held(struct transfer *t, const uint8_t *held)
{
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        if (bit(held, i) && !bit(t->busy, i)) {
            piece_done(t, i);
        }
    }
    t->resumed_units = t->done_units;
}

int transfer_spoiled(struct transfer *t)
{
    int only = MEMBERS_NONE;

    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        if (t->sources[i].used && t->sources[i].bytes == t->object.total) {
            only = t->sources[i].peer;
        }
    }
    if (only != MEMBERS_NONE) {
        transfer_shun(t, only);
    }
    return only;
}

/* ---- time --------------------------------------------------------------- */

/* How long a source may be silent: all share one line, which may be as slow as
 * the floor says. */
static uint64_t silence_ms(const struct transfer *t)
{
    uint64_t floor = t->object.floor_bytes_per_s, more = 0;

    if (floor > 0) {
        more = (uint64_t)t->object.part * 1000U * transfer_n_sources(t) / floor;
    }
    return t->fetch_ms + (more < FLOOR_MAX_MS ? more : FLOOR_MAX_MS);
}

/* The same of the leaf list, before which no piece is asked for: a source to
 * which no data passes would hold up all others. The list is short, but the
 * line may be slow after all: each time it is longer. */
static uint64_t patience_ms(const struct transfer *t)
{
    uint64_t most = silence_ms(t);
    uint64_t list_ms = (uint64_t)t->fetch_ms << t->n_lists_silent;

    return needs_leaves(t) && list_ms < most ? list_ms : most;
}

bool transfer_starves(const struct transfer *t, uint64_t now_ms)
{
    return t->active && !t->finished && now_ms - t->news_ms > 2 * silence_ms(t);
}

/* Nothing came. What a source sends to an earlier life of this process would
 * stand unposted at the head of its connection for ever: end that connection.
 * The bound is set again by what follows. */
static void unblock(uint32_t slot, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->cancel.stream = STREAM_FETCH + slot;
        a->cancel.attempt = 0;
    }
}

void transfer_link_down(struct transfer *t,
                        int peer,
                        uint64_t now_ms,
                        struct out *out)
{
    int slot = slot_of(t, peer);

    if (t->active && !t->finished && slot >= 0 &&
        t->sources[slot].n_flight > 0) {
        end_source(t, (uint32_t)slot, now_ms, out);
    }
}

void transfer_gap(struct transfer *t, uint64_t now_ms)
{
    t->news_ms = now_ms;
    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        t->sources[i].progress_ms = now_ms;
    }
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        t->flights[i].asked_ms = now_ms;
    }
}

/* The oldest flight of a source, UINT64_MAX: none. */
static uint64_t oldest_ms(const struct transfer *t, uint32_t slot)
{
    uint64_t oldest = UINT64_MAX;

    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        const struct transfer_flight *f = &t->flights[i];

        if (f->used && f->slot == slot && !f->arrived && f->asked_ms < oldest) {
            oldest = f->asked_ms;
        }
    }
    return oldest;
}

/* At the end, somebody is idle and somebody else has waited for twice as long
 * as the idle one took for a piece: that one goes. */
static void steal(struct transfer *t, uint64_t now_ms, struct out *out)
{
    uint32_t piece, best_ms = 0;
    int worst = -1;
    uint64_t worst_ms = 0;

    if (needs_leaves(t) || next_piece(t, &piece)) {
        return;
    }
    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        const struct transfer_source *s = &t->sources[i];
        uint64_t since = oldest_ms(t, i);

        if (!s->used) {
            continue;
        }
        if (since == UINT64_MAX && s->piece_ms > 0 &&
            (best_ms == 0 || s->piece_ms < best_ms)) {
            best_ms = s->piece_ms;
        }
        if (since != UINT64_MAX && now_ms - since > worst_ms) {
            worst_ms = now_ms - since;
            worst = (int)i;
        }
    }
    if (best_ms > 0 && worst >= 0 && worst_ms > STEAL_MS + 2ULL * best_ms) {
        end_source(t, (uint32_t)worst, now_ms + t->fetch_ms, out);
    }
}

/* It began through a relay, or may have: since then its peer may be linked
 * directly, or another meeting for data is due. What comes meanwhile goes on as
 * before (p2p/uv/bulk_send.c). */
static void look_for_way(struct transfer *t,
                         struct transfer_source *s,
                         uint64_t now_ms,
                         struct out *out)
{
    if (s->around && now_ms >= s->look_ms &&
        members_bulk_better(t->members, s->peer, now_ms)) {
        s->look_ms = now_ms + LOOK_MS;
        s->around = members_punched(t->members, s->peer);
        members_bulk_open(t->members, out, s->peer);
    }
}

void transfer_tick(struct transfer *t, uint64_t now_ms, struct out *out)
{
    uint64_t limit = patience_ms(t);

    if (!t->active || t->finished) {
        return;
    }
    for (uint32_t i = 0; i < TRANSFER_SOURCES; i++) {
        struct transfer_source *s = &t->sources[i];
        bool silent = s->n_flight > 0 && now_ms - s->progress_ms >= limit;

        if (s->used && (silent || !members_linked(t->members, s->peer))) {
            if (silent) {
                unblock(i, out);
                t->n_lists_silent +=
                    needs_leaves(t) && t->n_lists_silent < LISTS_SILENT_MAX;
            }
            end_source(t, i, now_ms + t->fetch_ms, out);
        } else if (s->used && s->n_flight > 0) {
            look_for_way(t, s, now_ms, out);
        }
    }
    for (uint32_t i = 0; i < TRANSFER_FLIGHTS; i++) {
        struct transfer_flight *f = &t->flights[i];

        if (f->used && f->arrived && !f->checking) {
            verify(t, f, out);
        }
    }
    steal(t, now_ms, out);
    dispatch(t, now_ms, out);
}

uint64_t transfer_deadline(const struct transfer *t)
{
    uint64_t due = CORE_NEVER;

    for (uint32_t i = 0; t->active && !t->finished && i < TRANSFER_SOURCES;
         i++) {
        const struct transfer_source *s = &t->sources[i];

        if (s->used && s->n_flight > 0 &&
            s->progress_ms + patience_ms(t) < due) {
            due = s->progress_ms + patience_ms(t);
        }
    }
    return due;
}
