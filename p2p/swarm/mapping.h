/* mapping.h - when to ask the router for a port, and when again.
 *
 * A *mapping* is a promise of the home router to send what arrives at one of
 * its outer ports to us, for some time (the lease). It is asked for at the
 * start, renewed at half of the lease, asked for again after a failure with
 * back-off from 1 to 30 minutes, and given back at the end. How a router is
 * asked is the shell's (p2p/uv/mapper.h); one question runs at a time.
 *
 * Pure: time and answers come in, what to do goes out. Cannot fail.
 */
#ifndef LOCO_P2P_SWARM_MAPPING_H
#define LOCO_P2P_SWARM_MAPPING_H

#include "p2p/core.h"

#define MAPPING_LEASE_S 3600 /* asked for; the router may give less */

enum mapping_do { MAPPING_NOTHING, MAPPING_ASK, MAPPING_REMOVE };

struct mapping {
    uint16_t port;  /* ours */
    uint16_t outer; /* to ask for: the one that we had, or ours */
    bool asking, removing, held, closing;
    struct address at; /* held: from outside */
    unsigned failures; /* in a row */
    uint64_t due_ms;   /* of the next question */
};

void mapping_init(struct mapping *m, uint16_t port, uint64_t now_ms);

/* What to do now; ASK and REMOVE are under way until mapping_answer(). */
enum mapping_do mapping_next(struct mapping *m, uint64_t now_ms);

/* The end of a question (rc 0: `at` is ours for lease_s) or of a removal. True
 * when what is held has changed. An IP that no machine has from outside counts
 * as not said (zero), a lease as one of a minute to MAPPING_LEASE_S. */
bool mapping_answer(struct mapping *m,
                    int rc,
                    const struct address *at,
                    uint32_t lease_s,
                    uint64_t now_ms);

/* No more questions; REMOVE comes next where something is held. */
void mapping_close(struct mapping *m);

/* When mapping_next() has something to say; CORE_NEVER while asking. */
uint64_t mapping_deadline(const struct mapping *m);

#endif
