/* record_fuzz.c - any bytes as a DHT record; verifying never fails otherwise
 * than by a code. */
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct signer signer = signer_keyed(NULL);
    uint8_t again[RECORD_BYTES_MAX];
    struct record r;
    int n;

    if (msg_decode(&record_schema, data, size, &r) != 0) {
        return 0;
    }
    if (record_verify(&r, &signer, 1800000000) > 0) {
        abort();
    }
    n = msg_encode(&record_schema, &r, again, sizeof again);
    if (n < 0 || (size_t)n != size || memcmp(again, data, size) != 0) {
        abort();
    }
    return 0;
}
