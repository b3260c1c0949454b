/* task_score.c - see task_score.h. */
#include "daemon/cli/task_score.h"

#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "proto/base/err.h"

void task_score_add(struct task_score *s, struct task_answers *a)
{
    const double *ll = a->log_likelihoods;

    a->picked = 0;
    a->picked_norm = 0;
    for (uint32_t i = 1; i < a->n; i++) {
        double best =
            ll[a->picked_norm] / (double)a->characters[a->picked_norm];

        if (ll[i] > ll[a->picked]) {
            a->picked = i;
        }
        if (ll[i] / (double)a->characters[i] > best) {
            a->picked_norm = i;
        }
    }
    s->questions++;
    s->right += a->picked == a->answer;
    s->right_norm += a->picked_norm == a->answer;
}

/* Figures of 0 and 1: their squared distances from the mean p add up to
 * n p (1 - p). */
double task_score_stderr(uint64_t right, uint64_t questions)
{
    double n = (double)questions;
    double p = (double)right / n;

    return questions < 2 ? NAN : sqrt(p * (1 - p) / (n - 1));
}

/* One question has no standard error. */
static json_t *stderr_json(uint64_t right, uint64_t questions)
{
    return questions < 2 ? json_null()
                         : json_real(task_score_stderr(right, questions));
}

int task_score_print(const struct task_score *s, bool json)
{
    double n = (double)s->questions;
    double acc = (double)s->right / n, norm = (double)s->right_norm / n;
    json_t *o;

    if (!json) {
        (void)printf("acc %.4f (stderr %.4f), acc_norm %.4f (stderr %.4f) over "
                     "%llu questions\n",
                     acc, task_score_stderr(s->right, s->questions), norm,
                     task_score_stderr(s->right_norm, s->questions),
                     (unsigned long long)s->questions);
        return LOCO_EXIT_OK;
    }
    o = json_pack("{s:I, s:f, s:o, s:f, s:o}", "questions",
                  (json_int_t)s->questions, "acc", acc, "acc_stderr",
                  stderr_json(s->right, s->questions), "acc_norm", norm,
                  "acc_norm_stderr", stderr_json(s->right_norm, s->questions));
    return cli_print_json(o, JSON_REAL_PRECISION(15));
}
