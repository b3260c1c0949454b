/* uri.c - see uri.h. */
#include "proto/uri.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define SCHEME "loco://"

static_assert(URI_TEXT_MAX > 7 + URI_HOSTS_MAX * (URI_HOST_MAX + 9) + 1 + 64 +
                                 6 + 64 + 8 + INVITE_TEXT_MAX,
              "the longest invitation fits");

/* Letters, digits, '-', '_' and '.', no empty label: what a resolver takes. */
static bool host_name_ok(const char *host)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";

    return host[0] != '\0' && host[0] != '.' && host[0] != '-' &&
           strstr(host, "..") == NULL && host[strspn(host, allowed)] == '\0';
}

static int port_parse(const char *text,
                      bool any_port,
                      const char *whole,
                      uint16_t *port,
                      char *errmsg)
{
    unsigned v = 0;
    size_t n = strspn(text, "0123456789");

    for (size_t i = 0; i < n && i < 6; i++) {
        v = v * 10 + (unsigned)(text[i] - '0');
    }
    if (n == 0 || n > 5 || text[n] != '\0' || v > 65535 ||
        (v == 0 && !any_port)) {
        return errmsg_invalid(
            errmsg, "'%.80s': the port must be a number from %d to 65535",
            whole, any_port ? 0 : 1);
    }
    *port = (uint16_t)v;
    return 0;
}

int uri_host_parse(const char *text,
                   bool any_port,
                   struct uri_host *h,
                   char *errmsg)
{
    uint8_t addr[16];
    const char *end, *host = text;
    size_t n;

    memset(h, 0, sizeof *h);
    if (text[0] == '[') {
        host++;
        end = strchr(host, ']');
        if (end == NULL || end[1] != ':') {
            return errmsg_invalid(errmsg,
                                  "'%.80s': an IPv6 address is written "
                                  "[ADDRESS]:PORT",
                                  text);
        }
        h->ipv6 = true;
    } else {
        end = strrchr(text, ':');
        if (end == NULL) {
            return errmsg_invalid(errmsg, "'%.80s': the :PORT is missing",
                                  text);
        }
        if (memchr(text, ':', (size_t)(end - text)) != NULL) {
            return errmsg_invalid(errmsg,
                                  "'%.80s': an IPv6 address is written "
                                  "[ADDRESS]:PORT",
                                  text);
        }
    }
    n = (size_t)(end - host);
    if (n >= sizeof h->host) {
        return errmsg_invalid(errmsg, "'%.80s...': the host is too long", text);
    }
    memcpy(h->host, host, n);
    if (h->ipv6 ? inet_pton(AF_INET6, h->host, addr) != 1
                : !host_name_ok(h->host)) {
        return errmsg_invalid(errmsg, "'%.80s': not %s", text,
                              h->ipv6 ? "an IPv6 address"
                                      : "a host name or IPv4 address");
    }
    return port_parse(end + (h->ipv6 ? 2 : 1), any_port, text, &h->port,
                      errmsg);
}

int uri_host_format(const struct uri_host *h, char *out, size_t cap)
{
    int n = snprintf(out, cap, h->ipv6 ? "[%s]:%u" : "%s:%u", h->host,
                     (unsigned)h->port);

    return n < 0 || (size_t)n >= cap ? LOCO_ERANGE : n;
}

/* The comma-separated hosts of text[len]. */
static int
hosts_parse(const char *text, size_t len, struct uri *u, char *errmsg)
{
    char one[URI_HOST_MAX + 16];

    for (;;) {
        const char *comma = memchr(text, ',', len);
        size_t n = comma == NULL ? len : (size_t)(comma - text);
        int rv;

        if (u->n_hosts == URI_HOSTS_MAX) {
            return errmsg_invalid(
                errmsg, "an invitation holds at most %d hosts", URI_HOSTS_MAX);
        }
        if (n == 0) {
            return errmsg_invalid(errmsg,
                                  "the invitation has an empty HOST:PORT");
        }
        if (n >= sizeof one) {
            return errmsg_invalid(errmsg, "'%.80s...': the host is too long",
                                  text);
        }
        memcpy(one, text, n);
        one[n] = '\0';
        rv = uri_host_parse(one, false, &u->hosts[u->n_hosts], errmsg);
        if (rv != 0) {
            return rv;
        }
        u->n_hosts++;
        if (comma == NULL) {
            return 0;
        }
        text += n + 1;
        len -= n + 1;
    }
}

/* What follows the run id: "", or "?peer=ID", "?invite=TOKEN", or both with an
 * & between, in this order. */
static int options_parse(const char *rest, struct uri *u, char *errmsg)
{
    char hex[ID_HEX_MAX];

    if (strncmp(rest, "?peer=", 6) == 0) {
        (void)snprintf(hex, sizeof hex, "%s", rest + 6);
        if (id_parse_hex(hex, &u->peer) != 0) {
            return errmsg_invalid(
                errmsg, "the peer id in the invitation is not 64 lowercase "
                        "hex digits");
        }
        u->has_peer = true;
        rest += 6 + 64;
    }
    if (strncmp(rest, u->has_peer ? "&invite=" : "?invite=", 8) == 0) {
        if (invite_parse(rest + 8, &u->invite) != 0) {
            return errmsg_invalid(
                errmsg,
                "what follows invite= is not an invitation: %u "
                "characters of A-Z, a-z, 0-9, - and _; was it cut "
                "off?",
                INVITE_TEXT_MAX - 1);
        }
        u->has_invite = true;
        return 0;
    }
    return *rest == '\0'
               ? 0
               : errmsg_invalid(errmsg,
                                "'%.40s' after the run id: only ?peer=ID "
                                "and invite=TOKEN may stand there",
                                rest);
}

int uri_parse(const char *text, struct uri *u, char *errmsg)
{
    char hex[ID_HEX_MAX];
    const char *slash, *rest;
    int rv;

    memset(u, 0, sizeof *u);
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0) {
        return errmsg_invalid(errmsg,
                              "an invitation begins with " SCHEME
                              ", for example " SCHEME "HOST:PORT/RUNID");
    }
    text += strlen(SCHEME);
    slash = strchr(text, '/');
    if (slash == NULL) {
        return errmsg_invalid(errmsg, "the invitation has no /RUNID");
    }
    rv = hosts_parse(text, (size_t)(slash - text), u, errmsg);
    if (rv != 0) {
        return rv;
    }
    rest = slash + 1;
    (void)snprintf(hex, sizeof hex, "%s", rest);
    if (hash32_parse_hex(hex, &u->run) != 0) {
        return errmsg_invalid(
            errmsg, "the run id in the invitation is not 64 lowercase "
                    "hex digits");
    }
    rest += 64;
    return options_parse(rest, u, errmsg);
}

int uri_format(const struct uri *u, char *out, size_t cap)
{
    char hex[ID_HEX_MAX], peer[ID_HEX_MAX] = "", invite[INVITE_TEXT_MAX] = "";
    char text[URI_TEXT_MAX] = SCHEME;
    size_t n = strlen(SCHEME);
    int rv;

    assert(u->n_hosts >= 1 && u->n_hosts <= URI_HOSTS_MAX);
    for (uint32_t i = 0; i < u->n_hosts; i++) {
        if (i > 0) {
            text[n++] = ',';
        }
        rv = uri_host_format(&u->hosts[i], text + n, sizeof text - n);
        if (rv < 0) {
            return rv;
        }
        n += (size_t)rv;
    }
    hash32_hex(&u->run, hex);
    if (u->has_peer) {
        id_hex(&u->peer, peer);
    }
    if (u->has_invite) {
        invite_format(&u->invite, invite);
    }
    rv = snprintf(out, cap, "%s/%s%s%s%s%s", text, hex,
                  u->has_peer ? "?peer=" : "", peer,
                  !u->has_invite ? ""
                  : u->has_peer  ? "&invite="
                                 : "?invite=",
                  invite);
    return rv < 0 || (size_t)rv >= cap ? LOCO_ERANGE : rv;
}
