/* lan_test.c - announcements on a LAN: who hears whom, how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/lan.h"

static const struct hash32 run = {{7}}, other_run = {{8}};

static void peers_of_one_run_hear_each_other(void **state)
{
    uint8_t bytes[LAN_BYTES];
    struct lan a, b, stranger;
    uint16_t port = 0;

    (void)state;
    lan_init(&a, &run, 1, 4001, 0);
    lan_init(&b, &run, 2, 4002, 0);
    lan_init(&stranger, &other_run, 3, 4003, 0);
    assert_true(lan_say(&a, 0, bytes));
    assert_true(lan_hear(&b, bytes, sizeof bytes, 0, &port));
    assert_int_equal(port, 4001);
    assert_false(lan_hear(&a, bytes, sizeof bytes, 0, &port)); /* itself */
    assert_false(lan_hear(&stranger, bytes, sizeof bytes, 0, &port));
    assert_int_equal(a.n_dropped + stranger.n_dropped, 0);
}

static void it_is_said_at_the_start_and_every_minute(void **state)
{
    static const uint64_t times[] = {0, 1000, 3000, 10000, 70000, 130000};
    uint8_t bytes[LAN_BYTES];
    struct lan a;

    (void)state;
    lan_init(&a, &run, 1, 4001, 0);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_int_equal(lan_deadline(&a), times[i]);
        assert_false(i > 0 && lan_say(&a, times[i] - 1, bytes));
        assert_true(lan_say(&a, times[i], bytes));
        assert_false(lan_say(&a, times[i], bytes));
    }
}

static void a_newcomer_is_answered_at_most_once_a_second(void **state)
{
    uint8_t hello[LAN_BYTES], bytes[LAN_BYTES];
    struct lan a, b;
    uint16_t port;

    (void)state;
    lan_init(&a, &run, 1, 4001, 100000);
    lan_init(&b, &run, 2, 4002, 0);
    for (uint64_t at = 0; at <= 90000; at += 10000) {
        (void)lan_say(&b, at, bytes);
    }
    assert_true(lan_deadline(&b) > 100000);
    assert_true(lan_say(&a, 100000, hello));
    assert_true(lan_hear(&b, hello, sizeof hello, 100000, &port));
    assert_true(lan_say(&b, 100000, bytes));
    assert_true(lan_hear(&b, hello, sizeof hello, 100001, &port));
    assert_false(lan_say(&b, 100001, bytes));
    assert_int_equal(lan_deadline(&b), 101000);
}

static void bad_bytes_and_a_flood_are_dropped(void **state)
{
    uint8_t good[LAN_BYTES], bad[LAN_BYTES];
    unsigned heard = 0;
    struct lan a, b;
    uint16_t port;

    (void)state;
    lan_init(&a, &run, 1, 4001, 0);
    lan_init(&b, &run, 2, 4002, 0);
    assert_true(lan_say(&a, 0, good));
    assert_false(lan_hear(&b, good, sizeof good - 1, 0, &port));
    memcpy(bad, good, sizeof bad);
    bad[0] ^= 1;
    assert_false(lan_hear(&b, bad, sizeof bad, 0, &port));
    memcpy(bad, good, sizeof bad);
    bad[48] = bad[49] = 0; /* port 0 */
    assert_false(lan_hear(&b, bad, sizeof bad, 0, &port));
    memcpy(bad, good, sizeof bad);
    bad[51] = 0x80; /* a flag that is not known */
    assert_false(lan_hear(&b, bad, sizeof bad, 0, &port));
    assert_int_equal(b.n_dropped, 4);
    for (int i = 0; i < 1000; i++) {
        heard += lan_hear(&b, good, sizeof good, 1500, &port);
    }
    assert_int_equal(heard, 10);
    assert_true(lan_hear(&b, good, sizeof good, 2500, &port));
}

/* A mapped address, or mask. */
#define V4(a, b, c, d)                                                         \
    {                                                                          \
        [10] = 0xff, 0xff, a, b, c, d                                          \
    }

static void a_sender_counts_only_from_a_network_of_ours(void **state)
{
    static const uint8_t own[16] = V4(192, 168, 1, 11);
    static const uint8_t mask[16] = V4(255, 255, 255, 0), no_mask[16] = {0};
    static const uint8_t near[16] = V4(192, 168, 1, 254);
    static const uint8_t other[16] = V4(192, 168, 2, 11);
    static const uint8_t global[16] = V4(8, 8, 8, 8);
    static const uint8_t alike[16] = {1, [10] = 0xff, 0xff, 192, 168, 1, 9};
    static const uint8_t own6[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
    static const uint8_t mask6[16] = {255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t near6[16] = {0x20, 1, 0xd, 0xb8, [15] = 99};
    static const uint8_t other6[16] = {0x20, 1, 0xd, 0xb9, [15] = 99};

    (void)state;
    assert_true(lan_is_near(near, own, mask));
    assert_false(lan_is_near(other, own, mask));
    assert_false(lan_is_near(global, own, mask));
    assert_false(lan_is_near(alike, own, mask));
    assert_false(lan_is_near(near, own, no_mask));
    assert_true(lan_is_near(near6, own6, mask6));
    assert_false(lan_is_near(other6, own6, mask6));
    assert_false(lan_is_near(near, own6, mask6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_of_one_run_hear_each_other),
        cmocka_unit_test(it_is_said_at_the_start_and_every_minute),
        cmocka_unit_test(a_newcomer_is_answered_at_most_once_a_second),
        cmocka_unit_test(bad_bytes_and_a_flood_are_dropped),
        cmocka_unit_test(a_sender_counts_only_from_a_network_of_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
