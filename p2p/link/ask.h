/* ask.h - what a peer asks of a relay, and what the relay answers.
 *
 * The first record after a handshake of kind RELAY, and the answer to it; plain
 * bytes here, sealed on the wire (section 11 of PROTOCOL.md):
 *
 *   ask    id[32] of the other end, u64 token, u64 meet (0 or 1)
 *   ready  u64 0: from here on bytes are carried
 *   met    ip[16], u16 port of the other end as the relay sees it, 6 zeros
 *
 * Pure. Readers return 0 or LOCO_EPROTO, and write nothing then.
 */
#ifndef LOCO_P2P_LINK_ASK_H
#define LOCO_P2P_LINK_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

#define ASK_BYTES   48
#define READY_BYTES 8
#define MET_BYTES   24

struct ask {
    struct peer_id other; /* that it wants, or that called it */
    uint64_t token;       /* of the call that it comes for; 0: it asks */
    bool meet;            /* to be introduced, not carried */
};

struct met {
    uint8_t ip[16];
    uint16_t port; /* not 0 */
};

void ask_write(const struct ask *a, uint8_t out[ASK_BYTES]);
int ask_read(const uint8_t in[ASK_BYTES], struct ask *a);
void ready_write(uint8_t out[READY_BYTES]);
int ready_read(const uint8_t in[READY_BYTES]);
void met_write(const struct met *m, uint8_t out[MET_BYTES]);
int met_read(const uint8_t in[MET_BYTES], struct met *m);

#endif
