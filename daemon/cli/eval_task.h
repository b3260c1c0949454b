/* eval_task.h - loco eval --task: which of several answers a model finds
 * likeliest.
 *
 * A file of questions (train/data/question.h), one a line, is read some
 * questions at a time, so that memory does not grow with it; each choice is
 * one sequence (train/data/continuation.h), and sequences of about one length
 * pass through the model together. Scores are those of lm-evaluation-harness
 * (task_score.h).
 */
#ifndef LOCO_DAEMON_CLI_EVAL_TASK_H
#define LOCO_DAEMON_CLI_EVAL_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "train/data/tokenizer.h"

#define EVAL_TASK_PREFIX_OF_MODEL UINT64_MAX

struct eval_task {
    const char *path;
    const char *delimiter; /* between context and choice */
    const char *samples;   /* a file to write, or NULL */
    uint64_t prefix;       /* a token, or EVAL_TASK_PREFIX_OF_MODEL */
    int threads;
    bool json;
};

/* An exit code; what fails has been said. */
int eval_task(const struct model *m,
              const struct tokenizer *t,
              const struct eval_task *task);

#endif
