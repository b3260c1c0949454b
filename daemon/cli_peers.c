/* cli_peers.c - loco peers: who is there, how fast, what each gave. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli.h"
#include "daemon/cli_http.h"
#include "proto/base/err.h"

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value == NULL ? "-" : value;
}

/* Speed of the link between two rows as "1.2 Mbit/s", or "-". */
static const char *
speed(const json_t *links, size_t from, size_t to, char out[24])
{
    (void)snprintf(out, 24, "-");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *one = json_array_get(links, i);

        if ((size_t)json_integer_value(json_array_get(one, 0)) == from &&
            (size_t)json_integer_value(json_array_get(one, 1)) == to) {
            (void)snprintf(
                out, 24, "%.1f Mbit/s",
                8e-6 * (double)json_integer_value(json_array_get(one, 2)));
        }
    }
    return out;
}

static void print_peer(const json_t *all, size_t row, double sum)
{
    const json_t *p = json_array_get(json_object_get(all, "peers"), row);
    const json_t *links = json_object_get(all, "links");
    double tokens = json_number_value(json_object_get(p, "tokens"));
    bool self = json_is_true(json_object_get(p, "self"));
    char out[24], in[24];

    (void)printf(
        "%-12s %-8s %-9s %-10s %8lld %14s %14s %7lld %12.0f %4.0f%%%s\n",
        text(p, "short"), text(p, "state"),
        self ? "this peer" : text(p, "link"), text(p, "reachability"),
        (long long)json_integer_value(json_object_get(p, "tokens_per_s")),
        speed(links, 0, row, out), speed(links, row, 0, in),
        (long long)json_integer_value(json_object_get(p, "rounds")), tokens,
        sum > 0 ? 100 * tokens / sum : 0,
        json_is_true(json_object_get(p, "in_view")) ? "" : "  not in the view");
}

static void print_peers(const json_t *all)
{
    const json_t *peers = json_object_get(all, "peers");
    double sum = 0;

    for (size_t i = 0; i < json_array_size(peers); i++) {
        sum += json_number_value(
            json_object_get(json_array_get(peers, i), "tokens"));
    }
    (void)printf("%-12s %-8s %-9s %-10s %8s %14s %14s %7s %12s %5s\n", "peer",
                 "state", "link", "reached", "tokens/s", "to it", "from it",
                 "rounds", "tokens given", "share");
    for (size_t i = 0; i < json_array_size(peers); i++) {
        print_peer(all, i, sum);
    }
}

int cli_peers(const struct cli_call *call)
{
    const char *state = NULL, *control = NULL;
    bool as_json = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR", "the daemon's state directory"},
        {"--control", CLI_TEXT, &control, "ADDRESS", "or where it listens"},
        {"--json", CLI_FLAG, &as_json, NULL, "print one JSON object"},
    };
    struct http_daemon daemon;
    char errmsg[HTTP_ERRMSG_MAX];
    char *body = NULL;
    json_t *all;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    rv = http_target(state, control, &daemon);
    if (rv != 0) {
        return rv;
    }
    if (http_get(&daemon, "/api/v1/peers", &body, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    all = json_loads(body, 0, NULL);
    rv = LOCO_EXIT_OK;
    if (!json_is_object(all)) {
        rv = cli_fail(TROUBLE_ANSWER, "the daemon's answer is no list");
    } else if (as_json) {
        (void)printf("%s\n", body);
    } else {
        print_peers(all);
    }
    json_decref(all);
    free(body);
    return rv;
}
