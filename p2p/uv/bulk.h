/* bulk.h - segments over bulk connections: queues, posts, staging slabs.
 *
 * On the wire a segment is one record with a header of 20 bytes,
 *     u32 payload bytes, u8 type (1: segment), u8 flags (0), u16 stream,
 *     u64 attempt, u32 segment number,                      little-endian
 * and then its payload in records of at most 65519 bytes; on a plain connection
 * the same 20 bytes and the payload, without records.
 * Received payload is opened (plain: read from the socket) straight into where
 * the owner has a place for it, else into a slab, and given to `take` when it
 * is complete. Payload to send is sealed into a slab from where the owner lends
 * it, else from one scratch buffer that `fill` wrote; a plain one goes to the
 * kernel from where it is lent, or from the slab.
 *
 * Sending: SEND_SEG waits in its peer's queue for a connection (a stream's
 * attempt stays on the one it began on, a new attempt takes the most recently
 * opened, one through a relay only where there is no other; an attempt of a
 * fetch, which may be long, moves from such a one when there is), at most
 * BULK_WRITES_MAX segments are with the kernel at a time, and a segment is done
 * when the kernel has all of it. Receiving: a frame meets its post, or waits
 * for it with the connection paused, or is skipped when its attempt was
 * cancelled. One that contradicts its post ends the connection.
 *
 * When a connection ends, what was bound to it ends with its code: segments
 * written or queued for it, the attempt it was carrying here; and everything
 * of that peer when it was the last one. A failed dial ends the queue, and the
 * posts too when the peer had been connected before.
 *
 * Cost: a plain segment of a ring is touched twice on each side, by the
 * kernel's copy and by the codec; encryption adds one pass on each side. A
 * segment of 256 KiB takes about 2.3 reads and one write, and 0.2 ms of the
 * loop thread for `fill`, `take` and sealing, so heartbeats pass between two
 * segments. At most two segments of a connection go to the kernel in one turn.
 *
 * A stranger that fetches and does not read would hold slabs for ever: such
 * peers hold stranger_slabs of them, and give way when they stand still.
 *
 * A connection that waits for a post is not read, so its end is noticed only
 * when the post, a CANCEL or unposted_ms comes.
 *
 * A slow line delivers packet by packet, and a turn of the loop for each costs
 * more than opening what is in it. So the kernel is told to wake us for what
 * some milliseconds bring, at most 32 KiB, and never for more than what must
 * come of the frame that has begun.
 * Internal to p2p/uv; loop thread only. Nothing here steps the core.
 */
#ifndef LOCO_P2P_UV_BULK_H
#define LOCO_P2P_UV_BULK_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/uv/conn.h"

#define BULK_HEADER_BYTES 20
#define BULK_TYPE_SEGMENT 1
#define BULK_WRITES_MAX   2 /* one in the socket, one ready behind it */
#define BULK_READ_BYTES   (256U << 10) /* four records for one system call */
#define BULK_MOVED_MS     1000         /* MOVED is said no more often */

/* Most bytes that are waited for at once, and how long they should take. */
#define BULK_BATCH_BYTES    (32U << 10)
#define BULK_BATCH_LEAST_MS 2
#define BULK_BATCH_MOST_MS  8

struct bulk_op;
struct slab;

struct bulk_header {
    uint32_t len;
    uint32_t stream;
    uint64_t attempt;
    uint32_t seg;
};

enum bulk_state_kind {
    BULK_HEAD, /* a header record is due */
    BULK_WAIT, /* paused: no post or no slab yet */
    BULK_BODY, /* payload goes to its destination */
    BULK_SKIP  /* payload is dropped */
};

struct bulk {
    struct conn *conn;
    struct peer *peer;
    struct bulk *prev, *next;         /* the peer's, youngest first */
    struct bulk *all_prev, *all_next; /* the shell's */
    int rc;                           /* why it ended */
    bool ended;                       /* out of all lists */
    enum bulk_state_kind state;
    uint8_t head[BULK_HEADER_BYTES]; /* plain: of the header so far */
    uint32_t n_head;
    struct bulk_header header; /* of the frame that is arriving */
    uint32_t got;
    uint64_t began_us; /* BODY: when it began; 0: it waited for its post */
    uint32_t buffered; /* of it, read together with its header */
    bool waited;
    uint8_t *dst;       /* BODY: where payload goes */
    struct slab *slab;  /* BODY, unless the owner has a place */
    struct bulk_op *op; /* BODY */
    uint32_t batch;     /* bytes worth a wake-up, at the speed of the line */
    uint64_t came_ms;
    bool carried[STREAM_COUNT];
    uint64_t carried_attempt[STREAM_COUNT]; /* the last that arrived here */
    /* It left for another connection, where this segment came first: those
     * before it come here. */
    bool left[STREAM_COUNT];
    uint32_t left_before[STREAM_COUNT];
    struct slab *writing[BULK_WRITES_MAX];
    unsigned n_writing;
    uint64_t unsent, unsent_ms; /* of `writing`; since when it is so many */
};

struct slab_pool {
    struct slab *free;
    uint32_t n_made, n_max;
    uint64_t used_ms; /* when one was taken or given back last */
};

/* The shell's part. */
struct bulk_state {
    struct bulk *all;
    struct bulk_op *posts; /* uthash */
    struct slab_pool in, out;
    uint32_t n_strange; /* of `out`, with segments to strangers */
    uint8_t *scratch;   /* one segment in plain */
    bool fenced[STREAM_COUNT];
    uint64_t fence[STREAM_COUNT]; /* highest cancelled attempt */
    bool dirty;     /* something may go on that could not before */
    bool undialled; /* a peer has a dial_rc */
    bool moved;     /* bytes of STREAM_RING came in since MOVED was said */
    uint64_t moved_told_ms, unsent;
};

void bulk_init(struct shell *s);

/* After the last connection is gone. */
void bulk_free(struct shell *s);
/* Free slabs that nothing used for spare_ms; true: there were some. */
bool bulk_spare(struct shell *s, uint64_t now_ms);

/* The actions of these names. */
void bulk_open(struct shell *s, const struct action_bulk_open *open);
void bulk_post(struct shell *s, const struct segment *segment);
void bulk_send(struct shell *s, const struct segment *segment);
/* The last link to that peer is gone. Where it has no data connection either,
 * what it wanted to fetch is not sent any more: a later life of it would find
 * that at the head of its first connection, and wait for what it asked for
 * itself. */
void bulk_unlinked(struct shell *s, const struct peer_id *id);

void bulk_cancel(struct shell *s, uint32_t stream, uint64_t attempt);

/* Bytes came in on that connection, whose owner is a bulk. */
void bulk_came(const struct conn *c);

/* What came was looked at: how much more is worth a wake-up of the loop. */
void bulk_await(struct conn *c);

/* Note a MOVED, if bytes moved and it is time to say so again. */
void bulk_tell_moved(struct shell *s);

/* Move on whatever became possible; false when there was nothing. */
bool bulk_pump(struct shell *s);

/* A connection with a known peer turned out to be for bulk. */
void bulk_adopt(struct conn *c);

/* A connection ends that a stranger has had for longest; false: there is none.
 * Ids cost nothing: else strangers would hold all that there are. */
bool bulk_make_room(struct shell *s);

#endif
