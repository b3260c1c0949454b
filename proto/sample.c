/* sample.c - see sample.h. */
#include "proto/sample.h"

#include "proto/base/rng.h"
#include "proto/hash.h"

/* `len` bytes from `at` on; parts may end between them. */
static void add(struct hash_state *h,
                const struct sample_part *parts,
                size_t n,
                uint64_t at,
                uint64_t len)
{
    for (size_t i = 0; i < n && len > 0; i++) {
        uint64_t here = at < parts[i].len ? parts[i].len - at : 0;

        here = here < len ? here : len;
        if (here > 0) {
            hash_update(h, (const uint8_t *)parts[i].bytes + at, here);
        }
        at = here > 0 ? 0 : at - parts[i].len;
        len -= here;
    }
}

void sample_state(const struct hash32 *state,
                  const struct sample_part *parts,
                  size_t n,
                  struct hash32 *sample)
{
    uint64_t word[2] = {hash32_u64(state), 0}, all = 0, blocks;
    struct hash_state h;

    for (size_t i = 0; i < n; i++) {
        all += parts[i].len;
    }
    blocks = (all + SAMPLE_BLOCK_BYTES - 1) / SAMPLE_BLOCK_BYTES;
    hash_init(&h, "loco-sample-1");
    hash_update(&h, state->b, sizeof state->b);
    if (blocks <= SAMPLE_BLOCKS) {
        add(&h, parts, n, 0, all);
    }
    for (; blocks > SAMPLE_BLOCKS && word[1] < SAMPLE_BLOCKS; word[1]++) {
        add(&h, parts, n, rng_mix(word, 2) % blocks * SAMPLE_BLOCK_BYTES,
            SAMPLE_BLOCK_BYTES);
    }
    hash_final(&h, sample);
}
