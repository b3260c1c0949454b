/* join_terms_internal.h - shared by join_terms.c and join_terms_show.c only. */
#ifndef LOCO_DAEMON_CLI_JOIN_TERMS_INTERNAL_H
#define LOCO_DAEMON_CLI_JOIN_TERMS_INTERNAL_H

#include "daemon/doctor/probe.h"
#include "daemon/settings/config.h"
#include "daemon/settings/run_yaml.h"
#include "proto/base/file.h"

#define JOIN_DAY_S 86400.0

/* All that is agreed to. */
struct terms {
    struct uri uri;
    bool known; /* the run is */
    struct run_yaml run;
    struct config config;
    struct run_needs needs;
    double open;        /* share of the week that the schedule leaves */
    double step_s;      /* of two processor cores */
    double round_s;     /* with that, and the exchange at `line` */
    double line;        /* bytes per second */
    uint64_t day_bytes; /* each way */
    struct doctor_facts facts;
    struct doctor_options options;
    struct doctor_line line_of[DOCTOR_CHECK_COUNT];
    char state[FILE_PATH_MAX];
};

/* All of it, on standard output. */
void join_terms_print(const struct terms *t);

#endif
