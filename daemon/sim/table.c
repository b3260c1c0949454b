/* table.c - the scenarios by name; see sim.h. */
#include <stdio.h>
#include <string.h>

#include "daemon/sim/dht/scenarios.h"
#include "daemon/sim/sim_internal.h"
#include "proto/base/err.h"
#include "proto/base/nearest.h"
#include "proto/base/rng.h"

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
