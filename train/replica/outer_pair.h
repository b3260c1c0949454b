/* outer_pair.h - the outer step with one partner (replica/pair.h) on the GPU
 * that has the parameters; the inside of replica.h. Only replica*.c include
 * this file.
 *
 * As replica/outer.h with one partner's two vectors in the place of a mean, and
 * with the bits of train/sync/pair_mean.h. Piece by piece the partner's anchor
 * and displacement, the own contribution and the momentum go in; the new
 * momentum comes out, and so does the new anchor, of which all pieces are made
 * before phi and theta take it: what is refused changes nothing. The momentum
 * is needed nowhere else, so the GPU keeps none: beside phi (n) it takes five
 * pieces and the wire bytes of five.
 *
 * Alone (a bye) the own contribution is the mean and nothing pulls.
 *
 * Errors: those of the codec and the rule, and of the GPU; the state of this
 * process is then as it was.
 */
#ifndef LOCO_TRAIN_REPLICA_OUTER_PAIR_H
#define LOCO_TRAIN_REPLICA_OUTER_PAIR_H

#include "train/replica/replica.h"

/* Of both sides, and for what is made of the own one: pieces of elements, and
 * of wire bytes. */
#define OUTER_PAIR_PIECES 5
#define OUTER_PAIR_WIRES  5

/* What it needs beside what all methods have, in pieces of so many bytes;
 * false: there is no room. */
bool replica_outer_pair_take(struct replica *r, size_t piece, size_t wire);
void replica_outer_pair_give(struct replica *r);

/* As pair_mean_apply() and theta = phi; with r->outer.on only. */
int replica_outer_pair(struct replica *r, const uint8_t *wire, bool first);

#endif
