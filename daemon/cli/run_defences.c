/* run_defences.c - see run_defences.h. */
#include "daemon/cli/run_defences.h"

#include <stdio.h>
#include <string.h>

#include "daemon/settings/defences.h"
#include "daemon/settings/method_manifest.h"

/* The author has decided. */
static bool decided(const struct cli_list *set)
{
    return cli_is_set(set, "sync.robust") || cli_is_set(set, "sync.norm_clip");
}

/* sync.robust=centred, completed. */
static void complete(struct manifest_sync *sync, const struct cli_list *set)
{
    struct manifest_sync whole = *sync;

    defence_robust(&whole);
    if (!cli_is_set(set, "sync.norm_clip")) {
        sync->norm_clip = whole.norm_clip;
    }
    if (!cli_is_set(set, "sync.topology")) {
        memcpy(sync->topology, whole.topology, sizeof sync->topology);
    }
}

static void fit_mean(struct manifest *m, const struct cli_list *set)
{
    bool other_topology = cli_is_set(set, "sync.topology") &&
                          !text_is(m->sync.topology, "butterfly");
    struct method method;

    if (text_is(m->sync.robust, "centred")) {
        complete(&m->sync, set);
        return;
    }
    if (m->invited || decided(set) || other_topology ||
        method_from_manifest(&method, m, SCOPE_RUN, NULL) != 0) {
        return;
    }
    if (defence_lack(DEFENCE_ROBUST_MEAN, &method, m) == NULL) {
        defence_robust(&m->sync);
    }
}

static void say_mean(const struct manifest *m, const struct cli_list *set)
{
    const struct defence_lack *lack;
    struct method method;

    if (m->invited || decided(set) ||
        method_from_manifest(&method, m, SCOPE_RUN, NULL) != 0) {
        return;
    }
    if (defence_is_robust(&m->sync)) {
        (void)fprintf(stderr,
                      "anybody may join this run, so its averages are robust: "
                      "from 3 members on, a few that lie cannot move one far "
                      "(sync.topology=%s, sync.norm_clip=%g, sync.robust=%s; "
                      "--set sync.robust=off turns it off)\n",
                      m->sync.topology, m->sync.norm_clip, m->sync.robust);
        return;
    }
    lack = defence_lack(DEFENCE_ROBUST_MEAN, &method, m);
    (void)fprintf(
        stderr,
        "warning: anybody may join this run, and one member that lies can "
        "spoil the model, because its averages are not robust: %s; the "
        "nearest run that has robust averages: %s; or let invited peers in "
        "only: --set invited=true\n",
        lack == NULL ? "a ring hides what each member sends" : lack->reason,
        lack == NULL ? "--set sync.topology=butterfly" : lack->nearest);
}

/* To measure there must be text that nobody trains on. */
static bool has_held_out(const struct manifest *m)
{
    bool has = false;

    for (uint32_t i = 0; i < m->data.n_shards; i++) {
        has = has || m->data.shards[i].val;
    }
    return has;
}

static void fit_gate(struct manifest *m, const struct cli_list *set)
{
    struct method method;

    if (!m->invited && !cli_is_set(set, "sync.rollback") && has_held_out(m) &&
        method_from_manifest(&method, m, SCOPE_RUN, NULL) == 0 &&
        defence_lack(DEFENCE_GATE, &method, m) == NULL) {
        defence_gate(&m->sync);
    }
}

/* An audit that the author asks for needs owners of slices, in any run. */
static void fit_slices(struct manifest *m, const struct cli_list *set)
{
    if (audit_has_sums(m->sync.audit) && !cli_is_set(set, "sync.topology")) {
        defence_slices(&m->sync);
    }
}

/* Else a robust mean brings them. */
static void fit_audit(struct manifest *m, const struct cli_list *set)
{
    struct method method;

    if (!m->invited && !cli_is_set(set, "sync.audit") &&
        defence_is_robust(&m->sync) &&
        method_from_manifest(&method, m, SCOPE_RUN, NULL) == 0 &&
        defence_lack(DEFENCE_AUDIT_OF_SUMS, &method, m) == NULL) {
        defence_audit(&m->sync);
    }
}

void run_defences_fit(struct manifest *m, const struct cli_list *set)
{
    fit_slices(m, set);
    fit_mean(m, set);
    fit_audit(m, set);
    fit_gate(m, set);
}

static void say_gate(const struct manifest *m, const struct cli_list *set)
{
    const struct defence_lack *lack;
    struct method method;

    if (m->invited || cli_is_set(set, "sync.rollback") ||
        method_from_manifest(&method, m, SCOPE_RUN, NULL) != 0) {
        return;
    }
    if (m->sync.rollback > 0) {
        (void)fprintf(stderr,
                      "a round that makes the model worse by more than %g bits "
                      "per byte of held-out text is taken back "
                      "(sync.rollback=%g; --set sync.rollback=0 turns it "
                      "off)\n",
                      m->sync.rollback, m->sync.rollback);
        return;
    }
    lack = defence_lack(DEFENCE_GATE, &method, m);
    (void)fprintf(
        stderr,
        "warning: a round that ruins the model of this open run is not taken "
        "back: %s; the nearest run in which it is: %s\n",
        lack == NULL ? "there is no held-out text" : lack->reason,
        lack == NULL ? "text packed with --val-bytes" : lack->nearest);
}

/* The default has none: it is new. */
static void say_work(const struct method *method, const struct manifest *m)
{
    const struct defence_lack *lack =
        defence_lack(DEFENCE_AUDIT_OF_WORK, method, m);

    if (lack == NULL) {
        (void)fprintf(stderr,
                      "a member that makes its work up is not named; with "
                      "--set sync.audit=work members make some of each other's "
                      "work again and put it out (new; 5 %% of their time)\n");
    } else {
        (void)fprintf(stderr,
                      "a member that makes its work up is not named, and this "
                      "run cannot have audits of work: %s; the nearest run "
                      "that can: %s\n",
                      lack->reason, lack->nearest);
    }
}

/* Without a robust mean say_mean() has warned already, or the author did not
 * want one. */
static void say_audit(const struct manifest *m, const struct cli_list *set)
{
    const struct defence_lack *lack;
    struct method method;

    if (text_is(m->sync.audit, "work")) {
        (void)fprintf(stderr,
                      "members make some of each other's work again, 5 %% of "
                      "their time, and put out whoever made its own up "
                      "(sync.audit=work; new: machines of different kinds were "
                      "tried with small models only); work that comes later "
                      "than round.grace_ms after that of most is dropped%s\n",
                      defence_is_robust(&m->sync)
                          ? ""
                          : "; without a robust mean (sync.robust=centred) one "
                            "huge contribution hides what others made up");
        return;
    }
    if (m->invited || cli_is_set(set, "sync.audit") ||
        !defence_is_robust(&m->sync) ||
        method_from_manifest(&method, m, SCOPE_RUN, NULL) != 0) {
        return;
    }
    if (defence_is_audited(&m->sync)) {
        (void)fprintf(stderr,
                      "after each round members make parts of each other's "
                      "sums again, and keep the proof against one that lied "
                      "(sync.audit=%s; --set sync.audit=off turns it off)\n",
                      m->sync.audit);
        say_work(&method, m);
        return;
    }
    lack = defence_lack(DEFENCE_AUDIT_OF_SUMS, &method, m);
    if (lack != NULL) {
        (void)fprintf(stderr,
                      "warning: nobody makes the sums of this open run again, "
                      "so a member can put any bytes into its slice of the "
                      "result: %s; the nearest run with an audit of sums: %s\n",
                      lack->reason, lack->nearest);
    }
}

void run_defences_say(const struct manifest *m, const struct cli_list *set)
{
    say_mean(m, set);
    say_audit(m, set);
    say_gate(m, set);
}
