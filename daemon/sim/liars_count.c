/* liars_count.c - how many rounds are left when a member begins to lie; see
 * scenarios_liars.c.
 */
#include "daemon/sim/liars.h"
#include "daemon/sim/world/internal.h"

#define LOOK_MS    100
#define FIRST      2      /* rounds until all is under way */
#define CALM_MS    60000  /* without questions */
#define RUN_MS     180000 /* with them */
#define STEP_MS    600    /* rounds of 4.3 s */
#define ROUNDS     75
#define LEAST_LEFT 80.0 /* percent of the rounds.. */
#define LEAST_TURN 75.0 /* ..where each of its turns as coordinator is lost */

void liars_count_options(struct sim *s)
{
    if (s->opt.rounds == 0) {
        s->rounds = ROUNDS;
        s->local_opt.stop_rounds = ROUNDS;
    }
    s->local_opt.step_ms = STEP_MS;
}

void sim_liars_judge(const struct sim *s, struct sim_result *r)
{
    if (s->liar != NULL && s->liar->percent > 0) {
        sim_figure(r, "left_percent", s->liar->percent, SIM_MIN);
    }
}

void liars_count_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct liar *g = s->liar;
    uint64_t round = sim_newest_round(s, g->who), now = world_now(s->world);

    if (g->first_ms == 0 && round >= FIRST) {
        g->first_ms = now;
        g->first_round = round;
    } else if (g->first_ms != 0 && g->began_ms == 0 &&
               now >= g->first_ms + CALM_MS) {
        g->began_ms = now;
        g->began_round = round;
    } else if (g->began_ms != 0 && now >= g->began_ms + RUN_MS) {
        g->percent = 100.0 * (double)(round - g->began_round) /
                     (double)(now - g->began_ms) *
                     (double)(g->began_ms - g->first_ms) /
                     (double)(g->began_round - g->first_round);
        if (g->percent < (liars_round(g) ? LEAST_TURN : LEAST_LEFT)) {
            check_fail(s->check,
                       "L: %.0f %% of the rounds are left where a member lies",
                       g->percent);
        }
        liars_strike_call(s, arg);
        return;
    }
    world_call(s->world, now + LOOK_MS, liars_count_call, s, arg);
}
