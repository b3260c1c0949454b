/* sites.h - averaging in two levels: inside sites, and between them.
 *
 * Slices of a stripe walk through the sites (walk.h) as segments, ADD at each
 * member that has not been in the sum, COPY after that. So the arithmetic is
 * that of a ring, hop by hop, and so are stripes, inherited elements and what
 * is final. A member has at most two *edges* in each direction: to the next of
 * its site, and, a gateway, to the next gateway.
 *
 * On an edge segments go in an order that both ends know: phase by phase,
 * within a phase the *lanes* (a slice's hop over this edge) by depth. Phases
 * are partial sums P and final bytes F of the stripes: P0  P1 F0  P2 F1  ..
 * P(n-1) F(n-2)  F(n-1) so that the sums of a stripe are under way while the
 * one before is handed out. What a segment needs is always of a lower phase, or
 * of the same one at a lower depth: nothing waits in a circle.
 *
 * A member that lacks inherited elements gets them first: from the member
 * before it in its site, if one of the site has all of them, otherwise through
 * the gateways.
 *
 * Pure arithmetic and counters, as ring.h.
 */
#ifndef LOCO_P2P_EXCHANGE_SITES_H
#define LOCO_P2P_EXCHANGE_SITES_H

#include "p2p/core.h"
#include "p2p/exchange/ring.h"
#include "p2p/exchange/walk.h"
#include "p2p/limits.h"

#define SITES_EDGES 2 /* of a direction: inside, outside */

struct sites_shape {
    struct ring_shape cut; /* n: members */
    struct walk_sites sites;
    uint64_t holds[VIEW_MEMBERS_MAX]; /* inherited elements, <= cut.from */
};

/* One slice over one edge. */
struct sites_lane {
    uint8_t slice, depth;
    bool adds, ends;
    int8_t after_edge; /* edge in by which it came; -1: our contribution */
    bool after_final;  /* which lane there */
    uint8_t after_lane;
};

/* A place in the sequence of segments of an edge. */
struct sites_cursor {
    bool filled;      /* past the inherited part */
    uint32_t phase;   /* 2 x stripes: at the end */
    uint32_t lane;    /* of the phase */
    uint32_t segment; /* of the slice, or the fill */
    uint32_t number;  /* segments before it, over all */
};

struct sites_edge {
    bool used;
    uint32_t rank; /* the other end */
    struct peer_id peer;
    uint64_t fill; /* elements [fill, from) go over it first */
    uint32_t n[2]; /* lanes of partial sums, of final bytes */
    struct sites_lane lane[2][VIEW_MEMBERS_MAX];
    struct sites_cursor asked, done; /* posted or queued; received or sent */
};

struct sites {
    struct ring_shape slices; /* the cut with n sites */
    uint32_t rank, n_stripes;
    uint64_t stripe_elements;
    uint64_t attempt;
    double scale; /* of the own contribution */
    struct sites_edge in[SITES_EDGES], out[SITES_EDGES];
    uint64_t progress;
};

/* Elements [*begin, *end) of a slice of a stripe are ring_chunk()'s of this. */
struct ring_shape sites_slices(const struct sites_shape *shape);

/* Attempt, scale and peers are the caller's to set. */
void sites_init(struct sites *t,
                const struct sites_shape *shape,
                uint32_t rank);

/* Whether member `rank` sends to member `to`. */
bool sites_sends(const struct walk_sites *s, uint32_t rank, uint32_t to);

/* Emit what can be posted and sent now. */
void sites_pump(struct sites *t, struct out *out);

/* A segment of this attempt is done (rc 0). LOCO_EPROTO when it is not the one
 * that is due. */
int sites_done(struct sites *t, const struct event_seg_done *event);

bool sites_finished(const struct sites *t);

/* Elements [0, this) are final here: inherited ones and whole stripes. */
uint64_t sites_final(const struct sites *t);

/* Segments completed in both directions: grows while it lives. */
uint64_t sites_progress(const struct sites *t);

/* Segments of one direction, all told. */
uint32_t sites_segments(const struct sites *t, bool sending);

/* Whether that peer still owes us segments; *neighbour: it is at an edge. */
bool sites_owes(const struct sites *t,
                const struct peer_id *peer,
                bool *neighbour);

/* Of our edge and the one behind it, inside or outside: the rank that it goes
 * to (ours: there is none), segments given out there, segments that came. */
void sites_stall_of(const struct sites *t,
                    bool outside,
                    uint32_t *next,
                    uint32_t *sent,
                    uint32_t *got);

/* Who seems to hold us up; *sends: it is to send, not to take. */
const struct peer_id *sites_laggard(const struct sites *t, bool *sends);

#endif
