/* gpus.h - the other GPUs of this machine, which make a part of each gradient;
 * the inside of replica.h.
 *
 * The replica lies on the first GPU (replica/device.h): what a round packs, a
 * checkpoint keeps and an audit repeats is there. Each other one has theta, a
 * gradient and a workspace. For a batch, with C of them at work:
 *
 *   theta     GPU c takes slice c of C from the first, then the others' slices
 *             from those
 *   gradient  each makes that of its sequences, B / C of them, at the same time
 *   sum       GPU c adds slice c of all others to its own; the first takes
 * these
 *
 * Copies of a step, in slices of n / C elements in fp32: 3 from the first to
 * each other GPU, 2 back, 2 from each other to each other. By way of NVLink or
 * PCIe where two reach each other's memory, else through the host, as the
 * driver does it. No copy and no sum runs beside computation.
 *
 * A slice is added in the order of the GPUs, its owner first, so the bits do
 * not depend on who is faster. They do depend on how many there are, on their
 * kinds, and on micro-batches, which follow the memory that is free at the
 * opening: last bits of a gradient, as between a GPU and a processor. Batches
 * with fewer sequences than GPUs leave the last ones idle.
 *
 * A GPU that fails, or has no memory for one sequence, is left out until the
 * work is opened again, and the others make the batch once more: no token is
 * lost, a step takes longer. One that gave no answer is not opened again by
 * this replica: that may never end. Where the first fails it is as with that
 * one alone (replica_recover), and all are opened again; where it failed while
 * it read the others, it goes on alone. Copies are tried when a GPU is opened.
 *
 * Held-out text, stages and the outer step know the first GPU only.
 */
#ifndef LOCO_TRAIN_REPLICA_GPUS_H
#define LOCO_TRAIN_REPLICA_GPUS_H

#include "train/replica/replica.h"

/* Elements that come from another GPU's gradient at a time. */
#define GPUS_PIECE ((uint64_t)4 << 20)

/* Of a GPU's memory, for what comes; 0 where the replica has one GPU. */
uint64_t replica_gpus_piece_bytes(const struct replica_options *opt,
                                  uint64_t n);

/* Sequences of a micro-batch: no more than a GPU's part of the batch. */
uint32_t replica_gpus_rows(const struct replica_options *opt);

/* Those that opt.device names, after the first one's work was opened. One that
 * cannot be opened is left out, see replica_gpus_said(). LOCO_ENOMEM. */
int replica_gpus_open(struct replica *r);
void replica_gpus_close(struct replica *r);

/* As llama_gradient() of the replica's theta into its gradient, by all. Errors
 * are the first GPU's, and the text's. */
int replica_gpus_gradient(struct replica *r,
                          const struct llama_batch *batch,
                          double *sum);

/* GPUs that made the last gradient: no more than it had sequences. */
int replica_gpus_at_work(const struct replica *r);

/* In use by that one, 0 the first; 0: it is not open. */
uint32_t replica_gpus_micro_batch(const struct replica *r, int number);

#endif
