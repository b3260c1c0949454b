/* room.h - accepted connections that wait for their turn to shake hands.
 *
 * arrivals.h says who enters and who waits; here are the sockets of those that
 * wait. A socket in the room costs a descriptor and what the kernel holds: no
 * handle of the loop, no keys. Every ROOM_LOOK_MS one call of poll() tells
 * which of those that just came have said how they begin, every ROOM_ALL_MS who
 * of all is gone. The first message of a handshake has 36 bytes and nothing
 * follows it before our answer: who says anything else is closed. Internal to
 * p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_ROOM_H
#define LOCO_P2P_UV_ROOM_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/swarm/arrivals.h"

#define ROOM_LOOK_MS 20
#define ROOM_ALL_MS  200

struct shell;

struct room {
    uv_timer_t timer;
    struct arrivals arrivals;
    uint64_t looked_ms;           /* at all */
    int fd[ARRIVALS_WAITING_MAX]; /* of each place; -1: nobody */
    struct pollfd polled[ARRIVALS_WAITING_MAX];
    int place[ARRIVALS_WAITING_MAX]; /* of each that is polled */
};

void room_init(struct shell *s);
void room_close(struct shell *s);

/* That socket was accepted, from there; taken. */
void room_take(struct shell *s, int fd, const uint8_t ip[16]);

#endif
