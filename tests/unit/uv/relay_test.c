/* relay_test.c - connections through a third shell, and probes. */
#include "tests/unit/uv/trio.h"

#define RELAY_ASK 48 /* plain bytes */

/* A link from a to b through r; a's number of it. */
static uint32_t link_through(struct trio *t)
{
    struct event_relay x = asked(t, &t->a, &t->b, ACTION_DIAL);
    struct event_relay y = came(t, &t->b, &t->a, 5);

    join(t, &x, &y);
    RUN_UNTIL(&t->loop, t->a.toy.counts[EVENT_LINK_UP] == 1 &&
                            t->b.toy.counts[EVENT_LINK_UP] == 1);
    return node_event(&t->a, EVENT_LINK_UP, 0)->event.link_up.link;
}

static void two_peers_meet_at_a_third(void **state)
{
    struct trio t;
    const struct event_link_up *up;
    struct event_relay x, y;
    uint32_t link;

    (void)state;
    trio_open(&t);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    assert_true(id_eq(&x.peer, &t.a.id.id) && id_eq(&x.other, &t.b.id.id));
    assert_int_equal(x.token, 0);
    y = came(&t, &t.b, &t.a, 5);
    assert_true(id_eq(&y.peer, &t.b.id.id));
    assert_int_equal(y.token, 5);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_LINK_UP] == 1 &&
                           t.b.toy.counts[EVENT_LINK_UP] == 1);
    up = &node_event(&t.a, EVENT_LINK_UP, 0)->event.link_up;
    assert_true(id_eq(&up->peer, &t.b.id.id));
    assert_true(id_eq(&up->relay, &t.r.id.id));
    assert_true(!up->inbound && up->request == 77 && up->address.port == 0);
    link = up->link;
    up = &node_event(&t.b, EVENT_LINK_UP, 0)->event.link_up;
    assert_true(id_eq(&up->peer, &t.a.id.id));
    assert_true(id_eq(&up->relay, &t.r.id.id) && up->inbound);
    send_message(&t.a, link, 2, 0x01010101, 60000);
    send_message(&t.b, up->link, 1, 0x02020202, 8);
    RUN_UNTIL(&t.loop, t.b.toy.counts[EVENT_RECV] == 1 &&
                           t.a.toy.counts[EVENT_RECV] == 1);
    assert_int_equal(t.r.toy.counts[EVENT_RECV], 0);
    assert_int_equal(node_stats(&t.r).links, 0);
    assert_int_equal(node_stats(&t.r).pipes, 1);
    assert_true(node_stats(&t.r).bytes_relayed > 60000);
    assert_int_equal(node_stats(&t.r).half_open, 0);
    assert_int_equal(node_stats(&t.b).half_open, 0);
    trio_close(&t);
}

static void segments_arrive_intact_through_a_relay(void **state)
{
    struct event_relay x, y;
    struct trio t;

    (void)state;
    trio_open_with(&t, 16U << 20, 30000); /* the bucket runs dry now and then */
    paint(&t.a);
    for (uint32_t i = 0; i < 12; i++) {
        post(&t.b, &t.a, 5, i, PIECE);
        give(&t.a, &t.b, 5, i, PIECE);
    }
    x = asked(&t, &t.a, &t.b, ACTION_BULK_OPEN);
    y = came(&t, &t.b, &t.a, 9);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, done(&t.a, 0) == 12 && done(&t.b, 0) == 12);
    assert_memory_equal(t.a.memory, t.b.memory, 12 * PIECE);
    assert_once(&t.b, 12);
    assert_true(node_stats(&t.r).bytes_relayed > 12 * PIECE);
    trio_close(&t);
}

static void a_direct_data_connection_is_made_beside_a_relayed_one(void **state)
{
    struct event_relay x, y;
    struct trio t;

    (void)state;
    trio_open(&t);
    x = asked(&t, &t.a, &t.b, ACTION_BULK_OPEN);
    y = came(&t, &t.b, &t.a, 9);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, node_stats(&t.a).bulks == 1);
    bulk_open_act(&t.a, &t.b);
    RUN_UNTIL(&t.loop, node_stats(&t.a).bulks == 2);
    paint(&t.a);
    post(&t.b, &t.a, 5, 0, PIECE);
    give(&t.a, &t.b, 5, 0, PIECE);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 1);
    assert_true(node_stats(&t.r).bytes_relayed < PIECE); /* took the direct */
    trio_close(&t);
}

static void who_is_refused_hears_it(void **state)
{
    struct event_relay x;
    struct trio t;

    (void)state;
    trio_open(&t);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    node_act(&t.r, ACTION_RELAY_REFUSE)->relay_refuse.request = x.request;
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    assert_int_equal(
        node_event(&t.a, EVENT_DIAL_FAILED, 0)->event.dial_failed.request, 77);
    RUN_UNTIL(&t.loop, node_stats(&t.r).conns == 0);
    RUN_UNTIL(&t.loop, t.r.toy.counts[EVENT_RELAY_MOVED] == 1);
    trio_close(&t);
}

static void nobody_waits_at_a_relay_for_ever(void **state)
{
    struct trio t;

    (void)state;
    trio_open_with(&t, 1U << 20, 200);
    (void)asked(&t, &t.a, &t.b, ACTION_DIAL);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    RUN_UNTIL(&t.loop, t.r.toy.counts[EVENT_RELAY_MOVED] == 1);
    assert_true(node_event(&t.r, EVENT_RELAY_MOVED, 0)->event.relay_moved.rc !=
                0);
    assert_int_equal(node_stats(&t.r).half_open, 0);
    trio_close(&t);
}

static void a_relay_cannot_put_somebody_else_at_the_other_end(void **state)
{
    struct node c;
    struct event_relay x, y;
    struct trio t;

    (void)state;
    trio_open(&t);
    node_start(&c, &t.loop, 4);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    y = came(&t, &c, &t.a, 5); /* c, not b */
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    assert_int_equal(
        node_event(&t.a, EVENT_DIAL_FAILED, 0)->event.dial_failed.rc,
        LOCO_ESIG);
    run_quiet(&t.loop);
    assert_int_equal(t.a.toy.counts[EVENT_LINK_UP], 0);
    assert_int_equal(c.toy.counts[EVENT_LINK_UP], 0);
    node_close(&c, &t.loop);
    trio_close(&t);
}

static void both_ends_hear_that_the_relay_is_gone(void **state)
{
    struct trio t;

    (void)state;
    trio_open(&t);
    (void)link_through(&t);
    t.r.closing = true;
    shell_close(t.r.shell, node_on_closed, &t.r);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_LINK_DOWN] == 1 &&
                           t.b.toy.counts[EVENT_LINK_DOWN] == 1);
    trio_close(&t);
}

static void a_hang_up_goes_through_and_the_relay_is_told(void **state)
{
    struct trio t;
    uint32_t link;

    (void)state;
    trio_open(&t);
    link = link_through(&t);
    send_message(&t.a, link, 2, 0x03030303, 50000);
    node_act(&t.a, ACTION_HANG_UP)->hang_up.link = link;
    RUN_UNTIL(&t.loop, t.b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(t.b.toy.counts[EVENT_RECV], 1); /* it was flushed */
    RUN_UNTIL(&t.loop, node_stats(&t.r).pipes == 0);
    RUN_UNTIL(&t.loop,
              t.r.toy.log[t.r.toy.n_log - 1].event.relay_moved.rc != 0);
    assert_int_equal(node_stats(&t.r).conns, 0);
    trio_close(&t);
}

static void a_relay_joins_no_strangers(void **state)
{
    struct action *act;
    struct event_relay x;
    struct trio t;

    (void)state;
    trio_open(&t);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    act = node_act(&t.r, ACTION_RELAY_JOIN); /* with one that is not there */
    act->relay_join.request = x.request;
    act->relay_join.other_request = 4711;
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    join(&t, &x, &x); /* with itself */
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 2);
    trio_close(&t);
}

static void garbage_asked_of_a_relay_closes_the_connection(void **state)
{
    static const size_t lens[] = {0, RELAY_ASK - 1, RELAY_ASK, RELAY_ASK + 1,
                                  4000};
    struct trio t;

    (void)state;
    trio_open(&t);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        uint8_t plain[4096] = {0}, wire[5000];
        struct raw raw;

        raw_connect(&raw, t.r.port);
        raw_shake(&raw, &t.loop, &t.a.signer, CONNECTION_RELAY);
        plain[RELAY_ASK - 1] = 1; /* must be zero */
        (void)raw_write(&raw, &t.loop, wire,
                        raw_seal(&raw, plain, lens[i], wire));
        assert_true(raw_is_closed(&raw, &t.loop));
        close(raw.fd);
    }
    assert_int_equal(t.r.toy.counts[EVENT_RELAY], 0);
    RUN_UNTIL(&t.loop, node_stats(&t.r).conns == 0);
    assert_int_equal(node_stats(&t.r).half_open, 0);
    trio_close(&t);
}

/* ---- probes ------------------------------------------------------------- */

static int
probe(struct trio *t, const struct peer_id *peer, const struct address *address)
{
    uint32_t n = t->a.toy.counts[EVENT_PROBED];
    struct action *act = node_act(&t->a, ACTION_PROBE);

    act->probe.peer = *peer;
    act->probe.address = *address;
    act->probe.request = n + 1;
    RUN_UNTIL(&t->loop, t->a.toy.counts[EVENT_PROBED] > n);
    assert_int_equal(node_event(&t->a, EVENT_PROBED, n)->event.probed.request,
                     n + 1);
    return node_event(&t->a, EVENT_PROBED, n)->event.probed.rc;
}

static void a_probe_finds_who_listens_and_leaves_nothing(void **state)
{
    struct address there, closed = loopback(1);
    struct trio t;

    (void)state;
    trio_open(&t);
    there = loopback(t.b.port);
    assert_int_equal(probe(&t, &t.b.id.id, &there), 0);
    assert_int_equal(probe(&t, &t.r.id.id, &there), LOCO_ESIG);
    assert_int_equal(probe(&t, &t.b.id.id, &closed), UV_ECONNREFUSED);
    RUN_UNTIL(&t.loop,
              node_stats(&t.a).conns == 0 && node_stats(&t.b).conns == 0);
    assert_int_equal(t.a.toy.counts[EVENT_LINK_UP], 0);
    assert_int_equal(t.b.toy.counts[EVENT_LINK_UP], 0);
    trio_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_peers_meet_at_a_third),
        cmocka_unit_test(segments_arrive_intact_through_a_relay),
        cmocka_unit_test(a_direct_data_connection_is_made_beside_a_relayed_one),
        cmocka_unit_test(who_is_refused_hears_it),
        cmocka_unit_test(nobody_waits_at_a_relay_for_ever),
        cmocka_unit_test(a_relay_cannot_put_somebody_else_at_the_other_end),
        cmocka_unit_test(both_ends_hear_that_the_relay_is_gone),
        cmocka_unit_test(a_hang_up_goes_through_and_the_relay_is_told),
        cmocka_unit_test(a_relay_joins_no_strangers),
        cmocka_unit_test(garbage_asked_of_a_relay_closes_the_connection),
        cmocka_unit_test(a_probe_finds_who_listens_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
