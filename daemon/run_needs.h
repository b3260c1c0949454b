/* run_needs.h - what a run takes of a machine: disk, memory, traffic.
 *
 * What the author states in `limits.*` counts; where nothing is stated, what
 * follows from the model. Checkpoints hold five vectors (train/checkpoint.h)
 * and two are kept while a third is written; training holds seven
 * (train/replica.h); a ring round sends every parameter about twice. Pure.
 */
#ifndef LOCO_DAEMON_RUN_NEEDS_H
#define LOCO_DAEMON_RUN_NEEDS_H

#include "proto/manifest.h"

struct run_needs {
    uint64_t parameters;
    uint64_t disk_bytes, memory_bytes;
    uint64_t round_bytes; /* each way, every sync.period inner steps */
};

struct run_needs run_needs(const struct manifest *m);

#endif
