/* delayed.h - delayed Nesterov (DN): an outer step for arrivals one by one.
 *
 * Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling",
 * as algorithms page 6.2 corrects it. Pseudo-gradients arrive when their
 * makers are ready. Each moves phi at once by lr * g / n; the momentum is
 * renewed at every n-th arrival, the *flush*, from the mean of those n:
 *
 *     D = D + g
 *     flush:   m = mu * m + D / n;  D = 0
 *              phi = phi - lr * ((1 - c * n + c) * mu * m + g / n)
 *     else     phi = phi - lr * (c * mu * m + g / n)
 *
 * c in [0, 1/n] spreads the momentum over the arrivals; 0, the default, applies
 * it at the flush. n arrivals with c = 0 are one step of rule N on their mean.
 *
 * A *quorum round* (6.4 B) is q arrivals of which only the mean is known: it is
 * taken as q equal ones. Those up to the next flush go into D, the rest begin
 * the next cycle; a flush uses no arrival twice.
 *
 * The number of members changes with the view. n follows at a flush, never
 * within a cycle: else D / n would not be a mean (delayed_resize()).
 *
 * Order of operations, each one IEEE fp32: see delayed.c. It is part of the
 * protocol: all members hold the same phi, m and D after the same arrivals.
 *
 * How it fails: LOCO_ENUMERIC when a result is not finite; outputs are then
 * useless. `out` and `in` may be the same. Pure.
 */
#ifndef LOCO_TRAIN_SYNC_DELAYED_H
#define LOCO_TRAIN_SYNC_DELAYED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct delayed {
    float lr;
    float mu;
    float c; /* 0 <= c <= 1 / n */
};

struct delayed_state {
    float *phi;     /* (n) */
    float *m;       /* (n) */
    float *sum;     /* (n) D */
    uint32_t size;  /* arrivals in a cycle: N of the paper */
    uint32_t next;  /* size of the cycles after this one */
    uint32_t count; /* arrivals of this cycle so far, below size */
};

/* Arrivals of one cycle: what delayed.c says is done with them. */
struct delayed_part {
    float k, size, lr, mu, early, late;
    bool flush;
};

/* The first part of *q > 0 arrivals, which *q and the counts of s then are
 * without. */
struct delayed_part
delayed_next(const struct delayed *rule, struct delayed_state *s, uint32_t *q);

/* The counts after q arrivals. */
void delayed_count(struct delayed_state *s, uint32_t q);

/* One pseudo-gradient, or q > 0 of which g is the mean. */
int delayed_apply(const struct delayed *rule,
                  struct delayed_state *out,
                  const struct delayed_state *in,
                  const float *g,
                  uint32_t q,
                  size_t n);

/* Cycles have `size` arrivals from the next flush on; at once where no arrival
 * is waiting in D. */
void delayed_resize(struct delayed_state *s, uint32_t size);

#endif
