/* internal.h - what the swarm_*.c files share; see swarm.h. */
#ifndef LOCO_DAEMON_SIM_DHT_INTERNAL_H
#define LOCO_DAEMON_SIM_DHT_INTERNAL_H

#include "daemon/sim/dht/swarm.h"

enum swarm_item_type {
    ITEM_MESSAGE,
    ITEM_FAILED, /* `from` learns that `expect` cannot be reached */
    ITEM_MEET,   /* a link without a message: joining */
    ITEM_TICK,
    ITEM_CALL
};

struct swarm_event {
    enum swarm_item_type type;
    uint32_t from, to, from_life, to_life;
    uint16_t message;
    uint32_t len;
    uint8_t *bytes; /* owned */
    struct peer_id expect;
    swarm_call_fn fn;
    uint64_t arg;
};

struct swarm_item {
    uint64_t at_ms, order; /* the key of the agenda */
    struct swarm_event *event;
};

/* Append to what will happen; the event is zeroed, for the caller to fill. */
struct swarm_event *
swarm_push(struct swarm *s, uint64_t at_ms, enum swarm_item_type type);

/* sim/dht/link.c */

/* A message arrives. */
void swarm_deliver(struct swarm *s, const struct swarm_event *e);

/* Two that were dialled for joining see each other. */
void swarm_met(struct swarm *s, const struct swarm_event *e);

/* `slot` dials `to`, whoever lives there. */
void swarm_meet(struct swarm *s, uint32_t slot, uint32_t to);

#endif
