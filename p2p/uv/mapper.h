/* mapper.h - keep a port of the home router open for us.
 *
 * Runs p2p/swarm/mapping.h with a timer and one worker thread of its own, since
 * the calls to the router block for seconds (portmap.h). Start-up waits for
 * nothing: the callback tells when something is held, and when no more.
 *
 * Loop thread only. Fails with a negative code where no thread can be made;
 * that no router answers is no failure.
 */
#ifndef LOCO_P2P_UV_MAPPER_H
#define LOCO_P2P_UV_MAPPER_H

#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"

struct mapper;

/* Changed: rc 0 and where we are from outside (its IP may be zero where the
 * router does not say), or why there is nothing. */
typedef void (*mapper_cb)(void *data, int rc, const struct address *at);
typedef void (*mapper_close_cb)(void *data);

/* For our listening `port`. Returned: freed by mapper_close(). */
int mapper_open(struct mapper **mapper,
                uv_loop_t *loop,
                uint16_t port,
                mapper_cb cb,
                void *data);

/* Give the port back (a question that runs is waited for, about 15 s at most),
 * then `done` after the memory is gone. */
void mapper_close(struct mapper *m, mapper_close_cb done, void *data);

#endif
