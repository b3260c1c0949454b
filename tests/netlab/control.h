/* control.h - the lines that a router is told what to do with.
 *
 *     hub NAME                   a place where links meet
 *     space NAME                 a network namespace, without the router in it
 *     host NAME [MTU]            a namespace with an interface "net0" to here
 *     address NAME PREFIX        the node answers for it (IPv4 or IPv6)
 *     link A B [KEY VALUE]...    both directions; made if there is none
 *     wire A B [KEY VALUE]...    the same, from A to B alone
 *     stats                      counters of each direction as JSON
 *
 *     KEY VALUE: rate 100mbit | 256kbit | 0 (none), delay 25ms, jitter 500us,
 *     loss 0.01, queue 100ms | 64kb | 0 (none), cut on|off, reorder on|off,
 *     overhead 14 (bytes a packet beside IP that count for the rate)
 *
 * Each line has one answer: "ok", "ok VALUE" (the descriptor of a namespace,
 * good as /proc/PID/fd/VALUE; the counters) or "error: what is wrong"; after
 * an error nothing has changed.
 */
#ifndef LOCO_TESTS_NETLAB_CONTROL_H
#define LOCO_TESTS_NETLAB_CONTROL_H

#include <stdio.h>

#include "tests/netlab/topology.h"

struct router;

/* Execute one line (altered while it is read) and answer it. */
void control_line(struct router *r, char *line, FILE *answer);

#endif
