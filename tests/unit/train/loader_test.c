/* loader_test.c - batches are a pure function of seed, peer and step. */
#include "train/data/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define T 8
#define B 3

static char errmsg[ERRMSG_SIZE];

/* Two shards of 41 and 30 tokens: 5 and 3 windows; the ids say where. */
static uint8_t text_a[41];
static uint8_t text_b[30];
static struct shard shards[3];

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof text_a; i++) {
        text_a[i] = (uint8_t)i;
    }
    for (unsigned i = 0; i < sizeof text_b; i++) {
        text_b[i] = (uint8_t)(100 + i);
    }
    shard_from_text(&shards[0], text_a, sizeof text_a);
    shard_from_text(&shards[1], "", 0); /* an empty one between them */
    shard_from_text(&shards[2], text_b, sizeof text_b);
    return 0;
}

static struct loader_options options(uint64_t seed, uint64_t peer)
{
    struct loader_options o = {.shards = shards,
                               .n_shards = 3,
                               .seq = T,
                               .batch = B,
                               .seed = seed,
                               .peer = peer};
    return o;
}

static void open_loader(struct loader *l, uint64_t seed, uint64_t peer)
{
    struct loader_options o = options(seed, peer);

    assert_int_equal(loader_open(l, &o, errmsg), 0);
}

static void the_order_is_a_permutation_for_every_size(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 300; n++) {
        uint8_t seen[300] = {0};

        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = loader_permute(i, n, n * 77);
            assert_true(j < n);
            assert_int_equal(seen[j], 0);
            seen[j] = 1;
        }
    }
}

static void the_order_of_huge_sets_stays_in_range_and_distinct(void **state)
{
    static const uint64_t sizes[] = {(1ULL << 32) + 1, 1ULL << 40, 1ULL << 62,
                                     UINT64_MAX};

    (void)state;
    for (size_t s = 0; s < 4; s++) {
        uint64_t last = UINT64_MAX;

        for (uint64_t i = 0; i < 100; i++) {
            uint64_t j = loader_permute(i, sizes[s], 5);
            assert_true(j < sizes[s]);
            assert_true(j != last);
            last = j;
        }
    }
}

static void every_place_gets_every_window_equally_often(void **state)
{
    enum { N = 20, KEYS = 20000 };
    unsigned counts[N][N] = {{0}};

    (void)state;
    for (uint64_t key = 0; key < KEYS; key++) {
        for (uint64_t i = 0; i < N; i++) {
            counts[i][loader_permute(i, N, key)]++;
        }
    }
    for (unsigned i = 0; i < N; i++) {
        for (unsigned j = 0; j < N; j++) {
            /* mean 1000, sigma 31: seven sigmas */
            assert_true(counts[i][j] > 780 && counts[i][j] < 1220);
        }
    }
}

static void an_epoch_holds_each_window_once_and_the_next_differs(void **state)
{
    struct loader l;
    uint64_t orders[2][8];

    (void)state;
    open_loader(&l, 42, 7);
    assert_int_equal(l.n_windows, 8);
    for (uint64_t p = 0; p < 16; p++) {
        orders[p / 8][p % 8] = loader_window(&l, p / B, (uint32_t)(p % B));
    }
    for (unsigned e = 0; e < 2; e++) {
        unsigned seen = 0;

        for (unsigned i = 0; i < 8; i++) {
            seen |= 1U << orders[e][i];
        }
        assert_int_equal(seen, 0xff);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    loader_close(&l);
}

/* Windows 0 to 4 are shard a's, 5 to 7 shard b's. */
static void the_shared_order_reads_one_shard_after_the_other(void **state)
{
    struct loader l;

    (void)state;
    open_loader(&l, 42, 0);
    for (uint64_t p = 0; p < 800; p++) {
        uint64_t window = loader_window(&l, p / B, (uint32_t)(p % B));

        assert_true(p % 8 < 5 ? window < 5 : window >= 5);
    }
    loader_close(&l);
}

static void peers_begin_with_different_shards_and_go_round(void **state)
{
    unsigned began[2] = {0};

    (void)state;
    for (uint64_t peer = 1; peer < 100; peer++) {
        struct loader l;
        unsigned changes = 0;

        open_loader(&l, 42, peer);
        for (uint64_t p = 0; p < 8; p++) {
            bool is_b = loader_window(&l, p / B, (uint32_t)(p % B)) >= 5;
            bool next =
                loader_window(&l, (p + 1) / B, (uint32_t)((p + 1) % B)) >= 5;

            began[is_b] += p == 0;
            changes += is_b != next;
        }
        assert_int_equal(changes, 2);
        loader_close(&l);
    }
    assert_true(began[0] > 20 && began[1] > 20);
}

static void a_window_of_a_shard_that_is_not_here_is_never_read(void **state)
{
    struct loader l;
    struct shard some[3];
    struct loader_options o = options(42, 0);
    uint32_t tokens[B * T], targets[B * T];

    (void)state;
    memcpy(some, shards, sizeof some);
    some[2].data = NULL;
    o.shards = some;
    assert_int_equal(loader_open(&l, &o, errmsg), 0);
    assert_int_equal(l.n_windows, 8);
    assert_int_equal(loader_batch(&l, 0, tokens, targets), 0);
    /* Places 3, 4 and 5: the last one is b's. */
    assert_int_equal(loader_batch(&l, 1, tokens, targets), LOCO_ENOENT);
    some[2] = shards[2];
    assert_int_equal(loader_batch(&l, 1, tokens, targets), 0);
    loader_close(&l);
}

/* The first token of a window tells which one it is. */
static void check_row(const uint32_t *tokens, const uint32_t *targets)
{
    uint32_t base = tokens[0] < 100 ? 0 : 100;

    assert_int_equal((tokens[0] - base) % T, 0);
    for (uint32_t t = 0; t < T; t++) {
        assert_int_equal(tokens[t], tokens[0] + t);
        assert_int_equal(targets[t], tokens[0] + t + 1);
    }
    assert_true(base == 0 ? targets[T - 1] <= 40 : targets[T - 1] <= 129);
}

static void
targets_are_the_tokens_one_later_and_never_cross_shards(void **state)
{
    struct loader l;
    uint32_t tokens[B * T];
    uint32_t targets[B * T];
    unsigned seen[130] = {0};

    (void)state;
    open_loader(&l, 1, 2);
    for (uint64_t step = 0; step < 8; step++) { /* 24 rows: three epochs */
        assert_int_equal(loader_batch(&l, step, tokens, targets), 0);
        for (unsigned b = 0; b < B; b++) {
            check_row(tokens + b * T, targets + b * T);
            seen[tokens[b * T]]++;
        }
    }
    for (unsigned w = 0; w < 5; w++) {
        assert_int_equal(seen[w * T], 3);
    }
    for (unsigned w = 0; w < 3; w++) {
        assert_int_equal(seen[100 + w * T], 3);
    }
    loader_close(&l);
}

static void the_same_seed_peer_and_step_give_the_same_batch(void **state)
{
    struct loader a;
    struct loader b;
    uint32_t x[2][B * T];
    uint32_t y[2][B * T];

    (void)state;
    open_loader(&a, 9, 9);
    open_loader(&b, 9, 9);
    for (uint64_t step = 0; step < 5; step++) {
        assert_int_equal(loader_batch(&a, step, x[0], x[1]), 0);
    }
    assert_int_equal(loader_batch(&b, 4, y[0], y[1]), 0); /* no history */
    assert_memory_equal(x, y, sizeof x);
    loader_close(&a);
    loader_close(&b);
}

static void seed_and_peer_both_change_the_order(void **state)
{
    static const uint64_t keys[3][2] = {{9, 9}, {9, 10}, {10, 9}};
    uint64_t orders[3][24];

    (void)state;
    for (unsigned k = 0; k < 3; k++) {
        struct loader l;

        open_loader(&l, keys[k][0], keys[k][1]);
        for (uint64_t p = 0; p < 24; p++) {
            orders[k][p] = loader_window(&l, p / B, (uint32_t)(p % B));
        }
        loader_close(&l);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
    assert_memory_not_equal(orders[1], orders[2], sizeof orders[0]);
}

static void micro_batches_are_rows_of_the_batch(void **state)
{
    struct loader l;
    uint32_t tokens[B * T];
    uint32_t targets[B * T];
    uint32_t in[T];
    uint32_t out[T];

    (void)state;
    open_loader(&l, 4, 4);
    assert_int_equal(loader_batch(&l, 11, tokens, targets), 0);
    for (uint32_t b = 0; b < B; b++) {
        assert_int_equal(loader_rows(&l, 11, b, 1, in, out), 0);
        assert_memory_equal(in, tokens + b * T, sizeof in);
        assert_memory_equal(out, targets + b * T, sizeof out);
    }
    loader_close(&l);
}

static void options_that_leave_no_window_are_refused(void **state)
{
    struct loader l;
    struct loader_options o = options(1, 1);

    (void)state;
    o.seq = 41; /* needs 42 tokens */
    assert_int_equal(loader_open(&l, &o, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "42 tokens"));
    loader_close(&l);
    o.seq = 40;
    assert_int_equal(loader_open(&l, &o, errmsg), 0);
    assert_int_equal(l.n_windows, 1);
    loader_close(&l);
    o.n_shards = 0;
    assert_int_equal(loader_open(&l, &o, errmsg), LOCO_EINVAL);
    loader_close(&l);
    o = options(1, 1);
    o.batch = 0;
    assert_int_equal(loader_open(&l, &o, errmsg), LOCO_EINVAL);
    loader_close(&l);
}

static void evaluation_scores_all_but_the_first_token_of_a_window(void **state)
{
    uint32_t tokens[4 * T];
    uint32_t targets[4 * T];
    struct shard s;
    uint64_t scored;

    (void)state;
    shard_from_text(&s, text_a, 19); /* windows of 8, 8 and 3 tokens */
    assert_int_equal(eval_window_count(&s, T), 3);
    memset(tokens, 0x55, sizeof tokens);
    assert_int_equal(eval_rows(&s, T, 0, 4, tokens, targets, &scored), 0);
    assert_int_equal(scored, 7 + 7 + 2);
    for (uint32_t i = 0; i < 4 * T; i++) {
        bool inside = i < 19;
        bool has_target = i + 1 < 19 && i % T != T - 1;

        assert_int_equal(tokens[i], inside ? i : 0);
        assert_int_equal(targets[i], has_target ? i + 1 : LOADER_NO_TARGET);
    }
    assert_int_equal(eval_rows(&s, T, 2, 1, tokens, targets, &scored), 0);
    assert_int_equal(scored, 2);
    assert_int_equal(tokens[0], 16);
}

static void
evaluation_of_every_length_scores_n_less_one_per_window(void **state)
{
    uint32_t tokens[6 * T];
    uint32_t targets[6 * T];

    (void)state;
    for (size_t n = 0; n <= sizeof text_a; n++) {
        struct shard s;
        uint64_t scored;
        unsigned n_targets = 0;

        shard_from_text(&s, text_a, n);
        assert_int_equal(eval_rows(&s, T, 0, 6, tokens, targets, &scored), 0);
        assert_int_equal(scored, n - eval_window_count(&s, T));
        for (unsigned i = 0; i < 6 * T; i++) {
            n_targets += targets[i] != LOADER_NO_TARGET;
        }
        assert_int_equal(n_targets, scored);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_a_permutation_for_every_size),
        cmocka_unit_test(the_order_of_huge_sets_stays_in_range_and_distinct),
        cmocka_unit_test(every_place_gets_every_window_equally_often),
        cmocka_unit_test(an_epoch_holds_each_window_once_and_the_next_differs),
        cmocka_unit_test(the_shared_order_reads_one_shard_after_the_other),
        cmocka_unit_test(peers_begin_with_different_shards_and_go_round),
        cmocka_unit_test(a_window_of_a_shard_that_is_not_here_is_never_read),
        cmocka_unit_test(
            targets_are_the_tokens_one_later_and_never_cross_shards),
        cmocka_unit_test(the_same_seed_peer_and_step_give_the_same_batch),
        cmocka_unit_test(seed_and_peer_both_change_the_order),
        cmocka_unit_test(micro_batches_are_rows_of_the_batch),
        cmocka_unit_test(options_that_leave_no_window_are_refused),
        cmocka_unit_test(evaluation_scores_all_but_the_first_token_of_a_window),
        cmocka_unit_test(
            evaluation_of_every_length_scores_n_less_one_per_window),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
