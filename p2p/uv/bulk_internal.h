/* bulk_internal.h - shared by bulk.c, bulk_send.c and bulk_recv.c.
 *
 * An *op* is one POST_RECV or SEND_SEG until its SEG_DONE. Its note comes
 * first, so that a finished op is its own event. Who holds an op: the posts
 * table (receiving), the peer's queue or a slab that is being written.
 */
#ifndef LOCO_P2P_UV_BULK_INTERNAL_H
#define LOCO_P2P_UV_BULK_INTERNAL_H

#include "p2p/uv/shell.h"

/* What a frame names; without padding, it is a hash key. */
struct bulk_key {
    struct peer_id peer;
    uint64_t attempt;
    uint32_t stream;
    uint32_t seg;
};

struct bulk_op {
    struct note note; /* must be first */
    struct bulk_key key;
    struct peer *peer;
    struct bulk *bulk;           /* receiving: arriving there */
    struct bulk_op *prev, *next; /* peer's queue */
    UT_hash_handle hh;           /* posts */
};

/* Bytes of one segment, sealed (sending) or plain (receiving). */
struct slab {
    struct conn_write w;
    uint8_t head[BULK_HEADER_BYTES]; /* of a plain frame */
    struct slab *next;               /* pool */
    struct bulk *bulk;
    struct bulk_op *op; /* NULL: cancelled */
    bool strange;       /* on its way to a stranger */
    uint8_t bytes[];
};

/* NULL when all slabs of this pool are in use. */
struct slab *slab_take(struct shell *s, struct slab_pool *pool);
void slab_give(struct shell *s, struct slab_pool *pool, struct slab *slab);

struct bulk_op *
op_new(struct shell *s, const struct segment *segment, bool sent);

/* Report it; taken. */
void op_finish(struct shell *s, struct bulk_op *op, int rc);

/* Forget it without a word; taken. */
void op_drop(struct shell *s, struct bulk_op *op);

bool bulk_is_cancelled(const struct shell *s,
                       uint32_t stream,
                       uint64_t attempt);

/* That a new attempt goes over: the most recently opened, and one through a
 * relay only where there is no other. NULL: none. */
struct bulk *bulk_best(const struct peer *p);

/* A fetch may be long, and its pieces may come in any order: it leaves a relay
 * for a direct connection. */
bool bulk_moves(uint32_t stream,
                const struct bulk *from,
                const struct bulk *to);

/* The connection is over for reason rc; idempotent. */
void bulk_end(struct bulk *b, int rc);

/* Sending. It is a stranger's, and those hold all that they may. */
bool bulk_waits(const struct bulk *b);
void bulk_send_next(struct bulk *b);
void bulk_send_fail(struct shell *s,
                    struct peer *p,
                    const struct bulk *b,
                    int rc);
void bulk_send_cancel(struct shell *s, uint32_t stream, uint64_t attempt);

/* Receiving. */
void bulk_recv_retry(struct bulk *b);
void bulk_recv_fail(struct shell *s,
                    struct peer *p,
                    const struct bulk *b,
                    int rc);
void bulk_recv_cancel(struct shell *s, uint32_t stream, uint64_t attempt);
void bulk_recv_stop(struct bulk *b, int rc);
uint8_t *bulk_on_place(struct conn *c, size_t len);
void bulk_on_record(struct conn *c, const uint8_t *plain, size_t len);
uint8_t *bulk_on_room(struct conn *c, size_t *len);
void bulk_on_bytes(struct conn *c, size_t len);

#endif
