/* peers.c - loco peers: who is there, how fast, what each gave. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "proto/base/err.h"

/* "1.2 Mbit/s", or "-" where no speed was measured. */
static const char *speed(double bytes_per_s, char out[24])
{
    (void)snprintf(out, 24, bytes_per_s > 0 ? "%.1f Mbit/s" : "-",
                   8e-6 * bytes_per_s);
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
        answer_text(p, "short"), answer_text(p, "state"),
        self ? "this peer" : answer_text(p, "link"),
        answer_text(p, "reachability"),
        (long long)json_integer_value(json_object_get(p, "tokens_per_s")),
        speed(answer_rate(links, 0, row), out),
        speed(answer_rate(links, row, 0), in),
        (long long)json_integer_value(json_object_get(p, "rounds")), tokens,
        sum > 0 ? 100 * tokens / sum : 0,
        json_is_true(json_object_get(p, "convicted")) ? "  convicted"
        : json_is_true(json_object_get(p, "in_view")) ? ""
                                                      : "  not in the view");
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
    struct cli_target target = {NULL, NULL};
    bool as_json = false;
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(target),
        {"--json", CLI_FLAG, &as_json, NULL, "print one JSON object"},
    };
    char *body;
    json_t *all;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? cli_ask(&target, "/api/v1/peers", &body, &all) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (as_json) {
        (void)printf("%s\n", body);
    } else {
        print_peers(all);
    }
    json_decref(all);
    free(body);
    return LOCO_EXIT_OK;
}
