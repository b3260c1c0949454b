/* run_recipe.c - see run_recipe.h. The figures are train/sync/recipe.h's. */
#include "daemon/cli/run_recipe.h"

#include <stdio.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/jobs/run_needs.h"
#include "daemon/settings/method_manifest.h"
#include "train/sync/preset.h"

#define RECIPE_PRESET   "muon-avg"
#define PRESET_OF_PEERS "muloco"
#define USUAL_PEERS     8
#define PEERS_MOST      1000000
#define LEAST           1e-3 /* of --mbit and --step-ms */
#define MOST            1e9
#define WARMUP_SHARE    10 /* of the steps at most */

/* An outer step about as the papers' 0.7 / 0.9. */
#define MUCH_MOMENTUM 0.85
#define PAPERS_RATE   0.9

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
    const char *wrong = NULL;

    if (plan->steps == 0) {
        wrong = "--sync auto needs --steps: how many inner steps each peer is "
                "to make";
    } else if (plan->steps > UINT32_MAX) {
        wrong = "--steps is at most 4294967295";
    } else if (plan->peers == 1 || plan->peers > PEERS_MOST) {
        wrong = "--peers is 2 to 1000000";
    } else if (plan->mbit != 0 &&
               !(plan->mbit >= LEAST && plan->mbit <= MOST)) {
        wrong = "--mbit is 0.001 to 1000000000";
    } else if (plan->step_ms != 0 &&
               !(plan->step_ms >= LEAST && plan->step_ms <= MOST)) {
        wrong = "--step-ms is 0.001 to 1000000000";
    }
    return wrong == NULL ? 0 : cli_fail(TROUBLE_USAGE, "run create: %s", wrong);
}

int run_recipe_begin(struct manifest *m, const struct run_plan *plan)
{
    const struct preset *preset;
    int rv = check(plan);

    if (rv == 0) {
        (void)preset_find(RECIPE_PRESET, &preset, NULL);
        manifest_from_preset(m, preset);
    }
    return rv;
}

int run_recipe_choose(struct manifest *m,
                      struct run_plan *plan,
                      struct recipe *chosen)
{
    struct run_needs needs = run_needs(m, NULL);
    double peers;
    struct recipe_run run;

    if (needs.parameters == 0 || needs.round_bytes == 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "run create: with what --set changes this is no run "
                        "that --sync auto can choose for");
    }
    plan->guessed = plan->step_ms == 0;
    plan->peers = plan->peers > 0 ? plan->peers : USUAL_PEERS;
    plan->mbit = plan->mbit > 0 ? plan->mbit : RUN_USUAL_MBIT;
    peers = (double)plan->peers;
    run = (struct recipe_run){
        .steps = plan->steps,
        .step_s = plan->guessed ? run_step_s(m, needs.parameters)
                                : plan->step_ms / 1e3,
        .exchange_bytes = (double)needs.round_bytes * (peers - 1) / peers,
        .bytes_per_s = plan->mbit * 1e6 / 8,
    };
    recipe_choose(&run, chosen);
    m->sync.period = chosen->period;
    m->sync.outer_lr = chosen->outer_lr;
    m->sync.outer_momentum = chosen->outer_momentum;
    m->inner.steps = plan->steps;
    m->inner.warmup = m->inner.warmup < plan->steps / WARMUP_SHARE
                          ? m->inner.warmup
                          : plan->steps / WARMUP_SHARE;
    m->stop.rounds = chosen->rounds;
    plan->step_ms = run.step_s * 1e3;
    return 0;
}

static void say_period(const struct manifest *m,
                       const struct run_plan *plan,
                       const struct recipe *chosen)
{
    (void)fprintf(stderr,
                  "  period %u: %llu rounds; an exchange of %.1f MB takes %.1f "
                  "s, %.0f %% of the time",
                  chosen->period, (unsigned long long)m->stop.rounds,
                  chosen->exchange_s * plan->mbit / 8, chosen->exchange_s,
                  100 * chosen->time_share);
    if (chosen->period_cost > 0) {
        (void)fprintf(stderr,
                      "; beside a period of %d it costs about %.1f %% of the "
                      "bits per byte",
                      RECIPE_PERIOD_LEAST, chosen->period_cost);
    }
    (void)fputc('\n', stderr);
}

void run_recipe_say(const struct manifest *m,
                    const struct run_plan *plan,
                    const struct recipe *chosen)
{
    (void)fprintf(
        stderr,
        "chosen for %llu steps of %.3g ms%s, %llu peers, %g Mbit/s up:\n",
        (unsigned long long)plan->steps, plan->step_ms,
        plan->guessed ? " (a guess for two processor cores; --step-ms says it)"
                      : "",
        (unsigned long long)plan->peers, plan->mbit);
    if (m->sync.period == chosen->period && m->stop.rounds == chosen->rounds) {
        say_period(m, plan, chosen);
    }
    if (m->sync.outer_lr == chosen->outer_lr &&
        m->sync.outer_momentum == chosen->outer_momentum) {
        (void)fprintf(stderr, "  outer rate %g, momentum %g\n",
                      chosen->outer_lr, chosen->outer_momentum);
    }
    (void)fprintf(stderr, "  wire %s%s, inner optimizer %s\n", m->sync.wire,
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
    const struct manifest_sync *sync = &m->sync;
    uint64_t rounds = m->stop.rounds / sync->fragments;
    const struct recipe_measured *like =
        recipe_momentum(m->stop.rounds * sync->period, rounds);

    if (like != NULL && like->cost > 0 &&
        sync->outer_momentum >= MUCH_MOMENTUM &&
        sync->outer_lr <= PAPERS_RATE && averages(m)) {
        (void)fprintf(
            stderr,
            "warning: outer rate %g with momentum %g is made for more "
            "than the %llu averages of this run. In the nearest run "
            "that was measured (%llu steps, %llu averages) 0.7 / 0.9 "
            "ended %.1f %% worse than the plain mean: set "
            "sync.outer_lr=1 and sync.outer_momentum=0, or use --sync "
            "auto\n",
            sync->outer_lr, sync->outer_momentum, (unsigned long long)rounds,
            (unsigned long long)like->steps, (unsigned long long)like->rounds,
            like->cost);
    }
}
