/* bucket_test.c - what may pass, in fake time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "p2p/bucket.h"

/* Bytes that pass in `ms` when pieces are offered all the time. */
static uint64_t pass(struct bucket *b, uint64_t from_ms, uint64_t ms)
{
    uint64_t now_ms = from_ms, passed = 0;

    while (now_ms < from_ms + ms) {
        uint64_t wait_ms = bucket_wait_ms(b, now_ms);

        if (wait_ms == 0) {
            passed += bucket_piece(b);
            bucket_spend(b, bucket_piece(b), now_ms);
        }
        now_ms += wait_ms;
    }
    return passed;
}

static void over_any_time_the_rate_holds(void **state)
{
    static const uint64_t rates[] = {1,      999,     32768,      100000,
                                     123457, 1250000, 1000000000, 1};

    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        uint64_t burst = rates[i] / 1000 * BUCKET_BURST_MS;
        struct bucket b;

        burst = burst > BUCKET_BURST_MIN ? burst : BUCKET_BURST_MIN;
        for (uint64_t ms = 100; ms <= 1000000; ms *= 10) {
            uint64_t most, passed;

            bucket_init(&b, rates[i], 5000);
            most = rates[i] * ms / 1000 + burst + bucket_piece(&b);
            passed = pass(&b, 5000, ms);
            assert_true(passed <= most + 1);
            /* Not much less either: the wait rounds up to a millisecond. */
            assert_true(passed + 2 * bucket_piece(&b) + rates[i] * ms / 20000 >=
                        rates[i] * ms / 1000);
        }
    }
}

static void idle_time_is_saved_up_to_the_burst_only(void **state)
{
    struct bucket b;
    uint64_t passed;

    (void)state;
    bucket_init(&b, 1000000, 0);
    (void)pass(&b, 0, 100);
    passed = pass(&b, 3600000, 1);
    assert_true(passed <= 1000 * BUCKET_BURST_MS + bucket_piece(&b) + 1000);
    bucket_init(&b, BUCKET_RATE_MAX, 0);
    assert_true(bucket_ready(&b, UINT64_MAX - 1)); /* nothing overflows */
    bucket_spend(&b, 1ULL << 39, UINT64_MAX - 1);
    assert_true(bucket_wait_ms(&b, UINT64_MAX - 1) > 0);
}

static void a_debt_is_waited_for_exactly(void **state)
{
    struct bucket b;

    (void)state;
    bucket_init(&b, 1000, 0); /* a burst of 4096 bytes */
    bucket_spend(&b, 4096 + 2500, 10);
    assert_int_equal(bucket_wait_ms(&b, 10), 2501);
    assert_false(bucket_ready(&b, 2510));
    assert_true(bucket_ready(&b, 2511));
    assert_int_equal(bucket_wait_ms(&b, 2000), 0); /* time never goes back */
}

static void no_rate_is_no_limit(void **state)
{
    struct bucket b;

    (void)state;
    bucket_init(&b, 0, 0);
    bucket_spend(&b, 1ULL << 39, 0);
    assert_true(bucket_ready(&b, 0));
    assert_int_equal(bucket_wait_ms(&b, 0), 0);
    assert_true(bucket_piece(&b) == UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_any_time_the_rate_holds),
        cmocka_unit_test(idle_time_is_saved_up_to_the_burst_only),
        cmocka_unit_test(a_debt_is_waited_for_exactly),
        cmocka_unit_test(no_rate_is_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
