/* conn_read.c - see conn.h: bytes become records, or go where they belong. */
#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#include "p2p/uv/conn_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    struct conn *c = handle->data;

    (void)hint;
    if (c->state == CONN_SHAKING) {
        /* The length first, then exactly the message: nothing that follows
         * the handshake is read into this small buffer. */
        size_t due = c->n_head < RECORD_HEAD_BYTES
                         ? RECORD_HEAD_BYTES
                         : RECORD_HEAD_BYTES + conn_expects(c);
        *buf = uv_buf_init((char *)c->head + c->n_head,
                           (unsigned)(due - c->n_head));
        return;
    }
    if (c->state == CONN_CARRIED || (c->state == CONN_UP && c->plain)) {
        size_t len;
        uint8_t *at = c->ops->on_room(c, &len);

        *buf = uv_buf_init((char *)at, (unsigned)pace_room(c, len));
        return;
    }
    if (c->buf == NULL) {
        *buf = uv_buf_init((char *)c->head, sizeof c->head);
        return;
    }
    if (c->state == CONN_LINGERING) {
        *buf = uv_buf_init((char *)c->buf, (unsigned)c->cap);
        return;
    }
    *buf = uv_buf_init((char *)c->buf + c->fill,
                       (unsigned)pace_room(c, c->cap - c->fill));
}

/* Open one record of `len` sealed bytes at `in`: its plain bytes are at *plain.
 * Their number, or a negative code. */
static int
open_record(struct conn *c, uint8_t *in, size_t len, const uint8_t **plain)
{
    uint8_t *dst = NULL;

    if (len < NOISE_TAG_BYTES) {
        return LOCO_EPROTO;
    }
    if (c->ops->on_place != NULL) {
        dst = c->ops->on_place(c, len - NOISE_TAG_BYTES);
    }
    dst = dst != NULL ? dst : in;
    *plain = dst;
    return c->opener != NULL ? cipher_open(c->opener, in, len, dst)
                             : noise_open(&c->recv, in, len, dst);
}

/* Deliver what is buffered until it ends, the owner pauses or closes. */
static void parse(struct conn *c)
{
    int rv = 0;

    c->parsing = true;
    while (c->state == CONN_UP && !c->paused && rv >= 0 && !pace_waits(c)) {
        size_t have = c->fill - c->pos, len;
        uint8_t *at = c->buf + c->pos;
        const uint8_t *plain = NULL;

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
        rv = open_record(c, at + RECORD_HEAD_BYTES, len, &plain);
        if (rv >= 0) {
            c->ops->on_record(c, plain, (size_t)rv);
        }
    }
    c->parsing = false;
    if (rv < 0) {
        conn_fail(c, rv);
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
        conn_fail(c, (int)n);
        return;
    }
    c->shell->stats.bytes_received += (uint64_t)n;
    if (c->peer != NULL) {
        c->peer->stats.bytes_received += (uint64_t)n;
    }
    pace_read(c, (size_t)n);
    if (c->state == CONN_UP && c->kind == CONNECTION_BULK) {
        bulk_came(c);
    }
    if (c->state == CONN_SHAKING) {
        c->n_head += (size_t)n;
        conn_read_handshake(c);
    } else if (c->state == CONN_CARRIED || (c->state == CONN_UP && c->plain)) {
        c->ops->on_bytes(c, (size_t)n);
    } else if (c->state == CONN_UP) {
        c->fill += (size_t)n;
        parse(c);
    } else if (c->state == CONN_LINGERING) {
        c->n_thrown += (size_t)n;
        if (c->n_thrown > CONN_LINGER_BYTES) {
            conn_close(c);
        }
    }
    if (c->state == CONN_UP && c->kind == CONNECTION_BULK) {
        bulk_await(c);
    }
}

void conn_read_least(struct conn *c, uint32_t bytes)
{
    int fd, least = (int)bytes;

    if (bytes == c->least || (bytes == 1 && c->least == 0) ||
        uv_fileno((const uv_handle_t *)&c->tcp, &fd) != 0) {
        return;
    }
    /* Where a system has no such thing, we are woken more often. */
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
    c->least = bytes;
}

int conn_start_reading(struct conn *c)
{
    int rv;

    if (c->reading || c->throttled) {
        return 0; /* pace.c goes on with it */
    }
    rv = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    c->reading = rv == 0;
    return rv;
}

void conn_stop_reading(struct conn *c)
{
    if (c->reading) {
        uv_read_stop((uv_stream_t *)&c->tcp);
        c->reading = false;
    }
}

void conn_buffer(struct conn *c, size_t cap)
{
    assert(c->buf == NULL && cap >= RECORD_MAX);
    c->buf = shell_alloc(cap);
    c->cap = cap;
}

void conn_pause(struct conn *c, uint32_t limit_ms)
{
    if (!c->paused) {
        conn_set_deadline(c, limit_ms);
    }
    c->paused = true;
    if (c->state == CONN_UP) {
        conn_stop_reading(c);
    }
}

void conn_go_on(struct conn *c)
{
    int rv;

    assert(!c->parsing);
    if (!c->plain) {
        parse(c);
    }
    if (c->state == CONN_UP && !c->paused) {
        rv = conn_start_reading(c);
        if (rv != 0) {
            conn_fail(c, rv);
        }
    }
}

void conn_resume(struct conn *c)
{
    assert(c->paused && !c->parsing);
    c->paused = false;
    uv_timer_stop(&c->timer);
    conn_go_on(c);
}
