/* listen.c - see listen.h. */
#include "p2p/uv/listen.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "p2p/uv/addr.h"
#include "p2p/uv/shell.h"

#define LISTEN_BACKLOG   128
#define ACCEPTS_PER_TURN 16 /* then the other sockets get their turn */

static void start_polling(struct listener *l);

static void on_pause_over(uv_timer_t *timer)
{
    start_polling(timer->data);
}

static void pause_for(struct listener *l, uint64_t ms)
{
    l->shell->stats.accept_pauses++;
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->timer, on_pause_over, ms, 0);
}

/* Token bucket that holds one second's worth. */
static bool take_token(struct listener *l)
{
    uint64_t rate = l->shell->opt.accepts_per_s, now = shell_now_ms();

    l->tokens_milli += (now - l->filled_ms) * rate;
    l->filled_ms = now;
    if (l->tokens_milli > rate * 1000) {
        l->tokens_milli = rate * 1000;
    }
    if (l->tokens_milli < 1000) {
        return false;
    }
    l->tokens_milli -= 1000;
    return true;
}

/* One connection off the queue; false when this turn is over. */
static bool accept_one(struct listener *l)
{
    struct shell *s = l->shell;
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    struct address from;
    int fd;

    if (!take_token(l)) {
        pause_for(l, 1000 / s->opt.accepts_per_s + 1);
        return false;
    }
    fd = accept4(l->fd, (struct sockaddr *)&ss, &len,
                 SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        if (address_from_sockaddr((const struct sockaddr *)&ss, &from) == 0) {
            room_take(s, fd, from.ip);
        } else {
            close(fd);
        }
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED) {
        return true;
    }
    l->tokens_milli += 1000;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
        /* EMFILE, ENFILE, ENOBUFS: the queue stays readable, so polling
         * again at once would spin. */
        pause_for(l, s->opt.accept_retry_ms);
    }
    return false;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;

    (void)events;
    if (status != 0) {
        pause_for(l, l->shell->opt.accept_retry_ms);
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN && !l->shell->closing; i++) {
        if (!accept_one(l)) {
            return;
        }
    }
}

static void start_polling(struct listener *l)
{
    int rv = uv_poll_start(&l->poll, UV_READABLE, on_poll);

    if (rv != 0) {
        uv_timer_start(&l->timer, on_pause_over, l->shell->opt.accept_retry_ms,
                       0);
    }
}

/* ---- making ----------------------------------------------------------- */

static int make_socket(const struct address *address, bool reuse_port)
{
    struct sockaddr_storage ss;
    socklen_t len = address_to_sockaddr(address, &ss);
    int one = 1, zero = 0, rv;
    int fd =
        socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return uv_translate_sys_error(errno);
    }
    rv = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (rv == 0 && reuse_port) {
        rv = setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    }
    if (rv == 0 && ss.ss_family == AF_INET6) {
        rv = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    rv = rv == 0 ? bind(fd, (const struct sockaddr *)&ss, len) : rv;
    rv = rv == 0 ? listen(fd, LISTEN_BACKLOG) : rv;
    if (rv != 0) {
        rv = uv_translate_sys_error(errno);
        close(fd);
        return rv;
    }
    return fd;
}

static int bound_port(int fd, uint16_t *port)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    struct address a;
    int rv;

    if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0) {
        return uv_translate_sys_error(errno);
    }
    rv = address_from_sockaddr((const struct sockaddr *)&ss, &a);
    *port = a.port;
    return rv;
}

/* A listening socket with SO_REUSEPORT on a port that was free of others. */
static int make_listening(const struct address *address, uint16_t *port)
{
    struct address exact = *address;
    int probe, fd, rv, one = 1;

    probe = make_socket(address, false);
    if (probe < 0) {
        return probe;
    }
    fd = bound_port(probe, &exact.port);
    if (fd != 0) {
        goto out;
    }
    /* Only now may a second socket of ours share the port. */
    rv = setsockopt(probe, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (rv != 0) {
        fd = uv_translate_sys_error(errno);
        goto out;
    }
    fd = make_socket(&exact, true);
    *port = exact.port;

out:
    close(probe);
    return fd;
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;

    if (--l->n_handles > 0) {
        return;
    }
    close(l->fd);
    shell_release(l->shell); /* May free the listener with its shell. */
}

int listener_open(struct listener *l,
                  struct shell *s,
                  const struct address *address,
                  uint16_t *bound)
{
    int fd, rv;

    fd = make_listening(address, bound);
    if (fd < 0) {
        return fd;
    }
    *l = (struct listener){.shell = s, .fd = fd};
    rv = uv_poll_init(s->loop, &l->poll, fd);
    if (rv != 0) {
        close(fd);
        return rv;
    }
    rv = uv_timer_init(s->loop, &l->timer);
    assert(rv == 0); /* Cannot fail in libuv. */
    l->poll.data = l;
    l->timer.data = l;
    l->n_handles = 2;
    l->filled_ms = shell_now_ms();
    l->tokens_milli = (uint64_t)s->opt.accepts_per_s * 1000;
    shell_retain(s);
    start_polling(l);
    return 0;
}

void listener_close(struct listener *l)
{
    uv_close((uv_handle_t *)&l->poll, on_closed);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}
