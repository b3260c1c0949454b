/* relay_test.c - for whom a relay carries bytes, and how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "p2p/swarm/relay.h"
#include "proto/sign.h"

#define HOUR_MS 3600000U
#define WAIT_MS 4000

struct fixture {
    struct relay r;
    struct peer_id peer[40];
};

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct relay_options opt = {.bytes_per_hour = HOUR_MS, /* one a ms */
                                .pipes_per_peer = 2,
                                .wait_ms = WAIT_MS,
                                .seed = 1};

    assert_non_null(f);
    for (uint64_t i = 0; i < 40; i++) {
        struct identity id;

        identity_fake(&id, i);
        f->peer[i] = id.id;
    }
    relay_init(&f->r, &opt, 1000);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static uint64_t asked(struct fixture *f, uint64_t request, int from, int to)
{
    struct relay_ask ask = {.request = request,
                            .from = &f->peer[from],
                            .to = &f->peer[to],
                            .member = true};

    return relay_asked(&f->r, &ask, 1000);
}

static void who_was_called_is_joined_with_who_asked(void **state)
{
    struct fixture *f = *state;
    uint64_t token = asked(f, 1, 0, 1), with = 0;

    assert_true(token != 0);
    assert_false(
        relay_came(&f->r, 2, &f->peer[2], token, false, &with)); /* another */
    assert_false(relay_came(&f->r, 2, &f->peer[1], token + 2, false, &with));
    assert_true(relay_came(&f->r, 2, &f->peer[1], token, false, &with));
    assert_int_equal(with, 1);
    assert_false(
        relay_came(&f->r, 3, &f->peer[1], token, false, &with)); /* again */
    assert_false(relay_next_over(&f->r, 1000 + 10 * WAIT_MS, &with));
}

static void a_meeting_is_over_when_both_were_there(void **state)
{
    struct fixture *f = *state;
    struct relay_ask ask = {
        .request = 1, .from = &f->peer[0], .to = &f->peer[1], .meet = true};
    uint64_t token = relay_asked(&f->r, &ask, 1000), with = 0;

    assert_true(token != 0);
    /* Who comes to be carried is not who was called to meet. */
    assert_false(relay_came(&f->r, 2, &f->peer[1], token, false, &with));
    assert_true(relay_came(&f->r, 2, &f->peer[1], token, true, &with));
    assert_int_equal(with, 1);
    assert_false(relay_came(&f->r, 3, &f->peer[1], token, true, &with));
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        assert_int_equal(f->r.pipes[i].state, RELAY_FREE);
    }
}

static uint64_t
introduced(struct fixture *f, uint64_t request, int from, int to, bool member)
{
    struct relay_ask ask = {.request = request,
                            .from = &f->peer[from],
                            .to = &f->peer[to],
                            .member = member,
                            .meet = true};

    return relay_asked(&f->r, &ask, 1000);
}

/* It has nothing to carry for them afterwards. */
static void a_relay_that_is_full_introduces_still(void **state)
{
    struct fixture *f = *state;
    uint64_t with = 0, token;

    assert_true(asked(f, 1, 0, 1) != 0);
    assert_true(asked(f, 2, 0, 1) != 0);
    assert_true(asked(f, 3, 0, 1) == 0); /* both have two pipes */
    assert_true(introduced(f, 4, 0, 1, true) != 0);
    relay_moved(&f->r, 1, 2 * HOUR_MS, false, 1000);
    assert_false(relay_willing(&f->r)); /* spent */
    token = introduced(f, 5, 0, 1, true);
    assert_true(token != 0);
    assert_true(relay_came(&f->r, 6, &f->peer[1], token, true, &with));
    assert_int_equal(with, 5);
    f->r.opt.bytes_per_hour = 0; /* its owner does not want to */
    assert_true(introduced(f, 7, 0, 1, true) == 0);
}

static void so_many_meetings_are_under_way(void **state)
{
    struct fixture *f = *state;
    uint64_t request = 0, n = 0;

    while (n < 40 && introduced(f, n + 1, 0, 1, true) != 0) {
        n++;
    }
    assert_int_equal(n, RELAY_MEETINGS_OF_PEER);
    assert_true(relay_next_over(&f->r, 1001 + WAIT_MS, &request));
    while (relay_next_over(&f->r, 1001 + WAIT_MS, &request)) {
        n--;
    }
    assert_int_equal(n, 1);
    for (n = 0; n < 100; n++) { /* strangers: not all of them */
        int from = 2 + (int)n % 30;

        if (introduced(f, n + 1, from, 1, false) == 0) {
            break;
        }
    }
    assert_int_equal(n, RELAY_MEETINGS_MAX / 2);
    assert_true(introduced(f, 99, 33, 1, true) != 0);
    relay_moved(&f->r, 1, 0, true, 1000); /* one has gone away */
    assert_true(introduced(f, 98, 34, 1, false) != 0);
}

static void who_never_comes_is_given_up(void **state)
{
    struct fixture *f = *state;
    uint64_t request = 0, token = asked(f, 7, 0, 1);

    assert_false(relay_next_over(&f->r, 1000 + WAIT_MS, &request));
    assert_true(relay_next_over(&f->r, 1001 + WAIT_MS, &request));
    assert_int_equal(request, 7);
    assert_false(relay_next_over(&f->r, 1001 + WAIT_MS, &request));
    assert_false(relay_came(&f->r, 8, &f->peer[1], token, false, &request));
}

static void one_peer_has_so_many_pipes(void **state)
{
    struct fixture *f = *state;

    assert_true(asked(f, 1, 0, 1) != 0);
    assert_true(asked(f, 2, 2, 0) != 0);
    assert_true(asked(f, 3, 0, 3) == 0); /* the asker has two */
    assert_true(asked(f, 4, 4, 0) == 0); /* the other end has */
    assert_true(asked(f, 5, 5, 5) == 0); /* oneself */
    relay_moved(&f->r, 2, 0, true, 1000);
    assert_true(asked(f, 6, 0, 3) != 0);
    assert_int_equal(f->r.n_refused, 3);
}

static void there_are_so_many_pipes_in_all(void **state)
{
    struct fixture *f = *state;
    struct relay_options opt = f->r.opt;
    uint64_t n = 0;

    opt.pipes_per_peer = 100;
    relay_init(&f->r, &opt, 1000);
    while (asked(f, n + 1, (int)n % 20, 20 + (int)n % 20) != 0) {
        n++;
        assert_true(n <= RELAY_PIPES_MAX);
    }
    assert_int_equal(n, RELAY_PIPES_MAX);
    assert_false(relay_willing(&f->r));
    relay_moved(&f->r, 5, 0, true, 1000);
    assert_true(relay_willing(&f->r));
}

static void a_spent_budget_closes_all_and_comes_back(void **state)
{
    struct fixture *f = *state;
    uint64_t token = asked(f, 1, 0, 1), request = 0;

    assert_true(relay_came(&f->r, 2, &f->peer[1], token, false, &request));
    relay_moved(&f->r, 1, HOUR_MS - 1, false, 1000);
    assert_false(relay_next_over(&f->r, 1000, &request));
    relay_moved(&f->r, 1, 100, false, 1000);
    assert_false(relay_willing(&f->r));
    assert_true(relay_next_over(&f->r, 1000, &request));
    assert_int_equal(request, 1);
    assert_false(relay_next_over(&f->r, 1000, &request));
    assert_int_equal(f->r.n_bytes, HOUR_MS + 99);
    /* A sixteenth of an hour later. */
    assert_false(relay_next_over(&f->r, 1000 + HOUR_MS / 16 - 1, &request));
    assert_false(relay_willing(&f->r));
    assert_false(relay_next_over(&f->r, 1000 + HOUR_MS / 16, &request));
    assert_true(relay_willing(&f->r));
}

static void no_more_than_an_hour_is_saved_up(void **state)
{
    struct fixture *f = *state;
    uint64_t request;

    assert_false(relay_next_over(&f->r, 1000 + 100ULL * HOUR_MS, &request));
    assert_int_equal(f->r.all.tokens, HOUR_MS);
}

static void a_budget_of_nothing_is_unwilling(void **state)
{
    struct fixture *f = *state;
    struct relay_options opt = {.pipes_per_peer = 2};

    relay_init(&f->r, &opt, 1000);
    assert_false(relay_willing(&f->r));
    assert_true(asked(f, 1, 0, 1) == 0);
}

static uint64_t foreign(struct fixture *f, uint64_t request, int from, int to)
{
    struct relay_ask ask = {
        .request = request, .from = &f->peer[from], .to = &f->peer[to]};

    return relay_asked(&f->r, &ask, 1000);
}

/* Twenty strangers and their friends ask for all that they can get. */
static void strangers_leave_pipes_to_members(void **state)
{
    struct fixture *f = *state;
    struct relay_options opt = f->r.opt;
    uint64_t n = 0;

    opt.pipes_per_peer = 64;
    relay_init(&f->r, &opt, 1000);
    for (int i = 0; i < 1000; i++) {
        n += foreign(f, (uint64_t)i + 1, i % 20, 20 + i % 19) != 0;
    }
    assert_int_equal(n, RELAY_FOREIGN_MAX);
    assert_true(relay_willing(&f->r));
    assert_true(asked(f, 2000, 0, 1) != 0);
    assert_true(asked(f, 2001, 39, 1) != 0);
    relay_moved(&f->r, 1, 0, true, 1000);
    assert_true(foreign(f, 2002, 2, 3) != 0);
    assert_true(foreign(f, 2003, 2, 3) == 0);
}

static void strangers_spend_half_of_the_bytes(void **state)
{
    struct fixture *f = *state;
    uint64_t token = foreign(f, 1, 0, 1), request = 0;

    assert_true(relay_came(&f->r, 2, &f->peer[1], token, false, &request));
    token = asked(f, 3, 2, 3);
    assert_true(relay_came(&f->r, 4, &f->peer[3], token, false, &request));
    relay_moved(&f->r, 3, HOUR_MS / 4, false, 1000);
    relay_moved(&f->r, 1, HOUR_MS / 2 - 1, false, 1000);
    assert_false(relay_next_over(&f->r, 1000, &request));
    relay_moved(&f->r, 2, 1, false, 1000); /* by the other end's name */
    assert_true(relay_next_over(&f->r, 1000, &request));
    assert_int_equal(request, 1);
    assert_false(relay_next_over(&f->r, 1000, &request));
    assert_true(foreign(f, 5, 4, 5) == 0);
    assert_true(asked(f, 6, 4, 5) != 0);
    assert_false(relay_next_over(&f->r, 1000 + WAIT_MS, &request));
    (void)relay_next_over(&f->r, 1000 + HOUR_MS / 16, &request);
    assert_true(foreign(f, 7, 6, 7) != 0);
}

#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(who_was_called_is_joined_with_who_asked),
        T(a_meeting_is_over_when_both_were_there),
        T(a_relay_that_is_full_introduces_still),
        T(so_many_meetings_are_under_way),
        T(who_never_comes_is_given_up),
        T(one_peer_has_so_many_pipes),
        T(there_are_so_many_pipes_in_all),
        T(a_spent_budget_closes_all_and_comes_back),
        T(no_more_than_an_hour_is_saved_up),
        T(a_budget_of_nothing_is_unwilling),
        T(strangers_leave_pipes_to_members),
        T(strangers_spend_half_of_the_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
