/* sim.h - run one scenario in virtual time.
 *
 * A *scenario* is a row of sim_table[] (table.c): a name, a default number of
 * peers and the function that runs it. There are these kinds: whole nodes under
 * faults (nodes.c over world.h; the faults are the rows of scenarios.c),
 * membership alone (membership.c, over world.h too), pipelines alone
 * (pipeline.c, over a world of its own) and the DHT alone with thousands of
 * nodes (sim/dht/scenarios.c over swarm.h). A run is good when no invariant
 * broke and the scenario's own target was reached. One seed names one run;
 * everything else is an option. Several runs may be made one after the other,
 * not at once per process only because they would share stderr.
 *
 * A new scenario: a row in table.c, its function, and a line in sim.cmake.
 */
#ifndef LOCO_DAEMON_SIM_SIM_H
#define LOCO_DAEMON_SIM_SIM_H

#include "daemon/sim/world/scenario.h"

struct sim_scenario {
    const char *name, *help;
    uint32_t peers; /* where none are given */
    int (*run)(const struct sim_options *opt, struct sim_result *result);
};

/* Ends with a row of NULL. The faults of whole nodes (scenarios.c) are further
 * scenarios. */
extern const struct sim_scenario sim_table[];

/* 0: no violation; 1: one, described in the result and on stderr;
 * LOCO_EINVAL: no such scenario or option, result->violation says which;
 * LOCO_ENOMEM. */
int sim_run(const struct sim_options *opt, struct sim_result *result);

/* Row k of both tables, NULL behind the last one. */
const char *sim_scenario_name(unsigned k, const char **help);

/* Whole nodes under the fault that opt->scenario names. */
int sim_nodes_run(const struct sim_options *opt, struct sim_result *result);

/* Random pairs: pairs.c, and with whole nodes pairs_nodes.c. */
int sim_pairs_run(const struct sim_options *opt, struct sim_result *result);
int sim_pairs_nodes_run(const struct sim_options *opt,
                        struct sim_result *result);

/* A model cut into stages, whole nodes: stages.c. */
int sim_stages_run(const struct sim_options *opt, struct sim_result *result);

/* Membership alone, membership.c. */
int membership_deaths_run(const struct sim_options *opt,
                          struct sim_result *result);
int membership_partition_run(const struct sim_options *opt,
                             struct sim_result *result);

/* Pipelines alone, pipeline.c. */
int pipeline_plain_run(const struct sim_options *opt, struct sim_result *r);
int pipeline_deaths_run(const struct sim_options *opt, struct sim_result *r);

#endif
