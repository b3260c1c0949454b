/* moments_chain.h - whether inner moments go on from one lease to the next.
 *
 * A GPU that is lost takes the moments with it. The lease under way is begun
 * anew, so its contribution names none (`begun_anew` in READY); and if that
 * happened behind the contribution, those of the next lease are no moments with
 * which anything ended. Both may happen in one round. Where a lease is undone
 * its first moments come back, and all is as if nothing had been lost since.
 *
 * Pure, two bits.
 */
#ifndef LOCO_DAEMON_MACHINE_MOMENTS_CHAIN_H
#define LOCO_DAEMON_MACHINE_MOMENTS_CHAIN_H

#include <stdbool.h>

struct moments_chain {
    bool broken; /* since the last contribution, or the last state */
    bool packed; /* before a contribution to the round under way */
};

static inline void chain_break(struct moments_chain *c)
{
    c->broken = true;
}

/* The moments are again those with which the lease under way began. */
static inline void chain_mend(struct moments_chain *c)
{
    *c = (struct moments_chain){false, false};
}

/* A contribution is packed. True: its lease was begun anew. */
static inline bool chain_pack(struct moments_chain *c)
{
    c->packed = c->packed || c->broken;
    c->broken = false;
    return c->packed;
}

/* A state is in place. True: its moments are those of no lease. */
static inline bool chain_next(struct moments_chain *c)
{
    bool broken = c->broken;

    *c = (struct moments_chain){false, false};
    return broken;
}

#endif
