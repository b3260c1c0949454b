/* threads_test.c - mailbox and worker pool: nothing is lost or done twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "p2p/uv/mailbox.h"
#include "p2p/uv/worker.h"
#include "proto/base/err.h"

#define N_THREADS 4
#define N_ITEMS   2000

struct parcel {
    struct mailbox_item item; /* first, so that it can be cast back */
    unsigned thread, number;
};

struct box {
    struct mailbox mailbox;
    struct parcel parcels[N_THREADS][N_ITEMS];
    unsigned next[N_THREADS]; /* number due from each thread */
    unsigned n_taken, n_cancelled;
    bool closed;
};

static void
on_take(struct mailbox *m, struct mailbox_item *item, bool cancelled)
{
    struct box *b = m->data;
    struct parcel *p = (struct parcel *)(void *)item;

    assert_int_equal(p->number, b->next[p->thread]++);
    b->n_taken++;
    b->n_cancelled += cancelled;
}

static void on_box_closed(struct mailbox *m)
{
    ((struct box *)m->data)->closed = true;
}

static struct box box; /* too large for a stack */

static void box_open(uv_loop_t *loop, uint32_t n_max)
{
    memset(&box, 0, sizeof box);
    uv_loop_init(loop);
    box.mailbox.data = &box;
    assert_int_equal(mailbox_open(&box.mailbox, loop, n_max, on_take), 0);
    for (unsigned t = 0; t < N_THREADS; t++) {
        for (unsigned i = 0; i < N_ITEMS; i++) {
            box.parcels[t][i].thread = t;
            box.parcels[t][i].number = i;
        }
    }
}

static void post_all(void *arg)
{
    unsigned t = *(const unsigned *)arg;

    for (unsigned i = 0; i < N_ITEMS; i++) {
        while (mailbox_post(&box.mailbox, &box.parcels[t][i].item) ==
               LOCO_EFULL) {
        }
    }
}

static void every_item_of_every_thread_arrives_in_order(void **state)
{
    unsigned numbers[N_THREADS];
    uv_thread_t threads[N_THREADS];
    uv_loop_t loop;

    (void)state;
    box_open(&loop, 100);
    for (unsigned t = 0; t < N_THREADS; t++) {
        numbers[t] = t;
        assert_int_equal(uv_thread_create(&threads[t], post_all, &numbers[t]),
                         0);
    }
    while (box.n_taken < N_THREADS * N_ITEMS) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    for (unsigned t = 0; t < N_THREADS; t++) {
        uv_thread_join(&threads[t]);
    }
    mailbox_close(&box.mailbox, on_box_closed);
    mailbox_close(&box.mailbox, NULL); /* idempotent */
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(box.closed);
    assert_int_equal(box.n_taken, N_THREADS * N_ITEMS);
    assert_int_equal(box.n_cancelled, 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_closing_mailbox_gives_back_what_it_held(void **state)
{
    uv_loop_t loop;

    (void)state;
    box_open(&loop, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(mailbox_post(&box.mailbox, &box.parcels[0][i].item),
                         0);
    }
    assert_int_equal(mailbox_post(&box.mailbox, &box.parcels[0][3].item),
                     LOCO_EFULL);
    mailbox_close(&box.mailbox, on_box_closed);
    assert_int_equal(mailbox_post(&box.mailbox, &box.parcels[0][3].item),
                     LOCO_ECLOSED);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(box.closed);
    assert_int_equal(box.n_taken, 3);
    assert_int_equal(box.n_cancelled, 3);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- workers ---------------------------------------------------------- */

struct work {
    struct worker_job job;
    uv_thread_t ran_on;
    int n_run, n_done, status, nice;
    uv_sem_t *started, *go_on; /* NULL: does not wait */
};

static void on_run(struct worker_job *job)
{
    struct work *w = job->data;

    w->nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    w->ran_on = uv_thread_self();
    w->n_run++;
    if (w->started != NULL) {
        uv_sem_post(w->started);
        uv_sem_wait(w->go_on);
    }
}

static void on_done(struct worker_job *job, int status)
{
    struct work *w = job->data;

    w->n_done++;
    w->status = status;
}

static void on_pool_closed(struct worker_pool *pool)
{
    *(bool *)pool->data = true;
}

static void submit(struct worker_pool *pool, struct work *w)
{
    w->job.data = w;
    assert_int_equal(worker_submit(pool, &w->job, on_run, on_done), 0);
}

static void jobs_run_elsewhere_and_end_here(void **state)
{
    static struct work works[500];
    uv_thread_t self = uv_thread_self();
    struct worker_pool pool;
    bool closed = false;
    uv_loop_t loop;
    int n_done;

    (void)state;
    memset(works, 0, sizeof works);
    uv_loop_init(&loop);
    pool.data = &closed;
    assert_int_equal(worker_open(&pool, &loop, 3, 0), 0);
    for (int i = 0; i < 500; i++) {
        submit(&pool, &works[i]);
    }
    do {
        uv_run(&loop, UV_RUN_ONCE);
        n_done = 0;
        for (int i = 0; i < 500; i++) {
            n_done += works[i].n_done;
        }
    } while (n_done < 500);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(works[i].n_run, 1);
        assert_int_equal(works[i].n_done, 1);
        assert_int_equal(works[i].status, 0);
        assert_false(uv_thread_equal(&works[i].ran_on, &self));
    }
    worker_close(&pool, on_pool_closed);
    worker_close(&pool, NULL); /* idempotent */
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(closed);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void its_threads_are_as_nice_as_asked_or_as_they_were(void **state)
{
    const int own = getpriority(PRIO_PROCESS, 0);

    (void)state;
    for (int nice = 0; nice < 20; nice += 4) {
        struct worker_pool pool;
        struct work work = {0};
        bool closed = false;
        uv_loop_t loop;

        uv_loop_init(&loop);
        pool.data = &closed;
        assert_int_equal(worker_open(&pool, &loop, 1, nice), 0);
        submit(&pool, &work);
        while (work.n_done == 0) {
            uv_run(&loop, UV_RUN_ONCE);
        }
        assert_int_equal(work.nice, nice > 0 && nice > own ? nice : own);
        worker_close(&pool, on_pool_closed);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_true(closed);
        assert_int_equal(uv_loop_close(&loop), 0);
    }
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
}

static void close_lets_the_running_job_end_and_cancels_the_others(void **state)
{
    struct work first = {0}, others[10] = {0}, late = {0};
    struct worker_pool pool;
    uv_sem_t started, go_on;
    bool closed = false;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    uv_sem_init(&started, 0);
    uv_sem_init(&go_on, 0);
    pool.data = &closed;
    assert_int_equal(worker_open(&pool, &loop, 1, 0), 0);
    first.started = &started;
    first.go_on = &go_on;
    submit(&pool, &first);
    for (int i = 0; i < 10; i++) {
        submit(&pool, &others[i]);
    }
    uv_sem_wait(&started);
    worker_close(&pool, on_pool_closed);
    assert_int_equal(worker_submit(&pool, &late.job, on_run, on_done),
                     LOCO_ECLOSED);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_false(closed); /* the loop is not held up, the pool not gone */
    assert_int_equal(first.n_done, 0);
    uv_sem_post(&go_on);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(closed);
    assert_int_equal(first.n_done, 1);
    assert_int_equal(first.status, 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(others[i].n_run, 0);
        assert_int_equal(others[i].n_done, 1);
        assert_int_equal(others[i].status, UV_ECANCELED);
    }
    assert_int_equal(late.n_done, 0);
    uv_sem_destroy(&started);
    uv_sem_destroy(&go_on);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_of_every_thread_arrives_in_order),
        cmocka_unit_test(a_closing_mailbox_gives_back_what_it_held),
        cmocka_unit_test(jobs_run_elsewhere_and_end_here),
        cmocka_unit_test(its_threads_are_as_nice_as_asked_or_as_they_were),
        cmocka_unit_test(close_lets_the_running_job_end_and_cancels_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
