/* prefix.c - see prefix.h. */
#include "p2p/prefix.h"

#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool prefix_is_v4(const uint8_t ip[16])
{
    return memcmp(ip, mapped, sizeof mapped) == 0;
}

void prefix_map_v4(uint8_t ip[16])
{
    memcpy(ip, mapped, sizeof mapped);
}

bool prefix_is_private(const uint8_t ip[16])
{
    static const uint8_t loopback6[16] = {[15] = 1};

    if (prefix_is_v4(ip)) {
        return ip[12] == 10 || ip[12] == 127 ||
               (ip[12] == 172 && (ip[13] & 0xF0) == 16) ||
               (ip[12] == 192 && ip[13] == 168) ||
               (ip[12] == 169 && ip[13] == 254) ||
               (ip[12] == 100 && (ip[13] & 0xC0) == 64);
    }
    return (ip[0] & 0xFE) == 0xFC ||
           (ip[0] == 0xFE && (ip[1] & 0xC0) == 0x80) ||
           memcmp(ip, loopback6, sizeof loopback6) == 0;
}

bool prefix_is_nowhere(const uint8_t ip[16])
{
    static const uint8_t nowhere[16];

    return memcmp(ip, nowhere, sizeof nowhere) == 0;
}

unsigned prefix_bytes(const uint8_t ip[16])
{
    return prefix_is_v4(ip) ? 15 : 6; /* /24 of a mapped address, or /48 */
}

bool prefix_eq(const uint8_t a[16], const uint8_t b[16])
{
    return memcmp(a, b, prefix_bytes(a)) == 0;
}
