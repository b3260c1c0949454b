/* relay.h - whom we carry bytes for: calls, joins, a budget.
 *
 * Two peers that cannot dial each other meet at a third one. The asker
 * connects to us and names the other end (EVENT_RELAY, token 0). If that one is
 * linked to us and the budget allows, we CALL it with a random token; it
 * connects and says the token (EVENT_RELAY); we join the two. The bytes are
 * theirs: encrypted end to end, opaque to us.
 *
 * Budget: bytes_per_hour, filled evenly, at most one hour's worth saved up.
 * When it is spent every pipe is closed and none is taken until a sixteenth
 * is there again. Beside it there are limits on pipes in all and per peer; the
 * rate per second is the shell's.
 *
 * A *meeting* is the same without bytes: when both are there each is told where
 * we see the other, so that they can dial each other at once. It relieves us,
 * so it has rows of its own, and takes place also where no pipe is taken.
 *
 * Strangers: ids are free, so what is asked for by peers that are no members of
 * the view has bounds of its own, all together: RELAY_FOREIGN_MAX pipes, and
 * half of the bytes and of the meetings. When the bytes are spent only their
 * pipes close.
 *
 * Pure: it decides, the shell moves the bytes. RELAY_PIPES_MAX and
 * RELAY_MEETINGS_MAX rows of 110 bytes.
 */
#ifndef LOCO_P2P_SWARM_RELAY_H
#define LOCO_P2P_SWARM_RELAY_H

#include "p2p/core.h"

/* One for each pair of 20 that nobody can dial, and some for their data. */
#define RELAY_PIPES_MAX 256

/* Asked for by others than members: a newcomer has a link and data with half of
 * a view of 20. */
#define RELAY_FOREIGN_MAX 64

/* Under way at a time: each is over as soon as the other end came. */
#define RELAY_MEETINGS_MAX     64
#define RELAY_MEETINGS_OF_PEER 16

struct relay_options {
    uint64_t bytes_per_hour; /* 0: not willing */
    uint32_t pipes_per_peer; /* in which one peer is an end */
    uint32_t wait_ms;        /* who was called comes within this */
    uint64_t seed;           /* secret: tokens come from it */
};

enum relay_state { RELAY_FREE, RELAY_CALLING, RELAY_OPEN };

struct relay_pipe {
    enum relay_state state;
    uint64_t request, other_request; /* of the asker, of who came */
    uint64_t token, since_ms;
    struct peer_id from, to;
    bool foreign; /* no member asked for it */
};

struct relay_purse {
    uint64_t tokens; /* bytes that may be carried now */
    bool spent;      /* until a sixteenth is there again */
};

struct relay {
    struct relay_options opt;
    uint64_t rng;
    uint64_t filled_ms;
    struct relay_purse all, foreign;
    uint64_t n_bytes; /* carried, ever */
    uint32_t n_refused;
    struct relay_pipe pipes[RELAY_PIPES_MAX];
    struct relay_pipe meetings[RELAY_MEETINGS_MAX];
};

void relay_init(struct relay *r,
                const struct relay_options *opt,
                uint64_t now_ms);

/* Whether one more pipe would be taken. */
bool relay_willing(const struct relay *r);

/* What somebody asks of us. */
struct relay_ask {
    uint64_t request;
    const struct peer_id *from, *to; /* `to` is linked to us */
    bool member;                     /* `from` is one of the view */
    bool meet;
};

/* The token to call `to` with, or 0: refused. */
uint64_t
relay_asked(struct relay *r, const struct relay_ask *ask, uint64_t now_ms);

/* `peer` comes with a token, to be carried or to meet: true and the connection
 * to join it with. */
bool relay_came(struct relay *r,
                uint64_t request,
                const struct peer_id *peer,
                uint64_t token,
                bool meet,
                uint64_t *with);

/* Bytes were carried under `request`, or (ended) it is over. */
void relay_moved(struct relay *r,
                 uint64_t request,
                 uint64_t n_bytes,
                 bool ended,
                 uint64_t now_ms);

/* One connection at a time that must be closed now; false: no more. */
bool relay_next_over(struct relay *r, uint64_t now_ms, uint64_t *request);

#endif
