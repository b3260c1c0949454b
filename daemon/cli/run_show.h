/* run_show.h - what a run's manifest says, for people. */
#ifndef LOCO_DAEMON_CLI_RUN_SHOW_H
#define LOCO_DAEMON_CLI_RUN_SHOW_H

#include "daemon/settings/run_yaml.h"

/* On stdout: all but what the run takes of a machine. */
void run_show_text(const struct run_yaml *r);

#endif
