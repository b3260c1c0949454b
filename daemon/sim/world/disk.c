/* disk.c - a peer's durable record, and a disk that takes its time for it.
 *
 * SAVE is a barrier for speech (p2p/core.h). With a fast disk the record is
 * there at once. With a slow one (world_slow_disk) it is there later: what the
 * peer says meanwhile waits for it, in order, but for what binds nobody, and a
 * peer that dies before has the record before, and has said nothing that rests
 * on the new one.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/messages.h"

struct record {
    size_t len;
    uint8_t bytes[];
};

struct held {
    struct action action; /* SEND or HANG_UP */
    uint8_t bytes[];
};

void world_slow_disk(struct world *w, uint32_t peer, uint32_t most_ms)
{
    w->peers[peer].disk_ms = most_ms;
}

bool world_disk_is_slow(const struct world *w, uint32_t peer)
{
    return w->peers[peer].disk_ms > 0;
}

void world_fail_save(struct world *w, uint32_t peer)
{
    w->peers[peer].fail_save = true;
}

static void put_record(struct world_peer *p, const uint8_t *bytes, size_t len)
{
    free(p->record);
    p->record = world_alloc(len);
    memcpy(p->record, bytes, len);
    p->record_len = len;
}

static void push(struct world *w, uint32_t peer, enum entry_kind kind, void *it)
{
    const struct world_peer *p = &w->peers[peer];

    world_push(w, (struct entry){.at_ms = p->saved_ms > w->now_ms ? p->saved_ms
                                                                  : w->now_ms,
                                 .kind = kind,
                                 .peer = peer,
                                 .life = p->life,
                                 .ptr = it});
}

bool disk_save(struct world *w, uint32_t peer, const struct out_span *record)
{
    struct world_peer *p = &w->peers[peer];
    const uint8_t *bytes = w->out->bytes + record->at;
    struct record *r;

    if (p->fail_save) {
        struct event e = {.type = EVENT_SAVE_FAILED,
                          .save_failed.rc = LOCO_EDISK};

        p->fail_save = false;
        world_event(w, peer, w->now_ms, &e);
        return false;
    }
    if (p->disk_ms == 0) {
        put_record(p, bytes, record->len);
        return true;
    }
    r = world_alloc(sizeof *r + record->len);
    r->len = record->len;
    memcpy(r->bytes, bytes, r->len);
    if (p->busy_ms <= w->now_ms) {
        p->busy_ms = p->saved_ms; /* the one that waited is written */
    }
    if (p->busy_ms <= w->now_ms) {
        p->busy_ms = p->saved_ms =
            w->now_ms + 1 + rng_below(&w->rng, p->disk_ms);
    } else if (p->saved_ms == p->busy_ms) {
        p->saved_ms += 1 + rng_below(&w->rng, p->disk_ms);
    } /* else this one takes the place of the one that waits */
    push(w, peer, ENTRY_SAVED, r);
    return true;
}

static bool is_unbound(uint16_t message)
{
    static struct frame_rule rules[MESSAGE_TYPES_MAX];

    if (rules[MESSAGE_PULSE].delivery != FRAME_WHOLE) {
        message_frame_rules(rules);
    }
    return message < MESSAGE_TYPES_MAX && rules[message].unbound;
}

bool disk_keeps(struct world *w, uint32_t peer, const struct action *a)
{
    struct world_peer *p = &w->peers[peer];
    size_t len = a->type == ACTION_SEND ? a->send.bytes.len : 0;
    struct held *h;

    if ((p->saved_ms <= w->now_ms && p->n_held == 0) ||
        (a->type != ACTION_SEND && a->type != ACTION_HANG_UP) ||
        (a->type == ACTION_SEND && is_unbound(a->send.message))) {
        return false;
    }
    h = world_alloc(sizeof *h + len);
    h->action = *a;
    if (len > 0) {
        memcpy(h->bytes, w->out->bytes + a->send.bytes.at, len);
    }
    p->n_held++;
    push(w, peer, ENTRY_HELD, h);
    return true;
}

void disk_on_entry(struct world *w, struct entry *e)
{
    struct world_peer *p = &w->peers[e->peer];
    struct held *h = e->ptr;
    const struct record *r = e->ptr;

    if (e->kind == ENTRY_SAVED) {
        put_record(p, r->bytes, r->len);
        return;
    }
    p->n_held--;
    if (h->action.type == ACTION_HANG_UP) {
        world_link_hang_up(w, e->peer, h->action.hang_up.link);
        return;
    }
    /* No step is under way: its memory is free. */
    memcpy(w->out->bytes, h->bytes, h->action.send.bytes.len);
    h->action.send.bytes.at = 0;
    world_link_send(w, e->peer, &h->action.send);
}

void disk_peer_died(struct world *w, uint32_t peer)
{
    w->peers[peer].saved_ms = w->peers[peer].busy_ms = 0;
    w->peers[peer].n_held = 0;
    w->peers[peer].fail_save = false;
}
