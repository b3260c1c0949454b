/* stage_slots.h - what micro-batches bring to this host and take along.
 *
 * A host of a pipeline has some *slots* (p2p/pipeline/pipeline.h). Each holds
 * two matrices (rows, dim) and the labels of one micro-batch:
 *
 *   low    what came from the stage before; then the gradient that goes back
 *   high   what goes to the next stage; then the gradient that came from it
 *
 * The loop thread moves bytes (fill, take), the trainer thread computes on
 * copies (read, write). Between them the pipeline keeps order, but for one
 * case: an attempt that was cancelled may still be computed while its slot is
 * in use again. So each slot knows its *tag*, which only grows: what another
 * tag reads or writes is LOCO_ESTALE and touches nothing. A lock is held for
 * the copy of a matrix at most.
 *
 * Memory: slots * rows * (2 dim + 1) * 4 bytes and the trainer's own copies;
 * stage_slots_bytes() says it before.
 */
#ifndef LOCO_DAEMON_MACHINE_STAGE_SLOTS_H
#define LOCO_DAEMON_MACHINE_STAGE_SLOTS_H

#include <pthread.h>
#include <stdbool.h>

#include "train/replica/stage_wire.h"

enum stage_side { STAGE_LOW, STAGE_HIGH };

struct stage_slots {
    struct stage_wire wire;
    uint32_t n, rows;
    pthread_mutex_t lock;
    uint64_t *tags;   /* (n) */
    float *matrices;  /* (n, 2, rows, dim) */
    uint32_t *labels; /* (n, rows) */
};

/* Some rows of one slot's matrix; forth: with labels. */
struct stage_piece {
    uint64_t tag;
    uint32_t slot, first, rows;
    bool forth;
};

size_t stage_slots_bytes(uint32_t n, uint32_t rows, uint32_t dim);

/* LOCO_ENOMEM, LOCO_EINVAL. */
int stage_slots_open(struct stage_slots *s,
                     const struct stage_wire *wire,
                     uint32_t n,
                     uint32_t rows);
void stage_slots_close(struct stage_slots *s);

/* Whether there are such rows. */
bool stage_slots_has(const struct stage_slots *s, const struct stage_piece *p);

/* Bytes of that piece. */
size_t stage_slots_len(const struct stage_slots *s,
                       const struct stage_piece *p);

/* Loop thread: a piece that leaves (forth: high, else low), one that came
 * (forth: low, else high). LOCO_ERANGE, LOCO_ESTALE, errors of the codec. */
int stage_slots_fill(struct stage_slots *s,
                     const struct stage_piece *p,
                     uint8_t *dst);
int stage_slots_take(struct stage_slots *s,
                     const struct stage_piece *p,
                     const uint8_t *src);

/* The slot is of that tag from now on (the first stage: nothing comes). */
int stage_slots_begin(struct stage_slots *s, uint32_t slot, uint64_t tag);

/* Trainer thread: a whole matrix (rows, dim), labels (rows) unless NULL. */
int stage_slots_read(struct stage_slots *s,
                     uint32_t slot,
                     uint64_t tag,
                     enum stage_side side,
                     float *x,
                     uint32_t *labels);
int stage_slots_write(struct stage_slots *s,
                      uint32_t slot,
                      uint64_t tag,
                      enum stage_side side,
                      const float *x,
                      const uint32_t *labels);

#endif
