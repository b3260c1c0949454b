/* conn.c - see conn.h: making and ending a connection. What happens in between
 * is in conn_shake.c, conn_read.c and conn_write.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "p2p/uv/addr.h"
#include "p2p/uv/conn_internal.h"
#include "p2p/uv/punch.h"
#include "proto/base/err.h"

/* ---- ending ----------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct shell *s = c->shell;

    assert(c->state == CONN_CLOSING && c->n_handles > 0);
    if (--c->n_handles > 0) {
        return;
    }
    pace_drop(c);
    c->ops->on_closed(c);
    if (c->peer != NULL) {
        peer_release(s, c->peer);
    }
    sodium_memzero(&c->send, sizeof c->send);
    sodium_memzero(&c->recv, sizeof c->recv);
    cipher_free(c->sealer);
    cipher_free(c->opener);
    free(c->buf);
    free(c);
    shell_release(s); /* May free the shell: keep this the last statement. */
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (c->inbound && c->state == CONN_SHAKING) {
        c->shell->stats.half_open--;
    }
    c->state = CONN_CLOSING;
    punch_closed(c);
    handshake_wipe(&c->shake);
    shell_remove_conn(c->shell, c);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

void conn_fail(struct conn *c, int rc)
{
    if (c->state == CONN_LINGERING) {
        conn_close(c);
        return;
    }
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (c->state == CONN_SHAKING) {
        c->shell->stats.handshakes_failed++;
    }
    c->ops->on_fail(c, rc == UV_EOF ? LOCO_ECLOSED : rc);
}

static void on_deadline(uv_timer_t *timer)
{
    conn_fail(timer->data, LOCO_ETIMEOUT);
}

void conn_set_deadline(struct conn *c, uint32_t limit_ms)
{
    uv_timer_start(&c->timer, on_deadline, limit_ms, 0); /* Cannot fail. */
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct conn *c = CONTAINER_OF(req, struct conn, shutdown);

    if (status != 0 && status != UV_ECANCELED) {
        conn_close(c);
    }
    /* Else wait for the other side to close: closing first, with bytes of
     * theirs unread, would make the kernel drop what we just sent. */
}

void conn_hang_up(struct conn *c)
{
    if (c->state != CONN_UP) {
        conn_close(c);
        return;
    }
    c->state = CONN_LINGERING;
    conn_set_deadline(c, c->shell->opt.linger_ms);
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) != 0 ||
        conn_start_reading(c) != 0) {
        conn_close(c);
    }
}

/* ---- making ----------------------------------------------------------- */

struct conn *
conn_new(struct shell *s, const struct conn_ops *ops, enum connection_kind kind)
{
    struct conn *c = shell_alloc(sizeof *c);
    int rv;

    memset(c, 0, sizeof *c);
    c->shell = s;
    c->ops = ops;
    c->kind = kind;
    rv = uv_timer_init(s->loop, &c->timer);
    assert(rv == 0); /* Cannot fail in libuv. */
    rv = uv_tcp_init(s->loop, &c->tcp);
    assert(rv == 0); /* Opens no socket yet, so it cannot fail either. */
    (void)rv;
    c->timer.data = c;
    c->tcp.data = c;
    c->n_handles = 2;
    shell_add_conn(s, c);
    return c;
}

static void on_connect(uv_connect_t *req, int status)
{
    struct conn *c = CONTAINER_OF(req, struct conn, connect);

    if (c->state == CONN_CLOSING) {
        return;
    }
    if (status != 0) {
        conn_fail(c, status);
        return;
    }
    conn_start_shaking(c);
}

int conn_dial_through(struct shell *s,
                      const struct conn_ops *ops,
                      enum connection_kind kind,
                      const struct conn_way *way,
                      const struct peer_id *expected,
                      struct conn **out)
{
    struct sockaddr_storage ss;
    struct conn *c;
    int rv = 0;

    if (way->address.port == 0) {
        return LOCO_EINVAL;
    }
    if (s->stats.conns >= s->opt.conns_max) {
        return LOCO_EFULL;
    }
    c = conn_new(s, ops, kind);
    c->address = way->address;
    c->expected = *expected;
    c->relay = way->relay;
    c->token = way->token;
    c->meets = way->meet;
    c->leg = id_is_zero(&way->relay) ? LEG_DIRECT : LEG_ASKING;
    conn_shake_init(c);
    address_to_sockaddr(&way->address, &ss);
    conn_set_deadline(c, s->opt.handshake_ms);
    if (c->meets) {
        rv = punch_bind(c);
    }
    if (rv == 0) {
        rv = uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&ss,
                            on_connect);
    }
    if (rv != 0) {
        c->ops = &conn_ops_none;
        conn_close(c);
        return rv;
    }
    *out = c;
    return 0;
}

int conn_dial(struct shell *s,
              const struct conn_ops *ops,
              enum connection_kind kind,
              const struct address *address,
              const struct peer_id *expected,
              struct conn **out)
{
    struct conn_way way = {.address = *address};

    return conn_dial_through(s, ops, kind, &way, expected, out);
}

static int remote_address(struct conn *c)
{
    struct sockaddr_storage ss;
    int len = sizeof ss, rv;

    rv = uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&ss, &len);
    if (rv != 0) {
        return rv;
    }
    return address_from_sockaddr((const struct sockaddr *)&ss, &c->address);
}

int conn_accept(struct shell *s, const struct conn_ops *ops, int fd)
{
    struct conn *c = conn_new(s, ops, CONNECTION_NONE);
    int rv;

    c->inbound = true;
    c->state = CONN_SHAKING;
    s->stats.half_open++;
    rv = uv_tcp_open(&c->tcp, fd);
    if (rv != 0) {
        close(fd);
    } else {
        rv = remote_address(c);
    }
    if (rv != 0) {
        c->ops = &conn_ops_none;
        conn_close(c);
        return rv;
    }
    conn_shake_init(c);
    conn_set_deadline(c, s->opt.handshake_ms);
    conn_start_shaking(c);
    return 0;
}
