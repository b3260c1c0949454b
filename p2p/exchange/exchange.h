/* exchange.h - how the contributions of a plan become one vector.
 *
 * By ring (ring.h), by butterfly (butterfly.h), or first inside sites and then
 * between them (sites.h); a round does not care which. All cut the vector into
 * stripes, and what is final is a prefix of them.
 *
 *     exchange_init -> exchange_pump, exchange_done* -> exchange_finished
 *
 * Pure; errors as those of the three: none but a completion that is not due.
 */
#ifndef LOCO_P2P_EXCHANGE_EXCHANGE_H
#define LOCO_P2P_EXCHANGE_EXCHANGE_H

#include "p2p/exchange/butterfly.h"
#include "p2p/exchange/ring.h"
#include "p2p/exchange/sites.h"
#include "p2p/terms.h"
#include "proto/base/codec_type.h"

#define EXCHANGE_SUM_BLOCK ((uint32_t)CODEC_PIECE) /* without blocks */

/* Segments that wait at the owner of a slice. */
#define EXCHANGE_LANES_MAX 128U

struct exchange_member {
    struct peer_id peer;
    double scale;        /* of its contribution */
    uint64_t holds;      /* inherited elements that it has */
    uint32_t share;      /* butterfly: of each stripe, see butterfly_shape */
    bool gateway;        /* sites: the first of one, see walk_sites_of() */
    struct hash32 offer; /* butterfly: what it announced */
};

struct exchange_plan {
    enum exchange_kind kind;
    uint64_t attempt;
    bool proven;           /* butterfly: contributions were announced */
    struct ring_shape cut; /* n: members, >= 2 */
    uint32_t rank;         /* ours */
    struct exchange_member members[VIEW_MEMBERS_MAX];
};

struct exchange {
    enum exchange_kind kind;
    uint64_t attempt;
    union {
        struct ring ring;
        struct butterfly butterfly;
        struct sites sites;
    };
};

/* Elements of a block of the cut: the codec's, or where it has none (1) those
 * that a butterfly sums together. */
uint32_t exchange_block(enum exchange_kind kind, uint32_t codec_block);

void exchange_init(struct exchange *x, const struct exchange_plan *plan);

/* Whether we send segments to member `rank` of the plan. */
bool exchange_sends_to(const struct exchange_plan *plan, uint32_t rank);

void exchange_pump(struct exchange *x, struct out *out);
int exchange_done(struct exchange *x, const struct event_seg_done *event);
bool exchange_finished(const struct exchange *x);
uint64_t exchange_final(const struct exchange *x);
uint64_t exchange_progress(const struct exchange *x);

/* Segments of one direction, all told. */
uint32_t exchange_segments(const struct exchange *x, bool sending);

/* Whether that peer still owes us segments; *neighbour: whether any go between
 * it and us. */
bool exchange_owes(const struct exchange *x,
                   const struct peer_id *peer,
                   bool *neighbour);

/* Per edge, segments sent and received, so the proposer can find the broken
 * edge: each member says how many it gave out to `next`, and how many came from
 * the member before. [0] is a ring's edge or one inside a site, [1] one between
 * gateways. */
struct exchange_stall {
    uint32_t next[2]; /* rank; ours where there is no such edge */
    uint32_t sent[2], got[2];
};

/* False: a butterfly, where these counts do not tell which edge it is. */
bool exchange_stall_of(const struct exchange *x, struct exchange_stall *s);

/* Who seems to hold us up, NULL: nobody. *sends: it is to send, not to take. */
const struct peer_id *exchange_laggard(const struct exchange *x, bool *sends);

#endif
