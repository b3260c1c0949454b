/* run_needs.h - what a run takes of a machine: disk, memory, traffic.
 *
 * The daemon and `loco join` refuse a run by these sums alone. What the author
 * states in `limits.*` binds neither: `loco join` warns of it, and `loco run
 * show` and `loco doctor` count it where it is more.
 *
 * Disk: checkpoints hold the state and the own moments
 * (train/replica/checkpoint.h), and one is written before the oldest goes; a
 * state while it is fetched, and twice one for reduced bytes of rounds that are
 * over (machine/past.c); the data, and while any of it is missing its largest
 * file twice, as it may come from a server and from peers.
 *
 * Memory: what the trainer plans (replica_bytes()), what is on the wire, states
 * that others fetch, contributions that they may ask for, and the processor's
 * part once a GPU is lost. The table is in machine/README.md;
 * tests/e2e/memory_tests.py compares the sum with daemons. A machine that has
 * less, but not less than the least, trains: the backward pass makes
 * activations again, and a lost GPU ends its part (machine/memory.c).
 *
 * A round sends every element about twice; of a model that is cut into stages
 * those of one stage, and the activations and gradients of its cuts.
 *
 * How long a round takes is an estimate: a step as two processor cores make it,
 * a home's line for the exchange. Pure, but for memory of layouts for the time
 * of a call.
 */
#ifndef LOCO_DAEMON_JOBS_RUN_NEEDS_H
#define LOCO_DAEMON_JOBS_RUN_NEEDS_H

#include "daemon/jobs/run_vector.h"
#include "train/replica/replica.h"

#define RUN_USUAL_MBIT  20   /* a home's line, up */
#define RUN_USUAL_FLOPS 40e9 /* of two processor cores */

/* What of a machine's settings matters. */
struct run_host {
    int threads;
    unsigned keep; /* checkpoints */
    bool gpu, gpu_fp32;
    bool cpu_fallback; /* the processor takes the place of a lost GPU */
    bool socket;       /* a training loop of its own makes the steps */
};

/* Of a GPU's memory, with the workspace of products and without
 * PLUGIN_SPARE_BYTES. */
struct run_gpu {
    uint64_t bytes;         /* with all that makes steps short */
    uint64_t least_bytes;   /* with less it cannot be used */
    uint64_t stay_bytes;    /* with less, so many bytes of moments are memory */
    uint64_t moments_bytes; /* of this process, which the figures below lack */
};

struct run_needs {
    uint64_t parameters;
    uint64_t disk_bytes, memory_bytes;
    uint64_t memory_least_bytes; /* with less it refuses the run */
    struct run_gpu gpu;          /* zeroes: no GPU is to be used */
    uint64_t data_bytes;         /* in disk_bytes: fetched once */
    uint64_t spare_bytes;        /* the same: while a shard is missing */
    uint64_t state_bytes;        /* the same */
    uint64_t round_bytes; /* each way in sync.period inner steps; of stages the
                             one that sends least */
};

/* Of a pipeline: what the stage that takes least needs, without the slots of
 * its micro-batches. `host` NULL: one thread, two checkpoints, no GPU. All 0
 * for a run that this build does not know. */
struct run_needs run_needs(const struct manifest *m,
                           const struct run_host *host);

/* The larger of that and what the author states. */
struct run_needs run_needs_stated(const struct manifest *m,
                                  const struct run_host *host);

/* Seconds of a step on two processor cores: 6 FLOPs a parameter (of stages: of
 * an equal part of them) and token. */
double run_step_s(const struct manifest *m, uint64_t parameters);

/* Seconds from one average of the parameters to the next: steps of step_s, and
 * the exchange, beside them where the method overlaps the two. */
double run_round_s(const struct manifest *m,
                   const struct run_needs *needs,
                   double step_s,
                   double bytes_per_s);

/* ---- the sums, also for whoever has read the run already ---------------- */

/* The inner loop: optimizer, schedule, batch, micro_batch, seq. An error with a
 * sentence in *reason. */
int run_inner_read(struct replica_options *r,
                   const struct manifest_inner *f,
                   const char **reason);

/* Micro-batches on their way at once in a pipeline. */
uint32_t run_pipe_slots(uint32_t stages);

/* Bytes of memory for such a replica; (wire) elements of the longest round;
 * `residual`: with error feedback. */
uint64_t run_memory(const struct run_vector *v,
                    const struct replica_options *r,
                    uint64_t wire,
                    bool residual);

/* Rounds whose results are kept on disk: at most two states' worth of bytes, so
 * long that who fetches a state finds what was made meanwhile; or as many as
 * audits of work read. `wire`: elements of a result. */
uint64_t
run_results(const struct run_vector *v, uint64_t state_bytes, uint64_t wire);

/* Bytes of disk beside the data, for n parameters. */
uint64_t
run_disk(const struct run_vector *v, uint64_t n, uint64_t wire, unsigned keep);

#endif
