/* lab_text.h - text and machines for tests of the laboratory. Include cmocka
 * before it, and say TEXT_BYTES. Everything is static in this header.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_LAB_TEXT_H
#define LOCO_TESTS_UNIT_TRAIN_LAB_TEXT_H

#include <string.h>

#include "proto/base/rng.h"
#include "train/lab/lab.h"

static char text[TEXT_BYTES];
static struct shard train_shard, val_shard;
static struct lab_machine machines[LAB_PEERS_MAX];

static int make_text(void **state)
{
    static const char *const words[] = {"the ",      "lord ", "is ",   "my ",
                                        "shepherd ", "and ",  "want ", "not\n"};
    uint64_t rng = 4;
    size_t at = 0;

    (void)state;
    while (at < sizeof text) {
        const char *w = words[rng_below(&rng, 8)];
        size_t len = strlen(w);

        len = len < sizeof text - at ? len : sizeof text - at;
        memcpy(text + at, w, len);
        at += len;
    }
    shard_from_text(&train_shard, text, sizeof text - 2000);
    shard_from_text(&val_shard, text + sizeof text - 2000, 2000);
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        machines[i] = (struct lab_machine){1000, 1e6, 1e6, 0.01};
    }
    return 0;
}

#endif
