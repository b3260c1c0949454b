/* listen.h - the listening socket of control.h.
 *
 * A Unix socket of mode 0600, a loopback address, or one that other machines
 * can reach (`remote`): who is heard there is control/access.c's business.
 */
#ifndef LOCO_DAEMON_CONTROL_LISTEN_H
#define LOCO_DAEMON_CONTROL_LISTEN_H

#include "daemon/control/control.h"

struct control_socket {
    int fd;
    char address[CONTROL_ADDRESS_MAX]; /* as bound */
    char path[128];                    /* of a Unix socket, else empty */
    unsigned port;                     /* 0: a Unix socket */
    bool remote;                       /* other machines can reach it */
};

/* Codes as control_open(). Without `anywhere` only what is local. */
int control_listen(struct control_socket *s,
                   const char *address,
                   bool anywhere,
                   char errmsg[ERRMSG_SIZE]);

/* Take the file of a Unix socket away; `fd` is the caller's to close. */
void control_unlink(const struct control_socket *s);

#endif
