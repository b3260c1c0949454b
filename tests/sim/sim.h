/* sim.h - run one scenario in virtual time.
 *
 * A *scenario* is a row of sim_table[] (table.c): a name, a default number of
 * peers and the function that runs it. There are these kinds: whole nodes under
 * faults (nodes.c over world.h; the faults are the rows of scenarios.c),
 * membership alone (membership.c, over world.h too), pipelines and owners of
 * slices alone (pipeline.c, owners.c, each over a world of its own) and the DHT
 * alone with thousands of nodes (swarm_scenarios.c over swarm.h). A run is good
 * when no invariant broke and the scenario's own target was reached. One seed
 * names one run; everything else is an option. Several runs may be made one
 * after the other, not at once per process only because they would share
 * stderr.
 *
 * *Figures* are what a scenario measured, by name; cli_sim.c prints them and
 * folds those of several seeds into one, each in its way.
 *
 * A new scenario: a row in table.c, its function, and a line in sim.cmake.
 */
#ifndef LOCO_TESTS_SIM_SIM_H
#define LOCO_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_TEXT_MAX    512
#define SIM_FIGURES_MAX 48

struct sim_options {
    const char *scenario;
    uint32_t peers;  /* 0: the scenario's */
    uint64_t rounds; /* whole nodes; 0: the scenario's */
    uint64_t seed;
    uint64_t at;      /* kill-each and its like: the victim's action; 0: drawn
                         from the seed */
    const char *wire; /* whole nodes: codec; NULL: bf16 */
    const char *exchange;   /* whole nodes: "ring" or "butterfly"; NULL: ring
                               where the wire can be summed */
    bool print_trace;       /* every event, to stderr */
    bool quiet_failure;     /* do not print the last lines on a violation */
    const char *const *set; /* "path=value", see sim_settings() */
    size_t n_set;
    /* Now and then, with the part that is done, 0..1; may be NULL. */
    void (*progress)(void *data, double part);
    void *progress_data;
};

/* How figures of several seeds become one. */
enum sim_fold { SIM_SUM, SIM_MEAN, SIM_MIN, SIM_MAX };

struct sim_figure {
    const char *name; /* static */
    double value;
    enum sim_fold fold;
};

struct sim_result {
    uint64_t trace_hash, invariants_checked, violations;
    uint32_t n_figures;
    struct sim_figure figure[SIM_FIGURES_MAX];
    uint64_t at;             /* the victim's action that was used */
    uint64_t victim_actions; /* in the run without fault, if there was one */
    uint64_t victim_heard;   /* of these, until a peer had a link to it */
    char violation[SIM_TEXT_MAX]; /* or what is wrong with an option */
};

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

/* Append a figure; a name that is there already is replaced. */
void sim_figure(struct sim_result *r,
                const char *name,
                double value,
                enum sim_fold fold);

/* What --set can change. Values outside [min, max] are refused. */
struct sim_setting {
    const char *path, *help;
    double min, max;
    double *real; /* one of the three */
    uint32_t *u32;
    uint64_t *u64;
};

/* Apply opt->set; LOCO_EINVAL and a sentence in result->violation where a path
 * or value is wrong. */
int sim_settings(const struct sim_options *opt,
                 const struct sim_setting *table,
                 size_t n,
                 struct sim_result *result);

/* Whole nodes under the fault that opt->scenario names. */
int sim_nodes_run(const struct sim_options *opt, struct sim_result *result);

/* Random pairs: pairs.c, and with whole nodes pairs_nodes.c. */
int sim_pairs_run(const struct sim_options *opt, struct sim_result *result);
int sim_pairs_nodes_run(const struct sim_options *opt,
                        struct sim_result *result);

/* Members that own slices, whole nodes: owners_nodes.c. */
int sim_owners_nodes_run(const struct sim_options *opt,
                         struct sim_result *result);

/* A model cut into stages, whole nodes: stages.c. */
int sim_stages_run(const struct sim_options *opt, struct sim_result *result);

/* The DHT's scenarios, swarm_scenarios.c. */
int swarm_dht_run(const struct sim_options *opt, struct sim_result *result);
int swarm_churn_run(const struct sim_options *opt, struct sim_result *result);
int swarm_eclipse_run(const struct sim_options *opt, struct sim_result *result);
int swarm_flood_run(const struct sim_options *opt, struct sim_result *result);

/* Membership alone, membership.c. */
int membership_deaths_run(const struct sim_options *opt,
                          struct sim_result *result);
int membership_partition_run(const struct sim_options *opt,
                             struct sim_result *result);

/* Owners of slices alone, owners.c. */
int owners_plain_run(const struct sim_options *opt, struct sim_result *r);
int owners_deaths_run(const struct sim_options *opt, struct sim_result *r);
int owners_restart_run(const struct sim_options *opt, struct sim_result *r);

/* Pipelines alone, pipeline.c. */
int pipeline_plain_run(const struct sim_options *opt, struct sim_result *r);
int pipeline_deaths_run(const struct sim_options *opt, struct sim_result *r);

#endif
