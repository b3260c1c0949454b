/* cycle_test.c - which round synchronises what, and how long its vector is. */
#include "train/sync/cycle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/replica/layout.h"

static char errmsg[ERRMSG_SIZE];

static struct method moments(uint32_t x, uint32_t u, uint32_t v)
{
    return (struct method){.period = x,
                           .period_u = u,
                           .period_v = v,
                           .fragments = 1,
                           .rule = {.lr = 1}};
}

static struct method fragments(uint32_t period, uint32_t f, uint32_t overlap)
{
    return (struct method){.period = period,
                           .fragments = f,
                           .overlap = overlap,
                           .take = METHOD_MIX,
                           .mix = 0.5F,
                           .rule = {.lr = 1}};
}

/* The rounds are the steps at which any stream begins, in order, and what is
 * due in each is what the streams say. */
static void check_steps(const struct method *m, uint64_t upto)
{
    struct cycle c;
    struct stream_turn turn, want;
    uint64_t round = 0;

    assert_int_equal(cycle_init(&c, m, errmsg), 0);
    assert_true(cycle_step(&c, 0) == 0);
    for (uint64_t k = 1; k <= upto; k++) {
        bool any = false;

        for (size_t s = 0; s < c.n_streams; s++) {
            any = any || stream_begins(&c.streams[s], k, &turn);
        }
        if (!any) {
            continue;
        }
        assert_true(cycle_step(&c, ++round) == k);
        for (size_t s = 0; s < c.n_streams; s++) {
            bool begins = stream_begins(&c.streams[s], k, &want);

            assert_int_equal(cycle_due(&c, round, s, &turn), begins);
            if (begins) {
                assert_true(turn.number == want.number);
                assert_int_equal(turn.fragment, want.fragment);
            }
        }
    }
    assert_true(round > 0);
}

static void rounds_are_the_steps_at_which_streams_begin(void **state)
{
    const struct method m[] = {
        moments(2, 3, 6),
        moments(16, 16, 16),
        moments(256, 768, 1536),
        moments(4, 10, 15),
        moments(5, 0, 7),
        fragments(6, 2, 1),
        fragments(8, 4, 1),
        fragments(9, 3, 0),
        fragments(1, 1, 0),
        {.gradients = true, .fragments = 1},
        {.period = 7, .fragments = 1, .overlap = 7, .eager = true}};

    (void)state;
    for (size_t i = 0; i < sizeof m / sizeof m[0]; i++) {
        check_steps(&m[i], m[i].period > 100 ? 5000 : 400);
    }
}

static void methods_without_a_short_cycle_are_refused(void **state)
{
    struct method m = moments(256, 255, 254);
    struct cycle c;

    (void)state;
    assert_int_equal(cycle_init(&c, &m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "multiples of sync.period"));
    m = moments(4294967291U, 4294967279U, 4294967231U); /* primes */
    assert_int_equal(cycle_init(&c, &m, errmsg), LOCO_EINVAL);
    m = fragments(8, 2, 1);
    m.period_u = 8;
    assert_int_equal(cycle_init(&c, &m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "sync.overlap"));
}

static const struct llama_config model = {.dim = 16,
                                          .layers = 3,
                                          .heads = 2,
                                          .kv_heads = 2,
                                          .ffn = 24,
                                          .vocab = 256,
                                          .seq = 16,
                                          .tied = true,
                                          .rope_theta = 10000,
                                          .norm_eps = 1e-5F};

static void parts_do_not_share_a_block(void **state)
{
    const struct method m = moments(2, 4, 4);
    const uint64_t n = (uint64_t)llama_numel(&model);
    struct layout_part parts[METHOD_STREAMS_MAX];
    struct layout l;

    (void)state;
    assert_int_equal(layout_open(&l, &m, &model, 4096, errmsg), 0);
    assert_true(n % 4096 != 0);
    assert_int_equal(layout_parts(&l, 1, parts), 1);
    assert_true(layout_elements(&l, 1) == n);
    assert_int_equal(layout_parts(&l, 2, parts), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(parts[i].len == n);
        assert_true(parts[i].at % 4096 == 0);
        assert_true(parts[i].at == (i == 0 ? 0 : i * parts[0].room));
    }
    assert_true(layout_elements(&l, 2) == 2 * parts[0].room + n);
    assert_true(layout_most(&l) == layout_elements(&l, 2));
    layout_close(&l);
}

static void fragments_are_all_of_the_model(void **state)
{
    const struct method m = fragments(8, 4, 1);
    struct layout l;
    uint64_t sum = 0;

    (void)state;
    assert_int_equal(layout_open(&l, &m, &model, 1, errmsg), 0);
    for (uint32_t f = 0; f < 4; f++) {
        assert_true(layout_fragment_at(&l, f) == sum);
        assert_true(layout_elements(&l, f + 1) > 0);
        sum += layout_elements(&l, f + 1);
    }
    assert_true(sum == l.n);
    layout_close(&l);
}

static void more_fragments_than_layers_are_refused(void **state)
{
    const struct method m = fragments(10, 5, 1);
    struct layout l;

    (void)state;
    assert_int_equal(layout_open(&l, &m, &model, 1, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "take at most 4"));
    layout_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_are_the_steps_at_which_streams_begin),
        cmocka_unit_test(methods_without_a_short_cycle_are_refused),
        cmocka_unit_test(parts_do_not_share_a_block),
        cmocka_unit_test(fragments_are_all_of_the_model),
        cmocka_unit_test(more_fragments_than_layers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
