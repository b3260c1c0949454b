/* lan.h - hear and be heard by peers of this run on the LAN.
 *
 * One UDP socket for IPv4 multicast and one for IPv6, on every interface that
 * has an address, loopback apart; what is said and when is p2p/swarm/lan.h's. A
 * machine without such an interface, or a port that is taken, is a line in the
 * log, not an error. Interfaces are looked at again with every announcement.
 *
 * By IPv6 it is said from each address of an interface but the link-local one:
 * the sender's address is what others dial, and a link-local one would need a
 * scope, which struct address does not have. Where there is no other address
 * nothing is said by IPv6.
 *
 * Loop thread only.
 */
#ifndef LOCO_P2P_UV_LAN_H
#define LOCO_P2P_UV_LAN_H

#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"

struct lan_socket;

/* Somebody of this run listens at `address`. */
typedef void (*lan_cb)(void *data, const struct address *address);
typedef void (*lan_close_cb)(void *data);

/* For our listening `port`. Returned: freed by lan_socket_close(). */
int lan_socket_open(struct lan_socket **lan,
                    uv_loop_t *loop,
                    const struct hash32 *run,
                    uint16_t port,
                    lan_cb cb,
                    void *data);

void lan_socket_close(struct lan_socket *l, lan_close_cb done, void *data);

#endif
