/* bucket.c - see bucket.h. A byte a second is a thousandth a millisecond. */
#include "p2p/bucket.h"

#include <assert.h>

#define PIECE_MAX 65536 /* more gains nothing: it is one system call */

static uint64_t burst_bytes(const struct bucket *b)
{
    uint64_t burst = b->rate_bytes_per_s / 1000 * BUCKET_BURST_MS;

    return burst > BUCKET_BURST_MIN ? burst : BUCKET_BURST_MIN;
}

void bucket_init(struct bucket *b, uint64_t rate_bytes_per_s, uint64_t now_ms)
{
    assert(rate_bytes_per_s <= BUCKET_RATE_MAX);
    *b = (struct bucket){.rate_bytes_per_s = rate_bytes_per_s, .at_ms = now_ms};
    b->thousandths = (int64_t)burst_bytes(b) * 1000;
}

static void gain(struct bucket *b, uint64_t now_ms)
{
    int64_t full = (int64_t)burst_bytes(b) * 1000;
    uint64_t passed_ms = now_ms > b->at_ms ? now_ms - b->at_ms : 0;
    uint64_t missing = (uint64_t)(full - b->thousandths);

    b->at_ms = now_ms > b->at_ms ? now_ms : b->at_ms;
    if (passed_ms > missing / b->rate_bytes_per_s) {
        b->thousandths = full;
    } else {
        b->thousandths += (int64_t)(passed_ms * b->rate_bytes_per_s);
    }
}

bool bucket_ready(struct bucket *b, uint64_t now_ms)
{
    if (b->rate_bytes_per_s == 0) {
        return true;
    }
    gain(b, now_ms);
    return b->thousandths > 0;
}

void bucket_spend(struct bucket *b, uint64_t bytes, uint64_t now_ms)
{
    if (b->rate_bytes_per_s == 0) {
        return;
    }
    gain(b, now_ms);
    assert(bytes < (1ULL << 40));
    b->thousandths -= (int64_t)bytes * 1000;
}

uint64_t bucket_wait_ms(struct bucket *b, uint64_t now_ms)
{
    if (bucket_ready(b, now_ms)) {
        return 0;
    }
    return (uint64_t)-b->thousandths / b->rate_bytes_per_s + 1;
}

uint32_t bucket_piece(const struct bucket *b)
{
    uint64_t half = burst_bytes(b) / 2;

    if (b->rate_bytes_per_s == 0) {
        return UINT32_MAX;
    }
    return half < PIECE_MAX ? (uint32_t)half : PIECE_MAX;
}
