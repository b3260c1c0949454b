/* listen.h - a listening socket that takes no more than it may.
 *
 * A *listener* owns a socket made by us and a uv_poll_t.
 * libuv's own accept loop is not used: it spins when descriptors run out and
 * cannot be paused. Whom it accepts it hands to room.h. Over the rate, or out
 * of descriptors, it sleeps and the kernel's queue holds them.
 *
 * A port that somebody listens on is UV_EADDRINUSE also for the same user,
 * which SO_REUSEPORT alone would let in: a socket without it must first get
 * the port and listen, and is given up only when ours listens too.
 * Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_LISTEN_H
#define LOCO_P2P_UV_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"

struct shell;

struct listener {
    struct shell *shell;
    uv_poll_t poll;
    uv_timer_t timer; /* end of a pause */
    int fd;
    unsigned n_handles;
    uint64_t tokens_milli; /* connections that may be taken, times 1000 */
    uint64_t filled_ms;    /* when they were counted last */
};

/* 0 and the port in *bound, or a negative code and nothing is left open. */
int listener_open(struct listener *l,
                  struct shell *s,
                  const struct address *address,
                  uint16_t *bound);

void listener_close(struct listener *l);

#endif
