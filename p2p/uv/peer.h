/* peer.h - what the shell remembers of one peer: byte counters, bulk queues.
 *
 * A *peer* is made when it is first named and kept while something refers to
 * it; of the others the PEERS_IDLE_MAX youngest keep their byte counters.
 * Internal to p2p/uv.
 */
#ifndef LOCO_P2P_UV_PEER_H
#define LOCO_P2P_UV_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/table.h"

#define PEERS_IDLE_MAX 1024 /* 300 bytes each */

struct bulk;
struct bulk_op;

/* Segments of one stream that wait for a connection, and the connection that
 * the current attempt's segments go over. */
struct peer_stream {
    struct bulk_op *sends;
    uint32_t n_sends;
    struct bulk *bound;
    uint64_t bound_attempt;
};

struct peer {
    struct peer_id id;
    struct shell_peer_stats stats;
    unsigned n_refs;
    struct bulk *bulks; /* the most recently opened first */
    unsigned n_bulks;
    bool dialling;  /* a bulk connection is on its way, */
    int dial_rc;    /* or could not be: who waits is yet to be told; */
    bool meeting;   /* a direct one by a meeting is, beside it */
    bool bulk_seen; /* one has been up at some time */
    bool trusted;   /* no stranger, by the last word on a link of it */
    struct peer_stream streams[STREAM_COUNT];
    UT_hash_handle hh;
};

struct peer *peer_find(const struct shell *s, const struct peer_id *id);

/* Find or make; every acquire needs one release. */
struct peer *peer_acquire(struct shell *s, const struct peer_id *id);
void peer_release(struct shell *s, struct peer *p);

/* Forget all. */
void peer_clear(struct shell *s);

#endif
