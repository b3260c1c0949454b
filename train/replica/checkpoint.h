/* checkpoint.h - a peer's training state on disk.
 *
 * One safetensors file per round, DIR/round-NNNNNNNN.safetensors, with flat
 * F32 vectors of n elements in manifest order:
 *
 *   phi       the anchor, the last committed parameters (always there)
 *   m         outer momentum
 *   adam_u, adam_v   moments of the inner optimizer
 *   sum       pseudo-gradients since the last flush (delayed Nesterov)
 *   trainer_K the anchor of another trainer (AdLoCo)
 *   any other name   of letters, digits and '_': what the caller needs beside
 *
 * and metadata: "loco" (version, "1"), "round", "inner_step", "moment_steps"
 * (older files: not there, as many as inner steps), "tokens", "run_id", further
 * strings of the caller, "checksum". The checksum is hash64 (hash64.h, 16 hex
 * digits) over every other metadata pair in file order as key NUL value NUL,
 * then over name NUL and data of every tensor in file order: a truncated or
 * bit-flipped file is refused. It is no protection against people; what comes
 * from peers is checked against commit records.
 *
 * Saving round r is atomic (file.h), then deletes the oldest beyond `keep`
 * and those with a higher round: they belong to a branch that was left. When
 * the disk is full the save fails with LOCO_EDISK and everything that was
 * there stays.
 *
 * How it fails: LOCO_EFORMAT for a file that is no checkpoint, LOCO_EHASH for
 * one whose checksum differs, the codes of file.h. Blocking; one writer per
 * directory. An open checkpoint is immutable.
 */
#ifndef LOCO_TRAIN_REPLICA_CHECKPOINT_H
#define LOCO_TRAIN_REPLICA_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "train/model/safetensors.h"

#define CHECKPOINT_META_MAX 64 /* metadata pairs, ours included */
#define CHECKPOINT_MORE_MAX 21 /* vectors beside phi */

struct checkpoint_vector {
    const char *name; /* at most 31 characters */
    const float *data;
};

struct checkpoint_state {
    uint64_t n; /* elements of every vector */
    const float *phi;
    /* [n_more] to be saved; those of a file: checkpoint_vector(). */
    const struct checkpoint_vector *more;
    size_t n_more;
    uint64_t round;      /* last committed */
    uint64_t inner_step; /* inner steps this peer has made */
    /* After how many of the optimizer adam_u and adam_v are: fewer where
     * moments began anew, or where work was undone; more where they were
     * fetched later than the state (daemon/machine/checkpoint.c). */
    uint64_t moment_steps;
    uint64_t tokens; /* tokens this peer has trained on */
    const char *run_id;
};

/* Everything is borrowed for the call. `extra` keys must not be ours. */
int checkpoint_save(const char *dir,
                    const struct checkpoint_state *state,
                    const struct st_meta *extra,
                    size_t n_extra,
                    unsigned keep,
                    char *errmsg);

struct checkpoint {
    struct checkpoint_state state; /* vectors and run_id live in the file */
    unsigned n_damaged; /* files that checkpoint_open_newest passed over */
    struct safetensors file;
};

/* checkpoint_close afterwards, whatever the result. */
int checkpoint_open(struct checkpoint *c, const char *path, char *errmsg);

/* The same over a file's bytes in memory, which must outlive `c` and lie at a
 * multiple of 4. */
int checkpoint_open_memory(struct checkpoint *c,
                           const uint8_t *file,
                           size_t size,
                           char *errmsg);

/* The newest one in `dir` that is whole; damaged ones are counted, and the
 * last one's problem is left in `errmsg`. LOCO_ENOENT when there is none. */
int checkpoint_open_newest(struct checkpoint *c, const char *dir, char *errmsg);

/* That of one round. LOCO_ENOENT when there is none. */
int checkpoint_open_round(struct checkpoint *c,
                          const char *dir,
                          uint64_t round,
                          char *errmsg);

/* The newest `max` rounds in `dir`, newest first; how many. */
size_t checkpoint_rounds(const char *dir, uint64_t *rounds, size_t max);

/* A vector by its name, of state.n elements; NULL when it is not there. */
const float *checkpoint_vector(const struct checkpoint *c, const char *name);

/* A string of the caller's `extra`; NULL when it is not there. */
const char *checkpoint_text(const struct checkpoint *c, const char *key);

void checkpoint_close(struct checkpoint *c); /* idempotent */

#endif
