/* run_needs.h - what a run takes of a machine: disk, memory, traffic.
 *
 * What the author states in `limits.*` counts; where nothing is stated, what
 * follows from the model and the method. Checkpoints hold the state and the
 * own moments (train/replica/checkpoint.h), and two are kept while a third is
 * written (machine/disk.c has the sum that this machine's quota is held to); a
 * state while it is fetched, and twice one for reduced bytes of rounds that are
 * over (machine/past.c) are beside them; training holds what
 * replica_vector_bytes() says, and the kernels' workspace; a round sends every
 * element about twice. All 0 for a run that this build does not know. Allocates
 * and frees.
 */
#ifndef LOCO_DAEMON_SETTINGS_RUN_NEEDS_H
#define LOCO_DAEMON_SETTINGS_RUN_NEEDS_H

#include "proto/manifest.h"
#include "train/model/llama_part.h"

struct run_needs {
    uint64_t parameters;
    uint64_t disk_bytes, memory_bytes;
    uint64_t round_bytes; /* each way in sync.period inner steps */
};

/* The model that the manifest names, not checked. */
struct llama_config run_model(const struct manifest_model *m);

/* The same, checked, and all of its parameters as one part. A list of tensors
 * is a config of zeros (who sees dim 0 knows), in a part of that many elements.
 * LOCO_EINVAL with what is wrong in *reason (static text; may be NULL). */
int run_model_whole(const struct manifest *m,
                    struct llama_config *model,
                    struct llama_part *whole,
                    const char **reason);

struct run_needs run_needs(const struct manifest *m);

#endif
