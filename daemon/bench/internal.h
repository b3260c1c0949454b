/* internal.h - the inside of bench/rank.h, for the bench_*.c files.
 *
 *   bench/rank.c     one peer: node, shell, meeting, parting
 *   bench/machine.c  what stands in for the machine: its actions
 *   bench/wire.c     the bytes behind segments, and their hash
 *   bench/vector.c   contribution and result, and whether it is right
 */
#ifndef LOCO_DAEMON_BENCH_INTERNAL_H
#define LOCO_DAEMON_BENCH_INTERNAL_H

#include <uv.h>

#include "daemon/bench/rank.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/leaves.h"
#include "daemon/jobs/reduce.h"
#include "daemon/jobs/segments.h"
#include "daemon/node/node.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/worker.h"
#include "proto/sign.h"

#define BENCH_MEET_S 60 /* for all ranks to find each other */

/* One group of pieces of the vote's hash. */
struct bench_leaf {
    struct worker_job job;
    struct rank *rank;
    uint64_t group;
    uint64_t cpu_ns; /* what it took */
};

struct rank {
    struct bench_rank_options opt;
    struct bench_figures *figures;
    int rc;
    /* memory */
    size_t vector_bytes, wire_bytes;
    float *input, *result;
    /* Of the attempt in flight, then of the last commit; NULL: made again. */
    uint8_t *wire;
    int16_t *notes; /* what for (recode.h) */
    uint8_t *final; /* a segment, before it is decoded */
    uint8_t *group; /* one of the hash; the worker's */
    uint64_t attempt;
    struct reduce reduce;
    uint64_t decoded; /* elements of the attempt that are in the result */
    struct run_terms terms;
    /* the peer */
    struct identity identity;
    struct signer signer;
    struct frame_rule rules[MESSAGE_TYPES_MAX];
    uv_loop_t loop;
    uv_timer_t meet, pause;
    struct shell *shell;
    struct node *node;
    struct worker_pool workers;
    unsigned n_open;
    /* the round */
    struct leaves leaves; /* the worker's while it has jobs */
    struct bench_leaf *leaf_jobs;
    uint64_t n_leaf_jobs; /* that run or wait */
    struct worker_job hash_job;
    struct local_event answer; /* the answer that the job prepares */
    bool hashing;
    struct bench_sample now;
    uint64_t round; /* of `now`; 0: none */
};

/* bench/rank.c: end the run with this sentence; the first one counts. */
void bench_give_up(struct rank *r, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* bench/machine.c: what the shell calls. */
struct shell_calls bench_calls(struct rank *r);

/* bench/wire.c. LOCO_ENOMEM: free it all the same. */
int bench_wire_make(struct rank *r);
void bench_wire_free(struct rank *r);
void bench_wire_calls(struct shell_calls *calls);

/* Of the final bytes. On the worker, while no segment is taken or sent.
 * LOCO_ENUMERIC: these cannot be made again. */
int bench_wire_hash(struct rank *r, struct hash32 *hash);

/* Note the time if all elements are there. */
void bench_wire_reduced(struct rank *r);

/* CPU time of this process. */
uint64_t bench_cpu_ns(void);

/* bench/vector.c. pages_take() with all of it touched: a round must not pay for
 * the first use of memory. NULL: there is none. */
void *bench_map(size_t bytes);

/* LOCO_ENOMEM with the sentence said. */
int bench_vectors_make(struct rank *r);
void bench_vectors_free(struct rank *r);

/* Every stride-th element against the exact mean, into figures->max_error. */
void bench_vectors_check(struct rank *r, uint64_t stride);

#endif
