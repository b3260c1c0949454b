/* recipe.h - the settings of an averaging run, chosen by its length, its peers
 * and its slowest line.
 *
 * A short period loses less of what every peer learns; a long one sends fewer
 * bytes. Both are losses in per cent of the final bits per byte, so they can
 * be added: what the period costs (measured for 8, 32 and 128; 16 and 64 lie
 * between) and what the time of the exchanges costs (fewer steps in the same
 * hours). The chosen period has the smallest sum.
 *
 * The outer step is the plain mean, rate 1 without momentum.
 *
 * The figures are measured by `tests/bench/recipe.py`: 0.12M parameters, four
 * peers, Muon inside, E3M0 with error feedback (tests/bench/recipe.md). They
 * are of small models and short runs; what a larger one gains by momentum is
 * in the papers of presets.def. Pure; constant tables.
 */
#ifndef LOCO_TRAIN_SYNC_RECIPE_H
#define LOCO_TRAIN_SYNC_RECIPE_H

#include <stdint.h>

/* The periods that can be chosen, means that a run has at least, and means from
 * which on a run is not short. */
#define RECIPE_PERIOD_LEAST 8
#define RECIPE_PERIOD_MOST  128
#define RECIPE_ROUNDS_LEAST 8
#define RECIPE_ROUNDS_SHORT 100

struct recipe_run {
    uint64_t steps;        /* inner steps of one peer; at least 1 */
    double step_s;         /* an inner step of the slowest peer that counts */
    double exchange_bytes; /* that a peer sends in a round */
    double bytes_per_s;    /* up, of the slowest line */
};

struct recipe {
    uint32_t period; /* inner steps of a round */
    uint64_t rounds; /* at least `steps` */
    double outer_lr, outer_momentum;
    double exchange_s;  /* an exchange takes */
    double time_share;  /* of the run, that exchanges take: 0 to 1 */
    double period_cost; /* %, beside the shortest period measured */
};

/* All of run is above 0. */
void recipe_choose(const struct recipe_run *run, struct recipe *out);

/* A run in which the papers' outer step (rate 0.7, momentum 0.9) and the plain
 * mean were compared, AdamW inside. */
struct recipe_measured {
    uint64_t steps, rounds;
    double cost; /* %, by which the papers' ended worse; below 0: better */
};

/* The measured run that is nearest by ratios of steps and of rounds; NULL where
 * a run is not short: RECIPE_ROUNDS_SHORT rounds and more, or no end. */
const struct recipe_measured *recipe_momentum(uint64_t steps, uint64_t rounds);

/* MuLoCo's outer step for so many peers (arXiv:2505.23725: of 1, 8 and 16; the
 * nearest by ratio). */
void recipe_muloco(uint64_t peers, double *outer_lr, double *outer_momentum);

#endif
