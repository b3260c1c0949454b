/* link.h - control links: frames over a connection, a number for the core.
 *
 * A *link* is named by a number that is never used twice in 2^20 links of its
 * slot and never 0, so that a message to a link that is gone finds nobody.
 * One frame {length, type, flags 0} (proto/frame.h) is one message. Cost:
 * 130 KB of buffers a link.
 *
 * A frame that no rule allows closes the link with LOCO_EPROTO. Unsent bytes
 * beyond link_queue_bytes_max close it with LOCO_EBUSY: a peer that does not
 * read must not hold our memory. A link that the core did not TRUST may have
 * few, and all such links together so many that a crowd costs little. LINK_DOWN
 * is reported once for each LINK_UP. Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_LINK_H
#define LOCO_P2P_UV_LINK_H

#include <stdint.h>

#include "p2p/core.h"
#include "p2p/uv/conn.h"
#include "proto/frame.h"

#define LINK_SLOT_BITS 12
#define LINK_SLOTS_MAX (1U << LINK_SLOT_BITS)

struct link {
    struct conn *conn;
    uint32_t id;
    struct frame_decoder decoder;
    uint8_t *frame;
    bool trusted;    /* no stranger's */
    size_t held;     /* bytes that wait for the disk: barrier.h */
    uint32_t rtt_us; /* of the connection; 0: not known */
    uint64_t rtt_at_ms;
};

struct link_table {
    struct link **slots;    /* NULL: free */
    uint32_t *generations;  /* of each slot */
    uint32_t n_slots, next; /* where the search for a free slot begins */
};

int link_table_init(struct link_table *t, uint32_t n_slots);
void link_table_free(struct link_table *t);

/* ACTION_DIAL, ACTION_SEND, ACTION_HANG_UP. */
void link_dial(struct shell *s, const struct action_dial *dial);
void link_send(struct shell *s,
               const struct action_send *send,
               const uint8_t *bytes);
void link_hang_up(struct shell *s, uint32_t id);
/* So much that is said on it waits for the disk, in its queue's limits; those
 * of all links too. False: there is no such link, it was closed. */
bool link_hold(struct shell *s, const struct action_send *send, size_t all);
/* It waits no more. */
void link_unhold(struct shell *s, const struct action_send *send);
/* ACTION_TRUST */
void link_trust(struct shell *s, const struct action_trust *trust);
/* Memory of the queues of all links. */
size_t link_all_queued(const struct shell *s);

/* ACTION_RELAY_COME: a connection of either kind, accepted through a relay. */
void link_come(struct shell *s, const struct action_relay_come *come);

/* An accepted connection turned out to be a control link. */
void link_adopt(struct conn *c);

/* Whoever is trusted and has a link there is known there from now on. */
void link_know_at(struct shell *s, const uint8_t ip[16], uint64_t now_ms);

#endif
