/* fellow.c - see fellow.h. */
#include "daemon/sim/fellow.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/messages.h"

_Static_assert(MEMBERS_NONE != LOCO_EPROTO, "fellow_event() returns both");

struct members_options fellow_options(const struct identity *id, uint64_t seed)
{
    return (struct members_options){.self = id->id,
                                    .seed = seed,
                                    .heartbeat_ms = 600,
                                    .suspect_ms = 1400,
                                    .dead_ms = 2400,
                                    .redial_ms = 1000,
                                    .links_wanted = 8,
                                    .signer = signer_keyed(id),
                                    .life = seed};
}

static void on_link_up(struct members *m,
                       uint64_t life,
                       const struct event *ev,
                       struct out *out)
{
    struct hello h = {.life = life};
    int row;

    if (!members_link_up(m, &ev->link_up, ev->now_ms, out)) {
        return;
    }
    row = members_find(m, &ev->link_up.peer);
    memcpy(h.observed.ip, ev->link_up.address.ip, sizeof h.observed.ip);
    h.observed.port = ev->link_up.address.port;
    (void)members_send(m, out, row, MESSAGE_HELLO, &h);
}

static int on_recv(struct members *m,
                   void *scratch,
                   const struct event *ev,
                   struct out *out)
{
    const struct msg_schema *schema = message_schema(ev->recv.message);
    int row = members_heard(m, ev->recv.link, ev->now_ms);
    const struct hello *hello = scratch;

    if (row == MEMBERS_NONE || schema == NULL) {
        return MEMBERS_NONE;
    }
    members_used(m, ev->recv.link, ev->recv.message);
    if (msg_decode(schema, ev->recv.bytes, ev->recv.len, scratch) != 0) {
        return LOCO_EPROTO;
    }
    switch (ev->recv.message) {
    case MESSAGE_HELLO:
        members_observed(m, &hello->observed);
        m->peers[row].life = hello->life;
        return MEMBERS_NONE;
    case MESSAGE_HEARTBEAT:
        members_beat(m, row, scratch, m->now_ms);
        return MEMBERS_NONE;
    case MESSAGE_PULSE:
        members_on_pulse(m, row, scratch, out);
        return MEMBERS_NONE;
    case MESSAGE_NEIGHBOUR:
        members_on_neighbour(m, row, scratch, out);
        return MEMBERS_NONE;
    case MESSAGE_SHUFFLE:
        members_on_shuffle(m, row, scratch, out);
        return MEMBERS_NONE;
    case MESSAGE_GOSSIP:
        members_on_gossip(m, row, scratch, out);
        return MEMBERS_NONE;
    default:
        return row;
    }
}

int fellow_event(struct members *m,
                 uint64_t life,
                 void *scratch,
                 const struct event *ev,
                 struct out *out)
{
    switch (ev->type) {
    case EVENT_LINK_UP:
        on_link_up(m, life, ev, out);
        return MEMBERS_NONE;
    case EVENT_LINK_DOWN:
        members_link_down(m, ev->link_down.link, ev->now_ms);
        return MEMBERS_NONE;
    case EVENT_DIAL_FAILED:
        members_dial_failed(m, ev->dial_failed.request, ev->dial_failed.rc,
                            ev->now_ms);
        return MEMBERS_NONE;
    case EVENT_RECV:
        return on_recv(m, scratch, ev, out);
    default:
        return MEMBERS_NONE;
    }
}
