/* access.c - whether a request may be answered.
 *
 * Three questions, in this order:
 *
 *   Host    is it meant for us? A page of a foreign site can point its own name
 *           at this address (DNS rebinding); then its name stands in Host.
 *           Good are the names of the loopback address with our port, the
 *           address as bound, and, where other machines can reach us, any
 *           address in digits (no zone can take those) and the names for us.
 *   Origin  browsers send it with every request of a page that could change
 *           something: it must be our own.
 *   token   where other machines can reach us, see control_tokens.h. Only
 *           /healthz tells everybody that there is a daemon.
 */
#include "daemon/web/internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <arpa/inet.h>
#include <sodium.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* ---- Host and Origin ---------------------------------------------------- */

/* "host:80", "[::1]:80", "host" without the port: the length of the host. */
static size_t host_len(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;

    return end != NULL ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

/* An IPv4 address, or an IPv6 one in brackets. */
static bool is_digits(const char *host, size_t len)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t ip[16];
    bool v6 = len > 2 && host[0] == '[' && host[len - 1] == ']';

    host += v6;
    len -= v6 ? 2 : 0;
    if (len == 0 || len >= sizeof text) {
        return false;
    }
    memcpy(text, host, len);
    text[len] = '\0';
    return inet_pton(v6 ? AF_INET6 : AF_INET, text, ip) == 1;
}

/* Whether the name is in a list with commas between. */
static bool is_listed(const char *list, const char *name, size_t len)
{
    while (*list != '\0') {
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        if (n == len && n > 0 && strncasecmp(list, name, n) == 0) {
            return true;
        }
        list += n;
    }
    return false;
}

static bool host_ok(struct web *w, const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char want[WEB_ADDRESS_MAX];
    bool listed;

    if (host == NULL) {
        return false;
    }
    if (w->socket.port == 0) {
        return true; /* no browser speaks to a Unix socket */
    }
    if (strcasecmp(host, w->socket.address) == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(want, sizeof want, "%s:%u", names[i], w->socket.port);
        if (strcasecmp(host, want) == 0) {
            return true;
        }
    }
    if (!w->guarded) {
        return false;
    }
    (void)pthread_mutex_lock(&w->lock);
    listed = is_listed(w->hosts, host, host_len(host));
    (void)pthread_mutex_unlock(&w->lock);
    return listed || is_digits(host, host_len(host));
}

/* Ours is the scheme and Host; a proxy in front of us may speak TLS. */
static bool origin_ok(const struct web *w, const char *origin, const char *host)
{
    static const char plain[] = "http://", tls[] = "https://";

    return origin == NULL ||
           (strncmp(origin, plain, sizeof plain - 1) == 0 &&
            strcasecmp(origin + sizeof plain - 1, host) == 0) ||
           (w->guarded && strncmp(origin, tls, sizeof tls - 1) == 0 &&
            strcasecmp(origin + sizeof tls - 1, host) == 0);
}

/* ---- token -------------------------------------------------------------- */

/* What the token in `Authorization` may do. */
static enum control_scope scope_of(struct web *w, const char *header)
{
    static const char bearer[] = "Bearer ", basic[] = "Basic ";
    uint8_t plain[2 * CONTROL_TOKEN_MAX];
    enum control_scope scope = SCOPE_NONE;
    const char *token = NULL;
    size_t len = 0;

    if (header == NULL) {
        return SCOPE_NONE;
    }
    if (strncasecmp(header, bearer, sizeof bearer - 1) == 0) {
        token = header + sizeof bearer - 1;
        len = strlen(token);
    } else if (strncasecmp(header, basic, sizeof basic - 1) == 0 &&
               sodium_base642bin(plain, sizeof plain, header + sizeof basic - 1,
                                 strlen(header + sizeof basic - 1), NULL, &len,
                                 NULL, sodium_base64_VARIANT_ORIGINAL) == 0) {
        const uint8_t *colon = memchr(plain, ':', len);

        token = colon == NULL ? NULL : (const char *)colon + 1;
        len = colon == NULL ? 0 : len - (size_t)(colon + 1 - plain);
    }
    if (token != NULL) {
        (void)pthread_mutex_lock(&w->lock);
        scope = control_tokens_scope(&w->tokens, token, len);
        w->admitted = w->renewals;
        (void)pthread_mutex_unlock(&w->lock);
    }
    sodium_memzero(plain, sizeof plain);
    return scope;
}

static enum MHD_Result ask_for_token(const struct web *w,
                                     struct MHD_Connection *connection)
{
    char text[2 * WEB_TEXT_MAX], basic[WEB_NAME_MAX + 16];
    struct MHD_Response *r;

    (void)snprintf(text, sizeof text,
                   "a token is needed: Authorization: Bearer TOKEN, or TOKEN "
                   "as the password; %s\n",
                   w->advice);
    (void)snprintf(basic, sizeof basic, "Basic realm=\"%s\"", w->name);
    r = web_response("text/plain; charset=utf-8", text, strlen(text),
                     MHD_RESPMEM_MUST_COPY);
    if (r != NULL) {
        /* This is what makes a browser ask. */
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      basic);
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      "Bearer");
    }
    return web_answer(connection, MHD_HTTP_UNAUTHORIZED, r);
}

static enum MHD_Result not_for_us(const struct web *w,
                                  struct MHD_Connection *connection,
                                  const char *more)
{
    char text[2 * WEB_TEXT_MAX];

    (void)snprintf(text, sizeof text, "this address serves %s only%s\n",
                   w->name, more);
    return web_answer(connection, MHD_HTTP_FORBIDDEN,
                      web_response("text/plain; charset=utf-8", text,
                                   strlen(text), MHD_RESPMEM_MUST_COPY));
}

/* ---- all of it ---------------------------------------------------------- */

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

bool web_admits(struct web *w,
                struct MHD_Connection *connection,
                const char *path,
                const char *method,
                enum MHD_Result *answer)
{
    const char *host = header(connection, MHD_HTTP_HEADER_HOST);
    const char *origin = header(connection, MHD_HTTP_HEADER_ORIGIN);
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    enum control_scope scope;

    if (!host_ok(w, host)) {
        *answer = not_for_us(w, connection,
                             w->guarded && w->named
                                 ? "; a name for it is listed in the setting "
                                   "control_hosts"
                                 : "");
        return false;
    }
    if (!origin_ok(w, origin, host)) {
        *answer = not_for_us(w, connection, "");
        return false;
    }
    if (!w->guarded || (reads && strcmp(path, "/healthz") == 0)) {
        return true;
    }
    scope = scope_of(w, header(connection, MHD_HTTP_HEADER_AUTHORIZATION));
    if (scope == SCOPE_NONE) {
        *answer = ask_for_token(w, connection);
        return false;
    }
    if (!reads && scope < SCOPE_CONTROL) {
        *answer = web_answer_text(connection, MHD_HTTP_FORBIDDEN,
                                  "this token only allows reading\n");
        return false;
    }
    return true;
}

static int load(struct web *w, char *errmsg)
{
    int rv = control_tokens_load(&w->tokens, w->tokens_path, errmsg);

    if (rv == LOCO_ENOENT) {
        rv = control_tokens_make(w->tokens_path, false, errmsg);
        rv = rv != 0 ? rv
                     : control_tokens_load(&w->tokens, w->tokens_path, errmsg);
    }
    return rv;
}

int web_access_open(struct web *w,
                    const struct web_terms *terms,
                    char errmsg[ERRMSG_SIZE])
{
    w->guarded = w->socket.remote || terms->always;
    w->named = terms->hosts != NULL;
    (void)snprintf(w->hosts, sizeof w->hosts, "%s",
                   w->named ? terms->hosts : "");
    if (!w->guarded) {
        return 0;
    }
    if (terms->token != NULL) {
        control_tokens_one(&w->tokens, SCOPE_READ, terms->token);
        return 0;
    }
    if (terms->tokens_path == NULL) {
        return errmsg_invalid(errmsg,
                              "%s: the file for access tokens is not set",
                              terms->setting);
    }
    (void)snprintf(w->tokens_path, sizeof w->tokens_path, "%s",
                   terms->tokens_path);
    return load(w, errmsg);
}

int web_renew(struct web *w,
              const char *hosts,
              bool *others,
              char errmsg[ERRMSG_SIZE])
{
    struct control_tokens next = {0};
    int rv = 0;

    *others = false;
    if (w->guarded) {
        rv = control_tokens_load(&next, w->tokens_path, errmsg);
    }
    (void)pthread_mutex_lock(&w->lock);
    if (rv == 0) {
        *others = memcmp(&w->tokens, &next, sizeof next) != 0;
        w->renewals += *others;
        w->tokens = next;
    }
    (void)snprintf(w->hosts, sizeof w->hosts, "%s", hosts);
    (void)pthread_mutex_unlock(&w->lock);
    return rv;
}

uint64_t web_renewals(struct web *w)
{
    uint64_t n;

    (void)pthread_mutex_lock(&w->lock);
    n = w->renewals;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

uint64_t web_admitted(struct web *w)
{
    return w->admitted;
}
