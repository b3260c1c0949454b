/* byzantine_table.h - lies x defences: what was measured, and the judgement.
 *
 * A row is a lie, or one of two runs without any: nobody lies (peers as many),
 * and the honest ones alone (fewer peers and as many steps). A column is a
 * defence. A cell holds the held-out bits per byte of its seeds; it is judged
 * by how many percent it lies above nobody of the same column.
 */
#ifndef LOCO_DAEMON_CLI_BYZANTINE_TABLE_H
#define LOCO_DAEMON_CLI_BYZANTINE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "train/lab/lab.h"

enum byzantine_defence {
    BYZANTINE_MEAN,
    BYZANTINE_CLIP,
    BYZANTINE_CENTRED, /* the one that `most` is about */
    BYZANTINE_DEFENCES
};

/* Rows: the lies by their numbers, then these two. */
enum { BYZANTINE_NOBODY = LAB_LIE_COUNT, BYZANTINE_ALONE, BYZANTINE_ROWS };

struct byzantine_cell {
    double sum, squares; /* of the bits per byte, over `seeds` */
    uint32_t seeds;
    uint32_t diverged; /* seeds more, which gave no number */
};

struct byzantine_table {
    const char *sync; /* and what else the heading says */
    uint64_t peers, liars, rounds, tokens;
    double radius;
    double most; /* percent; NAN: any */
    bool has_row[BYZANTINE_ROWS];
    bool has_column[BYZANTINE_DEFENCES];
    struct byzantine_cell cell[BYZANTINE_ROWS][BYZANTINE_DEFENCES];
};

const char *byzantine_row_name(int row); /* "nobody", "alone", "huge" .. */
const char *byzantine_defence_name(int defence); /* "mean", "clip", "centred" */

/* The i-th row in the order of the table: those without lies come first. */
int byzantine_shown(int i);

/* Bits per byte of one more seed; not a finite number: it diverged. */
void byzantine_add(struct byzantine_cell *c, double bits);

/* Over the seeds; NAN where one diverged. */
double byzantine_mean(const struct byzantine_cell *c);

/* Percent above nobody of the same column; INFINITY where a seed diverged, NAN
 * where one of nobody did. */
double byzantine_percent(const struct byzantine_table *t, int row, int column);

/* Is this cell one of the default defence, of a lie, and above `most`? */
bool byzantine_above(const struct byzantine_table *t, int row, int column);

void byzantine_print(const struct byzantine_table *t);
struct json_t *byzantine_json(const struct byzantine_table *t);

#endif
