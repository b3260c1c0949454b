/* punch.h - two peers that meet at a relay dial each other at once.
 *
 * The *leg* is the connection to the relay, from a fresh port of ours. When the
 * relay has said where it sees the other end, the core is told (EVENT_MET) and
 * says whether to dial there (ACTION_PUNCH). A *try* is a connection from the
 * same port to that address. Nobody listens on the port: what comes in from the
 * other end meets our own packet (TCP simultaneous open), on both sides. Who
 * asked for the meeting shakes hands first, and the try that gets through is
 * the connection that was wanted. The leg stays open meanwhile, so that the
 * router keeps the port.
 *
 * A try that is refused (a router answers what nobody asked for with RST, while
 * the other end has not dialled yet) is followed by the next one, punch_tries
 * in all, ever more slowly. One that gets no answer stays: the kernel sends its
 * packet again. One that gets through to somebody else is the last. After
 * punch_ms all is over. Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_PUNCH_H
#define LOCO_P2P_UV_PUNCH_H

#include "p2p/core.h"

struct conn;
struct shell;

/* Before a leg is dialled: its port. 0 or a negative code. */
int punch_bind(struct conn *leg);

/* head[] of the leg holds what the relay says. 0 or a negative code. */
int punch_met(struct conn *leg);

/* ACTION_PUNCH */
void punch_dial(struct shell *s, const struct action_punch *punch);

/* After so many tries the next one comes within this, or within the time that
 * the last one took. */
uint32_t punch_again_ms(uint32_t n_tries);

/* A leg or a try is being closed: a try goes with its leg. */
void punch_closed(struct conn *c);

#endif
