/* id_test.c - peer ids, hashes as names, the short form. */
#include "tests/unit/proto/suite.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/id.h"

static struct peer_id some_id(uint64_t seed)
{
    struct peer_id id;

    for (int i = 0; i < ID_BYTES; i++) {
        id.b[i] = (uint8_t)rng_next(&seed);
    }
    return id;
}

static void a_peer_id_is_the_plain_blake2b_of_the_public_key(void **state)
{
    /* Python: hashlib.blake2b(bytes(range(32)), digest_size=32) */
    static const char want[] =
        "cb2f5160fc1f7e05a55ef49d340b48da2e5a78099d53393351cd579dd42503d6";
    uint8_t public[32];
    struct peer_id id;
    char hex[ID_HEX_MAX];

    (void)state;
    for (int i = 0; i < 32; i++) {
        public[i] = (uint8_t)i;
    }
    id = id_of_public(public);
    id_hex(&id, hex);
    assert_string_equal(hex, want);
}

static void hex_is_read_back_and_everything_else_is_refused(void **state)
{
    struct peer_id id = some_id(1), back, before;
    struct hash32 hash;
    char hex[ID_HEX_MAX + 1];

    (void)state;
    id_hex(&id, hex);
    assert_int_equal(strlen(hex), 64);
    assert_int_equal(id_parse_hex(hex, &back), 0);
    assert_true(id_eq(&id, &back));
    before = back;
    hex[63] = 'g';
    assert_int_equal(id_parse_hex(hex, &back), LOCO_EINVAL);
    hex[63] = 'A';
    assert_int_equal(id_parse_hex(hex, &back), LOCO_EINVAL);
    hex[63] = '\0';
    assert_int_equal(id_parse_hex(hex, &back), LOCO_EINVAL);
    id_hex(&id, hex);
    memcpy(hex + 64, "0", 2);
    assert_int_equal(id_parse_hex(hex, &back), LOCO_EINVAL);
    assert_int_equal(hash32_parse_hex("", &hash), LOCO_EINVAL);
    assert_true(id_eq(&before, &back));
}

static void the_bucket_is_the_highest_bit_that_differs(void **state)
{
    struct peer_id a = some_id(2), b = a;

    (void)state;
    assert_int_equal(id_xor_bucket(&a, &b), -1);
    for (int bit = 0; bit < 256; bit++) {
        b = a;
        b.b[31 - bit / 8] ^= (uint8_t)(1U << bit % 8);
        if (bit > 0) {
            b.b[31] ^= 1; /* a lower bit changes nothing */
        }
        assert_int_equal(id_xor_bucket(&a, &b), bit);
        assert_int_equal(id_xor_bucket(&b, &a), bit);
    }
}

static void xor_order_agrees_with_the_buckets(void **state)
{
    struct peer_id t = some_id(3), near = t, far = t;

    (void)state;
    near.b[20] ^= 0x40;
    far.b[3] ^= 0x01;
    assert_true(id_xor_cmp(&t, &near, &far) < 0);
    assert_true(id_xor_cmp(&t, &far, &near) > 0);
    assert_int_equal(id_xor_cmp(&t, &far, &far), 0);
    assert_true(id_xor_cmp(&t, &t, &near) < 0);
}

/* The five leading bytes of a short form; LOCO_EINVAL where a character or the
 * check is wrong. Nothing in the product reads one: people compare them. */
static int short_parse(const char *text, uint8_t first[5])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint64_t n = 0;
    unsigned check = 0, n_digits = 0;

    for (; *text != '\0'; text++) {
        const char *at = strchr(digits, *text);

        if (*text == '-') {
            continue;
        }
        if (at == NULL || n_digits == 10) {
            return LOCO_EINVAL;
        }
        if (n_digits < 8) {
            n = n << 5 | (uint64_t)(at - digits);
        } else {
            check = check << 5 | (unsigned)(at - digits);
        }
        n_digits++;
    }
    if (n_digits != 10 || n % 1021 != check) {
        return LOCO_EINVAL;
    }
    for (int i = 0; i < 5; i++) {
        first[i] = (uint8_t)(n >> (32 - 8 * i));
    }
    return 0;
}

static void the_short_form_holds_forty_bits(void **state)
{
    struct peer_id id = {.b = {0xff, 0x00, 0x12, 0x34, 0x56}};
    char text[ID_SHORT_MAX];
    uint8_t first[5];

    (void)state;
    id_short(&id, text);
    assert_int_equal(strlen(text), 12);
    assert_int_equal(text[4], '-');
    assert_int_equal(text[9], '-');
    assert_int_equal(short_parse(text, first), 0);
    assert_memory_equal(first, id.b, 5);
    assert_int_equal(short_parse("", first), LOCO_EINVAL);
    text[11] = '\0';
    assert_int_equal(short_parse(text, first), LOCO_EINVAL);
}

static void the_short_form_finds_every_wrong_character(void **state)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    char text[ID_SHORT_MAX], bad[ID_SHORT_MAX];
    uint8_t first[5];

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct peer_id id = some_id(seed);

        id_short(&id, text);
        for (size_t i = 0; i < 12; i++) {
            for (const char *d = digits; *d != '\0'; d++) {
                memcpy(bad, text, sizeof bad);
                if (text[i] == '-' || text[i] == *d) {
                    continue;
                }
                bad[i] = *d;
                assert_int_equal(short_parse(bad, first), LOCO_EINVAL);
            }
        }
    }
}

static void the_short_form_finds_every_swap_of_neighbours(void **state)
{
    static const int at[8] = {0, 1, 2, 3, 5, 6, 7, 8};
    char text[ID_SHORT_MAX], bad[ID_SHORT_MAX];
    uint8_t first[5];
    unsigned n_swaps = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct peer_id id = some_id(seed);

        id_short(&id, text);
        for (int i = 0; i < 7; i++) {
            memcpy(bad, text, sizeof bad);
            bad[at[i]] = text[at[i + 1]];
            bad[at[i + 1]] = text[at[i]];
            if (strcmp(bad, text) != 0) {
                assert_int_equal(short_parse(bad, first), LOCO_EINVAL);
                n_swaps++;
            }
        }
    }
    assert_true(n_swaps > 500);
}

static void ids_order_by_bytes_and_give_words(void **state)
{
    struct peer_id a = {.b = {1}}, b = {.b = {0, 255}}, zero = {{0}};
    struct hash32 h = {.b = {1, 2}};

    (void)state;
    assert_true(id_cmp(&a, &b) > 0);
    assert_true(id_is_zero(&zero));
    assert_false(id_is_zero(&a));
    assert_true(id_u64(&a) == 1);
    assert_true(hash32_u64(&h) == 0x201);
    assert_false(hash32_is_zero(&h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_id_is_the_plain_blake2b_of_the_public_key),
        cmocka_unit_test(hex_is_read_back_and_everything_else_is_refused),
        cmocka_unit_test(the_bucket_is_the_highest_bit_that_differs),
        cmocka_unit_test(xor_order_agrees_with_the_buckets),
        cmocka_unit_test(the_short_form_holds_forty_bits),
        cmocka_unit_test(the_short_form_finds_every_wrong_character),
        cmocka_unit_test(the_short_form_finds_every_swap_of_neighbours),
        cmocka_unit_test(ids_order_by_bytes_and_give_words),
    };

    return cmocka_run_group_tests_name("proto/id", tests, NULL, NULL);
}
