/* strangers.h - what a person is shown of strangers; see members_strangers.c
 * and members_budget.c.
 */
#ifndef LOCO_P2P_SWARM_STRANGERS_H
#define LOCO_P2P_SWARM_STRANGERS_H

#include <stdint.h>

#include "p2p/address.h"

/* Why something of a stranger was refused: name, and what. */
#define STRANGER_REFUSAL_MAP(X)                                                \
    X(LINKS, "links")           /* a link: strangers hold all they may */      \
    X(WAITS, "waits")           /* a link: it forged signatures */             \
    X(SIGNATURES, "signatures") /* a frame: too many were verified */          \
    X(BYTES, "bytes")           /* a frame: too many of them */                \
    X(FORGED, "forged")         /* a link: signatures, proofs of a state */    \
    X(QUEUE, "queue")           /* a link: it does not read */                 \
    X(FETCH, "fetch")           /* bytes of text or state */

enum stranger_refusal {
#define X(name, text) STRANGER_##name,
    STRANGER_REFUSAL_MAP(X)
#undef X
        STRANGER_REFUSAL_COUNT
};

/* A /24 or /48 of the internet, or one private address. */
struct strangers_row {
    struct address from; /* the last one; the port means nothing */
    uint32_t n_links, n_overdrawn;
    uint64_t waits_ms; /* so long nobody from there is let in; 0: they are */
    uint32_t refused[STRANGER_REFUSAL_COUNT];
};

#endif
