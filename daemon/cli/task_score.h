/* task_score.h - how many questions a model answers rightly, counted as
 * EleutherAI's lm-evaluation-harness counts them in multiple choice, from
 * 0.4.10 on.
 *
 * acc: the choice of the largest log-likelihood is the right one. acc_norm: the
 * same after each is divided by the characters (code points, not bytes) of its
 * choice, the delimiter not counted. Of equal ones the first is picked. The
 * standard error is the sample's deviation (n - 1) over the root of n; one
 * question has none.
 */
#ifndef LOCO_DAEMON_CLI_TASK_SCORE_H
#define LOCO_DAEMON_CLI_TASK_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct task_score {
    uint64_t questions;
    uint64_t right;
    uint64_t right_norm;
};

/* One question: n >= 1 choices. */
struct task_answers {
    uint32_t n;
    uint32_t answer;               /* the right one */
    const double *log_likelihoods; /* (n) */
    const size_t *characters;      /* (n), none 0 */
    uint32_t picked, picked_norm;  /* = */
};

void task_score_add(struct task_score *s, struct task_answers *a);

/* NAN for fewer than two questions. */
double task_score_stderr(uint64_t right, uint64_t questions);

/* A sentence, or one JSON object, to stdout; at least one question. An exit
 * code. */
int task_score_print(const struct task_score *s, bool json);

#endif
