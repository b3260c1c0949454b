/* trainer_moments.h - the inner moments of a lease, for audits of work: those
 * that it ended with are announced, and those that it began with come back
 * where it is undone.
 *
 * A lease that missed a commit leaves no trace: its optimizer is where the last
 * contribution left it, so that moments go on from one announced lease to the
 * next, whatever was dropped between the two (p2p/round/work.h). What was
 * announced is in bf16, so going back rounds to that; it changes no hash.
 *
 * Memory: 8 bytes a parameter, while a call lasts. The trainer's thread.
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_MOMENTS_H
#define LOCO_DAEMON_MACHINE_TRAINER_MOMENTS_H

#include "daemon/machine/trainer.h"

/* (2, n) in bf16, after so many steps of an optimizer. */
int trainer_moments_set(struct replica *r,
                        const uint8_t *moments,
                        uint64_t steps);

/* Those of now, which a lease ended with: they are taken as moments of the
 * round after it. Without memory, or where a GPU is lost meanwhile, nothing is
 * announced, and `ends` is left as it is. */
void trainer_moments_end(const struct trainer_options *opt,
                         const struct replica *r,
                         struct hash32 *ends);

#endif
