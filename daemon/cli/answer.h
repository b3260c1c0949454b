/* answer.h - what a daemon answered, read key by key and shown to people.
 *
 * Of a key that is missing, and of a value of another type, the number is 0 and
 * the text "-".
 */
#ifndef LOCO_DAEMON_CLI_ANSWER_H
#define LOCO_DAEMON_CLI_ANSWER_H

#include <jansson.h>

#include "daemon/visit/http.h"
#include "proto/id.h"

/* Which daemon a command asks: of --state or --control; of neither: that of the
 * configured state directory. */
struct cli_target {
    const char *state, *control;
};

/* The rows of a command's options that fill in a target. */
#define CLI_TARGET_OPTIONS(target)                                             \
    {"--state", CLI_TEXT, &(target).state, "DIR",                              \
     "the daemon's state directory"},                                          \
    {                                                                          \
        "--control", CLI_TEXT, &(target).control, "ADDRESS",                   \
            "or its control address"                                           \
    }

/* CLI_GO, or an exit code after a sentence. */
int cli_target_find(const struct cli_target *t, struct http_daemon *daemon);

/* GET a path: CLI_GO and its JSON object, as text and parsed; the caller ends
 * them with free() and json_decref(). Else an exit code after a sentence. */
int cli_ask(const struct cli_target *t,
            const char *path,
            char **body,
            json_t **answer);

static inline double answer_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static inline const char *answer_text(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));

    return v == NULL ? "-" : v;
}

/* The short form of a peer id in hex; "?" where it is none. Returns `out`. */
const char *answer_peer(const char *hex, char out[ID_SHORT_MAX]);

/* Of the links in /api/v1/peers: bytes per second that were measured from one
 * row of its list to another; 0: none were. */
double answer_rate(const json_t *links, size_t from, size_t to);

/* 1234567, "B" -> "1.2 MB". Returns `out`. */
const char *answer_scaled(double v, const char *unit, char out[24]);

/* Progress from 0 to 1 as a bar of so many characters; out[width + 1]. */
void answer_bar(double progress, int width, char *out);

#endif
