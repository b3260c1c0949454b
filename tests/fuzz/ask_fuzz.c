/* ask_fuzz.c - what a peer says to a relay and what the relay answers: each
 * value has one form, and what is read is what was written. */
#include <stdlib.h>
#include <string.h>

#include "p2p/link/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const uint8_t *a, const uint8_t *b, size_t n)
{
    if (memcmp(a, b, n) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t in[ASK_BYTES] = {0}, out[ASK_BYTES];
    struct ask a;
    struct met m;

    memcpy(in, data, size < sizeof in ? size : sizeof in);
    if (ask_read(in, &a) == 0) {
        ask_write(&a, out);
        same(in, out, ASK_BYTES);
    }
    if (met_read(in, &m) == 0) {
        met_write(&m, out);
        same(in, out, MET_BYTES);
        if (m.port == 0) {
            abort();
        }
    }
    if (ready_read(in) == 0) {
        ready_write(out);
        same(in, out, READY_BYTES);
    }
    return 0;
}
