/* trainers.h - a replica that works for one of several trainers
 * (AdLoCo, arXiv:2508.18182; sync/trainers.h). The inside of replica.h: only
 * replica*.c include this file.
 *
 * It holds the anchors of all trainers (`phi`, the first one's first) and
 * trains from that of its own, where the engine's phi points. Which one that
 * is, and how large its batch, is settled at the beginning of a turn
 * (replica_turn); the first step of a turn measures the gradient's
 * noise from the two halves of its batch (sync/batch_size.h), and what that
 * asks for goes with the contribution. Inner moments are this peer's own,
 * whoever it works for. Rows of the text follow one another, however many a
 * step takes.
 *
 * A commit without this peer moves the anchor under it: its live parameters
 * keep their displacement, also where its trainer has merged.
 */
#ifndef LOCO_TRAIN_REPLICA_TRAINERS_H
#define LOCO_TRAIN_REPLICA_TRAINERS_H

#include "train/replica/replica.h"

/* Rows of one step, at most. */
uint32_t replica_rows_most(const struct replica_options *opt);

/* replica.c: the gradient of so many rows from the one in place `first` of
 * those not used yet; into grad, a sum. */
int replica_gradient(struct replica *r,
                     uint32_t first,
                     uint32_t rows,
                     double *sum);

/* Round 0: all trainers are at theta. */
void replica_trainers_init(struct replica *r);

/* The gradient of the next step, as replica_gradient; *rows of them. */
int replica_trainers_gradient(struct replica *r, uint32_t *rows, double *sum);

/* The vector of round + 1. */
int replica_trainers_pack(struct replica *r);

/* The state = what follows from r->average, the decoded mean; theta = the
 * anchor, or with `rebase` by its displacement. Nothing changes on failure. */
int replica_trainers_apply(struct replica *r, uint64_t round, bool rebase);

/* Before the state of another round comes in: theta becomes a displacement.
 * After it: theta = the anchor, or with `rebase` by that displacement. */
int replica_trainers_lift(struct replica *r);
void replica_trainers_loaded(struct replica *r, uint64_t round, bool rebase);

#endif
