/* trainer_msg_fuzz.c - any packet between a training loop and its daemon, from
 * either side: what is accepted is written back to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "proto/trainer_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(const uint8_t *data, size_t size, enum trainer_msg_sender sender)
{
    uint8_t out[TRAINER_PACKET_MAX];
    struct trainer_msg m;

    if (trainer_msg_decode(data, size, sender, &m) == 0 &&
        (trainer_msg_encode(&m, out) != (int)size ||
         memcmp(out, data, size) != 0)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size, TRAINER_SENDER_LOOP);
    check(data, size, TRAINER_SENDER_DAEMON);
    return 0;
}
