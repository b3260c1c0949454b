/* sim.h - run one scenario of whole nodes in virtual time.
 *
 * A *scenario* (scenarios.c) is a row {name, peers, rounds, setup}; its setup
 * schedules faults and says when they end. A run is good when no invariant of
 * check.h broke and, after the last fault, all live peers reached the last
 * round together in time. One seed names one run; everything else is an
 * option. Several runs may be made one after the other, not at once per
 * process only because they would share stderr.
 *
 * `loco sim` and tests/sim/sim_main.c call sim_run().
 */
#ifndef LOCO_TESTS_SIM_SIM_H
#define LOCO_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_TEXT_MAX 512

struct sim_options {
    const char *scenario;
    uint32_t peers;  /* 0: the scenario's */
    uint64_t rounds; /* 0: the scenario's */
    uint64_t seed;
    uint64_t at;      /* kill-each and its like: the victim's action; 0: drawn
                         from the seed */
    const char *wire; /* codec; NULL: bf16 */
    const char *exchange; /* "ring" or "butterfly"; NULL: ring where the wire
                             can be summed */
    bool print_trace;     /* every event, to stderr */
    bool quiet_failure;   /* do not print the last lines on a violation */
};

struct sim_result {
    uint64_t trace_hash, invariants_checked, violations;
    uint64_t rounds;    /* highest applied by a live peer */
    uint64_t commits;   /* distinct ones, all branches */
    uint64_t inherited; /* elements, summed over the live peers */
    uint64_t aborted;   /* attempts, summed over the live peers */
    uint64_t virtual_ms, steps, messages, segments, bytes;
    uint64_t at;              /* the victim's action that was used */
    uint64_t victim_actions;  /* in the run without fault, if there was one */
    uint64_t victim_heard;    /* of these, until a peer had a link to it */
    uint32_t detected_ms_max; /* slowest detection of a lost peer */
    uint64_t malformed;       /* messages that nodes called so */
    char violation[SIM_TEXT_MAX];
};

/* 0: no violation; 1: one, described in the result and on stderr;
 * LOCO_EINVAL: no such scenario or option; LOCO_ENOMEM. */
int sim_run(const struct sim_options *opt, struct sim_result *result);

/* Row k of the table, NULL behind the last one. */
const char *sim_scenario_name(unsigned k, const char **help);

#endif
