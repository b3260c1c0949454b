/* worker.h - a few threads for work that would hold up the loop.
 *
 * A *worker pool* runs *jobs* (hashing, file writing) in the order they were
 * submitted, on its own threads: libuv's global pool of four is left to name
 * resolution. `run` is called on a worker, then `done` on the loop thread.
 *
 * A job is a struct of the caller with a worker_job inside, borrowed until
 * `done`, which fires exactly once for every accepted job: status 0, or
 * UV_ECANCELED when the pool was closed before the job began. A job that runs
 * is never interrupted; close waits for it without blocking the loop.
 *
 * The pool belongs to the caller, must not move, and may be freed from the
 * close callback on. Loop thread only, apart from `run`.
 */
#ifndef LOCO_P2P_UV_WORKER_H
#define LOCO_P2P_UV_WORKER_H

#include <stdbool.h>

#include <uv.h>

#define WORKER_THREADS_MAX 16

struct worker_pool;
struct worker_job;
typedef void (*worker_run_cb)(struct worker_job *job);
typedef void (*worker_done_cb)(struct worker_job *job, int status);
typedef void (*worker_close_cb)(struct worker_pool *pool);

struct worker_job {
    void *data; /* caller's */
    /* private */
    struct worker_job *next;
    worker_run_cb run;
    worker_done_cb done;
    int status;
};

struct worker_queue {
    struct worker_job *head, *tail;
};

struct worker_pool {
    void *data; /* caller's */
    /* private */
    int nice;
    uv_async_t async;
    uv_thread_t threads[WORKER_THREADS_MAX];
    unsigned n_threads;
    uv_mutex_t mutex; /* guards the next five */
    uv_cond_t wake;
    struct worker_queue todo, finished;
    bool open; /* the async handle exists */
    bool closing;
    unsigned n_exited;
    bool joined;
    worker_close_cb close_cb;
};

/* The calling thread is at least so nice from now on; 0: it stays as it is. */
void worker_be_nice(int nice);

/* After 0, worker_close() is mandatory; on failure nothing is left running.
 * nice: of its threads at least; 0: as the process. */
int worker_open(struct worker_pool *pool,
                uv_loop_t *loop,
                unsigned n_threads,
                int nice);

/* LOCO_ECLOSED after worker_close(); `done` then never fires. */
int worker_submit(struct worker_pool *pool,
                  struct worker_job *job,
                  worker_run_cb run,
                  worker_done_cb done);

/* Idempotent. */
void worker_close(struct worker_pool *pool, worker_close_cb cb);

#endif
