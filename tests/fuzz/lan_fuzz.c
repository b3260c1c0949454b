/* lan_fuzz.c - any bytes from the LAN: taken as an announcement or dropped, and
 * never more than a few a second. */
#include <stdlib.h>

#include "p2p/swarm/lan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct hash32 run = {{1}};
    uint8_t said[LAN_BYTES];
    unsigned heard = 0;
    uint16_t port = 0;
    struct lan me, other;

    lan_init(&me, &run, 1, 7700, 0);
    lan_init(&other, &run, 2, 7701, 0);
    if (!lan_say(&other, 0, said)) {
        abort();
    }
    for (int i = 0; i < 30; i++) {
        size_t n = size < sizeof said ? size : sizeof said;

        /* As it is, and over what a peer would say. */
        heard += lan_hear(&me, data, size, 5, &port);
        for (size_t k = 0; k < n; k++) {
            said[k] ^= data[k];
        }
        heard += lan_hear(&me, said, sizeof said, 5, &port);
    }
    if (heard > 10 || (heard > 0 && port == 0)) {
        abort();
    }
    return 0;
}
