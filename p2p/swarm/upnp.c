/* upnp.c - see upnp.h. */
#include "p2p/swarm/upnp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/err.h"

#define CHUNK_MAX UPNP_ANSWER_MAX

static const char *const types[] = {
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
};

/* Bytes that are not ours: nothing ends them but their length. */
struct text {
    const char *p;
    size_t n;
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool begins(struct text t, const char *with)
{
    size_t n = strlen(with), i = 0;

    while (i < n && i < t.n && lower(t.p[i]) == lower(with[i])) {
        i++;
    }
    return i == n;
}

static struct text skip(struct text t, size_t n)
{
    n = n < t.n ? n : t.n;
    return (struct text){t.p + n, t.n - n};
}

static struct text trim(struct text t)
{
    while (t.n > 0 && (unsigned char)t.p[0] <= ' ') {
        t = skip(t, 1);
    }
    while (t.n > 0 && (unsigned char)t.p[t.n - 1] <= ' ') {
        t.n--;
    }
    return t;
}

/* Where `what` is; t.n: nowhere. */
static size_t find(struct text t, const char *what)
{
    size_t i = 0;

    while (i < t.n && !begins(skip(t, i), what)) {
        i++;
    }
    return i;
}

static int encode(char *out, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int encode(char *out, size_t room, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(out, room, format, args);
    va_end(args);
    return n >= 0 && (size_t)n < room ? n : LOCO_ERANGE;
}

/* ---- places ---------------------------------------------------------------
 */

/* Decimal digits of at most `most`; -1: none, or more. */
static long number(struct text *t, long most)
{
    long v = -1;

    while (t->n > 0 && t->p[0] >= '0' && t->p[0] <= '9') {
        v = (v < 0 ? 0 : v * 10) + (t->p[0] - '0');
        if (v > most) {
            return -1;
        }
        *t = skip(*t, 1);
    }
    return v;
}

static bool take(struct text *t, char c)
{
    bool is = t->n > 0 && t->p[0] == c;

    *t = skip(*t, is ? 1 : 0);
    return is;
}

/* "1.2.3.4", with ":5" or not, as routers write their own address. */
static int host_decode(struct text *t, struct address *at)
{
    long port = 80;

    memset(at, 0, sizeof *at);
    prefix_map_v4(at->ip);
    for (int i = 0; i < 4; i++) {
        long v = i > 0 && !take(t, '.') ? -1 : number(t, 255);

        if (v < 0) {
            return LOCO_EPROTO;
        }
        at->ip[12 + i] = (uint8_t)v;
    }
    if (take(t, ':')) {
        port = number(t, 65535);
    }
    at->port = (uint16_t)(port > 0 ? port : 0);
    return port > 0 ? 0 : LOCO_EPROTO;
}

static int path_decode(struct text t, const char *before, char *out)
{
    int n = encode(out, UPNP_PATH_MAX, "%s%.*s", before,
                   (int)(t.n < UPNP_PATH_MAX ? t.n : UPNP_PATH_MAX), t.p);

    for (int i = 0; i < n; i++) {
        if (out[i] <= ' ' || out[i] > '~') {
            return LOCO_EPROTO;
        }
    }
    return n > 0 && (size_t)n == strlen(before) + t.n ? 0 : LOCO_EPROTO;
}

/* At the address `from`, or not at all. */
static int
place_decode(struct text t, const struct address *from, struct upnp_place *out)
{
    if (!begins(t, "http://")) {
        return LOCO_EPROTO;
    }
    t = skip(t, 7);
    if (host_decode(&t, &out->at) != 0 ||
        memcmp(out->at.ip, from->ip, sizeof from->ip) != 0 ||
        !prefix_is_private(from->ip)) {
        return LOCO_EPROTO;
    }
    return t.n == 0 || t.p[0] == '/'
               ? path_decode(t, t.n == 0 ? "/" : "", out->path)
               : LOCO_EPROTO;
}

/* ---- the search -----------------------------------------------------------
 */

int upnp_search_encode(char *out, size_t room)
{
    return encode(out, room,
                  "M-SEARCH * HTTP/1.1\r\nHOST: %s:%d\r\n"
                  "MAN: \"ssdp:discover\"\r\nMX: 1\r\n"
                  "ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1"
                  "\r\n\r\n",
                  UPNP_GROUP, UPNP_PORT);
}

int upnp_search_decode(const uint8_t *bytes,
                       size_t len,
                       const struct address *from,
                       struct upnp_place *described)
{
    struct text t = {(const char *)bytes, len}, line;

    if (!begins(t, "HTTP/1.")) {
        return LOCO_EPROTO;
    }
    while (t.n > 0) {
        line = t;
        line.n = find(t, "\n");
        t = skip(t, line.n + 1);
        if (begins(line, "location:")) {
            return place_decode(trim(skip(line, 9)), from, described);
        }
    }
    return LOCO_EPROTO;
}

/* ---- questions ------------------------------------------------------------
 */

static void host_text(const struct address *at, char out[ADDRESS_TEXT_MAX])
{
    (void)encode(out, ADDRESS_TEXT_MAX, "%u.%u.%u.%u:%u", at->ip[12],
                 at->ip[13], at->ip[14], at->ip[15], at->port);
}

int upnp_get_encode(const struct upnp_place *place, char *out, size_t room)
{
    char host[ADDRESS_TEXT_MAX];

    host_text(&place->at, host);
    return encode(out, room,
                  "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                  place->path, host);
}

static int arguments(enum upnp_call call,
                     const struct upnp_port *port,
                     char *out,
                     size_t room)
{
    char to[256] = "";

    if (call == UPNP_ADDRESS) {
        out[0] = '\0';
        return 0;
    }
    if (call == UPNP_ADD &&
        encode(to, sizeof to,
               "<NewInternalPort>%u</NewInternalPort>"
               "<NewInternalClient>%s</NewInternalClient>"
               "<NewEnabled>1</NewEnabled>"
               "<NewPortMappingDescription>loco</NewPortMappingDescription>"
               "<NewLeaseDuration>%u</NewLeaseDuration>",
               port->inner, port->client, port->lease_s) < 0) {
        return LOCO_ERANGE;
    }
    return encode(out, room,
                  "<NewRemoteHost></NewRemoteHost>"
                  "<NewExternalPort>%u</NewExternalPort>"
                  "<NewProtocol>TCP</NewProtocol>%s",
                  port->outer, to);
}

int upnp_call_encode(const struct upnp_service *s,
                     enum upnp_call call,
                     const struct upnp_port *port,
                     char *out,
                     size_t room)
{
    static const char *const names[] = {
        [UPNP_ADD] = "AddPortMapping",
        [UPNP_DELETE] = "DeletePortMapping",
        [UPNP_ADDRESS] = "GetExternalIPAddress",
    };
    char body[1024], list[512], host[ADDRESS_TEXT_MAX];
    int n = arguments(call, port, list, sizeof list);

    n = n < 0 ? n
              : encode(body, sizeof body,
                       "<?xml version=\"1.0\"?>\r\n<s:Envelope "
                       "xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" "
                       "s:encodingStyle=\"http://schemas.xmlsoap.org/soap/"
                       "encoding/\"><s:Body><u:%s xmlns:u=\"%s\">%s</u:%s>"
                       "</s:Body></s:Envelope>\r\n",
                       names[call], s->type, list, names[call]);
    if (n < 0) {
        return n;
    }
    host_text(&s->control.at, host);
    return encode(out, room,
                  "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/xml; "
                  "charset=\"utf-8\"\r\nContent-Length: %d\r\nSOAPAction: "
                  "\"%s#%s\"\r\nConnection: close\r\n\r\n%s",
                  s->control.path, host, n, s->type, names[call], body);
}

/* ---- answers --------------------------------------------------------------
 */

/* A header's value, of a head that ends in an empty line; n 0: there is none.
 */
static struct text header(struct text head, const char *name)
{
    while (head.n > 0) {
        struct text line = head;

        line.n = find(head, "\n");
        head = skip(head, line.n + 1);
        if (begins(line, name)) {
            return trim(skip(line, strlen(name)));
        }
    }
    return (struct text){"", 0};
}

static long hex(struct text *t)
{
    long v = -1;

    while (t->n > 0) {
        char c = lower(t->p[0]);
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;

        if (d < 0) {
            break;
        }
        v = (v < 0 ? 0 : v * 16) + d;
        if (v > CHUNK_MAX) {
            return -1;
        }
        *t = skip(*t, 1);
    }
    return v;
}

/* Put the chunks of body[0, len) together at its start. */
static int join(char *body, size_t len, size_t *n)
{
    struct text t = {body, len};

    *n = 0;
    for (;;) {
        struct text line = t;
        long size = hex(&line);

        t = skip(t, find(t, "\n") + 1);
        if (size < 0 || (size_t)size > t.n) {
            return LOCO_EPROTO; /* cut, or no size */
        }
        if (size == 0) {
            return 0;
        }
        memmove(body + *n, t.p, (size_t)size);
        *n += (size_t)size;
        t = skip(t, (size_t)size);
        (void)take(&t, '\r');
        (void)take(&t, '\n');
    }
}

int upnp_http_decode(
    char *bytes, size_t len, bool ended, int *status, size_t *at, size_t *n)
{
    struct text all = {bytes, len}, head = all, first, length;
    size_t end = find(all, "\r\n\r\n");
    long wanted;

    if (end == len) {
        return ended ? LOCO_EPROTO : LOCO_EBUSY;
    }
    head.n = end + 2;
    first = skip(head, 9);
    wanted = number(&first, 999);
    if (!begins(head, "HTTP/1.") || wanted < 0) {
        return LOCO_EPROTO;
    }
    *status = (int)wanted;
    *at = end + 4;
    *n = len - *at;
    if (begins(header(head, "transfer-encoding:"), "chunked")) {
        /* In place, so only once: all of it is here, or it is cut. */
        return ended ? join(bytes + *at, len - *at, n) : LOCO_EBUSY;
    }
    length = header(head, "content-length:");
    wanted = number(&length, UPNP_ANSWER_MAX);
    if (wanted >= 0 && (size_t)wanted <= *n) {
        *n = (size_t)wanted;
        return 0;
    }
    return !ended ? LOCO_EBUSY : wanted < 0 ? 0 : LOCO_EPROTO;
}

/* What is in the next element of that name, and `*t` behind it. Names are
 * compared without their namespace. */
static bool element(struct text *t, const char *tag, struct text *out)
{
    size_t n = strlen(tag);

    for (; t->n > 0; *t = skip(*t, 1)) {
        struct text in = skip(*t, 1);
        size_t colon = 0;

        if (t->p[0] != '<') {
            continue;
        }
        while (colon < in.n && colon < 16 && in.p[colon] != ':' &&
               in.p[colon] != '>') {
            colon++;
        }
        if (colon < in.n && in.p[colon] == ':') {
            in = skip(in, colon + 1);
        }
        if (begins(in, tag) && in.n > n && in.p[n] == '>') {
            *out = skip(in, n + 1);
            out->n = find(*out, "<");
            *t = skip(in, n + 1);
            return true;
        }
    }
    return false;
}

static bool is_text(struct text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

/* A control address as descriptions have it: whole, from the root, or beside
 * the description. */
static int control_decode(struct text t,
                          const struct upnp_place *described,
                          struct upnp_place *out)
{
    out->at = described->at;
    if (begins(t, "http://")) {
        return place_decode(t, &described->at, out);
    }
    return path_decode(t, t.n > 0 && t.p[0] == '/' ? "" : "/", out->path);
}

int upnp_service_find(const char *xml,
                      size_t len,
                      const struct upnp_place *described,
                      struct upnp_service *out)
{
    struct text t = {xml, len}, type, control;

    while (element(&t, "serviceType", &type)) {
        type = trim(type);
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            if (is_text(type, types[i])) {
                out->type = types[i];
                t.n = find(t, "</service>");
                return element(&t, "controlURL", &control)
                           ? control_decode(trim(control), described,
                                            &out->control)
                           : LOCO_EPROTO;
            }
        }
    }
    return LOCO_EPROTO;
}

int upnp_value_find(const char *xml,
                    size_t len,
                    const char *tag,
                    char out[UPNP_VALUE_MAX])
{
    struct text t = {xml, len}, value;

    if (!element(&t, tag, &value)) {
        return LOCO_EPROTO;
    }
    value = trim(value);
    return encode(out, UPNP_VALUE_MAX, "%.*s",
                  (int)(value.n < UPNP_VALUE_MAX ? value.n : UPNP_VALUE_MAX),
                  value.p) < 0
               ? LOCO_ERANGE
               : 0;
}
