/* run_recipe.h - loco run create --sync auto: the method that fits a run. */
#ifndef LOCO_DAEMON_CLI_RUN_RECIPE_H
#define LOCO_DAEMON_CLI_RUN_RECIPE_H

#include <stdint.h>

#include "proto/manifest.h"
#include "train/sync/recipe.h"

/* What the author knows of the run; 0: not said. */
struct run_plan {
    uint64_t steps; /* inner steps of a peer */
    uint64_t peers;
    double mbit;    /* per second, up, of the slowest line */
    double step_ms; /* of an inner step on the slowest machine */
    bool guessed;   /* nobody has said step_ms */
};

/* What the choice is made among: the preset, into m. A LOCO_EXIT code; the
 * sentence is printed. */
int run_recipe_begin(struct manifest *m, const struct run_plan *plan);

/* The period, the outer step, inner.steps, inner.warmup and stop.rounds of m,
 * in which the model and what --set changes stand. In plan what was not said
 * becomes what was taken for it. */
int run_recipe_choose(struct manifest *m,
                      struct run_plan *plan,
                      struct recipe *chosen);

/* Whether a preset takes what was said: muloco the peers, others nothing. A
 * LOCO_EXIT code; the sentence is printed. */
int run_recipe_check(const struct run_plan *plan, const char *preset);

/* The outer step of muloco for those peers. */
void run_recipe_peers(struct manifest *m, const struct run_plan *plan);

/* On stderr: what was chosen and why; after --set, which may differ. */
void run_recipe_say(const struct manifest *m,
                    const struct run_plan *plan,
                    const struct recipe *chosen);

/* On stderr, where the outer step is one for longer runs. */
void run_recipe_warn(const struct manifest *m);

#endif
