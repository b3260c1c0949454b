/* recipe.c - see recipe.h. */
#include "train/sync/recipe.h"

#include <math.h>
#include <stddef.h>

/* % of the bits per byte that a period costs beside the first. */
static const struct {
    uint32_t period;
    double cost;
} periods[] = {{8, 0}, {16, 1}, {32, 2}, {64, 4}, {128, 7}};

#define N_PERIODS (sizeof periods / sizeof periods[0])

_Static_assert(RECIPE_PERIOD_LEAST == 8 && RECIPE_PERIOD_MOST == 128,
               "the first and the last period");

/* % that twice as many steps gain. */
#define DOUBLING_GAIN 6.0

/* How much worse .7/.9 ended than the plain mean, %, by rounds. */
static const struct {
    uint64_t rounds;
    double cost;
} momentum[] = {{32, 30}, {128, 20}, {512, 5}};

#define N_MOMENTUM (sizeof momentum / sizeof momentum[0])

static void
fill(const struct recipe_run *run, uint32_t period, struct recipe *r)
{
    double training = period * run->step_s;

    r->period = period;
    r->rounds = (run->steps + period - 1) / period;
    r->outer_lr = 1;
    r->outer_momentum = 0;
    r->exchange_s = run->exchange_bytes / run->bytes_per_s;
    r->time_share = r->exchange_s / (r->exchange_s + training);
}

void recipe_choose(const struct recipe_run *run, struct recipe *out)
{
    double best = INFINITY;

    for (size_t i = 0; i < N_PERIODS; i++) {
        struct recipe r;
        double time_cost;

        fill(run, periods[i].period, &r);
        r.period_cost = periods[i].cost;
        if (i > 0 && r.rounds < RECIPE_ROUNDS_LEAST) {
            break;
        }
        time_cost = DOUBLING_GAIN * log2(1 / (1 - r.time_share));
        if (r.period_cost + time_cost < best) {
            best = r.period_cost + time_cost;
            *out = r;
        }
    }
}

void recipe_muloco(uint64_t peers, double *outer_lr, double *outer_momentum)
{
    *outer_lr = peers < 3 ? 0.7 : peers < 12 ? 0.9 : 1.0;
    *outer_momentum = peers < 3 ? 0.6 : peers < 12 ? 0.8 : 0.9;
}

double recipe_momentum_cost(uint64_t rounds)
{
    for (size_t i = 0; i < N_MOMENTUM && rounds > 0; i++) {
        if (rounds <= momentum[i].rounds) {
            return momentum[i].cost;
        }
    }
    return 0;
}
