/* internal.h - the inside of web.h.
 *
 *   web.c     the thread, its bounds, answers, pages
 *   access.c  whether a request may be answered
 */
#ifndef LOCO_DAEMON_WEB_INTERNAL_H
#define LOCO_DAEMON_WEB_INTERNAL_H

#include <pthread.h>

#include "daemon/settings/control_tokens.h"
#include "daemon/web/listen.h"
#include "daemon/web/web.h"
#include "p2p/swarm/budget.h"

#define WEB_PATH_MAX 4096
#define WEB_NAME_MAX 16
#define WEB_TEXT_MAX 160

struct web {
    struct MHD_Daemon *http;
    struct web_socket socket;
    web_ask_cb on_ask;
    void *data;
    char name[WEB_NAME_MAX], advice[WEB_TEXT_MAX];
    struct budget_meter asked; /* of the HTTP thread only */
    uint64_t admitted;         /* the same: `renewals` at that moment */
    bool guarded;              /* a token is needed */
    bool named;                /* `hosts` can be set */
    char tokens_path[WEB_PATH_MAX];
    pthread_mutex_t lock; /* of all below */
    struct control_tokens tokens;
    uint64_t renewals; /* of the tokens */
    char hosts[WEB_PATH_MAX];
};

/* access.c */
/* False: *answer has been given. */
bool web_admits(struct web *w,
                struct MHD_Connection *connection,
                const char *path,
                const char *method,
                enum MHD_Result *answer);
/* After the socket is open. */
int web_access_open(struct web *w,
                    const struct web_terms *terms,
                    char errmsg[ERRMSG_SIZE]);

#endif
