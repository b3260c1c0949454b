/* allreduce.c - see bench/allreduce.h: processes and medians.
 *
 * The forked ranks and their parent share one mapping, the *board*: ports on
 * the way in, figures on the way out. A rank that dies is an error of the
 * whole run; the parent ends the others, which are its own children.
 */
#include "daemon/bench/allreduce.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/err.h"

#define NS 1e9

struct board {
    void *bytes; /* shared: places, then figures */
    size_t size, figures_at, stride;
};

static int board_open(struct board *b, uint32_t n, uint32_t rounds)
{
    b->stride =
        sizeof(struct bench_figures) + rounds * sizeof(struct bench_sample);
    b->stride = (b->stride + 63) / 64 * 64;
    b->figures_at = (n * sizeof(struct bench_place) + 63) / 64 * 64;
    b->size = b->figures_at + n * b->stride;
    b->bytes = mmap(NULL, b->size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return b->bytes == MAP_FAILED ? LOCO_ENOMEM : 0;
}

static void board_close(struct board *b)
{
    (void)munmap(b->bytes, b->size);
}

static struct bench_place *board_places(const struct board *b)
{
    return b->bytes;
}

static struct bench_figures *board_figures(const struct board *b, uint32_t k)
{
    uint8_t *at = (uint8_t *)b->bytes + b->figures_at + k * b->stride;

    return (struct bench_figures *)(void *)at;
}

/* ---- figures ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Sample i of all ranks as one: the last start, the last end. */
static struct bench_sample merge(const struct board *b, uint32_t n, uint32_t i)
{
    struct bench_sample all = {0};

    for (uint32_t k = 0; k < n; k++) {
        const struct bench_sample *s = &board_figures(b, k)->sample[i];

        all.start_ns = later(all.start_ns, s->start_ns);
        all.reduced_ns = later(all.reduced_ns, s->reduced_ns);
        all.committed_ns = later(all.committed_ns, s->committed_ns);
        all.cpu_ns += s->cpu_ns;
        all.hash_ns += s->hash_ns;
        all.bytes_sent += s->bytes_sent;
    }
    return all;
}

/* What the last rank's fault cost the others. */
static void merge_fault(const struct bench_rank_options *opt,
                        const struct board *b,
                        struct bench_result *r)
{
    struct bench_sample s = merge(b, opt->n - 1, opt->rounds - 1);
    uint64_t struck = atomic_load(&board_places(b)[opt->n - 1].struck_ns);

    r->fault_seconds = ((double)s.reduced_ns - (double)struck) / NS;
    r->fault_commit_seconds = ((double)s.committed_ns - (double)struck) / NS;
}

static int summarize(const struct bench_rank_options *opt,
                     const struct board *b,
                     uint32_t n,
                     struct bench_result *r)
{
    uint32_t rounds = opt->rounds - (opt->fault != BENCH_FAULT_NONE);
    double *seconds = calloc(2 * (size_t)rounds, sizeof *seconds);
    double *commit = seconds + rounds;

    if (seconds == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        struct bench_sample s = merge(b, n, i);

        seconds[i] = (double)(s.reduced_ns - s.start_ns) / NS;
        commit[i] = (double)(s.committed_ns - s.reduced_ns) / NS;
        r->bytes_sent += (double)s.bytes_sent / rounds;
        r->cpu_seconds += (double)s.cpu_ns / NS / rounds;
        r->hash_cpu_seconds += (double)s.hash_ns / NS / rounds;
    }
    if (opt->fault != BENCH_FAULT_NONE) {
        merge_fault(opt, b, r);
    }
    for (uint32_t k = 0; k < n; k++) {
        const struct bench_figures *f = board_figures(b, k);

        r->max_error =
            f->max_error > r->max_error ? f->max_error : r->max_error;
        r->max_rss_bytes = later(r->max_rss_bytes, f->max_rss_bytes);
        r->rounds_aborted = later(r->rounds_aborted, f->rounds_aborted);
    }
    r->seconds_median = median(seconds, rounds);
    r->seconds_min = seconds[0];
    r->commit_seconds_median = median(commit, rounds);
    r->elements_per_s = (double)opt->elements / r->seconds_median;
    r->bus_bytes_per_s = 2.0 * (opt->n - 1) / opt->n *
                         (double)opt->codec->bytes(opt->elements) /
                         r->seconds_median;
    free(seconds);
    return 0;
}

/* ---- processes -------------------------------------------------------- */

static void
take_error(const struct board *b, uint32_t rank, struct bench_result *result)
{
    const struct bench_figures *f = board_figures(b, rank);

    if (result->error[0] == '\0') {
        (void)snprintf(result->error, sizeof result->error, "%s",
                       f->error[0] != '\0' ? f->error : "a rank died");
    }
}

/* Until all are gone; the first that fails ends the others. `victim`: the last
 * one is meant to. */
static int wait_all(const struct board *b,
                    pid_t *pid,
                    uint32_t n,
                    bool victim,
                    struct bench_result *result)
{
    uint32_t left = n;
    int rv = 0, status;

    while (left > 0) {
        pid_t gone;

        if (victim && left == 1 && pid[n - 1] > 0) {
            (void)kill(pid[n - 1], SIGKILL); /* it may be stopped */
        }
        gone = wait(&status);

        for (uint32_t k = 0; k < n; k++) {
            if (gone == pid[k]) {
                pid[k] = 0;
                left--;
                if ((!WIFEXITED(status) || WEXITSTATUS(status) != 0) &&
                    !(victim && k + 1 == n)) {
                    rv = LOCO_EIO;
                    take_error(b, k, result);
                }
            }
        }
        for (uint32_t k = 0; k < n && rv != 0; k++) {
            if (pid[k] > 0) {
                (void)kill(pid[k], SIGKILL);
            }
        }
        if (gone < 0) {
            return LOCO_EIO;
        }
    }
    return rv;
}

static cpu_set_t may_run; /* where this process was allowed to */

static void roam(void)
{
    (void)sched_setaffinity(0, sizeof may_run, &may_run);
}

/* Cores for `n` ranks and their workers? */
static bool is_roomy(uint32_t n)
{
    return sched_getaffinity(0, sizeof may_run, &may_run) == 0 &&
           (uint32_t)CPU_COUNT(&may_run) > n;
}

/* Each rank on a core of its own while there are enough, as on machines of
 * their own: two processes that wake each other over loopback are otherwise
 * drawn to one core, and take turns where they should work side by side. */
static void settle_down(uint32_t rank)
{
    cpu_set_t may, one;
    unsigned at, n = 0;

    if (sched_getaffinity(0, sizeof may, &may) != 0) {
        return;
    }
    at = rank % (unsigned)CPU_COUNT(&may);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &may) && n++ == at) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

int bench_allreduce_local(const struct bench_rank_options *opt,
                          struct bench_result *result,
                          bool *child)
{
    struct bench_rank_options own = *opt;
    pid_t pid[BENCH_PEERS_MAX] = {0};
    struct board b;
    uint32_t n = 0;
    int rv = board_open(&b, opt->n, opt->rounds);

    *child = false;
    if (rv != 0) {
        return rv;
    }
    own.board = board_places(&b);
    own.overlap = own.overlap || is_roomy(opt->n);
    own.roam = own.overlap ? roam : NULL;
    for (; n < opt->n; n++) {
        pid[n] = fork();
        if (pid[n] == 0) {
            *child = true;
            own.rank = n;
            settle_down(n);
            return bench_rank(&own, board_figures(&b, n)) == 0 ? 0 : 1;
        }
        if (pid[n] < 0) {
            break;
        }
    }
    rv = wait_all(&b, pid, n, opt->fault != BENCH_FAULT_NONE, result);
    rv = rv == 0 && n < opt->n ? LOCO_ENOMEM : rv;
    rv = rv == 0 ? summarize(opt, &b, n, result) : rv;
    board_close(&b);
    return rv;
}

int bench_allreduce_rank(const struct bench_rank_options *opt,
                         struct bench_result *result)
{
    struct bench_rank_options own = *opt;
    struct board b;
    int rv = board_open(&b, 1, opt->rounds);

    if (rv != 0) {
        return rv;
    }
    own.overlap = own.overlap || is_roomy(1);
    rv = bench_rank(&own, board_figures(&b, 0));
    if (rv != 0) {
        take_error(&b, 0, result);
    } else {
        rv = summarize(opt, &b, 1, result);
    }
    board_close(&b);
    return rv;
}
