/* address.c - see address.h. */
#include "p2p/address.h"

#include <stdio.h>
#include <string.h>

#include "p2p/prefix.h"

void address_text(const struct address *a, char out[ADDRESS_TEXT_MAX])
{
    const uint8_t *b = a->ip;

    if (prefix_is_v4(b)) {
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
