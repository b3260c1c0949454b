/* members_reach_test.c - ways to peers that cannot be dialled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "p2p/swarm/members.h"
#include "p2p/swarm/reach.h"
#include "proto/base/err.h"
#include "proto/sign.h"

/* Peer 0 is the neighbour that knows peer 1, whom we want. `high` and `low`:
 * we have the higher or the lower id of the two that are apart. */
struct fixture {
    struct members m;
    struct identity self, peer[4];
    struct out out;
    uint64_t now_ms;
    int via, wanted;
};

static void tick(struct fixture *f, uint64_t after_ms)
{
    struct heartbeat beat = {0};

    f->now_ms += after_ms;
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
    members_tick(&f->m, f->now_ms, &beat, &f->out);
}

static struct address address_of(int who)
{
    return (struct address){.ip = {[10] = 0xff, 0xff, 11, 0, (uint8_t)who, 1},
                            .port = 7700};
}

static void up(struct fixture *f,
               int who,
               uint32_t link,
               bool inbound,
               const struct peer_id *relay)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = f->now_ms,
                      .link_up.link = link,
                      .link_up.inbound = inbound,
                      .link_up.request = UINT32_MAX,
                      .link_up.peer = f->peer[who].id,
                      .link_up.address = address_of(who)};

    memcpy(e.link_up.public_key, f->peer[who].public, 32);
    if (relay != NULL) {
        e.link_up.relay = *relay;
        memset(&e.link_up.address, 0, sizeof e.link_up.address);
    }
    f->out.n = f->out.n_bytes = 0;
    (void)members_link_up(&f->m, &e.link_up, e.now_ms, &f->out);
}

/* Peer `from` says what class it is of, and that it is linked to peer 1, which
 * is of class `reach`. */
static void rumour(struct fixture *f, int from, enum reach_class reach)
{
    struct heartbeat beat = {.reach = REACH_PUBLIC, .relays = true};
    struct address a = address_of(1);
    struct gossip g = {.n_peers = 1};
    int row = members_find(&f->m, &f->peer[from].id);

    memcpy(g.peers[0].address.ip, a.ip, 16);
    g.peers[0].id = f->peer[1].id;
    g.peers[0].address.port = a.port;
    g.peers[0].reach = (uint8_t)reach;
    members_beat(&f->m, row, &beat, f->now_ms);
    members_on_gossip(&f->m, row, &g, &f->out);
}

static struct fixture *fixture_new(bool high, enum reach_class reach)
{
    struct members_options opt = {.seed = 1,
                                  .heartbeat_ms = 400,
                                  .suspect_ms = 1200,
                                  .dead_ms = 2400,
                                  .redial_ms = 1000,
                                  .links_wanted = 8,
                                  .hedge_ms = 700,
                                  .upgrade_ms = 30000};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));
    uint64_t seed = 100;

    assert_non_null(f);
    for (uint64_t i = 0; i < 4; i++) {
        identity_fake(&f->peer[i], i);
    }
    do {
        identity_fake(&f->self, seed++);
    } while ((id_cmp(&f->self.id, &f->peer[1].id) > 0) != high);
    opt.self = f->self.id;
    f->now_ms = 10000;
    members_init(&f->m, &opt, f + 1, f->now_ms);
    up(f, 0, 1, false, NULL);
    rumour(f, 0, reach);
    f->via = members_find(&f->m, &f->peer[0].id);
    f->wanted = members_find(&f->m, &f->peer[1].id);
    assert_true(f->wanted != MEMBERS_NONE);
    members_guest(&f->m, f->wanted, true);
    return f;
}

static const struct action *action(const struct fixture *f,
                                   enum action_type type)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == type) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

static bool said(const struct fixture *f, uint16_t message, uint32_t link)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        if (a->type == ACTION_SEND && a->send.message == message &&
            a->send.link == link) {
            return true;
        }
    }
    return false;
}

static void who_cannot_be_dialled_is_called_at_once(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);

    (void)state;
    members_set_reach(&f->m, REACH_PUBLIC);
    tick(f, 500);
    assert_null(action(f, ACTION_DIAL));
    assert_true(said(f, MESSAGE_CALL, 1));
    tick(f, 300);
    assert_false(said(f, MESSAGE_CALL, 1)); /* not again so soon */
    tick(f, 500);
    assert_non_null(action(f, ACTION_DIAL)); /* it did not help: a relay */
    assert_true(id_eq(&action(f, ACTION_DIAL)->dial.relay, &f->peer[0].id));
    free(f);
}

static void two_that_cannot_be_dialled_meet_at_a_relay(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    const struct action *a;
    struct address r = address_of(0);
    struct event failed = {.type = EVENT_DIAL_FAILED,
                           .dial_failed.rc = LOCO_ECLOSED};

    (void)state;
    members_set_reach(&f->m, REACH_RESTRICTED);
    tick(f, 500);
    assert_false(said(f, MESSAGE_CALL, 1)); /* it could not dial us */
    a = action(f, ACTION_DIAL);
    assert_non_null(a);
    assert_true(id_eq(&a->dial.peer, &f->peer[1].id));
    assert_true(id_eq(&a->dial.relay, &f->peer[0].id));
    assert_true(address_eq(&a->dial.address, &r));
    failed.dial_failed.request = a->dial.request;
    tick(f, 100);
    assert_null(action(f, ACTION_DIAL)); /* one at a time */
    failed.now_ms = f->now_ms;
    members_dial_failed(&f->m, failed.dial_failed.request,
                        failed.dial_failed.rc, failed.now_ms);
    tick(f, 499);
    assert_null(action(f, ACTION_DIAL));
    tick(f, 1);
    assert_non_null(action(f, ACTION_DIAL));
    free(f);
}

static void
the_one_with_the_lower_id_leaves_the_relay_to_the_other(void **state)
{
    struct fixture *f = fixture_new(false, REACH_RESTRICTED);

    (void)state;
    members_set_reach(&f->m, REACH_RESTRICTED);
    for (int i = 0; i < 20; i++) {
        tick(f, 250);
        assert_null(action(f, ACTION_DIAL));
    }
    free(f);
}

/* The neighbour says that it carries nothing. */
static void unwilling(struct fixture *f)
{
    struct heartbeat beat = {.reach = REACH_PUBLIC};

    members_beat(&f->m, f->via, &beat, f->now_ms);
}

static void an_unwilling_neighbour_is_no_relay(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);

    (void)state;
    members_set_reach(&f->m, REACH_RESTRICTED);
    unwilling(f);
    for (int i = 0; i < 20; i++) {
        tick(f, 250);
        assert_null(action(f, ACTION_DIAL));
    }
    free(f);
}

static void a_dial_without_answer_is_hedged(void **state)
{
    struct fixture *f = fixture_new(true, REACH_UNKNOWN);

    (void)state;
    tick(f, 500);
    assert_non_null(action(f, ACTION_DIAL));
    assert_true(id_is_zero(&action(f, ACTION_DIAL)->dial.relay));
    assert_false(said(f, MESSAGE_CALL, 1));
    tick(f, 699);
    assert_false(said(f, MESSAGE_CALL, 1));
    tick(f, 1);
    assert_true(said(f, MESSAGE_CALL, 1));
    tick(f, 700);
    assert_non_null(action(f, ACTION_DIAL)); /* and then a relay */
    assert_true(id_eq(&action(f, ACTION_DIAL)->dial.relay, &f->peer[0].id));
    free(f);
}

static void data_goes_the_way_of_the_link(void **state)
{
    static const struct {
        bool inbound, relayed, direct, called;
        enum reach_class reach;
    } cases[] = {
        {false, false, true, false, REACH_UNKNOWN}, /* we dialled it */
        {false, false, true, false, REACH_RESTRICTED},
        {true, false, true, false, REACH_PUBLIC},
        {true, false, true, true, REACH_UNKNOWN}, /* perhaps */
        {true, false, false, true, REACH_RESTRICTED},
        {true, true, false, false, REACH_RESTRICTED},
        {false, true, false, false, REACH_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(true, cases[i].reach);
        struct heartbeat beat = {.reach = (uint8_t)cases[i].reach};
        const struct action *a;

        up(f, 1, 2, cases[i].inbound, cases[i].relayed ? &f->peer[0].id : NULL);
        members_beat(&f->m, f->wanted, &beat, f->now_ms);
        f->out.n = f->out.n_bytes = 0;
        members_bulk_open(&f->m, &f->out, f->wanted);
        a = action(f, ACTION_BULK_OPEN);
        assert_int_equal(a != NULL, cases[i].direct || cases[i].relayed);
        assert_int_equal(said(f, MESSAGE_CALL, 2), cases[i].called);
        if (cases[i].relayed) {
            struct address r = address_of(0);

            assert_true(id_eq(&a->bulk_open.relay, &f->peer[0].id));
            assert_true(address_eq(&a->bulk_open.address, &r));
        }
        free(f);
    }
}

static void data_waits_for_the_link(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);

    (void)state;
    f->out.n = f->out.n_bytes = 0;
    members_bulk_open(&f->m, &f->out, f->wanted);
    assert_null(action(f, ACTION_BULK_OPEN));
    up(f, 1, 2, true, &f->peer[0].id);
    assert_non_null(action(f, ACTION_BULK_OPEN));
    assert_true(
        id_eq(&action(f, ACTION_BULK_OPEN)->bulk_open.relay, &f->peer[0].id));
    up(f, 1, 3, true, &f->peer[0].id);
    assert_null(action(f, ACTION_BULK_OPEN)); /* once */
    free(f);
}

static void a_call_is_passed_on_with_the_address_that_is_seen(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    struct call msg = {.to = f->peer[1].id};
    struct called got;
    const struct action *a;

    (void)state;
    members_on_call(&f->m, f->via, &msg, f->now_ms, &f->out);
    assert_null(action(f, ACTION_SEND)); /* not linked to it */
    up(f, 1, 2, true, NULL);
    f->out.n = f->out.n_bytes = 0;
    members_on_call(&f->m, f->via, &msg, f->now_ms, &f->out);
    assert_true(said(f, MESSAGE_CALLED, 2));
    a = action(f, ACTION_SEND);
    assert_int_equal(msg_decode(&called_schema, f->out.bytes + a->send.bytes.at,
                                a->send.bytes.len, &got),
                     0);
    assert_true(id_eq(&got.from, &f->peer[0].id));
    assert_int_equal(got.token, 0);
    assert_int_equal(got.address.port, 7700);
    assert_memory_equal(got.address.ip, address_of(0).ip, 16);
    free(f);
}

static void who_is_called_dials_once(void **state)
{
    struct fixture *f = fixture_new(true, REACH_UNKNOWN);
    struct called msg = {.from = f->peer[2].id};
    struct address a = address_of(2);

    (void)state;
    memcpy(msg.address.ip, a.ip, 16);
    msg.address.port = a.port;
    up(f, 1, 2, false, NULL);
    members_want_links(&f->m, 0); /* nobody is dialled to be a neighbour */
    members_on_called(&f->m, f->via, &msg, f->now_ms, &f->out);
    tick(f, 0);
    assert_false(said(f, MESSAGE_NEIGHBOUR, 2));
    assert_int_equal(f->m.n_seeking, 0);
    assert_non_null(action(f, ACTION_DIAL));
    assert_true(id_eq(&action(f, ACTION_DIAL)->dial.peer, &f->peer[2].id));
    members_on_called(&f->m, f->via, &msg, f->now_ms, &f->out);
    tick(f, 1);
    assert_null(action(f, ACTION_DIAL));
    msg.from = f->self.id;
    members_on_called(&f->m, f->via, &msg, f->now_ms, &f->out);
    tick(f, 1);
    assert_null(action(f, ACTION_DIAL));
    free(f);
}

static void who_is_called_to_a_relay_comes(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    struct called msg = {.from = f->peer[1].id, .token = 9};
    const struct action *a;
    struct address r = address_of(0);

    (void)state;
    members_on_called(&f->m, f->via, &msg, f->now_ms, &f->out);
    a = action(f, ACTION_RELAY_COME);
    assert_non_null(a);
    assert_int_equal(a->relay_come.token, 9);
    assert_true(id_eq(&a->relay_come.relay, &f->peer[0].id));
    assert_true(id_eq(&a->relay_come.peer, &f->peer[1].id));
    assert_true(
        address_eq(&a->relay_come.address, &r)); /* not one that it was told */
    free(f);
}

static void a_direct_link_replaces_a_relayed_one(void **state)
{
    struct fixture *f = fixture_new(false, REACH_RESTRICTED);

    (void)state;
    up(f, 1, 2, true, &f->peer[0].id);
    assert_true(members_relayed(&f->m, f->wanted));
    up(f, 1, 3, true, NULL);
    assert_int_equal(action(f, ACTION_HANG_UP)->hang_up.link, 2);
    members_link_down(&f->m, 2, f->now_ms);
    assert_false(members_relayed(&f->m, f->wanted));
    up(f, 1, 4, true, &f->peer[0].id); /* and is not replaced by one */
    assert_int_equal(action(f, ACTION_HANG_UP)->hang_up.link, 4);
    assert_true(members_inbound(&f->m, f->wanted));
    free(f);
}

static void a_relayed_link_is_given_up_when_it_can_be(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    struct call msg = {.to = f->self.id};

    (void)state;
    up(f, 1, 2, true, &f->peer[0].id);
    members_set_reach(&f->m, REACH_RESTRICTED);
    for (int i = 0; i < 40; i++) {
        tick(f, 1000);
        (void)members_heard(&f->m, 1, f->now_ms);
        (void)members_heard(&f->m, 2, f->now_ms);
        assert_null(action(f, ACTION_DIAL));
        assert_false(said(f, MESSAGE_CALL, 2));
    }
    members_set_reach(&f->m, REACH_PUBLIC); /* we can be dialled now */
    for (int i = 0; i < 30 && !said(f, MESSAGE_CALL, 2); i++) {
        tick(f, 1000);
        (void)members_heard(&f->m, 1, f->now_ms);
        (void)members_heard(&f->m, 2, f->now_ms);
    }
    assert_true(said(f, MESSAGE_CALL, 2));
    /* Or the other one can, as it says. */
    rumour(f, 0, REACH_RESTRICTED); /* where it listens */
    members_on_call(&f->m, f->wanted, &msg, f->now_ms, &f->out);
    tick(f, 0);
    assert_non_null(action(f, ACTION_DIAL));
    assert_true(id_is_zero(&action(f, ACTION_DIAL)->dial.relay));
    free(f);
}

static void somebody_on_the_lan_is_dialled(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    struct address near = address_of(3), known = address_of(0);
    struct event failed = {.type = EVENT_DIAL_FAILED,
                           .dial_failed.rc = -ECONNREFUSED};
    unsigned n = 0;

    (void)state;
    members_nearby(&f->m, &known, f->now_ms); /* linked already */
    tick(f, 0);
    assert_null(action(f, ACTION_DIAL));
    members_nearby(&f->m, &near, f->now_ms);
    members_nearby(&f->m, &near, f->now_ms);
    for (int i = 0; i < 100; i++) {
        tick(f, 1000);
        if (action(f, ACTION_DIAL) != NULL &&
            address_eq(&action(f, ACTION_DIAL)->dial.address, &near)) {
            n++;
            failed.dial_failed.request = action(f, ACTION_DIAL)->dial.request;
            failed.now_ms = f->now_ms;
            members_dial_failed(&f->m, failed.dial_failed.request,
                                failed.dial_failed.rc, failed.now_ms);
        }
    }
    assert_int_equal(n, 4); /* then not before it is heard again */
    for (uint8_t i = 0; i < 50; i++) {
        near.ip[15] = i;
        members_nearby(&f->m, &near, f->now_ms);
    }
    assert_int_equal(f->m.n_nearby, MEMBERS_NEARBY_MAX);
    free(f);
}

static void two_that_nobody_dials_are_apart(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);

    (void)state;
    members_set_reach(&f->m, REACH_UNKNOWN);
    assert_false(members_apart(&f->m, MEMBERS_NONE, f->wanted));
    members_set_reach(&f->m, REACH_RELAYED);
    assert_true(members_apart(&f->m, MEMBERS_NONE, f->wanted));
    assert_true(members_apart(&f->m, f->wanted, MEMBERS_NONE));
    assert_false(members_apart(&f->m, f->via, f->wanted));
    free(f);
}

/* For the status: who is missed for want of a relay. */
static void who_needs_a_relay_and_has_none_is_counted(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    uint32_t relays;

    (void)state;
    assert_int_equal(members_n_apart(&f->m, &relays), 0); /* we may call it */
    members_set_reach(&f->m, REACH_RESTRICTED);
    assert_int_equal(members_n_apart(&f->m, &relays), 1);
    assert_int_equal(relays, 1);
    unwilling(f);
    assert_int_equal(members_n_apart(&f->m, &relays), 1);
    assert_int_equal(relays, 0);
    up(f, 1, 2, true, &f->peer[0].id);
    assert_int_equal(members_n_apart(&f->m, &relays), 0);
    free(f);
}

/* One that is linked to several relays does not begin with the same one for
 * everybody. */
static void pairs_are_spread_over_relays(void **state)
{
    struct fixture *f = fixture_new(true, REACH_RESTRICTED);
    struct neighbour ask = {.kind = NEIGHBOUR_ASK};
    struct heartbeat beat = f->m.peers[f->via].beat;
    bool used[3] = {false};
    uint64_t seed = 1000;
    int other;

    (void)state;
    members_set_reach(&f->m, REACH_RESTRICTED);
    up(f, 2, 2, false, NULL);
    other = members_find(&f->m, &f->peer[2].id);
    members_beat(&f->m, other, &beat, f->now_ms);
    members_on_neighbour(&f->m, f->via, &ask, &f->out);
    members_on_neighbour(&f->m, other, &ask, &f->out);
    for (int k = 0; k < 16; k++) {
        struct gossip g = {.n_peers = 1};
        struct identity id;

        do {
            identity_fake(&id, seed++);
        } while (id_cmp(&f->self.id, &id.id) < 0);
        g.peers[0].id = id.id;
        g.peers[0].address.port = 4000;
        g.peers[0].reach = REACH_RESTRICTED;
        members_on_gossip(&f->m, f->via, &g, &f->out);
        members_guest(&f->m, members_find(&f->m, &id.id), true);
    }
    tick(f, 10);
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        for (int who = 0; who < 3 && a->type == ACTION_DIAL; who++) {
            used[who] = used[who] || id_eq(&a->dial.relay, &f->peer[who].id);
        }
    }
    assert_true(used[0] && used[2]);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_cannot_be_dialled_is_called_at_once),
        cmocka_unit_test(two_that_cannot_be_dialled_meet_at_a_relay),
        cmocka_unit_test(
            the_one_with_the_lower_id_leaves_the_relay_to_the_other),
        cmocka_unit_test(an_unwilling_neighbour_is_no_relay),
        cmocka_unit_test(a_dial_without_answer_is_hedged),
        cmocka_unit_test(data_goes_the_way_of_the_link),
        cmocka_unit_test(data_waits_for_the_link),
        cmocka_unit_test(a_call_is_passed_on_with_the_address_that_is_seen),
        cmocka_unit_test(who_is_called_dials_once),
        cmocka_unit_test(who_is_called_to_a_relay_comes),
        cmocka_unit_test(a_direct_link_replaces_a_relayed_one),
        cmocka_unit_test(a_relayed_link_is_given_up_when_it_can_be),
        cmocka_unit_test(two_that_nobody_dials_are_apart),
        cmocka_unit_test(who_needs_a_relay_and_has_none_is_counted),
        cmocka_unit_test(pairs_are_spread_over_relays),
        cmocka_unit_test(somebody_on_the_lan_is_dialled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
