/* http.h - ask a daemon: one request, one answer. http_many.h asks many at
 * once.
 *
 * A *daemon* is named by its control address ("HOST:PORT" or "unix:PATH"), or
 * by its state directory, where it wrote that address. Where it asks for a
 * token (control_tokens.h), the one in its state directory is shown, or that of
 * the environment, LOCO_TOKEN. libcurl, no proxies, no redirects,
 * HTTP_TIMEOUT_MS in all; an answer is at most HTTP_BODY_MAX.
 *
 * How it fails: LOCO_ENOENT when no daemon runs there, LOCO_EIO when it does
 * not answer or refuses; with a sentence.
 */
#ifndef LOCO_DAEMON_VISIT_HTTP_H
#define LOCO_DAEMON_VISIT_HTTP_H

#include <stddef.h>

#define HTTP_TIMEOUT_MS  5000L
#define HTTP_BODY_MAX    ((size_t)4 << 20)
#define HTTP_ERRMSG_MAX  256
#define HTTP_ADDRESS_MAX 256
#define HTTP_TOKEN_MAX   128

struct http_daemon {
    char address[HTTP_ADDRESS_MAX];
    char token[HTTP_TOKEN_MAX]; /* "": none is known */
};

/* Where the daemon of a state directory listens, and the token with which it
 * can be commanded. */
int http_of_state(const char *state_dir,
                  struct http_daemon *daemon,
                  char errmsg[HTTP_ERRMSG_MAX]);

/* The same with a token that only reads, where there is one: for who asks again
 * and again, also when another program may listen there. */
int http_of_state_to_read(const char *state_dir,
                          struct http_daemon *daemon,
                          char errmsg[HTTP_ERRMSG_MAX]);

/* The token of LOCO_TOKEN, or none. */
void http_token_of_environment(struct http_daemon *daemon);

/* GET path; *body is returned: caller frees with free(). NUL-ended. */
int http_get(const struct http_daemon *daemon,
             const char *path,
             char **body,
             char errmsg[HTTP_ERRMSG_MAX]);

/* POST path without a body. */
int http_post(const struct http_daemon *daemon,
              const char *path,
              char errmsg[HTTP_ERRMSG_MAX]);

#endif
