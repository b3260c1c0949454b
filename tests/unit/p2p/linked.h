/* linked.h - a table of members that is linked to made-up peers, for tests of
 * what is above it. */
#ifndef LOCO_TESTS_UNIT_P2P_LINKED_H
#define LOCO_TESTS_UNIT_P2P_LINKED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/members.h"
#include "proto/sign.h"

static inline void linked_up(struct members *m,
                             const struct identity *peer,
                             uint32_t link,
                             uint64_t now_ms,
                             struct out *out)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = link,
                      .link_up.request = UINT32_MAX};

    e.link_up.peer = peer->id;
    memcpy(e.link_up.public_key, peer->public, 32);
    assert_true(members_link_up(m, &e.link_up, now_ms, out));
}

/* `room`: members_bytes() of the same options. Peer i has link i + 1. */
static inline void linked_open(struct members *m,
                               void *room,
                               struct identity *self,
                               struct identity *peer,
                               uint32_t n,
                               struct out *out)
{
    struct members_options opt = {.seed = 1};

    identity_fake(self, 50);
    opt.self = self->id;
    members_init(m, &opt, room, 0);
    for (uint32_t i = 0; i < n; i++) {
        identity_fake(&peer[i], i);
        linked_up(m, &peer[i], i + 1, 0, out);
    }
    out->n = out->n_bytes = 0;
}

#endif
