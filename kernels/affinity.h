/* affinity.h - which processor each thread of a backend keeps to.
 *
 *   off    none: the kernel moves threads as it likes. The default: on a
 *          machine that others use too it knows better than we do.
 *   auto   thread i keeps to the i-th processor that this process may use, if
 *          there are as many as threads: then the process has them all. With
 *          fewer threads than processors nothing is pinned, so that two
 *          processes of one thread each never meet on one processor.
 *   LIST   0,2,4-7: thread i keeps to the i-th processor of the list. All
 *          must be in the set that this process may use (taskset, cpuset,
 *          container), at least one for each thread.
 *
 * Linux only; elsewhere auto pins nothing and a list is refused.
 */
#ifndef LOCO_KERNELS_AFFINITY_H
#define LOCO_KERNELS_AFFINITY_H

#include "kernels/backend.h"

struct affinity {
    int n; /* 0: off; else the backend's threads */
    int cpu[BACKEND_THREADS_MAX];
};

/* Read `text` for so many threads of the calling process. LOCO_EINVAL with
 * what is wrong in *reason (static text; may be NULL). */
int affinity_parse(struct affinity *a,
                   const char *text,
                   int threads,
                   const char **reason);

#endif
