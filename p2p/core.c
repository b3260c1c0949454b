/* core.c - see core.h. */
#include "p2p/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"

struct action *out_add(struct out *out, enum action_type type)
{
    struct action *a;

    if (out->n == CORE_OUT_MAX) {
        out->dropped++;
        return NULL;
    }
    a = &out->action[out->n++];
    memset(a, 0, sizeof *a);
    a->type = type;
    return a;
}

uint32_t out_bytes(struct out *out, const void *bytes, size_t len)
{
    uint32_t at = out->n_bytes;

    if (len > CORE_OUT_BYTES_MAX - out->n_bytes) {
        out->dropped++;
        return UINT32_MAX;
    }
    if (len > 0) {
        memcpy(out->bytes + at, bytes, len);
    }
    out->n_bytes += (uint32_t)len;
    return at;
}

bool out_send(struct out *out,
              uint32_t link,
              uint16_t message,
              const void *bytes,
              size_t len)
{
    uint32_t at = out_bytes(out, bytes, len);

    return at != UINT32_MAX && out_send_again(out, link, message, at, len);
}

bool out_send_again(
    struct out *out, uint32_t link, uint16_t message, uint32_t at, size_t len)
{
    struct action *a = out_add(out, ACTION_SEND);

    if (a == NULL) {
        return false;
    }
    a->link = link;
    a->message = message;
    a->bytes = at;
    a->len = (uint32_t)len;
    return true;
}

void out_log(struct out *out, int level, const char *fmt, ...)
{
    char text[CORE_TEXT_MAX];
    struct action *a;
    va_list ap;
    uint32_t at;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return;
    }
    at = out_bytes(out, text, strlen(text) + 1);
    if (at == UINT32_MAX) {
        return;
    }
    a = out_add(out, ACTION_LOG);
    if (a != NULL) {
        a->level = level;
        a->request = log_event(fmt);
        a->bytes = at;
        a->len = (uint32_t)strlen(text);
    }
}

void address_text(const struct address *a, char out[ADDRESS_TEXT_MAX])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *b = a->ip;

    if (memcmp(b, mapped, sizeof mapped) == 0) {
        (void)snprintf(out, ADDRESS_TEXT_MAX, "%u.%u.%u.%u:%u", b[12], b[13],
                       b[14], b[15], a->port);
        return;
    }
    (void)snprintf(out, ADDRESS_TEXT_MAX, "[%x:%x:%x:%x:%x:%x:%x:%x]:%u",
                   b[0] << 8 | b[1], b[2] << 8 | b[3], b[4] << 8 | b[5],
                   b[6] << 8 | b[7], b[8] << 8 | b[9], b[10] << 8 | b[11],
                   b[12] << 8 | b[13], b[14] << 8 | b[15], a->port);
}

bool address_eq(const struct address *a, const struct address *b)
{
    return a->port == b->port && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}
