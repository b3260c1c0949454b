/* answer.h - what a job (p2p/local.h) is answered with.
 *
 * A report repeats what its job is about: a round, a buffer, an attempt. What
 * the work found out, its owner adds. Pure.
 */
#ifndef LOCO_DAEMON_JOBS_ANSWER_H
#define LOCO_DAEMON_JOBS_ANSWER_H

#include "p2p/local.h"

/* The report that ends the job, with a code; of type LOCAL_TYPE_COUNT where a
 * job has none (enum job_type says which). */
struct local_event job_answer(const struct job *job, int rc);

#endif
