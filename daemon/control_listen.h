/* control_listen.h - the listening socket of control.h: this machine only.
 *
 * A loopback address, or a Unix socket of mode 0600. Anything that another
 * machine could reach is refused: the API has no password.
 */
#ifndef LOCO_DAEMON_CONTROL_LISTEN_H
#define LOCO_DAEMON_CONTROL_LISTEN_H

#include "daemon/control.h"

struct control_socket {
    int fd;
    char address[CONTROL_ADDRESS_MAX]; /* as bound */
    char path[128];                    /* of a Unix socket, else empty */
    unsigned port;                     /* 0: a Unix socket */
};

/* Codes as control_open(). */
int control_listen(struct control_socket *s,
                   const char *address,
                   char errmsg[CONTROL_ERRMSG_MAX]);

/* Take the file of a Unix socket away; `fd` is the caller's to close. */
void control_unlink(const struct control_socket *s);

#endif
