/* history.h - records of the last commits, for those who are behind.
 *
 * As many as fit into HISTORY_BYTES, encoded, at most HISTORY_MAX, the newest
 * always. Rounds only go up: adding one forgets those that are not before it
 * (of a branch that was left).
 *
 * Pure, no allocation.
 */
#ifndef LOCO_P2P_ROUND_HISTORY_H
#define LOCO_P2P_ROUND_HISTORY_H

#include "proto/messages.h"

#define HISTORY_MAX   64
#define HISTORY_BYTES (3 * FRAME_CONTROL_MAX)

struct history {
    uint32_t n, used;
    struct {
        uint64_t round;
        uint32_t at, len;
    } entry[HISTORY_MAX]; /* oldest first, in the order of `bytes` */
    uint8_t bytes[HISTORY_BYTES];
};

void history_clear(struct history *h);

void history_add(struct history *h, const struct commit *c);

/* False: not held (any more). */
bool history_get(const struct history *h, uint64_t round, struct commit *c);

#endif
