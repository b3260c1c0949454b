/* conn.c - see conn.h for the lifetime and what can go wrong. */
#include "p2p/uv/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "p2p/uv/addr.h"
#include "p2p/uv/shell.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

/* Seconds of silence before the kernel asks whether the other end is alive:
 * home routers forget idle mappings after a minute or more. */
#define KEEPALIVE_S 30

#define CONTAINER_OF(p, type, field)                                           \
    ((type *)(void *)((char *)(p)-offsetof(type, field)))

/* ---- closing ---------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct shell *s = c->shell;

    assert(c->state == CONN_CLOSING && c->n_handles > 0);
    if (--c->n_handles > 0) {
        return;
    }
    c->ops->on_closed(c);
    if (c->peer != NULL) {
        peer_release(s, c->peer);
    }
    sodium_memzero(&c->send, sizeof c->send);
    sodium_memzero(&c->recv, sizeof c->recv);
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
    handshake_wipe(&c->shake);
    shell_remove_conn(c->shell, c);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

static void fail(struct conn *c, int rc)
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
    fail(timer->data, LOCO_ETIMEOUT);
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

/* ---- writing ---------------------------------------------------------- */

static void on_written(uv_write_t *req, int status)
{
    struct conn_write *w = CONTAINER_OF(req, struct conn_write, req);
    struct conn *c = w->conn;
    struct shell *s = c->shell;

    if (status == 0) {
        s->stats.bytes_sent += w->len;
        if (c->peer != NULL) {
            c->peer->stats.bytes_sent += w->len;
        }
    }
    w->done(w, status); /* May free `w`. */
    if (status != 0 && status != UV_ECANCELED) {
        fail(c, status);
    }
}

int conn_write(struct conn *c,
               struct conn_write *w,
               const uint8_t *bytes,
               size_t len,
               void (*done)(struct conn_write *w, int status))
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)len);

    w->conn = c;
    w->done = done;
    w->len = len;
    return uv_write(&w->req, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
}

struct copy_write {
    struct conn_write w;
    uint8_t bytes[];
};

static void on_copy_written(struct conn_write *w, int status)
{
    (void)status;
    free(CONTAINER_OF(w, struct copy_write, w));
}

int conn_seal(struct conn *c, const uint8_t *src, size_t len, uint8_t *dst)
{
    int rv = noise_seal(&c->send, src, len, dst + RECORD_HEAD_BYTES);

    if (rv < 0) {
        return rv;
    }
    put_u32(dst, (uint32_t)rv);
    return rv + RECORD_HEAD_BYTES;
}

/* Bytes [at, at + len) of head || body. */
static void gather(uint8_t *dst,
                   const uint8_t *head,
                   size_t n_head,
                   const uint8_t *body,
                   size_t at,
                   size_t len)
{
    size_t n = 0;

    if (at < n_head) {
        n = n_head - at < len ? n_head - at : len;
        memcpy(dst, head + at, n);
    }
    if (n < len) {
        memcpy(dst + n, body + (at + n - n_head), len - n);
    }
}

int conn_send(struct conn *c,
              const uint8_t *head,
              size_t n_head,
              const uint8_t *body,
              size_t len)
{
    size_t total = n_head + len, at = 0, used = 0, n;
    size_t n_records = (total + NOISE_PLAIN_MAX - 1) / NOISE_PLAIN_MAX;
    struct copy_write *w;
    int rv;

    assert(c->state == CONN_UP);
    w = shell_alloc(sizeof *w + total +
                    n_records * (RECORD_HEAD_BYTES + NOISE_TAG_BYTES));
    for (; at < total; at += n) {
        uint8_t *dst = w->bytes + used;

        n = total - at < NOISE_PLAIN_MAX ? total - at : NOISE_PLAIN_MAX;
        gather(dst + RECORD_HEAD_BYTES, head, n_head, body, at, n);
        rv = conn_seal(c, dst + RECORD_HEAD_BYTES, n, dst);
        if (rv < 0) {
            free(w);
            return rv;
        }
        used += (size_t)rv;
    }
    rv = conn_write(c, &w->w, w->bytes, used, on_copy_written);
    if (rv != 0) {
        free(w);
    }
    return rv;
}

size_t conn_unsent(const struct conn *c)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
}

/* ---- handshake -------------------------------------------------------- */

/* Send the message that is due, if it is ours: 0 or a negative code. */
static int say(struct conn *c)
{
    uint8_t message[HANDSHAKE_MESSAGE_MAX];
    struct copy_write *w;
    int n = handshake_write(&c->shake, message), rv;

    if (n <= 0) {
        return n;
    }
    w = shell_alloc(sizeof *w + RECORD_HEAD_BYTES + (size_t)n);
    put_u32(w->bytes, (uint32_t)n);
    memcpy(w->bytes + RECORD_HEAD_BYTES, message, (size_t)n);
    rv = conn_write(c, &w->w, w->bytes, RECORD_HEAD_BYTES + (size_t)n,
                    on_copy_written);
    if (rv != 0) {
        free(w);
    }
    return rv;
}

static void up(struct conn *c)
{
    c->remote = c->shake.remote;
    c->send = c->shake.noise.send;
    c->recv = c->shake.noise.recv;
    handshake_wipe(&c->shake);
    if (c->inbound) {
        c->kind = c->remote.kind;
        c->shell->stats.half_open--;
    }
    c->state = CONN_UP;
    uv_timer_stop(&c->timer);
    c->peer = peer_acquire(c->shell, &c->remote.id);
    c->ops->on_up(c);
}

/* head[] holds a whole handshake record. */
static void heard(struct conn *c)
{
    int rv = handshake_read(&c->shake, c->head + RECORD_HEAD_BYTES,
                            c->n_head - RECORD_HEAD_BYTES);

    c->n_head = 0;
    if (rv >= 0) {
        rv = say(c);
    }
    if (rv < 0) {
        fail(c, rv);
    } else if (handshake_done(&c->shake)) {
        up(c);
    }
}

static void read_handshake(struct conn *c)
{
    size_t due = handshake_expects(&c->shake);

    if (c->n_head >= RECORD_HEAD_BYTES && get_u32(c->head) != due) {
        fail(c, LOCO_EPROTO);
        return;
    }
    if (c->n_head == RECORD_HEAD_BYTES + due) {
        heard(c);
    }
}

/* ---- reading ---------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    struct conn *c = handle->data;

    (void)hint;
    if (c->state == CONN_SHAKING) {
        /* The length first, then exactly the message: nothing that follows
         * the handshake is read into this small buffer. */
        size_t due = c->n_head < RECORD_HEAD_BYTES
                         ? RECORD_HEAD_BYTES
                         : RECORD_HEAD_BYTES + handshake_expects(&c->shake);
        *buf = uv_buf_init((char *)c->head + c->n_head,
                           (unsigned)(due - c->n_head));
        return;
    }
    if (c->state == CONN_LINGERING || c->buf == NULL) {
        *buf = uv_buf_init((char *)c->head, sizeof c->head);
        return;
    }
    *buf = uv_buf_init((char *)c->buf + c->fill, (unsigned)(c->cap - c->fill));
}

/* Deliver one record of `len` sealed bytes at `in`: 0 or a negative code. */
static int deliver(struct conn *c, uint8_t *in, size_t len)
{
    uint8_t *dst = NULL;
    int rv;

    if (len < NOISE_TAG_BYTES) {
        return LOCO_EPROTO;
    }
    if (c->ops->on_place != NULL) {
        dst = c->ops->on_place(c, len - NOISE_TAG_BYTES);
    }
    dst = dst != NULL ? dst : in;
    rv = noise_open(&c->recv, in, len, dst);
    if (rv < 0) {
        return rv;
    }
    c->ops->on_record(c, dst, (size_t)rv);
    return 0;
}

/* Deliver what is buffered until it ends, the owner pauses or closes. */
static void parse(struct conn *c)
{
    int rv = 0;

    c->parsing = true;
    while (c->state == CONN_UP && !c->paused && rv == 0) {
        size_t have = c->fill - c->pos, len;
        uint8_t *at = c->buf + c->pos;

        if (have < RECORD_HEAD_BYTES) {
            break;
        }
        len = get_u32(at);
        if (len > NOISE_MESSAGE_MAX) {
            rv = LOCO_EPROTO;
            break;
        }
        if (have < RECORD_HEAD_BYTES + len) {
            break;
        }
        c->pos += RECORD_HEAD_BYTES + len;
        rv = deliver(c, at + RECORD_HEAD_BYTES, len);
    }
    c->parsing = false;
    if (rv < 0) {
        fail(c, rv);
        return;
    }
    if (c->state == CONN_UP && c->pos > 0) {
        memmove(c->buf, c->buf + c->pos, c->fill - c->pos);
        c->fill -= c->pos;
        c->pos = 0;
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;

    (void)buf;
    if (n == 0) {
        return; /* EAGAIN */
    }
    if (n < 0) {
        fail(c, (int)n);
        return;
    }
    c->shell->stats.bytes_received += (uint64_t)n;
    if (c->peer != NULL) {
        c->peer->stats.bytes_received += (uint64_t)n;
    }
    if (c->state == CONN_SHAKING) {
        c->n_head += (size_t)n;
        read_handshake(c);
    } else if (c->state == CONN_UP) {
        c->fill += (size_t)n;
        parse(c);
    }
}

static int start_reading(struct conn *c)
{
    int rv;

    if (c->reading) {
        return 0;
    }
    rv = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    c->reading = rv == 0;
    return rv;
}

void conn_buffer(struct conn *c, size_t cap)
{
    assert(c->buf == NULL && cap >= RECORD_MAX);
    c->buf = shell_alloc(cap);
    c->cap = cap;
}

void conn_pause(struct conn *c)
{
    c->paused = true;
    if (c->reading && c->state == CONN_UP) {
        uv_read_stop((uv_stream_t *)&c->tcp);
        c->reading = false;
    }
}

void conn_resume(struct conn *c)
{
    int rv;

    assert(c->paused && !c->parsing);
    c->paused = false;
    parse(c);
    if (c->state == CONN_UP && !c->paused) {
        rv = start_reading(c);
        if (rv != 0) {
            fail(c, rv);
        }
    }
}

void conn_hang_up(struct conn *c)
{
    uint32_t linger_ms = c->shell->opt.linger_ms;

    if (c->state != CONN_UP) {
        conn_close(c);
        return;
    }
    c->state = CONN_LINGERING;
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) != 0 ||
        start_reading(c) != 0 ||
        uv_timer_start(&c->timer, on_deadline, linger_ms, 0) != 0) {
        conn_close(c);
    }
}

/* ---- making ----------------------------------------------------------- */

static struct conn *
conn_new(struct shell *s, const struct conn_ops *ops, enum connection_kind kind)
{
    struct conn *c = shell_alloc(sizeof *c);
    int rv;

    memset(c, 0, sizeof *c);
    c->shell = s;
    c->ops = ops;
    c->kind = kind;
    c->inbound = kind == CONNECTION_NONE;
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

static void shake_init(struct conn *c)
{
    struct handshake_options opt = {
        .signer = c->shell->opt.signer,
        .run_id = c->shell->opt.run_id,
        .version = c->shell->opt.version,
        .listen_port = c->shell->listen_port,
        .features = c->shell->opt.features,
    };
    uint8_t ephemeral[NOISE_KEY_BYTES];

    memcpy(opt.static_secret, c->shell->static_secret, NOISE_KEY_BYTES);
    randombytes_buf(ephemeral, sizeof ephemeral);
    handshake_init(&c->shake, &opt, ephemeral, c->kind, &c->expected);
    sodium_memzero(ephemeral, sizeof ephemeral);
    sodium_memzero(opt.static_secret, sizeof opt.static_secret);
}

static void start_shaking(struct conn *c)
{
    int rv;

    c->state = CONN_SHAKING;
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    rv = say(c);
    if (rv == 0) {
        rv = start_reading(c);
    }
    if (rv != 0) {
        fail(c, rv);
    }
}

static void on_connect(uv_connect_t *req, int status)
{
    struct conn *c = CONTAINER_OF(req, struct conn, connect);

    if (c->state == CONN_CLOSING) {
        return;
    }
    if (status != 0) {
        fail(c, status);
        return;
    }
    start_shaking(c);
}

int conn_dial(struct shell *s,
              const struct conn_ops *ops,
              enum connection_kind kind,
              const struct address *address,
              const struct peer_id *expected,
              struct conn **out)
{
    struct sockaddr_storage ss;
    struct conn *c;
    int rv;

    if (address->port == 0) {
        return LOCO_EINVAL;
    }
    if (s->stats.conns >= s->opt.conns_max) {
        return LOCO_EFULL;
    }
    c = conn_new(s, ops, kind);
    c->address = *address;
    c->expected = *expected;
    shake_init(c);
    address_to_sockaddr(address, &ss);
    uv_timer_start(&c->timer, on_deadline, s->opt.handshake_ms, 0);
    rv = uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&ss,
                        on_connect);
    if (rv != 0) {
        c->ops = &conn_ops_none;
        conn_close(c);
        return rv;
    }
    *out = c;
    return 0;
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
    shake_init(c);
    uv_timer_start(&c->timer, on_deadline, s->opt.handshake_ms, 0);
    start_shaking(c);
    return 0;
}
