/* top_live.h - the screen of `loco top` for one daemon.
 *
 * Progress, the loss as a curve, where the time of the last rounds went, the
 * peers with the speed of their links, who is waited for, the last events.
 * Asks the daemon (/api/v1/history, rounds, peers) each time. No line is wider
 * than the terminal, so that it can be drawn over itself; what does not fit in
 * its height is left out.
 */
#ifndef LOCO_DAEMON_CLI_TOP_LIVE_H
#define LOCO_DAEMON_CLI_TOP_LIVE_H

#include <stddef.h>

#include <jansson.h>

#include "daemon/visit/http.h"

/* Draw for that daemon; the number of lines on stdout. */
size_t top_live_draw(const struct http_daemon *daemon, const json_t *status);

#endif
