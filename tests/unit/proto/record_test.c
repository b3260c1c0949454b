/* record_test.c - signed records: what is kept, what is refused. */
#include "tests/unit/proto/suite.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/record.h"

#define NOW_S 1800000000U

static struct identity alice, bob;

static int make_identities(void **state)
{
    static const uint8_t a[32] = {1}, b[32] = {2};

    (void)state;
    return identity_generate(&alice, a) | identity_generate(&bob, b);
}

static void make(struct record *r, uint32_t value_len, uint64_t sequence)
{
    memset(r, 0, sizeof *r);
    r->key.b[0] = 7;
    r->value_len = value_len;
    memset(r->value, 'v', value_len);
    r->sequence = sequence;
    r->expiry_s = NOW_S + 3600;
}

static void a_signed_record_is_read_back_and_verifies(void **state)
{
    struct signer both[2] = {signer_sodium(&alice), signer_keyed(&alice)};
    struct record r, back;
    uint8_t bytes[RECORD_BYTES_MAX];

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (uint32_t len = 0; len <= RECORD_VALUE_MAX; len += 128) {
            int n;

            make(&r, len, UINT64_MAX);
            assert_int_equal(record_sign(&r, &both[i]), 0);
            n = msg_encode(&record_schema, &r, bytes, sizeof bytes);
            assert_true(n > 0);
            assert_int_equal(
                msg_decode(&record_schema, bytes, (size_t)n, &back), 0);
            assert_memory_equal(&r, &back, sizeof r);
            assert_int_equal(record_verify(&back, &both[i], NOW_S), 0);
        }
    }
    assert_int_equal(msg_bytes_max(&record_schema), RECORD_BYTES_MAX);
}

static void any_changed_field_breaks_the_signature(void **state)
{
    struct signer s = signer_sodium(&alice);
    struct record r, bad;

    (void)state;
    make(&r, 10, 1);
    assert_int_equal(record_sign(&r, &s), 0);
    bad = r;
    bad.key.b[0] ^= 1;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    memcpy(bad.publisher, bob.public, 32);
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    bad.value[9] ^= 1;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    bad.value_len--;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    bad.sequence++;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    bad.expiry_s++;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    bad = r;
    bad.signature[63] ^= 1;
    assert_int_equal(record_verify(&bad, &s, NOW_S), LOCO_ESIG);
    assert_int_equal(record_verify(&r, &s, NOW_S), 0);
}

static void records_expire_and_cannot_ask_for_years(void **state)
{
    struct signer s = signer_keyed(&alice);
    struct record r;

    (void)state;
    make(&r, 1, 1);
    assert_int_equal(record_sign(&r, &s), 0);
    assert_int_equal(record_verify(&r, &s, r.expiry_s - 1), 0);
    assert_int_equal(record_verify(&r, &s, r.expiry_s), LOCO_ESTALE);
    assert_int_equal(record_verify(&r, &s, UINT64_MAX), LOCO_ESTALE);
    assert_int_equal(record_verify(&r, &s, r.expiry_s - RECORD_LIFETIME_MAX_S),
                     0);
    assert_int_equal(
        record_verify(&r, &s, r.expiry_s - RECORD_LIFETIME_MAX_S - 1),
        LOCO_ERANGE);
    r.expiry_s = UINT64_MAX;
    assert_int_equal(record_sign(&r, &s), 0);
    assert_int_equal(record_verify(&r, &s, 0), LOCO_ERANGE);
}

static void only_a_newer_one_of_the_same_publisher_replaces(void **state)
{
    struct signer sa = signer_keyed(&alice), sb = signer_keyed(&bob);
    struct record old, new;

    (void)state;
    make(&old, 1, 5);
    make(&new, 2, 6);
    assert_int_equal(record_sign(&old, &sa), 0);
    assert_int_equal(record_sign(&new, &sa), 0);
    assert_true(record_replaces(&new, &old));
    assert_false(record_replaces(&old, &new));
    assert_false(record_replaces(&old, &old));
    assert_int_equal(record_sign(&new, &sb), 0);
    assert_false(record_replaces(&new, &old));
    assert_int_equal(record_sign(&new, &sa), 0);
    new.key.b[0] ^= 1;
    assert_false(record_replaces(&new, &old));
}

static void a_value_that_is_too_long_is_refused_both_ways(void **state)
{
    struct signer s = signer_keyed(&alice), none = signer_keyed(NULL);
    struct record r, back;
    uint8_t bytes[RECORD_BYTES_MAX + 8];
    int n;

    (void)state;
    make(&r, RECORD_VALUE_MAX, 1);
    assert_int_equal(record_sign(&r, &none), LOCO_EINVAL);
    assert_int_equal(record_sign(&r, &s), 0);
    n = msg_encode(&record_schema, &r, bytes, sizeof bytes);
    assert_true(n > 0);
    /* key and publisher take 1 + 34 + 34 bytes, then bin16 with its length */
    assert_int_equal(bytes[69], 0xc5);
    bytes[71]++;
    assert_int_equal(msg_decode(&record_schema, bytes, (size_t)n + 1, &back),
                     LOCO_EPROTO);
    r.value_len++;
    assert_int_equal(msg_encode(&record_schema, &r, bytes, sizeof bytes),
                     LOCO_ERANGE);
    assert_int_equal(record_sign(&r, &s), LOCO_ERANGE);
    assert_int_equal(record_verify(&r, &s, NOW_S), LOCO_ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signed_record_is_read_back_and_verifies),
        cmocka_unit_test(any_changed_field_breaks_the_signature),
        cmocka_unit_test(records_expire_and_cannot_ask_for_years),
        cmocka_unit_test(only_a_newer_one_of_the_same_publisher_replaces),
        cmocka_unit_test(a_value_that_is_too_long_is_refused_both_ways),
    };

    return cmocka_run_group_tests_name("proto/record", tests, make_identities,
                                       NULL);
}
