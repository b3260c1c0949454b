/* manifest_fuzz.c - any bytes as a manifest, as canonical bytes and as wire
 * form: what is accepted encodes to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "proto/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A verifier that accepts all, so that the fuzzer gets past the signature. */
static bool accept_all(void *self,
                       const uint8_t public[SIGN_PUBLIC_BYTES],
                       const char *domain,
                       const void *bytes,
                       size_t len,
                       const uint8_t sig[SIGN_BYTES])
{
    (void)self;
    (void)public;
    (void)domain;
    (void)bytes;
    (void)len;
    (void)sig;
    return true;
}

static struct manifest m;
static uint8_t again[MANIFEST_WIRE_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct signer signer = {.verify = accept_all};
    char errmsg[LOCO_ERRMSG_MAX];
    uint8_t sig[SIGN_BYTES];
    struct hash32 run;
    int n;

    if (manifest_decode(data, size, &m) == 0) {
        n = manifest_encode(&m, again, sizeof again);
        if (n < 0 || (size_t)n != size || memcmp(again, data, size) != 0) {
            abort();
        }
        (void)manifest_validate(&m, errmsg);
    }
    if (manifest_unpack(data, size, &signer, &m, sig, &run, errmsg) == 0) {
        n = manifest_pack(&m, sig, again, sizeof again);
        if (n < 0 || (size_t)n != size || memcmp(again, data, size) != 0) {
            abort();
        }
    }
    return 0;
}
