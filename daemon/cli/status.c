/* status.c - loco status, pause, resume, drain. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "daemon/visit/http.h"
#include "proto/base/err.h"

/* ---- status ------------------------------------------------------------- */

/* node/status.def, "part" and "show". */
enum show { ALWAYS, KNOWN, MANY, MISSING, SYNCING, NOT_SYNCING, NAMED };

struct part {
    const char *label; /* of the line that begins here; NULL: it goes on */
    const char *before;
    enum show show;
    double unit;
    int digits;
    const char *after; /* NULL: the field is not in a line */
};

/* clang-format off */
#define NO_PART {NULL, NULL, ALWAYS, 0, 0, NULL}
#define LINE(label, show, unit, digits, after)                                 \
    {label, "", show, unit, digits, after}
#define AND(before, show, unit, digits, after)                                 \
    {NULL, before, show, unit, digits, after}
/* clang-format on */

static const struct {
    const char *key;
    struct part part;
} fields[] = {
#define FIELD(type, member, key, kind, metric, part) {key, part},
#define SHOWN(value, key, kind, metric, part)        {key, part},
#include "daemon/node/status.def"
};

/* Words of the status that people read otherwise. */
static const struct {
    const char *word, *name;
} names[] = {
    {"url", "its URL"},
};

static const char *name_of(const char *word)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].word, word) == 0) {
            return names[i].name;
        }
    }
    return word;
}

/* The object that a field is in, NULL where that is null; *key becomes the
 * field's name in it. */
static const json_t *object_of(const json_t *status, const char **key)
{
    const char *dot = strchr(*key, '.');
    char outer[32];

    if (dot == NULL) {
        return status;
    }
    (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - *key), *key);
    *key = dot + 1;
    status = json_object_get(status, outer);
    return json_is_object(status) ? status : NULL;
}

static bool is_known(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value)[0] != '\0'
                                 : json_is_number(value) || json_is_true(value);
}

static bool is_shown(enum show show,
                     const json_t *status,
                     const json_t *o,
                     const json_t *value)
{
    bool syncing = strcmp(answer_text(status, "state"), "syncing") == 0;

    switch (show) {
    case ALWAYS:
    case NAMED:
        return true;
    case KNOWN:
        return is_known(value);
    case MANY:
        return json_number_value(value) > 1;
    case MISSING:
        return json_number_value(value) <
               json_number_value(json_object_get(o, "of"));
    case SYNCING:
        return syncing && is_known(value);
    case NOT_SYNCING:
        return !syncing && is_known(value);
    }
    return false;
}

static void print_value(const struct part *p, const json_t *value)
{
    const char *text = json_string_value(value);

    if (json_is_number(value)) {
        (void)printf("%.*f", p->digits, p->unit * json_number_value(value));
    } else if (text != NULL) {
        (void)printf("%s", p->show == NAMED ? name_of(text) : text);
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            (void)printf("%s", i == 0 ? "" : ", ");
            print_value(p, json_array_get(value, i));
        }
    } else if (!json_is_true(value)) {
        (void)printf("-");
    }
}

static void print_fields(const json_t *status)
{
    bool in_line = false;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct part *p = &fields[i].part;
        const char *key = fields[i].key;
        const json_t *o = object_of(status, &key);
        const json_t *value = json_object_get(o, key);
        bool shown = p->after != NULL && o != NULL &&
                     is_shown(p->show, status, o, value);

        if (p->label != NULL) {
            (void)printf("%s", in_line ? "\n" : "");
            in_line = shown;
        }
        if (!shown || !in_line) {
            continue;
        }
        if (p->label != NULL) {
            (void)printf("%-11s", p->label);
        }
        (void)printf("%s", p->before);
        print_value(p, value);
        (void)printf("%s", p->after);
    }
    (void)printf("%s", in_line ? "\n" : "");
}

static void print_lost(const json_t *o)
{
    const json_t *list = json_object_get(o, "peers_lost");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *lost = json_array_get(list, i);

        (void)printf(
            "lost       %.16s in round %lld: %s, noticed after %lld "
            "ms\n",
            answer_text(lost, "peer_id"),
            (long long)json_integer_value(json_object_get(lost, "round")),
            answer_text(lost, "reason"),
            (long long)json_integer_value(
                json_object_get(lost, "detected_ms")));
    }
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

/* For those who start it again where it does not go on, as a container's health
 * check. */
static int tell_health(const struct cli_target *target)
{
    char errmsg[HTTP_ERRMSG_MAX], *body = NULL;
    struct http_daemon daemon;
    int rv = cli_target_find(target, &daemon);

    if (rv != CLI_GO) {
        return rv;
    }
    if (http_get(&daemon, "/healthz", &body, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    (void)printf("%s", body);
    free(body);
    return LOCO_EXIT_OK;
}

int cli_status(const struct cli_call *call)
{
    struct cli_target target = {NULL, NULL};
    bool as_json = false, health = false;
    const char *field = NULL;
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(target),
        {"--json", CLI_FLAG, &as_json, NULL, "print one JSON object"},
        {"--get", CLI_TEXT, &field, "FIELD", "print the value of one field"},
        {"--health", CLI_FLAG, &health, NULL,
         "print ok, or fail where its loop hangs or its trainer stands still"},
    };
    char *body;
    json_t *status;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv == CLI_GO && health) {
        return tell_health(&target);
    }
    rv = rv == CLI_GO ? cli_ask(&target, "/api/v1/status", &body, &status) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    rv = LOCO_EXIT_OK;
    if (field != NULL) {
        rv = print_field(status, field);
    } else if (as_json) {
        (void)printf("%s\n", body);
    } else {
        print_fields(status);
        print_lost(status);
    }
    json_decref(status);
    free(body);
    return rv;
}

/* ---- commands ----------------------------------------------------------- */

static int post(const struct cli_target *target, const char *path)
{
    struct http_daemon daemon;
    char errmsg[HTTP_ERRMSG_MAX];
    int rv = cli_target_find(target, &daemon);

    if (rv != CLI_GO) {
        return rv;
    }
    if (http_post(&daemon, path, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    return LOCO_EXIT_OK;
}

static int send_command(const struct cli_call *call, const char *path)
{
    struct cli_target target = {NULL, NULL};
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(target),
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    return rv == CLI_GO ? post(&target, path) : rv;
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
    struct cli_target target = {NULL, NULL};
    bool again = false;
    const struct cli_option options[] = {
        CLI_TARGET_OPTIONS(target),
        {"--restart", CLI_FLAG, &again, NULL,
         "then start again, as the locod that is installed now"},
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    return rv == CLI_GO
               ? post(&target, again ? "/api/v1/restart" : "/api/v1/drain")
               : rv;
}
