/* run_defences.h - loco run create: what an open run does against members that
 * lie. The author's --set always counts. */
#ifndef LOCO_DAEMON_CLI_RUN_DEFENCES_H
#define LOCO_DAEMON_CLI_RUN_DEFENCES_H

#include "daemon/cli/cli.h"
#include "proto/manifest.h"

/* A gate (sync.rollback) for an open run that can have one and has held-out
 * text, unless --set says otherwise. A robust mean for an open run that can
 * have one, unless --set says sync.robust, sync.norm_clip or another topology.
 * --set sync.robust=centred alone brings its radius and its topology along, in
 * any run. An audit of sums for an open run that has a robust mean and can have
 * one, unless --set says sync.audit; --set sync.audit=sums, or work, alone
 * brings its topology along, in any run that can have one. */
void run_defences_fit(struct manifest *m, const struct cli_list *set);

/* On stderr, of an open run: what was chosen; or why a defence is missing, and
 * the nearest run that has it. Without a robust mean nothing is said of audits:
 * the nearest run that has one can have the other. */
void run_defences_say(const struct manifest *m, const struct cli_list *set);

#endif
