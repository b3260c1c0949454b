/* noise_fuzz.c - a handshake that hears anything: nobody gets in with bytes
 * that the owner of a key did not make. The first byte names what the rest
 * replaces: message 1, 2, 3, the hello inside a well-formed message 2 or 3, or
 * a sealed record. */
#include <stdlib.h>
#include <string.h>

#include "p2p/link/handshake.h"
#include "proto/sign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret_a[32] = {1, 2, 3}, secret_b[32] = {4, 5, 6};

struct ends {
    struct identity id[2];
    struct signer signer[2];
    struct handshake shake[2]; /* initiator, responder */
};

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void begin(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        uint8_t seed[32];
        struct handshake_options opt = {.version = 1, .listen_port = 99};

        memset(seed, i + 1, sizeof seed);
        require(identity_generate(&e->id[i], seed) == 0);
        e->signer[i] = signer_sodium(&e->id[i]);
        opt.signer = &e->signer[i];
        memcpy(opt.static_secret, i == 0 ? secret_a : secret_b, 32);
        memset(seed, i + 7, sizeof seed);
        handshake_init(&e->shake[i], &opt, seed,
                       i == 0 ? CONNECTION_BULK : CONNECTION_NONE, NULL);
    }
}

/* The first `n` messages as they should be. */
static void talk(struct ends *e, int n)
{
    uint8_t wire[HANDSHAKE_MESSAGE_MAX];

    for (int i = 0; i < n; i++) {
        int len = handshake_write(&e->shake[i % 2], wire);

        require(len > 0);
        require(handshake_read(&e->shake[(i + 1) % 2], wire, (size_t)len) >= 0);
    }
}

/* Message `n` is data: the reader goes on only after a message 1, which
 * proves nothing. */
static void replace_message(int n, const uint8_t *data, size_t size)
{
    uint8_t wire[HANDSHAKE_MESSAGE_MAX];
    struct ends e;
    struct handshake *to = &e.shake[n % 2];
    int rv;

    begin(&e);
    talk(&e, n - 1);
    rv = handshake_read(to, data, size);
    require(!handshake_done(to));
    require(rv < 0 || n == 1);
    if (rv >= 0) {
        rv = handshake_write(to, wire);
        require(rv < 0 || rv == HANDSHAKE_2_BYTES);
    }
}

/* Whoever made message `n` has all keys of Noise, but its hello is data. */
static void replace_hello(int n, const uint8_t *data, size_t size)
{
    uint8_t wire[2 * HANDSHAKE_MESSAGE_MAX];
    struct ends e;
    struct handshake *from = &e.shake[(n + 1) % 2], *to = &e.shake[n % 2];
    size_t len = size < HANDSHAKE_HELLO_BYTES ? size : HANDSHAKE_HELLO_BYTES;
    int rv;

    begin(&e);
    talk(&e, n - 1);
    rv = noise_write(&from->noise, data, len, wire, sizeof wire);
    require(rv > 0);
    rv = handshake_read(to, wire, (size_t)rv);
    require(rv < 0 && !handshake_done(to));
}

static void replace_record(const uint8_t *data, size_t size)
{
    static uint8_t plain[NOISE_MESSAGE_MAX];
    struct ends e;

    begin(&e);
    talk(&e, 3);
    require(handshake_done(&e.shake[0]) && handshake_done(&e.shake[1]));
    require(noise_open(&e.shake[0].noise.recv, data, size, plain) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;

    if (!started) {
        require(sign_start() == 0);
        started = true;
    }
    if (size == 0) {
        return 0;
    }
    switch (data[0] % 6) {
    case 0:
    case 1:
    case 2:
        replace_message(data[0] % 6 + 1, data + 1, size - 1);
        break;
    case 3:
    case 4:
        replace_hello(data[0] % 6 - 1, data + 1, size - 1);
        break;
    default:
        replace_record(data + 1, size - 1);
        break;
    }
    return 0;
}
