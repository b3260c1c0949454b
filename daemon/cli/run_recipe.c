/* run_recipe.c - see run_recipe.h. The figures are train/sync/recipe.h's. */
#include "daemon/cli/run_recipe.h"

#include <stdio.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/run_needs.h"
#include "train/sync/preset.h"

#define RECIPE_PRESET   "muon-avg"
#define PRESET_OF_PEERS "muloco"
#define USUAL_PEERS     8
#define USUAL_MBIT      20 /* a home's line, up */

/* Of a step on two cores of a processor: 6 FLOPs a parameter and token. */
#define USUAL_FLOPS 40e9

/* Momentum from here on is the papers'. */
#define MUCH_MOMENTUM 0.85

int run_recipe_check(const struct run_plan *plan, const char *preset)
{
    bool peers = plan->peers > 0 && strcmp(preset, PRESET_OF_PEERS) != 0;

    if (!peers && plan->steps == 0 && plan->mbit == 0 && plan->step_ms == 0) {
        return 0;
    }
    return cli_fail(TROUBLE_USAGE,
                    "run create: --steps, --peers, --mbit and --step-ms choose "
                    "a method: use them with --sync auto (--peers with --sync "
                    "muloco, too)");
}

void run_recipe_peers(struct manifest *m, const struct run_plan *plan)
{
    if (plan->peers > 0) {
        recipe_muloco(plan->peers, &m->sync.outer_lr, &m->sync.outer_momentum);
    }
}

static int check(const struct run_plan *plan)
{
    if (plan->steps == 0) {
        return cli_fail(TROUBLE_USAGE,
                        "run create: --sync auto needs --steps: how many inner "
                        "steps each peer is to make");
    }
    if (plan->steps > UINT32_MAX || plan->peers == 1 || plan->mbit < 0 ||
        plan->step_ms < 0) {
        return cli_fail(TROUBLE_USAGE,
                        "run create: --steps is at most %u, --peers at least "
                        "2, --mbit and --step-ms are above 0",
                        UINT32_MAX);
    }
    return 0;
}

/* Seconds of a step where nobody has measured one. */
static double step_seconds(const struct manifest *m, uint64_t parameters)
{
    return 6.0 * (double)parameters * m->inner.batch * m->inner.seq /
           USUAL_FLOPS;
}

int run_recipe_fill(struct manifest *m,
                    struct run_plan *plan,
                    struct recipe *chosen)
{
    const struct preset *preset;
    struct run_needs needs;
    struct recipe_run run;
    int rv = check(plan);

    if (rv != 0) {
        return rv;
    }
    (void)preset_find(RECIPE_PRESET, &preset, NULL);
    manifest_from_preset(m, preset);
    needs = run_needs(m);
    plan->peers = plan->peers > 0 ? plan->peers : USUAL_PEERS;
    plan->mbit = plan->mbit > 0 ? plan->mbit : USUAL_MBIT;
    run = (struct recipe_run){
        .steps = plan->steps,
        .step_s = plan->step_ms > 0 ? plan->step_ms / 1e3
                                    : step_seconds(m, needs.parameters),
        .exchange_bytes = (double)needs.round_bytes *
                          (double)(plan->peers - 1) / (double)plan->peers,
        .bytes_per_s = plan->mbit * 1e6 / 8,
    };
    recipe_choose(&run, chosen);
    m->sync.period = chosen->period;
    m->sync.outer_lr = chosen->outer_lr;
    m->sync.outer_momentum = chosen->outer_momentum;
    m->inner.steps = plan->steps;
    m->stop.rounds = chosen->rounds;
    plan->step_ms = run.step_s * 1e3;
    return 0;
}

void run_recipe_say(const struct manifest *m,
                    const struct run_plan *plan,
                    const struct recipe *chosen)
{
    (void)fprintf(
        stderr, "chosen for %llu steps of %.0f ms, %llu peers, %g Mbit/s up:\n",
        (unsigned long long)plan->steps, plan->step_ms,
        (unsigned long long)plan->peers, plan->mbit);
    if (m->sync.period == chosen->period) {
        (void)fprintf(stderr,
                      "  period %u: %llu rounds; an exchange of %.1f MB takes "
                      "%.1f s, %.0f %% of the time. Against a period of %u it "
                      "costs about %.1f %% of the bits per byte\n",
                      chosen->period, (unsigned long long)m->stop.rounds,
                      chosen->exchange_s * plan->mbit / 8, chosen->exchange_s,
                      100 * chosen->time_share, RECIPE_PERIOD_LEAST,
                      chosen->period_cost);
    }
    (void)fprintf(stderr,
                  "  outer rate %g, momentum %g: %s\n  wire %s%s, inner "
                  "optimizer %s\n",
                  m->sync.outer_lr, m->sync.outer_momentum,
                  m->sync.outer_momentum > 0
                      ? "so many rounds gain by momentum"
                      : "the plain mean; momentum is for more rounds",
                  m->sync.wire,
                  m->sync.error_feedback ? " with error feedback" : "",
                  m->inner.optimizer);
}

/* Groups that make one mean of all members. */
static bool averages(const struct manifest *m)
{
    struct method method;

    return method_from_manifest(&method, m, SCOPE_RUN, NULL) == 0 &&
           !method.gradients && method.group == METHOD_ALL;
}

void run_recipe_warn(const struct manifest *m)
{
    double cost = recipe_momentum_cost(m->stop.rounds);

    if (m->sync.outer_momentum >= MUCH_MOMENTUM && cost > 0 && averages(m)) {
        (void)fprintf(
            stderr,
            "warning: outer rate %g with momentum %g is made for long "
            "runs. After %llu rounds the papers' 0.7 / 0.9 ended "
            "about %.0f %% worse than the plain mean "
            "(tests/bench/recipe.md): set sync.outer_lr=1 and "
            "sync.outer_momentum=0, or use --sync auto\n",
            m->sync.outer_lr, m->sync.outer_momentum,
            (unsigned long long)m->stop.rounds, cost);
    }
}
