/* mix.h - how live parameters take in a new anchor.
 *
 *   overwrite  theta = phi
 *   mix        theta = phi + a * (theta - phi), a in (0, 1): the local fraction
 *              (Streaming DiLoCo, arXiv:2501.18512; torchft's lerp)
 *   rebase     theta = phi + (theta - sent): all that was learnt since the
 *              pseudo-gradient left is kept. `sent` is what theta was then:
 *              old phi - g (engine.c)
 *
 * One IEEE fp32 operation at a time; theta differs between peers anyway, so
 * these bits are not part of the protocol, but a restart must repeat them.
 */
#ifndef LOCO_TRAIN_SYNC_MIX_H
#define LOCO_TRAIN_SYNC_MIX_H

#include <stddef.h>

/* a = 0 is overwrite, 1 leaves theta alone. */
void mix_toward(float *theta, const float *phi, float a, size_t n);

#endif
