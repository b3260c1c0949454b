/* conn.h - one authenticated TCP connection: handshake, then records or bytes.
 *
 * A *record* is a u32 length (little-endian) and that many bytes: a handshake
 * message until both sides are known, a sealed Noise message of at most 65535
 * bytes after it. What records mean is the owner's business: link.h (control)
 * and bulk.h (segments) take a connection over by setting `ops`.
 *
 * Bulk records are sealed by cipher.h, with AES where both ends offer
 * HANDSHAKE_AES_BULK. A bulk connection whose both ends offer
 * HANDSHAKE_PLAIN_BULK is *plain*: no
 * records after the handshake, bytes as they are. They are read straight to
 * where the owner says that the next ones belong.
 *
 * Lifetime: conn_dial() or conn_accept() -> [on_up -> on_record*] -> on_fail or
 * the owner's wish -> conn_close() -> on_closed; freed after that. Every
 * connection has one deadline timer for connect and handshake together, and
 * again for the flushing of conn_hang_up().
 *
 * Happy path: on_connect -> say (message 1) -> on_read (2) -> say (3) -> up;
 * accepted: on_read (1) -> say (2) -> on_read (3) -> up. What can go wrong:
 * connect fails; deadline; end of stream; a length that is not the expected
 * one; a tag that does not verify. Each is one on_fail(rc), never from inside
 * a call of the owner's, except from conn_resume().
 *
 * A connection to a peer that cannot be dialled goes through a *relay*. It has
 * two legs: first we shake hands with the relay itself (kind RELAY) and say
 * whom we want, or which call we come for; when the relay answers *ready* it
 * carries bytes from then on (pipe.h), and the same socket begins anew, with
 * the handshake of the two ends. Nothing above this file sees a difference.
 * The deadline covers each leg. Or the relay tells the two where the other is,
 * and they dial each other (punch.h).
 *
 * The kernel asks after 20 s of silence whether the other end is alive, so that
 * a home router does not forget the connection between two rounds. Bytes that
 * are not acknowledged for unposted_ms and 5 s end it (TCP_USER_TIMEOUT): a
 * router that was restarted drops them without a word.
 *
 * Memory: a half-open connection reads exactly the bytes of the message that
 * is due into its own struct (2 KB); the read buffer comes with on_up, a plain
 * connection has none.
 * Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_CONN_H
#define LOCO_P2P_UV_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"
#include "p2p/link/handshake.h"
#include "p2p/swarm/budget.h"

#define RECORD_HEAD_BYTES 4
#define RECORD_MAX        (RECORD_HEAD_BYTES + NOISE_MESSAGE_MAX)

struct cipher;
struct conn;
struct peer;
struct shell;

struct conn_ops {
    /* Both sides are known. The owner sets `owner` and `ops`. */
    void (*on_up)(struct conn *c);
    /* Where the next `len` plain bytes go; NULL: wherever. Optional. */
    uint8_t *(*on_place)(struct conn *c, size_t len);
    void (*on_record)(struct conn *c, const uint8_t *plain, size_t len);
    /* Plain connections: room for what comes next, at least one byte; then
     * `len` bytes are there. */
    uint8_t *(*on_room)(struct conn *c, size_t *len);
    void (*on_bytes)(struct conn *c, size_t len);
    /* It is dead; the owner calls conn_close(). */
    void (*on_fail)(struct conn *c, int rc);
    /* Last call; the connection is freed after it. */
    void (*on_closed)(struct conn *c);
};

enum conn_state {
    CONN_CONNECTING,
    CONN_SHAKING,
    CONN_UP,
    CONN_CARRIED,   /* we are the relay: bytes go on to another connection */
    CONN_LINGERING, /* flushing; what arrives is thrown away */
    CONN_CLOSING,
    CONN_STATE_COUNT
};

/* Where a connection is on its way through a relay. */
enum conn_leg {
    LEG_DIRECT,  /* no relay */
    LEG_ASKING,  /* shaking hands with the relay */
    LEG_WAITING, /* told it what we want */
    LEG_THROUGH, /* it carries us; the ends shake hands, or are up */
    LEG_MET,     /* it told where the other end is: punch.h */
    LEG_SERVING  /* we are the relay */
};

/* One uv_write of bytes that live until `done`. */
struct conn_write {
    uv_write_t req;
    struct conn *conn;
    void (*done)(struct conn_write *w, int status);
    size_t len;
    /* pace.c: not yet with the kernel, and how much is of it now */
    uv_buf_t rest[2];
    size_t piece;
    struct conn_write *next;
};

struct conn {
    struct shell *shell;
    const struct conn_ops *ops;
    void *owner;              /* struct link or struct bulk */
    struct conn *prev, *next; /* the shell's list */
    bool inbound;
    enum connection_kind kind; /* inbound: known once up */
    uint64_t request;          /* of the DIAL */
    struct peer_id expected;   /* outbound; zero: anyone */
    struct address address;    /* outbound: dialled; inbound: the remote end */
    struct peer_id relay;      /* through whom; zero: directly */
    uint64_t token;            /* the call that we come for; 0: none */
    enum conn_leg leg;
    bool meets;            /* this leg is to a meeting: punch.h */
    uint64_t meeting;      /* its name for the core, */
    struct address met;    /* where the other end is, */
    uint32_t n_tries;      /* and how often it was dialled */
    struct conn *other;    /* of a leg and its try, the other one; or NULL */
    struct peer_id met_at; /* of a try: who told the address, */
    uint64_t dialled_ms;   /* and when it began */
    struct handshake_hello remote; /* once up */
    struct peer *peer;             /* once up: whose bytes these are */
    enum conn_state state;
    bool paused;
    bool plain; /* once up */
    /* private */
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_shutdown_t shutdown;
    unsigned n_handles;
    bool reading;
    bool throttled; /* pace.c: not read until the bucket has something, */
    bool resumed;   /* which it has */
    bool strange;   /* link.c: read no faster than a stranger may speak: */
    struct budget_link spoke; /* so much */
    bool piece_with_kernel;   /* pace.c */
    uint64_t served;          /* pace.c */
    struct conn_write *paced; /* pace.c: writes in order */
    size_t n_copied;          /* conn_write.c */
    bool parsing;
    struct handshake shake;         /* wiped once up */
    struct noise_cipher send, recv; /* control, and until a leg is done */
    struct cipher *sealer, *opener; /* bulk that is up and not plain */
    uint8_t head[RECORD_HEAD_BYTES + HANDSHAKE_MESSAGE_MAX];
    size_t n_head;
    uint8_t *buf; /* unread bytes are buf[pos..fill) */
    size_t cap, pos, fill;
    uint32_t least;  /* conn_read_least() of it; 0: nothing was said */
    size_t n_thrown; /* lingering */
};

/* Connect and shake hands. 0: on_up or on_fail follows. Else nothing was made.
 * `expected` zero: anyone. */
int conn_dial(struct shell *s,
              const struct conn_ops *ops,
              enum connection_kind kind,
              const struct address *address,
              const struct peer_id *expected,
              struct conn **out);

/* The same through `relay`, which listens at `address`. A token: we were called
 * there, and the other end (`expected`) begins; ops->on_up then finds `inbound`
 * and the kind that it wants. meet: the relay only introduces us. */
struct conn_way {
    struct address address;
    struct peer_id relay; /* zero: none, and `address` is the peer's */
    uint64_t token;
    bool meet;
};
int conn_dial_through(struct shell *s,
                      const struct conn_ops *ops,
                      enum connection_kind kind,
                      const struct conn_way *way,
                      const struct peer_id *expected,
                      struct conn **out);

static inline bool conn_is_relayed(const struct conn *c)
{
    return c->leg == LEG_THROUGH;
}

/* Take over an accepted socket; closes it on failure. */
int conn_accept(struct shell *s, const struct conn_ops *ops, int fd);

/* Called by the owner in on_up: the receive buffer of records. */
void conn_buffer(struct conn *c, size_t cap);

/* Wake us only when so many bytes are there, or the end is. The caller knows
 * that they come without anything from us, or waits for ever. */
void conn_read_least(struct conn *c, uint32_t bytes);

/* Seal len <= NOISE_PLAIN_MAX bytes into one record at dst, which has room for
 * RECORD_HEAD_BYTES + len + NOISE_TAG_BYTES; dst + RECORD_HEAD_BYTES may be
 * src. Returns the record's bytes or a negative code. */
int conn_seal(struct conn *c, const uint8_t *src, size_t len, uint8_t *dst);

/* Queue what bufs[n] name, n <= 4; w and the bytes are borrowed until w->done,
 * which fires once if 0 is returned. Sealed bytes must be written in the order
 * of sealing. */
int conn_write(struct conn *c,
               struct conn_write *w,
               const uv_buf_t *bufs,
               unsigned n,
               void (*done)(struct conn_write *w, int status));

uv_buf_t conn_bytes(const void *bytes, size_t len);

/* Seal and queue a copy of head[n_head] || body[len]. */
int conn_send(struct conn *c,
              const uint8_t *head,
              size_t n_head,
              const uint8_t *body,
              size_t len);

/* Bytes that the kernel has not taken yet. */
size_t conn_unsent(const struct conn *c);

/* Memory of what conn_send() has queued: what the kernel has not taken yet, and
 * what it took in this turn of the loop. */
size_t conn_queued(const struct conn *c);

/* Stop after the current record; go on with what is buffered. The latter calls
 * on_record and on_fail. A pause of more than limit_ms, also one that is asked
 * for again meanwhile, ends in on_fail(LOCO_ETIMEOUT). */
void conn_pause(struct conn *c, uint32_t limit_ms);
void conn_resume(struct conn *c);

/* Stop delivering, flush what is queued, then close: linger_ms at most, and
 * while the other end says no more than CONN_LINGER_BYTES. */
#define CONN_LINGER_BYTES (256U << 10)
void conn_hang_up(struct conn *c);

/* At once; idempotent. Queued writes end with UV_ECANCELED. */
void conn_close(struct conn *c);

#endif
