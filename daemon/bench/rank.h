/* rank.h - one rank of `loco bench allreduce`: a whole peer, no trainer.
 *
 * A rank is what a daemon is on the network: the node core (daemon/node/node.h)
 * on the shell (p2p/uv), with identities, encrypted connections, views, READY,
 * PLAN, exchange, vote and commit. Only the machine behind it is a
 * stand-in: its contribution is a vector made from the rank's number, TRAIN
 * takes no time, and every finished piece of it is decoded into the result at
 * once, while it is in the cache.
 *
 * A *sample* is one round as one rank saw it, in nanoseconds of the system's
 * monotonic clock, which all processes of one machine share:
 *     start      the contribution is there
 *     reduced    the last fp32 value of the mean is in place
 *     committed  all votes are in: the round counts
 *
 * Memory: the contribution and the result (4 bytes an element each); of a type
 * that recode.h cannot make again: the wire bytes of the round; what the shell
 * takes, about 10 MB, and in a butterfly what waits for the sum (at most 128
 * segments).
 */
#ifndef LOCO_DAEMON_BENCH_RANK_H
#define LOCO_DAEMON_BENCH_RANK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/terms.h"
#include "train/sync/codec/codec.h"

#define BENCH_PEERS_MAX 16
#define BENCH_ERROR_MAX 160

struct bench_sample {
    uint64_t start_ns, reduced_ns, committed_ns;
    uint64_t cpu_ns;     /* of this process, start to reduced */
    uint64_t hash_ns;    /* of it, for pieces of the vote's hash */
    uint64_t bytes_sent; /* on sockets, start to committed */
};

struct bench_figures {
    double max_error; /* |result - exact mean|, largest seen */
    uint64_t max_rss_bytes;
    uint64_t rounds_aborted;
    char error[BENCH_ERROR_MAX];  /* why there are no figures; or empty */
    struct bench_sample sample[]; /* one per measured round */
};

/* What happens to the last rank in the last round. */
enum bench_fault { BENCH_FAULT_NONE, BENCH_FAULT_KILL, BENCH_FAULT_STOP };

/* What the ranks of one machine tell each other beside the network. */
struct bench_place {
    _Atomic uint32_t port;   /* 0: does not listen yet */
    _Atomic uint64_t paused; /* the round that it is about to contribute to */
    _Atomic uint64_t struck_ns; /* when the fault struck here; 0: not yet */
};

struct bench_rank_options {
    uint32_t rank, n;
    uint64_t elements;
    const struct codec *codec;
    enum exchange_kind exchange;
    bool adapts;             /* a ring may become a butterfly (terms.h) */
    uint32_t sites;          /* of how many ranks are a part each; 0: none */
    uint32_t segment_bytes;  /* wire bytes of one segment, about */
    uint32_t warmup, rounds; /* before and while samples are taken */
    bool encrypted;
    bool no_aes; /* ChaCha20-Poly1305 whatever the processor can */
    /* With a fault the daemon's own deadlines hold; without one nobody is lost
     * because the machine is busy. It strikes when `fault_at` of the last
     * round's elements are final at the victim. Ranks of one machine only. */
    enum bench_fault fault;
    double fault_at;
    /* Hash pieces while others arrive, as the daemon does: where a core is left
     * for it. `roam`, if not NULL, lets the calling thread go there. */
    bool overlap;
    void (*roam)(void);
    bool verbose; /* the node's log to stderr */
    struct hash32 run_id;
    const char *host; /* where to listen; port 0: any */
    uint16_t port;
    struct address address[BENCH_PEERS_MAX]; /* of all, where given */
    struct bench_place *board;               /* n, shared; NULL: addresses */
};

/* Run all rounds: 0, or a negative code with figures->error set. Blocks. */
int bench_rank(const struct bench_rank_options *opt,
               struct bench_figures *figures);

#endif
