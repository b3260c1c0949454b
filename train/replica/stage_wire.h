/* stage_wire.h - activations and gradients between two stages, as bytes.
 *
 * A *piece* is some rows of what crosses a cut of the model:
 *
 *   forth   uint32 label[rows], then the rows' activations
 *   back    the rows' gradient
 *
 * both (rows, dim) in a wire type of sync/codec.h, each piece encoded on its
 * own. Labels travel with the activations (NoLoCo 3.1): only the first stage
 * draws data, only the last one needs them. They are little-endian, below the
 * vocabulary, or LLAMA_IGNORE.
 *
 * Pure. Errors: LOCO_EPROTO for a label that is none, and those of the codec;
 * the output is then unspecified.
 */
#ifndef LOCO_TRAIN_REPLICA_STAGE_WIRE_H
#define LOCO_TRAIN_REPLICA_STAGE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "train/sync/codec/codec.h"

struct stage_wire {
    const struct codec *codec;
    uint32_t dim, vocab;
};

/* Of a piece of so many rows. */
size_t stage_wire_forth_bytes(const struct stage_wire *w, uint32_t rows);
size_t stage_wire_back_bytes(const struct stage_wire *w, uint32_t rows);

/* x (rows, dim), labels (rows). */
int stage_wire_put_forth(const struct stage_wire *w,
                         uint8_t *dst,
                         const float *x,
                         const uint32_t *labels,
                         uint32_t rows);
int stage_wire_get_forth(const struct stage_wire *w,
                         const uint8_t *src,
                         float *x,
                         uint32_t *labels,
                         uint32_t rows);

int stage_wire_put_back(const struct stage_wire *w,
                        uint8_t *dst,
                        const float *dx,
                        uint32_t rows);
int stage_wire_get_back(const struct stage_wire *w,
                        const uint8_t *src,
                        float *dx,
                        uint32_t rows);

#endif
