/* cli_status.c - loco status, pause, resume, drain. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli.h"
#include "daemon/cli_http.h"
#include "proto/base/err.h"

struct target {
    const char *state, *control;
};

/* ---- status ------------------------------------------------------------- */

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text == NULL ? "-" : text;
}

static void print_number(const json_t *o, const char *key, int digits)
{
    const json_t *value = json_object_get(o, key);

    if (json_is_number(value)) {
        (void)printf("%.*f", digits, json_number_value(value));
    } else {
        (void)printf("-");
    }
}

static void print_lost(const json_t *o)
{
    const json_t *list = json_object_get(o, "peers_lost");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *lost = json_array_get(list, i);

        (void)printf(
            "lost       %.16s in round %lld: %s, noticed after %lld "
            "ms\n",
            text_of(lost, "peer_id"),
            (long long)json_integer_value(json_object_get(lost, "round")),
            text_of(lost, "reason"),
            (long long)json_integer_value(
                json_object_get(lost, "detected_ms")));
    }
}

/* What comes in, and when it will be here. */
static void print_fetch(const json_t *o)
{
    const json_t *f = json_object_get(o, "fetch");
    bool syncing = strcmp(text_of(o, "state"), "syncing") == 0;
    const json_t *left = json_object_get(f, "catch_up_s");
    const json_t *eta = json_is_number(left) ? left
                        : syncing            ? json_object_get(o, "eta_s")
                                             : NULL;
    long long behind =
        (long long)json_integer_value(json_object_get(f, "rounds_behind"));

    if (!json_is_object(f)) {
        return;
    }
    (void)printf("fetching   %.1f of %.1f MB from %s, %.2f MB/s",
                 json_number_value(json_object_get(f, "bytes")) / 1e6,
                 json_number_value(json_object_get(f, "of_bytes")) / 1e6,
                 strcmp(text_of(f, "from"), "url") == 0 ? "its URL" : "peers",
                 json_number_value(json_object_get(f, "bytes_per_s")) / 1e6);
    if (behind > 1) {
        (void)printf(", %lld rounds behind", behind);
    }
    if (json_is_number(eta)) {
        (void)printf(", %.0f s left", json_number_value(eta));
    }
    (void)putchar('\n');
}

/* Of the data, while some is still to come. */
static void print_shards(const json_t *o)
{
    const json_t *s = json_object_get(o, "shards");
    const json_t *left = json_object_get(s, "left_s");
    long long here = (long long)json_integer_value(json_object_get(s, "here"));
    long long all = (long long)json_integer_value(json_object_get(s, "of"));

    if (!json_is_object(s) || here == all) {
        return;
    }
    (void)printf("shards     %lld of %lld are here", here, all);
    if (json_is_number(left)) {
        (void)printf(", all in %.0f s", json_number_value(left));
    }
    (void)putchar('\n');
}

/* Which part of the model is here, and how busy it is. */
static void print_stage(const json_t *o)
{
    const json_t *s = json_object_get(o, "stage");
    const json_t *hosts = json_object_get(s, "hosts");

    if (!json_is_object(s)) {
        return;
    }
    (void)printf("stage      ");
    print_number(s, "number", 0);
    (void)printf(" of ");
    print_number(s, "of", 0);
    (void)printf(", hosts of each");
    for (size_t i = 0; i < json_array_size(hosts); i++) {
        (void)printf("%s %lld", i == 0 ? ":" : ",",
                     (long long)json_integer_value(json_array_get(hosts, i)));
    }
    (void)printf("; queue ");
    print_number(s, "queue", 2);
    (void)printf(", idle %.0f %%, memory %.1f MB\n",
                 100 * json_number_value(json_object_get(s, "idle")),
                 json_number_value(json_object_get(s, "memory_bytes")) / 1e6);
}

static void print_text(const json_t *o)
{
    (void)printf("state      %s%s%s%s\n", text_of(o, "state"),
                 json_is_true(json_object_get(o, "fork")) ? " (fork)" : "",
                 text_of(o, "reason")[0] == '\0' ? "" : ": ",
                 text_of(o, "reason"));
    (void)printf("peer       %s\nrun        %s  %s\n", text_of(o, "peer_id"),
                 text_of(o, "run_id"), text_of(o, "run_name"));
    (void)printf("round      ");
    print_number(o, "round", 0);
    (void)printf(" (");
    print_number(o, "rounds_committed", 0);
    (void)printf(" committed here, ");
    print_number(o, "rounds_aborted", 0);
    (void)printf(" aborted), inner step ");
    print_number(o, "inner_step", 0);
    (void)printf("\nloss       ");
    print_number(o, "loss", 4);
    (void)printf(", held out ");
    print_number(o, "bits_per_byte", 4);
    (void)printf(" bits per byte\nspeed      ");
    print_number(o, "tokens_per_s", 0);
    (void)printf(" tokens/s, ");
    print_number(o, "tokens", 0);
    (void)printf(" tokens so far, ");
    print_number(o, "tokens_dropped", 0);
    (void)printf(" thrown away\npeers      ");
    print_number(o, "peers_alive", 0);
    (void)printf(" alive, ");
    print_number(o, "peers_in_round", 0);
    (void)printf(" in the round\nbytes      ");
    print_number(o, "bytes_sent", 0);
    (void)printf(" sent, ");
    print_number(o, "bytes_received", 0);
    (void)printf(" received\nreached    %s: %s\nparameters %s\n",
                 text_of(o, "reachability"), text_of(o, "reachability_reason"),
                 text_of(o, "params_hash"));
    print_stage(o);
    print_fetch(o);
    print_shards(o);
    print_lost(o);
}

/* One value, bare, for shell scripts; nothing for null. */
static int print_field(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    char *text;

    if (value == NULL) {
        return cli_fail(TROUBLE_USAGE, "the status has no field '%s'", key);
    }
    if (json_is_string(value)) {
        (void)printf("%s\n", json_string_value(value));
        return LOCO_EXIT_OK;
    }
    text = json_is_null(value)
               ? NULL
               : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                       JSON_REAL_PRECISION(9));
    (void)printf("%s\n", text == NULL ? "" : text);
    free(text);
    return LOCO_EXIT_OK;
}

static int show(const char *body, bool as_json, const char *field)
{
    json_t *o = json_loads(body, 0, NULL);
    int rv = LOCO_EXIT_OK;

    if (!json_is_object(o)) {
        json_decref(o);
        return cli_fail(TROUBLE_ANSWER, "the daemon's answer is no status");
    }
    if (field != NULL) {
        rv = print_field(o, field);
    } else if (as_json) {
        (void)printf("%s\n", body);
    } else {
        print_text(o);
    }
    json_decref(o);
    return rv;
}

int cli_status(const struct cli_call *call)
{
    struct target t = {NULL, NULL};
    bool as_json = false;
    const char *field = NULL;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &t.state, "DIR", "the daemon's state directory"},
        {"--control", CLI_TEXT, &t.control, "ADDRESS", "or where it listens"},
        {"--json", CLI_FLAG, &as_json, NULL, "print one JSON object"},
        {"--get", CLI_TEXT, &field, "FIELD", "print one value of it, bare"},
    };
    struct http_daemon daemon;
    char errmsg[HTTP_ERRMSG_MAX];
    char *body = NULL;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    rv = http_target(t.state, t.control, &daemon);
    if (rv != 0) {
        return rv;
    }
    if (http_get(&daemon, "/api/v1/status", &body, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    rv = show(body, as_json, field);
    free(body);
    return rv;
}

/* ---- commands ----------------------------------------------------------- */

static int send_command(const struct cli_call *call, const char *path)
{
    struct target t = {NULL, NULL};
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &t.state, "DIR", "the daemon's state directory"},
        {"--control", CLI_TEXT, &t.control, "ADDRESS", "or where it listens"},
    };
    struct http_daemon daemon;
    char errmsg[HTTP_ERRMSG_MAX];
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    rv = http_target(t.state, t.control, &daemon);
    if (rv != 0) {
        return rv;
    }
    if (http_post(&daemon, path, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    return LOCO_EXIT_OK;
}

int cli_pause(const struct cli_call *call)
{
    return send_command(call, "/api/v1/pause");
}

int cli_resume(const struct cli_call *call)
{
    return send_command(call, "/api/v1/resume");
}

int cli_reload(const struct cli_call *call)
{
    return send_command(call, "/api/v1/reload");
}

int cli_drain(const struct cli_call *call)
{
    return send_command(call, "/api/v1/drain");
}
