/* punch_test.c - two shells meet at a third and dial each other.
 *
 * Over loopback two sockets never meet on their way: the first packet is
 * refused at once. A *hole* stands in for the two routers: it accepts a
 * connection of each and copies bytes, so that both ends have dialled, as in a
 * simultaneous open. Real routers: tests/netlab.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/uv/trio.h"

#define TRIES 3

/* Two listening sockets whose connections are joined. */
struct hole {
    int listener[2];
    uint16_t port[2], from[2]; /* ours; where each connection came from */
    pthread_t thread;
};

static int listener(uint16_t *port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *port = ntohs(in.sin_port);
    return fd;
}

static bool copy(int from, int to)
{
    char bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);

    for (ssize_t at = 0; at < n;) {
        ssize_t sent = send(to, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        at += sent;
    }
    return n > 0;
}

static void *carry(void *arg)
{
    struct hole *h = arg;
    struct pollfd fds[2];
    bool both = true;

    for (int k = 0; k < 2; k++) {
        struct sockaddr_in in;
        socklen_t len = sizeof in;
        int fd = accept(h->listener[k], (struct sockaddr *)&in, &len);

        h->from[k] = ntohs(in.sin_port);
        fds[k] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    while (both && poll(fds, 2, -1) > 0) {
        for (int k = 0; k < 2 && both; k++) {
            both = fds[k].revents == 0 || copy(fds[k].fd, fds[!k].fd);
        }
    }
    close(fds[0].fd);
    close(fds[1].fd);
    return NULL;
}

static void hole_open(struct hole *h)
{
    for (int k = 0; k < 2; k++) {
        h->listener[k] = listener(&h->port[k]);
    }
    assert_int_equal(pthread_create(&h->thread, NULL, carry, h), 0);
}

static void hole_close(struct hole *h)
{
    pthread_join(h->thread, NULL);
    close(h->listener[0]);
    close(h->listener[1]);
}

/* ---- meetings ----------------------------------------------------------- */

static void meeting_open(struct trio *t, uint32_t punch_ms)
{
    struct shell_options opt;

    memset(t, 0, sizeof *t);
    uv_loop_init(&t->loop);
    t->meet = true;
    opt = node_init(&t->a, 1);
    opt.punch_tries = TRIES;
    opt.punch_ms = punch_ms;
    node_open(&t->a, &t->loop, &opt);
    opt = node_init(&t->b, 2);
    opt.punch_tries = TRIES;
    opt.punch_ms = punch_ms;
    node_open(&t->b, &t->loop, &opt);
    node_start(&t->r, &t->loop, 3);
}

/* a asks, b comes, r introduces: what the two are told. */
struct told {
    struct event_relay asked, came;
    struct event_met a, b;
};

static struct told meet(struct trio *t, enum action_type how)
{
    uint32_t n = t->a.toy.counts[EVENT_MET];
    struct told m;

    m.asked = asked(t, &t->a, &t->b, how);
    m.came = came(t, &t->b, &t->a, 5);
    join(t, &m.asked, &m.came);
    RUN_UNTIL(&t->loop,
              t->a.toy.counts[EVENT_MET] > n && t->b.toy.counts[EVENT_MET] > n);
    m.a = node_event(&t->a, EVENT_MET, n)->event.met;
    m.b = node_event(&t->b, EVENT_MET, n)->event.met;
    return m;
}

static void punch(struct node *n, const struct event_met *met, uint16_t port)
{
    struct action *act = node_act(n, ACTION_PUNCH);

    act->punch.meeting = met->meeting;
    act->punch.address = port == 0 ? (struct address){0} : loopback(port);
}

static void each_is_told_where_the_relay_sees_the_other(void **state)
{
    struct trio t;
    struct told m;

    (void)state;
    meeting_open(&t, 30000);
    m = meet(&t, ACTION_DIAL);
    assert_true(m.asked.meet && m.came.meet);
    assert_true(id_eq(&m.a.peer, &t.b.id.id) && id_eq(&m.b.peer, &t.a.id.id));
    assert_true(id_eq(&m.a.relay, &t.r.id.id));
    assert_true(id_eq(&m.b.relay, &t.r.id.id));
    assert_true(address_eq(&m.a.address, &m.came.from));
    assert_true(address_eq(&m.b.address, &m.asked.from));
    assert_true(m.a.address.port != t.b.port); /* a port of its own */
    punch(&t.a, &m.a, 0);                      /* the core does not want to */
    punch(&t.b, &m.b, 0);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    RUN_UNTIL(&t.loop, node_stats(&t.r).conns == 0);
    assert_int_equal(node_stats(&t.r).bytes_relayed, 0);
    assert_int_equal(node_stats(&t.r).half_open, 0);
    assert_int_equal(node_stats(&t.r).pipes, 0);
    assert_int_equal(node_stats(&t.a).conns + node_stats(&t.b).conns, 0);
    trio_close(&t);
}

static void two_that_dial_at_once_have_a_direct_link(void **state)
{
    const struct event_link_up *up;
    struct hole h;
    struct trio t;
    struct told m;
    uint32_t link;

    (void)state;
    hole_open(&h);
    meeting_open(&t, 30000);
    m = meet(&t, ACTION_DIAL);
    punch(&t.a, &m.a, h.port[0]);
    punch(&t.b, &m.b, h.port[1]);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_LINK_UP] == 1 &&
                           t.b.toy.counts[EVENT_LINK_UP] == 1);
    up = &node_event(&t.a, EVENT_LINK_UP, 0)->event.link_up;
    assert_true(id_eq(&up->peer, &t.b.id.id) && id_is_zero(&up->relay));
    assert_true(id_eq(&up->met_at, &t.r.id.id));
    assert_true(!up->inbound && up->request == 77);
    link = up->link;
    up = &node_event(&t.b, EVENT_LINK_UP, 0)->event.link_up;
    assert_true(id_eq(&up->peer, &t.a.id.id) && id_is_zero(&up->relay));
    assert_true(id_eq(&up->met_at, &t.r.id.id) && up->inbound);
    send_message(&t.a, link, 2, 0x01010101, 60000);
    send_message(&t.b, up->link, 1, 0x02020202, 8);
    RUN_UNTIL(&t.loop, t.b.toy.counts[EVENT_RECV] == 1 &&
                           t.a.toy.counts[EVENT_RECV] == 1);
    /* From the port that the relay has seen, and nothing is left of that. */
    assert_int_equal(h.from[0], m.asked.from.port);
    assert_int_equal(h.from[1], m.came.from.port);
    RUN_UNTIL(&t.loop, node_stats(&t.r).conns == 0);
    assert_int_equal(node_stats(&t.a).conns, 1);
    assert_int_equal(node_stats(&t.b).conns, 1);
    assert_int_equal(node_stats(&t.a).punched + node_stats(&t.b).punched, 2);
    assert_int_equal(node_stats(&t.a).half_open, 0);
    assert_int_equal(node_stats(&t.b).half_open, 0);
    trio_close(&t);
    hole_close(&h);
}

static void segments_go_over_a_hole(void **state)
{
    struct hole h;
    struct trio t;
    struct told m;

    (void)state;
    hole_open(&h);
    meeting_open(&t, 30000);
    paint(&t.a);
    for (uint32_t i = 0; i < 4; i++) {
        post(&t.b, &t.a, 5, i, PIECE);
        give(&t.a, &t.b, 5, i, PIECE);
    }
    m = meet(&t, ACTION_BULK_OPEN);
    punch(&t.a, &m.a, h.port[0]);
    punch(&t.b, &m.b, h.port[1]);
    RUN_UNTIL(&t.loop, done(&t.a, 0) == 4 && done(&t.b, 0) == 4);
    assert_memory_equal(t.a.memory, t.b.memory, 4 * PIECE);
    assert_int_equal(node_stats(&t.r).bytes_relayed, 0);
    trio_close(&t);
    hole_close(&h);
}

/* Somebody who has nothing to do with it listens where the relay points. */
static void a_victim_has_one_connection_of_a_meeting(void **state)
{
    unsigned n = 0;
    uint16_t port;
    int fd = listener(&port);
    struct trio t;
    struct told m;

    (void)state;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    meeting_open(&t, 30000);
    m = meet(&t, ACTION_DIAL);
    punch(&t.a, &m.a, port);
    punch(&t.a, &m.a, port); /* one meeting is one */
    punch(&t.b, &m.b, 0);
    while (t.a.toy.counts[EVENT_DIAL_FAILED] == 0) {
        int c = accept(fd, NULL, NULL);

        uv_run(&t.loop, UV_RUN_NOWAIT);
        if (c >= 0) {
            n++;
            close(c);
        }
    }
    assert_int_equal(n, 1);
    run_quiet(&t.loop);
    assert_int_equal(accept(fd, NULL, NULL), -1);
    assert_int_equal(t.a.toy.counts[EVENT_DIAL_FAILED], 1);
    assert_int_equal(node_stats(&t.a).conns, 0);
    trio_close(&t);
    close(fd);
}

static void a_refused_end_tries_again_and_then_gives_up(void **state)
{
    struct trio t;
    struct told m;

    (void)state;
    meeting_open(&t, 30000);
    m = meet(&t, ACTION_DIAL);
    punch(&t.a, &m.a, 1); /* nobody is there */
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    assert_int_equal(
        node_event(&t.a, EVENT_DIAL_FAILED, 0)->event.dial_failed.rc,
        UV_ECONNREFUSED);
    assert_int_equal(
        node_event(&t.a, EVENT_DIAL_FAILED, 0)->event.dial_failed.request, 77);
    trio_close(&t); /* while b waits for its core */
}

static void a_meeting_ends_in_time_whatever_the_cores_do(void **state)
{
    struct trio t;
    struct told m;
    uint16_t port;
    int fd = listener(&port); /* accepts, says nothing */

    (void)state;
    meeting_open(&t, 200);
    m = meet(&t, ACTION_DIAL);
    punch(&t.a, &m.a, port);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    RUN_UNTIL(&t.loop, node_stats(&t.b).conns == 0); /* b's core was silent */
    assert_int_equal(node_stats(&t.a).conns, 0);
    punch(&t.b, &m.b, port); /* too late */
    run_quiet(&t.loop);
    assert_int_equal(node_stats(&t.b).conns, 0);
    trio_close(&t);
    close(fd);
}

static void data_that_cannot_meet_is_carried(void **state)
{
    uint32_t n;
    struct event_relay x, y;
    struct trio t;
    struct told m;

    (void)state;
    meeting_open(&t, 30000);
    paint(&t.a);
    post(&t.b, &t.a, 5, 0, PIECE);
    give(&t.a, &t.b, 5, 0, PIECE);
    m = meet(&t, ACTION_BULK_OPEN);
    n = t.r.toy.counts[EVENT_RELAY];
    punch(&t.b, &m.b, 0);
    punch(&t.a, &m.a, 1);
    RUN_UNTIL(&t.loop, t.r.toy.counts[EVENT_RELAY] > n);
    x = node_event(&t.r, EVENT_RELAY, n)->event.relay;
    assert_false(x.meet);
    assert_true(id_eq(&x.peer, &t.a.id.id) && id_eq(&x.other, &t.b.id.id));
    t.meet = false;
    y = came(&t, &t.b, &t.a, 6);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 1);
    assert_memory_equal(t.a.memory, t.b.memory, PIECE);
    assert_true(node_stats(&t.r).bytes_relayed > PIECE);
    trio_close(&t);
}

/* Who wants to meet is not joined with one who wants to be carried. */
static void a_meeting_is_no_pipe(void **state)
{
    struct event_relay x, y;
    struct trio t;

    (void)state;
    meeting_open(&t, 30000);
    x = asked(&t, &t.a, &t.b, ACTION_DIAL);
    t.meet = false;
    y = came(&t, &t.b, &t.a, 5);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop, t.a.toy.counts[EVENT_DIAL_FAILED] == 1);
    RUN_UNTIL(&t.loop, node_stats(&t.r).conns == 0);
    assert_int_equal(t.a.toy.counts[EVENT_MET], 0);
    trio_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_told_where_the_relay_sees_the_other),
        cmocka_unit_test(two_that_dial_at_once_have_a_direct_link),
        cmocka_unit_test(segments_go_over_a_hole),
        cmocka_unit_test(a_victim_has_one_connection_of_a_meeting),
        cmocka_unit_test(a_refused_end_tries_again_and_then_gives_up),
        cmocka_unit_test(a_meeting_ends_in_time_whatever_the_cores_do),
        cmocka_unit_test(data_that_cannot_meet_is_carried),
        cmocka_unit_test(a_meeting_is_no_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
