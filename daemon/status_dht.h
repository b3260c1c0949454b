/* status_dht.h - what a peer says of its DHT: part of status and metrics.
 *
 * The object `dht` of the status: sizes of tables, lookups, and everything
 * that was refused, by its reason. The same as Prometheus text from the
 * object's numbers. Pure apart from allocation.
 */
#ifndef LOCO_DAEMON_STATUS_DHT_H
#define LOCO_DAEMON_STATUS_DHT_H

#include <stdio.h>

#include <jansson.h>

#include "daemon/node.h"

/* Returned: a new reference, NULL when memory is out. */
json_t *status_dht_object(const struct node_status *s);

/* `dht`: what the function above made; NULL prints nothing. */
void status_dht_metrics(FILE *to, const json_t *dht);

#endif
