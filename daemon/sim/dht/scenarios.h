/* scenarios.h - the scenarios of the DHT alone. */
#ifndef LOCO_DAEMON_SIM_DHT_SCENARIOS_H
#define LOCO_DAEMON_SIM_DHT_SCENARIOS_H

#include "daemon/sim/world/scenario.h"

int swarm_dht_run(const struct sim_options *opt, struct sim_result *result);
int swarm_churn_run(const struct sim_options *opt, struct sim_result *result);
int swarm_eclipse_run(const struct sim_options *opt, struct sim_result *result);
int swarm_flood_run(const struct sim_options *opt, struct sim_result *result);

#endif
