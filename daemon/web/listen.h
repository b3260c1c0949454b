/* listen.h - the listening socket of web.h.
 *
 * A Unix socket of mode 0600, a loopback address, or one that other machines
 * can reach (`remote`): who is heard there is access.c's business.
 */
#ifndef LOCO_DAEMON_WEB_LISTEN_H
#define LOCO_DAEMON_WEB_LISTEN_H

#include "daemon/web/web.h"

#define WEB_ADDRESS_MAX 256

struct web_socket {
    int fd;
    char address[WEB_ADDRESS_MAX]; /* as bound */
    char path[128];                /* of a Unix socket, else empty */
    unsigned port;                 /* 0: a Unix socket */
    bool remote;                   /* other machines can reach it */
};

/* Codes as web_open(). Without `anywhere` only what is local; `setting` is what
 * sentences name. */
int web_listen(struct web_socket *s,
               const char *setting,
               const char *address,
               bool anywhere,
               char errmsg[ERRMSG_SIZE]);

/* Take the file of a Unix socket away; `fd` is the caller's to close. */
void web_unlink(const struct web_socket *s);

#endif
