/* pool.h - a few threads that do one job together and meet at its end.
 *
 * pool_run() calls the job once on every worker, the caller being worker 0,
 * and returns when all are done. Handing out a job costs some microseconds:
 * who waits looks for a while before it sleeps, and lets others have the
 * processor between two looks.
 *
 * Threads: one thread at a time may call pool_run(). Where workers are pinned,
 * worker 0 is the thread that calls pool_run(), from its first job until
 * pool_close() on the same thread gives it its processors back.
 */
#ifndef LOCO_KERNELS_POOL_H
#define LOCO_KERNELS_POOL_H

typedef void (*pool_job)(void *arg, int worker);

struct pool;

/* Start threads - 1 helpers; LOCO_ENOMEM when one cannot start. Worker i keeps
 * to processor cpu[i], see affinity.h; cpu NULL: nobody is pinned. */
int pool_open(struct pool **out, int threads, const int *cpu);

/* NULL is allowed. */
void pool_close(struct pool *p);

void pool_run(struct pool *p, pool_job job, void *arg);

#endif
