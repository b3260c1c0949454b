/* spare.h - memory that a crowd left behind goes back to the system.
 *
 * The allocator keeps what is freed between what is not: after 250 links that
 * did not read, hundreds of megabytes. So some time (spare_ms) after links were
 * closed or long queues are gone, it is told to give back whole pages; in a
 * storm without end every SPARE_LATE_MS. Buffers of segments that nothing used
 * for as long are freed, too. Cost: some milliseconds each time, on the loop.
 *
 * Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_SPARE_H
#define LOCO_P2P_UV_SPARE_H

#include <stdbool.h>
#include <stdint.h>

#define SPARE_LATE_MS 60000

struct shell;

struct spare_state {
    bool owed;
    uint64_t since_ms, last_ms; /* it is owed: since when, and again */
    uint64_t looked_ms;
};

/* Much was allocated that is free now, or will be. */
void spare_owe(struct shell *s);

/* A few times a second. */
void spare_tick(struct shell *s);

#endif
