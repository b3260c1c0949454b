/* pcp_fuzz.c - any datagram from whoever is at the default gateway: an answer
 * to the question that is out, or dropped. */
#include <stdlib.h>
#include <string.h>

#include "p2p/swarm/pcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pcp_map ask = {.inner = 7700, .outer = 7700, .lease_s = 3600};
    uint8_t bytes[PCP_MAP_BYTES];
    struct pcp_mapped got;

    if (pcp_map_decode(&ask, data, size, &got) == 0 && got.at.port == 0) {
        abort();
    }
    /* The same over what a router would say. */
    pcp_map_encode(&ask, bytes);
    bytes[1] |= 0x80;
    for (size_t k = 0; k < size && k < sizeof bytes; k++) {
        bytes[k] ^= data[k];
    }
    if (pcp_map_decode(&ask, bytes, sizeof bytes, &got) == 0 &&
        (got.at.port == 0 || memcmp(bytes + 24, ask.nonce, 12) != 0)) {
        abort();
    }
    return 0;
}
