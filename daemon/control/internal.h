/* internal.h - the inside of control.h, for its files.
 *
 *   control.c  routes, snapshots, commands, life
 *   stream.c   server-sent events
 *   pages.c    the dashboard's files
 */
#ifndef LOCO_DAEMON_CONTROL_INTERNAL_H
#define LOCO_DAEMON_CONTROL_INTERNAL_H

#include <pthread.h>

#include "daemon/control/control.h"
#include "daemon/control/shown.h"
#include "daemon/web/web.h"

struct stream;

struct control {
    struct web *web;
    control_command_cb on_command;
    void *data;
    pthread_mutex_t lock; /* of all below; taken before the one of `web` */
    control_set_cb on_set;
    struct shown *shown; /* NULL: not yet */
    struct MHD_Response *status;
    char *json; /* the bytes of `status`, owned by it */
    uint64_t published_ms, serial;
    uint64_t wakes, woken_ms; /* of the streams */
    bool closing, stalled;
    struct stream *streams[CONTROL_STREAMS_MAX];
};

/* stream.c */
enum MHD_Result control_get_events(struct control *c,
                                   struct MHD_Connection *connection);

/* pages.c: NULL: no file has that path. */
const struct web_file *control_file(const char *path);

#endif
