/* status_refused.h - what a peer refused, by its reason: part of status and
 * metrics.
 *
 * The object `refused` of the status: connections, handshakes, frames and
 * messages that were turned away since the start, each counted once where it
 * was noticed. Nobody is banned for it: the next one is judged by itself. What
 * the DHT refused is in its own object (status_dht.h). The same as Prometheus
 * text, one metric with the label `what`. Pure apart from allocation.
 */
#ifndef LOCO_DAEMON_STATUS_REFUSED_H
#define LOCO_DAEMON_STATUS_REFUSED_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/node.h"

/* What the shell counted. */
struct status_refused {
    uint64_t connections;      /* over the limits, or for one that came later */
    uint64_t pauses;           /* of the listener: too many a second */
    uint64_t handshakes;       /* garbage, another run, silence */
    uint64_t frames, segments; /* no message, no segment */
    uint64_t queues;           /* links whose reader does not read */
};

/* Returned: a new reference, NULL when memory is out. */
json_t *status_refused_object(const struct node_status *s,
                              const struct status_refused *r);

/* `refused`: what the function above made; NULL prints nothing. */
void status_refused_metrics(FILE *to, const json_t *refused);

#endif
