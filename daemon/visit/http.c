/* http.c - see visit/http.h. */
#include "daemon/visit/http_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/control_tokens.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/curl_old.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define UNIX_PREFIX "unix:"

void http_token_of_environment(struct http_daemon *daemon)
{
    const char *token = getenv("LOCO_TOKEN");

    (void)snprintf(daemon->token, sizeof daemon->token, "%s",
                   token == NULL ? "" : token);
}

static int of_state(const char *state_dir,
                    enum control_scope scope,
                    struct http_daemon *daemon,
                    char *errmsg)
{
    char path[4096], why[ERRMSG_SIZE];
    char *address = daemon->address;
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/" STATE_DIR_CONTROL, state_dir);
    f = fopen(path, "r");
    if (f == NULL) {
        return errmsg_fail(
            errmsg, LOCO_ENOENT,
            "no daemon runs on %.160s (start one with locod --state)",
            state_dir);
    }
    if (fgets(address, HTTP_ADDRESS_MAX, f) == NULL) {
        address[0] = '\0';
    }
    (void)fclose(f);
    address[strcspn(address, "\r\n")] = '\0';
    if (address[0] == '\0') {
        return errmsg_fail(errmsg, LOCO_ENOENT, "%.200s is empty", path);
    }
    (void)snprintf(path, sizeof path, "%s/" STATE_DIR_TOKENS, state_dir);
    if (control_tokens_best(path, scope, daemon->token, why) != 0) {
        http_token_of_environment(daemon);
    }
    return 0;
}

int http_of_state(const char *state_dir,
                  struct http_daemon *daemon,
                  char errmsg[HTTP_ERRMSG_MAX])
{
    return of_state(state_dir, SCOPE_CONTROL, daemon, errmsg);
}

int http_of_state_to_read(const char *state_dir,
                          struct http_daemon *daemon,
                          char errmsg[HTTP_ERRMSG_MAX])
{
    return of_state(state_dir, SCOPE_READ, daemon, errmsg);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *data)
{
    struct http_body *b = data;
    size_t len = size * n;
    char *grown;

    if (len > b->max - b->len) {
        return 0; /* libcurl ends the transfer */
    }
    grown = realloc(b->bytes, b->len + len + 1);
    if (grown == NULL) {
        return 0;
    }
    memcpy(grown + b->len, bytes, len);
    b->bytes = grown;
    b->len += len;
    grown[b->len] = '\0';
    return len;
}

void http_configure(CURL *curl,
                    const struct http_daemon *daemon,
                    const char *path,
                    bool post,
                    struct http_body *body)
{
    static const size_t n_prefix = sizeof UNIX_PREFIX - 1;
    const char *address = daemon->address;
    char url[HTTP_ADDRESS_MAX + 128];

    if (strncmp(address, UNIX_PREFIX, n_prefix) == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH,
                               address + n_prefix);
        (void)snprintf(url, sizeof url, "http://localhost%s", path);
    } else {
        (void)snprintf(url, sizeof url, "http://%s%s", address, path);
    }
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_allow(curl, "http");
    if (daemon->token[0] != '\0') {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        (void)curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, daemon->token);
    }
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, HTTP_TIMEOUT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    if (post) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
}

int http_outcome(CURL *curl,
                 CURLcode rc,
                 const struct http_daemon *daemon,
                 const char *path,
                 struct http_body *body,
                 char errmsg[HTTP_ERRMSG_MAX])
{
    const char *address = daemon->address;
    long code = 0;
    int rv = 0;

    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    if (rc != CURLE_OK) {
        rv = errmsg_fail(
            errmsg, rc == CURLE_COULDNT_CONNECT ? LOCO_ENOENT : LOCO_EIO,
            rc == CURLE_COULDNT_CONNECT ? "no daemon answers at %.160s%s"
                                        : "%.160s: %s",
            address, rc == CURLE_COULDNT_CONNECT ? "" : curl_easy_strerror(rc));
    } else if (code < 200 || code > 299) {
        rv = errmsg_fail(errmsg, LOCO_EIO, "%.120s%.60s: HTTP %ld %.80s",
                         address, path, code,
                         body->bytes == NULL ? "" : body->bytes);
        errmsg[strcspn(errmsg, "\n")] = '\0';
    }
    if (rv != 0) {
        free(body->bytes);
        *body = (struct http_body){.max = body->max};
    }
    return rv;
}

static int request(const struct http_daemon *daemon,
                   const char *path,
                   bool post,
                   char **out,
                   char errmsg[HTTP_ERRMSG_MAX])
{
    struct http_body body = {.max = HTTP_BODY_MAX};
    CURL *curl = curl_easy_init();
    int rv;

    if (curl == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    http_configure(curl, daemon, path, post, &body);
    rv = http_outcome(curl, curl_easy_perform(curl), daemon, path, &body,
                      errmsg);
    curl_easy_cleanup(curl);
    if (rv == 0 && out != NULL && body.bytes != NULL) {
        *out = body.bytes;
        return 0;
    }
    free(body.bytes);
    return rv != 0 || out == NULL
               ? rv
               : errmsg_fail(errmsg, LOCO_EIO, "no answer from %s",
                             daemon->address);
}

int http_get(const struct http_daemon *daemon,
             const char *path,
             char **body,
             char errmsg[HTTP_ERRMSG_MAX])
{
    return request(daemon, path, false, body, errmsg);
}

int http_post(const struct http_daemon *daemon,
              const char *path,
              char errmsg[HTTP_ERRMSG_MAX])
{
    return request(daemon, path, true, NULL, errmsg);
}
