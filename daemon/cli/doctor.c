/* doctor.c - loco doctor: what is wrong here, and what to do. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/doctor/probe.h"
#include "daemon/settings/config.h"
#include "proto/base/err.h"

#define LIMIT_DEFAULT_S 5
#define LIMIT_MAX_S     600

struct asked {
    const char *state, *control, *listen, *run, *join, *device, *clock_url;
    double limit_s;
    bool bandwidth, json;
};

static void print_lines(const struct doctor_line line[DOCTOR_CHECK_COUNT])
{
    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        const struct doctor_line *l = &line[i];

        if (l->level != DOCTOR_UNCHECKED) {
            (void)printf("%-8s %-10s %s\n", doctor_level_name(l->level),
                         doctor_check_name((enum doctor_check)i), l->what);
            if (l->fix[0] != '\0') {
                (void)printf("%-8s %-10s -> %s\n", "", "", l->fix);
            }
        }
    }
    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        if (line[i].level == DOCTOR_UNCHECKED) {
            (void)printf("%-8s %-10s not checked, %s. %s\n", "-",
                         doctor_check_name((enum doctor_check)i), line[i].what,
                         line[i].fix);
        }
    }
}

static json_t *line_json(int check, const struct doctor_line *l)
{
    json_t *o = json_object();
    bool unchecked = l->level == DOCTOR_UNCHECKED;

    json_object_set_new(
        o, "check", json_string(doctor_check_name((enum doctor_check)check)));
    if (!unchecked) {
        json_object_set_new(o, "level",
                            json_string(doctor_level_name(l->level)));
    }
    json_object_set_new(o, unchecked ? "why" : "what", json_string(l->what));
    json_object_set_new(o, "fix",
                        l->fix[0] == '\0' ? json_null() : json_string(l->fix));
    return o;
}

static void print_json(const struct doctor_line line[DOCTOR_CHECK_COUNT],
                       unsigned n_problems)
{
    json_t *o = json_object(), *checks = json_array(), *rest = json_array();

    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        json_array_append_new(line[i].level == DOCTOR_UNCHECKED ? rest : checks,
                              line_json(i, &line[i]));
    }
    json_object_set_new(o, "ok", json_boolean(n_problems == 0));
    json_object_set_new(o, "problems", json_integer(n_problems));
    json_object_set_new(o, "checks", checks);
    json_object_set_new(o, "not_checked", rest);
    (void)cli_print_json(o, JSON_INDENT(1));
}

/* Settings of locod where nothing was said on the command line. A mistake in
 * them is a finding, not the end. */
static void
fill_in(struct asked *a, const struct config *c, struct fact_settings *fact)
{
    bool any_run = a->run != NULL || a->join != NULL || a->control != NULL;

    if (a->state == NULL) {
        a->state = c->state[0] == '\0' ? "." : c->state;
    }
    a->listen = a->listen != NULL ? a->listen : c->listen;
    a->device = a->device != NULL ? a->device : c->device;
    if (!any_run && fact->rc == 0) {
        a->run = c->run[0] == '\0' ? NULL : c->run;
        a->join = c->join[0] == '\0' ? NULL : c->join;
    }
}

static int examine(struct asked *a)
{
    struct doctor_facts *facts = calloc(1, sizeof *facts);
    struct config *config = calloc(1, sizeof *config);
    struct doctor_options *opt = calloc(1, sizeof *opt);
    struct uri *uri = calloc(1, sizeof *uri);
    struct doctor_line line[DOCTOR_CHECK_COUNT];
    char *no_arguments[] = {NULL};
    char errmsg[LOCO_ERRMSG_MAX];
    unsigned n_problems = 0;
    bool all;

    if (facts == NULL || config == NULL || opt == NULL || uri == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    facts->settings.rc =
        config_parse(0, no_arguments, config, facts->settings.errmsg);
    fill_in(a, config, &facts->settings);
    if (a->join != NULL && uri_parse(a->join, uri, errmsg) != 0) {
        return cli_fail(TROUBLE_USAGE, "%s", errmsg);
    }
    *opt = (struct doctor_options){
        .state = a->state,
        .control = a->control,
        .listen = a->listen,
        .run = a->run,
        .uri = a->join == NULL ? NULL : uri,
        .clock_url = a->clock_url,
        .wants_cuda = strcmp(a->device, "cuda") == 0,
        .host = {.threads = (int)config->threads,
                 .keep = (unsigned)config->keep,
                 .gpu = strcmp(a->device, "cuda") == 0,
                 .gpu_fp32 = strcmp(config->dtype, "fp32") == 0,
                 .cpu_fallback = strcmp(config->gpu_fallback, "cpu") == 0,
                 .socket = strcmp(config->trainer, "socket") == 0},
        .bandwidth = a->bandwidth,
        .gpu_cap_bytes = config->gpu_memory_bytes,
        .limit_ms = (uint32_t)(a->limit_s * 1000),
    };
    all = doctor_find(opt, facts);
    doctor_judge(facts, line);
    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        n_problems += line[i].level == DOCTOR_PROBLEM;
    }
    if (a->json) {
        print_json(line, n_problems);
    } else {
        print_lines(line);
    }
    for (uint32_t i = 0; i < facts->n_hosts; i++) {
        free(facts->host[i].contact.manifest);
    }
    free(facts);
    if (all) { /* else a late probe still reads them */
        free(opt);
        free(config);
        free(uri);
    }
    return n_problems == 0 ? LOCO_EXIT_OK : LOCO_EXIT_FAILURE;
}

int cli_doctor(const struct cli_call *call)
{
    struct asked a = {.limit_s = LIMIT_DEFAULT_S};
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &a.state, "DIR", "the daemon's state directory"},
        {"--control", CLI_TEXT, &a.control, "ADDRESS",
         "a running daemon's control address"},
        {"--join", CLI_TEXT, &a.join, "URI", "run to join"},
        {"--run", CLI_TEXT, &a.run, "FILE", "run.yaml to start"},
        {"--listen", CLI_TEXT, &a.listen, "HOST:PORT",
         "address that the daemon will listen on"},
        {"--device", CLI_TEXT, &a.device, "cpu|cuda",
         "device that it will train on"},
        {"--bandwidth", CLI_FLAG, &a.bandwidth, NULL,
         "time a download of at most 8 MB in 3 s from the bootstrap"},
        {"--clock-url", CLI_TEXT, &a.clock_url, "URL",
         "compare the clock with this HTTP server's Date"},
        {"--limit", CLI_REAL, &a.limit_s, "SECONDS",
         "time limit of each check; all run at once (5)"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (!(a.limit_s >= 0.1 && a.limit_s <= LIMIT_MAX_S)) {
        return cli_fail(TROUBLE_USAGE, "--limit: 0.1 to %d seconds",
                        LIMIT_MAX_S);
    }
    if (a.bandwidth && a.join == NULL) {
        return cli_fail(
            TROUBLE_USAGE,
            "--bandwidth needs --join URI: the peer to download from");
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* before there are threads */
    return examine(&a);
}
