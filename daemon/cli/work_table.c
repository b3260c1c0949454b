/* work_table.c - see work_table.h. */
#include "daemon/cli/work_table.h"

#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "p2p/round/repeat.h"

static const char *const columns[WORK_COLUMNS] = {
    "cosine", "own",       "length",       "near", "share",
    "exact",  "exact_own", "exact_length", "best", "best_own",
    "block",  "steady",    "after",        "next", "next_once"};

/* ---- numbers ------------------------------------------------------------ */

static void figure_add(struct work_figure *f, double x, uint32_t n)
{
    f->least = n == 0 || x < f->least ? x : f->least;
    f->most = n == 0 || x > f->most ? x : f->most;
    f->sum += x;
    f->squares += x * x;
}

/* `next` is shown, and no part of it until it was measured: what is shown is of
 * the worst of all blocks, and an auditor reads a few. */
static enum repeat_verdict judge(const struct work_reading *r)
{
    const struct repeat_reading m = {.cosine = r->exact,
                                     .own = r->exact_own,
                                     .length = r->exact_length,
                                     .best = r->best,
                                     .best_own = r->best_own,
                                     .has_steady = true,
                                     .steady = r->steady,
                                     .has_after = r->kind == WORK_ROUGH,
                                     .after = r->after};

    return r->kind == WORK_SELF ? REPEAT_UNCLEAR : repeat_judge(&m);
}

static void row_add(struct work_row *row,
                    const struct work_reading *r,
                    enum repeat_verdict verdict)
{
    figure_add(&row->column[WORK_COSINE], r->cosine, row->n);
    figure_add(&row->column[WORK_OWN], r->own, row->n);
    figure_add(&row->column[WORK_LENGTH], r->length, row->n);
    figure_add(&row->column[WORK_NEAR], r->near, row->n);
    figure_add(&row->column[WORK_SHARE], r->share, row->n);
    figure_add(&row->column[WORK_EXACT_OWN], r->exact_own, row->n);
    figure_add(&row->column[WORK_BEST], r->best, row->n);
    figure_add(&row->column[WORK_BEST_OWN], r->best_own, row->n);
    figure_add(&row->column[WORK_EXACT_LENGTH], r->exact_length, row->n);
    figure_add(&row->column[WORK_LEAST_BLOCK], r->block, row->n);
    figure_add(&row->column[WORK_STEADY], r->steady, row->n);
    figure_add(&row->column[WORK_AFTER], r->after, row->n);
    figure_add(&row->column[WORK_NEXT], r->next, row->n);
    figure_add(&row->column[WORK_NEXT_ONCE], r->next_once, row->n);
    figure_add(&row->column[WORK_WITH_MOMENTS], r->exact, row->n);
    row->good += verdict == REPEAT_GOOD;
    row->bad += verdict == REPEAT_BAD;
    for (int i = 0; i < WORK_SAMPLES; i++) {
        figure_add(&row->sampled[i], r->sampled[i], row->n);
        figure_add(&row->exact_sampled[i], r->exact_sampled[i], row->n);
    }
    row->n++;
}

void work_table_add(struct work_table *t, const struct work_reading *r)
{
    enum repeat_verdict verdict = judge(r);

    for (size_t i = 0; i < t->n_turns; i++) {
        if (t->turns[i] == r->turn) {
            row_add(&t->row[i][r->kind], r, verdict);
        }
    }
    row_add(&t->row[WORK_TURNS_MAX][r->kind], r, verdict);
}

static double mean_of(const struct work_figure *f, uint32_t n)
{
    return n > 0 ? f->sum / n : NAN;
}

static double variance(const struct work_figure *f, uint32_t n)
{
    double mean = mean_of(f, n);

    return n > 0 ? fmax(f->squares / n - mean * mean, 0) : NAN;
}

double work_mean(const struct work_row *row, enum work_column c)
{
    return mean_of(&row->column[c], row->n);
}

double work_spread(const struct work_row *row, enum work_column c)
{
    return sqrt(variance(&row->column[c], row->n));
}

static bool is_honest(int kind)
{
    return kind == WORK_REPEAT || kind == WORK_KERNELS;
}

/* All honest readings of one column together. */
static struct work_figure
honest(const struct work_table *t, enum work_column c, uint32_t *n)
{
    struct work_figure all = {.least = INFINITY, .most = -INFINITY};

    *n = 0;
    for (int kind = 0; kind < WORK_LIES; kind++) {
        const struct work_row *row = &t->row[WORK_TURNS_MAX][kind];

        if (is_honest(kind) && row->n > 0) {
            *n += row->n;
            all.sum += row->column[c].sum;
            all.squares += row->column[c].squares;
            all.least = fmin(all.least, row->column[c].least);
            all.most = fmax(all.most, row->column[c].most);
        }
    }
    return all;
}

double work_apart(const struct work_table *t, int kind, enum work_column column)
{
    const struct work_row *row = &t->row[WORK_TURNS_MAX][kind];
    const struct work_figure *lie = &row->column[column];
    uint32_t n;
    struct work_figure all = honest(t, column, &n);
    double spread = sqrt(variance(&all, n) + variance(lie, row->n));

    return (mean_of(&all, n) - mean_of(lie, row->n)) / fmax(spread, 1e-9);
}

/* ---- for people --------------------------------------------------------- */

static void print_row(const struct work_row *row, int kind)
{
    (void)printf("  %-9s %3u %4u %4u", work_kind_name(kind), row->n, row->good,
                 row->bad);
    for (int c = 0; c < WORK_COLUMNS; c++) {
        (void)printf(" %7.3g +-%6.3f", work_mean(row, (enum work_column)c),
                     work_spread(row, (enum work_column)c));
    }
}

static void print_turn(const struct work_table *t, size_t turn)
{
    if (turn < WORK_TURNS_MAX) {
        (void)printf("round %llu\n", (unsigned long long)t->turns[turn]);
    } else {
        (void)printf("all rounds; the last two: standard deviations apart\n");
    }
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        const struct work_row *row = &t->row[turn][kind];

        if (row->n == 0) {
            continue;
        }
        print_row(row, kind);
        if (turn == WORK_TURNS_MAX && kind >= WORK_LIES) {
            (void)printf("  %6.1f %6.1f", work_apart(t, kind, WORK_SHARE),
                         work_apart(t, kind, WORK_EXACT_OWN));
        }
        (void)printf("\n");
    }
}

static void print_samples(const struct work_table *t)
{
    const struct work_row *row = &t->row[WORK_TURNS_MAX][WORK_REPEAT];

    (void)printf("samples of repeat:");
    for (int i = 0; i < WORK_SAMPLES; i++) {
        (void)printf(" %u blocks +- %.4f, with moments +- %.4f;",
                     work_sample_blocks(i), mean_of(&row->sampled[i], row->n),
                     mean_of(&row->exact_sampled[i], row->n));
    }
    (void)printf("\n");
}

void work_table_print(const struct work_table *t)
{
    (void)printf("%s, %llu peers, %llu inner steps a round\n", t->sync,
                 (unsigned long long)t->peers, (unsigned long long)t->period);
    (void)printf("  %-9s %3s %4s %4s", "kind", "n", "good", "bad");
    for (int c = 0; c < WORK_COLUMNS; c++) {
        (void)printf(" %-16s", columns[c]);
    }
    (void)printf("\n");
    for (size_t i = 0; i < t->n_turns; i++) {
        print_turn(t, i);
    }
    print_turn(t, WORK_TURNS_MAX);
    print_samples(t);
}

/* ---- for programs ------------------------------------------------------- */

static json_t *json_figure(const struct work_figure *f, uint32_t n)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", mean_of(f, n), "spread",
                     sqrt(variance(f, n)), "least", f->least, "most", f->most);
}

static json_t *json_samples(const struct work_row *row)
{
    json_t *list = json_array();

    for (int i = 0; i < WORK_SAMPLES; i++) {
        json_array_append_new(
            list, json_pack("{s:I, s:f, s:f}", "blocks",
                            (json_int_t)work_sample_blocks(i), "cosine",
                            mean_of(&row->sampled[i], row->n), "exact",
                            mean_of(&row->exact_sampled[i], row->n)));
    }
    return list;
}

static json_t *json_row(const struct work_table *t, size_t turn, int kind)
{
    const struct work_row *row = &t->row[turn][kind];
    json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "kind", work_kind_name(kind),
                          "readings", (json_int_t)row->n, "good",
                          (json_int_t)row->good, "bad", (json_int_t)row->bad);

    if (turn < WORK_TURNS_MAX) {
        json_object_set_new(o, "round",
                            json_integer((json_int_t)t->turns[turn]));
    } else if (kind >= WORK_LIES) {
        json_object_set_new(o, "share_apart",
                            json_real(work_apart(t, kind, WORK_SHARE)));
        json_object_set_new(o, "exact_apart",
                            json_real(work_apart(t, kind, WORK_EXACT_OWN)));
    }
    for (int c = 0; c < WORK_COLUMNS; c++) {
        json_object_set_new(o, columns[c],
                            json_figure(&row->column[c], row->n));
    }
    json_object_set_new(o, "samples", json_samples(row));
    return o;
}

static void json_turn(const struct work_table *t, size_t turn, json_t *rows)
{
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        if (t->row[turn][kind].n > 0) {
            json_array_append_new(rows, json_row(t, turn, kind));
        }
    }
}

json_t *work_table_json(const struct work_table *t)
{
    json_t *rounds = json_array(), *all = json_array();

    for (size_t i = 0; i < t->n_turns; i++) {
        json_turn(t, i, rounds);
    }
    json_turn(t, WORK_TURNS_MAX, all);
    return json_pack("{s:s, s:I, s:I, s:o, s:o}", "sync", t->sync, "peers",
                     (json_int_t)t->peers, "period", (json_int_t)t->period,
                     "rounds", rounds, "all", all);
}
