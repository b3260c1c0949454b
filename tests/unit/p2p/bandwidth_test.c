/* bandwidth_test.c - the map of directed rates, in fake time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "p2p/exchange/bandwidth.h"

#define CAP 64

static struct peer_id a = {{1}}, b = {{2}}, c = {{3}};

static int set_up(void **state)
{
    struct bandwidth *m = calloc(1, sizeof *m);

    bandwidth_init(m, malloc(bandwidth_bytes(CAP)), CAP, 0);
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    struct bandwidth *m = *state;

    free(m->row);
    free(m);
    return 0;
}

/* `n` samples of 50 ms at `rate`. */
static void feed(struct bandwidth *m,
                 const struct peer_id *from,
                 uint64_t rate,
                 int n,
                 uint64_t now_ms)
{
    for (int i = 0; i < n; i++) {
        bandwidth_note(m, from, &b, rate / 20, 50000, now_ms);
    }
}

static void an_edge_is_directed_and_unknown_at_first(void **state)
{
    struct bandwidth *m = *state;
    struct bandwidth_rate r = bandwidth_edge(m, &a, &b, 1000);

    assert_int_equal(r.confidence, 0);
    feed(m, &a, 1000000, 1, 1000);
    r = bandwidth_edge(m, &a, &b, 1500);
    assert_int_equal(r.bytes_per_s, 1000000);
    assert_true(r.confidence > 0 && r.confidence < 20);
    assert_int_equal(r.age_ms, 500);
    assert_int_equal(bandwidth_edge(m, &b, &a, 1500).confidence, 0);
    assert_int_equal(bandwidth_edge(m, &c, &b, 1500).confidence, 0);
}

static void small_pieces_make_one_sample(void **state)
{
    struct bandwidth *m = *state;

    for (int i = 0; i < 49; i++) {
        bandwidth_note(m, &a, &b, 2000, 1000, 10);
        assert_int_equal(bandwidth_edge(m, &a, &b, 10).confidence, 0);
    }
    bandwidth_note(m, &a, &b, 2000, 1000, 10);
    assert_int_equal(bandwidth_edge(m, &a, &b, 10).bytes_per_s, 2000000);
    /* Much in no time is a sample, too; no time at all says nothing. */
    bandwidth_note(m, &c, &b, BANDWIDTH_SAMPLE_BYTES, 1000, 10);
    assert_int_equal(bandwidth_edge(m, &c, &b, 10).bytes_per_s,
                     BANDWIDTH_SAMPLE_BYTES * 1000);
    bandwidth_note(m, &c, &b, BANDWIDTH_SAMPLE_BYTES, 0, 10);
    bandwidth_note(m, &c, &b, 0, 90000, 10);
    bandwidth_note(m, &c, &b, UINT64_MAX, 1, 10);
    assert_int_equal(bandwidth_edge(m, &c, &b, 10).bytes_per_s,
                     BANDWIDTH_SAMPLE_BYTES * 1000);
}

static void the_average_follows_a_change_and_confidence_grows(void **state)
{
    struct bandwidth *m = *state;
    struct bandwidth_rate r;

    feed(m, &a, 8000000, 10, 0);
    r = bandwidth_edge(m, &a, &b, 0);
    assert_int_equal(r.bytes_per_s, 8000000);
    assert_int_equal(r.confidence, BANDWIDTH_CONFIDENCE);
    feed(m, &a, 4000000, 1, 1);
    assert_int_equal(bandwidth_edge(m, &a, &b, 1).bytes_per_s, 7000000);
    feed(m, &a, 4000000, 20, 2);
    r = bandwidth_edge(m, &a, &b, 2);
    assert_true(r.bytes_per_s >= 4000000 && r.bytes_per_s < 4050000);
}

static void confidence_fades_and_what_is_too_old_counts_no_more(void **state)
{
    struct bandwidth *m = *state;
    uint64_t later = 9 * (uint64_t)BANDWIDTH_HALF_MS;

    feed(m, &a, 8000000, 10, 0);
    assert_int_equal(bandwidth_edge(m, &a, &b, BANDWIDTH_HALF_MS).confidence,
                     50);
    assert_int_equal(bandwidth_edge(m, &a, &b, later).confidence, 0);
    assert_int_equal(bandwidth_edge(m, &a, &b, later).bytes_per_s, 0);
    feed(m, &a, 1000000, 1, later);
    assert_int_equal(bandwidth_edge(m, &a, &b, later).bytes_per_s, 1000000);
}

static void news_are_what_changed_by_an_eighth(void **state)
{
    struct bandwidth *m = *state;
    const struct bandwidth_row *out[4];

    feed(m, &a, 8000000, 1, 0);
    feed(m, &c, 1000000, 1, 0);
    assert_int_equal(bandwidth_news(m, &b, out, 1), 1); /* as many as fit */
    assert_int_equal(bandwidth_news(m, &b, out, 4), 1);
    assert_int_equal(bandwidth_news(m, &b, out, 4), 0);
    feed(m, &a, 8800000, 1, 1); /* 2.5 % more: nothing to talk about */
    assert_int_equal(bandwidth_news(m, &b, out, 4), 0);
    feed(m, &a, 16000000, 2, 2);
    assert_int_equal(bandwidth_news(m, &b, out, 4), 1);
    assert_true(id_eq(&out[0]->from, &a));
    assert_int_equal(bandwidth_news(m, &a, out, 4), 0); /* none into a */
    bandwidth_tell_anew(m);
    assert_int_equal(bandwidth_news(m, &b, out, 4), 2);
}

static void what_others_say_is_taken_within_reason(void **state)
{
    struct bandwidth *m = *state;
    const struct bandwidth_row *out[4];

    bandwidth_told(m, &b, &a, 5000, 80, 100);
    assert_int_equal(bandwidth_edge(m, &b, &a, 100).bytes_per_s, 5000);
    assert_int_equal(bandwidth_edge(m, &b, &a, 100).confidence, 80);
    bandwidth_told(m, &b, &a, BANDWIDTH_RATE_MAX + 1, 80, 200);
    bandwidth_told(m, &b, &a, 6000, 0, 200);
    bandwidth_told(m, &b, &a, 6000, 101, 200);
    bandwidth_told(m, &a, &a, 6000, 80, 200);
    assert_int_equal(bandwidth_edge(m, &b, &a, 200).bytes_per_s, 5000);
    assert_int_equal(bandwidth_edge(m, &a, &a, 200).confidence, 0);
    assert_int_equal(bandwidth_news(m, &a, out, 4), 0); /* not ours to tell */
}

static void a_full_map_forgets_what_is_oldest(void **state)
{
    struct bandwidth *m = *state;
    uint32_t known = 0;

    feed(m, &a, 1000000, 1, 1000000); /* the newest */
    for (uint32_t i = 0; i < 4 * CAP; i++) {
        struct peer_id other = {{9, (uint8_t)i, (uint8_t)(i >> 8)}};

        bandwidth_told(m, &other, &c, 1000, 50, 1000 + i);
    }
    for (uint32_t i = 0; i < 4 * CAP; i++) {
        struct peer_id other = {{9, (uint8_t)i, (uint8_t)(i >> 8)}};

        known += bandwidth_edge(m, &other, &c, 2000).confidence > 0;
    }
    assert_true(known <= CAP && known > CAP / 2);
    assert_int_equal(bandwidth_edge(m, &a, &b, 1000000).bytes_per_s, 1000000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(an_edge_is_directed_and_unknown_at_first),
        T(small_pieces_make_one_sample),
        T(the_average_follows_a_change_and_confidence_grows),
        T(confidence_fades_and_what_is_too_old_counts_no_more),
        T(news_are_what_changed_by_an_eighth),
        T(what_others_say_is_taken_within_reason),
        T(a_full_map_forgets_what_is_oldest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
