/* checkpoint_fuzz.c - any bytes as a checkpoint. The checksum would stop the
 * fuzzer at the door, so a file that fails only there counts as explored: the
 * vectors are read before it is checked. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "train/replica/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint c;
    char errmsg[ERRMSG_SIZE];
    uint8_t *copy = malloc(size > 0 ? size : 1); /* aligned */

    if (copy == NULL) {
        return 0;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    if (checkpoint_open_memory(&c, copy, size, errmsg) == 0) {
        volatile float sum = 0.0F;

        if (c.state.phi == NULL || c.state.run_id == NULL) {
            abort();
        }
        for (uint64_t i = 0; i < c.state.n; i++) {
            sum = sum + c.state.phi[i];
        }
        checkpoint_close(&c);
    }
    free(copy);
    return 0;
}
