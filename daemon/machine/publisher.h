/* publisher.h - a new state in place is made known: copied, hashed, reported.
 *
 * The trainer publishes what each LOAD, APPLY and PAIR put in place. The hashes
 * of a large state take longer than the outer step (some 0.3 to 1 s/GB), and
 * the next inner steps need none of them. So where the steps are made elsewhere
 * (a GPU, another process) an APPLY is answered twice: PLACED as soon as the
 * state is copied, APPLIED from a thread of this file when it is hashed; where
 * the replica has nothing but the commit's vectors (replica.h, shared) that
 * thread copies them, too. Where
 * the processor makes the steps its threads hash together, before the steps:
 * both would only get in each other's way.
 *
 * Threads: all calls on the trainer's. After a publish() beside, it waits
 * before it uses the replica's pool (kernels/pool.h) again or opens another
 * device; the inner steps of such a trainer do neither.
 */
#ifndef LOCO_DAEMON_MACHINE_PUBLISHER_H
#define LOCO_DAEMON_MACHINE_PUBLISHER_H

#include <stdbool.h>

#include "daemon/jobs/offers.h"
#include "daemon/machine/snapshot.h"
#include "p2p/core.h"

#define TRAINER_NICE 5 /* its threads: the loop must get its turn first */

struct publisher;

struct publisher_options {
    struct replica *replica; /* borrowed */
    void *self;
    /* These as in trainer_options. */
    void (*post)(void *self, const struct local_event *event);
    void (*take_snapshot)(void *self, struct snapshot *s);
    struct snapshot *(*spare_snapshot)(void *self);
    void (*take_moments)(void *self,
                         struct offer *o,
                         uint64_t steps,
                         bool ends);
    uint32_t moments_block;
};

/* LOCO_ENOMEM: no thread. */
int publisher_open(struct publisher **publisher,
                   const struct publisher_options *opt);

/* Before a LOAD, APPLY or PAIR: memory for the state to come, of a snapshot
 * that nobody needs any more. NULL: there is none. */
struct state_room *publisher_room(struct publisher *p);

/* Answer a LOAD, APPLY or PAIR that put a state in place: `answer` is completed
 * and posted. `beside`: the hashes of an APPLY are made while the caller goes
 * on. `saves`: it will be written to disk, so its snapshot has inner moments.
 * One of a processor has them anyway, and where they are announced. */
void publisher_publish(struct publisher *p,
                       const struct local_event *answer,
                       bool beside,
                       bool saves);

/* Until everything is reported. */
void publisher_wait(struct publisher *p);

void publisher_close(struct publisher *p); /* waits; NULL is allowed */

#endif
