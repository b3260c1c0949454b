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

#include "p2p/uv/punch.h"
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

/* Its only dial at a meeting is over. */
static void ended(struct trio *t, struct node *n, bool up, uint16_t port)
{
    const struct event_punched *e;

    RUN_UNTIL(&t->loop, n->toy.counts[EVENT_PUNCHED] == 1);
    e = &node_event(n, EVENT_PUNCHED, 0)->event.punched;
    assert_int_equal(e->up, up);
    assert_int_equal(e->address.port, port);
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
    assert_int_equal(t.a.toy.counts[EVENT_PUNCHED],
                     0); /* nothing was dialled */
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
    assert_int_equal(m.a.request, 77);
    assert_int_equal(m.b.request, 0); /* it was called */
    ended(&t, &t.a, true, h.port[0]);
    ended(&t, &t.b, true, h.port[1]);
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
    ended(&t, &t.a, false, 1);
    punch(&t.b, &m.b, 1); /* nor there */
    ended(&t, &t.b, false, 1);
    trio_close(&t);
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

/* A data connection of a through r; what r's core is told of it first. */
static struct event_relay pipe_up(struct trio *t)
{
    struct event_relay x, y;

    t->meet = false;
    x = asked(t, &t->a, &t->b, ACTION_BULK_OPEN);
    y = came(t, &t->b, &t->a, 6);
    join(t, &x, &y);
    RUN_UNTIL(&t->loop,
              node_stats(&t->a).bulks == 1 && node_stats(&t->b).bulks == 1);
    t->meet = true;
    return x;
}

/* The n-th BULK_MET of a. */
static const struct event_bulk_met *bulk_met(struct trio *t, uint32_t n)
{
    RUN_UNTIL(&t->loop, t->a.toy.counts[EVENT_BULK_MET] > n);
    return &node_event(&t->a, EVENT_BULK_MET, n)->event.bulk_met;
}

/* a and b meet for data and make a hole. */
static void hole_up(struct trio *t, struct hole *h)
{
    uint32_t n = t->a.toy.counts[EVENT_BULK_MET];
    struct told m = meet(t, ACTION_BULK_OPEN);

    punch(&t->a, &m.a, h->port[0]);
    punch(&t->b, &m.b, h->port[1]);
    assert_true(bulk_met(t, n)->up && bulk_met(t, n)->made);
    RUN_UNTIL(&t->loop, node_stats(&t->b).bulks == node_stats(&t->a).bulks);
}

static void move(struct trio *t, uint64_t attempt, uint32_t seg)
{
    post(&t->b, &t->a, attempt, seg, PIECE);
    give(&t->a, &t->b, attempt, seg, PIECE);
}

/* As often as it is tried: one pipe is there, and carries. */
static void a_meeting_for_data_in_vain_ends_nothing_but_itself(void **state)
{
    struct trio t;

    (void)state;
    meeting_open(&t, 30000);
    paint(&t.a);
    (void)pipe_up(&t);
    for (uint32_t k = 0; k < 7; k++) { /* more than one peer may have */
        struct told m = meet(&t, ACTION_BULK_OPEN);

        punch(&t.b, &m.b, 0);
        punch(&t.a, &m.a, 1);
        assert_false(bulk_met(&t, k)->up || bulk_met(&t, k)->made);
        assert_int_equal(node_stats(&t.r).pipes, 1);
        assert_int_equal(node_stats(&t.a).bulks, 1);
    }
    move(&t, 5, 0);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 1);
    assert_memory_equal(t.a.memory, t.b.memory, PIECE);
    assert_true(node_stats(&t.r).bytes_relayed > PIECE);
    trio_close(&t);
}

/* What waits for a connection waits for one through a relay, too. */
static void data_goes_through_a_relay_while_two_meet_for_it(void **state)
{
    struct trio t;
    struct told m;

    (void)state;
    meeting_open(&t, 30000);
    paint(&t.a);
    move(&t, 5, 0);
    m = meet(&t, ACTION_BULK_OPEN);
    (void)pipe_up(&t);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 1);
    assert_memory_equal(t.a.memory, t.b.memory, PIECE);
    assert_int_equal(t.a.toy.counts[EVENT_BULK_MET], 0); /* goes on */
    punch(&t.b, &m.b, 0);
    punch(&t.a, &m.a, 1);
    assert_false(bulk_met(&t, 0)->up);
    move(&t, 6, 1);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 2);
    trio_close(&t);
}

static void who_waits_is_told_when_the_last_way_has_failed(void **state)
{
    struct event_relay x;
    struct trio t;
    struct told m;

    (void)state;
    meeting_open(&t, 30000);
    m = meet(&t, ACTION_BULK_OPEN);
    give(&t.a, &t.b, 5, 0, PIECE);
    t.meet = false;
    x = asked(&t, &t.a, &t.b, ACTION_BULK_OPEN);
    node_act(&t.r, ACTION_RELAY_REFUSE)->relay_refuse.request = x.request;
    run_quiet(&t.loop);
    assert_int_equal(t.a.toy.counts[EVENT_SEG_DONE],
                     0); /* the meeting goes on */
    punch(&t.b, &m.b, 0);
    punch(&t.a, &m.a, 1);
    RUN_UNTIL(&t.loop, done(&t.a, UV_ECONNREFUSED) == 1);
    assert_false(bulk_met(&t, 0)->up);
    trio_close(&t);
}

static void a_hole_is_used_before_a_relay_whichever_is_younger(void **state)
{
    struct event_relay x, y;
    struct hole h;
    struct trio t;
    uint64_t carried;

    (void)state;
    hole_open(&h);
    meeting_open(&t, 30000);
    paint(&t.a);
    t.meet = false;
    x = asked(&t, &t.a, &t.b, ACTION_BULK_OPEN); /* a pipe that is late */
    t.meet = true;
    hole_up(&t, &h);
    t.meet = false;
    y = came(&t, &t.b, &t.a, 6);
    join(&t, &x, &y);
    RUN_UNTIL(&t.loop,
              node_stats(&t.a).bulks == 2 && node_stats(&t.b).bulks == 2);
    run_quiet(&t.loop);
    carried = node_stats(&t.r).bytes_relayed;
    move(&t, 5, 0);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 1);
    post(&t.a, &t.b, 7, 1, PIECE);
    give(&t.b, &t.a, 7, 1, PIECE);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 2);
    assert_memory_equal(t.a.memory, t.b.memory, PIECE);
    assert_int_equal(node_stats(&t.r).bytes_relayed, carried);
    /* Another meeting finds it and makes none. */
    node_act(&t.a, ACTION_BULK_OPEN)->bulk_open = (struct action_bulk_open){
        t.b.id.id, loopback(t.r.port), t.r.id.id, true};
    assert_true(bulk_met(&t, 1)->up && !bulk_met(&t, 1)->made);
    trio_close(&t);
    hole_close(&h);
}

static void last_is_of_a_fetch(struct node *n)
{
    n->toy.queue[n->toy.n_queue - 1].segment.stream = STREAM_FETCH;
}

static void fetch(struct trio *t, uint32_t seg)
{
    post(&t->b, &t->a, 5, seg, PIECE);
    last_is_of_a_fetch(&t->b);
    give(&t->a, &t->b, 5, seg, PIECE);
    last_is_of_a_fetch(&t->a);
}

/* And does not end with the pipe on which it began. */
static void a_fetch_moves_from_a_relay_to_a_hole(void **state)
{
    struct event_relay x;
    struct hole h;
    struct trio t;
    uint64_t carried;

    (void)state;
    hole_open(&h);
    meeting_open(&t, 30000);
    paint(&t.a);
    x = pipe_up(&t);
    fetch(&t, 0);
    RUN_UNTIL(&t.loop, done(&t.a, 0) == 1 && done(&t.b, 0) == 1);
    hole_up(&t, &h);
    carried = node_stats(&t.r).bytes_relayed;
    fetch(&t, 1);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 2);
    assert_int_equal(node_stats(&t.r).bytes_relayed, carried);
    post(&t.b, &t.a, 5, 2, PIECE);
    last_is_of_a_fetch(&t.b);
    node_act(&t.r, ACTION_RELAY_REFUSE)->relay_refuse.request = x.request;
    RUN_UNTIL(&t.loop,
              node_stats(&t.a).bulks == 1 && node_stats(&t.b).bulks == 1);
    give(&t.a, &t.b, 5, 2, PIECE);
    last_is_of_a_fetch(&t.a);
    RUN_UNTIL(&t.loop, t.b.toy.counts[EVENT_SEG_DONE] == 3);
    assert_int_equal(done(&t.b, 0), 3);
    assert_memory_equal(t.a.memory, t.b.memory, 3 * PIECE);
    trio_close(&t);
    hole_close(&h);
}

/* One piece is still on the pipe, behind what nobody has asked for. */
static void a_piece_on_a_pipe_that_ends_is_missed_at_once(void **state)
{
    struct action *act;
    struct hole h;
    struct trio t;

    (void)state;
    hole_open(&h);
    meeting_open(&t, 30000);
    paint(&t.a);
    (void)pipe_up(&t);
    fetch(&t, 0);
    RUN_UNTIL(&t.loop, done(&t.a, 0) == 1 && done(&t.b, 0) == 1);
    give(&t.a, &t.b, 9, 0, PIECE); /* of the exchange */
    RUN_UNTIL(&t.loop, node_stats(&t.b).paused == 1);
    fetch(&t, 1);
    RUN_UNTIL(&t.loop, done(&t.a, 0) == 3); /* on the pipe */
    hole_up(&t, &h);
    post(&t.b, &t.a, 5, 3, PIECE);
    last_is_of_a_fetch(&t.b);
    fetch(&t, 2);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 2); /* over the hole */
    act = node_act(&t.b, ACTION_CANCEL);
    act->cancel.stream = STREAM_RING;
    act->cancel.attempt = 0;
    RUN_UNTIL(&t.loop, t.b.toy.counts[EVENT_SEG_DONE] == 3);
    assert_int_equal(done(&t.b, LOCO_ECANCELED), 1);
    assert_int_equal(node_stats(&t.b).bulks, 1);
    give(&t.a, &t.b, 5, 3, PIECE); /* what the hole carries goes on */
    last_is_of_a_fetch(&t.a);
    RUN_UNTIL(&t.loop, done(&t.b, 0) == 3);
    trio_close(&t);
    hole_close(&h);
}

/* Where a router nearby refuses at once, they last for a while. */
static void tries_come_ever_more_slowly(void **state)
{
    uint32_t all = 0;

    (void)state;
    for (uint32_t n = 1; n < 10; n++) {
        all += punch_again_ms(n);
        assert_true(punch_again_ms(n + 1) >= punch_again_ms(n));
    }
    assert_int_equal(punch_again_ms(1), 20);
    assert_true(all >= 500 && all <= 2000); /* at most: half of it on average */
    assert_int_equal(punch_again_ms(UINT32_MAX), 640);
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
        cmocka_unit_test(a_meeting_for_data_in_vain_ends_nothing_but_itself),
        cmocka_unit_test(data_goes_through_a_relay_while_two_meet_for_it),
        cmocka_unit_test(who_waits_is_told_when_the_last_way_has_failed),
        cmocka_unit_test(a_hole_is_used_before_a_relay_whichever_is_younger),
        cmocka_unit_test(a_fetch_moves_from_a_relay_to_a_hole),
        cmocka_unit_test(a_piece_on_a_pipe_that_ends_is_missed_at_once),
        cmocka_unit_test(tries_come_ever_more_slowly),
        cmocka_unit_test(a_meeting_is_no_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
