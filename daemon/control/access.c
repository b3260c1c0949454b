/* access.c - whether a request may be answered.
 *
 * Three questions, in this order:
 *
 *   Host    is it meant for us? A page of a foreign site can point its own name
 *           at this address (DNS rebinding); then its name stands in Host.
 *           Good are the names of the loopback address with our port, the
 *           address as bound, and, where other machines can reach us, any
 *           address in digits (no zone can take those) and control_hosts.
 *   Origin  browsers send it with every request of a page that could change
 *           something: it must be our own.
 *   token   where other machines can reach us, see control_tokens.h. Only
 *           /healthz tells everybody that there is a daemon.
 */
#include "daemon/control/internal.h"

#include <string.h>
#include <strings.h>

#include <arpa/inet.h>
#include <sodium.h>

#include "proto/base/err.h"

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

static bool host_ok(struct control *c, const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char want[CONTROL_ADDRESS_MAX];
    bool listed;

    if (host == NULL) {
        return false;
    }
    if (c->socket.port == 0) {
        return true; /* no browser speaks to a Unix socket */
    }
    if (strcasecmp(host, c->socket.address) == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(want, sizeof want, "%s:%u", names[i], c->socket.port);
        if (strcasecmp(host, want) == 0) {
            return true;
        }
    }
    if (!c->guarded) {
        return false;
    }
    (void)pthread_mutex_lock(&c->lock);
    listed = is_listed(c->hosts, host, host_len(host));
    (void)pthread_mutex_unlock(&c->lock);
    return listed || is_digits(host, host_len(host));
}

/* Ours is the scheme and Host; a proxy in front of us may speak TLS. */
static bool
origin_ok(const struct control *c, const char *origin, const char *host)
{
    static const char plain[] = "http://", tls[] = "https://";

    return origin == NULL ||
           (strncmp(origin, plain, sizeof plain - 1) == 0 &&
            strcasecmp(origin + sizeof plain - 1, host) == 0) ||
           (c->guarded && strncmp(origin, tls, sizeof tls - 1) == 0 &&
            strcasecmp(origin + sizeof tls - 1, host) == 0);
}

/* ---- token -------------------------------------------------------------- */

/* What the token in `Authorization` may do. */
static enum control_scope scope_of(struct control *c, const char *header)
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
        (void)pthread_mutex_lock(&c->lock);
        scope = control_tokens_scope(&c->tokens, token, len);
        c->admitted = c->renewals;
        (void)pthread_mutex_unlock(&c->lock);
    }
    sodium_memzero(plain, sizeof plain);
    return scope;
}

static enum MHD_Result ask_for_token(struct MHD_Connection *connection)
{
    static const char text[] =
        "a token is needed: Authorization: Bearer TOKEN, or TOKEN as the "
        "password; loco access shows it on the daemon's machine\n";
    struct MHD_Response *r =
        control_response("text/plain; charset=utf-8", text, strlen(text),
                         MHD_RESPMEM_PERSISTENT);

    if (r != NULL) {
        /* This is what makes a browser ask. */
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      "Basic realm=\"locod\"");
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      "Bearer");
    }
    return control_answer(connection, MHD_HTTP_UNAUTHORIZED, r);
}

/* ---- all of it ---------------------------------------------------------- */

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

bool control_admits(struct control *c,
                    struct MHD_Connection *connection,
                    const char *path,
                    const char *method,
                    enum MHD_Result *answer)
{
    const char *host = header(connection, MHD_HTTP_HEADER_HOST);
    const char *origin = header(connection, MHD_HTTP_HEADER_ORIGIN);
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    enum control_scope scope;

    if (!host_ok(c, host)) {
        *answer = control_answer_text(
            connection, MHD_HTTP_FORBIDDEN,
            c->guarded ? "this address serves locod only; a name for it is "
                         "listed in the setting control_hosts\n"
                       : "this address serves locod only\n");
        return false;
    }
    if (!origin_ok(c, origin, host)) {
        *answer = control_answer_text(connection, MHD_HTTP_FORBIDDEN,
                                      "this address serves locod only\n");
        return false;
    }
    if (!c->guarded || (reads && strcmp(path, "/healthz") == 0)) {
        return true;
    }
    scope = scope_of(c, header(connection, MHD_HTTP_HEADER_AUTHORIZATION));
    if (scope == SCOPE_NONE) {
        *answer = ask_for_token(connection);
        return false;
    }
    if (!reads && scope < SCOPE_CONTROL) {
        *answer = control_answer_text(connection, MHD_HTTP_FORBIDDEN,
                                      "this token only allows reading\n");
        return false;
    }
    return true;
}

int control_access_open(struct control *c,
                        const struct control_access *access,
                        char errmsg[ERRMSG_SIZE])
{
    static const struct control_access nobody = {NULL, NULL, false};
    const struct control_access *a = access == NULL ? &nobody : access;
    int rv;

    c->guarded = c->socket.remote || a->always;
    (void)snprintf(c->hosts, sizeof c->hosts, "%s",
                   a->hosts == NULL ? "" : a->hosts);
    if (!c->guarded) {
        return 0;
    }
    if (a->tokens_path == NULL) {
        (void)snprintf(errmsg, ERRMSG_SIZE,
                       "control: the file for access tokens is not set");
        return LOCO_EINVAL;
    }
    (void)snprintf(c->tokens_path, sizeof c->tokens_path, "%s", a->tokens_path);
    rv = control_tokens_load(&c->tokens, c->tokens_path, errmsg);
    if (rv == LOCO_ENOENT) {
        rv = control_tokens_make(c->tokens_path, false, errmsg);
        rv = rv != 0 ? rv
                     : control_tokens_load(&c->tokens, c->tokens_path, errmsg);
    }
    return rv;
}

int control_access_renew(struct control *c,
                         const char *hosts,
                         char errmsg[ERRMSG_SIZE])
{
    struct control_tokens next = {0};
    bool others = false;
    int rv = 0;

    if (c->guarded) {
        rv = control_tokens_load(&next, c->tokens_path, errmsg);
    }
    (void)pthread_mutex_lock(&c->lock);
    if (rv == 0) {
        others = memcmp(&c->tokens, &next, sizeof next) != 0;
        c->renewals += others;
        c->tokens = next;
    }
    (void)snprintf(c->hosts, sizeof c->hosts, "%s", hosts);
    (void)pthread_mutex_unlock(&c->lock);
    if (others) {
        control_news(c); /* to end */
    }
    return rv;
}
