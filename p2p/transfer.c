/* transfer.c - see transfer.h. */
#include "p2p/transfer.h"

#include <string.h>

void transfer_init(struct transfer *t,
                   struct members *members,
                   uint32_t fetch_ms,
                   uint64_t first_attempt)
{
    memset(t, 0, sizeof *t);
    t->members = members;
    t->fetch_ms = fetch_ms;
    t->attempt = first_attempt;
    t->source = MEMBERS_NONE;
}

static void cancel(struct transfer *t, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->stream = STREAM_FETCH;
        a->attempt = t->attempt;
    }
}

void transfer_stop(struct transfer *t, struct out *out)
{
    if (t->active && !t->finished && t->source != MEMBERS_NONE) {
        cancel(t, out);
    }
    t->active = t->finished = t->want_source = false;
    t->source = MEMBERS_NONE;
}

void transfer_start(struct transfer *t,
                    enum buffer_kind buffer,
                    uint64_t index,
                    uint64_t total,
                    uint32_t piece,
                    struct out *out)
{
    transfer_stop(t, out);
    t->active = t->want_source = true;
    t->buffer = buffer;
    t->index = index;
    t->total = total;
    t->piece = piece;
    t->n_pieces = (total + piece - 1) / piece;
    t->asked = t->done = 0;
    t->finished = t->n_pieces == 0;
}

static void ask(struct transfer *t, struct out *out)
{
    while (t->asked < t->n_pieces && t->asked - t->done < TRANSFER_WINDOW) {
        uint64_t offset = t->asked * t->piece;
        struct fetch msg = {
            .buffer = (uint8_t)t->buffer,
            .index = t->index,
            .offset = offset,
            .attempt = t->attempt,
            .seg = (uint32_t)t->asked,
        };
        struct action *a = out_add(out, ACTION_POST_RECV);

        if (a == NULL) {
            return;
        }
        msg.len = (uint32_t)(t->total - offset < t->piece ? t->total - offset
                                                          : t->piece);
        a->segment = (struct segment){
            .peer = t->members->peers[t->source].id,
            .attempt = t->attempt,
            .stream = STREAM_FETCH,
            .seg = msg.seg,
            .buffer = t->buffer,
            .index = t->index,
            .offset = offset,
            .len = msg.len,
            .op = SEGMENT_COPY,
        };
        (void)members_send(t->members, out, t->source, MESSAGE_FETCH, &msg);
        t->asked++;
    }
}

void transfer_source(struct transfer *t,
                     int peer,
                     uint64_t now_ms,
                     struct out *out)
{
    members_bulk_open(t->members, out, peer);
    t->attempt++;
    t->source = peer;
    t->want_source = false;
    t->asked = t->done;
    t->progress_ms = now_ms;
    ask(t, out);
}

/* Nothing came. What a source sends to an earlier life of this process would
 * stand unposted at the head of its connection for ever: end that connection.
 * The bound is set again by what follows. */
static void unblock(struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->stream = STREAM_FETCH;
        a->attempt = 0;
    }
}

static void source_lost(struct transfer *t, struct out *out)
{
    cancel(t, out);
    t->want_source = true;
    t->source = MEMBERS_NONE;
}

void transfer_seg_done(struct transfer *t,
                       const struct event *ev,
                       struct out *out)
{
    if (!t->active || t->finished || t->source == MEMBERS_NONE ||
        ev->segment.attempt != t->attempt) {
        return;
    }
    if (ev->rc != 0 || ev->segment.seg != t->done) {
        source_lost(t, out);
        return;
    }
    t->done++;
    t->progress_ms = ev->now_ms;
    if (t->done == t->n_pieces) {
        t->finished = true;
        return;
    }
    ask(t, out);
}

void transfer_refused(struct transfer *t,
                      int peer,
                      const struct fetch_no *no,
                      struct out *out)
{
    if (t->active && !t->finished && peer == t->source &&
        no->attempt == t->attempt) {
        source_lost(t, out);
    }
}

void transfer_tick(struct transfer *t, uint64_t now_ms, struct out *out)
{
    bool silent = now_ms - t->progress_ms >= t->fetch_ms;

    if (t->active && !t->finished && t->source != MEMBERS_NONE &&
        (silent || !members_linked(t->members, t->source))) {
        if (silent) {
            unblock(out);
        }
        source_lost(t, out);
    }
}

uint64_t transfer_deadline(const struct transfer *t)
{
    return t->active && !t->finished && t->source != MEMBERS_NONE
               ? t->progress_ms + t->fetch_ms
               : CORE_NEVER;
}
