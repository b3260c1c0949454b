/* allreduce.h - how fast the collective engine averages a vector.
 *
 * Ranks are processes (bench/rank.h): all of them forked here, over loopback,
 * or one of a given set (--rank), which prints what it saw itself. The time of
 * a round is that of its slowest rank: from the moment the last contribution
 * was there to the moment the last value was in place.
 *
 * Figures: elements_per_s is elements / seconds_median. bus_bytes_per_s is
 * what one direction of a rank carries, 2(n-1)/n * encoded bytes / seconds
 * (the "bus bandwidth" of NCCL's tests). bytes_sent and cpu_seconds are sums
 * over the ranks that were measured, per round; hash_cpu_seconds is what of
 * cpu_seconds made pieces of the vote's hash meanwhile.
 */
#ifndef LOCO_DAEMON_BENCH_ALLREDUCE_H
#define LOCO_DAEMON_BENCH_ALLREDUCE_H

#include "daemon/bench/rank.h"

#define BENCH_ROUNDS_MAX 10000

struct bench_result {
    double seconds_median, seconds_min, commit_seconds_median;
    double elements_per_s, bus_bytes_per_s;
    double bytes_sent, cpu_seconds, hash_cpu_seconds, max_error;
    uint64_t max_rss_bytes, rounds_aborted;
    /* With a fault, whose round is in none of the medians: from it to the last
     * value at the last survivor, and to its commit. */
    double fault_seconds, fault_commit_seconds;
    char error[BENCH_ERROR_MAX];
};

/* All opt->n ranks on this machine. In the parent: 0 or a negative code with
 * result->error set. A forked rank returns here too, with *child set: its
 * process must end with that exit code (0 or 1) and print nothing. */
int bench_allreduce_local(const struct bench_rank_options *opt,
                          struct bench_result *result,
                          bool *child);

/* One rank of opt->address[]; the figures are this rank's. */
int bench_allreduce_rank(const struct bench_rank_options *opt,
                         struct bench_result *result);

#endif
