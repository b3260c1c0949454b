/* budget.h - what strangers may cost a peer: leaky buckets.
 *
 * Whatever can be counted has a price in time: a signature costs 100 ms of the
 * budget of its link. A *meter* is the moment up to which what was used is paid
 * for; where that moment is further away than the burst, the meter is
 * *overdrawn*. Use is always charged, and what is asked for is refused while
 * the meter is overdrawn; so a piece of any size passes, and is paid for after.
 *
 * There are two limits: one for each link, and one for all strangers together,
 * of whom a few could use up the second. So each link has a *fair share*, too:
 * where all together are overdrawn, whoever stays below the fair share still
 * passes. A new link has used its fair share: nobody gets another one by
 * dialling again.
 *
 * So over T seconds all strangers together get at most
 * (T + burst) / all + links * T / fair, and one piece a link.
 *
 * Pure: time comes in; a meter is 8 bytes. Cannot fail.
 */
#ifndef LOCO_P2P_SWARM_BUDGET_H
#define LOCO_P2P_SWARM_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

enum budget_kind {
    BUDGET_SIGNATURES, /* verified because of what a stranger said */
    BUDGET_BYTES,      /* of control frames: decoded, and answered */
    BUDGET_DIALS,      /* of addresses that they named; of all only */
    BUDGET_KIND_COUNT
};

struct budget_price {
    uint32_t each_us, burst_us;
};

struct budget_terms {
    struct budget_price link, fair, all;
};

struct budget_meter {
    uint64_t paid_us;
};

/* Of one link, for each kind. */
struct budget_link {
    struct budget_meter own[BUDGET_KIND_COUNT], fair[BUDGET_KIND_COUNT];
};

/* Of all strangers together. */
struct budget {
    struct budget_meter all[BUDGET_KIND_COUNT];
};

bool budget_overdrawn(const struct budget_meter *m,
                      const struct budget_price *price,
                      uint64_t now_ms);

/* `n` of them were used. No debt lasts longer than BUDGET_DEBT_US beyond the
 * burst: one large piece must not silence an honest link for minutes. */
void budget_charge(struct budget_meter *m,
                   const struct budget_price *price,
                   uint64_t n,
                   uint64_t now_ms);

#define BUDGET_DEBT_US 10000000U

/* One of all, whoever it is for; false: all is used. */
bool budget_take(struct budget *all, enum budget_kind kind, uint64_t now_ms);

/* Bytes that strangers fetch: a level that falls by a rate. It may rise fast up
 * to a burst, which is long: whole newcomers come in as fast as the line is.
 *
 * Each group of addresses has a share of the level, and what falls, falls off
 * all shares alike. A share may be as large as what is left of the burst
 * (Choudhury & Hahne 1998, dynamic queue length thresholds): one group that
 * fetches without end holds half of the burst, two hold a third each; so k of
 * them leave the k-th part and one of it to a newcomer, and the rate is divided
 * by those that fetch. */
#define BUDGET_SHARES_MAX 64 /* where there are more, some groups share one */

struct budget_share {
    struct peer_id group; /* a name of it */
    uint64_t bytes;       /* 0: a free row */
};

struct budget_shares {
    struct budget_share of[BUDGET_SHARES_MAX];
    uint64_t at_ms;
    uint64_t owed;     /* fell off, of no share yet */
    uint32_t thousand; /* of a byte */
};

/* `n` bytes more for that group; false, and none: its share is as large as what
 * is left of `burst`. */
bool budget_fill(struct budget_shares *s,
                 const struct peer_id *group,
                 uint64_t bytes_per_s,
                 uint64_t burst,
                 uint64_t n,
                 uint64_t now_ms);

/* A link that begins now. */
void budget_link_init(struct budget_link *l, uint64_t now_ms);

/* Whether a stranger with that link may use something of this kind. */
bool budget_allows(const struct budget *all,
                   const struct budget_link *l,
                   enum budget_kind kind,
                   uint64_t now_ms);

/* Until it may; 0: it may now. */
uint64_t budget_wait_ms(const struct budget *all,
                        const struct budget_link *l,
                        enum budget_kind kind,
                        uint64_t now_ms);

/* Whether it has used up its own share of something. */
bool budget_is_overdrawn(const struct budget_link *l, uint64_t now_ms);

void budget_use(struct budget *all,
                struct budget_link *l,
                enum budget_kind kind,
                uint64_t n,
                uint64_t now_ms);

/* It is answered so much. In a crowd it is not unheard for longer than that
 * because of what it was answered: else it would seem to be dead. */
#define BUDGET_ANSWER_US 4000000U
void budget_answered(struct budget *all,
                     struct budget_link *l,
                     uint64_t bytes,
                     uint64_t now_ms);

/* It is sent so many bytes that it asked for. They have a limit of their own
 * (budget_fill), so in a crowd the frame that asked for many is not charged:
 * else a newcomer would get a piece each 0.2 s. */
void budget_served(struct budget_link *l, uint64_t bytes, uint64_t now_ms);

#endif
