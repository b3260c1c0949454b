/* sample_test.c - which bytes of a state are in its sample. The expected values
 * come from Python's hashlib.blake2b(digest_size=32). */
#include "tests/unit/proto/suite.h"

#include <stdlib.h>

#include "proto/base/rng.h"
#include "proto/sample.h"

#define BLOCK ((size_t)SAMPLE_BLOCK_BYTES)

static const struct hash32 name = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};

/* Byte i is (i * 31 + i / 251) & 255, as in hash_test.c. */
static uint8_t *pattern(size_t len)
{
    uint8_t *p = malloc(len + 1);

    assert_non_null(p);
    for (size_t i = 0; i < len; i++) {
        p[i] = (uint8_t)(i * 31 + i / 251);
    }
    return p;
}

static struct hash32 sample_of(const uint8_t *bytes, size_t len)
{
    const struct sample_part part = {bytes, len};
    struct hash32 out;

    sample_state(&name, &part, 1, &out);
    return out;
}

static void assert_hex(const struct hash32 *h, const char *want)
{
    char hex[ID_HEX_MAX];

    hash32_hex(h, hex);
    assert_string_equal(hex, want);
}

static void the_sample_equals_an_independent_implementation(void **state)
{
    static const struct {
        size_t len;
        const char *want;
    } rows[] = {
        {5000,
         "ed90ee91914652c01a87ff63630790225969f7140910f2db0ef079ab7c2d1912"},
        {SAMPLE_BLOCKS * BLOCK,
         "e07f53aedb459b4e8e69f27f6725a6dcbed6048ca2909172aa87c42f1a8f2a75"},
        {SAMPLE_BLOCKS * BLOCK + 1,
         "11a0d16c794c44508d7bb8b7f5b876f8883703f7a3b5c645806f305aaae81292"},
        {3 * SAMPLE_BLOCKS * BLOCK + 77,
         "2b864141e00967e3ca52ace6bfb529210ab133949743156248197270a4cc08c7"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *p = pattern(rows[i].len);
        struct hash32 h = sample_of(p, rows[i].len);

        assert_hex(&h, rows[i].want);
        free(p);
    }
}

static void where_its_parts_end_does_not_matter(void **state)
{
    const size_t len = 2 * SAMPLE_BLOCKS * BLOCK + 99;
    uint8_t *p = pattern(len);
    const struct hash32 whole = sample_of(p, len);

    (void)state;
    for (size_t cut = 1; cut < 3 * BLOCK; cut += 977) {
        const struct sample_part parts[] = {{p, cut},
                                            {p + cut, 0},
                                            {p + cut, 40},
                                            {p + cut + 40, len - cut - 40}};
        struct hash32 h;

        sample_state(&name, parts, 4, &h);
        assert_true(hash32_eq(&h, &whole));
    }
    free(p);
}

/* A small state is in it whole. */
static void each_byte_of_a_small_state_counts(void **state)
{
    uint8_t *p = pattern(SAMPLE_BLOCKS * BLOCK);
    const struct hash32 whole = sample_of(p, SAMPLE_BLOCKS * BLOCK);

    (void)state;
    for (size_t at = 0; at < SAMPLE_BLOCKS * BLOCK; at += 40009) {
        struct hash32 h;

        p[at] ^= 1;
        h = sample_of(p, SAMPLE_BLOCKS * BLOCK);
        assert_false(hash32_eq(&h, &whole));
        p[at] ^= 1;
    }
    free(p);
}

/* Of a large one so many blocks that nobody passes without a tenth of it. */
static void the_blocks_lie_all_over_a_large_state(void **state)
{
    const size_t len = 40 * SAMPLE_BLOCKS * BLOCK;
    uint8_t *p = pattern(len);
    const struct hash32 whole = sample_of(p, len);

    (void)state;
    for (size_t part = 0; part < 10; part++) {
        uint8_t *tenth = p + part * (len / 10);
        struct hash32 h;

        for (size_t i = 0; i < len / 10; i++) {
            tenth[i] ^= 0x55;
        }
        h = sample_of(p, len);
        assert_false(hash32_eq(&h, &whole));
        for (size_t i = 0; i < len / 10; i++) {
            tenth[i] ^= 0x55;
        }
    }
    free(p);
}

/* Two states draw different blocks, so what is known of one is of no use. */
static void which_blocks_are_drawn_follows_from_the_state_hash(void **state)
{
    const size_t len = 40 * SAMPLE_BLOCKS * BLOCK;
    uint8_t *p = pattern(len);
    const struct sample_part part = {p, len};
    const uint64_t words[] = {hash32_u64(&name), 0};
    uint64_t at = rng_mix(words, 2) % (len / BLOCK) * BLOCK;
    struct hash32 other = {{77}}, before, after;

    (void)state;
    sample_state(&other, &part, 1, &before);
    p[at] ^= 1; /* the first block of `name` */
    sample_state(&other, &part, 1, &after);
    assert_true(hash32_eq(&before, &after));
    sample_state(&name, &part, 1, &after);
    p[at] ^= 1;
    sample_state(&name, &part, 1, &before);
    assert_false(hash32_eq(&before, &after));
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_equals_an_independent_implementation),
        cmocka_unit_test(where_its_parts_end_does_not_matter),
        cmocka_unit_test(each_byte_of_a_small_state_counts),
        cmocka_unit_test(the_blocks_lie_all_over_a_large_state),
        cmocka_unit_test(which_blocks_are_drawn_follows_from_the_state_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
