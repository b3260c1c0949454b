/* bench_test.c - the all-reduce benchmark: real processes, real connections,
 * and a result that is checked against the exact mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sodium.h>

#include "daemon/bench/allreduce.h"
#include "proto/sign.h"

static struct bench_rank_options
options(const char *wire, uint32_t n, uint64_t elements)
{
    struct bench_rank_options o = {
        .n = n,
        .elements = elements,
        .codec = codec_find(wire),
        .segment_bytes = 16U << 10,
        .warmup = 1,
        .rounds = 2,
        .encrypted = true,
        .host = "127.0.0.1",
    };

    randombytes_buf(o.run_id.b, sizeof o.run_id.b);
    return o;
}

/* Forked ranks come back from the benchmark, too: their life ends here. */
static int run(const struct bench_rank_options *o, struct bench_result *r)
{
    bool child;
    int rv;

    memset(r, 0, sizeof *r);
    rv = bench_allreduce_local(o, r, &child);
    if (child) {
        _exit(rv);
    }
    if (rv != 0) {
        print_message("%s\n", r->error);
    }
    return rv;
}

static void every_rank_gets_the_mean(void **state)
{
    /* Largest error of one hop: values are in [-1, 1), sums of n hops. */
    static const struct {
        const char *wire;
        double step;
    } rows[] = {{"fp32", 0x1p-23}, {"bf16", 0x1p-8}, {"fp16", 0x1p-11}};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n = 2 + i;
        struct bench_rank_options o = options(rows[i].wire, n, 50001);
        struct bench_result r;
        double bytes = 2.0 * (n - 1) * (double)o.codec->bytes(o.elements);

        assert_int_equal(run(&o, &r), 0);
        assert_true(r.max_error <= n * rows[i].step);
        assert_true(r.seconds_median > 0 && r.commit_seconds_median > 0);
        /* All ranks together send 2(n-1) vectors, and little beside them. */
        assert_true(r.bytes_sent >= bytes && r.bytes_sent < 1.1 * bytes + 1e5);
        assert_true(r.elements_per_s > 0 && r.cpu_seconds > 0);
        assert_int_equal(r.rounds_aborted, 0);
    }
}

/* The vote's hash is made of pieces while others arrive; all ranks agree. */
static void a_round_commits_whose_hash_was_made_on_the_way(void **state)
{
    struct bench_rank_options o = options("fp16", 3, 1700001);
    struct bench_result r;

    (void)state;
    o.overlap = true;
    assert_int_equal(run(&o, &r), 0);
    assert_true(r.max_error <= 3 * 0x1p-11);
    assert_int_equal(r.rounds_aborted, 0);
}

/* One value lost in 127, in the contribution and in the sum; a third of the
 * next power of two below, for E3M0, twice. Parts are no mean: of them the
 * bytes count. Contributions are in [-1, 1]. */
static void a_butterfly_averages_in_every_wire_type(void **state)
{
    static const struct {
        const char *wire;
        double step;
    } rows[] = {{"fp32", 1e-6},       {"bf16", 0x1p-8}, {"fp16", 0x1p-11},
                {"int8", 1.01 / 254}, {"e3m0", 0.25},   {"int2", 0.27},
                {"sparse", 1e9}};

    (void)state;
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t n = 2 + i % 4;
        struct bench_rank_options o = options(rows[i].wire, n, 300001);
        struct bench_result r;
        double bytes = 2.0 * (n - 1) * (double)o.codec->bytes(o.elements);

        o.exchange = EXCHANGE_BUTTERFLY;
        o.encrypted = i % 2 == 0;
        assert_int_equal(run(&o, &r), 0);
        assert_true(r.max_error <= 2 * rows[i].step);
        assert_true(r.bytes_sent >= bytes && r.bytes_sent < 1.1 * bytes + 1e5);
        assert_int_equal(r.rounds_aborted, 0);
    }
}

static void without_encryption_the_result_is_the_same_and_shorter(void **state)
{
    struct bench_rank_options o = options("fp16", 3, 200000);
    struct bench_result sealed, plain;

    (void)state;
    assert_int_equal(run(&o, &sealed), 0);
    o.encrypted = false;
    assert_int_equal(run(&o, &plain), 0);
    assert_true(plain.max_error <= 3 * 0x1p-11);
    assert_true(plain.bytes_sent < sealed.bytes_sent);
}

static void fewer_elements_than_ranks_work(void **state)
{
    struct bench_rank_options o = options("fp16", 4, 3);
    struct bench_result r;

    (void)state;
    assert_int_equal(run(&o, &r), 0);
    assert_true(r.max_error <= 4 * 0x1p-11);
}

static void a_rank_that_cannot_start_ends_all_with_a_sentence(void **state)
{
    struct bench_rank_options o = options("fp16", 3, 1000);
    struct bench_result r;

    (void)state;
    o.host = "192.0.2.1"; /* not an address of this machine */
    assert_int_not_equal(run(&o, &r), 0);
    assert_non_null(strstr(r.error, "cannot listen on 192.0.2.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_mean),
        cmocka_unit_test(a_round_commits_whose_hash_was_made_on_the_way),
        cmocka_unit_test(a_butterfly_averages_in_every_wire_type),
        cmocka_unit_test(without_encryption_the_result_is_the_same_and_shorter),
        cmocka_unit_test(fewer_elements_than_ranks_work),
        cmocka_unit_test(a_rank_that_cannot_start_ends_all_with_a_sentence),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
