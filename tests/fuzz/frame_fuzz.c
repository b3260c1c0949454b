/* frame_fuzz.c - any bytes in any cuts: the frames do not depend on the cuts,
 * and no payload is longer than its rule. The first byte names the cut. */
#include <stdlib.h>

#include "proto/base/bytes.h"
#include "proto/frame.h"
#include "proto/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct frame_rule rules[] = {
    {.bytes_max = 0},
    {.bytes_max = 16, .delivery = FRAME_WHOLE},
    {.bytes_max = 1000, .delivery = FRAME_WHOLE, .flags_allowed = 3},
    {.bytes_max = 5000, .delivery = FRAME_PIECES},
};

/* Feed all in pieces of `cut`; hash what comes out and the final result. */
static void
feed(const uint8_t *data, size_t size, size_t cut, struct hash32 *out)
{
    static uint8_t buf[1000];
    struct frame_decoder d;
    struct hash_state h;
    uint8_t head[FRAME_HEADER_BYTES];
    int rv = 0;

    hash_init(&h, NULL);
    frame_decoder_init(&d, rules, 4, buf, sizeof buf);
    for (size_t at = 0; at < size && rv == 0;) {
        size_t n = size - at < cut ? size - at : cut, used;
        struct frame_event e = {.kind = FRAME_BEGIN};

        while (rv == 0 && e.kind != FRAME_NONE) {
            rv = frame_feed(&d, data + at, n, &used, &e);
            if (used > n || (e.kind != FRAME_NONE &&
                             (e.header.type > 3 || e.header.len > 5000 ||
                              e.offset + e.len > e.header.len))) {
                abort();
            }
            if (e.kind == FRAME_READY || e.kind == FRAME_BEGIN) {
                frame_header_encode(&e.header, head);
                hash_update(&h, head, sizeof head);
            }
            hash_update(&h, e.bytes, e.len);
            at += used;
            n -= used;
        }
        if (rv == 0 && n != 0) {
            abort(); /* FRAME_NONE with input left */
        }
    }
    hash_update(&h, rv == 0 ? "good" : "fail", 4);
    hash_final(&h, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hash32 whole, cut;

    if (size < 1) {
        return 0;
    }
    feed(data + 1, size - 1, SIZE_MAX, &whole);
    feed(data + 1, size - 1, (size_t)data[0] % 17 + 1, &cut);
    if (!hash32_eq(&whole, &cut)) {
        abort();
    }
    return 0;
}
