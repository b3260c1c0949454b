/* work_internal.h - what the files of work.h share.
 *
 * work.c opens, closes, and does the work of others again; work_read.c compares
 * it with what was sent; work_lies.c makes what liars would send.
 */
#ifndef LOCO_TRAIN_LAB_WORK_INTERNAL_H
#define LOCO_TRAIN_LAB_WORK_INTERNAL_H

#include "train/lab/internal.h"
#include "train/lab/work.h"

#define WORK_LIARS_MAX 8

/* Sums over a block: of the squares of what was sent, of the repeat, and of
 * their product; the same without what the others have in common. */
struct work_sums {
    double xx, rr, xr, own_xx, own_rr, own_xr;
    double exact_rr, exact_xr; /* with the maker's moments */
    double exact_own_rr, exact_own_xr;
};

struct work_past {       /* of one peer, when the round began */
    float *u, *v, *sent; /* sent: in the round before */
    uint64_t t, row;
};

struct lab_work {
    struct work_past past[LAB_PEERS_MAX];
    uint64_t tokens; /* used when the round began */
    bool begun;
    struct lab_peer ghost;
    struct backend backend; /* the other kernels */
    struct llama *llama;
    bool has_backend;
    float *vectors; /* all of them */
    float *repeat, *claim, *mean, *last, *sent, *theta, *u, *v;
    float *exact;          /* the repeat with the maker's moments */
    float *end_u, *end_v;  /* with which it ended on other kernels */
    double best, best_own; /* of that after the wire */
    double cosine, own;    /* of the auditor's own work */
    float *told[WORK_LIARS_MAX];
    uint8_t *wire;
    struct work_sums *blocks;
    size_t n_blocks;
};

struct work_task {
    uint32_t maker; /* whose text and anchor */
    uint64_t row;   /* where in that text */
    uint32_t steps, rows;
    double factor;
    const float *u, *v; /* NULL: 0 */
    uint64_t t;
    bool other; /* kernels */
};

/* ---- work.c ------------------------------------------------------------- */

/* out (n) = what comes of a task. */
int work_do(struct lab *lab, const struct work_task *t, float *out);

/* ---- work_read.c -------------------------------------------------------- */

/* The mean of all but the two, which readings of this pair need. */
void work_mean_of_others(struct lab *lab, uint32_t maker, uint32_t auditor);

/* The claim goes over the wire, with what its sender's residual holds, and is
 * read beside the repeat. */
int work_read(struct lab *lab, const float *claim, struct work_reading *r);

/* The cosine of two vectors after the others' mean was taken from both. */
double work_own_cosine(const struct lab *lab, const float *x, const float *r);

/* What the wire alone takes from the repeat with the maker's moments. */
int work_read_best(struct lab *lab);

/* 0 where one of the two is nothing. */
double work_cosine(double xx, double rr, double xr);

/* ---- work_lies.c -------------------------------------------------------- */

/* All lies of that pair, read beside the repeat. */
int work_read_lies(struct lab *lab, struct work_reading *r);

#endif
