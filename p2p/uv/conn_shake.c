/* conn_shake.c - see conn.h: a connection until both sides are known. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <sodium.h>

#include "p2p/link/ask.h"
#include "p2p/uv/conn_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

/* Seconds of silence before the kernel asks whether the other end is alive:
 * home routers forget idle mappings after a minute or more. */
#define KEEPALIVE_S 20

/* Beyond what back-pressure may take: a segment waits unposted_ms for its post,
 * and the window is closed meanwhile. */
#define UNACKED_MS 5000

void conn_shake_init(struct conn *c)
{
    struct handshake_options opt = {
        .signer = c->shell->opt.signer,
        .run_id = c->shell->opt.run_id,
        .version = c->shell->opt.version,
        .listen_port = c->shell->listen_port,
        .features = c->shell->opt.features |
                    (c->shell->opt.plain_bulk ? HANDSHAKE_PLAIN_BULK : 0) |
                    (c->shell->opt.aes_bulk ? HANDSHAKE_AES_BULK : 0),
    };
    bool to_relay = c->leg == LEG_ASKING;
    uint8_t ephemeral[NOISE_KEY_BYTES];

    memcpy(opt.static_secret, c->shell->static_secret, NOISE_KEY_BYTES);
    randombytes_buf(ephemeral, sizeof ephemeral);
    handshake_init(&c->shake, &opt, ephemeral,
                   to_relay ? CONNECTION_RELAY : c->kind,
                   to_relay ? &c->relay : &c->expected);
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

size_t conn_expects(const struct conn *c)
{
    switch (c->leg) {
    case LEG_WAITING:
        return (c->meets ? MET_BYTES : READY_BYTES) + NOISE_TAG_BYTES;
    case LEG_SERVING:
        return ASK_BYTES + NOISE_TAG_BYTES;
    default:
        return handshake_expects(&c->shake);
    }
}

/* Somebody wants to be carried: it says to whom in one more record. */
static void serve(struct conn *c)
{
    c->remote = c->shake.remote;
    c->send = c->shake.noise.send;
    c->recv = c->shake.noise.recv;
    handshake_wipe(&c->shake);
    c->leg = LEG_SERVING;
}

/* Bulk is sealed by a cipher of its own from here on. */
static int begin_bulk(struct conn *c)
{
    bool aes = c->shell->opt.aes_bulk &&
               (c->remote.features & HANDSHAKE_AES_BULK) != 0;
    enum cipher_kind kind = aes ? CIPHER_AES : CIPHER_CHACHA;

    c->sealer = cipher_new(kind, &c->send, true);
    c->opener = cipher_new(kind, &c->recv, false);
    sodium_memzero(&c->send, sizeof c->send);
    sodium_memzero(&c->recv, sizeof c->recv);
    if (c->sealer == NULL || c->opener == NULL) {
        return LOCO_ENOMEM;
    }
    c->shell->stats.bulks_aes += aes;
    return 0;
}

static int up(struct conn *c)
{
    int rv = 0;

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
    if (c->kind == CONNECTION_BULK && !c->plain) {
        rv = begin_bulk(c);
    }
    if (rv != 0) {
        return rv;
    }
    c->state = CONN_UP;
    uv_timer_stop(&c->timer);
    c->peer = peer_acquire(c->shell, &c->remote.id);
    c->ops->on_up(c);
    return 0;
}

/* Both sides of this leg are known. */
static int leg_done(struct conn *c)
{
    enum connection_kind kind = c->shake.remote.kind;

    if (c->leg == LEG_ASKING) {
        return conn_leg_ask(c);
    }
    if ((c->leg == LEG_THROUGH || c->other != NULL) && c->inbound &&
        kind != CONNECTION_CONTROL && kind != CONNECTION_BULK) {
        return LOCO_EPROTO; /* one relay, no more; nor by a meeting */
    }
    if (c->inbound && kind == CONNECTION_RELAY) {
        serve(c);
        return 0;
    }
    return up(c);
}

/* head[] holds a whole record after the handshake of a leg. */
static int after(struct conn *c)
{
    c->n_head = 0;
    return c->leg == LEG_WAITING ? conn_leg_ready(c) : pipe_asked(c);
}

/* head[] holds a whole handshake record. */
static void heard(struct conn *c)
{
    int rv;

    if (c->leg == LEG_WAITING || c->leg == LEG_SERVING) {
        rv = after(c);
        if (rv < 0) {
            conn_fail(c, rv);
        }
        return;
    }
    rv = handshake_read(&c->shake, c->head + RECORD_HEAD_BYTES,
                        c->n_head - RECORD_HEAD_BYTES);

    c->n_head = 0;
    if (rv >= 0) {
        rv = say(c);
    }
    if (rv >= 0 && handshake_done(&c->shake)) {
        rv = leg_done(c);
    }
    if (rv < 0) {
        conn_fail(c, rv);
    }
}

void conn_read_handshake(struct conn *c)
{
    size_t due = conn_expects(c);

    if (c->n_head >= RECORD_HEAD_BYTES && get_u32(c->head) != due) {
        conn_fail(c, LOCO_EPROTO);
        return;
    }
    if (c->n_head == RECORD_HEAD_BYTES + due) {
        heard(c);
    }
}

/* A router that was restarted knows nothing of our connections and drops what
 * comes on them without a word. The kernel would send again for a quarter of
 * an hour; until it gives up no new connection is made. */
static void limit_unacked(struct conn *c)
{
    unsigned ms = c->shell->opt.unposted_ms + UNACKED_MS;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
}

void conn_start_shaking(struct conn *c)
{
    int rv;

    c->state = CONN_SHAKING;
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    limit_unacked(c);
    rv = say(c);
    if (rv == 0) {
        rv = conn_start_reading(c); /* the second leg reads already */
    }
    if (rv != 0) {
        conn_fail(c, rv);
    }
}
