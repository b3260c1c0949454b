/* limiter.h - a token bucket for each of the last peers that asked something.
 *
 * A peer holds at most `burst` tokens and gains `per_s` a second of monotonic
 * time; a request costs one or more. At most `peers_max` peers are remembered;
 * the least recently seen is forgotten, and a forgotten peer starts full:
 * links are authenticated and capped, so ids cannot be cycled cheaply.
 * Cost: one scan of the table (48 bytes a peer). All arithmetic is unsigned
 * and saturates, so no clock can make a count wrap.
 *
 * Pure, cannot fail; memory is borrowed from the caller.
 */
#ifndef LOCO_P2P_LIMITER_H
#define LOCO_P2P_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define LIMITER_BURST_MAX 1000000U /* thousandths then still fit 32 bits */

struct limiter_options {
    uint32_t peers_max;
    uint32_t per_s;
    uint32_t burst; /* 1..LIMITER_BURST_MAX */
};

struct limiter_entry {
    struct peer_id peer;
    uint64_t at_ms;
    uint32_t thousandths;
};

struct limiter {
    struct limiter_options opt;
    struct limiter_entry *entry; /* borrowed for the limiter's life */
    uint32_t n;
};

size_t limiter_bytes(const struct limiter_options *opt);

/* `memory`: limiter_bytes(), aligned for any type. */
void limiter_init(struct limiter *l,
                  const struct limiter_options *opt,
                  void *memory);

/* Take `cost` tokens; false and nothing taken where there are fewer. */
bool limiter_take(struct limiter *l,
                  const struct peer_id *peer,
                  uint32_t cost,
                  uint64_t now_ms);

#endif
