/* host.h - a replica's vectors in this process; the inside of
 * replica.h. Only replica*.c include this file.
 *
 * Large ones are pages of their own, which take memory when they are written
 * first. Beside a GPU all are, so that those which travel to and from it in
 * each outer step can be *registered* (kernels/plugin.h): the GPU then reads
 * and writes them itself. Where that is refused (no support, a limit, more than
 * half of the machine's memory) the copies go through pinned memory as before;
 * nothing else changes, and no bit does.
 *
 * What travels: with the outer step on the GPU (replica/outer.h) the
 * contribution and the state's anchor and momentum, old and new; else what the
 * engine mirrors. The wire bytes of a commit are the caller's, who says how
 * long they stay (replica_know_wire).
 */
#ifndef LOCO_TRAIN_REPLICA_HOST_H
#define LOCO_TRAIN_REPLICA_HOST_H

#include "train/replica/replica.h"

/* The next of r->vectors: n zeros; NULL (kept, too): no memory. */
float *replica_take_vector(struct replica *r, uint64_t n);
void replica_free_vectors(struct replica *r);

/* After the GPU was opened; before it is closed. */
void replica_register(struct replica *r);
void replica_unregister(struct replica *r);

/* Whether the GPU may read and write [p, p + bytes) itself. */
bool replica_is_registered(const struct replica *r,
                           const void *p,
                           size_t bytes);

#endif
