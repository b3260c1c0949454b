/* room.c - see room.h. */
#include "p2p/uv/room.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "p2p/uv/shell.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define FIRST_BYTES (RECORD_HEAD_BYTES + HANDSHAKE_1_BYTES)

/* The one that has been shaking hands for longest makes room. Who is honest
 * needs a second; a storm of silent ones keeps nobody out for longer. */
static bool make_room(struct shell *s)
{
    for (struct conn *c = s->conns; c != NULL; c = c->next) {
        if (c->inbound && c->state == CONN_SHAKING) {
            c->ops->on_fail(c, LOCO_ETIMEOUT);
            return s->stats.half_open < s->opt.half_open_max;
        }
    }
    return false;
}

static void enter(struct shell *s, int fd)
{
    bool full = s->stats.half_open >= s->opt.half_open_max;

    s->stats.accepts_refused += full || s->stats.conns >= s->opt.conns_max;
    if ((full && !make_room(s)) ||
        (s->stats.conns >= s->opt.conns_max && !bulk_make_room(s))) {
        close(fd);
        return;
    }
    if (conn_accept(s, &conn_ops_inbound, fd) != 0) {
        s->stats.handshakes_failed++;
    }
}

static void send_away(struct shell *s, int place)
{
    close(s->room.fd[place]);
    s->room.fd[place] = -1;
    s->stats.accepts_refused++;
}

/* Out of the room, and its socket. */
static int take_out(struct shell *s, int place)
{
    int fd = s->room.fd[place];

    s->room.fd[place] = -1;
    return fd;
}

/* Whether it has said nothing that is wrong; *said: and enough. */
static bool begins_well(int fd, bool *said)
{
    uint8_t bytes[FIRST_BYTES + 1];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);

    *said = n == FIRST_BYTES;
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    }
    return n > 0 && n <= FIRST_BYTES &&
           (n < RECORD_HEAD_BYTES || get_u32(bytes) == HANDSHAKE_1_BYTES);
}

static void look_at(struct shell *s, int place, short events)
{
    struct room *r = &s->room;
    bool said = false;

    if ((events & (POLLHUP | POLLERR | POLLRDHUP | POLLNVAL)) != 0 ||
        ((events & POLLIN) != 0 && !begins_well(r->fd[place], &said))) {
        arrivals_gone(&r->arrivals, place);
        send_away(s, place);
    } else if (said) {
        arrivals_said(&r->arrivals, place);
    }
}

/* Those who came since all were looked at, or all. */
static void look(struct shell *s, uint64_t now_ms)
{
    struct room *r = &s->room;
    bool all = now_ms - r->looked_ms >= ROOM_ALL_MS;
    nfds_t n = 0;

    for (uint32_t i = 0; i < r->arrivals.opt.waiting_max; i++) {
        const struct arrivals_place *p = &r->arrivals.places[i];

        if (p->used && (all || (!p->said && p->since_ms >= r->looked_ms))) {
            r->polled[n] = (struct pollfd){
                .fd = r->fd[i],
                .events = (short)(POLLRDHUP | (p->said ? 0 : POLLIN))};
            r->place[n++] = (int)i;
        }
    }
    r->looked_ms = all ? now_ms : r->looked_ms;
    if (n == 0 || poll(r->polled, n, 0) <= 0) {
        return;
    }
    for (nfds_t k = 0; k < n; k++) {
        if (r->polled[k].revents != 0) {
            look_at(s, r->place[k], r->polled[k].revents);
        }
    }
}

/* Whoever's turn it is, unless it went meanwhile. */
static void call(struct shell *s, int place, uint64_t now_ms)
{
    struct room *r = &s->room;
    bool said;

    if (begins_well(r->fd[place], &said) && said) {
        arrivals_enter(&r->arrivals, place, now_ms);
        enter(s, take_out(s, place));
    } else {
        arrivals_gone(&r->arrivals, place);
        send_away(s, place);
    }
}

static void on_look(uv_timer_t *timer)
{
    struct shell *s = timer->data;
    struct room *r = &s->room;
    uint64_t now_ms = shell_now_ms();
    int place;

    look(s, now_ms);
    while ((place = arrivals_late(&r->arrivals, now_ms)) != ARRIVALS_NONE) {
        send_away(s, place);
    }
    while ((place = arrivals_next(&r->arrivals, now_ms)) != ARRIVALS_NONE) {
        call(s, place, now_ms);
    }
    s->stats.waiting = r->arrivals.n_waiting;
    if (r->arrivals.n_waiting == 0) {
        uv_timer_stop(&r->timer);
    }
}

void room_take(struct shell *s, int fd, const uint8_t ip[16])
{
    struct room *r = &s->room;
    uint64_t now_ms = shell_now_ms();
    int place;

    link_know_at(s, ip, now_ms); /* its link may be older than an hour */
    place = arrivals_come(&r->arrivals, ip, now_ms);
    if (place == ARRIVALS_ENTER) {
        enter(s, fd);
        return;
    }
    if (r->fd[place] >= 0) {
        send_away(s, place);
    }
    r->fd[place] = fd;
    s->stats.waiting = r->arrivals.n_waiting;
    if (!uv_is_active((uv_handle_t *)&r->timer)) {
        uv_timer_start(&r->timer, on_look, ROOM_LOOK_MS, ROOM_LOOK_MS);
    }
}

/* ---- life --------------------------------------------------------------- */

void room_init(struct shell *s)
{
    struct room *r = &s->room;
    struct arrivals_options opt = s->opt.arrivals;

    /* Who dialled gives up after handshake_ms, which began before we knew. */
    opt.patience_ms = s->opt.handshake_ms / 5 * 4;
    randombytes_buf(&opt.seed, sizeof opt.seed);
    arrivals_init(&r->arrivals, &opt);
    for (uint32_t i = 0; i < ARRIVALS_WAITING_MAX; i++) {
        r->fd[i] = -1;
    }
    uv_timer_init(s->loop, &r->timer); /* Cannot fail in libuv. */
    r->timer.data = s;
}

void room_close(struct shell *s)
{
    for (uint32_t i = 0; i < ARRIVALS_WAITING_MAX; i++) {
        if (s->room.fd[i] >= 0) {
            close(take_out(s, (int)i));
        }
    }
    uv_close((uv_handle_t *)&s->room.timer, shell_handle_closed);
}
