/* outer.h - the outer step on the GPU that has the parameters; the
 * inside of replica.h. Only replica*.c include this file.
 *
 * What the engine does with an anchor method on copies of theta (engine.h) can
 * be done where theta is, with the same bits (kernels/plugin.h):
 *
 *   pack     contribution = phi - theta, piece by piece: while one piece is
 *            copied out of the GPU beside, the next is computed and the one
 *            before goes from pinned memory to its place
 *   commit   the wire bytes go in and are decoded there; the rule is tried
 *            without writing, so that what is not finite changes nothing; then
 *            phi, m and theta move; phi and m come back to this process
 *
 * For this the GPU has copies of phi and m and two small pieces. They are taken
 * last, when there is room, and given back before a micro-batch is lowered; the
 * engine then does it as on a processor. phi and m of the state stay in this
 * process: they change when everything has come back, all or nothing, so a GPU
 * that fails in the middle of an outer step takes nothing of it away, and the
 * commit is made again on whatever takes its place.
 *
 * AdLoCo's outer step does not run there, but its test of the batch does: the
 * gradient of a first half stays on the GPU, in memory taken in the same way,
 * and only three norms come out.
 *
 * Served: methods whose only stream is the parameters, with the anchor and its
 * momentum alone, of all members (localsgd, diloco, opendiloco, streaming,
 * muloco, favg-*, muon-avg); and those of pairs (noloco) and quorums (async-*),
 * where most of the state passes through the GPU (replica/outer_pass.h). The
 * others go through the engine, which costs theta out and in over PCIe once a
 * round (1.1B: 4.4 GB each way):
 *
 *   ddp                 it averages gradients at each step; the step after that
 *                       is the optimizer's, on the GPU
 *   local-adam, desloc  moments are averaged, and are copied out anyway
 *   eager               three more vectors (what was sent, the own anchor, its
 *                       momentum): 13 GB at 1.1B
 *   adloco              an anchor for each trainer: 18 GB at 1.1B with four
 */
#ifndef LOCO_TRAIN_REPLICA_OUTER_H
#define LOCO_TRAIN_REPLICA_OUTER_H

#include "train/replica/replica.h"

bool replica_outer_serves(const struct method *m);

/* Bytes that it wants on the GPU, for n parameters. */
size_t replica_outer_bytes(const struct replica_options *opt, uint64_t n);

/* Take the memory; without a GPU, for other methods, or where there is no room
 * r->outer.on stays false. */
void replica_outer_open(struct replica *r);
void replica_outer_close(struct replica *r);

/* phi or m of this process were written: the GPU's are old. */
void replica_outer_forget(struct replica *r);

/* Nothing has failed so far, and the GPU's phi and m are the state's. With
 * r->outer.on only. */
int replica_outer_begin(struct replica *r);

/* The part of r->contribution; as engine_pack(). With r->outer.on only. */
int replica_outer_pack(struct replica *r, const struct layout_part *p);

/* The gradient in r->grad is kept as that of a first half. false: there is no
 * memory for it. */
bool replica_outer_keep_half(struct replica *r);

/* norms2 (3): |.|^2 of the one kept, of that in r->grad, and of their sum,
 * which r->grad becomes. LOCO_ENOENT: that memory was given back meanwhile. */
int replica_outer_halves(struct replica *r, double *norms2);

/* What was made in the engine's next_phi and next_m is the state; NULL: of all
 * elements. theta moved on the GPU. */
void replica_outer_adopt(struct replica *r, const struct layout_part *p);

/* As decoding and engine_apply(): nothing is changed on failure, but for the
 * GPU's own memory where the GPU fails. With r->outer.on only. */
int replica_outer_commit(struct replica *r,
                         const struct layout_part *p,
                         const struct replica_commit *c);

#endif
