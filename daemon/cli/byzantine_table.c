/* byzantine_table.c - see byzantine_table.h. */
#include "daemon/cli/byzantine_table.h"

#include <math.h>
#include <stdio.h>

#include <jansson.h>

#define NAME_WIDTH   10
#define CELL_WIDTH   28
#define BITS_LONGEST 1e5 /* more is written with an exponent */

/* ---- numbers ------------------------------------------------------------ */

const char *byzantine_row_name(int row)
{
    return row == BYZANTINE_NOBODY  ? "nobody"
           : row == BYZANTINE_ALONE ? "alone"
                                    : lab_lie_name((enum lab_lie)row);
}

const char *byzantine_defence_name(int defence)
{
    static const char *const names[BYZANTINE_DEFENCES] = {"mean", "clip",
                                                          "centred"};

    return names[defence];
}

void byzantine_add(struct byzantine_cell *c, double bits)
{
    if (!isfinite(bits)) {
        c->diverged++;
        return;
    }
    c->sum += bits;
    c->squares += bits * bits;
    c->seeds++;
}

double byzantine_mean(const struct byzantine_cell *c)
{
    return c->diverged > 0 || c->seeds == 0 ? NAN : c->sum / c->seeds;
}

/* The standard deviation of the seeds; NAN where there are too few. */
static double spread_of(const struct byzantine_cell *c)
{
    double mean = byzantine_mean(c), v;

    if (c->seeds < 2 || c->diverged > 0) {
        return NAN;
    }
    v = (c->squares - c->seeds * mean * mean) / (c->seeds - 1);
    return v > 0 ? sqrt(v) : 0;
}

double byzantine_percent(const struct byzantine_table *t, int row, int column)
{
    double honest = byzantine_mean(&t->cell[BYZANTINE_NOBODY][column]);
    double bits = byzantine_mean(&t->cell[row][column]);

    return isnan(honest) ? NAN
           : isnan(bits) ? INFINITY
                         : 100 * (bits / honest - 1);
}

bool byzantine_above(const struct byzantine_table *t, int row, int column)
{
    return !isnan(t->most) && row < LAB_LIE_COUNT && t->has_row[row] &&
           column == BYZANTINE_CENTRED &&
           !(byzantine_percent(t, row, column) <= t->most);
}

/* The lie that does most damage to a defence; -1: there is none. */
static int worst_of(const struct byzantine_table *t, int column)
{
    int worst = -1;

    for (int row = 0; row < LAB_LIE_COUNT; row++) {
        if (t->has_row[row] &&
            (worst < 0 || byzantine_percent(t, row, column) >
                              byzantine_percent(t, worst, column))) {
            worst = row;
        }
    }
    return worst;
}

int byzantine_shown(int i)
{
    return (i + BYZANTINE_NOBODY) % BYZANTINE_ROWS;
}

/* ---- text --------------------------------------------------------------- */

static void print_percent(char *text, size_t room, double percent)
{
    (void)snprintf(text, room,
                   isinf(percent)           ? "diverged"
                   : isnan(percent)         ? "?"
                   : percent > BITS_LONGEST ? "%+.1e %%"
                                            : "%+.1f %%",
                   percent);
}

static void print_cell(const struct byzantine_table *t, int row, int column)
{
    const struct byzantine_cell *c = &t->cell[row][column];
    char text[64] = "", percent[32] = "";
    double mean = byzantine_mean(c);
    int at;

    if (c->diverged == 0) {
        at = snprintf(text, sizeof text, mean < BITS_LONGEST ? "%.3f" : "%.1e",
                      mean);
        if (c->seeds > 1) {
            (void)snprintf(text + at, sizeof text - (size_t)at, " +- %.3g",
                           spread_of(c));
        }
    }
    if (row != BYZANTINE_NOBODY || c->diverged > 0) {
        print_percent(percent, sizeof percent,
                      byzantine_percent(t, row, column));
    }
    (void)printf("  %-*.*s%10.10s", CELL_WIDTH - 12, CELL_WIDTH - 12, text,
                 percent);
}

static void print_row(const struct byzantine_table *t, int row)
{
    if (!t->has_row[row]) {
        return;
    }
    (void)printf("%-*s", NAME_WIDTH, byzantine_row_name(row));
    for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
        if (t->has_column[k]) {
            print_cell(t, row, k);
        }
    }
    (void)printf("\n");
}

static void print_worst(const struct byzantine_table *t)
{
    (void)printf("\n%-*s", NAME_WIDTH, "worst");
    for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
        int worst = worst_of(t, k);
        char percent[32];

        if (!t->has_column[k] || worst < 0) {
            continue;
        }
        print_percent(percent, sizeof percent, byzantine_percent(t, worst, k));
        (void)printf("  %-*s%10s", CELL_WIDTH - 12, byzantine_row_name(worst),
                     percent);
    }
    (void)printf("\n");
}

void byzantine_print(const struct byzantine_table *t)
{
    const struct byzantine_cell *c = &t->cell[BYZANTINE_NOBODY][0];

    for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
        c = t->has_column[k] ? &t->cell[BYZANTINE_NOBODY][k] : c;
    }
    (void)printf("%s, %llu peers of which %llu lie, %llu rounds, %u seed%s, "
                 "radius %g\nheld-out bits per byte, and percent above nobody "
                 "lies with the same defence\n\n%-*s",
                 t->sync, (unsigned long long)t->peers,
                 (unsigned long long)t->liars, (unsigned long long)t->rounds,
                 c->seeds + c->diverged, c->seeds + c->diverged == 1 ? "" : "s",
                 t->radius, NAME_WIDTH, "lie");
    for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
        if (t->has_column[k]) {
            (void)printf("  %-*s", CELL_WIDTH - 2, byzantine_defence_name(k));
        }
    }
    (void)printf("\n");
    for (int i = 0; i < BYZANTINE_ROWS; i++) {
        print_row(t, byzantine_shown(i));
    }
    print_worst(t);
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_cell(const struct byzantine_table *t, int row, int column)
{
    const struct byzantine_cell *c = &t->cell[row][column];

    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I}", "lie",
                     byzantine_row_name(row), "defence",
                     byzantine_defence_name(column), "bits_per_byte",
                     number(byzantine_mean(c)), "spread", number(spread_of(c)),
                     "percent", number(byzantine_percent(t, row, column)),
                     "diverged", (json_int_t)c->diverged);
}

static json_t *json_worst(const struct byzantine_table *t)
{
    json_t *o = json_object();

    for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
        int worst = worst_of(t, k);

        if (t->has_column[k] && worst >= 0) {
            json_object_set_new(o, byzantine_defence_name(k),
                                json_cell(t, worst, k));
        }
    }
    return o;
}

json_t *byzantine_json(const struct byzantine_table *t)
{
    json_t *cells = json_array(), *above = json_array(), *o;
    uint32_t seeds = 0;

    for (int i = 0; i < BYZANTINE_ROWS; i++) {
        for (int k = 0; k < BYZANTINE_DEFENCES; k++) {
            int row = byzantine_shown(i);
            const struct byzantine_cell *c = &t->cell[row][k];

            if (!t->has_row[row] || !t->has_column[k]) {
                continue;
            }
            seeds = c->seeds + c->diverged;
            json_array_append_new(cells, json_cell(t, row, k));
            if (byzantine_above(t, row, k)) {
                json_array_append_new(above,
                                      json_string(byzantine_row_name(row)));
            }
        }
    }
    o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o}", "sync",
                  t->sync, "peers", (json_int_t)t->peers, "liars",
                  (json_int_t)t->liars, "rounds", (json_int_t)t->rounds,
                  "tokens", (json_int_t)t->tokens, "seeds", (json_int_t)seeds,
                  "radius", t->radius, "cells", cells, "worst", json_worst(t));
    if (!isnan(t->most)) {
        json_object_set_new(o, "most", json_real(t->most));
        json_object_set_new(o, "above", above);
    } else {
        json_decref(above);
    }
    return o;
}
