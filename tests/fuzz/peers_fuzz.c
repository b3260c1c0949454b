/* peers_fuzz.c - any bytes as the peers cache: refused, or a list within its
 * bounds that is written back as the same bytes. */
#include <stdlib.h>

#include "p2p/swarm/peers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct peers p;
    static uint8_t bytes[PEERS_BYTES_MAX];
    struct peers again;
    int n;

    if (peers_decode(data, size, &p) != 0) {
        return 0;
    }
    if (p.n > PEERS_CACHE_MAX) {
        abort();
    }
    for (uint32_t i = 0; i < p.n; i++) {
        if (p.contact[i].port == 0) {
            abort();
        }
    }
    n = peers_encode(&p, bytes, sizeof bytes);
    if (n < 0 || peers_decode(bytes, (size_t)n, &again) != 0 ||
        again.n != p.n) {
        abort();
    }
    return 0;
}
