/* pool.c - see pool.h. */
#include "kernels/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/base/clock.h"
#include "proto/base/err.h"

/* How long who waits looks before it sleeps. Shares differ by about a
 * tenth of a millisecond, and to wake a thread costs as much on a virtual
 * machine, so a step of many short kernels would sleep in most of them. All but
 * the first looks give the processor to whoever else wants it. */
#define POOL_LOOK_US 300
#define POOL_PAUSES  200

struct helper {
    struct pool *pool;
    pthread_t thread;
    int worker;
    int cpu; /* -1: not pinned */
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* round grew or stop was set */
    pthread_cond_t done; /* busy reached 0 */
    atomic_uint round;   /* jobs handed out; written under lock */
    atomic_int busy;     /* helpers still inside the job */
    bool stop;           /* under lock */
    pool_job job;        /* published by round */
    void *arg;
    int cpu;           /* of worker 0; -1: not pinned */
    bool caller_known; /* worker 0 is pinned: who, and where it was before */
    pthread_t caller;
#ifdef __linux__
    cpu_set_t caller_set;
#endif
    int n_helpers;
    struct helper helpers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A processor that went away since affinity.h looked is no reason to stop. */
static void pin_self(int cpu)
{
#ifdef __linux__
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
#else
    (void)cpu;
#endif
}

/* The thread that calls pool_run() need not be the one that opened. */
static void pin_caller(struct pool *p)
{
    if (p->cpu < 0 ||
        (p->caller_known && pthread_equal(p->caller, pthread_self()))) {
        return;
    }
    p->caller_known = true;
    p->caller = pthread_self();
#ifdef __linux__
    CPU_ZERO(&p->caller_set);
    (void)sched_getaffinity(0, sizeof p->caller_set, &p->caller_set);
#endif
    pin_self(p->cpu);
}

static void unpin_caller(const struct pool *p)
{
#ifdef __linux__
    if (p->caller_known && pthread_equal(p->caller, pthread_self())) {
        (void)sched_setaffinity(0, sizeof p->caller_set, &p->caller_set);
    }
#else
    (void)p;
#endif
}

static bool has_round(struct pool *p, unsigned seen)
{
    return atomic_load(&p->round) != seen;
}

static bool is_idle(struct pool *p, unsigned unused)
{
    (void)unused;
    return atomic_load(&p->busy) == 0;
}

/* Whether what is waited for came while this thread looked. */
static bool
comes_soon(struct pool *p, bool (*came)(struct pool *, unsigned), unsigned seen)
{
    uint64_t until;

    for (int i = 0; i < POOL_PAUSES; i++) {
        if (came(p, seen)) {
            return true;
        }
        relax();
    }
    until = monotonic_us() + POOL_LOOK_US;
    while (monotonic_us() < until) {
        for (int i = 0; i < 20; i++) {
            if (came(p, seen)) {
                return true;
            }
            relax();
        }
        (void)sched_yield();
    }
    return false;
}

/* Wait until the round is not `seen`; false: stop. */
static bool wait_for_round(struct pool *p, unsigned seen)
{
    bool stop;

    if (comes_soon(p, has_round, seen)) {
        return true;
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->round) == seen && !p->stop) {
        pthread_cond_wait(&p->work, &p->lock);
    }
    stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return !stop;
}

static void *helper_main(void *arg)
{
    struct helper *h = arg;
    struct pool *p = h->pool;
    unsigned seen = 0;

    if (h->cpu >= 0) {
        pin_self(h->cpu);
    }
    while (wait_for_round(p, seen)) {
        seen++;
        p->job(p->arg, h->worker);
        if (atomic_fetch_sub(&p->busy, 1) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
    return NULL;
}

void pool_run(struct pool *p, pool_job job, void *arg)
{
    pin_caller(p);
    if (p->n_helpers == 0) {
        job(arg, 0);
        return;
    }
    p->job = job;
    p->arg = arg;
    atomic_store(&p->busy, p->n_helpers);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->round, 1);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    job(arg, 0);
    if (comes_soon(p, is_idle, 0)) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->busy) != 0) {
        pthread_cond_wait(&p->done, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

/* Helpers take no signals: those belong to the process's main thread. */
static int start_helper(struct helper *h)
{
    sigset_t all;
    sigset_t old;
    int rv;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rv = pthread_create(&h->thread, NULL, helper_main, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rv == 0 ? 0 : LOCO_ENOMEM;
}

int pool_open(struct pool **out, int threads, const int *cpu)
{
    size_t n = (size_t)threads - 1;
    struct pool *p = calloc(1, sizeof *p + n * sizeof p->helpers[0]);

    if (p == NULL) {
        return LOCO_ENOMEM;
    }
    p->cpu = cpu == NULL ? -1 : cpu[0];
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    for (size_t i = 0; i < n; i++) {
        struct helper *h = &p->helpers[i];

        h->pool = p;
        h->worker = (int)i + 1;
        h->cpu = cpu == NULL ? -1 : cpu[i + 1];
        if (start_helper(h) != 0) {
            pool_close(p);
            return LOCO_ENOMEM;
        }
        p->n_helpers++;
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_helpers; i++) {
        pthread_join(p->helpers[i].thread, NULL);
    }
    unpin_caller(p);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
