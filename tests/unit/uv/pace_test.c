/* pace_test.c - caps on bulk traffic: bytes arrive whole, in order, not sooner
 * than the cap allows; control messages do not wait. Times are those of the
 * events that the shell reports: a slow machine only makes them longer. */
#include "tests/unit/uv/pair.h"

#define RATE  (4U << 20)
#define SEGS  6
#define BURST ((uint64_t)RATE * 50 / 1000)

static void
pair_open_capped(struct pair *p, uint64_t up, uint64_t down, bool plain)
{
    struct shell_options opt;

    uv_loop_init(&p->loop);
    opt = node_init(&p->a, 1);
    opt.upload_bytes_per_s = up;
    opt.plain_bulk = plain;
    node_open(&p->a, &p->loop, &opt);
    opt = node_init(&p->b, 2);
    opt.download_bytes_per_s = down;
    opt.plain_bulk = plain;
    node_open(&p->b, &p->loop, &opt);
    bulk_open_act(&p->a, &p->b);
    RUN_UNTIL(&p->loop,
              node_stats(&p->a).bulks == 1 && node_stats(&p->b).bulks == 1);
}

/* Six segments from a to b: the least time that they may take has passed
 * between the first post and the last report. */
static void check_rate(uint64_t up, uint64_t down, bool plain)
{
    uint64_t least_ms = (SEGS * (uint64_t)PIECE - BURST - 65536) * 1000 / RATE;
    uint64_t began_ms;
    struct pair p;

    pair_open_capped(&p, up, down, plain);
    paint(&p.a);
    began_ms = shell_now_ms();
    for (uint32_t i = 0; i < SEGS; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, done(&p.a, 0) == SEGS && done(&p.b, 0) == SEGS);
    assert_memory_equal(p.a.memory, p.b.memory, SEGS * PIECE);
    assert_once(&p.a, SEGS);
    assert_once(&p.b, SEGS);
    assert_true(node_event(&p.b, EVENT_SEG_DONE, SEGS - 1)->event.now_ms -
                    began_ms >=
                least_ms);
    pair_close(&p);
}

static void an_upload_cap_holds_and_nothing_is_lost(void **state)
{
    (void)state;
    check_rate(RATE, 0, false);
    check_rate(RATE, 0, true);
}

static void a_download_cap_holds_and_nothing_is_lost(void **state)
{
    (void)state;
    check_rate(0, RATE, false);
    check_rate(0, RATE, true);
}

static void
a_connection_that_ends_between_two_pieces_ends_its_segments(void **state)
{
    struct pair p;

    (void)state;
    pair_open_capped(&p, 65536, 0, false); /* a segment takes four seconds */
    for (uint32_t i = 0; i < 4; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).bytes_received > 8192);
    node_close(&p.b, &p.loop);
    RUN_UNTIL(&p.loop, node_stats(&p.a).bulks == 0);
    RUN_UNTIL(&p.loop, p.a.toy.counts[EVENT_SEG_DONE] == 4);
    assert_once(&p.a, 4);
    assert_int_equal(done(&p.a, 0), 0);
    node_close(&p.a, &p.loop);
    loop_end(&p.loop);
}

static void a_shell_that_closes_in_the_middle_leaves_nothing(void **state)
{
    struct pair p;

    (void)state;
    pair_open_capped(&p, 65536, 65536, false);
    for (uint32_t i = 0; i < 4; i++) {
        post(&p.b, &p.a, 5, i, PIECE);
        give(&p.a, &p.b, 5, i, PIECE);
    }
    RUN_UNTIL(&p.loop, node_stats(&p.b).bytes_received > 8192);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upload_cap_holds_and_nothing_is_lost),
        cmocka_unit_test(a_download_cap_holds_and_nothing_is_lost),
        cmocka_unit_test(
            a_connection_that_ends_between_two_pieces_ends_its_segments),
        cmocka_unit_test(a_shell_that_closes_in_the_middle_leaves_nothing),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
