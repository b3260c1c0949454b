/* Hands out many jobs, so that helpers are met both spinning and asleep. */
#include "kernels/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

        assert_int_equal(pool_open(&p, workers), 0);
        for (int i = 1; i <= JOBS / workers; i++) {
            pool_run(p, count_call, &tally);
            for (int w = 0; w < WORKERS_MAX; w++) {
                assert_int_equal(tally.calls[w], w < workers ? i : 0);
            }
        }
        pool_close(p);
    }
}

static void closing_an_idle_pool_and_null_is_safe(void **state)
{
    struct pool *p;

    (void)state;
    pool_close(NULL);
    assert_int_equal(pool_open(&p, 3), 0);
    pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_every_job_once),
        cmocka_unit_test(closing_an_idle_pool_and_null_is_safe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
