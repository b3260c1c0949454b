/* carry.h - pieces on their way between this process and its GPU, beside what
 * is computed there; the inside of replica.h. Only replica*.c include this
 * file.
 *
 * What the GPU knows (replica/host.h) travels at once, the rest through the two
 * pieces of pinned memory of r->outer: while one is filled by the GPU the one
 * before goes to its place.
 *
 * Errors: those of the GPU, which is then lost.
 */
#ifndef LOCO_TRAIN_REPLICA_CARRY_H
#define LOCO_TRAIN_REPLICA_CARRY_H

#include "train/replica/replica.h"

/* The piece on its way to this process: to pinned memory and from there to its
 * place, or there at once. Zeros: none. */
struct carry {
    float *to;
    size_t bytes; /* 0: none */
    int half;
    bool direct;
};

/* All copies so far have arrived, and the piece of c is in its place; then, if
 * there is a next one, it begins its way from `next` of the GPU to `to` (n),
 * after what the GPU was told to compute so far. At most r->outer.most
 * elements; `next` stays as it is until the call after this one. */
int carry_out(struct replica *r,
              struct carry *c,
              const float *next,
              float *to,
              uint64_t n);

/* To the GPU; `from` and `to` stay as they are until the copies are done. */
int carry_in(struct replica *r, void *to, const void *from, size_t bytes);

/* All copies so far are done; with a code of the GPU, too, so that nothing of
 * this process is written any more. */
int carry_done(struct replica *r);

#endif
