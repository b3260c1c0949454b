/* replay.c - a fuzz target without libFuzzer: corpus and seeded mutations.
 *
 * Usage: fuzz_NAME [CORPUS_FOLDER] [MUTATIONS]. Every file of the folder is
 * run as it is, then MUTATIONS inputs made from them (bits flipped, bytes set,
 * cut, repeated, spliced), the same ones in every run. A failure is whatever
 * the target does to the process: abort, sanitizer report, time-out. Each input
 * is a block of its own, so that reading past its end is seen by ASan.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/rng.h"

#define SEEDS_MAX      256
#define SEED_BYTES_MAX (1U << 20)
#define MUTATIONS      4000
#define GROWTH_MAX     64 /* bytes that one mutation adds at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seed {
    uint8_t *bytes;
    size_t len;
};

static void run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = calloc(1, len == 0 ? 1 : len);

    if (copy == NULL) {
        abort();
    }
    if (len > 0) {
        memcpy(copy, bytes, len);
    }
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static int load(const char *path, struct seed *s)
{
    FILE *f = fopen(path, "rb");

    if (f == NULL) {
        return -1;
    }
    s->bytes = malloc(SEED_BYTES_MAX);
    s->len = s->bytes == NULL ? 0 : fread(s->bytes, 1, SEED_BYTES_MAX, f);
    (void)fclose(f);
    return s->bytes == NULL ? -1 : 0;
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Files in the order of their names; 0 without a folder. */
static size_t load_all(const char *folder, struct seed seeds[SEEDS_MAX])
{
    struct dirent **names;
    char path[4096];
    size_t n_seeds = 0;
    int n = scandir(folder, &names, is_visible, alphasort);

    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (n_seeds < SEEDS_MAX && load(path, &seeds[n_seeds]) == 0) {
            n_seeds++;
        }
        free(names[i]);
    }
    if (n >= 0) {
        free(names);
    }
    return n_seeds;
}

/* One change of buf[len]; returns the new length. */
static size_t change(uint8_t *buf, size_t len, size_t cap, uint64_t *rng)
{
    /* Values that decoders stumble over: zeros, signs, msgpack heads. */
    static const uint8_t odd[] = {0,    1,    0x7f, 0x80, 0xff, 0x90,
                                  0xc0, 0xc4, 0xcb, 0xcf, 0xd9, 0xdd};
    size_t at = len == 0 ? 0 : (size_t)rng_below(rng, len);
    size_t n = 1 + (size_t)rng_below(rng, GROWTH_MAX);

    switch (rng_below(rng, 5)) {
    case 0:
        if (len > 0) {
            buf[at] ^= (uint8_t)(1U << rng_below(rng, 8));
        }
        return len;
    case 1:
        if (len > 0) {
            buf[at] = odd[rng_below(rng, sizeof odd)];
        }
        return len;
    case 2: /* cut the end off */
        return at;
    case 3: /* take bytes out */
        n = n > len - at ? len - at : n;
        memmove(buf + at, buf + at + n, len - at - n);
        return len - n;
    default: /* put bytes in */
        n = n > cap - len ? cap - len : n;
        memmove(buf + at + n, buf + at, len - at);
        for (size_t i = 0; i < n; i++) {
            buf[at + i] = (uint8_t)rng_next(rng);
        }
        return len + n;
    }
}

int main(int argc, char **argv)
{
    static struct seed seeds[SEEDS_MAX];
    static uint8_t buf[SEED_BYTES_MAX];
    size_t n_seeds = argc > 1 ? load_all(argv[1], seeds) : 0;
    long mutations = argc > 2 ? strtol(argv[2], NULL, 10) : MUTATIONS;
    uint64_t rng = 42;

    run(NULL, 0);
    for (size_t i = 0; i < n_seeds; i++) {
        run(seeds[i].bytes, seeds[i].len);
    }
    for (long i = 0; i < mutations; i++) {
        size_t len = 0;
        uint64_t n_changes = 1 + rng_below(&rng, 4);

        if (n_seeds > 0) {
            const struct seed *s = &seeds[rng_below(&rng, n_seeds)];

            memcpy(buf, s->bytes, s->len);
            len = s->len;
        }
        while (n_changes-- > 0) {
            len = change(buf, len, sizeof buf, &rng);
        }
        run(buf, len);
    }
    for (size_t i = 0; i < n_seeds; i++) {
        free(seeds[i].bytes);
    }
    (void)printf("%zu seeds, %ld mutations\n", n_seeds, mutations);
    return 0;
}
