/* store_test.c - what a node keeps for others, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/dht/store.h"
#include "proto/base/err.h"

#define NOW_S 1700000000U

struct fixture {
    struct store s;
    void *memory;
    struct identity identity[20];
    struct signer signer[20];
    struct signer verifier;
    uint64_t rng;
};

static void setup(struct fixture *f, struct store_options opt)
{
    f->memory = malloc(store_bytes(&opt));
    assert_non_null(f->memory);
    store_init(&f->s, &opt, f->memory);
    for (uint64_t i = 0; i < 20; i++) {
        identity_fake(&f->identity[i], i);
        f->signer[i] = signer_keyed(&f->identity[i]);
    }
    f->verifier = signer_keyed(NULL);
    f->rng = 1;
}

static struct record
make(const struct fixture *f, int who, uint8_t key, uint64_t sequence)
{
    struct record r = {.key = {.b = {key}},
                       .value_len = 3,
                       .value = {'a', 'b', 'c'},
                       .sequence = sequence,
                       .expiry_s = NOW_S + 600};

    assert_int_equal(record_sign(&r, &f->signer[who]), 0);
    return r;
}

static int put(struct fixture *f, int who, uint8_t key, uint64_t sequence)
{
    struct record r = make(f, who, key, sequence);

    return store_put(&f->s, &r, &f->verifier, NULL, NOW_S);
}

static size_t count(struct fixture *f, uint8_t key, uint64_t wall_s)
{
    const struct record *out[32];
    struct hash32 k = {.b = {key}};

    return store_get(&f->s, &k, wall_s, &f->rng, out, 32);
}

static const struct store_options roomy = {
    .records_max = 32, .per_key_max = 16, .per_publisher_max = 8};

static void several_publishers_share_a_key(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, roomy);
    assert_int_equal(put(&f, 0, 1, 1), 0);
    assert_int_equal(put(&f, 1, 1, 1), 0);
    assert_int_equal(put(&f, 0, 2, 1), 0);
    assert_int_equal(count(&f, 1, NOW_S), 2);
    assert_int_equal(count(&f, 2, NOW_S), 1);
    assert_int_equal(count(&f, 3, NOW_S), 0);
    free(f.memory);
}

static void a_stale_sequence_does_not_replace(void **state)
{
    struct hash32 key = {.b = {1}};
    const struct record *out[2];
    struct record other;
    struct fixture f;

    (void)state;
    setup(&f, roomy);
    assert_int_equal(put(&f, 0, 1, 5), 0);
    assert_int_equal(put(&f, 0, 1, 4), LOCO_ESTALE);
    assert_int_equal(put(&f, 0, 1, 5), 0); /* the very same again */
    other = make(&f, 0, 1, 5);
    other.value[0] = 'x'; /* same number, other content */
    assert_int_equal(record_sign(&other, &f.signer[0]), 0);
    assert_int_equal(store_put(&f.s, &other, &f.verifier, NULL, NOW_S),
                     LOCO_ESTALE);
    assert_int_equal(store_get(&f.s, &key, NOW_S, &f.rng, out, 2), 1);
    assert_int_equal(out[0]->value[0], 'a');
    assert_int_equal(put(&f, 0, 1, 6), 0);
    assert_int_equal(store_get(&f.s, &key, NOW_S, &f.rng, out, 2), 1);
    assert_int_equal(out[0]->sequence, 6);
    free(f.memory);
}

static void forged_expired_and_endless_records_change_nothing(void **state)
{
    struct record r;
    struct fixture f;

    (void)state;
    setup(&f, roomy);
    assert_int_equal(put(&f, 0, 1, 5), 0);
    r = make(&f, 0, 1, 9);
    r.sequence = 10; /* after signing */
    assert_int_equal(store_put(&f.s, &r, &f.verifier, NULL, NOW_S), LOCO_ESIG);
    r = make(&f, 1, 1, 9);
    memcpy(r.publisher, f.identity[0].public, sizeof r.publisher);
    assert_int_equal(store_put(&f.s, &r, &f.verifier, NULL, NOW_S), LOCO_ESIG);
    r = make(&f, 1, 1, 9);
    assert_int_equal(store_put(&f.s, &r, &f.verifier, NULL, r.expiry_s + 1),
                     LOCO_ESTALE);
    r.expiry_s = NOW_S + RECORD_LIFETIME_MAX_S + 1;
    assert_int_equal(record_sign(&r, &f.signer[1]), 0);
    assert_int_equal(store_put(&f.s, &r, &f.verifier, NULL, NOW_S),
                     LOCO_ERANGE);
    assert_int_equal(f.s.n, 0); /* the clock above passed its expiry */
    free(f.memory);
}

static void records_leave_at_their_expiry(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, roomy);
    assert_int_equal(put(&f, 0, 1, 1), 0);
    assert_int_equal(put(&f, 1, 1, 1), 0);
    assert_int_equal(count(&f, 1, NOW_S + 599), 2);
    assert_int_equal(count(&f, 1, NOW_S + 600), 0);
    assert_int_equal(store_expire(&f.s, NOW_S + 599), 0);
    assert_int_equal(store_expire(&f.s, NOW_S + 600), 2);
    assert_int_equal(f.s.n, 0);
    free(f.memory);
}

static void caps_hold_per_key_and_per_publisher(void **state)
{
    struct store_options opt = {
        .records_max = 32, .per_key_max = 3, .per_publisher_max = 2};
    struct fixture f;

    (void)state;
    setup(&f, opt);
    for (int who = 0; who < 5; who++) {
        assert_int_equal(put(&f, who, 1, 1), who < 3 ? 0 : LOCO_EFULL);
    }
    assert_int_equal(put(&f, 0, 1, 2), 0); /* a renewal is not a newcomer */
    assert_int_equal(put(&f, 0, 2, 1), 0);
    assert_int_equal(put(&f, 0, 3, 1), LOCO_EFULL);
    assert_int_equal(f.s.n, 4);
    free(f.memory);
}

static void one_network_cannot_fill_a_key(void **state)
{
    struct store_options opt = roomy;
    uint8_t far[16] = {[10] = 255, [11] = 255, [12] = 93};
    uint8_t near[16] = {[10] = 255, [11] = 255, [12] = 192, [13] = 168};
    struct fixture f;

    (void)state;
    opt.per_prefix_max = 2;
    opt.per_key_max = 8;
    setup(&f, opt);
    for (int who = 0; who < 6; who++) { /* half of the key is anybody's */
        struct record r = make(&f, who, 1, 1);

        far[15] = (uint8_t)who; /* the same /24 */
        assert_int_equal(store_put(&f.s, &r, &f.verifier, far, NOW_S),
                         who < 4 ? 0 : LOCO_EFULL);
    }
    for (int who = 6; who < 10; who++) { /* machines of one LAN are many */
        struct record r = make(&f, who, 1, 1);

        assert_int_equal(store_put(&f.s, &r, &f.verifier, near, NOW_S), 0);
    }
    {
        struct record newer = make(&f, 2, 1, 2), other = make(&f, 12, 2, 1);

        assert_int_equal(store_put(&f.s, &newer, &f.verifier, far, NOW_S), 0);
        assert_int_equal(store_put(&f.s, &other, &f.verifier, far, NOW_S), 0);
    }
    assert_int_equal(count(&f, 1, NOW_S), 8);
    free(f.memory);
}

static void a_full_store_keeps_the_keys_closest_to_it(void **state)
{
    struct store_options opt = {
        .records_max = 4, .per_key_max = 16, .per_publisher_max = 16};
    struct fixture f;

    (void)state;
    setup(&f, opt); /* our id is zero: a small first byte is close */
    for (uint8_t key = 10; key < 14; key++) {
        assert_int_equal(put(&f, 0, key, 1), 0);
    }
    assert_int_equal(put(&f, 0, 20, 1), LOCO_EFULL);
    assert_int_equal(put(&f, 0, 13, 2), 0);
    assert_int_equal(put(&f, 1, 13, 1), LOCO_EFULL); /* equal is not closer */
    assert_int_equal(put(&f, 0, 5, 1), 0);
    assert_int_equal(count(&f, 13, NOW_S), 0);
    assert_int_equal(count(&f, 5, NOW_S), 1);
    assert_int_equal(f.s.n, 4);
    free(f.memory);
}

static void one_network_pushes_out_nobody_else(void **state)
{
    struct store_options opt = roomy;
    uint8_t far[16] = {[10] = 255, [11] = 255, [12] = 93};
    uint8_t other[16] = {[10] = 255, [11] = 255, [12] = 94};
    struct fixture f;

    (void)state;
    opt.per_prefix_max = 16; /* of 32 a network's share is 2 */
    setup(&f, opt);
    for (uint8_t k = 0; k < 10; k++) { /* other networks, one record each */
        struct record r = make(&f, k, (uint8_t)(0x80 + k), 1);

        other[14] = k;
        assert_int_equal(store_put(&f.s, &r, &f.verifier, other, NOW_S), 0);
    }
    for (int k = 0; k < 100; k++) { /* one that makes up keys */
        struct record r = make(&f, k % 20, (uint8_t)(1 + k / 20), 1);

        r.key.b[1] = (uint8_t)k;
        assert_int_equal(record_sign(&r, &f.signer[k % 20]), 0);
        (void)store_put(&f.s, &r, &f.verifier, far, NOW_S);
    }
    assert_int_equal(f.s.n, 32);
    for (uint8_t k = 0; k < 10; k++) {
        assert_int_equal(count(&f, (uint8_t)(0x80 + k), NOW_S), 1);
    }
    for (uint8_t k = 10; k < 20; k++) { /* and more of others still fit */
        struct record r = make(&f, k, (uint8_t)(0x80 + k), 1);

        other[14] = k;
        assert_int_equal(store_put(&f.s, &r, &f.verifier, other, NOW_S), 0);
        assert_int_equal(count(&f, (uint8_t)(0x80 + k), NOW_S), 1);
    }
    free(f.memory);
}

static void many_records_of_a_key_are_all_drawn_in_time(void **state)
{
    struct hash32 key = {.b = {1}};
    const struct record *out[4];
    unsigned seen = 0;
    struct fixture f;

    (void)state;
    setup(&f, roomy);
    for (int who = 0; who < 16; who++) {
        assert_int_equal(put(&f, who, 1, 1), 0);
    }
    for (int i = 0; i < 200; i++) {
        assert_int_equal(store_get(&f.s, &key, NOW_S, &f.rng, out, 4), 4);
        for (int j = 0; j < 4; j++) {
            seen |= 1U << (out[j] - f.s.record);
        }
    }
    assert_int_equal(seen, 0xFFFF);
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_publishers_share_a_key),
        cmocka_unit_test(a_stale_sequence_does_not_replace),
        cmocka_unit_test(forged_expired_and_endless_records_change_nothing),
        cmocka_unit_test(records_leave_at_their_expiry),
        cmocka_unit_test(caps_hold_per_key_and_per_publisher),
        cmocka_unit_test(one_network_cannot_fill_a_key),
        cmocka_unit_test(a_full_store_keeps_the_keys_closest_to_it),
        cmocka_unit_test(one_network_pushes_out_nobody_else),
        cmocka_unit_test(many_records_of_a_key_are_all_drawn_in_time),
    };

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
