/* scenario.h - what every scenario takes and gives: options in, figures out.
 *
 * *Figures* are what a scenario measured, by name; cli/sim.c prints them and
 * folds those of several seeds into one, each in its way. *Settings* are what
 * --set can change; each scenario has a table of its own.
 */
#ifndef LOCO_DAEMON_SIM_WORLD_SCENARIO_H
#define LOCO_DAEMON_SIM_WORLD_SCENARIO_H

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

/* Append a figure; a name that is there already is replaced. */
void sim_figure(struct sim_result *r,
                const char *name,
                double value,
                enum sim_fold fold);

/* Count a violation; the sentence of the first one is kept. */
void sim_fail(struct sim_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

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

#endif
