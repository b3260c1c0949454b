/* outer_pass.h - the outer steps whose state passes through the GPU that has
 * the parameters; the inside of replica.h. Only replica*.c include this file.
 *
 * Where more goes into a step than a mean and what the GPU keeps anyway, this
 * process sends it piece by piece, and the pieces of the new state come back to
 * where the engine makes it. They take their place when all are there: what is
 * refused, and a GPU that fails, change nothing. The GPU keeps one vector (n),
 * from which a contribution is measured, and the new anchor in grad meanwhile.
 *
 *   a pair    (noloco; replica/pair.h) the partner's anchor and displacement,
 *             the own contribution, m go in; phi, m come out; theta = phi.
 *             Alone (a bye) the own contribution is the mean, nothing pulls
 *   a quorum  (async-*; train/sync/delayed.h) the mean, phi, m and the sum go
 *             in and come out; the GPU keeps the base of the task in the place
 *             of phi. Where this peer was in it theta = base = phi
 *
 * The bits are those of train/sync. Errors: those of the codec and the rule,
 * and of the GPU.
 */
#ifndef LOCO_TRAIN_REPLICA_OUTER_PASS_H
#define LOCO_TRAIN_REPLICA_OUTER_PASS_H

#include "train/replica/replica.h"

/* Whether the method's state does; and what it then takes of the GPU beside
 * what all methods do: pieces of elements, and of wire bytes. */
bool outer_passes(const struct method *m);
size_t outer_pass_pieces(const struct method *m);
size_t outer_pass_wires(const struct method *m);

/* All of that, in pieces of so many bytes; false: there is no room. */
bool outer_pass_take(struct replica *r, size_t piece, size_t wire);
void outer_pass_give(struct replica *r);

/* As pair_mean_apply() and theta = phi; with r->outer.on only. */
int replica_outer_pair(struct replica *r, const uint8_t *wire, bool first);

/* As slices_arrive() with the mean in c->wire, and the next task where this
 * peer was in it; with r->outer.on only. */
int replica_outer_quorum(struct replica *r, const struct replica_commit *c);

#endif
