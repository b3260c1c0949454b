/* handshake.c - see handshake.h. */
#include "p2p/link/handshake.h"

#include <assert.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define AT_SIGNATURE 32
#define AT_PORT      96
#define AT_KIND      98
#define AT_ZERO      99
#define AT_FEATURES  100

/* One per direction, so that a hello cannot be sent back to its author. */
static const char *domain_of(bool initiator)
{
    return initiator ? "loco-hello-initiator-1" : "loco-hello-responder-1";
}

void handshake_init(struct handshake *h,
                    const struct handshake_options *opt,
                    const uint8_t ephemeral[NOISE_KEY_BYTES],
                    enum connection_kind kind,
                    const struct peer_id *expected)
{
    uint8_t prologue[HANDSHAKE_PROLOGUE_BYTES];

    assert(opt->signer != NULL && opt->signer->public != NULL);
    memset(h, 0, sizeof *h);
    h->signer = opt->signer;
    h->self = id_of_public(opt->signer->public);
    h->listen_port = opt->listen_port;
    h->features = opt->features;
    h->kind = kind;
    if (expected != NULL) {
        h->expected = *expected;
    }
    memcpy(prologue, "loco", 4);
    put_u16(prologue + 4, opt->version);
    memcpy(prologue + 6, opt->run_id.b, ID_BYTES);
    noise_init(&h->noise, kind != CONNECTION_NONE, prologue, sizeof prologue,
               opt->static_secret, ephemeral);
}

size_t handshake_expects(const struct handshake *h)
{
    static const size_t bytes[3] = {HANDSHAKE_1_BYTES, HANDSHAKE_2_BYTES,
                                    HANDSHAKE_3_BYTES};
    const struct noise *n = &h->noise;

    if (n->failed || n->n_messages >= 3 || noise_my_turn(n)) {
        return 0;
    }
    return bytes[n->n_messages];
}

static int hello_write(struct handshake *h, uint8_t out[HANDSHAKE_HELLO_BYTES])
{
    struct noise *n = &h->noise;

    memset(out, 0, HANDSHAKE_HELLO_BYTES);
    memcpy(out, h->signer->public, SIGN_PUBLIC_BYTES);
    put_u16(out + AT_PORT, h->listen_port);
    out[AT_KIND] = (uint8_t)h->kind;
    put_u64(out + AT_FEATURES, h->features);
    return h->signer->sign(h->signer->self, domain_of(n->initiator),
                           n->payload_hash, sizeof n->payload_hash,
                           out + AT_SIGNATURE);
}

int handshake_write(struct handshake *h, uint8_t out[HANDSHAKE_MESSAGE_MAX])
{
    uint8_t hello[HANDSHAKE_HELLO_BYTES];
    struct noise *n = &h->noise;
    size_t hello_len = 0;
    int used, rv;

    if (!noise_my_turn(n)) {
        return 0;
    }
    used = noise_write_begin(n, out, HANDSHAKE_MESSAGE_MAX);
    if (used < 0) {
        return used;
    }
    if (n->n_messages > 0) {
        rv = hello_write(h, hello);
        if (rv < 0) {
            return rv;
        }
        hello_len = sizeof hello;
    }
    rv = noise_write_end(n, hello, hello_len, out + used,
                         HANDSHAKE_MESSAGE_MAX - (size_t)used);
    return rv < 0 ? rv : used + rv;
}

static int hello_read(struct handshake *h,
                      const uint8_t in[HANDSHAKE_HELLO_BYTES])
{
    struct noise *n = &h->noise;
    struct handshake_hello *r = &h->remote;
    uint8_t kind = in[AT_KIND];

    if (in[AT_ZERO] != 0 || kind >= CONNECTION_KIND_COUNT ||
        (kind == CONNECTION_NONE) != n->initiator) {
        return LOCO_EPROTO;
    }
    if (!h->signer->verify(h->signer->self, in, domain_of(!n->initiator),
                           n->payload_hash, sizeof n->payload_hash,
                           in + AT_SIGNATURE)) {
        return LOCO_ESIG;
    }
    memcpy(r->public_key, in, SIGN_PUBLIC_BYTES);
    r->id = id_of_public(r->public_key);
    r->listen_port = get_u16(in + AT_PORT);
    r->kind = (enum connection_kind)kind;
    r->features = get_u64(in + AT_FEATURES);
    if (id_eq(&r->id, &h->self)) {
        return memcmp(n->remote_static, n->static_public, NOISE_KEY_BYTES) == 0
                   ? LOCO_EINVAL
                   : LOCO_ETWIN;
    }
    if (!id_is_zero(&h->expected) && !id_eq(&r->id, &h->expected)) {
        return LOCO_ESIG;
    }
    return 0;
}

int handshake_read(struct handshake *h, const uint8_t *in, size_t len)
{
    uint8_t hello[HANDSHAKE_HELLO_BYTES];
    struct noise *n = &h->noise;
    unsigned message = n->n_messages + 1U;
    int rv;

    if (handshake_expects(h) == 0 || len != handshake_expects(h)) {
        n->failed = true;
        return LOCO_EPROTO;
    }
    rv = noise_read(n, in, len, hello, sizeof hello);
    if (rv == LOCO_ESIG && message == 2) {
        return LOCO_ERUN; /* the first bytes that depend on the prologue */
    }
    if (rv < 0 || message == 1) {
        return rv;
    }
    assert(rv == HANDSHAKE_HELLO_BYTES);
    rv = hello_read(h, hello);
    if (rv != 0) {
        n->failed = true;
    }
    return rv;
}

bool handshake_done(const struct handshake *h)
{
    return noise_done(&h->noise);
}

void handshake_wipe(struct handshake *h)
{
    noise_wipe(&h->noise);
}
