/* conn_shake.c - see conn.h: a connection until both sides are known. */
#include <string.h>

#include <sodium.h>

#include "p2p/uv/conn_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

/* Seconds of silence before the kernel asks whether the other end is alive:
 * home routers forget idle mappings after a minute or more. */
#define KEEPALIVE_S 30

void conn_shake_init(struct conn *c)
{
    struct handshake_options opt = {
        .signer = c->shell->opt.signer,
        .run_id = c->shell->opt.run_id,
        .version = c->shell->opt.version,
        .listen_port = c->shell->listen_port,
        .features = c->shell->opt.features |
                    (c->shell->opt.plain_bulk ? HANDSHAKE_PLAIN_BULK : 0),
    };
    uint8_t ephemeral[NOISE_KEY_BYTES];

    memcpy(opt.static_secret, c->shell->static_secret, NOISE_KEY_BYTES);
    randombytes_buf(ephemeral, sizeof ephemeral);
    handshake_init(&c->shake, &opt, ephemeral, c->kind, &c->expected);
    sodium_memzero(ephemeral, sizeof ephemeral);
    sodium_memzero(opt.static_secret, sizeof opt.static_secret);
}

/* Send the message that is due, if it is ours: 0 or a negative code. */
static int say(struct conn *c)
{
    uint8_t record[RECORD_HEAD_BYTES + HANDSHAKE_MESSAGE_MAX];
    int n = handshake_write(&c->shake, record + RECORD_HEAD_BYTES);

    if (n <= 0) {
        return n;
    }
    put_u32(record, (uint32_t)n);
    return conn_write_copy(c, record, RECORD_HEAD_BYTES + (size_t)n);
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
    c->plain = c->kind == CONNECTION_BULK && c->shell->opt.plain_bulk &&
               (c->remote.features & HANDSHAKE_PLAIN_BULK) != 0;
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
        conn_fail(c, rv);
    } else if (handshake_done(&c->shake)) {
        up(c);
    }
}

void conn_read_handshake(struct conn *c)
{
    size_t due = handshake_expects(&c->shake);

    if (c->n_head >= RECORD_HEAD_BYTES && get_u32(c->head) != due) {
        conn_fail(c, LOCO_EPROTO);
        return;
    }
    if (c->n_head == RECORD_HEAD_BYTES + due) {
        heard(c);
    }
}

void conn_start_shaking(struct conn *c)
{
    int rv;

    c->state = CONN_SHAKING;
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    rv = say(c);
    if (rv == 0) {
        rv = conn_start_reading(c);
    }
    if (rv != 0) {
        conn_fail(c, rv);
    }
}
