/* table.c - the scenarios by name; see sim.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/nearest.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/sim/sim_internal.h"

#define NAMES_MAX 96

/* Faults that a seed of `rounds` draws from; the rest of scenarios.c needs a
 * certain number of peers. */
static const char *const faults[] = {
    "plain",       "kill-each", "freeze",       "restart", "join",
    "split-2-2",   "split-3-1", "slow",         "drops",   "lone-survivor",
    "all-restart", "lossy",     "rounds-churn",
};

static int rounds_run(const struct sim_options *opt, struct sim_result *result)
{
    struct sim_options drawn = *opt;
    uint64_t words[] = {opt->seed, 0x726f756e6473};
    uint64_t rng = rng_mix(words, 2);
    int rc;

    drawn.scenario = faults[rng_below(&rng, sizeof faults / sizeof faults[0])];
    rc = sim_nodes_run(&drawn, result);
    if (rc == 1) {
        fprintf(stderr, "sim: drawn by: rounds --seed %llu\n",
                (unsigned long long)opt->seed);
    }
    return rc;
}

/* clang-format off */
const struct sim_scenario sim_table[] = {
    {"rounds", "whole nodes; each seed draws one fault from those below", 16,
     rounds_run},
    {"pairs", "replicas average in random pairs; each seed draws one fault",
     16, sim_pairs_run},
    {"stages", "a model cut into stages, whole nodes; each seed draws one fault",
     6, sim_stages_run},
    {"pairs-nodes", "whole nodes in random pairs, up to the mean at the end", 6,
     sim_pairs_nodes_run},
    {"dht", "DHT nodes join, store records, find every one of them", 1000,
     swarm_dht_run},
    {"churn", "DHT nodes come and go, median uptime 10 minutes", 1000,
     swarm_churn_run},
    {"eclipse", "30% of the DHT's nodes collude next to one key", 1000,
     swarm_eclipse_run},
    {"flood", "10% of the DHT's nodes flood, 5% name only themselves", 1000,
     swarm_flood_run},
    {"membership", "membership alone: peers die and freeze; who knows when",
     200, membership_deaths_run},
    {"partition", "membership alone: the swarm is cut and healed", 200,
     membership_partition_run},
    {"pipeline", "stage hosts alone: throughput, idle share of each stage", 6,
     pipeline_plain_run},
    {"pipeline-deaths", "stage hosts alone: they die, freeze, lose edges", 8,
     pipeline_deaths_run},
    {"owners", "owners of slices alone: nobody dies", 6, owners_plain_run},
    {"owners-deaths", "owners of slices alone: they die, freeze, come back", 6,
     owners_deaths_run},
    {"owners-restart", "owners of slices alone: all stop, and go on from a mark",
     6, owners_restart_run},
    {"owners-nodes", "owners of slices, whole nodes; each seed draws one fault",
     6, sim_owners_nodes_run},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */

const char *sim_scenario_name(unsigned k, const char **help)
{
    const unsigned n = sizeof sim_table / sizeof sim_table[0] - 1;

    if (k < n) {
        *help = sim_table[k].help;
        return sim_table[k].name;
    }
    *help = scenarios[k - n].help;
    return scenarios[k - n].name;
}

static int unknown(const char *name, struct sim_result *r)
{
    const char *names[NAMES_MAX], *help, *near;
    size_t n = 0;

    while (n < NAMES_MAX &&
           (names[n] = sim_scenario_name((unsigned)n, &help)) != NULL) {
        n++;
    }
    near = nearest_word(name, names, n);
    (void)snprintf(r->violation, sizeof r->violation,
                   near == NULL ? "there is no scenario '%.60s'%s"
                                : "there is no scenario '%.60s'; did you mean "
                                  "'%s'?",
                   name, near == NULL ? "" : near);
    return LOCO_EINVAL;
}

int sim_run(const struct sim_options *opt, struct sim_result *result)
{
    struct sim_options o = *opt;
    const char *name = opt->scenario == NULL ? "" : opt->scenario;

    memset(result, 0, sizeof *result);
    for (const struct sim_scenario *row = sim_table; row->name != NULL; row++) {
        if (strcmp(row->name, name) == 0) {
            o.peers = o.peers > 0 ? o.peers : row->peers;
            return row->run(&o, result);
        }
    }
    for (unsigned k = 0; scenarios[k].name != NULL; k++) {
        if (strcmp(scenarios[k].name, name) == 0) {
            return sim_nodes_run(&o, result);
        }
    }
    return unknown(name, result);
}

void sim_figure(struct sim_result *r,
                const char *name,
                double value,
                enum sim_fold fold)
{
    uint32_t i = 0;

    while (i < r->n_figures && strcmp(r->figure[i].name, name) != 0) {
        i++;
    }
    if (i < SIM_FIGURES_MAX) {
        r->figure[i] = (struct sim_figure){name, value, fold};
        r->n_figures += i == r->n_figures;
    }
}

/* ---- --set ----------------------------------------------------------------
 */

static int setting_bad(struct sim_result *r,
                       const char *text,
                       const struct sim_setting *table,
                       size_t n,
                       const char *path)
{
    const char *names[NAMES_MAX] = {NULL}, *near;
    size_t at;

    for (size_t i = 0; i < n && i < NAMES_MAX; i++) {
        names[i] = table[i].path;
    }
    near = nearest_word(path, names, n < NAMES_MAX ? n : NAMES_MAX);
    if (near != NULL) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "--set %.80s: no such setting; did you mean '%s'?", text,
                       near);
        return LOCO_EINVAL;
    }
    at = (size_t)snprintf(r->violation, sizeof r->violation,
                          "--set %.80s: no such setting; this scenario has",
                          text);
    for (size_t i = 0; i < n && at < sizeof r->violation; i++) {
        at += (size_t)snprintf(r->violation + at, sizeof r->violation - at,
                               " %s", names[i]);
    }
    return LOCO_EINVAL;
}

static int setting_apply(const struct sim_setting *row,
                         const char *text,
                         const char *value,
                         struct sim_result *r)
{
    char *end;
    double x = strtod(value, &end);
    bool whole = row->real == NULL;

    if (end == value || *end != '\0' || !(x >= row->min && x <= row->max) ||
        (whole && x != (double)(uint64_t)x)) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "--set %.80s: %s wants a%s number from %g to %g", text,
                       row->path, whole ? " whole" : "", row->min, row->max);
        return LOCO_EINVAL;
    }
    if (row->real != NULL) {
        *row->real = x;
    } else if (row->u32 != NULL) {
        *row->u32 = (uint32_t)x;
    } else {
        *row->u64 = (uint64_t)x;
    }
    return 0;
}

int sim_settings(const struct sim_options *opt,
                 const struct sim_setting *table,
                 size_t n,
                 struct sim_result *result)
{
    for (size_t k = 0; k < opt->n_set; k++) {
        const char *text = opt->set[k], *eq = strchr(text, '=');
        const struct sim_setting *row = NULL;
        char path[48];

        (void)snprintf(path, sizeof path, "%.*s",
                       eq == NULL ? 40 : (int)(eq - text), text);
        for (size_t i = 0; i < n && row == NULL; i++) {
            row = strcmp(table[i].path, path) == 0 ? &table[i] : NULL;
        }
        if (row == NULL || eq == NULL) {
            return setting_bad(result, text, table, n, path);
        }
        if (setting_apply(row, text, eq + 1, result) != 0) {
            return LOCO_EINVAL;
        }
    }
    return 0;
}
