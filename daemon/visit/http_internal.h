/* http_internal.h - what http.c and http_many.c share: a request as libcurl
 * wants it, and what came of it. */
#ifndef LOCO_DAEMON_VISIT_HTTP_INTERNAL_H
#define LOCO_DAEMON_VISIT_HTTP_INTERNAL_H

#include <curl/curl.h>
#include <stdbool.h>

#include "daemon/visit/http.h"

/* What arrives; the transfer ends where it would be more than `max`. */
struct http_body {
    char *bytes; /* NUL-ended; from malloc */
    size_t len, max;
};

void http_configure(CURL *curl,
                    const struct http_daemon *daemon,
                    const char *path,
                    bool post,
                    struct http_body *body);

/* 0, or an error of http.h with its sentence; then the body is freed. */
int http_outcome(CURL *curl,
                 CURLcode rc,
                 const struct http_daemon *daemon,
                 const char *path,
                 struct http_body *body,
                 char errmsg[HTTP_ERRMSG_MAX]);

#endif
