/* butterfly.h - averaging by slices: each member owns one, seen from all.
 *
 * A vector is averaged stripe by stripe, as in ring.h. A *stripe* is cut into n
 * *slices*, one per member, at multiples of the codec's block, as large as the
 * shares of the plan say. For each slice
 *     everybody encodes its own contribution, unscaled, and sends it to the
 *     owner; there it waits in a *lane* of its sender;
 *     the owner adds up the lanes in the order of the plan, each times its
 *     weight, in fp32 (its own contribution takes the same way through the
 *     codec, but for parts: train/sync/codec/lanes.h), and encodes once: these
 *     bytes are final;
 *     the owner sends them to everybody, and they are kept as they are.
 * So no partial sum is ever encoded: that is what codecs of few bits need. The
 * result does not depend on who owns what, but for parts. A member with share s
 * sends 1 + (n - 2) s vectors, as many as with a ring where the shares are
 * equal.
 *
 * Credit. The owner has room for butterfly_slots(n) segments in each lane, in
 * all at most 128 segments (or 2 a lane). A sender is that many segments ahead
 * of the final bytes that it has from the owner, no more. So its segments are
 * always posted and never hold up a connection, and a slow member slows down
 * only the slices that wait for it.
 *
 * Elements [0, butterfly_final) are final, whole stripes, as in ring.h. A
 * member that lacks inherited elements gets them first, from one member that
 * has them all: members that lack some are dealt to members that do not, both
 * in the order of the plan.
 *
 * Segments are numbered per direction of a pair: contributions from 0, the fill
 * and final bytes from 2^31.
 *
 * Pure arithmetic and counters. It does not fail by itself: the caller watches
 * butterfly_progress() and cancels the attempt.
 */
#ifndef LOCO_P2P_EXCHANGE_BUTTERFLY_H
#define LOCO_P2P_EXCHANGE_BUTTERFLY_H

#include "p2p/core.h"
#include "p2p/exchange/ring.h"
#include "p2p/limits.h"

#define BUTTERFLY_WINDOW    8U          /* of a kind: posted, and in flight */
#define BUTTERFLY_FINAL     (1U << 31U) /* added to numbers of final bytes */
#define BUTTERFLY_SHARE_MAX 65536U      /* of one member */

/* What can go out of and into a member, bytes per second; 0: unknown. */
struct butterfly_rate {
    uint64_t up, down;
};

/* Shares of n members (0 .. BUTTERFLY_SHARE_MAX, not all 0) such that the
 * slowest is done as early as can be: who is slower than the others have need
 * of owns less, or nothing, and only gives its contribution. Equal while a rate
 * is unknown. The result is for a plan: nobody else computes it again. */
void butterfly_shares(const struct butterfly_rate *rates,
                      uint32_t n,
                      uint32_t *shares);

/* Seconds for one byte of the vector with these shares, as far as lines limit
 * it; 0: not known. */
double butterfly_time(const struct butterfly_rate *rates, uint32_t n);

/* What is averaged, how it is cut, and by whom. All members agree on it. */
struct butterfly_shape {
    struct ring_shape cut; /* stripes as of a ring of n */
    uint32_t share[VIEW_MEMBERS_MAX];
    uint64_t holds[VIEW_MEMBERS_MAX]; /* inherited elements, <= cut.from */
};

/* A place in a sequence of segments: the fill, then a slice of each stripe. */
struct butterfly_cursor {
    bool filled;      /* past the fill */
    uint32_t stripe;  /* n_stripes: at the end */
    uint32_t segment; /* within the slice, or the fill */
    uint32_t number;  /* segments before it, over all */
};

/* What goes on between us and one other member. */
struct butterfly_edge {
    struct peer_id peer;
    struct hash32 offer;                 /* what it announced */
    double scale;                        /* of its contribution */
    uint64_t fill_in, fill_out;          /* elements from there to `from` */
    struct butterfly_cursor give, gave;  /* our contribution: queued, sent */
    struct butterfly_cursor want, got;   /* its: posted, received */
    struct butterfly_cursor tell, told;  /* our final bytes: queued, sent */
    struct butterfly_cursor hear, heard; /* its: posted, received */
};

struct butterfly {
    struct butterfly_shape shape;
    uint32_t rank, n_stripes;
    uint64_t stripe_elements;
    uint64_t attempt;
    bool proven;  /* contributions travel with the proof that they are those
                     that were announced (proto/blocks.h) */
    double scale; /* of the own contribution */
    struct butterfly_cursor sum, done; /* own slice: asked for, summed */
    struct butterfly_edge edges[VIEW_MEMBERS_MAX]; /* by rank; own unused */
    uint64_t progress, bytes;
};

/* Segments of a lane. */
uint32_t butterfly_slots(uint32_t n);

/* Elements [*begin, *end) of slice c of a stripe; may be empty. */
void butterfly_slice(const struct butterfly_shape *shape,
                     uint32_t stripe,
                     uint32_t c,
                     uint64_t *begin,
                     uint64_t *end);

/* Who owns that element; n: nobody, as it is inherited or behind the end. One
 * share at least is above 0. */
uint32_t butterfly_owner(const struct butterfly_shape *shape, uint64_t element);

/* Attempt, scales, peers and offers are the caller's to set. */
void butterfly_init(struct butterfly *b,
                    const struct butterfly_shape *shape,
                    uint32_t rank);

/* Emit what can be posted, sent and summed now. */
void butterfly_pump(struct butterfly *b, struct out *out);

/* A segment of this attempt is done (rc 0). LOCO_EPROTO when it is not the one
 * that is due. */
int butterfly_done(struct butterfly *b, const struct event_seg_done *event);

bool butterfly_finished(const struct butterfly *b);

/* Elements [0, this) are final here: inherited ones and whole stripes. */
uint64_t butterfly_final(const struct butterfly *b);

/* Segments to and from all others, all told. */
uint32_t butterfly_segments(const struct butterfly *b, bool sending);

/* Whether that peer still owes us segments. */
bool butterfly_owes(const struct butterfly *b, const struct peer_id *peer);

/* Who seems to hold us up: whose contribution is furthest behind, else who does
 * not take ours, else who owes final bytes; NULL: nobody. *sends: whether it is
 * to send. */
const struct peer_id *butterfly_laggard(const struct butterfly *b, bool *sends);

/* Members, by rank, that owe us a contribution that is asked for. */
uint64_t butterfly_missing(const struct butterfly *b);

/* The same, that owe us final bytes. */
uint64_t butterfly_unheard(const struct butterfly *b);

/* Segments completed in all directions: grows while it lives. */
uint64_t butterfly_progress(const struct butterfly *b);

#endif
