/* bucket.h - a token bucket: how many bytes may pass now.
 *
 * Gains rate_bytes_per_s, holds at most what BUCKET_BURST_MS of that are (and
 * BUCKET_BURST_MIN bytes at least). Spending is allowed while anything is left
 * and may overdraw, so that pieces of any size pass; the debt is waited for.
 * So over any T seconds no more than rate * T + burst + one piece passes.
 * A rate of 0 is no limit.
 *
 * Pure: time comes in and never goes back; integers only. Cannot fail.
 */
#ifndef LOCO_P2P_BUCKET_H
#define LOCO_P2P_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BUCKET_BURST_MS  50
#define BUCKET_BURST_MIN 4096
#define BUCKET_RATE_MAX  1000000000000ULL /* products then fit 64 bits */

struct bucket {
    uint64_t rate_bytes_per_s; /* 0: no limit */
    int64_t thousandths;       /* of a byte; negative: debt */
    uint64_t at_ms;
};

/* Full at `now_ms`. */
void bucket_init(struct bucket *b, uint64_t rate_bytes_per_s, uint64_t now_ms);

bool bucket_ready(struct bucket *b, uint64_t now_ms);

/* `bytes` have passed. */
void bucket_spend(struct bucket *b, uint64_t bytes, uint64_t now_ms);

/* Milliseconds until bucket_ready(); 0: it is. */
uint64_t bucket_wait_ms(struct bucket *b, uint64_t now_ms);

/* Most bytes that one piece should have: half the burst. */
uint32_t bucket_piece(const struct bucket *b);

#endif
