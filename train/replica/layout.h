/* layout.h - the vector of a round: which parts, of which elements, where.
 *
 * What is due in a round (cycle.h) travels as one vector: the parts of the
 * streams one behind the other in the order of method_streams(), each padded
 * with zeros to whole blocks of the wire type, so that no block exponent or
 * scale is shared by a displacement and a moment. Its length follows from the
 * manifest and the number of the round.
 *
 * Where trainers share a round (AdLoCo) the vector is trainers.h's.
 *
 * Fragments of the parameters (Streaming DiLoCo, arXiv:2501.18512): layer l
 * belongs to fragment l mod F, what is outside layers to the last one with the
 * embedding (the strided pattern).
 *
 * A model that is a list of tensors (dim 0) has pieces of one size instead.
 *
 * A stage of a pipeline (llama_part.h) has the fragments of its own slice:
 * layers are counted from its first.
 *
 * Immutable once open. Errors: LOCO_EINVAL, LOCO_ENOMEM with a sentence.
 */
#ifndef LOCO_TRAIN_REPLICA_LAYOUT_H
#define LOCO_TRAIN_REPLICA_LAYOUT_H

#include "train/model/llama_part.h"
#include "train/sync/cycle.h"
#include "train/sync/engine.h"
#include "train/sync/trainers.h"

/* Which elements of a part of a model each of f fragments has.
 * layout_fragments_free afterwards, whatever the result. LOCO_ENOMEM. */
int layout_fragments(const struct llama_config *model,
                     const struct llama_part *part,
                     uint32_t f,
                     struct engine_fragments *out);
void layout_fragments_free(struct engine_fragments *f);

/* The trainers of a method; their sections are padded to whole blocks. */
struct trainers
layout_trainers(const struct method *m, uint64_t n, uint32_t block);

struct layout {
    struct cycle cycle;
    struct engine_fragments fragments;
    struct trainers trainers; /* count 0: none, and streams make the vector */
    uint64_t n;               /* parameters */
    uint32_t block;           /* parts are padded to multiples of it */
};

/* One part of a round's vector. */
struct layout_part {
    size_t s; /* stream */
    struct stream_turn turn;
    uint64_t at, len; /* in the vector */
    uint64_t room;    /* len and its padding; of the last part len */
};

int layout_open(struct layout *l,
                const struct method *method,
                const struct llama_config *model,
                uint32_t block,
                char *errmsg);
int layout_open_part(struct layout *l,
                     const struct method *method,
                     const struct llama_config *model,
                     const struct llama_part *part,
                     uint32_t block,
                     char *errmsg);
void layout_close(struct layout *l); /* idempotent after layout_open */

/* The parts of `round` in order; returns how many. */
size_t layout_parts(const struct layout *l,
                    uint64_t round,
                    struct layout_part out[METHOD_STREAMS_MAX]);

/* Rounds until their lengths repeat; the first *once of them do not. */
uint32_t layout_turns(const struct layout *l, uint32_t *once);

/* Elements of that round's vector; of the longest one of all rounds. */
uint64_t layout_elements(const struct layout *l, uint64_t round);
uint64_t layout_most(const struct layout *l);

/* Elements in the fragments before this one: the place of a fragment in a
 * vector that holds one after the other. */
uint64_t layout_fragment_at(const struct layout *l, uint32_t fragment);

#endif
