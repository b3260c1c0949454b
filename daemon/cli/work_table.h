/* work_table.h - readings of audited work, by kind; what a threshold tells.
 *
 * A row is a kind of work (train/lab/work.h), in one round or in all of them.
 * A lie is *apart* by so many standard deviations: the distance of its mean
 * from the honest one, by the root of the sum of both variances. Honest means
 * what auditors of equal and of other kernels read. Verdicts are those of
 * repeat_judge() (p2p/round/repeat.h).
 */
#ifndef LOCO_DAEMON_CLI_WORK_TABLE_H
#define LOCO_DAEMON_CLI_WORK_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "train/lab/work.h"

/* Of one number. */
struct work_figure {
    double sum, squares, least, most;
};

enum work_column {
    WORK_COSINE,
    WORK_OWN,
    WORK_LENGTH,
    WORK_NEAR,
    WORK_SHARE,
    WORK_WITH_MOMENTS,
    WORK_EXACT_OWN,
    WORK_EXACT_LENGTH,
    WORK_BEST,
    WORK_BEST_OWN,
    WORK_LEAST_BLOCK,
    WORK_STEADY,
    WORK_AFTER,
    WORK_NEXT,
    WORK_NEXT_ONCE,
    WORK_COLUMNS
};

struct work_row {
    uint32_t n;
    uint32_t good, bad; /* by the rule of audits; the others are unclear */
    struct work_figure column[WORK_COLUMNS];
    struct work_figure sampled[WORK_SAMPLES], exact_sampled[WORK_SAMPLES];
};

struct work_table {
    const char *sync; /* and what else the heading says */
    uint64_t peers, period;
    size_t n_turns;
    uint64_t turns[WORK_TURNS_MAX];
    struct work_row row[WORK_TURNS_MAX + 1][WORK_KINDS]; /* last: of all */
};

void work_table_add(struct work_table *t, const struct work_reading *r);

double work_mean(const struct work_row *row, enum work_column c);
double work_spread(const struct work_row *row, enum work_column c);

/* NAN where a row is missing. */
double
work_apart(const struct work_table *t, int kind, enum work_column column);

void work_table_print(const struct work_table *t);
struct json_t *work_table_json(const struct work_table *t);

#endif
