/* stream.h - what is synchronised and when: a period, fragments, an overlap.
 *
 * A *stream* is one tensor of the training state that peers average: the
 * gradient, the parameters (as displacement from the anchor), the first or the
 * second moment of the inner optimizer. Each has its period in inner steps
 * (DES-LOC, arXiv:2505.22549). A stream may be cut into *fragments* that take
 * turns, so that the link never carries the whole vector at once (Streaming
 * DiLoCo, arXiv:2501.18512): with period H and F fragments one is synchronised
 * every H / F steps. It *begins* when its bytes leave and *ends* when the
 * average is applied, `overlap` steps later; 0: training waits for it. With
 * an overlap of a whole period begin and end of one step are the end of the
 * one before and then the new begin.
 *
 * A pure function of k, the count of inner steps made, from 1. Which layers
 * belong to a fragment is the caller's matter (layer l to fragment l mod F).
 */
#ifndef LOCO_TRAIN_SYNC_STREAM_H
#define LOCO_TRAIN_SYNC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

enum stream_tensor {
    STREAM_GRADIENT,
    STREAM_PARAMETERS,
    STREAM_MOMENT_1,
    STREAM_MOMENT_2,
    STREAM_TENSOR_COUNT
};

struct stream {
    enum stream_tensor tensor;
    uint32_t period;    /* H; 0: never */
    uint32_t fragments; /* F >= 1, divides H */
    uint32_t overlap;   /* < H / F, or H with F = 1 */
};

/* One synchronisation of one fragment. */
struct stream_turn {
    uint64_t number;   /* counts the stream's turns from 0 */
    uint32_t fragment; /* number mod F */
};

/* Whether a turn's bytes leave after step k. */
bool stream_begins(const struct stream *s, uint64_t k, struct stream_turn *t);

/* Whether a turn's average is due after step k. A turn that began is due once;
 * before the first begin nothing is. */
bool stream_ends(const struct stream *s, uint64_t k, struct stream_turn *t);

/* Elements that a member sends per inner step, of a vector of n, in units of
 * one ring all-reduce of n: each fragment travels once in a period. */
double stream_rate(const struct stream *s);

#endif
