/* shell_test.c - links: who, in what order, and what a bad peer cannot do. */
#include "tests/unit/uv/toy.h"

#include <sys/resource.h>

static void both_sides_learn_the_link_and_who_is_there(void **state)
{
    const struct event *ea, *eb;
    uv_loop_t loop;
    struct node a, b;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    connect_nodes(&a, &b, &loop);
    ea = &node_event(&a, EVENT_LINK_UP, 0)->event;
    eb = &node_event(&b, EVENT_LINK_UP, 0)->event;
    assert_true(id_eq(&ea->link_up.peer, &b.id.id) &&
                id_eq(&eb->link_up.peer, &a.id.id));
    assert_memory_equal(ea->link_up.public_key, b.id.public, 32);
    assert_memory_equal(eb->link_up.public_key, a.id.public, 32);
    assert_false(ea->link_up.inbound);
    assert_true(eb->link_up.inbound);
    assert_true(ea->link_up.request == 7 && ea->link_up.link != 0 &&
                eb->link_up.link != 0);
    /* Not the port that the connection came from, but the listening one. */
    struct address at_a = loopback(a.port), at_b = loopback(b.port);
    assert_true(address_eq(&ea->link_up.address, &at_b));
    assert_true(address_eq(&eb->link_up.address, &at_a));
    assert_int_equal(node_stats(&a).links, 1);
    assert_int_equal(node_stats(&b).half_open, 0);
    node_close(&a, &loop);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void ten_thousand_messages_arrive_in_order(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    uint32_t link;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    link = connect_nodes(&a, &b, &loop);
    for (uint32_t i = 0; i < 10000; i++) {
        send_message(&a, link, i % 2 ? 1 : 2, i, 4 + i % 61);
    }
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 10000);
    for (uint32_t i = 0; i < 10000; i++) {
        const struct toy_log *l = &b.toy.log[1 + i];

        assert_int_equal(l->event.type, EVENT_RECV);
        assert_int_equal(l->first, i);
        assert_int_equal(l->event.recv.len, 4 + i % 61);
        assert_int_equal(l->event.recv.message, i % 2 ? 1 : 2);
        assert_true(l->event.recv.rtt_us > 0 || i == 0);
    }
    struct shell_peer_stats from_a, from_b;
    shell_peer_stats(a.shell, &b.id.id, &from_a);
    shell_peer_stats(b.shell, &a.id.id, &from_b);
    assert_true(from_a.bytes_sent > 10000 * 32);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void the_longest_message_takes_two_records(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    uint32_t link;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    link = connect_nodes(&a, &b, &loop);
    for (uint32_t i = 0; i < 40; i++) {
        send_message(&a, link, 2, i, FRAME_CONTROL_MAX - i);
        send_message(&a, link, 1, i, 0);
    }
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 80);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(b.toy.log[1 + 2 * i].event.recv.len,
                         FRAME_CONTROL_MAX - i);
        assert_int_equal(b.toy.log[2 + 2 * i].event.recv.len, 0);
    }
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* Dial `to` from a fresh node with these options: the code of DIAL_FAILED. */
static int failed_dial(uv_loop_t *loop,
                       struct node *from,
                       const struct node *to,
                       const struct peer_id *expected)
{
    uint32_t n = from->toy.counts[EVENT_DIAL_FAILED];
    const struct event *e;
    struct address at = loopback(to->port);

    dial(from, to, expected, 99);
    RUN_UNTIL(loop, from->toy.counts[EVENT_DIAL_FAILED] > n);
    e = &node_event(from, EVENT_DIAL_FAILED, n)->event;
    assert_true(e->dial_failed.request == 99 &&
                address_eq(&e->dial_failed.address, &at));
    assert_int_equal(from->toy.counts[EVENT_LINK_UP], 0);
    assert_int_equal(to->toy.counts[EVENT_LINK_UP], 0);
    return e->dial_failed.rc;
}

static void a_failed_dial_says_why(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node a, b, other;
    uint16_t port;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    opt = node_init(&other, 3);
    opt.run_id.b[0] = 1;
    node_open(&other, &loop, &opt);

    assert_int_equal(failed_dial(&loop, &a, &other, NULL), LOCO_ERUN);
    assert_int_equal(failed_dial(&loop, &a, &b, &other.id.id), LOCO_ESIG);
    assert_int_equal(failed_dial(&loop, &a, &a, NULL), LOCO_EINVAL);
    RUN_UNTIL(&loop, node_stats(&b).handshakes_failed == 1);
    port = b.port;
    node_close(&b, &loop);
    b.port = port;
    assert_int_equal(failed_dial(&loop, &a, &b, NULL), UV_ECONNREFUSED);
    b.port = 0;
    assert_int_equal(failed_dial(&loop, &a, &b, NULL), LOCO_EINVAL);
    assert_int_equal(node_stats(&a).conns, 0);
    node_close(&a, &loop);
    node_close(&other, &loop);
    loop_end(&loop);
}

static void two_links_to_one_peer_are_both_reported(void **state)
{
    uv_loop_t loop;
    struct node a, b;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    dial(&a, &b, &b.id.id, 1);
    dial(&b, &a, &a.id.id, 1);
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LINK_UP] == 2 &&
                         b.toy.counts[EVENT_LINK_UP] == 2);
    assert_int_not_equal(node_event(&a, EVENT_LINK_UP, 0)->event.link_up.link,
                         node_event(&a, EVENT_LINK_UP, 1)->event.link_up.link);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void a_goodbye_arrives_before_the_hang_up(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    uint32_t link;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    link = connect_nodes(&a, &b, &loop);
    for (uint32_t i = 0; i < 30; i++) {
        send_message(&a, link, 2, i, 60000);
    }
    node_act(&a, ACTION_HANG_UP)->hang_up.link = link;
    node_act(&a, ACTION_HANG_UP)->hang_up.link = link; /* harmless */
    send_message(&a, link, 1, 1, 4);                   /* nobody is there */
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LINK_DOWN] == 1);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(b.toy.counts[EVENT_RECV], 30);
    assert_int_equal(node_event(&a, EVENT_LINK_DOWN, 0)->event.link_down.rc,
                     LOCO_ECLOSED);
    assert_int_equal(node_event(&b, EVENT_LINK_DOWN, 0)->event.link_down.rc,
                     LOCO_ECLOSED);
    RUN_UNTIL(&loop, node_stats(&a).conns == 0 && node_stats(&b).conns == 0);
    assert_int_equal(a.toy.counts[EVENT_LINK_DOWN], 1);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* Its bytes are read only so that its kernel does not drop what we said. */
static void who_goes_on_after_the_hang_up_is_closed(void **state)
{
    size_t much = 64U << 20;
    uint8_t *junk = calloc(1, much);
    struct shell_options opt;
    uv_loop_t loop;
    struct node a, b;
    struct raw r;

    (void)state;
    assert_non_null(junk);
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.linger_ms = 600000;
    node_open(&b, &loop, &opt);
    node_init(&a, 1);
    raw_connect(&r, b.port);
    raw_shake(&r, &loop, &a.signer, CONNECTION_CONTROL);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1);
    node_act(&b, ACTION_HANG_UP)->hang_up.link =
        node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link;
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_false(raw_write(&r, &loop, junk, much));
    RUN_UNTIL(&loop, node_stats(&b).conns == 0);
    assert_true(node_stats(&b).bytes_received < 1 << 20);
    close(r.fd);
    node_close(&b, &loop);
    loop_end(&loop);
    free(junk);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

static void a_silent_half_open_connection_ends_at_its_deadline(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node b;
    struct raw r;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.handshake_ms = 30;
    node_open(&b, &loop, &opt);
    raw_connect(&r, b.port);
    RUN_UNTIL(&loop, node_stats(&b).half_open == 1);
    assert_true(raw_is_closed(&r, &loop));
    assert_int_equal(node_stats(&b).half_open, 0);
    assert_int_equal(node_stats(&b).conns, 0);
    assert_int_equal(node_stats(&b).handshakes_failed, 1);
    close(r.fd);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void a_dial_that_nobody_answers_ends_at_its_deadline(void **state)
{
    struct shell_options opt;
    struct address a;
    uv_loop_t loop;
    struct node b;
    struct raw silent;
    struct sockaddr_storage ss;
    socklen_t len;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.handshake_ms = 30;
    node_open(&b, &loop, &opt);
    a = loopback(0);
    len = address_to_sockaddr(&a, &ss);
    silent.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(silent.fd, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(listen(silent.fd, 1), 0);
    getsockname(silent.fd, (struct sockaddr *)&ss, &len);
    address_from_sockaddr((struct sockaddr *)&ss, &a);
    node_act(&b, ACTION_DIAL)->dial.address = a;
    RUN_UNTIL(&loop, b.toy.counts[EVENT_DIAL_FAILED] == 1);
    assert_int_equal(node_event(&b, EVENT_DIAL_FAILED, 0)->event.dial_failed.rc,
                     LOCO_ETIMEOUT);
    close(silent.fd);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void garbage_is_dropped_and_counted(void **state)
{
    uint8_t junk[4096];
    uint64_t seed = 1;
    uv_loop_t loop;
    struct node b;
    struct raw r;

    (void)state;
    uv_loop_init(&loop);
    node_start(&b, &loop, 2);
    for (uint32_t i = 0; i < 100; i++) {
        for (size_t j = 0; j < sizeof junk; j++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            junk[j] = (uint8_t)(seed >> 56);
        }
        if (i % 3 == 0) {
            put_u32(junk, HANDSHAKE_1_BYTES); /* a plausible beginning */
        } else if (i % 3 == 1) {
            put_u32(junk, UINT32_MAX);
        }
        raw_connect(&r, b.port);
        raw_write(&r, &loop, junk, i % 7 == 0 ? 3 : sizeof junk);
        if (i % 7 == 0) {
            shutdown(r.fd, SHUT_WR);
        }
        RUN_UNTIL(&loop, node_stats(&b).handshakes_failed == i + 1);
        close(r.fd);
    }
    assert_int_equal(node_stats(&b).conns, 0);
    assert_int_equal(b.toy.n_log, 0);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* A raw client that shook hands and then sends out[len]: the code of the
 * LINK_DOWN that the shell reports. */
static int down_after(struct node *b,
                      uv_loop_t *loop,
                      struct raw *r,
                      const uint8_t *bytes,
                      size_t len)
{
    uint32_t n = b->toy.counts[EVENT_LINK_DOWN];

    raw_write(r, loop, bytes, len);
    shutdown(r->fd, SHUT_WR);
    RUN_UNTIL(loop, b->toy.counts[EVENT_LINK_DOWN] == n + 1);
    close(r->fd);
    return node_event(b, EVENT_LINK_DOWN, n)->event.link_down.rc;
}

static void a_peer_that_breaks_the_framing_loses_its_link(void **state)
{
    static const struct {
        struct frame_header header;
        int rc;
    } cases[] = {
        {{.len = 4, .type = 0}, LOCO_EPROTO}, /* no such type */
        {{.len = 4, .type = 3}, LOCO_EPROTO}, /* beyond the table */
        {{.len = 4, .type = 255}, LOCO_EPROTO},
        {{.len = 65, .type = 1}, LOCO_EPROTO}, /* longer than its rule */
        {{.len = UINT32_MAX, .type = 2}, LOCO_EPROTO},
        {{.len = 4, .type = 1, .flags = 1}, LOCO_EPROTO},
        {{.len = 64, .type = 1}, LOCO_ECLOSED}, /* ends in the middle */
    };
    uint8_t plain[FRAME_HEADER_BYTES + 4] = {0}, wire[256];
    uv_loop_t loop;
    struct node a, b;
    struct raw r;

    (void)state;
    uv_loop_init(&loop);
    node_start(&b, &loop, 2);
    node_init(&a, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        raw_connect(&r, b.port);
        raw_shake(&r, &loop, &a.signer, CONNECTION_CONTROL);
        frame_header_encode(&cases[i].header, plain);
        size_t len = raw_seal(&r, plain, sizeof plain, wire);
        assert_int_equal(down_after(&b, &loop, &r, wire, len), cases[i].rc);
    }
    assert_int_equal(node_stats(&b).frames_refused, 6);
    assert_int_equal(b.toy.counts[EVENT_RECV], 0);
    assert_int_equal(node_stats(&b).conns, 0);
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

static void a_record_that_does_not_verify_ends_the_link(void **state)
{
    uint8_t plain[FRAME_HEADER_BYTES + 4] = {0}, wire[256];
    struct frame_header h = {.len = 4, .type = 1};
    uv_loop_t loop;
    struct node a, b;
    struct raw r;
    size_t len;

    (void)state;
    uv_loop_init(&loop);
    node_start(&b, &loop, 2);
    node_init(&a, 1);
    frame_header_encode(&h, plain);
    for (int i = 0; i < 4; i++) {
        raw_connect(&r, b.port);
        raw_shake(&r, &loop, &a.signer, CONNECTION_CONTROL);
        len = raw_seal(&r, plain, sizeof plain, wire);
        if (i == 0) {
            wire[len - 1] ^= 1; /* tampered */
            assert_int_equal(down_after(&b, &loop, &r, wire, len), LOCO_ESIG);
        } else if (i == 1) {
            memcpy(wire + len, wire, len); /* replayed */
            assert_int_equal(down_after(&b, &loop, &r, wire, 2 * len),
                             LOCO_ESIG);
        } else if (i == 2) {
            put_u32(wire, NOISE_MESSAGE_MAX + 1); /* too long */
            assert_int_equal(down_after(&b, &loop, &r, wire, len), LOCO_EPROTO);
        } else {
            /* truncated: half a record and the end */
            assert_int_equal(down_after(&b, &loop, &r, wire, len / 2),
                             LOCO_ECLOSED);
        }
    }
    assert_int_equal(b.toy.counts[EVENT_RECV], 1); /* before the replay */
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

static void a_peer_that_does_not_read_loses_its_link(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node a, b;
    struct raw r;
    uint32_t link, n = 0;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.link_queue_bytes_max = 1 << 20;
    opt.linger_ms = 1;
    node_open(&b, &loop, &opt);
    node_init(&a, 1);
    raw_connect(&r, b.port);
    raw_shake(&r, &loop, &a.signer, CONNECTION_CONTROL);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1);
    link = node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link;
    while (b.toy.counts[EVENT_LINK_DOWN] == 0) {
        send_message(&b, link, 2, n, 60000);
        RUN_UNTIL(&loop, b.toy.at == b.toy.n_queue);
        assert_true(++n < 2000); /* the kernel holds a few MB */
    }
    assert_int_equal(node_event(&b, EVENT_LINK_DOWN, 0)->event.link_down.rc,
                     LOCO_EBUSY);
    assert_int_equal(node_stats(&b).links_full, 1);
    RUN_UNTIL(&loop, node_stats(&b).conns == 0);
    close(r.fd);
    node_close(&b, &loop);
    loop_end(&loop);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
}

/* 400 kB in one turn of the loop: whether the link is closed for it. */
static bool is_closed_after_much(struct node *b, uv_loop_t *loop, bool trusted)
{
    struct node a;
    struct raw r;
    uint32_t link, n_up = b->toy.counts[EVENT_LINK_UP];
    uint32_t n_down = b->toy.counts[EVENT_LINK_DOWN];
    struct action *trust;
    bool closed;

    node_init(&a, trusted ? 1 : 3);
    raw_connect(&r, b->port);
    raw_shake(&r, loop, &a.signer, CONNECTION_CONTROL);
    RUN_UNTIL(loop, b->toy.counts[EVENT_LINK_UP] == n_up + 1);
    link = node_event(b, EVENT_LINK_UP, n_up)->event.link_up.link;
    trust = node_act(b, ACTION_TRUST);
    trust->trust.link = link;
    trust->trust.trusted = trusted;
    for (uint32_t n = 0; n < 8; n++) {
        send_message(b, link, 2, n, 50000);
    }
    RUN_UNTIL(loop, b->toy.at == b->toy.n_queue);
    uv_run(loop, UV_RUN_NOWAIT);
    closed = b->toy.counts[EVENT_LINK_DOWN] == n_down + 1;
    close(r.fd);
    RUN_UNTIL(loop, b->toy.counts[EVENT_LINK_DOWN] == n_down + 1);
    RUN_UNTIL(loop, node_stats(b).conns == 0);
    free(a.toy.queue);
    free(a.toy.log);
    free(a.memory);
    return closed;
}

static void a_stranger_holds_less_than_who_is_trusted(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node b;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.link_queue_bytes_max = 1 << 20;
    opt.stranger_queue_bytes_max = 256 << 10;
    node_open(&b, &loop, &opt);
    assert_false(is_closed_after_much(&b, &loop, true));
    assert_true(is_closed_after_much(&b, &loop, false));
    assert_int_equal(node_event(&b, EVENT_LINK_DOWN, 1)->event.link_down.rc,
                     LOCO_EBUSY);
    assert_int_equal(node_stats(&b).links_full, 1);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* 8,000 frames are 4 MB of its budget, of which it has 300 kB. The others wait,
 * and none is lost: TRUST lets them in at once. */
static void who_speaks_too_much_is_not_read_until_it_is_trusted(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node a, b;
    uint32_t link, back;
    struct action *trust;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.strangers_paced = true;
    node_open(&b, &loop, &opt);
    node_start(&a, &loop, 1);
    dial(&a, &b, &b.id.id, 1);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1 &&
                         a.toy.counts[EVENT_LINK_UP] == 1);
    link = node_event(&a, EVENT_LINK_UP, 0)->event.link_up.link;
    back = node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link;
    for (uint32_t n = 0; n < 8000; n++) {
        send_message(&a, link, 1, n, 4);
    }
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] >= 500);
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    run_quiet(&loop);
    assert_in_range(b.toy.counts[EVENT_RECV], 500, 7999);
    trust = node_act(&b, ACTION_TRUST);
    trust->trust.link = back;
    trust->trust.trusted = true;
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 8000);
    assert_int_equal(node_stats(&b).frames_refused, 0);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* The second one, when the third comes. */
static void of_all_strangers_the_longest_queue_goes(void **state)
{
    struct shell_options opt;
    uv_loop_t loop;
    struct node a[3], b;
    struct raw r[3];
    uint32_t link[3];

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 9);
    opt.strangers_queue_bytes_max = 200000;
    node_open(&b, &loop, &opt);
    for (uint32_t i = 0; i < 3; i++) {
        node_init(&a[i], (uint8_t)(1 + i));
        raw_connect(&r[i], b.port);
        raw_shake(&r[i], &loop, &a[i].signer, CONNECTION_CONTROL);
        RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == i + 1);
        link[i] = node_event(&b, EVENT_LINK_UP, i)->event.link_up.link;
    }
    send_message(&b, link[0], 2, 1, 60000);
    send_message(&b, link[1], 2, 2, 60000);
    send_message(&b, link[1], 2, 3, 60000);
    send_message(&b, link[2], 2, 4, 60000);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(node_event(&b, EVENT_LINK_DOWN, 0)->event.link_down.link,
                     link[1]);
    assert_int_equal(node_event(&b, EVENT_LINK_DOWN, 0)->event.link_down.rc,
                     LOCO_EBUSY);
    run_quiet(&loop);
    assert_int_equal(b.toy.counts[EVENT_LINK_DOWN], 1);
    node_close(&b, &loop);
    loop_end(&loop);
    for (uint32_t i = 0; i < 3; i++) {
        close(r[i].fd);
        free(a[i].toy.queue);
        free(a[i].toy.log);
        free(a[i].memory);
    }
}

static void a_second_shell_on_the_port_is_refused(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    uint16_t port;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    assert_int_equal(shell_listen(b.shell, "127.0.0.1", a.port, NULL),
                     UV_EADDRINUSE);
    assert_int_equal(shell_listen(b.shell, "0.0.0.0", a.port, NULL),
                     UV_EADDRINUSE);
    assert_int_equal(shell_listen(b.shell, "no address", 0, NULL), LOCO_EINVAL);
    port = a.port;
    node_close(&a, &loop);
    assert_int_equal(shell_listen(b.shell, "127.0.0.1", port, NULL), 0);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void ipv6_works_where_the_machine_has_it(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    struct action *act;
    uint16_t port;
    int rv;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    rv = shell_listen(b.shell, "::1", 0, &port);
    if (rv != 0) {
        print_message("[ SKIPPED  ] no IPv6 here: %s\n", uv_strerror(rv));
        node_close(&a, &loop);
        node_close(&b, &loop);
        loop_end(&loop);
        skip();
    }
    act = node_act(&a, ACTION_DIAL);
    assert_int_equal(address_parse("::1", port, &act->dial.address), 0);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1);
    assert_int_equal(
        node_event(&b, EVENT_LINK_UP, 0)->event.link_up.address.ip[15], 1);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void connections_over_the_limits_are_refused(void **state)
{
    struct shell_options opt;
    struct raw r[6];
    uv_loop_t loop;
    struct node b;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.half_open_max = 2;
    node_open(&b, &loop, &opt);
    for (int i = 0; i < 6; i++) {
        raw_connect(&r[i], b.port);
    }
    RUN_UNTIL(&loop, node_stats(&b).accepts_refused == 4);
    assert_int_equal(node_stats(&b).half_open, 2);
    for (int i = 0; i < 6; i++) {
        close(r[i].fd);
    }
    RUN_UNTIL(&loop, node_stats(&b).conns == 0);
    node_close(&b, &loop);
    loop_end(&loop);
}

/* Ids cost nothing, and each could hold some for ever. */
static void data_connections_of_strangers_keep_nobody_out(void **state)
{
    struct shell_options opt;
    struct node b, other[3];
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.conns_max = 2;
    node_open(&b, &loop, &opt);
    for (uint8_t i = 0; i < 3; i++) {
        node_start(&other[i], &loop, (uint8_t)(3 + i));
    }
    for (int i = 0; i < 2; i++) {
        struct action *act = node_act(&other[i], ACTION_BULK_OPEN);

        act->bulk_open.peer = b.id.id;
        act->bulk_open.address = loopback(b.port);
    }
    RUN_UNTIL(&loop, node_stats(&b).bulks == 2);
    dial(&other[2], &b, &b.id.id, 1);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1);
    dial(&b, &other[0], &other[0].id.id, 1);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 2);
    node_close(&b, &loop);
    for (int i = 0; i < 3; i++) {
        node_close(&other[i], &loop);
    }
    loop_end(&loop);
}

/* The longest silent one makes room, and who speaks keeps its place. */
static void silent_connections_keep_nobody_out(void **state)
{
    struct shell_options opt;
    struct raw r[4];
    uv_loop_t loop;
    struct node a, b;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    opt = node_init(&b, 2);
    opt.half_open_max = 4;
    node_open(&b, &loop, &opt);
    for (int i = 0; i < 4; i++) {
        raw_connect(&r[i], b.port);
    }
    RUN_UNTIL(&loop, node_stats(&b).half_open == 4);
    connect_nodes(&a, &b, &loop);
    assert_int_equal(node_stats(&b).accepts_refused, 1);
    assert_int_equal(node_stats(&b).half_open, 3);
    assert_true(raw_is_closed(&r[0], &loop));
    for (int i = 0; i < 4; i++) {
        close(r[i].fd);
    }
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void a_flood_of_connections_is_slowed_down(void **state)
{
    struct shell_options opt;
    struct raw r[20];
    uv_loop_t loop;
    struct node b;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.accepts_per_s = 10;
    node_open(&b, &loop, &opt);
    for (int i = 0; i < 12; i++) {
        raw_connect(&r[i], b.port);
    }
    RUN_UNTIL(&loop, node_stats(&b).accept_pauses > 0);
    assert_true(node_stats(&b).conns >= 10);      /* the burst */
    RUN_UNTIL(&loop, node_stats(&b).conns == 12); /* and late, the others */
    for (int i = 0; i < 12; i++) {
        close(r[i].fd);
    }
    node_close(&b, &loop);
    loop_end(&loop);
}

/* A first message as it should be. */
static void begin_shaking(struct raw *r, uv_loop_t *loop)
{
    uint8_t first[36] = {32, [4] = 9};

    assert_true(raw_write(r, loop, first, sizeof first));
}

/* One may shake hands, then one each 100 ms: who has said how it begins. */
static void who_waits_has_its_turn_when_it_says_something(void **state)
{
    struct shell_options opt;
    uint8_t second[4 + 204];
    struct raw r[4];
    uv_loop_t loop;
    struct node b;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.arrivals.all = (struct budget_price){100000, 1};
    node_open(&b, &loop, &opt);
    raw_connect(&r[0], b.port);
    RUN_UNTIL(&loop, node_stats(&b).half_open == 1);
    for (int i = 1; i < 4; i++) { /* silent ones wait, or a late one enters */
        raw_connect(&r[i], b.port);
    }
    RUN_UNTIL(&loop, node_stats(&b).waiting + node_stats(&b).half_open == 4);
    begin_shaking(&r[3], &loop);
    assert_true(raw_read(&r[3], &loop, second, sizeof second));
    for (int i = 1; i < 3; i++) {
        assert_true(raw_write(&r[i], &loop, "GET / HTTP/1.1\r\n", 16));
        assert_true(raw_is_closed(&r[i], &loop));
    }
    RUN_UNTIL(&loop, node_stats(&b).waiting == 0);
    for (int i = 0; i < 4; i++) {
        close(r[i].fd);
    }
    RUN_UNTIL(&loop, node_stats(&b).conns == 0);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void who_waits_too_long_or_leaves_gives_its_place_up(void **state)
{
    struct shell_options opt;
    struct raw r[3];
    uv_loop_t loop;
    struct node b;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.arrivals.all = (struct budget_price){UINT32_MAX, 1}; /* for 10 s */
    opt.handshake_ms = 2000;
    node_open(&b, &loop, &opt);
    raw_connect(&r[0], b.port);
    RUN_UNTIL(&loop, node_stats(&b).half_open == 1);
    raw_connect(&r[1], b.port);
    RUN_UNTIL(&loop, node_stats(&b).waiting == 1);
    close(r[1].fd);
    RUN_UNTIL(&loop, node_stats(&b).waiting == 0);
    raw_connect(&r[2], b.port);
    RUN_UNTIL(&loop, node_stats(&b).waiting == 1);
    assert_true(raw_is_closed(&r[2], &loop));
    RUN_UNTIL(&loop, node_stats(&b).waiting == 0);
    assert_int_equal(node_stats(&b).accepts_refused, 2);
    close(r[0].fd);
    close(r[2].fd);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void comes_back(uint32_t known_ms)
{
    struct shell_options opt;
    struct action *trust;
    struct raw r[2];
    uv_loop_t loop;
    struct node a, b;
    uint64_t trusted_ms;

    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    opt = node_init(&b, 2);
    opt.arrivals.all = (struct budget_price){UINT32_MAX, 1}; /* for 10 s */
    opt.arrivals.known_ms = known_ms;
    node_open(&b, &loop, &opt);
    (void)connect_nodes(&a, &b, &loop);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_UP] == 1);
    raw_connect(&r[0], b.port);
    RUN_UNTIL(&loop, node_stats(&b).waiting == 1);
    trust = node_act(&b, ACTION_TRUST);
    trust->trust.link = node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link;
    trust->trust.trusted = true;
    RUN_UNTIL(&loop, b.toy.at == b.toy.n_queue);
    trusted_ms = shell_now_ms();
    RUN_UNTIL(&loop, shell_now_ms() > trusted_ms + 1);
    raw_connect(&r[1], b.port); /* from there */
    RUN_UNTIL(&loop, node_stats(&b).half_open == 1);
    assert_int_equal(node_stats(&b).waiting, 1);
    close(r[0].fd);
    close(r[1].fd);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void a_member_comes_back_while_strangers_wait(void **state)
{
    (void)state;
    comes_back(3600000);
}

static void a_link_of_any_age_makes_its_address_known(void **state)
{
    (void)state;
    comes_back(1);
}

static void running_out_of_descriptors_does_not_spin(void **state)
{
    struct rlimit old, low;
    struct shell_options opt;
    uv_loop_t loop;
    struct node b;
    struct raw r;
    int fd;

    (void)state;
    uv_loop_init(&loop);
    opt = node_init(&b, 2);
    opt.accept_retry_ms = 20;
    node_open(&b, &loop, &opt);
    raw_connect(&r, b.port); /* waits in the kernel's queue */
    fd = dup(r.fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)fd; /* no number below it is free */
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    RUN_UNTIL(&loop, node_stats(&b).accept_pauses > 0);
    run_quiet(&loop);
    /* Many turns, few attempts: one for each 20 ms. */
    assert_true(node_stats(&b).accept_pauses < 50);
    assert_int_equal(node_stats(&b).conns, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    RUN_UNTIL(&loop, node_stats(&b).conns == 1);
    close(r.fd);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void what_rests_on_a_failed_save_is_not_said(void **state)
{
    uv_loop_t loop;
    struct node a, b;
    uint32_t link;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    link = connect_nodes(&a, &b, &loop);
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 1, 4);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 1);
    assert_int_equal(a.toy.counts[EVENT_SAVE_FAILED], 0);
    a.save_rc = LOCO_EDISK;
    send_message(&a, link, 1, 2, 4);
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 3, 4);
    node_act(&a, ACTION_JOB);
    RUN_UNTIL(&loop, a.toy.counts[EVENT_SAVE_FAILED] == 1);
    assert_int_equal(node_event(&a, EVENT_SAVE_FAILED, 0)->event.save_failed.rc,
                     LOCO_EDISK);
    assert_int_equal(a.n_local, 1); /* the rest of the step happens */
    assert_int_equal(a.n_saved, 2);
    send_message(&a, link, 1, 4, 4); /* the next step speaks again */
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 3);
    assert_int_equal(node_event(&b, EVENT_RECV, 1)->first, 2);
    assert_int_equal(node_event(&b, EVENT_RECV, 2)->first, 4);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

static void a_core_that_is_always_due_leaves_sockets_their_turn(void **state)
{
    uv_loop_t loop;
    struct node a, b;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    node_start(&b, &loop, 2);
    a.toy.busy = true;
    connect_nodes(&b, &a, &loop);
    assert_true(a.toy.counts[EVENT_TICK] > 64);
    node_close(&a, &loop);
    node_close(&b, &loop);
    loop_end(&loop);
}

struct poster {
    struct shell *shell;
    uint64_t round;
    uv_thread_t thread;
};

static void post_many(void *arg)
{
    struct poster *p = arg;
    struct local_event e = {.type = LOCAL_TRAINED, .trained.round = p->round};

    for (uint64_t k = 0; k < 1000; k++) {
        e.trained.inner_step = k;
        while (shell_post(p->shell, &e) == LOCO_EFULL) {
        }
    }
}

static void posts_of_any_thread_arrive_in_order(void **state)
{
    struct poster p[2];
    uint64_t seen[2] = {0, 0};
    uv_loop_t loop;
    struct node a;

    (void)state;
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    for (uint64_t i = 0; i < 2; i++) {
        p[i] = (struct poster){.shell = a.shell, .round = i};
        assert_int_equal(uv_thread_create(&p[i].thread, post_many, &p[i]), 0);
    }
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LOCAL] == 2000);
    for (uint32_t i = 0; i < 2000; i++) {
        const struct local_event *e = &a.toy.log[i].event.local;

        assert_true(e->trained.inner_step == seen[e->trained.round]++);
    }
    uv_thread_join(&p[0].thread);
    uv_thread_join(&p[1].thread);
    a.closing = true;
    shell_close(a.shell, node_on_closed, &a);
    struct local_event late = {.type = LOCAL_PAUSE};
    assert_int_equal(shell_post(a.shell, &late), LOCO_ECLOSED);
    node_close(&a, &loop);
    loop_end(&loop);
}

struct other_loop {
    struct node node;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t stop;
    uv_sem_t ready;
    bool stopping;
};

static void on_stop(uv_async_t *async)
{
    ((struct other_loop *)async->data)->stopping = true;
}

static void other_main(void *arg)
{
    struct other_loop *o = arg;

    uv_loop_init(&o->loop);
    uv_async_init(&o->loop, &o->stop, on_stop);
    o->stop.data = o;
    node_start(&o->node, &o->loop, 2);
    uv_sem_post(&o->ready);
    RUN_UNTIL(&o->loop, o->stopping);
    uv_close((uv_handle_t *)&o->stop, NULL);
    node_close(&o->node, &o->loop);
    loop_end(&o->loop);
}

static void shells_in_two_threads_do_not_share_anything(void **state)
{
    struct other_loop o = {.stopping = false};
    uv_loop_t loop;
    struct node a;
    uint32_t link;

    (void)state;
    uv_sem_init(&o.ready, 0);
    assert_int_equal(uv_thread_create(&o.thread, other_main, &o), 0);
    uv_sem_wait(&o.ready);
    uv_loop_init(&loop);
    node_start(&a, &loop, 1);
    dial(&a, &o.node, &o.node.id.id, 1);
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LINK_UP] == 1);
    link = node_event(&a, EVENT_LINK_UP, 0)->event.link_up.link;
    for (uint32_t i = 0; i < 1000; i++) {
        send_message(&a, link, 1, i, 32);
    }
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    uv_async_send(&o.stop);
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LINK_DOWN] == 1);
    uv_thread_join(&o.thread);
    uv_sem_destroy(&o.ready);
    node_close(&a, &loop);
    loop_end(&loop);
}

static void a_shell_closes_in_any_state(void **state)
{
    uv_loop_t loop;
    struct node a, b;

    (void)state;
    /* Turns between the first dial and the close: none, then more. */
    for (int turns = 0; turns < 24; turns++) {
        uv_loop_init(&loop);
        node_start(&a, &loop, 1);
        node_start(&b, &loop, 2);
        dial(&a, &b, &b.id.id, 1);
        segment_act(&a, ACTION_SEND_SEG, &b, 1, 0, 0, 100000);
        segment_act(&b, ACTION_POST_RECV, &a, 1, 1, 0, 100000);
        node_act(&a, ACTION_BULK_OPEN)->bulk_open.address = loopback(b.port);
        a.toy.queue[a.toy.n_queue - 1].bulk_open.peer = b.id.id;
        for (int i = 0; i < turns; i++) {
            uv_run(&loop, UV_RUN_NOWAIT);
        }
        struct node *first = turns % 2 ? &a : &b;

        first->closing = true;
        shell_close(first->shell, node_on_closed, first);
        shell_close(first->shell, NULL, NULL); /* idempotent */
        node_close(first == &a ? &b : &a, &loop);
        node_close(first, &loop);
        loop_end(&loop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_learn_the_link_and_who_is_there),
        cmocka_unit_test(ten_thousand_messages_arrive_in_order),
        cmocka_unit_test(the_longest_message_takes_two_records),
        cmocka_unit_test(a_failed_dial_says_why),
        cmocka_unit_test(two_links_to_one_peer_are_both_reported),
        cmocka_unit_test(a_goodbye_arrives_before_the_hang_up),
        cmocka_unit_test(who_goes_on_after_the_hang_up_is_closed),
        cmocka_unit_test(a_silent_half_open_connection_ends_at_its_deadline),
        cmocka_unit_test(a_dial_that_nobody_answers_ends_at_its_deadline),
        cmocka_unit_test(garbage_is_dropped_and_counted),
        cmocka_unit_test(a_peer_that_breaks_the_framing_loses_its_link),
        cmocka_unit_test(a_record_that_does_not_verify_ends_the_link),
        cmocka_unit_test(a_peer_that_does_not_read_loses_its_link),
        cmocka_unit_test(a_stranger_holds_less_than_who_is_trusted),
        cmocka_unit_test(who_speaks_too_much_is_not_read_until_it_is_trusted),
        cmocka_unit_test(of_all_strangers_the_longest_queue_goes),
        cmocka_unit_test(a_second_shell_on_the_port_is_refused),
        cmocka_unit_test(ipv6_works_where_the_machine_has_it),
        cmocka_unit_test(connections_over_the_limits_are_refused),
        cmocka_unit_test(data_connections_of_strangers_keep_nobody_out),
        cmocka_unit_test(silent_connections_keep_nobody_out),
        cmocka_unit_test(a_flood_of_connections_is_slowed_down),
        cmocka_unit_test(who_waits_has_its_turn_when_it_says_something),
        cmocka_unit_test(who_waits_too_long_or_leaves_gives_its_place_up),
        cmocka_unit_test(a_member_comes_back_while_strangers_wait),
        cmocka_unit_test(a_link_of_any_age_makes_its_address_known),
        cmocka_unit_test(running_out_of_descriptors_does_not_spin),
        cmocka_unit_test(what_rests_on_a_failed_save_is_not_said),
        cmocka_unit_test(a_core_that_is_always_due_leaves_sockets_their_turn),
        cmocka_unit_test(posts_of_any_thread_arrive_in_order),
        cmocka_unit_test(shells_in_two_threads_do_not_share_anything),
        cmocka_unit_test(a_shell_closes_in_any_state),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
