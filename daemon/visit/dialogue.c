/* dialogue.c - see dialogue.h. */
#include "daemon/visit/dialogue.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "p2p/link/handshake.h"
#include "p2p/uv/addr.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/frame.h"
#include "proto/messages.h"

#define HEAD_BYTES 4   /* of a record: its length */
#define LEAVE_MS   500 /* to say goodbye, and again for the peer to close */
/* Of a message that fills a record. */
#define MESSAGE_MAX                                                            \
    (NOISE_MESSAGE_MAX - HEAD_BYTES - FRAME_HEADER_BYTES - NOISE_TAG_BYTES)

struct dialogue {
    int fd;
    uint64_t deadline_ms;
    const struct signer *signer;
    struct hash32 run_id;
    struct handshake shake;
    uint8_t record[NOISE_MESSAGE_MAX];
    /* Plain bytes that are no whole frame yet. */
    uint8_t plain[FRAME_HEADER_BYTES + FRAME_CONTROL_MAX + NOISE_PLAIN_MAX];
    size_t n_plain, n_taken;
};

/* Until the socket can be read or written: 0, or LOCO_ETIMEOUT. */
static int await(int fd, short events, uint64_t until_ms)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        uint64_t now_ms = monotonic_ms();
        int n, left_ms = until_ms > now_ms ? (int)(until_ms - now_ms) : 0;

        n = poll(&p, 1, left_ms);
        if (n > 0) {
            return 0;
        }
        if (n == 0) {
            return LOCO_ETIMEOUT;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

static int
send_all(struct dialogue *d, const uint8_t *bytes, size_t len, uint64_t until)
{
    while (len > 0) {
        ssize_t n = send(d->fd, bytes, len, MSG_NOSIGNAL);

        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            int rv = await(d->fd, POLLOUT, until);

            if (rv != 0) {
                return rv;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static int
recv_all(struct dialogue *d, uint8_t *bytes, size_t len, uint64_t until)
{
    while (len > 0) {
        ssize_t n = recv(d->fd, bytes, len, 0);

        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (n == 0) {
            return LOCO_ECLOSED;
        } else if (errno == EAGAIN) {
            int rv = await(d->fd, POLLIN, until);

            if (rv != 0) {
                return rv;
            }
        } else if (errno != EINTR) {
            return errno == ECONNRESET ? LOCO_ECLOSED : -errno;
        }
    }
    return 0;
}

/* ---- opening ---------------------------------------------------------- */

static int connect_to(struct dialogue *d, const struct address *address)
{
    struct sockaddr_storage sa;
    socklen_t sa_len = address_to_sockaddr(address, &sa);
    int rv, failed = 0;
    socklen_t n = sizeof failed;

    d->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0) {
        return -errno;
    }
    if (connect(d->fd, (const struct sockaddr *)&sa, sa_len) == 0) {
        return 0;
    }
    if (errno != EINPROGRESS) {
        return -errno;
    }
    rv = await(d->fd, POLLOUT, d->deadline_ms);
    if (rv != 0) {
        return rv;
    }
    (void)getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &failed, &n);
    return -failed;
}

/* One handshake message from the peer. */
static int shake_read(struct dialogue *d)
{
    uint8_t head[HEAD_BYTES];
    int rv = recv_all(d, head, sizeof head, d->deadline_ms);

    if (rv != 0) {
        return rv;
    }
    if (get_u32(head) != handshake_expects(&d->shake)) {
        return LOCO_EPROTO;
    }
    rv = recv_all(d, d->record, get_u32(head), d->deadline_ms);
    return rv != 0 ? rv : handshake_read(&d->shake, d->record, get_u32(head));
}

static int shake_write(struct dialogue *d)
{
    uint8_t message[HEAD_BYTES + HANDSHAKE_MESSAGE_MAX];
    int n = handshake_write(&d->shake, message + HEAD_BYTES);

    if (n < 0) {
        return n;
    }
    put_u32(message, (uint32_t)n);
    return send_all(d, message, HEAD_BYTES + (size_t)n, d->deadline_ms);
}

static int shake(struct dialogue *d, const struct dialogue_options *opt)
{
    static const struct peer_id anyone;
    struct handshake_options ho = {
        .signer = opt->signer,
        .run_id = opt->run_id,
        .version = opt->version,
    };
    uint8_t ephemeral[NOISE_KEY_BYTES];
    int rv;

    randombytes_buf(ho.static_secret, sizeof ho.static_secret);
    randombytes_buf(ephemeral, sizeof ephemeral);
    handshake_init(&d->shake, &ho, ephemeral,
                   opt->bulk ? CONNECTION_BULK : CONNECTION_CONTROL,
                   id_eq(&opt->expected, &anyone) ? NULL : &opt->expected);
    rv = shake_write(d);
    rv = rv != 0 ? rv : shake_read(d);
    return rv < 0 ? rv : shake_write(d);
}

enum dialogue_step dialogue_open(struct dialogue **dialogue,
                                 const struct dialogue_options *opt,
                                 int *rc)
{
    struct dialogue *d = calloc(1, sizeof *d);
    enum dialogue_step step = DIALOGUE_CONNECT;

    if (d == NULL) {
        *rc = LOCO_ENOMEM;
        return step;
    }
    d->fd = -1;
    d->deadline_ms = opt->deadline_ms;
    d->signer = opt->signer;
    d->run_id = opt->run_id;
    *rc = connect_to(d, &opt->address);
    if (*rc == 0) {
        step = DIALOGUE_HANDSHAKE;
        *rc = shake(d, opt);
    }
    if (*rc != 0) {
        dialogue_close(d);
        return step;
    }
    *dialogue = d;
    return DIALOGUE_UP;
}

void dialogue_close(struct dialogue *d)
{
    if (d == NULL) {
        return;
    }
    if (d->fd >= 0) {
        (void)close(d->fd);
    }
    handshake_wipe(&d->shake);
    free(d);
}

/* What the peer still sends is read and dropped until it closes, too. A socket
 * closed with unread bytes resets the connection; a peer that writes then gets
 * an error before it reads the goodbye. */
static void close_gently(struct dialogue *d)
{
    uint64_t until_ms = monotonic_ms() + LEAVE_MS;

    (void)shutdown(d->fd, SHUT_WR);
    while (recv_all(d, d->record, sizeof d->record, until_ms) == 0 &&
           monotonic_ms() < until_ms) {
    }
    dialogue_close(d);
}

void dialogue_leave(struct dialogue *d, const struct peer_id *self)
{
    struct goodbye bye = {.body = {.peer = *self}};

    if (d == NULL) {
        return;
    }
    d->deadline_ms = monotonic_ms() + LEAVE_MS;
    bye.body.run = d->run_id;
    if (message_sign(d->signer, &goodbye_body_schema, &bye.body, bye.sig) ==
        0) {
        (void)dialogue_say(d, MESSAGE_GOODBYE, &bye);
    }
    close_gently(d);
}

const struct peer_id *dialogue_peer(const struct dialogue *d)
{
    return &d->shake.remote.id;
}

/* ---- frames and records ------------------------------------------------ */

int dialogue_say(struct dialogue *d, uint16_t type, const void *message)
{
    struct frame_header h = {.type = (uint8_t)type};
    uint8_t *frame = d->record + HEAD_BYTES;
    int rv, len = msg_encode(message_any_schema(type), message,
                             frame + FRAME_HEADER_BYTES, MESSAGE_MAX);

    if (len < 0) {
        return len;
    }
    h.len = (uint32_t)len;
    frame_header_encode(&h, frame);
    rv = noise_seal(&d->shake.noise.send, frame,
                    FRAME_HEADER_BYTES + (size_t)len, frame);
    if (rv < 0) {
        return rv;
    }
    put_u32(d->record, (uint32_t)rv);
    return send_all(d, d->record, HEAD_BYTES + (size_t)rv, d->deadline_ms);
}

int dialogue_record(struct dialogue *d,
                    uint64_t until_ms,
                    const uint8_t **bytes)
{
    uint64_t until = until_ms < d->deadline_ms ? until_ms : d->deadline_ms;
    uint8_t head[HEAD_BYTES];
    int rv = await(d->fd, POLLIN, until);

    /* Once a record began, the rest of it may take the whole time. */
    rv = rv != 0 ? rv : recv_all(d, head, sizeof head, d->deadline_ms);
    if (rv != 0) {
        return rv;
    }
    if (get_u32(head) > NOISE_MESSAGE_MAX || get_u32(head) < NOISE_TAG_BYTES) {
        return LOCO_EPROTO;
    }
    rv = recv_all(d, d->record, get_u32(head), d->deadline_ms);
    *bytes = d->record;
    return rv != 0 ? rv
                   : noise_open(&d->shake.noise.recv, d->record, get_u32(head),
                                d->record);
}

int dialogue_recv(struct dialogue *d,
                  uint64_t until_ms,
                  uint8_t *type,
                  const uint8_t **bytes)
{
    const uint8_t *more = NULL;
    uint32_t len;
    int rv;

    memmove(d->plain, d->plain + d->n_taken, d->n_plain - d->n_taken);
    d->n_plain -= d->n_taken;
    d->n_taken = 0;
    for (;;) {
        if (d->n_plain >= FRAME_HEADER_BYTES) {
            len = get_u32(d->plain);
            if (len > FRAME_CONTROL_MAX) {
                return LOCO_EPROTO;
            }
            if (d->n_plain >= FRAME_HEADER_BYTES + (size_t)len) {
                *type = d->plain[4];
                *bytes = d->plain + FRAME_HEADER_BYTES;
                d->n_taken = FRAME_HEADER_BYTES + (size_t)len;
                return (int)len;
            }
        }
        rv = dialogue_record(d, until_ms, &more);
        if (rv < 0) {
            return rv;
        }
        /* Room: less than a frame was there, and this is one record. */
        memcpy(d->plain + d->n_plain, more, (size_t)rv);
        d->n_plain += (size_t)rv;
    }
}
