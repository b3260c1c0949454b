/* members_internal.h - what the members*.c files share; nobody else includes
 * it.
 *
 *   members.c       the table of peers, losses, time
 *   members_link.c  links, sending, heartbeats
 *   members_dial.c  dialling
 *   members_reach.c who cannot be dialled: calls, relays, the LAN
 */
#ifndef LOCO_P2P_MEMBERS_INTERNAL_H
#define LOCO_P2P_MEMBERS_INTERNAL_H

#include "p2p/members.h"

#define DIAL_BACKOFF_MAX_MS 5000

/* ---- members_link.c --------------------------------------------------- */

/* Where to speak to a peer, or NULL. The other side may have given up one of
 * two links without our knowing (half-open): not one that is silent while
 * another is not. */
struct members_link *members_link_of_peer(struct members *m, int peer);

/* Not closing yet when `out` is full: tried again. */
void members_hang_up(struct members_link *l, struct out *out);

/* Close what has been silent for long while another link to it was not. */
void members_half_open_close(struct members *m,
                             uint64_t now_ms,
                             struct out *out);

/* Complete the heartbeat with rumours and send it on every link. */
void members_beats_send(struct members *m,
                        struct heartbeat *beat,
                        struct out *out);

/* ---- members_dial.c --------------------------------------------------- */

/* When it is our turn to dial a peer that both sides now want linked. */
uint64_t members_dial_turn(const struct members *m,
                           const struct peer_id *id,
                           uint64_t now_ms);

/* A dial has ended, with a link (`up`) or without. */
void members_dial_done(struct members *m,
                       uint64_t request,
                       bool up,
                       uint64_t now_ms);

/* Why a peer without a link is lost, by the code of the last dial (0: none
 * failed). Static string. */
const char *members_dial_lost(int rc);

/* Whether a live host said that nobody listens there. Anything else, such as a
 * timeout, is also what a bad line looks like. */
bool members_dial_refused(int rc);

#define REQUEST_BOOTSTRAP (1ULL << 32) /* from here: bootstrap addresses */
#define REQUEST_RELAY     (2ULL << 32) /* from here: rows, through a relay */
#define REQUEST_NEARBY    (3ULL << 32) /* from here: addresses of the LAN */

/* Dial everybody whose time has come. */
void members_dial_due(struct members *m, uint64_t now_ms, struct out *out);

/* ---- members_reach.c -------------------------------------------------- */

/* A row is taken for somebody new. */
void members_way_init(struct member_way *way);

/* `from`, which is linked, says that it is linked to `peer`. */
void members_via(struct members *m, int peer, int from);

/* Other ways to a peer that we want and do not have. */
void members_ways_due(struct members *m,
                      int peer,
                      uint64_t now_ms,
                      struct out *out);

/* Do without the relay where that has become possible. */
void members_upgrade_due(struct members *m,
                         int peer,
                         uint64_t now_ms,
                         struct out *out);

void members_nearby_due(struct members *m, uint64_t now_ms, struct out *out);

/* A dial of these numbers has ended; false: not one of ours. */
bool members_way_done(struct members *m,
                      uint64_t request,
                      bool up,
                      uint64_t now_ms);

#endif
