/* rounds.c - loco rounds, loco rounds explain: who took part, how long each
 * phase took, who was waited for, and what went wrong. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "proto/base/err.h"

#define LAST_DEFAULT 20
#define TIME_MAX     24

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value == NULL ? "" : value;
}

/* "-", "12 ms", "3.1 s", "4 min" */
static const char *duration(const json_t *ms, char out[TIME_MAX])
{
    double value = json_number_value(ms);

    if (!json_is_number(ms)) {
        (void)snprintf(out, TIME_MAX, "-");
    } else if (value < 1000) {
        (void)snprintf(out, TIME_MAX, "%.0f ms", value);
    } else if (value < 600000) {
        (void)snprintf(out, TIME_MAX, "%.1f s", value / 1000);
    } else {
        (void)snprintf(out, TIME_MAX, "%.0f min", value / 60000);
    }
    return out;
}

static const char *phase(const json_t *a, const char *name, char out[TIME_MAX])
{
    return duration(json_object_get(json_object_get(a, "phase_ms"), name), out);
}

static const char *megabytes(uint64_t bytes, char out[TIME_MAX])
{
    (void)snprintf(out, TIME_MAX, "%.1f MB", (double)bytes / 1e6);
    return out;
}

/* ---- the list --------------------------------------------------------- */

static void print_note(const json_t *a)
{
    const json_t *waited = json_object_get(a, "waited_for");
    const char *reason = text(a, "reason");
    char who[ID_SHORT_MAX], time[TIME_MAX];

    if (reason[0] != '\0') {
        (void)printf("  %s", reason);
    } else if (json_is_object(waited)) {
        (void)printf("  waited %s for %s",
                     duration(json_object_get(waited, "ms"), time),
                     answer_peer(text(waited, "peer_id"), who));
    }
    (void)putchar('\n');
}

static void print_row(const json_t *a)
{
    static const char *const phases[] = {"train", "wait", "plan", "reduce",
                                         "hash",  "vote", "apply"};
    char time[TIME_MAX];

    (void)printf("%6llu %5llu %-10s", (unsigned long long)number(a, "round"),
                 (unsigned long long)number(a, "epoch"), text(a, "outcome"));
    if (json_is_null(json_object_get(a, "members_in_plan"))) {
        (void)printf(" -/%llu",
                     (unsigned long long)number(a, "members_in_view"));
    } else {
        (void)printf(" %llu/%llu",
                     (unsigned long long)number(a, "members_in_plan"),
                     (unsigned long long)number(a, "members_in_view"));
    }
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        (void)printf(" %8s", phase(a, phases[i], time));
    }
    (void)printf(" %9s", megabytes(number(a, "bytes_sent"), time));
    print_note(a);
}

static void print_list(const json_t *list, uint64_t last)
{
    size_t n = json_array_size(list);

    (void)printf(" round epoch outcome    in  %8s %8s %8s %8s %8s %8s %8s "
                 "%9s\n",
                 "train", "wait", "plan", "reduce", "hash", "vote", "apply",
                 "sent");
    /* Newest first in the answer, newest last on a screen. */
    for (size_t i = n < last ? n : (size_t)last; i-- > 0;) {
        print_row(json_array_get(list, i));
    }
}

/* ---- one round -------------------------------------------------------- */

static void print_member(const json_t *m, bool has_plan)
{
    char who[ID_SHORT_MAX], ready[TIME_MAX], voted[TIME_MAX];
    const char *lost = text(m, "lost");

    const char *in = json_is_true(json_object_get(m, "in_plan"))
                         ? json_is_true(json_object_get(m, "gateway"))
                               ? "in the plan as its site's gateway, "
                               : "in the plan, "
                         : "not in the plan, ";

    (void)printf("  %s%s  %s", answer_peer(text(m, "peer_id"), who),
                 json_is_true(json_object_get(m, "self")) ? " (this peer)" : "",
                 has_plan ? in : "");
    (void)printf("%llu tokens, ready after %s, voted after %s%s%s\n",
                 (unsigned long long)number(m, "tokens"),
                 duration(json_object_get(m, "ready_ms"), ready),
                 duration(json_object_get(m, "voted_ms"), voted),
                 lost[0] == '\0' ? "" : "; lost: ", lost);
}

static void print_phases(const json_t *a)
{
    const json_t *waited = json_object_get(a, "waited_for");
    char t[TIME_MAX], who[ID_SHORT_MAX];

    (void)printf("  train   %s\n", phase(a, "train", t));
    (void)printf("  wait    %s for the contributions of others",
                 phase(a, "wait", t));
    if (json_is_object(waited)) {
        (void)printf(", the last was %s",
                     answer_peer(text(waited, "peer_id"), who));
    }
    (void)printf("\n  plan    %s\n", phase(a, "plan", t));
    (void)printf("  reduce  %s", phase(a, "reduce", t));
    (void)printf(" (reduce-scatter %s,", phase(a, "scatter", t));
    (void)printf(" all-gather %s)\n", phase(a, "gather", t));
    (void)printf("  hash    %s\n", phase(a, "hash", t));
    (void)printf("  vote    %s\n", phase(a, "vote", t));
    (void)printf("  apply   %s\n", phase(a, "apply", t));
}

static void print_traffic(const json_t *a)
{
    char t[TIME_MAX];

    (void)printf("  sent    %s, %llu of %llu segments\n",
                 megabytes(number(a, "bytes_sent"), t),
                 (unsigned long long)number(a, "segments_sent"),
                 (unsigned long long)number(a, "segments_to_send"));
    (void)printf("  got     %s, %llu of %llu segments\n",
                 megabytes(number(a, "bytes_received"), t),
                 (unsigned long long)number(a, "segments_received"),
                 (unsigned long long)number(a, "segments_to_receive"));
    if (number(a, "elements_inherited") > 0) {
        (void)printf("  kept    %llu elements that an earlier attempt had "
                     "finished\n",
                     (unsigned long long)number(a, "elements_inherited"));
    }
}

static void print_attempt(const json_t *a)
{
    const json_t *members = json_object_get(a, "members");
    time_t began = (time_t)number(a, "began_s");
    const char *reason = text(a, "reason"), *trouble = text(a, "trouble");
    char when[32] = "", took[TIME_MAX];
    struct tm tm;

    if (gmtime_r(&began, &tm) != NULL) {
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    }
    (void)printf("round %llu %s in %s%s%s\n",
                 (unsigned long long)number(a, "round"), text(a, "outcome"),
                 duration(json_object_get(a, "took_ms"), took),
                 reason[0] == '\0' ? "" : ": ", reason);
    (void)printf("  view    %llu, begun %s\n",
                 (unsigned long long)number(a, "epoch"), when);
    if (trouble[0] != '\0' && strcmp(trouble, reason) != 0) {
        (void)printf("  noticed %s\n", trouble);
    }
    print_phases(a);
    print_traffic(a);
    for (size_t i = 0; i < json_array_size(members); i++) {
        print_member(json_array_get(members, i),
                     !json_is_null(json_object_get(a, "members_in_plan")));
    }
}

/* ---- commands ----------------------------------------------------------- */

struct asked {
    struct cli_target target;
    bool json;
    uint64_t last, round; /* round 0: all */
};

static int show(const struct asked *a)
{
    char path[64], *body;
    json_t *o, *list;
    int rv;

    (void)snprintf(path, sizeof path,
                   a->round == 0 ? "/api/v1/rounds"
                                 : "/api/v1/rounds?round=%llu",
                   (unsigned long long)a->round);
    rv = cli_ask(&a->target, path, &body, &o);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = LOCO_EXIT_OK;
    list = json_object_get(o, "rounds");
    if (a->json) {
        (void)printf("%s\n", body);
    } else if (a->round == 0) {
        print_list(list, a->last);
    } else if (json_array_size(list) == 0) {
        rv = cli_fail(TROUBLE_NO_ROUND,
                      "this daemon has no record of round %llu; loco rounds "
                      "lists those that it has",
                      (unsigned long long)a->round);
    }
    for (size_t i = 0; a->round != 0 && !a->json && i < json_array_size(list);
         i++) {
        print_attempt(json_array_get(list, i));
    }
    json_decref(o);
    free(body);
    return rv;
}

int cli_rounds(const struct cli_call *call)
{
    struct asked a = {.last = LAST_DEFAULT};
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(a.target),
        {"--last", CLI_COUNT, &a.last, "N", "number of attempts to list (20)"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    return rv != CLI_GO ? rv : show(&a);
}

int cli_rounds_explain(const struct cli_call *call)
{
    struct cli_list words = {0};
    struct asked a = {0};
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(a.target),
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    char *end;
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    a.round = strtoull(words.item[0], &end, 10);
    if (*end != '\0' || a.round == 0) {
        return cli_fail(TROUBLE_USAGE,
                        "rounds explain: '%s' is not the number of a round",
                        words.item[0]);
    }
    return show(&a);
}
