/* pipe.h - we are the relay: bytes of one connection go on to another.
 *
 * A *pipe* is two accepted connections of kind RELAY. Each end proved who it is
 * to us and said what it wants; that becomes EVENT_RELAY and waits for the
 * core's RELAY_JOIN or RELAY_REFUSE, no longer than the handshake's deadline.
 * Joined, both are told *ready*, and from then on bytes are copied both ways as
 * they are: the two ends shake hands through us, we hold no key of theirs.
 *
 * Back-pressure: an end is read only when what it sent before was written to
 * the other one, so a pipe holds at most PIPE_BYTES for each direction. All
 * pipes share one token bucket of relay_bytes_per_s; a pipe that finds it empty
 * is not read until it fills. The core makes no step for bytes that are
 * carried, but one a second for what was moved (EVENT_RELAY_MOVED), so that it
 * can keep a budget for the hour. A *meeting* carries nothing: each end is told
 * where we see the other, and stays until it closes, or punch_ms and linger_ms.
 * A half-closed end lingers; an error or a silence of pipe_idle_ms closes both.
 * Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_PIPE_H
#define LOCO_P2P_UV_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"
#include "p2p/uv/conn.h"

#define PIPE_BYTES (64U << 10)

struct pipe_end {
    struct conn_write w;
    struct conn *conn;
    struct pipe_end *other; /* NULL: not joined yet */
    struct pipe_end *prev, *next;
    uint64_t request;  /* its name for the core */
    uint64_t moved;    /* since the last report, counted at the first end */
    uint64_t moved_ms; /* when something was, last */
    bool first;        /* of its pipe */
    bool meets, told;  /* of a meeting; it knows where the other end is */
    bool busy;         /* its bytes are being written to the other end */
    bool held;         /* not read: the bucket is empty */
    bool ended;        /* it said that it has no more */
    uint8_t bytes[PIPE_BYTES];
};

/* The shell's part. */
struct pipe_state {
    struct pipe_end *ends;
    uv_timer_t timer; /* fills the bucket while there are pipes */
    int64_t tokens;   /* bytes that may be read now */
    uint64_t filled_ms, reported_ms;
    uint64_t n_requests;
};

void pipe_init(struct shell *s);
void pipe_close(struct shell *s); /* releases the shell when it is done */

/* head[] of an accepted connection of kind RELAY holds what it asks for. */
int pipe_asked(struct conn *c);

/* The actions of these names. */
void pipe_join(struct shell *s, const struct action_relay_join *join);
void pipe_refuse(struct shell *s, uint64_t request);

#endif
