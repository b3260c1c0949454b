/* internal.h - the inside of control.h, for the control_*.c files.
 *
 *   control.c         routes, snapshots, commands, life
 *   control/access.c  whether a request may be answered
 *   control/stream.c  server-sent events
 *   control/pages.c   the dashboard's files
 */
#ifndef LOCO_DAEMON_CONTROL_INTERNAL_H
#define LOCO_DAEMON_CONTROL_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>

#include "daemon/control/control.h"
#include "daemon/control/listen.h"
#include "daemon/control/shown.h"
#include "daemon/settings/control_tokens.h"
#include "p2p/swarm/budget.h"

struct stream;

struct control {
    struct MHD_Daemon *http;
    struct control_socket socket;
    control_command_cb on_command;
    void *data;
    struct budget_meter asked; /* of the HTTP thread only */
    bool guarded;              /* a token is needed */
    char tokens_path[CONTROL_PATH_MAX];
    pthread_mutex_t lock; /* of all below */
    control_set_cb on_set;
    struct control_tokens tokens;
    /* Of the tokens: when they are others, the streams of those before end.
     * `admitted`: when the request that is being answered was let in. */
    uint64_t renewals, admitted;
    char hosts[CONTROL_PATH_MAX]; /* names with commas between */
    struct shown *shown;          /* NULL: not yet */
    struct MHD_Response *status;
    char *json; /* the bytes of `status`, owned by it */
    uint64_t published_ms, serial;
    uint64_t wakes, woken_ms; /* of the streams */
    bool closing;
    struct stream *streams[CONTROL_STREAMS_MAX];
};

/* control.c */
/* Bytes in a response that is not cached; NULL: out of memory. */
struct MHD_Response *control_response(const char *type,
                                      const char *bytes,
                                      size_t len,
                                      enum MHD_ResponseMemoryMode mode);
/* Queue it, and drop our reference. */
enum MHD_Result control_answer(struct MHD_Connection *connection,
                               unsigned code,
                               struct MHD_Response *r);
/* Static text. */
enum MHD_Result control_answer_text(struct MHD_Connection *connection,
                                    unsigned code,
                                    const char *text);
/* control/access.c */
/* False: *answer has been given. */
bool control_admits(struct control *c,
                    struct MHD_Connection *connection,
                    const char *path,
                    const char *method,
                    enum MHD_Result *answer);
/* After the socket is open. */
int control_access_open(struct control *c,
                        const struct control_access *access,
                        char errmsg[ERRMSG_SIZE]);

/* control/stream.c */
enum MHD_Result control_get_events(struct control *c,
                                   struct MHD_Connection *connection);

/* control/pages.c: `path` is one of its files. */
enum MHD_Result control_get_file(struct MHD_Connection *connection,
                                 const char *path);
bool control_is_file(const char *path);

#endif
