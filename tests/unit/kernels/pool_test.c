/* Hands out many jobs, so that who waits is met both looking and asleep. */
#include "kernels/pool.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/affinity.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define WORKERS_MAX 8
#define JOBS        2000

struct tally {
    int calls[WORKERS_MAX];
};

static void count_call(void *arg, int worker)
{
    struct tally *t = arg;

    t->calls[worker]++;
}

static void every_worker_runs_every_job_once(void **state)
{
    (void)state;
    for (int workers = 1; workers <= WORKERS_MAX; workers++) {
        struct tally tally = {0};
        struct pool *p;

        assert_int_equal(pool_open(&p, workers, NULL), 0);
        for (int i = 1; i <= JOBS / workers; i++) {
            pool_run(p, count_call, &tally);
            for (int w = 0; w < WORKERS_MAX; w++) {
                assert_int_equal(tally.calls[w], w < workers ? i : 0);
            }
        }
        pool_close(p);
    }
}

struct slow {
    struct tally tally;
    int worker; /* that takes its time, or the caller between two jobs */
};

/* Far longer than who waits looks (POOL_LOOK_US). */
static void take_a_while(void)
{
    uint64_t until = monotonic_us() + 3000;

    while (monotonic_us() < until) {
    }
}

static void count_slowly(void *arg, int worker)
{
    struct slow *s = arg;

    if (worker == s->worker) {
        take_a_while();
    }
    count_call(&s->tally, worker);
}

static void who_sleeps_is_woken(void **state)
{
    enum { WORKERS = 3, TURNS = 40 };
    struct slow s = {{{0}}, 0};
    struct pool *p;

    (void)state;
    assert_int_equal(pool_open(&p, WORKERS, NULL), 0);
    for (int i = 1; i <= TURNS; i++) {
        s.worker = i % (WORKERS + 1); /* the last one: nobody */
        if (s.worker == WORKERS) {
            take_a_while(); /* all helpers sleep */
        }
        pool_run(p, count_slowly, &s);
        for (int w = 0; w < WORKERS; w++) {
            assert_int_equal(s.tally.calls[w], i);
        }
    }
    pool_close(p);
}

static void closing_an_idle_pool_and_null_is_safe(void **state)
{
    struct pool *p;

    (void)state;
    pool_close(NULL);
    assert_int_equal(pool_open(&p, 3, NULL), 0);
    pool_close(p);
}

/* Where each worker may run. */
struct places {
    int cpus[WORKERS_MAX]; /* how many */
    int last[WORKERS_MAX]; /* the highest of them */
};

static int places_of_self(int *last)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        *last = CPU_ISSET(i, &set) ? i : *last;
    }
    return CPU_COUNT(&set);
}

static void note_places(void *arg, int worker)
{
    struct places *p = arg;

    p->cpus[worker] = places_of_self(&p->last[worker]);
}

static void pinned_workers_keep_to_their_processor(void **state)
{
    int last = 0;
    int all = places_of_self(&last);
    int workers = all < 2 ? 1 : 2;

    (void)state;
    for (int threads = 1; threads <= workers; threads++) {
        struct places places;
        struct affinity a;
        struct backend be;
        char list[32];

        /* auto: everything there is, or nobody */
        assert_int_equal(affinity_parse(&a, "auto", threads, NULL), 0);
        assert_int_equal(a.n, threads == all ? threads : 0);
        assert_int_equal(affinity_parse(&a, "auto", all, NULL), 0);
        assert_int_equal(a.n, all);
        snprintf(list, sizeof list, "%d,%d", last, a.cpu[0]);
        assert_int_equal(affinity_parse(&a, list, threads, NULL), 0);
        assert_int_equal(backend_cpu(&be, threads), 0);
        assert_int_equal(backend_set_affinity(&be, &a), 0);
        memset(&places, 0, sizeof places);
        pool_run(be.pool, note_places, &places);
        for (int w = 0; w < threads; w++) {
            assert_int_equal(places.cpus[w], 1);
            assert_int_equal(places.last[w], a.cpu[w]);
        }
        backend_close(&be);
        assert_int_equal(places_of_self(&last), all); /* given back */
    }
}

static void nobody_is_pinned_unless_asked(void **state)
{
    int last = 0;
    int all = places_of_self(&last);
    struct places places = {{0}, {0}};
    struct affinity a;
    struct backend be;

    (void)state;
    assert_int_equal(backend_cpu(&be, 2), 0);
    pool_run(be.pool, note_places, &places);
    assert_int_equal(places.cpus[0], all);
    assert_int_equal(places.cpus[1], all);
    assert_int_equal(affinity_parse(&a, "off", 2, NULL), 0);
    assert_int_equal(a.n, 0);
    assert_int_equal(backend_set_affinity(&be, &a), 0);
    pool_run(be.pool, note_places, &places);
    assert_int_equal(places.cpus[1], all);
    backend_close(&be);
}

static void bad_lists_of_processors_are_refused(void **state)
{
    static const char *const bad[] = {"",   "on",    "1-",         "-1",
                                      "0,", "0;1",   "1-0",        "0x1",
                                      "a",  "99999", "4294967296", "0 "};
    struct affinity a;
    struct backend be;
    const char *reason;
    char list[32];
    int last = 0;

    (void)state;
    (void)places_of_self(&last);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        reason = NULL;
        assert_int_equal(affinity_parse(&a, bad[i], 1, &reason), LOCO_EINVAL);
        assert_non_null(reason);
        assert_int_equal(a.n, 0);
    }
    snprintf(list, sizeof list, "%d", last);
    assert_int_equal(affinity_parse(&a, list, 2, &reason), LOCO_EINVAL);
    assert_non_null(strstr(reason, "fewer processors"));
    snprintf(list, sizeof list, "%d", CPU_SETSIZE - 1); /* not ours */
    if (last < CPU_SETSIZE - 1) {
        assert_int_equal(affinity_parse(&a, list, 1, &reason), LOCO_EINVAL);
        assert_non_null(strstr(reason, "may not use"));
    }
    a.n = 3;
    assert_int_equal(backend_cpu(&be, 2), 0);
    assert_int_equal(backend_set_affinity(&be, &a), LOCO_EINVAL);
    backend_close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_every_job_once),
        cmocka_unit_test(pinned_workers_keep_to_their_processor),
        cmocka_unit_test(nobody_is_pinned_unless_asked),
        cmocka_unit_test(bad_lists_of_processors_are_refused),
        cmocka_unit_test(who_sleeps_is_woken),
        cmocka_unit_test(closing_an_idle_pool_and_null_is_safe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
