/* join_terms.c - see join_terms.h. */
#include "daemon/cli/join_terms.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/join_terms_internal.h"
#include "daemon/settings/courtesy.h"
#include "daemon/settings/memory_limit.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

#define VISIT_MS    3000  /* an answer is sooner, or the daemon asks */
#define PROBE_MS    20000 /* a GPU, a disk */
#define CONSENT_MAX 512

/* ---- the figures --------------------------------------------------------- */

/* A share of the week in which it may train. */
static double share_of_week(const char *text)
{
    struct courtesy_schedule s;
    char errmsg[COURTESY_ERRMSG_MAX];
    unsigned open = 0;

    if (courtesy_schedule_parse(&s, text, errmsg) != 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof s.open; i++) {
        open += (unsigned)__builtin_popcount(s.open[i]);
    }
    return open / (double)COURTESY_WEEK_MIN;
}

static void estimate_traffic(struct terms *t)
{
    const struct manifest *m = &t->run.manifest;
    double cap = (double)t->config.upload_bytes_per_s;

    t->open = share_of_week(t->config.schedule);
    t->line = RUN_USUAL_MBIT * 1e6 / 8;
    t->line = cap > 0 && cap < t->line ? cap : t->line;
    t->step_s = run_step_s(m, t->needs.parameters);
    t->round_s = run_round_s(m, &t->needs, t->step_s, t->line);
    if (t->round_s > 0) {
        double day =
            (double)t->needs.round_bytes * t->open * JOIN_DAY_S / t->round_s;

        t->day_bytes = day < 1e18 ? (uint64_t)day : (uint64_t)1e18;
    }
}

static int load_settings(struct terms *t, const char *state)
{
    char errmsg[CONFIG_ERRMSG_MAX], *none[] = {NULL};

    if (config_parse(0, none, &t->config, errmsg) != 0) {
        return cli_fail(trouble_of_settings(t->config.exit_code), "%s", errmsg);
    }
    (void)snprintf(t->state, sizeof t->state, "%s", state);
    t->options = (struct doctor_options){
        .state = t->state,
        .wants_cuda = strcmp(t->config.device, "cuda") == 0,
        .host = {.threads = (int)t->config.threads,
                 .keep = (unsigned)t->config.keep,
                 .socket = strcmp(t->config.trainer, "socket") == 0},
        .question = true,
        .gpu_cap_bytes = t->config.gpu_memory_bytes,
        .limit_ms = PROBE_MS,
        .hosts_ms = VISIT_MS,
    };
    t->options.host.gpu = t->options.wants_cuda;
    t->options.host.gpu_fp32 = strcmp(t->config.dtype, "fp32") == 0;
    t->options.host.cpu_fallback = strcmp(t->config.gpu_fallback, "cpu") == 0;
    return CLI_GO;
}

/* By their lengths: a file has its name once its hash was right. */
static bool all_shards_here(const struct terms *t)
{
    const struct manifest_data *data = &t->run.manifest.data;
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct stat st;

    if (file_path_join(dir, t->state, STATE_DIR_SHARDS, NULL) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < data->n_shards; i++) {
        const struct manifest_shard *s = &data->shards[i];

        if (file_path_join(path, dir, s->name, NULL) != 0 ||
            stat(path, &st) != 0 || (uint64_t)st.st_size != s->bytes) {
            return false;
        }
    }
    return true;
}

static void know_run(struct terms *t)
{
    t->known = true;
    t->needs = run_needs(&t->run.manifest, &t->options.host);
    if (all_shards_here(t)) {
        t->needs.disk_bytes -= t->needs.spare_bytes;
    }
    estimate_traffic(t);
}

/* The manifest of an earlier time, where there is one. */
static int load_kept(struct terms *t)
{
    char path[FILE_PATH_MAX], hex[ID_HEX_MAX], errmsg[LOCO_ERRMSG_MAX] = "";
    int rv = file_path_join(path, t->state, STATE_DIR_MANIFEST, errmsg);

    if (rv == 0 && access(path, F_OK) != 0) {
        return CLI_GO;
    }
    rv = rv == 0 ? run_yaml_load_kept(path, &t->run, errmsg) : rv;
    if (rv != 0) {
        return cli_fail(TROUBLE_MANIFEST, "%s",
                        errmsg[0] == '\0' ? loco_strerror(rv) : errmsg);
    }
    if (!hash32_eq(&t->run.run_id, &t->uri.run)) {
        hash32_hex(&t->run.run_id, hex);
        return cli_fail(TROUBLE_STATE_DIR,
                        "join: %s is the state of another run, %s: choose "
                        "another directory with --state DIR",
                        t->state, hex);
    }
    know_run(t);
    return CLI_GO;
}

/* A host of the line that shows another manifest than the run's: said, and not
 * believed. */
static void tell_lie(const struct fact_host *h)
{
    const struct contact *c = &h->contact;
    char at[ADDR_TEXT_MAX];

    if ((c->has_manifest || c->errmsg[0] != '\0') &&
        uri_host_format(&h->host, at, sizeof at) > 0) {
        (void)fprintf(stderr, "not believed: %s shows %s%s\n", at,
                      c->has_manifest ? "the manifest of another run"
                                      : "no manifest of this run: ",
                      c->has_manifest ? "" : c->errmsg);
    }
}

/* What is free here; where the manifest is not known, that too: doctor visits
 * the hosts of the URI. False: a probe lives on and reads *t. */
static bool look_around(struct terms *t)
{
    bool all;

    if (!t->known) {
        (void)fprintf(stderr, "fetching the manifest of the run\n");
        t->options.uri = &t->uri;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* before the threads */
    all = doctor_find(&t->options, &t->facts);
    for (uint32_t i = 0; i < t->facts.n_hosts; i++) {
        struct contact *c = &t->facts.host[i].contact;

        if (t->facts.host[i].state != FACT_FOUND) {
            continue;
        }
        if (!t->known && c->has_manifest &&
            hash32_eq(&c->manifest_run, &t->uri.run)) {
            t->run.manifest = *c->manifest;
            t->run.run_id = c->manifest_run;
            know_run(t);
        } else if (!t->known) {
            tell_lie(&t->facts.host[i]);
        }
    }
    t->facts.memory.need_bytes = t->needs.memory_bytes;
    t->facts.memory.least_bytes = t->needs.memory_least_bytes;
    t->facts.disk.need_bytes = t->needs.disk_bytes;
    t->facts.driver.need = t->needs.gpu;
    doctor_judge(&t->facts, t->line_of);
    t->needs.memory_bytes += doctor_gpu_leaves(&t->facts);
    for (uint32_t i = 0; i < t->facts.n_hosts; i++) {
        if (t->facts.host[i].state == FACT_FOUND) {
            free(t->facts.host[i].contact.manifest);
            t->facts.host[i].contact.manifest = NULL;
        }
    }
    return all;
}

/* ---- what cannot be -------------------------------------------------------
 */

/* Not doctor's verdict but the daemon's: no use of waiting for memory that
 * this machine does not have, or for what its owner does not give. */
static int check_limits(const struct terms *t)
{
    const struct run_needs *needs = &t->needs;
    const struct config *c = &t->config;
    struct memory_limit have;
    char need[24], least[24], room[24], again[64] = "";

    memory_limit_read("", &have);
    if (c->memory_bytes > 0 && c->memory_bytes < have.bytes) {
        have =
            (struct memory_limit){c->memory_bytes, "the setting memory_bytes"};
    }
    if (needs->memory_least_bytes > have.bytes) {
        if (needs->memory_least_bytes < needs->memory_bytes) {
            (void)snprintf(
                again, sizeof again, ", at least %s,",
                answer_scaled((double)needs->memory_least_bytes, "B", least));
        }
        return cli_fail(TROUBLE_RESOURCES,
                        "join: the run needs %s of memory%s and %s has %s: use "
                        "another machine, or raise what limits it",
                        answer_scaled((double)needs->memory_bytes, "B", need),
                        again, have.whose,
                        answer_scaled((double)have.bytes, "B", room));
    }
    if (c->disk_bytes > 0 && needs->disk_bytes > c->disk_bytes) {
        return cli_fail(TROUBLE_RESOURCES,
                        "join: the run needs %s of disk and the setting "
                        "disk_bytes allows %s: raise it, or keep fewer "
                        "checkpoints (keep)",
                        answer_scaled((double)needs->disk_bytes, "B", need),
                        answer_scaled((double)c->disk_bytes, "B", room));
    }
    return CLI_GO;
}

/* Memory that other programs hold may be free when it is needed: a warning. */
static int check_machine(const struct terms *t)
{
    static const struct {
        enum doctor_check check;
        enum trouble what;
        const char *name;
    } checks[] = {
        {DOCTOR_CHECK_disk, TROUBLE_RESOURCES, "the disk does not suffice"},
        {DOCTOR_CHECK_driver, TROUBLE_DEVICE, "the GPU cannot be used"},
    };

    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        const struct doctor_line *l = &t->line_of[checks[i].check];

        if (l->level == DOCTOR_PROBLEM) {
            return cli_fail(checks[i].what, "join: %s: %s. %s", checks[i].name,
                            l->what, l->fix);
        }
    }
    return check_limits(t);
}

/* ---- the answer ---------------------------------------------------------- */

static int consent_path(const struct terms *t, char path[FILE_PATH_MAX])
{
    return file_path_join(path, t->state, STATE_DIR_CONSENT, NULL);
}

/* Whether somebody said yes to as much as this. */
static bool was_agreed(const struct terms *t)
{
    char path[FILE_PATH_MAX], hex[ID_HEX_MAX], run[ID_HEX_MAX + 1] = "";
    char *text = NULL;
    uint64_t disk, memory, gpu, day;
    size_t size;
    bool same;

    _Static_assert(ID_HEX_MAX == 65, "sscanf below reads 64 digits");
    if (consent_path(t, path) != 0 ||
        file_read_whole(path, CONSENT_MAX, &text, &size, NULL) != 0) {
        return false;
    }
    hash32_hex(&t->run.run_id, hex);
    same = sscanf(text,
                  "%64s disk %" SCNu64 " memory %" SCNu64 " gpu %" SCNu64
                  " day %" SCNu64,
                  run, &disk, &memory, &gpu, &day) == 5 &&
           strcmp(run, hex) == 0 && t->needs.disk_bytes <= disk &&
           t->needs.memory_bytes <= memory && t->needs.gpu.bytes <= gpu &&
           t->day_bytes <= day;
    free(text);
    return same;
}

/* A yes that cannot be kept is asked for again. */
static void remember(const struct terms *t)
{
    char path[FILE_PATH_MAX], hex[ID_HEX_MAX], text[CONSENT_MAX];
    char errmsg[LOCO_ERRMSG_MAX];
    int n;

    hash32_hex(&t->run.run_id, hex);
    n = snprintf(text, sizeof text,
                 "%s disk %" PRIu64 " memory %" PRIu64 " gpu %" PRIu64
                 " day %" PRIu64 "\n",
                 hex, t->needs.disk_bytes, t->needs.memory_bytes,
                 t->needs.gpu.bytes, t->day_bytes);
    if (consent_path(t, path) == 0 &&
        file_write_whole(path, text, (size_t)n, errmsg) != 0) {
        (void)fprintf(stderr, "the answer is not remembered: %s\n", errmsg);
    }
}

static int ask(const struct terms *t, const volatile sig_atomic_t *stop)
{
    char answer[16] = "";

    (void)printf("Join this run? [y/N] ");
    (void)fflush(stdout);
    if (fgets(answer, sizeof answer, stdin) == NULL || *stop > 0 ||
        (answer[0] != 'y' && answer[0] != 'Y')) {
        (void)printf("not joined; %s can be removed\n", t->state);
        return LOCO_EXIT_OK;
    }
    remember(t);
    return CLI_GO;
}

/* With t->known, or after a visit that may have brought it. */
static int judge_and_ask(const struct terms *t,
                         const volatile sig_atomic_t *stop)
{
    int rv;

    if (*stop > 0) {
        return LOCO_EXIT_OK;
    }
    if (!t->known) {
        return JOIN_TERMS_NO_RUN;
    }
    if (was_agreed(t)) {
        return CLI_GO;
    }
    rv = check_machine(t);
    if (rv == CLI_GO) {
        join_terms_print(t);
        rv = ask(t, stop);
    }
    return rv;
}

int join_terms_ask(const char *state,
                   const struct uri *u,
                   const volatile sig_atomic_t *stop)
{
    struct terms *t = calloc(1, sizeof *t);
    bool all = true;
    int rv;

    if (t == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    t->uri = *u;
    rv = load_settings(t, state);
    rv = rv == CLI_GO ? load_kept(t) : rv;
    if (rv == CLI_GO && !t->known && t->uri.has_invite) {
        rv = JOIN_TERMS_NO_RUN; /* a stranger is told nothing */
    }
    if (rv == CLI_GO && !(t->known && was_agreed(t))) {
        all = look_around(t);
        rv = judge_and_ask(t, stop);
    }
    if (all) { /* else a late probe still reads it */
        free(t);
    }
    return rv;
}
