/* conn_write.c - see conn.h: sealing records, queueing bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/uv/conn_internal.h"
#include "proto/base/bytes.h"

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
        conn_fail(c, status);
    }
}

int conn_write(struct conn *c,
               struct conn_write *w,
               const uv_buf_t *bufs,
               unsigned n,
               void (*done)(struct conn_write *w, int status))
{
    w->conn = c;
    w->done = done;
    w->len = 0;
    for (unsigned i = 0; i < n; i++) {
        w->len += bufs[i].len;
    }
    return uv_write(&w->req, (uv_stream_t *)&c->tcp, bufs, n, on_written);
}

uv_buf_t conn_bytes(const void *bytes, size_t len)
{
    return uv_buf_init((char *)(uintptr_t)bytes, (unsigned)len);
}

struct copy_write {
    struct conn_write w;
    uint8_t bytes[];
};

static void on_copy_written(struct conn_write *w, int status)
{
    (void)status;
    w->conn->n_copied -= w->len + sizeof(struct copy_write);
    free(CONTAINER_OF(w, struct copy_write, w));
}

static struct copy_write *copy_new(size_t bytes)
{
    return shell_alloc(sizeof(struct copy_write) + bytes);
}

/* Queue the first len bytes of `w`; taken, also on failure. */
static int copy_write(struct conn *c, struct copy_write *w, size_t len)
{
    uv_buf_t buf = conn_bytes(w->bytes, len);
    int rv = conn_write(c, &w->w, &buf, 1, on_copy_written);

    if (rv != 0) {
        free(w);
    } else {
        c->n_copied += len + sizeof *w;
    }
    return rv;
}

int conn_write_copy(struct conn *c, const uint8_t *bytes, size_t len)
{
    struct copy_write *w = copy_new(len);

    memcpy(w->bytes, bytes, len);
    return copy_write(c, w, len);
}

int conn_seal(struct conn *c, const uint8_t *src, size_t len, uint8_t *dst)
{
    uint8_t *to = dst + RECORD_HEAD_BYTES;
    int rv = c->sealer != NULL ? cipher_seal(c->sealer, src, len, to)
                               : noise_seal(&c->send, src, len, to);

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
    w = copy_new(total + n_records * (RECORD_HEAD_BYTES + NOISE_TAG_BYTES));
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
    return copy_write(c, w, used);
}

size_t conn_unsent(const struct conn *c)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
}

size_t conn_queued(const struct conn *c)
{
    return c->n_copied;
}
