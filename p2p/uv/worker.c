/* worker.c - see worker.h. */
#include "p2p/uv/worker.h"

#include <assert.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/err.h"

static void queue_push(struct worker_queue *q, struct worker_job *job)
{
    job->next = NULL;
    if (q->tail != NULL) {
        q->tail->next = job;
    } else {
        q->head = job;
    }
    q->tail = job;
}

static struct worker_job *queue_pop(struct worker_queue *q)
{
    struct worker_job *job = q->head;

    if (job != NULL) {
        q->head = job->next;
        if (q->head == NULL) {
            q->tail = NULL;
        }
    }
    return job;
}

void worker_be_nice(int nice)
{
    id_t self = (id_t)syscall(SYS_gettid);

    if (nice > 0 && nice > getpriority(PRIO_PROCESS, self)) {
        (void)setpriority(PRIO_PROCESS, self, nice);
    }
}

static void worker_main(void *arg)
{
    struct worker_pool *pool = arg;
    struct worker_job *job;

    worker_be_nice(pool->nice);
    uv_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->todo.head == NULL && !pool->closing) {
            uv_cond_wait(&pool->wake, &pool->mutex);
        }
        job = queue_pop(&pool->todo);
        if (job == NULL) {
            break;
        }
        if (pool->closing) {
            job->status = UV_ECANCELED;
        } else {
            uv_mutex_unlock(&pool->mutex);
            job->run(job);
            uv_mutex_lock(&pool->mutex);
        }
        queue_push(&pool->finished, job);
        uv_async_send(&pool->async);
    }
    pool->n_exited++;
    if (pool->open) {
        uv_async_send(&pool->async);
    }
    uv_mutex_unlock(&pool->mutex);
}

static void on_closed(uv_handle_t *handle)
{
    struct worker_pool *pool = handle->data;

    uv_cond_destroy(&pool->wake);
    uv_mutex_destroy(&pool->mutex);
    if (pool->close_cb != NULL) {
        pool->close_cb(pool); /* May free `pool`. */
    }
}

static void join_all(struct worker_pool *pool)
{
    for (unsigned i = 0; i < pool->n_threads; i++) {
        int rv = uv_thread_join(&pool->threads[i]);

        assert(rv == 0);
        (void)rv;
    }
}

static void on_async(uv_async_t *async)
{
    struct worker_pool *pool = async->data;
    struct worker_queue finished;
    struct worker_job *job;
    bool over;

    uv_mutex_lock(&pool->mutex);
    finished = pool->finished;
    pool->finished = (struct worker_queue){NULL, NULL};
    over = pool->closing && pool->n_exited == pool->n_threads;
    uv_mutex_unlock(&pool->mutex);
    while ((job = queue_pop(&finished)) != NULL) {
        job->done(job, job->status); /* may free the job */
    }
    if (over && !pool->joined) {
        pool->joined = true;
        join_all(pool); /* They have left their loops: no waiting. */
        uv_close((uv_handle_t *)&pool->async, on_closed);
    }
}

static int start_threads(struct worker_pool *pool, unsigned n_threads)
{
    int rv = 0;

    for (unsigned i = 0; i < n_threads && rv == 0; i++) {
        rv = uv_thread_create(&pool->threads[i], worker_main, pool);
        if (rv == 0) {
            pool->n_threads++;
        }
    }
    return rv;
}

static void stop_threads(struct worker_pool *pool)
{
    uv_mutex_lock(&pool->mutex);
    pool->closing = true;
    uv_cond_broadcast(&pool->wake);
    uv_mutex_unlock(&pool->mutex);
}

int worker_open(struct worker_pool *pool,
                uv_loop_t *loop,
                unsigned n_threads,
                int nice)
{
    int rv;

    assert(n_threads > 0 && n_threads <= WORKER_THREADS_MAX);
    *pool = (struct worker_pool){.data = pool->data, .nice = nice};
    rv = uv_mutex_init(&pool->mutex);
    if (rv != 0) {
        return rv;
    }
    rv = uv_cond_init(&pool->wake);
    if (rv != 0) {
        goto err_after_mutex;
    }
    /* One thread is enough to work with; the system may refuse more. */
    rv = start_threads(pool, n_threads);
    if (pool->n_threads == 0) {
        goto err_after_cond;
    }
    rv = uv_async_init(loop, &pool->async, on_async);
    if (rv != 0) {
        goto err_after_threads;
    }
    pool->async.data = pool;
    uv_mutex_lock(&pool->mutex);
    pool->open = true;
    uv_mutex_unlock(&pool->mutex);
    return 0;

err_after_threads:
    stop_threads(pool);
    join_all(pool);
err_after_cond:
    uv_cond_destroy(&pool->wake);
err_after_mutex:
    uv_mutex_destroy(&pool->mutex);
    return rv;
}

int worker_submit(struct worker_pool *pool,
                  struct worker_job *job,
                  worker_run_cb run,
                  worker_done_cb done)
{
    int rv = 0;

    job->run = run;
    job->done = done;
    job->status = 0;
    uv_mutex_lock(&pool->mutex);
    if (pool->closing) {
        rv = LOCO_ECLOSED;
    } else {
        queue_push(&pool->todo, job);
        uv_cond_signal(&pool->wake);
    }
    uv_mutex_unlock(&pool->mutex);
    return rv;
}

void worker_close(struct worker_pool *pool, worker_close_cb cb)
{
    if (pool->closing) {
        return;
    }
    pool->close_cb = cb;
    stop_threads(pool);
}
