/* bandwidth.h - how fast bytes go from whom to whom, learnt from real traffic.
 *
 * A map of directed *edges*. Nothing is ever sent to measure: the receiver of a
 * segment notes how many of its bytes arrived in what time (`busy`: from the
 * segment's header to its last byte, so that waiting between two segments is
 * not counted). Enough of that makes a *sample*; samples make an average that
 * forgets: new = old + (sample - old) / 4. Rates are those that the edge had
 * beside everything else on the link, not what it could have alone: that is
 * what a ring gets.
 *
 * *Confidence* is 0 to 100: an eighth of it a sample, halved every ten minutes
 * without a new one; 0 is as good as unknown. A peer says what it received, and
 * is believed about edges into itself only (bandwidth_told).
 *
 * Pure; memory is the caller's, bandwidth_bytes(cap) (about 100 bytes an edge).
 * A full map forgets the edge without news for longest, of the few that share
 * its place. Integers only; nothing here fails.
 */
#ifndef LOCO_P2P_EXCHANGE_BANDWIDTH_H
#define LOCO_P2P_EXCHANGE_BANDWIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define BANDWIDTH_RATE_MAX   1000000000000ULL /* bytes a second */
#define BANDWIDTH_CONFIDENCE 100
#define BANDWIDTH_HALF_MS    600000
/* A sample is complete with either. */
#define BANDWIDTH_SAMPLE_US    50000
#define BANDWIDTH_SAMPLE_BYTES ((uint64_t)4 << 20)

struct bandwidth_row {
    bool used;
    bool news; /* changed by an eighth or more since it was told */
    struct peer_id from, to;
    uint64_t bytes_per_s;
    uint64_t told_bytes_per_s;
    uint64_t at_ms;          /* of the last sample */
    uint64_t bytes, busy_us; /* of the sample that is being made */
    uint8_t confidence;      /* at at_ms */
};

struct bandwidth {
    uint32_t cap, sample_us;
    struct bandwidth_row *row; /* open addressing */
};

struct bandwidth_rate {
    uint64_t bytes_per_s;
    uint32_t confidence; /* 0: nothing is known */
    uint64_t age_ms;     /* since the last sample */
};

size_t bandwidth_bytes(uint32_t cap);

/* `cap` at least 16; `sample_us` 0: BANDWIDTH_SAMPLE_US. */
void bandwidth_init(struct bandwidth *b,
                    void *memory,
                    uint32_t cap,
                    uint32_t sample_us);

/* We are `to` and received so much of a segment from `from`. */
void bandwidth_note(struct bandwidth *b,
                    const struct peer_id *from,
                    const struct peer_id *to,
                    uint64_t bytes,
                    uint64_t busy_us,
                    uint64_t now_ms);

/* `to` says so of an edge into itself. */
void bandwidth_told(struct bandwidth *b,
                    const struct peer_id *from,
                    const struct peer_id *to,
                    uint64_t bytes_per_s,
                    uint32_t confidence,
                    uint64_t now_ms);

/* What is known of the edge; all zero where nothing is. */
struct bandwidth_rate bandwidth_edge(const struct bandwidth *b,
                                     const struct peer_id *from,
                                     const struct peer_id *to,
                                     uint64_t now_ms);

/* Up to `max` edges into `to` that changed since they were told; marks them
 * told. The number in `out`. */
uint32_t bandwidth_news(struct bandwidth *b,
                        const struct peer_id *to,
                        const struct bandwidth_row **out,
                        uint32_t max);

/* Everything is news again: somebody is new here. */
void bandwidth_tell_anew(struct bandwidth *b);

#endif
