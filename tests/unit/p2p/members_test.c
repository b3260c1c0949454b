/* members_test.c - who is there: links, silence, hearsay. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/members.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/sign.h"

#define DEAD_MS   2400
#define REDIAL_MS 1000

struct fixture {
    struct members m;
    struct identity self, peer[6];
    struct out out;
    uint64_t now_ms;
};

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct members_options opt = {.seed = 1,
                                  .heartbeat_ms = 400,
                                  .suspect_ms = 1200,
                                  .dead_ms = DEAD_MS,
                                  .redial_ms = REDIAL_MS,
                                  .links_wanted = 8};

    assert_non_null(f);
    identity_fake(&f->self, 50);
    for (uint64_t i = 0; i < 6; i++) {
        identity_fake(&f->peer[i], i);
    }
    opt.self = f->self.id;
    f->now_ms = 10000;
    members_init(&f->m, &opt, f->now_ms);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static void clear(struct fixture *f)
{
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
}

static uint32_t count(const struct fixture *f, enum action_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        n += f->out.action[i].type == type;
    }
    return n;
}

static bool up(struct fixture *f, int who, uint32_t link)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = f->now_ms,
                      .link = link,
                      .inbound = true,
                      .peer = f->peer[who].id,
                      .address = {.port = (uint16_t)(4000 + who)}};

    memcpy(e.public_key, f->peer[who].public, 32);
    clear(f);
    return members_link_up(&f->m, &e, &f->out);
}

static void tick(struct fixture *f, uint64_t after_ms)
{
    struct heartbeat beat = {0};

    f->now_ms += after_ms;
    clear(f);
    members_tick(&f->m, f->now_ms, &beat, &f->out);
}

static int row(const struct fixture *f, int who)
{
    return members_find(&f->m, &f->peer[who].id);
}

static void watch(struct fixture *f, int who)
{
    int r = row(f, who);

    members_watch(&f->m, &r, 1, NULL, f->now_ms);
}

static void expect_lost(struct fixture *f, int who, const char *reason)
{
    struct members_lost lost;

    assert_true(members_next_lost(&f->m, &lost));
    assert_int_equal(lost.peer, row(f, who));
    assert_string_equal(lost.reason, reason);
    assert_false(members_next_lost(&f->m, &lost));
}

static void expect_nobody_lost(struct fixture *f)
{
    struct members_lost lost;

    assert_false(members_next_lost(&f->m, &lost));
}

static void silence_loses_a_watched_peer_once(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    tick(f, DEAD_MS);
    expect_nobody_lost(f);
    tick(f, 1);
    expect_lost(f, 0, "no sign of life");
    assert_int_equal(count(f, ACTION_HANG_UP), 1);
    tick(f, DEAD_MS);
    expect_nobody_lost(f);
}

static void any_byte_is_a_sign_of_life(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    for (int i = 0; i < 5; i++) {
        tick(f, 2000);
        if (i % 2 == 0) {
            assert_int_equal(members_heard(&f->m, 1, f->now_ms), row(f, 0));
        } else {
            members_alive(&f->m, &f->peer[0].id, f->now_ms);
        }
    }
    expect_nobody_lost(f);
}

static void a_gap_of_the_own_process_loses_nobody(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    {
        int rows[] = {row(f, 0), row(f, 1)};

        members_watch(&f->m, rows, 2, NULL, f->now_ms);
    }
    members_link_down(&f->m, 2, f->now_ms);
    f->now_ms += 60000;
    members_gap(&f->m, f->now_ms);
    tick(f, 0);
    expect_nobody_lost(f);
    tick(f, REDIAL_MS + 1);
    expect_lost(f, 1, "connection lost");
}

/* The link of a watched peer breaks and dialling it ends with `rc`. */
static void fail_redial(struct fixture *f, int rc)
{
    struct event e = {.type = EVENT_DIAL_FAILED, .rc = rc};

    assert_true(up(f, 0, 1));
    watch(f, 0);
    members_link_down(&f->m, 1, f->now_ms);
    tick(f, 10);
    assert_int_equal(count(f, ACTION_DIAL), 1);
    expect_nobody_lost(f);
    e.request = (uint64_t)row(f, 0);
    e.now_ms = f->now_ms;
    members_dial_failed(&f->m, &e);
    tick(f, 1);
}

static void a_refused_dial_after_a_lost_link_loses_at_once(void **state)
{
    struct fixture *f = *state;

    fail_redial(f, -ECONNREFUSED);
    expect_lost(f, 0, "connection closed and refused");
}

static void another_failed_dial_is_no_refusal(void **state)
{
    static const struct {
        int rc;
        const char *reason;
    } cases[] = {
        {LOCO_ETIMEOUT, "connection lost, dialling times out"},
        {-ETIMEDOUT, "connection lost, dialling times out"},
        {-ENETUNREACH, "connection lost, no route to it"},
        {-EHOSTUNREACH, "connection lost, no route to it"},
        {LOCO_EPROTO, "connection lost, handshake failed"},
        {LOCO_ERUN, "connection lost, it left for another run"},
        {LOCO_ECLOSED, "connection lost, dialling fails"},
        {-ECONNRESET, "connection lost, dialling fails"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f;

        if (i > 0) {
            (void)close_fixture(state);
            (void)open_fixture(state);
        }
        f = *state;
        fail_redial(f, cases[i].rc);
        tick(f, REDIAL_MS - 12);
        expect_nobody_lost(f);
        tick(f, 2);
        expect_lost(f, 0, cases[i].reason);
    }
}

static void an_old_refusal_says_nothing_about_the_next_loss(void **state)
{
    struct fixture *f = *state;

    fail_redial(f, -ECONNREFUSED);
    expect_lost(f, 0, "connection closed and refused");
    assert_true(up(f, 0, 2));
    members_link_down(&f->m, 2, f->now_ms);
    tick(f, REDIAL_MS);
    expect_nobody_lost(f);
    tick(f, 1);
    expect_lost(f, 0, "connection lost");
}

/* The only dial of this step. */
static const struct action *dialled(const struct fixture *f)
{
    assert_int_equal(count(f, ACTION_DIAL), 1);
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_DIAL) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

static void an_unreached_bootstrap_is_never_given_up(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4009};

    members_bootstrap_add(&f->m, &a);
    assert_true(up(f, 0, 1)); /* somebody, who may know as little as we do */
    for (int i = 0; i < 12; i++) {
        struct event e = {.type = EVENT_DIAL_FAILED, .rc = LOCO_ETIMEOUT};
        uint64_t from_ms = f->now_ms;

        do {
            tick(f, 100);
            assert_true(f->now_ms - from_ms <= 60000);
        } while (count(f, ACTION_DIAL) == 0);
        assert_true(address_eq(&dialled(f)->address, &a));
        e.request = dialled(f)->request;
        e.now_ms = f->now_ms;
        members_dial_failed(&f->m, &e);
    }
    {
        struct event e = {.type = EVENT_LINK_UP,
                          .link = 2,
                          .peer = f->peer[1].id,
                          .address = a};

        tick(f, 60000);
        e.request = dialled(f)->request;
        e.now_ms = f->now_ms;
        clear(f);
        assert_true(members_link_up(&f->m, &e, &f->out));
    }
    assert_false(f->m.bootstrap[0].dialing);
    tick(f, 120000);
    assert_int_equal(count(f, ACTION_DIAL), 0);
}

static void a_link_that_comes_back_in_time_loses_nobody(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    members_link_down(&f->m, 1, f->now_ms);
    tick(f, REDIAL_MS);
    assert_true(up(f, 0, 2));
    tick(f, 10);
    expect_nobody_lost(f);
}

static void who_was_never_missed_gets_time_to_be_linked(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4003};

    assert_true(members_learn(&f->m, &f->peer[3].id, &a, f->now_ms) >= 0);
    f->now_ms += 10 * REDIAL_MS;
    watch(f, 3); /* a new view names it */
    tick(f, REDIAL_MS);
    expect_nobody_lost(f);
    assert_true(f->m.peers[row(f, 3)].dialing);
    tick(f, 1);
    expect_lost(f, 3, "connection lost");
    /* Watched already: a further view gives no more time. */
    watch(f, 3);
    tick(f, 1);
    expect_nobody_lost(f);
}

static void of_two_links_the_lower_id_closes_the_older(void **state)
{
    struct fixture *f = *state;

    for (int who = 0; who < 6; who++) {
        bool lower = id_cmp(&f->self.id, &f->peer[who].id) < 0;
        uint32_t first = 10 + 2 * (uint32_t)who;

        assert_true(up(f, who, first));
        assert_true(up(f, who, first + 1));
        assert_int_equal(count(f, ACTION_HANG_UP), lower ? 1 : 0);
        if (lower) {
            assert_int_equal(f->out.action[0].link, first);
        }
        members_link_down(&f->m, first, f->now_ms);
        assert_true(members_linked(&f->m, row(f, who)));
        members_link_down(&f->m, first + 1, f->now_ms);
        assert_false(members_linked(&f->m, row(f, who)));
    }
}

static void one_peer_cannot_take_all_links(void **state)
{
    struct fixture *f = *state;
    uint32_t taken = 0;

    for (uint32_t link = 1; link <= 2 * LINKS_MAX; link++) {
        taken += up(f, 0, link);
    }
    assert_true(taken <= 8);
    assert_true(up(f, 1, 5000));
}

static void hearsay_does_not_keep_out_who_is_here(void **state)
{
    struct fixture *f = *state;
    struct gossip msg = {.n_peers = MESSAGE_PEERS_MAX};
    uint64_t rng = 9;

    assert_true(up(f, 0, 1));
    for (int k = 0; k < 2 * PEERS_MAX / MESSAGE_PEERS_MAX; k++) {
        for (uint32_t i = 0; i < MESSAGE_PEERS_MAX; i++) {
            uint64_t words[] = {rng_next(&rng)};

            memcpy(msg.peers[i].id.b, words, sizeof words);
            msg.peers[i].address.port = 4000;
        }
        members_recv(&f->m, row(f, 0), MESSAGE_GOSSIP, &msg, &f->out);
    }
    assert_int_equal(f->m.n_peers, PEERS_MAX);
    assert_true(up(f, 1, 2));
    assert_true(members_linked(&f->m, row(f, 1)));
    assert_true(members_linked(&f->m, row(f, 0)));
}

static void oneself_and_nobody_are_not_learnt(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4000};
    struct peer_id zero = {0};

    assert_int_equal(members_learn(&f->m, &f->self.id, &a, 0), MEMBERS_NONE);
    assert_int_equal(members_learn(&f->m, &zero, &a, 0), MEMBERS_NONE);
    assert_int_equal(f->m.n_peers, 0);
}

static void a_message_to_many_is_encoded_once(void **state)
{
    struct fixture *f = *state;
    struct get_commit ask = {.round = 7};
    int rows[4];
    uint32_t n = 0;

    for (int who = 0; who < 3; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
        rows[n++] = row(f, who);
    }
    rows[n++] = MEMBERS_NONE;
    clear(f);
    members_broadcast(&f->m, &f->out, rows, n, MESSAGE_GET_COMMIT, &ask);
    assert_int_equal(f->out.n, 3);
    assert_true(f->out.n_bytes > 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(f->out.action[i].type, ACTION_SEND);
        assert_int_equal(f->out.action[i].link, i + 1);
        assert_int_equal(f->out.action[i].bytes, 0);
        assert_int_equal(f->out.action[i].len, f->out.n_bytes);
    }
}

#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(silence_loses_a_watched_peer_once),
        T(any_byte_is_a_sign_of_life),
        T(a_gap_of_the_own_process_loses_nobody),
        T(a_refused_dial_after_a_lost_link_loses_at_once),
        T(another_failed_dial_is_no_refusal),
        T(an_old_refusal_says_nothing_about_the_next_loss),
        T(an_unreached_bootstrap_is_never_given_up),
        T(a_link_that_comes_back_in_time_loses_nobody),
        T(who_was_never_missed_gets_time_to_be_linked),
        T(of_two_links_the_lower_id_closes_the_older),
        T(one_peer_cannot_take_all_links),
        T(hearsay_does_not_keep_out_who_is_here),
        T(oneself_and_nobody_are_not_learnt),
        T(a_message_to_many_is_encoded_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
