/* budget_test.c - what strangers get, alone and together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/swarm/budget.h"

#define LINKS   160
#define BEGIN   1000000ULL /* ms */
#define SECONDS 20

struct strangers {
    struct budget all;
    struct budget_link link[LINKS];
    uint64_t n[LINKS], n_all;
};

static void begin(struct strangers *s)
{
    *s = (struct strangers){0};
    for (uint32_t i = 0; i < LINKS; i++) {
        budget_link_init(&s->link[i], BEGIN);
    }
}

static void use(struct strangers *s,
                uint32_t i,
                enum budget_kind kind,
                uint64_t n,
                uint64_t ms)
{
    if (budget_allows(&s->all, &s->link[i], kind, ms)) {
        budget_use(&s->all, &s->link[i], kind, n, ms);
        s->n[i] += n;
        s->n_all += n;
    }
}

static void one_link_gets_its_burst_and_its_rate(void **state)
{
    struct strangers s;

    (void)state;
    begin(&s);
    for (uint64_t ms = 0; ms < SECONDS * 1000; ms++) {
        use(&s, 0, BUDGET_SIGNATURES, 1, BEGIN + ms);
    }
    assert_in_range(s.n[0], 20 + 10 * SECONDS - 1, 20 + 10 * SECONDS);
    begin(&s);
    for (uint64_t ms = 0; ms < SECONDS * 1000; ms++) {
        use(&s, 0, BUDGET_BYTES, 1000, BEGIN + ms);
    }
    assert_in_range(s.n[0], 300000 + 100000 * SECONDS - 1000,
                    300000 + 100000 * SECONDS + 1000);
}

/* All press as they can; the last one wants one signature each two seconds. */
static void
all_together_get_little_and_who_asks_for_little_gets_it(void **state)
{
    const uint64_t fair = LINKS * SECONDS / 2;
    struct strangers s;

    (void)state;
    begin(&s);
    for (uint64_t ms = 0; ms < SECONDS * 1000; ms++) {
        for (uint32_t i = 0; i < LINKS - 1; i++) {
            use(&s, (uint32_t)(i + ms) % (LINKS - 1), BUDGET_SIGNATURES, 1,
                BEGIN + ms);
        }
        if (ms % 2001 == 2000) {
            use(&s, LINKS - 1, BUDGET_SIGNATURES, 1, BEGIN + ms);
        }
    }
    assert_int_equal(s.n[LINKS - 1], SECONDS * 1000 / 2001);
    assert_in_range(s.n_all, 200 * SECONDS, 200 * (SECONDS + 1) + fair + 1);
}

static void who_dials_again_gets_no_other_fair_share(void **state)
{
    struct strangers s;
    uint64_t before;

    (void)state;
    begin(&s);
    for (uint32_t k = 0; k < 400; k++) { /* all of the budget of all */
        budget_use(&s.all, &s.link[k % LINKS], BUDGET_SIGNATURES, 1, BEGIN);
    }
    before = s.n_all;
    for (uint64_t ms = 0; ms < 900; ms++) {
        budget_link_init(&s.link[0], BEGIN + ms);
        use(&s, 0, BUDGET_SIGNATURES, 1, BEGIN + ms);
    }
    assert_int_equal(s.n_all, before);
}

/* A chain of views is thousands of signatures: it is paid for, not for ever. */
static void no_debt_lasts_long(void **state)
{
    struct strangers s;

    (void)state;
    begin(&s);
    use(&s, 0, BUDGET_SIGNATURES, UINT64_MAX, BEGIN);
    assert_false(
        budget_allows(&s.all, &s.link[0], BUDGET_SIGNATURES, BEGIN + 9999));
    assert_true(
        budget_allows(&s.all, &s.link[0], BUDGET_SIGNATURES, BEGIN + 10001));
}

/* Alone it waits for itself; in a crowd for its fair share, or for the crowd,
 * whichever comes first. */
static void who_waits_may_when_the_wait_is_over(void **state)
{
    struct strangers s;
    uint64_t wait_ms;

    (void)state;
    begin(&s);
    assert_int_equal(
        budget_wait_ms(&s.all, &s.link[0], BUDGET_BYTES, BEGIN + 9000), 0);
    use(&s, 0, BUDGET_BYTES, 400000, BEGIN + 9000);
    wait_ms = budget_wait_ms(&s.all, &s.link[0], BUDGET_BYTES, BEGIN + 9000);
    assert_in_range(wait_ms, 1000, 1001);
    assert_false(budget_allows(&s.all, &s.link[0], BUDGET_BYTES,
                               BEGIN + 9000 + wait_ms - 2));
    assert_true(budget_allows(&s.all, &s.link[0], BUDGET_BYTES,
                              BEGIN + 9000 + wait_ms));
    begin(&s);
    for (uint32_t i = 2; i < 32; i++) { /* 3 MB of all; 1 MB too much */
        use(&s, i, BUDGET_BYTES, 100000, BEGIN + 1);
    }
    use(&s, 0, BUDGET_BYTES, 1000, BEGIN + 1);
    wait_ms = budget_wait_ms(&s.all, &s.link[0], BUDGET_BYTES, BEGIN + 1);
    assert_in_range(wait_ms, 320, 321);
}

/* All together are overdrawn. Each frame has 100 bytes and 512 for itself: who
 * is sent 256 KiB for each is charged the 100, who is sent nothing 612. */
static uint32_t heard(uint64_t served)
{
    struct strangers s;
    uint32_t n = 0;

    begin(&s);
    budget_use(&s.all, &s.link[2], BUDGET_BYTES, 4000000, BEGIN);
    for (uint64_t now_ms = BEGIN; now_ms < BEGIN + 10000; now_ms++) {
        budget_use(&s.all, &s.link[2], BUDGET_BYTES, 4000, now_ms);
        if (budget_allows(&s.all, &s.link[0], BUDGET_BYTES, now_ms)) {
            use(&s, 0, BUDGET_BYTES, 612, now_ms);
            budget_served(&s.link[0], served, now_ms);
            n += now_ms >= BEGIN + 5000; /* the burst is over */
        }
    }
    return n;
}

static void in_a_crowd_who_fetches_is_heard_more_often(void **state)
{
    (void)state;
    assert_in_range(heard(0), 24, 27);    /* in 5 s: 3,125 bytes a second */
    assert_in_range(heard(1000), 24, 27); /* a piece of one byte is no trick */
    assert_in_range(heard(262144), 150, 160);
}

/* A chain of views, 256 KiB. What it says itself may cost more. */
static void no_answer_silences_a_link_for_long(void **state)
{
    struct strangers s;

    (void)state;
    begin(&s);
    budget_use(&s.all, &s.link[2], BUDGET_BYTES, 20000000, BEGIN);
    budget_answered(&s.all, &s.link[0], 262144, BEGIN);
    assert_in_range(budget_wait_ms(&s.all, &s.link[0], BUDGET_BYTES, BEGIN),
                    3900, 4001);
    budget_use(&s.all, &s.link[0], BUDGET_BYTES, 262144, BEGIN);
    budget_answered(&s.all, &s.link[0], 262144, BEGIN);
    assert_in_range(budget_wait_ms(&s.all, &s.link[0], BUDGET_BYTES, BEGIN),
                    9900, 10001);
}

/* ---- what they fetch ------------------------------------------------------
 */

#define RATE  1000000 /* bytes a second */
#define BURST 16000000U
#define PIECE 1000

/* Bytes that this group gets in `ms`, and another one (0: none), both asking as
 * often as they can. */
static void fetch(struct budget_shares *s,
                  uint8_t group,
                  uint8_t other,
                  uint64_t *now_ms,
                  uint64_t ms,
                  uint64_t got[2])
{
    got[0] = got[1] = 0;
    for (uint64_t end = *now_ms + ms; *now_ms < end; ++*now_ms) {
        for (int k = 0; k < 2; k++) {
            const struct peer_id id = {{k == 0 ? group : other}};

            while (id.b[0] != 0 &&
                   budget_fill(s, &id, RATE, BURST, PIECE, *now_ms)) {
                got[k] += PIECE;
            }
        }
    }
}

static void a_group_that_fetches_without_end_leaves_half_to_others(void **state)
{
    struct budget_shares s = {0};
    uint64_t now_ms = BEGIN, got[2];

    (void)state;
    fetch(&s, 1, 0, &now_ms, 1, got);
    assert_in_range(got[0], BURST / 2, BURST / 2 + PIECE);
    fetch(&s, 1, 0, &now_ms, 100000, got); /* and it gets the whole rate */
    assert_in_range(got[0], 99 * RATE, 101 * RATE);
    fetch(&s, 2, 0, &now_ms, 1, got); /* a newcomer, at once */
    assert_in_range(got[0], BURST / 4, BURST / 4 + 2 * PIECE);
    fetch(&s, 1, 2, &now_ms, 100000, got);
    assert_in_range(got[0] + got[1], 98 * RATE, 101 * RATE);
    assert_in_range(got[1], 45 * RATE, 60 * RATE);
}

static void of_more_groups_than_rows_all_get_something(void **state)
{
    struct budget_shares s = {0};
    uint64_t now_ms = BEGIN, got[2], all = 0;

    (void)state;
    for (uint8_t g = 1; g <= 200; g++) {
        fetch(&s, g, 0, &now_ms, 1, got);
        all += got[0];
    }
    assert_in_range(all, BURST - RATE, BURST + RATE);
    fetch(&s, 201, 0, &now_ms, 1000, got);
    assert_in_range(got[0], RATE / BUDGET_SHARES_MAX / 2, RATE);
    fetch(&s, 202, 0, &now_ms, 1000, got);
    assert_in_range(got[0], RATE / BUDGET_SHARES_MAX / 2, RATE);
}

/* Bytes a second, asked for each millisecond: what is less than one byte is
 * not lost. */
static void a_low_rate_is_one(void **state)
{
    const struct peer_id id = {{1}};
    struct budget_shares s = {0};
    uint64_t n = 0;

    (void)state;
    for (uint64_t ms = 0; ms < 100000; ms++) {
        n += budget_fill(&s, &id, 38, 2000, 1, BEGIN + ms);
    }
    assert_in_range(n, 1000 + 3800 - 40, 1000 + 3800 + 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_link_gets_its_burst_and_its_rate),
        cmocka_unit_test(
            all_together_get_little_and_who_asks_for_little_gets_it),
        cmocka_unit_test(who_dials_again_gets_no_other_fair_share),
        cmocka_unit_test(no_debt_lasts_long),
        cmocka_unit_test(who_waits_may_when_the_wait_is_over),
        cmocka_unit_test(in_a_crowd_who_fetches_is_heard_more_often),
        cmocka_unit_test(no_answer_silences_a_link_for_long),
        cmocka_unit_test(
            a_group_that_fetches_without_end_leaves_half_to_others),
        cmocka_unit_test(of_more_groups_than_rows_all_get_something),
        cmocka_unit_test(a_low_rate_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
